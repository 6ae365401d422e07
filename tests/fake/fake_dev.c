/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The provider: which devices are fakes, how they are opened, what their verbs are.
 *
 * A device is one of ours if the control file of this fake-run names it; without $FAKE_DIR none is.
 * Read next: fake.h, engine.h.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

bool fake_fails(struct fake_device *dev, enum fake_knob knob)
{
	_Atomic int64_t *count = &dev->ctl->knob[knob];
	int64_t n = atomic_load(count);

	do
		if (n <= 0)
			return false;
	while (!atomic_compare_exchange_weak(count, &n, n - 1));
	if (n > 1)
		return false;
	errno = fake_knob_get(dev->ctl, FAKE_FAIL_ERRNO);
	return true;
}

int fake_device_of_gid(const uint8_t *gid)
{
	static const uint8_t zero[16];

	if (!memcmp(gid, zero, sizeof(zero)))
		return -1;
	for (uint32_t i = 0; i < engine.ctl->num_devs; i++)
		for (int j = 0; j < FAKE_MAX_GIDS; j++)
			if (!memcmp(engine.ctl->dev[i].gid[j], gid, sizeof(zero)))
				return i;
	return -1;
}

static void no_event(struct ibv_context *context, struct ibv_async_event *event)
{
	(void)context;
	(void)event;
}

static void no_cq_event(struct ibv_cq *cq)
{
	(void)cq;
}

static int data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint32_t flags)
{
	(void)qp;
	(void)opcode;
	(void)flags;
	return 0;
}

static void free_context(struct ibv_context *ibcontext)
{
	struct fake_context *context = to_fake_context(ibcontext);

	engine_put(context);
	verbs_uninit_context(&context->vctx);
	free(context);
}

static const struct verbs_context_ops ops = {
	.alloc_pd = fake_alloc_pd,
	.async_event = no_event,
	.cq_event = no_cq_event,
	.create_ah = fake_create_ah,
	.create_cq = fake_create_cq,
	.create_cq_ex = fake_create_cq_ex,
	.create_qp = fake_create_qp,
	.create_qp_ex = fake_create_qp_ex,
	.create_srq = fake_create_srq,
	.create_srq_ex = fake_create_srq_ex,
	.dealloc_pd = fake_dealloc_pd,
	.dereg_mr = fake_dereg_mr,
	.destroy_ah = fake_destroy_ah,
	.destroy_cq = fake_destroy_cq,
	.destroy_qp = fake_destroy_qp,
	.destroy_srq = fake_destroy_srq,
	.free_context = free_context,
	.get_srq_num = fake_get_srq_num,
	.modify_qp = fake_modify_qp,
	.modify_srq = fake_modify_srq,
	.poll_cq = fake_poll_cq,
	.post_recv = fake_post_recv,
	.post_send = fake_post_send,
	.post_srq_recv = fake_post_srq_recv,
	.query_device_ex = fake_query_device,
	.query_port = fake_query_port,
	.query_qp = fake_query_qp,
	GLUE_SINCE_36(.query_qp_data_in_order = data_in_order,)
	.query_srq = fake_query_srq,
	.reg_mr = fake_reg_mr,
	.req_notify_cq = fake_req_notify_cq,
	.resize_cq = fake_resize_cq,
};

static struct verbs_context *alloc_context(struct ibv_device *device, int cmd_fd,
					   void *private_data)
{
	struct fake_device *dev = to_fake_device(device);
	struct fake_context *context;
	int ret;

	(void)private_data;
	context = verbs_alloc_context(device, cmd_fd, struct fake_context, vctx, 0);
	if (!context)
		return NULL;
	context->dev = dev;
	if (fake_fails(dev, FAKE_FAIL_OPEN)) {
		ret = errno;
		goto err_uninit;
	}
	context->vctx.context.async_fd = event_create();
	if (context->vctx.context.async_fd < 0) {
		ret = errno;
		goto err_uninit;
	}
	verbs_set_ops(&context->vctx, &ops);
	context->no_data = fake_knob_get(dev->ctl, FAKE_INSTANT) == 2;
	if (context->no_data)
		verbs_set_ops(&context->vctx, &instant_ops);
	context->vctx.context.num_comp_vectors = 4;
	context->link_was_down = fake_knob_get(dev->ctl, FAKE_LINK_DOWN);
	ret = engine_get(context);
	if (ret)
		goto err_uninit;
	return &context->vctx;

err_uninit:
	verbs_uninit_context(&context->vctx);
	free(context);
	errno = ret;
	return NULL;
}

static bool match_device(struct verbs_sysfs_dev *sysfs)
{
	return fake_ctl_dev(sysfs->ibdev_name);
}

static struct verbs_device *alloc_device(struct verbs_sysfs_dev *sysfs)
{
	struct fake_ctl_dev *ctl = fake_ctl_dev(sysfs->ibdev_name);
	struct fake_device *dev;

	if (!ctl)
		return NULL;
	dev = calloc(1, sizeof(*dev));
	if (!dev)
		return NULL;
	dev->ctl = ctl;
	dev->index = ctl - fake_ctl_map()->dev;
	return &dev->vdev;
}

static void uninit_device(struct verbs_device *vdev)
{
	free(vdev);
}

static const struct verbs_device_ops device_ops = {
	.name = "fake",
	.match_min_abi_version = 1,
	.match_max_abi_version = 1,
	.match_device = match_device,
	.alloc_context = alloc_context,
	.alloc_device = alloc_device,
	.uninit_device = uninit_device,
};

static __attribute__((constructor)) void register_fake(void)
{
	int ret = uverbs_install();

	if (ret)
		fprintf(stderr, "libfake: no completion channels: %s\n", strerror(ret));
	verbs_register_driver(&device_ops);
}
