/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Command line, cases, deadline, random numbers. No verbs here: end.c has those.
 */
#include "common.h"

#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct opts opts = {
	.gid_index = -1,
	.limit_s = 600,
	.wait_ms = 20000,
};

static struct {
	char name[160];
	char note[160];
	bool open;
	bool skipped;
	unsigned int failures;		/* of the open case */
	unsigned int passed_cases;
	unsigned int failed_cases;
	unsigned int skipped_cases;
	/* Several threads of one case may fail at once. */
	pthread_mutex_t failures_lock;
} run = {
	.failures_lock = PTHREAD_MUTEX_INITIALIZER,
};

enum { MAX_FAILURES_SHOWN = 8, MAX_EXTRA = 16 };
enum { OPT_SEED = 256, OPT_QUICK, OPT_LIMIT, OPT_WAIT, OPT_HELP, OPT_EXTRA };

static const struct option base_options[] = {
	{ "seed", required_argument, NULL, OPT_SEED },
	{ "quick", no_argument, NULL, OPT_QUICK },
	{ "limit", required_argument, NULL, OPT_LIMIT },
	{ "wait", required_argument, NULL, OPT_WAIT },
	{ "help", no_argument, NULL, OPT_HELP },
};

#define NUM_BASE_OPTIONS (sizeof(base_options) / sizeof(base_options[0]))

static void usage(const char *prog, const char *what, const struct opt_row *extra)
{
	const struct opt_row *row;

	printf("%s: %s\n"
	       "usage: %s -d DEV [-D DEV] [options]\n"
	       "  -d DEV        device of end a\n"
	       "  -D DEV        device of end b (default: the same)\n"
	       "  -P            the ends are two processes\n"
	       "  -E KEY=VAL    environment of end b's process only (implies -P)\n"
	       "  -g INDEX      GID index (default: RoCE v2 of an IPv4 address)\n"
	       "  --seed N      repeat a run; 0 takes a new seed\n"
	       "  --quick       about a tenth of the work\n"
	       "  --limit S     deadline of the whole program (600)\n"
	       "  --wait MS     longest wait for one completion (20000)\n",
	       prog, what, prog);
	for (row = extra; row && row->name; row++)
		printf("  --%-12s %s\n", row->name, row->help);
}

static uint64_t parse_size(const char *name, const char *text)
{
	char *end;
	uint64_t v;

	errno = 0;
	v = strtoull(text, &end, 0);
	switch (*end) {
	case 'k': case 'K': v <<= 10; end++; break;
	case 'm': case 'M': v <<= 20; end++; break;
	case 'g': case 'G': v <<= 30; end++; break;
	}
	if (errno || end == text || *end) {
		fprintf(stderr, "%s: not a number: %s\n", name, text);
		exit(2);
	}
	return v;
}

static void set_extra(const struct opt_row *row, const char *text)
{
	switch (row->kind) {
	case OPT_FLAG:
		*(bool *)row->var = true;
		break;
	case OPT_SIZE:
		*(uint64_t *)row->var = parse_size(row->name, text);
		break;
	case OPT_TEXT:
		*(const char **)row->var = text;
		break;
	}
}

static void on_deadline(int sig)
{
	static const char text[] = "FAIL deadline reached in case: ";

	(void)sig;
	/* Only async-signal-safe calls: some thread may hold stdio's lock. */
	if (write(1, text, sizeof(text) - 1) < 0 ||
	    write(1, run.name, strlen(run.name)) < 0 || write(1, "\n", 1) < 0)
		_exit(1);
	_exit(1);
}

static void add_env_b(const char *text)
{
	if (!strchr(text, '=') ||
	    opts.nenv_b == sizeof(opts.env_b) / sizeof(opts.env_b[0])) {
		fprintf(stderr, "-E: want KEY=VAL, at most 16 of them: %s\n", text);
		exit(2);
	}
	opts.env_b[opts.nenv_b++] = text;
	opts.two_processes = true;
}

static bool set_base(int opt)
{
	switch (opt) {
	case 'd': opts.dev[0] = optarg; break;
	case 'D': opts.dev[1] = optarg; break;
	case 'P': opts.two_processes = true; break;
	case 'E': add_env_b(optarg); break;
	case 'g': opts.gid_index = parse_size("-g", optarg); break;
	case OPT_SEED: opts.seed = parse_size("--seed", optarg); break;
	case OPT_QUICK: opts.quick = true; break;
	case OPT_LIMIT: opts.limit_s = parse_size("--limit", optarg); break;
	case OPT_WAIT: opts.wait_ms = parse_size("--wait", optarg); break;
	default: return false;
	}
	return true;
}

void opts_parse(int argc, char **argv, const char *what, const struct opt_row *extra)
{
	struct option all[NUM_BASE_OPTIONS + MAX_EXTRA + 1] = { 0 };
	size_t n = NUM_BASE_OPTIONS, i;
	int opt;

	if (argc == 3 && !strcmp(argv[1], "--serve")) {
		opts.serve = argv[2];
		return;
	}
	memcpy(all, base_options, sizeof(base_options));
	for (i = 0; extra && extra[i].name && i < MAX_EXTRA; i++, n++)
		all[n] = (struct option){
			.name = extra[i].name,
			.has_arg = extra[i].kind == OPT_FLAG ? no_argument : required_argument,
			.val = OPT_EXTRA + (int)i,
		};

	while ((opt = getopt_long(argc, argv, "d:D:PE:g:", all, NULL)) != -1) {
		if (opt >= OPT_EXTRA)
			set_extra(&extra[opt - OPT_EXTRA], optarg);
		else if (!set_base(opt)) {
			usage(argv[0], what, extra);
			exit(opt == OPT_HELP ? 0 : 2);
		}
	}
	if (!opts.dev[0] || optind != argc) {
		usage(argv[0], what, extra);
		exit(2);
	}
	if (!opts.dev[1])
		opts.dev[1] = opts.dev[0];
	if (!opts.seed)
		opts.seed = now_ns() % 1000000007 + 1;
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGALRM, on_deadline);
	alarm(opts.limit_s);
}

void case_begin(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(run.name, sizeof(run.name), fmt, ap);
	va_end(ap);
	run.open = true;
	run.skipped = false;
	run.failures = 0;
	run.note[0] = '\0';
}

void case_note(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(run.note, sizeof(run.note), fmt, ap);
	va_end(ap);
}

void case_fail(const char *fmt, ...)
{
	va_list ap;

	pthread_mutex_lock(&run.failures_lock);
	if (run.failures++ < MAX_FAILURES_SHOWN) {
		printf("     %s: ", run.name);
		va_start(ap, fmt);
		vprintf(fmt, ap);
		va_end(ap);
		printf("\n");
	}
	pthread_mutex_unlock(&run.failures_lock);
}

void case_skip(const char *fmt, ...)
{
	va_list ap;

	printf("skip %s: ", run.name);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	run.skipped = true;
}

bool case_failed(void)
{
	bool failed;

	pthread_mutex_lock(&run.failures_lock);
	failed = run.failures > 0;
	pthread_mutex_unlock(&run.failures_lock);
	return failed;
}

void case_end(void)
{
	if (!run.open)
		return;
	run.open = false;
	if (run.failures) {
		run.failed_cases++;
		printf("FAIL %s (%u wrong, seed %llu)\n", run.name, run.failures,
		       (unsigned long long)opts.seed);
	} else if (run.skipped) {
		run.skipped_cases++;
	} else {
		run.passed_cases++;
		printf("ok   %s%s%s\n", run.name, run.note[0] ? ": " : "", run.note);
	}
}

int report(void)
{
	case_end();
	printf("%u passed, %u failed, %u skipped (seed %llu)\n", run.passed_cases,
	       run.failed_cases, run.skipped_cases, (unsigned long long)opts.seed);
	if (run.failed_cases || !(run.passed_cases + run.skipped_cases))
		return 1;
	return run.passed_cases ? 0 : 77;
}

void die(const char *fmt, ...)
{
	va_list ap;

	printf("FAIL %s: ", run.open ? run.name : "set-up");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf(" (seed %llu)\n", (unsigned long long)opts.seed);
	exit(1);
}

uint64_t rng_next(struct rng *r)
{
	uint64_t z = r->state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

uint64_t rng_below(struct rng *r, uint64_t n)
{
	return rng_next(r) % n;
}

bool rng_one_in(struct rng *r, unsigned int n)
{
	return rng_below(r, n) == 0;
}

void rng_fill(struct rng *r, void *buf, size_t len)
{
	uint8_t *p = buf;
	uint64_t word;

	for (; len >= sizeof(word); p += sizeof(word), len -= sizeof(word)) {
		word = rng_next(r);
		memcpy(p, &word, sizeof(word));
	}
	word = rng_next(r);
	memcpy(p, &word, len);
}

uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

void sleep_us(unsigned int us)
{
	struct timespec ts = { us / 1000000, us % 1000000 * 1000l };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}
