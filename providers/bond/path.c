/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* See path.h. Building a member's work requests from pieces; retiring them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "cq.h"
#include "objects.h"
#include "order.h"
#include "overlap.h"
#include "path.h"
#include "progress.h"

enum {
	PUSH_BATCH = 8,			/* work requests per member post */
	PUSH_SGES = 32,			/* SGEs for all of them */
};

struct push {
	struct ibv_send_wr wr[PUSH_BATCH];
	struct ibv_sge sge[PUSH_SGES];
	unsigned int nwr, nsge;
};

int path_open(struct path *path, struct bond_qp *qp, unsigned int index, unsigned int member,
	      struct ibv_qp *mqp, struct mcq *mcq, uint32_t depth_wr, uint32_t ring_size)
{
	memset(path, 0, sizeof(*path));
	path->ring = calloc(ring_size, sizeof(*path->ring));
	if (!path->ring)
		return ENOMEM;
	path->qp = qp;
	path->index = index;
	path->member = member;
	path->mqp = mqp;
	path->mcq = mcq;
	path->mask = ring_size - 1;
	path->head = path->posted = path->tail = BOND_FIRST_SEQ;
	path->depth_wr = depth_wr;
	return 0;
}

void path_close(struct path *path)
{
	free(path->ring);
	path->ring = NULL;
}

/* The SGEs of the WR that cover the piece, with the member's keys. false: a key went away. */
static bool push_sges(struct push *push, const struct path *path, const struct piece *piece,
		      const struct sq_wr *wr)
{
	struct bond_qp *qp = path->qp;
	const struct ibv_sge *from = sq_sges(qp, piece->seq);
	struct ibv_sge *to = &push->sge[push->nsge];
	bool whole = piece->flags & PIECE_WHOLE;
	uint64_t skip = piece->off, left = whole ? wr->len : piece->len;
	unsigned int i, n = 0;

	for (i = 0; i < wr->num_sge && (left || whole); i++) {
		if (skip && skip >= from[i].length) {
			skip -= from[i].length;
			continue;
		}
		to[n].addr = from[i].addr + skip;
		to[n].length = from[i].length - skip < left ? from[i].length - skip : left;
		to[n].lkey = from[i].lkey;
		if (path->member && !lkey_find(&qp->bctx->lkeys, from[i].lkey, path->member,
					       &to[n].lkey))
			return false;
		left -= to[n].length;
		skip = 0;
		n++;
	}
	push->wr[push->nwr].sg_list = to;
	push->wr[push->nwr].num_sge = n;
	push->nsge += n;
	return true;
}

static void push_wr(struct push *push, struct path *path, uint32_t index)
{
	const struct piece *piece = &path->ring[index & path->mask];
	const struct sq_wr *wr = &path->qp->sq[piece->seq & path->qp->sq_mask];
	struct ibv_send_wr *to = &push->wr[push->nwr];
	bool ok;

	to->wr_id = index;
	to->next = NULL;
	if (push->nwr)
		push->wr[push->nwr - 1].next = to;
	if (unlikely(piece->flags & (PIECE_MARK | PIECE_HEADER))) {
		notify_fill(path, piece, to, &push->sge[push->nsge]);
		push->nsge += to->num_sge;
		push->nwr++;
		return;
	}
	ok = push_sges(push, path, piece, wr);
	to->opcode = wr->opcode;
	/* Data that is spread is told of by an immediate of its own. */
	if (wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && !(piece->flags & (PIECE_WHOLE | PIECE_IMM)))
		to->opcode = IBV_WR_RDMA_WRITE;
	to->send_flags = wr->send_flags;
	if (piece->flags & PIECE_DUE)
		to->send_flags |= IBV_SEND_SIGNALED;
	/* Only a whole WR is behind everything that it follows; a part was let go by order.c. */
	if (!(piece->flags & (PIECE_WHOLE | PIECE_IMM)))
		to->send_flags &= ~(unsigned int)(IBV_SEND_FENCE | IBV_SEND_SOLICITED);
	to->imm_data = wr->imm;
	if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		to->wr.atomic.remote_addr = wr->raddr;
		to->wr.atomic.rkey = wr->rkey;
		to->wr.atomic.compare_add = wr->compare_add;
		to->wr.atomic.swap = wr->swap;
	} else {
		to->wr.rdma.remote_addr = piece->raddr;
		to->wr.rdma.rkey = piece->rkey;
	}
	/* The lkey was withdrawn while the WR waited: let the NIC refuse it like any bad lkey. */
	if (!ok) {
		to->sg_list = &push->sge[push->nsge];
		push->sge[push->nsge++] = (struct ibv_sge){ .length = piece->len };
		to->num_sge = 1;
	}
	push->nwr++;
}

/* Posts the batch; returns how many the member took (siw: 0 with bad_wr set; negative errnos). */
static unsigned int push_post(struct path *path, struct push *push, int *err)
{
	struct ibv_send_wr *bad = NULL;
	int ret = ibv_post_send(path->mqp, push->wr, &bad);

	*err = 0;
	if (!ret && !bad)
		return push->nwr;
	*err = post_errno(ret);
	return bad ? (unsigned int)(bad - push->wr) : 0;
}

/* Is the piece to go, is there room in the member's queue and, to be heard of, in its CQ? */
static bool path_may_post(const struct path *path, const struct piece *piece)
{
	const struct bond_qp *qp = path->qp;

	/* In error, only what came before the error still goes. */
	if (unlikely(qp->error) &&
	    (path->broken || (int32_t)(piece->seq - qp->error_seq) >= 0))
		return false;
	if (path->posted - path->head >= path->depth_wr)
		return false;
	return !(piece->flags & PIECE_DUE) ||
	       atomic_load_explicit(&path->mcq->due, memory_order_relaxed) < path->mcq->room;
}

static bool piece_is_bind(const struct path *path, uint32_t index)
{
	const struct piece *piece = &path->ring[index & path->mask];

	return path->qp->sq[piece->seq & path->qp->sq_mask].opcode == IBV_WR_BIND_MW;
}

/* Takes the next pieces into the batch, and counts them as posted. */
static void push_fill(struct push *push, struct path *path)
{
	while (push->nwr < PUSH_BATCH && path_backlog(path)) {
		struct piece *piece = &path->ring[path->posted & path->mask];

		if (!path_may_post(path, piece) || unlikely(piece_is_bind(path, path->posted)) ||
		    (push->nwr && push->nsge + path->qp->max_send_sge > PUSH_SGES))
			break;
		if (piece->flags & PIECE_DUE)
			mcq_due_add(path->mcq);
		push_wr(push, path, path->posted);
		path->posted++;
	}
}

static void path_unpost(struct path *path, unsigned int count)
{
	while (count--) {
		path->posted--;
		if (path->ring[path->posted & path->mask].flags & PIECE_DUE)
			mcq_due_sub(path->mcq);
	}
}

/* The next piece, which is posted alone. */
static int push_bind(struct path *path)
{
	uint32_t seq = path->ring[path->posted & path->mask].seq;
	int err = bond_bind_post(path->qp, seq, path->posted);

	if (!err)
		path->posted++;
	return err;
}

static bool path_refused_youngest(const struct path *path)
{
	const struct piece *piece = &path->ring[path->posted & path->mask];

	return path->qp->submitting && path->posted + 1 == path->tail &&
	       piece->flags & PIECE_WHOLE && piece->seq == path->qp->sq_tail - 1 &&
	       /* No header or marker of its own is under way. */
	       path->qp->sq[piece->seq & path->qp->sq_mask].left == 1;
}

void path_push(struct path *path)
{
	struct push push;
	unsigned int done;
	int err = 0;

	while (path_backlog(path) && !err) {
		push.nwr = 0;
		push.nsge = 0;
		if (unlikely(piece_is_bind(path, path->posted))) {
			if (!path_may_post(path, &path->ring[path->posted & path->mask]))
				break;
			err = push_bind(path);
			continue;
		}
		push_fill(&push, path);
		if (!push.nwr)
			break;
		done = push_post(path, &push, &err);
		path_unpost(path, push.nwr - done);
	}
	/* Refused for good: the caller is told, or, of what waited, a completion in error tells. */
	if (err && err != ENOMEM && path_refused_youngest(path))
		path->qp->refused = err;
	else if (err && err != ENOMEM)
		order_fail(path->qp, path->ring[path->posted & path->mask].seq,
			   IBV_WC_LOC_QP_OP_ERR, 0);
	/* Full, or its CQ is: a completion or the next tick tries again. */
	if (path_backlog(path))
		progress_want();
	if (path->index == 0) {
		if (path_backlog(path))
			path->qp->busy |= BUSY_BACKLOG;
		else
			path->qp->busy &= ~BUSY_BACKLOG;
	}
}

/* @posted: the member has seen it. */
static void piece_done(struct path *path, struct piece *piece, bool posted,
		       enum ibv_wc_status status, uint32_t vendor_err)
{
	struct bond_qp *qp = path->qp;
	struct sq_wr *wr = &qp->sq[piece->seq & qp->sq_mask];

	if (piece->flags & PIECE_TRACKED)
		overlap_sub(qp, wr, piece);
	if (piece->flags & PIECE_SYNC)
		qp->sync_left--;
	if (piece->flags & PIECE_DOUBT)
		qp->doubt_left--;
	if (piece->flags & PIECE_ATOMIC)
		qp->atomics_left--;
	if (piece->flags & PIECE_DUE) {
		if (posted)
			mcq_due_sub(path->mcq);
		sched_acked(&qp->sched, path->index, piece->len, clock_ns());
		if (!path->index)
			qp->lead_due--;
		else if (!--qp->off_lead)
			qp->busy &= ~BUSY_OFF_LEAD;
	}
	if (unlikely(status)) {
		/* The first verdict counts; a flush says only that another piece had one. */
		if (!wr->status || wr->status == IBV_WC_WR_FLUSH_ERR) {
			wr->status = status;
			wr->vendor_err = vendor_err;
		}
	}
	wr->left--;
}

void path_unappend(struct path *path)
{
	piece_done(path, &path->ring[--path->tail & path->mask], false, IBV_WC_SUCCESS, 0);
	if (!path->index && !path_backlog(path))
		path->qp->busy &= ~BUSY_BACKLOG;
}

void path_retire(struct path *path, uint32_t index, enum ibv_wc_status status, uint32_t vendor_err)
{
	/* A stale completion, from before a RESET. */
	if (unlikely(index - path->head >= path->posted - path->head))
		return;
	while (path->head != index)
		piece_done(path, &path->ring[path->head++ & path->mask], true, IBV_WC_SUCCESS, 0);
	path->head++;
	piece_done(path, &path->ring[index & path->mask], true, status, vendor_err);
}

void path_flush(struct path *path)
{
	if (path->beacon)
		mcq_due_sub(path->mcq);
	path->beacon = false;
	while (path->head != path->tail) {
		bool posted = path->head != path->posted;
		struct piece *piece = &path->ring[path->head & path->mask];
		struct sq_wr *wr = &path->qp->sq[piece->seq & path->qp->sq_mask];
		/* Unsignalled, and not among the flushed: it was executed and said nothing. */
		bool silent = posted && !(piece->flags & PIECE_DUE) && !(wr->send_flags & IBV_SEND_SIGNALED);

		path->head++;
		if (!posted)
			path->posted++;
		piece_done(path, piece, posted, silent ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR, 0);
	}
}
