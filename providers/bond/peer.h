/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The QP layer's side of the control channel: pairs this end's members with the peer's, makes and
 * connects the QPs of the further paths, and exchanges keys. ctrl.h is the channel itself.
 */
#ifndef BOND_PEER_H
#define BOND_PEER_H

#include "bond.h"

/* One control channel per process and port, shared by its contexts. 0 or errno. */
int bond_peer_context_open(struct bond_context *bctx);
void bond_peer_context_close(struct bond_context *bctx);

/*
 * The application's QP reached RTR: look for the peer. Never waits, and never fails: a QP without
 * peer stays on path 0.
 */
void bond_peer_up(struct bond_qp *qp);
/* RESET or destroy. No callback for the QP afterwards. qp->lock is not held. */
void bond_peer_down(struct bond_qp *qp);
/* The application's QP reached RTS: so do its other paths. qp->lock is held. */
void bond_peer_rts(struct bond_qp *qp);
/* RDMA_BOND_WAIT_MS: until the paths are ready, or time is up. */
void bond_peer_wait(struct bond_qp *qp);
/* Destroys the QPs of all paths but 0. qp->lock is held. What is in flight there is flushed. */
void bond_peer_drop_paths(struct bond_qp *qp);

/* The rest with the sq_lock held. */

/* First use of an rkey: its keys are fetched in the background. */
void bond_peer_key_ask(struct bond_qp *qp, uint32_t rkey);
/* This QP failed; the peer may have to know. */
void bond_peer_error(struct bond_qp *qp);
/* Everything from before the paths were ready is done: spreading may begin. */
void bond_peer_spread(struct bond_qp *qp);

/* For mr.c. */
void bond_peer_key_withdraw(uint32_t rkey, uint64_t pd_id);
bool bond_peer_key_withdrawing(uint32_t rkey, uint64_t pd_id);

#endif
