/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A device whose posts are refused now and then, for good: fake NICs can be told to. Whatever was
 * accepted has exactly one completion, in posted order; from the first that failed on all are
 * flushed, and the QP is in ERR.
 */
#include <string.h>

#include "end.h"

enum {
	DEPTH_WR = 16,
	LARGE_LEN = 128 << 10,
	ARENA_LEN = 8 << 20,
};

static uint64_t opt_rounds = 300;

static const struct opt_row rows[] = {
	{ "rounds", OPT_SIZE, &opt_rounds, "connections to be refused something on (300)" },
	{ 0 },
};

static struct pair pair;
static struct end_keys keys_a, keys_b;

/* A mix in which much has to wait for other things. */
static struct ibv_send_wr some_wr(struct rng *r, uint64_t wr_id, struct ibv_sge *sge)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_WRITE,
	};
	enum ibv_wr_opcode opcode = opcodes[rng_below(r, 5)];
	uint64_t off = rng_below(r, 16) * LARGE_LEN;
	uint32_t len = rng_one_in(r, 3) ? 8 : LARGE_LEN;
	struct ibv_send_wr wr;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		len = 8;
	*sge = sge_at(&pair.a, off, len, keys_a.lkey);
	wr = wr_make(wr_id, opcode, sge, &pair.b, off, keys_b.rkey);
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		wr.wr.atomic.compare_add = 1;
	return wr;
}

/* Posts until the queue is full or the device refuses; returns how many it took. */
static uint64_t post_some(struct rng *r)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	uint64_t n;

	for (n = 0; n < DEPTH_WR; n++) {
		wr = some_wr(r, n, &sge);
		if (post_one(pair.a.objs->qp[0], &wr))
			break;
	}
	return n;
}

/* Returns whether one of them failed. */
static bool take_all(uint64_t round, uint64_t posted)
{
	bool failed = false;
	struct ibv_wc wc;
	uint64_t i;

	for (i = 0; i < posted; i++) {
		if (!end_poll(&pair.a, 0, &wc, 1, opts.wait_ms)) {
			case_fail("round %llu: WR %llu of %llu has no completion",
				  (unsigned long long)round, (unsigned long long)i,
				  (unsigned long long)posted);
			return true;
		}
		EXPECT(wc.wr_id == i, "completion of WR %llu, due is %llu",
		       (unsigned long long)wc.wr_id, (unsigned long long)i);
		EXPECT(!failed || wc.status == IBV_WC_WR_FLUSH_ERR, "WR %llu behind a failed one: %s",
		       (unsigned long long)i, ibv_wc_status_str(wc.status));
		failed |= wc.status != IBV_WC_SUCCESS;
	}
	EXPECT(!end_poll(&pair.a, 0, &wc, 1, 0), "a completion too many");
	return failed;
}

int main(int argc, char **argv)
{
	struct conn_spec conn = conn_defaults();
	uint64_t round, refusals = 0;
	struct rng r;

	opts_parse(argc, argv, "posts that are refused for good", rows);
	r.state = opts.seed;
	if (opts.quick)
		opt_rounds /= 10;
	pair_open(&pair, ARENA_LEN);
	pair_basics(&pair, 4 * DEPTH_WR, &keys_a, &keys_b);
	case_begin("%llu connections until a post is refused", (unsigned long long)opt_rounds);
	for (round = 0; round < opt_rounds && !case_failed(); round++) {
		bool failed = false;
		int turn;

		pair_qp(&pair, 0, DEPTH_WR, &conn);
		for (turn = 0; turn < 20 && !failed && !case_failed(); turn++)
			failed = take_all(round, post_some(&r));
		refusals += failed;
		if (failed)
			EXPECT(end_qp_state(&pair.a, 0) == IBV_QPS_ERR, "the QP is not in ERR");
		MUST(end_qp_destroy(&pair.a, 0));
		MUST(end_qp_destroy(&pair.b, 0));
	}
	EXPECT(refusals, "nothing was ever refused: this shows nothing");
	case_end();
	pair_close(&pair);
	return report();
}
