/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * One stream socket that carries control messages: connecting, cutting the stream into messages,
 * queueing what the socket does not take. It knows the framing (wire.h), not what messages mean.
 */
#ifndef BOND_CTRL_CONN_H
#define BOND_CTRL_CONN_H

#include "ctrl_addr.h"
#include "ctrl_loop.h"
#include "wire.h"

struct conn;

/*
 * Called from the loop only, never from within conn_send(); each may call conn_close(), or hand the
 * connection to another owner.
 */
struct conn_ops {
	void (*opened)(struct conn *conn);	/* conn_connect() has connected */
	/* raw: the bytes of msg. */
	void (*message)(struct conn *conn, const struct wire_msg *msg, const uint8_t *raw,
			size_t len);
	/*
	 * Nothing more will come: ECONNRESET for an end of the stream, EPROTO, EPROTONOSUPPORT or a
	 * socket error. One last message may still be sent. The owner must call conn_close().
	 */
	void (*ended)(struct conn *conn, int err);
};

struct conn {
	struct loop_grave grave;	/* first: conn_close() buries it */
	struct loop *loop;
	struct loop_watch watch;
	const struct conn_ops *ops;
	void *owner;
	bool connecting;
	bool closed;
	int failed;			/* errno of a send; told by ended() */
	uint8_t *tx;			/* what the socket has not taken yet */
	size_t tx_len;
	size_t tx_size;
	size_t tx_limit;
	size_t rx_len;
	uint8_t rx[2 * WIRE_MSG_MAX];
};

/* Takes fd over, also when it fails. NULL with errno. */
struct conn *conn_adopt(struct loop *loop, int fd, const struct conn_ops *ops, void *owner);
/*
 * Connects from one address to another without waiting. port: of to, in host byte order. NULL with
 * errno; later failures come by ended().
 */
struct conn *conn_connect(struct loop *loop, const struct addr *from, const struct addr *to,
			  uint16_t port, const struct conn_ops *ops, void *owner);
/* Two connections that talk to each other inside this process. */
int conn_pair(struct loop *loop, struct conn *conns[2], const struct conn_ops *ops);
void conn_close(struct conn *conn);

/* What the socket does not take is kept, 64 KiB of it; where that is full the connection ends. */
void conn_send(struct conn *conn, const struct wire_msg *msg);
/* Room for one message more, which no answer is: what we begin may not end the connection. */
void conn_allow(struct conn *conn);
/* The other end is no stranger any more: 8 MiB. */
void conn_trust(struct conn *conn);
/* Hands the descriptor out, for another process; it stays open until conn_close(). */
int conn_fd(const struct conn *conn);
void conn_addresses(const struct conn *conn, struct addr *local, struct addr *peer);

#endif
