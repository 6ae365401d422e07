/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The table of wrong work requests; see wrong.h. How they are judged is in errors.c.
 */
#include "wrong.h"

#include <string.h>

enum { GARBAGE_BITS = 0x00a5a500, SHORT_LEN = 32, QUEUE_DEPTH = 16 };

#define QP_NO_WRITE (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define QP_NO_READ (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define QP_NO_ATOMIC (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

#define WRITE .opcode = IBV_WR_RDMA_WRITE, .filler = IBV_WR_RDMA_WRITE
#define READ .opcode = IBV_WR_RDMA_READ, .filler = IBV_WR_RDMA_WRITE
#define SEND .opcode = IBV_WR_SEND, .filler = IBV_WR_RDMA_WRITE
#define ATOMIC .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .filler = IBV_WR_RDMA_WRITE, \
	.small_only = true
#define REMOTE_ACCESS .where = WRONG_REMOTE, .status = IBV_WC_REM_ACCESS_ERR
#define REMOTE_REQUEST .where = WRONG_REMOTE, .status = IBV_WC_REM_INV_REQ_ERR, \
	.or_status = IBV_WC_REM_ACCESS_ERR
/* rxe tells LOC_QP_OP_ERR where the keys of a WRITE's or SEND's source are wrong. */
#define LOCAL_PROTECTION .where = WRONG_LOCAL, .status = IBV_WC_LOC_PROT_ERR, \
	.or_status = IBV_WC_LOC_QP_OP_ERR

const struct wrong wrongs[] = {
	{ "WRITE, rkey that never was", WRITE, .remote = MR_GARBAGE, REMOTE_ACCESS },
	{ "WRITE, rkey no longer valid", WRITE, .remote = MR_STALE, REMOTE_ACCESS },
	{ "WRITE, rkey of another PD", WRITE, .remote = MR_OTHER_PD, REMOTE_ACCESS },
	{ "WRITE, beyond the remote MR", WRITE, .remote = MR_SHORT, REMOTE_ACCESS },
	{ "WRITE, MR without remote write", WRITE, .remote = MR_NO_REMOTE_WRITE, REMOTE_ACCESS },
	{ "WRITE, QP without remote write", .opcode = IBV_WR_RDMA_WRITE,
	  .filler = IBV_WR_RDMA_READ, .qp_access = QP_NO_WRITE, REMOTE_REQUEST },
	{ "WRITE_WITH_IMM, rkey that never was", .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
	  .filler = IBV_WR_RDMA_WRITE, .remote = MR_GARBAGE, REMOTE_ACCESS },
	{ "READ, rkey that never was", READ, .remote = MR_GARBAGE, REMOTE_ACCESS },
	{ "READ, beyond the remote MR", READ, .remote = MR_SHORT, REMOTE_ACCESS },
	{ "READ, MR without remote read", READ, .remote = MR_NO_REMOTE_READ, REMOTE_ACCESS },
	{ "READ, QP without remote read", READ, .qp_access = QP_NO_READ, REMOTE_REQUEST },
	{ "WRITE, lkey that never was", WRITE, .local = MR_GARBAGE, LOCAL_PROTECTION },
	{ "WRITE, lkey no longer valid", WRITE, .local = MR_STALE, LOCAL_PROTECTION },
	{ "WRITE, lkey of another PD", WRITE, .local = MR_OTHER_PD, LOCAL_PROTECTION },
	{ "WRITE, beyond the local MR", WRITE, .local = MR_SHORT, LOCAL_PROTECTION },
	{ "READ, lkey that never was", READ, .local = MR_GARBAGE, LOCAL_PROTECTION },
	{ "READ, beyond the local MR", READ, .local = MR_SHORT, LOCAL_PROTECTION },
	{ "READ, MR without local write", READ, .local = MR_NO_LOCAL_WRITE, LOCAL_PROTECTION },
	{ "SEND, lkey that never was", SEND, .local = MR_GARBAGE, LOCAL_PROTECTION },
	{ "SEND, receive too small", SEND, .recv = RECV_SHORT, .where = WRONG_REMOTE,
	  .status = IBV_WC_REM_INV_REQ_ERR, .or_status = IBV_WC_REM_OP_ERR },
	{ "SEND, no receive, rnr_retry 0", SEND, .recv = RECV_NONE, .where = WRONG_RNR,
	  .status = IBV_WC_RNR_RETRY_EXC_ERR },
	{ "WRITE_WITH_IMM, no receive, rnr_retry 0", .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
	  .filler = IBV_WR_RDMA_WRITE, .recv = RECV_NONE, .where = WRONG_RNR,
	  .status = IBV_WC_RNR_RETRY_EXC_ERR },
	{ "FETCH_ADD, rkey that never was", ATOMIC, .remote = MR_GARBAGE, REMOTE_ACCESS },
	{ "FETCH_ADD, MR without remote atomic", ATOMIC, .remote = MR_NO_REMOTE_ATOMIC,
	  REMOTE_ACCESS },
	{ "FETCH_ADD, QP without remote atomic", ATOMIC, .qp_access = QP_NO_ATOMIC,
	  REMOTE_REQUEST },
	{ "FETCH_ADD, misaligned", ATOMIC, .misaligned = true, .may_refuse = true,
	  REMOTE_REQUEST },
	{ 0 },
};

static void odd_mrs(struct end *e, const struct end_keys *good, struct end_keys *odd)
{
	static const int access[NUM_WRONG_MRS] = {
		[MR_NO_REMOTE_WRITE] = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ,
		[MR_NO_REMOTE_READ] = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
		[MR_NO_REMOTE_ATOMIC] = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
					IBV_ACCESS_REMOTE_READ,
		[MR_NO_LOCAL_WRITE] = IBV_ACCESS_REMOTE_READ,
		[MR_SHORT] = ALL_ACCESS,
		[MR_OTHER_PD] = ALL_ACCESS,
		[MR_STALE] = ALL_ACCESS,
	};
	int i;

	MUST(end_pd(e, 1));
	for (i = MR_GOOD + 1; i < MR_GARBAGE; i++)
		MUST(end_mr_reg(e, i, i == MR_OTHER_PD, WRONG_KEYS_OFF,
				i == MR_SHORT ? SHORT_LEN : WRONG_LARGE_LEN, access[i],
				&odd[i]));
	MUST(end_mr_dereg(e, MR_STALE));
	odd[MR_GOOD] = *good;
	odd[MR_GARBAGE].lkey = good->lkey ^ GARBAGE_BITS;
	odd[MR_GARBAGE].rkey = good->rkey ^ GARBAGE_BITS;
}

void wrong_open(struct wrong_bench *b, const char *dev_a, const char *dev_b)
{
	const struct qp_spec spec = {
		.cap = {
			.max_send_wr = QUEUE_DEPTH,
			.max_recv_wr = QUEUE_DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
	};
	struct qp_spec at_a = spec, at_b = spec;

	pair_open_named(&b->pair, dev_a, dev_b, WRONG_ARENA_LEN);
	pair_basics(&b->pair, 2 * QUEUE_DEPTH, &b->keys_a, &b->keys_b);
	odd_mrs(&b->pair.a, &b->keys_a, b->odd_a);
	odd_mrs(&b->pair.b, &b->keys_b, b->odd_b);
	MUST(end_qp_create(&b->pair.a, 0, &at_a));
	MUST(end_qp_create(&b->pair.b, 0, &at_b));
}

void wrong_make(struct wrong_bench *b, const struct wrong *w, uint32_t len,
		struct ibv_send_wr *wr, struct ibv_sge *sge)
{
	if (w->small_only)
		len = sizeof(uint64_t);
	*sge = sge_at(&b->pair.a, WRONG_KEYS_OFF, len, b->odd_a[w->local].lkey);
	/* The first bytes are inside a short MR, as with an application's mistake. */
	*wr = wr_make(wr->wr_id, w->opcode, sge, &b->pair.b,
		      WRONG_KEYS_OFF + (w->misaligned ? 4 : 0), b->odd_b[w->remote].rkey);
	if (w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		wr->wr.atomic.compare_add = 1;
}

bool wrong_status_ok(const struct wrong *w, enum ibv_wc_status status)
{
	return status == w->status || (w->or_status && status == w->or_status);
}
