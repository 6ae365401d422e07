/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * QP states. Path 0 does what the application says and is the answer; the other paths follow, by
 * the control thread at pairing and here afterwards. Nothing here waits for the peer.
 */
#include <errno.h>

#include "bond.h"
#include "fence.h"
#include "objects.h"
#include "order.h"
#include "path.h"
#include "peer.h"

/* Keeps what the further paths need of the application's settings. */
static void attr_keep(struct ibv_qp_attr *to, const struct ibv_qp_attr *from, int mask)
{
	if (mask & IBV_QP_ACCESS_FLAGS)
		to->qp_access_flags = from->qp_access_flags;
	if (mask & IBV_QP_PORT)
		to->port_num = from->port_num;
	if (mask & IBV_QP_PKEY_INDEX)
		to->pkey_index = from->pkey_index;
	if (mask & IBV_QP_AV)
		to->ah_attr = from->ah_attr;
	if (mask & IBV_QP_PATH_MTU)
		to->path_mtu = from->path_mtu;
	if (mask & IBV_QP_DEST_QPN)
		to->dest_qp_num = from->dest_qp_num;
	if (mask & IBV_QP_RQ_PSN)
		to->rq_psn = from->rq_psn;
	if (mask & IBV_QP_SQ_PSN)
		to->sq_psn = from->sq_psn;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		to->max_dest_rd_atomic = from->max_dest_rd_atomic;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		to->max_rd_atomic = from->max_rd_atomic;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		to->min_rnr_timer = from->min_rnr_timer;
	if (mask & IBV_QP_TIMEOUT)
		to->timeout = from->timeout;
	if (mask & IBV_QP_RETRY_CNT)
		to->retry_cnt = from->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		to->rnr_retry = from->rnr_retry;
}

/* Everything queued is forgotten. Indices go on, so that stale completions are known as such. */
static void qp_forget(struct bond_qp *qp)
{
	struct path *lead = &qp->path[0];

	bond_lock(&qp->sq_lock);
	path_flush(lead);
	lead->broken = false;
	qp->hold_head = qp->hold_tail;
	qp->hold_blockers = 0;
	qp->sq_head = qp->sq_tail;
	qp->sq_silent = 0;
	qp->error = qp->fenced = qp->error_told = false;
	qp->error_status = IBV_WC_SUCCESS;
	qp->spreading = false;
	qp->sync_left = qp->doubt_left = qp->atomics_left = 0;
	qp->off_lead = qp->lead_due = 0;
	qp->busy = BUSY_STATE;
	qp->npaths = 1;
	bond_qp_short_limit(qp);
	sched_init(&qp->sched);
	bond_unlock(&qp->sq_lock);
	notify_reset(qp);
	rkey_forget_all(&qp->rkeys);
}

static int modify_reset(struct bond_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct qp_quiet was;
	int ret;

	/* Its callbacks take qp->lock. */
	bond_peer_down(qp);
	pthread_mutex_lock(&qp->lock);
	was = bond_qp_quiet(qp);
	bond_qp_take_srq(qp);
	ret = ibv_modify_qp(qp->path[0].mqp, attr, mask);
	if (ret)
		bond_qp_unquiet(qp, was);
	if (!ret) {
		/* The paths first: no piece may land once RESET is reported. */
		bond_peer_drop_paths(qp);
		qp_forget(qp);
		bond_cq_forget_qp(to_bond_cq(qp->vqp.qp.send_cq), qp);
		if (qp->vqp.qp.recv_cq != qp->vqp.qp.send_cq)
			bond_cq_forget_qp(to_bond_cq(qp->vqp.qp.recv_cq), qp);
		qp->state = IBV_QPS_RESET;
		qp->generation++;
	}
	pthread_mutex_unlock(&qp->lock);
	return ret;
}

static void enter_rts(struct bond_qp *qp)
{
	bond_peer_rts(qp);
	bond_lock(&qp->sq_lock);
	qp->rnr_ends = qp->attr.rnr_retry != BOND_RNR_FOREVER;
	if (!qp->error)
		qp->busy &= ~BUSY_STATE;
	bond_unlock(&qp->sq_lock);
}

static void enter_error(struct bond_qp *qp)
{
	bond_qp_to_error(qp);
}

/* Flags may change later; every path has the application's. */
static void paths_set_access(struct bond_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_access_flags = qp->attr.qp_access_flags };
	unsigned int i;

	for (i = 1; i < qp->npaths_made; i++)
		if (qp->path[i].mqp)
			ibv_modify_qp(qp->path[i].mqp, &attr, IBV_QP_ACCESS_FLAGS);
}

static int modify_rc(struct bond_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : qp->state;
	bool change;
	int ret;

	if (to == IBV_QPS_RESET && mask & IBV_QP_STATE)
		return modify_reset(qp, attr, mask);
	pthread_mutex_lock(&qp->lock);
	change = to != qp->state;
	ret = ibv_modify_qp(qp->path[0].mqp, attr, mask);
	if (ret) {
		pthread_mutex_unlock(&qp->lock);
		return ret;
	}
	attr_keep(&qp->attr, attr, mask);
	qp->state = to;
	if (change && to == IBV_QPS_RTS)
		enter_rts(qp);
	if (to == IBV_QPS_ERR)
		enter_error(qp);
	if (!change && mask & IBV_QP_ACCESS_FLAGS)
		paths_set_access(qp);
	pthread_mutex_unlock(&qp->lock);
	if (change && to == IBV_QPS_RTR)
		bond_peer_up(qp);
	if (change && to == IBV_QPS_RTS)
		bond_peer_wait(qp);
	return 0;
}

int bond_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask)
{
	struct bond_qp *qp = to_bond_qp(ibqp);

	if (qp->kind != BOND_QP_RC)
		return ibv_modify_qp(qp->path[0].mqp, attr, mask);
	return modify_rc(qp, attr, mask);
}
