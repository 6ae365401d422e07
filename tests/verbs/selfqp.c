/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A QP connected to itself, and two QPs of one thread of which one is ready to send before the
 * other has left RESET: nothing that a device does to connect may wait for the other side.
 */
#include <stdio.h>
#include <string.h>

#include "end.h"

enum { ARENA_LEN = 32 << 20, HALF = ARENA_LEN / 2, ROUNDS = 20, WR_DEPTH = 16, SMALL_READ = 1000 };

static uint64_t opt_reads;

static const struct opt_row rows[] = {
	{ "reads", OPT_SIZE, &opt_reads, "instead of all else: so many READs of 1000 bytes" },
	{ 0 },
};

static struct pair pair;
static struct end_keys keys_a, keys_b;

static const uint32_t sizes[] = { 0, 1, 8, 4096, 16383, 16384, 65536, 1 << 20, 4 << 20 };

#define NUM_SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* One operation inside end a's arena: the lower half is local, the upper the "remote" one. */
static void self_op(enum ibv_wr_opcode opcode, uint32_t len, struct rng *r)
{
	struct ibv_sge sge = sge_at(&pair.a, 0, len, keys_a.lkey);
	uint64_t remote = HALF + rng_below(r, HALF - len + 1);
	struct end_recv recv = { .wr_id = 2, .num_sge = 1 };
	struct ibv_send_wr wr;
	bool send = opcode == IBV_WR_SEND;

	rng_fill(r, pair.a.peek, len);
	rng_fill(r, pair.a.peek + remote, len);
	recv.sge[0] = sge_at(&pair.a, remote, len, keys_a.lkey);
	wr = wr_make(1, opcode, &sge, &pair.a, remote, keys_a.rkey);
	if (send)
		EXPECT_OK(end_post_recv(&pair.a, 0, &recv, 1));
	EXPECT_OK(post_one(pair.a.objs->qp[0], &wr));
	wait_good(&pair.a, 0, send ? 2 : 1);
	EXPECT(!memcmp(pair.a.peek, pair.a.peek + remote, len), "opcode %d of %u bytes: data",
	       opcode, len);
}

static void self_connect(void)
{
	struct conn_spec conn = conn_defaults();

	MUST(end_to_init(&pair.a, 0, conn.access_a));
	MUST(end_to_rtr(&pair.a, 0, &pair.a, 0, &conn));
	MUST(end_to_rts(&pair.a, 0, &conn));
}

static void test_self(void)
{
	static const struct {
		enum ibv_wr_opcode opcode;
		const char *name;
	} ops[] = {
		{ IBV_WR_RDMA_WRITE, "WRITE" },
		{ IBV_WR_RDMA_READ, "READ" },
		{ IBV_WR_SEND, "SEND" },
	};
	struct qp_spec spec = {
		.cap = { .max_send_wr = WR_DEPTH, .max_recv_wr = WR_DEPTH, .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	struct rng r = { opts.seed };
	size_t i, s;
	int n, rounds = opts.quick ? 2 : ROUNDS;

	MUST(end_qp_create(&pair.a, 0, &spec));
	self_connect();
	for (i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		case_begin("QP connected to itself: %s", ops[i].name);
		for (n = 0; n < rounds && !case_failed(); n++)
			for (s = 0; s < NUM_SIZES && !case_failed(); s++)
				self_op(ops[i].opcode, sizes[s], &r);
		case_end();
	}
}

static void test_self_mixed(void)
{
	struct ibv_sge sge[3];
	struct ibv_send_wr wr[3], *bad;
	struct rng r = { opts.seed + 1 };
	int n, rounds = opts.quick ? 5 : 100;
	uint32_t len = 1 << 20;

	case_begin("QP connected to itself: WRITE, READ of it, WRITE again in one chain");
	for (n = 0; n < rounds && !case_failed(); n++) {
		rng_fill(&r, pair.a.peek, len);
		sge[0] = sge_at(&pair.a, 0, len, keys_a.lkey);
		sge[1] = sge_at(&pair.a, 2 * len, len, keys_a.lkey);
		sge[2] = sge_at(&pair.a, 2 * len, len, keys_a.lkey);
		wr[0] = wr_make(0, IBV_WR_RDMA_WRITE, &sge[0], &pair.a, HALF, keys_a.rkey);
		wr[1] = wr_make(1, IBV_WR_RDMA_READ, &sge[1], &pair.a, HALF, keys_a.rkey);
		wr[2] = wr_make(2, IBV_WR_RDMA_WRITE, &sge[2], &pair.a, HALF + len, keys_a.rkey);
		/* Its source is what the READ brings. */
		wr[2].send_flags |= IBV_SEND_FENCE;
		EXPECT_OK(post_chain(pair.a.objs->qp[0], wr, 3, &bad));
		wait_good(&pair.a, 0, 3);
		EXPECT(!memcmp(pair.a.peek, pair.a.peek + HALF + len, len),
		       "round %d: data did not come through all three", n);
	}
	case_end();
}

static void test_self_again(void)
{
	struct rng r = { opts.seed + 2 };

	case_begin("QP connected to itself: RESET and connected again");
	MUST(end_qp_to(&pair.a, 0, IBV_QPS_RESET));
	self_connect();
	self_op(IBV_WR_RDMA_WRITE, 1 << 20, &r);
	self_op(IBV_WR_RDMA_READ, 1 << 20, &r);
	self_op(IBV_WR_SEND, 4096, &r);
	case_end();
	MUST(end_qp_destroy(&pair.a, 0));
}

/* Small READs and nothing else: whoever counts what NICs carry sees which of them executed. */
static void test_self_reads(void)
{
	struct qp_spec spec = {
		.cap = { .max_send_wr = WR_DEPTH, .max_recv_wr = WR_DEPTH, .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	struct rng r = { opts.seed + 3 };
	uint64_t i;

	case_begin("QP connected to itself: %llu small READs", (unsigned long long)opt_reads);
	MUST(end_qp_create(&pair.a, 0, &spec));
	self_connect();
	self_op(IBV_WR_RDMA_READ, SMALL_READ, &r);
	for (i = 1; i < opt_reads && !case_failed(); i++)
		self_op(IBV_WR_RDMA_READ, SMALL_READ, &r);
	MUST(end_qp_destroy(&pair.a, 0));
	case_end();
}

static void early_traffic(struct rng *r, uint32_t len)
{
	struct ibv_sge sge = sge_at(&pair.a, 0, len, keys_a.lkey);
	struct end_send back = { .wr_id = 3, .opcode = IBV_WR_RDMA_READ, .num_sge = 1,
				 .flags = IBV_SEND_SIGNALED, .rkey = keys_a.rkey,
				 .remote_addr = (uintptr_t)pair.a.base };
	struct ibv_send_wr wr;

	rng_fill(r, pair.a.peek, len);
	memset(pair.b.peek, 0, 2 * len);
	wr = wr_make(1, IBV_WR_RDMA_WRITE, &sge, &pair.b, 0, keys_b.rkey);
	EXPECT_OK(post_one(pair.a.objs->qp[1], &wr));
	wait_good(&pair.a, 0, 1);
	EXPECT(!memcmp(pair.a.peek, pair.b.peek, len), "WRITE of %u bytes: data", len);
	back.sge[0] = sge_at(&pair.b, len, len, keys_b.lkey);
	EXPECT_OK(end_post_send(&pair.b, 1, &back));
	wait_good(&pair.b, 0, 1);
	EXPECT(!memcmp(pair.a.peek, pair.b.peek + len, len), "READ back of %u bytes: data", len);
}

/*
 * a is at RTS while b is in RESET; then b follows. A device that waits for its peer in
 * modify_qp hangs here, as both sides are driven by one thread.
 */
static void test_early(int round)
{
	struct conn_spec conn = conn_defaults();
	struct qp_spec spec = {
		.cap = { .max_send_wr = WR_DEPTH, .max_recv_wr = WR_DEPTH, .max_send_sge = 1,
			 .max_recv_sge = 1 },
	}, spec_b = spec;
	struct rng r = { opts.seed + round };
	uint64_t start;

	MUST(end_qp_create(&pair.a, 1, &spec));
	MUST(end_qp_create(&pair.b, 1, &spec_b));
	start = now_ns();
	MUST(end_to_init(&pair.a, 1, conn.access_a));
	MUST(end_to_rtr(&pair.a, 1, &pair.b, 1, &conn));
	MUST(end_to_rts(&pair.a, 1, &conn));
	EXPECT(now_ns() - start < 5000000000ull, "to RTS took %llu ms with the peer in RESET",
	       (unsigned long long)(now_ns() - start) / 1000000);
	EXPECT(end_qp_state(&pair.b, 1) == IBV_QPS_RESET, "end b has left RESET by itself");
	MUST(end_to_init(&pair.b, 1, conn.access_b));
	MUST(end_to_rtr(&pair.b, 1, &pair.a, 1, &conn));
	MUST(end_to_rts(&pair.b, 1, &conn));
	early_traffic(&r, 4096);
	early_traffic(&r, 4 << 20);
	MUST(end_qp_destroy(&pair.a, 1));
	MUST(end_qp_destroy(&pair.b, 1));
}

int main(int argc, char **argv)
{
	int round;

	opts_parse(argc, argv, "a QP connected to itself; one at RTS before the other left RESET",
		   rows);
	pair_open(&pair, ARENA_LEN);
	pair_basics(&pair, 64, &keys_a, &keys_b);
	if (opt_reads) {
		test_self_reads();
		pair_close(&pair);
		return report();
	}
	test_self();
	test_self_mixed();
	test_self_again();
	case_begin("one end at RTS before the other has left RESET");
	for (round = 0; round < (opts.quick ? 2 : 10) && !case_failed(); round++)
		test_early(round);
	case_end();
	pair_close(&pair);
	return report();
}
