/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Completion queues. The primary's is made with the application's CQ, other members' when the first
 * QP gets a path there. What the bond adds (pieces of spread WRs) is limited by room: a piece
 * is posted only where its completion has a place, so that no member's CQ can overflow because of
 * them; the application's own entries are as many as it asked for.
 */
#include <errno.h>
#include <stdlib.h>

#include "bond.h"
#include "caps.h"
#include "cq.h"
#include "objects.h"
#include "progress.h"

enum {
	CQ_EXTRA_MIN = 256,		/* entries of the primary's CQ for pieces, at least */
	CQ_MEMBER_MIN = 512,		/* entries of another member's CQ */
};

static int cq_clamp(const struct bond_member *member, int cqe)
{
	int max = member->attr.orig_attr.max_cqe;

	return max > 0 && cqe > max ? max : cqe;
}

/* What of a member's CQ is for pieces: all but the application's own entries. */
static void mcq_set_room(struct mcq *mcq, int own)
{
	int extra = mcq->cq->cqe > own ? mcq->cq->cqe - own : 1;

	/* Of the primary's, markers have a part only where it carries several paths. */
	mcq->room = mcq == &mcq->owner->mcq[0] ? extra - extra / 2 : extra;
}

static int mcq_open(struct bond_cq *cq, unsigned int i, int cqe, int own, int comp_vector)
{
	struct bond_member *member = &cq->bctx->member[i];
	struct mcq *mcq = &cq->mcq[i];
	struct ibv_comp_channel *channel = cq->channel ? member->channel : NULL;

	mcq->owner = cq;
	mcq->last_qpn = MCQ_NO_QPN;
	mcq->cq = ibv_create_cq(member->ctx, cq_clamp(member, cqe), mcq, channel,
				comp_vector % member->ctx->num_comp_vectors);
	if (!mcq->cq)
		return errno ? errno : ENOMEM;
	mcq_set_room(mcq, own);
	atomic_store(&mcq->mark_room, mcq == &cq->mcq[0] ? mcq->room : own);
	return 0;
}

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

struct mcq *bond_cq_member(struct bond_cq *cq, unsigned int i)
{
	struct mcq fresh, *mcq = &cq->mcq[i];
	int err = 0;

	/* Not the context's lock: an application may hold the CQ's, in start_poll, and want that. */
	pthread_mutex_lock(&open_lock);
	if (!mcq->cq) {
		struct bond_cq shell = { .bctx = cq->bctx, .channel = cq->channel };

		/* As many as the application's receives are markers. */
		err = mcq_open(&shell, i, CQ_MEMBER_MIN + cq->vcq.cq.cqe, cq->vcq.cq.cqe, 0);
		fresh = shell.mcq[i];
		if (!err) {
			mcq->owner = cq;
			mcq->last_qpn = MCQ_NO_QPN;
			mcq->room = fresh.room;
			atomic_store(&mcq->mark_room, fresh.mark_room);
			fresh.cq->cq_context = mcq;
			__atomic_store_n(&mcq->cq, fresh.cq, __ATOMIC_RELEASE);
			if (i >= cq->nmcqs)
				__atomic_store_n(&cq->nmcqs, i + 1, __ATOMIC_RELEASE);
			/* If the CQ is armed, the next tick arms this one too. */
			if (cq->channel)
				progress_want();
		}
	}
	pthread_mutex_unlock(&open_lock);
	if (err) {
		errno = err;
		return NULL;
	}
	return mcq;
}

static int cq_soft_init(struct bond_cq *cq, int cqe)
{
	unsigned int size = 16;

	while (size < (unsigned int)cqe)
		size *= 2;
	cq->soft = calloc(size, sizeof(*cq->soft));
	if (!cq->soft)
		return ENOMEM;
	cq->soft_mask = size - 1;
	return 0;
}

static struct bond_cq *cq_create(struct ibv_context *ctx, int cqe,
				 struct ibv_comp_channel *channel, int comp_vector)
{
	struct bond_context *bctx = to_bond_context(ctx);
	struct bond_cq *cq;
	int err;

	if (cqe <= 0 || cqe > bond_max_cqe(bctx) || comp_vector < 0 ||
	    comp_vector >= ctx->num_comp_vectors) {
		errno = EINVAL;
		return NULL;
	}
	cq = calloc(1, sizeof(*cq));
	if (!cq) {
		errno = ENOMEM;
		return NULL;
	}
	cq->bctx = bctx;
	err = cq_soft_init(cq, cqe);
	if (err)
		goto err_free;
	if (channel) {
		err = bond_channel_get(bctx, cq, channel);
		if (err)
			goto err_free_soft;
	}
	err = mcq_open(cq, 0, cqe + (cqe > CQ_EXTRA_MIN ? cqe : CQ_EXTRA_MIN), cqe, comp_vector);
	if (err)
		goto err_put_channel;
	cq->nmcqs = 1;
	cq->vcq.cq.handle = cq->mcq[0].cq->handle;
	cq->vcq.cq.cqe = cqe;

	pthread_mutex_lock(&bctx->lock);
	cq->next = bctx->cqs;
	bctx->cqs = cq;
	pthread_mutex_unlock(&bctx->lock);
	return cq;

err_put_channel:
	if (channel)
		bond_channel_put(bctx, cq);
err_free_soft:
	free(cq->soft);
err_free:
	free(cq);
	errno = err;
	return NULL;
}

struct ibv_cq *bond_create_cq(struct ibv_context *ctx, int cqe, struct ibv_comp_channel *channel,
			      int comp_vector)
{
	struct bond_cq *cq = cq_create(ctx, cqe, channel, comp_vector);

	return cq ? &cq->vcq.cq : NULL;
}

/* A single-threaded promise is taken and not relied upon. A parent domain brings nothing we use. */
static bool cq_attr_known(const struct ibv_cq_init_attr_ex *attr)
{
	const uint32_t known = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;

	if (attr->comp_mask & ~known)
		return false;
	return !(attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) ||
	       !(attr->flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
}

struct ibv_cq_ex *bond_create_cq_ex(struct ibv_context *ctx, struct ibv_cq_init_attr_ex *attr)
{
	struct bond_cq *cq;

	/* Time stamps, flow tags and VLANs are not in a plain completion. */
	if (attr->wc_flags & ~(uint64_t)IBV_WC_STANDARD_FLAGS || !cq_attr_known(attr)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	cq = cq_create(ctx, attr->cqe, attr->channel, attr->comp_vector);
	if (!cq)
		return NULL;
	bond_cq_ex_init(cq, attr->wc_flags);
	return &cq->vcq.cq_ex;
}

/* Completions that nobody has polled; those of the primary's CQ are taken in to be counted. */
static unsigned int cq_unpolled(struct bond_cq *cq)
{
	unsigned int n;

	bond_lock(&cq->lock);
	bond_cq_progress(cq);
	n = cq->soft_tail - cq->soft_head;
	bond_unlock(&cq->lock);
	return n;
}

int bond_resize_cq(struct ibv_cq *ibcq, int cqe)
{
	struct bond_cq *cq = to_bond_cq(ibcq);
	struct ibv_wc *soft;
	unsigned int size = cq->soft_mask + 1, i, n;
	int ret;

	if (cqe <= 0 || cqe > bond_max_cqe(cq->bctx) || cq_unpolled(cq) > (unsigned int)cqe)
		return EINVAL;
	while (size < (unsigned int)cqe)
		size *= 2;
	soft = calloc(size, sizeof(*soft));
	if (!soft)
		return ENOMEM;
	ret = ibv_resize_cq(cq->mcq[0].cq,
			    cq_clamp(&cq->bctx->member[0],
				     cqe + (cqe > CQ_EXTRA_MIN ? cqe : CQ_EXTRA_MIN)));
	if (ret) {
		free(soft);
		return ret;
	}
	bond_lock(&cq->lock);
	n = cq->soft_tail - cq->soft_head;
	for (i = 0; i < n; i++)
		soft[i] = cq->soft[(cq->soft_head + i) & cq->soft_mask];
	free(cq->soft);
	cq->soft = soft;
	cq->soft_mask = size - 1;
	cq->soft_head = 0;
	cq->soft_tail = n;
	mcq_set_room(&cq->mcq[0], cqe);
	cq->vcq.cq.cqe = cqe;
	bond_unlock(&cq->lock);
	return 0;
}

int bond_modify_cq(struct ibv_cq *ibcq, struct ibv_modify_cq_attr *attr)
{
	return ibv_modify_cq(to_bond_cq(ibcq)->mcq[0].cq, attr);
}

static int cq_close_mcqs(struct bond_cq *cq)
{
	int ret = 0;

	/* The primary's first: it is the one that QPs of the application can keep busy. */
	ret = ibv_destroy_cq(cq->mcq[0].cq);
	if (ret)
		return ret;
	progress_forget_cq(cq);
	while (--cq->nmcqs)
		if (cq->mcq[cq->nmcqs].cq)
			ibv_destroy_cq(cq->mcq[cq->nmcqs].cq);
	return 0;
}

static void cq_unlink(struct bond_cq *cq)
{
	struct bond_cq **at;

	pthread_mutex_lock(&cq->bctx->lock);
	for (at = &cq->bctx->cqs; *at && *at != cq; at = &(*at)->next)
		;
	if (*at)
		*at = cq->next;
	pthread_mutex_unlock(&cq->bctx->lock);
}

int bond_destroy_cq(struct ibv_cq *ibcq)
{
	struct bond_cq *cq = to_bond_cq(ibcq);
	int ret;

	/* Neither a member's event nor a tick may find it half gone. */
	progress_stop_world();
	ret = cq_close_mcqs(cq);
	if (!ret)
		cq_unlink(cq);
	progress_start_world();
	if (ret)
		return ret;
	if (cq->channel)
		bond_channel_put(cq->bctx, cq);
	bond_events_end(cq->bctx, ibcq, &ibcq->mutex, &ibcq->cond, &ibcq->async_events_completed,
			&cq->async_delivered);
	pthread_mutex_lock(&ibcq->mutex);
	while (ibcq->comp_events_completed != cq->events_delivered)
		pthread_cond_wait(&ibcq->cond, &ibcq->mutex);
	pthread_mutex_unlock(&ibcq->mutex);
	free(cq->soft);
	free(cq);
	return 0;
}

void bond_cq_forget_paths(struct bond_cq *cq)
{
	unsigned int i;

	bond_lock(&cq->lock);
	for (i = 0; i < cq->nmcqs; i++) {
		cq->mcq[i].last_qpn = MCQ_NO_QPN;
		cq->mcq[i].last_path = NULL;
	}
	bond_unlock(&cq->lock);
}

void bond_cq_forget_qp(struct bond_cq *cq, struct bond_qp *qp)
{
	struct bond_qp *all, *next, **at;
	unsigned int i, out;

	bond_cq_forget_paths(cq);
	bond_lock(&cq->lock);
	for (at = &cq->ready; *at && *at != qp; at = &(*at)->ready_next)
		;
	if (*at) {
		*at = qp->ready_next;
		qp->on_ready = false;
	}
	cq_rest_clear(cq, CQ_REST_ATTENTION);
	all = atomic_exchange(&cq->attention, NULL);
	for (; all; all = next) {
		next = all->attention_next;
		atomic_store(&all->on_attention, false);
		if (all != qp)
			bond_cq_ready(cq, all);
	}
	for (i = out = cq->soft_head; i != cq->soft_tail; i++)
		if (cq->soft[i & cq->soft_mask].qp_num != qp->vqp.qp.qp_num)
			cq->soft[out++ & cq->soft_mask] = cq->soft[i & cq->soft_mask];
	cq->soft_tail = out;
	bond_unlock(&cq->lock);
}
