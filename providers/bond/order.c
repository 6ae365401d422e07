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

enum start {
	START_DONE,
	START_WAIT,
	START_DRAIN,		/* wait until nothing is in flight */
	START_LEAD,		/* not to be spread: take the lead */
	START_DOUBT,		/* the same, because it may well fail */
};

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
	uint32_t seq = (int32_t)(qp->sq_scan - qp->sq_head) < 0 ? qp->sq_head : qp->sq_scan;

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

/* A piece that the scheduler counts went into a path's queue. */
static void order_posted(struct bond_qp *qp, const struct sq_wr *wr, struct piece *piece,
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

/* ---- the lead ---- */

/* Is the WR one to spread, as far as can be said without looking at others? */
static bool order_spreadable(struct bond_qp *qp, const struct sq_wr *wr)
{
	if (!qp->spreading || qp->npaths < 2 || qp->doubt_left || wr->len < qp->stripe_above ||
	    wr->len > BOND_MAX_MSG || wr->send_flags & IBV_SEND_INLINE)
		return false;
	if (wr->opcode == IBV_WR_RDMA_READ)
		return !qp->sync_left;
	return wr->opcode == IBV_WR_RDMA_WRITE;
}

/* Is a tail of an older WR still held? What goes to the lead goes behind it. */
static bool held_before(const struct bond_qp *qp, uint32_t seq)
{
	return order_holds(qp) && qp->ordering != CONFIG_ORDERING_COMPLETION &&
	       (int32_t)(qp->hold[qp->hold_head & qp->sq_mask].seq - seq) < 0;
}

/* May a WR go to the lead as a whole, given what is under way on other paths? */
static bool order_lead_may_go(struct bond_qp *qp, uint32_t seq, const struct sq_wr *wr,
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

	/* Nothing passes a fence, on whatever path. */
	doubt |= qp->spreading && wr->send_flags & IBV_SEND_FENCE;
	if (!order_lead_may_go(qp, seq, wr, doubt))
		return START_WAIT;
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
	if (qp->spreading && (piece->len >= qp->stripe_above || piece->flags & PIECE_ATOMIC)) {
		/*
		 * The scheduler must know what keeps the lead busy, and the end of an atomic lets a
		 * WRITE go.
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

/* ---- spreading ---- */

/* Will the local side of the WR stand, on every member? */
static bool lkeys_good(struct bond_qp *qp, const struct sq_wr *wr, uint32_t seq)
{
	return lkey_check(&qp->bctx->lkeys, sq_sges(qp, seq), wr->num_sge, qp->pd_id,
			  wr->opcode == IBV_WR_RDMA_READ, qp->bctx->nmembers);
}

/* The rkey of each path; false: not all known (yet). */
static bool spread_keys(struct bond_qp *qp, const struct sq_wr *wr, uint32_t seq, uint32_t *rkey)
{
	uint32_t access = wr->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ :
							   IBV_ACCESS_REMOTE_WRITE;
	struct rkey_region region;
	unsigned int i;

	if (!rkey_find(&qp->rkeys, wr->rkey, &region)) {
		bond_peer_key_ask(qp, wr->rkey);
		qp->stats.no_key++;
		return false;
	}
	if (!rkey_allows(&region, wr->raddr, wr->len, access) ||
	    !(qp->peer_access & access) || !lkeys_good(qp, wr, seq))
		return false;
	rkey[0] = wr->rkey;
	for (i = 1; i < qp->npaths; i++) {
		if (qp->path[i].broken)
			continue;
		if (qp->path[i].peer_member >= region.nkeys)
			return false;
		rkey[i] = region.key[qp->path[i].peer_member];
	}
	return true;
}

/*
 * Room for @n pieces, and beyond them for as many WRs as the application may post: the short way
 * through post does not look.
 */
static bool order_room(const struct path *path, unsigned int n)
{
	return path_room(path) > path->qp->sq_mask + n;
}

static bool spread_fits(struct bond_qp *qp, const struct sq_wr *wr, uint32_t seq,
			const struct plan_piece *cut, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		/* Room for all that this WR could put there. */
		if (!order_room(&qp->path[cut[i].path], n))
			return false;
		if (wr->opcode == IBV_WR_RDMA_READ &&
		    overlap_local(qp, wr, seq, cut[i].off, cut[i].len, cut[i].path))
			return false;
	}
	return true;
}

static void spread_pieces(struct bond_qp *qp, struct sq_wr *wr, uint32_t seq,
			  const struct plan_piece *cut, unsigned int n, const uint32_t *rkey)
{
	uint64_t now = clock_ns();
	unsigned int i;

	for (i = 0; i < n; i++) {
		struct path *path = &qp->path[cut[i].path];
		struct piece *piece = path_append(path);

		*piece = (struct piece){ .raddr = wr->raddr + cut[i].off, .seq = seq,
					 .len = cut[i].len, .off = cut[i].off, .rkey = rkey[cut[i].path],
					 .flags = PIECE_DUE };
		order_posted(qp, wr, piece, path, now);
	}
	wr->left = n;
}

/* Nothing is in flight that could be heard of; see spread_wait(). */
static bool drained(const struct bond_qp *qp)
{
	return !qp->off_lead && !qp->lead_due;
}

/*
 * Something is in the way. As long as pieces are in flight that will be heard of, wait for those.
 * What is left then is on the lead, perhaps unsignalled for ever, but there everything is in order:
 * so the WR follows it there.
 */
static enum start spread_wait(const struct bond_qp *qp)
{
	return drained(qp) ? START_LEAD : START_WAIT;
}

static enum start order_spread(struct bond_qp *qp, uint32_t seq, struct sq_wr *wr)
{
	struct plan_piece cut[PLAN_MAX_PIECES];
	struct plan_op op = { .raddr = wr->raddr, .len = wr->len,
			      .want_tail = wr->opcode == IBV_WR_RDMA_WRITE &&
					   qp->ordering != CONFIG_ORDERING_COMPLETION };
	uint32_t rkey[BOND_MAX_PATHS];
	unsigned int i, n = 0;

	/* The NIC knows when its own READs are done; an unsignalled one nobody else hears of. */
	if (wr->send_flags & IBV_SEND_FENCE && order_oldest(qp) != seq)
		return START_LEAD;
	/* Nor may it be ahead of an atomic, whose end is heard of. A READ is not spread then at all. */
	if (qp->atomics_left)
		return START_WAIT;
	/* A bad key fails behind all that is older and ahead of all that is younger, if it fails. */
	if (!spread_keys(qp, wr, seq, rkey))
		return START_DOUBT;
	if (overlap_lead(qp, wr))
		return START_LEAD;
	switch (plan_cut(&op, qp->slots, &qp->sched, clock_ns(), cut, 2 * qp->npaths + 2, &n)) {
	case PLAN_OK:
		break;
	case PLAN_WAIT:
		return spread_wait(qp);
	case PLAN_REBALANCE:
		/* Where nothing is to come that could end the wait, do not begin it. */
		return drained(qp) ? START_LEAD : START_DRAIN;
	}
	if (!spread_fits(qp, wr, seq, cut, n))
		return spread_wait(qp);
	spread_pieces(qp, wr, seq, cut, n, rkey);
	qp->stats.spread++;
	if (op.want_tail) {
		wr->left++;
		wr->flags |= WR_TAIL;
	}
	for (i = 0; i < qp->npaths; i++)
		if (path_backlog(&qp->path[i]))
			path_push(&qp->path[i]);
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
	else if (wr_may_bounce(qp, wr))
		start = START_DOUBT;
	if (start == START_LEAD || start == START_DOUBT)
		start = order_lead(qp, seq, wr, start == START_DOUBT);
	return start;
}

void order_submit(struct bond_qp *qp, uint32_t seq)
{
	struct sq_wr *wr = &qp->sq[seq & qp->sq_mask];
	enum start start = START_WAIT;

	wr->left = 1;
	if (unlikely(qp->error)) {
		order_refuse(qp, seq);
		return;
	}
	if (!order_holds(qp) || (!qp->hold_blockers && order_may_pass(qp, wr, qp->hold_tail)))
		start = order_start(qp, seq);
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

static enum start release_tail(struct bond_qp *qp, uint32_t seq)
{
	struct sq_wr *wr = &qp->sq[seq & qp->sq_mask];
	uint32_t off = wr->len - BOND_TAIL_BYTES, rkey;
	struct path *path = tail_path(qp, wr, &rkey);
	struct piece *piece;

	/* Its own body, and all before it, off the lead. */
	if (!path || off_lead_before(qp, seq + 1) || !order_room(path, 1))
		return START_WAIT;
	piece = path_append(path);
	*piece = (struct piece){ .raddr = wr->raddr + off, .seq = seq, .len = BOND_TAIL_BYTES,
				 .off = off, .rkey = rkey, .flags = PIECE_TAIL | PIECE_DUE };
	wr->flags &= ~WR_TAIL;
	order_posted(qp, wr, piece, path, clock_ns());
	path_push(path);
	return START_DONE;
}

static enum start release_one(struct bond_qp *qp, const struct hold *hold, uint32_t at)
{
	switch ((enum hold_kind)hold->kind) {
	case HOLD_TAIL:
		/* In order among themselves. */
		return at == qp->hold_head ? release_tail(qp, hold->seq) : START_WAIT;
	case HOLD_DRAIN:
		if (!drained(qp))
			return START_DRAIN;
		break;
	case HOLD_NONE:
		return START_DONE;
	case HOLD_WR:
		if (at != qp->hold_head &&
		    !order_may_pass(qp, &qp->sq[hold->seq & qp->sq_mask], at))
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
