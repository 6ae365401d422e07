/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * ibv_wr_*: building send WRs in place. sq_lock is held from wr_start to wr_complete or wr_abort.
 * The first mistake is kept in wr_err and answered by wr_complete, which then posts nothing.
 */
#define _GNU_SOURCE
#include <string.h>

#include "engine.h"

static struct fake_qp *of(struct ibv_qp_ex *ex)
{
	return to_fake_qp(ex);
}

static void wr_start(struct ibv_qp_ex *ex)
{
	struct fake_qp *qp = of(ex);

	pthread_mutex_lock(&qp->sq_lock);
	qp->wr_head = qp->sq_head;
	qp->wr_err = qp->state < IBV_QPS_RTS ? EINVAL : 0;
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct fake_qp *qp = of(ex);
	uint32_t num = 0;
	int ret = qp->wr_err;

	if (!ret) {
		num = qp->wr_head - atomic_load_explicit(&qp->sq_head, memory_order_relaxed);
		atomic_store_explicit(&qp->sq_head, qp->wr_head, memory_order_release);
	}
	pthread_mutex_unlock(&qp->sq_lock);
	if (num)
		fake_sq_posted(qp, num);
	return ret;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	pthread_mutex_unlock(&of(ex)->sq_lock);
}

/* The next WR, or NULL if building has failed. */
static struct fake_send_wqe *begin(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode)
{
	struct fake_qp *qp = of(ex);
	struct fake_send_wqe *w;

	if (!qp->wr_err && !fake_sq_has_room(qp, qp->wr_head))
		qp->wr_err = ENOMEM;
	if (!qp->wr_err && !fake_opcode_allowed(qp->type, opcode))
		qp->wr_err = EINVAL;
	if (qp->wr_err)
		return NULL;
	w = fake_sq_wqe(qp, qp->wr_head++);
	w->wr_id = ex->wr_id;
	w->opcode = opcode;
	w->flags = ex->wr_flags & ~IBV_SEND_INLINE;
	w->num_sge = 0;
	w->length = 0;
	return w;
}

static void wr_send(struct ibv_qp_ex *ex)
{
	begin(ex, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	struct fake_send_wqe *w = begin(ex, IBV_WR_SEND_WITH_IMM);

	if (w)
		w->imm = imm;
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	struct fake_send_wqe *w = begin(ex, IBV_WR_SEND_WITH_INV);

	if (w)
		w->imm = rkey;
}

static struct fake_send_wqe *begin_rdma(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode,
					uint32_t rkey, uint64_t addr)
{
	struct fake_send_wqe *w = begin(ex, opcode);

	if (w) {
		w->rkey = rkey;
		w->remote_addr = addr;
	}
	return w;
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	begin_rdma(ex, IBV_WR_RDMA_WRITE, rkey, addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, __be32 imm)
{
	struct fake_send_wqe *w = begin_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr);

	if (w)
		w->imm = imm;
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	begin_rdma(ex, IBV_WR_RDMA_READ, rkey, addr);
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t compare,
			      uint64_t swap)
{
	struct fake_send_wqe *w = begin_rdma(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr);

	if (w) {
		w->compare_add = compare;
		w->swap = swap;
	}
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t add)
{
	struct fake_send_wqe *w = begin_rdma(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr);

	if (w)
		w->compare_add = add;
}

/* The setters act on the WR begun last. */
static struct fake_send_wqe *last(struct fake_qp *qp)
{
	return qp->wr_err ? NULL : fake_sq_wqe(qp, qp->wr_head - 1);
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t num, const struct ibv_sge *list)
{
	struct fake_qp *qp = of(ex);
	struct fake_send_wqe *w = last(qp);
	uint64_t length = 0;

	if (!w)
		return;
	if (num > qp->cap.max_send_sge) {
		qp->wr_err = EINVAL;
		return;
	}
	for (size_t i = 0; i < num; i++)
		length += list[i].length;
	if (length > UINT32_MAX) {
		qp->wr_err = EINVAL;
		return;
	}
	if (num)
		memcpy(fake_sq_sge(qp, qp->wr_head - 1), list, num * sizeof(*list));
	w->num_sge = num;
	w->length = length;
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };

	wr_set_sge_list(ex, 1, &sge);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t num,
				    const struct ibv_data_buf *list)
{
	struct fake_qp *qp = of(ex);
	struct fake_send_wqe *w = last(qp);
	size_t length = 0;

	if (!w)
		return;
	for (size_t i = 0; i < num; i++) {
		if (list[i].length > qp->cap.max_inline_data - length) {
			qp->wr_err = EINVAL;
			return;
		}
		if (list[i].length)
			memcpy(fake_sq_inline(qp, qp->wr_head - 1) + length, list[i].addr,
			       list[i].length);
		length += list[i].length;
	}
	w->flags |= IBV_SEND_INLINE;
	w->length = length;
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct ibv_data_buf buf = { .addr = addr, .length = length };

	wr_set_inline_data_list(ex, 1, &buf);
}

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct fake_send_wqe *w = last(of(ex));

	if (!w)
		return;
	w->ah = to_fake_ah(ah)->attr;
	w->remote_qpn = qpn;
	w->remote_qkey = qkey;
}

int fake_wr_setup(struct fake_qp *qp, uint64_t ops)
{
	const uint64_t known = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
			       IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE |
			       IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
			       IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
			       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	struct ibv_qp_ex *ex = &qp->vqp.qp_ex;

	if (ops & ~known)
		return EOPNOTSUPP;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
#define OFFER(bit, member) ex->member = ops & (bit) ? member : NULL
	OFFER(IBV_QP_EX_WITH_SEND, wr_send);
	OFFER(IBV_QP_EX_WITH_SEND_WITH_IMM, wr_send_imm);
	OFFER(IBV_QP_EX_WITH_SEND_WITH_INV, wr_send_inv);
	OFFER(IBV_QP_EX_WITH_RDMA_WRITE, wr_rdma_write);
	OFFER(IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, wr_rdma_write_imm);
	OFFER(IBV_QP_EX_WITH_RDMA_READ, wr_rdma_read);
	OFFER(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, wr_atomic_cmp_swp);
	OFFER(IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, wr_atomic_fetch_add);
#undef OFFER
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	if (qp->type == IBV_QPT_UD)
		ex->wr_set_ud_addr = wr_set_ud_addr;
	qp->vqp.comp_mask |= VERBS_QP_EX;
	return 0;
}
