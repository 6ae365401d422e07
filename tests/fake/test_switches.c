/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Each switch of fake_ctl.h acts, on the device it was set for and while it is set.
 */
#include "pair.h"

#include <stdio.h>

static struct pair p;

static int setup(void **state)
{
	(void)state;
	fake_ctl_zero_counters();
	pair_open(&p, NULL);
	fill(p.a.buf, BUF_BYTES, 1);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fake_ctl_reset();
	pair_close(&p);
	return 0;
}

static double seconds_of_write(uint32_t length)
{
	double start = now_s();

	post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, length, 1);
	expect_wc(p.a.scq, 1, IBV_WC_SUCCESS);
	return now_s() - start;
}

static void delay_holds_the_data_back(void **state)
{
	double start = now_s();

	(void)state;
	fake_ctl_set("a0", FAKE_DELAY_US, 300000);
	for (int i = 0; i < 10; i++)
		post(&p.a, &p.b, IBV_WR_RDMA_WRITE, i * 64, 64, i);
	expect_none(p.a.scq, 10);
	assert_int_equal(p.b.buf[0], 0);
	for (int i = 0; i < 10; i++)
		expect_wc(p.a.scq, i, IBV_WC_SUCCESS);
	/* Each waits 300 ms, not each after the other. */
	assert_in_range((now_s() - start) * 1000, 300, 1500);
	assert_memory_equal(p.a.buf, p.b.buf, 640);
	fake_ctl_set("a0", FAKE_DELAY_US, 0);
	fake_ctl_set("b0", FAKE_DELAY_US, 1500000);
	assert_true(seconds_of_write(8) < 1);
}

static void ack_delay_holds_the_completion_back(void **state)
{
	(void)state;
	fake_ctl_set("a0", FAKE_ACK_DELAY_US, 500000);
	post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 64, 1);
	for (int i = 0; i < 40 && !fake_ctl_get("b0", FAKE_RX_WRITE); i++)
		expect_none(p.a.scq, 10);
	assert_memory_equal(p.a.buf, p.b.buf, 64);
	expect_wc(p.a.scq, 1, IBV_WC_SUCCESS);
}

/* Which of the two is done first. */
static int first_done(struct end *x, struct end *y)
{
	double until = now_s() + 2;
	struct ibv_wc wc;

	while (!ibv_poll_cq(x->scq, 1, &wc)) {
		if (ibv_poll_cq(y->scq, 1, &wc))
			return 1;
		assert_true(now_s() < until);
	}
	return 0;
}

static void jitter_reorders_devices_not_queues(void **state)
{
	int first[2] = { 0 };
	struct end a1, b1;

	(void)state;
	end_open(&a1, "a1", NULL);
	end_open(&b1, "b1", NULL);
	end_connect(&a1, &b1.gid, b1.qp->qp_num);
	end_connect(&b1, &a1.gid, a1.qp->qp_num);
	fake_ctl_set(NULL, FAKE_JITTER_US, 10000);
	for (int i = 0; i < 40; i++) {
		int who;

		post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8, i);
		post(&a1, &b1, IBV_WR_RDMA_WRITE, 0, 8, i);
		who = first_done(&p.a, &a1);
		first[who]++;
		expect_wc(who ? p.a.scq : a1.scq, i, IBV_WC_SUCCESS);
	}
	assert_true(first[0] && first[1]);
	for (int i = 0; i < 40; i++)
		post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8, i);
	for (int i = 0; i < 40; i++)
		expect_wc(p.a.scq, i, IBV_WC_SUCCESS);
	end_close(&a1);
	end_close(&b1);
}

static void rate_limits_a_device(void **state)
{
	double start = now_s(), took;

	(void)state;
	fake_ctl_set("a0", FAKE_RATE_MB_S, 50);
	for (int i = 0; i < 20; i++)
		post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 500000, i);
	for (int i = 0; i < 20; i++)
		expect_wc(p.a.scq, i, IBV_WC_SUCCESS);
	took = now_s() - start;
	if (took < 0.2 || took > 0.8)
		fail_msg("10 MB at 50 MB/s took %g s", took);
}

static void lost_packets_end_in_an_error(void **state)
{
	(void)state;
	fake_ctl_set("a0", FAKE_LOSE, 1);
	post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8, 1);
	expect_wc(p.a.scq, 1, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(p.b.buf[0], 0);
	assert_int_equal(fake_ctl_get("a0", FAKE_RETRIES), 3);
}

static void packets_lost_at_the_peer_likewise(void **state)
{
	(void)state;
	fake_ctl_set("b0", FAKE_LOSE, 1);
	post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8, 1);
	expect_wc(p.a.scq, 1, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(p.b.buf[0], 0);
}

static void short_loss_is_retried(void **state)
{
	const struct options opt = { .timeout = 14, .retry_cnt = 7 }; /* 67 ms each */

	(void)state;
	pair_close(&p);
	pair_open(&p, &opt);
	fill(p.a.buf, BUF_BYTES, 1);
	fake_ctl_set("b0", FAKE_LOSE, 1);
	for (int i = 0; i < 5; i++)
		post(&p.a, &p.b, IBV_WR_RDMA_WRITE, i * 8, 8, i);
	expect_none(p.a.scq, 30);
	fake_ctl_set("b0", FAKE_LOSE, 0);
	for (int i = 0; i < 5; i++)
		expect_wc(p.a.scq, i, IBV_WC_SUCCESS);
	assert_memory_equal(p.a.buf, p.b.buf, 40);
}

static void lost_acks_execute_once(void **state)
{
	const struct options opt = { .timeout = 14, .retry_cnt = 7 };
	uint64_t *there;
	struct wr w;

	(void)state;
	pair_close(&p);
	pair_open(&p, &opt);
	there = (void *)p.b.buf;
	fake_ctl_set("a0", FAKE_LOSE, 2);
	post_recv(&p.b, 64, 8, 7);
	wr_make(&w, &p.a, &p.b, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8);
	w.wr.wr.atomic.compare_add = 5;
	assert_int_equal(wr_post(&p.a, &w), 0);
	expect_none(p.a.scq, 30);
	fake_ctl_set("a0", FAKE_LOSE, 0);
	expect_wc(p.a.scq, 0, IBV_WC_SUCCESS);
	assert_int_equal(*there, 5);
	fake_ctl_set("a0", FAKE_LOSE, 2);
	post(&p.a, NULL, IBV_WR_SEND, 0, 8, 1);
	expect_wc(p.b.rcq, 7, IBV_WC_SUCCESS);
	fake_ctl_set("a0", FAKE_LOSE, 0);
	expect_wc(p.a.scq, 1, IBV_WC_SUCCESS);
	expect_none(p.b.rcq, 5);
}

static void standstill_neither_ends_nor_fails(void **state)
{
	(void)state;
	fake_ctl_set("a0", FAKE_LOSE, 3);
	post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8, 1);
	expect_none(p.a.scq, 50); /* ten times the timeout */
	fake_ctl_set("a0", FAKE_LOSE, 0);
	expect_wc(p.a.scq, 1, IBV_WC_SUCCESS);
}

static void link_down_is_seen_and_told(void **state)
{
	struct ibv_port_attr port;

	(void)state;
	fake_ctl_set("a0", FAKE_LINK_DOWN, 1);
	assert_int_equal(wait_event(p.a.ctx).event_type, IBV_EVENT_PORT_ERR);
	assert_int_equal(ibv_query_port(p.a.ctx, 1, &port), 0);
	assert_int_equal(port.state, IBV_PORT_DOWN);
	post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8, 1);
	expect_wc(p.a.scq, 1, IBV_WC_RETRY_EXC_ERR);
	fake_ctl_set("a0", FAKE_LINK_DOWN, 0);
	assert_int_equal(wait_event(p.a.ctx).event_type, IBV_EVENT_PORT_ACTIVE);
	assert_false(has_event(p.b.ctx->async_fd, 50));
}

static void partial(int posted, int ret)
{
	struct ibv_send_wr *bad = NULL;
	struct wr w[4];

	fake_ctl_set("a0", FAKE_PARTIAL_EVERY, 2);
	fake_ctl_set("a0", FAKE_PARTIAL_POSTED, posted);
	fake_ctl_set("a0", FAKE_PARTIAL_RET, ret);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 4; i++) {
			wr_make(&w[i], &p.a, &p.b, IBV_WR_RDMA_WRITE, i * 8, 8);
			w[i].wr.wr_id = i;
			w[i].wr.next = i < 3 ? &w[i + 1].wr : NULL;
		}
		bad = NULL;
		assert_int_equal(ibv_post_send(p.a.qp, &w[0].wr, &bad), round ? ret : 0);
		assert_ptr_equal(bad, round ? &w[posted].wr : NULL);
		for (int i = 0; i < (round ? posted : 4); i++)
			expect_wc(p.a.scq, i, IBV_WC_SUCCESS);
		expect_none(p.a.scq, 3);
	}
}

static void partial_post_returns_enomem(void **state)
{
	(void)state;
	partial(2, ENOMEM);
}

static void partial_post_returns_0(void **state)
{
	(void)state;
	partial(3, 0);
}

static void partial_post_returns_a_negative(void **state)
{
	(void)state;
	partial(0, -ENOMEM);
}

static void sq_limit_is_less_than_asked_for(void **state)
{
	struct wr w;

	(void)state;
	fake_ctl_set("a0", FAKE_SQ_LIMIT, 3);
	wr_make(&w, &p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8);
	for (int i = 0; i < 3; i++)
		assert_int_equal(wr_post(&p.a, &w), 0);
	assert_int_equal(wr_post(&p.a, &w), ENOMEM);
	expect_wc(p.a.scq, 0, IBV_WC_SUCCESS);
	assert_int_equal(wr_post(&p.a, &w), 0);
}

static void keys_are_reused(void **state)
{
	struct ibv_mr *mr = ibv_reg_mr(p.a.pd, p.a.buf, 4096, ALL_ACCESS);
	uint32_t lkey = mr->lkey, rkey = mr->rkey;

	(void)state;
	assert_int_equal(ibv_dereg_mr(mr), 0);
	mr = ibv_reg_mr(p.a.pd, p.a.buf, 4096, ALL_ACCESS);
	assert_int_not_equal(mr->rkey, rkey);
	lkey = mr->lkey;
	rkey = mr->rkey;
	assert_int_equal(ibv_dereg_mr(mr), 0);
	fake_ctl_set("a0", FAKE_KEY_REUSE, 1);
	mr = ibv_reg_mr(p.a.pd, p.a.buf, 4096, ALL_ACCESS);
	assert_int_equal(mr->rkey, rkey);
	assert_int_equal(mr->lkey, lkey);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void creations_fail_when_asked(void **state)
{
	struct ibv_qp_init_attr qp = { .send_cq = p.a.scq,
				       .recv_cq = p.a.scq,
				       .cap = { 1, 1, 1, 1, 0 },
				       .qp_type = IBV_QPT_RC };
	struct ibv_srq_init_attr srq = { .attr = { 1, 1, 0 } };
	struct ibv_ah_attr ah = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = 1 } };

	(void)state;
	fake_ctl_set("a0", FAKE_FAIL_ERRNO, EMFILE);
#define FAILS(knob, call) \
	do { \
		fake_ctl_set("a0", knob, 1); \
		errno = 0; \
		assert_null(call); \
		assert_int_equal(errno, EMFILE); \
	} while (0)
	FAILS(FAKE_FAIL_ALLOC_PD, ibv_alloc_pd(p.a.ctx));
	FAILS(FAKE_FAIL_REG_MR, ibv_reg_mr(p.a.pd, p.a.buf, 8, 0));
	FAILS(FAKE_FAIL_CREATE_CQ, ibv_create_cq(p.a.ctx, 1, NULL, NULL, 0));
	FAILS(FAKE_FAIL_CREATE_QP, ibv_create_qp(p.a.pd, &qp));
	FAILS(FAKE_FAIL_CREATE_SRQ, ibv_create_srq(p.a.pd, &srq));
	FAILS(FAKE_FAIL_CREATE_AH, ibv_create_ah(p.a.pd, &ah));
	FAILS(FAKE_FAIL_OPEN, open_named("a0"));
	fake_ctl_set("a0", FAKE_FAIL_MODIFY_QP, 1);
	assert_int_equal(modify_state(p.a.qp, IBV_QPS_ERR), EMFILE);
	assert_int_equal(p.a.qp->state, IBV_QPS_RTS);
}

static void the_nth_creation_fails(void **state)
{
	struct ibv_pd *pd[2];

	(void)state;
	fake_ctl_set("a0", FAKE_FAIL_ALLOC_PD, 2);
	pd[0] = ibv_alloc_pd(p.a.ctx);
	assert_non_null(pd[0]);
	assert_null(ibv_alloc_pd(p.a.ctx));
	pd[1] = ibv_alloc_pd(p.a.ctx);
	assert_non_null(pd[1]);
	assert_int_equal(ibv_dealloc_pd(pd[0]), 0);
	assert_int_equal(ibv_dealloc_pd(pd[1]), 0);
}

static void attributes_are_reported(void **state)
{
	struct ibv_device_attr dev;
	struct ibv_port_attr port;

	(void)state;
	fake_ctl_set("a0", FAKE_MAX_QP_WR, 123);
	fake_ctl_set("a0", FAKE_ACTIVE_MTU, IBV_MTU_1024);
	fake_ctl_set("a0", FAKE_ACTIVE_SPEED, 4);
	assert_int_equal(ibv_query_device(p.a.ctx, &dev), 0);
	assert_int_equal(dev.max_qp_wr, 123);
	assert_int_equal(ibv_query_port(p.a.ctx, 1, &port), 0);
	assert_int_equal(port.active_mtu, IBV_MTU_1024);
	assert_int_equal(port.active_speed, 4);
	assert_int_equal(ibv_query_port(p.b.ctx, 1, &port), 0);
	assert_int_equal(port.active_mtu, IBV_MTU_4096);
	fake_ctl_set("a0", FAKE_MAX_QP_WR, fake_knob_default(FAKE_MAX_QP_WR));
	fake_ctl_set("a0", FAKE_ACTIVE_MTU, fake_knob_default(FAKE_ACTIVE_MTU));
	fake_ctl_set("a0", FAKE_ACTIVE_SPEED, fake_knob_default(FAKE_ACTIVE_SPEED));
}

static void counters_count(void **state)
{
	int64_t tx = fake_ctl_get("a0", FAKE_TX_BYTES), rx = fake_ctl_get("b0", FAKE_RX_BYTES);
	int64_t done = fake_ctl_get("a0", FAKE_DONE_WR), writes = fake_ctl_get("b0", FAKE_RX_WRITE);

	(void)state;
	seconds_of_write(1000);
	while (fake_ctl_get("a0", FAKE_DONE_WR) == done)
		; /* counted after the completion is there */
	assert_int_equal(fake_ctl_get("a0", FAKE_TX_BYTES) - tx, 1000);
	assert_int_equal(fake_ctl_get("b0", FAKE_RX_BYTES) - rx, 1000);
	assert_int_equal(fake_ctl_get("a0", FAKE_DONE_WR) - done, 1);
	assert_int_equal(fake_ctl_get("b0", FAKE_RX_WRITE) - writes, 1);
	assert_int_equal(fake_ctl_get("a0", FAKE_LIVE_QPS), 1);
	assert_int_equal(fake_ctl_get("a0", FAKE_LIVE_MRS), 1);
	assert_int_equal(fake_ctl_get("a0", FAKE_LIVE_CQS), 2);
	assert_int_equal(fake_ctl_get("a0", FAKE_LIVE_PDS), 1);
}

static void unknown_devices_are_refused(void **state)
{
	(void)state;
	assert_int_equal(fake_ctl_set("zz", FAKE_LOSE, 1), ENODEV);
	assert_int_equal(fake_ctl_get("zz", FAKE_LOSE), -1);
	assert_int_equal(fake_knob_find("delay_us"), FAKE_DELAY_US);
	assert_int_equal(fake_knob_find("delay"), -1);
}

static int teardown_instant(void **state)
{
	fake_ctl_set(NULL, FAKE_INSTANT, 0);
	return teardown(state);
}

static int setup_instant(void **state)
{
	(void)state;
	fake_ctl_set(NULL, FAKE_INSTANT, 1);
	return setup(state);
}

static void instant_is_done_when_posted(void **state)
{
	struct ibv_wc wc;

	(void)state;
	post_recv(&p.b, 5000, 64, 9);
	post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 4096, 1);
	post(&p.a, NULL, IBV_WR_SEND, 0, 64, 2);
	assert_int_equal(ibv_poll_cq(p.a.scq, 1, &wc), 1);
	assert_int_equal(wc.wr_id, 1);
	assert_memory_equal(p.a.buf, p.b.buf, 4096);
	assert_int_equal(ibv_poll_cq(p.a.scq, 1, &wc), 1);
	assert_int_equal(wc.wr_id, 2);
	assert_int_equal(ibv_poll_cq(p.b.rcq, 1, &wc), 1);
	assert_int_equal(wc.wr_id, 9);
}

static int setup_no_data(void **state)
{
	(void)state;
	fake_ctl_set(NULL, FAKE_INSTANT, 2);
	return setup(state);
}

static void instant_without_data_only_completes(void **state)
{
	struct ibv_wc wc;
	struct wr w;

	(void)state;
	for (int i = 0; i < 1000; i++) {
		wr_make(&w, &p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8);
		w.wr.send_flags = i % 8 == 7 ? IBV_SEND_SIGNALED : 0;
		w.wr.wr_id = i;
		assert_int_equal(wr_post(&p.a, &w), 0);
		if (i % 8 != 7)
			continue;
		assert_int_equal(ibv_poll_cq(p.a.scq, 1, &wc), 1);
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
	assert_int_equal(p.b.buf[0], 0);
	post_recv(&p.b, 0, 8, 9);
	post(&p.a, NULL, IBV_WR_SEND, 0, 8, 2);
	assert_int_equal(ibv_poll_cq(p.b.rcq, 1, &wc), 1);
	assert_memory_equal(p.a.buf, p.b.buf, 8);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(delay_holds_the_data_back),
		T(ack_delay_holds_the_completion_back),
		T(jitter_reorders_devices_not_queues),
		T(rate_limits_a_device),
		T(lost_packets_end_in_an_error),
		T(packets_lost_at_the_peer_likewise),
		T(short_loss_is_retried),
		T(lost_acks_execute_once),
		T(standstill_neither_ends_nor_fails),
		T(link_down_is_seen_and_told),
		T(partial_post_returns_enomem),
		T(partial_post_returns_0),
		T(partial_post_returns_a_negative),
		T(sq_limit_is_less_than_asked_for),
		T(keys_are_reused),
		T(creations_fail_when_asked),
		T(the_nth_creation_fails),
		T(attributes_are_reported),
		T(counters_count),
		T(unknown_devices_are_refused),
		cmocka_unit_test_setup_teardown(instant_is_done_when_posted, setup_instant,
						teardown_instant),
		cmocka_unit_test_setup_teardown(instant_without_data_only_completes, setup_no_data,
						teardown_instant),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
