/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Whoever sees a receive completion finds in memory all that was written before, whichever way it
 * took: WRITEs followed by a SEND or an immediate, immediates with data of their own, messages of
 * all sizes in between, receive buffers that come late. Events too: solicited only.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "end.h"

enum {
	DEPTH_WR = 32,
	DATA_LEN = 4 << 20,
	INBOX = DATA_LEN,		/* where messages arrive at b, a slot for each receive */
	SLOT_LEN = 256 << 10,
	ARENA_LEN = INBOX + DEPTH_WR * SLOT_LEN,
	SMALL_LEN = 8,
};

static uint64_t opt_rounds = 2000, opt_messages = 100000;
static bool opt_prompt;

static const struct opt_row rows[] = {
	{ "rounds", OPT_SIZE, &opt_rounds, "WRITEs with a message behind (2000)" },
	{ "messages", OPT_SIZE, &opt_messages, "SENDs of 8 bytes and 256 KiB in turn (100000)" },
	{ "prompt", OPT_FLAG, &opt_prompt, "a message must not cost a round trip; for slow paths" },
	{ 0 },
};

static struct pair pair;
static struct end_keys keys_a, keys_b;

static void recv_at_b(uint64_t wr_id)
{
	struct end_recv recv = { .wr_id = wr_id, .num_sge = 1 };

	recv.sge[0] = sge_at(&pair.b, INBOX + wr_id % DEPTH_WR * SLOT_LEN, SLOT_LEN, keys_b.lkey);
	EXPECT_OK(end_post_recv(&pair.b, 0, &recv, 1));
}

static bool message_at_b(struct ibv_wc *wc, uint64_t wr_id)
{
	if (!end_poll(&pair.b, 0, wc, 1, opts.wait_ms)) {
		case_fail("message %llu did not come", (unsigned long long)wr_id);
		return false;
	}
	EXPECT(!wc->status, "message %llu: %s", (unsigned long long)wr_id,
	       ibv_wc_status_str(wc->status));
	EXPECT(wc->wr_id == wr_id, "message %llu is in receive %llu", (unsigned long long)wr_id,
	       (unsigned long long)wc->wr_id);
	return !case_failed();
}

struct behind {
	const char *what;
	enum ibv_wr_opcode opcode;
	bool own_data;			/* the data is the message's own, else a WRITE before it */
};

static const struct behind behinds[] = {
	{ "a SEND of 8 bytes behind a WRITE", IBV_WR_SEND, false },
	{ "a SEND with an immediate behind a WRITE", IBV_WR_SEND_WITH_IMM, false },
	{ "an immediate of 0 bytes behind a WRITE", IBV_WR_RDMA_WRITE_WITH_IMM, false },
	{ "an immediate with its own data", IBV_WR_RDMA_WRITE_WITH_IMM, true },
};

static int post_behind(const struct behind *b, uint32_t round, uint64_t off, uint32_t len)
{
	struct ibv_sge sge[2] = { sge_at(&pair.a, off, len, keys_a.lkey),
				  sge_at(&pair.a, 0, SMALL_LEN, keys_a.lkey) };
	struct ibv_send_wr wr[2], *bad;

	wr[0] = wr_make(round, IBV_WR_RDMA_WRITE, &sge[0], &pair.b, off, keys_b.rkey);
	if (b->own_data) {
		wr[0].opcode = b->opcode;
		wr[0].imm_data = htonl(round);
		return post_chain(pair.a.objs->qp[0], wr, 1, &bad);
	}
	wr[0].send_flags = 0;
	wr[1] = wr_make(round, b->opcode, &sge[1], &pair.b, off, keys_b.rkey);
	wr[1].imm_data = htonl(round);
	if (b->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		wr[1].num_sge = 0;
	return post_chain(pair.a.objs->qp[0], wr, 2, &bad);
}

static void behind_round(const struct behind *b, struct rng *r, uint32_t round)
{
	uint32_t len = rng_one_in(r, 4) ? rng_below(r, SLOT_LEN) + 1 : rng_below(r, 1 << 20) + 1;
	uint64_t off = rng_below(r, DATA_LEN - len);
	uint32_t told;
	struct ibv_wc wc;

	memset(pair.a.peek + off, (int)(round & 0xff), len);
	memset(pair.b.peek + off, ~(int)(round & 0xff), len);
	recv_at_b(round);
	EXPECT_OK(post_behind(b, round, off, len));
	if (!message_at_b(&wc, round))
		return;
	EXPECT(!memcmp(pair.a.peek + off, pair.b.peek + off, len),
	       "round %u: %u bytes at %llu are not there", round, len, (unsigned long long)off);
	if (b->opcode != IBV_WR_SEND)
		EXPECT(wc.wc_flags & IBV_WC_WITH_IMM && ntohl(wc.imm_data) == round,
		       "round %u: another immediate", round);
	told = b->own_data ? len : b->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? 0 : SMALL_LEN;
	EXPECT(wc.byte_len == told || (!told && b->opcode == IBV_WR_RDMA_WRITE_WITH_IMM),
	       "round %u: byte_len %u, not %u", round, wc.byte_len, told);
	wait_good(&pair.a, 0, 1);
}

static void test_behind(const struct behind *b)
{
	struct rng r = { opts.seed };
	uint32_t round;

	case_begin("%s", b->what);
	for (round = 0; round < opt_rounds && !case_failed(); round++)
		behind_round(b, &r, round);
	case_end();
}

/* Many in flight: each message finds the WRITE before it complete. */
static void test_stream(void)
{
	enum { AHEAD = 8, LEN = 256 << 10 };
	uint32_t posted = 0, done = 0, rounds = opt_rounds;
	struct ibv_wc wc;

	case_begin("WRITEs and messages in turn, %d ahead", AHEAD);
	while (done < rounds && !case_failed()) {
		for (; posted < rounds && posted < done + AHEAD; posted++) {
			uint64_t off = (uint64_t)(posted % AHEAD) * LEN;

			memset(pair.a.peek + off, (int)(posted & 0xff), LEN);
			recv_at_b(posted);
			EXPECT_OK(post_behind(&behinds[posted % 4], posted, off, LEN));
		}
		if (!message_at_b(&wc, done))
			break;
		EXPECT(!memcmp(pair.a.peek + done % AHEAD * LEN, pair.b.peek + done % AHEAD * LEN,
			       LEN), "message %u: the WRITE before it is not complete", done);
		wait_good(&pair.a, 0, 1);
		done++;
	}
	case_end();
}

/* Small and large ones in turn, the receives running out now and then. */
static void test_sizes(void)
{
	uint64_t posted = 0, done = 0;
	struct ibv_wc wc;

	case_begin("%llu SENDs, of 8 bytes and of 256 KiB in turn", (unsigned long long)opt_messages);
	while (done < opt_messages && !case_failed()) {
		uint32_t len = done & 1 ? SLOT_LEN : SMALL_LEN;

		for (; posted < opt_messages && posted < done + DEPTH_WR / 2; posted++) {
			struct ibv_sge sge = sge_at(&pair.a, posted % 16 * SLOT_LEN,
						    posted & 1 ? SLOT_LEN : SMALL_LEN, keys_a.lkey);
			struct ibv_send_wr wr = wr_make(posted, IBV_WR_SEND, &sge, &pair.b, 0, 0);

			*(volatile uint64_t *)(pair.a.peek + posted % 16 * SLOT_LEN) = posted;
			recv_at_b(posted);
			EXPECT_OK(post_one(pair.a.objs->qp[0], &wr));
		}
		if (!message_at_b(&wc, done))
			break;
		EXPECT(wc.byte_len == len, "message %llu: %u bytes", (unsigned long long)done,
		       wc.byte_len);
		EXPECT(*(volatile uint64_t *)(pair.b.peek + INBOX + done % DEPTH_WR * SLOT_LEN) ==
			       done, "message %llu: data", (unsigned long long)done);
		wait_good(&pair.a, 0, 1);
		done++;
	}
	case_end();
}

/* Messages that say nothing at the sender, and a READ behind that does. */
static void test_silent(void)
{
	struct ibv_send_wr wr[3], *bad;
	struct ibv_sge sge[3];
	struct rng r = { opts.seed };
	struct ibv_wc wc;
	uint32_t round;

	case_begin("an unsignalled WRITE and message, then a READ that is signalled");
	for (round = 0; round < opt_rounds && !case_failed(); round++) {
		uint32_t len = 1 << 20, part = 64 << 10;
		uint64_t off = rng_below(&r, (len - part) >> 12) << 12;

		recv_at_b(round);
		sge[0] = sge_at(&pair.a, 0, len, keys_a.lkey);
		sge[1] = sge_at(&pair.a, 0, SMALL_LEN, keys_a.lkey);
		sge[2] = sge_at(&pair.a, 2 << 20, part, keys_a.lkey);
		wr[0] = wr_make(0, IBV_WR_RDMA_WRITE, &sge[0], &pair.b, 0, keys_b.rkey);
		wr[1] = wr_make(1, IBV_WR_SEND, &sge[1], &pair.b, 0, 0);
		wr[2] = wr_make(2, IBV_WR_RDMA_READ, &sge[2], &pair.b, off, keys_b.rkey);
		wr[0].send_flags = wr[1].send_flags = 0;
		EXPECT_OK(post_chain(pair.a.objs->qp[0], wr, 3, &bad));
		wait_good(&pair.a, 0, 1);
		message_at_b(&wc, round);
	}
	case_end();
}

/* The receiver goes to ERR while a message may be waiting for what was before it. */
static void test_fails(void)
{
	struct conn_spec conn = conn_defaults();
	struct ibv_wc wc[END_WCS];
	int round, rounds = opts.quick ? 5 : 20, got, left;

	case_begin("every receive ends when the receiver goes to ERR");
	for (round = 0; round < rounds && !case_failed(); round++) {
		uint64_t i;

		for (i = 0; i < 8; i++)
			recv_at_b(i);
		EXPECT_OK(post_behind(&behinds[round & 1], round, 0, 1 << 20));
		sleep_us(round * 500);
		MUST(end_qp_to(&pair.b, 0, IBV_QPS_ERR));
		got = end_poll(&pair.b, 0, wc, 8, opts.wait_ms);
		EXPECT(got == 8, "round %d: %d of 8 receives ended", round, got);
		left = end_poll(&pair.b, 0, wc, 1, 0);
		EXPECT(!left, "round %d: a completion too many", round);
		MUST(end_qp_to(&pair.a, 0, IBV_QPS_RESET));
		MUST(end_qp_to(&pair.b, 0, IBV_QPS_RESET));
		while (end_poll(&pair.a, 0, wc, 1, 0))
			;
		MUST(pair_connect(&pair, 0, 0, &conn));
	}
	case_end();
}

/* From the post to the message's arrival, against the WRITE's own completion: no round trip more. */
static void test_prompt(void)
{
	enum { LEN = 512 << 10, TIMES = 5 };
	uint64_t alone = UINT64_MAX, both = UINT64_MAX, start, ns;
	struct ibv_sge sge = sge_at(&pair.a, 0, LEN, keys_a.lkey);
	struct ibv_send_wr wr = wr_make(0, IBV_WR_RDMA_WRITE, &sge, &pair.b, 0, keys_b.rkey);
	struct ibv_wc wc;
	int i;

	case_begin("a message behind a WRITE is there before the WRITE is acknowledged");
	for (i = 0; i < TIMES && !case_failed(); i++) {
		start = now_ns();
		EXPECT_OK(post_one(pair.a.objs->qp[0], &wr));
		wait_good(&pair.a, 0, 1);
		ns = now_ns() - start;
		alone = ns < alone ? ns : alone;
		recv_at_b(i);
		start = now_ns();
		EXPECT_OK(post_behind(&behinds[0], i, 0, LEN));
		message_at_b(&wc, i);
		ns = now_ns() - start;
		both = ns < both ? ns : both;
		wait_good(&pair.a, 0, 1);
	}
	EXPECT(both < alone, "%llu us to the message, %llu us for the WRITE alone",
	       (unsigned long long)both / 1000, (unsigned long long)alone / 1000);
	case_end();
}

int main(int argc, char **argv)
{
	struct conn_spec conn;
	unsigned int i;

	opts_parse(argc, argv, "what a receive completion promises", rows);
	if (opts.quick) {
		opt_rounds /= 10;
		opt_messages /= 50;
	}
	pair_open(&pair, ARENA_LEN);
	pair_basics(&pair, 4 * DEPTH_WR, &keys_a, &keys_b);
	conn = conn_defaults();
	pair_qp(&pair, 0, DEPTH_WR, &conn);
	for (i = 0; i < sizeof(behinds) / sizeof(behinds[0]); i++)
		test_behind(&behinds[i]);
	test_stream();
	test_sizes();
	test_silent();
	test_fails();
	if (opt_prompt)
		test_prompt();
	pair_close(&pair);
	return report();
}
