/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The progress thread: one per process, from the first context to the last, all signals blocked. It
 * reads the members' event descriptors, and while work is held in software it looks every
 * millisecond whether the application polls; if not, it takes the completions in itself. It never
 * waits for a peer, nor for the lock of a CQ that the application is polling.
 */
#ifndef BOND_PROGRESS_H
#define BOND_PROGRESS_H

#include "bond.h"

/* The context's members are open. 0 or errno. */
int progress_add(struct bond_context *bctx);
void progress_del(struct bond_context *bctx);
/* There is held work: tick. A system call only where the thread sleeps. Any lock may be held. */
void progress_want(void);
/* Between these two the thread touches no context, CQ or QP. No bond lock may be held. */
void progress_stop_world(void);
void progress_start_world(void);
/* The CQ goes. Only between the two. */
void progress_forget_cq(struct bond_cq *cq);
/* For pthread_atfork(). */
void progress_fork_child(void);

#endif
