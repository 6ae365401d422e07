/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A connection from its first message until it is a session, or not: which version, which process,
 * the proofs of the secret both ways, and which of two connections of the same two processes stays.
 *
 *	initiator			acceptor
 *	HELLO		->				(read by the registrar)
 *			<-	HELLO_ACK, proof
 *	COMMIT, proof	->
 *			<-	WELCOME
 *
 * Any of them may be answered by REFUSE. Until then nothing else is accepted.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ctrl_priv.h"

#define ACCEPTED_MAX 64

struct greet {
	struct ring node;
	struct ctrl *ctrl;
	struct conn *conn;
	struct loop_timer deadline;
	bool initiator;
	bool committed;			/* initiator: COMMIT is sent */
	struct host *host;		/* initiator */
	struct ctrl_qp *qp;		/* initiator; NULL: it is not waiting any more */
	struct session *session;	/* initiator, committed */
	struct addr local, peer;	/* of the connection */
	uint64_t conn_id;
	uint64_t peer_nonce;
	/* What the proofs cover: both addresses, HELLO, HELLO_ACK up to its proof, COMMIT's own. */
	size_t text_len;
	uint8_t text[512];
};

static void greet_ended(struct conn *conn, int err);

static void text_add(struct greet *greet, const void *bytes, size_t len)
{
	if (len > sizeof(greet->text) - greet->text_len)
		return;
	memcpy(greet->text + greet->text_len, bytes, len);
	greet->text_len += len;
}

/* A proof that was made for one pair of hosts is worth nothing between others. */
static void text_begin(struct greet *greet, const uint8_t *hello, size_t len)
{
	const struct addr *from = greet->initiator ? &greet->local : &greet->peer;
	const struct addr *to = greet->initiator ? &greet->peer : &greet->local;

	conn_addresses(greet->conn, &greet->local, &greet->peer);
	text_add(greet, from->ip, sizeof(from->ip));
	text_add(greet, to->ip, sizeof(to->ip));
	text_add(greet, hello, len);
}

/* The proof is the last field of HELLO_ACK and COMMIT. */
static void text_add_msg(struct greet *greet, const struct wire_msg *msg)
{
	uint8_t buf[WIRE_MSG_MAX];
	size_t len = wire_encode(msg, buf);

	text_add(greet, buf, len - WIRE_PROOF_SIZE);
}

static void prove(struct greet *greet, enum auth_role role, uint8_t proof[WIRE_PROOF_SIZE])
{
	if (greet->ctrl->has_key)
		auth_prove(&greet->ctrl->key, role, greet->text, greet->text_len, proof);
}

static bool proof_holds(struct greet *greet, enum auth_role role,
			const uint8_t proof[WIRE_PROOF_SIZE])
{
	uint8_t right[WIRE_PROOF_SIZE];

	if (!greet->ctrl->has_key)
		return true;
	auth_prove(&greet->ctrl->key, role, greet->text, greet->text_len, right);
	return auth_proof_equal(right, proof);
}

/* Gives the connection away, or closes it, and tells whoever waits how it ended. */
static void greet_free(struct greet *greet, enum greet_result result, const char *why)
{
	struct host *host = greet->host;
	struct ctrl_qp *qp = greet->qp;

	loop_timer_cancel(&greet->ctrl->loop, &greet->deadline);
	ring_remove(&greet->node);
	if (greet->conn)
		conn_close(greet->conn);
	if (!greet->initiator)
		greet->ctrl->naccepted--;
	if (greet->session) {
		greet->session->greet = NULL;
		session_unused(greet->session);
	}
	free(greet);
	if (host)
		seek_greet_end(host, qp, result, why);
}

static void greet_refuse(struct greet *greet, enum wire_refusal refusal)
{
	struct wire_msg msg = { .type = WIRE_REFUSE, .refusal = refusal };

	conn_send(greet->conn, &msg);
	greet_free(greet, GREET_AGAIN, NULL);
}

static void greet_late(struct loop_timer *timer)
{
	struct greet *greet = ring_entry(timer, struct greet, deadline);

	greet_free(greet, greet->conn->connecting ? GREET_SILENT : GREET_MUTE, "no answer");
}

void greet_abandon(struct greet *greet)
{
	if (greet->qp)
		greet->qp->greet = NULL;
	greet->qp = NULL;
	/* A session in the making may be of use for others. */
	if (!greet->committed)
		greet_free(greet, GREET_ABANDONED, NULL);
}

static struct greet *greet_new(struct ctrl *ctrl)
{
	struct greet *greet = calloc(1, sizeof(*greet));

	if (!greet)
		return NULL;
	greet->ctrl = ctrl;
	greet->deadline.fn = greet_late;
	ring_append(&ctrl->greets, &greet->node);
	loop_timer_in_ms(&ctrl->loop, &greet->deadline, ctrl->greet_ms);
	return greet;
}

static void greet_opened(struct conn *conn)
{
	struct greet *greet = conn->owner;
	struct wire_msg msg = { .type = WIRE_HELLO };
	uint8_t buf[WIRE_MSG_MAX];
	size_t len;

	msg.hello.nonce = greet->ctrl->nonce;
	msg.hello.conn_id = greet->conn_id;
	msg.hello.secret = greet->ctrl->has_key;
	memcpy(msg.hello.target_gid, greet->qp->info.dest_gid, sizeof(msg.hello.target_gid));
	msg.hello.target_qpn = greet->qp->info.dest_qpn;
	if (auth_random(msg.hello.challenge, sizeof(msg.hello.challenge))) {
		greet_free(greet, GREET_REFUSED, "no random bytes");
		return;
	}
	len = wire_encode(&msg, buf);
	text_begin(greet, buf, len);
	conn_send(conn, &msg);
}

static void commit_send(struct greet *greet, uint64_t lost_id)
{
	struct wire_msg msg = { .type = WIRE_COMMIT };

	msg.commit.lost_id = lost_id;
	text_add_msg(greet, &msg);
	prove(greet, AUTH_INITIATOR, msg.commit.proof);
	greet->committed = true;
	conn_send(greet->conn, &msg);
}

/*
 * The session of these two processes between these two addresses. A nonce is no secret, so another
 * address that claims it is another session, and speaks for nobody here.
 */
static struct session *greet_session(const struct greet *greet)
{
	return session_find(greet->ctrl, greet->peer_nonce, &greet->local, &greet->peer);
}

/* Which process is it, and do we have a session with it? */
static void initiator_commit(struct greet *greet)
{
	struct session *session = greet_session(greet);

	if (greet->peer_nonce == greet->ctrl->nonce || (session && session->greet)) {
		/* Ourselves, which needs no network; or another connection is further. */
		greet_free(greet, GREET_AGAIN, NULL);
		return;
	}
	if (session && session->conn) {
		greet_free(greet, GREET_SESSION, NULL);
		return;
	}
	session = session_get(greet->ctrl, greet->peer_nonce, &greet->local, &greet->peer);
	if (!session) {
		greet_free(greet, GREET_AGAIN, NULL);
		return;
	}
	session->greet = greet;
	greet->session = session;
	commit_send(greet, session->conn_id);
}

static void initiator_welcome(struct greet *greet)
{
	struct conn *conn = greet->conn;

	greet->conn = NULL;
	session_up(greet->session, conn, greet->conn_id);
	greet_free(greet, GREET_SESSION, NULL);
}

static void initiator_refused(struct greet *greet, const struct wire_msg *msg)
{
	switch ((enum wire_refusal)msg->refusal) {
	case WIRE_REFUSE_UNKNOWN:
	case WIRE_REFUSE_DUPLICATE:
	case WIRE_REFUSE_BUSY:
		greet_free(greet, GREET_AGAIN, NULL);
		return;
	case WIRE_REFUSE_SECRET:
		greet_free(greet, GREET_WRONG, "refuses our secret");
		return;
	case WIRE_REFUSE_VERSION:
		greet_free(greet, GREET_WRONG, "speaks another protocol version");
		return;
	}
	greet_free(greet, GREET_WRONG, "answers nonsense");
}

static void initiator_message(struct greet *greet, const struct wire_msg *msg)
{
	if (msg->type == WIRE_REFUSE) {
		initiator_refused(greet, msg);
		return;
	}
	if (msg->type == WIRE_WELCOME && greet->committed) {
		initiator_welcome(greet);
		return;
	}
	if (msg->type != WIRE_HELLO_ACK || greet->committed || !msg->hello_ack.nonce) {
		greet_free(greet, GREET_WRONG, "answers nonsense");
		return;
	}
	text_add_msg(greet, msg);
	if (msg->hello_ack.secret != greet->ctrl->has_key ||
	    !proof_holds(greet, AUTH_ACCEPTOR, msg->hello_ack.proof)) {
		greet_free(greet, GREET_WRONG, "does not know our secret");
		return;
	}
	greet->peer_nonce = msg->hello_ack.nonce;
	initiator_commit(greet);
}

/*
 * Two processes may have connected to each other at the same time: the connection that the one with
 * the lower nonce began stays. A session that we still have is replaced only by a peer who names it
 * as lost.
 */
static bool acceptor_yields(struct greet *greet, const struct wire_commit *commit)
{
	struct session *session = greet_session(greet);

	if (!session)
		return true;
	if (session->conn) {
		if (session->conn_id != commit->lost_id)
			return false;
		session_lose(session, "the peer connects again");
		session = greet_session(greet);
	}
	if (session && session->greet) {
		if (greet->ctrl->nonce < greet->peer_nonce)
			return false;
		greet_free(session->greet, GREET_AGAIN, NULL);
	}
	return true;
}

static void welcome_send(struct conn *conn)
{
	struct wire_msg msg = { .type = WIRE_WELCOME };

	conn_send(conn, &msg);
}

static void acceptor_message(struct greet *greet, const struct wire_msg *msg)
{
	struct session *session;
	struct conn *conn = greet->conn;

	/* Our own nonce: only a stranger goes on after our HELLO_ACK. */
	if (msg->type != WIRE_COMMIT || !greet->peer_nonce ||
	    greet->peer_nonce == greet->ctrl->nonce) {
		greet_free(greet, GREET_WRONG, NULL);
		return;
	}
	text_add_msg(greet, msg);
	if (!proof_holds(greet, AUTH_INITIATOR, msg->commit.proof)) {
		greet_refuse(greet, WIRE_REFUSE_SECRET);
		return;
	}
	if (!acceptor_yields(greet, &msg->commit)) {
		greet_refuse(greet, WIRE_REFUSE_DUPLICATE);
		return;
	}
	session = session_get(greet->ctrl, greet->peer_nonce, &greet->local, &greet->peer);
	if (!session) {
		greet_refuse(greet, WIRE_REFUSE_BUSY);
		return;
	}
	welcome_send(conn);
	greet->conn = NULL;
	session_up(session, conn, greet->conn_id);
	greet_free(greet, GREET_SESSION, NULL);
}

static void greet_message(struct conn *conn, const struct wire_msg *msg, const uint8_t *raw,
			  size_t len)
{
	struct greet *greet = conn->owner;

	(void)raw;
	(void)len;
	if (greet->initiator)
		initiator_message(greet, msg);
	else
		acceptor_message(greet, msg);
}

static void greet_ended(struct conn *conn, int err)
{
	struct greet *greet = conn->owner;

	if (err == EPROTO)
		greet_free(greet, GREET_WRONG, "answers nonsense");
	else if (err == EPROTONOSUPPORT)
		greet_free(greet, GREET_WRONG, "speaks another protocol version");
	else if (err == ETIMEDOUT)
		greet_free(greet, GREET_SILENT, "no answer");
	else if (err == EHOSTUNREACH || err == ENETUNREACH || err == EACCES || err == EPERM)
		greet_free(greet, GREET_REFUSED, "cannot be reached");
	else
		greet_free(greet, GREET_REFUSED, "refuses connections");
}

static const struct conn_ops greet_ops = {
	.opened = greet_opened,
	.message = greet_message,
	.ended = greet_ended,
};

/* The caller, seek_connect(), is told by seek_greet_end(), but not of an error returned here. */
int greet_start(struct host *host, struct ctrl_qp *qp)
{
	struct ctrl *ctrl = qp->ctrl;
	struct greet *greet = greet_new(ctrl);
	int err;

	if (!greet)
		return ENOMEM;
	greet->initiator = true;
	err = auth_random(&greet->conn_id, sizeof(greet->conn_id));
	if (!err) {
		/* From the QP's own address: by it the peer knows whom it may believe. */
		greet->conn = conn_connect(&ctrl->loop, &qp->from, &host->addr, ctrl->port,
					   &greet_ops, greet);
		err = greet->conn ? 0 : errno;
	}
	if (err) {
		greet_free(greet, GREET_REFUSED, NULL);
		return err;
	}
	greet->host = host;
	greet->qp = qp;
	qp->greet = greet;
	return 0;
}

static void accepted_limit(struct ctrl *ctrl)
{
	struct ring *node, *after;

	if (ctrl->naccepted <= ACCEPTED_MAX)
		return;
	ring_for_each(node, after, &ctrl->greets) {
		struct greet *oldest = ring_entry(node, struct greet, node);

		if (oldest->initiator)
			continue;
		greet_free(oldest, GREET_WRONG, NULL);
		return;
	}
}

void greet_accept(struct ctrl *ctrl, struct conn *conn, const struct wire_hello *hello,
		  const uint8_t *raw, size_t len)
{
	struct greet *greet = greet_new(ctrl);
	struct wire_msg msg = { .type = WIRE_HELLO_ACK };

	if (!greet) {
		conn_close(conn);
		return;
	}
	ctrl->naccepted++;
	greet->conn = conn;
	greet->peer_nonce = hello->nonce;
	greet->conn_id = hello->conn_id;
	conn->ops = &greet_ops;
	conn->owner = greet;
	if (hello->secret != ctrl->has_key) {
		greet_refuse(greet, WIRE_REFUSE_SECRET);
		return;
	}
	text_begin(greet, raw, len);
	msg.hello_ack.nonce = ctrl->nonce;
	msg.hello_ack.secret = ctrl->has_key;
	if (auth_random(msg.hello_ack.challenge, sizeof(msg.hello_ack.challenge))) {
		greet_refuse(greet, WIRE_REFUSE_BUSY);
		return;
	}
	text_add_msg(greet, &msg);
	prove(greet, AUTH_ACCEPTOR, msg.hello_ack.proof);
	conn_send(conn, &msg);
	accepted_limit(ctrl);
}

void greet_close_all(struct ctrl *ctrl)
{
	struct ring *node;

	while ((node = ctrl->greets.next) != &ctrl->greets)
		greet_free(ring_entry(node, struct greet, node), GREET_ABANDONED, NULL);
}
