/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A peer process, known by its nonce and the two addresses, and the connection to it: heartbeats,
 * what comes in, losing it. A lost session stays as long as a pair hopes for its return. With
 * oneself it is a socket pair with an object for either end. How it comes to be: ctrl_greet.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ctrl_priv.h"

#define IDLE_BEATS	3	/* a session without pairs is closed then */
#define IDLE_MAX	256	/* more than these at once are no peers */

static void session_beat(struct loop_timer *timer);

struct session *session_find(struct ctrl *ctrl, uint64_t nonce, const struct addr *local,
			     const struct addr *peer)
{
	struct ring *node, *after;

	ring_for_each(node, after, &ctrl->sessions) {
		struct session *session = ring_entry(node, struct session, node);

		if (session->nonce == nonce && !session->twin &&
		    addr_equal(&session->local, local) && addr_equal(&session->peer, peer))
			return session;
	}
	return NULL;
}

static struct session *session_new(struct ctrl *ctrl, uint64_t nonce)
{
	struct session *session = calloc(1, sizeof(*session));

	if (!session)
		return NULL;
	session->ctrl = ctrl;
	session->nonce = nonce;
	session->beat.fn = session_beat;
	ring_init(&session->qps);
	ring_init(&session->given);
	ring_init(&session->told);
	ring_append(&ctrl->sessions, &session->node);
	return session;
}

struct session *session_get(struct ctrl *ctrl, uint64_t nonce, const struct addr *local,
			    const struct addr *peer)
{
	struct session *session = session_find(ctrl, nonce, local, peer);

	if (session)
		return session;
	session = session_new(ctrl, nonce);
	if (!session)
		return NULL;
	session->local = *local;
	session->peer = *peer;
	return session;
}

bool session_serves(const struct session *session, const struct ctrl_qp *qp)
{
	return !session->twin && addr_equal(&session->local, &qp->from) &&
	       addr_equal(&session->peer, &qp->host->addr);
}

static void session_free(struct session *session)
{
	struct conn *conn = session->conn;

	session->conn = NULL;
	key_session_live(session, false);
	key_session_forget(session);
	loop_timer_cancel(&session->ctrl->loop, &session->beat);
	ring_remove(&session->node);
	if (conn)
		conn_close(conn);
	free(session);
}

void session_unused(struct session *session)
{
	if (session->held || session->conn || session->greet || session->twin)
		return;
	if (ring_empty(&session->qps))
		session_free(session);
}

void session_send(struct session *session, const struct wire_msg *msg)
{
	if (session->conn)
		conn_send(session->conn, msg);
}

static void session_message(struct conn *conn, const struct wire_msg *msg, const uint8_t *raw,
			    size_t len)
{
	struct session *session = conn->owner;
	struct wire_msg pong = { .type = WIRE_PONG };

	(void)raw;
	(void)len;
	session->silent_beats = 0;
	switch (msg->type) {
	case WIRE_PING:
		pong.stamp = msg->stamp;
		session_send(session, &pong);
		return;
	case WIRE_PONG:
		return;
	case WIRE_QP_FIND:
	case WIRE_QP_FOUND:
	case WIRE_QP_MISSING:
	case WIRE_QP_ADD:
	case WIRE_QP_CONFIRM:
	case WIRE_QP_REFUSE:
	case WIRE_QP_READY:
	case WIRE_QP_DELETE:
	case WIRE_QP_ERROR:
		pair_message(session, msg);
		return;
	case WIRE_KEY_GET:
	case WIRE_KEY_PUT:
	case WIRE_KEY_DELETE:
	case WIRE_KEY_DELETED:
		key_message(session, msg);
		return;
	case WIRE_HELLO:
	case WIRE_HELLO_ACK:
	case WIRE_COMMIT:
	case WIRE_WELCOME:
	case WIRE_REFUSE:
		break;
	}
	session_lose(session, "a message that has no place here");
}

static void session_ended(struct conn *conn, int err)
{
	struct session *session = conn->owner;

	session_lose(session, err == EPROTO || err == EPROTONOSUPPORT ? "a malformed message" :
			      err == ECONNRESET ? "closed by the peer" : strerror(err));
}

static const struct conn_ops session_ops = {
	.message = session_message,
	.ended = session_ended,
};

static void beat_arm(struct session *session)
{
	loop_timer_in_ms(&session->ctrl->loop, &session->beat, session->ctrl->heartbeat_ms);
}

static void session_beat(struct loop_timer *timer)
{
	struct session *session = ring_entry(timer, struct session, beat);
	struct wire_msg ping = { .type = WIRE_PING, .stamp = loop_now_ns() };

	if (session->silent_beats++ >= SESSION_SILENT_BEATS) {
		session_lose(session, "silent");
		return;
	}
	if (key_session_overdue(session, SESSION_SILENT_BEATS * session->ctrl->heartbeat_ms)) {
		session_lose(session, "withdrawn keys are not confirmed");
		return;
	}
	session->idle_beats = ring_empty(&session->qps) ? session->idle_beats + 1 : 0;
	if (session->idle_beats >= IDLE_BEATS && !session->greet) {
		session_free(session);
		return;
	}
	session_send(session, &ping);
	beat_arm(session);
}

/* Where there is no secret, strangers could open sessions until no descriptor is left. */
static void idle_limit(struct ctrl *ctrl)
{
	struct session *oldest = NULL;
	unsigned int idle = 0;
	struct ring *node, *after;

	ring_for_each(node, after, &ctrl->sessions) {
		struct session *session = ring_entry(node, struct session, node);

		if (!session->conn || session->twin || session->greet ||
		    !ring_empty(&session->qps))
			continue;
		if (!oldest)
			oldest = session;
		idle++;
	}
	if (idle > IDLE_MAX)
		session_free(oldest);
}

void session_up(struct session *session, struct conn *conn, uint64_t conn_id)
{
	session->conn = conn;
	session->conn_id = conn_id;
	conn->ops = &session_ops;
	conn->owner = session;
	session->silent_beats = 0;
	session->idle_beats = 0;
	ring_remove(&session->node);
	ring_append(&session->ctrl->sessions, &session->node);
	idle_limit(session->ctrl);
	beat_arm(session);
	key_session_live(session, true);
	seek_session_live(session);
}

/*
 * The pairs first learn of it, then look for each other again; whoever finds the way first brings
 * the session back.
 */
void session_lose(struct session *session, const char *why)
{
	struct ctrl *ctrl = session->ctrl;
	struct conn *conn = session->conn;
	char text[ADDR_TEXT_SIZE];
	struct ring *node, *after;

	if (!conn)
		return;
	session->conn = NULL;
	conn_close(conn);
	loop_timer_cancel(&ctrl->loop, &session->beat);
	key_session_live(session, false);
	if (!ring_empty(&session->qps) && !session->twin)
		ctrl_log(ctrl, CTRL_LOG_DEBUG, "control: session with %s lost: %s",
			 addr_text(&session->peer, text), why);
	session->held = true;
	ring_for_each(node, after, &session->qps)
		pair_session_lost(ring_entry(node, struct ctrl_qp, session_node));
	session->held = false;
	session_unused(session);
}

/* The leader of a pair uses one end, the follower the other; so each message has a way across. */
struct session *session_self(struct ctrl *ctrl, bool leader)
{
	struct conn *conns[2];

	if (ctrl->self[0])
		return ctrl->self[!leader];
	for (int i = 0; i < 2; i++)
		ctrl->self[i] = session_new(ctrl, ctrl->nonce);
	if (!ctrl->self[0] || !ctrl->self[1] || conn_pair(&ctrl->loop, conns, &session_ops)) {
		for (int i = 0; i < 2; i++) {
			if (ctrl->self[i])
				session_free(ctrl->self[i]);
			ctrl->self[i] = NULL;
		}
		return NULL;
	}
	for (int i = 0; i < 2; i++) {
		ctrl->self[i]->twin = ctrl->self[!i];
		ctrl->self[i]->conn = conns[i];
		conns[i]->owner = ctrl->self[i];
		conn_trust(conns[i]);
		key_session_live(ctrl->self[i], true);
	}
	return ctrl->self[!leader];
}

void session_close_all(struct ctrl *ctrl)
{
	struct ring *node, *after;

	ring_for_each(node, after, &ctrl->sessions)
		session_free(ring_entry(node, struct session, node));
	ctrl->self[0] = NULL;
	ctrl->self[1] = NULL;
}
