/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The layout as the running libibverbs sees it. A provider without a device gives every operation a
 * function of its own; the public calls and the public pointers then tell in which slot libibverbs
 * found it. The driver id is read off the ioctls. Opening devices is in test_private.c.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <dlfcn.h>

#include <rdma/ib_user_verbs.h>

#include "glue.h"
#include "interpose.h"

/* One function for each operation; what it returns is a NULL, a 0 or nothing. */
static const char *called;
#define STUB(type, name, args) \
	static uintptr_t stub_##name(void) \
	{ \
		called = #name; \
		return 0; \
	}
VERBS_OPS(STUB)

static struct verbs_context_ops all_ops(void)
{
	struct verbs_context_ops ops;

#define SET(type, name, args) *(void **)&ops.name = (void *)stub_##name;
	VERBS_OPS(SET)
	return ops;
}

#define COUNT(type, name, args) +1
enum { OPS_COUNT = 0 VERBS_OPS(COUNT), OPS_LAYOUT_36 = 76 };
enum { FIRST_ID = RDMA_DRIVER_RXE, SECOND_ID = RDMA_DRIVER_MLX5 };

struct test_context {
	char before[24]; /* the verbs_context need not stand first */
	struct verbs_context vctx;
};

static struct verbs_context *test_alloc_context(struct ibv_device *device, int cmd_fd,
						void *private_data)
{
	const struct verbs_context_ops ops = all_ops();
	struct test_context *context;

	(void)private_data;
	context = verbs_alloc_context(device, cmd_fd, struct test_context, vctx, FIRST_ID);
	assert_non_null(context);
	verbs_set_ops(&context->vctx, &ops);
	return &context->vctx;
}

static const struct verbs_device_ops test_ops = {
	.name = "observed",
	.alloc_context = test_alloc_context,
};
static struct verbs_device test_device = { .ops = &test_ops, .refcount = 1 };
static struct ibv_context *context;

static int context_open(void **state)
{
	(void)state;
	context = verbs_open_device(&test_device.device, NULL);
	return context ? 0 : -1;
}

/* free_context is a stub: what it should have done is done here. */
static int context_close(void **state)
{
	struct test_context *test = (struct test_context *)((char *)to_verbs_context(context) -
							    offsetof(struct test_context, vctx));

	(void)state;
	verbs_uninit_context(to_verbs_context(context));
	free(test);
	return 0;
}

static unsigned int observed;

static void saw_call(const char *name)
{
	assert_string_equal(called ? called : "nothing was called", name);
	called = NULL;
	observed++;
}

static void saw_pointer(const void *pointer, const void *stub)
{
	assert_ptr_equal(pointer, stub);
	observed++;
}

/* Operations that programs reach by a pointer of the public context. */
static void pointers_check(void)
{
	struct verbs_context *vctx = to_verbs_context(context);

#define HEAD(name) saw_pointer((void *)vctx->name, (void *)stub_##name)
#define FLOW(name) saw_pointer((void *)vctx->ibv_##name, (void *)stub_##name)
#define BASE(name) saw_pointer((void *)context->ops.name, (void *)stub_##name)
	HEAD(advise_mr), HEAD(alloc_dm), HEAD(alloc_null_mr), HEAD(alloc_parent_domain);
	HEAD(alloc_td), HEAD(attach_counters_point_flow), HEAD(close_xrcd), HEAD(create_counters);
	HEAD(create_flow_action_esp), HEAD(create_qp_ex), HEAD(create_rwq_ind_table);
	HEAD(create_srq_ex), HEAD(create_wq), HEAD(dealloc_td), HEAD(destroy_counters);
	HEAD(destroy_flow_action), HEAD(destroy_rwq_ind_table), HEAD(destroy_wq), HEAD(free_dm);
	HEAD(get_srq_num), HEAD(modify_cq), HEAD(modify_flow_action_esp);
	HEAD(modify_qp_rate_limit), HEAD(modify_wq), HEAD(open_qp), HEAD(open_xrcd);
	HEAD(post_srq_ops), HEAD(query_device_ex), HEAD(query_rt_values), HEAD(read_counters);
	HEAD(reg_dm_mr);
	FLOW(create_flow), FLOW(destroy_flow);
	BASE(alloc_mw), BASE(bind_mw), BASE(dealloc_mw), BASE(poll_cq), BASE(post_recv);
	BASE(post_send), BASE(post_srq_recv), BASE(req_notify_cq);
}

static void pd_mr_calls_check(void)
{
	struct ibv_pd pd = { .context = context };
	struct verbs_mr vmr = { .ibv_mr = { .context = context, .pd = &pd } };
	struct verbs_dm vdm = { .dm = { .context = context } };
	struct ibv_ah_attr ah_attr = { 0 };
	struct ibv_ah ah = { .context = context };

	ibv_alloc_pd(context), saw_call("alloc_pd");
	ibv_dealloc_pd(&pd), saw_call("dealloc_pd");
	ibv_import_pd(context, 1), saw_call("import_pd");
	ibv_unimport_pd(&pd), saw_call("unimport_pd");
	ibv_reg_mr(&pd, &vmr, sizeof(vmr), 0), saw_call("reg_mr");
	ibv_rereg_mr(&vmr.ibv_mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0);
	saw_call("rereg_mr");
	ibv_dereg_mr(&vmr.ibv_mr), saw_call("dereg_mr");
	ibv_import_mr(&pd, 1), saw_call("import_mr");
	ibv_unimport_mr(&vmr.ibv_mr), saw_call("unimport_mr");
	ibv_reg_dmabuf_mr(&pd, 0, 1, 0, 0, 0), saw_call("reg_dmabuf_mr");
	GLUE_SINCE_35(ibv_import_dm(context, 1), saw_call("import_dm");)
	GLUE_SINCE_35(ibv_unimport_dm(&vdm.dm), saw_call("unimport_dm");)
	(void)vdm;
	ibv_create_ah(&pd, &ah_attr), saw_call("create_ah");
	ibv_destroy_ah(&ah), saw_call("destroy_ah");
}

static void queue_calls_check(void)
{
	struct ibv_pd pd = { .context = context };
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct ibv_srq_init_attr srq_init = { 0 };
	struct ibv_cq_init_attr_ex cq_init = { .cqe = 1 };
	struct ibv_qp_attr attr = { 0 };
	struct ibv_srq_attr srq_attr = { 0 };
	struct ibv_ece ece = { .vendor_id = 1 }; /* 0 is not asked */
	struct verbs_qp vqp = { .qp = { .context = context } };
	struct ibv_srq srq = { .context = context };
	struct ibv_cq cq = { .context = context };
	union ibv_gid gid = { .raw = { 0xff } };

	ibv_create_cq(context, 1, NULL, NULL, 0), saw_call("create_cq");
	ibv_create_cq_ex(context, &cq_init), saw_call("create_cq_ex");
	ibv_resize_cq(&cq, 2), saw_call("resize_cq");
	ibv_destroy_cq(&cq), saw_call("destroy_cq");
	ibv_create_srq(&pd, &srq_init), saw_call("create_srq");
	ibv_modify_srq(&srq, &srq_attr, 0), saw_call("modify_srq");
	ibv_query_srq(&srq, &srq_attr), saw_call("query_srq");
	ibv_destroy_srq(&srq), saw_call("destroy_srq");
	ibv_create_qp(&pd, &init), saw_call("create_qp");
	ibv_modify_qp(&vqp.qp, &attr, 0), saw_call("modify_qp");
	ibv_query_qp(&vqp.qp, &attr, 0, &init), saw_call("query_qp");
	ibv_query_ece(&vqp.qp, &ece), saw_call("query_ece");
	ibv_set_ece(&vqp.qp, &ece), saw_call("set_ece");
	GLUE_SINCE_36(ibv_query_qp_data_in_order(&vqp.qp, IBV_WR_RDMA_WRITE, 0);)
	GLUE_SINCE_36(saw_call("query_qp_data_in_order");)
	ibv_attach_mcast(&vqp.qp, &gid, 0), saw_call("attach_mcast");
	ibv_detach_mcast(&vqp.qp, &gid, 0), saw_call("detach_mcast");
	ibv_destroy_qp(&vqp.qp), saw_call("destroy_qp");
}

static void event_calls_check(void)
{
	struct ib_uverbs_async_event_desc async = { .event_type = IBV_EVENT_PORT_ERR };
	struct ib_uverbs_comp_event_desc comp = { 0 };
	struct ibv_port_attr port;
	struct ibv_comp_channel channel = { .context = context };
	struct ibv_cq cq = { .context = context };
	struct ibv_async_event event;
	struct ibv_cq *event_cq;
	void *cq_context;
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	context->async_fd = fds[0];
	assert_int_equal(write(fds[1], &async, sizeof(async)), sizeof(async));
	assert_int_equal(ibv_get_async_event(context, &event), 0);
	saw_call("async_event");

	channel.fd = fds[0];
	comp.cq_handle = (uintptr_t)&cq;
	assert_int_equal(write(fds[1], &comp, sizeof(comp)), sizeof(comp));
	assert_int_equal(ibv_get_cq_event(&channel, &event_cq, &cq_context), 0);
	saw_call("cq_event");
	context->async_fd = -1;
	close(fds[0]);
	close(fds[1]);

	ibv_query_port(context, 1, &port), saw_call("query_port");
	ibv_close_device(context), saw_call("free_context");
}

static void every_operation_is_in_its_slot(void **state)
{
	(void)state;
	observed = 0;
	pointers_check();
	pd_mr_calls_check();
	queue_calls_check();
	event_calls_check();
	if (OPS_COUNT > OPS_LAYOUT_36)
		print_message("%d operations of later layouts not looked at\n",
			      OPS_COUNT - OPS_LAYOUT_36);
	assert_int_equal(observed, OPS_COUNT < OPS_LAYOUT_36 ? OPS_COUNT : OPS_LAYOUT_36);
}

static void ioctls_carry_the_driver_id(void **state)
{
	struct ibv_gid_entry entry;

	(void)state;
	assert_true(ioctl_count > 0); /* allocating a context asks the kernel once */
	assert_int_equal(ioctl_driver_id, FIRST_ID);
	assert_int_equal(glue_context_driver_id(context), FIRST_ID);
	ioctl_driver_id = SECOND_ID;
	ibv_query_gid_ex(context, 1, 0, &entry, 0);
	assert_int_equal(ioctl_driver_id, FIRST_ID);
}

static void context_check_finds_id_and_ops(void **state)
{
	struct verbs_context_ops ops = all_ops();

	(void)state;
	assert_true(glue_context_check(context, &ops, FIRST_ID));
	assert_false(glue_context_check(context, &ops, SECOND_ID));
	*(void **)&ops.unimport_pd = (void *)stub_advise_mr;
	assert_false(glue_context_check(context, &ops, FIRST_ID));
}

static void installed_layout_is_accepted(void **state)
{
	char why[256] = "";

	(void)state;
	assert_int_equal(glue_layout_check(why, sizeof(why)), 0);
	assert_string_equal(why, "");
}

static void names_have_the_private_version(void **state)
{
	static const char *const names[] = {
		GLUE_REGISTER_NAME,   "verbs_open_device",    "_verbs_init_and_alloc_context",
		"verbs_set_ops",      "verbs_uninit_context", "verbs_init_cq",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!dlvsym(RTLD_DEFAULT, names[i], GLUE_PRIVATE_NODE))
			fail_msg("no %s of %s", names[i], GLUE_PRIVATE_NODE);
}

int main(void)
{
#define WITH_CONTEXT(test) cmocka_unit_test_setup_teardown(test, context_open, context_close)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_have_the_private_version),
		cmocka_unit_test(installed_layout_is_accepted),
		WITH_CONTEXT(every_operation_is_in_its_slot),
		WITH_CONTEXT(ioctls_carry_the_driver_id),
		WITH_CONTEXT(context_check_finds_id_and_ops),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
