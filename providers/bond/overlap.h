/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which bytes WRs touch that are under way, at the remote end and, for READs, here: RC executes in
 * posted order what overlaps, so it must not go on two paths at once. Most is counted in slots
 * (slot.h); not so what is small and on the lead, which is found in the lead's queue, and held
 * tails, which are found in the queue of what is held.
 *
 * Everything here is called with the QP's sq_lock held. Next: order.c.
 */
#ifndef BOND_OVERLAP_H
#define BOND_OVERLAP_H

#include "bond.h"

/* By last bytes, so that a range may end with the address space. */
static inline bool ranges_meet(uint64_t a, uint64_t a_len, uint64_t b, uint64_t b_len)
{
	return a_len && b_len && a <= b + (b_len - 1) && b <= a + (a_len - 1);
}

/* How many bytes at its remote address a WR touches. */
uint32_t wr_remote_len(const struct sq_wr *wr);

/* A piece of @wr goes into the slots, or leaves them. It is marked PIECE_TRACKED if it is there. */
void overlap_add(struct bond_qp *qp, const struct sq_wr *wr, struct piece *piece,
		 unsigned int path);
void overlap_sub(struct bond_qp *qp, const struct sq_wr *wr, const struct piece *piece);

/* Would @len bytes of the WR from @off, on @path, deliver where a READ on another still does? */
bool overlap_local(struct bond_qp *qp, const struct sq_wr *wr, uint32_t seq, uint64_t off,
		   uint64_t len, unsigned int path);

/* Does a WR under way on the lead and in no slot touch what this one does? */
bool overlap_lead(const struct bond_qp *qp, const struct sq_wr *wr);

/*
 * Does the WR touch what a held tail, of those before @end in the queue of held work, has still to
 * write? By bytes: ib_write_bw reuses its buffer. Its own tail queues up behind theirs.
 */
bool overlap_held(const struct bond_qp *qp, const struct sq_wr *wr, uint32_t end);

#endif
