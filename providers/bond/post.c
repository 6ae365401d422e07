/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Posting. The short way: while nothing is held and no other path is in use, a WR for the lead is
 * copied, gets our wr_id, and goes out, several in one post. Everything else is saved and handed
 * to order.c. No allocation.
 */
#include <errno.h>
#include <string.h>

#include "bond.h"
#include "objects.h"
#include "order.h"
#include "passthru.h"
#include "path.h"
#include "peer.h"

_Static_assert(offsetof(struct ibv_send_wr, wr.rdma.remote_addr) ==
		       offsetof(struct ibv_send_wr, wr.atomic.remote_addr),
	       "wr_take() reads one for the other");
_Static_assert(offsetof(struct ibv_send_wr, send_flags) ==
			       offsetof(struct ibv_send_wr, opcode) + 4 &&
		       offsetof(union wr_state, send_flags) == 4 &&
		       offsetof(union wr_state, left) == 6,
	       "wr_take() takes both at once");

enum { POST_BATCH = 8 };

enum op_info {
	OP_OK = 1 << 0,			/* a WR of an RC QP */
	OP_ADDR = 1 << 1,		/* wr.rdma counts */
	OP_ATOMIC = 1 << 2,		/* wr.atomic counts */
	OP_NO_INLINE = 1 << 3,
	OP_BIND = 1 << 4,
	OP_MESSAGE = 1 << 5,		/* consumes a receive */
};

static const uint8_t op_info[] = {
	[IBV_WR_RDMA_WRITE] = OP_OK | OP_ADDR,
	[IBV_WR_RDMA_WRITE_WITH_IMM] = OP_OK | OP_ADDR | OP_MESSAGE,
	[IBV_WR_SEND] = OP_OK | OP_MESSAGE,
	[IBV_WR_SEND_WITH_IMM] = OP_OK | OP_MESSAGE,
	[IBV_WR_RDMA_READ] = OP_OK | OP_ADDR | OP_NO_INLINE,
	[IBV_WR_ATOMIC_CMP_AND_SWP] = OP_OK | OP_ATOMIC | OP_NO_INLINE,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = OP_OK | OP_ATOMIC | OP_NO_INLINE,
	[IBV_WR_LOCAL_INV] = OP_OK,
	[IBV_WR_BIND_MW] = OP_OK | OP_BIND,
	[IBV_WR_SEND_WITH_INV] = OP_OK | OP_MESSAGE,
};

/* WRs on the short way that are not posted yet. */
struct batch {
	unsigned int n;
	struct ibv_send_wr wr[POST_BATCH];
	struct ibv_send_wr *from[POST_BATCH];
};

/* BUSY_ that does not close the short way. */
#define BUSY_SHORT BUSY_SPREAD_PENDING

static int wr_check(const struct bond_qp *qp, const struct ibv_send_wr *wr, uint64_t *len)
{
	unsigned int info;
	int i;

	if (unlikely(qp->sq_tail - qp->sq_head >= qp->max_send_wr))
		return ENOMEM;
	if (unlikely((unsigned int)wr->opcode >= sizeof(op_info) || wr->send_flags > UINT8_MAX))
		return EINVAL;
	info = op_info[wr->opcode];
	if (unlikely(!(info & OP_OK) || (unsigned int)wr->num_sge > qp->max_send_sge))
		return EINVAL;
	*len = 0;
	if (unlikely(info & OP_BIND))
		return 0;
	for (i = 0; i < wr->num_sge; i++)
		*len += wr->sg_list[i].length;
	if (unlikely(wr->send_flags & IBV_SEND_INLINE) &&
	    (info & OP_NO_INLINE || *len > qp->max_inline_data))
		return EINVAL;
	return 0;
}

/* The part of an entry that both ways need. @signal_all: IBV_SEND_SIGNALED or 0. */
static inline struct sq_wr *wr_take(struct bond_qp *qp, const struct ibv_send_wr *wr, uint64_t len,
				    unsigned int signal_all)
{
	struct sq_wr *to = &qp->sq[qp->sq_tail++ & qp->sq_mask];
	union wr_state state;

	if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) {
		memcpy(&state, &wr->opcode, sizeof(state));
		state.word |= (uint64_t)signal_all << 32 | 1ull << 48;
	} else {
		state.word = 0;
		state.opcode = wr->opcode;
		state.send_flags = wr->send_flags | signal_all;
		state.left = 1;
	}
	to->state = state;
	to->wr_id = wr->wr_id;
	to->len = len;
	to->raddr = wr->wr.rdma.remote_addr;
	return to;
}

/* Keeps what the application may reuse once post_send has returned. */
static void wr_save(struct bond_qp *qp, struct sq_wr *to, const struct ibv_send_wr *wr)
{
	uint32_t slot = (qp->sq_tail - 1) & qp->sq_mask;
	struct ibv_sge *sge = sq_sges(qp, slot);
	char *data = qp->sq_inline + (size_t)slot * qp->max_inline_data;
	int i;

	if (unlikely(op_info[wr->opcode] & OP_BIND)) {
		bond_bind_save(qp, slot, wr);
		return;
	}
	to->num_sge = wr->num_sge;
	to->imm = wr->imm_data;
	to->rkey = 0;
	if (op_info[wr->opcode] & OP_ADDR) {
		to->rkey = wr->wr.rdma.rkey;
	} else if (op_info[wr->opcode] & OP_ATOMIC) {
		to->rkey = wr->wr.atomic.rkey;
		to->compare_add = wr->wr.atomic.compare_add;
		to->swap = wr->wr.atomic.swap;
	}
	for (i = 0; i < wr->num_sge; i++) {
		sge[i] = wr->sg_list[i];
		if (wr->send_flags & IBV_SEND_INLINE) {
			memcpy(data, (void *)(uintptr_t)sge[i].addr, sge[i].length);
			sge[i].addr = (uintptr_t)data;
			data += sge[i].length;
		}
	}
}

static int post_saved(struct bond_qp *qp, const struct ibv_send_wr *wr)
{
	uint64_t len;
	int ret = wr_check(qp, wr, &len);

	if (ret)
		return ret;
	if (unlikely(qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_ERR &&
		     qp->state != IBV_QPS_SQD && qp->state != IBV_QPS_SQE))
		return EINVAL;
	wr_save(qp, wr_take(qp, wr, len, qp->sq_sig_all * IBV_SEND_SIGNALED), wr);
	ret = order_submit(qp, qp->sq_tail - 1);
	if (unlikely(ret))
		qp->sq_tail--;
	return ret;
}

/* Back out of the last @count WRs of the short way. */
static void short_undo(struct bond_qp *qp, unsigned int count)
{
	struct path *lead = &qp->path[0];

	while (count--) {
		struct piece *piece = &lead->ring[--lead->tail & lead->mask];

		lead->posted = lead->tail;
		if (piece->flags & PIECE_SYNC)
			qp->sync_left--;
		qp->sq_tail--;
		if (opcode_is_message(qp->sq[qp->sq_tail & qp->sq_mask].opcode))
			qp->messages--;
	}
}

/* Posts the batch. On error *bad_wr is the application's WR that was not taken. */
static int short_flush(struct bond_qp *qp, struct batch *batch, struct ibv_send_wr **bad_wr)
{
	struct path *lead = &qp->path[0];
	struct ibv_send_wr *bad = NULL;
	unsigned int i, done, n = batch->n;
	int ret;

	if (!n)
		return 0;
	batch->n = 0;
	batch->wr[n - 1].next = NULL;
	ret = ibv_post_send(lead->mqp, batch->wr, &bad);
	if (likely(!ret && !bad))
		return 0;
	done = bad ? (unsigned int)(bad - batch->wr) : 0;
	ret = post_errno(ret);
	short_undo(qp, n - done);
	if (ret != ENOMEM) {
		*bad_wr = batch->from[done];
		return ret;
	}
	/* The member's queue is full, the application's is not: the rest waits here. */
	for (i = done; i < n; i++) {
		ret = post_saved(qp, batch->from[i]);
		if (ret) {
			*bad_wr = batch->from[i];
			return ret;
		}
	}
	return 0;
}

/*
 * The short way is open to a WR for the lead alone while no other path is in use; a READ needs its
 * SGEs kept once slots are, and what could be spread is not for the lead alone. It leaves no mark in
 * the slots: what is spread later looks at the lead's queue (order.c).
 */
static inline bool short_open(const struct bond_qp *qp, const struct ibv_send_wr *wr, uint64_t len)
{
	if (qp->busy & ~BUSY_SHORT || wr->opcode == IBV_WR_BIND_MW)
		return false;
	/* What follows a fence or an atomic must not be ahead of it: order.c sees to that. */
	return !qp->spreading || (len < qp->stripe_above && !opcode_is_sync(wr->opcode) &&
				  !(wr->send_flags & IBV_SEND_FENCE));
}

/*
 * Takes the WR for the lead; @copy_end: how much of it counts; next is the caller's. Room on the
 * lead is certain: order.c leaves as much as the application's queue is deep.
 */
static inline void short_take(struct bond_qp *qp, const struct ibv_send_wr *wr,
			      struct ibv_send_wr *to, uint64_t len, unsigned int signal_all,
			      size_t copy_end)
{
	const size_t copy_start = offsetof(struct ibv_send_wr, next);
	struct path *lead = &qp->path[0];
	uint32_t index = lead->tail;
	struct piece *piece = &lead->ring[index & lead->mask];

	memcpy((char *)to + copy_start, (const char *)wr + copy_start, copy_end - copy_start);
	to->wr_id = index;
	to->send_flags |= signal_all;
	piece->flags = PIECE_WHOLE | PIECE_SHORT;
	piece->seq = qp->sq_tail;
	lead->tail = index + 1;
	lead->posted = index + 1;
	wr_take(qp, wr, len, signal_all);
}

/* A READ or an atomic before spreading begins: later READs must not overtake it. */
static void short_take_sync(struct bond_qp *qp)
{
	struct path *lead = &qp->path[0];

	lead->ring[(lead->tail - 1) & lead->mask].flags |= PIECE_SYNC;
	qp->sync_left++;
}

static int post_plain(struct bond_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr);

static int post_chain(struct bond_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct batch batch = { .n = 0 };
	uint64_t len;
	int ret = 0, flush;

	for (; wr; wr = wr->next) {
		ret = wr_check(qp, wr, &len);
		if (unlikely(ret)) {
			*bad_wr = wr;
			break;
		}
		if (short_open(qp, wr, len)) {
			short_take(qp, wr, &batch.wr[batch.n], len,
				   qp->sq_sig_all * IBV_SEND_SIGNALED,
				   offsetof(struct ibv_send_wr, qp_type));
			if (opcode_is_sync(wr->opcode))
				short_take_sync(qp);
			if (op_info[wr->opcode] & OP_MESSAGE)
				qp->messages++;
			batch.wr[batch.n].next = &batch.wr[batch.n + 1];
			batch.from[batch.n++] = wr;
			if (batch.n < POST_BATCH)
				continue;
			ret = short_flush(qp, &batch, bad_wr);
		} else {
			ret = short_flush(qp, &batch, bad_wr);
			if (!ret) {
				ret = post_saved(qp, wr);
				if (ret)
					*bad_wr = wr;
			}
		}
		if (unlikely(ret))
			break;
	}
	/* What came before a bad WR is posted; if that fails, it is the first that failed. */
	flush = short_flush(qp, &batch, bad_wr);
	return flush ? flush : ret;
}

/* The member did not take it as it should. */
static int __attribute__((noinline)) short_refused(struct bond_qp *qp, struct ibv_send_wr *wr,
						   int ret, struct ibv_send_wr **bad_wr)
{
	short_undo(qp, 1);
	ret = post_errno(ret);
	/* The member's queue is full, the application's is not: it waits here. */
	if (ret == ENOMEM)
		ret = post_saved(qp, wr);
	if (ret)
		*bad_wr = wr;
	return ret;
}

static int __attribute__((noinline)) post_long(struct bond_qp *qp, struct ibv_send_wr *wr,
					       struct ibv_send_wr **bad_wr)
{
	if (qp->busy & BUSY_PLAIN)
		return post_plain(qp, wr, bad_wr);
	return post_chain(qp, wr, bad_wr);
}

/* WRITEs and SENDs: alone, of one SGE, they are what the fewest instructions are spent on. */
#define OPS_SHORT \
	(1u << IBV_WR_RDMA_WRITE | 1u << IBV_WR_RDMA_WRITE_WITH_IMM | 1u << IBV_WR_SEND | \
	 1u << IBV_WR_SEND_WITH_IMM | 1u << IBV_WR_SEND_WITH_INV)

/* The member itself refuses inline data that is too long; short_refused() finds the reason. */
static inline bool short_fits(const struct bond_qp *qp, const struct ibv_send_wr *wr)
{
	union wr_state state;

	if (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__)
		return false;
	memcpy(&state, &wr->opcode, sizeof(state));
	return !(qp->busy & ~BUSY_SHORT) && !wr->next && wr->num_sge == 1 &&
	       !(state.word & ~0xfe0000000full) && OPS_SHORT >> state.opcode & 1 &&
	       qp->sq_tail - qp->sq_head < qp->max_send_wr &&
	       wr->sg_list->length < qp->short_limit;
}

int bond_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct bond_qp *qp = to_bond_qp(ibqp);
	struct ibv_send_wr copy, *bad = NULL;
	int ret;

	bond_lock(&qp->sq_lock);
	if (likely(short_fits(qp, wr))) {
		short_take(qp, wr, &copy, wr->sg_list->length, 0,
			   offsetof(struct ibv_send_wr, wr.rdma.rkey) + sizeof(uint64_t));
		/* Of those on this way all others are messages. */
		if (wr->opcode != IBV_WR_RDMA_WRITE)
			qp->messages++;
		ret = ibv_post_send(qp->path[0].mqp, &copy, &bad);
		if (unlikely(ret || bad))
			ret = short_refused(qp, wr, ret, bad_wr);
	} else {
		ret = post_long(qp, wr, bad_wr);
	}
	bond_unlock(&qp->sq_lock);
	return ret;
}

static int chain_check(const struct bond_qp *qp, const struct ibv_send_wr *wr, uint32_t num_wr)
{
	uint64_t len;
	int ret = 0;

	if (qp->max_send_wr - (qp->sq_tail - qp->sq_head) < num_wr)
		return ENOMEM;
	for (; wr && !ret; wr = wr->next)
		ret = wr_check(qp, wr, &len);
	return ret;
}

int bond_post_send_all(struct ibv_qp *ibqp, struct ibv_send_wr *wr, uint32_t num_wr,
		       struct ibv_send_wr **bad_wr)
{
	struct bond_qp *qp = to_bond_qp(ibqp);
	int ret;

	bond_lock(&qp->sq_lock);
	ret = qp->kind == BOND_QP_RC ? chain_check(qp, wr, num_wr) : 0;
	if (ret)
		*bad_wr = wr;
	else
		ret = post_long(qp, wr, bad_wr);
	bond_unlock(&qp->sq_lock);
	return ret;
}

/* ---- plain QPs ---- */

/* What in a plain WR is ours: UD's address handle, a bind's window and MR. */
static void plain_translate(const struct bond_qp *qp, struct ibv_send_wr *wr)
{
	if (qp->vqp.qp.qp_type == IBV_QPT_UD && wr->wr.ud.ah) {
		wr->wr.ud.ah = to_bond_ah(wr->wr.ud.ah)->mah;
	} else if (wr->opcode == IBV_WR_BIND_MW) {
		wr->bind_mw.mw = to_bond_mw(wr->bind_mw.mw)->mmw;
		bond_bind_info(&wr->bind_mw.bind_info);
	}
}

static bool plain_is_theirs(const struct bond_qp *qp, const struct ibv_send_wr *wr)
{
	if (qp->vqp.qp.qp_type == IBV_QPT_UD)
		return false;
	while (wr && wr->opcode != IBV_WR_BIND_MW)
		wr = wr->next;
	return !wr;
}

static int post_plain(struct bond_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct ibv_send_wr copy, *bad;
	int ret;

	if (plain_is_theirs(qp, wr))
		return ibv_post_send(qp->path[0].mqp, wr, bad_wr);
	for (; wr; wr = wr->next) {
		copy = *wr;
		copy.next = NULL;
		bad = NULL;
		plain_translate(qp, &copy);
		ret = ibv_post_send(qp->path[0].mqp, &copy, &bad);
		if (ret || bad) {
			*bad_wr = wr;
			return post_errno(ret);
		}
	}
	return 0;
}

/* ---- receiving ---- */

int bond_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct bond_qp *qp = to_bond_qp(ibqp);
	struct ibv_recv_wr copy, *bad;
	int ret = 0;

	if (unlikely(qp->kind != BOND_QP_RC))
		return ibv_post_recv(qp->path[0].mqp, wr, bad_wr);
	bond_lock(&qp->rq_lock);
	for (; wr; wr = wr->next) {
		if (unlikely(qp->rq_tail - qp->rq_head >= qp->max_recv_wr || qp->vqp.qp.srq)) {
			ret = qp->vqp.qp.srq ? EINVAL : ENOMEM;
			*bad_wr = wr;
			break;
		}
		copy = *wr;
		copy.next = NULL;
		copy.wr_id = BOND_WRID_RECV | qp->rq_tail;
		qp->rq[qp->rq_tail & qp->rq_mask] = wr->wr_id;
		bad = NULL;
		ret = ibv_post_recv(qp->path[0].mqp, &copy, &bad);
		if (unlikely(ret || bad)) {
			ret = post_errno(ret);
			*bad_wr = wr;
			break;
		}
		qp->rq_tail++;
	}
	bond_unlock(&qp->rq_lock);
	return ret;
}
