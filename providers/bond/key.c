/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* See key.h. Both tables are chained hashes under a spin lock: a look-up per piece, not per WR. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "key.h"

struct rkey_node {
	struct rkey_node *next;
	uint32_t rkey;
	struct rkey_region region;
};

/* NICs put the index into the upper bits and a small variant below. */
static inline unsigned int key_bucket(uint32_t key, unsigned int nbuckets)
{
	return (key * 2654435761u) >> 16 & (nbuckets - 1);
}

void lkey_add(struct lkey_table *table, struct lkey_node *node)
{
	struct lkey_node **head = &table->bucket[key_bucket(node->lkey, LKEY_BUCKETS)];

	bond_lock(&table->lock);
	node->next = *head;
	*head = node;
	bond_unlock(&table->lock);
}

void lkey_del(struct lkey_table *table, struct lkey_node *node)
{
	struct lkey_node **at = &table->bucket[key_bucket(node->lkey, LKEY_BUCKETS)];

	bond_lock(&table->lock);
	while (*at && *at != node)
		at = &(*at)->next;
	if (*at)
		*at = node->next;
	bond_unlock(&table->lock);
}

static struct lkey_node *lkey_node(struct lkey_table *table, uint32_t lkey)
{
	struct lkey_node *node = table->bucket[key_bucket(lkey, LKEY_BUCKETS)];

	while (node && node->lkey != lkey)
		node = node->next;
	return node;
}

static bool lkey_takes(const struct lkey_node *node, const struct ibv_sge *sge, uint64_t pd_id,
		       bool write)
{
	return node && node->pd_id == pd_id && sge->addr >= node->addr &&
	       sge->length <= node->length &&
	       sge->addr - node->addr <= node->length - sge->length && (!write || node->writable);
}

bool lkey_check(struct lkey_table *table, const struct ibv_sge *sge, unsigned int num_sge,
		uint64_t pd_id, bool write, unsigned int nmembers)
{
	const struct lkey_node *node;
	bool good = true;
	unsigned int i;

	bond_lock(&table->lock);
	for (i = 0; i < num_sge && good; i++) {
		node = lkey_node(table, sge[i].lkey);
		good = lkey_takes(node, &sge[i], pd_id, write) && node->nkeys >= nmembers;
	}
	bond_unlock(&table->lock);
	return good;
}

bool lkey_find(struct lkey_table *table, uint32_t lkey, unsigned int member, uint32_t *key)
{
	const struct lkey_node *node;
	bool found;

	bond_lock(&table->lock);
	node = lkey_node(table, lkey);
	found = node && member < node->nkeys;
	if (found)
		*key = node->key[member];
	bond_unlock(&table->lock);
	return found;
}

static struct rkey_node **rkey_slot(struct rkey_cache *cache, uint32_t rkey)
{
	struct rkey_node **at = &cache->bucket[key_bucket(rkey, RKEY_BUCKETS)];

	while (*at && (*at)->rkey != rkey)
		at = &(*at)->next;
	return at;
}

int rkey_learn(struct rkey_cache *cache, uint32_t rkey, const struct rkey_region *region)
{
	struct rkey_node *fresh = calloc(1, sizeof(*fresh));
	struct rkey_node **at, *old;

	if (!fresh)
		return ENOMEM;
	fresh->rkey = rkey;
	fresh->region = *region;

	bond_lock(&cache->lock);
	at = rkey_slot(cache, rkey);
	old = *at;
	fresh->next = old ? old->next : NULL;
	*at = fresh;
	bond_unlock(&cache->lock);
	free(old);
	return 0;
}

void rkey_forget(struct rkey_cache *cache, uint32_t rkey)
{
	struct rkey_node **at, *old;

	bond_lock(&cache->lock);
	at = rkey_slot(cache, rkey);
	old = *at;
	if (old)
		*at = old->next;
	bond_unlock(&cache->lock);
	free(old);
}

void rkey_forget_all(struct rkey_cache *cache)
{
	struct rkey_node *node, *next, *all[RKEY_BUCKETS];
	unsigned int i;

	bond_lock(&cache->lock);
	memcpy(all, cache->bucket, sizeof(all));
	memset(cache->bucket, 0, sizeof(cache->bucket));
	bond_unlock(&cache->lock);
	for (i = 0; i < RKEY_BUCKETS; i++) {
		for (node = all[i]; node; node = next) {
			next = node->next;
			free(node);
		}
	}
}

bool rkey_find(struct rkey_cache *cache, uint32_t rkey, struct rkey_region *region)
{
	struct rkey_node *node;

	bond_lock(&cache->lock);
	node = *rkey_slot(cache, rkey);
	if (node)
		*region = node->region;
	bond_unlock(&cache->lock);
	return node;
}
