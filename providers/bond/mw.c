/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Memory windows: the primary's; what a window opens is reached on path 0 (design 2). A bind is a WR
 * of the application's like any other, on the lead; type 1 windows have a verbs call of their own
 * for it, also at the member.
 */
#include <errno.h>
#include <stdlib.h>

#include "bond.h"
#include "objects.h"
#include "passthru.h"
#include "path.h"

struct ibv_mw *bond_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct bond_mw *mw = calloc(1, sizeof(*mw));

	if (!mw) {
		errno = ENOMEM;
		return NULL;
	}
	mw->mmw = ibv_alloc_mw(bond_pd_real(pd)->mpd[0], type);
	if (!mw->mmw) {
		free(mw);
		return NULL;
	}
	mw->mw.context = pd->context;
	mw->mw.pd = pd;
	mw->mw.rkey = mw->mmw->rkey;
	mw->mw.handle = mw->mmw->handle;
	mw->mw.type = type;
	return &mw->mw;
}

int bond_dealloc_mw(struct ibv_mw *ibmw)
{
	struct bond_mw *mw = to_bond_mw(ibmw);
	int ret = ibv_dealloc_mw(mw->mmw);

	if (!ret)
		free(mw);
	return ret;
}

/* The next key of a window: NICs count in the low byte, ibv_inc_rkey(3). */
static uint32_t mw_next_rkey(const struct bond_mw *mw)
{
	return ibv_inc_rkey(mw->mmw->rkey);
}

int bond_bind_mw(struct ibv_qp *ibqp, struct ibv_mw *ibmw, struct ibv_mw_bind *bind)
{
	struct bond_qp *qp = to_bond_qp(ibqp);
	struct bond_mw *mw = to_bond_mw(ibmw);
	struct ibv_send_wr wr = {
		.wr_id = bind->wr_id, .opcode = IBV_WR_BIND_MW, .send_flags = bind->send_flags,
	}, *bad;
	struct ibv_mw_bind mbind;
	int ret;

	if (qp->kind != BOND_QP_RC) {
		mbind = *bind;
		bond_bind_info(&mbind.bind_info);
		ret = ibv_bind_mw(qp->path[0].mqp, mw->mmw, &mbind);
		ibmw->rkey = mw->mmw->rkey;
		return ret;
	}
	wr.bind_mw.mw = ibmw;
	wr.bind_mw.rkey = mw_next_rkey(mw);
	wr.bind_mw.bind_info = bind->bind_info;
	ret = bond_post_send(ibqp, &wr, &bad);
	if (!ret)
		ibmw->rkey = wr.bind_mw.rkey;
	return ret;
}

void bond_bind_info(struct ibv_mw_bind_info *info)
{
	if (info->mr)
		info->mr = to_bond_mr(info->mr)->mmr[0];
}

void bond_bind_save(struct bond_qp *qp, uint32_t seq, const struct ibv_send_wr *from)
{
	struct sq_wr *wr = &qp->sq[seq & qp->sq_mask];
	struct ibv_mw_bind_info info = from->bind_mw.bind_info;

	bond_bind_info(&info);
	wr->num_sge = 0;
	wr->rkey = from->bind_mw.rkey;
	wr->imm = info.mw_access_flags;
	wr->raddr = info.addr;
	wr->swap = info.length;
	wr->compare_add = (uintptr_t)info.mr;
	sq_sges(qp, seq)->addr = (uintptr_t)to_bond_mw(from->bind_mw.mw)->mmw;
}

static struct ibv_mw_bind_info bind_info_of(const struct sq_wr *wr)
{
	return (struct ibv_mw_bind_info){
		.mr = (struct ibv_mr *)(uintptr_t)wr->compare_add, .addr = wr->raddr,
		.length = wr->swap, .mw_access_flags = wr->imm,
	};
}

int bond_bind_post(struct bond_qp *qp, uint32_t seq, uint64_t wr_id)
{
	const struct sq_wr *wr = &qp->sq[seq & qp->sq_mask];
	struct ibv_mw *mmw = (struct ibv_mw *)(uintptr_t)sq_sges(qp, seq)->addr;
	struct ibv_mw_bind bind = { .wr_id = wr_id, .send_flags = wr->send_flags,
				    .bind_info = bind_info_of(wr) };
	struct ibv_send_wr to = { .wr_id = wr_id, .opcode = IBV_WR_BIND_MW,
				  .send_flags = wr->send_flags }, *bad = NULL;
	int ret;

	if (mmw->type == IBV_MW_TYPE_1)
		return abs(ibv_bind_mw(qp->path[0].mqp, mmw, &bind));
	to.bind_mw.mw = mmw;
	to.bind_mw.rkey = wr->rkey;
	to.bind_mw.bind_info = bind.bind_info;
	ret = ibv_post_send(qp->path[0].mqp, &to, &bad);
	return ret || bad ? post_errno(ret) : 0;
}
