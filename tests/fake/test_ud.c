/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Unreliable queue pairs, address handles and shared receive queues.
 */
#include "pair.h"

#include <unistd.h>

static struct pair p;

static int open_type(enum ibv_qp_type type, bool srq)
{
	const struct options opt = { .type = type, .srq = srq, .rnr_retry = 7 };

	pair_open(&p, &opt);
	fill(p.a.buf, BUF_BYTES, 1);
	return 0;
}

static int setup_ud(void **state)
{
	(void)state;
	return open_type(IBV_QPT_UD, false);
}

static int setup_uc(void **state)
{
	(void)state;
	return open_type(IBV_QPT_UC, false);
}

static int setup_srq(void **state)
{
	(void)state;
	return open_type(IBV_QPT_RC, true);
}

static int teardown(void **state)
{
	(void)state;
	fake_ctl_reset();
	pair_close(&p);
	return 0;
}

static struct ibv_ah *ah_to_b(void)
{
	struct ibv_ah_attr attr = { .is_global = 1,
				    .port_num = 1,
				    .grh = { .dgid = p.b.gid, .sgid_index = 1, .hop_limit = 64 } };
	struct ibv_ah *ah = ibv_create_ah(p.a.pd, &attr);

	assert_non_null(ah);
	return ah;
}

static void post_ud(struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct wr w;

	wr_make(&w, &p.a, NULL, IBV_WR_SEND, 0, 100);
	w.wr.wr.ud.ah = ah;
	w.wr.wr.ud.remote_qpn = qpn;
	w.wr.wr.ud.remote_qkey = qkey;
	assert_int_equal(wr_post(&p.a, &w), 0);
	expect_wc(p.a.scq, 0, IBV_WC_SUCCESS);
}

static void datagram_arrives_behind_a_grh(void **state)
{
	struct ibv_ah *ah = ah_to_b(), *back;
	struct ibv_ah_attr attr = { 0 };
	struct ibv_wc wc;

	(void)state;
	post_recv(&p.b, 4096, 140, 1);
	post_ud(ah, p.b.qp->qp_num, 0x1234);
	wc = wait_wc(p.b.rcq);
	assert_int_equal(wc.byte_len, 140);
	assert_int_equal(wc.wc_flags, IBV_WC_GRH);
	assert_int_equal(wc.src_qp, p.a.qp->qp_num);
	assert_memory_equal(p.b.buf + 4096 + 40, p.a.buf, 100);
	/* The header is good enough to answer by. */
	assert_int_equal(ibv_init_ah_from_wc(p.b.ctx, 1, &wc, (void *)(p.b.buf + 4096), &attr), 0);
	assert_memory_equal(&attr.grh.dgid, &p.a.gid, 16);
	assert_int_equal(attr.grh.sgid_index, 1);
	back = ibv_create_ah_from_wc(p.b.pd, &wc, (void *)(p.b.buf + 4096), 1);
	assert_non_null(back);
	assert_int_equal(ibv_destroy_ah(back), 0);
	assert_int_equal(ibv_destroy_ah(ah), 0);
}

static void datagrams_get_lost_silently(void **state)
{
	struct ibv_ah *ah = ah_to_b();

	(void)state;
	post_ud(ah, p.b.qp->qp_num, 0x1234); /* no receive */
	post_recv(&p.b, 0, 140, 1);
	post_ud(ah, p.b.qp->qp_num, 0x9999); /* wrong key */
	post_ud(ah, p.b.qp->qp_num + 1, 0x1234); /* nobody */
	expect_none(p.b.rcq, 20);
	post_ud(ah, p.b.qp->qp_num, 0x1234);
	expect_wc(p.b.rcq, 1, IBV_WC_SUCCESS);
	assert_int_equal(ibv_destroy_ah(ah), 0);
}

static void ud_does_no_rdma(void **state)
{
	struct wr w;

	(void)state;
	wr_make(&w, &p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8);
	assert_int_equal(wr_post(&p.a, &w), EINVAL);
}

static void uc_sends_and_writes(void **state)
{
	struct wr w;

	(void)state;
	post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 10000, 1);
	expect_wc(p.a.scq, 1, IBV_WC_SUCCESS);
	assert_memory_equal(p.a.buf, p.b.buf, 10000);
	post(&p.a, NULL, IBV_WR_SEND, 0, 8, 2); /* no receive: lost */
	expect_wc(p.a.scq, 2, IBV_WC_SUCCESS);
	post_recv(&p.b, 20000, 8, 3);
	post(&p.a, NULL, IBV_WR_SEND, 0, 8, 4);
	expect_wc(p.b.rcq, 3, IBV_WC_SUCCESS);
	wr_make(&w, &p.a, &p.b, IBV_WR_RDMA_READ, 0, 8);
	assert_int_equal(wr_post(&p.a, &w), EINVAL);
}

static void srq_serves_in_order(void **state)
{
	struct ibv_srq_attr attr;

	(void)state;
	for (int i = 0; i < 3; i++)
		post_recv(&p.b, i * 100, 100, 10 + i);
	post(&p.a, NULL, IBV_WR_SEND, 0, 100, 1);
	post(&p.a, &p.b, IBV_WR_RDMA_WRITE_WITH_IMM, 4096, 100, 2);
	expect_wc(p.b.rcq, 10, IBV_WC_SUCCESS);
	expect_wc(p.b.rcq, 11, IBV_WC_SUCCESS);
	assert_memory_equal(p.a.buf, p.b.buf, 100);
	assert_int_equal(ibv_query_srq(p.b.srq, &attr), 0);
	assert_int_equal(attr.max_wr, 64);
}

static void srq_limit_is_told_once(void **state)
{
	struct ibv_srq_attr attr = { .srq_limit = 2 };
	struct ibv_async_event event;

	(void)state;
	for (int i = 0; i < 3; i++)
		post_recv(&p.b, 0, 100, i);
	assert_int_equal(ibv_modify_srq(p.b.srq, &attr, IBV_SRQ_LIMIT), 0);
	post(&p.a, NULL, IBV_WR_SEND, 0, 100, 1);
	expect_wc(p.b.rcq, 0, IBV_WC_SUCCESS);
	assert_false(has_event(p.b.ctx->async_fd, 20));
	post(&p.a, NULL, IBV_WR_SEND, 0, 100, 1);
	event = wait_event(p.b.ctx);
	assert_int_equal(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	assert_ptr_equal(event.element.srq, p.b.srq);
	post(&p.a, NULL, IBV_WR_SEND, 0, 100, 1);
	expect_wc(p.b.rcq, 1, IBV_WC_SUCCESS);
	expect_wc(p.b.rcq, 2, IBV_WC_SUCCESS);
	assert_false(has_event(p.b.ctx->async_fd, 20));
}

static void srq_queue_pair_in_error_keeps_the_receives(void **state)
{
	(void)state;
	post_recv(&p.b, 0, 100, 1);
	assert_int_equal(modify_state(p.b.qp, IBV_QPS_ERR), 0);
	assert_int_equal(wait_event(p.b.ctx).event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
	expect_none(p.b.rcq, 10);
}

static void srq_is_full_until_polled(void **state)
{
	struct ibv_recv_wr wr = { 0 }, *bad;

	(void)state;
	for (int i = 0; i < 64; i++)
		post_recv(&p.b, 0, 8, i);
	assert_int_equal(ibv_post_srq_recv(p.b.srq, &wr, &bad), ENOMEM);
	assert_ptr_equal(bad, &wr);
	post(&p.a, NULL, IBV_WR_SEND, 0, 8, 1);
	expect_wc(p.a.scq, 1, IBV_WC_SUCCESS);
	assert_int_equal(ibv_post_srq_recv(p.b.srq, &wr, &bad), ENOMEM);
	expect_wc(p.b.rcq, 0, IBV_WC_SUCCESS);
	assert_int_equal(ibv_post_srq_recv(p.b.srq, &wr, &bad), 0);
}

int main(void)
{
#define T(f, setup) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(datagram_arrives_behind_a_grh, setup_ud),
		T(datagrams_get_lost_silently, setup_ud),
		T(ud_does_no_rdma, setup_ud),
		T(uc_sends_and_writes, setup_uc),
		T(srq_serves_in_order, setup_srq),
		T(srq_limit_is_told_once, setup_srq),
		T(srq_queue_pair_in_error_keeps_the_receives, setup_srq),
		T(srq_is_full_until_polled, setup_srq),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
