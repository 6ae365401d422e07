/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Key translation. The application knows the primary's keys alone; a piece on another path needs
 * the key of that path's member. lkeys are this process's own and always known; rkeys are the
 * peer's and learned over the control channel (peer.c).
 */
#ifndef BOND_KEY_H
#define BOND_KEY_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "lock.h"
#include "config.h"

enum { LKEY_BUCKETS = 1024, RKEY_BUCKETS = 64 };

struct lkey_node {
	struct lkey_node *next;
	uint32_t lkey;			/* the primary's */
	uint32_t nkeys;
	uint64_t pd_id;
	uint64_t addr, length;		/* what may be named with it, as SGEs say it */
	bool writable;			/* IBV_ACCESS_LOCAL_WRITE */
	uint32_t key[BOND_MAX_MEMBERS];
};

struct lkey_table {
	struct bond_lock lock;
	struct lkey_node *bucket[LKEY_BUCKETS];
};

struct rkey_node;

struct rkey_cache {
	struct bond_lock lock;
	struct rkey_node *bucket[RKEY_BUCKETS];
};

/* The node stays the caller's; it must be deleted before its memory goes. */
void lkey_add(struct lkey_table *table, struct lkey_node *node);
void lkey_del(struct lkey_table *table, struct lkey_node *node);
/*
 * Would each of @nmembers members take these SGEs from a QP of that PD, @write: to deliver into?
 */
bool lkey_check(struct lkey_table *table, const struct ibv_sge *sge, unsigned int num_sge,
		uint64_t pd_id, bool write, unsigned int nmembers);
/* false: no such lkey, or none for that member. */
bool lkey_find(struct lkey_table *table, uint32_t lkey, unsigned int member, uint32_t *key);

/* What the peer said of one of its MRs. */
struct rkey_region {
	uint32_t nkeys;
	uint32_t key[BOND_MAX_MEMBERS];		/* by peer member */
	uint32_t access;			/* IBV_ACCESS_* */
	uint64_t addr, length;
};

/* ENOMEM when the key could not be kept; the caller asks again at the next use. */
int rkey_learn(struct rkey_cache *cache, uint32_t rkey, const struct rkey_region *region);
void rkey_forget(struct rkey_cache *cache, uint32_t rkey);
void rkey_forget_all(struct rkey_cache *cache);
/* false: unknown. */
bool rkey_find(struct rkey_cache *cache, uint32_t rkey, struct rkey_region *region);
/* Does the region allow @access to these bytes? */
static inline bool rkey_allows(const struct rkey_region *region, uint64_t addr, uint64_t len,
			       uint32_t access)
{
	return (region->access & access) == access && addr >= region->addr &&
	       len <= region->length && addr - region->addr <= region->length - len;
}

#endif
