/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A QP layer for tests of the control channel: it counts the callbacks, remembers what they said,
 * and can be slow or fail. It makes no QPs.
 */
#ifndef TESTS_CTRL_FAKE_QP_H
#define TESTS_CTRL_FAKE_QP_H

#include <pthread.h>

#include "auth.h"
#include "ctrl.h"

#define FAKE_KEYS 32

enum fake_event {
	FAKE_DESCRIBE,
	FAKE_OFFER,
	FAKE_ANSWER,
	FAKE_READY,
	FAKE_GONE,
	FAKE_ERROR,
	FAKE_LOST,
	FAKE_BACK,
	FAKE_LOOKUP,
	FAKE_LEARNED,
	FAKE_WITHDRAWN,
	FAKE_EVENTS,
};

struct fake_qp {
	struct ctrl_qp *qp;
	struct ctrl_qp_info info;

	/* Set before fake_up(). */
	unsigned int slow_ms;		/* each callback takes that long */
	_Atomic(int) fail[FAKE_EVENTS];	/* what these callbacks return; at any time */
	unsigned int npaths;		/* 2 */
	void (*hook)(struct fake_qp *qp, enum fake_event event);

	pthread_mutex_t lock;		/* guards what follows */
	pthread_cond_t changed;
	bool down;
	unsigned int after_down;	/* callbacks that came too late: must stay 0 */
	unsigned int inside;
	unsigned int count[FAKE_EVENTS];
	uint32_t mask;
	uint32_t reason;
	uint32_t learned_rkey;
	unsigned int learned_nkeys;
	uint32_t learned_keys[WIRE_MAX_MEMBERS];
	uint32_t withdrawn_rkey;
	struct wire_qp_desc peer;	/* of OFFER or ANSWER */
};

/* The MRs of this process. */
void fake_key_add(uint32_t rkey, uint64_t pd_id, unsigned int nkeys);
void fake_key_remove(uint32_t rkey);

struct ctrl *fake_ctrl(uint16_t port, const struct auth_key *key);
/* Log lines at warning level since the last call. */
unsigned int fake_warnings(void);

/* "127.0.0.3" or an IPv6 address. */
void fake_gid(uint8_t gid[16], const char *text);
void fake_init(struct fake_qp *qp, const char *ip, uint32_t qpn, const char *dest_ip,
	       uint32_t dest_qpn, uint32_t generation);
void fake_up(struct ctrl *ctrl, struct fake_qp *qp);
void fake_down(struct fake_qp *qp);
/* Down if it is up, and nothing came late. */
void fake_end(struct fake_qp *qp);

unsigned int fake_count(struct fake_qp *qp, enum fake_event event);
/* Has event been called count times, within that time? */
bool fake_wait(struct fake_qp *qp, enum fake_event event, unsigned int count, unsigned int ms);

/* How many descriptors are open, without those up to stderr. */
int fds_open(void);
uint16_t free_port(void);
uint64_t now_ms(void);
void sleep_ms(unsigned int ms);

#endif
