/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Shared receive queues at end a: several QPs take their receives from one, the limit event, and
 * QPs that go away, or to RESET, with completions that nobody has polled.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "end.h"

enum {
	QPS = 4,
	SRQ_WR = 32,
	SLOT_LEN = 64 << 10,
	ARENA_LEN = 2 * SRQ_WR * SLOT_LEN,
	CHURN_WR = 8,
};

static uint64_t opt_messages = 4000, opt_churns = 100;

static const struct opt_row rows[] = {
	{ "messages", OPT_SIZE, &opt_messages, "messages over QPs that share (4000)" },
	{ "churns", OPT_SIZE, &opt_churns, "QPs with completions left behind (100)" },
	{ 0 },
};

static struct pair pair;
static struct end_keys keys_a, keys_b;

static struct ibv_srq *srq_make(uint32_t max_wr)
{
	struct ibv_srq_init_attr attr = { .srq_context = &pair,
					  .attr = { .max_wr = max_wr, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pair.a.objs->pd[0], &attr);

	if (!srq)
		die("ibv_create_srq: %s", strerror(errno));
	EXPECT(attr.attr.max_wr >= max_wr, "max_wr %u of %u", attr.attr.max_wr, max_wr);
	EXPECT(srq->srq_context == &pair, "another srq_context than the application's");
	return srq;
}

static int srq_post(struct ibv_srq *srq, uint64_t wr_id, unsigned int slot)
{
	struct ibv_sge sge = sge_at(&pair.a, (uint64_t)slot * SLOT_LEN, SLOT_LEN, keys_a.lkey);
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_srq_recv(srq, &wr, &bad);
}

static void qp_make(int qp, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC, .send_cq = pair.a.objs->cq[0],
		.recv_cq = pair.a.objs->cq[0], .srq = srq,
		.cap = { .max_send_wr = CHURN_WR, .max_send_sge = 1 },
	};
	struct qp_spec spec = { .cap = { .max_send_wr = SRQ_WR, .max_recv_wr = SRQ_WR,
					 .max_send_sge = 1, .max_recv_sge = 1 } };

	pair.a.objs->qp[qp] = ibv_create_qp(pair.a.objs->pd[0], &attr);
	if (!pair.a.objs->qp[qp])
		die("ibv_create_qp with an SRQ: %s", strerror(errno));
	EXPECT(pair.a.objs->qp[qp]->srq == srq, "QP %d has another SRQ", qp);
	MUST(end_qp_create(&pair.b, qp, &spec));
}

static void connect_both(int qp)
{
	struct conn_spec conn = conn_defaults();

	conn.rnr_retry = 7;
	MUST(pair_connect(&pair, qp, qp, &conn));
}

static int send_from_b(int qp, uint32_t number, uint32_t len)
{
	uint64_t off = (uint64_t)(number % (2 * SRQ_WR)) * SLOT_LEN;
	struct end_send send = {
		.wr_id = number, .opcode = IBV_WR_SEND_WITH_IMM, .flags = IBV_SEND_SIGNALED,
		.imm = number, .num_sge = 1, .sge[0] = sge_at(&pair.b, off, len, keys_b.lkey),
	};

	memset(pair.b.peek + off, (int)(number & 0xff), len);
	return end_post_send(&pair.b, qp, &send);
}

/* One receive completion: of a receive that was posted, on the right QP, with the right bytes. */
static void check_received(const struct ibv_wc *wc, int qp, uint32_t number, uint32_t len,
			   bool *posted)
{
	const uint8_t *at;

	if (wc->status || !(wc->opcode & IBV_WC_RECV)) {
		case_fail("message %u: %s, opcode %d", number, ibv_wc_status_str(wc->status),
			  wc->opcode);
		return;
	}
	if (wc->wr_id >= SRQ_WR || !posted[wc->wr_id]) {
		case_fail("message %u: wr_id %llu was not posted", number,
			  (unsigned long long)wc->wr_id);
		return;
	}
	posted[wc->wr_id] = false;
	EXPECT(wc->qp_num == pair.a.objs->qp[qp]->qp_num, "message %u: on another QP", number);
	EXPECT(wc->byte_len == len, "message %u: %u bytes of %u", number, wc->byte_len, len);
	EXPECT(wc->wc_flags & IBV_WC_WITH_IMM && wc->imm_data == number,
	       "message %u: another immediate", number);
	at = pair.a.peek + wc->wr_id * SLOT_LEN;
	EXPECT(!len || (at[0] == (number & 0xff) && at[len - 1] == (number & 0xff)),
	       "message %u: data", number);
}

static void test_shared(void)
{
	struct rng r = { opts.seed };
	bool posted[SRQ_WR] = { false };
	struct ibv_srq *srq;
	struct ibv_wc wc;
	uint32_t i;
	int qp;

	case_begin("%llu messages to %d QPs of one SRQ", (unsigned long long)opt_messages, QPS);
	srq = srq_make(SRQ_WR);
	for (qp = 0; qp < QPS; qp++) {
		qp_make(qp, srq);
		connect_both(qp);
	}
	for (i = 0; i < SRQ_WR; i++) {
		EXPECT_OK(srq_post(srq, i, i));
		posted[i] = true;
	}
	for (i = 0; i < opt_messages && !case_failed(); i++) {
		uint32_t len = rng_one_in(&r, 4) ? rng_below(&r, SLOT_LEN) + 1 : rng_below(&r, 64);

		qp = rng_below(&r, QPS);
		EXPECT_OK(send_from_b(qp, i, len));
		if (!end_poll(&pair.a, 0, &wc, 1, opts.wait_ms)) {
			case_fail("message %u did not come", i);
			break;
		}
		check_received(&wc, qp, i, len, posted);
		wait_good(&pair.b, 0, 1);
		if (!case_failed() && !srq_post(srq, wc.wr_id, wc.wr_id))
			posted[wc.wr_id] = true;
	}
	for (qp = 0; qp < QPS; qp++) {
		MUST(end_qp_destroy(&pair.a, qp));
		MUST(end_qp_destroy(&pair.b, qp));
	}
	EXPECT_OK(ibv_destroy_srq(srq));
	case_end();
}

static bool limit_event(struct ibv_srq *srq, unsigned int wait_ms)
{
	struct pollfd pfd = { .fd = pair.a.objs->ctx->async_fd, .events = POLLIN };
	struct ibv_async_event event;
	bool found;

	if (poll(&pfd, 1, wait_ms) != 1 || ibv_get_async_event(pair.a.objs->ctx, &event))
		return false;
	found = event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq;
	if (!found)
		case_fail("event %s", ibv_event_type_str(event.event_type));
	ibv_ack_async_event(&event);
	return found;
}

static void test_limit(void)
{
	struct ibv_srq_attr attr = { .srq_limit = CHURN_WR / 2 };
	struct ibv_srq *srq;
	struct ibv_wc wc;
	uint32_t i;

	case_begin("the limit is reached once");
	srq = srq_make(CHURN_WR);
	qp_make(0, srq);
	connect_both(0);
	for (i = 0; i < CHURN_WR; i++)
		EXPECT_OK(srq_post(srq, i, i));
	EXPECT_OK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	EXPECT(!limit_event(srq, 20), "the event came with nothing consumed");
	for (i = 0; i < CHURN_WR; i++) {
		EXPECT_OK(send_from_b(0, i, 8));
		end_poll(&pair.a, 0, &wc, 1, opts.wait_ms);
		wait_good(&pair.b, 0, 1);
	}
	EXPECT(limit_event(srq, opts.wait_ms), "no event");
	EXPECT(!limit_event(srq, 20), "a second event");
	EXPECT_OK(ibv_query_srq(srq, &attr));
	EXPECT(!attr.srq_limit, "still armed at %u", attr.srq_limit);
	MUST(end_qp_destroy(&pair.a, 0));
	MUST(end_qp_destroy(&pair.b, 0));
	EXPECT_OK(ibv_destroy_srq(srq));
	case_end();
}

/* The receives of completions that go with the QP are the SRQ's again. */
static void test_churn(void)
{
	struct ibv_srq *srq;
	struct ibv_wc wc;
	uint32_t i, n;
	int err = 0;

	case_begin("%llu QPs that leave completions behind", (unsigned long long)opt_churns);
	srq = srq_make(CHURN_WR);
	for (i = 0; i < opt_churns && !case_failed(); i++) {
		qp_make(0, srq);
		connect_both(0);
		for (n = 0; n < CHURN_WR / 2; n++) {
			err = srq_post(srq, n, n);
			EXPECT(!err, "QP %u, receive %u: %s", i, n, strerror(err));
			EXPECT_OK(send_from_b(0, n, 8));
			wait_good(&pair.b, 0, 1);
		}
		if (i % 4 == 3) {
			MUST(end_qp_to(&pair.a, 0, IBV_QPS_RESET));
			MUST(end_qp_to(&pair.b, 0, IBV_QPS_RESET));
		}
		MUST(end_qp_destroy(&pair.a, 0));
		MUST(end_qp_destroy(&pair.b, 0));
		EXPECT(!end_poll(&pair.a, 0, &wc, 1, 0), "a completion of a QP that is gone");
	}
	EXPECT_OK(ibv_destroy_srq(srq));
	case_end();
}

int main(int argc, char **argv)
{
	opts_parse(argc, argv, "shared receive queues", rows);
	if (opts.quick) {
		opt_messages /= 10;
		opt_churns /= 4;
	}
	pair_open(&pair, ARENA_LEN);
	if (!pair.a.attr.max_srq) {
		case_begin("shared receive queues");
		case_skip("%s has none", pair.a.dev);
		case_end();
		return report();
	}
	pair_basics(&pair, 256, &keys_a, &keys_b);
	test_shared();
	test_limit();
	test_churn();
	pair_close(&pair);
	return report();
}
