/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How fast each path is, and how bytes are shared.
 *
 * Time is looked at in windows, and only while anything is in flight on any path. A path that was
 * busy for nearly all of a window is measured: bytes over busy time. Windows go into a fading sum,
 * so a long one counts more than a short one; three in a row that are far off start the sum anew.
 * They are long because machines stall for milliseconds, and because completions that are looked at
 * late hide that a path waits: what short windows say of a wrong cut confirms it.
 *
 * A path that was idle for a good part of its window had too little to do while others had too
 * much. What it did cannot be trusted (token buckets and buffers let the first bytes after an idle
 * time through at once), but that it waited can: its rate is raised by as much as it was idle, at
 * most twofold. Next time it is busy, and measured. That is a try: a token bucket makes a path look
 * idle too. If the measurement does not bear it out, what was known before holds again, and for a
 * while that grows with each failure nothing is raised, on any path.
 *
 * Where acknowledgements are looked at late a path may wait and yet look busy. Such a path had little
 * in flight while the others had much. It was given too little, so a low rate seen of it says
 * nothing and is passed over; after a few of them its rate is raised a little and routes are made
 * anew at once. Then it has enough to do and is measured. If it was raised too far, it is the others
 * that have little, and they are not believed to be slower either.
 *
 * A path that does harm is benched: trial.c.
 *
 * A path not seen yet is believed to relate to the others by its weight. Where all that was seen
 * agrees with the weights within the accuracy of measuring, the weights are taken: equal NICs get
 * equal parts, not the noise of the last second. To come back to the weights takes more than to
 * stay with them, or each new measurement would cost two new routes.
 *
 * Next: plan.c, which turns shares into pieces.
 */
#include "sched.h"

#include <string.h>

#include "trial.h"

enum {
	ODD_SAMPLES = 3,
	LEARN_SAMPLES = 8,			/* a path is known with so many, or ... */
	LEARN_BYTES = 16 * SCHED_WINDOW_BYTES,	/* ... so much, if never busy enough */
	DOUBT_SAMPLES = 32,			/* more are no better: windows share errors */
	SKIP_LARGE = 16 * SCHED_BURST_BYTES,
	STARVED_SAMPLES = 4,			/* in a row, until a raise */
	STARVED_SAMPLES_WEIGHTED = 16,		/* the same while the rates are as weighted */
	STARVED_WINDOWS = 4,			/* as many in one then tell what it was worth */
	RAISE_HOLD = 4 << 20,
	RAISE_HOLD_MAX = 1 << 30,
	MIN_SHARE = PLAN_MIN_PIECE * 3 / 4,	/* so that noise takes nobody out of an even cut */
};

static const double MEMORY = 31.0 / 32;		/* what is left of the sum at each sample */
static const double ODD_FACTOR = 1.5, NOISE = SCHED_NOISE;
static const double DOUBT = 0.55;		/* accuracy of one sample; n: better by sqrt(n) */
static const double DOUBT_PARTED = 0.25;	/* the same once the rates are not as weighted */
static const double BUSY_IDLE = 0.04;		/* idle part of a window that is a measurement */
static const double WAIT_IDLE = 0.15;		/* and of one that is waiting for others */
static const double RAISE_UNSEEN = 2;		/* at most, of a rate that was never measured ... */
static const double RAISE_SEEN = 2;		/* ... and of one that was */
static const double RAISE_WORTH = 1.1;		/* what the next sample must show */
static const double STARVED = 4;		/* so much more work the others had in flight */
static const double STARVED_RAISE = 1.15;
static const double PROBE_NS = 10e9;

void sched_init(struct sched *s)
{
	memset(s, 0, sizeof(*s));
	s->patience = SCHED_PATIENCE_MIN;
	s->best_fit = 1;
	s->raise_hold = RAISE_HOLD;
	trial_restart(s);
}

/* Of an estimate, relative to that of a single sample. */
static double variance(const struct sched_path *p)
{
	unsigned int n = p->samples < DOUBT_SAMPLES ? p->samples : DOUBT_SAMPLES;

	return 1.0 / (n ? n : 1);
}

/*
 * Are two paths further apart than their weights by more than can be noise? A single window says
 * little, and next to it the best known path is no better known.
 */
static bool differ(const struct sched_path *p, const struct sched_path *q, double doubt)
{
	double a = p->estimate / p->weight, b = q->estimate / q->weight;
	double off = (a > b ? a - b : b - a) * 2 / (a + b) - NOISE;

	if (p->raised > 0 || q->raised > 0)
		return off > 0;			/* on trial */
	return off > 0 && off * off > doubt * doubt * (variance(p) + variance(q));
}

static bool seen(const struct sched_path *p)
{
	return p->usable && p->estimate > 0;
}

/* Does all that was seen agree with the weights? */
static bool as_weighted(const struct sched *s)
{
	double doubt = s->parted ? DOUBT_PARTED : DOUBT;

	for (unsigned int i = 0; i < s->npaths; i++)
		for (unsigned int j = 0; j < i; j++)
			if (seen(&s->path[i]) && seen(&s->path[j]) &&
			    differ(&s->path[i], &s->path[j], doubt))
				return false;
	return true;
}

/* From estimates to the rates that are used. */
void sched_settle_rates(struct sched *s)
{
	double estimate = 0, weight = 0, scale;
	bool weighted = as_weighted(s);

	s->parted = !weighted;
	for (unsigned int i = 0; i < s->npaths; i++)
		if (seen(&s->path[i])) {
			estimate += s->path[i].estimate;
			weight += s->path[i].weight;
		}
	scale = weight > 0 ? estimate / weight : 1;
	s->rate_sum = 0;
	for (unsigned int i = 0; i < s->npaths; i++) {
		struct sched_path *p = &s->path[i];

		p->rate = weighted || !(p->estimate > 0) ? p->weight * scale : p->estimate;
		s->rate_sum += p->usable && !p->benched ? p->rate : 0;
	}
}

void sched_path_start(struct sched *s, unsigned int path, double weight)
{
	struct sched_path *p = &s->path[path];
	uint64_t in_flight = p->in_flight;

	if (s->npaths <= path)
		s->npaths = path + 1;
	if (!p->usable)
		s->num_usable++;
	memset(p, 0, sizeof(*p));
	p->usable = true;
	p->in_flight = in_flight;
	p->weight = weight > 0 ? weight : 1;
	p->skip_bytes = SCHED_BURST_BYTES;
	p->learn_bytes = LEARN_BYTES;
	p->mark_ns = s->last_ns;
	p->used_ns = s->last_ns;
	p->load_ns = s->last_ns;
	s->regret = 0;
	s->patience = SCHED_PATIENCE_MIN;
	trial_restart(s);
	sched_settle_rates(s);
}

void sched_path_stop(struct sched *s, unsigned int path)
{
	if (!s->path[path].usable)
		return;
	s->path[path].usable = false;
	s->num_usable--;
	s->regret = 0;
	trial_restart(s);
	sched_settle_rates(s);
}

static void advance(struct sched *s, uint64_t now_ns)
{
	if (now_ns <= s->last_ns)
		return;
	if (s->in_flight)
		s->busy_ns += now_ns - s->last_ns;
	s->load += (double)s->in_flight * (now_ns - s->last_ns);
	s->last_ns = now_ns;
}

/* Before each change of what is in flight. */
static void count_load(const struct sched *s, struct sched_path *p)
{
	p->load += (double)p->in_flight * (s->last_ns - p->load_ns);
	p->load_ns = s->last_ns;
}

static double probe_interval_ns(const struct sched_path *p)
{
	return PROBE_NS + 1024.0 * PLAN_MIN_PIECE / p->rate;
}

static bool probe_due(const struct sched_path *p, uint64_t now_ns)
{
	return !p->in_flight && now_ns > p->used_ns &&
	       now_ns - p->used_ns > probe_interval_ns(p);
}

void sched_posted(struct sched *s, unsigned int path, uint64_t bytes, uint64_t now_ns)
{
	struct sched_path *p = &s->path[path];

	if (bytes < SCHED_COUNTED)
		return;
	advance(s, now_ns);
	if (!p->in_flight) {
		p->probing = probe_due(p, s->last_ns);
		p->mark_ns = s->last_ns;
	}
	count_load(s, p);
	p->used_ns = s->last_ns;
	p->piece = bytes;
	p->in_flight += bytes;
	s->in_flight += bytes;
}

static void start_window(const struct sched *s, struct sched_path *p)
{
	p->win_bytes = 0;
	p->win_ns = 0;
	p->win_from_ns = s->busy_ns;
	p->win_load = p->load;
	p->win_load_all = s->load;
}

static void forget_samples(struct sched_path *p)
{
	p->sum_bytes = 0;
	p->sum_ns = 0;
	p->samples = 0;
	p->odd = 0;
}

static void set_raised(struct sched *s, struct sched_path *p, double rate)
{
	p->raised_from = p->rate;
	p->estimate = rate;
	p->raised = rate;
	p->raised_anew = false;
	sched_settle_rates(s);
}

/*
 * Up to what was seen of it, but not far at once, and on trial: what is known of it is kept until
 * the next sample tells.
 */
static void raise_rate(struct sched *s, struct sched_path *p, double rate, double factor)
{
	double most = p->sampled ? RAISE_SEEN : RAISE_UNSEEN;

	if (p->sampled && p->estimate > RAISE_WORTH * p->rate && rate > p->estimate)
		rate = p->estimate;	/* better known, only not believed yet */
	if (rate < p->rate * (1 + NOISE) || (p->sampled && s->moved < s->raise_at))
		return;
	if (factor > most)
		factor = most;
	set_raised(s, p, rate < p->rate * factor ? rate : p->rate * factor);
}

/* Raising for nothing costs two new routes, so the next try waits much longer. */
static void judge_raise(struct sched *s, struct sched_path *p, double rate)
{
	if (rate > RAISE_WORTH * p->raised_from) {
		forget_samples(p);
		s->raise_hold = RAISE_HOLD;
	} else if (s->raise_hold < RAISE_HOLD_MAX) {
		s->raise_hold *= 4;
	}
	s->raise_at = s->moved + s->raise_hold;
	s->reroute |= p->raised_anew;
	p->raised = 0;
}

static void take_sample(struct sched *s, struct sched_path *p)
{
	double rate = p->win_bytes / p->win_ns;

	if (p->raised > 0)
		judge_raise(s, p, rate);
	p->sampled = true;
	if (p->samples && rate * p->sum_ns > ODD_FACTOR * p->sum_bytes)
		p->odd = p->odd > 0 ? p->odd + 1 : 1;
	else if (p->samples && rate * p->sum_ns * ODD_FACTOR < p->sum_bytes)
		p->odd = p->odd < 0 ? p->odd - 1 : -1;
	else
		p->odd = 0;
	if (p->odd >= ODD_SAMPLES || p->odd <= -ODD_SAMPLES)
		forget_samples(p);
	p->sum_bytes = p->sum_bytes * MEMORY + p->win_bytes;
	p->sum_ns = p->sum_ns * MEMORY + p->win_ns;
	p->samples += p->win_ns > SCHED_WINDOW_LONG_NS ? p->win_ns / SCHED_WINDOW_LONG_NS : 1;
	if (p->samples >= LEARN_SAMPLES)
		p->learn_bytes = 0;
	p->estimate = p->sum_bytes / p->sum_ns;
	sched_settle_rates(s);
}

/* Had it little to do in its window while others had much? */
static bool was_starved(const struct sched *s, const struct sched_path *p)
{
	double own = p->load - p->win_load, others = s->load - p->win_load_all - own;

	return s->num_usable - s->num_benched > 1 &&
	       own * (s->rate_sum - p->rate) * STARVED < others * p->rate;
}

/* Whether the window is a low sample that is not to be believed: see the head. */
static bool pass_over(struct sched *s, struct sched_path *p)
{
	unsigned int need = s->parted ? STARVED_SAMPLES : STARVED_SAMPLES_WEIGHTED;

	if (p->raised > 0 || p->benched || p->samples < LEARN_SAMPLES || !was_starved(s, p)) {
		p->starved = 0;
		return false;
	}
	if (p->win_bytes >= p->estimate * p->win_ns)
		return false;
	if (++p->starved >= need && s->moved >= s->raise_at) {
		p->starved = 0;
		set_raised(s, p, p->rate * STARVED_RAISE);
		p->raised_anew = true;
		p->skip_bytes = p->in_flight + SCHED_BURST_BYTES;
		s->reroute = true;
	}
	return true;
}

static bool another_sampled(const struct sched *s, const struct sched_path *p)
{
	for (unsigned int i = 0; i < s->npaths; i++)
		if (&s->path[i] != p && s->path[i].usable && s->path[i].samples)
			return true;
	return false;
}

/* Long against the noise, which is some milliseconds, and against a piece. */
static bool window_is_full(const struct sched_path *p, double time_ns)
{
	unsigned int num = p->raised > 0 && p->raised_anew ? STARVED_WINDOWS : 1;

	if (time_ns > num * SCHED_WINDOW_LONG_NS)
		return p->win_bytes >= SCHED_WINDOW_BYTES_MIN;
	return p->win_bytes >= num * SCHED_WINDOW_BYTES && time_ns >= num * SCHED_WINDOW_NS;
}

/*
 * Idleness means something only where, by the rates believed, there should be none: while regret
 * says that new routes are due anyway, those come first.
 */
static void end_window(struct sched *s, struct sched_path *p)
{
	double time_ns = s->busy_ns - p->win_from_ns, idle;

	if (p->win_ns <= 0 || !window_is_full(p, time_ns))
		return;
	idle = 1 - p->win_ns / time_ns;
	if (idle <= (p->sampled ? BUSY_IDLE : WAIT_IDLE)) {
		if (!pass_over(s, p))
			take_sample(s, p);
	} else if (p->win_bytes < 2 * SCHED_WINDOW_BYTES && time_ns < 2 * SCHED_WINDOW_LONG_NS) {
		return;
	} else if (idle > WAIT_IDLE && !(s->regret > 0) && another_sampled(s, p)) {
		raise_rate(s, p, p->win_bytes / p->win_ns, 1 / (1 - idle));
	}
	start_window(s, p);
}

/*
 * The first bytes after a start say nothing. Of a piece many times as long the rest does, and may
 * be all that is known for long; its time is taken whole, since a token bucket let the first ones
 * through in none.
 */
static bool skip_bytes(const struct sched *s, struct sched_path *p, uint64_t *bytes, double dt_ns)
{
	if (*bytes < SKIP_LARGE || *bytes < p->skip_bytes) {
		p->skip_bytes -= *bytes < p->skip_bytes ? *bytes : p->skip_bytes;
		if (!p->skip_bytes)
			start_window(s, p);
		return true;
	}
	*bytes -= p->skip_bytes;
	p->skip_bytes = 0;
	start_window(s, p);
	p->win_from_ns -= dt_ns;
	return false;
}

static void count_bytes(struct sched *s, struct sched_path *p, uint64_t bytes, double dt_ns)
{
	if (p->skip_bytes && skip_bytes(s, p, &bytes, dt_ns))
		return;
	p->win_bytes += bytes;
	p->win_ns += dt_ns;
	end_window(s, p);
}

static void take_out(struct sched *s, struct sched_path *p, uint64_t bytes)
{
	if (bytes > p->in_flight)
		bytes = p->in_flight;
	count_load(s, p);
	p->in_flight -= bytes;
	s->in_flight -= bytes;
	p->mark_ns = s->last_ns;
}

/* A single large piece does not make a path known. */
static void learn_bytes(struct sched_path *p, uint64_t bytes)
{
	if (bytes > SCHED_WINDOW_BYTES)
		bytes = SCHED_WINDOW_BYTES;
	p->learn_bytes -= bytes < p->learn_bytes ? bytes : p->learn_bytes;
}

void sched_acked(struct sched *s, unsigned int path, uint64_t bytes, uint64_t now_ns)
{
	struct sched_path *p = &s->path[path];
	double dt_ns;

	if (bytes < SCHED_COUNTED)
		return;
	advance(s, now_ns);
	dt_ns = s->last_ns - p->mark_ns;
	p->busy_ns += s->last_ns - p->mark_ns;
	take_out(s, p, bytes);
	s->moved += bytes;
	if (p->probing && dt_ns > 0)
		raise_rate(s, p, bytes / dt_ns, RAISE_UNSEEN);
	p->probing = false;
	learn_bytes(p, bytes);
	count_bytes(s, p, bytes, dt_ns);
	trial_step(s);
}

void sched_dropped(struct sched *s, unsigned int path, uint64_t bytes, uint64_t now_ns)
{
	if (bytes < SCHED_COUNTED)
		return;
	advance(s, now_ns);
	take_out(s, &s->path[path], bytes);
}

void sched_rebalanced(struct sched *s)
{
	s->reroute = false;
	s->regret = 0;
	for (unsigned int i = 0; i < s->npaths; i++)
		s->path[i].skip_bytes = s->path[i].in_flight + SCHED_BURST_BYTES;
}

/* Less than the rate where, at that rate, something would have been acknowledged long ago. */
static double rate_now(const struct sched_path *p, uint64_t now_ns)
{
	double silent_ns = now_ns > p->mark_ns ? now_ns - p->mark_ns : 0;
	double limit = 2.0 * p->in_flight + SCHED_BURST_BYTES;

	if (!p->in_flight || silent_ns * p->rate <= limit)
		return p->rate;
	return limit / silent_ns;
}

/* What is left of the bytes in flight: the piece that is being carried is partly done. */
static double backlog(const struct sched_path *p, uint64_t now_ns)
{
	double done = now_ns > p->mark_ns ? (now_ns - p->mark_ns) * p->rate : 0;
	double piece = p->piece < p->in_flight ? p->piece : p->in_flight;

	return p->in_flight - (done < piece ? done : piece);
}

/* Paths that take part in a share. */
struct share {
	unsigned int num;
	unsigned int path[BOND_MAX_PATHS];
	double rate[BOND_MAX_PATHS];
	double backlog[BOND_MAX_PATHS];
	double level_ns;			/* when all of them end */
};

static void share_remove(struct share *sh, unsigned int at)
{
	sh->num--;
	for (; at < sh->num; at++) {
		sh->path[at] = sh->path[at + 1];
		sh->rate[at] = sh->rate[at + 1];
		sh->backlog[at] = sh->backlog[at + 1];
	}
}

/*
 * Fills all up to one level. The path that gets least leaves while that is too little for a piece
 * of its own; the rest is then better off without it, never worse than the best alone.
 */
static void share_level(struct share *sh, double len)
{
	for (;;) {
		double rate = 0, backlog = 0, least = 0;
		unsigned int at = 0;

		for (unsigned int i = 0; i < sh->num; i++) {
			rate += sh->rate[i];
			backlog += sh->backlog[i];
		}
		sh->level_ns = (len + backlog) / rate;
		for (unsigned int i = 0; i < sh->num; i++) {
			double part = sh->level_ns * sh->rate[i] - sh->backlog[i];

			if (!i || part <= least) {
				least = part;
				at = i;
			}
		}
		if (least >= MIN_SHARE || sh->num <= 1)
			return;
		share_remove(sh, at);
	}
}

static void share_probes(const struct sched *s, uint64_t len, uint64_t now_ns, double *quota)
{
	unsigned int most = 0;

	for (unsigned int i = 1; i < s->npaths; i++)
		if (quota[i] > quota[most])
			most = i;
	for (unsigned int i = 0; i < s->npaths; i++) {
		const struct sched_path *p = &s->path[i];

		if (len < 4 * PLAN_MIN_PIECE || quota[most] < 2 * PLAN_MIN_PIECE)
			return;
		if (p->usable && !p->benched && quota[i] <= 0 && probe_due(p, now_ns)) {
			quota[i] = PLAN_MIN_PIECE;
			quota[most] -= PLAN_MIN_PIECE;
		}
	}
}

unsigned int sched_share(const struct sched *s, uint64_t len, const uint64_t *forced,
			 uint64_t now_ns, double *quota)
{
	struct share sh = { .num = 0 };

	for (unsigned int i = 0; i < s->npaths; i++) {
		const struct sched_path *p = &s->path[i];

		quota[i] = 0;
		if (!p->usable || p->benched)
			continue;
		sh.path[sh.num] = i;
		sh.rate[sh.num] = rate_now(p, now_ns);
		sh.backlog[sh.num++] = forced ? forced[i] : backlog(p, now_ns);
	}
	if (!sh.num)
		return 0;
	share_level(&sh, len);
	for (unsigned int i = 0; i < sh.num; i++)
		quota[sh.path[i]] = sh.num == 1 ? (double)len :
				    sh.level_ns * sh.rate[i] - sh.backlog[i];
	if (sh.num < s->num_usable - s->num_benched)
		share_probes(s, len, now_ns, quota);
	return sh.num;
}

double sched_fresh_ns(const struct sched *s, uint64_t len)
{
	struct share sh = { .num = 0 };

	for (unsigned int i = 0; i < s->npaths; i++)
		if (s->path[i].usable && !s->path[i].benched) {
			sh.rate[sh.num] = s->path[i].rate;
			sh.backlog[sh.num++] = 0;
		}
	if (sh.num)
		share_level(&sh, len);
	return sh.level_ns;
}

int sched_best(const struct sched *s, uint64_t len, uint64_t now_ns)
{
	double best_ns = 0;
	int best = -1;

	for (unsigned int i = 0; i < s->npaths; i++) {
		const struct sched_path *p = &s->path[i];
		double end_ns;

		if (!p->usable || p->benched)
			continue;
		end_ns = (backlog(p, now_ns) + len) / rate_now(p, now_ns);
		if (best < 0 || end_ns < best_ns) {
			best = i;
			best_ns = end_ns;
		}
	}
	return best;
}
