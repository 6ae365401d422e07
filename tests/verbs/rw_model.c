/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Random WRITEs, READs, messages and atomics on one QP, many in flight and overlapping; memory
 * of both ends must equal a model that executes them in order, and completions must come in
 * posted order and say what was posted.
 *
 * Here is the verbs side: posting in chains, completions, the receives of end b. What is posted
 * and what it must do is in model.c.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "end.h"
#include "model.h"

enum { CHAIN_MAX = 8, CQE_SPARE = 8, PENDING_RECVS = MODEL_LOG, STALLED_SHOWN = 12 };

static uint64_t opt_ops = 3000;
static uint64_t opt_max_len = 64 << 20;
static uint64_t opt_depth = 64;
static uint64_t opt_round = 200;
static uint64_t opt_sge = 16;
static bool opt_messages, opt_atomics, opt_rc_in_order, opt_disjoint_reads;
static bool opt_atomic_overlap, opt_receives_apart, opt_spread;
static uint64_t opt_arena;

static const struct opt_row rows[] = {
	{ "ops", OPT_SIZE, &opt_ops, "operations in all (3000)" },
	{ "max-len", OPT_SIZE, &opt_max_len, "longest operation (64m)" },
	{ "depth", OPT_SIZE, &opt_depth, "operations in flight (64)" },
	{ "round", OPT_SIZE, &opt_round, "operations between comparisons (200)" },
	{ "sge", OPT_SIZE, &opt_sge, "longest SGE list (16, or what the device has)" },
	{ "messages", OPT_FLAG, &opt_messages, "SEND and WRITE_WITH_IMM too" },
	{ "atomics", OPT_FLAG, &opt_atomics, "FETCH_ADD and CMP_SWP too" },
	{ "rc-in-order", OPT_FLAG, &opt_rc_in_order,
	  "no fence between a READ and a WRITE onto what it reads" },
	{ "disjoint-reads", OPT_FLAG, &opt_disjoint_reads,
	  "READs in flight do not share destinations" },
	{ "spread", OPT_FLAG, &opt_spread,
	  "longer operations, fewer in one place: for devices that spread them" },
	{ "arena", OPT_SIZE, &opt_arena, "memory of each end (twice max-len, at least 8m)" },
	{ "receives-apart", OPT_FLAG, &opt_receives_apart,
	  "nothing in flight touches the receive of a SEND in flight" },
	{ "atomic-overlap", OPT_FLAG, &opt_atomic_overlap,
	  "atomics in flight share destinations with READs (more than verbs promises)" },
	{ 0 },
};

struct chain {
	struct ibv_send_wr wr[CHAIN_MAX];
	struct ibv_sge sge[CHAIN_MAX][MODEL_SGES];
	struct end_recv recv[CHAIN_MAX];
	int n;
	int num_recv;
};

struct bench {
	struct pair pair;
	struct model model;
	struct end_keys keys_a, keys_b;
	struct ibv_qp *qp;
	uint32_t qpn_b;
	struct chain chain;
	/* Receive completions due at b, in order, as positions in the model's log. */
	unsigned int due[PENDING_RECVS];
	unsigned int num_due, next_due;
	uint64_t bytes;
	unsigned int fenced;
};

static const enum ibv_wr_opcode wr_opcode[] = {
	[OP_WRITE] = IBV_WR_RDMA_WRITE,
	[OP_READ] = IBV_WR_RDMA_READ,
	[OP_SEND] = IBV_WR_SEND,
	[OP_SEND_IMM] = IBV_WR_SEND_WITH_IMM,
	[OP_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
	[OP_FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
	[OP_CMP_SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP,
};

static const enum ibv_wc_opcode wc_opcode[] = {
	[OP_WRITE] = IBV_WC_RDMA_WRITE,
	[OP_READ] = IBV_WC_RDMA_READ,
	[OP_SEND] = IBV_WC_SEND,
	[OP_SEND_IMM] = IBV_WC_SEND,
	[OP_WRITE_IMM] = IBV_WC_RDMA_WRITE,
	[OP_FETCH_ADD] = IBV_WC_FETCH_ADD,
	[OP_CMP_SWAP] = IBV_WC_COMP_SWAP,
};

static void check_send_wc(struct bench *b, const struct ibv_wc *wc, const struct op *op)
{
	EXPECT(wc->wr_id == op->index, "completion of op %llu, due is op %llu",
	       (unsigned long long)wc->wr_id, (unsigned long long)op->index);
	EXPECT(wc->status == IBV_WC_SUCCESS, "op %llu %s: %s", (unsigned long long)op->index,
	       op_name(op->kind), ibv_wc_status_str(wc->status));
	EXPECT(wc->qp_num == b->qp->qp_num, "op %llu: qp_num %#x, must be %#x",
	       (unsigned long long)op->index, wc->qp_num, b->qp->qp_num);
	if (wc->status)
		return;
	EXPECT(wc->opcode == wc_opcode[op->kind], "op %llu %s: completion opcode %d",
	       (unsigned long long)op->index, op_name(op->kind), wc->opcode);
	/* byte_len of a WRITE or SEND is nowhere promised. */
	EXPECT(!op_reads_remote(op->kind) || wc->byte_len == op->len,
	       "op %llu %s: byte_len %u, must be %llu", (unsigned long long)op->index,
	       op_name(op->kind), wc->byte_len, (unsigned long long)op->len);
}

/*
 * Nothing completes. Says what is in flight, and whether one more WR wakes the device up: then
 * it had lost a wake-up, else the work itself is lost.
 */
static void tell_stalled(struct bench *b)
{
	struct model *m = &b->model;
	struct ibv_send_wr wr = wr_make(m->next_index, IBV_WR_RDMA_WRITE, NULL, &b->pair.b, 0,
					b->keys_b.rkey);
	struct ibv_wc wc;
	unsigned int i;

	for (i = m->first_undone; i < m->num_log && i < m->first_undone + STALLED_SHOWN; i++)
		printf("     in flight: op %llu %s%s%s %llu bytes, remote +%#llx\n",
		       (unsigned long long)m->log[i].index, op_name(m->log[i].kind),
		       m->log[i].signaled ? " signalled" : "", m->log[i].fence ? " fence" : "",
		       (unsigned long long)m->log[i].len,
		       (unsigned long long)m->log[i].remote[0].off);
	if (post_one(b->qp, &wr))
		printf("     and no further WR can be posted\n");
	else if (end_poll(&b->pair.a, 0, &wc, 1, opts.wait_ms))
		printf("     but one more WR wakes it up: op %llu %s\n",
		       (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status));
	else
		printf("     and one more WR does not wake it up\n");
	die("no completion in %u ms, %u in flight from op %llu", opts.wait_ms,
	    model_in_flight(m), (unsigned long long)m->log[m->first_undone].index);
}

/* Takes up to max completions; waits for the first one only where asked. */
static void take_completions(struct bench *b, int max, bool wait)
{
	struct ibv_wc wc[END_WCS];
	struct op *op;
	int n, i;

	if (max > END_WCS)
		max = END_WCS;
	n = end_poll(&b->pair.a, 0, wc, wait ? 1 : max, wait ? opts.wait_ms : 0);
	if (wait && !n)
		tell_stalled(b);
	for (i = 0; i < n; i++) {
		op = model_oldest_signaled(&b->model);
		if (!op)
			die("completion of %llu with nothing in flight",
			    (unsigned long long)wc[i].wr_id);
		check_send_wc(b, &wc[i], op);
		if (wc[i].status)
			die("the QP is in error");
		model_done(&b->model, op);
	}
}

static void check_recv_wc(struct bench *b, const struct ibv_wc *wc)
{
	const struct op *op;
	bool has_imm;

	if (b->next_due == b->num_due)
		die("end b: completion of receive %llu that nothing consumed",
		    (unsigned long long)wc->wr_id);
	op = &b->model.log[b->due[b->next_due++]];
	has_imm = op->kind != OP_SEND;
	EXPECT(wc->status == IBV_WC_SUCCESS && wc->wr_id == op->index &&
	       wc->qp_num == b->qpn_b,
	       "end b: receive %llu on QP %#x: %s; due is op %llu on QP %#x",
	       (unsigned long long)wc->wr_id, wc->qp_num, ibv_wc_status_str(wc->status),
	       (unsigned long long)op->index, b->qpn_b);
	EXPECT(wc->opcode == (op->kind == OP_WRITE_IMM ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV),
	       "end b: op %llu %s: completion opcode %d", (unsigned long long)op->index,
	       op_name(op->kind), wc->opcode);
	EXPECT(wc->byte_len == op->len, "end b: op %llu %s: byte_len %u, must be %llu",
	       (unsigned long long)op->index, op_name(op->kind), wc->byte_len,
	       (unsigned long long)op->len);
	EXPECT(!!(wc->wc_flags & IBV_WC_WITH_IMM) == has_imm &&
	       (!has_imm || wc->imm_data == htonl(op->imm)),
	       "end b: op %llu %s: immediate %#x flags %#x, must be %#x",
	       (unsigned long long)op->index, op_name(op->kind), ntohl(wc->imm_data),
	       wc->wc_flags, op->imm);
}

static void take_receives(struct bench *b, bool all)
{
	struct ibv_wc wc[END_WCS];
	int want, n, i;

	while (b->next_due < b->num_due) {
		want = b->num_due - b->next_due;
		n = end_poll(&b->pair.b, 0, wc, want, all ? opts.wait_ms : 0);
		for (i = 0; i < n; i++)
			check_recv_wc(b, &wc[i]);
		if (!all)
			return;
		if (!n)
			die("end b: no completion of op %llu in %u ms",
			    (unsigned long long)b->model.log[b->due[b->next_due]].index,
			    opts.wait_ms);
	}
}

/* A receive holds its place in the queue until its completion is polled. */
static void make_recv_room(struct bench *b)
{
	unsigned int older = b->num_due - b->next_due - b->chain.num_recv;
	struct ibv_wc wc;

	for (; older + b->chain.num_recv > opt_depth + CHAIN_MAX; older--) {
		if (!end_poll(&b->pair.b, 0, &wc, 1, opts.wait_ms))
			die("end b: no completion of op %llu in %u ms",
			    (unsigned long long)b->model.log[b->due[b->next_due]].index,
			    opts.wait_ms);
		check_recv_wc(b, &wc);
	}
}

static void chain_post(struct bench *b)
{
	struct chain *c = &b->chain;
	struct ibv_send_wr *bad = NULL;
	int err, i;

	if (!c->n)
		return;
	for (i = 0; i < c->n; i++)
		c->wr[i].next = i + 1 < c->n ? &c->wr[i + 1] : NULL;
	make_recv_room(b);
	if (c->num_recv)
		MUST(end_post_recv(&b->pair.b, 0, c->recv, c->num_recv));
	err = ibv_post_send(b->qp, c->wr, &bad);
	if (err)
		die("post_send of %d WRs from op %llu: %s; bad_wr is op %llu", c->n,
		    (unsigned long long)c->wr[0].wr_id, strerror(err),
		    bad ? (unsigned long long)bad->wr_id : 0ull);
	c->n = c->num_recv = 0;
}

static void chain_add_recv(struct bench *b, const struct op *op)
{
	struct end_recv *recv = &b->chain.recv[b->chain.num_recv++];
	int i;

	recv->wr_id = op->index;
	recv->num_sge = op->kind == OP_WRITE_IMM ? 0 : op->num_remote;
	for (i = 0; i < recv->num_sge; i++)
		recv->sge[i] = sge_at(&b->pair.b, op->remote[i].off, op->remote[i].len,
				      b->keys_b.lkey);
	b->due[b->num_due++] = op - b->model.log;
}

static void chain_add(struct bench *b, const struct op *op)
{
	struct chain *c = &b->chain;
	struct ibv_send_wr *wr = &c->wr[c->n];
	uint64_t remote = op->num_remote ? (uintptr_t)b->pair.b.base + op->remote[0].off : 0;
	int i;

	memset(wr, 0, sizeof(*wr));
	for (i = 0; i < op->num_local; i++)
		c->sge[c->n][i] = sge_at(&b->pair.a, op->local[i].off, op->local[i].len,
					 b->keys_a.lkey);
	wr->wr_id = op->index;
	wr->opcode = wr_opcode[op->kind];
	wr->send_flags = (op->signaled ? IBV_SEND_SIGNALED : 0) |
			 (op->fence ? IBV_SEND_FENCE : 0) |
			 (op->is_inline ? IBV_SEND_INLINE : 0);
	wr->sg_list = c->sge[c->n];
	wr->num_sge = op->num_local;
	wr->imm_data = htonl(op->imm);
	if (op->kind == OP_FETCH_ADD || op->kind == OP_CMP_SWAP) {
		wr->wr.atomic.remote_addr = remote;
		wr->wr.atomic.rkey = b->keys_b.rkey;
		wr->wr.atomic.compare_add = op->kind == OP_FETCH_ADD ? op->operand : op->compare;
		wr->wr.atomic.swap = op->operand;
	} else {
		wr->wr.rdma.remote_addr = remote;
		wr->wr.rdma.rkey = b->keys_b.rkey;
	}
	if (op_takes_receive(op->kind))
		chain_add_recv(b, op);
	c->n++;
	b->bytes += op->len;
	b->fenced += op->fence;
}

/* Something in flight must finish: what is last must be signalled, or nobody would know. */
static void make_room(struct bench *b)
{
	struct model *m = &b->model;
	const struct op *flush;

	chain_post(b);
	if (m->unsignaled_run && model_in_flight(m) < m->lim.depth_wr &&
	    !model_oldest_signaled(m)) {
		flush = model_flush_op(m);
		chain_add(b, flush);
		chain_post(b);
	}
	take_completions(b, 1, true);
}

static void drain(struct bench *b)
{
	struct model *m = &b->model;
	const struct op *flush;

	chain_post(b);
	while (model_in_flight(m)) {
		if (m->unsignaled_run && model_in_flight(m) < m->lim.depth_wr) {
			flush = model_flush_op(m);
			chain_add(b, flush);
			chain_post(b);
		}
		take_completions(b, 1, true);
	}
	take_receives(b, true);
	b->num_due = b->next_due = 0;
}

static void check_quiet(struct bench *b)
{
	struct ibv_wc wc;

	if (end_poll(&b->pair.a, 0, &wc, 1, 0))
		case_fail("end a: a completion too many: op %llu", (unsigned long long)wc.wr_id);
	if (end_poll(&b->pair.b, 0, &wc, 1, 0))
		case_fail("end b: a completion too many: op %llu", (unsigned long long)wc.wr_id);
}

static void run_round(struct bench *b, uint64_t ops)
{
	struct rng *r = &b->model.rng;
	uint64_t chain_len = 1 + rng_below(r, CHAIN_MAX), i = 0;
	const struct op *op;

	/* Few operations are flushes, but many enough would fill the log. */
	while (i < ops && b->model.num_log < MODEL_LOG - 4) {
		op = model_next(&b->model);
		if (!op) {
			make_room(b);
			continue;
		}
		i++;
		chain_add(b, op);
		if ((uint64_t)b->chain.n < chain_len)
			continue;
		chain_post(b);
		chain_len = 1 + rng_below(r, CHAIN_MAX);
		if (rng_one_in(r, 3))
			take_completions(b, 1 + rng_below(r, 4), false);
		if (rng_one_in(r, 8))
			take_receives(b, false);
	}
	drain(b);
	check_quiet(b);
	if (model_agrees(&b->model, b->pair.a.peek, b->pair.b.peek))
		model_refresh(&b->model, b->pair.a.peek, b->pair.b.peek);
}

static void set_up(struct bench *b)
{
	struct conn_spec conn = conn_defaults();
	struct model_limits lim = {
		.depth_wr = opt_depth,
		.messages = opt_messages,
		.atomics = opt_atomics,
		.rc_in_order = opt_rc_in_order,
		.disjoint_reads = opt_disjoint_reads,
		.atomic_overlap = opt_atomic_overlap,
		.receives_apart = opt_receives_apart,
		.spread = opt_spread,
	};
	struct qp_spec at_a = { .cap = { .max_send_wr = opt_depth, .max_recv_wr = 1,
					 .max_recv_sge = 1, .max_inline_data = 64 } };
	struct qp_spec at_b = { .cap = { .max_send_wr = 1, .max_recv_wr = opt_depth + CHAIN_MAX,
					 .max_send_sge = 1, .max_recv_sge = MODEL_RECV_SGES } };

	lim.max_len = opt_max_len;
	lim.arena_len = opt_max_len * 2 < (8 << 20) ? 8 << 20 : opt_max_len * 2;
	if (opt_arena > lim.arena_len)
		lim.arena_len = opt_arena;
	pair_open(&b->pair, lim.arena_len);
	if (lim.max_len > b->pair.a.port.max_msg_sz)
		lim.max_len = b->pair.a.port.max_msg_sz;
	lim.max_sge = opt_sge;
	if (lim.max_sge > (unsigned int)b->pair.a.attr.max_sge)
		lim.max_sge = b->pair.a.attr.max_sge;
	lim.max_recv_sge = MODEL_RECV_SGES;
	at_a.cap.max_send_sge = lim.max_sge;
	pair_basics(&b->pair, PENDING_RECVS + CQE_SPARE, &b->keys_a, &b->keys_b);
	MUST(end_qp_create(&b->pair.a, 0, &at_a));
	MUST(end_qp_create(&b->pair.b, 0, &at_b));
	lim.max_inline = at_a.cap.max_inline_data < 64 ? at_a.cap.max_inline_data : 64;
	MUST(pair_connect(&b->pair, 0, 0, &conn));
	MUST(end_qp_num(&b->pair.b, 0, &b->qpn_b));
	b->qp = b->pair.a.objs->qp[0];
	model_init(&b->model, &lim, opts.seed);
	memcpy(b->pair.a.peek, b->model.mem[0], lim.arena_len);
	memcpy(b->pair.b.peek, b->model.mem[1], lim.arena_len);
}

int main(int argc, char **argv)
{
	static struct bench b;
	uint64_t done, n;

	opts_parse(argc, argv, "random operations against a model executed in order", rows);
	if (opt_depth < 2 || opt_depth > MODEL_WINDOW || !opt_round ||
	    opt_round > MODEL_LOG / 2 || !opt_sge || opt_sge > MODEL_SGES || !opt_max_len)
		die("--depth 2..%d, --round 1..%d, --sge 1..%d, --max-len 1..", MODEL_WINDOW,
		    MODEL_LOG / 2, MODEL_SGES);
	if (opts.quick)
		opt_ops /= 10;
	case_begin("rw_model%s%s%s%s", opt_messages ? " messages" : "",
		   opt_atomics ? " atomics" : "", opt_rc_in_order ? " rc-in-order" : "",
		   opt_disjoint_reads ? " disjoint-reads" : "");
	set_up(&b);
	for (done = 0; done < opt_ops && !case_failed(); done += n) {
		n = opt_ops - done < opt_round ? opt_ops - done : opt_round;
		run_round(&b, n);
	}
	case_note("%llu operations, %llu MiB, %u fenced", (unsigned long long)done,
		  (unsigned long long)(b.bytes >> 20), b.fenced);
	case_end();
	pair_close(&b.pair);
	model_free(&b.model);
	return report();
}
