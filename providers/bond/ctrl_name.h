/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A table of QPs by their name, GID and QPN. A name may be there more than once, for a while: the
 * QPN of a QP that went is used again. Pure.
 */
#ifndef BOND_CTRL_NAME_H
#define BOND_CTRL_NAME_H

#include <stdint.h>
#include <string.h>

#include "ctrl_list.h"

#define QP_NAME_BUCKETS 256

struct qp_name {
	struct ring bucket;
	uint32_t qpn;
	uint8_t gid[16];
};

struct qp_names {
	struct ring buckets[QP_NAME_BUCKETS];
};

static inline struct ring *qp_names_bucket(struct qp_names *names, const uint8_t gid[16],
					   uint32_t qpn)
{
	return &names->buckets[(qpn ^ qpn >> 8 ^ gid[15]) % QP_NAME_BUCKETS];
}

static inline void qp_names_init(struct qp_names *names)
{
	for (int i = 0; i < QP_NAME_BUCKETS; i++)
		ring_init(&names->buckets[i]);
}

/* ring_remove(&name->bucket) takes it out again. */
static inline void qp_names_add(struct qp_names *names, struct qp_name *name,
				const uint8_t gid[16], uint32_t qpn)
{
	name->qpn = qpn;
	memcpy(name->gid, gid, sizeof(name->gid));
	ring_append(qp_names_bucket(names, gid, qpn), &name->bucket);
}

/* The newest of that name; with newer, the newest that is older than that one. NULL: none. */
static inline struct qp_name *qp_names_find(struct qp_names *names, const uint8_t gid[16],
					    uint32_t qpn, const struct qp_name *newer)
{
	struct ring *head = qp_names_bucket(names, gid, qpn);
	struct ring *node = newer ? newer->bucket.prev : head->prev;

	for (; node != head; node = node->prev) {
		struct qp_name *name = ring_entry(node, struct qp_name, bucket);

		if (name->qpn == qpn && !memcmp(name->gid, gid, sizeof(name->gid)))
			return name;
	}
	return NULL;
}

#endif
