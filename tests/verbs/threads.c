/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Several threads on one QP, on QPs of their own, on one CQ, beside a thread that creates and
 * destroys objects all the time and one that waits for events. For ThreadSanitizer, and for
 * what it cannot see: every WR completes exactly once and its data is there.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "end.h"

enum {
	THREADS = 4,
	DEPTH_WR = 16,
	SHARED_QP = THREADS,		/* QPs 0..THREADS-1 belong to one thread each */
	CHURN_QP,
	EVENT_CQ = 1,
	CHURN_CQ = 2,
	CHURN_MR = 1,
	REGION_LEN = 1 << 20,		/* of each thread, in both arenas */
	ARENA_LEN = (THREADS + 1) * REGION_LEN,
	MANY_WR = 2000,
};

static struct pair pair;
static struct end_keys keys_a, keys_b;

/* One WR of a thread: bits from post to completion, to see that each completes once. */
struct worker {
	pthread_t thread;
	int id;
	int qp;
	int cq;
	struct rng rng;
	uint64_t total;
	uint64_t posted;		/* only this thread */
	_Atomic uint64_t done;
	_Atomic uint8_t told[MANY_WR];
};

static struct worker workers[THREADS];
static _Atomic int in_flight[END_QPS];
static atomic_bool stop;

static struct qp_spec spec_on(int cq, unsigned int depth_wr)
{
	return (struct qp_spec){
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {
			.max_send_wr = depth_wr,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
	};
}

static void qp_connected(int qp, int cq)
{
	struct qp_spec at_a = spec_on(cq, DEPTH_WR), at_b = spec_on(0, 1);
	struct conn_spec conn = conn_defaults();

	MUST(end_qp_create(&pair.a, qp, &at_a));
	MUST(end_qp_create(&pair.b, qp, &at_b));
	MUST(pair_connect(&pair, qp, qp, &conn));
}

static void qp_gone(int qp)
{
	MUST(end_qp_destroy(&pair.a, qp));
	MUST(end_qp_destroy(&pair.b, qp));
}

static void account(const struct ibv_wc *wc)
{
	unsigned int id = wc->wr_id >> 32, seq = (uint32_t)wc->wr_id;
	struct worker *w;

	if (id >= THREADS || seq >= MANY_WR) {
		case_fail("completion of nobody's WR %#llx", (unsigned long long)wc->wr_id);
		return;
	}
	w = &workers[id];
	EXPECT(!wc->status, "thread %u, WR %u: %s", id, seq, ibv_wc_status_str(wc->status));
	EXPECT(wc->qp_num == pair.a.objs->qp[w->qp]->qp_num, "thread %u, WR %u: qp_num %#x", id,
	       seq, wc->qp_num);
	EXPECT(!atomic_exchange(&w->told[seq], 1), "thread %u, WR %u completes twice", id, seq);
	atomic_fetch_sub(&in_flight[w->qp], 1);
	atomic_fetch_add(&w->done, 1);
}

static int poll_some(int cq)
{
	struct ibv_wc wc[4];
	int n = ibv_poll_cq(pair.a.objs->cq[cq], 4, wc), i;

	EXPECT(n >= 0, "poll_cq gives %d", n);
	for (i = 0; i < n; i++)
		account(&wc[i]);
	return n;
}

/* False where the queue may be full: its entries are shared among the threads of a QP. */
static bool reserve(int qp)
{
	if (atomic_fetch_add(&in_flight[qp], 1) < DEPTH_WR)
		return true;
	atomic_fetch_sub(&in_flight[qp], 1);
	return false;
}

static void post_next(struct worker *w)
{
	uint32_t len = rng_one_in(&w->rng, 16) ? REGION_LEN / 4 : rng_below(&w->rng, 4096);
	uint64_t off = (uint64_t)w->id * REGION_LEN + rng_below(&w->rng, REGION_LEN - len);
	struct ibv_sge sge = sge_at(&pair.a, off, len, keys_a.lkey);
	struct ibv_send_wr wr = wr_make((uint64_t)w->id << 32 | w->posted, IBV_WR_RDMA_WRITE,
					&sge, &pair.b, off, keys_b.rkey);

	EXPECT_OK(post_one(pair.a.objs->qp[w->qp], &wr));
	w->posted++;
}

static bool too_late(uint64_t *since, uint64_t *last, uint64_t now_done)
{
	if (now_done != *last) {
		*last = now_done;
		*since = now_ns();
		return false;
	}
	return now_ns() - *since > opts.wait_ms * 1000000ull;
}

/* Posts its own WRs and takes whoever's completions come. */
static void *post_and_poll(void *arg)
{
	struct worker *w = arg;
	uint64_t since = now_ns(), last = 0;

	while (atomic_load(&w->done) < w->total && !case_failed()) {
		if (w->posted < w->total && reserve(w->qp))
			post_next(w);
		poll_some(w->cq);
		if (too_late(&since, &last, atomic_load(&w->done)))
			case_fail("thread %d: %llu of %llu done, and no more for %u ms", w->id,
				  (unsigned long long)last, (unsigned long long)w->total,
				  opts.wait_ms);
	}
	return NULL;
}

static void *post_only(void *arg)
{
	struct worker *w = arg;

	while (w->posted < w->total && !case_failed()) {
		if (reserve(w->qp))
			post_next(w);
		else
			sched_yield();
	}
	return NULL;
}

static void workers_start(void *(*run)(void *), bool own_qp, int cq)
{
	int i;

	for (i = 0; i < THREADS; i++) {
		struct worker *w = &workers[i];

		memset(w, 0, sizeof(*w));
		w->id = i;
		w->qp = own_qp ? i : SHARED_QP;
		w->cq = cq;
		w->rng.state = opts.seed + i;
		w->total = opts.quick ? MANY_WR / 10 : MANY_WR;
	}
	for (i = 0; i < THREADS; i++)
		if (pthread_create(&workers[i].thread, NULL, run, &workers[i]))
			die("pthread_create");
}

static void workers_join(void)
{
	int i;

	for (i = 0; i < THREADS; i++)
		pthread_join(workers[i].thread, NULL);
}

/* All that was written is there: the regions were the same before, and are the same now. */
static void data_start(void)
{
	struct rng r = { opts.seed };

	rng_fill(&r, pair.a.peek, ARENA_LEN);
	memset(pair.b.peek, 0, ARENA_LEN);
}

static void data_check(int qp)
{
	struct ibv_sge sge = sge_at(&pair.a, 0, ARENA_LEN, keys_a.lkey);
	struct ibv_send_wr wr = wr_make(0, IBV_WR_RDMA_WRITE, &sge, &pair.b, 0, keys_b.rkey);
	uint64_t i, foreign = 0;

	for (i = 0; i < ARENA_LEN; i++)
		foreign += pair.b.peek[i] && pair.b.peek[i] != pair.a.peek[i];
	EXPECT(!foreign, "%llu bytes at b that nobody wrote", (unsigned long long)foreign);
	EXPECT_OK(post_one(pair.a.objs->qp[qp], &wr));
	wait_good(&pair.a, workers[0].cq, 1);
	EXPECT(!memcmp(pair.a.peek, pair.b.peek, ARENA_LEN), "data differs");
}

static void test_own_qps(void)
{
	int i;

	case_begin("%d threads, a QP each, one CQ polled by all", THREADS);
	for (i = 0; i < THREADS; i++)
		qp_connected(i, 0);
	data_start();
	workers_start(post_and_poll, true, 0);
	workers_join();
	data_check(0);
	for (i = 0; i < THREADS; i++)
		qp_gone(i);
	case_end();
}

static void test_one_qp(void)
{
	case_begin("%d threads post to one QP and poll its CQ", THREADS);
	qp_connected(SHARED_QP, 0);
	data_start();
	workers_start(post_and_poll, false, 0);
	workers_join();
	data_check(SHARED_QP);
	qp_gone(SHARED_QP);
	case_end();
}

/* One poller: now each thread's completions must come in its posting order. */
static void test_one_poller(void)
{
	uint64_t next[THREADS] = { 0 }, seen = 0, total, since = now_ns(), last = 0;
	struct ibv_wc wc[4];
	int i, n;

	case_begin("%d threads post to one QP, one polls: in posted order", THREADS);
	qp_connected(SHARED_QP, 0);
	data_start();
	workers_start(post_only, false, 0);
	total = THREADS * workers[0].total;
	while (seen < total && !case_failed()) {
		n = ibv_poll_cq(pair.a.objs->cq[0], 4, wc);
		for (i = 0; i < n; i++) {
			unsigned int id = wc[i].wr_id >> 32;

			account(&wc[i]);
			EXPECT(id < THREADS && (uint32_t)wc[i].wr_id == next[id]++,
			       "thread %u: WR %u out of order", id, (uint32_t)wc[i].wr_id);
		}
		seen += n > 0 ? n : 0;
		if (too_late(&since, &last, seen))
			case_fail("%llu of %llu completions, and no more",
				  (unsigned long long)seen, (unsigned long long)total);
	}
	workers_join();
	data_check(SHARED_QP);
	qp_gone(SHARED_QP);
	case_end();
}

/* Objects come and go, and carry a little traffic, until told to stop. */
static void *churn(void *arg)
{
	uint64_t *rounds = arg;
	struct ibv_sge sge = sge_at(&pair.a, THREADS * (uint64_t)REGION_LEN, 4096, 0);
	struct end_keys keys;
	struct ibv_send_wr wr;

	/* At least once, however late the thread starts. */
	do {
		MUST(end_mr_reg(&pair.a, CHURN_MR, 0, THREADS * (uint64_t)REGION_LEN, REGION_LEN,
				ALL_ACCESS, &keys));
		MUST(end_cq_create(&pair.a, CHURN_CQ, DEPTH_WR));
		qp_connected(CHURN_QP, CHURN_CQ);
		sge.lkey = keys.lkey;
		wr = wr_make(7, IBV_WR_RDMA_WRITE, &sge, &pair.b,
			     THREADS * (uint64_t)REGION_LEN, keys_b.rkey);
		EXPECT_OK(post_one(pair.a.objs->qp[CHURN_QP], &wr));
		wait_good(&pair.a, CHURN_CQ, 1);
		/* Every second time with work in flight. */
		if (++*rounds & 1)
			EXPECT_OK(post_one(pair.a.objs->qp[CHURN_QP], &wr));
		qp_gone(CHURN_QP);
		MUST(end_cq_destroy(&pair.a, CHURN_CQ));
		MUST(end_mr_dereg(&pair.a, CHURN_MR));
	} while (!atomic_load(&stop) && !case_failed());
	return NULL;
}

static void test_churn(void)
{
	uint64_t rounds = 0;
	pthread_t thread;
	int i;

	case_begin("%d threads at work while objects are created and destroyed", THREADS);
	for (i = 0; i < THREADS; i++)
		qp_connected(i, 0);
	data_start();
	atomic_store(&stop, false);
	if (pthread_create(&thread, NULL, churn, &rounds))
		die("pthread_create");
	workers_start(post_and_poll, true, 0);
	workers_join();
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	EXPECT(rounds > 0, "nothing was created meanwhile");
	data_check(0);
	for (i = 0; i < THREADS; i++)
		qp_gone(i);
	case_note("%llu rounds of creating", (unsigned long long)rounds);
	case_end();
}

/* The one that polls sleeps on the channel whenever it finds nothing. */
static void poll_by_events(struct ibv_comp_channel *channel, uint64_t total)
{
	struct pollfd pfd = { .fd = channel->fd, .events = POLLIN };
	struct ibv_cq *cq = pair.a.objs->cq[EVENT_CQ], *got;
	uint64_t seen = 0;
	void *tag;
	int n;

	while (seen < total && !case_failed()) {
		EXPECT_OK(ibv_req_notify_cq(cq, 0));
		while ((n = poll_some(EVENT_CQ)) > 0)
			seen += n;
		if (seen >= total)
			break;
		if (poll(&pfd, 1, opts.wait_ms) != 1) {
			case_fail("no event in %u ms with %llu of %llu seen", opts.wait_ms,
				  (unsigned long long)seen, (unsigned long long)total);
			break;
		}
		if (ibv_get_cq_event(channel, &got, &tag))
			case_fail("get_cq_event: %s", strerror(errno));
		else
			ibv_ack_cq_events(got, 1);
	}
}

static void test_events(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(pair.a.objs->ctx);

	case_begin("%d threads post to one QP, one waits for events", THREADS);
	if (!channel)
		die("create_comp_channel: %s", strerror(errno));
	pair.a.objs->cq[EVENT_CQ] = ibv_create_cq(pair.a.objs->ctx, DEPTH_WR, NULL, channel, 0);
	if (!pair.a.objs->cq[EVENT_CQ])
		die("create_cq: %s", strerror(errno));
	qp_connected(SHARED_QP, EVENT_CQ);
	data_start();
	workers_start(post_only, false, EVENT_CQ);
	poll_by_events(channel, THREADS * workers[0].total);
	workers_join();
	data_check(SHARED_QP);
	qp_gone(SHARED_QP);
	EXPECT_OK(end_cq_destroy(&pair.a, EVENT_CQ));
	EXPECT_OK(ibv_destroy_comp_channel(channel));
	case_end();
}

static void *poll_blindly(void *arg)
{
	struct ibv_wc wc[4];

	(void)arg;
	while (!atomic_load(&stop))
		ibv_poll_cq(pair.a.objs->cq[0], 4, wc);
	return NULL;
}

/* Nothing that a poll has in its hands may go with the QP. */
static void test_destroy_under_poll(void)
{
	struct ibv_sge sge = sge_at(&pair.a, 0, REGION_LEN, keys_a.lkey);
	struct ibv_send_wr wr = wr_make(0, IBV_WR_RDMA_WRITE, &sge, &pair.b, 0, keys_b.rkey);
	int round, i, rounds = opts.quick ? 20 : 200;
	pthread_t thread;

	case_begin("QPs reset and destroyed with work in flight while a thread polls their CQ");
	atomic_store(&stop, false);
	if (pthread_create(&thread, NULL, poll_blindly, NULL))
		die("pthread_create");
	for (round = 0; round < rounds && !case_failed(); round++) {
		qp_connected(CHURN_QP, 0);
		for (i = 0; i < DEPTH_WR; i++)
			EXPECT_OK(post_one(pair.a.objs->qp[CHURN_QP], &wr));
		if (round & 1)
			EXPECT_OK(end_qp_to(&pair.a, CHURN_QP, IBV_QPS_RESET));
		qp_gone(CHURN_QP);
	}
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	case_end();
}

int main(int argc, char **argv)
{
	opts_parse(argc, argv, "threads on shared objects", NULL);
	pair_open(&pair, ARENA_LEN);
	pair_basics(&pair, (THREADS + 1) * DEPTH_WR, &keys_a, &keys_b);
	test_own_qps();
	test_one_qp();
	test_one_poller();
	test_churn();
	test_events();
	test_destroy_under_poll();
	pair_close(&pair);
	return report();
}
