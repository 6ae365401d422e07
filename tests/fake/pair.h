/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * For the tests of the fake NIC: two ends, opened, connected and ready, and short names for what
 * one does with them. Everything here fails the running cmocka test when it fails.
 */
#ifndef FAKE_PAIR_H
#define FAKE_PAIR_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <infiniband/verbs.h>

#include "fake_ctl.h"

#define BUF_BYTES (1 << 20)
#define ALL_ACCESS \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)

/* Zero means the default in brackets. */
struct options {
	enum ibv_qp_type type; /* RC */
	uint32_t send_wr, recv_wr, cqe; /* 64, 64, 256 */
	uint32_t num_sge, inline_bytes; /* 4, 64 */
	int mr_access, qp_access; /* ALL_ACCESS; -1 is none */
	uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer; /* 8 (1 ms), 3, 0, 1 (10 us) */
	bool sig_all, srq, channel, extended, unconnected;
	enum ibv_mtu mtu; /* 4096 */
};

struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *scq, *rcq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buf;
	union ibv_gid gid;
	struct options opt;
};

struct pair {
	struct end a, b;
};

struct ibv_context *open_named(const char *name);
void end_open(struct end *e, const char *device, const struct options *opt);
/* INIT, RTR and RTS; both ends start at PSN 0x123456. */
void end_connect(struct end *e, const union ibv_gid *gid, uint32_t qpn);
void end_close(struct end *e);
/* Between a0 and b0; OPT may be NULL. */
void pair_open(struct pair *p, const struct options *opt);
void pair_close(struct pair *p);

int modify_state(struct ibv_qp *qp, enum ibv_qp_state state);

/*
 * A signalled WR of one SGE: [offset, offset + length) of E's buffer with the same place in TO's,
 * if TO is not NULL.
 */
struct wr {
	struct ibv_send_wr wr;
	struct ibv_sge sge;
};
struct wr *wr_make(struct wr *w, struct end *e, struct end *to, enum ibv_wr_opcode opcode,
		   uint32_t offset, uint32_t length);
int wr_post(struct end *e, struct wr *w);
/* All in one; fails the test if it is not accepted. */
void post(struct end *e, struct end *to, enum ibv_wr_opcode opcode, uint32_t offset,
	  uint32_t length, uint64_t wr_id);
void post_recv(struct end *e, uint32_t offset, uint32_t length, uint64_t wr_id);

/* The next completion, within two seconds. */
struct ibv_wc wait_wc(struct ibv_cq *cq);
/* And it must be this. */
void expect_wc(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status);
void expect_none(struct ibv_cq *cq, int ms);
/* The next asynchronous event, acknowledged, within two seconds. */
struct ibv_async_event wait_event(struct ibv_context *ctx);
bool has_event(int fd, int ms);

double now_s(void);
void fill(uint8_t *buf, size_t bytes, uint8_t seed);

#endif
