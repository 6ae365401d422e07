/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Making, asking and destroying queue pairs. An RC QP gets software queues in front of its path 0,
 * which is the primary's QP and gives it its number; further paths are made when a peer is found
 * (peer.c). Every other type is the primary's QP with our face. State changes are in modify.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "caps.h"
#include "fence.h"
#include "objects.h"
#include "order.h"
#include "passthru.h"
#include "path.h"
#include "peer.h"
#include "progress.h"

enum {
	PATH_RING_FACTOR = 4,		/* pieces that a path's ring holds for each WR, ... */
	RING_MIN = 128,			/* ... and at least; order_room() wants one WR's whole cut */
};

static uint32_t pow2_at_least(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p *= 2;
	return p;
}

/* The primary's attributes for what the application asked. */
static int member_attr(struct bond_context *bctx, struct bond_qp *qp,
		       const struct ibv_qp_init_attr_ex *attr, struct ibv_qp_init_attr_ex *mattr)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD |
			       IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	uint32_t deepest = bctx->member[0].attr.orig_attr.max_qp_wr;

	if (attr->comp_mask & ~known)
		return EOPNOTSUPP;
	if (attr->qp_type == IBV_QPT_RC && attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS &&
	    attr->create_flags)
		return EOPNOTSUPP;
	*mattr = *attr;
	/* The builder of wr.c ends in plain posts, and none of its members' is used. */
	mattr->comp_mask &= ~(uint32_t)IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	mattr->send_ops_flags = 0;
	mattr->qp_context = qp;
	mattr->send_cq = attr->send_cq ? to_bond_cq(attr->send_cq)->mcq[0].cq : NULL;
	mattr->recv_cq = attr->recv_cq ? to_bond_cq(attr->recv_cq)->mcq[0].cq : NULL;
	mattr->srq = attr->srq ? to_bond_srq(attr->srq)->msrq : NULL;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_PD)
		mattr->pd = bond_pd_real(attr->pd)->mpd[0];
	if (attr->comp_mask & IBV_QP_INIT_ATTR_XRCD)
		mattr->xrcd = to_bond_xrcd(attr->xrcd)->mxrcd;
	if (attr->qp_type == IBV_QPT_RC) {
		/* One entry is the beacon's: a queue full of unsignalled WRs still takes the last. */
		if (attr->cap.max_send_wr > deepest / BOND_SQ_FACTOR ||
		    attr->cap.max_send_sge > BOND_MAX_SGE)
			return EINVAL;
		mattr->cap.max_send_wr = attr->cap.max_send_wr * BOND_SQ_FACTOR + 1;
		if (mattr->cap.max_send_wr > deepest)
			mattr->cap.max_send_wr = deepest;
		mattr->sq_sig_all = 0;
	}
	return 0;
}

static int qp_alloc_sq(struct bond_qp *qp, const struct ibv_qp_cap *asked,
		       const struct ibv_qp_cap *got)
{
	uint32_t size;

	qp->max_send_wr = asked->max_send_wr;
	/* What the primary rounds it up to, another member may not. */
	qp->max_send_sge = asked->max_send_sge ? asked->max_send_sge : 1;
	qp->max_inline_data = got->max_inline_data;
	size = pow2_at_least(qp->max_send_wr + 1);
	qp->sq_mask = size - 1;
	qp->sq = calloc(size, sizeof(*qp->sq));
	qp->sq_sge = calloc((size_t)size * (qp->max_send_sge + 1), sizeof(*qp->sq_sge));
	qp->sq_inline = calloc(size, qp->max_inline_data + 1);
	qp->hold = calloc(size, sizeof(*qp->hold));
	return qp->sq && qp->sq_sge && qp->sq_inline && qp->hold ? 0 : ENOMEM;
}

static int qp_alloc_rq(struct bond_qp *qp, const struct ibv_qp_cap *got, bool srq)
{
	uint32_t size;

	qp->max_recv_wr = srq ? 0 : got->max_recv_wr;
	size = pow2_at_least(qp->max_recv_wr + 1);
	qp->rq_mask = size - 1;
	qp->rq = calloc(size, sizeof(*qp->rq));
	return qp->rq ? 0 : ENOMEM;
}

static void qp_free(struct bond_qp *qp)
{
	bond_wr_fini(qp);
	path_close(&qp->path[0]);
	notify_close(qp);
	rkey_forget_all(&qp->rkeys);
	free(qp->slots);
	free(qp->local_slots);
	free(qp->sq);
	free(qp->sq_sge);
	free(qp->sq_inline);
	free(qp->hold);
	free(qp->rq);
	pthread_mutex_destroy(&qp->lock);
	free(qp);
}

static int qp_init_rc(struct bond_qp *qp, struct ibv_qp *mqp,
		      const struct ibv_qp_init_attr_ex *attr, struct ibv_qp_init_attr_ex *mattr)
{
	struct bond_cq *send_cq = to_bond_cq(attr->send_cq);
	uint32_t ring;
	const struct bond_config *cfg = qp->bctx->cfg;
	int err;

	qp->kind = BOND_QP_RC;
	qp->busy = BUSY_STATE;
	qp->sq_sig_all = attr->sq_sig_all;
	qp->sq_head = qp->sq_tail = BOND_FIRST_SEQ;
	qp->rq_head = qp->rq_tail = qp->notify.rx_seen = BOND_FIRST_SEQ;
	qp->hold_head = qp->hold_tail = BOND_FIRST_SEQ;
	qp->pd_id = bond_pd_real(attr->pd)->id;
	qp->stripe_above = cfg->stripe_above;
	qp->order_below = cfg->order_below;
	qp->ordering = cfg->ordering;
	err = qp_alloc_sq(qp, &attr->cap, &mattr->cap);
	if (!err)
		err = qp_alloc_rq(qp, &mattr->cap, attr->srq);
	if (err)
		return err;
	ring = PATH_RING_FACTOR * (qp->sq_mask + 1);
	bond_qp_short_limit(qp);
	sched_init(&qp->sched);
	qp->npaths = qp->npaths_made = 1;
	mattr->cap.max_recv_wr = qp->max_recv_wr;
	return path_open(&qp->path[0], qp, 0, 0, mqp, &send_cq->mcq[0], mattr->cap.max_send_wr - 1,
			 ring > RING_MIN ? ring : RING_MIN);
}

void bond_qp_short_limit(struct bond_qp *qp)
{
	if (!qp->max_send_sge || qp->sq_sig_all)
		qp->short_limit = 0;
	else
		qp->short_limit = qp->spreading ? qp->stripe_above : UINT64_MAX;
}

static void qp_init_base(struct bond_qp *qp, struct ibv_context *ctx, struct ibv_qp *mqp,
			 const struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp *base = &qp->vqp.qp;

	base->context = ctx;
	base->qp_context = attr->qp_context;
	base->pd = attr->comp_mask & IBV_QP_INIT_ATTR_PD ? attr->pd : NULL;
	base->send_cq = attr->send_cq;
	base->recv_cq = attr->recv_cq;
	base->srq = attr->srq;
	base->handle = mqp->handle;
	base->qp_num = mqp->qp_num;
	base->state = IBV_QPS_RESET;
	base->qp_type = attr->qp_type;
	pthread_mutex_init(&base->mutex, NULL);
	pthread_cond_init(&base->cond, NULL);
}

/* The application sees what it can use: its own send queue, the member's receive queue. */
static void qp_say_cap(struct bond_qp *qp, struct ibv_qp_cap *cap, const struct ibv_qp_cap *got)
{
	uint32_t send_wr = cap->max_send_wr;

	*cap = *got;
	if (qp->kind != BOND_QP_RC)
		return;
	cap->max_send_wr = send_wr;
	cap->max_send_sge = qp->max_send_sge;
}

static void qp_link(struct bond_qp *qp)
{
	pthread_mutex_lock(&qp->bctx->lock);
	qp->next = qp->bctx->qps;
	qp->bctx->qps = qp;
	pthread_mutex_unlock(&qp->bctx->lock);
}

static void qp_unlink(struct bond_qp *qp)
{
	struct bond_qp **at;

	pthread_mutex_lock(&qp->bctx->lock);
	for (at = &qp->bctx->qps; *at && *at != qp; at = &(*at)->next)
		;
	if (*at)
		*at = qp->next;
	pthread_mutex_unlock(&qp->bctx->lock);
}

static void qp_init_plain(struct bond_qp *qp, struct ibv_qp *mqp)
{
	qp->kind = BOND_QP_PLAIN;
	qp->busy = BUSY_PLAIN;
	qp->path[0] = (struct path){ .qp = qp, .mqp = mqp };
}

static bool qp_is_rc(const struct ibv_qp_init_attr_ex *attr)
{
	return attr->qp_type == IBV_QPT_RC;
}

struct ibv_qp *bond_create_qp_ex(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *attr)
{
	struct bond_context *bctx = to_bond_context(ctx);
	struct ibv_qp_init_attr_ex mattr;
	struct bond_qp *qp = calloc(1, sizeof(*qp));
	struct ibv_qp *mqp;
	int err = ENOMEM;

	if (!qp)
		goto err_out;
	pthread_mutex_init(&qp->lock, NULL);
	qp->bctx = bctx;
	err = member_attr(bctx, qp, attr, &mattr);
	if (err)
		goto err_free;
	mqp = ibv_create_qp_ex(bond_primary(bctx), &mattr);
	if (!mqp) {
		err = errno;
		goto err_free;
	}
	if (qp_is_rc(attr))
		err = qp_init_rc(qp, mqp, attr, &mattr);
	else
		qp_init_plain(qp, mqp);
	if (err)
		goto err_destroy_mqp;
	qp_init_base(qp, ctx, mqp, attr);
	qp_say_cap(qp, &attr->cap, &mattr.cap);
	qp->init_attr = (struct ibv_qp_init_attr){
		.qp_context = attr->qp_context, .send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq, .srq = attr->srq, .cap = attr->cap,
		.qp_type = attr->qp_type, .sq_sig_all = attr->sq_sig_all };
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		err = bond_wr_init(qp, attr->send_ops_flags);
		if (err)
			goto err_destroy_mqp;
	}
	err = bond_member_set_path(bctx, 0, mqp->qp_num, &qp->path[0]);
	if (err)
		goto err_destroy_mqp;
	qp_link(qp);
	return &qp->vqp.qp;

err_destroy_mqp:
	ibv_destroy_qp(mqp);
err_free:
	qp_free(qp);
err_out:
	errno = err;
	return NULL;
}

struct ibv_qp *bond_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = {
		.qp_context = attr->qp_context, .send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq, .srq = attr->srq, .cap = attr->cap,
		.qp_type = attr->qp_type, .sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd };
	struct ibv_qp *qp = bond_create_qp_ex(pd->context, &ex);

	if (qp)
		attr->cap = ex.cap;
	return qp;
}

int bond_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask,
		  struct ibv_qp_init_attr *init_attr)
{
	struct bond_qp *qp = to_bond_qp(ibqp);
	struct ibv_qp_init_attr mine;
	int ret = ibv_query_qp(qp->path[0].mqp, attr, mask, &mine);

	if (ret)
		return ret;
	if (qp->kind == BOND_QP_RC && qp->error && qp->state != IBV_QPS_RESET)
		attr->qp_state = attr->cur_qp_state = IBV_QPS_ERR;
	*init_attr = qp->init_attr;
	if (qp->kind == BOND_QP_RC)
		attr->cap = qp->init_attr.cap;
	else
		init_attr->cap = mine.cap;
	return 0;
}

void bond_qp_take_srq(struct bond_qp *qp)
{
	struct bond_cq *cq = to_bond_cq(qp->vqp.qp.recv_cq);

	if (!qp->vqp.qp.srq)
		return;
	bond_lock(&cq->lock);
	bond_cq_progress(cq);
	bond_unlock(&cq->lock);
}

int bond_destroy_qp(struct ibv_qp *ibqp)
{
	struct bond_qp *qp = to_bond_qp(ibqp);
	struct bond_context *bctx = qp->bctx;
	struct qp_quiet was = { .error = false };
	int ret;

	if (qp->kind == BOND_QP_RC)
		bond_peer_down(qp);
	/* Neither an event nor a tick may find it half gone. */
	progress_stop_world();
	if (qp->kind == BOND_QP_RC)
		was = bond_qp_quiet(qp);
	bond_qp_take_srq(qp);
	ret = ibv_destroy_qp(qp->path[0].mqp);
	if (ret && qp->kind == BOND_QP_RC)
		bond_qp_unquiet(qp, was);
	if (!ret) {
		qp_unlink(qp);
		bond_member_set_path(bctx, 0, ibqp->qp_num, NULL);
		if (qp->kind == BOND_QP_RC) {
			pthread_mutex_lock(&qp->lock);
			bond_peer_drop_paths(qp);
			pthread_mutex_unlock(&qp->lock);
		}
	}
	progress_start_world();
	if (ret)
		return ret;
	if (ibqp->send_cq)
		bond_cq_forget_qp(to_bond_cq(ibqp->send_cq), qp);
	if (qp->kind == BOND_QP_RC) {
		bond_lock(&qp->sq_lock);
		path_flush(&qp->path[0]);
		bond_unlock(&qp->sq_lock);
	}
	if (ibqp->recv_cq && ibqp->recv_cq != ibqp->send_cq)
		bond_cq_forget_qp(to_bond_cq(ibqp->recv_cq), qp);
	bond_events_end(bctx, &qp->vqp.qp, &ibqp->mutex, &ibqp->cond, &ibqp->events_completed,
			&qp->events_delivered);
	pthread_cond_destroy(&ibqp->cond);
	pthread_mutex_destroy(&ibqp->mutex);
	qp_free(qp);
	return 0;
}

/* Pieces land in no order between paths. */
int bond_query_qp_data_in_order(struct ibv_qp *ibqp, enum ibv_wr_opcode op, uint32_t flags)
{
	struct bond_qp *qp = to_bond_qp(ibqp);

	if (qp->kind == BOND_QP_RC)
		return 0;
	return ibv_query_qp_data_in_order(qp->path[0].mqp, op, flags);
}

int bond_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return ibv_attach_mcast(to_bond_qp(qp)->path[0].mqp, gid, lid);
}

int bond_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	return ibv_detach_mcast(to_bond_qp(qp)->path[0].mqp, gid, lid);
}

int bond_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return ibv_query_ece(to_bond_qp(qp)->path[0].mqp, ece);
}

int bond_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	return ibv_set_ece(to_bond_qp(qp)->path[0].mqp, ece);
}

/* Path 0 alone: the limit is for what the application calls its QP number. */
int bond_modify_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *attr)
{
	return ibv_modify_qp_rate_limit(to_bond_qp(qp)->path[0].mqp, attr);
}
