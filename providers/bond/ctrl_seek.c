/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Finding the peer of a QP: over the sessions that there are, then by a new connection to the host
 * of its GID. Decides when and how often; the connection itself is ctrl_greet.c's, and what happens
 * between two QPs that have found each other ctrl_pair.c's.
 *
 * A QP has its own retry times, for a peer that is not there yet; a host has others, for one that
 * does not answer at all: then one QP tries for everybody.
 */
#include <errno.h>
#include <stdlib.h>

#include "ctrl_priv.h"

#define BACKOFF_MIN_MS		10
#define BACKOFF_MAX_MS		1000
#define SILENT_MS		5000
#define EAGER_MS		30000	/* then rarely */
#define RARE_MS			30000
#define CONNECTS_PER_HOST	16

static void seek_due(struct loop_timer *timer);
static void host_due(struct loop_timer *timer);

static struct host *host_get(struct ctrl *ctrl, const struct addr *addr)
{
	struct ring *node, *after;
	struct host *host;

	ring_for_each(node, after, &ctrl->hosts) {
		host = ring_entry(node, struct host, node);
		if (addr_equal(&host->addr, addr) && host->addr.scope == addr->scope)
			return host;
	}
	host = calloc(1, sizeof(*host));
	if (!host)
		return NULL;
	host->ctrl = ctrl;
	host->addr = *addr;
	host->retry.fn = host_due;
	host->backoff_ms = BACKOFF_MIN_MS;
	ring_init(&host->qps);
	ring_append(&ctrl->hosts, &host->node);
	return host;
}

static void host_put(struct host *host)
{
	if (!ring_empty(&host->qps) || host->nconnecting)
		return;
	loop_timer_cancel(&host->ctrl->loop, &host->retry);
	ring_remove(&host->node);
	free(host);
}

static void host_up(struct host *host)
{
	host->down = false;
	host->backoff_ms = BACKOFF_MIN_MS;
	loop_timer_cancel(&host->ctrl->loop, &host->retry);
}

/* What is next in a row that doubles for EAGER_MS, then goes on rarely. */
static uint32_t backoff_next(uint32_t *backoff_ms, uint64_t since_ns)
{
	uint32_t delay_ms = *backoff_ms;

	if (loop_now_ns() - since_ns >= EAGER_MS * LOOP_NS_PER_MS)
		return RARE_MS;
	*backoff_ms *= 2;
	if (*backoff_ms > BACKOFF_MAX_MS)
		*backoff_ms = BACKOFF_MAX_MS;
	return delay_ms;
}

static void seek_timer(struct ctrl_qp *qp, uint32_t at_least_ms)
{
	uint32_t delay_ms = backoff_next(&qp->backoff_ms, qp->seek_since_ns);

	loop_timer_in_ms(&qp->ctrl->loop, &qp->seek,
			 delay_ms < at_least_ms ? at_least_ms : delay_ms);
}

/* A connection that the host's registrar will hand to the process with our peer. */
static void seek_connect(struct ctrl_qp *qp)
{
	struct host *host = qp->host;
	int err;

	if (qp->greet)
		return;
	if (host->nconnecting >= CONNECTS_PER_HOST) {
		seek_timer(qp, 0);
		return;
	}
	loop_timer_cancel(&qp->ctrl->loop, &qp->seek);
	host->nconnecting++;
	err = greet_start(host, qp);
	if (err == EADDRNOTAVAIL)
		seek_greet_end(host, qp, GREET_WRONG, "the local GID is no address of this host");
	else if (err)
		seek_greet_end(host, qp, GREET_REFUSED, "no connection");
}

/* Returns how many sessions were asked. */
static unsigned int seek_sessions(struct ctrl_qp *qp)
{
	struct ring *node, *after;
	unsigned int asked = 0;

	ring_for_each(node, after, &qp->ctrl->sessions) {
		struct session *session = ring_entry(node, struct session, node);

		if (!session->conn || !session_serves(session, qp))
			continue;
		pair_find(qp, session);
		asked++;
	}
	return asked;
}

static void seek_attempt(struct ctrl_qp *qp)
{
	struct ctrl *ctrl = qp->ctrl;
	unsigned int unanswered = qp->finds_open;

	qp->finds_open = 0;
	if (ctrl_qp_find(ctrl, qp->info.dest_gid, qp->info.dest_qpn)) {
		struct session *session = session_self(ctrl, pair_leads(qp));

		seek_timer(qp, 0);
		if (session)
			pair_find(qp, session);
		return;
	}
	qp->finds_open = seek_sessions(qp);
	if (qp->finds_open && !unanswered)
		seek_timer(qp, 0);
	else if (!qp->host->down)
		seek_connect(qp);
}

static void seek_due(struct loop_timer *timer)
{
	seek_attempt(ring_entry(timer, struct ctrl_qp, seek));
}

/* One QP tries the host for everybody; the next time another one. */
static void host_due(struct loop_timer *timer)
{
	struct host *host = ring_entry(timer, struct host, retry);
	struct ring *node, *after;

	ring_for_each(node, after, &host->qps) {
		struct ctrl_qp *qp = ring_entry(node, struct ctrl_qp, host_node);

		if (!qp->seeking || qp->greet)
			continue;
		ring_remove(node);
		ring_append(&host->qps, node);
		seek_connect(qp);
		return;
	}
}

static void seek_begin(struct ctrl_qp *qp)
{
	qp->seeking = true;
	qp->backoff_ms = BACKOFF_MIN_MS;
	qp->seek_since_ns = loop_now_ns();
	qp->finds_open = 0;
	/* Something new has happened: a host that did not answer is worth a connection. */
	if (qp->host->down)
		host_up(qp->host);
}

int seek_start(struct ctrl_qp *qp)
{
	struct addr addr;
	int err;

	qp->seek.fn = seek_due;
	ring_init(&qp->host_node);
	err = addr_from_gid(&qp->from, qp->info.gid, qp->info.ifindex);
	if (!err)
		err = addr_from_gid(&addr, qp->info.dest_gid, qp->info.ifindex);
	if (err)
		return err;
	qp->host = host_get(qp->ctrl, &addr);
	if (!qp->host)
		return ENOMEM;
	ring_append(&qp->host->qps, &qp->host_node);
	if (pair_with_self(qp))
		return 0;
	seek_begin(qp);
	seek_attempt(qp);
	return 0;
}

void seek_again(struct ctrl_qp *qp)
{
	if (!qp->host)
		return;
	seek_begin(qp);
	/* Not at once: both ends of a broken session come here. */
	seek_timer(qp, 0);
}

void seek_later(struct ctrl_qp *qp)
{
	if (!qp->host)
		return;
	qp->seeking = true;
	qp->finds_open = 0;
	seek_timer(qp, 0);
}

void seek_pause(struct ctrl_qp *qp)
{
	qp->seeking = false;
	qp->finds_open = 0;
	loop_timer_cancel(&qp->ctrl->loop, &qp->seek);
	if (qp->greet)
		greet_abandon(qp->greet);
}

void seek_stop(struct ctrl_qp *qp)
{
	if (!qp->host)
		return;
	seek_pause(qp);
	ring_remove(&qp->host_node);
	host_put(qp->host);
	qp->host = NULL;
}

void seek_missing(struct ctrl_qp *qp)
{
	if (!qp->seeking || !qp->finds_open || --qp->finds_open)
		return;
	/* None of the processes that we know: perhaps another one on that host. */
	if (!qp->host->down)
		seek_connect(qp);
}

void seek_session_live(struct session *session)
{
	struct ring *hnode, *hafter, *node, *after;

	ring_for_each(hnode, hafter, &session->ctrl->hosts) {
		struct host *host = ring_entry(hnode, struct host, node);

		if (session->twin || !addr_equal(&session->peer, &host->addr))
			continue;
		host_up(host);
		ring_for_each(node, after, &host->qps) {
			struct ctrl_qp *qp = ring_entry(node, struct ctrl_qp, host_node);

			if (!qp->seeking || !session_serves(session, qp))
				continue;
			qp->finds_open++;
			pair_find(qp, session);
			if (!qp->seek.armed && !qp->greet)
				seek_timer(qp, 0);
		}
	}
}

/* The host answered: those who left the trying to others have their own turn again. */
static void host_wake(struct host *host)
{
	struct ring *node, *after;

	host_up(host);
	host->warned = NULL;
	ring_for_each(node, after, &host->qps) {
		struct ctrl_qp *qp = ring_entry(node, struct ctrl_qp, host_node);

		if (qp->seeking && !qp->seek.armed && !qp->greet)
			seek_timer(qp, 0);
	}
}

static void host_retry(struct host *host, uint32_t at_least_ms)
{
	uint32_t delay_ms;

	if (host->retry.armed)
		return;
	delay_ms = backoff_next(&host->backoff_ms, host->down_since_ns);
	loop_timer_in_ms(&host->ctrl->loop, &host->retry,
			 delay_ms < at_least_ms ? at_least_ms : delay_ms);
}

/* An attempt that says nothing about the host may have been the one for everybody. */
static void host_retry_for_others(struct host *host)
{
	if (host->down)
		host_retry(host, 0);
}

static void host_fail(struct host *host, enum greet_result result, const char *why)
{
	char text[ADDR_TEXT_SIZE];

	if (!host->down) {
		host->down = true;
		host->down_since_ns = loop_now_ns();
	}
	host_retry(host, result == GREET_REFUSED ? 0 : SILENT_MS);
	if (why == host->warned)
		return;
	host->warned = why;
	/* A peer without the bond refuses, or drops, what comes to this port: no news. */
	ctrl_log(host->ctrl, result == GREET_WRONG ? CTRL_LOG_WARN : CTRL_LOG_DEBUG,
		 "control: %s: %s", addr_text(&host->addr, text), why);
}

void seek_greet_end(struct host *host, struct ctrl_qp *qp, enum greet_result result,
		    const char *why)
{
	host->nconnecting--;
	if (qp)
		qp->greet = NULL;
	switch (result) {
	case GREET_SESSION:
	case GREET_AGAIN:
		host_wake(host);
		break;
	case GREET_REFUSED:
	case GREET_SILENT:
	case GREET_WRONG:
		host_fail(host, result, why);
		break;
	case GREET_MUTE:
		if (qp)
			seek_timer(qp, SILENT_MS);
		host_retry_for_others(host);
		break;
	case GREET_ABANDONED:
		host_retry_for_others(host);
		break;
	}
	host_put(host);
}
