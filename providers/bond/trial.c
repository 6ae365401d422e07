/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Never worse than the best path alone: two NICs behind one PCIe switch may do less together than
 * one. Rates do not show that, so now and then, after long rests, the total without a path is
 * compared with the total with it, and a path that does harm is benched. A benched one is tried
 * again the same way.
 *
 * Pure, as sched.c is, whose other half this is.
 */
#include "trial.h"

static const uint64_t TRIAL_WAIT_NS = 60000000000, TRIAL_NS = 100000000;
static const double TRIAL_COST = 200;		/* a first rest is so many times one phase */
static const double TRIAL_GAIN = 1.03;		/* what benching a path must bring */
static const double TRIAL_BUSY = 0.8;		/* paths with less to do prove nothing */

static void trial_phase(struct sched *s, int phase, uint64_t ns, uint64_t bytes)
{
	struct sched_trial *t = &s->trial;

	t->phase = phase;
	if (phase == TRIAL_REST)
		t->depth = 0;
	t->from_ns = s->busy_ns;
	t->from_moved = s->moved;
	t->until_ns = s->busy_ns + ns;
	t->until_moved = s->moved + bytes;
	t->limit_ns = s->busy_ns + 4 * TRIAL_NS + (s->rate_sum > 0 ? 4 * bytes / s->rate_sum : 0);
	for (unsigned int i = 0; i < s->npaths; i++)
		s->path[i].trial_busy_ns = s->path[i].busy_ns;
}

/* With another set of paths what a trial found is void. */
void trial_restart(struct sched *s)
{
	for (unsigned int i = 0; i < s->npaths; i++)
		s->path[i].benched = false;
	s->num_benched = 0;
	s->trial.wait_ns = TRIAL_WAIT_NS;
	trial_phase(s, TRIAL_REST, TRIAL_WAIT_NS, 0);
}

/* Nothing is learned from paths that had not enough to do. */
static bool trial_saturated(const struct sched *s)
{
	double least_ns = TRIAL_BUSY * (s->busy_ns - s->trial.from_ns);

	for (unsigned int i = 0; i < s->npaths; i++) {
		const struct sched_path *p = &s->path[i];

		if (p->usable && !p->benched && p->busy_ns - p->trial_busy_ns < least_ns)
			return false;
	}
	return true;
}

static double trial_speed(const struct sched_path *p)
{
	return p->estimate > 0 ? p->estimate : p->rate;
}

/* Whether another is as fast: the fastest path alone is the one to stay with. */
static bool trial_can_do_without(const struct sched *s, unsigned int path)
{
	for (unsigned int i = 0; i < s->npaths; i++)
		if (i != path && s->path[i].usable &&
		    trial_speed(&s->path[i]) >= (1 - SCHED_NOISE) * trial_speed(&s->path[path]))
			return s->path[path].usable;
	return false;
}

/* A benched path first, else one after the other. */
static bool trial_pick(struct sched *s)
{
	struct sched_trial *t = &s->trial;

	for (unsigned int i = 0; i < s->npaths; i++)
		if (s->path[i].usable && s->path[i].benched) {
			t->path = i;
			return true;
		}
	for (unsigned int i = 0; i < s->npaths; i++) {
		t->path = (t->path + 1) % s->npaths;
		if (trial_can_do_without(s, t->path))
			return true;
	}
	return false;
}

static void trial_flip(struct sched *s)
{
	struct sched_path *p = &s->path[s->trial.path];

	p->benched = !p->benched;
	s->num_benched += p->benched ? 1 : -1;
	s->reroute = true;
	sched_settle_rates(s);
}

static double trial_rate(const struct sched *s)
{
	return (s->moved - s->trial.from_moved) / (double)(s->busy_ns - s->trial.from_ns);
}

/* In doubt with the path: benching one must be seen to help, taking it back need not. */
static void trial_judge(struct sched *s)
{
	struct sched_trial *t = &s->trial;
	double gain = trial_rate(s) / t->before;
	bool sure = trial_saturated(s), keep;

	if (s->path[t->path].benched)
		keep = sure && gain > TRIAL_GAIN;
	else
		keep = !sure || gain > 1 / TRIAL_GAIN;
	if (!keep)
		trial_flip(s);
	if (keep || t->wait_ns < 64 * TRIAL_WAIT_NS)
		t->wait_ns = keep ? TRIAL_WAIT_NS : 4 * t->wait_ns;
	trial_phase(s, TRIAL_REST, t->wait_ns, 0);
}

/* From rest to the measurement before, unless that would take long against the rest. */
static void trial_begin(struct sched *s, uint64_t bytes)
{
	struct sched_trial *t = &s->trial;
	double rest_ns = s->busy_ns - t->from_ns;
	double need_ns = TRIAL_COST * (bytes / s->rate_sum + TRIAL_NS) * t->wait_ns / TRIAL_WAIT_NS;

	if (need_ns > rest_ns)
		t->until_ns = t->from_ns + need_ns;
	else if (trial_pick(s))
		trial_phase(s, TRIAL_BEFORE, TRIAL_NS, bytes);
	else
		trial_phase(s, TRIAL_REST, t->wait_ns, 0);
}

void trial_step(struct sched *s)
{
	struct sched_trial *t = &s->trial;
	uint64_t bytes;

	if (s->in_flight > t->depth)
		t->depth = s->in_flight;
	if (s->busy_ns < t->until_ns || (s->moved < t->until_moved && s->busy_ns < t->limit_ns))
		return;
	bytes = t->depth + 16 * SCHED_WINDOW_BYTES;
	switch (t->phase) {
	case TRIAL_REST:
		trial_begin(s, bytes);
		break;
	case TRIAL_BEFORE:
		if (!trial_saturated(s)) {
			trial_phase(s, TRIAL_REST, t->wait_ns, 0);
			break;
		}
		t->before = trial_rate(s);
		trial_flip(s);
		trial_phase(s, TRIAL_CHANGE, 1, bytes);
		break;
	case TRIAL_CHANGE:
		trial_phase(s, TRIAL_AFTER, TRIAL_NS, bytes);
		break;
	case TRIAL_AFTER:
		trial_judge(s);
		break;
	}
}
