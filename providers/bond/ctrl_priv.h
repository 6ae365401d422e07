/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The objects of the control channel and what its files call of each other:
 *
 *	ctrl.c		the thread, what the QP layer calls, callbacks
 *	ctrl_seek.c	finding the process that has a QP's peer
 *	ctrl_greet.c	a connection until it is a session: secret, version, ties
 *	ctrl_session.c	a peer process: heartbeats, messages in and out, loss
 *	ctrl_pair.c	two QPs becoming a pair
 *	ctrl_key.c	keys asked, answered, withdrawn
 *
 * All of it belongs to the control thread, but for what is marked. Public side: ctrl.h.
 */
#ifndef BOND_CTRL_PRIV_H
#define BOND_CTRL_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "auth.h"
#include "ctrl.h"
#include "ctrl_conn.h"
#include "ctrl_name.h"
#include "registrar.h"

#define CTRL_KEY_BUCKETS	256
#define CTRL_KEY_ASKS		64	/* outstanding per QP; a power of two */
#define SESSION_SILENT_BEATS	5

struct greet;

/* Keys given to peers, so that they can be withdrawn. */
struct key_book {
	pthread_mutex_t lock;			/* guards all of it; innermost */
	struct ring buckets[CTRL_KEY_BUCKETS];	/* of struct key_given */
	struct ring withdrawn;			/* those to be told to the peer */
	bool looking;				/* a key_lookup callback runs, for: */
	uint32_t looking_rkey;
	bool looking_stale;			/* and that key was withdrawn meanwhile */
};

struct ctrl {
	struct loop loop;
	pthread_t thread;
	const struct ctrl_ops *ops;
	void *log_arg;
	uint16_t port;
	uint32_t heartbeat_ms;
	uint32_t greet_ms;
	uint64_t nonce;
	uint32_t next_pair_id;
	bool has_key;
	struct auth_key key;
	struct registrar *registrar;
	_Atomic(bool) child;			/* forked: nothing works here any more */

	/* Any thread. */
	pthread_mutex_t lock;			/* guards these five, and QPs where marked */
	pthread_cond_t callback_end;
	struct ring commands;			/* of struct ctrl_qp */
	struct ctrl_qp *running;		/* whose callback runs now */
	bool stop;
	_Atomic(bool) commanded;		/* commands or withdrawals wait */
	_Atomic(struct ctrl_qp *) asking;	/* stack of QPs with keys to ask */

	struct key_book book;
	struct qp_names qps;
	struct ring hosts;
	struct ring sessions;
	struct ring greets;
	unsigned int naccepted;			/* greets that came in */
	struct session *self[2];		/* two ends of one socket pair; NULL until needed */
};

/* One IP address where QPs that are looked for live. */
struct host {
	struct ring node;
	struct ctrl *ctrl;
	struct addr addr;
	struct ring qps;
	unsigned int nconnecting;
	struct loop_timer retry;	/* while down */
	bool down;			/* the last connection to it failed */
	uint32_t backoff_ms;
	uint64_t down_since_ns;
	const char *warned;		/* what was last logged about it */
};

/*
 * A peer process, between one address of ours and one of its own: what comes over it speaks for QPs
 * at that address only. conn is NULL while the session is lost and QPs still hope for it.
 */
struct session {
	struct ring node;
	struct ctrl *ctrl;
	uint64_t nonce;
	struct addr local;
	struct addr peer;
	uint64_t conn_id;		/* of the connection that is or was */
	struct conn *conn;		/* the place for one per rail */
	struct greet *greet;		/* our own attempt that has sent COMMIT */
	struct session *twin;		/* the other end, inside this process */
	struct ring qps;		/* paired, or being so */
	struct ring given;		/* of struct key_given; guarded by book.lock */
	struct ring told;		/* those whose KEY_DELETED is awaited, oldest first; as well */
	bool held;			/* session_lose() still needs it */
	bool live;			/* guarded by book.lock for those who are not us */
	struct loop_timer beat;
	unsigned int silent_beats;
	unsigned int idle_beats;
};

enum pair_state {
	PAIR_SEEKING,		/* looking for the peer, or for its session */
	PAIR_WAITING,		/* the peer is to come to us */
	PAIR_ADDED,		/* leader: waits for CONFIRM */
	PAIR_CONNECTED,		/* our READY is sent */
	PAIR_READY,
	PAIR_REFUSED,		/* one side could not make paths: path 0 for this generation */
};

enum key_ask_state {
	KEY_ASK_FREE,
	KEY_ASK_WANTED,
	KEY_ASK_SENT,
	KEY_ASK_DENIED,		/* free again in a moment */
};

struct ctrl_qp {
	struct ctrl *ctrl;
	void *cookie;
	struct ctrl_qp_info info;

	/* Guarded by ctrl->lock. */
	struct ring command;
	bool want_up;
	bool silenced;			/* from here on no callback */
	bool want_down;			/* and none runs any more */
	bool want_error;
	uint32_t error_reason;

	struct qp_name name;		/* on ctrl->qps */
	struct registrar_entry *entry;

	/* ctrl_seek.c */
	struct addr from;		/* in its GID */
	struct host *host;		/* of the peer; NULL: there is no way to look for it */
	struct ring host_node;
	struct loop_timer seek;
	bool seeking;
	uint32_t backoff_ms;
	uint64_t seek_since_ns;
	unsigned int finds_open;	/* QP_FINDs without an answer */
	struct greet *greet;

	/* ctrl_pair.c */
	enum pair_state state;
	struct session *session;	/* with session_node; kept while it is lost */
	struct ring session_node;
	bool attached;			/* session is live and both know of the pair */
	uint32_t pair_id;		/* not 0 once READY was sent, or ADD was */
	uint32_t peer_generation;
	uint64_t peer_pd_id;
	uint32_t own_mask;
	uint32_t peer_mask;
	bool peer_ready;
	unsigned int offers_left;	/* keys that the peer may still tell unasked */
	bool error_pending;
	uint32_t error_told;

	/* Any thread; see ctrl_key.c. Each: rkey << 32 | enum key_ask_state. */
	_Atomic(uint64_t) asks[CTRL_KEY_ASKS];
	_Atomic(bool) asking;
	struct ctrl_qp *asking_next;
	struct loop_timer asks_denied;
};

/* ctrl.c */
void ctrl_log(struct ctrl *ctrl, enum ctrl_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Around each callback. false: the QP is down, do not call. */
bool ctrl_callback_begin(struct ctrl_qp *qp);
void ctrl_callback_end(struct ctrl_qp *qp);
struct ctrl_qp *ctrl_qp_find(struct ctrl *ctrl, const uint8_t gid[16], uint32_t qpn);
void ctrl_commanded(struct ctrl *ctrl);

/* ctrl_seek.c */
int seek_start(struct ctrl_qp *qp);		/* the QP is up */
void seek_again(struct ctrl_qp *qp);		/* the session was lost, or the pair was not made */
void seek_later(struct ctrl_qp *qp);		/* refused for the moment: the back-off goes on */
void seek_pause(struct ctrl_qp *qp);		/* found, or to be found */
void seek_stop(struct ctrl_qp *qp);
void seek_missing(struct ctrl_qp *qp);		/* a session answered that it has no such QP */
void seek_session_live(struct session *session);	/* for everyone who looks for its host */

/* How an attempt to reach a host ended. */
enum greet_result {
	GREET_SESSION,		/* there is a session with its process */
	GREET_AGAIN,		/* the host answered, the QP was not found */
	GREET_REFUSED,		/* nobody listens, or the connection broke */
	GREET_SILENT,		/* no connection: try rarely */
	GREET_MUTE,		/* connected, but no answer: one process, not its host */
	GREET_WRONG,		/* no agreement is possible: try rarely, and warn */
	GREET_ABANDONED,	/* by us */
};
void seek_greet_end(struct host *host, struct ctrl_qp *qp, enum greet_result result,
		    const char *why);

/* ctrl_greet.c */
int greet_start(struct host *host, struct ctrl_qp *qp);
void greet_abandon(struct greet *greet);	/* its QP does not want it any more */
void greet_accept(struct ctrl *ctrl, struct conn *conn, const struct wire_hello *hello,
		  const uint8_t *raw, size_t len);
void greet_close_all(struct ctrl *ctrl);

/* ctrl_session.c */
struct session *session_find(struct ctrl *ctrl, uint64_t nonce, const struct addr *local,
			     const struct addr *peer);
struct session *session_get(struct ctrl *ctrl, uint64_t nonce, const struct addr *local,
			    const struct addr *peer);
struct session *session_self(struct ctrl *ctrl, bool leader);
/* Is it between the addresses of this QP and of its peer? */
bool session_serves(const struct session *session, const struct ctrl_qp *qp);
void session_up(struct session *session, struct conn *conn, uint64_t conn_id);
void session_lose(struct session *session, const char *why);
void session_unused(struct session *session);	/* frees it if nobody needs it */
void session_send(struct session *session, const struct wire_msg *msg);
void session_close_all(struct ctrl *ctrl);

/* ctrl_pair.c */
void pair_self_up(struct ctrl_qp *qp);	/* in place of seeking */
void pair_down(struct ctrl_qp *qp);
void pair_error(struct ctrl_qp *qp, uint32_t reason);
bool pair_leads(const struct ctrl_qp *qp);
bool pair_with_self(const struct ctrl_qp *qp);
void pair_find(struct ctrl_qp *qp, struct session *session);
void pair_session_lost(struct ctrl_qp *qp);
void pair_message(struct session *session, const struct wire_msg *msg);
void pair_msg_init(const struct ctrl_qp *qp, enum wire_type type, struct wire_msg *msg);
/* The QP that msg is for, if it and its sender belong together; else NULL. */
struct ctrl_qp *pair_target(struct session *session, const struct wire_qp_msg *msg);
/* Is msg of the pairing that qp is in now? Whether over its session is another question. */
bool pair_is_of_round(const struct ctrl_qp *qp, const struct wire_qp_msg *msg);

/* ctrl_key.c */
int key_book_init(struct key_book *book);
void key_offers_send(struct ctrl_qp *qp);
void key_asks_send(struct ctrl_qp *qp);
void key_asks_lost(struct ctrl_qp *qp);	/* to be sent again */
void key_asks_drop(struct ctrl_qp *qp);	/* of a peer that is gone, or of a QP that goes */
void key_asks_drain(struct ctrl *ctrl);		/* all QPs with keys to ask */
void key_message(struct session *session, const struct wire_msg *msg);
void key_withdrawals_send(struct ctrl *ctrl);
void key_session_live(struct session *session, bool live);
void key_session_forget(struct session *session);
/* Has the peer left a withdrawal without an answer for that long? */
bool key_session_overdue(struct session *session, uint64_t limit_ms);

#endif
