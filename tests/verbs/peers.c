/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Peers that come late, go early and come again; many QPs on one CQ; CQs apart and shared.
 *
 * With -P also a peer whose process is stopped (--stop: the device must work without it, as NICs
 * do) or killed.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "end.h"

enum {
	MANY_QPS = 32,
	DEPTH_WR = 16,
	REGION_LEN = 1 << 20,		/* of each QP in both arenas */
	ARENA_LEN = MANY_QPS * REGION_LEN,
	LATE_MS = 300,
	QUICK_TIMEOUT = 14,		/* 67 ms */
	QUICK_RETRIES = 3,
	GONE_QUEUE = 8,
	BUSY_PD = END_PDS - 1,
	SMALL_CQ = END_CQS - 1,
	FAILED_QPS = 300,
};

static uint64_t opt_cycles = 1000;
static bool opt_stop;

static const struct opt_row rows[] = {
	{ "cycles", OPT_SIZE, &opt_cycles, "QPs created and destroyed in a loop (1000)" },
	{ "stop", OPT_FLAG, &opt_stop, "with -P: traffic while the peer's process is stopped" },
	{ 0 },
};

static struct pair pair;
static struct end_keys keys_a, keys_b, first_keys_a, first_keys_b;

static struct qp_spec spec_on(int pd, int send_cq, int recv_cq)
{
	return (struct qp_spec){
		.pd = pd,
		.send_cq = send_cq,
		.recv_cq = recv_cq,
		.cap = {
			.max_send_wr = DEPTH_WR,
			.max_recv_wr = DEPTH_WR,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
	};
}

static void create_both(int qp)
{
	struct qp_spec at_a = spec_on(0, 0, 0), at_b = at_a;

	MUST(end_qp_create(&pair.a, qp, &at_a));
	MUST(end_qp_create(&pair.b, qp, &at_b));
}

static int post_write(int qp, uint64_t wr_id, uint64_t off, uint32_t len)
{
	struct ibv_sge sge = sge_at(&pair.a, off, len, keys_a.lkey);
	struct ibv_send_wr wr = wr_make(wr_id, IBV_WR_RDMA_WRITE, &sge, &pair.b, off,
					keys_b.rkey);

	return post_one(pair.a.objs->qp[qp], &wr);
}

static void write_checked(struct rng *r, int qp, uint32_t len)
{
	uint64_t off = (uint64_t)qp * REGION_LEN;

	rng_fill(r, pair.a.peek + off, len);
	EXPECT_OK(post_write(qp, 1, off, len));
	wait_good(&pair.a, 0, 1);
	EXPECT(!memcmp(pair.a.peek + off, pair.b.peek + off, len), "WRITE of %u bytes: data",
	       len);
}

static void test_cycles(void)
{
	struct conn_spec conn = conn_defaults();
	struct rng r = { opts.seed };
	uint64_t i;

	case_begin("%llu QPs created, used and destroyed", (unsigned long long)opt_cycles);
	for (i = 0; i < opt_cycles && !case_failed(); i++) {
		create_both(0);
		MUST(pair_connect(&pair, 0, 0, &conn));
		write_checked(&r, 0, i % 16 ? 64 : REGION_LEN);
		if (i % 32 == 31) {
			MUST(end_qp_to(&pair.a, 0, IBV_QPS_RESET));
			MUST(end_qp_to(&pair.b, 0, IBV_QPS_RESET));
			MUST(pair_connect(&pair, 0, 0, &conn));
			write_checked(&r, 0, REGION_LEN);
		}
		MUST(end_qp_destroy(i & 1 ? &pair.a : &pair.b, 0));
		MUST(end_qp_destroy(i & 1 ? &pair.b : &pair.a, 0));
	}
	case_end();
}

/* QPs that fail and go before anybody has polled leave nothing behind in their CQ. */
static void test_failed_and_gone(void)
{
	struct conn_spec conn = conn_defaults();
	struct qp_spec spec = spec_on(0, SMALL_CQ, SMALL_CQ), at_b = spec_on(0, 0, 0);
	struct rng r = { opts.seed };
	int i;

	case_begin("%d QPs taken to ERR and destroyed, all on one CQ", FAILED_QPS);
	MUST(end_cq_create(&pair.a, SMALL_CQ, DEPTH_WR));
	for (i = 0; i < FAILED_QPS; i++) {
		MUST(end_qp_create(&pair.a, 0, &spec));
		MUST(end_to_init(&pair.a, 0, ALL_ACCESS));
		MUST(end_qp_to(&pair.a, 0, IBV_QPS_ERR));
		MUST(end_qp_destroy(&pair.a, 0));
	}
	MUST(end_qp_create(&pair.a, 0, &spec));
	MUST(end_qp_create(&pair.b, 0, &at_b));
	MUST(pair_connect(&pair, 0, 0, &conn));
	rng_fill(&r, pair.a.peek, REGION_LEN);
	EXPECT_OK(post_write(0, 1, 0, REGION_LEN));
	wait_good(&pair.a, SMALL_CQ, 1);
	EXPECT(!memcmp(pair.a.peek, pair.b.peek, REGION_LEN), "data of a WRITE afterwards");
	MUST(end_qp_destroy(&pair.a, 0));
	MUST(end_qp_destroy(&pair.b, 0));
	MUST(end_cq_destroy(&pair.a, SMALL_CQ));
	case_end();
}

/*
 * A QP fails, goes through RESET unpolled, and works: what its first life left behind is not taken
 * for its second's.
 */
static void test_failed_and_again(void)
{
	struct conn_spec conn = conn_defaults();
	struct rng r = { opts.seed };
	int i;

	case_begin("ERR, RESET and traffic again, unpolled");
	create_both(0);
	for (i = 0; i < 10 && !case_failed(); i++) {
		MUST(pair_connect(&pair, 0, 0, &conn));
		write_checked(&r, 0, i & 1 ? 64 : REGION_LEN);
		MUST(end_qp_to(&pair.a, 0, IBV_QPS_ERR));
		MUST(end_qp_to(&pair.b, 0, IBV_QPS_ERR));
		MUST(end_qp_to(&pair.a, 0, IBV_QPS_RESET));
		MUST(end_qp_to(&pair.b, 0, IBV_QPS_RESET));
	}
	MUST(end_qp_destroy(&pair.a, 0));
	MUST(end_qp_destroy(&pair.b, 0));
	case_end();
}

/* A PD that cannot be freed yet stays as it is. */
static void test_busy_pd(void)
{
	struct conn_spec conn = conn_defaults();
	struct qp_spec spec = spec_on(BUSY_PD, 0, 0);
	struct rng r = { opts.seed };

	case_begin("a PD in use is not freed");
	MUST(end_pd(&pair.a, BUSY_PD));
	MUST(end_pd(&pair.b, BUSY_PD));
	MUST(end_qp_create(&pair.a, 0, &spec));
	MUST(end_qp_create(&pair.b, 0, &spec));
	EXPECT(end_pd_dealloc(&pair.a, BUSY_PD), "dealloc_pd with a QP in it");
	MUST(end_mr_reg(&pair.a, BUSY_PD, BUSY_PD, 0, ARENA_LEN, ALL_ACCESS, &keys_a));
	MUST(end_mr_reg(&pair.b, BUSY_PD, BUSY_PD, 0, ARENA_LEN, ALL_ACCESS, &keys_b));
	MUST(pair_connect(&pair, 0, 0, &conn));
	write_checked(&r, 0, REGION_LEN);
	MUST(end_qp_destroy(&pair.a, 0));
	MUST(end_qp_destroy(&pair.b, 0));
	MUST(end_mr_dereg(&pair.a, BUSY_PD));
	MUST(end_mr_dereg(&pair.b, BUSY_PD));
	EXPECT_OK(end_pd_dealloc(&pair.a, BUSY_PD));
	EXPECT_OK(end_pd_dealloc(&pair.b, BUSY_PD));
	keys_a = first_keys_a;
	keys_b = first_keys_b;
	case_end();
}

/* Every WR exactly one completion: some good, then the verdict, then flushed. */
static void expect_all_told(int count)
{
	bool failed = false;
	struct ibv_wc wc;
	int i;

	for (i = 0; i < count; i++) {
		if (!end_poll(&pair.a, 0, &wc, 1, opts.wait_ms)) {
			case_fail("WR %d of %d: no completion in %u ms", i, count, opts.wait_ms);
			return;
		}
		EXPECT(wc.wr_id == (uint64_t)i, "completion of WR %llu, due is %d",
		       (unsigned long long)wc.wr_id, i);
		if (failed)
			EXPECT(wc.status == IBV_WC_WR_FLUSH_ERR, "WR %d behind a failed one: %s",
			       i, ibv_wc_status_str(wc.status));
		else
			EXPECT(wc.status != IBV_WC_WR_FLUSH_ERR,
			       "WR %d is flushed, but none before it has failed", i);
		failed = failed || wc.status;
	}
	wait_none(&pair.a, 0, 20);
}

static void test_destroyed_meanwhile(void)
{
	struct conn_spec quick = conn_defaults(), conn = quick;
	int round, rounds = opts.quick ? 3 : 20, i;
	struct rng r = { opts.seed };

	case_begin("the peer destroys its QP with WRITEs in flight, %d times", rounds);
	quick.timeout = QUICK_TIMEOUT;
	quick.retry_cnt = QUICK_RETRIES;
	for (round = 0; round < rounds && !case_failed(); round++) {
		create_both(0);
		MUST(pair_connect(&pair, 0, 0, &quick));
		for (i = 0; i < GONE_QUEUE; i++)
			EXPECT_OK(post_write(0, i, (uint64_t)i * REGION_LEN, REGION_LEN));
		sleep_us(rng_below(&r, 5000));
		MUST(end_qp_destroy(&pair.b, 0));
		expect_all_told(GONE_QUEUE);
		MUST(end_qp_destroy(&pair.a, 0));
		create_both(0);
		MUST(pair_connect(&pair, 0, 0, &conn));
		write_checked(&r, 0, REGION_LEN);
		MUST(end_qp_destroy(&pair.a, 0));
		MUST(end_qp_destroy(&pair.b, 0));
	}
	case_end();
}

static void test_destroyed_here(void)
{
	int round, rounds = opts.quick ? 5 : 50, i;
	struct conn_spec conn = conn_defaults();
	struct rng r = { opts.seed };
	struct ibv_wc wc;

	case_begin("own QP destroyed with WRITEs in flight, %d times", rounds);
	for (round = 0; round < rounds && !case_failed(); round++) {
		create_both(0);
		MUST(pair_connect(&pair, 0, 0, &conn));
		for (i = 0; i < GONE_QUEUE; i++)
			EXPECT_OK(post_write(0, i, (uint64_t)i * REGION_LEN, REGION_LEN));
		sleep_us(rng_below(&r, 3000));
		MUST(end_qp_destroy(&pair.a, 0));
		/* What was there may stay or go, but nothing may come from now on. */
		while (end_poll(&pair.a, 0, &wc, 1, 0))
			;
		wait_none(&pair.a, 0, 5);
		MUST(end_qp_destroy(&pair.b, 0));
	}
	case_end();
}

static void test_late(void)
{
	struct conn_spec conn = conn_defaults();
	struct rng r = { opts.seed };
	uint64_t off = 0;

	case_begin("WRITEs posted %d ms before the peer leaves INIT", LATE_MS);
	create_both(0);
	rng_fill(&r, pair.a.peek, 2 * REGION_LEN);
	MUST(end_to_init(&pair.a, 0, conn.access_a));
	MUST(end_to_init(&pair.b, 0, conn.access_b));
	MUST(end_to_rtr(&pair.a, 0, &pair.b, 0, &conn));
	MUST(end_to_rts(&pair.a, 0, &conn));
	EXPECT_OK(post_write(0, 0, off, 64));
	EXPECT_OK(post_write(0, 1, off + REGION_LEN, REGION_LEN));
	MUST(end_sleep(&pair.b, LATE_MS));
	MUST(end_to_rtr(&pair.b, 0, &pair.a, 0, &conn));
	MUST(end_to_rts(&pair.b, 0, &conn));
	wait_good(&pair.a, 0, 2);
	EXPECT(!memcmp(pair.a.peek, pair.b.peek, 64) &&
	       !memcmp(pair.a.peek + REGION_LEN, pair.b.peek + REGION_LEN, REGION_LEN),
	       "data differs");
	MUST(end_qp_destroy(&pair.a, 0));
	MUST(end_qp_destroy(&pair.b, 0));
	case_end();
}

static void test_never(void)
{
	struct conn_spec conn = conn_defaults();

	case_begin("a peer that never leaves INIT");
	conn.timeout = QUICK_TIMEOUT;
	conn.retry_cnt = QUICK_RETRIES;
	create_both(0);
	MUST(end_to_init(&pair.a, 0, conn.access_a));
	MUST(end_to_init(&pair.b, 0, conn.access_b));
	MUST(end_to_rtr(&pair.a, 0, &pair.b, 0, &conn));
	MUST(end_to_rts(&pair.a, 0, &conn));
	EXPECT_OK(post_write(0, 0, 0, 64));
	EXPECT_OK(post_write(0, 1, 0, REGION_LEN));
	expect_all_told(2);
	EXPECT(end_qp_state(&pair.a, 0) == IBV_QPS_ERR, "own QP is not in ERR");
	MUST(end_qp_destroy(&pair.a, 0));
	MUST(end_qp_destroy(&pair.b, 0));
	case_end();
}

static void check_many_wc(const struct ibv_wc *wc, uint64_t *done)
{
	int qp = wc->wr_id >> 32;

	EXPECT(!wc->status, "QP %d: %s", qp, ibv_wc_status_str(wc->status));
	EXPECT(qp < MANY_QPS && wc->qp_num == pair.a.objs->qp[qp]->qp_num,
	       "completion of QP %d says qp_num %#x", qp, wc->qp_num);
	if (qp >= MANY_QPS)
		return;
	EXPECT((uint32_t)wc->wr_id == done[qp], "QP %d: completion of WR %u, due is %llu", qp,
	       (uint32_t)wc->wr_id, (unsigned long long)done[qp]);
	done[qp]++;
}

/* Sends go round-robin by chance; each QP's completions must come in its own order. */
static void test_many(void)
{
	uint64_t each = opts.quick ? 20 : 200, total = each * MANY_QPS, seen = 0, left = total;
	static uint64_t posted[MANY_QPS], done[MANY_QPS];
	struct conn_spec conn = conn_defaults();
	struct rng r = { opts.seed };
	struct ibv_wc wc[DEPTH_WR];
	int i, n, qp;

	case_begin("%d QPs on one CQ, %llu WRITEs each", MANY_QPS, (unsigned long long)each);
	for (i = 0; i < MANY_QPS; i++) {
		create_both(i);
		MUST(pair_connect(&pair, i, i, &conn));
	}
	rng_fill(&r, pair.a.peek, ARENA_LEN);
	while (seen < total && !case_failed()) {
		qp = rng_below(&r, MANY_QPS);
		if (left && posted[qp] < each && posted[qp] - done[qp] < DEPTH_WR) {
			uint32_t len = rng_one_in(&r, 32) ? REGION_LEN : rng_below(&r, 32768);

			EXPECT_OK(post_write(qp, (uint64_t)qp << 32 | posted[qp],
					     (uint64_t)qp * REGION_LEN, len));
			posted[qp]++;
			left--;
		}
		n = end_poll(&pair.a, 0, wc, DEPTH_WR, 0);
		for (i = 0; i < n; i++)
			check_many_wc(&wc[i], done);
		seen += n;
	}
	for (i = 0; i < MANY_QPS; i++)
		write_checked(&r, i, REGION_LEN);
	for (i = 0; i < MANY_QPS; i++) {
		MUST(end_qp_destroy(&pair.a, i));
		MUST(end_qp_destroy(&pair.b, i));
	}
	case_end();
}

static void one_message(enum ibv_wr_opcode opcode, int send_cq, int recv_cq)
{
	struct ibv_sge sge = sge_at(&pair.a, 0, REGION_LEN, keys_a.lkey);
	struct end_recv recv = { .wr_id = 9, .num_sge = 1 };
	struct ibv_send_wr wr = wr_make(8, opcode, &sge, &pair.b, REGION_LEN, keys_b.rkey);
	struct ibv_wc wc;

	recv.sge[0] = sge_at(&pair.b, REGION_LEN, REGION_LEN, keys_b.lkey);
	EXPECT_OK(end_post_recv(&pair.b, 0, &recv, 1));
	EXPECT_OK(post_one(pair.a.objs->qp[0], &wr));
	EXPECT(end_poll(&pair.b, recv_cq, &wc, 1, opts.wait_ms) == 1 && !wc.status &&
	       wc.wr_id == 9, "no receive completion on b's receive CQ");
	EXPECT(end_poll(&pair.a, send_cq, &wc, 1, opts.wait_ms) == 1 && !wc.status &&
	       wc.wr_id == 8, "no send completion on a's send CQ");
}

static void test_cqs_apart(void)
{
	struct conn_spec conn = conn_defaults();
	struct qp_spec at_a = spec_on(0, 1, 2), at_b = at_a;
	int i, cq;

	case_begin("send and receive CQs apart");
	for (cq = 1; cq <= 2; cq++) {
		MUST(end_cq_create(&pair.a, cq, DEPTH_WR));
		MUST(end_cq_create(&pair.b, cq, DEPTH_WR));
	}
	MUST(end_qp_create(&pair.a, 0, &at_a));
	MUST(end_qp_create(&pair.b, 0, &at_b));
	MUST(pair_connect(&pair, 0, 0, &conn));
	for (i = 0; i < 10; i++)
		one_message(i & 1 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE_WITH_IMM, 1, 2);
	for (cq = 1; cq <= 2; cq++) {
		wait_none(&pair.a, cq, 5);
		wait_none(&pair.b, cq, 5);
	}
	EXPECT(end_cq_destroy(&pair.a, 1) == EBUSY, "a CQ in use can be destroyed");
	one_message(IBV_WR_SEND, 1, 2);
	MUST(end_qp_destroy(&pair.a, 0));
	MUST(end_qp_destroy(&pair.b, 0));
	for (cq = 1; cq <= 2; cq++) {
		EXPECT_OK(end_cq_destroy(&pair.a, cq));
		EXPECT_OK(end_cq_destroy(&pair.b, cq));
	}
	case_end();
}

/* QP 1 and its MR 1 belong to PD 1; PD 0's keys must not work there. */
static void test_two_pds(void)
{
	struct conn_spec conn = conn_defaults();
	struct qp_spec in_1 = spec_on(1, 0, 0), in_1_b = in_1;
	struct end_keys keys_a1, keys_b1;
	struct rng r = { opts.seed };
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_wc wc;

	case_begin("a CQ shared by QPs of two PDs");
	MUST(end_pd(&pair.a, 1));
	MUST(end_pd(&pair.b, 1));
	MUST(end_mr_reg(&pair.a, 1, 1, 0, ARENA_LEN, ALL_ACCESS, &keys_a1));
	MUST(end_mr_reg(&pair.b, 1, 1, 0, ARENA_LEN, ALL_ACCESS, &keys_b1));
	create_both(0);
	MUST(end_qp_create(&pair.a, 1, &in_1));
	MUST(end_qp_create(&pair.b, 1, &in_1_b));
	MUST(pair_connect(&pair, 0, 0, &conn));
	MUST(pair_connect(&pair, 1, 1, &conn));
	rng_fill(&r, pair.a.peek, 2 * REGION_LEN);
	EXPECT_OK(post_write(0, 0, 0, REGION_LEN));
	sge = sge_at(&pair.a, REGION_LEN, REGION_LEN, keys_a1.lkey);
	wr = wr_make(1, IBV_WR_RDMA_WRITE, &sge, &pair.b, REGION_LEN, keys_b1.rkey);
	EXPECT_OK(post_one(pair.a.objs->qp[1], &wr));
	wait_good(&pair.a, 0, 2);
	EXPECT(!memcmp(pair.a.peek, pair.b.peek, 2 * REGION_LEN), "data differs");
	EXPECT(end_pd_dealloc(&pair.a, 1) == EBUSY, "a PD in use can be freed");
	wr.wr.rdma.rkey = keys_b.rkey;
	EXPECT_OK(post_one(pair.a.objs->qp[1], &wr));
	EXPECT(end_poll(&pair.a, 0, &wc, 1, opts.wait_ms) == 1 &&
	       wc.status == IBV_WC_REM_ACCESS_ERR, "the other PD's rkey works");
	write_checked(&r, 0, REGION_LEN);
	MUST(end_qp_destroy(&pair.a, 0));
	MUST(end_qp_destroy(&pair.b, 0));
	MUST(end_qp_destroy(&pair.a, 1));
	MUST(end_qp_destroy(&pair.b, 1));
	MUST(end_mr_dereg(&pair.a, 1));
	MUST(end_mr_dereg(&pair.b, 1));
	EXPECT_OK(end_pd_dealloc(&pair.a, 1));
	EXPECT_OK(end_pd_dealloc(&pair.b, 1));
	case_end();
}

/* QP 0 has had traffic; QP 1's peer is ready, and lacks only our own step to RTS. */
static void stopped_set_up(struct rng *r)
{
	struct conn_spec conn = conn_defaults();

	create_both(0);
	create_both(1);
	MUST(pair_connect(&pair, 0, 0, &conn));
	write_checked(r, 0, REGION_LEN);
	MUST(end_to_init(&pair.a, 1, conn.access_a));
	MUST(end_to_init(&pair.b, 1, conn.access_b));
	MUST(end_to_rtr(&pair.b, 1, &pair.a, 1, &conn));
	MUST(end_to_rts(&pair.b, 1, &conn));
	MUST(end_to_rtr(&pair.a, 1, &pair.b, 1, &conn));
}

/* The peer's process stands still from before our QP 1 is connected: its NIC does not. */
static void test_stopped(void)
{
	struct conn_spec conn = conn_defaults();
	struct rng r = { opts.seed };
	int i;

	case_begin("traffic while the peer's process is stopped");
	if (!opts.two_processes || !opt_stop) {
		case_skip("needs -P and --stop");
		case_end();
		return;
	}
	stopped_set_up(&r);
	kill(pair.b.child, SIGSTOP);
	MUST(end_to_rts(&pair.a, 1, &conn));
	for (i = 0; i < 5 && !case_failed(); i++) {
		write_checked(&r, 0, REGION_LEN);
		write_checked(&r, 1, REGION_LEN);
		write_checked(&r, 1, 64);
	}
	kill(pair.b.child, SIGCONT);
	write_checked(&r, 0, REGION_LEN);
	write_checked(&r, 1, REGION_LEN);
	for (i = 0; i < 2; i++) {
		MUST(end_qp_destroy(&pair.a, i));
		MUST(end_qp_destroy(&pair.b, i));
	}
	case_end();
}

/* Last: end b is gone afterwards. True if it was done. */
static bool test_killed(void)
{
	struct conn_spec conn = conn_defaults();
	int i;

	case_begin("the peer's process is killed with WRITEs in flight");
	if (!opts.two_processes) {
		case_skip("needs -P");
		case_end();
		return false;
	}
	conn.timeout = QUICK_TIMEOUT;
	conn.retry_cnt = QUICK_RETRIES;
	create_both(0);
	MUST(pair_connect(&pair, 0, 0, &conn));
	for (i = 0; i < GONE_QUEUE; i++)
		EXPECT_OK(post_write(0, i, (uint64_t)i * REGION_LEN, REGION_LEN));
	kill(pair.b.child, SIGKILL);
	waitpid(pair.b.child, NULL, 0);
	expect_all_told(GONE_QUEUE);
	MUST(end_qp_destroy(&pair.a, 0));
	case_end();
	return true;
}

int main(int argc, char **argv)
{
	opts_parse(argc, argv, "peers that come late and go early; QPs and CQs in all pairings",
		   rows);
	if (opts.quick)
		opt_cycles /= 10;
	pair_open(&pair, ARENA_LEN);
	pair_basics(&pair, MANY_QPS * DEPTH_WR, &keys_a, &keys_b);
	test_cycles();
	test_failed_and_gone();
	test_failed_and_again();
	first_keys_a = keys_a;
	first_keys_b = keys_b;
	test_busy_pd();
	test_destroyed_meanwhile();
	test_destroyed_here();
	test_late();
	test_never();
	test_many();
	test_cqs_apart();
	test_two_pds();
	test_stopped();
	if (!test_killed())
		pair_close(&pair);
	return report();
}
