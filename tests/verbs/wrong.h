/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Work requests that must fail, one table row each, and the keys that make them so.
 */
#ifndef VERBS_WRONG_H
#define VERBS_WRONG_H

#include "end.h"

enum {
	WRONG_QUEUE_WR = 8,
	WRONG_LARGE_LEN = 1 << 20,
	WRONG_KEYS_OFF = 8 << 20,	/* both ends: what the odd MRs cover */
	WRONG_RECV_OFF = 10 << 20,	/* end b */
	WRONG_SOURCE_OFF = 10 << 20,	/* end a */
	WRONG_ARENA_LEN = 12 << 20,
};

/* MRs by number, at both ends; MR 0 is good and covers all. */
enum wrong_mr {
	MR_GOOD,
	MR_NO_REMOTE_WRITE,
	MR_NO_REMOTE_READ,
	MR_NO_REMOTE_ATOMIC,
	MR_NO_LOCAL_WRITE,
	MR_SHORT,			/* ends before what is asked of it */
	MR_OTHER_PD,
	MR_STALE,			/* its key was valid once */
	MR_GARBAGE,			/* no such key ever was */
	NUM_WRONG_MRS,
};

enum wrong_where { WRONG_LOCAL, WRONG_REMOTE, WRONG_RNR };
enum wrong_recv { RECV_GOOD, RECV_SHORT, RECV_NONE };

struct wrong {
	const char *name;
	enum ibv_wr_opcode opcode;
	enum ibv_wr_opcode filler;	/* the seven good WRs around it */
	enum wrong_where where;
	enum wrong_mr local;
	enum wrong_mr remote;
	enum wrong_recv recv;
	int qp_access;			/* of b's QP; 0: all */
	bool small_only;
	bool misaligned;
	bool may_refuse;		/* EINVAL at post_send is as good */
	enum ibv_wc_status status;
	enum ibv_wc_status or_status;	/* devices differ; 0: they do not */
};

struct wrong_bench {
	struct pair pair;
	struct end_keys keys_a, keys_b;
	struct end_keys odd_a[NUM_WRONG_MRS], odd_b[NUM_WRONG_MRS];
};

extern const struct wrong wrongs[];	/* ends with a row without name */

void wrong_open(struct wrong_bench *b, const char *dev_a, const char *dev_b);
/* Turns a good WR of len bytes into the wrong one. */
void wrong_make(struct wrong_bench *b, const struct wrong *w, uint32_t len,
		struct ibv_send_wr *wr, struct ibv_sge *sge);
bool wrong_status_ok(const struct wrong *w, enum ibv_wc_status status);

#endif
