/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Two ends, a and b, each with a context, one arena of memory and verbs objects known by a
 * small number. A test drives both from one place: what is asked of end b happens in this
 * process, or, with -P, in a child that executes the same program with its own environment;
 * the test reads the same. What a program does with end a beyond this it does
 * with plain verbs on the pointers in struct end_objs.
 *
 * The arenas are shared memory, so that a test sees end b's bytes without asking (peek); in the
 * child they are mapped at another address, so that a mixed-up address cannot go unnoticed.
 *
 * All functions return 0 or a positive errno unless they say otherwise.
 */
#ifndef VERBS_END_H
#define VERBS_END_H

#include <infiniband/verbs.h>

#include "common.h"

enum {
	END_PDS = 4,
	END_MRS = 64,
	END_CQS = 40,
	END_QPS = 40,
	END_SGES = 16,
	END_WCS = 64,
	END_RECVS = 64,
};

struct end_objs {
	struct ibv_context *ctx;
	struct ibv_pd *pd[END_PDS];
	struct ibv_mr *mr[END_MRS];
	struct ibv_cq *cq[END_CQS];
	struct ibv_qp *qp[END_QPS];
};

struct end {
	const char *dev;
	int sock;			/* to the process of this end; -1: this process */
	pid_t child;
	uint8_t *base;			/* the arena's address in this end's process */
	uint8_t *peek;			/* the same bytes in this process */
	size_t arena_len;
	int gid_index;
	union ibv_gid gid;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	struct end_objs *objs;		/* NULL where the end is another process */
};

struct pair {
	struct end a;			/* always in this process */
	struct end b;
};

struct end_keys {
	uint32_t lkey;
	uint32_t rkey;
};

struct qp_spec {
	int pd;
	int send_cq;
	int recv_cq;
	bool sig_all;
	struct ibv_qp_cap cap;		/* in: wanted; out: what was given */
};

/* What RC needs to connect; zero fields take the defaults of conn_defaults(). */
struct conn_spec {
	int access_a;			/* rights that a's QP gives to b */
	int access_b;
	uint8_t rd_atomic;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint8_t min_rnr_timer;
};

struct end_recv {
	uint64_t wr_id;
	int num_sge;
	struct ibv_sge sge[END_SGES];	/* addresses as in the end's own process */
};

struct end_send {
	uint64_t wr_id;
	enum ibv_wr_opcode opcode;
	unsigned int flags;
	uint32_t imm;
	int num_sge;
	struct ibv_sge sge[2];
	uint64_t remote_addr;
	uint32_t rkey;
};

enum { ALL_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
		    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

/* Opens both devices by opts; dies where that fails. arena_len in bytes, of each end. */
void pair_open(struct pair *p, size_t arena_len);
void pair_open_named(struct pair *p, const char *dev_a, const char *dev_b, size_t arena_len);
void pair_close(struct pair *p);

int end_pd(struct end *e, int pd);
int end_pd_dealloc(struct end *e, int pd);
int end_mr_reg(struct end *e, int mr, int pd, uint64_t off, uint64_t len, int access,
	       struct end_keys *keys);
int end_mr_dereg(struct end *e, int mr);
int end_cq_create(struct end *e, int cq, int cqe);
int end_cq_destroy(struct end *e, int cq);
int end_qp_create(struct end *e, int qp, struct qp_spec *spec);
int end_qp_destroy(struct end *e, int qp);
int end_qp_num(struct end *e, int qp, uint32_t *qpn);
int end_qp_modify(struct end *e, int qp, const struct ibv_qp_attr *attr, int mask);
/* IBV_QPS_UNKNOWN where the query fails. */
enum ibv_qp_state end_qp_state(struct end *e, int qp);
int end_qp_to(struct end *e, int qp, enum ibv_qp_state state);
int end_post_recv(struct end *e, int qp, const struct end_recv *recv, int n);
int end_post_send(struct end *e, int qp, const struct end_send *send);
/* Waits until want (at most END_WCS) completions came or the time is up; returns how many. */
int end_poll(struct end *e, int cq, struct ibv_wc *wc, int want, unsigned int timeout_ms);
/* The next async event, already acknowledged: its type, and the QP's number or -1. */
int end_event(struct end *e, enum ibv_event_type *type, int *qp, unsigned int timeout_ms);
int end_sleep(struct end *e, unsigned int ms);

struct conn_spec conn_defaults(void);
/* The steps of a connection; peer and peer_qp say where to. */
int end_to_init(struct end *e, int qp, int access);
int end_to_rtr(struct end *e, int qp, struct end *peer, int peer_qp,
	       const struct conn_spec *spec);
int end_to_rts(struct end *e, int qp, const struct conn_spec *spec);
/* Both QPs from RESET to RTS. */
int pair_connect(struct pair *p, int qp_a, int qp_b, const struct conn_spec *spec);

/* The usual set: PD 0, the whole arena as MR 0, CQ 0, at both ends. */
void pair_basics(struct pair *p, int cqe, struct end_keys *keys_a, struct end_keys *keys_b);
/* One QP on CQ 0 and PD 0 at each end, connected. max_wr counts sends and receives alike. */
void pair_qp(struct pair *p, int qp, unsigned int max_wr, const struct conn_spec *spec);

struct ibv_sge sge_at(const struct end *e, uint64_t off, uint32_t len, uint32_t lkey);

/* One signalled WR with one SGE (none where sge is NULL), aimed at off in the arena of to. */
struct ibv_send_wr wr_make(uint64_t wr_id, enum ibv_wr_opcode opcode, struct ibv_sge *sge,
			   const struct end *to, uint64_t off, uint32_t rkey);
/* Positive errno, whatever sign the device used. */
int post_one(struct ibv_qp *qp, struct ibv_send_wr *wr);
int post_chain(struct ibv_qp *qp, struct ibv_send_wr *wr, int n, struct ibv_send_wr **bad);
/* n completions on the CQ, all good; notes failures, returns whether so. */
bool wait_good(struct end *e, int cq, int n);
/* Nothing comes within the time. */
bool wait_none(struct end *e, int cq, unsigned int ms);

#endif
