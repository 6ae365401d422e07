/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Stream sockets with control messages on them. See ctrl_conn.h.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ctrl_conn.h"

/* A peer that does not read this much is as good as gone; a stranger is not given as much. */
#define TX_LIMIT_BYTES		(8u << 20)
#define TX_STRANGER_BYTES	(64u << 10)

static void conn_event(struct loop_watch *watch, uint32_t events);

static struct conn *conn_new(struct loop *loop, const struct conn_ops *ops, void *owner)
{
	struct conn *conn = calloc(1, sizeof(*conn));

	if (!conn)
		return NULL;
	conn->loop = loop;
	conn->ops = ops;
	conn->owner = owner;
	conn->tx_limit = TX_STRANGER_BYTES;
	conn->watch.fd = -1;
	conn->watch.fn = conn_event;
	ring_init(&conn->watch.node);
	return conn;
}

static void no_delay(int fd)
{
	int one = 1;

	/* Fails on the socket pair inside one process, where it does not matter. */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

struct conn *conn_adopt(struct loop *loop, int fd, const struct conn_ops *ops, void *owner)
{
	struct conn *conn = conn_new(loop, ops, owner);
	int err;

	if (!conn) {
		close(fd);
		errno = ENOMEM;
		return NULL;
	}
	no_delay(fd);
	err = loop_watch_open(loop, &conn->watch, fd, EPOLLIN);
	if (!err)
		return conn;
	free(conn);
	errno = err;
	return NULL;
}

/* With loop->fd_lock held. The descriptor is in the watch even where connecting failed. */
static int connect_start(struct conn *conn, const struct sockaddr_storage *from, socklen_t from_len,
			 const struct sockaddr_storage *to, socklen_t to_len)
{
	int one = 1, fd, err;

	fd = socket(to->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	err = loop_watch_open(conn->loop, &conn->watch, fd, EPOLLOUT);
	if (err)
		return err;
	no_delay(fd);
	/* Many processes of a host connect from the same address: pick the port when connecting. */
	setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
	if (bind(fd, (const struct sockaddr *)from, from_len))
		return errno;
	if (connect(fd, (const struct sockaddr *)to, to_len) && errno != EINPROGRESS)
		return errno;
	return 0;
}

struct conn *conn_connect(struct loop *loop, const struct addr *from, const struct addr *to,
			  uint16_t port, const struct conn_ops *ops, void *owner)
{
	struct conn *conn = conn_new(loop, ops, owner);
	struct sockaddr_storage from_sa, to_sa;
	socklen_t from_len, to_len;
	int err;

	if (!conn)
		return NULL;
	conn->connecting = true;
	from_len = addr_to_socket(from, 0, &from_sa);
	to_len = addr_to_socket(to, port, &to_sa);
	loop_fd_begin(loop);
	err = connect_start(conn, &from_sa, from_len, &to_sa, to_len);
	loop_fd_end(loop);
	if (!err)
		return conn;
	conn_close(conn);
	errno = err;
	return NULL;
}

int conn_pair(struct loop *loop, struct conn *conns[2], const struct conn_ops *ops)
{
	int fds[2], err;

	loop_fd_begin(loop);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds)) {
		err = errno;
		loop_fd_end(loop);
		return err;
	}
	conns[0] = conn_adopt(loop, fds[0], ops, NULL);
	err = conns[0] ? 0 : errno;
	conns[1] = conn_adopt(loop, fds[1], ops, NULL);
	if (!conns[1])
		err = errno;
	loop_fd_end(loop);
	if (!err)
		return 0;
	for (int i = 0; i < 2; i++)
		if (conns[i])
			conn_close(conns[i]);
	return err;
}

void conn_close(struct conn *conn)
{
	if (conn->closed)
		return;
	conn->closed = true;
	loop_watch_close(conn->loop, &conn->watch);
	free(conn->tx);
	conn->tx = NULL;
	loop_bury(conn->loop, &conn->grave);
}

int conn_fd(const struct conn *conn)
{
	return conn->watch.fd;
}

void conn_addresses(const struct conn *conn, struct addr *local, struct addr *peer)
{
	struct sockaddr_storage sa = { 0 };
	socklen_t len = sizeof(sa);

	getsockname(conn->watch.fd, (struct sockaddr *)&sa, &len);
	addr_from_socket(local, &sa);
	memset(&sa, 0, sizeof(sa));
	len = sizeof(sa);
	getpeername(conn->watch.fd, (struct sockaddr *)&sa, &len);
	addr_from_socket(peer, &sa);
}

/* The loop will see the end of the stream and call ended(): never from inside conn_send(). */
static void conn_fail(struct conn *conn, int err)
{
	if (conn->failed)
		return;
	conn->failed = err;
	shutdown(conn->watch.fd, SHUT_RDWR);
}

void conn_trust(struct conn *conn)
{
	conn->tx_limit = TX_LIMIT_BYTES;
}

void conn_allow(struct conn *conn)
{
	if (conn->tx_limit <= TX_LIMIT_BYTES - WIRE_MSG_MAX)
		conn->tx_limit += WIRE_MSG_MAX;
}

static bool tx_reserve(struct conn *conn, size_t len)
{
	size_t size = conn->tx_size ? conn->tx_size : 4 * WIRE_MSG_MAX;
	uint8_t *tx;

	if (conn->tx_len + len > conn->tx_limit)
		return false;
	while (size < conn->tx_len + len)
		size *= 2;
	if (size == conn->tx_size)
		return true;
	tx = realloc(conn->tx, size);
	if (!tx)
		return false;
	conn->tx = tx;
	conn->tx_size = size;
	return true;
}

static ssize_t send_some(struct conn *conn, const uint8_t *buf, size_t len)
{
	ssize_t sent = send(conn->watch.fd, buf, len, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (sent >= 0)
		return sent;
	if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
		return 0;
	conn_fail(conn, errno);
	return -1;
}

void conn_send(struct conn *conn, const struct wire_msg *msg)
{
	uint8_t buf[WIRE_MSG_MAX];
	size_t len = wire_encode(msg, buf);
	ssize_t sent = 0;

	if (conn->closed || conn->failed || !len)
		return;
	if (!conn->tx_len)
		sent = send_some(conn, buf, len);
	if (sent < 0 || (size_t)sent == len)
		return;
	if (!tx_reserve(conn, len - (size_t)sent)) {
		conn_fail(conn, ENOBUFS);
		return;
	}
	memcpy(conn->tx + conn->tx_len, buf + sent, len - (size_t)sent);
	conn->tx_len += len - (size_t)sent;
	loop_watch_events(conn->loop, &conn->watch, EPOLLIN | EPOLLOUT);
}

static void conn_flush(struct conn *conn)
{
	ssize_t sent = send_some(conn, conn->tx, conn->tx_len);

	if (sent <= 0)
		return;
	conn->tx_len -= (size_t)sent;
	memmove(conn->tx, conn->tx + sent, conn->tx_len);
	if (!conn->tx_len)
		loop_watch_events(conn->loop, &conn->watch, EPOLLIN);
}

static void conn_opened(struct conn *conn)
{
	socklen_t len = sizeof(int);
	int err = 0;

	if (getsockopt(conn->watch.fd, SOL_SOCKET, SO_ERROR, &err, &len))
		err = errno;
	if (err) {
		conn->ops->ended(conn, err);
		return;
	}
	conn->connecting = false;
	loop_watch_events(conn->loop, &conn->watch, EPOLLIN);
	conn->ops->opened(conn);
}

/* Gives every complete message to the owner, who may change or close the connection meanwhile. */
static void messages_take(struct conn *conn)
{
	size_t at = 0, len;
	struct wire_msg msg;
	int err = 0;

	while (!conn->closed) {
		err = wire_measure(conn->rx + at, conn->rx_len - at, &len);
		if (err || len > conn->rx_len - at)
			break;
		err = wire_decode(conn->rx + at, len, &msg);
		if (err)
			break;
		conn->ops->message(conn, &msg, conn->rx + at, len);
		at += len;
	}
	if (conn->closed)
		return;
	conn->rx_len -= at;
	memmove(conn->rx, conn->rx + at, conn->rx_len);
	if (err && err != EAGAIN)
		conn->ops->ended(conn, err);
}

static void conn_read(struct conn *conn)
{
	ssize_t got = recv(conn->watch.fd, conn->rx + conn->rx_len, sizeof(conn->rx) - conn->rx_len,
			   MSG_DONTWAIT);

	if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return;
	if (got <= 0) {
		conn->ops->ended(conn, conn->failed ? conn->failed : got ? errno : ECONNRESET);
		return;
	}
	conn->rx_len += (size_t)got;
	messages_take(conn);
}

static void conn_event(struct loop_watch *watch, uint32_t events)
{
	struct conn *conn = ring_entry(watch, struct conn, watch);

	if (conn->connecting) {
		conn_opened(conn);
		return;
	}
	if ((events & EPOLLOUT) && conn->tx_len)
		conn_flush(conn);
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP))
		conn_read(conn);
}
