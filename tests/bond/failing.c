/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * bond0 over fake NICs on which, once, the n-th call of a kind fails: every call that makes an object,
 * on the primary and on another member, at each of its first calls while a connection is made. Either
 * the application is told, with the NIC's own errno, or nothing of it is seen; what had been made for
 * the failed call is gone; and the next connection works, over all members.
 *
 * End a's members are a0 and a1; only they fail.
 */
#include <errno.h>
#include <string.h>

#include "end.h"
#include "fake_ctl.h"

enum {
	ARENA_LEN = 4 << 20,
	LARGE_LEN = 256 << 10,
	FAILURES_AT_MOST = 12,		/* calls of a kind on one member while a connection is made */
	SETTLE_MS = 3000,
	SPREAD_MS = 5000,
	/* Objects of end a and b in each try; those of number 0 stay. */
	TRY = 1,
};

static struct pair pair;
static struct end_keys keys_a, keys_b;

static const enum fake_knob live[] = {
	FAKE_LIVE_PDS, FAKE_LIVE_MRS, FAKE_LIVE_CQS, FAKE_LIVE_QPS, FAKE_LIVE_SRQS, FAKE_LIVE_AHS,
};
enum { NUM_LIVE = sizeof(live) / sizeof(*live) };

static const char *const members[] = { "a0", "a1" };
enum { NUM_MEMBERS = sizeof(members) / sizeof(*members) };

static void count_live(int64_t counts[NUM_MEMBERS][NUM_LIVE])
{
	for (int m = 0; m < NUM_MEMBERS; m++)
		for (int i = 0; i < NUM_LIVE; i++)
			counts[m][i] = fake_ctl_get(members[m], live[i]);
}

/* What the control thread takes down may take it a moment. */
static void expect_live(int64_t counts[NUM_MEMBERS][NUM_LIVE])
{
	int64_t now[NUM_MEMBERS][NUM_LIVE];
	uint64_t until = now_ns() + SETTLE_MS * 1000000ull;

	do {
		count_live(now);
		if (!memcmp(now, counts, sizeof(now)))
			return;
		sleep_us(1000);
	} while (now_ns() < until);
	for (int m = 0; m < NUM_MEMBERS; m++)
		for (int i = 0; i < NUM_LIVE; i++)
			EXPECT(now[m][i] == counts[m][i], "%s: %s is %lld, was %lld before", members[m],
			       fake_knob_name(live[i]), (long long)now[m][i],
			       (long long)counts[m][i]);
}

static struct end_keys try_keys;

/* One large WRITE from the MR of this try, its bytes compared. */
static int write_checked(struct rng *r)
{
	struct ibv_sge sge = sge_at(&pair.a, 0, LARGE_LEN, try_keys.lkey);
	struct ibv_send_wr wr = wr_make(7, IBV_WR_RDMA_WRITE, &sge, &pair.b, LARGE_LEN, keys_b.rkey);
	int err;

	rng_fill(r, pair.a.peek, LARGE_LEN);
	err = post_one(pair.a.objs->qp[TRY], &wr);
	if (err)
		return err;
	if (wait_good(&pair.a, TRY, 1))
		EXPECT(!memcmp(pair.a.peek, pair.b.peek + LARGE_LEN, LARGE_LEN), "other bytes arrived");
	return 0;
}

/* The connection of one try, as far as it comes; what was made is unmade. Returns the first errno. */
static int try_connection(struct rng *r, int writes)
{
	const struct conn_spec conn = conn_defaults();
	struct qp_spec spec = { .pd = 0, .send_cq = TRY, .recv_cq = TRY,
				.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1,
					 .max_recv_sge = 1 } };
	struct qp_spec spec_b = spec;
	int err;

	spec_b.send_cq = spec_b.recv_cq = 0;
	MUST(end_qp_create(&pair.b, TRY, &spec_b));
	err = end_pd(&pair.a, TRY);
	if (err)
		goto out_b;
	err = end_mr_reg(&pair.a, TRY, 0, 0, LARGE_LEN, ALL_ACCESS, &try_keys);
	if (err)
		goto out_pd;
	err = end_cq_create(&pair.a, TRY, 64);
	if (err)
		goto out_mr;
	err = end_qp_create(&pair.a, TRY, &spec);
	if (err)
		goto out_cq;
	err = pair_connect(&pair, TRY, TRY, &conn);
	while (!err && !case_failed() && writes--)
		err = write_checked(r);
	EXPECT_OK(end_qp_destroy(&pair.a, TRY));
out_cq:
	EXPECT_OK(end_cq_destroy(&pair.a, TRY));
out_mr:
	EXPECT_OK(end_mr_dereg(&pair.a, TRY));
out_pd:
	EXPECT_OK(end_pd_dealloc(&pair.a, TRY));
out_b:
	MUST(end_qp_destroy(&pair.b, TRY));
	return err;
}

/* Without a failure; the other member has its part in it, once its path is there. */
static void expect_whole(struct rng *r)
{
	int64_t before = fake_ctl_get(members[1], FAKE_TX_BYTES);
	uint64_t until = now_ns() + SPREAD_MS * 1000000ull;

	do
		EXPECT_OK(try_connection(r, 20));
	while (!case_failed() && fake_ctl_get(members[1], FAKE_TX_BYTES) == before && now_ns() < until);
	EXPECT(case_failed() || fake_ctl_get(members[1], FAKE_TX_BYTES) > before,
	       "%s carries nothing any more", members[1]);
}

/* How often it has failed: 0 or 1. */
static int fail_one(struct rng *r, const char *member, enum fake_knob knob, int nth, int errnum)
{
	int64_t counts[NUM_MEMBERS][NUM_LIVE];
	int err, failed;

	count_live(counts);
	fake_ctl_set(member, FAKE_FAIL_ERRNO, errnum);
	fake_ctl_set(member, knob, nth);
	err = try_connection(r, 8);
	failed = !fake_ctl_get(member, knob);
	fake_ctl_set(member, knob, 0);
	EXPECT(!err || err == errnum, "%s %s %d: %s, not the NIC's %s", member, fake_knob_name(knob),
	       nth, strerror(err), strerror(errnum));
	EXPECT(!err || failed, "%s %s %d: failed without the NIC failing", member, fake_knob_name(knob),
	       nth);
	expect_live(counts);
	return failed;
}

static void fail_each(struct rng *r, const char *member, enum fake_knob knob)
{
	int nth = 1;

	case_begin("%s: %s, each call of a connection in turn", member, fake_knob_name(knob));
	while (nth <= FAILURES_AT_MOST && !case_failed() &&
	       fail_one(r, member, knob, nth, nth % 2 ? ENOMEM : ENOSPC))
		nth++;
	EXPECT(nth > 1, "%s was never called on %s", fake_knob_name(knob), member);
	case_note("%d calls failed", nth - 1);
	if (!case_failed())
		expect_whole(r);
	case_end();
}

static void fail_srq_and_ah(void)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_ah_attr ah = { .is_global = 1, .port_num = 1,
				  .grh = { .dgid = pair.b.gid, .sgid_index = pair.a.gid_index,
					   .hop_limit = 64 } };
	int64_t counts[NUM_MEMBERS][NUM_LIVE];
	struct ibv_srq *made_srq;
	struct ibv_ah *made_ah;

	case_begin("the primary makes no SRQ, no AH");
	count_live(counts);
	fake_ctl_set("a0", FAKE_FAIL_ERRNO, ENOMEM);
	fake_ctl_set("a0", FAKE_FAIL_CREATE_SRQ, 1);
	EXPECT(!ibv_create_srq(pair.a.objs->pd[0], &srq) && errno == ENOMEM, "SRQ");
	fake_ctl_set("a0", FAKE_FAIL_CREATE_AH, 1);
	EXPECT(!ibv_create_ah(pair.a.objs->pd[0], &ah) && errno == ENOMEM, "AH");
	expect_live(counts);
	made_srq = ibv_create_srq(pair.a.objs->pd[0], &srq);
	made_ah = ibv_create_ah(pair.a.objs->pd[0], &ah);
	EXPECT(made_srq && !ibv_destroy_srq(made_srq), "no SRQ afterwards");
	EXPECT(made_ah && !ibv_destroy_ah(made_ah), "no AH afterwards");
	expect_live(counts);
	case_end();
}

static void fail_open(void)
{
	struct ibv_device *device = pair.a.objs->ctx->device;
	struct ibv_context *ctx;

	case_begin("a member that does not open: the primary's is told, of another the bond does without");
	fake_ctl_set("a0", FAKE_FAIL_OPEN, 1);
	ctx = ibv_open_device(device);
	EXPECT(!ctx, "bond0 opened without its primary");
	fake_ctl_set("a0", FAKE_FAIL_OPEN, 0);
	fake_ctl_set("a1", FAKE_FAIL_OPEN, 1);
	ctx = ibv_open_device(device);
	EXPECT(ctx && !ibv_close_device(ctx), "bond0 does not open without its other member");
	EXPECT(!fake_ctl_get("a1", FAKE_FAIL_OPEN), "the other member was not even tried");
	ctx = ibv_open_device(device);
	EXPECT(ctx && !ibv_close_device(ctx), "bond0 does not open any more");
	case_end();
}

int main(int argc, char **argv)
{
	static const enum fake_knob knobs[] = {
		FAKE_FAIL_ALLOC_PD, FAKE_FAIL_REG_MR, FAKE_FAIL_CREATE_CQ, FAKE_FAIL_CREATE_QP,
		FAKE_FAIL_MODIFY_QP,
	};
	struct rng r;

	opts_parse(argc, argv, "an object of a member that cannot be made", NULL);
	r.state = opts.seed;
	pair_open(&pair, ARENA_LEN);
	pair_basics(&pair, 64, &keys_a, &keys_b);
	case_begin("a connection without any failure");
	expect_whole(&r);
	case_end();
	for (unsigned int m = 0; m < NUM_MEMBERS; m++)
		for (unsigned int k = 0; k < sizeof(knobs) / sizeof(*knobs); k++)
			fail_each(&r, members[m], knobs[k]);
	fail_srq_and_ah();
	fail_open();
	pair_close(&pair);
	return report();
}
