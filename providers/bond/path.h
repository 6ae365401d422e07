/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A path's queue: pieces go in at the tail, to the member's QP in that order, and out at the head
 * when the member says they are done. Nothing passes within it. Everything here is called with
 * the QP's sq_lock held. What goes where is order.c's business.
 */
#ifndef BOND_PATH_H
#define BOND_PATH_H

#include <errno.h>

#include "bond.h"

static inline uint32_t path_room(const struct path *path)
{
	return path->mask + 1 - (path->tail - path->head);
}

/* siw returns 0 with bad_wr set, and negative errnos. Of a post that did not take everything. */
static inline int post_errno(int ret)
{
	return ret < 0 ? -ret : ret ? ret : ENOMEM;
}

static inline bool path_backlog(const struct path *path)
{
	return path->posted != path->tail;
}

/* The caller has made sure of room. */
static inline struct piece *path_append(struct path *path)
{
	return &path->ring[path->tail++ & path->mask];
}

int path_open(struct path *path, struct bond_qp *qp, unsigned int index, unsigned int member,
	      struct ibv_qp *mqp, struct mcq *mcq, uint32_t depth_wr, uint32_t ring_size);
void path_close(struct path *path);
/* Posts what waits, as far as the member takes it. */
void path_push(struct path *path);
/* Takes back the youngest piece, which the member has not seen. */
void path_unappend(struct path *path);
/* The piece at @index is done with @status, and with it, successfully, all before it. */
void path_retire(struct path *path, uint32_t index, enum ibv_wc_status status, uint32_t vendor_err);
/*
 * Everything in the queue is over; what should have been heard of and was not is flushed. Nothing
 * counts as due any more.
 */
void path_flush(struct path *path);

#endif
