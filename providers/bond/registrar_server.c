/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Holding the control port: accepting connections, reading their first message, and handing them to
 * the process that owns the QP they name. See registrar.h; the other half is registrar.c.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "registrar_priv.h"

#define BACKLOG			128
#define VISITORS_MAX		64
#define ACCEPTS_PER_EVENT	16
#define ACCEPT_PAUSE_MS		200

struct client {
	struct loop_watch watch;
	struct ring node;
	struct registrar *registrar;
	struct ring qps;
};

/* A QP of a client. */
struct remote_qp {
	struct qp_name name;	/* on registrar->remote */
	struct ring node;	/* on client->qps */
	struct client *client;
};

struct visitor {
	struct ring node;
	struct loop_timer deadline;
	struct registrar *registrar;
	struct conn *conn;
};

/* The newest first: a QPN that was freed and given to another process is announced again. */
static struct remote_qp *remote_find(struct registrar *registrar, const uint8_t gid[16],
				     uint32_t qpn, const struct client *client)
{
	struct qp_name *name = NULL;

	while ((name = qp_names_find(&registrar->remote, gid, qpn, name))) {
		struct remote_qp *qp = ring_entry(name, struct remote_qp, name);

		if (!client || qp->client == client)
			return qp;
	}
	return NULL;
}

static void remote_free(struct remote_qp *qp)
{
	ring_remove(&qp->name.bucket);
	ring_remove(&qp->node);
	free(qp);
}

static void remote_add(struct client *client, const struct local_msg *msg)
{
	struct remote_qp *qp = calloc(1, sizeof(*qp));

	if (!qp)
		return;
	qp->client = client;
	ring_append(&client->qps, &qp->node);
	qp_names_add(&client->registrar->remote, &qp->name, msg->gid, msg->qpn);
}

static void client_free(struct client *client)
{
	struct ring *node, *after;

	ring_for_each(node, after, &client->qps)
		remote_free(ring_entry(node, struct remote_qp, node));
	loop_watch_close(client->registrar->config.loop, &client->watch);
	ring_remove(&client->node);
	free(client);
}

static void client_event(struct loop_watch *watch, uint32_t events)
{
	struct client *client = ring_entry(watch, struct client, watch);
	struct remote_qp *qp;
	struct local_msg msg;
	ssize_t len;

	(void)events;
	len = recv(watch->fd, &msg, sizeof(msg), MSG_DONTWAIT);
	if (len < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (len != sizeof(msg) || (msg.op != LOCAL_ADD && msg.op != LOCAL_REMOVE)) {
		client_free(client);
		return;
	}
	if (msg.op == LOCAL_ADD) {
		remote_add(client, &msg);
		return;
	}
	qp = remote_find(client->registrar, msg.gid, msg.qpn, client);
	if (qp)
		remote_free(qp);
}

/*
 * One that waits at the listener is given to owner by open(), which closes fd where it fails; owner
 * NULL: there was no memory for it. Where it is lack of something it would be reported again and
 * again: then the listener pauses.
 */
static int accept_for(struct registrar *registrar, struct loop_watch *listener,
		      int (*open)(void *owner, int fd), void *owner)
{
	struct loop *loop = registrar->config.loop;
	int err = ENOMEM, fd;

	if (owner) {
		loop_fd_begin(loop);
		fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		err = fd < 0 ? errno : open(owner, fd);
		loop_fd_end(loop);
	}
	if (err == EMFILE || err == ENFILE || err == ENOMEM || err == ENOBUFS) {
		loop_watch_events(loop, listener, 0);
		loop_timer_in_ms(loop, &registrar->resume, ACCEPT_PAUSE_MS);
	}
	return err;
}

static int client_open(void *owner, int fd)
{
	struct client *client = owner;

	if (registrar_trusts(fd, NULL))
		return loop_watch_open(client->registrar->config.loop, &client->watch, fd, EPOLLIN);
	close(fd);
	return EACCES;
}

static void local_event(struct loop_watch *watch, uint32_t events)
{
	struct registrar *registrar = ring_entry(watch, struct registrar, local);
	struct client *client = calloc(1, sizeof(*client));
	const struct local_msg welcome = { .op = LOCAL_WELCOME };

	(void)events;
	if (client) {
		client->watch.fn = client_event;
		client->registrar = registrar;
		ring_init(&client->qps);
	}
	if (accept_for(registrar, watch, client_open, client)) {
		free(client);
		return;
	}
	ring_append(&registrar->clients, &client->node);
	/* Where it does not take this, the next event is its end. */
	send(client->watch.fd, &welcome, sizeof(welcome), MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void visitor_free(struct visitor *visitor)
{
	struct registrar *registrar = visitor->registrar;

	loop_timer_cancel(registrar->config.loop, &visitor->deadline);
	if (visitor->conn)
		conn_close(visitor->conn);
	ring_remove(&visitor->node);
	registrar->nvisitors--;
	free(visitor);
}

static void visitor_refuse(struct visitor *visitor, enum wire_refusal why)
{
	struct wire_msg msg = { .type = WIRE_REFUSE, .refusal = why };

	conn_send(visitor->conn, &msg);
	visitor_free(visitor);
}

static void visitor_late(struct loop_timer *timer)
{
	visitor_free(ring_entry(timer, struct visitor, deadline));
}

/* A client that does not take it is not waited for: the connection is closed, the peer retries. */
static void hand_over(struct client *client, int fd, const uint8_t *hello, size_t len)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct local_msg msg = { .op = LOCAL_HAND };
	struct iovec iov[2] = {
		{ .iov_base = &msg, .iov_len = sizeof(msg) },
		{ .iov_base = (void *)hello, .iov_len = len },
	};
	struct msghdr mh = {
		.msg_iov = iov,
		.msg_iovlen = 2,
		.msg_control = control.room,
		.msg_controllen = sizeof(control.room),
	};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&mh);

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
	sendmsg(client->watch.fd, &mh, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void visitor_message(struct conn *conn, const struct wire_msg *msg, const uint8_t *raw,
			    size_t len)
{
	struct visitor *visitor = conn->owner;
	struct registrar *registrar = visitor->registrar;
	struct remote_qp *qp;

	/* Nothing may follow a HELLO before its answer: here it would be lost. */
	if (msg->type != WIRE_HELLO || conn->rx_len != len) {
		visitor_free(visitor);
		return;
	}
	if (registrar->config.ops->owns(registrar->config.arg, msg->hello.target_gid,
					msg->hello.target_qpn)) {
		visitor->conn = NULL;
		visitor_free(visitor);
		registrar->config.ops->connection(registrar->config.arg, conn, &msg->hello, raw,
						  len);
		return;
	}
	qp = remote_find(registrar, msg->hello.target_gid, msg->hello.target_qpn, NULL);
	if (!qp) {
		visitor_refuse(visitor, WIRE_REFUSE_UNKNOWN);
		return;
	}
	hand_over(qp->client, conn_fd(conn), raw, len);
	visitor_free(visitor);
}

static void visitor_ended(struct conn *conn, int err)
{
	if (err == EPROTONOSUPPORT)
		visitor_refuse(conn->owner, WIRE_REFUSE_VERSION);
	else
		visitor_free(conn->owner);
}

static const struct conn_ops visitor_ops = {
	.message = visitor_message,
	.ended = visitor_ended,
};

static int visitor_open(void *owner, int fd)
{
	struct visitor *visitor = owner;

	visitor->conn = conn_adopt(visitor->registrar->config.loop, fd, &visitor_ops, visitor);
	return visitor->conn ? 0 : errno;
}

static int visitor_accept(struct registrar *registrar)
{
	struct visitor *visitor = calloc(1, sizeof(*visitor));
	int err;

	if (visitor)
		visitor->registrar = registrar;
	err = accept_for(registrar, &registrar->port4or6, visitor_open, visitor);
	if (err) {
		free(visitor);
		return err;
	}
	visitor->deadline.fn = visitor_late;
	loop_timer_in_ms(registrar->config.loop, &visitor->deadline, registrar->config.greet_ms);
	ring_append(&registrar->visitors, &visitor->node);
	if (++registrar->nvisitors > VISITORS_MAX)
		visitor_free(ring_entry(registrar->visitors.next, struct visitor, node));
	return 0;
}

static void port_event(struct loop_watch *watch, uint32_t events)
{
	struct registrar *registrar = ring_entry(watch, struct registrar, port4or6);
	int err = 0;

	(void)events;
	for (int i = 0; i < ACCEPTS_PER_EVENT && !err; i++)
		err = visitor_accept(registrar);
}

static void accept_resume(struct loop_timer *timer)
{
	struct registrar *registrar = ring_entry(timer, struct registrar, resume);

	loop_watch_events(registrar->config.loop, &registrar->port4or6, EPOLLIN);
	loop_watch_events(registrar->config.loop, &registrar->local, EPOLLIN);
}

static int listen_on(int fd, const void *sa, socklen_t len)
{
	if (fd < 0)
		return errno;
	if (bind(fd, sa, len) || listen(fd, BACKLOG))
		return errno;
	return 0;
}

/* With fd_lock held. Both IP versions on one socket, or IPv4 alone where IPv6 is switched off. */
static int port_socket(uint16_t port, int *fd)
{
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	struct sockaddr_in in4 = { .sin_family = AF_INET, .sin_port = htons(port) };
	const void *sa = &in6;
	socklen_t len = sizeof(in6);
	int one = 1, zero = 0;

	*fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (*fd < 0) {
		sa = &in4;
		len = sizeof(in4);
		*fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	} else {
		setsockopt(*fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
	}
	/* Sessions that came in by an earlier registrar still have this local port. */
	setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	return listen_on(*fd, sa, len);
}

static int local_socket(uint16_t port, int *fd)
{
	struct sockaddr_un sa;
	socklen_t len = registrar_local_name(port, &sa);

	*fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	return listen_on(*fd, &sa, len);
}

static int watch_listener(struct loop *loop, struct loop_watch *watch, int fd, int err)
{
	if (!err)
		return loop_watch_open(loop, watch, fd, EPOLLIN);
	if (fd >= 0)
		close(fd);
	return err;
}

void registrar_server_init(struct registrar *registrar)
{
	registrar->port4or6.fd = -1;
	registrar->port4or6.fn = port_event;
	registrar->local.fd = -1;
	registrar->local.fn = local_event;
	registrar->resume.fn = accept_resume;
	ring_init(&registrar->clients);
	ring_init(&registrar->visitors);
	qp_names_init(&registrar->remote);
}

int registrar_server_open(struct registrar *registrar)
{
	struct loop *loop = registrar->config.loop;
	int fd, err;

	/* The unix socket first: whoever has it may try the port, nobody else does. */
	loop_fd_begin(loop);
	err = local_socket(registrar->config.port, &fd);
	err = watch_listener(loop, &registrar->local, fd, err);
	loop_fd_end(loop);
	if (err)
		return err;
	loop_fd_begin(loop);
	err = port_socket(registrar->config.port, &fd);
	err = watch_listener(loop, &registrar->port4or6, fd, err);
	loop_fd_end(loop);
	if (!err)
		return 0;
	loop_watch_close(loop, &registrar->local);
	/* Not EADDRINUSE: no bond process has the port, or it would have had the unix socket. */
	return err == EADDRINUSE ? EBUSY : err;
}

void registrar_server_close(struct registrar *registrar)
{
	struct ring *node, *after;

	/* The clients last: when they see the end, the port is free for them. */
	loop_timer_cancel(registrar->config.loop, &registrar->resume);
	loop_watch_close(registrar->config.loop, &registrar->port4or6);
	loop_watch_close(registrar->config.loop, &registrar->local);
	ring_for_each(node, after, &registrar->visitors)
		visitor_free(ring_entry(node, struct visitor, node));
	ring_for_each(node, after, &registrar->clients)
		client_free(ring_entry(node, struct client, node));
}
