/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * One wrong WR at position k in a queue of 8: the right status on the right WR, success before
 * it, flush behind it, one completion each, both QPs' states, and a QP that works again after
 * RESET. With --like-a and --like-b the same is done on a plain pair of devices, and both must
 * tell the same.
 *
 * This file runs the experiment and judges it; what the wrong WRs are is in wrong.c.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "end.h"
#include "wrong.h"

enum {
	QUEUE_WR = WRONG_QUEUE_WR,
	SPARE_RECVS = 2,
	ACCEPTED_AFTER = 100,		/* wr_id of the WR posted in ERR */
	MAX_WC = 32,
	SMALL_LEN = 64,
	LARGE_LEN = WRONG_LARGE_LEN,
	QUIET_MS = 20,
	ALONE_US = 1000000,
};

static uint64_t opt_within_ms = 2000;
static const char *opt_like_a, *opt_like_b;
static bool opt_local_alone;

static const struct opt_row rows[] = {
	{ "within-ms", OPT_SIZE, &opt_within_ms, "all completions within this time (2000)" },
	{ "local-alone", OPT_FLAG, &opt_local_alone,
	  "local errors with nothing unacknowledged before them (rxe of Linux 6.1 hangs)" },
	{ "like-a", OPT_TEXT, &opt_like_a, "plain device at end a to compare with" },
	{ "like-b", OPT_TEXT, &opt_like_b, "plain device at end b to compare with" },
	{ 0 },
};

struct told {
	uint64_t wr_id;
	enum ibv_wc_status status;
};

/* What an application can see of one experiment. */
struct outcome {
	int post_err;
	int posted;
	int num_a, num_b;
	struct told a[MAX_WC], b[MAX_WC];
	enum ibv_qp_state state_a, state_b;
	uint64_t events_a, events_b;	/* bit per ibv_event_type */
	uint64_t took_ms;
};

struct experiment {
	const struct wrong *wrong;
	uint32_t len;
	int at;
};

static bool is_signaled(int i, int at)
{
	/* The wrong one at both, so that an unsignalled one is told too. */
	return ((i + at) & 1) || i == QUEUE_WR - 1;
}

static void post_spare_recvs(struct wrong_bench *b, const struct experiment *x)
{
	struct end_recv recv = { .num_sge = 1 };
	int i;

	if (x->wrong->recv == RECV_NONE)
		return;
	for (i = 0; i < SPARE_RECVS; i++) {
		recv.wr_id = i;
		recv.sge[0] = sge_at(&b->pair.b, WRONG_RECV_OFF, x->len, b->keys_b.lkey);
		if (x->wrong->recv == RECV_SHORT)
			recv.sge[0].length = x->len / 2;
		MUST(end_post_recv(&b->pair.b, 0, &recv, 1));
	}
}

static void build_queue(struct wrong_bench *b, const struct experiment *x,
			struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	int i;

	for (i = 0; i < QUEUE_WR; i++) {
		sge[i] = sge_at(&b->pair.a, i * (uint64_t)LARGE_LEN, x->len, b->keys_a.lkey);
		wr[i] = wr_make(i, x->wrong->filler, &sge[i], &b->pair.b,
				i * (uint64_t)LARGE_LEN, b->keys_b.rkey);
		if (i == x->at)
			wrong_make(b, x->wrong, x->len, &wr[i], &sge[i]);
		wr[i].send_flags = is_signaled(i, x->at) ? IBV_SEND_SIGNALED : 0;
	}
}

/* Posts the queue at once, or, with --local-alone, in two parts. */
static void post_queue(struct wrong_bench *b, const struct experiment *x,
		       struct ibv_send_wr *wr, struct outcome *o)
{
	struct ibv_qp *qp = b->pair.a.objs->qp[0];
	struct ibv_send_wr *bad;
	int first = 0;

	if (opt_local_alone && x->wrong->where == WRONG_LOCAL && x->at) {
		first = x->at;
		EXPECT_OK(post_chain(qp, wr, first, &bad));
		sleep_us(ALONE_US);
	}
	o->post_err = post_chain(qp, wr + first, QUEUE_WR - first, &bad);
	o->posted = bad && o->post_err ? (int)(bad - wr) : QUEUE_WR;
}

static int collect(struct end *e, struct told *told, int want, unsigned int timeout_ms)
{
	struct ibv_wc wc[MAX_WC];
	int n = end_poll(e, 0, wc, want, timeout_ms), i;

	for (i = 0; i < n; i++) {
		told[i].wr_id = wc[i].wr_id;
		told[i].status = wc[i].status;
	}
	return n;
}

static uint64_t collect_events(struct end *e, unsigned int first_ms)
{
	enum ibv_event_type type;
	uint64_t seen = 0;
	int qp;

	for (; !end_event(e, &type, &qp, first_ms); first_ms = 0)
		seen |= 1ull << type;
	/* A device may or may not tell the first packet. */
	return seen & ~(1ull << IBV_EVENT_COMM_EST);
}

static int due_completions(const struct outcome *o, int at)
{
	int i, n = 0;

	for (i = 0; i < o->posted; i++)
		n += i >= at || is_signaled(i, at);
	return n;
}

static void experiment_run(struct wrong_bench *b, const struct experiment *x,
			   struct outcome *o)
{
	struct ibv_send_wr wr[QUEUE_WR];
	struct ibv_sge sge[QUEUE_WR];
	uint64_t start;
	int due;

	memset(o, 0, sizeof(*o));
	memset(b->pair.a.peek, 0x5a, WRONG_ARENA_LEN);
	memset(b->pair.b.peek, 0xa5, WRONG_ARENA_LEN);
	post_spare_recvs(b, x);
	build_queue(b, x, wr, sge);
	start = now_ns();
	post_queue(b, x, wr, o);
	due = due_completions(o, x->at);
	o->num_a = collect(&b->pair.a, o->a, due, opt_within_ms);
	o->took_ms = (now_ns() - start) / 1000000;
	o->num_a += collect(&b->pair.a, o->a + o->num_a, MAX_WC - o->num_a, QUIET_MS);
	o->num_b = collect(&b->pair.b, o->b, MAX_WC, QUIET_MS);
	o->state_a = end_qp_state(&b->pair.a, 0);
	o->state_b = end_qp_state(&b->pair.b, 0);
	o->events_a = collect_events(&b->pair.a, 0);
	o->events_b = collect_events(&b->pair.b, QUIET_MS);
}

static void judge_refused(const struct experiment *x, const struct outcome *o)
{
	EXPECT(x->wrong->may_refuse && o->post_err == EINVAL, "post_send gives %s",
	       strerror(o->post_err));
	EXPECT(o->posted == x->at, "bad_wr is WR %d, must be %d", o->posted, x->at);
}

static void judge_completions(const struct experiment *x, const struct outcome *o)
{
	int i, n = 0;

	for (i = 0; i < o->posted; i++) {
		const struct told *t = &o->a[n];

		if (i < x->at && !is_signaled(i, x->at))
			continue;
		if (n++ >= o->num_a) {
			case_fail("WR %d has no completion within %llu ms", i,
				  (unsigned long long)opt_within_ms);
			return;
		}
		if (t->wr_id != (uint64_t)i)
			case_fail("completion of WR %llu, due is %d",
				  (unsigned long long)t->wr_id, i);
		else if (i < x->at)
			EXPECT(!t->status, "WR %d before the wrong one: %s", i,
			       ibv_wc_status_str(t->status));
		else if (i == x->at)
			EXPECT(wrong_status_ok(x->wrong, t->status), "the wrong WR: %s, must be %s",
			       ibv_wc_status_str(t->status),
			       ibv_wc_status_str(x->wrong->status));
		else
			EXPECT(t->status == IBV_WC_WR_FLUSH_ERR, "WR %d behind it: %s", i,
			       ibv_wc_status_str(t->status));
	}
	EXPECT(n == o->num_a, "%d completions too many at a, the first of WR %llu: %s",
	       o->num_a - n, (unsigned long long)o->a[n].wr_id,
	       ibv_wc_status_str(o->a[n].status));
}

static void judge_receiver(const struct experiment *x, const struct outcome *o)
{
	int recvs = x->wrong->recv == RECV_NONE ? 0 : SPARE_RECVS, i;

	if (o->state_b != IBV_QPS_ERR) {
		EXPECT(!o->num_b, "%d completions at b, whose QP is in state %d", o->num_b,
		       o->state_b);
		return;
	}
	EXPECT(o->num_b == recvs, "%d completions at b, whose QP is in ERR with %d receives",
	       o->num_b, recvs);
	for (i = 0; i < o->num_b; i++) {
		/* The receive that the wrong WR had taken already may say why. */
		bool first_told = i == 0 && x->wrong->where == WRONG_REMOTE && o->b[i].status &&
				  (x->wrong->opcode == IBV_WR_SEND ||
				   x->wrong->opcode == IBV_WR_RDMA_WRITE_WITH_IMM);

		EXPECT(o->b[i].wr_id == (uint64_t)i &&
		       (first_told || o->b[i].status == IBV_WC_WR_FLUSH_ERR),
		       "receive %d: wr_id %llu %s", i, (unsigned long long)o->b[i].wr_id,
		       ibv_wc_status_str(o->b[i].status));
	}
}

/*
 * Before the wrong WR all data is there, behind it none; but a READ's destination is looked at
 * when its data comes, and what stands behind it may have been sent by then.
 */
static void judge_data(struct wrong_bench *b, const struct experiment *x,
		       const struct outcome *o)
{
	bool write = x->wrong->filler == IBV_WR_RDMA_WRITE;
	const uint8_t *to = write ? b->pair.b.peek : b->pair.a.peek;
	uint8_t new = write ? 0x5a : 0xa5, old = write ? 0xa5 : 0x5a;
	bool late = x->wrong->where == WRONG_LOCAL && x->wrong->opcode == IBV_WR_RDMA_READ;
	int i;

	for (i = 0; i < QUEUE_WR; i++) {
		const uint8_t *at = to + i * (uint64_t)LARGE_LEN;
		uint8_t want = i < x->at && i < o->posted ? new : old;

		if (i == x->at || (i > x->at && late))
			continue;
		EXPECT(at[0] == want && at[x->len / 2] == want && at[x->len - 1] == want,
		       "WR %d %s the wrong one: its data is %s", i,
		       i < x->at ? "before" : "behind", i < x->at ? "not there" : "there");
	}
}

static void judge(struct wrong_bench *b, const struct experiment *x, const struct outcome *o)
{
	if (o->post_err)
		judge_refused(x, o);
	else
		EXPECT(o->state_a == IBV_QPS_ERR, "end a's QP is in state %d, must be in ERR",
		       o->state_a);
	judge_completions(x, o);
	judge_receiver(x, o);
	judge_data(b, x, o);
	/* A peer that is only told nothing must not be hurt by what went wrong at a. */
	EXPECT(x->wrong->where != WRONG_RNR || o->state_b == IBV_QPS_RTS,
	       "end b's QP is in state %d, must be at RTS", o->state_b);
}

static void compare(const struct experiment *x, const struct outcome *o,
		    const struct outcome *like)
{
	int i;

	EXPECT(o->post_err == like->post_err && o->posted == like->posted,
	       "post_send gives %d after %d WRs, the plain device %d after %d", o->post_err,
	       o->posted, like->post_err, like->posted);
	EXPECT(o->num_a == like->num_a, "%d completions at a, the plain device has %d", o->num_a,
	       like->num_a);
	for (i = 0; i < o->num_a && i < like->num_a; i++)
		EXPECT(o->a[i].wr_id == like->a[i].wr_id && o->a[i].status == like->a[i].status,
		       "completion %d at a: WR %llu %s, the plain device WR %llu %s", i,
		       (unsigned long long)o->a[i].wr_id, ibv_wc_status_str(o->a[i].status),
		       (unsigned long long)like->a[i].wr_id,
		       ibv_wc_status_str(like->a[i].status));
	EXPECT(o->state_a == like->state_a, "end a in state %d, the plain device %d", o->state_a,
	       like->state_a);
	EXPECT(o->events_a == like->events_a, "async events at a %#llx, the plain device %#llx",
	       (unsigned long long)o->events_a, (unsigned long long)like->events_a);
	/* What went wrong at a alone b need not hear, but a bond may tell it. */
	if (x->wrong->where == WRONG_LOCAL)
		return;
	EXPECT(o->state_b == like->state_b, "end b in state %d, the plain device %d", o->state_b,
	       like->state_b);
	EXPECT(o->events_b == like->events_b, "async events at b %#llx, the plain device %#llx",
	       (unsigned long long)o->events_b, (unsigned long long)like->events_b);
	EXPECT(o->num_b == like->num_b, "%d completions at b, the plain device has %d", o->num_b,
	       like->num_b);
	for (i = 0; i < o->num_b && i < like->num_b; i++)
		EXPECT(o->b[i].status == like->b[i].status,
		       "receive %d at b: %s, the plain device %s", i,
		       ibv_wc_status_str(o->b[i].status), ibv_wc_status_str(like->b[i].status));
}

/* A WR posted in ERR is taken and flushed. */
static void check_post_in_error(struct wrong_bench *b)
{
	struct ibv_send_wr wr = wr_make(ACCEPTED_AFTER, IBV_WR_RDMA_WRITE, NULL, &b->pair.b, 0,
					b->keys_b.rkey);
	struct told told;

	EXPECT_OK(post_one(b->pair.a.objs->qp[0], &wr));
	if (!collect(&b->pair.a, &told, 1, opt_within_ms))
		case_fail("a WR posted in ERR has no completion");
	else
		EXPECT(told.wr_id == ACCEPTED_AFTER && told.status == IBV_WC_WR_FLUSH_ERR,
		       "a WR posted in ERR: WR %llu %s", (unsigned long long)told.wr_id,
		       ibv_wc_status_str(told.status));
}

static void check_again(struct wrong_bench *b)
{
	struct conn_spec conn = conn_defaults();
	struct ibv_send_wr wr[QUEUE_WR], *bad;
	struct ibv_sge sge[QUEUE_WR];
	struct told stale;
	int i;

	MUST(end_qp_to(&b->pair.a, 0, IBV_QPS_RESET));
	MUST(end_qp_to(&b->pair.b, 0, IBV_QPS_RESET));
	EXPECT(!collect(&b->pair.a, &stale, 1, 0), "a completion after RESET at a");
	MUST(pair_connect(&b->pair, 0, 0, &conn));
	memset(b->pair.b.peek, 0, QUEUE_WR * (uint64_t)LARGE_LEN);
	for (i = 0; i < QUEUE_WR; i++) {
		sge[i] = sge_at(&b->pair.a, WRONG_SOURCE_OFF, i ? SMALL_LEN : LARGE_LEN,
				b->keys_a.lkey);
		wr[i] = wr_make(i, IBV_WR_RDMA_WRITE, &sge[i], &b->pair.b,
				i * (uint64_t)LARGE_LEN, b->keys_b.rkey);
	}
	memset(b->pair.a.peek + WRONG_SOURCE_OFF, 0x77, LARGE_LEN);
	EXPECT_OK(post_chain(b->pair.a.objs->qp[0], wr, QUEUE_WR, &bad));
	wait_good(&b->pair.a, 0, QUEUE_WR);
	for (i = 0; i < QUEUE_WR; i++)
		EXPECT(b->pair.b.peek[i * (uint64_t)LARGE_LEN + sge[i].length - 1] == 0x77,
		       "WRITE %d after RESET: no data", i);
	MUST(end_qp_to(&b->pair.a, 0, IBV_QPS_RESET));
	MUST(end_qp_to(&b->pair.b, 0, IBV_QPS_RESET));
}

static void connect_for(struct wrong_bench *b, const struct wrong *w)
{
	struct conn_spec conn = conn_defaults();

	if (w->qp_access)
		conn.access_b = w->qp_access;
	conn.rnr_retry = w->where == WRONG_RNR ? 0 : conn.rnr_retry;
	MUST(pair_connect(&b->pair, 0, 0, &conn));
}

static void run_on(struct wrong_bench *b, const struct experiment *x, struct outcome *o,
		   bool judged)
{
	connect_for(b, x->wrong);
	experiment_run(b, x, o);
	if (judged) {
		judge(b, x, o);
		if (!o->post_err)
			check_post_in_error(b);
		check_again(b);
	} else {
		MUST(end_qp_to(&b->pair.a, 0, IBV_QPS_RESET));
		MUST(end_qp_to(&b->pair.b, 0, IBV_QPS_RESET));
	}
}

static void test_wrong(struct wrong_bench *b, struct wrong_bench *like, const struct wrong *w,
		       uint32_t len)
{
	struct experiment x = { .wrong = w, .len = len };
	struct outcome o = { 0 }, plain;
	uint64_t slowest_ms = 0;
	int step = opts.quick ? 5 : 1;

	case_begin("%s, %u bytes", w->name, len);
	for (x.at = 0; x.at < QUEUE_WR && !case_failed(); x.at += step) {
		run_on(b, &x, &o, true);
		if (like) {
			run_on(like, &x, &plain, false);
			compare(&x, &o, &plain);
		}
		if (o.took_ms > slowest_ms)
			slowest_ms = o.took_ms;
		if (case_failed())
			case_fail("  that was with the wrong WR at %d of %d", x.at, QUEUE_WR);
	}
	case_note("%s; b in state %d, events %#llx/%#llx, at most %llu ms",
		  o.post_err ? "refused" : ibv_wc_status_str(w->status), o.state_b,
		  (unsigned long long)o.events_a, (unsigned long long)o.events_b,
		  (unsigned long long)slowest_ms);
	case_end();
}

int main(int argc, char **argv)
{
	static struct wrong_bench bench, like;
	const struct wrong *w;
	bool compared;

	opts_parse(argc, argv, "one wrong WR in a queue of 8", rows);
	compared = opt_like_a && opt_like_b;
	wrong_open(&bench, opts.dev[0], opts.dev[1]);
	if (compared)
		wrong_open(&like, opt_like_a, opt_like_b);
	for (w = wrongs; w->name; w++) {
		test_wrong(&bench, compared ? &like : NULL, w, SMALL_LEN);
		if (!w->small_only)
			test_wrong(&bench, compared ? &like : NULL, w, LARGE_LEN);
	}
	pair_close(&bench.pair);
	if (compared)
		pair_close(&like.pair);
	return report();
}
