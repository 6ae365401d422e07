/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Asynchronous events. Members' events are read by the progress thread; those that mean something
 * on bond0 are written to a pipe that is the bond context's async_fd, naming the application's
 * object.
 * Port and device events are the primary's alone.
 */
#include <rdma/ib_user_verbs.h>

#include "bond.h"
#include "evpipe.h"
#include "fence.h"
#include "objects.h"

/* @delivered: the object's count of events that it has to see acknowledged before it goes. */
static void event_pass(struct bond_context *bctx, enum ibv_event_type type, uint64_t element,
		       uint32_t *delivered)
{
	struct ib_uverbs_async_event_desc event = { .element = element, .event_type = type };

	pthread_mutex_lock(&bctx->lock);
	if (!evpipe_write(bctx->async_pipe_wr, &event, sizeof(event)) && delivered)
		++*delivered;
	pthread_mutex_unlock(&bctx->lock);
}

static void event_member_qp(struct bond_context *bctx, unsigned int member,
			    const struct ibv_async_event *event)
{
	struct bond_qp *qp = event->element.qp->qp_context;
	bool fatal = event->event_type == IBV_EVENT_QP_FATAL ||
		     event->event_type == IBV_EVENT_QP_REQ_ERR ||
		     event->event_type == IBV_EVENT_QP_ACCESS_ERR;

	if (fatal && qp->kind == BOND_QP_RC)
		bond_qp_to_error(qp);
	/* COMM_EST, SQ_DRAINED and LAST_WQE_REACHED are said by path 0. */
	if (fatal || !member)
		event_pass(bctx, event->event_type, (uintptr_t)&qp->vqp.qp, &qp->events_delivered);
}

static void event_translate(struct bond_context *bctx, unsigned int member,
			    const struct ibv_async_event *event)
{
	struct bond_srq *srq;
	struct mcq *mcq;

	switch (event->event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		event_member_qp(bctx, member, event);
		break;
	case IBV_EVENT_CQ_ERR:
		mcq = event->element.cq->cq_context;
		event_pass(bctx, event->event_type, (uintptr_t)&mcq->owner->vcq.cq,
			   &mcq->owner->async_delivered);
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		srq = event->element.srq->srq_context;
		event_pass(bctx, event->event_type, (uintptr_t)&srq->vsrq.srq,
			   &srq->events_delivered);
		break;
	case IBV_EVENT_WQ_FATAL:
		break;
	default:
		if (!member)
			event_pass(bctx, event->event_type, event->element.port_num, NULL);
		break;
	}
}

void bond_event_member(struct bond_context *bctx, unsigned int member)
{
	struct ibv_async_event event;

	while (!ibv_get_async_event(bctx->member[member].ctx, &event)) {
		event_translate(bctx, member, &event);
		ibv_ack_async_event(&event);
	}
}

/* An object goes: its unread events too, and those read have to be acknowledged first. */
void bond_events_end(struct bond_context *bctx, void *element, pthread_mutex_t *mutex,
		     pthread_cond_t *cond, const uint32_t *acked, uint32_t *delivered)
{
	pthread_mutex_lock(&bctx->lock);
	*delivered -= evpipe_purge(bctx->vctx.context.async_fd, bctx->async_pipe_wr,
				   sizeof(struct ib_uverbs_async_event_desc), (uintptr_t)element);
	pthread_mutex_unlock(&bctx->lock);
	pthread_mutex_lock(mutex);
	while (*acked != *delivered)
		pthread_cond_wait(cond, mutex);
	pthread_mutex_unlock(mutex);
}
