/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Completion queues: the ring, its completion channel and ibv_poll_cq.
 *
 * As with hardware whose driver keeps the queues, a slot of a send or receive queue is free again
 * when the completion that covers it is polled, not before.
 * Not here: ibv_start_poll and its kin, see fake_cq_ex.c.
 */
#define _GNU_SOURCE
#include <stdlib.h>

#include "engine.h"

static struct fake_cq *create(struct ibv_context *context, uint32_t cqe,
			      struct ibv_comp_channel *channel, uint32_t vector)
{
	struct fake_device *dev = context_device(context);
	struct fake_cq *cq;

	if (fake_fails(dev, FAKE_FAIL_CREATE_CQ))
		return NULL;
	if (!cqe || cqe > fake_knob_get(dev->ctl, FAKE_MAX_CQE) ||
	    vector >= (uint32_t)context->num_comp_vectors) {
		errno = EINVAL;
		return NULL;
	}
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return NULL;
	cq->mask = ring_mask(cqe);
	cq->ring = calloc(cq->mask + 1, sizeof(*cq->ring));
	if (!cq->ring) {
		free(cq);
		return NULL;
	}
	pthread_mutex_init(&cq->lock, NULL);
	pthread_mutex_init(&cq->poll_lock, NULL);
	cq->depth = cqe;
	cq->vcq.cq.cqe = cqe;
	cq->vcq.cq.channel = channel;
	cq->vcq.cq.context = context;
	fake_knob_add(dev->ctl, FAKE_LIVE_CQS, 1);
	return cq;
}

struct ibv_cq *fake_create_cq(struct ibv_context *context, int cqe,
			      struct ibv_comp_channel *channel, int vector)
{
	struct fake_cq *cq = create(context, cqe < 0 ? 0 : cqe, channel, vector);

	return cq ? &cq->vcq.cq : NULL;
}

struct ibv_cq_ex *fake_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	const uint64_t wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
	struct fake_cq *cq;

	if ((attr->comp_mask & ~IBV_CQ_INIT_ATTR_MASK_FLAGS) || (attr->wc_flags & ~wc_flags)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	cq = create(context, attr->cqe, attr->channel, attr->comp_vector);
	if (!cq)
		return NULL;
	cq->single_thread = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) &&
			    (attr->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
	fake_cq_ex_setup(cq);
	return &cq->vcq.cq_ex;
}

int fake_destroy_cq(struct ibv_cq *ibcq)
{
	struct fake_cq *cq = to_fake_cq(ibcq);
	uint64_t element = (uintptr_t)ibcq;

	if (atomic_load(&cq->users))
		return EBUSY;
	engine_lock(); /* nobody pushes any more; see that the last push is over */
	engine_unlock();
	if (ibcq->channel)
		cq->events_sent -= event_forget(ibcq->channel->fd, 8, element);
	cq->async_sent -= event_forget(ibcq->context->async_fd, 16, element);
	pthread_mutex_lock(&ibcq->mutex);
	while (ibcq->comp_events_completed != cq->events_sent ||
	       ibcq->async_events_completed != cq->async_sent)
		pthread_cond_wait(&ibcq->cond, &ibcq->mutex);
	pthread_mutex_unlock(&ibcq->mutex);
	fake_knob_add(context_device(ibcq->context)->ctl, FAKE_LIVE_CQS, -1);
	pthread_mutex_destroy(&cq->lock);
	pthread_mutex_destroy(&cq->poll_lock);
	free(cq->ring);
	free(cq);
	return 0;
}

int fake_resize_cq(struct ibv_cq *ibcq, int cqe)
{
	struct fake_device *dev = context_device(ibcq->context);
	struct fake_cq *cq = to_fake_cq(ibcq);
	uint32_t head, tail;
	struct fake_cqe *ring;
	int ret = 0;

	if (cqe <= 0 || cqe > fake_knob_get(dev->ctl, FAKE_MAX_CQE))
		return EINVAL;
	ring = calloc((size_t)ring_mask(cqe) + 1, sizeof(*ring));
	if (!ring)
		return ENOMEM;
	pthread_mutex_lock(&cq->lock);
	head = atomic_load(&cq->head);
	tail = atomic_load(&cq->tail);
	if (head - tail > (uint32_t)cqe) {
		free(ring);
		ret = EINVAL;
		goto out;
	}
	for (uint32_t i = 0; i < head - tail; i++)
		ring[i] = cq->ring[(tail + i) & cq->mask];
	free(cq->ring);
	cq->ring = ring;
	cq->depth = cqe;
	cq->mask = ring_mask(cqe);
	atomic_store(&cq->tail, 0);
	atomic_store(&cq->head, head - tail);
	ibcq->cqe = cqe;
out:
	pthread_mutex_unlock(&cq->lock);
	return ret;
}

static void notify(struct fake_cq *cq, bool solicited)
{
	uint64_t element = (uintptr_t)&cq->vcq.cq;

	if (cq->armed == FAKE_UNARMED || (cq->armed == FAKE_ARMED_SOLICITED && !solicited))
		return;
	cq->armed = FAKE_UNARMED;
	if (cq->vcq.cq.channel && !event_send(cq->vcq.cq.channel->fd, &element, sizeof(element)))
		cq->events_sent++;
}

/* IBTA 10.9.6.3 and 11.6.2.1: what does not fit is lost, the owner gets one event. */
static void overflow(struct fake_cq *cq)
{
	struct ibv_context *context = cq->vcq.cq.context;

	fake_knob_add(context_device(context)->ctl, FAKE_CQ_OVERFLOWS, 1);
	if (cq->overflowed)
		return;
	cq->overflowed = true;
	if (!event_async(context, (uintptr_t)&cq->vcq.cq, IBV_EVENT_CQ_ERR))
		cq->async_sent++;
}

bool fake_cq_push(struct fake_cq *cq, const struct fake_cqe *cqe, bool solicited)
{
	struct timespec ts;
	uint32_t head;
	bool fits;

	pthread_mutex_lock(&cq->lock);
	head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	fits = !cq->overflowed &&
	       head - atomic_load_explicit(&cq->tail, memory_order_relaxed) < cq->depth;
	if (fits) {
		struct fake_cqe *slot = &cq->ring[head & cq->mask];

		*slot = *cqe;
		clock_gettime(CLOCK_MONOTONIC, &ts);
		slot->time_ns = ts.tv_sec * UINT64_C(1000000000) + ts.tv_nsec;
		/* Pairs with fake_poll_cq, which looks before it takes the lock. */
		atomic_store_explicit(&cq->head, head + 1, memory_order_release);
		notify(cq, solicited || cqe->wc.status != IBV_WC_SUCCESS);
	} else {
		overflow(cq);
	}
	pthread_mutex_unlock(&cq->lock);
	return fits;
}

bool fake_cq_pop(struct fake_cq *cq, struct fake_cqe *cqe)
{
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);

	if (tail == atomic_load_explicit(&cq->head, memory_order_acquire))
		return false;
	*cqe = cq->ring[tail & cq->mask];
	fake_cq_free_slots(cqe);
	atomic_store_explicit(&cq->tail, tail + 1, memory_order_relaxed);
	return true;
}

int fake_poll_cq(struct ibv_cq *ibcq, int num, struct ibv_wc *wc)
{
	struct fake_cq *cq = to_fake_cq(ibcq);
	struct fake_cqe cqe;
	int n;

	/* Looking at an empty queue costs nothing and disturbs nobody. */
	if (atomic_load_explicit(&cq->tail, memory_order_relaxed) ==
	    atomic_load_explicit(&cq->head, memory_order_acquire))
		return 0;
	pthread_mutex_lock(&cq->lock);
	for (n = 0; n < num && fake_cq_pop(cq, &cqe); n++)
		wc[n] = cqe.wc;
	pthread_mutex_unlock(&cq->lock);
	return n;
}

int fake_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	struct fake_cq *cq = to_fake_cq(ibcq);

	pthread_mutex_lock(&cq->lock);
	if (!solicited_only)
		cq->armed = FAKE_ARMED_ANY;
	else if (cq->armed == FAKE_UNARMED)
		cq->armed = FAKE_ARMED_SOLICITED;
	pthread_mutex_unlock(&cq->lock);
	return 0;
}

void fake_cq_clean(struct fake_cq *cq, struct fake_qp *qp)
{
	uint32_t head, tail, to;

	pthread_mutex_lock(&cq->lock);
	head = atomic_load(&cq->head);
	tail = to = atomic_load(&cq->tail);
	for (uint32_t i = tail; i != head; i++) {
		if (cq->ring[i & cq->mask].qp == qp)
			fake_cq_free_slots(&cq->ring[i & cq->mask]);
		else
			cq->ring[to++ & cq->mask] = cq->ring[i & cq->mask];
	}
	atomic_store(&cq->head, to);
	pthread_mutex_unlock(&cq->lock);
}
