/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What may go now, what must wait, and what goes where (design 5 and 6). A WR of the application
 * is submitted once; it is either put on its way as pieces, or held, whole or its last bytes,
 * until what it follows was acknowledged. Held work is released in the order it came.
 *
 * Everything here is called with the QP's sq_lock held.
 */
#ifndef BOND_ORDER_H
#define BOND_ORDER_H

#include "bond.h"

/*
 * A new WR, saved in sq[seq], the youngest. 0, or what the member answered that refused it: then
 * nothing has happened to it, and the caller takes it back.
 */
int order_submit(struct bond_qp *qp, uint32_t seq);
/* Something was acknowledged: let go what waited for it. */
void order_release(struct bond_qp *qp);
/* What is held will never go: its completions say so. */
void order_flush_held(struct bond_qp *qp);
/* The QP is in error: the youngest WR is flushed. */
void order_refuse(struct bond_qp *qp, uint32_t seq);
/*
 * The WR failed. Nothing more goes out; what was accepted after it is flushed as soon as what came
 * before it has ended. That is order_fence(), which the caller sees to once its own work is done.
 */
void order_fail(struct bond_qp *qp, uint32_t seq, enum ibv_wc_status status, uint32_t vendor_err);
/* In error: takes the paths to ERR once that is due, and flushes what never went out. */
void order_fence(struct bond_qp *qp);
/* A beacon came back: if it is the last, all that was in flight on @path has been heard of. */
void order_beacon(struct path *path, uint32_t id);
/* A piece that the scheduler counts went into a path's queue. */
void order_posted(struct bond_qp *qp, const struct sq_wr *wr, struct piece *piece,
		  struct path *path, uint64_t now_ns);
/* The oldest WR that is not done; sq_tail: none. */
uint32_t order_oldest(const struct bond_qp *qp);

static inline bool order_holds(const struct bond_qp *qp)
{
	return qp->hold_head != qp->hold_tail;
}

/* Does it consume a receive at the peer? */
static inline bool opcode_is_message(unsigned int opcode)
{
	return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
	       opcode == IBV_WR_SEND_WITH_INV || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static inline bool opcode_is_atomic(unsigned int opcode)
{
	return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* READs and atomics on the lead that a later READ must not overtake. */
static inline bool opcode_is_sync(unsigned int opcode)
{
	return opcode == IBV_WR_RDMA_READ || opcode_is_atomic(opcode);
}

#endif
