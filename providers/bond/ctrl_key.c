/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Keys: asking the peer for those of an MR, answering, and withdrawing what was answered. Which
 * keys there are, and what becomes of them, is the QP layer's.
 *
 * Asked keys stand in a small table in the QP that the data path fills without a lock: it turns a
 * free entry into a wanted one, only the control thread changes it afterwards. Given keys stand in
 * the book, by which deregistration, in any thread, finds whom to tell.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ctrl_priv.h"

#define ASK_PROBES	8
#define DENIED_MS	50	/* an rkey without keys is asked for at every use: not so often */

enum given_state {
	GIVEN_VALID,
	GIVEN_WITHDRAWN,	/* the peer is to be told */
	GIVEN_TOLD,		/* its KEY_DELETED is awaited */
};

struct key_given {
	struct ring bucket;
	struct ring session_node;
	struct ring withdrawn;	/* on book->withdrawn, then on session->told */
	uint64_t told_ns;
	struct session *session;
	enum given_state state;
	uint32_t rkey;
	uint64_t pd_id;
};

static uint64_t ask_value(uint32_t rkey, enum key_ask_state state)
{
	return (uint64_t)rkey << 32 | state;
}

static uint32_t ask_rkey(uint64_t value)
{
	return (uint32_t)(value >> 32);
}

static enum key_ask_state ask_state(uint64_t value)
{
	return (enum key_ask_state)(uint32_t)value;
}

/* false: it is there already, or there is no room. */
static bool ask_insert(struct ctrl_qp *qp, uint32_t rkey)
{
	uint32_t first = (rkey ^ rkey >> 8) * 2654435761u >> 16;
	_Atomic(uint64_t) *free_ask = NULL;
	uint64_t none = 0;

	for (uint32_t i = 0; i < ASK_PROBES; i++) {
		_Atomic(uint64_t) *ask = &qp->asks[(first + i) % CTRL_KEY_ASKS];
		uint64_t value = atomic_load_explicit(ask, memory_order_relaxed);

		if (ask_state(value) == KEY_ASK_FREE) {
			if (!free_ask)
				free_ask = ask;
		} else if (ask_rkey(value) == rkey) {
			return false;
		}
	}
	return free_ask &&
	       atomic_compare_exchange_strong(free_ask, &none, ask_value(rkey, KEY_ASK_WANTED));
}

void ctrl_key_ask(struct ctrl_qp *qp, uint32_t rkey)
{
	struct ctrl *ctrl = qp->ctrl;
	struct ctrl_qp *top;

	if (atomic_load_explicit(&ctrl->child, memory_order_relaxed) || !ask_insert(qp, rkey))
		return;
	/* Partner: key_asks_drain() clears asking before it looks at the entries. */
	if (atomic_exchange(&qp->asking, true))
		return;
	top = atomic_load_explicit(&ctrl->asking, memory_order_relaxed);
	do
		qp->asking_next = top;
	while (!atomic_compare_exchange_weak(&ctrl->asking, &top, qp));
	loop_wake(&ctrl->loop);
}

void key_asks_drain(struct ctrl *ctrl)
{
	struct ctrl_qp *qp = atomic_exchange(&ctrl->asking, NULL), *next;

	for (; qp; qp = next) {
		next = qp->asking_next;
		atomic_store(&qp->asking, false);
		if (qp->attached && qp->state == PAIR_READY)
			key_asks_send(qp);
	}
}

void key_asks_send(struct ctrl_qp *qp)
{
	struct wire_msg msg;

	pair_msg_init(qp, WIRE_KEY_GET, &msg);
	for (int i = 0; i < CTRL_KEY_ASKS; i++) {
		uint64_t value = atomic_load(&qp->asks[i]);

		if (ask_state(value) != KEY_ASK_WANTED)
			continue;
		msg.qp.rkey = ask_rkey(value);
		atomic_store(&qp->asks[i], ask_value(msg.qp.rkey, KEY_ASK_SENT));
		session_send(qp->session, &msg);
	}
}

void key_asks_lost(struct ctrl_qp *qp)
{
	for (int i = 0; i < CTRL_KEY_ASKS; i++) {
		uint64_t value = atomic_load(&qp->asks[i]);

		if (ask_state(value) == KEY_ASK_SENT)
			atomic_store(&qp->asks[i], ask_value(ask_rkey(value), KEY_ASK_WANTED));
	}
}

void key_asks_drop(struct ctrl_qp *qp)
{
	loop_timer_cancel(&qp->ctrl->loop, &qp->asks_denied);
	for (int i = 0; i < CTRL_KEY_ASKS; i++)
		atomic_store(&qp->asks[i], 0);
}

static void denied_due(struct loop_timer *timer)
{
	struct ctrl_qp *qp = ring_entry(timer, struct ctrl_qp, asks_denied);

	for (int i = 0; i < CTRL_KEY_ASKS; i++)
		if (ask_state(atomic_load(&qp->asks[i])) == KEY_ASK_DENIED)
			atomic_store(&qp->asks[i], 0);
}

static void ask_deny(struct ctrl_qp *qp, _Atomic(uint64_t) *ask, uint32_t rkey)
{
	atomic_store(ask, ask_value(rkey, KEY_ASK_DENIED));
	qp->asks_denied.fn = denied_due;
	if (!qp->asks_denied.armed)
		loop_timer_in_ms(&qp->ctrl->loop, &qp->asks_denied, DENIED_MS);
}

static struct ring *given_bucket(struct key_book *book, uint32_t rkey)
{
	return &book->buckets[(rkey ^ rkey >> 8 ^ rkey >> 16) % CTRL_KEY_BUCKETS];
}

/* With book->lock held. */
static void given_free(struct key_given *given)
{
	ring_remove(&given->bucket);
	ring_remove(&given->session_node);
	ring_remove(&given->withdrawn);
	free(given);
}

static struct key_given *given_find(struct key_book *book, const struct session *session,
				    uint32_t rkey, uint64_t pd_id, enum given_state state)
{
	struct ring *head = given_bucket(book, rkey), *node, *after;

	ring_for_each(node, after, head) {
		struct key_given *given = ring_entry(node, struct key_given, bucket);

		if (given->session == session && given->rkey == rkey && given->pd_id == pd_id &&
		    given->state == state)
			return given;
	}
	return NULL;
}

static bool given_add(struct key_book *book, struct session *session, uint32_t rkey,
		      uint64_t pd_id)
{
	struct key_given *given = given_find(book, session, rkey, pd_id, GIVEN_VALID);

	if (given)
		return true;
	given = calloc(1, sizeof(*given));
	if (!given)
		return false;
	given->session = session;
	given->rkey = rkey;
	given->pd_id = pd_id;
	ring_init(&given->withdrawn);
	ring_append(given_bucket(book, rkey), &given->bucket);
	ring_append(&session->given, &given->session_node);
	return true;
}

/*
 * Asks the QP layer, without a lock of ours. A key that is withdrawn while it looks is not given:
 * the withdrawal has not found it in the book and told nobody.
 */
static void key_look(struct ctrl_qp *qp, struct session *session, struct wire_qp_msg *put)
{
	struct key_book *book = &qp->ctrl->book;
	struct ctrl_key key = { 0 };
	int err = ENOENT;

	pthread_mutex_lock(&book->lock);
	book->looking = true;
	book->looking_rkey = put->rkey;
	book->looking_stale = false;
	pthread_mutex_unlock(&book->lock);
	if (ctrl_callback_begin(qp)) {
		err = qp->ctrl->ops->key_lookup(qp->cookie, put->rkey, &key);
		ctrl_callback_end(qp);
	}
	pthread_mutex_lock(&book->lock);
	book->looking = false;
	if (!err && key.nkeys <= WIRE_MAX_MEMBERS && !book->looking_stale &&
	    given_add(book, session, put->rkey, key.pd_id)) {
		put->nkeys = key.nkeys;
		memcpy(put->keys, key.keys, sizeof(put->keys));
		put->key_access = key.access;
		put->key_addr = key.addr;
		put->key_length = key.length;
	}
	pthread_mutex_unlock(&book->lock);
}

/* The QP of the pair that msg is about, or NULL. */
static struct ctrl_qp *paired(struct session *session, const struct wire_qp_msg *msg)
{
	struct ctrl_qp *qp = pair_target(session, msg);

	if (!qp || !qp->attached || !pair_is_of_round(qp, msg))
		return NULL;
	/* A QP that is connected to itself asks at one end and answers at the other. */
	if (qp->session != session && (!session->twin || qp->session != session->twin))
		return NULL;
	return qp;
}

static void on_get(struct session *session, const struct wire_qp_msg *get)
{
	struct ctrl_qp *qp = paired(session, get);
	struct wire_msg msg = { .type = WIRE_KEY_PUT };

	msg.qp.from = get->to;
	msg.qp.to = get->from;
	msg.qp.pair_id = get->pair_id;
	msg.qp.rkey = get->rkey;
	if (qp)
		key_look(qp, session, &msg.qp);
	session_send(session, &msg);
}

/* Ahead of READY, so that the peer knows them when it may begin. */
void key_offers_send(struct ctrl_qp *qp)
{
	uint32_t rkeys[CTRL_KEY_OFFERS];
	unsigned int n = 0;
	struct wire_msg msg;

	if (!qp->ctrl->ops->key_list || !ctrl_callback_begin(qp))
		return;
	n = qp->ctrl->ops->key_list(qp->cookie, rkeys, CTRL_KEY_OFFERS);
	ctrl_callback_end(qp);
	for (unsigned int i = 0; i < n; i++) {
		pair_msg_init(qp, WIRE_KEY_PUT, &msg);
		msg.qp.rkey = rkeys[i];
		key_look(qp, qp->session, &msg.qp);
		if (msg.qp.nkeys)
			session_send(qp->session, &msg);
	}
}

static void key_learn(struct ctrl_qp *qp, const struct wire_qp_msg *put)
{
	struct ctrl_key key = { .nkeys = put->nkeys, .access = put->key_access,
				.addr = put->key_addr, .length = put->key_length };

	memcpy(key.keys, put->keys, sizeof(key.keys));
	if (!ctrl_callback_begin(qp))
		return;
	qp->ctrl->ops->key_learned(qp->cookie, put->rkey, &key);
	ctrl_callback_end(qp);
}

static _Atomic(uint64_t) *ask_sent(struct ctrl_qp *qp, uint32_t rkey)
{
	for (int i = 0; i < CTRL_KEY_ASKS; i++)
		if (atomic_load(&qp->asks[i]) == ask_value(rkey, KEY_ASK_SENT))
			return &qp->asks[i];
	return NULL;
}

/* Unasked, only as many as were agreed, or the peer could fill our memory. */
static void on_put(struct session *session, const struct wire_qp_msg *put)
{
	struct ctrl_qp *qp = paired(session, put);
	_Atomic(uint64_t) *ask = qp ? ask_sent(qp, put->rkey) : NULL;

	if (!qp || (!ask && !qp->offers_left))
		return;
	if (!ask)
		qp->offers_left--;
	key_learn(qp, put);
	if (!ask)
		return;
	/* Only now, or the data path would ask once more before it has the answer. */
	if (put->nkeys)
		atomic_store(ask, 0);
	else
		ask_deny(qp, ask, put->rkey);
}

static void on_delete(struct session *session, const struct wire_msg *msg)
{
	struct wire_msg deleted = { .type = WIRE_KEY_DELETED, .key = msg->key };
	struct ring *node, *after;

	ring_for_each(node, after, &session->qps) {
		struct ctrl_qp *qp = ring_entry(node, struct ctrl_qp, session_node);

		if (qp->peer_pd_id != msg->key.pd_id || !ctrl_callback_begin(qp))
			continue;
		qp->ctrl->ops->key_withdrawn(qp->cookie, msg->key.rkey);
		ctrl_callback_end(qp);
	}
	session_send(session, &deleted);
}

static void on_deleted(struct session *session, const struct wire_key_msg *key)
{
	struct key_book *book = &session->ctrl->book;
	struct key_given *given;

	pthread_mutex_lock(&book->lock);
	given = given_find(book, session, key->rkey, key->pd_id, GIVEN_TOLD);
	if (given)
		given_free(given);
	pthread_mutex_unlock(&book->lock);
}

void key_message(struct session *session, const struct wire_msg *msg)
{
	switch ((int)msg->type) {
	case WIRE_KEY_GET:
		on_get(session, &msg->qp);
		break;
	case WIRE_KEY_PUT:
		on_put(session, &msg->qp);
		break;
	case WIRE_KEY_DELETE:
		on_delete(session, msg);
		break;
	case WIRE_KEY_DELETED:
		on_deleted(session, &msg->key);
		break;
	}
}

void ctrl_key_withdraw(struct ctrl *ctrl, uint32_t rkey, uint64_t pd_id)
{
	struct key_book *book = &ctrl->book;
	struct ring *node, *after;
	bool found = false;

	if (atomic_load_explicit(&ctrl->child, memory_order_relaxed))
		return;
	pthread_mutex_lock(&book->lock);
	if (book->looking && book->looking_rkey == rkey)
		book->looking_stale = true;
	ring_for_each(node, after, given_bucket(book, rkey)) {
		struct key_given *given = ring_entry(node, struct key_given, bucket);

		if (given->rkey != rkey || given->pd_id != pd_id || given->state != GIVEN_VALID)
			continue;
		given->state = GIVEN_WITHDRAWN;
		ring_append(&book->withdrawn, &given->withdrawn);
		found = true;
	}
	pthread_mutex_unlock(&book->lock);
	if (found)
		ctrl_commanded(ctrl);
}

bool ctrl_key_withdrawing(struct ctrl *ctrl, uint32_t rkey, uint64_t pd_id)
{
	struct key_book *book = &ctrl->book;
	struct ring *node, *after;
	bool found = false;

	if (atomic_load_explicit(&ctrl->child, memory_order_relaxed))
		return false;
	pthread_mutex_lock(&book->lock);
	ring_for_each(node, after, given_bucket(book, rkey)) {
		struct key_given *given = ring_entry(node, struct key_given, bucket);

		if (given->rkey == rkey && given->pd_id == pd_id &&
		    given->state != GIVEN_VALID && given->session->live)
			found = true;
	}
	pthread_mutex_unlock(&book->lock);
	return found;
}

void key_withdrawals_send(struct ctrl *ctrl)
{
	struct key_book *book = &ctrl->book;
	struct ring *node, *after;

	pthread_mutex_lock(&book->lock);
	ring_for_each(node, after, &book->withdrawn) {
		struct key_given *given = ring_entry(node, struct key_given, withdrawn);
		struct wire_msg msg = {
			.type = WIRE_KEY_DELETE,
			.key = { .pd_id = given->pd_id, .rkey = given->rkey },
		};

		/* Of a lost session: told when it is back, see key_session_live(). */
		ring_remove(node);
		if (!given->session->live)
			continue;
		given->state = GIVEN_TOLD;
		given->told_ns = loop_now_ns();
		ring_append(&given->session->told, node);
		session_send(given->session, &msg);
	}
	pthread_mutex_unlock(&book->lock);
}

void key_session_live(struct session *session, bool live)
{
	struct key_book *book = &session->ctrl->book;
	struct ring *node, *after;

	pthread_mutex_lock(&book->lock);
	session->live = live;
	ring_for_each(node, after, &session->given) {
		struct key_given *given = ring_entry(node, struct key_given, session_node);

		if (!live || given->state == GIVEN_VALID)
			continue;
		given->state = GIVEN_WITHDRAWN;
		ring_remove(&given->withdrawn);
		ring_append(&book->withdrawn, &given->withdrawn);
	}
	pthread_mutex_unlock(&book->lock);
	if (live)
		key_withdrawals_send(session->ctrl);
}

void key_session_forget(struct session *session)
{
	struct key_book *book = &session->ctrl->book;
	struct ring *node, *after;

	pthread_mutex_lock(&book->lock);
	ring_for_each(node, after, &session->given)
		given_free(ring_entry(node, struct key_given, session_node));
	pthread_mutex_unlock(&book->lock);
}

bool key_session_overdue(struct session *session, uint64_t limit_ms)
{
	struct key_book *book = &session->ctrl->book;
	uint64_t told_ns = 0;

	pthread_mutex_lock(&book->lock);
	if (!ring_empty(&session->told))
		told_ns = ring_entry(session->told.next, struct key_given, withdrawn)->told_ns;
	pthread_mutex_unlock(&book->lock);
	return told_ns && loop_now_ns() - told_ns >= limit_ms * LOOP_NS_PER_MS;
}

int key_book_init(struct key_book *book)
{
	for (int i = 0; i < CTRL_KEY_BUCKETS; i++)
		ring_init(&book->buckets[i]);
	ring_init(&book->withdrawn);
	return pthread_mutex_init(&book->lock, NULL);
}
