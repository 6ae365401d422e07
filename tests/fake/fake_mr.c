/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Protection domains and memory regions, and the check of every key that is used.
 *
 * A key is 16 random bits over the index of the region, others for lkey than for rkey; the index is
 * the process's, so that no two devices have a key in common.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/random.h>

#include "engine.h"

#define MAX_MRS (1 << 16)

/* Under engine.lock. */
static struct fake_mr *mrs[MAX_MRS];
static uint32_t next_mr = 1;
static uint32_t last_lkey, last_rkey; /* of the MR deregistered last, for key_reuse */

struct ibv_pd *fake_alloc_pd(struct ibv_context *context)
{
	struct fake_device *dev = context_device(context);
	struct fake_pd *pd;

	if (fake_fails(dev, FAKE_FAIL_ALLOC_PD))
		return NULL;
	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;
	pd->pd.context = context;
	fake_knob_add(dev->ctl, FAKE_LIVE_PDS, 1);
	return &pd->pd;
}

int fake_dealloc_pd(struct ibv_pd *ibpd)
{
	struct fake_pd *pd = to_fake_pd(ibpd);

	if (atomic_load(&pd->users))
		return EBUSY;
	fake_knob_add(context_device(ibpd->context)->ctl, FAKE_LIVE_PDS, -1);
	free(pd);
	return 0;
}

static uint32_t new_tag(void)
{
	uint16_t tag = 0;

	while (!tag)
		if (getrandom(&tag, sizeof(tag), 0) != sizeof(tag))
			tag = 0x5a5a;
	return (uint32_t)tag << 16;
}

static int add_mr(struct fake_mr *mr)
{
	uint32_t index = last_lkey % MAX_MRS;

	if (fake_knob_get(mr->dev->ctl, FAKE_KEY_REUSE) && index && !mrs[index]) {
		mr->vmr.ibv_mr.lkey = last_lkey;
		mr->vmr.ibv_mr.rkey = last_rkey;
		mr->index = index;
		mrs[index] = mr;
		return 0;
	}
	for (uint32_t i = 0; i < MAX_MRS; i++) {
		index = next_mr++ % MAX_MRS;
		if (!index || mrs[index])
			continue;
		mr->index = index;
		mr->vmr.ibv_mr.lkey = new_tag() | index;
		do
			mr->vmr.ibv_mr.rkey = new_tag() | index;
		while (mr->vmr.ibv_mr.rkey == mr->vmr.ibv_mr.lkey);
		mrs[index] = mr;
		return 0;
	}
	return ENOMEM;
}

struct ibv_mr *fake_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	struct fake_device *dev = context_device(pd->context);
	struct fake_mr *mr;
	int ret;

	if (fake_fails(dev, FAKE_FAIL_REG_MR))
		return NULL;
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
	    !(access & IBV_ACCESS_LOCAL_WRITE)) {
		errno = EINVAL;
		return NULL;
	}
	if (access & (IBV_ACCESS_ON_DEMAND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_MW_BIND)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return NULL;
	mr->vmr.ibv_mr.context = pd->context;
	mr->vmr.ibv_mr.pd = pd;
	mr->vmr.mr_type = IBV_MR_TYPE_MR;
	mr->vmr.access = access;
	mr->pd = to_fake_pd(pd);
	mr->dev = dev;
	mr->addr = addr;
	mr->iova = iova;
	mr->length = length;
	mr->remote_valid = true;
	engine_lock();
	ret = fake_knob_get(dev->ctl, FAKE_LIVE_MRS) < fake_knob_get(dev->ctl, FAKE_MAX_MR) ?
		      add_mr(mr) :
		      ENOMEM;
	engine_unlock();
	if (ret) {
		free(mr);
		errno = ret;
		return NULL;
	}
	atomic_fetch_add(&mr->pd->users, 1);
	fake_knob_add(dev->ctl, FAKE_LIVE_MRS, 1);
	return &mr->vmr.ibv_mr;
}

int fake_dereg_mr(struct verbs_mr *vmr)
{
	struct fake_mr *mr = to_fake_mr(vmr);

	engine_lock();
	mrs[mr->index] = NULL;
	last_lkey = vmr->ibv_mr.lkey;
	last_rkey = vmr->ibv_mr.rkey;
	engine_unlock();
	atomic_fetch_sub(&mr->pd->users, 1);
	fake_knob_add(mr->dev->ctl, FAKE_LIVE_MRS, -1);
	free(mr);
	return 0;
}

static uint8_t *translate(struct fake_mr *mr, struct fake_pd *pd, uint64_t addr, uint64_t length,
			  int access)
{
	if (mr->pd != pd || (mr->vmr.access & access) != access)
		return NULL;
	if (addr < mr->iova || addr - mr->iova > mr->length ||
	    length > mr->length - (addr - mr->iova))
		return NULL;
	return mr->addr + (addr - mr->iova);
}

uint8_t *fake_mr_local(struct fake_pd *pd, uint32_t lkey, uint64_t addr, uint64_t length,
		       int access)
{
	struct fake_mr *mr = mrs[lkey % MAX_MRS];

	if (!mr || mr->vmr.ibv_mr.lkey != lkey)
		return NULL;
	return translate(mr, pd, addr, length, access);
}

uint8_t *fake_mr_remote(struct fake_pd *pd, uint32_t rkey, uint64_t addr, uint64_t length,
			int access)
{
	struct fake_mr *mr = mrs[rkey % MAX_MRS];

	if (!mr || mr->vmr.ibv_mr.rkey != rkey || !mr->remote_valid)
		return NULL;
	return translate(mr, pd, addr, length, access);
}

bool fake_mr_invalidate(struct fake_pd *pd, uint32_t rkey)
{
	struct fake_mr *mr = mrs[rkey % MAX_MRS];

	if (!mr || mr->vmr.ibv_mr.rkey != rkey || mr->pd != pd || !mr->remote_valid)
		return false;
	mr->remote_valid = false;
	return true;
}
