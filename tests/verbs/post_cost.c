/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Posts one small WR and polls its completion, again and again: the work whose instructions
 * bench/post-cost counts. Both ends in this process; prints nothing that depends on time.
 */
#include <string.h>

#include "end.h"

static uint64_t opt_rounds = 1000;
static bool opt_send, opt_warm;

static const struct opt_row rows[] = {
	{ "rounds", OPT_SIZE, &opt_rounds, "post and poll so often (1000)" },
	{ "send", OPT_FLAG, &opt_send, "SEND, with a receive posted and polled each time" },
	{ "warm", OPT_FLAG, &opt_warm, "one WRITE of 1 MiB first, so that other paths are in use" },
	{ 0 },
};

enum { MSG_LEN = 8, WARM_LEN = 1 << 20, DEPTH_WR = 64 };

static void poll_one(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	do
		n = ibv_poll_cq(cq, 1, &wc);
	while (!n);
	if (n < 0 || wc.status)
		die("completion: %s", n < 0 ? "poll failed" : ibv_wc_status_str(wc.status));
}

static void write_once(struct pair *pair, const struct end_keys *a, const struct end_keys *b,
		       uint32_t len)
{
	struct ibv_sge sge = { .addr = (uintptr_t)pair->a.base, .length = len, .lkey = a->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1,
					.opcode = IBV_WR_RDMA_WRITE,
					.send_flags = IBV_SEND_SIGNALED };

	wr.wr.rdma.remote_addr = (uintptr_t)pair->b.base;
	wr.wr.rdma.rkey = b->rkey;
	MUST(ibv_post_send(pair->a.objs->qp[0], &wr, &bad));
	poll_one(pair->a.objs->cq[0]);
}

static void send_once(struct pair *pair, const struct end_keys *a, const struct end_keys *b)
{
	struct ibv_sge from = { .addr = (uintptr_t)pair->a.base, .length = MSG_LEN,
				.lkey = a->lkey };
	struct ibv_sge to = { .addr = (uintptr_t)pair->b.base, .length = MSG_LEN,
			      .lkey = b->lkey };
	struct ibv_send_wr *bad, wr = { .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND,
					.send_flags = IBV_SEND_SIGNALED };
	struct ibv_recv_wr *bad_recv, recv = { .sg_list = &to, .num_sge = 1 };

	MUST(ibv_post_recv(pair->b.objs->qp[0], &recv, &bad_recv));
	MUST(ibv_post_send(pair->a.objs->qp[0], &wr, &bad));
	poll_one(pair->a.objs->cq[0]);
	poll_one(pair->b.objs->cq[0]);
}

int main(int argc, char **argv)
{
	struct conn_spec conn = conn_defaults();
	struct qp_spec spec = { .cap = { .max_send_wr = DEPTH_WR, .max_recv_wr = DEPTH_WR,
					 .max_send_sge = 1, .max_recv_sge = 1 } };
	struct end_keys a, b;
	struct pair pair;
	uint64_t i;

	opts_parse(argc, argv, "posts and polls a small WR", rows);
	pair_open(&pair, WARM_LEN);
	if (!pair.b.objs)
		die("both ends must be in one process");
	pair_basics(&pair, DEPTH_WR, &a, &b);
	MUST(end_qp_create(&pair.a, 0, &spec));
	MUST(end_qp_create(&pair.b, 0, &spec));
	MUST(pair_connect(&pair, 0, 0, &conn));
	/* The second finds the peer's keys known. */
	for (i = 0; opt_warm && i < 2; i++) {
		write_once(&pair, &a, &b, WARM_LEN);
		end_sleep(&pair.a, 50);
	}
	for (i = 0; i < opt_rounds; i++) {
		if (opt_send)
			send_once(&pair, &a, &b);
		else
			write_once(&pair, &a, &b, MSG_LEN);
	}
	pair_close(&pair);
	return 0;
}
