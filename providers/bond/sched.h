/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Scheduler: how fast each path of a QP is, and how to share bytes over the paths so that all of
 * them end together. Pure: time is an argument, in nanoseconds of any clock that does not go back.
 *
 * Callers hold the QP's send lock. Not here: slots and cutting (slot.h, plan.h).
 * Next: sched.c, whose head says how rates are measured.
 */
#ifndef BOND_SCHED_H
#define BOND_SCHED_H

#include <stdbool.h>
#include <stdint.h>

#include "plan.h"

enum {
	SCHED_COUNTED = 1024,
	/* A path's window ends with so many bytes in at least so much busy time of the QP, ... */
	SCHED_WINDOW_BYTES = 524288,
	SCHED_WINDOW_NS = 5000000,
	/* ... or with fewer of them after a long time. */
	SCHED_WINDOW_BYTES_MIN = 65536,
	SCHED_WINDOW_LONG_NS = 80000000,
	SCHED_BURST_BYTES = 65536,	/* that say nothing: the first ones after a start */
};

/* Of struct sched's patience. */
#define SCHED_PATIENCE_MIN 0.25
#define SCHED_PATIENCE_MAX 32.0

/* Times are ns of the caller's clock, rates bytes/ns. See the head of sched.c for the method. */
struct sched_path {
	bool usable;
	bool benched;			/* gets nothing new: the others do better alone */
	bool sampled;			/* has been measured at least once */
	bool probing;			/* a first piece after long disuse is under way */
	uint64_t in_flight;		/* bytes given to the path and not acknowledged */
	uint64_t piece;			/* bytes given to it last */
	double weight;			/* expected speed, relative to the other paths' */
	double rate;			/* what shares are made with */
	double estimate;		/* what was seen, 0 if nothing yet */
	uint64_t mark_ns;		/* last acknowledgement, or start of the busy time */
	uint64_t used_ns;		/* when it was given bytes last */
	uint64_t busy_ns;		/* all busy time so far */
	uint64_t trial_busy_ns;		/* what that was when the trial's phase began */
	/* the window under way: bytes acknowledged, and busy time of this path, ... */
	double win_bytes, win_ns;
	uint64_t win_from_ns;		/* ... since sched.busy_ns was this, ... */
	double win_load, win_load_all;	/* ... load and sched.load these */
	double load;			/* bytes in flight times ns, so far, ... */
	uint64_t load_ns;		/* ... up to this time */
	uint64_t skip_bytes;		/* first bytes that count for nothing */
	/* past windows in which it was busy throughout, older ones count less */
	double sum_bytes, sum_ns;
	unsigned int samples;		/* windows; a long one is several */
	double raised, raised_from;	/* 0 but while a raise waits for the sample that tells */
	bool raised_anew;		/* ... and routes were made anew for it */
	unsigned int starved;		/* low samples in a row that were not believed */
	uint64_t learn_bytes;		/* still to be acknowledged until it counts as known */
	int odd;			/* samples in a row far above (> 0) or below it (< 0) */
};

/* Whether the QP does better without a path, or with a benched one. Times are busy time. */
struct sched_trial {
	enum { TRIAL_REST, TRIAL_BEFORE, TRIAL_CHANGE, TRIAL_AFTER } phase;
	unsigned int path;
	uint64_t from_ns, from_moved;	/* begin of the phase */
	uint64_t until_ns, until_moved;	/* its end: both are reached, ... */
	uint64_t limit_ns;		/* ... or at least this and until_ns */
	uint64_t wait_ns;		/* rest after the next one */
	uint64_t depth;			/* most bytes in flight since the rest began */
	double before;			/* bytes/ns of all paths */
};

struct sched {
	unsigned int npaths;		/* highest index used, plus 1 */
	unsigned int num_usable;
	unsigned int num_benched;
	uint64_t in_flight;		/* bytes, all paths */
	uint64_t moved;			/* bytes acknowledged, all paths */
	uint64_t last_ns;
	uint64_t busy_ns;		/* time so far with anything in flight */
	double load;			/* bytes in flight times ns, so far */
	double rate_sum;		/* of the usable paths */
	uint64_t raise_at;		/* no more raises before so many bytes have moved, ... */
	uint64_t raise_hold;		/* ... and so many more after the next one */
	bool parted;			/* the rates are not as the weights say */
	/* how badly forced routes fit, kept by plan.c */
	double best_fit;		/* a fresh cut's time over the ideal one */
	double regret;			/* bytes lost so far */
	double patience;		/* bytes of regret for each in flight until a rebalance */
	uint64_t rebalanced_at;		/* when, in bytes of moved */
	bool reroute;			/* forced routes are out of date whatever they cost */
	struct sched_trial trial;
	struct sched_path path[BOND_MAX_PATHS];
};

/* No path is usable at first. */
void sched_init(struct sched *s);

/*
 * Makes a path usable from now on, or again after sched_path_stop(). The weight is the speed to
 * expect, in any unit that is the same for all paths: from the configuration or the port's speed.
 */
void sched_path_start(struct sched *s, unsigned int path, double weight);

/* Gives it nothing more. What is in flight may still be acknowledged or dropped. */
void sched_path_stop(struct sched *s, unsigned int path);

/*
 * A piece was given to the path: posted, or queued in software right behind what is. Pieces under
 * SCHED_COUNTED bytes say nothing about rates and are passed over by these three; the caller may
 * spare itself the clock for them.
 */
void sched_posted(struct sched *s, unsigned int path, uint64_t bytes, uint64_t now_ns);

/* It is done. */
void sched_acked(struct sched *s, unsigned int path, uint64_t bytes, uint64_t now_ns);

/* It will not be done on this path: flushed, or replayed elsewhere. */
void sched_dropped(struct sched *s, unsigned int path, uint64_t bytes, uint64_t now_ns);

/*
 * Shares len bytes over the usable paths so that all drain at the same time. forced, if not NULL,
 * are bytes for each path on top of those in flight. A path whose share would be under
 * PLAN_MIN_PIECE gets 0. quota[i] is set for all i < s->npaths; the sum is len, but for rounding.
 * Returns how many paths got something: 0 only if none is usable.
 */
unsigned int sched_share(const struct sched *s, uint64_t len, const uint64_t *forced,
			 uint64_t now_ns, double *quota);

/*
 * ns that len bytes take when they are cut afresh with nothing in flight. The measure of how well
 * forced routes fit.
 */
double sched_fresh_ns(const struct sched *s, uint64_t len);

/* Routes will be made anew: what was seen of idle paths, and regret, say nothing then. */
void sched_rebalanced(struct sched *s);

/* The usable path that would end first with len bytes more, -1: none. For what is not cut. */
int sched_best(const struct sched *s, uint64_t len, uint64_t now_ns);

#endif
