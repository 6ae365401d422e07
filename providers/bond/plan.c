/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Cuts an operation.
 *
 * Bytes of busy slots go where the slots say. The rest is shared so that all paths end together,
 * and cut into as few pieces as that takes: one for each path where nothing is busy. A cut is at a
 * multiple of an alignment of the remote address that grows with the operation, and inside a slot
 * unit only where that unit can still be split there; otherwise it moves to the unit's border.
 *
 * An application that writes one buffer again and again with a full queue keeps all its slots busy
 * for ever, and the first cut, made before anything was measured, with them. So the time lost by
 * forced routes against a fresh cut is added up (sched.regret, in bytes), and when it is worth it
 * the caller is told to let the queue drain once.
 *
 * Not here: rates and shares (sched.c), the table (slot.c). Next: order.c.
 */
#include "plan.h"

#include <string.h>

#include "sched.h"
#include "slot.h"

enum {
	ALIGN_MIN = 512,
	ALIGN_MAX = 4096,
	ALIGN_PARTS = 128,		/* an operation has at least so many multiples */
	UNSEEN_BYTES = 128 * 1024,	/* at least so many are given to a path not yet known ... */
	UNSEEN_NS = 20000000,		/* ... and, by what was seen of it, work for so long, ... */
	UNSEEN_LARGE = 256 * 1024,	/* ... and two pieces, or of large ones a part */
	TABLE_BYTES = SLOT_COUNT * SLOT_SIZE,
};

static const double FIT = 1.01;		/* routes may be so much worse and are still good */

struct run {
	uint64_t off, len;
	int path;			/* or SLOT_FREE */
};

struct cutter {
	const struct plan_op *op;
	const struct slot_table *slots;
	uint64_t body;			/* bytes to cut */
	uint64_t free;			/* of these in free runs */
	uint64_t align;
	uint64_t cut_unit;		/* of the last cut inside a unit */
	uint64_t forced[BOND_MAX_PATHS];
	double quota[BOND_MAX_PATHS];
	unsigned int npaths, num_runs;
	struct run run[PLAN_MAX_PIECES];
	struct plan_piece *piece;
	unsigned int num, max;
	bool full;			/* more than max pieces */
};

static uint64_t op_alignment(uint64_t len)
{
	uint64_t align = ALIGN_MIN;

	while (align < ALIGN_MAX && align * 2 * ALIGN_PARTS <= len)
		align *= 2;
	return align;
}

/* What the slots say. False: the operation has to wait. */
static bool find_runs(struct cutter *c, const struct sched *s)
{
	uint64_t off = 0, len;

	for (; off < c->body; off += len) {
		int path = slot_route(c->slots, c->op->raddr + off, c->body - off, &len);

		if (path == SLOT_MIXED || c->num_runs == PLAN_MAX_PIECES)
			return false;
		if (path != SLOT_FREE && !s->path[path].usable)
			return false;
		c->run[c->num_runs++] = (struct run){ off, len, path };
		if (path == SLOT_FREE)
			c->free += len;
		else
			c->forced[path] += len;
	}
	return !c->op->want_tail ||
	       slot_check(c->slots, c->op->raddr + c->body, PLAN_TAIL, c->op->lead);
}

static void emit(struct cutter *c, uint64_t off, uint64_t len, unsigned int path)
{
	if (c->num && c->piece[c->num - 1].path == path) {
		c->piece[c->num - 1].len += len;
	} else if (c->num == c->max) {
		c->full = true;
	} else {
		c->piece[c->num++] = (struct plan_piece){ off, len, path };
	}
}

/* Whether the unit of an address can be split there: it is idle and will have no other split. */
static bool can_split(const struct cutter *c, uint64_t addr)
{
	uint64_t unit = addr >> SLOT_SHIFT;

	if (c->op->want_tail && unit == (c->op->raddr + c->body) >> SLOT_SHIFT)
		return false;
	return unit != c->cut_unit && c->body < TABLE_BYTES - SLOT_SIZE &&
	       slot_idle(slot_at(c->slots, addr));
}

/* Where to cut near an offset: the nearest behind start that the addresses allow. */
static uint64_t place_cut(struct cutter *c, uint64_t start, uint64_t off)
{
	uint64_t addr = (c->op->raddr + off + c->align / 2) & -c->align;

	if (slot_offset(addr)) {
		if (can_split(c, addr))
			c->cut_unit = addr >> SLOT_SHIFT;
		else
			addr = (addr + SLOT_SIZE / 2) & -(uint64_t)SLOT_SIZE;
	}
	if (addr <= c->op->raddr + start)
		addr = (c->op->raddr + start + SLOT_SIZE) & -(uint64_t)SLOT_SIZE;
	return addr - c->op->raddr;
}

static bool has_quota(const struct cutter *c, int path)
{
	return path >= 0 && c->quota[path] >= PLAN_MIN_PIECE / 2;
}

/*
 * Who goes on: the neighbour before, to merge; the neighbour behind last, for the same reason, or
 * at once if it takes all that is left.
 */
static int next_path(const struct cutter *c, int before, int behind, uint64_t left)
{
	int most = -1;

	if (has_quota(c, before))
		return before;
	if (has_quota(c, behind) && c->quota[behind] + c->align > left)
		return behind;
	for (unsigned int i = 0; i < c->npaths; i++)
		if ((int)i != behind && has_quota(c, i))
			return i;
	if (has_quota(c, behind))
		return behind;
	if (before >= 0 || behind >= 0)
		return before >= 0 ? before : behind;
	for (unsigned int i = 0; i < c->npaths; i++)
		if (most < 0 || c->quota[i] > c->quota[most])
			most = i;
	return most;
}

/* Bytes of rounding go to the path that is served next, so that errors do not add up. */
static void carry(struct cutter *c, double bytes, int before, int behind, uint64_t left)
{
	c->quota[next_path(c, before, behind, left)] += bytes;
}

static void fill_run(struct cutter *c, unsigned int index)
{
	const struct run *r = &c->run[index];
	int before = index ? c->run[index - 1].path : -1;
	int behind = index + 1 < c->num_runs ? c->run[index + 1].path : -1;
	uint64_t off = r->off, end = r->off + r->len, cut;

	while (off < end) {
		int path = next_path(c, before, behind, end - off);
		double want = c->quota[path];

		if (!has_quota(c, path) || want + c->align > end - off) {
			c->quota[path] -= end - off;
			emit(c, off, end - off, path);
			return;
		}
		cut = place_cut(c, off, off + (uint64_t)want);
		if (cut > end)
			cut = end;
		emit(c, off, cut - off, path);
		c->quota[path] = 0;
		if (path == before)
			before = -1;
		carry(c, want - (double)(cut - off), before, behind, end - cut);
		off = cut;
	}
}

/*
 * The loss of the forced routes against a fresh cut, both for this operation alone and with all
 * that is in flight. True: letting the queue drain pays off now.
 */
static bool should_rebalance(const struct cutter *c, struct sched *s)
{
	double worst_ns = 0, worst_end_ns = 0, excess, fresh_ns;
	double all = c->body + s->in_flight;

	for (unsigned int i = 0; i < c->npaths; i++) {
		const struct sched_path *p = &s->path[i];
		double bytes = c->forced[i] > c->align ? c->forced[i] - c->align : 0;
		double ns, end_ns;

		if (!p->usable)
			continue;
		ns = bytes / p->rate;
		end_ns = ns + p->in_flight / p->rate;
		worst_ns = ns > worst_ns ? ns : worst_ns;
		worst_end_ns = end_ns > worst_end_ns ? end_ns : worst_end_ns;
	}
	excess = worst_ns * s->rate_sum / c->body - FIT * s->best_fit;
	if (excess > 0 && worst_end_ns * s->rate_sum > all * FIT) {
		fresh_ns = sched_fresh_ns(s, c->body);
		excess = worst_ns / fresh_ns - FIT * s->best_fit;
	} else if (excess > 0) {
		excess = 0;
	}
	s->regret += excess * c->body;
	if (s->regret <= 0) {
		s->regret = 0;
		return false;
	}
	return s->regret > s->patience * all && s->in_flight;
}

/*
 * How near a cut can come to the ideal, alignments and units being what they are. A rebalance would
 * do no better, so forced routes are measured by it.
 */
static void note_fresh_cut(const struct cutter *c, struct sched *s)
{
	double fresh_ns = sched_fresh_ns(s, c->body);

	s->best_fit = 1;
	for (unsigned int i = 0; i < c->num; i++) {
		double fit = c->piece[i].len / s->path[c->piece[i].path].rate / fresh_ns;

		if (fit > s->best_fit)
			s->best_fit = fit;
	}
}

/* One soon after the last did not help for long: take more time before the next. */
static void note_rebalance(struct sched *s)
{
	if (s->moved - s->rebalanced_at < 64 * s->in_flight)
		s->patience = s->patience * 2;
	else
		s->patience = s->patience / 2;
	if (s->patience > SCHED_PATIENCE_MAX)
		s->patience = SCHED_PATIENCE_MAX;
	else if (s->patience < 8 * SCHED_PATIENCE_MIN && s->rebalanced_at)
		s->patience = 8 * SCHED_PATIENCE_MIN;
	s->rebalanced_at = s->moved;
	sched_rebalanced(s);
}

static bool path_is_idle(const struct sched *s)
{
	for (unsigned int i = 0; i < s->npaths; i++)
		if (s->path[i].usable && !s->path[i].benched && !s->path[i].in_flight)
			return true;
	return false;
}

/* What may be in flight on a path not known yet for another @forced to follow. */
static uint64_t unseen_room(const struct sched_path *p, uint64_t forced, bool idle)
{
	if (forced < UNSEEN_LARGE)
		return 2 * forced - 1;
	return idle ? forced - 1 : p->piece;
}

/*
 * A first cut may have put half of everything on a path that turns out to be very slow. Until it
 * has acknowledged enough to be known, repeats of that cut do not queue up behind it; only if none
 * is ahead so far of the others, the last part need not be waited for.
 */
static bool unseen_path_is_full(const struct cutter *c, const struct sched *s)
{
	bool idle = path_is_idle(s);

	for (unsigned int i = 0; i < c->npaths; i++) {
		const struct sched_path *p = &s->path[i];

		if (c->forced[i] && p->learn_bytes && p->in_flight >= UNSEEN_BYTES &&
		    p->in_flight >= p->estimate * UNSEEN_NS &&
		    p->in_flight > unseen_room(p, c->forced[i], idle) && s->num_usable > 1)
			return true;
	}
	return false;
}

enum plan_result plan_cut(const struct plan_op *op, const struct slot_table *slots,
			  struct sched *sched, uint64_t now_ns, struct plan_piece *pieces,
			  unsigned int max, unsigned int *num)
{
	struct cutter c;

	c.op = op;
	c.slots = slots;
	c.body = op->len - (op->want_tail ? PLAN_TAIL : 0);
	c.free = 0;
	c.align = op_alignment(op->len);
	c.cut_unit = UINT64_MAX;
	c.npaths = sched->npaths;
	c.num_runs = 0;
	c.piece = pieces;
	c.num = 0;
	c.max = max;
	c.full = false;
	memset(c.forced, 0, c.npaths * sizeof(c.forced[0]));
	if (!sched->num_usable || !find_runs(&c, sched))
		return PLAN_WAIT;
	if (c.free < c.body) {
		if (unseen_path_is_full(&c, sched))
			return PLAN_WAIT;
		if (sched->reroute && sched->in_flight) {
			sched_rebalanced(sched);
			return PLAN_REBALANCE;
		}
		if (should_rebalance(&c, sched)) {
			note_rebalance(sched);
			return PLAN_REBALANCE;
		}
	}
	if (c.free)
		sched_share(sched, c.free, c.free < c.body ? c.forced : NULL, now_ns, c.quota);
	for (unsigned int i = 0; i < c.num_runs; i++) {
		if (c.run[i].path == SLOT_FREE)
			fill_run(&c, i);
		else
			emit(&c, c.run[i].off, c.run[i].len, c.run[i].path);
	}
	if (c.full)
		return PLAN_WAIT;
	if (!sched->in_flight && c.free == c.body)
		note_fresh_cut(&c, sched);
	*num = c.num;
	return PLAN_OK;
}
