/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Protection domains: one on each member. Thread domains promise that one thread at a time uses
 * what is made with them; the bond has its own threads, so it takes the promise and ignores it.
 * Address handles serve UD, which lives on the primary.
 */
#include <errno.h>
#include <stdlib.h>

#include "bond.h"
#include "objects.h"

struct bond_td {
	struct ibv_td td;
};

static atomic_uint_fast64_t next_pd_id = 1;

struct bond_pd *bond_pd_real(struct ibv_pd *ibpd)
{
	struct bond_pd *pd = to_bond_pd(ibpd);

	return pd->parent_of ? pd->parent_of : pd;
}

static void pd_dealloc_mpds(struct bond_pd *pd, unsigned int from)
{
	while (pd->nmembers > from)
		ibv_dealloc_pd(pd->mpd[--pd->nmembers]);
}

struct ibv_pd *bond_alloc_pd(struct ibv_context *ctx)
{
	struct bond_context *bctx = to_bond_context(ctx);
	struct bond_pd *pd = calloc(1, sizeof(*pd));
	unsigned int i;
	int err;

	if (!pd) {
		errno = ENOMEM;
		return NULL;
	}
	for (i = 0; i < bctx->nmembers; i++) {
		pd->mpd[i] = ibv_alloc_pd(bctx->member[i].ctx);
		if (!pd->mpd[i])
			goto err_dealloc_mpds;
		pd->nmembers++;
	}
	pd->id = atomic_fetch_add(&next_pd_id, 1);
	pd->pd.handle = pd->mpd[0]->handle;
	return &pd->pd;

err_dealloc_mpds:
	err = errno ? errno : ENOMEM;
	pd_dealloc_mpds(pd, 0);
	free(pd);
	errno = err;
	return NULL;
}

int bond_dealloc_pd(struct ibv_pd *ibpd)
{
	struct bond_pd *pd = to_bond_pd(ibpd);
	int ret;

	if (!pd->parent_of) {
		/* The primary's first: where it refuses, nothing has happened. */
		ret = ibv_dealloc_pd(pd->mpd[0]);
		if (ret)
			return ret;
		pd_dealloc_mpds(pd, 1);
	}
	free(pd);
	return 0;
}

struct ibv_pd *bond_alloc_parent_domain(struct ibv_context *ctx,
					struct ibv_parent_domain_init_attr *attr)
{
	struct bond_pd *pd;

	if (!attr->pd) {
		errno = EINVAL;
		return NULL;
	}
	/* Allocators for a NIC's own buffers would have to serve several NICs at once. */
	if (attr->comp_mask & ~(uint32_t)IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	pd = calloc(1, sizeof(*pd));
	if (!pd) {
		errno = ENOMEM;
		return NULL;
	}
	pd->parent_of = bond_pd_real(attr->pd);
	pd->pd.context = ctx;
	pd->pd.handle = attr->pd->handle;
	return &pd->pd;
}

struct ibv_td *bond_alloc_td(struct ibv_context *ctx, struct ibv_td_init_attr *attr)
{
	struct bond_td *td;

	if (attr->comp_mask) {
		errno = EINVAL;
		return NULL;
	}
	td = calloc(1, sizeof(*td));
	if (!td) {
		errno = ENOMEM;
		return NULL;
	}
	td->td.context = ctx;
	return &td->td;
}

int bond_dealloc_td(struct ibv_td *td)
{
	free(bond_container_of(td, struct bond_td, td));
	return 0;
}

struct ibv_ah *bond_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct bond_ah *ah = calloc(1, sizeof(*ah));

	if (!ah) {
		errno = ENOMEM;
		return NULL;
	}
	ah->mah = ibv_create_ah(bond_pd_real(pd)->mpd[0], attr);
	if (!ah->mah) {
		free(ah);
		return NULL;
	}
	ah->ah.handle = ah->mah->handle;
	return &ah->ah;
}

int bond_destroy_ah(struct ibv_ah *ibah)
{
	struct bond_ah *ah = to_bond_ah(ibah);
	int ret = ibv_destroy_ah(ah->mah);

	if (!ret)
		free(ah);
	return ret;
}
