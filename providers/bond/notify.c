/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* See notify.h. */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cq.h"
#include "log.h"
#include "notify.h"
#include "objects.h"
#include "order.h"
#include "overlap.h"
#include "path.h"
#include "wire.h"

enum { MARK_RECEIVES = 64 };	/* posted on a path at most; a marker without waits there */

/* ---- set up ---- */

/* The peer may write to this QP, and every receive belongs to it alone. */
static bool notify_allowed(const struct bond_qp *qp)
{
	return qp->max_recv_wr && !qp->vqp.qp.srq && !qp->notify.off && !qp->notify.rx_off &&
	       qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE;
}

void notify_open(struct bond_qp *qp)
{
	struct notify *n = &qp->notify;
	size_t ring = (size_t)(qp->rq_mask + 1) * sizeof(*n->ring);
	size_t staging = (size_t)(qp->sq_mask + 1) * sizeof(*n->staging);
	size_t page = sysconf(_SC_PAGESIZE), len = (ring + staging + page - 1) & -page;

	/*
	 * Paired again, which this end saw no RESET for: whether the other end did, and counts anew,
	 * is not known.
	 */
	n->off = n->paired;
	n->paired = true;
	if (n->buf)
		return;
	/* Whole pages: where fork is guarded, a child loses those that are registered. */
	n->held = calloc(qp->rq_mask + 1, sizeof(*n->held));
	if (!n->held || posix_memalign(&n->buf, page, len)) {
		n->buf = NULL;
		goto err_free;
	}
	memset(n->buf, 0, len);
	n->mr = ibv_reg_mr(bond_pd_real(qp->vqp.qp.pd)->mpd[0], n->buf, len,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!n->mr)
		goto err_free;
	n->ring = n->buf;
	n->staging = n->ring + qp->rq_mask + 1;
	n->ring_mask = qp->rq_mask;
	return;

err_free:
	bond_info("QP 0x%x: no header ring: %s", qp->vqp.qp.qp_num, strerror(errno));
	free(n->held);
	free(n->buf);
	n->held = NULL;
	n->buf = NULL;
}

void notify_close(struct bond_qp *qp)
{
	struct notify *n = &qp->notify;

	if (n->mr)
		ibv_dereg_mr(n->mr);
	free(n->buf);
	free(n->held);
	n->mr = NULL;
	n->buf = NULL;
	n->held = NULL;
}

static void waiting_set(struct bond_qp *qp, bool waiting)
{
	unsigned int i;

	if (qp->notify.rx_waiting == waiting)
		return;
	qp->notify.rx_waiting = waiting;
	for (i = 1; i < qp->npaths_made; i++) {
		if (qp->path[i].recv_mcq)
			mcq_wait(qp->path[i].recv_mcq, waiting);
	}
}

void notify_reset(struct bond_qp *qp)
{
	struct notify *n = &qp->notify;

	bond_lock(&qp->sq_lock);
	n->tx = false;
	qp->messages = 0;
	memset(n->tx_marks, 0, sizeof(n->tx_marks));
	bond_unlock(&qp->sq_lock);
	bond_lock(&qp->rq_lock);
	n->rx_seen = qp->rq_head = qp->rq_tail;
	n->rx_number = 0;
	n->rx_waiting = n->rx_failed = false;
	memset(n->rx_marks, 0, sizeof(n->rx_marks));
	n->paired = n->off = n->rx_off = false;
	if (n->buf)
		memset(n->ring, 0, (size_t)(n->ring_mask + 1) * sizeof(*n->ring));
	bond_unlock(&qp->rq_lock);
}

void notify_describe(const struct bond_qp *qp, struct wire_qp_desc *mine)
{
	const struct notify *n = &qp->notify;

	mine->ring_entries = 0;
	if (!n->mr || !notify_allowed(qp))
		return;
	mine->ring_addr = (uintptr_t)n->ring;
	mine->ring_rkey = n->mr->rkey;
	mine->ring_entries = n->ring_mask + 1;
}

void notify_peer(struct bond_qp *qp, const struct wire_qp_desc *peer)
{
	struct notify *n = &qp->notify;
	bool good = n->mr && !n->off && peer->ring_entries && !peer->has_srq &&
		    !(peer->ring_entries & (peer->ring_entries - 1)) &&
		    peer->access_flags & IBV_ACCESS_REMOTE_WRITE;

	bond_lock(&qp->sq_lock);
	n->tx_addr = peer->ring_addr;
	n->tx_rkey = peer->ring_rkey;
	n->tx_mask = peer->ring_entries - 1;
	memset(n->tx_marks, 0, sizeof(n->tx_marks));
	n->tx = good;
	bond_unlock(&qp->sq_lock);
	bond_lock(&qp->rq_lock);
	memset(n->rx_marks, 0, sizeof(n->rx_marks));
	bond_unlock(&qp->rq_lock);
}

int notify_receives_take(struct bond_qp *qp, struct mcq *mcq)
{
	int room = atomic_load(&mcq->mark_room), want;

	if (!qp->notify.mr || !notify_allowed(qp))
		return 0;
	do {
		want = qp->max_recv_wr < MARK_RECEIVES ? (int)qp->max_recv_wr : MARK_RECEIVES;
		want = want < room ? want : room;
	} while (want && !atomic_compare_exchange_weak(&mcq->mark_room, &room, room - want));
	/* A marker that never finds a receive would block its path: the peer sends none then. */
	if (!want)
		qp->notify.rx_off = true;
	return want;
}

void notify_receives_give(struct mcq *mcq, int receives)
{
	atomic_fetch_add(&mcq->mark_room, receives);
}

static int post_receive(struct path *path)
{
	struct ibv_recv_wr wr = { .wr_id = BOND_WRID_RECV }, *bad = NULL;
	int ret = ibv_post_recv(path->mqp, &wr, &bad);

	return ret || bad ? post_errno(ret) : 0;
}

int notify_post_receives(struct path *path)
{
	int i, err = 0;

	for (i = 0; i < path->mark_receives && !err; i++)
		err = post_receive(path);
	return err;
}

/* ---- sending ---- */

bool notify_may(struct bond_qp *qp)
{
	unsigned int i;

	if (!qp->notify.tx || qp->path[0].broken || path_room(&qp->path[0]) < qp->sq_mask + 4)
		return false;
	for (i = 1; i < qp->npaths_made; i++)
		if (qp->path[i].head != qp->path[i].tail &&
		    (qp->path[i].broken || path_room(&qp->path[i]) < qp->sq_mask + 2))
			return false;
	return true;
}

/* Is anything under way that has no marker behind it? */
static bool path_unmarked(const struct path *path)
{
	return path->head != path->tail &&
	       !(path->ring[(path->tail - 1) & path->mask].flags & PIECE_MARK);
}

/* Behind what is under way on a path; a marker is heard of as any piece there. */
static void send_marker(struct bond_qp *qp, struct path *path, uint32_t seq, struct sq_wr *wr)
{
	struct piece *piece = path_append(path);

	*piece = (struct piece){ .seq = seq, .flags = PIECE_MARK | PIECE_DUE,
				 .off = ++qp->notify.tx_marks[path->index] };
	wr->left++;
	order_posted(qp, wr, piece, path, 0);
	path_push(path);
}

void notify_send(struct bond_qp *qp, uint32_t seq, struct sq_wr *wr, uint32_t total_len,
		 uint32_t flags)
{
	struct notify_header *header = &qp->notify.staging[seq & qp->sq_mask];
	struct path *lead = &qp->path[0];
	struct piece *piece;
	unsigned int i;

	for (i = 1; i < qp->npaths_made; i++)
		if (path_unmarked(&qp->path[i]))
			send_marker(qp, &qp->path[i], seq, wr);
	/* The message's own number: the ones before it have been counted. */
	header->number = htole64(qp->messages + 1);
	header->total_len = htole32(total_len);
	header->flags = htole32(flags);
	for (i = 0; i < BOND_MAX_PATHS; i++)
		header->marks[i] = htole32(qp->notify.tx_marks[i]);
	piece = path_append(lead);
	*piece = (struct piece){ .seq = seq, .flags = PIECE_HEADER,
				 .off = qp->messages & qp->notify.tx_mask };
	wr->left++;
}

void notify_fill(const struct path *path, const struct piece *piece, struct ibv_send_wr *wr,
		 struct ibv_sge *sge)
{
	const struct notify *n = &path->qp->notify;

	wr->num_sge = 0;
	wr->send_flags = 0;
	if (piece->flags & PIECE_MARK) {
		wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr->imm_data = htonl((uint32_t)path->index << 24 | (piece->off & 0xffffff));
		wr->send_flags = IBV_SEND_SIGNALED;
		wr->wr.rdma.remote_addr = 0;
		wr->wr.rdma.rkey = 0;
		return;
	}
	*sge = (struct ibv_sge){ (uintptr_t)&n->staging[piece->seq & path->qp->sq_mask],
				 sizeof(struct notify_header), n->mr->lkey };
	wr->opcode = IBV_WR_RDMA_WRITE;
	wr->sg_list = sge;
	wr->num_sge = 1;
	wr->wr.rdma.remote_addr = n->tx_addr + (uint64_t)piece->off * sizeof(struct notify_header);
	wr->wr.rdma.rkey = n->tx_rkey;
}

/* ---- receiving ---- */

/* The header of the message, if it has one. Written on the lead ahead of it, so it is there. */
static const struct notify_header *header_of(const struct notify *n, uint64_t number)
{
	const struct notify_header *header = &n->ring[number & n->ring_mask];

	/* The peer's NIC wrote it; its completion, which brought us here, came after. */
	if (le64toh(__atomic_load_n(&header->number, __ATOMIC_ACQUIRE)) != number + 1)
		return NULL;
	return header;
}

static bool marks_came(const struct bond_qp *qp, const struct notify_header *header)
{
	unsigned int i;

	for (i = 1; i < BOND_MAX_PATHS; i++)
		if ((int32_t)(qp->notify.rx_marks[i] - le32toh(header->marks[i])) < 0)
			return false;
	return true;
}

static void header_deliver(const struct bond_qp *qp, const struct notify_header *header,
			   struct ibv_wc *wc)
{
	if (!marks_came(qp, header))
		wc->status = IBV_WC_WR_FLUSH_ERR;
	else if (header->flags & htole32(NOTIFY_LENGTH))
		wc->byte_len = le32toh(header->total_len);
}

bool notify_received(struct bond_qp *qp, struct ibv_wc *wc, uint32_t index)
{
	struct notify *n = &qp->notify;
	const struct notify_header *header = NULL;

	n->rx_seen = index + 1;
	if (n->ring && !wc->status)
		header = header_of(n, n->rx_number);
	n->rx_number++;
	if (likely(qp->rq_head == index &&
		   (!header || marks_came(qp, header) || n->rx_failed))) {
		if (header)
			header_deliver(qp, header, wc);
		qp->rq_head = index + 1;
		return true;
	}
	n->held[index & qp->rq_mask] = *wc;
	waiting_set(qp, true);
	return false;
}

/* Delivers what may be, in order. rq_lock held. */
static void held_release(struct bond_cq *cq, struct bond_qp *qp)
{
	struct notify *n = &qp->notify;

	while (qp->rq_head != n->rx_seen) {
		struct ibv_wc *wc = &n->held[qp->rq_head & qp->rq_mask];
		uint64_t number = n->rx_number - (n->rx_seen - qp->rq_head);
		const struct notify_header *header = wc->status ? NULL : header_of(n, number);

		if (header && !marks_came(qp, header) && !n->rx_failed)
			return;
		/* Without a header nobody said whether it is solicited. */
		if (!header || header->flags & htole32(NOTIFY_SOLICITED))
			cq->urgent = true;
		if (header)
			header_deliver(qp, header, wc);
		if (wc->status)
			cq->urgent = true;
		bond_cq_soft(cq, wc);
		qp->rq_head++;
	}
	waiting_set(qp, false);
}

void notify_marked(struct bond_cq *cq, struct path *path, const struct ibv_wc *wc)
{
	struct bond_qp *qp = path->qp;
	struct notify *n = &qp->notify;

	bond_lock(&qp->rq_lock);
	if (wc->status) {
		n->rx_failed = true;
	} else if ((ntohl(wc->imm_data) & 0xffffff) == ((n->rx_marks[path->index] + 1) & 0xffffff)) {
		n->rx_marks[path->index]++;
		/* Refused only where the path is in error, and then its flush says so. */
		post_receive(path);
	}
	held_release(cq, qp);
	bond_unlock(&qp->rq_lock);
}

void notify_end(struct bond_qp *qp)
{
	struct bond_cq *cq = to_bond_cq(qp->vqp.qp.recv_cq);

	if (!qp->notify.mr)
		return;
	bond_lock(&cq->lock);
	bond_cq_progress(cq);
	bond_lock(&qp->rq_lock);
	qp->notify.rx_failed = true;
	held_release(cq, qp);
	bond_unlock(&qp->rq_lock);
	bond_cq_notify_due(cq, true);
	bond_unlock(&cq->lock);
}
