/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * ibv_wr_*: the builder calls fill work requests of the plain kind in a private area, and
 * ibv_wr_complete() posts them all as one chain, or none where a call went wrong. So there is one
 * data path, and members are driven by plain posts alone.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "objects.h"

struct bond_wr_builder {
	struct bond_lock lock;		/* from start to complete or abort, as verbs has it */
	int err;
	uint32_t n, max_wr;
	uint32_t max_sge, max_inline;
	struct ibv_send_wr *wr;
	struct ibv_sge *sge;		/* max_sge for each WR */
	char *data;			/* max_inline for each WR */
};

#define WR_OPS_OFFERED \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | \
	 IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | \
	 IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | \
	 IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_BIND_MW)

static struct bond_wr_builder *builder_of(struct ibv_qp_ex *qp)
{
	return bond_container_of(qp, struct bond_qp, vqp.qp_ex)->builder;
}

/* The WR that the last builder call began; NULL: there is none, or it went wrong. */
static struct ibv_send_wr *builder_current(struct bond_wr_builder *b)
{
	if (!b->n && !b->err)
		b->err = EINVAL;
	return b->err ? NULL : &b->wr[b->n - 1];
}

static struct ibv_send_wr *builder_new(struct ibv_qp_ex *qp, enum ibv_wr_opcode opcode)
{
	struct bond_wr_builder *b = builder_of(qp);
	struct ibv_send_wr *wr;

	if (b->err)
		return NULL;
	if (b->n == b->max_wr) {
		b->err = ENOMEM;
		return NULL;
	}
	wr = &b->wr[b->n];
	memset(wr, 0, sizeof(*wr));
	wr->wr_id = qp->wr_id;
	wr->send_flags = qp->wr_flags;
	wr->opcode = opcode;
	wr->sg_list = &b->sge[(size_t)b->n * b->max_sge];
	b->n++;
	return wr;
}

static void wr_rdma(struct ibv_qp_ex *qp, enum ibv_wr_opcode opcode, uint32_t rkey,
		    uint64_t remote_addr, __be32 imm)
{
	struct ibv_send_wr *wr = builder_new(qp, opcode);

	if (!wr)
		return;
	wr->wr.rdma.rkey = rkey;
	wr->wr.rdma.remote_addr = remote_addr;
	wr->imm_data = imm;
}

static void wr_rdma_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr)
{
	wr_rdma(qp, IBV_WR_RDMA_WRITE, rkey, remote_addr, 0);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr, __be32 imm)
{
	wr_rdma(qp, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote_addr, imm);
}

static void wr_rdma_read(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr)
{
	wr_rdma(qp, IBV_WR_RDMA_READ, rkey, remote_addr, 0);
}

static void wr_atomic(struct ibv_qp_ex *qp, enum ibv_wr_opcode opcode, uint32_t rkey,
		      uint64_t remote_addr, uint64_t compare_add, uint64_t swap)
{
	struct ibv_send_wr *wr = builder_new(qp, opcode);

	if (!wr)
		return;
	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.remote_addr = remote_addr;
	wr->wr.atomic.compare_add = compare_add;
	wr->wr.atomic.swap = swap;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr,
			      uint64_t compare, uint64_t swap)
{
	wr_atomic(qp, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, remote_addr, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote_addr,
				uint64_t add)
{
	wr_atomic(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, remote_addr, add, 0);
}

static void wr_send(struct ibv_qp_ex *qp)
{
	builder_new(qp, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *qp, __be32 imm)
{
	struct ibv_send_wr *wr = builder_new(qp, IBV_WR_SEND_WITH_IMM);

	if (wr)
		wr->imm_data = imm;
}

static void wr_invalidate(struct ibv_qp_ex *qp, enum ibv_wr_opcode opcode, uint32_t rkey)
{
	struct ibv_send_wr *wr = builder_new(qp, opcode);

	if (wr)
		wr->invalidate_rkey = rkey;
}

static void wr_send_inv(struct ibv_qp_ex *qp, uint32_t rkey)
{
	wr_invalidate(qp, IBV_WR_SEND_WITH_INV, rkey);
}

static void wr_local_inv(struct ibv_qp_ex *qp, uint32_t rkey)
{
	wr_invalidate(qp, IBV_WR_LOCAL_INV, rkey);
}

static void wr_bind_mw(struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey,
		       const struct ibv_mw_bind_info *info)
{
	struct ibv_send_wr *wr = builder_new(qp, IBV_WR_BIND_MW);

	if (!wr)
		return;
	wr->bind_mw.mw = mw;
	wr->bind_mw.rkey = rkey;
	wr->bind_mw.bind_info = *info;
}

static void wr_set_sge_list(struct ibv_qp_ex *qp, size_t num_sge, const struct ibv_sge *sg_list)
{
	struct bond_wr_builder *b = builder_of(qp);
	struct ibv_send_wr *wr = builder_current(b);

	if (!wr)
		return;
	if (num_sge > b->max_sge) {
		b->err = EINVAL;
		return;
	}
	memcpy(wr->sg_list, sg_list, num_sge * sizeof(*sg_list));
	wr->num_sge = num_sge;
}

static void wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };

	wr_set_sge_list(qp, 1, &sge);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *qp, size_t num_buf,
				    const struct ibv_data_buf *list)
{
	struct bond_wr_builder *b = builder_of(qp);
	struct ibv_send_wr *wr = builder_current(b);
	size_t i, len = 0;
	char *data;

	if (!wr)
		return;
	data = b->data + (size_t)(b->n - 1) * b->max_inline;
	for (i = 0; i < num_buf; i++) {
		if (list[i].length > b->max_inline - len) {
			b->err = EINVAL;
			return;
		}
		memcpy(data + len, list[i].addr, list[i].length);
		len += list[i].length;
	}
	wr->sg_list[0] = (struct ibv_sge){ .addr = (uintptr_t)data, .length = len };
	wr->num_sge = len ? 1 : 0;
	wr->send_flags |= IBV_SEND_INLINE;
}

static void wr_set_inline_data(struct ibv_qp_ex *qp, void *addr, size_t length)
{
	struct ibv_data_buf buf = { .addr = addr, .length = length };

	wr_set_inline_data_list(qp, 1, &buf);
}

static void wr_set_ud_addr(struct ibv_qp_ex *qp, struct ibv_ah *ah, uint32_t remote_qpn,
			   uint32_t remote_qkey)
{
	struct ibv_send_wr *wr = builder_current(builder_of(qp));

	if (!wr)
		return;
	wr->wr.ud.ah = ah;
	wr->wr.ud.remote_qpn = remote_qpn;
	wr->wr.ud.remote_qkey = remote_qkey;
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *qp, uint32_t remote_srqn)
{
	struct ibv_send_wr *wr = builder_current(builder_of(qp));

	if (wr)
		wr->qp_type.xrc.remote_srqn = remote_srqn;
}

static void wr_start(struct ibv_qp_ex *qp)
{
	struct bond_wr_builder *b = builder_of(qp);

	bond_lock(&b->lock);
	b->n = 0;
	b->err = 0;
}

static int wr_complete(struct ibv_qp_ex *qp)
{
	struct bond_wr_builder *b = builder_of(qp);
	struct ibv_send_wr *bad;
	int ret = b->err;
	uint32_t i;

	if (!ret && b->n) {
		for (i = 0; i + 1 < b->n; i++)
			b->wr[i].next = &b->wr[i + 1];
		ret = bond_post_send_all(&qp->qp_base, b->wr, b->n, &bad);
	}
	bond_unlock(&b->lock);
	return ret;
}

static void wr_abort(struct ibv_qp_ex *qp)
{
	bond_unlock(&builder_of(qp)->lock);
}

int bond_wr_init(struct bond_qp *qp, uint64_t send_ops_flags)
{
	const struct ibv_qp_cap *cap = &qp->init_attr.cap;
	struct ibv_qp_ex *ex = &qp->vqp.qp_ex;
	struct bond_wr_builder *b;

	if (send_ops_flags & ~(uint64_t)WR_OPS_OFFERED)
		return EOPNOTSUPP;
	b = calloc(1, sizeof(*b));
	if (!b)
		return ENOMEM;
	qp->builder = b;
	b->max_wr = cap->max_send_wr ? cap->max_send_wr : 1;
	b->max_sge = cap->max_send_sge ? cap->max_send_sge : 1;
	b->max_inline = cap->max_inline_data;
	b->wr = calloc(b->max_wr, sizeof(*b->wr));
	b->sge = calloc((size_t)b->max_wr * b->max_sge, sizeof(*b->sge));
	b->data = calloc(b->max_wr, b->max_inline + 1);
	if (!b->wr || !b->sge || !b->data)
		return ENOMEM;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_send_inv = wr_send_inv;
	ex->wr_local_inv = wr_local_inv;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	ex->wr_set_ud_addr = wr_set_ud_addr;
	ex->wr_set_xrc_srqn = wr_set_xrc_srqn;
	ex->wr_bind_mw = wr_bind_mw;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	qp->vqp.comp_mask |= VERBS_QP_EX;
	return 0;
}

void bond_wr_fini(struct bond_qp *qp)
{
	struct bond_wr_builder *b = qp->builder;

	if (!b)
		return;
	free(b->wr);
	free(b->sge);
	free(b->data);
	free(b);
	qp->builder = NULL;
}
