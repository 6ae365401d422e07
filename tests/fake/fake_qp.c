/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Making, asking and destroying queue pairs. Not here: states, see fake_qp_modify.c; work, see
 * fake_post.c and requester.c.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "engine.h"

static bool caps_fit(struct fake_device *dev, const struct ibv_qp_cap *cap, bool srq)
{
	int64_t max_wr = fake_knob_get(dev->ctl, FAKE_MAX_QP_WR);
	int64_t max_sge = fake_knob_get(dev->ctl, FAKE_MAX_SGE);

	if (cap->max_send_wr > max_wr || cap->max_send_sge > max_sge ||
	    cap->max_inline_data > fake_knob_get(dev->ctl, FAKE_MAX_INLINE))
		return false;
	return srq || (cap->max_recv_wr <= max_wr && cap->max_recv_sge <= max_sge);
}

static bool attr_valid(const struct ibv_qp_init_attr_ex *attr)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;

	if ((attr->comp_mask & ~known) || !(attr->comp_mask & IBV_QP_INIT_ATTR_PD)) {
		errno = EOPNOTSUPP;
		return false;
	}
	if (attr->qp_type != IBV_QPT_RC && attr->qp_type != IBV_QPT_UC &&
	    attr->qp_type != IBV_QPT_UD) {
		errno = EOPNOTSUPP;
		return false;
	}
	if (!attr->send_cq || !attr->recv_cq || !attr->pd) {
		errno = EINVAL;
		return false;
	}
	return true;
}

static int alloc_sq(struct fake_qp *qp)
{
	struct ibv_qp_cap *cap = &qp->cap;
	size_t size;

	if (!cap->max_send_sge)
		cap->max_send_sge = 1;
	if (!cap->max_send_wr)
		return 0;
	qp->sq_mask = ring_mask(cap->max_send_wr);
	size = (size_t)qp->sq_mask + 1;
	qp->sq = calloc(size, sizeof(*qp->sq));
	qp->sq_sge = calloc(size * cap->max_send_sge, sizeof(*qp->sq_sge));
	qp->sq_inline = calloc(size, cap->max_inline_data + 1);
	return qp->sq && qp->sq_sge && qp->sq_inline ? 0 : ENOMEM;
}

static void free_qp(struct fake_qp *qp)
{
	free(qp->sq);
	free(qp->sq_sge);
	free(qp->sq_inline);
	fake_rq_fini(&qp->own_rq);
	pthread_mutex_destroy(&qp->sq_lock);
	free(qp);
}

static struct fake_qp *alloc_qp(struct fake_device *dev, struct ibv_qp_init_attr_ex *attr)
{
	struct fake_qp *qp = calloc(1, sizeof(*qp));

	if (!qp)
		return NULL;
	qp->dev = dev;
	qp->pd = to_fake_pd(attr->pd);
	qp->scq = to_fake_cq(attr->send_cq);
	qp->rcq = to_fake_cq(attr->recv_cq);
	qp->srq = attr->srq ? to_fake_srq(attr->srq) : NULL;
	qp->rq = qp->srq ? &qp->srq->rq : &qp->own_rq;
	qp->type = attr->qp_type;
	qp->sig_all = attr->sq_sig_all;
	qp->cap = attr->cap;
	if (qp->srq)
		qp->cap.max_recv_wr = qp->cap.max_recv_sge = 0;
	qp->state = IBV_QPS_RESET;
	qp->dst_dev = -1;
	qp->rng = (uintptr_t)qp;
	pthread_mutex_init(&qp->sq_lock, NULL);
	if (alloc_sq(qp) || fake_rq_init(&qp->own_rq, qp->cap.max_recv_wr, qp->cap.max_recv_sge)) {
		free_qp(qp);
		errno = ENOMEM;
		return NULL;
	}
	return qp;
}

static void fill_public(struct fake_qp *qp, struct ibv_context *context,
			struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp *ibqp = &qp->vqp.qp;

	ibqp->context = context;
	ibqp->qp_context = attr->qp_context;
	ibqp->pd = attr->pd;
	ibqp->send_cq = attr->send_cq;
	ibqp->recv_cq = attr->recv_cq;
	ibqp->srq = attr->srq;
	ibqp->qp_num = qp->qpn;
	ibqp->handle = qp->qpn;
	ibqp->state = IBV_QPS_RESET;
	ibqp->qp_type = attr->qp_type;
	pthread_mutex_init(&ibqp->mutex, NULL);
	pthread_cond_init(&ibqp->cond, NULL);
	attr->cap = qp->cap;
}

static void count_users(struct fake_qp *qp, int n)
{
	atomic_fetch_add(&qp->pd->users, n);
	atomic_fetch_add(&qp->scq->users, n);
	atomic_fetch_add(&qp->rcq->users, n);
	if (qp->srq)
		atomic_fetch_add(&qp->srq->users, n);
	fake_knob_add(qp->dev->ctl, FAKE_LIVE_QPS, n);
}

struct ibv_qp *fake_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	struct fake_device *dev = context_device(context);
	struct fake_qp *qp;
	int ret = 0;

	if (fake_fails(dev, FAKE_FAIL_CREATE_QP) || !attr_valid(attr))
		return NULL;
	if (!caps_fit(dev, &attr->cap, attr->srq)) {
		errno = EINVAL;
		return NULL;
	}
	qp = alloc_qp(dev, attr);
	if (!qp)
		return NULL;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		ret = fake_wr_setup(qp, attr->send_ops_flags);
	if (ret)
		goto err_free;
	engine_lock();
	ret = fake_knob_get(dev->ctl, FAKE_LIVE_QPS) < fake_knob_get(dev->ctl, FAKE_MAX_QP) ?
		      engine_add_qp(qp) :
		      ENOMEM;
	if (!ret)
		fill_public(qp, context, attr);
	engine_unlock();
	if (ret)
		goto err_free;
	qp->instant = fake_knob_get(dev->ctl, FAKE_INSTANT);
	count_users(qp, 1);
	return &qp->vqp.qp;

err_free:
	free_qp(qp);
	errno = ret;
	return NULL;
}

struct ibv_qp *fake_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_qp *qp = fake_create_qp_ex(pd->context, &ex);

	if (qp)
		attr->cap = ex.cap;
	return qp;
}

int fake_destroy_qp(struct ibv_qp *ibqp)
{
	struct fake_qp *qp = to_fake_qp(ibqp);

	fake_qp_quiesce(qp);
	engine_lock();
	engine_remove_qp(qp);
	engine_unlock();
	fake_cq_clean(qp->scq, qp);
	if (qp->rcq != qp->scq)
		fake_cq_clean(qp->rcq, qp);
	qp->async_sent -= event_forget(ibqp->context->async_fd, 16, (uintptr_t)ibqp);
	pthread_mutex_lock(&ibqp->mutex);
	while (ibqp->events_completed != qp->async_sent)
		pthread_cond_wait(&ibqp->cond, &ibqp->mutex);
	pthread_mutex_unlock(&ibqp->mutex);
	count_users(qp, -1);
	free_qp(qp);
	return 0;
}

int fake_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask,
		  struct ibv_qp_init_attr *init)
{
	struct fake_qp *qp = to_fake_qp(ibqp);

	(void)mask; /* a hint: everything may be filled in */
	engine_lock();
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = qp->state;
	attr->cap = qp->cap;
	attr->sq_psn = qp->sq_psn;
	attr->rq_psn = qp->rq_psn;
	engine_unlock();
	memset(init, 0, sizeof(*init));
	init->qp_context = ibqp->qp_context;
	init->send_cq = ibqp->send_cq;
	init->recv_cq = ibqp->recv_cq;
	init->srq = ibqp->srq;
	init->qp_type = ibqp->qp_type;
	init->cap = qp->cap;
	init->sq_sig_all = qp->sig_all;
	return 0;
}
