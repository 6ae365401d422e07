/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Notification order without waiting (design 6): a receive completion means that all earlier
 * WRITEs of that QP are in memory. Where some may still be under way on other paths, the sender puts
 * a marker behind them there, a WRITE_WITH_IMM of no bytes, and on the lead, ahead of the message, a
 * header into a ring at the receiver: which message, and how many markers of each path go before
 * it. The receiver holds that completion until so many have come.
 *
 * Messages are counted by both ends from RESET: whatever consumes a receive. A header whose number is
 * not the message's is an old one: such a message is passed on as it is.
 *
 * Without REMOTE_WRITE on the peer's QP, or with an SRQ there, nothing of this is used.
 * Next: order.c, which says when; poll.c, where completions come in.
 */
#ifndef BOND_NOTIFY_H
#define BOND_NOTIFY_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "plan.h"

struct bond_qp;
struct bond_cq;
struct mcq;
struct path;
struct piece;
struct sq_wr;
struct wire_qp_desc;

enum notify_flags {
	NOTIFY_SOLICITED = 1 << 0,
	NOTIFY_LENGTH = 1 << 1,		/* total_len counts: the data did not come with the message */
};

/* As it lies in the receiver's ring: little endian. */
struct notify_header {
	uint64_t number;		/* the message's, from RESET and from 1; 0: none yet */
	uint32_t total_len;		/* bytes */
	uint32_t flags;			/* enum notify_flags */
	uint32_t marks[BOND_MAX_PATHS];	/* of each path since pairing, by path; the lead has none */
};

struct notify {
	/* one buffer, registered with the primary: the ring that the peer writes, then what we send */
	void *buf;
	struct ibv_mr *mr;
	struct notify_header *ring, *staging;
	uint32_t ring_mask;
	/* the peer's ring; sq_lock */
	bool tx;			/* there is one */
	uint64_t tx_addr;
	uint32_t tx_rkey, tx_mask;
	uint32_t tx_marks[BOND_MAX_PATHS];
	/* receiving; rq_lock */
	uint32_t rx_seen;		/* messages: [rq_head, rx_seen) came and are held */
	uint64_t rx_number;		/* of the last message that was delivered or is held */
	uint32_t rx_marks[BOND_MAX_PATHS];
	struct ibv_wc *held;		/* as many as the receive queue has */
	bool rx_waiting;		/* others' CQs are looked at for markers */
	bool rx_failed;			/* no more markers will come */
	/* qp->lock */
	bool paired;			/* since RESET */
	bool off;			/* this life does without, ... */
	bool rx_off;			/* ... or its receives do */
};

/* ---- set up, by the control thread; qp->lock held ---- */

/* The buffers, before the QP is described to the peer. Without memory for it: not used. */
void notify_open(struct bond_qp *qp);
void notify_close(struct bond_qp *qp);
/* After RESET: nothing has been sent or received. */
void notify_reset(struct bond_qp *qp);
void notify_describe(const struct bond_qp *qp, struct wire_qp_desc *mine);
/* What the peer said of its ring. */
void notify_peer(struct bond_qp *qp, const struct wire_qp_desc *peer);
/*
 * The receives for markers on a new path: as many as its CQ has room for are set aside, 0 where
 * there are to be none, and given back.
 */
int notify_receives_take(struct bond_qp *qp, struct mcq *mcq);
void notify_receives_give(struct mcq *mcq, int receives);
int notify_post_receives(struct path *path);

/* The other paths go: takes in what has come on them; what is still waited for will not come. */
void notify_end(struct bond_qp *qp);

/* ---- sending; sq_lock held ---- */

/* May a message go although pieces of older WRs are under way on other paths? Room included. */
bool notify_may(struct bond_qp *qp);
/* Puts markers and header out; the message itself is the caller's, right behind. */
void notify_send(struct bond_qp *qp, uint32_t seq, struct sq_wr *wr, uint32_t total_len,
		 uint32_t flags);
/* Makes the WR of one of our own pieces. @sge has room for one. */
void notify_fill(const struct path *path, const struct piece *piece, struct ibv_send_wr *wr,
		 struct ibv_sge *sge);

/* ---- receiving; the receive CQ's lock held ---- */

/*
 * A receive of the application's has completed, @wc with its wr_id put back. true: it goes on to
 * the application now; false: it is held.
 */
bool notify_received(struct bond_qp *qp, struct ibv_wc *wc, uint32_t index);
/* A marker came on a path, or its receive failed: what it set free is in the CQ's own queue. */
void notify_marked(struct bond_cq *cq, struct path *path, const struct ibv_wc *wc);

#endif
