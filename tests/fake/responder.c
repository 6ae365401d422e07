/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The receiving half of a QP: checks what arrives, executes it and says what the requester is told.
 *
 * Not here: when it arrives, see requester.c; between processes, see transport.c.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <string.h>

#include "engine.h"

/* A receive that was taken out of its queue. */
struct taken {
	uint64_t wr_id;
	uint32_t num_sge;
	uint64_t length;
	struct ibv_sge sge[WIRE_MAX_SGE];
};

static bool take_receive(struct fake_rq *rq, struct taken *t)
{
	struct fake_recv_wqe *w;
	bool found;

	pthread_mutex_lock(&rq->lock);
	found = rq->next != rq->head;
	if (found) {
		w = &rq->wqe[rq->next & rq->mask];
		t->wr_id = w->wr_id;
		t->num_sge = w->num_sge;
		t->length = w->length;
		if (w->num_sge)
			memcpy(t->sge, &rq->sge[(size_t)(rq->next & rq->mask) * rq->max_sge],
			       w->num_sge * sizeof(*t->sge));
		rq->next++;
	}
	pthread_mutex_unlock(&rq->lock);
	return found;
}

static void complete_receive(struct fake_qp *qp, const struct fake_cqe *cqe, bool solicited)
{
	if (!fake_cq_push(qp->rcq, cqe, solicited) && qp->state != IBV_QPS_ERR) {
		fake_qp_set_state(qp, IBV_QPS_ERR);
		fake_qp_event(qp, IBV_EVENT_QP_FATAL);
	}
}

static struct fake_cqe receive_cqe(struct fake_qp *qp, const struct taken *t)
{
	struct fake_cqe cqe = { .qp = qp, .rq = qp->rq };

	cqe.wc.wr_id = t->wr_id;
	cqe.wc.opcode = IBV_WC_RECV;
	cqe.wc.qp_num = qp->qpn;
	return cqe;
}

/* Both halves stop; what is in the queues is flushed at the next turn. */
static enum wire_status refuse(struct fake_qp *qp, enum wire_status status)
{
	if (qp->type != IBV_QPT_RC)
		return WIRE_LOST;
	fake_qp_set_state(qp, IBV_QPS_ERR);
	if (status == WIRE_NAK_ACCESS)
		fake_qp_event(qp, IBV_EVENT_QP_ACCESS_ERR);
	else if (status == WIRE_NAK_REQUEST)
		fake_qp_event(qp, IBV_EVENT_QP_REQ_ERR);
	return status;
}

/* The receive itself was bad: its owner is told by a completion, not by an event. */
static enum wire_status refuse_receive(struct fake_qp *qp, const struct taken *t,
				       enum ibv_wc_status wc_status, enum wire_status status)
{
	struct fake_cqe cqe = receive_cqe(qp, t);

	cqe.wc.status = wc_status;
	complete_receive(qp, &cqe, true);
	fake_qp_set_state(qp, IBV_QPS_ERR);
	return qp->type == IBV_QPT_RC ? status : WIRE_LOST;
}

static uint16_t ipv4_checksum(const uint8_t *header)
{
	uint32_t sum = 0;

	for (int i = 0; i < 20; i += 2)
		sum += header[i] << 8 | header[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	return ~(sum + (sum >> 16));
}

/* What a UD receive finds in its first 40 bytes: IPv6 or, in the second half, an IPv4 header. */
static void make_grh(const struct wire_req *req, uint8_t *grh)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	uint8_t *ip = grh + 20;
	uint16_t len = req->length + 28, sum;

	memset(grh, 0, FAKE_GRH_BYTES);
	if (memcmp(req->sgid, mapped, sizeof(mapped))) {
		grh[0] = 0x60;
		grh[4] = req->length >> 8;
		grh[5] = req->length;
		grh[6] = 0x1b;
		grh[7] = 64;
		memcpy(grh + 8, req->sgid, 16);
		memcpy(grh + 24, req->dgid, 16);
		return;
	}
	ip[0] = 0x45;
	ip[2] = len >> 8;
	ip[3] = len;
	ip[8] = 64;
	ip[9] = 17;
	memcpy(ip + 12, req->sgid + 12, 4);
	memcpy(ip + 16, req->dgid + 12, 4);
	sum = ipv4_checksum(ip);
	ip[10] = sum >> 8;
	ip[11] = sum;
}

/*
 * Puts HEAD and then the payload into the receive's buffers. IBV_WC_LOC_PROT_ERR, or
 * IBV_WC_GENERAL_ERR if the requester's memory is gone.
 */
static enum ibv_wc_status scatter(struct fake_qp *qp, const struct taken *t,
				  const struct wire_req *req, const uint8_t *head,
				  uint64_t head_len)
{
	struct fake_pd *pd = qp->srq ? qp->srq->pd : qp->pd;
	uint64_t total = head_len + req->length, at = 0;

	for (uint32_t i = 0; i < t->num_sge && at < total; i++) {
		uint64_t n = t->sge[i].length, from_head = 0;
		uint8_t *to;

		if (!n)
			continue;
		if (n > total - at)
			n = total - at;
		to = fake_mr_local(pd, t->sge[i].lkey, t->sge[i].addr, n, IBV_ACCESS_LOCAL_WRITE);
		if (!to)
			return IBV_WC_LOC_PROT_ERR;
		if (at < head_len) {
			from_head = n < head_len - at ? n : head_len - at;
			copy_bytes(to, head + at, from_head);
		}
		if (n > from_head && copy_from_requester(req, at + from_head - head_len,
							 to + from_head, n - from_head))
			return IBV_WC_GENERAL_ERR;
		at += n;
	}
	return IBV_WC_SUCCESS;
}

static enum wire_status execute_send(struct fake_qp *qp, const struct wire_req *req)
{
	uint8_t grh[FAKE_GRH_BYTES];
	uint64_t head = qp->type == IBV_QPT_UD ? FAKE_GRH_BYTES : 0;
	enum ibv_wc_status status;
	struct fake_cqe cqe;
	struct taken t;

	if (!take_receive(qp->rq, &t))
		return WIRE_RNR;
	if (qp->srq)
		fake_srq_taken(qp->srq);
	if (head + req->length > t.length)
		return refuse_receive(qp, &t, IBV_WC_LOC_LEN_ERR, WIRE_NAK_REQUEST);
	if (head)
		make_grh(req, grh);
	status = scatter(qp, &t, req, grh, head);
	if (status != IBV_WC_SUCCESS)
		return refuse_receive(qp, &t, status, WIRE_NAK_OPERATION);
	cqe = receive_cqe(qp, &t);
	cqe.wc.byte_len = head + req->length;
	cqe.wc.src_qp = req->src_qpn;
	if (head)
		cqe.wc.wc_flags = IBV_WC_GRH;
	if (req->opcode == IBV_WR_SEND_WITH_IMM) {
		cqe.wc.wc_flags |= IBV_WC_WITH_IMM;
		cqe.wc.imm_data = req->imm;
	} else if (req->opcode == IBV_WR_SEND_WITH_INV) {
		if (!fake_mr_invalidate(qp->pd, req->imm))
			return refuse_receive(qp, &t, IBV_WC_REM_ACCESS_ERR, WIRE_NAK_ACCESS);
		cqe.wc.wc_flags |= IBV_WC_WITH_INV;
		cqe.wc.invalidated_rkey = req->imm;
	}
	fake_knob_add(qp->dev->ctl, FAKE_RX_SEND, 1);
	complete_receive(qp, &cqe, req->solicited);
	return WIRE_OK;
}

static enum wire_status execute_write(struct fake_qp *qp, const struct wire_req *req)
{
	bool imm = req->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	uint8_t *to = NULL;
	struct fake_cqe cqe;
	struct taken t;

	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE))
		return refuse(qp, WIRE_NAK_REQUEST);
	if (req->length) {
		to = fake_mr_remote(qp->pd, req->rkey, req->remote_addr, req->length,
				    IBV_ACCESS_REMOTE_WRITE);
		if (!to)
			return refuse(qp, WIRE_NAK_ACCESS);
	}
	if (imm && !take_receive(qp->rq, &t))
		return WIRE_RNR;
	if (imm && qp->srq)
		fake_srq_taken(qp->srq);
	if (copy_from_requester(req, 0, to, req->length)) {
		if (imm)
			return refuse_receive(qp, &t, IBV_WC_GENERAL_ERR, WIRE_NAK_OPERATION);
		return refuse(qp, WIRE_NAK_OPERATION);
	}
	fake_knob_add(qp->dev->ctl, FAKE_RX_WRITE, 1);
	if (imm) {
		cqe = receive_cqe(qp, &t);
		cqe.wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
		cqe.wc.byte_len = req->length;
		cqe.wc.src_qp = req->src_qpn;
		cqe.wc.wc_flags = IBV_WC_WITH_IMM;
		cqe.wc.imm_data = req->imm;
		complete_receive(qp, &cqe, req->solicited);
	}
	return WIRE_OK;
}

static enum wire_status execute_read(struct fake_qp *qp, const struct wire_req *req)
{
	uint8_t *from;

	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) || !qp->attr.max_dest_rd_atomic)
		return refuse(qp, WIRE_NAK_REQUEST);
	if (req->length) {
		from = fake_mr_remote(qp->pd, req->rkey, req->remote_addr, req->length,
				      IBV_ACCESS_REMOTE_READ);
		if (!from)
			return refuse(qp, WIRE_NAK_ACCESS);
		if (copy_to_requester(req, from, req->length))
			return WIRE_LOST;
	}
	fake_knob_add(qp->dev->ctl, FAKE_RX_READ, 1);
	return WIRE_OK;
}

static void remember_atomic(struct fake_qp *qp, uint32_t psn, uint64_t value)
{
	qp->atomic_results[qp->num_atomics++ % FAKE_ATOMIC_RESULTS] =
		(struct fake_atomic_result){ .psn = psn, .valid = true, .value = value };
}

static enum wire_status execute_atomic(struct fake_qp *qp, const struct wire_req *req,
				       struct wire_ack *ack)
{
	uint64_t *at, was;

	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC) ||
	    !qp->attr.max_dest_rd_atomic || req->remote_addr % 8)
		return refuse(qp, WIRE_NAK_REQUEST);
	at = (void *)fake_mr_remote(qp->pd, req->rkey, req->remote_addr, 8,
				    IBV_ACCESS_REMOTE_ATOMIC);
	if (!at || (uintptr_t)at % 8)
		return refuse(qp, WIRE_NAK_ACCESS);
	was = req->compare_add;
	if (req->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		was = __atomic_fetch_add(at, req->compare_add, __ATOMIC_SEQ_CST);
	else /* leaves what it found in was, also when it swapped: then they are equal */
		__atomic_compare_exchange_n(at, &was, req->swap, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
	ack->result = was;
	remember_atomic(qp, req->psn, was);
	fake_knob_add(qp->dev->ctl, FAKE_RX_ATOMIC, 1);
	return WIRE_OK;
}

/* Seen before: the answer was lost. IBTA 9.7.5.1.2 and following: READs are done again. */
static enum wire_status repeat(struct fake_qp *qp, const struct wire_req *req,
			       struct wire_ack *ack)
{
	if (req->opcode == IBV_WR_RDMA_READ)
		return execute_read(qp, req);
	if (req->opcode != IBV_WR_ATOMIC_CMP_AND_SWP && req->opcode != IBV_WR_ATOMIC_FETCH_AND_ADD)
		return WIRE_OK;
	for (int i = 0; i < FAKE_ATOMIC_RESULTS; i++) {
		if (!qp->atomic_results[i].valid || qp->atomic_results[i].psn != req->psn)
			continue;
		ack->result = qp->atomic_results[i].value;
		return WIRE_OK;
	}
	return WIRE_LOST;
}

static enum wire_status execute_new(struct fake_qp *qp, const struct wire_req *req,
				    struct wire_ack *ack)
{
	/* A packet must be as long as this side's MTU says, the last not longer. */
	if (qp->type != IBV_QPT_UD && req->mtu != qp->attr.path_mtu &&
	    (req->num_psn > 1 || req->length > 128u << qp->attr.path_mtu))
		return refuse(qp, WIRE_NAK_REQUEST);
	switch ((enum ibv_wr_opcode)req->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV:
		return execute_send(qp, req);
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return execute_write(qp, req);
	case IBV_WR_RDMA_READ:
		return execute_read(qp, req);
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return execute_atomic(qp, req, ack);
	default:
		return refuse(qp, WIRE_NAK_REQUEST);
	}
}

/* True if REQ is addressed to QP by who may send to it. */
static bool is_for(struct fake_qp *qp, const struct wire_req *req)
{
	struct fake_ctl_dev *ctl = qp->dev->ctl;

	if (qp->dev->index != req->dst_dev || qp->type != req->qp_type)
		return false;
	if (fake_knob_get(ctl, FAKE_LINK_DOWN) || fake_knob_get(ctl, FAKE_LOSE) % 2)
		return false;
	if (qp->state < IBV_QPS_RTR || qp->state == IBV_QPS_ERR)
		return false;
	if (qp->type == IBV_QPT_UD)
		return qp->attr.qkey == req->qkey;
	return qp->attr.dest_qp_num == req->src_qpn && qp->dst_dev == req->src_dev;
}

void responder_execute(const struct wire_req *req, struct wire_ack *ack)
{
	struct fake_qp *qp = engine_find_qp(req->dst_qpn);
	int32_t ahead;

	*ack = (struct wire_ack){ .dst_qpn = req->src_qpn,
				  .seq = req->seq,
				  .epoch = req->epoch,
				  .status = WIRE_LOST };
	if (!qp || !is_for(qp, req))
		return;
	if (qp->type == IBV_QPT_UC)
		qp->rq_psn = req->psn; /* nothing is asked for again: it goes on with what comes */
	if (qp->type != IBV_QPT_UD) {
		ahead = (int32_t)((req->psn - qp->rq_psn) << 8) >> 8;
		if (ahead > 0)
			return;
		if (ahead < 0) {
			ack->status = repeat(qp, req, ack);
			return;
		}
	}
	ack->status = execute_new(qp, req, ack);
	ack->rnr_timer = qp->attr.min_rnr_timer;
	if (ack->status == WIRE_RNR)
		fake_knob_add(qp->dev->ctl, FAKE_RNR_NAKS, 1);
	if (ack->status != WIRE_OK)
		return;
	fake_knob_add(qp->dev->ctl, FAKE_RX_BYTES, req->length);
	qp->rq_psn = (req->psn + req->num_psn) & 0xffffff;
}

void responder_flush(struct fake_qp *qp)
{
	struct taken t;

	if (qp->srq) {
		if (!qp->srq_last_wqe)
			fake_qp_event(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
		qp->srq_last_wqe = true;
		return;
	}
	while (take_receive(qp->rq, &t)) {
		struct fake_cqe cqe = receive_cqe(qp, &t);

		cqe.wc.status = IBV_WC_WR_FLUSH_ERR;
		complete_receive(qp, &cqe, true);
	}
}
