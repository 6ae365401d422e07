/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The state machine of a queue pair (IBTA 10.3.1) and the attributes that each step must and may
 * carry (IBTA 11.2.5.2; for RoCE, so with an address).
 */
#define _GNU_SOURCE
#include <string.h>

#include "engine.h"

#define ADDRESS_OPT \
	(IBV_QP_ALT_PATH | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE)

struct step {
	enum ibv_qp_state from, to;
	enum ibv_qp_type type;
	int required, optional;
};

static const struct step steps[] = {
	{ IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPT_RC,
	  IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0 },
	{ IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPT_UC,
	  IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0 },
	{ IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPT_UD,
	  IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0 },
	{ IBV_QPS_INIT, IBV_QPS_INIT, IBV_QPT_RC, 0,
	  IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS },
	{ IBV_QPS_INIT, IBV_QPS_INIT, IBV_QPT_UC, 0,
	  IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS },
	{ IBV_QPS_INIT, IBV_QPS_INIT, IBV_QPT_UD, 0,
	  IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY },
	{ IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPT_RC,
	  IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	  ADDRESS_OPT },
	{ IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPT_UC,
	  IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, ADDRESS_OPT },
	{ IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPT_UD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY },
	{ IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_RC,
	  IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		  IBV_QP_MAX_QP_RD_ATOMIC,
	  IBV_QP_CUR_STATE | ADDRESS_OPT | IBV_QP_MIN_RNR_TIMER },
	{ IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_UC, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | ADDRESS_OPT },
	{ IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_UD, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY },
	{ IBV_QPS_RTS, IBV_QPS_RTS, IBV_QPT_RC, 0,
	  IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER },
	{ IBV_QPS_RTS, IBV_QPS_RTS, IBV_QPT_UC, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS },
	{ IBV_QPS_RTS, IBV_QPS_RTS, IBV_QPT_UD, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY },
	{ IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPT_RC, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY },
	{ IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPT_UC, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY },
	{ IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPT_UD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY },
	{ IBV_QPS_SQD, IBV_QPS_RTS, IBV_QPT_RC, 0,
	  IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER },
	{ IBV_QPS_SQD, IBV_QPS_RTS, IBV_QPT_UC, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS },
	{ IBV_QPS_SQD, IBV_QPS_RTS, IBV_QPT_UD, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY },
	{ IBV_QPS_SQE, IBV_QPS_RTS, IBV_QPT_UC, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS },
	{ IBV_QPS_SQE, IBV_QPS_RTS, IBV_QPT_UD, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY },
};

static bool step_allowed(const struct fake_qp *qp, enum ibv_qp_state to, int mask)
{
	mask &= ~IBV_QP_STATE;
	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return !mask;
	for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		const struct step *s = &steps[i];

		if (s->from == qp->state && s->to == to && s->type == qp->type)
			return (mask & s->required) == s->required &&
			       !(mask & ~(s->required | s->optional));
	}
	return false;
}

bool fake_gid_index_valid(struct fake_device *dev, unsigned int index)
{
	static const uint8_t zero[16];

	return index < FAKE_MAX_GIDS && memcmp(dev->ctl->gid[index], zero, sizeof(zero));
}

static bool values_valid(const struct fake_qp *qp, const struct ibv_qp_attr *a, int mask)
{
	struct fake_ctl_dev *ctl = qp->dev->ctl;
	int64_t max_rd = fake_knob_get(ctl, FAKE_MAX_RD_ATOM);

	if ((mask & IBV_QP_PORT) && a->port_num != 1)
		return false;
	if ((mask & IBV_QP_PKEY_INDEX) && a->pkey_index)
		return false;
	if ((mask & IBV_QP_PATH_MTU) && (a->path_mtu < IBV_MTU_256 ||
					 a->path_mtu > fake_knob_get(ctl, FAKE_ACTIVE_MTU)))
		return false;
	if ((mask & IBV_QP_AV) && (!a->ah_attr.is_global || a->ah_attr.port_num != 1 ||
				   !fake_gid_index_valid(qp->dev, a->ah_attr.grh.sgid_index)))
		return false;
	if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && a->max_rd_atomic > max_rd)
		return false;
	return !(mask & IBV_QP_MAX_DEST_RD_ATOMIC) || a->max_dest_rd_atomic <= max_rd;
}

static void take_values(struct fake_qp *qp, const struct ibv_qp_attr *a, int mask)
{
	struct ibv_qp_attr *to = &qp->attr;

#define TAKE(bit, field) \
	do { \
		if (mask & (bit)) \
			to->field = a->field; \
	} while (0)
	TAKE(IBV_QP_PKEY_INDEX, pkey_index);
	TAKE(IBV_QP_PORT, port_num);
	TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	TAKE(IBV_QP_QKEY, qkey);
	TAKE(IBV_QP_AV, ah_attr);
	TAKE(IBV_QP_PATH_MTU, path_mtu);
	TAKE(IBV_QP_DEST_QPN, dest_qp_num);
	TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
	TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	TAKE(IBV_QP_TIMEOUT, timeout);
	TAKE(IBV_QP_RETRY_CNT, retry_cnt);
	TAKE(IBV_QP_RNR_RETRY, rnr_retry);
	TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
#undef TAKE
	if (mask & IBV_QP_AV)
		qp->dst_dev = fake_device_of_gid(a->ah_attr.grh.dgid.raw);
	if (mask & IBV_QP_RQ_PSN)
		qp->rq_psn = a->rq_psn & 0xffffff;
	if (mask & IBV_QP_SQ_PSN)
		qp->sq_psn = a->sq_psn & 0xffffff;
}

void fake_qp_event(struct fake_qp *qp, enum ibv_event_type type)
{
	if (!event_async(qp->vqp.qp.context, (uintptr_t)&qp->vqp.qp, type))
		qp->async_sent++;
}

void fake_qp_set_state(struct fake_qp *qp, enum ibv_qp_state state)
{
	atomic_store(&qp->state, state);
	engine_kick(qp);
}

/* Waits, engine.lock not held, until no other process works on our behalf. */
void fake_qp_quiesce(struct fake_qp *qp)
{
	bool busy;

	engine_lock();
	busy = qp->num_remote;
	if (busy)
		fake_qp_set_state(qp, IBV_QPS_ERR); /* sends nothing more */
	engine_unlock();
	while (busy) {
		nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
		engine_lock();
		busy = qp->num_remote;
		engine_unlock();
	}
}

/* Queues empty, completions forgotten, everything as created. engine.lock held. */
static void reset(struct fake_qp *qp)
{
	qp->sq_seen = qp->sq_next = qp->sq_acked = atomic_load(&qp->sq_head);
	if (!qp->srq) {
		pthread_mutex_lock(&qp->own_rq.lock);
		qp->own_rq.next = qp->own_rq.head;
		pthread_mutex_unlock(&qp->own_rq.lock);
	}
	fake_cq_clean(qp->scq, qp);
	if (qp->rcq != qp->scq)
		fake_cq_clean(qp->rcq, qp);
	atomic_store(&qp->sq_tail, qp->sq_acked);
	if (!qp->srq)
		atomic_store(&qp->own_rq.tail, qp->own_rq.head);
	memset(&qp->attr, 0, sizeof(qp->attr));
	memset(qp->atomic_results, 0, sizeof(qp->atomic_results));
	qp->dst_dev = -1;
	qp->tx_epoch++;
	qp->num_reads = 0;
	qp->failing = false;
	qp->num_lost = qp->num_rnr = 0;
	qp->resume_ns = 0;
	qp->srq_last_wqe = false;
}

/* ibv_modify_qp may change the state only if it succeeds, so all checks come first. */
static int modify(struct fake_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : qp->state;

	if ((mask & IBV_QP_CUR_STATE) && attr->cur_qp_state != qp->state)
		return EINVAL;
	if (!step_allowed(qp, to, mask) || !values_valid(qp, attr, mask))
		return EINVAL;
	take_values(qp, attr, mask);
	if (to == IBV_QPS_RESET)
		reset(qp);
	fake_qp_set_state(qp, to);
	if (to == IBV_QPS_ERR)
		requester_progress(qp); /* flushes now, but for what a peer holds */
	if (to == IBV_QPS_SQD && attr->en_sqd_async_notify && (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY))
		fake_qp_event(qp, IBV_EVENT_SQ_DRAINED);
	return 0;
}

int fake_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask)
{
	struct fake_qp *qp = to_fake_qp(ibqp);
	int ret;

	if (fake_fails(qp->dev, FAKE_FAIL_MODIFY_QP))
		return errno;
	if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RESET)
		fake_qp_quiesce(qp);
	engine_lock();
	ret = modify(qp, attr, mask);
	engine_unlock();
	return ret;
}
