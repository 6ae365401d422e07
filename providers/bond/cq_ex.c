/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The extended CQ interface on top of the plain one: a batch is read one completion at a time into
 * cur, under the CQ's lock from start_poll to end_poll as with any provider. The members are
 * polled by plain calls, since rdma-core 44's rxe has faults in its extended polling.
 */
#include <errno.h>

#include "bond.h"
#include "objects.h"

static struct bond_cq *to_bond_cq_ex(struct ibv_cq_ex *cq)
{
	return bond_container_of(cq, struct bond_cq, vcq.cq_ex);
}

static int cq_ex_take(struct bond_cq *cq)
{
	int n = bond_poll_one(cq, &cq->cur);

	if (n <= 0)
		return n ? EINVAL : ENOENT;
	cq->vcq.cq_ex.wr_id = cq->cur.wr_id;
	cq->vcq.cq_ex.status = cq->cur.status;
	return 0;
}

static int bond_start_poll(struct ibv_cq_ex *ibcq, struct ibv_poll_cq_attr *attr)
{
	struct bond_cq *cq = to_bond_cq_ex(ibcq);
	int ret;

	if (attr->comp_mask)
		return EINVAL;
	bond_lock(&cq->lock);
	atomic_store_explicit(&cq->polled, true, memory_order_relaxed);
	ret = cq_ex_take(cq);
	if (ret)
		bond_unlock(&cq->lock);
	return ret;
}

static int bond_next_poll(struct ibv_cq_ex *ibcq)
{
	return cq_ex_take(to_bond_cq_ex(ibcq));
}

static void bond_end_poll(struct ibv_cq_ex *ibcq)
{
	bond_unlock(&to_bond_cq_ex(ibcq)->lock);
}

static enum ibv_wc_opcode bond_read_opcode(struct ibv_cq_ex *cq)
{
	return to_bond_cq_ex(cq)->cur.opcode;
}

static uint32_t bond_read_vendor_err(struct ibv_cq_ex *cq)
{
	return to_bond_cq_ex(cq)->cur.vendor_err;
}

static uint32_t bond_read_byte_len(struct ibv_cq_ex *cq)
{
	return to_bond_cq_ex(cq)->cur.byte_len;
}

/* Also the invalidated rkey: the field is the same. */
static __be32 bond_read_imm_data(struct ibv_cq_ex *cq)
{
	return to_bond_cq_ex(cq)->cur.imm_data;
}

static uint32_t bond_read_qp_num(struct ibv_cq_ex *cq)
{
	return to_bond_cq_ex(cq)->cur.qp_num;
}

static uint32_t bond_read_src_qp(struct ibv_cq_ex *cq)
{
	return to_bond_cq_ex(cq)->cur.src_qp;
}

static unsigned int bond_read_wc_flags(struct ibv_cq_ex *cq)
{
	return to_bond_cq_ex(cq)->cur.wc_flags;
}

static uint32_t bond_read_slid(struct ibv_cq_ex *cq)
{
	return to_bond_cq_ex(cq)->cur.slid;
}

static uint8_t bond_read_sl(struct ibv_cq_ex *cq)
{
	return to_bond_cq_ex(cq)->cur.sl;
}

static uint8_t bond_read_dlid_path_bits(struct ibv_cq_ex *cq)
{
	return to_bond_cq_ex(cq)->cur.dlid_path_bits;
}

void bond_cq_ex_init(struct bond_cq *cq, uint64_t wc_flags)
{
	struct ibv_cq_ex *ex = &cq->vcq.cq_ex;

	ex->start_poll = bond_start_poll;
	ex->next_poll = bond_next_poll;
	ex->end_poll = bond_end_poll;
	ex->read_opcode = bond_read_opcode;
	ex->read_vendor_err = bond_read_vendor_err;
	ex->read_wc_flags = bond_read_wc_flags;
	if (wc_flags & IBV_WC_EX_WITH_BYTE_LEN)
		ex->read_byte_len = bond_read_byte_len;
	if (wc_flags & IBV_WC_EX_WITH_IMM)
		ex->read_imm_data = bond_read_imm_data;
	if (wc_flags & IBV_WC_EX_WITH_QP_NUM)
		ex->read_qp_num = bond_read_qp_num;
	if (wc_flags & IBV_WC_EX_WITH_SRC_QP)
		ex->read_src_qp = bond_read_src_qp;
	if (wc_flags & IBV_WC_EX_WITH_SLID)
		ex->read_slid = bond_read_slid;
	if (wc_flags & IBV_WC_EX_WITH_SL)
		ex->read_sl = bond_read_sl;
	if (wc_flags & IBV_WC_EX_WITH_DLID_PATH_BITS)
		ex->read_dlid_path_bits = bond_read_dlid_path_bits;
}
