/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The extended way to poll: ibv_start_poll, ibv_next_poll, ibv_end_poll and the readers of the
 * current completion. poll_lock is held from a start that found something to the end; the ring's
 * lock is not, so that the engine goes on and other verbs may be called in between.
 */
#include "fake.h"

static struct fake_cq *of(struct ibv_cq_ex *cq)
{
	return to_fake_cq(cq);
}

static int next_poll(struct ibv_cq_ex *ibcq)
{
	struct fake_cq *cq = of(ibcq);

	bool found;

	pthread_mutex_lock(&cq->lock);
	found = fake_cq_pop(cq, &cq->cur);
	pthread_mutex_unlock(&cq->lock);
	if (!found)
		return ENOENT;
	ibcq->wr_id = cq->cur.wc.wr_id;
	ibcq->status = cq->cur.wc.status;
	return 0;
}

static int start_poll(struct ibv_cq_ex *ibcq, struct ibv_poll_cq_attr *attr)
{
	struct fake_cq *cq = of(ibcq);
	int ret;

	if (attr->comp_mask)
		return EINVAL;
	pthread_mutex_lock(&cq->poll_lock);
	ret = next_poll(ibcq);
	if (ret)
		pthread_mutex_unlock(&cq->poll_lock);
	return ret;
}

static void end_poll(struct ibv_cq_ex *cq)
{
	pthread_mutex_unlock(&of(cq)->poll_lock);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *cq)
{
	return of(cq)->cur.wc.opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *cq)
{
	return of(cq)->cur.wc.vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *cq)
{
	return of(cq)->cur.wc.byte_len;
}

/* Also the rkey that was invalidated: they share the field. */
static __be32 read_imm_data(struct ibv_cq_ex *cq)
{
	return of(cq)->cur.wc.imm_data;
}

static uint32_t read_qp_num(struct ibv_cq_ex *cq)
{
	return of(cq)->cur.wc.qp_num;
}

static uint32_t read_src_qp(struct ibv_cq_ex *cq)
{
	return of(cq)->cur.wc.src_qp;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *cq)
{
	return of(cq)->cur.wc.wc_flags;
}

static uint32_t read_slid(struct ibv_cq_ex *cq)
{
	return of(cq)->cur.wc.slid;
}

static uint8_t read_sl(struct ibv_cq_ex *cq)
{
	return of(cq)->cur.wc.sl;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *cq)
{
	return of(cq)->cur.wc.dlid_path_bits;
}

static uint64_t read_completion_ts(struct ibv_cq_ex *cq)
{
	return of(cq)->cur.time_ns;
}

void fake_cq_ex_setup(struct fake_cq *cq)
{
	struct ibv_cq_ex *ex = &cq->vcq.cq_ex;

	ex->start_poll = start_poll;
	ex->next_poll = next_poll;
	ex->end_poll = end_poll;
	ex->read_opcode = read_opcode;
	ex->read_vendor_err = read_vendor_err;
	ex->read_byte_len = read_byte_len;
	ex->read_imm_data = read_imm_data;
	ex->read_qp_num = read_qp_num;
	ex->read_src_qp = read_src_qp;
	ex->read_wc_flags = read_wc_flags;
	ex->read_slid = read_slid;
	ex->read_sl = read_sl;
	ex->read_dlid_path_bits = read_dlid_path_bits;
	ex->read_completion_ts = read_completion_ts;
}
