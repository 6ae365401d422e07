/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The word of a CQ that says whether a poll must look at more than the primary's CQ: three flags
 * and, above them, how many pieces are due on other members.
 */
#ifndef BOND_CQ_H
#define BOND_CQ_H

#include "bond.h"

enum cq_rest {
	CQ_REST_SOFT = 1 << 0,		/* soft has completions */
	CQ_REST_READY = 1 << 1,		/* the ready list has QPs */
	CQ_REST_ATTENTION = 1 << 2,	/* the attention list has */
	CQ_REST_DUE = 1 << 3,		/* one piece */
};

static inline void cq_rest_set(struct bond_cq *cq, enum cq_rest flag)
{
	atomic_fetch_or_explicit(&cq->rest, flag, memory_order_relaxed);
}

static inline void cq_rest_clear(struct bond_cq *cq, enum cq_rest flag)
{
	atomic_fetch_and_explicit(&cq->rest, ~(unsigned int)flag, memory_order_relaxed);
}

/*
 * A member's CQ comes while others poll: without the CQ's lock, which an application may hold for
 * long. Pairs with the releases in bond_cq_member().
 */
static inline unsigned int cq_nmcqs(const struct bond_cq *cq)
{
	return __atomic_load_n(&cq->nmcqs, __ATOMIC_ACQUIRE);
}

static inline struct ibv_cq *mcq_cq(const struct mcq *mcq)
{
	return __atomic_load_n(&mcq->cq, __ATOMIC_ACQUIRE);
}

/* A completion that the bond waits for is on its way to a member's CQ. */
static inline void mcq_due_add(struct mcq *mcq)
{
	atomic_fetch_add_explicit(&mcq->due, 1, memory_order_relaxed);
	if (mcq != &mcq->owner->mcq[0])
		atomic_fetch_add_explicit(&mcq->owner->rest, CQ_REST_DUE, memory_order_relaxed);
}

static inline void mcq_due_sub(struct mcq *mcq)
{
	atomic_fetch_sub_explicit(&mcq->due, 1, memory_order_relaxed);
	if (mcq != &mcq->owner->mcq[0])
		atomic_fetch_sub_explicit(&mcq->owner->rest, CQ_REST_DUE, memory_order_relaxed);
}

/* The same of a marker; it takes no room from pieces. */
static inline void mcq_wait(struct mcq *mcq, bool waits)
{
	const unsigned int one = CQ_REST_DUE;

	atomic_fetch_add_explicit(&mcq->waiting, waits ? 1 : -1, memory_order_relaxed);
	if (mcq != &mcq->owner->mcq[0])
		atomic_fetch_add_explicit(&mcq->owner->rest, waits ? one : -one,
					  memory_order_relaxed);
}

#endif
