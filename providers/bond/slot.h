/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Slots: which path the bytes of a QP's remote address space stick to while pieces that touch them
 * are in flight. Two pieces that overlap go the same path, where RC keeps their order (design 5,
 * "Slots keep RC's order"). A second table does the same for the local bytes that READs fill.
 *
 * Addresses are cut in units of SLOT_SIZE. A unit is found by its low bits alone, so units far
 * apart share an entry: that may join pieces without need and never parts two that overlap.
 *
 * Not here: how much goes where (sched.h, plan.h). Callers hold the QP's send lock. Small pieces
 * are the hot case and inline; slot.c has the walk over many units.
 */
#ifndef BOND_SLOT_H
#define BOND_SLOT_H

#include <stdbool.h>
#include <stdint.h>

enum {
	SLOT_SHIFT = 13,
	SLOT_SIZE = 1 << SLOT_SHIFT,	/* bytes */
	SLOT_COUNT = 2048,
	SLOT_FREE = -1,			/* no piece in flight here: any path */
	SLOT_MIXED = 0xff,		/* pieces on several paths: wait until they are done */
};

/*
 * A unit may be split once: part 0 is [0, split), part 1 is [split, SLOT_SIZE), so split == 0 is
 * one part. Each part has its path and the number of pieces in flight that touch it; the path of a
 * part without any means nothing. The split changes only while both counts are zero: that is why
 * slot_sub() finds the parts that slot_add() counted.
 */
struct slot {
	uint16_t split;
	uint8_t path[2];
	uint32_t count[2];
};

/* All zero is empty: calloc() makes one. */
struct slot_table {
	struct slot slot[SLOT_COUNT];
};

static inline uint32_t slot_offset(uint64_t addr)
{
	return addr & (SLOT_SIZE - 1);
}

static inline const struct slot *slot_at(const struct slot_table *t, uint64_t addr)
{
	return &t->slot[(addr >> SLOT_SHIFT) % SLOT_COUNT];
}

static inline bool slot_idle(const struct slot *s)
{
	return !(s->count[0] | s->count[1]);
}

static inline void slot_add_part(struct slot *s, int part, unsigned int path)
{
	if (!s->count[part]++)
		s->path[part] = path;
	else if (s->path[part] != path)
		s->path[part] = SLOT_MIXED;
}

/* Bytes [begin, end) of one unit. An idle one is split where they end, else where they begin. */
static inline void slot_add_unit(struct slot *s, uint32_t begin, uint32_t end, unsigned int path)
{
	if (slot_idle(s))
		s->split = end < SLOT_SIZE ? end : begin;
	if (begin < s->split)
		slot_add_part(s, 0, path);
	if (end > s->split)
		slot_add_part(s, 1, path);
}

static inline void slot_sub_unit(struct slot *s, uint32_t begin, uint32_t end)
{
	if (begin < s->split)
		s->count[0]--;
	if (end > s->split)
		s->count[1]--;
}

/* One part's answer for a piece that wants to go on the path. */
static inline bool slot_part_ok(const struct slot *s, int part, unsigned int path)
{
	return !s->count[part] || s->path[part] == path;
}

static inline bool slot_unit_ok(const struct slot *s, uint32_t begin, uint32_t end,
				unsigned int path)
{
	return (begin >= s->split || slot_part_ok(s, 0, path)) &&
	       (end <= s->split || slot_part_ok(s, 1, path));
}

void slot_add_long(struct slot_table *t, uint64_t addr, uint64_t len, unsigned int path);
void slot_sub_long(struct slot_table *t, uint64_t addr, uint64_t len);
bool slot_check_long(const struct slot_table *t, uint64_t addr, uint64_t len, unsigned int path);

/*
 * Counts a piece of len bytes (0 is nothing) that is given to a path. Where pieces of other paths
 * are counted in the same part the part becomes SLOT_MIXED: whoever adds has asked first, or knows
 * that the bytes themselves do not overlap.
 */
static inline void slot_add(struct slot_table *t, uint64_t addr, uint64_t len, unsigned int path)
{
	uint32_t begin = slot_offset(addr);

	if (begin + len <= SLOT_SIZE) {
		if (len)
			slot_add_unit((struct slot *)slot_at(t, addr), begin, begin + len, path);
	} else {
		slot_add_long(t, addr, len, path);
	}
}

/* Takes back slot_add() of the same address and length, once the piece is done. */
static inline void slot_sub(struct slot_table *t, uint64_t addr, uint64_t len)
{
	uint32_t begin = slot_offset(addr);

	if (begin + len <= SLOT_SIZE) {
		if (len)
			slot_sub_unit((struct slot *)slot_at(t, addr), begin, begin + len);
	} else {
		slot_sub_long(t, addr, len);
	}
}

/* Whether a piece may go on the path now: nothing that it touches is in flight on another. */
static inline bool slot_check(const struct slot_table *t, uint64_t addr, uint64_t len,
			      unsigned int path)
{
	uint32_t begin = slot_offset(addr);

	if (begin + len <= SLOT_SIZE)
		return !len || slot_unit_ok(slot_at(t, addr), begin, begin + len, path);
	return slot_check_long(t, addr, len, path);
}

/*
 * What holds at addr, and how far: a path's number, SLOT_FREE or SLOT_MIXED, the same for the next
 * *run bytes, at most len. len is not 0.
 */
int slot_route(const struct slot_table *t, uint64_t addr, uint64_t len, uint64_t *run);

/*
 * The one path that a piece may take uncut: a path's number, SLOT_FREE for any, or SLOT_MIXED where
 * it must wait.
 */
int slot_path(const struct slot_table *t, uint64_t addr, uint64_t len);

/* No piece is counted at all. Walks the whole table: for tests and for a QP that was drained. */
bool slot_table_empty(const struct slot_table *t);

#endif
