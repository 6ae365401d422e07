/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Polling. A member's completion is either a receive, which is the application's with its wr_id put
 * back, or retires pieces; a WR of the application is reported when it is the oldest of its QP and
 * all its pieces are done, so send completions come in posted order. A QP with more to report than
 * there was room for stays on the CQ's ready list; there is no queue that could overflow.
 *
 * The primary's CQ is looked at on every poll, another member's only while pieces are due there.
 */
#include <errno.h>
#include <string.h>

#include "bond.h"
#include "cq.h"
#include "objects.h"
#include "order.h"
#include "path.h"
#include "peer.h"
#include "progress.h"

enum { MEMBER_BATCH = 16 };

static const uint8_t wc_opcode[] = {
	[IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
	[IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
	[IBV_WR_SEND] = IBV_WC_SEND,
	[IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
	[IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
	[IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD,
	[IBV_WR_LOCAL_INV] = IBV_WC_LOCAL_INV,
	[IBV_WR_BIND_MW] = IBV_WC_BIND_MW,
	[IBV_WR_SEND_WITH_INV] = IBV_WC_SEND,
};

/* ---- reporting ---- */

/* Skips what is done and not to be reported; is the next one to be? sq_lock held. */
static inline bool qp_reportable(struct bond_qp *qp)
{
	for (; qp->sq_head + qp->sq_silent != qp->sq_tail; qp->sq_silent++) {
		const struct sq_wr *wr = &qp->sq[(qp->sq_head + qp->sq_silent) & qp->sq_mask];

		if (wr->left)
			return false;
		if (wr->send_flags & IBV_SEND_SIGNALED || wr->status)
			return true;
	}
	return false;
}

/*
 * One failure, then flushed ones. Where a peer is gone every path says so of whatever it carries,
 * a tail behind younger bodies; on one NIC it is the oldest WR that is told.
 */
static enum ibv_wc_status __attribute__((noinline)) report_error(struct bond_qp *qp,
								 enum ibv_wc_status status)
{
	bool retries = qp->error_status == IBV_WC_RETRY_EXC_ERR ||
		       qp->error_status == IBV_WC_RNR_RETRY_EXC_ERR;

	if (qp->error_told)
		return IBV_WC_WR_FLUSH_ERR;
	qp->error_told = true;
	return status == IBV_WC_WR_FLUSH_ERR && retries ? qp->error_status : status;
}

static inline void qp_report(struct bond_qp *qp, struct ibv_wc *wc)
{
	const struct sq_wr *wr = &qp->sq[(qp->sq_head + qp->sq_silent) & qp->sq_mask];

	/* The silent ones before it have their room back only now, as on a NIC. */
	qp->sq_head += qp->sq_silent + 1;
	qp->sq_silent = 0;
	wc->wr_id = wr->wr_id;
	wc->status = unlikely(wr->status) ? report_error(qp, wr->status) : IBV_WC_SUCCESS;
	wc->opcode = wc_opcode[wr->opcode];
	wc->vendor_err = wr->vendor_err;
	wc->byte_len = opcode_is_sync(wr->opcode) ? wr->len : 0;
	wc->qp_num = qp->vqp.qp.qp_num;
	wc->wc_flags = 0;
}

void bond_cq_ready(struct bond_cq *cq, struct bond_qp *qp)
{
	if (qp->error)
		cq->urgent = true;
	if (qp->on_ready)
		return;
	qp->on_ready = true;
	qp->ready_next = cq->ready;
	cq->ready = qp;
	cq_rest_set(cq, CQ_REST_READY);
}

/* Fills @wc from the QPs that have something to report. */
static int ready_report(struct bond_cq *cq, int num_entries, struct ibv_wc *wc)
{
	int n = 0;

	while (cq->ready && n < num_entries) {
		struct bond_qp *qp = cq->ready;

		bond_lock(&qp->sq_lock);
		while (n < num_entries && qp_reportable(qp))
			qp_report(qp, &wc[n++]);
		if (!qp_reportable(qp)) {
			cq->ready = qp->ready_next;
			qp->on_ready = false;
		}
		bond_unlock(&qp->sq_lock);
	}
	if (!cq->ready) {
		cq_rest_clear(cq, CQ_REST_READY);
		cq->urgent = false;
	}
	return n;
}

/* ---- what the members say ---- */

/* Everything but the plain success of a piece on a QP that is well. sq_lock held. */
static void send_done_slow(struct path *path, const struct ibv_wc *wc)
{
	struct bond_qp *qp = path->qp;

	if (wc->wr_id & BOND_WRID_BEACON) {
		order_beacon(path, (uint32_t)wc->wr_id);
		return;
	}
	if (wc->status) {
		uint32_t index = (uint32_t)wc->wr_id;

		if (index - path->head < path->posted - path->head && !qp->fenced) {
			uint32_t seq = path->ring[index & path->mask].seq;

			path_retire(path, index, wc->status, wc->vendor_err);
			path->broken = true;
			order_fail(qp, seq, wc->status, wc->vendor_err);
		} else {
			path_retire(path, index, wc->status, wc->vendor_err);
		}
	} else {
		path_retire(path, (uint32_t)wc->wr_id, IBV_WC_SUCCESS, 0);
	}
	if (path_backlog(path))
		path_push(path);
	if (qp->busy & BUSY_SPREAD_PENDING)
		bond_peer_spread(qp);
	if (order_holds(qp))
		order_release(qp);
	order_fence(qp);
}

/*
 * The short way back, for a piece of the short way that is the oldest on the lead and of the oldest
 * WR, before which none can be silent. The member's completion is the application's but for the wr_id. A success of an unsignalled
 * WR has no completion, a receive's wr_id has a high bit, and nothing else is in use while busy is
 * zero: so little has to be asked.
 */
static inline bool send_done_short(struct path *path, struct bond_qp *qp, struct ibv_wc *wc)
{
	uint32_t head = path->head, seq = qp->sq_head;
	const struct piece *piece = &path->ring[head & path->mask];

	if (wc->wr_id != head || (wc->status | qp->busy) ||
	    piece->flags != (PIECE_WHOLE | PIECE_SHORT) || piece->seq != seq)
		return false;
	path->head = head + 1;
	wc->wr_id = qp->sq[seq & qp->sq_mask].wr_id;
	qp->sq_head = seq + 1;
	return true;
}

/* false: stale, from before a RESET, or held until markers come. */
static bool recv_done(struct bond_qp *qp, struct ibv_wc *wc)
{
	uint32_t index = (uint32_t)wc->wr_id;
	bool go;

	if (unlikely(qp->vqp.qp.srq)) {
		wc->wr_id = bond_srq_complete(to_bond_srq(qp->vqp.qp.srq), wc->wr_id);
		return true;
	}
	bond_lock(&qp->rq_lock);
	go = index - qp->notify.rx_seen < qp->rq_tail - qp->notify.rx_seen;
	if (likely(go)) {
		wc->wr_id = qp->rq[index & qp->rq_mask];
		go = notify_received(qp, wc, index);
	}
	bond_unlock(&qp->rq_lock);
	return go;
}

static bool wc_handle_plain(struct bond_qp *qp, struct ibv_wc *wc)
{
	if (qp->vqp.qp.srq && bond_srq_is_tag(wc->wr_id))
		wc->wr_id = bond_srq_complete(to_bond_srq(qp->vqp.qp.srq), wc->wr_id);
	return true;
}

static bool send_done(struct bond_cq *cq, struct path *path, struct ibv_wc *wc, bool emit)
{
	struct bond_qp *qp = path->qp;
	bool report;

	bond_lock(&qp->sq_lock);
	send_done_slow(path, wc);
	report = qp_reportable(qp);
	if (report && (!emit || qp->on_ready)) {
		bond_cq_ready(cq, qp);
		report = false;
	}
	if (report) {
		qp_report(qp, wc);
		if (qp_reportable(qp))
			bond_cq_ready(cq, qp);
	}
	bond_unlock(&qp->sq_lock);
	return report;
}

static bool __attribute__((noinline)) wc_handle_long(struct bond_cq *cq, struct path *path,
						     struct ibv_wc *wc, bool emit)
{
	if (path->qp->kind != BOND_QP_RC)
		return wc_handle_plain(path->qp, wc);
	if (wc->wr_id & BOND_WRID_RECV) {
		if (path->index) {
			notify_marked(cq, path, wc);
			return false;
		}
		if (!recv_done(path->qp, wc))
			return false;
		/* What was held and is free now is ahead of it. */
		if (!emit || cq->soft_head == cq->soft_tail)
			return true;
		bond_cq_soft(cq, wc);
		return false;
	}
	return send_done(cq, path, wc, emit);
}

static inline struct path *mcq_path(struct mcq *mcq, struct bond_member *member, uint32_t qpn)
{
	if (unlikely(mcq->last_qpn != qpn)) {
		mcq->last_path = bond_member_path(member, qpn);
		mcq->last_qpn = mcq->last_path ? qpn : (uint32_t)MCQ_NO_QPN;
	}
	return mcq->last_path;
}

/*
 * true: @wc is now one of the application's. Without @emit a WR that is done goes by way of the
 * ready list, so that nothing of its QP can overtake it.
 */
static bool wc_handle(struct bond_cq *cq, struct mcq *mcq, struct bond_member *member,
			     struct ibv_wc *wc, bool emit)
{
	struct path *path = mcq_path(mcq, member, wc->qp_num);
	bool report = false;

	/* Of a QP that is gone. */
	if (unlikely(!path))
		return false;
	if (emit && path->ring) {
		bond_lock(&path->qp->sq_lock);
		report = send_done_short(path, path->qp, wc);
		bond_unlock(&path->qp->sq_lock);
	}
	return report || wc_handle_long(cq, path, wc, emit);
}

/* The plainest of completions, from start to end. */
static inline bool mcq_short(struct mcq *mcq, struct ibv_wc *wc)
{
	struct path *path = mcq->last_path;
	struct bond_qp *qp;
	bool done;

	if (unlikely(mcq->last_qpn != wc->qp_num))
		return false;
	qp = path->qp;
	/* Whoever has to wait goes the long way. */
	if (unlikely(!bond_trylock(&qp->sq_lock)))
		return false;
	done = send_done_short(path, qp, wc);
	bond_unlock(&qp->sq_lock);
	return done;
}

/* @n completions of the primary's are in @wc: sifts them in place; returns how many stay. */
static int wc_sift(struct bond_cq *cq, int n, struct ibv_wc *wc)
{
	int i, out = 0;

	for (i = 0; i < n; i++) {
		if (out != i)
			wc[out] = wc[i];
		if (wc_handle(cq, &cq->mcq[0], &cq->bctx->member[0], &wc[out], true))
			out++;
	}
	return out;
}

static int mcq_poll(struct bond_cq *cq, int num_entries, struct ibv_wc *wc)
{
	int n = ibv_poll_cq(cq->mcq[0].cq, num_entries, wc);

	return n < 0 ? n : wc_sift(cq, n, wc);
}

/* @n is what the primary's poll returned. */
static int __attribute__((noinline)) poll_taken(struct bond_cq *cq, int n, struct ibv_wc *wc)
{
	atomic_store_explicit(&cq->polled, true, memory_order_relaxed);
	if (n <= 0)
		return n;
	n = wc_sift(cq, n, wc);
	if (cq->ready && n < cq->poll_entries)
		n += ready_report(cq, cq->poll_entries - n, wc + n);
	return n;
}

void bond_cq_soft(struct bond_cq *cq, const struct ibv_wc *wc)
{
	cq->soft[cq->soft_tail++ & cq->soft_mask] = *wc;
	cq_rest_set(cq, CQ_REST_SOFT);
}

static unsigned int soft_room(const struct bond_cq *cq)
{
	return cq->soft_mask + 1 - (cq->soft_tail - cq->soft_head);
}

static int soft_report(struct bond_cq *cq, int num_entries, struct ibv_wc *wc)
{
	int n = 0;

	while (n < num_entries && cq->soft_head != cq->soft_tail)
		wc[n++] = cq->soft[cq->soft_head++ & cq->soft_mask];
	if (cq->soft_head == cq->soft_tail)
		cq_rest_clear(cq, CQ_REST_SOFT);
	return n;
}

/* A member's CQ, as long as it has something and the soft queue has room. */
static void mcq_drain(struct bond_cq *cq, struct mcq *mcq, struct bond_member *member)
{
	struct ibv_wc wc[MEMBER_BATCH];
	unsigned int room;
	int i, n;

	do {
		/* Only the primary has completions that are the application's as they stand. */
		room = mcq == &cq->mcq[0] ? soft_room(cq) : MEMBER_BATCH;
		n = ibv_poll_cq(mcq->cq, room < MEMBER_BATCH ? (int)room : MEMBER_BATCH, wc);
		for (i = 0; i < n; i++)
			if (wc_handle(cq, mcq, member, &wc[i], false))
				bond_cq_soft(cq, &wc[i]);
	} while (n == MEMBER_BATCH);
}

static inline bool mcq_due(struct mcq *mcq)
{
	return atomic_load_explicit(&mcq->due, memory_order_relaxed) ||
	       atomic_load_explicit(&mcq->waiting, memory_order_relaxed);
}

void bond_qp_attention(struct bond_qp *qp)
{
	struct bond_cq *cq = to_bond_cq(qp->vqp.qp.send_cq);

	if (atomic_exchange_explicit(&qp->on_attention, true, memory_order_acq_rel))
		return;
	qp->attention_next = atomic_load_explicit(&cq->attention, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(&cq->attention, &qp->attention_next, qp,
						      memory_order_release, memory_order_relaxed))
		;
	cq_rest_set(cq, CQ_REST_ATTENTION);
	progress_want();
}

static void attention_take(struct bond_cq *cq)
{
	struct bond_qp *qp;

	/* In this order: a QP that comes in between is found at the next poll at the latest. */
	cq_rest_clear(cq, CQ_REST_ATTENTION);
	qp = atomic_exchange_explicit(&cq->attention, NULL, memory_order_acquire);
	while (qp) {
		struct bond_qp *next = qp->attention_next;

		atomic_store_explicit(&qp->on_attention, false, memory_order_release);
		bond_cq_ready(cq, qp);
		qp = next;
	}
}

/* The other members, and what was left over from before. */
static int __attribute__((noinline)) poll_rest(struct bond_cq *cq, int num_entries,
					       struct ibv_wc *wc)
{
	unsigned int i;
	int n;

	for (i = 1; i < cq_nmcqs(cq); i++)
		if (mcq_cq(&cq->mcq[i]) && mcq_due(&cq->mcq[i]))
			mcq_drain(cq, &cq->mcq[i], &cq->bctx->member[i]);
	if (atomic_load_explicit(&cq->rest, memory_order_relaxed) & CQ_REST_ATTENTION)
		attention_take(cq);
	n = soft_report(cq, num_entries, wc);
	return n + ready_report(cq, num_entries - n, wc + n);
}

static int __attribute__((noinline)) poll_long(struct bond_cq *cq, int num_entries,
					       struct ibv_wc *wc)
{
	int n = 0, more;

	atomic_store_explicit(&cq->polled, true, memory_order_relaxed);
	if (atomic_load_explicit(&cq->rest, memory_order_relaxed))
		n = poll_rest(cq, num_entries, wc);
	if (n < num_entries) {
		more = mcq_poll(cq, num_entries - n, wc + n);
		if (more < 0)
			return n ? n : more;
		n += more;
		if (cq->ready && n < num_entries)
			n += ready_report(cq, num_entries - n, wc + n);
	}
	return n;
}

/* Another thread polls, or progress does. Out of line: the short way keeps nothing over the wait. */
static int __attribute__((noinline)) poll_contended(struct bond_cq *cq, int num_entries,
						    struct ibv_wc *wc)
{
	int n;

	bond_lock_wait(&cq->lock);
	cq->poll_entries = num_entries;
	n = poll_long(cq, num_entries, wc);
	bond_unlock(&cq->lock);
	return n;
}

int bond_poll_cq(struct ibv_cq *ibcq, int num_entries, struct ibv_wc *wc)
{
	struct bond_cq *cq = to_bond_cq(ibcq);
	int n;

	if (unlikely(!bond_trylock(&cq->lock)))
		return poll_contended(cq, num_entries, wc);
	cq->poll_entries = num_entries;
	if (likely(!atomic_load_explicit(&cq->rest, memory_order_relaxed))) {
		n = ibv_poll_cq(cq->mcq[0].cq, num_entries, wc);
		if (n != 1 || !mcq_short(&cq->mcq[0], wc))
			n = poll_taken(cq, n, wc);
	} else {
		n = poll_long(cq, num_entries, wc);
	}
	bond_unlock(&cq->lock);
	return n;
}

int bond_poll_one(struct bond_cq *cq, struct ibv_wc *wc)
{
	return poll_long(cq, 1, wc);
}

void bond_cq_progress(struct bond_cq *cq)
{
	unsigned int i;

	for (i = 0; i < cq_nmcqs(cq); i++)
		if (mcq_cq(&cq->mcq[i]))
			mcq_drain(cq, &cq->mcq[i], &cq->bctx->member[i]);
	if (atomic_load_explicit(&cq->rest, memory_order_relaxed) & CQ_REST_ATTENTION)
		attention_take(cq);
}

bool bond_cq_visible(const struct bond_cq *cq)
{
	return cq->ready || cq->soft_head != cq->soft_tail ||
	       atomic_load_explicit(&cq->attention, memory_order_relaxed);
}
