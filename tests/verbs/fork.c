/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * fork() with the device open: the parent goes on as before, and a child that opens the device anew
 * has all of it. What the parent had open is not the child's to use, as with any device.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "end.h"

enum { MSG_LEN = 1 << 20, MSGS = 16, WR_DEPTH = 16 };

static const char *opt_carried;

static const struct opt_row rows[] = {
	{ "carried", OPT_TEXT, &opt_carried,
	  "a command that prints what another member has sent, bytes: it must have its share" },
	{ 0 },
};

static uint64_t carried(void)
{
	unsigned long long bytes;
	FILE *f;

	if (!opt_carried)
		return 0;
	f = popen(opt_carried, "r");
	if (!f || fscanf(f, "%llu", &bytes) != 1 || pclose(f))
		die("no number from: %s", opt_carried);
	return bytes;
}

/* WRITEs from a to b, of which the other member carries at least a quarter of an equal share. */
static void traffic(struct pair *pair, const struct end_keys *a, const struct end_keys *b,
		    uint64_t seed)
{
	uint64_t before = carried(), sent;
	struct rng r = { seed };
	int i;

	rng_fill(&r, pair->a.peek, (size_t)MSG_LEN * MSGS);
	for (i = 0; i < MSGS; i++) {
		uint64_t off = (uint64_t)i * MSG_LEN;
		struct ibv_sge sge = sge_at(&pair->a, off, MSG_LEN, a->lkey);
		struct ibv_send_wr wr = wr_make(i, IBV_WR_RDMA_WRITE, &sge, &pair->b, off, b->rkey);

		EXPECT_OK(post_one(pair->a.objs->qp[0], &wr));
	}
	wait_good(&pair->a, 0, MSGS);
	EXPECT(!memcmp(pair->a.peek, pair->b.peek, (size_t)MSG_LEN * MSGS), "data differs");
	sent = carried() - before;
	EXPECT(!opt_carried || sent >= (uint64_t)MSG_LEN * MSGS / 8,
	       "the other member carried %llu bytes", (unsigned long long)sent);
}

static void open_and_connect(struct pair *pair, struct end_keys *a, struct end_keys *b)
{
	struct conn_spec conn = conn_defaults();

	pair_open(pair, (size_t)MSG_LEN * MSGS);
	pair_basics(pair, 2 * WR_DEPTH, a, b);
	pair_qp(pair, 0, WR_DEPTH, &conn);
}

/* In the child: its own ends, of which b is another process where the parent's is. */
static int child_main(void)
{
	struct end_keys a, b;
	struct pair pair;

	alarm(opts.limit_s);
	open_and_connect(&pair, &a, &b);
	traffic(&pair, &a, &b, opts.seed + 1);
	MUST(end_qp_destroy(&pair.a, 0));
	MUST(end_qp_destroy(&pair.b, 0));
	pair_close(&pair);
	return case_failed();
}

static pid_t forked(int (*fn)(void))
{
	pid_t pid;
	int rc;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		die("fork: %s", strerror(errno));
	if (pid)
		return pid;
	rc = fn ? fn() : 0;
	fflush(stdout);
	_exit(rc);
}

static void expect_good_end(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid || status)
		case_fail("the child ended with status %#x", status);
}

int main(int argc, char **argv)
{
	struct end_keys a, b;
	struct pair pair;

	opts_parse(argc, argv, "fork() with the device open", rows);
	open_and_connect(&pair, &a, &b);
	case_begin("the parent after a child that only ends");
	traffic(&pair, &a, &b, opts.seed);
	expect_good_end(forked(NULL));
	traffic(&pair, &a, &b, opts.seed + 2);
	case_end();
	case_begin("a child that opens the device anew");
	expect_good_end(forked(child_main));
	case_end();
	case_begin("the parent after that child");
	traffic(&pair, &a, &b, opts.seed + 3);
	case_end();
	MUST(end_qp_destroy(&pair.a, 0));
	MUST(end_qp_destroy(&pair.b, 0));
	pair_close(&pair);
	return report();
}
