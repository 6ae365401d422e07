/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * ibv_post_send and ibv_post_recv: checks, a copy into the ring, a kick.
 *
 * Here act: partial_every, sq_limit, instant. Not here: ibv_wr_*, see fake_wr.c.
 */
#define _GNU_SOURCE
#include <string.h>

#include "engine.h"

struct fake_send_wqe *fake_sq_wqe(struct fake_qp *qp, uint32_t index)
{
	return &qp->sq[index & qp->sq_mask];
}

struct ibv_sge *fake_sq_sge(struct fake_qp *qp, uint32_t index)
{
	return &qp->sq_sge[(size_t)(index & qp->sq_mask) * qp->cap.max_send_sge];
}

uint8_t *fake_sq_inline(struct fake_qp *qp, uint32_t index)
{
	return &qp->sq_inline[(size_t)(index & qp->sq_mask) * qp->cap.max_inline_data];
}

bool fake_sq_has_room(struct fake_qp *qp, uint32_t head)
{
	int64_t limit = fake_knob_get(qp->dev->ctl, FAKE_SQ_LIMIT);
	uint32_t depth = qp->cap.max_send_wr;

	if (limit > 0 && limit < depth)
		depth = limit;
	return head - atomic_load_explicit(&qp->sq_tail, memory_order_acquire) < depth;
}

bool fake_opcode_allowed(enum ibv_qp_type type, enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return true;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return type != IBV_QPT_UD;
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
	case IBV_WR_SEND_WITH_INV:
		return type == IBV_QPT_RC;
	default:
		return false;
	}
}

void fake_sq_posted(struct fake_qp *qp, uint32_t num)
{
	fake_knob_add(qp->dev->ctl, FAKE_POSTED_WR, num);
	if (qp->instant)
		engine_run_here(qp);
	else
		engine_kick(qp);
}

static void fill_operation(struct fake_qp *qp, const struct ibv_send_wr *wr,
			   struct fake_send_wqe *w)
{
	switch (wr->opcode) {
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		w->remote_addr = wr->wr.atomic.remote_addr;
		w->rkey = wr->wr.atomic.rkey;
		w->compare_add = wr->wr.atomic.compare_add;
		w->swap = wr->wr.atomic.swap;
		break;
	case IBV_WR_SEND_WITH_INV:
		w->imm = wr->invalidate_rkey;
		break;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
		w->remote_addr = wr->wr.rdma.remote_addr;
		w->rkey = wr->wr.rdma.rkey;
		w->imm = wr->imm_data;
		break;
	default:
		w->imm = wr->imm_data;
		break;
	}
	if (qp->type == IBV_QPT_UD) {
		w->ah = to_fake_ah(wr->wr.ud.ah)->attr;
		w->remote_qpn = wr->wr.ud.remote_qpn;
		w->remote_qkey = wr->wr.ud.remote_qkey;
	}
}

/* Copies WR into the slot of INDEX; a positive errno if it cannot be posted. */
static int fill(struct fake_qp *qp, const struct ibv_send_wr *wr, uint32_t index)
{
	struct fake_send_wqe *w = fake_sq_wqe(qp, index);
	bool atomic = wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		      wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	uint64_t length = 0;
	uint8_t *to;

	if (!fake_opcode_allowed(qp->type, wr->opcode) || wr->num_sge < 0 ||
	    (uint32_t)wr->num_sge > qp->cap.max_send_sge ||
	    (qp->type == IBV_QPT_UD && !wr->wr.ud.ah))
		return EINVAL;
	for (int i = 0; i < wr->num_sge; i++)
		length += wr->sg_list[i].length;
	if (length > UINT32_MAX || (atomic && length != 8))
		return EINVAL;
	if ((wr->send_flags & IBV_SEND_INLINE) &&
	    (length > qp->cap.max_inline_data || atomic || wr->opcode == IBV_WR_RDMA_READ))
		return EINVAL;
	w->wr_id = wr->wr_id;
	w->opcode = wr->opcode;
	w->flags = wr->send_flags;
	w->length = length;
	w->num_sge = wr->num_sge;
	fill_operation(qp, wr, w);
	if (!(wr->send_flags & IBV_SEND_INLINE)) {
		if (wr->num_sge)
			memcpy(fake_sq_sge(qp, index), wr->sg_list,
			       wr->num_sge * sizeof(*wr->sg_list));
		return 0;
	}
	to = fake_sq_inline(qp, index);
	for (int i = 0; i < wr->num_sge; to += wr->sg_list[i++].length)
		if (wr->sg_list[i].length)
			memcpy(to, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
	return 0;
}

/* How many WRs this call accepts, and what it returns after those. */
static uint32_t partial_limit(struct fake_qp *qp, int *ret)
{
	struct fake_ctl_dev *ctl = qp->dev->ctl;
	int64_t every = fake_knob_get(ctl, FAKE_PARTIAL_EVERY);

	if (every <= 0 || ++qp->post_calls % every)
		return UINT32_MAX;
	*ret = fake_knob_get(ctl, FAKE_PARTIAL_RET);
	return fake_knob_get(ctl, FAKE_PARTIAL_POSTED);
}

int fake_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fake_qp *qp = to_fake_qp(ibqp);
	uint32_t head, num = 0, limit;
	int ret = 0, partial_ret = 0;

	pthread_mutex_lock(&qp->sq_lock);
	head = atomic_load_explicit(&qp->sq_head, memory_order_relaxed);
	limit = partial_limit(qp, &partial_ret);
	for (; wr; wr = wr->next, num++) {
		if (qp->state < IBV_QPS_RTS)
			ret = EINVAL;
		else if (!fake_sq_has_room(qp, head + num))
			ret = ENOMEM;
		else if (num < limit)
			ret = fill(qp, wr, head + num);
		if (ret || num >= limit) {
			*bad = wr;
			ret = ret ? ret : partial_ret;
			break;
		}
	}
	/* Pairs with the engine's load in stamp(). */
	atomic_store_explicit(&qp->sq_head, head + num, memory_order_release);
	pthread_mutex_unlock(&qp->sq_lock);
	if (num)
		fake_sq_posted(qp, num);
	return ret;
}

int fake_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fake_qp *qp = to_fake_qp(ibqp);
	struct fake_rq *rq = &qp->own_rq;
	bool flush;
	int ret = 0;

	pthread_mutex_lock(&rq->lock);
	if (qp->srq || qp->state == IBV_QPS_RESET)
		ret = EINVAL;
	for (; wr && !ret; wr = wr->next)
		if ((ret = fake_rq_post(rq, wr)))
			break;
	pthread_mutex_unlock(&rq->lock);
	/* Looked at after it is in the queue: either the engine's flush saw it or we see ERR. */
	flush = qp->state == IBV_QPS_ERR;
	if (ret)
		*bad = wr;
	if (flush)
		engine_kick(qp);
	return ret;
}
