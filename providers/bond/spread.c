/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* See spread.h. How the bytes are cut: plan.c. */
#include "clock.h"
#include "objects.h"
#include "order.h"
#include "overlap.h"
#include "path.h"
#include "peer.h"
#include "spread.h"

bool order_spreadable(struct bond_qp *qp, const struct sq_wr *wr)
{
	if (!qp->spreading || qp->npaths < 2 || qp->doubt_left || wr->len < qp->stripe_above ||
	    wr->len > BOND_MAX_MSG || wr->send_flags & IBV_SEND_INLINE)
		return false;
	if (wr->opcode == IBV_WR_RDMA_READ)
		return !qp->sync_left;
	return wr->opcode == IBV_WR_RDMA_WRITE ||
	       (wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && order_notifies(qp, wr));
}

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

static bool spread_fits(struct bond_qp *qp, const struct sq_wr *wr, uint32_t seq,
			const struct plan_piece *cut, unsigned int n)
{
	unsigned int i, parts[BOND_MAX_PATHS] = { 0 };

	for (i = 0; i < n; i++) {
		parts[cut[i].path] += PLAN_PARTS;
		/* And for a tail. */
		if (!order_room(&qp->path[cut[i].path], parts[cut[i].path] + 1))
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
	uint64_t now = clock_ns(), done, len;
	unsigned int i;

	wr->left = 0;
	for (i = 0; i < n; i++)
		for (done = 0; done < cut[i].len; done += len) {
			struct path *path = &qp->path[cut[i].path];
			struct piece *piece = path_append(path);
			uint64_t off = cut[i].off + done;

			len = plan_part(cut[i].len, wr->raddr + off, cut[i].len - done);
			*piece = (struct piece){ .raddr = wr->raddr + off, .seq = seq, .len = len,
						 .off = off, .rkey = rkey[cut[i].path],
						 .flags = PIECE_DUE };
			order_posted(qp, wr, piece, path, now);
			wr->left++;
		}
}

/*
 * Something is in the way. As long as pieces are in flight that will be heard of, wait for those.
 * What is left then is on the lead, perhaps unsignalled for ever, but there everything is in order:
 * so the WR follows it there.
 */
static enum start spread_wait(const struct bond_qp *qp)
{
	return order_drained(qp) ? START_LEAD : START_WAIT;
}

/* The data is on its way; the immediate, of no bytes, follows on the lead. */
static void spread_imm(struct bond_qp *qp, struct sq_wr *wr, uint32_t seq)
{
	struct piece *piece;

	notify_send(qp, seq, wr, wr->len,
		    NOTIFY_LENGTH | (wr->send_flags & IBV_SEND_SOLICITED ? NOTIFY_SOLICITED : 0));
	piece = path_append(&qp->path[0]);
	*piece = (struct piece){
		.seq = seq, .raddr = wr->raddr, .rkey = wr->rkey,
		.flags = PIECE_IMM | PIECE_DUE | (qp->rnr_ends ? PIECE_DOUBT : 0),
	};
	order_posted(qp, wr, piece, &qp->path[0], 0);
	qp->doubt_left += qp->rnr_ends;
	wr->left++;
	qp->messages++;
}

/*
 * Is something on the lead that will say nothing of its end by itself? Then this WR has to, or its
 * own completion would wait for that for ever.
 */
static bool lead_is_silent(const struct bond_qp *qp)
{
	const struct path *lead = &qp->path[0];
	const struct piece *youngest = &lead->ring[(lead->tail - 1) & lead->mask];

	return lead->head != lead->tail && !(youngest->flags & PIECE_DUE) &&
	       !(qp->sq[youngest->seq & qp->sq_mask].send_flags & IBV_SEND_SIGNALED);
}

static bool cut_has_lead(const struct plan_piece *cut, unsigned int n)
{
	while (n--)
		if (!cut[n].path)
			return true;
	return false;
}

enum start order_spread(struct bond_qp *qp, uint32_t seq, struct sq_wr *wr)
{
	struct plan_piece cut[PLAN_MAX_PIECES];
	struct plan_op op = { .raddr = wr->raddr, .len = wr->len,
			      .want_tail = wr->opcode == IBV_WR_RDMA_WRITE &&
					   qp->ordering != CONFIG_ORDERING_COMPLETION };
	bool imm = wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
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
	if (imm && (!notify_may(qp) || !tails_release(qp, seq)))
		return spread_wait(qp);
	switch (plan_cut(&op, qp->slots, &qp->sched, clock_ns(), cut, 2 * qp->npaths + 2, &n)) {
	case PLAN_OK:
		break;
	case PLAN_WAIT:
		return spread_wait(qp);
	case PLAN_REBALANCE:
		/* Where nothing is to come that could end the wait, do not begin it. */
		return order_drained(qp) ? START_LEAD : START_DRAIN;
	}
	if (!spread_fits(qp, wr, seq, cut, n))
		return spread_wait(qp);
	if (!op.want_tail && !imm && lead_is_silent(qp) && !cut_has_lead(cut, n))
		return START_LEAD;
	spread_pieces(qp, wr, seq, cut, n, rkey);
	if (imm)
		spread_imm(qp, wr, seq);
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
 * A READ on a QP connected to itself is how applications make sure that what NICs have delivered is
 * in memory; each member has to be asked. All deliver the same bytes.
 */
bool order_is_flush(const struct bond_qp *qp, const struct sq_wr *wr)
{
	return qp->spreading && qp->npaths > 1 && qp->to_itself && !qp->doubt_left &&
	       wr->opcode == IBV_WR_RDMA_READ && wr->len && wr->len < qp->stripe_above &&
	       !(wr->send_flags & IBV_SEND_FENCE);
}

enum start order_flush(struct bond_qp *qp, uint32_t seq, struct sq_wr *wr)
{
	uint32_t rkey[BOND_MAX_PATHS];
	unsigned int i;

	if (!order_lead_may_go(qp, seq, wr, false))
		return START_WAIT;
	if (!spread_keys(qp, wr, seq, rkey))
		return START_LEAD;
	for (i = 0; i < qp->npaths; i++)
		if (!qp->path[i].broken && !order_room(&qp->path[i], 1))
			return START_WAIT;
	wr->left = 0;
	for (i = 0; i < qp->npaths; i++) {
		struct path *path = &qp->path[i];
		struct piece *piece;

		if (path->broken)
			continue;
		piece = path_append(path);
		*piece = (struct piece){ .raddr = wr->raddr, .seq = seq, .len = wr->len,
					 .rkey = rkey[i], .flags = PIECE_DUE };
		if (!i) {
			piece->flags |= PIECE_SYNC;
			qp->sync_left++;
		}
		order_posted(qp, wr, piece, path, clock_ns());
		wr->left++;
	}
	for (i = 0; i < qp->npaths; i++)
		if (path_backlog(&qp->path[i]))
			path_push(&qp->path[i]);
	return START_DONE;
}
