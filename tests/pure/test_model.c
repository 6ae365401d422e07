/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Slots and cuts against a model: random operations that overlap on purpose, on one to eight paths
 * that each complete in order but overtake each other at will. The rule: two pieces that overlap in
 * bytes and are in flight together are on one path. All of a piece's bytes are kept in a list, so
 * the model knows no units.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan.h"
#include "sched.h"
#include "slot.h"

enum { MAX_FLIGHT = 4096, MAX_OPS = 64 };

struct flight {
	uint64_t addr, len;
	unsigned int op;
};

struct fifo {
	struct flight q[MAX_FLIGHT];
	unsigned int head, tail;
};

struct model_op {
	struct plan_op plan;
	unsigned int left;
	bool tail_sent;
};

static struct model {
	unsigned int npaths;
	struct fifo path[BOND_MAX_PATHS];
	struct slot_table slots;
	struct sched sched;
	struct model_op op[MAX_OPS];
	uint64_t first, next, planned;	/* ops: oldest not done, to be made, to be planned */
	uint64_t now_ns;
	bool draining, waiting;
	unsigned long cuts, waits, drains, small;
} m;

static uint64_t rnd_state;

static uint64_t rnd(uint64_t below)
{
	rnd_state = rnd_state * 6364136223846793005ull + 1442695040888963407ull;
	return (rnd_state >> 20) % below;
}

static unsigned int in_flight(void)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < m.npaths; i++)
		n += m.path[i].tail - m.path[i].head;
	return n;
}

/* The rule itself. */
static void check_overlap(const struct flight *f, unsigned int path)
{
	for (unsigned int i = 0; i < m.npaths; i++) {
		const struct fifo *q = &m.path[i];

		if (i == path)
			continue;
		for (unsigned int k = q->head; k != q->tail; k++) {
			const struct flight *g = &q->q[k % MAX_FLIGHT];

			if (f->addr < g->addr + g->len && g->addr < f->addr + f->len)
				fail_msg("%#lx+%lu on path %u while %#lx+%lu is on path %u",
					 f->addr, f->len, path, g->addr, g->len, i);
		}
	}
}

static void post(unsigned int path, uint64_t addr, uint64_t len, unsigned int op)
{
	struct fifo *q = &m.path[path];
	struct flight f = { addr, len, op };

	assert_true(path < m.npaths);
	check_overlap(&f, path);
	slot_add(&m.slots, addr, len, path);
	sched_posted(&m.sched, path, len, m.now_ns);
	assert_true(q->tail - q->head < MAX_FLIGHT);
	q->q[q->tail++ % MAX_FLIGHT] = f;
}

/* Lengths of every kind, in a window so small that most operations meet another. */
static struct plan_op random_op(void)
{
	static const uint64_t windows[] = { 1 << 14, 1 << 18, 1 << 22, 1 << 26 };
	static const uint64_t lengths[] = { 600, 1 << 14, 1 << 16, 1 << 17, 1 << 20, 40 << 20 };
	uint64_t window = windows[rnd(4)];
	struct plan_op op = {
		.raddr = 0x10000000 + rnd(window),
		.len = PLAN_TAIL + 1 + rnd(lengths[rnd(100) ? rnd(5) : 5]),
		.want_tail = rnd(2),
	};

	if (rnd(3) == 0) {
		op.raddr &= ~4095ull;
		op.len = (op.len + 4095) & ~4095ull;
	}
	return op;
}

static void check_pieces(const struct plan_op *op, const struct plan_piece *piece, unsigned int num)
{
	uint64_t off = 0;

	assert_true(num >= 1 && num <= 2 * m.npaths + 2);
	for (unsigned int i = 0; i < num; i++) {
		assert_int_equal(piece[i].off, off);
		assert_true(piece[i].len > 0);
		assert_true(!i || piece[i].path != piece[i - 1].path);
		off += piece[i].len;
	}
	assert_int_equal(off, op->len - (op->want_tail ? PLAN_TAIL : 0));
}

static bool plan_next(void)
{
	struct model_op *op = &m.op[m.planned % MAX_OPS];
	struct plan_piece piece[PLAN_MAX_PIECES];
	unsigned int num;

	m.waiting = false;
	switch (plan_cut(&op->plan, &m.slots, &m.sched, m.now_ns, piece, 2 * m.npaths + 2, &num)) {
	case PLAN_WAIT:
		m.waits++;
		m.waiting = true;
		assert_true(in_flight() > 0);
		return false;
	case PLAN_REBALANCE:
		m.drains++;
		m.draining = true;
		assert_true(in_flight() > 0);
		return false;
	case PLAN_OK:
		break;
	}
	m.cuts += num > 1;
	check_pieces(&op->plan, piece, num);
	for (unsigned int i = 0; i < num; i++)
		post(piece[i].path, op->plan.raddr + piece[i].off, piece[i].len, m.planned);
	op->left = num;
	op->tail_sent = !op->plan.want_tail;
	m.planned++;
	return true;
}

/* A small one that is not cut: where its slots say, else anywhere. */
static void post_small(void)
{
	uint64_t addr = 0x10000000 + rnd(1 << 18), len = 1 + rnd(300);
	int path = slot_path(&m.slots, addr, len);

	if (path == SLOT_MIXED)
		return;
	if (path == SLOT_FREE)
		path = rnd(2) ? 0 : rnd(m.npaths);
	assert_true(slot_check(&m.slots, addr, len, path));
	post(path, addr, len, UINT32_MAX);
	m.small++;
}

static void finish_one(unsigned int path)
{
	struct fifo *q = &m.path[path];
	struct flight f = q->q[q->head++ % MAX_FLIGHT];
	struct model_op *op = &m.op[f.op % MAX_OPS];
	uint64_t tail = op->plan.raddr + op->plan.len - PLAN_TAIL;

	slot_sub(&m.slots, f.addr, f.len);
	sched_acked(&m.sched, path, f.len, m.now_ns);
	if (f.op == UINT32_MAX)
		return;
	if (--op->left || op->tail_sent)
		return;
	op->tail_sent = true;
	if (slot_check(&m.slots, tail, PLAN_TAIL, 0)) {
		op->left = 1;
		post(0, tail, PLAN_TAIL, f.op);
	}
}

static void step(void)
{
	unsigned int path = rnd(m.npaths);

	m.now_ns += rnd(20000);
	while (m.first < m.planned && !m.op[m.first % MAX_OPS].left)
		m.first++;
	if (m.next < m.first + MAX_OPS && rnd(3)) {
		m.op[m.next % MAX_OPS] = (struct model_op){ .plan = random_op() };
		m.next++;
	}
	if (m.draining && !in_flight())
		m.draining = false;
	if (!m.draining && m.planned < m.next)
		plan_next();
	if (!m.draining && !m.waiting && rnd(4) == 0)	/* else it might wait for ever */
		post_small();
	if (m.path[path].head != m.path[path].tail && rnd(3))
		finish_one(path);
}

static void run_model(unsigned int npaths, uint64_t seed, unsigned int steps)
{
	memset(&m, 0, sizeof(m));
	rnd_state = seed;
	m.npaths = npaths;
	sched_init(&m.sched);
	for (unsigned int i = 0; i < npaths; i++)
		sched_path_start(&m.sched, i, 1 + rnd(4));
	for (unsigned int i = 0; i < steps; i++)
		step();
	for (unsigned int i = 0; i < npaths; i++)
		while (in_flight() && m.path[i].head != m.path[i].tail)
			finish_one(i);
	while (in_flight())	/* tails that came while the others were emptied */
		finish_one(0);
	assert_true(slot_table_empty(&m.slots));
	assert_int_equal(m.sched.in_flight, 0);
	assert_true(m.planned > steps / 50);
	assert_true(npaths == 1 || m.cuts > m.planned / 10);
	assert_true(m.small > steps / 100);
}

static void overlapping_pieces_share_a_path(void **state)
{
	unsigned long waits = 0, drains = 0;

	(void)state;
	for (unsigned int npaths = 1; npaths <= 8; npaths++)
		for (uint64_t seed = 1; seed <= 6; seed++) {
			run_model(npaths, seed * 7919 + npaths, 20000);
			waits += m.waits;
			drains += m.drains;
		}
	assert_true(waits > 0);		/* else the model is too tame */
	assert_true(drains > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(overlapping_pieces_share_a_path),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
