/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* See overlap.h. */
#include "objects.h"
#include "order.h"
#include "overlap.h"

uint32_t wr_remote_len(const struct sq_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
		return wr->len;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return sizeof(uint64_t);
	default:
		return 0;
	}
}

/* Goes over what a piece covers of its WR's SGEs. */
struct sge_walk {
	const struct ibv_sge *sge;
	unsigned int num_sge;
	uint64_t skip, left;		/* bytes until the next part, and of the piece */
	uint64_t addr, len;		/* the part */
};

static struct sge_walk sge_walk(struct bond_qp *qp, const struct sq_wr *wr, uint32_t seq,
				uint64_t off, uint64_t len)
{
	return (struct sge_walk){
		.sge = sq_sges(qp, seq), .num_sge = wr->num_sge, .skip = off, .left = len,
	};
}

static bool sge_next(struct sge_walk *w)
{
	for (; w->num_sge && w->left; w->sge++, w->num_sge--) {
		if (w->skip >= w->sge->length) {
			w->skip -= w->sge->length;
			continue;
		}
		w->addr = w->sge->addr + w->skip;
		w->len = w->sge->length - w->skip < w->left ? w->sge->length - w->skip : w->left;
		w->left -= w->len;
		w->skip = 0;
		w->sge++;
		w->num_sge--;
		return true;
	}
	return false;
}

bool overlap_local(struct bond_qp *qp, const struct sq_wr *wr, uint32_t seq, uint64_t off,
		   uint64_t len, unsigned int path)
{
	struct sge_walk w = sge_walk(qp, wr, seq, off, len);

	while (sge_next(&w))
		if (!slot_check(qp->local_slots, w.addr, w.len, path))
			return true;
	return false;
}

void overlap_add(struct bond_qp *qp, const struct sq_wr *wr, struct piece *piece, unsigned int path)
{
	struct sge_walk w = sge_walk(qp, wr, piece->seq, piece->off, piece->len);

	/* A small WRITE and the like on the lead is found by overlap_lead(). */
	if (!qp->spreading ||
	    (piece->flags & PIECE_WHOLE && wr->len < qp->stripe_above &&
	     wr->opcode != IBV_WR_RDMA_READ))
		return;
	piece->flags |= PIECE_TRACKED;
	if (piece->len)
		slot_add(qp->slots, piece->raddr, piece->len, path);
	while (wr->opcode == IBV_WR_RDMA_READ && sge_next(&w))
		slot_add(qp->local_slots, w.addr, w.len, path);
}

void overlap_sub(struct bond_qp *qp, const struct sq_wr *wr, const struct piece *piece)
{
	struct sge_walk w = sge_walk(qp, wr, piece->seq, piece->off, piece->len);

	if (piece->len)
		slot_sub(qp->slots, piece->raddr, piece->len);
	while (wr->opcode == IBV_WR_RDMA_READ && sge_next(&w))
		slot_sub(qp->local_slots, w.addr, w.len);
}

bool overlap_lead(const struct bond_qp *qp, const struct sq_wr *wr)
{
	const struct path *lead = &qp->path[0];
	uint32_t i;

	for (i = lead->head; i != lead->tail; i++) {
		const struct piece *piece = &lead->ring[i & lead->mask];
		const struct sq_wr *other = &qp->sq[piece->seq & qp->sq_mask];

		/* Our own, and an immediate without data, touch nothing of the application's. */
		if (!(piece->flags & (PIECE_TRACKED | PIECE_HEADER | PIECE_IMM)) &&
		    ranges_meet(wr->raddr, wr->len, other->raddr, wr_remote_len(other)))
			return true;
	}
	return false;
}

bool overlap_held(const struct bond_qp *qp, const struct sq_wr *wr, uint32_t end)
{
	uint32_t i;

	for (i = qp->hold_head; i != end; i++) {
		const struct hold *hold = &qp->hold[i & qp->sq_mask];
		const struct sq_wr *held = &qp->sq[hold->seq & qp->sq_mask];

		if (hold->kind == HOLD_TAIL &&
		    ranges_meet(wr->raddr, wr->len - BOND_TAIL_BYTES,
				held->raddr + held->len - BOND_TAIL_BYTES, BOND_TAIL_BYTES))
			return true;
	}
	return false;
}
