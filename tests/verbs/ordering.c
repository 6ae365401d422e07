/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Orders that a random model meets too rarely: what is behind a fence, and the last byte of a WRITE
 * that reaches memory by another way than the one before it. A device that spreads its work has to
 * think of both; a plain one gets them for nothing.
 */
#include <string.h>

#include "end.h"

enum {
	LEN = 65536,
	READ_LEN = 8192,
	ARENA_LEN = 16 << 20,
	FIRST = 1 << 20,		/* where the WRITEs go at end b */
	SECOND = 3 << 20,
	DEPTH_WR = 16,
	ROUNDS = 20,
	LAST_BYTE_MS = 2000,
};

static struct pair pair;
static struct end_keys keys_a, keys_b;

/* READ into a buffer, a fenced WRITE from it, another WRITE from it: both carry what was read. */
static void behind_a_fence(void)
{
	struct ibv_send_wr wr[3], *bad;
	struct ibv_sge sge[3];
	int round;

	case_begin("nothing passes a fenced WR");
	for (round = 0; round < ROUNDS && !case_failed(); round++) {
		memset(pair.a.peek, 0x11, LEN);
		memset(pair.b.peek, 0x22 + round, LEN);
		memset(pair.b.peek + FIRST, 0, 4 << 20);
		sge[0] = sge_at(&pair.a, 0, READ_LEN, keys_a.lkey);
		sge[1] = sge[2] = sge_at(&pair.a, 0, LEN, keys_a.lkey);
		wr[0] = wr_make(0, IBV_WR_RDMA_READ, &sge[0], &pair.b, 0, keys_b.rkey);
		wr[1] = wr_make(1, IBV_WR_RDMA_WRITE, &sge[1], &pair.b, FIRST, keys_b.rkey);
		wr[1].send_flags |= IBV_SEND_FENCE;
		wr[2] = wr_make(2, IBV_WR_RDMA_WRITE, &sge[2], &pair.b, SECOND, keys_b.rkey);
		EXPECT_OK(post_chain(pair.a.objs->qp[0], wr, 3, &bad));
		wait_good(&pair.a, 0, 3);
		EXPECT(!memcmp(pair.b.peek, pair.b.peek + FIRST, READ_LEN),
		       "round %d: the fenced WRITE has old data", round);
		EXPECT(!memcmp(pair.b.peek, pair.b.peek + SECOND, READ_LEN),
		       "round %d: the WRITE behind the fenced one has old data", round);
	}
	case_end();
}

/* Whoever sees the last byte of a WRITE finds the WRITE before it complete. */
static void last_byte_last(void)
{
	volatile uint8_t *last = pair.b.peek + SECOND + LEN - 1;
	struct ibv_send_wr wr[3], *bad;
	struct ibv_sge sge[3];
	int round;

	case_begin("the last byte of a WRITE is behind the WRITE before it");
	for (round = 0; round < ROUNDS && !case_failed(); round++) {
		uint8_t mark = 0x33 + round;
		uint64_t until = now_ns() + LAST_BYTE_MS * 1000000ull;

		memset(pair.a.peek, mark, LEN);
		memset(pair.b.peek, 0, 8 << 20);
		sge[0] = sge_at(&pair.a, 0, 8, keys_a.lkey);
		sge[1] = sge[2] = sge_at(&pair.a, 0, LEN, keys_a.lkey);
		wr[0] = wr_make(0, IBV_WR_RDMA_WRITE, &sge[0], &pair.b, SECOND, keys_b.rkey);
		wr[1] = wr_make(1, IBV_WR_RDMA_WRITE, &sge[1], &pair.b, FIRST, keys_b.rkey);
		wr[2] = wr_make(2, IBV_WR_RDMA_WRITE, &sge[2], &pair.b, SECOND, keys_b.rkey);
		EXPECT_OK(post_chain(pair.a.objs->qp[0], wr, 3, &bad));
		/* Nobody polls: the device has to bring it all the same. */
		while (*last != mark && now_ns() < until)
			;
		EXPECT(*last == mark, "round %d: it never came while nobody polled", round);
		EXPECT(!memcmp(pair.b.peek + FIRST, pair.a.peek, LEN),
		       "round %d: the WRITE before is not complete", round);
		wait_good(&pair.a, 0, 3);
	}
	case_end();
}

static bool any_of(const volatile uint8_t *at, uint8_t mark)
{
	uint32_t i;

	for (i = 0; i < LEN; i += 512)
		if (at[i] == mark)
			return true;
	return false;
}

/* Whoever sees any byte of a WRITE finds the atomic before it done. */
static void behind_an_atomic(void)
{
	volatile uint64_t *counter = (volatile uint64_t *)(pair.b.peek + SECOND);
	struct ibv_send_wr wr[2], *bad;
	struct ibv_sge sge[2];
	int round;

	if (pair.a.attr.atomic_cap == IBV_ATOMIC_NONE)
		return;
	case_begin("a WRITE does not pass the atomic before it");
	memset(pair.b.peek + SECOND, 0, 8);
	for (round = 0; round < ROUNDS && !case_failed(); round++) {
		uint8_t mark = 0x44 + round;
		uint64_t until = now_ns() + LAST_BYTE_MS * 1000000ull;

		memset(pair.a.peek, mark, LEN);
		memset(pair.b.peek + FIRST, 0, LEN);
		sge[0] = sge_at(&pair.a, SECOND, 8, keys_a.lkey);
		sge[1] = sge_at(&pair.a, 0, LEN, keys_a.lkey);
		wr[0] = wr_make(0, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge[0], &pair.b, SECOND,
				keys_b.rkey);
		wr[0].wr.atomic.compare_add = 1;
		wr[0].send_flags = 0;
		wr[1] = wr_make(1, IBV_WR_RDMA_WRITE, &sge[1], &pair.b, FIRST, keys_b.rkey);
		EXPECT_OK(post_chain(pair.a.objs->qp[0], wr, 2, &bad));
		while (!any_of(pair.b.peek + FIRST, mark) && now_ns() < until)
			;
		EXPECT(*counter == (uint64_t)round + 1, "round %d: the counter is %llu", round,
		       (unsigned long long)*counter);
		wait_good(&pair.a, 0, 1);
	}
	case_end();
}

int main(int argc, char **argv)
{
	static const struct opt_row rows[] = { { 0 } };
	struct conn_spec spec;

	opts_parse(argc, argv, "orders between WRs that go different ways", rows);
	pair_open(&pair, ARENA_LEN);
	pair_basics(&pair, 4 * DEPTH_WR, &keys_a, &keys_b);
	spec = conn_defaults();
	pair_qp(&pair, 0, DEPTH_WR, &spec);
	behind_a_fence();
	last_byte_last();
	behind_an_atomic();
	pair_close(&pair);
	return report();
}
