/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Queues hold what the application asked for: as many WRs as max_send_wr says, never fewer; a
 * CQ of just the needed size; a chain that fails has posted what stands before bad_wr.
 *
 * A plain NIC may round queues up and free entries early. --exact asks for a device that
 * counts as the application does: the WR beyond max_send_wr, a bad opcode and a QP that is not
 * ready are refused at the call.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "end.h"

enum {
	DEPTH_WR = 16,
	MANY_WR = 8192,			/* more than any device rounds 16 up to */
	CQE_ROUNDS = 20,
	CHAIN = 5,
	BAD_AT = 2,
	BAD_OPCODE = 200,
	INLINE_ROOM = 4096,
	BIG_SGES = 256,
};

static uint64_t opt_wrs = 100000;
static uint64_t opt_size = 64 << 10;
static bool opt_exact;

static const struct opt_row rows[] = {
	{ "wrs", OPT_SIZE, &opt_wrs, "WRs of the loop (100000)" },
	{ "size", OPT_SIZE, &opt_size, "bytes of each (64k)" },
	{ "exact", OPT_FLAG, &opt_exact, "the device counts as the application does" },
	{ 0 },
};

static struct pair pair;
static struct end_keys keys_a, keys_b;

/* QP 0 at both ends on CQ 1 of the given size; depth as the programs of this file want it. */
static struct ibv_qp *qp_make(int cqe_a, int cqe_b, bool sig_all, struct qp_spec *at_a)
{
	struct conn_spec conn = conn_defaults();
	struct qp_spec spec = {
		.send_cq = 1,
		.recv_cq = 1,
		.sig_all = sig_all,
		.cap = {
			.max_send_wr = DEPTH_WR,
			.max_recv_wr = DEPTH_WR,
			.max_send_sge = 2,
			.max_recv_sge = 1,
			.max_inline_data = 32,
		},
	};

	*at_a = spec;
	MUST(end_cq_create(&pair.a, 1, cqe_a));
	MUST(end_cq_create(&pair.b, 1, cqe_b));
	MUST(end_qp_create(&pair.a, 0, at_a));
	MUST(end_qp_create(&pair.b, 0, &spec));
	MUST(pair_connect(&pair, 0, 0, &conn));
	return pair.a.objs->qp[0];
}

static void qp_unmake(void)
{
	MUST(end_qp_destroy(&pair.a, 0));
	MUST(end_qp_destroy(&pair.b, 0));
	MUST(end_cq_destroy(&pair.a, 1));
	MUST(end_cq_destroy(&pair.b, 1));
}

static void post_sixteen(struct ibv_qp *qp, struct rng *r, uint64_t first)
{
	struct ibv_sge sge = sge_at(&pair.a, 0, opt_size, keys_a.lkey);
	struct ibv_send_wr wr[DEPTH_WR], *bad;
	int i, n, err;

	for (i = 0; i < DEPTH_WR; i++) {
		wr[i] = wr_make(first + i, IBV_WR_RDMA_WRITE, &sge, &pair.b, i * opt_size,
				keys_b.rkey);
		wr[i].send_flags = i == DEPTH_WR - 1 ? IBV_SEND_SIGNALED : 0;
	}
	for (i = 0; i < DEPTH_WR; i += n) {
		n = rng_one_in(r, 2) ? 1 : 1 + rng_below(r, DEPTH_WR - i);
		err = post_chain(qp, wr + i, n, &bad);
		if (err)
			die("WR %llu, %d in the chain: %s", (unsigned long long)(first + i), n,
			    strerror(err));
	}
}

static void test_loop(void)
{
	struct rng r = { opts.seed };
	struct qp_spec at_a;
	struct ibv_qp *qp;
	struct ibv_wc wc;
	uint64_t n;

	case_begin("%llu WRITEs, 15 unsignalled and one signalled, max_send_wr 16, one CQE",
		   (unsigned long long)opt_wrs);
	qp = qp_make(1, 1, false, &at_a);
	rng_fill(&r, pair.a.peek, opt_size);
	for (n = 0; n < opt_wrs; n += DEPTH_WR) {
		post_sixteen(qp, &r, n);
		if (!end_poll(&pair.a, 1, &wc, 1, opts.wait_ms))
			die("no completion of WR %llu", (unsigned long long)(n + DEPTH_WR - 1));
		if (wc.status || wc.wr_id != n + DEPTH_WR - 1)
			die("completion of %llu: %s; due is %llu", (unsigned long long)wc.wr_id,
			    ibv_wc_status_str(wc.status),
			    (unsigned long long)(n + DEPTH_WR - 1));
	}
	for (n = 0; n < DEPTH_WR; n++)
		EXPECT(!memcmp(pair.a.peek, pair.b.peek + n * opt_size, opt_size),
		       "data of WRITE %llu of the last 16 differs", (unsigned long long)n);
	wait_none(&pair.a, 1, 10);
	qp_unmake();
	case_end();
}

static void test_chain_too_long(void)
{
	static struct ibv_send_wr wr[MANY_WR];
	struct ibv_sge sge = sge_at(&pair.a, 0, opt_size, keys_a.lkey);
	struct ibv_send_wr *bad;
	struct qp_spec at_a;
	struct ibv_qp *qp;
	int i, err, taken, again;

	case_begin("a chain longer than the queue");
	qp = qp_make(MANY_WR, 1, false, &at_a);
	for (again = 0; again < 3; again++) {
		for (i = 0; i < MANY_WR; i++)
			wr[i] = wr_make(i, IBV_WR_RDMA_WRITE, i < DEPTH_WR ? &sge : NULL,
					&pair.b, 0, keys_b.rkey);
		err = post_chain(qp, wr, MANY_WR, &bad);
		taken = bad ? bad - wr : -1;
		EXPECT(err == ENOMEM, "posting it gives %d (%s), must be ENOMEM", err,
		       strerror(err));
		EXPECT(taken >= (int)at_a.cap.max_send_wr || (opt_exact && taken == DEPTH_WR),
		       "bad_wr is WR %d with max_send_wr %u", taken, at_a.cap.max_send_wr);
		EXPECT(!opt_exact || taken == DEPTH_WR, "bad_wr is WR %d, must be 16", taken);
		if (!wait_good(&pair.a, 1, taken))
			break;
		wait_none(&pair.a, 1, 10);
	}
	qp_unmake();
	case_end();
}

static void test_seventeenth(void)
{
	struct ibv_sge sge = sge_at(&pair.a, 0, opt_size, keys_a.lkey);
	struct ibv_send_wr wr, *bad;
	struct qp_spec at_a;
	struct ibv_qp *qp;
	int i, err, again;

	case_begin("the 17th of max_send_wr 16, posted alone");
	if (!opt_exact) {
		case_skip("without --exact a device may take it");
		case_end();
		return;
	}
	qp = qp_make(DEPTH_WR, 1, false, &at_a);
	for (again = 0; again < 5 && !case_failed(); again++) {
		for (i = 0; i < DEPTH_WR; i++) {
			wr = wr_make(i, IBV_WR_RDMA_WRITE, &sge, &pair.b, 0, keys_b.rkey);
			EXPECT_OK(post_one(qp, &wr));
		}
		wr = wr_make(i, IBV_WR_RDMA_WRITE, &sge, &pair.b, 0, keys_b.rkey);
		err = post_chain(qp, &wr, 1, &bad);
		EXPECT(err == ENOMEM && bad == &wr, "it gives %d (%s), bad_wr %s", err,
		       strerror(err), bad == &wr ? "on it" : "not on it");
		wait_good(&pair.a, 1, DEPTH_WR);
		wait_none(&pair.a, 1, 10);
	}
	qp_unmake();
	case_end();
}

enum bad_kind { BAD_SGES, BAD_INLINE, BAD_WR_OPCODE };

static const char *const bad_names[] = {
	"too many SGEs", "too much inline data", "an opcode that does not exist",
};

static void make_bad(struct ibv_send_wr *wr, enum bad_kind kind, const struct ibv_qp_cap *cap)
{
	static struct ibv_sge many[BIG_SGES];
	unsigned int i;

	switch (kind) {
	case BAD_SGES:
		for (i = 0; i < BIG_SGES; i++)
			many[i] = sge_at(&pair.a, i, 1, keys_a.lkey);
		wr->sg_list = many;
		wr->num_sge = cap->max_send_sge < BIG_SGES ? cap->max_send_sge + 1 : BIG_SGES;
		break;
	case BAD_INLINE:
		many[0] = sge_at(&pair.a, 0, cap->max_inline_data + 1, keys_a.lkey);
		wr->sg_list = many;
		wr->num_sge = 1;
		wr->send_flags |= IBV_SEND_INLINE;
		break;
	case BAD_WR_OPCODE:
		wr->opcode = (enum ibv_wr_opcode)BAD_OPCODE;
		break;
	}
}

/* Each WR of the chain writes one page of its own, so that one too many shows in memory. */
static void test_bad_in_chain(enum bad_kind kind)
{
	struct ibv_sge sge = sge_at(&pair.a, 0, INLINE_ROOM, keys_a.lkey);
	struct ibv_send_wr wr[CHAIN], *bad;
	struct qp_spec at_a;
	struct ibv_qp *qp;
	int i, err;
	bool wrote;

	case_begin("a chain of 5, the third has %s", bad_names[kind]);
	if (kind == BAD_WR_OPCODE && !opt_exact) {
		case_skip("without --exact a device need not look at it");
		case_end();
		return;
	}
	qp = qp_make(DEPTH_WR, 1, false, &at_a);
	memset(pair.a.peek, 0x5a, INLINE_ROOM);
	memset(pair.b.peek, 0, CHAIN * INLINE_ROOM);
	for (i = 0; i < CHAIN; i++)
		wr[i] = wr_make(i, IBV_WR_RDMA_WRITE, &sge, &pair.b, i * INLINE_ROOM,
				keys_b.rkey);
	make_bad(&wr[BAD_AT], kind, &at_a.cap);
	err = post_chain(qp, wr, CHAIN, &bad);
	EXPECT(err == EINVAL || (err == ENOMEM && kind != BAD_WR_OPCODE), "it gives %d (%s)",
	       err, strerror(err));
	EXPECT(bad == &wr[BAD_AT], "bad_wr is WR %d, must be %d", bad ? (int)(bad - wr) : -1,
	       BAD_AT);
	wait_good(&pair.a, 1, BAD_AT);
	wait_none(&pair.a, 1, 50);
	for (i = 0; i < CHAIN; i++) {
		wrote = pair.b.peek[i * INLINE_ROOM] == 0x5a;
		EXPECT(wrote == (i < BAD_AT), "WR %d %s", i,
		       wrote ? "was executed" : "was not executed");
	}
	/* What was refused has left nothing behind: the queue is whole. */
	for (i = 0; i < DEPTH_WR; i++) {
		wr[0] = wr_make(i, IBV_WR_RDMA_WRITE, &sge, &pair.b, 0, keys_b.rkey);
		EXPECT_OK(post_one(qp, &wr[0]));
	}
	wait_good(&pair.a, 1, DEPTH_WR);
	qp_unmake();
	case_end();
}

static void test_cq_just_enough(bool sig_all)
{
	struct ibv_sge sge = sge_at(&pair.a, 0, opt_size, keys_a.lkey);
	struct end_recv recv = { .num_sge = 1 };
	struct ibv_send_wr wr;
	enum ibv_event_type type;
	struct qp_spec at_a;
	struct ibv_qp *qp;
	int rounds = opts.quick ? CQE_ROUNDS / 5 : CQE_ROUNDS, round, i, id;

	case_begin("CQs of just 16 entries, polled late%s", sig_all ? ", sq_sig_all" : "");
	qp = qp_make(DEPTH_WR, DEPTH_WR, sig_all, &at_a);
	for (round = 0; round < rounds && !case_failed(); round++) {
		for (i = 0; i < DEPTH_WR; i++) {
			recv.sge[0] = sge_at(&pair.b, i * opt_size, opt_size, keys_b.lkey);
			EXPECT_OK(end_post_recv(&pair.b, 0, &recv, 1));
		}
		for (i = 0; i < DEPTH_WR; i++) {
			wr = wr_make(i, round & 1 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE_WITH_IMM,
				     &sge, &pair.b, i * opt_size, keys_b.rkey);
			if (sig_all)
				wr.send_flags = 0;
			EXPECT_OK(post_one(qp, &wr));
		}
		/* All 16 are there at b, so the acknowledgements are on their way. */
		sleep_us(5000);
		wait_good(&pair.b, 1, DEPTH_WR);
		sleep_us(5000);
		wait_good(&pair.a, 1, DEPTH_WR);
	}
	wait_none(&pair.a, 1, 10);
	wait_none(&pair.b, 1, 10);
	while (!end_event(&pair.a, &type, &id, 0))
		EXPECT(type != IBV_EVENT_CQ_ERR, "end a: CQ error event");
	while (!end_event(&pair.b, &type, &id, 0))
		EXPECT(type != IBV_EVENT_CQ_ERR, "end b: CQ error event");
	qp_unmake();
	case_end();
}

static int post_recv_one(struct ibv_qp *qp, bool *on_it)
{
	struct ibv_recv_wr wr = { 0 }, *bad = NULL;
	int err = ibv_post_recv(qp, &wr, &bad);

	*on_it = bad == &wr;
	return err < 0 ? -err : err;
}

static void test_receive_queue(void)
{
	struct qp_spec at_a;
	struct ibv_qp *qp;
	bool on_it;
	int i, err;

	case_begin("max_recv_wr 16");
	qp = qp_make(DEPTH_WR, DEPTH_WR, false, &at_a);
	for (i = 0; i < DEPTH_WR; i++)
		EXPECT_OK(post_recv_one(qp, &on_it));
	for (; i < MANY_WR; i++) {
		err = post_recv_one(qp, &on_it);
		if (err)
			break;
	}
	EXPECT(i < MANY_WR && err == ENOMEM && on_it, "receive %d gives %d (%s), bad_wr %s", i,
	       err, strerror(err), on_it ? "on it" : "not on it");
	EXPECT(!opt_exact || i == DEPTH_WR, "refused is receive %d, must be 16", i);
	qp_unmake();
	case_end();
}

static void try_state(struct ibv_qp *qp, const char *state, int want_send, int want_recv)
{
	struct ibv_send_wr *bad = NULL, wr = wr_make(1, IBV_WR_RDMA_WRITE, NULL, &pair.b, 0,
						    keys_b.rkey);
	bool on_it;
	int err;

	err = post_chain(qp, &wr, 1, &bad);
	EXPECT(err == want_send && (!err || bad == &wr), "post_send in %s gives %d (%s)",
	       state, err, strerror(err));
	err = post_recv_one(qp, &on_it);
	EXPECT(err == want_recv && (!err || on_it), "post_recv in %s gives %d (%s)", state, err,
	       strerror(err));
}

static void test_not_ready(void)
{
	struct conn_spec conn = conn_defaults();
	struct qp_spec spec = {
		.send_cq = 0,
		.cap = { .max_send_wr = DEPTH_WR, .max_recv_wr = DEPTH_WR },
	};

	case_begin("posting to a QP that is not ready");
	if (!opt_exact) {
		case_skip("without --exact a device may let it pass");
		case_end();
		return;
	}
	MUST(end_qp_create(&pair.a, 0, &spec));
	MUST(end_qp_create(&pair.b, 0, &spec));
	try_state(pair.a.objs->qp[0], "RESET", EINVAL, EINVAL);
	MUST(end_to_init(&pair.a, 0, conn.access_a));
	try_state(pair.a.objs->qp[0], "INIT", EINVAL, 0);
	MUST(end_to_init(&pair.b, 0, conn.access_b));
	MUST(end_to_rtr(&pair.a, 0, &pair.b, 0, &conn));
	try_state(pair.a.objs->qp[0], "RTR", EINVAL, 0);
	MUST(end_qp_destroy(&pair.a, 0));
	MUST(end_qp_destroy(&pair.b, 0));
	case_end();
}

/* The limits that the device reports must be ones it can keep. */
static void test_limits(void)
{
	struct conn_spec conn = conn_defaults();
	struct qp_spec spec = { .send_cq = 1, .recv_cq = 1 };
	struct ibv_send_wr wr;
	int cqe = pair.a.attr.max_cqe < (1 << 17) ? pair.a.attr.max_cqe : 1 << 17;

	case_begin("max_qp_wr %d, max_sge %d, CQ of %d", pair.a.attr.max_qp_wr,
		   pair.a.attr.max_sge, cqe);
	spec.cap.max_send_wr = pair.a.attr.max_qp_wr;
	spec.cap.max_recv_wr = pair.a.attr.max_qp_wr;
	spec.cap.max_send_sge = 1;
	spec.cap.max_recv_sge = pair.a.attr.max_sge;
	MUST(end_cq_create(&pair.a, 1, cqe));
	MUST(end_qp_create(&pair.a, 0, &spec));
	spec = (struct qp_spec){ .cap = { .max_send_wr = 1, .max_recv_wr = 1 } };
	MUST(end_qp_create(&pair.b, 0, &spec));
	MUST(pair_connect(&pair, 0, 0, &conn));
	wr = wr_make(1, IBV_WR_RDMA_WRITE, NULL, &pair.b, 0, keys_b.rkey);
	EXPECT_OK(post_one(pair.a.objs->qp[0], &wr));
	wait_good(&pair.a, 1, 1);
	MUST(end_qp_destroy(&pair.a, 0));
	MUST(end_qp_destroy(&pair.b, 0));
	MUST(end_cq_destroy(&pair.a, 1));
	case_end();
}

int main(int argc, char **argv)
{
	opts_parse(argc, argv, "queue sizes are the application's", rows);
	if (!opt_size || opt_size > (4 << 20))
		die("--size 1..4m");
	if (opts.quick)
		opt_wrs /= 10;
	pair_open(&pair, DEPTH_WR * opt_size + CHAIN * INLINE_ROOM);
	pair_basics(&pair, DEPTH_WR, &keys_a, &keys_b);
	test_loop();
	test_chain_too_long();
	test_seventeenth();
	test_bad_in_chain(BAD_SGES);
	test_bad_in_chain(BAD_INLINE);
	test_bad_in_chain(BAD_WR_OPCODE);
	test_cq_just_enough(false);
	test_cq_just_enough(true);
	test_receive_queue();
	test_not_ready();
	test_limits();
	pair_close(&pair);
	return report();
}
