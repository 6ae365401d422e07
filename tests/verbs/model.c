/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Random operations and what they must do to memory; see model.h. The verbs side is rw_model.c.
 */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	HOT_LEN = 256 << 10,		/* where operations meet on purpose */
	SMALL_BITS = 16,
	PAGE_LEN = 4096,
	ATOMIC_LEN = 8,
	TRIES = 6,
	REFRESH_LEN = 1 << 20,
	SPREAD_LEN = 64 << 10,
};

enum relation { APART, NEEDS_FENCE, MUST_WAIT };

bool op_reads_remote(enum op_kind kind)
{
	return kind == OP_READ || kind == OP_FETCH_ADD || kind == OP_CMP_SWAP;
}

bool op_takes_receive(enum op_kind kind)
{
	return kind == OP_SEND || kind == OP_SEND_IMM || kind == OP_WRITE_IMM;
}

static bool op_is_atomic(enum op_kind kind)
{
	return kind == OP_FETCH_ADD || kind == OP_CMP_SWAP;
}

static bool op_is_send(enum op_kind kind)
{
	return kind == OP_SEND || kind == OP_SEND_IMM;
}

const char *op_name(enum op_kind kind)
{
	static const char *const names[] = {
		"WRITE", "READ", "SEND", "SEND_WITH_IMM", "WRITE_WITH_IMM", "FETCH_ADD",
		"CMP_SWAP",
	};

	return names[kind];
}

void model_init(struct model *m, const struct model_limits *lim, uint64_t seed)
{
	int i;

	memset(m, 0, sizeof(*m));
	m->lim = *lim;
	m->rng.state = seed;
	for (i = 0; i < 2; i++) {
		m->mem[i] = malloc(lim->arena_len);
		if (!m->mem[i])
			die("no memory for a model of %llu bytes",
			    (unsigned long long)lim->arena_len);
		rng_fill(&m->rng, m->mem[i], lim->arena_len);
	}
}

void model_free(struct model *m)
{
	free(m->mem[0]);
	free(m->mem[1]);
}

static bool overlap(const struct range *x, int nx, const struct range *y, int ny)
{
	int i, j;

	for (i = 0; i < nx; i++)
		for (j = 0; j < ny; j++)
			if (x[i].len && y[j].len && x[i].off < y[j].off + y[j].len &&
			    y[j].off < x[i].off + x[i].len)
				return true;
	return false;
}

/*
 * What verbs asks for between an unfinished operation and a later one (IBTA 10.8.3.3, the table
 * of work request ordering; ibv_post_send(3) for buffers in use).
 *
 * A later change of what an unfinished READ or atomic reads is in order only with a fence.
 * rc_in_order leaves that fence out, for devices that execute strictly in order.
 */
static enum relation model_relate(const struct model *m, const struct op *old,
				  const struct op *op)
{
	bool local = overlap(old->local, old->num_local, op->local, op->num_local);
	bool remote = overlap(old->remote, old->num_remote, op->remote, op->num_remote);

	/* A posted receive's memory is the device's until its completion is polled. */
	if (remote && m->lim.receives_apart && (op_is_send(old->kind) || op_is_send(op->kind)))
		return MUST_WAIT;
	if (op_reads_remote(old->kind) && op_reads_remote(op->kind)) {
		if (local && m->lim.disjoint_reads)
			return MUST_WAIT;
		/* Nothing orders the placing of an atomic's result and of a READ's data. */
		if (local && !m->lim.atomic_overlap &&
		    (op_is_atomic(old->kind) || op_is_atomic(op->kind)))
			return MUST_WAIT;
		if (remote && op_is_atomic(op->kind) && !m->lim.rc_in_order)
			return NEEDS_FENCE;
		return APART;
	}
	if (op_reads_remote(old->kind)) {
		/* Inline data is taken when posted: no fence can help it. */
		if (local && op->is_inline)
			return MUST_WAIT;
		if (local || (remote && !m->lim.rc_in_order))
			return NEEDS_FENCE;
		return APART;
	}
	/* The source of an unfinished WRITE or SEND belongs to the device. */
	if (op_reads_remote(op->kind) && local && !old->is_inline)
		return MUST_WAIT;
	return APART;
}

static uint64_t random_len(struct model *m)
{
	struct rng *r = &m->rng;
	unsigned int max_bits = 0;
	uint64_t len;

	if (m->lim.spread && m->lim.max_len > SPREAD_LEN && !rng_one_in(r, 3))
		return SPREAD_LEN + rng_below(r, m->lim.max_len - SPREAD_LEN + 1);
	while (m->lim.max_len >> (max_bits + 1))
		max_bits++;
	if (max_bits > SMALL_BITS && rng_one_in(r, 2))
		max_bits = SMALL_BITS;
	len = rng_below(r, (1ull << rng_below(r, max_bits + 2)) + 1);
	switch (rng_below(r, 8)) {
	case 0:
		len &= ~(uint64_t)(PAGE_LEN - 1);
		break;
	case 1:
		len = (len & ~(uint64_t)(4 * PAGE_LEN - 1)) + rng_below(r, 3);
		len = len ? len - 1 : 0;
		break;
	}
	return len < m->lim.max_len ? len : m->lim.max_len;
}

/* Somewhere, near the start, or near where an earlier operation is. */
static uint64_t random_off(struct model *m, uint64_t len, bool remote)
{
	struct rng *r = &m->rng;
	uint64_t room = m->lim.arena_len - len, off;
	const struct op *old;
	const struct range *at;

	switch (rng_below(r, m->lim.spread ? 12 : 3)) {
	case 0:
		off = rng_below(r, HOT_LEN);
		break;
	case 1:
		off = 0;
		if (!m->num_log)
			break;
		old = &m->log[m->num_log - 1 - rng_below(r, m->num_log < 8 ? m->num_log : 8)];
		at = remote ? old->remote : old->local;
		if (remote ? old->num_remote : old->num_local)
			off = at->off + rng_below(r, at->len + 1);
		break;
	default:
		off = rng_below(r, room + 1);
		break;
	}
	switch (rng_below(r, 4)) {
	case 0:
		off &= ~(uint64_t)(PAGE_LEN - 1);
		break;
	case 1:
		off &= ~63ull;
		break;
	}
	return off < room ? off : room;
}

/* Cuts len into up to max pieces, each somewhere; pieces of a destination do not overlap. */
static int random_ranges(struct model *m, struct range *to, unsigned int max, uint64_t len,
			 bool remote, bool apart)
{
	unsigned int n = rng_one_in(&m->rng, 2) ? 1 : 1 + rng_below(&m->rng, max), i, tries;

	for (i = 0; i < n; i++) {
		uint64_t part = i == n - 1 ? len : rng_below(&m->rng, len + 1);

		to[i].len = part;
		for (tries = 0; ; tries++) {
			to[i].off = random_off(m, part, remote);
			if (!apart || !overlap(to, i, &to[i], 1))
				break;
			if (tries == TRIES)
				goto err_alone;
		}
		len -= part;
	}
	return n;

err_alone:
	for (; i > 0; i--)
		len += to[i - 1].len;
	to[0].len = len;
	to[0].off = random_off(m, len, remote);
	return 1;
}

static enum op_kind random_kind(struct model *m)
{
	struct rng *r = &m->rng;

	if (m->lim.atomics && rng_one_in(r, 12))
		return rng_one_in(r, 2) ? OP_FETCH_ADD : OP_CMP_SWAP;
	if (m->lim.messages && rng_one_in(r, 5))
		return OP_SEND + rng_below(r, 3);
	return rng_one_in(r, 2) ? OP_WRITE : OP_READ;
}

static void fill_atomic(struct model *m, struct op *op)
{
	uint64_t now;

	op->len = ATOMIC_LEN;
	op->num_local = op->num_remote = 1;
	op->local[0] = (struct range){ random_off(m, ATOMIC_LEN, false) & ~7ull, ATOMIC_LEN };
	op->remote[0] = (struct range){ random_off(m, ATOMIC_LEN, true) & ~7ull, ATOMIC_LEN };
	op->operand = rng_next(&m->rng);
	memcpy(&now, m->mem[1] + op->remote[0].off, sizeof(now));
	/* Half of the swaps must find what they compare with. */
	op->compare = rng_one_in(&m->rng, 2) ? now : op->operand + 1;
}

static void fill_op(struct model *m, struct op *op)
{
	memset(op, 0, sizeof(*op));
	op->index = m->next_index;
	op->kind = random_kind(m);
	op->imm = rng_next(&m->rng);
	if (op_is_atomic(op->kind)) {
		fill_atomic(m, op);
		return;
	}
	op->len = random_len(m);
	op->num_local = random_ranges(m, op->local, m->lim.max_sge, op->len, false,
				      op_reads_remote(op->kind));
	if (op_is_send(op->kind))
		op->num_remote = random_ranges(m, op->remote, m->lim.max_recv_sge, op->len, true,
					       true);
	else
		op->num_remote = random_ranges(m, op->remote, 1, op->len, true, true);
	op->is_inline = !op_reads_remote(op->kind) && op->len <= m->lim.max_inline &&
			rng_one_in(&m->rng, 2);
}

static void copy_ranges(uint8_t *to, const struct range *dst, int num_dst, const uint8_t *from,
			const struct range *src, int num_src)
{
	uint64_t di = 0, si = 0, n;

	while (num_dst && num_src) {
		n = dst->len - di < src->len - si ? dst->len - di : src->len - si;
		memcpy(to + dst->off + di, from + src->off + si, n);
		di += n;
		si += n;
		if (di == dst->len) {
			dst++;
			num_dst--;
			di = 0;
		}
		if (num_src && si == src->len) {
			src++;
			num_src--;
			si = 0;
		}
	}
}

static void execute_atomic(struct model *m, const struct op *op)
{
	uint64_t old, new;

	memcpy(&old, m->mem[1] + op->remote[0].off, sizeof(old));
	new = old;
	if (op->kind == OP_FETCH_ADD)
		new = old + op->operand;
	else if (old == op->compare)
		new = op->operand;
	memcpy(m->mem[1] + op->remote[0].off, &new, sizeof(new));
	memcpy(m->mem[0] + op->local[0].off, &old, sizeof(old));
}

static void execute(struct model *m, const struct op *op)
{
	if (op_is_atomic(op->kind))
		execute_atomic(m, op);
	else if (op->kind == OP_READ)
		copy_ranges(m->mem[0], op->local, op->num_local, m->mem[1], op->remote,
			    op->num_remote);
	else
		copy_ranges(m->mem[1], op->remote, op->num_remote, m->mem[0], op->local,
			    op->num_local);
}

static enum relation relate_to_all(struct model *m, const struct op *op)
{
	enum relation worst = APART, one;
	unsigned int i;

	for (i = m->first_undone; i < m->num_log; i++) {
		one = model_relate(m, &m->log[i], op);
		if (one > worst)
			worst = one;
	}
	return worst;
}

static struct op *take(struct model *m)
{
	struct op *op = &m->log[m->num_log++];

	m->next_index++;
	m->unsignaled_run = op->signaled ? 0 : m->unsignaled_run + 1;
	execute(m, op);
	return op;
}

struct op *model_next(struct model *m)
{
	enum relation rel;
	struct op *op;
	int i;

	/* One entry stays free for model_flush_op(). */
	if (m->num_log >= MODEL_LOG - 1 || model_in_flight(m) >= m->lim.depth_wr)
		return NULL;
	op = &m->log[m->num_log];
	for (i = 0; i < TRIES; i++) {
		fill_op(m, op);
		rel = relate_to_all(m, op);
		if (rel == MUST_WAIT)
			continue;
		op->fence = rel == NEEDS_FENCE || rng_one_in(&m->rng, 32);
		op->signaled = m->unsignaled_run >= m->lim.depth_wr / 2 ||
			       rng_one_in(&m->rng, 2);
		return take(m);
	}
	return NULL;
}

struct op *model_flush_op(struct model *m)
{
	struct op *op = &m->log[m->num_log];

	memset(op, 0, sizeof(*op));
	op->index = m->next_index;
	op->kind = OP_WRITE;
	op->signaled = true;
	op->num_remote = 1;
	return take(m);
}

unsigned int model_in_flight(const struct model *m)
{
	return m->num_log - m->first_undone;
}

void model_done(struct model *m, const struct op *op)
{
	while (m->first_undone <= op - m->log)
		m->log[m->first_undone++].done = true;
}

struct op *model_oldest_signaled(struct model *m)
{
	unsigned int i;

	for (i = m->first_undone; i < m->num_log; i++)
		if (m->log[i].signaled)
			return &m->log[i];
	return NULL;
}

static void tell_ops_at(const struct model *m, int side, uint64_t off)
{
	struct range byte = { off, 1 };
	unsigned int i, shown = 0;

	for (i = m->num_log; i > 0 && shown < 4; i--) {
		const struct op *op = &m->log[i - 1];
		const struct range *at = side ? op->remote : op->local;
		int n = side ? op->num_remote : op->num_local;

		if (op_reads_remote(op->kind) == !side && overlap(at, n, &byte, 1)) {
			case_fail("  op %llu %s%s%s wrote there: %llu bytes, first at +%#llx",
				  (unsigned long long)op->index, op_name(op->kind),
				  op->fence ? " fence" : "", op->is_inline ? " inline" : "",
				  (unsigned long long)op->len, (unsigned long long)at->off);
			shown++;
		}
	}
	if (!shown)
		case_fail("  no operation since the last agreement wrote there");
}

static bool side_agrees(struct model *m, int side, const uint8_t *mem)
{
	const uint8_t *want = m->mem[side];
	uint64_t i, first, differing = 0;

	if (!memcmp(want, mem, m->lim.arena_len))
		return true;
	for (first = 0; want[first] == mem[first]; first++)
		;
	for (i = first; i < m->lim.arena_len; i++)
		differing += want[i] != mem[i];
	case_fail("end %c differs in %llu bytes, first at +%#llx (%p): %02x, must be %02x",
		  "ab"[side], (unsigned long long)differing, (unsigned long long)first,
		  (const void *)(mem + first), mem[first], want[first]);
	tell_ops_at(m, side, first);
	return false;
}

bool model_agrees(struct model *m, const uint8_t *a, const uint8_t *b)
{
	bool same = side_agrees(m, 0, a);

	return side_agrees(m, 1, b) && same;
}

void model_refresh(struct model *m, uint8_t *a, uint8_t *b)
{
	uint8_t *arena[] = { a, b };
	uint64_t len, off;
	int i;

	m->num_log = m->first_undone = m->unsignaled_run = 0;
	for (i = 0; i < 2; i++) {
		len = m->lim.arena_len < REFRESH_LEN ? m->lim.arena_len : REFRESH_LEN;
		off = rng_one_in(&m->rng, 2) ? 0 : rng_below(&m->rng, m->lim.arena_len - len + 1);
		rng_fill(&m->rng, m->mem[i] + off, len);
		memcpy(arena[i] + off, m->mem[i] + off, len);
	}
}
