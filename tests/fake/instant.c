/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The NIC that costs nothing (instant=2), to count the instructions of what stands above it: WRITE
 * and READ move no data, check no key and are complete when posted. No engine thread, no lock: one
 * thread at a time, one process. Other operations do their work, inside post.
 */
#include "engine.h"

/* The completion of a WR that was posted as number INDEX; false if there is no room. */
static bool push(struct fake_qp *qp, const struct ibv_send_wr *wr, uint32_t index)
{
	struct fake_cq *cq = qp->scq;
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	struct fake_cqe *cqe = &cq->ring[head & cq->mask];

	if (head - atomic_load_explicit(&cq->tail, memory_order_relaxed) >= cq->depth)
		return false;
	cqe->wc.wr_id = wr->wr_id;
	cqe->wc.status = IBV_WC_SUCCESS;
	cqe->wc.opcode = wr->opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE;
	cqe->wc.byte_len = wr->num_sge ? wr->sg_list->length : 0;
	cqe->wc.qp_num = qp->qpn;
	cqe->wc.wc_flags = 0;
	cqe->qp = qp;
	cqe->rq = NULL;
	cqe->free_to = index + 1;
	atomic_store_explicit(&cq->head, head + 1, memory_order_relaxed);
	return true;
}

static int post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fake_qp *qp = to_fake_qp(ibqp);
	uint32_t index = atomic_load_explicit(&qp->sq_head, memory_order_relaxed);

	/* Armed queues, errors and what waits for its receive go the long way. */
	if (qp->state != IBV_QPS_RTS || qp->sq_acked != index || qp->scq->armed != FAKE_UNARMED)
		return fake_post_send(ibqp, wr, bad);
	for (; wr; wr = wr->next) {
		if (wr->opcode != IBV_WR_RDMA_WRITE && wr->opcode != IBV_WR_RDMA_READ)
			break;
		if (index - atomic_load_explicit(&qp->sq_tail, memory_order_relaxed) >=
		    qp->cap.max_send_wr)
			break;
		if ((qp->sig_all || (wr->send_flags & IBV_SEND_SIGNALED)) && !push(qp, wr, index))
			break;
		index++;
	}
	qp->sq_seen = qp->sq_next = qp->sq_acked = index;
	atomic_store_explicit(&qp->sq_head, index, memory_order_relaxed);
	return wr ? fake_post_send(ibqp, wr, bad) : 0;
}

static int poll_cq(struct ibv_cq *ibcq, int num, struct ibv_wc *wc)
{
	struct fake_cq *cq = to_fake_cq(ibcq);
	uint32_t tail = atomic_load_explicit(&cq->tail, memory_order_relaxed);
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_relaxed);
	int n;

	for (n = 0; n < num && tail != head; n++, tail++) {
		struct fake_cqe *cqe = &cq->ring[tail & cq->mask];

		wc[n] = cqe->wc;
		fake_cq_free_slots(cqe);
	}
	atomic_store_explicit(&cq->tail, tail, memory_order_relaxed);
	return n;
}

const struct verbs_context_ops instant_ops = {
	.poll_cq = poll_cq,
	.post_send = post_send,
};
