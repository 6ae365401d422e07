/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Between order.c, which says when a WR goes, and spread.c, which puts it on several paths: keys,
 * cuts, pieces. Everything here is called with the QP's sq_lock held.
 */
#ifndef BOND_SPREAD_H
#define BOND_SPREAD_H

#include "bond.h"
#include "order.h"
#include "path.h"

/* What became of a WR that was to start. */
enum start {
	START_DONE,
	START_WAIT,
	START_DRAIN,		/* wait until nothing is in flight */
	START_LEAD,		/* not to be spread: take the lead */
	START_DOUBT,		/* the same, because it may well fail */
};

/* Is the WR one to spread, as far as can be said without looking at others? */
bool order_spreadable(struct bond_qp *qp, const struct sq_wr *wr);
enum start order_spread(struct bond_qp *qp, uint32_t seq, struct sq_wr *wr);

/* Is it a READ that every member has to execute? */
bool order_is_flush(const struct bond_qp *qp, const struct sq_wr *wr);
enum start order_flush(struct bond_qp *qp, uint32_t seq, struct sq_wr *wr);

/* May a WR go to the lead as a whole, given what is under way on other paths? */
bool order_lead_may_go(struct bond_qp *qp, uint32_t seq, const struct sq_wr *wr, bool doubt);

/*
 * A message makes known what is before it by its completion, so no tail before it need be held. false:
 * one must be, as it would be ahead of older bytes for the same place.
 */
bool tails_release(struct bond_qp *qp, uint32_t seq);

/* Nothing is in flight that could be heard of. */
static inline bool order_drained(const struct bond_qp *qp)
{
	return !qp->off_lead && !qp->lead_due;
}

/*
 * Room for @n pieces, and beyond them for as many WRs as the application may post: the short way
 * through post does not look.
 */
static inline bool order_room(const struct path *path, unsigned int n)
{
	return path_room(path) > path->qp->sq_mask + n;
}

/* May the WR, a message, be ahead of what is on other paths, its receiver being told of that? */
static inline bool order_notifies(const struct bond_qp *qp, const struct sq_wr *wr)
{
	return qp->spreading && qp->notify.tx && opcode_is_message(wr->opcode) &&
	       !(wr->send_flags & IBV_SEND_FENCE);
}

#endif
