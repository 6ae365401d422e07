/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Memory regions: registered with every member, all or none. The application's keys are the
 * primary's; key.c translates lkeys, and peers ask for rkeys over the control channel, which
 * this file answers from a table of all regions of the process (design 4).
 */
#include <errno.h>
#include <stdlib.h>

#include "bond.h"
#include "objects.h"
#include "peer.h"

enum { MR_BUCKETS = 1024, WITHDRAWN_TRIES = 64 };

#define REMOTE_RIGHTS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static pthread_mutex_t mr_table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct bond_mr *mr_table[MR_BUCKETS];

static struct bond_mr **mr_bucket(uint32_t rkey)
{
	return &mr_table[(rkey ^ rkey >> 8 ^ rkey >> 18) & (MR_BUCKETS - 1)];
}

static void mr_publish(struct bond_mr *mr, struct bond_context *bctx)
{
	unsigned int i;

	mr->lkey.lkey = mr->vmr.ibv_mr.lkey;
	mr->lkey.nkeys = mr->nmembers;
	mr->lkey.pd_id = mr->pd_id;
	mr->lkey.addr = mr->iova;
	mr->lkey.length = mr->length;
	mr->lkey.writable = mr->vmr.access & IBV_ACCESS_LOCAL_WRITE;
	for (i = 0; i < mr->nmembers; i++)
		mr->lkey.key[i] = mr->mmr[i]->lkey;
	lkey_add(&bctx->lkeys, &mr->lkey);

	pthread_mutex_lock(&mr_table_lock);
	mr->pd_next = *mr_bucket(mr->vmr.ibv_mr.rkey);
	*mr_bucket(mr->vmr.ibv_mr.rkey) = mr;
	pthread_mutex_unlock(&mr_table_lock);
}

static void mr_withdraw(struct bond_mr *mr, struct bond_context *bctx)
{
	struct bond_mr **at;

	lkey_del(&bctx->lkeys, &mr->lkey);
	pthread_mutex_lock(&mr_table_lock);
	for (at = mr_bucket(mr->vmr.ibv_mr.rkey); *at && *at != mr; at = &(*at)->pd_next)
		;
	if (*at)
		*at = mr->pd_next;
	pthread_mutex_unlock(&mr_table_lock);
	if (mr->vmr.access & REMOTE_RIGHTS)
		bond_peer_key_withdraw(mr->vmr.ibv_mr.rkey, mr->pd_id);
}

static bool mr_is_remote(const struct bond_mr *mr, uint64_t pd_id)
{
	return mr->pd_id == pd_id && mr->vmr.access & REMOTE_RIGHTS;
}

bool bond_mr_region(uint64_t pd_id, uint32_t rkey, struct rkey_region *region)
{
	struct bond_mr *mr;
	unsigned int i;

	pthread_mutex_lock(&mr_table_lock);
	for (mr = *mr_bucket(rkey); mr; mr = mr->pd_next)
		if (mr->vmr.ibv_mr.rkey == rkey && mr_is_remote(mr, pd_id))
			break;
	if (mr) {
		*region = (struct rkey_region){ .nkeys = mr->nmembers, .addr = mr->iova,
						.length = mr->length, .access = mr->vmr.access };
		for (i = 0; i < mr->nmembers; i++)
			region->key[i] = mr->mmr[i]->rkey;
	}
	pthread_mutex_unlock(&mr_table_lock);
	return mr;
}

unsigned int bond_mr_list(uint64_t pd_id, uint32_t *rkeys, unsigned int max)
{
	struct bond_mr *mr;
	unsigned int i, n = 0;

	pthread_mutex_lock(&mr_table_lock);
	for (i = 0; i < MR_BUCKETS && n < max; i++)
		for (mr = mr_table[i]; mr && n < max; mr = mr->pd_next)
			if (mr_is_remote(mr, pd_id))
				rkeys[n++] = mr->vmr.ibv_mr.rkey;
	pthread_mutex_unlock(&mr_table_lock);
	return n;
}

/* What is to be registered, on each member alike. */
struct mr_source {
	enum ibv_mr_type type;
	void *addr;			/* IBV_MR_TYPE_MR */
	uint64_t offset;		/* IBV_MR_TYPE_DMABUF_MR */
	int fd;
	size_t length;
	uint64_t iova;
	int access;
};

static struct ibv_mr *mmr_reg(struct ibv_pd *mpd, const struct mr_source *from)
{
	if (from->type == IBV_MR_TYPE_DMABUF_MR)
		return ibv_reg_dmabuf_mr(mpd, from->offset, from->length, from->iova, from->fd,
					 from->access);
	return ibv_reg_mr_iova2(mpd, from->addr, from->length, from->iova, from->access);
}

/* The primary's rkey must not be one that a peer may still hold with other members' old keys. */
static struct ibv_mr *mmr_reg_primary(struct bond_pd *pd, const struct mr_source *from)
{
	struct ibv_mr *held[WITHDRAWN_TRIES], *mmr;
	unsigned int nheld = 0;

	mmr = mmr_reg(pd->mpd[0], from);
	while (mmr && nheld < WITHDRAWN_TRIES && (from->access & REMOTE_RIGHTS) &&
	       bond_peer_key_withdrawing(mmr->rkey, pd->id)) {
		held[nheld++] = mmr;
		mmr = mmr_reg(pd->mpd[0], from);
	}
	while (nheld)
		ibv_dereg_mr(held[--nheld]);
	return mmr;
}

static int mr_dereg_mmrs(struct bond_mr *mr, unsigned int from)
{
	int ret;

	while (mr->nmembers > from) {
		ret = ibv_dereg_mr(mr->mmr[mr->nmembers - 1]);
		if (ret)
			return ret;
		mr->nmembers--;
	}
	return 0;
}

static void mr_take_keys(struct bond_mr *mr, enum ibv_mr_type type, int access)
{
	mr->vmr.ibv_mr.lkey = mr->mmr[0]->lkey;
	mr->vmr.ibv_mr.rkey = mr->mmr[0]->rkey;
	mr->vmr.ibv_mr.handle = mr->mmr[0]->handle;
	mr->vmr.mr_type = type;
	mr->vmr.access = access;
}

static struct ibv_mr *mr_register(struct ibv_pd *ibpd, const struct mr_source *from)
{
	struct bond_pd *pd = bond_pd_real(ibpd);
	struct bond_mr *mr = calloc(1, sizeof(*mr));
	/* On-demand paging is the primary's alone (design 2). */
	unsigned int n = from->access & IBV_ACCESS_ON_DEMAND ? 1 : pd->nmembers;
	int err;

	if (!mr) {
		errno = ENOMEM;
		return NULL;
	}
	while (mr->nmembers < n) {
		unsigned int i = mr->nmembers;

		mr->mmr[i] = i ? mmr_reg(pd->mpd[i], from) : mmr_reg_primary(pd, from);
		if (!mr->mmr[i])
			goto err_dereg_mmrs;
		mr->nmembers++;
	}
	mr->pd_id = pd->id;
	mr->iova = from->iova;
	mr->length = from->length;
	mr_take_keys(mr, from->type, from->access);
	mr_publish(mr, to_bond_context(pd->pd.context));
	return &mr->vmr.ibv_mr;

err_dereg_mmrs:
	err = errno;
	mr_dereg_mmrs(mr, 0);
	free(mr);
	errno = err;
	return NULL;
}

struct ibv_mr *bond_reg_mr(struct ibv_pd *ibpd, void *addr, size_t length, uint64_t hca_va,
			   int access)
{
	struct mr_source from = { .type = IBV_MR_TYPE_MR, .addr = addr, .length = length,
				  .iova = hca_va, .access = access };

	return mr_register(ibpd, &from);
}

struct ibv_mr *bond_reg_dmabuf_mr(struct ibv_pd *ibpd, uint64_t offset, size_t length,
				  uint64_t iova, int fd, int access)
{
	struct mr_source from = { .type = IBV_MR_TYPE_DMABUF_MR, .offset = offset, .fd = fd,
				  .length = length, .iova = iova, .access = access };

	return mr_register(ibpd, &from);
}

struct ibv_mr *bond_alloc_null_mr(struct ibv_pd *ibpd)
{
	struct bond_pd *pd = bond_pd_real(ibpd);
	struct bond_mr *mr = calloc(1, sizeof(*mr));

	if (!mr) {
		errno = ENOMEM;
		return NULL;
	}
	mr->mmr[0] = ibv_alloc_null_mr(pd->mpd[0]);
	if (!mr->mmr[0]) {
		free(mr);
		return NULL;
	}
	mr->nmembers = 1;
	mr->pd_id = pd->id;
	mr_take_keys(mr, IBV_MR_TYPE_NULL_MR, 0);
	mr_publish(mr, to_bond_context(pd->pd.context));
	return &mr->vmr.ibv_mr;
}

/*
 * The primary decides whether it worked; a member that cannot follow loses the region, which is
 * then pinned to path 0.
 */
int bond_rereg_mr(struct verbs_mr *vmr, int flags, struct ibv_pd *ibpd, void *addr, size_t length,
		  int access)
{
	struct bond_mr *mr = bond_container_of(vmr, struct bond_mr, vmr);
	struct bond_context *bctx = to_bond_context(mr->vmr.ibv_mr.context);
	struct bond_pd *pd = flags & IBV_REREG_MR_CHANGE_PD ? bond_pd_real(ibpd) : NULL;
	unsigned int i;
	int ret;

	mr_withdraw(mr, bctx);
	ret = ibv_rereg_mr(mr->mmr[0], flags, pd ? pd->mpd[0] : NULL, addr, length, access);
	if (ret) {
		ret = errno;
		mr_publish(mr, bctx);
		return ret;
	}
	for (i = 1; i < mr->nmembers; i++)
		if (ibv_rereg_mr(mr->mmr[i], flags, pd ? pd->mpd[i] : NULL, addr, length, access))
			break;
	if (i < mr->nmembers)
		mr_dereg_mmrs(mr, 1);
	if (pd)
		mr->pd_id = pd->id;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		mr->iova = (uintptr_t)addr;
		mr->length = length;
	}
	mr_take_keys(mr, mr->vmr.mr_type,
		     flags & IBV_REREG_MR_CHANGE_ACCESS ? access : mr->vmr.access);
	mr_publish(mr, bctx);
	return 0;
}

int bond_dereg_mr(struct verbs_mr *vmr)
{
	struct bond_mr *mr = bond_container_of(vmr, struct bond_mr, vmr);
	struct bond_context *bctx = to_bond_context(mr->vmr.ibv_mr.context);
	int ret;

	mr_withdraw(mr, bctx);
	/* The primary's first: where it refuses (bound memory windows), nothing has happened. */
	ret = ibv_dereg_mr(mr->mmr[0]);
	if (ret) {
		mr_publish(mr, bctx);
		return ret;
	}
	mr_dereg_mmrs(mr, 1);
	free(mr);
	return 0;
}

int bond_advise_mr(struct ibv_pd *ibpd, enum ibv_advise_mr_advice advice, uint32_t flags,
		   struct ibv_sge *sg_list, uint32_t num_sge)
{
	return ibv_advise_mr(bond_pd_real(ibpd)->mpd[0], advice, flags, sg_list, num_sge);
}
