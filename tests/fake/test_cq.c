/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Completion queues: channels, arming, overflow, resizing, extended polling.
 */
#include "pair.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

static struct pair p;

static int open_with(const struct options *opt)
{
	fake_ctl_zero_counters();
	pair_open(&p, opt);
	fill(p.a.buf, BUF_BYTES, 1);
	return 0;
}

static int setup_channel(void **state)
{
	const struct options opt = { .channel = true };

	(void)state;
	return open_with(&opt);
}

static int setup_extended(void **state)
{
	const struct options opt = { .extended = true };

	(void)state;
	return open_with(&opt);
}

static int setup_small(void **state)
{
	const struct options opt = { .cqe = 4 };

	(void)state;
	return open_with(&opt);
}

static int teardown(void **state)
{
	(void)state;
	fake_ctl_reset();
	pair_close(&p);
	return 0;
}

/* Until the completions of the first NUM WRs of a0 are there, without taking them. */
static void wait_done(int num)
{
	double until = now_s() + 2;

	while (fake_ctl_get("a0", FAKE_DONE_WR) < num)
		assert_true(now_s() < until);
}

/* The next event of E's channel must be of CQ; armed again. */
static void take_event(struct end *e, struct ibv_cq *cq)
{
	struct ibv_cq *got;
	void *context;

	assert_true(has_event(e->channel->fd, 2000));
	assert_int_equal(ibv_get_cq_event(e->channel, &got, &context), 0);
	assert_ptr_equal(got, cq);
	ibv_ack_cq_events(got, 1);
}

static void one_event_per_arming(void **state)
{
	(void)state;
	assert_int_equal(ibv_req_notify_cq(p.a.scq, 0), 0);
	post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8, 1);
	post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8, 2);
	take_event(&p.a, p.a.scq);
	expect_wc(p.a.scq, 1, IBV_WC_SUCCESS);
	expect_wc(p.a.scq, 2, IBV_WC_SUCCESS);
	assert_false(has_event(p.a.channel->fd, 10));
	post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8, 3);
	expect_wc(p.a.scq, 3, IBV_WC_SUCCESS);
	assert_false(has_event(p.a.channel->fd, 10));
}

static void solicited_only(void **state)
{
	struct wr w;

	(void)state;
	for (int i = 0; i < 3; i++)
		post_recv(&p.b, 0, 8, i);
	assert_int_equal(ibv_req_notify_cq(p.b.rcq, 1), 0);
	post(&p.a, NULL, IBV_WR_SEND, 0, 8, 1);
	expect_wc(p.b.rcq, 0, IBV_WC_SUCCESS);
	assert_false(has_event(p.b.channel->fd, 10));
	wr_make(&w, &p.a, NULL, IBV_WR_SEND, 0, 8);
	w.wr.send_flags |= IBV_SEND_SOLICITED;
	assert_int_equal(wr_post(&p.a, &w), 0);
	take_event(&p.b, p.b.rcq);
	expect_wc(p.b.rcq, 1, IBV_WC_SUCCESS);
	/* An error counts as solicited. */
	assert_int_equal(ibv_req_notify_cq(p.b.rcq, 1), 0);
	assert_int_equal(modify_state(p.b.qp, IBV_QPS_ERR), 0);
	take_event(&p.b, p.b.rcq);
	expect_wc(p.b.rcq, 2, IBV_WC_WR_FLUSH_ERR);
}

static void two_cqs_share_a_channel(void **state)
{
	struct ibv_cq *got[2];
	void *context;

	(void)state;
	post_recv(&p.a, 0, 8, 1);
	assert_int_equal(ibv_req_notify_cq(p.a.scq, 0), 0);
	assert_int_equal(ibv_req_notify_cq(p.a.rcq, 0), 0);
	post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8, 1);
	expect_wc(p.a.scq, 1, IBV_WC_SUCCESS);
	post(&p.b, NULL, IBV_WR_SEND, 0, 8, 1);
	expect_wc(p.a.rcq, 1, IBV_WC_SUCCESS);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ibv_get_cq_event(p.a.channel, &got[i], &context), 0);
		assert_ptr_equal(context, &p.a);
	}
	assert_ptr_equal(got[0], p.a.scq);
	assert_ptr_equal(got[1], p.a.rcq);
	ibv_ack_cq_events(got[0], 1);
	ibv_ack_cq_events(got[1], 1);
}

static void no_event_is_lost(void **state)
{
	(void)state;
	for (int i = 0; i < 10000; i++) {
		assert_int_equal(ibv_req_notify_cq(p.a.scq, 0), 0);
		post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8, i);
		take_event(&p.a, p.a.scq);
		expect_wc(p.a.scq, i, IBV_WC_SUCCESS);
	}
}

static void channel_can_be_non_blocking(void **state)
{
	struct ibv_cq *cq;
	void *context;

	(void)state;
	assert_int_equal(fcntl(p.a.channel->fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(ibv_get_cq_event(p.a.channel, &cq, &context), -1);
	assert_int_equal(errno, EAGAIN);
}

/* Events that nobody read go with their CQ, others stay. */
static void destroyed_cq_leaves_no_event(void **state)
{
	(void)state;
	assert_int_equal(ibv_req_notify_cq(p.b.scq, 0), 0);
	assert_int_equal(ibv_req_notify_cq(p.b.rcq, 0), 0);
	post_recv(&p.b, 0, 8, 1);
	post(&p.b, &p.a, IBV_WR_RDMA_WRITE, 0, 8, 1);
	expect_wc(p.b.scq, 1, IBV_WC_SUCCESS);
	assert_int_equal(modify_state(p.b.qp, IBV_QPS_ERR), 0);
	expect_wc(p.b.rcq, 1, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(ibv_destroy_qp(p.b.qp), 0);
	p.b.qp = NULL;
	assert_int_equal(ibv_destroy_cq(p.b.scq), 0);
	take_event(&p.b, p.b.rcq);
	assert_false(has_event(p.b.channel->fd, 10));
	p.b.scq = ibv_create_cq(p.b.ctx, 1, NULL, NULL, 0);
}

static void *ack_later(void *arg)
{
	usleep(20000);
	ibv_ack_cq_events(arg, 1);
	return NULL;
}

static void destroy_waits_for_the_acknowledgement(void **state)
{
	double start;
	pthread_t thread;
	struct ibv_cq *cq;
	void *context;

	(void)state;
	assert_int_equal(ibv_req_notify_cq(p.a.scq, 0), 0);
	post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8, 1);
	assert_int_equal(ibv_get_cq_event(p.a.channel, &cq, &context), 0);
	assert_int_equal(ibv_destroy_qp(p.a.qp), 0);
	p.a.qp = NULL;
	start = now_s();
	assert_int_equal(pthread_create(&thread, NULL, ack_later, p.a.scq), 0);
	assert_int_equal(ibv_destroy_cq(p.a.scq), 0);
	assert_true(now_s() - start > 0.015);
	pthread_join(thread, NULL);
	p.a.scq = ibv_create_cq(p.a.ctx, 1, NULL, NULL, 0);
}

static void overflow_is_an_error(void **state)
{
	struct ibv_async_event event;
	struct ibv_wc wc;
	int64_t before = fake_ctl_get("a0", FAKE_CQ_OVERFLOWS);

	(void)state;
	for (int i = 0; i < 4; i++)
		post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8, i);
	wait_done(4);
	assert_int_equal(fake_ctl_get("a0", FAKE_CQ_OVERFLOWS), before);
	post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8, 4);
	event = wait_event(p.a.ctx);
	assert_int_equal(event.event_type, IBV_EVENT_CQ_ERR);
	assert_ptr_equal(event.element.cq, p.a.scq);
	event = wait_event(p.a.ctx);
	assert_int_equal(event.event_type, IBV_EVENT_QP_FATAL);
	assert_ptr_equal(event.element.qp, p.a.qp);
	assert_true(fake_ctl_get("a0", FAKE_CQ_OVERFLOWS) > before);
	for (int i = 0; i < 4; i++)
		expect_wc(p.a.scq, i, IBV_WC_SUCCESS);
	assert_int_equal(ibv_poll_cq(p.a.scq, 1, &wc), 0);
}

static void resize_keeps_what_is_there(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++)
		post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8, i);
	wait_done(4);
	assert_int_equal(ibv_resize_cq(p.a.scq, 3), EINVAL);
	assert_int_equal(ibv_resize_cq(p.a.scq, 9), 0);
	assert_int_equal(p.a.scq->cqe, 9);
	for (int i = 4; i < 9; i++)
		post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8, i);
	for (int i = 0; i < 9; i++)
		expect_wc(p.a.scq, i, IBV_WC_SUCCESS);
}

static void reset_forgets_completions(void **state)
{
	(void)state;
	post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8, 1);
	wait_done(1);
	assert_int_equal(modify_state(p.a.qp, IBV_QPS_RESET), 0);
	expect_none(p.a.scq, 5);
}

static int start_poll(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = { 0 };
	double until = now_s() + 2;
	int ret;

	do
		ret = ibv_start_poll(cq, &attr);
	while (ret == ENOENT && now_s() < until);
	return ret;
}

static void extended_polling(void **state)
{
	struct ibv_cq_ex *scq = (struct ibv_cq_ex *)p.a.scq, *rcq = (struct ibv_cq_ex *)p.b.rcq;
	struct ibv_poll_cq_attr attr = { 0 };

	(void)state;
	assert_int_equal(ibv_start_poll(scq, &attr), ENOENT);
	post_recv(&p.b, 0, 100, 9);
	post(&p.a, &p.b, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 50, 1);
	post(&p.a, &p.b, IBV_WR_RDMA_READ, 0, 60, 2);
	assert_int_equal(start_poll(rcq), 0);
	assert_int_equal(rcq->wr_id, 9);
	assert_int_equal(rcq->status, IBV_WC_SUCCESS);
	assert_int_equal(ibv_wc_read_opcode(rcq), IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(ibv_wc_read_byte_len(rcq), 50);
	assert_int_equal(ibv_wc_read_qp_num(rcq), p.b.qp->qp_num);
	assert_int_equal(ibv_wc_read_wc_flags(rcq), IBV_WC_WITH_IMM);
	assert_int_equal(ibv_wc_read_src_qp(rcq), p.a.qp->qp_num);
	assert_int_equal(ibv_next_poll(rcq), ENOENT);
	ibv_end_poll(rcq);
	wait_done(2);
	assert_int_equal(start_poll(scq), 0);
	assert_int_equal(scq->wr_id, 1);
	assert_int_equal(ibv_next_poll(scq), 0);
	assert_int_equal(scq->wr_id, 2);
	assert_int_equal(ibv_wc_read_opcode(scq), IBV_WC_RDMA_READ);
	ibv_end_poll(scq);
}

/* The engine waits for no start_poll or wr_start: other verbs would wait for the engine. */
static void verbs_between_start_and_end(void **state)
{
	struct ibv_cq_ex *scq = (struct ibv_cq_ex *)p.a.scq;
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(p.a.qp);
	struct ibv_mr *mr;

	(void)state;
	for (int i = 0; i < 32; i++)
		post(&p.a, &p.b, IBV_WR_RDMA_WRITE, 0, 8, i);
	assert_int_equal(start_poll(scq), 0);
	ibv_wr_start(qp);
	mr = ibv_reg_mr(p.a.pd, p.a.buf, 8, 0);
	assert_non_null(mr);
	usleep(20000);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	ibv_wr_abort(qp);
	ibv_end_poll(scq);
	for (int i = 1; i < 32; i++)
		expect_wc(p.a.scq, i, IBV_WC_SUCCESS);
}

static void work_requests_built_in_place(void **state)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(p.a.qp);
	struct ibv_data_buf data[2] = { { "hello ", 6 }, { "world", 5 } };
	struct ibv_sge sge[2] = { { (uintptr_t)p.a.buf, 10, p.a.mr->lkey },
				  { (uintptr_t)p.a.buf + 100, 20, p.a.mr->lkey } };
	uint64_t there = (uintptr_t)p.b.buf;
	struct ibv_wc wc;

	(void)state;
	assert_non_null(qp);
	post_recv(&p.b, 4096, 100, 9);
	ibv_wr_start(qp);
	qp->wr_id = 1;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qp, p.b.mr->rkey, there);
	ibv_wr_set_sge(qp, p.a.mr->lkey, (uintptr_t)p.a.buf, 64);
	qp->wr_id = 2;
	ibv_wr_rdma_write(qp, p.b.mr->rkey, there + 64);
	ibv_wr_set_sge_list(qp, 2, sge);
	qp->wr_id = 3;
	ibv_wr_send_imm(qp, 77);
	ibv_wr_set_inline_data_list(qp, 2, data);
	qp->wr_id = 4;
	ibv_wr_rdma_read(qp, p.b.mr->rkey, there);
	ibv_wr_set_sge(qp, p.a.mr->lkey, (uintptr_t)p.a.buf + 8192, 94);
	qp->wr_id = 5;
	ibv_wr_atomic_fetch_add(qp, p.b.mr->rkey, there + 8192, 3);
	ibv_wr_set_sge(qp, p.a.mr->lkey, (uintptr_t)p.a.buf + 9000, 8);
	assert_int_equal(ibv_wr_complete(qp), 0);
	for (int i = 1; i <= 5; i++)
		expect_wc(p.a.scq, i, IBV_WC_SUCCESS);
	wc = wait_wc(p.b.rcq);
	assert_int_equal(wc.byte_len, 11);
	assert_int_equal(wc.imm_data, 77);
	assert_memory_equal(p.b.buf + 4096, "hello world", 11);
	assert_memory_equal(p.b.buf, p.a.buf, 64);
	assert_memory_equal(p.b.buf + 74, p.a.buf + 100, 20);
	assert_memory_equal(p.a.buf + 8192, p.b.buf, 94);
	assert_int_equal(*(uint64_t *)(void *)(p.b.buf + 8192), 3);
}

static void aborted_and_bad_builds_post_nothing(void **state)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(p.a.qp);

	(void)state;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_start(qp);
	ibv_wr_rdma_write(qp, p.b.mr->rkey, (uintptr_t)p.b.buf);
	ibv_wr_set_sge(qp, p.a.mr->lkey, (uintptr_t)p.a.buf, 64);
	ibv_wr_abort(qp);
	ibv_wr_start(qp);
	ibv_wr_rdma_write(qp, p.b.mr->rkey, (uintptr_t)p.b.buf);
	ibv_wr_set_sge(qp, p.a.mr->lkey, (uintptr_t)p.a.buf, 64);
	ibv_wr_rdma_write(qp, p.b.mr->rkey, (uintptr_t)p.b.buf);
	ibv_wr_set_inline_data(qp, p.a.buf, 65);
	assert_int_equal(ibv_wr_complete(qp), EINVAL);
	expect_none(p.a.scq, 5);
	ibv_wr_start(qp);
	for (int i = 0; i < 65; i++)
		ibv_wr_rdma_write(qp, p.b.mr->rkey, (uintptr_t)p.b.buf);
	assert_int_equal(ibv_wr_complete(qp), ENOMEM);
	expect_none(p.a.scq, 5);
	assert_int_equal(p.b.buf[1], 0);
}

int main(void)
{
#define T(f, setup) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(one_event_per_arming, setup_channel),
		T(solicited_only, setup_channel),
		T(two_cqs_share_a_channel, setup_channel),
		T(no_event_is_lost, setup_channel),
		T(channel_can_be_non_blocking, setup_channel),
		T(destroyed_cq_leaves_no_event, setup_channel),
		T(destroy_waits_for_the_acknowledgement, setup_channel),
		T(overflow_is_an_error, setup_small),
		T(resize_keeps_what_is_there, setup_small),
		T(reset_forgets_completions, setup_small),
		T(extended_polling, setup_extended),
		T(verbs_between_start_and_end, setup_extended),
		T(work_requests_built_in_place, setup_extended),
		T(aborted_and_bad_builds_post_nothing, setup_extended),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
