/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Two QPs becoming a pair, over a session:
 *
 *	leader				follower
 *	FIND, or FOUND after a FIND	(whoever comes later finds the earlier)
 *	ADD		->
 *			<-	CONFIRM, READY
 *	READY		->
 *
 * The leader is the one with the lower (GID, QPN). pair_id names one such round. After READY was
 * sent the pair outlives the session: when the two find each other again with the same pair_id they
 * only repeat READY. How they find each other: ctrl_seek.c.
 */
#include <errno.h>
#include <string.h>

#include "ctrl_priv.h"

static int qp_name_cmp(const uint8_t gid_a[16], uint32_t qpn_a, const uint8_t gid_b[16],
		       uint32_t qpn_b)
{
	int cmp = memcmp(gid_a, gid_b, 16);

	if (cmp)
		return cmp;
	return (qpn_a > qpn_b) - (qpn_a < qpn_b);
}

bool pair_leads(const struct ctrl_qp *qp)
{
	return qp_name_cmp(qp->info.gid, qp->info.qpn, qp->info.dest_gid,
			   qp->info.dest_qpn) < 0;
}

bool pair_with_self(const struct ctrl_qp *qp)
{
	return !qp_name_cmp(qp->info.gid, qp->info.qpn, qp->info.dest_gid, qp->info.dest_qpn);
}

void pair_msg_init(const struct ctrl_qp *qp, enum wire_type type, struct wire_msg *msg)
{
	memset(msg, 0, sizeof(*msg));
	msg->type = type;
	memcpy(msg->qp.from.gid, qp->info.gid, sizeof(msg->qp.from.gid));
	msg->qp.from.qpn = qp->info.qpn;
	msg->qp.from.generation = qp->info.generation;
	memcpy(msg->qp.to.gid, qp->info.dest_gid, sizeof(msg->qp.to.gid));
	msg->qp.to.qpn = qp->info.dest_qpn;
	msg->qp.to.generation = qp->peer_generation;
	msg->qp.pair_id = qp->pair_id;
}

/* Both must name each other, and the peer must be at the host of the GID that it says it has. */
struct ctrl_qp *pair_target(struct session *session, const struct wire_qp_msg *msg)
{
	struct ctrl_qp *qp = ctrl_qp_find(session->ctrl, msg->to.gid, msg->to.qpn);

	if (!qp || !qp->host)
		return NULL;
	if (qp_name_cmp(qp->info.dest_gid, qp->info.dest_qpn, msg->from.gid, msg->from.qpn))
		return NULL;
	if (!session->twin && !session_serves(session, qp))
		return NULL;
	if (msg->to.generation && msg->to.generation != qp->info.generation)
		return NULL;
	return qp;
}

bool pair_is_of_round(const struct ctrl_qp *qp, const struct wire_qp_msg *msg)
{
	return qp->pair_id && qp->pair_id == msg->pair_id &&
	       qp->peer_generation == msg->from.generation;
}

/* Of this pair, and no message of an earlier one? */
static bool of_pair(const struct ctrl_qp *qp, const struct session *session,
		    const struct wire_qp_msg *msg)
{
	return qp->session == session && pair_is_of_round(qp, msg);
}

static void ready_send(struct ctrl_qp *qp)
{
	struct wire_msg msg;

	key_offers_send(qp);
	pair_msg_init(qp, WIRE_QP_READY, &msg);
	msg.qp.path_mask = qp->own_mask;
	session_send(qp->session, &msg);
	if (!qp->error_pending)
		return;
	pair_msg_init(qp, WIRE_QP_ERROR, &msg);
	msg.qp.reason = qp->error_told;
	session_send(qp->session, &msg);
}

/* An answer to about. qp: ours, or NULL where there is none. */
static void reason_send(const struct ctrl_qp *qp, struct session *session,
			const struct wire_qp_msg *about, enum wire_type type, uint32_t reason)
{
	struct wire_msg msg = { .type = type };

	msg.qp.from = about->to;
	if (qp)
		msg.qp.from.generation = qp->info.generation;
	msg.qp.to = about->from;
	msg.qp.pair_id = about->pair_id;
	msg.qp.reason = reason;
	session_send(session, &msg);
}

static void attach(struct ctrl_qp *qp, struct session *session)
{
	ring_remove(&qp->session_node);
	ring_append(&session->qps, &qp->session_node);
	qp->session = session;
	qp->attached = true;
	if (session->conn)
		conn_trust(session->conn);
	seek_pause(qp);
}

static void detach(struct ctrl_qp *qp)
{
	struct session *session = qp->session;

	if (session)
		key_asks_drop(qp);
	qp->attached = false;
	qp->session = NULL;
	qp->pair_id = 0;
	qp->peer_generation = 0;
	qp->peer_ready = false;
	ring_remove(&qp->session_node);
	if (session)
		session_unused(session);
}

/* A round that the QP layer knows of ends. */
static void pair_end(struct ctrl_qp *qp, enum pair_state state)
{
	bool begun = qp->state == PAIR_ADDED || qp->state == PAIR_CONNECTED ||
		     qp->state == PAIR_READY;

	detach(qp);
	qp->state = state;
	if (!begun || !ctrl_callback_begin(qp))
		return;
	qp->ctrl->ops->qp_gone(qp->cookie);
	ctrl_callback_end(qp);
}

/* Refusals that another time may be none; each side tries again. Others last for a generation. */
static bool refused_for_now(uint32_t reason)
{
	return reason == EBUSY || reason == ENOMEM || reason == EMFILE || reason == ENFILE;
}

/* Before a round has begun. */
static void pair_refuse(struct ctrl_qp *qp, struct session *session,
			const struct wire_qp_msg *peer, int err)
{
	uint32_t generation = peer->from.generation;

	reason_send(qp, session, peer, WIRE_QP_REFUSE, (uint32_t)err);
	detach(qp);
	if (refused_for_now((uint32_t)err)) {
		qp->state = PAIR_SEEKING;
		seek_later(qp);
		return;
	}
	qp->state = PAIR_REFUSED;
	qp->peer_generation = generation;
	seek_pause(qp);
}

/* With READY sent or about to be: is the peer's here too? */
static void ready_check(struct ctrl_qp *qp)
{
	if (qp->state != PAIR_CONNECTED || !qp->peer_ready)
		return;
	qp->state = PAIR_READY;
	if (ctrl_callback_begin(qp)) {
		qp->ctrl->ops->qp_ready(qp->cookie, qp->own_mask & qp->peer_mask);
		ctrl_callback_end(qp);
	}
	key_asks_send(qp);
}

/* The pair found itself again over another connection. */
static void pair_resume(struct ctrl_qp *qp, struct session *session)
{
	attach(qp, session);
	/* What it told before was forgotten when the session broke. */
	if (qp->state == PAIR_READY)
		qp->offers_left = CTRL_KEY_OFFERS;
	if (qp->state == PAIR_READY && ctrl_callback_begin(qp)) {
		qp->ctrl->ops->session_back(qp->cookie);
		ctrl_callback_end(qp);
	}
	ready_send(qp);
	if (qp->state == PAIR_READY)
		key_asks_send(qp);
}

static uint32_t pair_id_new(struct ctrl *ctrl)
{
	if (!++ctrl->next_pair_id)
		ctrl->next_pair_id = 1;
	return ctrl->next_pair_id;
}

/* Leader: the peer is there. */
static void pair_add(struct ctrl_qp *qp, struct session *session, const struct wire_qp_msg *peer)
{
	struct wire_msg msg;
	int err = ECANCELED;

	attach(qp, session);
	qp->peer_generation = peer->from.generation;
	qp->pair_id = pair_id_new(qp->ctrl);
	qp->peer_ready = false;
	qp->offers_left = CTRL_KEY_OFFERS;
	pair_msg_init(qp, WIRE_QP_ADD, &msg);
	if (ctrl_callback_begin(qp)) {
		err = qp->ctrl->ops->qp_describe(qp->cookie, &peer->desc, &msg.qp.desc);
		ctrl_callback_end(qp);
	}
	if (err) {
		pair_refuse(qp, session, peer, err);
		return;
	}
	qp->state = PAIR_ADDED;
	session_send(session, &msg);
}

/*
 * Another process at the peer's host says that it has the peer. As long as the one that we are
 * paired with is alive, it has to wait: it may be anybody there; or the QP's number is used again,
 * and the end of the earlier pair is under way.
 */
static bool taken(struct ctrl_qp *qp, struct session *session, const struct wire_qp_msg *peer)
{
	if (!qp->attached || qp->session == session)
		return false;
	reason_send(qp, session, peer, WIRE_QP_REFUSE, EBUSY);
	return true;
}

/* The QP that waits or seeks hears of its peer, or of one that was reset meanwhile. */
static void on_found(struct ctrl_qp *qp, struct session *session, const struct wire_qp_msg *peer)
{
	bool same = qp->peer_generation == peer->from.generation;

	if (taken(qp, session, peer))
		return;
	if (qp->state == PAIR_REFUSED && same) {
		reason_send(qp, session, peer, WIRE_QP_REFUSE, ECANCELED);
		return;
	}
	if (qp->attached && qp->session == session && same)
		return;		/* both looked for each other: this is the second answer */
	if (qp->pair_id && qp->pair_id == peer->pair_id && same && qp->session == session) {
		pair_resume(qp, session);
		return;
	}
	if (qp->session || qp->pair_id)
		pair_end(qp, PAIR_SEEKING);
	if (pair_leads(qp))
		pair_add(qp, session, peer);
}

static void on_find(struct ctrl_qp *qp, struct session *session, const struct wire_qp_msg *peer)
{
	struct wire_msg msg;

	if (pair_leads(qp)) {
		on_found(qp, session, peer);
		return;
	}
	if (taken(qp, session, peer))
		return;
	/* Nothing changes here before the leader says what it wants: ADD, or READY again. */
	pair_msg_init(qp, WIRE_QP_FOUND, &msg);
	msg.qp.to = peer->from;
	msg.qp.desc = qp->info.desc;
	msg.qp.desc.npaths = 0;
	if (qp->session != session || qp->peer_generation != peer->from.generation)
		msg.qp.pair_id = 0;
	if (qp->state == PAIR_REFUSED && qp->peer_generation == peer->from.generation)
		reason_send(qp, session, peer, WIRE_QP_REFUSE, ECANCELED);
	else
		session_send(session, &msg);
}

/* Follower. */
static void on_add(struct ctrl_qp *qp, struct session *session, const struct wire_qp_msg *peer)
{
	struct wire_msg msg;
	int err = ECANCELED;

	if (pair_leads(qp) || taken(qp, session, peer))
		return;
	if (qp->session)
		pair_end(qp, PAIR_SEEKING);
	attach(qp, session);
	qp->peer_generation = peer->from.generation;
	qp->peer_pd_id = peer->desc.pd_id;
	qp->pair_id = peer->pair_id;
	qp->offers_left = CTRL_KEY_OFFERS;
	pair_msg_init(qp, WIRE_QP_CONFIRM, &msg);
	qp->own_mask = 0;
	if (ctrl_callback_begin(qp)) {
		err = qp->ctrl->ops->qp_offer(qp->cookie, &peer->desc, &msg.qp.desc,
					      &qp->own_mask);
		ctrl_callback_end(qp);
	}
	if (err) {
		pair_refuse(qp, session, peer, err);
		return;
	}
	qp->state = PAIR_CONNECTED;
	session_send(session, &msg);
	ready_send(qp);
	ready_check(qp);
}

/* A round that had begun ends in a refusal, ours or the peer's. */
static void pair_refused(struct ctrl_qp *qp, const struct wire_qp_msg *peer, uint32_t reason)
{
	if (refused_for_now(reason)) {
		pair_end(qp, PAIR_SEEKING);
		seek_later(qp);
		return;
	}
	seek_pause(qp);
	pair_end(qp, PAIR_REFUSED);
	qp->peer_generation = peer->from.generation;
}

/* Leader. */
static void on_confirm(struct ctrl_qp *qp, struct session *session,
		       const struct wire_qp_msg *peer)
{
	int err = ECANCELED;

	if (qp->state != PAIR_ADDED)
		return;
	qp->peer_pd_id = peer->desc.pd_id;
	qp->own_mask = 0;
	if (ctrl_callback_begin(qp)) {
		err = qp->ctrl->ops->qp_answer(qp->cookie, &peer->desc, &qp->own_mask);
		ctrl_callback_end(qp);
	}
	if (err) {
		reason_send(qp, session, peer, WIRE_QP_REFUSE, (uint32_t)err);
		pair_refused(qp, peer, (uint32_t)err);
		return;
	}
	qp->state = PAIR_CONNECTED;
	ready_send(qp);
	ready_check(qp);
}

static void on_ready(struct ctrl_qp *qp, struct session *session, const struct wire_qp_msg *peer)
{
	/* The follower's CONFIRM comes before its READY. */
	if (qp->state == PAIR_ADDED)
		return;
	if (!qp->attached)
		pair_resume(qp, session);
	qp->peer_mask = peer->path_mask;
	qp->peer_ready = true;
	qp->offers_left = 0;
	ready_check(qp);
}

static void on_refuse(struct ctrl_qp *qp, struct session *session, const struct wire_qp_msg *peer)
{
	if (of_pair(qp, session, peer))
		pair_refused(qp, peer, peer->reason);
	else if (peer->pair_id)
		return;		/* of a round that is over */
	else if (refused_for_now(peer->reason))
		seek_missing(qp);
	else if (!qp->session)
		pair_refused(qp, peer, peer->reason);
}

static void on_error(struct ctrl_qp *qp, uint32_t reason)
{
	if (!ctrl_callback_begin(qp))
		return;
	qp->ctrl->ops->qp_error(qp->cookie, reason);
	ctrl_callback_end(qp);
}

static void on_missing(struct ctrl_qp *qp, struct session *session, const struct wire_qp_msg *msg)
{
	if (qp->state == PAIR_ADDED && of_pair(qp, session, msg)) {
		pair_end(qp, PAIR_SEEKING);
		seek_again(qp);
		return;
	}
	/* The process of a lost pair is back, but its QP is not. */
	if (qp->session == session && !qp->attached)
		pair_end(qp, PAIR_SEEKING);
	seek_missing(qp);
}

static void pair_round_message(struct ctrl_qp *qp, struct session *session,
			       const struct wire_msg *msg)
{
	if (!of_pair(qp, session, &msg->qp))
		return;
	switch ((int)msg->type) {
	case WIRE_QP_CONFIRM:
		on_confirm(qp, session, &msg->qp);
		break;
	case WIRE_QP_READY:
		on_ready(qp, session, &msg->qp);
		break;
	case WIRE_QP_DELETE:
		/* If it comes up again it will look for us. */
		seek_pause(qp);
		pair_end(qp, PAIR_WAITING);
		break;
	case WIRE_QP_ERROR:
		on_error(qp, msg->qp.reason);
		break;
	}
}

void pair_message(struct session *session, const struct wire_msg *msg)
{
	struct ctrl_qp *qp = pair_target(session, &msg->qp);

	if (!qp || pair_with_self(qp)) {
		if (msg->type == WIRE_QP_FIND || msg->type == WIRE_QP_ADD)
			reason_send(NULL, session, &msg->qp, WIRE_QP_MISSING, ENOENT);
		return;
	}
	switch ((int)msg->type) {
	case WIRE_QP_FIND:
		on_find(qp, session, &msg->qp);
		break;
	case WIRE_QP_FOUND:
		if (pair_leads(qp))
			on_found(qp, session, &msg->qp);
		break;
	case WIRE_QP_MISSING:
		on_missing(qp, session, &msg->qp);
		break;
	case WIRE_QP_ADD:
		on_add(qp, session, &msg->qp);
		break;
	case WIRE_QP_REFUSE:
		on_refuse(qp, session, &msg->qp);
		break;
	default:
		pair_round_message(qp, session, msg);
		break;
	}
}

void pair_find(struct ctrl_qp *qp, struct session *session)
{
	struct wire_msg msg;

	pair_msg_init(qp, WIRE_QP_FIND, &msg);
	/* Of a peer that we may never have met; another process has not heard of the pair. */
	msg.qp.to.generation = 0;
	if (qp->session != session)
		msg.qp.pair_id = 0;
	msg.qp.desc = qp->info.desc;
	msg.qp.desc.npaths = 0;
	if (session->conn)
		conn_allow(session->conn);
	session_send(session, &msg);
}

/* Leader and follower at once, with nobody to wait for. */
void pair_self_up(struct ctrl_qp *qp)
{
	const struct ctrl_ops *ops = qp->ctrl->ops;
	struct session *session = session_self(qp->ctrl, false);
	struct wire_qp_desc desc;
	int err = ENOMEM;

	memset(&desc, 0, sizeof(desc));
	if (session && ctrl_callback_begin(qp)) {
		err = ops->qp_describe(qp->cookie, &qp->info.desc, &desc);
		ctrl_callback_end(qp);
	}
	if (!err && ctrl_callback_begin(qp)) {
		err = ops->qp_answer(qp->cookie, &desc, &qp->own_mask);
		if (err)
			ops->qp_gone(qp->cookie);
		ctrl_callback_end(qp);
	}
	if (err) {
		qp->state = PAIR_REFUSED;
		return;
	}
	attach(qp, session);
	qp->peer_generation = qp->info.generation;
	qp->peer_pd_id = desc.pd_id;
	qp->peer_mask = qp->own_mask;
	qp->peer_ready = true;
	qp->pair_id = pair_id_new(qp->ctrl);
	qp->state = PAIR_CONNECTED;
	ready_check(qp);
}

void pair_down(struct ctrl_qp *qp)
{
	struct wire_msg msg;

	if (qp->attached && !pair_with_self(qp)) {
		pair_msg_init(qp, WIRE_QP_DELETE, &msg);
		session_send(qp->session, &msg);
	}
	detach(qp);
}

void pair_error(struct ctrl_qp *qp, uint32_t reason)
{
	struct wire_msg msg;

	qp->error_pending = true;
	qp->error_told = reason;
	if (!qp->attached || pair_with_self(qp) ||
	    (qp->state != PAIR_CONNECTED && qp->state != PAIR_READY))
		return;		/* follows READY, see ready_send() */
	pair_msg_init(qp, WIRE_QP_ERROR, &msg);
	msg.qp.reason = reason;
	session_send(qp->session, &msg);
}

void pair_session_lost(struct ctrl_qp *qp)
{
	if (qp->state != PAIR_CONNECTED && qp->state != PAIR_READY) {
		pair_end(qp, PAIR_SEEKING);
		seek_again(qp);
		return;
	}
	key_asks_lost(qp);
	qp->attached = false;
	if (qp->state == PAIR_READY && ctrl_callback_begin(qp)) {
		qp->ctrl->ops->session_lost(qp->cookie);
		ctrl_callback_end(qp);
	}
	seek_again(qp);
}
