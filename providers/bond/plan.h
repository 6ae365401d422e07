/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Planning: into which pieces an operation is cut and which path each takes. It brings together
 * what must be (slots) and what is best (scheduler). Pure: the caller posts the pieces, counts them
 * with slot_add() and sched_posted(), and takes them back with slot_sub() and sched_acked().
 *
 * Not here: who has to wait for whom beyond overlapping bytes (FENCE, small behind large, tails).
 * Next: plan.c for the rules of cutting, sched.h for the shares.
 */
#ifndef BOND_PLAN_H
#define BOND_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "slot.h"

enum {
	BOND_MAX_PATHS = 16,
	PLAN_MAX_PIECES = 2 * BOND_MAX_PATHS + 2,	/* what plan_cut() may need for all paths */
	PLAN_MIN_PIECE = 8192,				/* bytes; forced ones may be shorter */
	PLAN_TAIL = 128,				/* bytes that want_tail leaves out */
	PLAN_PARTS = 4,					/* at most, that a piece is posted in */
	PLAN_MIN_PART = 262144,				/* bytes; rounded to the nearest number of parts */
};

struct slot_table;
struct sched;

struct plan_op {
	uint64_t raddr;
	uint64_t len;		/* bytes, more than PLAN_TAIL */
	unsigned int lead;	/* the path that the tail will take */
	bool want_tail;		/* leave the last PLAN_TAIL bytes to the caller */
};

/* Pieces come in order of address, without gaps, neighbours on different paths. */
struct plan_piece {
	uint64_t off;		/* from op->raddr */
	uint64_t len;
	unsigned int path;
};

/*
 * A piece is posted in parts, each acknowledged by itself. So a path that is not known yet soon is, and
 * gets its next piece before it runs dry; and a NIC whose driver answers a READ in one go, as soft-RoCE
 * does, is not kept from its other ports for as long as a large one takes.
 *
 * How long the next part is of what is left of a piece: all of it, or up to a border of slots.
 * @piece_len: the whole piece's.
 */
static inline uint64_t plan_part(uint64_t piece_len, uint64_t raddr, uint64_t left)
{
	uint64_t num = (piece_len + PLAN_MIN_PART / 2) / PLAN_MIN_PART, end;

	if (num < 2)
		return left;
	if (num > PLAN_PARTS)
		num = PLAN_PARTS;
	end = raddr + (piece_len + num - 1) / num;
	end = (end + SLOT_SIZE - 1) & -(uint64_t)SLOT_SIZE;
	return end - raddr < left ? end - raddr : left;
}

enum plan_result {
	PLAN_OK,
	/*
	 * It would overlap pieces of several paths, or its tail those of another than the lead, or
	 * it would be too many pieces, or queue up behind a path that has shown nothing yet: hold
	 * the operation and ask again when a piece is done.
	 */
	PLAN_WAIT,
	/*
	 * Everything that it touches is in flight on paths that were chosen badly: hold this and
	 * later operations until nothing is in flight, then ask again and get a fresh cut. A second
	 * call before that answers as if this had not been offered.
	 */
	PLAN_REBALANCE,
};

/*
 * Cuts one operation. pieces has room for max, which should be 2 * paths + 2; *num is set with
 * PLAN_OK. slots and the bytes in flight are only read; the scheduler's account of how well the
 * cuts fit is brought forward, so call it once for each operation and each try. now_ns is any clock
 * that does not go back, the one given to sched_posted().
 *
 * Without a usable path: PLAN_WAIT.
 */
enum plan_result plan_cut(const struct plan_op *op, const struct slot_table *slots,
			  struct sched *sched, uint64_t now_ns, struct plan_piece *pieces,
			  unsigned int max, unsigned int *num);

#endif
