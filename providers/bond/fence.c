/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A QP in error. One NIC would finish what is older than the failed WR, report that one, and flush
 * the rest; with several paths that takes an order of events: older work ends on every path, then
 * all paths go to ERR, then a beacon on each tells when the last completion is in, and what has no
 * completion by then is flushed. Moving a failed path's work to another comes in here.
 *
 * What order.h declares is called with the QP's sq_lock held. Going to ERR is a system call under
 * that lock.
 */
#include "fence.h"
#include "objects.h"
#include "cq.h"
#include "order.h"
#include "path.h"
#include "peer.h"

static bool seq_before(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

/*
 * Is anything older than the failed WR still on its way on the path, or to be sent? A tail stands
 * behind younger bodies, so the whole queue counts; what waits behind a younger one will not go.
 */
static bool path_older_left(const struct path *path, uint32_t seq)
{
	uint32_t i;

	if (path->broken)
		return false;
	for (i = path->head; i != path->tail; i++) {
		if (seq_before(path->ring[i & path->mask].seq, seq))
			return true;
		if (i - path->head >= path->posted - path->head)
			return false;
	}
	return false;
}

static bool older_left(struct bond_qp *qp)
{
	unsigned int i;

	for (i = 0; i < qp->npaths_made; i++)
		if (path_older_left(&qp->path[i], qp->error_seq))
			return true;
	if (!order_holds(qp) ||
	    !seq_before(qp->hold[qp->hold_head & qp->sq_mask].seq, qp->error_seq))
		return false;
	/* Held, older, and nothing will come that could release it. */
	for (i = 0; i < qp->npaths_made; i++)
		if (!qp->path[i].broken && qp->path[i].head != qp->path[i].posted)
			return true;
	return false;
}

static void path_fence(struct path *path)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_send_wr beacon = {
		.wr_id = BOND_WRID_BEACON | ++path->beacon_id,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_send_wr *bad = NULL;

	ibv_modify_qp(path->mqp, &attr, IBV_QP_STATE);
	path->broken = true;
	path->beacon = true;
	mcq_due_add(path->mcq);
	if (ibv_post_send(path->mqp, &beacon, &bad) || bad) {
		path_flush(path);
		/* No completion of the member's will say so. */
		bond_qp_attention(path->qp);
	}
}

void order_beacon(struct path *path, uint32_t id)
{
	if (path->beacon && path->beacon_id == id)
		path_flush(path);
}

void order_fence(struct bond_qp *qp)
{
	unsigned int i;

	if (!qp->error || qp->fenced || older_left(qp))
		return;
	qp->fenced = true;
	order_flush_held(qp);
	for (i = 0; i < qp->npaths_made; i++)
		if (qp->path[i].mqp)
			path_fence(&qp->path[i]);
}

void order_refuse(struct bond_qp *qp, uint32_t seq)
{
	struct sq_wr *wr = &qp->sq[seq & qp->sq_mask];

	wr->status = IBV_WC_WR_FLUSH_ERR;
	wr->left = 0;
	bond_qp_attention(qp);
}

void order_fail(struct bond_qp *qp, uint32_t seq, enum ibv_wc_status status, uint32_t vendor_err)
{
	struct sq_wr *wr = &qp->sq[seq & qp->sq_mask];

	if (!wr->status) {
		wr->status = status;
		wr->vendor_err = vendor_err;
	}
	if (!qp->error || seq_before(seq, qp->error_seq))
		qp->error_seq = seq;
	if (!qp->error) {
		qp->error = true;
		qp->error_status = status;
		qp->busy |= BUSY_STATE;
		bond_peer_error(qp);
	}
}

struct qp_quiet bond_qp_quiet(struct bond_qp *qp)
{
	struct qp_quiet was;

	bond_lock(&qp->sq_lock);
	was = (struct qp_quiet){ qp->error, qp->fenced, qp->busy & BUSY_STATE, qp->error_seq };
	qp->error = qp->fenced = true;
	qp->busy |= BUSY_STATE;
	qp->error_seq = qp->sq_head;
	bond_unlock(&qp->sq_lock);
	return was;
}

void bond_qp_unquiet(struct bond_qp *qp, struct qp_quiet was)
{
	bond_lock(&qp->sq_lock);
	qp->error = was.error;
	qp->fenced = was.fenced;
	qp->error_seq = was.error_seq;
	if (!was.busy_state)
		qp->busy &= ~BUSY_STATE;
	bond_unlock(&qp->sq_lock);
}

void bond_qp_to_error(struct bond_qp *qp)
{
	bond_lock(&qp->sq_lock);
	if (!qp->error) {
		qp->error = true;
		qp->busy |= BUSY_STATE;
	}
	/* Nothing is older than the oldest. */
	qp->error_seq = qp->sq_head;
	order_fence(qp);
	bond_unlock(&qp->sq_lock);
	bond_qp_attention(qp);
}
