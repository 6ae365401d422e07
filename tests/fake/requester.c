/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The sending half of a QP: takes posted WRs when they are due, checks their local side, hands them
 * to the responder and turns its answers into completions.
 *
 * The SQ in order: sq_acked <= sq_next <= sq_seen <= sq_head. What lies between sq_acked and
 * sq_next is under way; after RNR or silence sq_next goes back and tx_epoch up, so that answers to
 * what was sent before are known as old.
 *
 * Here act: delay_us, jitter_us, ack_delay_us, rate_mb_s, lose, link_down.
 * Not here: executing, see responder.c.
 */
#define _GNU_SOURCE
#include <string.h>

#include "engine.h"

#define MAX_WR_PER_TURN 32
#define MAX_BYTES_PER_TURN (1 << 20)
#define SEND_AGAIN_NS 50000
#define STANDSTILL_NS 1000000

static bool is_read_or_atomic(uint32_t opcode)
{
	return opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static bool is_atomic(uint32_t opcode)
{
	return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static uint64_t next_random(struct fake_qp *qp)
{
	qp->rng = qp->rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return qp->rng >> 33;
}

/* When the line will have sent BYTES more; other QPs and processes use the same line. */
static int64_t line_reserve(struct fake_ctl_dev *ctl, uint64_t bytes, int64_t now, int64_t rate)
{
	int64_t was = atomic_load(&ctl->wire_free_ns), until;

	do
		until = (was > now ? was : now) + (int64_t)(bytes * 1000 / rate);
	while (!atomic_compare_exchange_weak(&ctl->wire_free_ns, &was, until));
	return until;
}

/* Gives what was posted since the time at which it is due, if its predecessors were sent then. */
static void stamp(struct fake_qp *qp, int64_t now)
{
	struct fake_ctl_dev *ctl = qp->dev->ctl;
	int64_t delay_ns = fake_knob_get(ctl, FAKE_DELAY_US) * 1000;
	int64_t jitter_ns = fake_knob_get(ctl, FAKE_JITTER_US) * 1000;
	int64_t rate = fake_knob_get(ctl, FAKE_RATE_MB_S);
	uint32_t head = atomic_load_explicit(&qp->sq_head, memory_order_acquire);

	for (; qp->sq_seen != head; qp->sq_seen++) {
		struct fake_send_wqe *w = fake_sq_wqe(qp, qp->sq_seen);

		w->acked = false;
		w->due_ns = now;
		if (rate > 0)
			w->due_ns = line_reserve(ctl, w->length, now, rate);
		w->due_ns += delay_ns;
		if (jitter_ns > 0)
			w->due_ns += next_random(qp) % jitter_ns;
	}
}

static enum ibv_wc_opcode wc_opcode(uint32_t opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	default:
		return IBV_WC_SEND;
	}
}

static void push_completion(struct fake_qp *qp, uint32_t index, enum ibv_wc_status status)
{
	struct fake_send_wqe *w = fake_sq_wqe(qp, index);
	struct fake_cqe cqe = { .qp = qp, .free_to = index + 1 };

	cqe.wc.wr_id = w->wr_id;
	cqe.wc.status = status;
	cqe.wc.opcode = wc_opcode(w->opcode);
	cqe.wc.byte_len = w->length;
	cqe.wc.qp_num = qp->qpn;
	if (!fake_cq_push(qp->scq, &cqe, false) && qp->state != IBV_QPS_ERR) {
		fake_qp_set_state(qp, IBV_QPS_ERR);
		fake_qp_event(qp, IBV_EVENT_QP_FATAL);
	}
}

/* The WR at INDEX, the oldest, is over. */
static void complete(struct fake_qp *qp, uint32_t index, enum ibv_wc_status status)
{
	struct fake_send_wqe *w = fake_sq_wqe(qp, index);
	uint32_t length = w->length; /* once completed the slot may be posted to again */

	if (status != IBV_WC_SUCCESS || qp->sig_all || (w->flags & IBV_SEND_SIGNALED))
		push_completion(qp, index, status);
	if (status != IBV_WC_SUCCESS)
		return;
	fake_knob_add(qp->dev->ctl, FAKE_TX_BYTES, length);
	fake_knob_add(qp->dev->ctl, FAKE_DONE_WR, 1);
}

/* Completes in order what was answered. */
static void retire(struct fake_qp *qp, int64_t now)
{
	enum ibv_wc_status status;

	while (qp->sq_acked != qp->sq_next) {
		struct fake_send_wqe *w = fake_sq_wqe(qp, qp->sq_acked);

		if (!w->acked)
			return;
		if (w->ack_due_ns > now) {
			engine_wake_at(qp, w->ack_due_ns);
			return;
		}
		if (is_read_or_atomic(w->opcode))
			qp->num_reads--;
		status = w->status; /* w may be posted to again when it is completed */
		complete(qp, qp->sq_acked++, status);
		if (status == IBV_WC_SUCCESS)
			continue;
		qp->failing = false;
		fake_qp_set_state(qp, qp->type == IBV_QPT_RC ? IBV_QPS_ERR : IBV_QPS_SQE);
		return;
	}
}

/* Goes back: INDEX and what follows were not sent. */
static void rewind_to(struct fake_qp *qp, uint32_t index)
{
	qp->tx_epoch++;
	qp->sq_psn = fake_sq_wqe(qp, index)->psn;
	for (uint32_t i = index; i != qp->sq_next; i++)
		if (is_read_or_atomic(fake_sq_wqe(qp, i)->opcode))
			qp->num_reads--;
	qp->sq_next = index;
}

/* The WR at INDEX, rewound to or not yet sent, ends with an error when its turn has come. */
static void fail_at(struct fake_qp *qp, uint32_t index, enum ibv_wc_status status)
{
	struct fake_send_wqe *w = fake_sq_wqe(qp, index);

	if (index != qp->sq_next)
		rewind_to(qp, index);
	if (is_read_or_atomic(w->opcode))
		qp->num_reads++;
	qp->sq_next = index + 1;
	qp->failing = true;
	w->status = status;
	w->acked = true;
	w->ack_due_ns = 0;
}

static int64_t rnr_timer_ns(unsigned int code)
{
	/* IBTA 9.7.5.2.8, table 45, in units of 10 us */
	static const uint32_t ten_us[32] = { 65536, 1,	  2,	3,    4,    6,	  8,	 12,
					     16,    24,	  32,	48,   64,   96,	  128,	 192,
					     256,   384,  512,	768,  1024, 1536, 2048,	 3072,
					     4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152 };

	return ten_us[code % 32] * INT64_C(10000);
}

static void answered_rnr(struct fake_qp *qp, uint32_t index, unsigned int timer)
{
	if (qp->attr.rnr_retry != 7 && qp->num_rnr++ >= qp->attr.rnr_retry) {
		fail_at(qp, index, IBV_WC_RNR_RETRY_EXC_ERR);
		return;
	}
	rewind_to(qp, index);
	qp->resume_ns = now_ns() + rnr_timer_ns(timer);
}

static void answered_nothing(struct fake_qp *qp, uint32_t index)
{
	rewind_to(qp, index);
	qp->num_lost++;
	/* IBTA 9.7.6.1.3: 4.096 us * 2^timeout, 0 is for ever */
	qp->resume_ns = qp->attr.timeout ?
				now_ns() + (INT64_C(4096) << (qp->attr.timeout & 31)) :
				INT64_MAX;
}

static void answered_ok(struct fake_qp *qp, const struct wire_ack *ack)
{
	struct fake_send_wqe *w = fake_sq_wqe(qp, ack->seq);

	w->acked = true;
	w->status = IBV_WC_SUCCESS;
	w->ack_due_ns = 0;
	qp->num_lost = 0;
	qp->num_rnr = 0;
	if (fake_knob_get(qp->dev->ctl, FAKE_ACK_DELAY_US))
		w->ack_due_ns = now_ns() + fake_knob_get(qp->dev->ctl, FAKE_ACK_DELAY_US) * 1000;
	if (is_atomic(w->opcode) && w->num_sge) {
		const struct ibv_sge *sge = fake_sq_sge(qp, ack->seq);
		uint8_t *to = fake_mr_local(qp->pd, sge->lkey, sge->addr, 8,
					    IBV_ACCESS_LOCAL_WRITE);

		if (to)
			copy_bytes(to, &ack->result, 8);
		else
			w->status = IBV_WC_LOC_PROT_ERR;
	}
}

static void apply(struct fake_qp *qp, const struct wire_ack *ack)
{
	enum wire_status status = ack->status;

	if (ack->epoch != qp->tx_epoch)
		return;
	if (fake_knob_get(qp->dev->ctl, FAKE_LOSE) == 2)
		status = WIRE_LOST;
	if (qp->type != IBV_QPT_RC)
		status = WIRE_OK; /* nobody answers: sent is done */
	switch (status) {
	case WIRE_OK:
		answered_ok(qp, ack);
		break;
	case WIRE_RNR:
		answered_rnr(qp, ack->seq, ack->rnr_timer);
		break;
	case WIRE_LOST:
		answered_nothing(qp, ack->seq);
		break;
	case WIRE_NAK_REQUEST:
		fail_at(qp, ack->seq, IBV_WC_REM_INV_REQ_ERR);
		break;
	case WIRE_NAK_ACCESS:
		fail_at(qp, ack->seq, IBV_WC_REM_ACCESS_ERR);
		break;
	case WIRE_NAK_OPERATION:
		fail_at(qp, ack->seq, IBV_WC_REM_OP_ERR);
		break;
	}
}

void requester_ack(struct fake_qp *qp, const struct wire_ack *ack)
{
	qp->num_remote--;
	apply(qp, ack);
}

/* The payload: inline data, or the memory behind the SGEs, which must be ours. */
static enum ibv_wc_status gather(struct fake_qp *qp, uint32_t index, struct wire_req *req)
{
	struct fake_send_wqe *w = fake_sq_wqe(qp, index);
	const struct ibv_sge *sge = fake_sq_sge(qp, index);
	int access = is_read_or_atomic(w->opcode) ? IBV_ACCESS_LOCAL_WRITE : 0;

	req->num_mem = 0;
	req->num_inline = 0;
	if (w->length > fake_knob_get(qp->dev->ctl, FAKE_MAX_MSG_SZ))
		return IBV_WC_LOC_LEN_ERR;
	if (w->flags & IBV_SEND_INLINE) {
		req->num_inline = w->length;
		memcpy(req->inl, fake_sq_inline(qp, index), w->length);
		return IBV_WC_SUCCESS;
	}
	for (uint32_t i = 0; i < w->num_sge; i++) {
		uint8_t *addr;

		if (!sge[i].length)
			continue;
		addr = fake_mr_local(qp->pd, sge[i].lkey, sge[i].addr, sge[i].length, access);
		if (!addr)
			return IBV_WC_LOC_PROT_ERR;
		req->mem[req->num_mem++] = (struct wire_mem){ (uintptr_t)addr, sge[i].length };
	}
	return IBV_WC_SUCCESS;
}

static void address_ud(struct fake_qp *qp, const struct fake_send_wqe *w, struct wire_req *req)
{
	int dev = fake_device_of_gid(w->ah.grh.dgid.raw);

	req->dst_qpn = w->remote_qpn;
	req->dst_dev = dev < 0 ? UINT16_MAX : dev;
	/* IBTA 10.2.5: the top bit asks for the QP's own key */
	req->qkey = w->remote_qkey & 0x80000000 ? qp->attr.qkey : w->remote_qkey;
	memcpy(req->sgid, qp->dev->ctl->gid[w->ah.grh.sgid_index], 16);
	memcpy(req->dgid, w->ah.grh.dgid.raw, 16);
}

static void address(struct fake_qp *qp, uint32_t index, struct wire_req *req)
{
	struct fake_send_wqe *w = fake_sq_wqe(qp, index);
	uint32_t mtu_bytes = 128u << qp->attr.path_mtu;

	if (qp->type == IBV_QPT_UD)
		mtu_bytes = UINT32_MAX;
	w->psn = qp->sq_psn & 0xffffff;
	w->num_psn = w->length && !is_atomic(w->opcode) ? (w->length - 1) / mtu_bytes + 1 : 1;
	req->pid = 0;
	req->src_qpn = qp->qpn;
	req->src_dev = qp->dev->index;
	req->dst_qpn = qp->attr.dest_qp_num;
	req->dst_dev = qp->dst_dev < 0 ? UINT16_MAX : qp->dst_dev;
	req->qp_type = qp->type;
	req->opcode = w->opcode;
	req->solicited = !!(w->flags & IBV_SEND_SOLICITED);
	req->mtu = qp->attr.path_mtu;
	req->seq = index;
	req->epoch = qp->tx_epoch;
	req->psn = w->psn;
	req->num_psn = w->num_psn;
	req->length = w->length;
	req->imm = w->imm;
	req->rkey = w->rkey;
	req->remote_addr = w->remote_addr;
	req->compare_add = w->compare_add;
	req->swap = w->swap;
	if (qp->type == IBV_QPT_UD)
		address_ud(qp, w, req);
}

/* Sends the WR at sq_next; false if it must wait. */
static bool send_one(struct fake_qp *qp)
{
	struct fake_ctl_dev *ctl = qp->dev->ctl;
	uint32_t index = qp->sq_next;
	struct fake_send_wqe *w = fake_sq_wqe(qp, index);
	struct wire_ack ack = { .seq = index, .epoch = qp->tx_epoch, .status = WIRE_LOST };
	enum ibv_wc_status status;
	struct wire_req req;
	int ret = 0;

	status = gather(qp, index, &req);
	if (status == IBV_WC_SUCCESS && is_read_or_atomic(w->opcode) && !qp->attr.max_rd_atomic)
		status = IBV_WC_LOC_QP_OP_ERR;
	if (status != IBV_WC_SUCCESS) {
		fail_at(qp, index, status);
		return true;
	}
	address(qp, index, &req);
	if (fake_knob_get(ctl, FAKE_LOSE) != 1 && !fake_knob_get(ctl, FAKE_LINK_DOWN)) {
		if (req.dst_qpn >> FAKE_INDEX_BITS != engine.slot) {
			ret = transport_send(&req);
			if (ret == EAGAIN) {
				engine_wake_at(qp, now_ns() + SEND_AGAIN_NS);
				return false;
			}
			qp->num_remote += !ret;
		} else {
			responder_execute(&req, &ack);
			ret = -1;
		}
	} else {
		ret = -1;
	}
	if (is_read_or_atomic(w->opcode))
		qp->num_reads++;
	qp->sq_psn = (w->psn + w->num_psn) & 0xffffff;
	qp->sq_next = index + 1;
	if (ret)
		apply(qp, &ack);
	return true;
}

/* True if the WR at sq_next may go now; else its time or an answer brings us back. */
static bool may_send(struct fake_qp *qp, int64_t now)
{
	struct fake_send_wqe *w = fake_sq_wqe(qp, qp->sq_next);

	if (w->due_ns > now) {
		engine_wake_at(qp, w->due_ns);
		return false;
	}
	if (qp->resume_ns > now) {
		if (qp->resume_ns != INT64_MAX)
			engine_wake_at(qp, qp->resume_ns);
		return false;
	}
	if (qp->num_lost > qp->attr.retry_cnt) {
		fail_at(qp, qp->sq_next, IBV_WC_RETRY_EXC_ERR);
		return false;
	}
	if (qp->resume_ns && qp->num_lost)
		fake_knob_add(qp->dev->ctl, FAKE_RETRIES, 1);
	qp->resume_ns = 0;
	if ((w->flags & IBV_SEND_FENCE) && qp->num_reads)
		return false;
	return !is_read_or_atomic(w->opcode) || !qp->attr.max_rd_atomic ||
	       qp->num_reads < qp->attr.max_rd_atomic;
}

static void send_some(struct fake_qp *qp, int64_t now)
{
	uint64_t bytes = 0;

	for (int n = 0; qp->sq_next != qp->sq_seen && qp->state == IBV_QPS_RTS && !qp->failing;
	     n++) {
		if (n == MAX_WR_PER_TURN || bytes > MAX_BYTES_PER_TURN) {
			engine_kick(qp); /* others have their turn first */
			return;
		}
		if (!may_send(qp, now))
			break;
		bytes += fake_sq_wqe(qp, qp->sq_next)->length;
		if (!send_one(qp))
			return;
		retire(qp, now);
	}
}

void requester_flush(struct fake_qp *qp)
{
	/* What another process still answers may yet use the buffers. */
	if (qp->num_remote)
		return;
	while (qp->sq_acked != qp->sq_seen)
		complete(qp, qp->sq_acked++, IBV_WC_WR_FLUSH_ERR);
	qp->sq_next = qp->sq_acked;
	qp->num_reads = 0;
	qp->failing = false;
}

void requester_progress(struct fake_qp *qp)
{
	int64_t now = now_ns();

	stamp(qp, now);
	if (fake_knob_get(qp->dev->ctl, FAKE_LOSE) == 3 && qp->state == IBV_QPS_RTS) {
		if (qp->sq_acked != qp->sq_seen)
			engine_wake_at(qp, now + STANDSTILL_NS);
		return;
	}
	retire(qp, now);
	if (qp->state == IBV_QPS_RTS)
		send_some(qp, now);
	retire(qp, now);
	if (qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_SQE)
		requester_flush(qp);
	if (qp->state == IBV_QPS_ERR)
		responder_flush(qp);
}
