/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The ibv_wr_* builders, each opcode with each way to give its data, against what the plain
 * calls do; batches, abort, a batch too long. Extended CQ polling is in cq_ex.c.
 *
 * --without names what a device is known to do wrong, by the words of the cases: those are
 * skipped, and reported so.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "end.h"

enum {
	DEPTH_WR = 16,
	TOO_MANY_WR = 8192,
	PIECES = 3,
	PIECE_LEN = 5000,		/* not aligned to anything */
	INLINE_LEN = 24,
	REMOTE_OFF = 1 << 20,
	ARENA_LEN = 4 << 20,
	IMM = 0x12345678,
};

static const char *opt_without = "";

static const struct opt_row rows[] = {
	{ "without", OPT_TEXT, &opt_without,
	  "skip cases with these words, by commas (sge_list,inline_data_list,...)" },
	{ 0 },
};

struct builder {
	const char *name;
	enum ibv_wr_opcode opcode;
	enum ibv_wc_opcode wc_opcode;
	uint64_t flag;
	bool reads;
	bool takes_receive;
};

static const struct builder builders[] = {
	{ "rdma_write", IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_WRITE, false,
	  false },
	{ "rdma_write_imm", IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE,
	  IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, false, true },
	{ "rdma_read", IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, IBV_QP_EX_WITH_RDMA_READ, true,
	  false },
	{ "send", IBV_WR_SEND, IBV_WC_SEND, IBV_QP_EX_WITH_SEND, false, true },
	{ "send_imm", IBV_WR_SEND_WITH_IMM, IBV_WC_SEND, IBV_QP_EX_WITH_SEND_WITH_IMM, false,
	  true },
	{ "atomic_fetch_add", IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD,
	  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, true, false },
	{ "atomic_cmp_swp", IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP,
	  IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, true, false },
};

enum { NUM_BUILDERS = sizeof(builders) / sizeof(builders[0]) };

enum setter { SET_SGE, SET_SGE_LIST, SET_INLINE, SET_INLINE_LIST, NUM_SETTERS };

static const char *const setter_names[] = {
	"sge", "sge_list", "inline_data", "inline_data_list",
};

static struct pair pair;
static struct end_keys keys_a, keys_b;
static struct ibv_qp_ex *qpx;

static bool is_atomic(const struct builder *b)
{
	return b->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
	       b->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
}

/* Whether a word of --without stands in the case's name as a word. */
static bool left_out(const char *name)
{
	const char *w = opt_without, *at;
	size_t len;

	for (; *w; w += len + (w[len] == ',')) {
		len = strcspn(w, ",");
		for (at = name; *at; at += strcspn(at, " "), at += *at == ' ')
			if (strcspn(at, " ") == len && !strncmp(at, w, len))
				return true;
	}
	return false;
}

static bool begin(const char *name)
{
	case_begin("%s", name);
	if (!left_out(name))
		return true;
	case_skip("--without");
	case_end();
	return false;
}

static uint64_t all_flags(void)
{
	uint64_t flags = 0;
	int i;

	for (i = 0; i < NUM_BUILDERS; i++)
		flags |= builders[i].flag;
	return flags;
}

static bool set_up(void)
{
	struct conn_spec conn = conn_defaults();
	struct qp_spec at_b = { .cap = { .max_send_wr = DEPTH_WR, .max_recv_wr = DEPTH_WR,
					 .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp_init_attr_ex init = {
		.cap = { .max_send_wr = DEPTH_WR, .max_recv_wr = DEPTH_WR,
			 .max_send_sge = PIECES, .max_recv_sge = 1,
			 .max_inline_data = PIECES * INLINE_LEN },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = all_flags(),
	};
	struct ibv_qp *qp;

	pair_open(&pair, ARENA_LEN);
	pair_basics(&pair, 2 * TOO_MANY_WR, &keys_a, &keys_b);
	init.pd = pair.a.objs->pd[0];
	init.send_cq = init.recv_cq = pair.a.objs->cq[0];
	qp = ibv_create_qp_ex(pair.a.objs->ctx, &init);
	if (!qp) {
		case_begin("create_qp_ex with send_ops_flags");
		if (errno == EOPNOTSUPP || errno == ENOSYS)
			case_skip("the device does not offer it");
		else
			case_fail("%s", strerror(errno));
		case_end();
		return false;
	}
	pair.a.objs->qp[0] = qp;
	qpx = ibv_qp_to_qp_ex(qp);
	if (!qpx)
		die("a QP with send_ops_flags is no ibv_qp_ex");
	MUST(end_qp_create(&pair.b, 0, &at_b));
	MUST(pair_connect(&pair, 0, 0, &conn));
	return true;
}

static void build(const struct builder *b, uint64_t wr_id, unsigned int flags)
{
	uint64_t remote = (uintptr_t)pair.b.base + REMOTE_OFF;

	qpx->wr_id = wr_id;
	qpx->wr_flags = flags;
	switch (b->opcode) {
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(qpx, keys_b.rkey, remote);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(qpx, keys_b.rkey, remote, htonl(IMM));
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(qpx, keys_b.rkey, remote);
		break;
	case IBV_WR_SEND:
		ibv_wr_send(qpx);
		break;
	case IBV_WR_SEND_WITH_IMM:
		ibv_wr_send_imm(qpx, htonl(IMM));
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		ibv_wr_atomic_fetch_add(qpx, keys_b.rkey, remote, 5);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(qpx, keys_b.rkey, remote, 10, 77);
		break;
	default:
		die("no such builder");
	}
}

/* Pieces stand apart in a's arena, and their order is not their addresses' order. */
static uint64_t piece_off(int i)
{
	return (uint64_t)(PIECES - i) * 2 * PIECE_LEN;
}

static int pieces_of(enum setter how)
{
	return how == SET_SGE_LIST || how == SET_INLINE_LIST ? PIECES : 1;
}

static uint32_t len_of(const struct builder *b, enum setter how)
{
	if (is_atomic(b))
		return sizeof(uint64_t);
	return how == SET_INLINE || how == SET_INLINE_LIST ? INLINE_LEN : PIECE_LEN;
}

static void set_data(const struct builder *b, enum setter how)
{
	struct ibv_data_buf bufs[PIECES];
	struct ibv_sge sge[PIECES];
	uint32_t len = len_of(b, how);
	int i;

	for (i = 0; i < PIECES; i++) {
		sge[i] = sge_at(&pair.a, piece_off(i), len, keys_a.lkey);
		bufs[i].addr = pair.a.base + piece_off(i);
		bufs[i].length = len;
	}
	switch (how) {
	case SET_SGE:
		ibv_wr_set_sge(qpx, sge[0].lkey, sge[0].addr, sge[0].length);
		break;
	case SET_SGE_LIST:
		ibv_wr_set_sge_list(qpx, PIECES, sge);
		break;
	case SET_INLINE:
		ibv_wr_set_inline_data(qpx, bufs[0].addr, bufs[0].length);
		break;
	case SET_INLINE_LIST:
		ibv_wr_set_inline_data_list(qpx, PIECES, bufs);
		break;
	case NUM_SETTERS:
		break;
	}
}

static void check_wc(const struct ibv_wc *wc, const struct builder *b, uint64_t wr_id,
		     uint32_t read_len)
{
	EXPECT(!wc->status && wc->wr_id == wr_id, "completion: wr_id %llu %s",
	       (unsigned long long)wc->wr_id, ibv_wc_status_str(wc->status));
	EXPECT(wc->opcode == b->wc_opcode, "completion opcode %d, must be %d", wc->opcode,
	       b->wc_opcode);
	EXPECT(wc->qp_num == qpx->qp_base.qp_num, "completion qp_num");
	EXPECT(!b->reads || wc->byte_len == read_len, "byte_len %u, must be %u", wc->byte_len,
	       read_len);
}

static void check_recv_wc(const struct builder *b, uint32_t len)
{
	bool imm = b->opcode != IBV_WR_SEND;
	struct ibv_wc wc;

	if (!end_poll(&pair.b, 0, &wc, 1, opts.wait_ms)) {
		case_fail("no completion at b");
		return;
	}
	EXPECT(!wc.status && wc.byte_len == len, "at b: %s, byte_len %u, must be %u",
	       ibv_wc_status_str(wc.status), wc.byte_len, len);
	EXPECT(!imm || ((wc.wc_flags & IBV_WC_WITH_IMM) && wc.imm_data == htonl(IMM)),
	       "at b: immediate data");
}

static void check_data(const struct builder *b, enum setter how)
{
	uint32_t len = len_of(b, how);
	uint64_t at_b, at_a;
	int i;

	if (is_atomic(b)) {
		memcpy(&at_a, pair.a.peek + piece_off(0), sizeof(at_a));
		memcpy(&at_b, pair.b.peek + REMOTE_OFF, sizeof(at_b));
		EXPECT(at_a == 10, "atomic returned %llu, must be 10", (unsigned long long)at_a);
		EXPECT(at_b == (b->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 15 : 77),
		       "atomic left %llu", (unsigned long long)at_b);
		return;
	}
	for (i = 0; i < pieces_of(how); i++)
		EXPECT(!memcmp(pair.a.peek + piece_off(i),
			       pair.b.peek + REMOTE_OFF + (uint64_t)i * len, len),
		       "piece %d differs", i);
	EXPECT(b->reads || pair.b.peek[REMOTE_OFF + (uint64_t)pieces_of(how) * len] == 0xa5,
	       "a byte too many was written");
}

static void prepare(const struct builder *b, struct rng *r)
{
	struct end_recv recv = { .num_sge = 1 };
	uint64_t ten = 10;

	rng_fill(r, pair.a.peek, REMOTE_OFF);
	memset(pair.b.peek, 0xa5, ARENA_LEN);
	if (b->reads)
		rng_fill(r, pair.b.peek + REMOTE_OFF, PIECES * PIECE_LEN);
	if (is_atomic(b))
		memcpy(pair.b.peek + REMOTE_OFF, &ten, sizeof(ten));
	recv.sge[0] = sge_at(&pair.b, REMOTE_OFF, PIECES * PIECE_LEN, keys_b.lkey);
	if (b->takes_receive)
		EXPECT_OK(end_post_recv(&pair.b, 0, &recv, 1));
}

/* After a failure, so that the next case judges itself only. */
static void reconnect(void)
{
	struct conn_spec conn = conn_defaults();
	struct ibv_wc wc;

	MUST(end_qp_to(&pair.a, 0, IBV_QPS_RESET));
	MUST(end_qp_to(&pair.b, 0, IBV_QPS_RESET));
	while (end_poll(&pair.a, 0, &wc, 1, 0) || end_poll(&pair.b, 0, &wc, 1, 0))
		;
	MUST(pair_connect(&pair, 0, 0, &conn));
}

static void test_one(const struct builder *b, enum setter how)
{
	struct rng r = { opts.seed };
	uint32_t len = len_of(b, how) * pieces_of(how);
	struct ibv_wc wc;
	char name[96];

	snprintf(name, sizeof(name), "%s with %s", b->name, setter_names[how]);
	if (!begin(name))
		return;
	prepare(b, &r);
	ibv_wr_start(qpx);
	build(b, 0x100000000ull + how, IBV_SEND_SIGNALED);
	set_data(b, how);
	EXPECT_OK(ibv_wr_complete(qpx));
	if (case_failed() || !end_poll(&pair.a, 0, &wc, 1, opts.wait_ms)) {
		case_fail("no completion");
	} else {
		check_wc(&wc, b, 0x100000000ull + how, len);
		if (b->takes_receive && !wc.status)
			check_recv_wc(b, len);
		check_data(b, how);
	}
	if (case_failed())
		reconnect();
	case_end();
}

static void test_abort(void)
{
	struct rng r = { opts.seed };

	if (!begin("abort"))
		return;
	prepare(&builders[0], &r);
	ibv_wr_start(qpx);
	build(&builders[0], 1, IBV_SEND_SIGNALED);
	set_data(&builders[0], SET_SGE);
	build(&builders[0], 2, IBV_SEND_SIGNALED);
	set_data(&builders[0], SET_SGE);
	ibv_wr_abort(qpx);
	wait_none(&pair.a, 0, 50);
	EXPECT(pair.b.peek[REMOTE_OFF] == 0xa5, "an aborted WRITE was executed");
	/* And the next batch starts clean. */
	ibv_wr_start(qpx);
	build(&builders[0], 3, IBV_SEND_SIGNALED);
	set_data(&builders[0], SET_SGE);
	EXPECT_OK(ibv_wr_complete(qpx));
	wait_good(&pair.a, 0, 1);
	wait_none(&pair.a, 0, 10);
	check_data(&builders[0], SET_SGE);
	case_end();
}

/* Writes and reads in one batch, unsignalled but for the last, then all signalled. */
static void test_batch(void)
{
	struct rng r = { opts.seed };
	struct ibv_wc wc;
	int i, all;

	if (!begin("batch of 8"))
		return;
	for (all = 0; all < 2 && !case_failed(); all++) {
		prepare(&builders[0], &r);
		ibv_wr_start(qpx);
		for (i = 0; i < 8; i++) {
			build(&builders[i == 7 ? 2 : 0], i,
			      (all || i == 7 ? IBV_SEND_SIGNALED : 0) |
			      (i == 7 ? IBV_SEND_FENCE : 0));
			set_data(&builders[0], SET_SGE);
		}
		EXPECT_OK(ibv_wr_complete(qpx));
		for (i = all ? 0 : 7; i < 8; i++) {
			if (!end_poll(&pair.a, 0, &wc, 1, opts.wait_ms)) {
				case_fail("no completion of WR %d", i);
				break;
			}
			check_wc(&wc, &builders[i == 7 ? 2 : 0], i, PIECE_LEN);
		}
		check_data(&builders[0], SET_SGE);
		wait_none(&pair.a, 0, 10);
	}
	case_end();
}

/* All or nothing: a batch that does not fit leaves no trace. */
static void test_batch_too_long(void)
{
	struct rng r = { opts.seed };
	int i, err;

	if (!begin("batch beyond the queue"))
		return;
	prepare(&builders[0], &r);
	ibv_wr_start(qpx);
	for (i = 0; i < TOO_MANY_WR; i++) {
		build(&builders[0], i, IBV_SEND_SIGNALED);
		set_data(&builders[0], SET_SGE);
	}
	err = ibv_wr_complete(qpx);
	EXPECT(err == ENOMEM || err == ENOSPC, "wr_complete gives %d (%s), must be ENOMEM", err,
	       strerror(err));
	wait_none(&pair.a, 0, 50);
	EXPECT(pair.b.peek[REMOTE_OFF] == 0xa5, "a WRITE of it was executed");
	ibv_wr_start(qpx);
	build(&builders[0], 3, IBV_SEND_SIGNALED);
	set_data(&builders[0], SET_SGE);
	EXPECT_OK(ibv_wr_complete(qpx));
	wait_good(&pair.a, 0, 1);
	check_data(&builders[0], SET_SGE);
	case_end();
}

static void test_plain_beside(void)
{
	struct ibv_sge sge = sge_at(&pair.a, piece_off(0), PIECE_LEN, keys_a.lkey);
	struct ibv_send_wr wr = wr_make(5, IBV_WR_RDMA_WRITE, &sge, &pair.b, REMOTE_OFF,
					keys_b.rkey);
	struct rng r = { opts.seed };

	if (!begin("post_send beside builders"))
		return;
	prepare(&builders[0], &r);
	EXPECT_OK(post_one(&qpx->qp_base, &wr));
	wait_good(&pair.a, 0, 1);
	check_data(&builders[0], SET_SGE);
	ibv_wr_start(qpx);
	build(&builders[2], 6, IBV_SEND_SIGNALED);
	set_data(&builders[2], SET_SGE);
	EXPECT_OK(ibv_wr_complete(qpx));
	wait_good(&pair.a, 0, 1);
	case_end();
}

int main(int argc, char **argv)
{
	int b, how;

	opts_parse(argc, argv, "ibv_wr_* builders", rows);
	if (!set_up()) {
		pair_close(&pair);
		return report();
	}
	for (b = 0; b < NUM_BUILDERS; b++)
		for (how = 0; how < NUM_SETTERS; how++) {
			if (builders[b].reads && (how == SET_INLINE || how == SET_INLINE_LIST))
				continue;
			if (is_atomic(&builders[b]) && how != SET_SGE)
				continue;
			test_one(&builders[b], how);
		}
	test_abort();
	test_batch();
	test_batch_too_long();
	test_plain_beside();
	pair_close(&pair);
	return report();
}
