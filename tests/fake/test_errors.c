/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What goes wrong and how both ends are told: status, queue pair states, events, flushes.
 */
#include "pair.h"

static struct pair p;

static int setup(void **state)
{
	(void)state;
	pair_open(&p, NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	pair_close(&p);
	return 0;
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

/* Three good WRs, W, three more: each completes once, in order, as it should. */
static void expect_in_the_middle(struct wr *w, enum ibv_wc_status status)
{
	w->wr.wr_id = 3;
	w->wr.send_flags = 0; /* errors are reported though nobody asked */
	for (int i = 0; i < 7; i++)
		if (i == 3)
			assert_int_equal(wr_post(&p.a, w), 0);
		else
			post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 4096 + i * 8, 8, i);
	for (int i = 0; i < 7; i++)
		expect_wc(p.a.scq, i,
			  i < 3 ? IBV_WC_SUCCESS : i == 3 ? status : IBV_WC_WR_FLUSH_ERR);
	expect_none(p.a.scq, 5);
	assert_int_equal(state_of(p.a.qp), IBV_QPS_ERR);
}

/* The responder is in ERR, and has an event that says why. */
static void expect_responder_error(enum ibv_event_type type)
{
	struct ibv_async_event event = wait_event(p.b.ctx);

	assert_int_equal(event.event_type, type);
	assert_ptr_equal(event.element.qp, p.b.qp);
	assert_int_equal(state_of(p.b.qp), IBV_QPS_ERR);
}

static void bad_rkey(void **state)
{
	struct wr w;

	(void)state;
	wr_make(&w, &p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8);
	w.wr.wr.rdma.rkey ^= 0x10000;
	post_recv(&p.b, 0, 8, 77);
	expect_in_the_middle(&w, IBV_WC_REM_ACCESS_ERR);
	expect_responder_error(IBV_EVENT_QP_ACCESS_ERR);
	expect_wc(p.b.rcq, 77, IBV_WC_WR_FLUSH_ERR);
}

static void lkey_is_no_rkey(void **state)
{
	struct wr w;

	(void)state;
	wr_make(&w, &p.a, &p.b, IBV_WR_RDMA_READ, 0, 8);
	w.wr.wr.rdma.rkey = p.b.mr->lkey;
	expect_in_the_middle(&w, IBV_WC_REM_ACCESS_ERR);
	expect_responder_error(IBV_EVENT_QP_ACCESS_ERR);
}

static void rkey_of_another_device(void **state)
{
	struct wr w;

	(void)state;
	wr_make(&w, &p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8);
	w.wr.wr.rdma.rkey = p.a.mr->rkey;
	w.wr.wr.rdma.remote_addr = (uintptr_t)p.a.buf;
	expect_in_the_middle(&w, IBV_WC_REM_ACCESS_ERR);
	expect_responder_error(IBV_EVENT_QP_ACCESS_ERR);
}

static void bad_lkey(void **state)
{
	struct wr w;

	(void)state;
	wr_make(&w, &p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8);
	w.sge.lkey ^= 0x10000;
	expect_in_the_middle(&w, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(state_of(p.b.qp), IBV_QPS_RTS); /* nothing arrived there */
}

static void lkey_of_a_closed_region(void **state)
{
	struct ibv_mr *mr = ibv_reg_mr(p.a.pd, p.a.buf, 4096, ALL_ACCESS);
	struct wr w;

	(void)state;
	wr_make(&w, &p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8);
	w.sge.lkey = mr->lkey;
	assert_int_equal(ibv_dereg_mr(mr), 0);
	expect_in_the_middle(&w, IBV_WC_LOC_PROT_ERR);
}

static void beyond_the_remote_region(void **state)
{
	struct wr w;

	(void)state;
	wr_make(&w, &p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 1000);
	w.wr.wr.rdma.remote_addr = (uintptr_t)p.b.buf + BUF_BYTES - 999;
	expect_in_the_middle(&w, IBV_WC_REM_ACCESS_ERR);
	expect_responder_error(IBV_EVENT_QP_ACCESS_ERR);
}

static void beyond_the_local_region(void **state)
{
	struct wr w;

	(void)state;
	wr_make(&w, &p.a, &p.b, IBV_WR_RDMA_WRITE, BUF_BYTES - 999, 1000);
	expect_in_the_middle(&w, IBV_WC_LOC_PROT_ERR);
}

/* A region of B without the right that OPCODE needs. */
static void region_without_right(enum ibv_wr_opcode opcode, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(p.b.pd, p.b.buf, 4096, access);
	struct wr w;

	assert_non_null(mr);
	wr_make(&w, &p.a, &p.b, opcode, 0, 8);
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		w.wr.wr.atomic.rkey = mr->rkey;
	else
		w.wr.wr.rdma.rkey = mr->rkey;
	expect_in_the_middle(&w, IBV_WC_REM_ACCESS_ERR);
	expect_responder_error(IBV_EVENT_QP_ACCESS_ERR);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void region_without_remote_write(void **state)
{
	(void)state;
	region_without_right(IBV_WR_RDMA_WRITE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
}

static void region_without_remote_read(void **state)
{
	(void)state;
	region_without_right(IBV_WR_RDMA_READ, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
}

static void region_without_remote_atomic(void **state)
{
	(void)state;
	region_without_right(IBV_WR_ATOMIC_FETCH_AND_ADD,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
}

static void read_into_read_only_memory(void **state)
{
	struct ibv_mr *mr = ibv_reg_mr(p.a.pd, p.a.buf, 4096, 0);
	struct wr w;

	(void)state;
	wr_make(&w, &p.a, &p.b, IBV_WR_RDMA_READ, 0, 8);
	w.sge.lkey = mr->lkey;
	expect_in_the_middle(&w, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void queue_pair_without_right(enum ibv_wr_opcode opcode)
{
	const struct options opt = { .qp_access = -1 };
	struct wr w;

	pair_close(&p);
	pair_open(&p, &opt);
	wr_make(&w, &p.a, &p.b, opcode, 0, 8);
	w.wr.wr_id = 5;
	assert_int_equal(wr_post(&p.a, &w), 0);
	expect_wc(p.a.scq, 5, IBV_WC_REM_INV_REQ_ERR);
	expect_responder_error(IBV_EVENT_QP_REQ_ERR);
}

static void queue_pair_without_remote_write(void **state)
{
	(void)state;
	queue_pair_without_right(IBV_WR_RDMA_WRITE);
}

static void queue_pair_without_remote_read(void **state)
{
	(void)state;
	queue_pair_without_right(IBV_WR_RDMA_READ);
}

static void queue_pair_without_remote_atomic(void **state)
{
	(void)state;
	queue_pair_without_right(IBV_WR_ATOMIC_CMP_AND_SWP);
}

static void misaligned_atomic(void **state)
{
	struct wr w;

	(void)state;
	wr_make(&w, &p.a, &p.b, IBV_WR_ATOMIC_FETCH_AND_ADD, 4, 8);
	expect_in_the_middle(&w, IBV_WC_REM_INV_REQ_ERR);
	expect_responder_error(IBV_EVENT_QP_REQ_ERR);
}

static void receive_too_small(void **state)
{
	struct wr w;

	(void)state;
	post_recv(&p.b, 0, 10, 1);
	post_recv(&p.b, 0, 10, 2);
	wr_make(&w, &p.a, NULL, IBV_WR_SEND, 0, 11);
	expect_in_the_middle(&w, IBV_WC_REM_INV_REQ_ERR);
	expect_wc(p.b.rcq, 1, IBV_WC_LOC_LEN_ERR);
	expect_wc(p.b.rcq, 2, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(state_of(p.b.qp), IBV_QPS_ERR);
}

static void receive_with_bad_lkey(void **state)
{
	struct ibv_sge sge = { (uintptr_t)p.b.buf, 10, 0xbad };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad;
	struct wr w;

	(void)state;
	assert_int_equal(ibv_post_recv(p.b.qp, &wr, &bad), 0);
	wr_make(&w, &p.a, NULL, IBV_WR_SEND, 0, 5);
	expect_in_the_middle(&w, IBV_WC_REM_OP_ERR);
	expect_wc(p.b.rcq, 1, IBV_WC_LOC_PROT_ERR);
}

static void no_receive_posted(void **state)
{
	struct wr w;

	(void)state;
	wr_make(&w, &p.a, NULL, IBV_WR_SEND, 0, 5);
	expect_in_the_middle(&w, IBV_WC_RNR_RETRY_EXC_ERR);
	assert_int_equal(state_of(p.b.qp), IBV_QPS_RTS);
	assert_true(fake_ctl_get("b0", FAKE_RNR_NAKS) > 0);
}

static void receive_posted_late(void **state)
{
	const struct options opt = { .rnr_retry = 7 };

	(void)state;
	pair_close(&p);
	pair_open(&p, &opt);
	memset(p.a.buf, 1, 16);
	post(&p.a, NULL, IBV_WR_SEND, 0, 8, 1);
	post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 8, 8, 2);
	expect_none(p.a.scq, 20);
	assert_int_equal(p.b.buf[8], 0); /* it does not overtake */
	post_recv(&p.b, 0, 8, 3);
	expect_wc(p.a.scq, 1, IBV_WC_SUCCESS);
	expect_wc(p.a.scq, 2, IBV_WC_SUCCESS);
	expect_wc(p.b.rcq, 3, IBV_WC_SUCCESS);
	assert_int_equal(p.b.buf[8], 1);
}

static void nobody_there(void **state)
{
	double start = now_s();

	(void)state;
	assert_int_equal(modify_state(p.b.qp, IBV_QPS_RESET), 0);
	post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8, 1);
	post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8, 2);
	expect_wc(p.a.scq, 1, IBV_WC_RETRY_EXC_ERR);
	expect_wc(p.a.scq, 2, IBV_WC_WR_FLUSH_ERR);
	/* 4 times 4.096 us * 2^8 */
	assert_true(now_s() - start > 4 * 1.04e-3);
}

static void wrong_psn(void **state)
{
	(void)state;
	pair_close(&p);
	end_open(&p.a, "a0", NULL);
	end_open(&p.b, "b0", NULL);
	end_connect(&p.a, &p.b.gid, p.b.qp->qp_num);
	end_connect(&p.b, &p.a.gid, p.a.qp->qp_num);
	/* B has taken one message that A does not know of. */
	post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8, 1);
	expect_wc(p.a.scq, 1, IBV_WC_SUCCESS);
	assert_int_equal(modify_state(p.b.qp, IBV_QPS_RESET), 0);
	end_connect(&p.b, &p.a.gid, p.a.qp->qp_num);
	post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8, 2);
	expect_wc(p.a.scq, 2, IBV_WC_RETRY_EXC_ERR);
}

static void a_stranger_is_not_heard(void **state)
{
	struct end c;

	(void)state;
	end_open(&c, "a1", NULL);
	end_connect(&c, &p.b.gid, p.b.qp->qp_num);
	memset(c.buf, 1, 8);
	post(&c, &p.b, IBV_WR_RDMA_WRITE, 0, 8, 1);
	expect_wc(c.scq, 1, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(p.b.buf[0], 0);
	end_close(&c);
	/* Nor is who has the right numbers on another device than the address says. */
	end_open(&c, "a0", NULL);
	end_connect(&c, &p.a.gid, p.b.qp->qp_num);
	post(&c, &p.b, IBV_WR_RDMA_WRITE, 0, 8, 1);
	expect_wc(c.scq, 1, IBV_WC_RETRY_EXC_ERR);
	end_close(&c);
}

/* The first is done but not known to be, the second is bad: the third does not leave. */
static void nothing_is_sent_behind_an_error(void **state)
{
	struct wr w;

	(void)state;
	fake_ctl_set("a0", FAKE_ACK_DELAY_US, 100000);
	memset(p.a.buf, 1, 64);
	post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8, 1);
	wr_make(&w, &p.a, &p.b, IBV_WR_RDMA_WRITE, 8, 8);
	w.sge.lkey ^= 0x10000;
	assert_int_equal(wr_post(&p.a, &w), 0);
	post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 16, 8, 2);
	expect_wc(p.a.scq, 1, IBV_WC_SUCCESS);
	expect_wc(p.a.scq, 0, IBV_WC_LOC_PROT_ERR);
	expect_wc(p.a.scq, 2, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(p.b.buf[0], 1);
	assert_int_equal(p.b.buf[16], 0);
	fake_ctl_reset();
}

static void different_mtus(void **state)
{
	const struct options small = { .mtu = IBV_MTU_1024 };
	struct end a, b;

	(void)state;
	end_open(&a, "a0", &small);
	end_open(&b, "b0", NULL);
	end_connect(&a, &b.gid, b.qp->qp_num);
	end_connect(&b, &a.gid, a.qp->qp_num);
	post(&a, &b, IBV_WR_RDMA_WRITE, 0, 1000, 1);
	expect_wc(a.scq, 1, IBV_WC_SUCCESS);
	post(&a, &b, IBV_WR_RDMA_WRITE, 0, 1025, 2);
	expect_wc(a.scq, 2, IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(wait_event(b.ctx).event_type, IBV_EVENT_QP_REQ_ERR);
	end_close(&a);
	end_close(&b);
}

static void posting_in_the_wrong_state(void **state)
{
	struct ibv_recv_wr rwr = { 0 }, *bad;
	struct wr w;

	(void)state;
	assert_int_equal(modify_state(p.a.qp, IBV_QPS_RESET), 0);
	wr_make(&w, &p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8);
	assert_int_equal(wr_post(&p.a, &w), EINVAL);
	assert_int_equal(ibv_post_recv(p.a.qp, &rwr, &bad), EINVAL);
	assert_ptr_equal(bad, &rwr);
}

static void posting_in_error_is_flushed(void **state)
{
	(void)state;
	assert_int_equal(modify_state(p.a.qp, IBV_QPS_ERR), 0);
	post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8, 1);
	post_recv(&p.a, 0, 8, 2);
	expect_wc(p.a.scq, 1, IBV_WC_WR_FLUSH_ERR);
	expect_wc(p.a.rcq, 2, IBV_WC_WR_FLUSH_ERR);
}

static void error_flushes_what_is_queued(void **state)
{
	struct wr w;

	(void)state;
	fake_ctl_set("a0", FAKE_DELAY_US, 1000000);
	wr_make(&w, &p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8);
	w.wr.send_flags = 0;
	for (int i = 0; i < 20; i++) {
		w.wr.wr_id = i;
		assert_int_equal(wr_post(&p.a, &w), 0);
	}
	assert_int_equal(modify_state(p.a.qp, IBV_QPS_ERR), 0);
	for (int i = 0; i < 20; i++)
		expect_wc(p.a.scq, i, IBV_WC_WR_FLUSH_ERR);
	fake_ctl_reset();
}

static void works_again_after_reset(void **state)
{
	struct wr w;

	(void)state;
	wr_make(&w, &p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8);
	w.wr.wr.rdma.rkey ^= 0x10000;
	expect_in_the_middle(&w, IBV_WC_REM_ACCESS_ERR);
	expect_responder_error(IBV_EVENT_QP_ACCESS_ERR);
	assert_int_equal(modify_state(p.a.qp, IBV_QPS_RESET), 0);
	assert_int_equal(modify_state(p.b.qp, IBV_QPS_RESET), 0);
	end_connect(&p.a, &p.b.gid, p.b.qp->qp_num);
	end_connect(&p.b, &p.a.gid, p.a.qp->qp_num);
	fill(p.a.buf, 4096, 1);
	for (int i = 0; i < 200; i++) {
		post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 4096, i);
		expect_wc(p.a.scq, i, IBV_WC_SUCCESS);
	}
	assert_memory_equal(p.a.buf, p.b.buf, 4096);
}

static void message_longer_than_the_port_allows(void **state)
{
	struct wr w;

	(void)state;
	fake_ctl_set("a0", FAKE_MAX_MSG_SZ, 1000);
	wr_make(&w, &p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 1001);
	expect_in_the_middle(&w, IBV_WC_LOC_LEN_ERR);
	fake_ctl_set("a0", FAKE_MAX_MSG_SZ, fake_knob_default(FAKE_MAX_MSG_SZ));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(bad_rkey),
		T(lkey_is_no_rkey),
		T(rkey_of_another_device),
		T(bad_lkey),
		T(lkey_of_a_closed_region),
		T(beyond_the_remote_region),
		T(beyond_the_local_region),
		T(region_without_remote_write),
		T(region_without_remote_read),
		T(region_without_remote_atomic),
		T(read_into_read_only_memory),
		T(queue_pair_without_remote_write),
		T(queue_pair_without_remote_read),
		T(queue_pair_without_remote_atomic),
		T(misaligned_atomic),
		T(receive_too_small),
		T(receive_with_bad_lkey),
		T(no_receive_posted),
		T(receive_posted_late),
		T(nobody_there),
		T(wrong_psn),
		T(a_stranger_is_not_heard),
		T(nothing_is_sent_behind_an_error),
		T(different_mtus),
		T(posting_in_the_wrong_state),
		T(posting_in_error_is_flushed),
		T(error_flushes_what_is_queued),
		T(works_again_after_reset),
		T(message_longer_than_the_port_allows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
