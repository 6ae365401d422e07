/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* See order.h. Errors and fences of a whole QP are in fence.c. */
#include <errno.h>

#include "clock.h"
#include "objects.h"
#include "order.h"
#include "overlap.h"
#include "path.h"
#include "peer.h"
#include "progress.h"
#include "spread.h"

/* Are pieces of WRs before @seq under way on other paths than the lead? */
static bool off_lead_before(const struct bond_qp *qp, uint32_t seq)
{
	unsigned int i;

	if (!qp->off_lead)
		return false;
	for (i = 1; i < qp->npaths_made; i++) {
		const struct path *path = &qp->path[i];

		if (path->head != path->tail &&
		    (int32_t)(path->ring[path->head & path->mask].seq - seq) < 0)
			return true;
	}
	return false;
}

uint32_t order_oldest(const struct bond_qp *qp)
{
	uint32_t seq = qp->sq_head + qp->sq_silent;

	while (seq != qp->sq_tail && !qp->sq[seq & qp->sq_mask].left)
		seq++;
	return seq;
}

/* Must later READs stay behind it? */
static bool wr_is_sync(const struct bond_qp *qp, const struct sq_wr *wr)
{
	return opcode_is_sync(wr->opcode) && (wr->opcode != IBV_WR_RDMA_READ || !qp->spreading ||
					      wr->len < qp->stripe_above);
}

void order_posted(struct bond_qp *qp, const struct sq_wr *wr, struct piece *piece,
		  struct path *path, uint64_t now_ns)
{
	overlap_add(qp, wr, piece, path->index);
	sched_posted(&qp->sched, path->index, piece->len, now_ns);
	path->pieces++;
	path->bytes += piece->len;
	if (path->index) {
		qp->off_lead++;
		qp->busy |= BUSY_OFF_LEAD;
	} else {
		qp->lead_due++;
	}
}

/* ---- holding ---- */

static void hold_add(struct bond_qp *qp, uint32_t seq, enum hold_kind kind)
{
	qp->hold[qp->hold_tail++ & qp->sq_mask] = (struct hold){ .seq = seq, .kind = kind };
	if (kind != HOLD_TAIL)
		qp->hold_blockers++;
	qp->sq[seq & qp->sq_mask].flags |= WR_HELD;
	qp->busy |= BUSY_HOLD;
}

/* The entry has done its work: it leaves, and with it those at the head that had done so before. */
static void hold_drop(struct bond_qp *qp, uint32_t i)
{
	struct hold *hold = &qp->hold[i & qp->sq_mask];

	if (hold->kind == HOLD_WR || hold->kind == HOLD_DRAIN)
		qp->hold_blockers--;
	qp->sq[hold->seq & qp->sq_mask].flags &= ~WR_HELD;
	hold->kind = HOLD_NONE;
	while (order_holds(qp) && qp->hold[qp->hold_head & qp->sq_mask].kind == HOLD_NONE)
		qp->hold_head++;
	if (!order_holds(qp))
		qp->busy &= ~BUSY_HOLD;
}

/*
 * May the WR go although tails before @end in the queue are held? Large WRITEs pass those that they
 * do not touch, or else a deep queue would be as slow as a shallow one.
 */
static bool order_may_pass(const struct bond_qp *qp, const struct sq_wr *wr, uint32_t end)
{
	if (wr->opcode != IBV_WR_RDMA_WRITE || wr->len < qp->stripe_above ||
	    wr->send_flags & (IBV_SEND_FENCE | IBV_SEND_INLINE))
		return false;
	return !overlap_held(qp, wr, end);
}

/* ---- messages ---- */

/* Does anything older than the piece's WR that is under way on another path touch these bytes? */
static bool older_touches(const struct bond_qp *qp, uint32_t seq, uint64_t raddr, uint64_t len)
{
	unsigned int i;
	uint32_t at;

	for (i = 1; i < qp->npaths_made; i++)
		for (at = qp->path[i].head; at != qp->path[i].tail; at++) {
			const struct piece *piece = &qp->path[i].ring[at & qp->path[i].mask];

			if ((int32_t)(piece->seq - seq) < 0 &&
			    ranges_meet(raddr, len, piece->raddr, piece->len))
				return true;
		}
	return false;
}

static void tail_send(struct bond_qp *qp, uint32_t seq, struct path *path, uint32_t rkey);

bool tails_release(struct bond_qp *qp, uint32_t seq)
{
	while (order_holds(qp)) {
		const struct hold *hold = &qp->hold[qp->hold_head & qp->sq_mask];
		struct sq_wr *wr = &qp->sq[hold->seq & qp->sq_mask];

		if ((int32_t)(hold->seq - seq) >= 0)
			return true;
		if (hold->kind != HOLD_TAIL || !order_room(&qp->path[0], 3) ||
		    older_touches(qp, hold->seq, wr->raddr + wr->len - BOND_TAIL_BYTES,
				  BOND_TAIL_BYTES))
			return false;
		tail_send(qp, hold->seq, &qp->path[0], wr->rkey);
		hold_drop(qp, qp->hold_head);
	}
	return true;
}

/* ---- the lead ---- */

/* Is a tail of an older WR still held? What goes to the lead goes behind it. */
static bool held_before(const struct bond_qp *qp, uint32_t seq)
{
	return order_holds(qp) && qp->ordering != CONFIG_ORDERING_COMPLETION &&
	       (int32_t)(qp->hold[qp->hold_head & qp->sq_mask].seq - seq) < 0;
}

bool order_lead_may_go(struct bond_qp *qp, uint32_t seq, const struct sq_wr *wr,
			      bool doubt)
{
	bool sized = wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_RDMA_READ;

	if (!path_room(&qp->path[0]) || held_before(qp, seq))
		return false;
	if (!qp->off_lead)
		return true;
	if (!off_lead_before(qp, seq))
		return wr->opcode != IBV_WR_RDMA_READ ||
		       !overlap_local(qp, wr, seq, 0, wr->len, 0);
	/* Only what goes by address alone may be ahead of work on other paths. */
	if (!sized || wr->send_flags & IBV_SEND_FENCE || doubt)
		return false;
	/* Nor may the last byte of a WRITE, which goes with it here, be seen before theirs. */
	if (qp->ordering != CONFIG_ORDERING_COMPLETION &&
	    (wr->len < qp->order_below || wr->opcode == IBV_WR_RDMA_WRITE))
		return false;
	if (wr->len && !slot_check(qp->slots, wr->raddr, wr->len, 0))
		return false;
	return wr->opcode != IBV_WR_RDMA_READ || !overlap_local(qp, wr, seq, 0, wr->len, 0);
}

static enum start order_lead(struct bond_qp *qp, uint32_t seq, struct sq_wr *wr, bool doubt)
{
	struct path *lead = &qp->path[0];
	struct piece *piece;
	bool notify;

	/* Nothing passes a fence, on whatever path. */
	doubt |= qp->spreading && wr->send_flags & IBV_SEND_FENCE;
	notify = order_notifies(qp, wr) && off_lead_before(qp, seq);
	if (notify) {
		if (!notify_may(qp) || !tails_release(qp, seq))
			return START_WAIT;
		notify_send(qp, seq, wr, 0,
			    wr->send_flags & IBV_SEND_SOLICITED ? NOTIFY_SOLICITED : 0);
	} else if (!order_lead_may_go(qp, seq, wr, doubt)) {
		return START_WAIT;
	}
	if (opcode_is_message(wr->opcode))
		qp->messages++;
	piece = path_append(lead);
	*piece = (struct piece){ .raddr = wr->raddr, .seq = seq, .len = wr->len,
				 .rkey = wr->rkey, .flags = PIECE_WHOLE };
	if (wr_is_sync(qp, wr)) {
		piece->flags |= PIECE_SYNC;
		qp->sync_left++;
	}
	if (doubt) {
		piece->flags |= PIECE_DOUBT;
		qp->doubt_left++;
	}
	if (qp->spreading && opcode_is_atomic(wr->opcode)) {
		piece->flags |= PIECE_ATOMIC;
		qp->atomics_left++;
	}
	piece->len = wr_remote_len(wr);
	if (notify ||
	    (qp->spreading && (piece->len >= qp->stripe_above || piece->flags & PIECE_ATOMIC))) {
		/*
		 * The scheduler must know what keeps the lead busy, the end of an atomic lets a WRITE
		 * go, and a header is heard of by its message alone.
		 */
		piece->flags |= PIECE_DUE;
		order_posted(qp, wr, piece, lead, clock_ns());
	} else {
		overlap_add(qp, wr, piece, 0);
	}
	qp->stats.lead++;
	path_push(lead);
	return START_DONE;
}

/*
 * A large message may find no receive, or one that is too small: what is behind it should not be
 * executed then. Small ones may be refused too, but are too frequent in front of large WRITEs.
 */
static bool wr_may_bounce(const struct bond_qp *qp, const struct sq_wr *wr)
{
	return qp->spreading && wr->len >= qp->stripe_above &&
	       (wr->opcode == IBV_WR_SEND || wr->opcode == IBV_WR_SEND_WITH_IMM ||
		wr->opcode == IBV_WR_SEND_WITH_INV || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM);
}

static enum start order_start(struct bond_qp *qp, uint32_t seq)
{
	struct sq_wr *wr = &qp->sq[seq & qp->sq_mask];
	enum start start = START_LEAD;

	if (order_spreadable(qp, wr))
		start = order_spread(qp, seq, wr);
	else if (order_is_flush(qp, wr))
		start = order_flush(qp, seq, wr);
	if (start == START_LEAD && wr_may_bounce(qp, wr))
		start = START_DOUBT;
	if (start == START_LEAD || start == START_DOUBT)
		start = order_lead(qp, seq, wr, start == START_DOUBT);
	return start;
}

/* The member refused it at once, as a NIC does some WRs: so does bond0. */
static int submit_undo(struct bond_qp *qp, const struct sq_wr *wr)
{
	int err = qp->refused;

	qp->refused = 0;
	path_unappend(&qp->path[0]);
	if (opcode_is_message(wr->opcode))
		qp->messages--;
	return err;
}

int order_submit(struct bond_qp *qp, uint32_t seq)
{
	struct sq_wr *wr = &qp->sq[seq & qp->sq_mask];
	enum start start = START_WAIT;

	wr->left = 1;
	if (unlikely(qp->error)) {
		order_refuse(qp, seq);
		return 0;
	}
	if (!order_holds(qp) ||
	    (!qp->hold_blockers &&
	     (order_may_pass(qp, wr, qp->hold_tail) || order_notifies(qp, wr)))) {
		qp->submitting = true;
		start = order_start(qp, seq);
		qp->submitting = false;
		if (unlikely(qp->refused))
			return submit_undo(qp, wr);
	}
	if (start != START_DONE)
		qp->stats.held++;
	if (start == START_DRAIN)
		qp->stats.drained++;
	if (start != START_DONE)
		hold_add(qp, seq, start == START_DRAIN ? HOLD_DRAIN : HOLD_WR);
	else if (wr->flags & WR_TAIL)
		hold_add(qp, seq, HOLD_TAIL);
	if (order_holds(qp))
		progress_want();
	/* A member may have refused a piece. */
	if (unlikely(qp->error)) {
		order_fence(qp);
		bond_qp_attention(qp);
	}
	return 0;
}

/*
 * The path for a tail: the lead, so that what is posted after it is seen after it. Only where the
 * lead is broken and the tail of an older, good WR is still due, another one.
 */
static struct path *tail_path(struct bond_qp *qp, const struct sq_wr *wr, uint32_t *rkey)
{
	struct rkey_region region;
	unsigned int i;

	*rkey = wr->rkey;
	if (likely(!qp->path[0].broken))
		return &qp->path[0];
	if (!rkey_find(&qp->rkeys, wr->rkey, &region))
		return NULL;
	for (i = 1; i < qp->npaths_made; i++) {
		struct path *path = &qp->path[i];

		if (path->broken || path->peer_member >= region.nkeys)
			continue;
		*rkey = region.key[path->peer_member];
		return path;
	}
	return NULL;
}

static void tail_send(struct bond_qp *qp, uint32_t seq, struct path *path, uint32_t rkey)
{
	struct sq_wr *wr = &qp->sq[seq & qp->sq_mask];
	uint32_t off = wr->len - BOND_TAIL_BYTES;
	struct piece *piece = path_append(path);

	*piece = (struct piece){ .raddr = wr->raddr + off, .seq = seq, .len = BOND_TAIL_BYTES,
				 .off = off, .rkey = rkey, .flags = PIECE_TAIL | PIECE_DUE };
	wr->flags &= ~WR_TAIL;
	order_posted(qp, wr, piece, path, clock_ns());
	path_push(path);
}

static enum start release_tail(struct bond_qp *qp, uint32_t seq)
{
	uint32_t rkey;
	struct path *path = tail_path(qp, &qp->sq[seq & qp->sq_mask], &rkey);

	/* Its own body, and all before it, off the lead. */
	if (!path || off_lead_before(qp, seq + 1) || !order_room(path, 1))
		return START_WAIT;
	tail_send(qp, seq, path, rkey);
	return START_DONE;
}

static enum start release_one(struct bond_qp *qp, const struct hold *hold, uint32_t at)
{
	const struct sq_wr *wr;

	switch ((enum hold_kind)hold->kind) {
	case HOLD_TAIL:
		/* In order among themselves. */
		return at == qp->hold_head ? release_tail(qp, hold->seq) : START_WAIT;
	case HOLD_DRAIN:
		if (!order_drained(qp))
			return START_DRAIN;
		break;
	case HOLD_NONE:
		return START_DONE;
	case HOLD_WR:
		/* Only tails are before it. */
		wr = &qp->sq[hold->seq & qp->sq_mask];
		if (at != qp->hold_head && !order_may_pass(qp, wr, at) && !order_notifies(qp, wr))
			return START_WAIT;
		break;
	}
	return order_start(qp, hold->seq);
}

/* A WR went: a body leaves its tail behind, in the same place. */
static void hold_started(struct bond_qp *qp, uint32_t at)
{
	struct hold *hold = &qp->hold[at & qp->sq_mask];

	if (!(qp->sq[hold->seq & qp->sq_mask].flags & WR_TAIL)) {
		hold_drop(qp, at);
		return;
	}
	if (hold->kind != HOLD_TAIL)
		qp->hold_blockers--;
	hold->kind = HOLD_TAIL;
}

void order_release(struct bond_qp *qp)
{
	uint32_t at = qp->hold_head;

	while (at != qp->hold_tail) {
		struct hold *hold = &qp->hold[at & qp->sq_mask];
		enum start start;

		if (unlikely(qp->error) && (int32_t)(hold->seq - qp->error_seq) >= 0)
			return;
		start = release_one(qp, hold, at);
		if (start == START_DONE && hold->kind != HOLD_NONE)
			hold_started(qp, at);
		if (start == START_DONE) {
			/* What was dropped at the head may let the one behind it be the head. */
			at = (int32_t)(at + 1 - qp->hold_head) < 0 ? qp->hold_head : at + 1;
			continue;
		}
		if (start == START_DRAIN && hold->kind == HOLD_WR) {
			hold->kind = HOLD_DRAIN;
			qp->stats.drained++;
		}
		/* Past a tail that waits go only those that may pass it. */
		if (hold->kind != HOLD_TAIL || !qp->hold_blockers)
			return;
		at++;
	}
}

void order_flush_held(struct bond_qp *qp)
{
	while (order_holds(qp)) {
		struct hold *hold = &qp->hold[qp->hold_head & qp->sq_mask];
		struct sq_wr *wr = &qp->sq[hold->seq & qp->sq_mask];

		if (hold->kind != HOLD_NONE) {
			wr->left--;
			wr->flags &= ~WR_TAIL;
			if (!wr->status)
				wr->status = IBV_WC_WR_FLUSH_ERR;
		}
		hold_drop(qp, qp->hold_head);
	}
}
