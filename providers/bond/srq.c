/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Shared receive queues: the primary's. An RC QP's completions carry our wr_ids for sends, so the
 * receives of an SRQ must be told apart from them also where a completion in error has no opcode:
 * each gets a tag that leads back to the application's wr_id.
 */
#include <errno.h>
#include <stdlib.h>

#include "bond.h"
#include "objects.h"
#include "passthru.h"
#include "path.h"

#define SRQ_TAG (BOND_WRID_RECV | 0x5249ull << 32)
#define SRQ_TAG_MASK (~0ull << 32)

enum { SRQ_FREE_END = -1 };

bool bond_srq_is_tag(uint64_t wr_id)
{
	return (wr_id & SRQ_TAG_MASK) == SRQ_TAG;
}

uint64_t bond_srq_complete(struct bond_srq *srq, uint64_t tag)
{
	uint32_t index = (uint32_t)tag;
	uint64_t wr_id;

	bond_lock(&srq->lock);
	wr_id = srq->entry[index].wr_id;
	srq->entry[index].next_free = srq->free;
	srq->free = index;
	bond_unlock(&srq->lock);
	return wr_id;
}

static int srq_entries(struct bond_srq *srq, uint32_t max_wr)
{
	uint32_t i;

	/* An entry is in use from the post to the poll, which is longer than the NIC's own is. */
	srq->size = 2 * max_wr;
	srq->entry = calloc(srq->size, sizeof(*srq->entry));
	if (!srq->entry)
		return ENOMEM;
	for (i = 0; i < srq->size; i++)
		srq->entry[i].next_free = i + 1 < srq->size ? i + 1 : (uint32_t)SRQ_FREE_END;
	srq->free = 0;
	return 0;
}

static void srq_init(struct bond_srq *srq, struct ibv_context *ctx, struct ibv_pd *pd,
		     void *context)
{
	srq->vsrq.srq.context = ctx;
	srq->vsrq.srq.srq_context = context;
	srq->vsrq.srq.pd = pd;
	srq->vsrq.srq.handle = srq->msrq->handle;
	pthread_mutex_init(&srq->vsrq.srq.mutex, NULL);
	pthread_cond_init(&srq->vsrq.srq.cond, NULL);
}

struct ibv_srq *bond_create_srq_ex(struct ibv_context *ctx, struct ibv_srq_init_attr_ex *attr)
{
	struct ibv_srq_init_attr_ex mattr = *attr;
	struct bond_srq *srq;
	int err;

	if (attr->comp_mask & IBV_SRQ_INIT_ATTR_TM) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	srq = calloc(1, sizeof(*srq));
	if (!srq) {
		errno = ENOMEM;
		return NULL;
	}
	mattr.srq_context = srq;
	if (attr->comp_mask & IBV_SRQ_INIT_ATTR_PD)
		mattr.pd = bond_pd_real(attr->pd)->mpd[0];
	if (attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ)
		mattr.cq = to_bond_cq(attr->cq)->mcq[0].cq;
	if (attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD)
		mattr.xrcd = to_bond_xrcd(attr->xrcd)->mxrcd;
	srq->msrq = ibv_create_srq_ex(bond_primary(to_bond_context(ctx)), &mattr);
	if (!srq->msrq) {
		err = errno;
		goto err_free;
	}
	err = srq_entries(srq, mattr.attr.max_wr);
	if (err)
		goto err_destroy_msrq;
	attr->attr = mattr.attr;
	srq_init(srq, ctx, attr->pd, attr->srq_context);
	return &srq->vsrq.srq;

err_destroy_msrq:
	ibv_destroy_srq(srq->msrq);
err_free:
	free(srq);
	errno = err;
	return NULL;
}

struct ibv_srq *bond_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq_init_attr_ex ex = {
		.srq_context = attr->srq_context, .attr = attr->attr, .pd = pd,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_BASIC,
	};
	struct ibv_srq *srq = bond_create_srq_ex(pd->context, &ex);

	if (srq)
		attr->attr = ex.attr;
	return srq;
}

int bond_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	/* The tags were counted out when it was made. */
	if (mask & IBV_SRQ_MAX_WR && attr->max_wr * 2 > to_bond_srq(srq)->size)
		return EOPNOTSUPP;
	return ibv_modify_srq(to_bond_srq(srq)->msrq, attr, mask);
}

int bond_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	return ibv_query_srq(to_bond_srq(srq)->msrq, attr);
}

int bond_destroy_srq(struct ibv_srq *ibsrq)
{
	struct bond_srq *srq = to_bond_srq(ibsrq);
	int ret = ibv_destroy_srq(srq->msrq);

	if (ret)
		return ret;
	bond_events_end(to_bond_context(ibsrq->context), ibsrq, &ibsrq->mutex, &ibsrq->cond,
			&ibsrq->events_completed, &srq->events_delivered);
	pthread_cond_destroy(&srq->vsrq.srq.cond);
	pthread_mutex_destroy(&srq->vsrq.srq.mutex);
	free(srq->entry);
	free(srq);
	return 0;
}

int bond_get_srq_num(struct ibv_srq *srq, uint32_t *srq_num)
{
	return ibv_get_srq_num(to_bond_srq(srq)->msrq, srq_num);
}

static bool srq_take(struct bond_srq *srq, uint64_t wr_id, uint32_t *index)
{
	bool found;

	bond_lock(&srq->lock);
	found = srq->free != (uint32_t)SRQ_FREE_END;
	if (found) {
		*index = srq->free;
		srq->free = srq->entry[*index].next_free;
		srq->entry[*index].wr_id = wr_id;
	}
	bond_unlock(&srq->lock);
	return found;
}

int bond_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct bond_srq *srq = to_bond_srq(ibsrq);
	struct ibv_recv_wr copy, *bad;
	uint32_t index;
	int ret;

	for (; wr; wr = wr->next) {
		if (!srq_take(srq, wr->wr_id, &index)) {
			*bad_wr = wr;
			return ENOMEM;
		}
		copy = *wr;
		copy.next = NULL;
		copy.wr_id = SRQ_TAG | index;
		bad = NULL;
		ret = ibv_post_srq_recv(srq->msrq, &copy, &bad);
		if (ret || bad) {
			bond_srq_complete(srq, copy.wr_id);
			*bad_wr = wr;
			return post_errno(ret);
		}
	}
	return 0;
}
