/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Receive queues: the ring that a QP or an SRQ has, and the SRQ verbs.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "engine.h"

int fake_rq_init(struct fake_rq *rq, uint32_t depth, uint32_t max_sge)
{
	pthread_mutex_init(&rq->lock, NULL);
	rq->depth = depth;
	rq->mask = ring_mask(depth);
	rq->max_sge = max_sge ? max_sge : 1;
	if (!depth)
		return 0;
	rq->wqe = calloc((size_t)rq->mask + 1, sizeof(*rq->wqe));
	rq->sge = calloc(((size_t)rq->mask + 1) * rq->max_sge, sizeof(*rq->sge));
	if (rq->wqe && rq->sge)
		return 0;
	fake_rq_fini(rq);
	return ENOMEM;
}

void fake_rq_fini(struct fake_rq *rq)
{
	pthread_mutex_destroy(&rq->lock);
	free(rq->wqe);
	free(rq->sge);
}

int fake_rq_post(struct fake_rq *rq, struct ibv_recv_wr *wr)
{
	struct fake_recv_wqe *w;
	uint64_t length = 0;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge)
		return EINVAL;
	if (rq->head - atomic_load_explicit(&rq->tail, memory_order_acquire) >= rq->depth)
		return ENOMEM;
	w = &rq->wqe[rq->head & rq->mask];
	for (int i = 0; i < wr->num_sge; i++)
		length += wr->sg_list[i].length;
	w->wr_id = wr->wr_id;
	w->num_sge = wr->num_sge;
	w->length = length > UINT32_MAX ? UINT32_MAX : length;
	if (wr->num_sge)
		memcpy(&rq->sge[(size_t)(rq->head & rq->mask) * rq->max_sge], wr->sg_list,
		       wr->num_sge * sizeof(*wr->sg_list));
	rq->head++;
	return 0;
}

struct ibv_srq *fake_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	struct fake_device *dev = context_device(pd->context);
	struct ibv_srq_attr *attr = &init->attr;
	struct fake_srq *srq;

	if (fake_fails(dev, FAKE_FAIL_CREATE_SRQ))
		return NULL;
	if (!attr->max_wr || attr->max_wr > fake_knob_get(dev->ctl, FAKE_MAX_SRQ_WR) ||
	    attr->max_sge > fake_knob_get(dev->ctl, FAKE_MAX_SGE)) {
		errno = EINVAL;
		return NULL;
	}
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return NULL;
	if (fake_rq_init(&srq->rq, attr->max_wr, attr->max_sge)) {
		free(srq);
		errno = ENOMEM;
		return NULL;
	}
	attr->max_sge = srq->rq.max_sge;
	srq->pd = to_fake_pd(pd);
	srq->vsrq.srq.context = pd->context;
	srq->vsrq.srq_type = IBV_SRQT_BASIC;
	atomic_fetch_add(&srq->pd->users, 1);
	fake_knob_add(dev->ctl, FAKE_LIVE_SRQS, 1);
	return &srq->vsrq.srq;
}

/* libibverbs fills in the public part of a plain SRQ only, not of this. */
struct ibv_srq *fake_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	struct ibv_srq_init_attr plain = { .srq_context = attr->srq_context, .attr = attr->attr };
	struct ibv_srq *srq;

	(void)context;
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) ||
	    ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) && attr->srq_type != IBV_SRQT_BASIC)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	srq = fake_create_srq(attr->pd, &plain);
	if (!srq)
		return NULL;
	attr->attr = plain.attr;
	srq->srq_context = attr->srq_context;
	srq->pd = attr->pd;
	pthread_mutex_init(&srq->mutex, NULL);
	pthread_cond_init(&srq->cond, NULL);
	return srq;
}

int fake_destroy_srq(struct ibv_srq *ibsrq)
{
	struct fake_srq *srq = to_fake_srq(ibsrq);

	if (atomic_load(&srq->users))
		return EBUSY;
	srq->async_sent -= event_forget(ibsrq->context->async_fd, 16, (uintptr_t)ibsrq);
	pthread_mutex_lock(&ibsrq->mutex);
	while (ibsrq->events_completed != srq->async_sent)
		pthread_cond_wait(&ibsrq->cond, &ibsrq->mutex);
	pthread_mutex_unlock(&ibsrq->mutex);
	atomic_fetch_sub(&srq->pd->users, 1);
	fake_knob_add(context_device(ibsrq->context)->ctl, FAKE_LIVE_SRQS, -1);
	fake_rq_fini(&srq->rq);
	free(srq);
	return 0;
}

int fake_modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr, int mask)
{
	struct fake_srq *srq = to_fake_srq(ibsrq);

	if (mask & ~IBV_SRQ_LIMIT)
		return EOPNOTSUPP; /* no resizing */
	if (attr->srq_limit >= srq->rq.depth)
		return EINVAL;
	engine_lock();
	srq->limit = attr->srq_limit;
	engine_unlock();
	return 0;
}

int fake_query_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr)
{
	struct fake_srq *srq = to_fake_srq(ibsrq);

	engine_lock();
	attr->max_wr = srq->rq.depth;
	attr->max_sge = srq->rq.max_sge;
	attr->srq_limit = srq->limit;
	engine_unlock();
	return 0;
}

int fake_get_srq_num(struct ibv_srq *srq, uint32_t *num)
{
	(void)srq;
	(void)num;
	return EOPNOTSUPP; /* only XRC SRQs have one */
}

int fake_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fake_rq *rq = &to_fake_srq(ibsrq)->rq;
	int ret = 0;

	pthread_mutex_lock(&rq->lock);
	for (; wr && !ret; wr = wr->next) {
		ret = fake_rq_post(rq, wr);
		if (ret)
			*bad = wr;
	}
	pthread_mutex_unlock(&rq->lock);
	return ret;
}

void fake_srq_taken(struct fake_srq *srq)
{
	uint32_t left;

	pthread_mutex_lock(&srq->rq.lock);
	left = srq->rq.head - srq->rq.next;
	pthread_mutex_unlock(&srq->rq.lock);
	if (left >= srq->limit)
		return;
	srq->limit = 0; /* armed once, IBTA 10.2.9.1 */
	if (!event_async(srq->vsrq.srq.context, (uintptr_t)&srq->vsrq.srq,
			 IBV_EVENT_SRQ_LIMIT_REACHED))
		srq->async_sent++;
}
