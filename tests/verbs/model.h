/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The model of rw_model: random operations, the rules by which verbs lets them be in flight
 * together, and the memory of both ends as it must be after executing them in order.
 * Knows offsets into the arenas only; no verbs calls.
 */
#ifndef VERBS_MODEL_H
#define VERBS_MODEL_H

#include "common.h"

enum op_kind {
	OP_WRITE,
	OP_READ,
	OP_SEND,
	OP_SEND_IMM,
	OP_WRITE_IMM,
	OP_FETCH_ADD,
	OP_CMP_SWAP,
};

enum { MODEL_SGES = 16, MODEL_RECV_SGES = 4, MODEL_WINDOW = 256, MODEL_LOG = 1024 };

struct range {
	uint64_t off;
	uint64_t len;
};

struct op {
	uint64_t index;
	enum op_kind kind;
	bool signaled;
	bool fence;
	bool is_inline;
	bool done;
	uint32_t imm;
	uint64_t len;
	int num_local;
	struct range local[MODEL_SGES];		/* in a: source, or READ and atomic result */
	int num_remote;
	struct range remote[MODEL_RECV_SGES];	/* in b: one, but for a SEND's receive */
	uint64_t operand;			/* add, or swap */
	uint64_t compare;
};

struct model_limits {
	uint64_t arena_len;
	uint64_t max_len;
	unsigned int max_sge;
	unsigned int max_recv_sge;
	unsigned int max_inline;
	unsigned int depth_wr;			/* most ops in flight */
	bool messages;				/* SEND and immediate data too */
	bool atomics;
	bool rc_in_order;			/* see model_relate() */
	bool disjoint_reads;
	bool atomic_overlap;
	bool receives_apart;
	bool spread;				/* longer, and less often in one place */
};

struct model {
	struct model_limits lim;
	struct rng rng;
	uint8_t *mem[2];			/* as a's and b's arena must be */
	uint64_t next_index;
	struct op log[MODEL_LOG];		/* all since the last agreement */
	unsigned int num_log;
	unsigned int first_undone;		/* in log: all before are done */
	unsigned int unsignaled_run;
};

bool op_reads_remote(enum op_kind kind);
bool op_takes_receive(enum op_kind kind);
const char *op_name(enum op_kind kind);

void model_init(struct model *m, const struct model_limits *lim, uint64_t seed);
void model_free(struct model *m);
/*
 * The next operation, allowed beside all that is in flight, or NULL where some of that must
 * finish first. It is in the log and already executed in the model's memory.
 */
struct op *model_next(struct model *m);
/* A signalled zero-length WRITE: what is unsignalled before it is known to be done after it. */
struct op *model_flush_op(struct model *m);
unsigned int model_in_flight(const struct model *m);
/* The completion of op says that all before it are done too. */
void model_done(struct model *m, const struct op *op);
/* The oldest signalled one in flight; NULL if none. */
struct op *model_oldest_signaled(struct model *m);
/* All is done: notes every difference to the arenas as a failure of the open case. */
bool model_agrees(struct model *m, const uint8_t *a, const uint8_t *b);
/* After agreement: empty log; some of both arenas gets new random bytes. */
void model_refresh(struct model *m, uint8_t *a, uint8_t *b);

#endif
