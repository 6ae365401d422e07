/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Slots over many units, see slot.h. All walks step by what is left, not towards an end address,
 * because the last byte of the address space may belong to a piece.
 *
 * A piece longer than the table comes to the same entry several times; add and sub do so alike.
 */
#include "slot.h"

/* How many bytes of the piece are in the unit of addr. */
static uint32_t unit_bytes(uint64_t addr, uint64_t len)
{
	uint32_t room = SLOT_SIZE - slot_offset(addr);

	return len < room ? len : room;
}

/*
 * Whole units from addr on that are neighbours in the table, too: at most as many as bytes allow.
 * The long walks spend their time in loops over these, a few instructions for each unit.
 */
static uint64_t whole_units(uint64_t addr, uint64_t len)
{
	uint64_t room = SLOT_COUNT - (addr >> SLOT_SHIFT) % SLOT_COUNT, n = len >> SLOT_SHIFT;

	return n < room ? n : room;
}

static void add_whole(struct slot *s, uint64_t num, unsigned int path)
{
	for (; num; num--, s++) {
		if (slot_idle(s))
			s->split = 0;
		else if (s->split)
			slot_add_part(s, 0, path);
		slot_add_part(s, 1, path);
	}
}

void slot_add_long(struct slot_table *t, uint64_t addr, uint64_t len, unsigned int path)
{
	while (len) {
		uint32_t begin = slot_offset(addr);
		struct slot *s = (struct slot *)slot_at(t, addr);
		uint64_t n;

		if (!begin && len >= SLOT_SIZE) {
			n = whole_units(addr, len);
			add_whole(s, n, path);
			n <<= SLOT_SHIFT;
		} else {
			n = unit_bytes(addr, len);
			slot_add_unit(s, begin, begin + n, path);
		}
		addr += n;
		len -= n;
	}
}

static void sub_whole(struct slot *s, uint64_t num)
{
	for (; num; num--, s++) {
		if (s->split)
			s->count[0]--;
		s->count[1]--;
	}
}

void slot_sub_long(struct slot_table *t, uint64_t addr, uint64_t len)
{
	while (len) {
		uint32_t begin = slot_offset(addr);
		struct slot *s = (struct slot *)slot_at(t, addr);
		uint64_t n;

		if (!begin && len >= SLOT_SIZE) {
			n = whole_units(addr, len);
			sub_whole(s, n);
			n <<= SLOT_SHIFT;
		} else {
			n = unit_bytes(addr, len);
			slot_sub_unit(s, begin, begin + n);
		}
		addr += n;
		len -= n;
	}
}

bool slot_check_long(const struct slot_table *t, uint64_t addr, uint64_t len, unsigned int path)
{
	while (len) {
		uint32_t begin = slot_offset(addr), n = unit_bytes(addr, len);

		if (!slot_unit_ok(slot_at(t, addr), begin, begin + n, path))
			return false;
		addr += n;
		len -= n;
	}
	return true;
}

/* The state at an offset of a unit, and where in the unit it ends. */
static int unit_state(const struct slot *s, uint32_t begin, uint32_t *end)
{
	int part = begin >= s->split;

	*end = SLOT_SIZE;
	if (slot_idle(s))
		return SLOT_FREE;
	if (!part)
		*end = s->split;
	return s->count[part] ? s->path[part] : SLOT_FREE;
}

/* How many whole units from s on, of at most num, have one state throughout: this one. */
static uint64_t same_units(const struct slot *s, uint64_t num, int state)
{
	const struct slot *begin = s, *end = s + num;

	if (state == SLOT_FREE)
		while (s < end && slot_idle(s))
			s++;
	else
		while (s < end && !s->split && s->count[1] && s->path[1] == state)
			s++;
	return s - begin;
}

int slot_route(const struct slot_table *t, uint64_t addr, uint64_t len, uint64_t *run)
{
	uint64_t done = 0;
	uint32_t end;
	int state = unit_state(slot_at(t, addr), slot_offset(addr), &end);

	do {
		done += end - slot_offset(addr + done);
		if (done < len && !slot_offset(addr + done))
			done += same_units(slot_at(t, addr + done),
					   whole_units(addr + done, len - done), state) <<
				SLOT_SHIFT;
		if (done >= len) {
			done = len;
			break;
		}
	} while (unit_state(slot_at(t, addr + done), slot_offset(addr + done), &end) == state);
	*run = done;
	return state;
}

int slot_path(const struct slot_table *t, uint64_t addr, uint64_t len)
{
	int path = SLOT_FREE;
	uint64_t run;

	for (; len; addr += run, len -= run) {
		int state = slot_route(t, addr, len, &run);

		if (state == SLOT_FREE || state == path)
			continue;
		if (state == SLOT_MIXED || path != SLOT_FREE)
			return SLOT_MIXED;
		path = state;
	}
	return path;
}

bool slot_table_empty(const struct slot_table *t)
{
	for (int i = 0; i < SLOT_COUNT; i++)
		if (!slot_idle(&t->slot[i]))
			return false;
	return true;
}
