/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What every verbs program here shares that is not verbs: command line, one line per case,
 * a deadline that ends a hung program, random numbers that repeat by seed, time.
 *
 * The two ends and their verbs objects are in end.h; read that next.
 */
#ifndef VERBS_COMMON_H
#define VERBS_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Options that all programs know; filled by opts_parse(). */
struct opts {
	const char *dev[2];		/* -d end a, -D end b (default: as a) */
	const char *env_b[16];		/* -E KEY=VAL: only in the process of end b */
	int nenv_b;
	bool two_processes;		/* -P, or any -E */
	int gid_index;			/* -g; -1: the RoCE v2 GID of an IPv4 address */
	uint64_t seed;			/* --seed; 0: from the clock, and printed */
	bool quick;			/* --quick: a tenth of the work */
	unsigned int limit_s;		/* --limit: the whole program's deadline */
	unsigned int wait_ms;		/* --wait: longest wait for one completion */
	const char *serve;		/* this process is only end b's; see end.c */
};

extern struct opts opts;

/* A program's own option. Sizes take k, m and g (powers of 1024). */
enum opt_kind { OPT_FLAG, OPT_SIZE, OPT_TEXT };

struct opt_row {
	const char *name;
	enum opt_kind kind;
	void *var;			/* bool, uint64_t or const char * */
	const char *help;
};

/* extra ends with a row without name. Exits on a wrong command line. Starts the deadline. */
void opts_parse(int argc, char **argv, const char *what, const struct opt_row *extra);

/*
 * Cases. Between begin and end any number of failures may be noted; the first ones are printed.
 * A case that was begun and neither failed nor skipped has passed.
 */
void case_begin(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void case_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void case_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void case_skip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
bool case_failed(void);
void case_end(void);
/* Exit code: 0 all passed, 1 any failed or none ran, 77 only skipped. */
int report(void);
/* Something the program needs and that no case is about does not work: one line, exit 1. */
void die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

#define EXPECT(cond, ...)				\
	do {						\
		if (!(cond))				\
			case_fail(__VA_ARGS__);		\
	} while (0)

/* For calls that return 0 or an errno. */
#define MUST(call)								\
	do {									\
		int must_err = (call);						\
		if (must_err)							\
			die("%s:%d: %s: %s", __FILE_NAME__, __LINE__, #call,	\
			    strerror(must_err));				\
	} while (0)

/* The same in a case: notes the failure and goes on. */
#define EXPECT_OK(call)								\
	do {									\
		int exp_err = (call);						\
		if (exp_err)							\
			case_fail("%s: %s", #call, strerror(exp_err));		\
	} while (0)

#ifndef __FILE_NAME__
#define __FILE_NAME__ __FILE__
#endif

/* splitmix64: small, and one word of state makes a case repeatable. */
struct rng {
	uint64_t state;
};

uint64_t rng_next(struct rng *r);
uint64_t rng_below(struct rng *r, uint64_t n);	/* 0 .. n-1; n > 0 */
bool rng_one_in(struct rng *r, unsigned int n);
void rng_fill(struct rng *r, void *buf, size_t len);

uint64_t now_ns(void);
void sleep_us(unsigned int us);

#endif
