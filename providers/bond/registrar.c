/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Becoming the host's registrar, or the client of the one there is, and again when it goes. The
 * server's half is registrar_server.c.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "registrar_priv.h"

#define RETRY_MIN_MS	5
#define RETRY_MAX_MS	1000
#define WARN_BACKOFF_MS	80	/* while the registrar changes there is no news */

static void registrar_try(struct registrar *registrar);

socklen_t registrar_local_name(uint16_t port, struct sockaddr_un *sa)
{
	int len;

	memset(sa, 0, sizeof(*sa));
	sa->sun_family = AF_UNIX;
	/* sun_path[0] stays 0: an abstract name, which lives in the network name space. */
	len = snprintf(sa->sun_path + 1, sizeof(sa->sun_path) - 1, "rdma-bond/%u/1", port);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

/*
 * Only root and the same user: who is given another process' connections speaks for its QPs. Both
 * sides of the unix socket ask.
 */
bool registrar_trusts(int fd, uint32_t *uid)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		return false;
	if (uid)
		*uid = cred.uid;
	return cred.uid == 0 || cred.uid == geteuid();
}

static pid_t registrar_pid(int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) ? 0 : cred.pid;
}

/* Once, when it has lasted, until there is a working registrar again. */
__attribute__((format(printf, 2, 3)))
static void registrar_warn(struct registrar *registrar, const char *fmt, ...)
{
	char line[160];
	va_list args;

	if (registrar->warned || registrar->backoff_ms < WARN_BACKOFF_MS)
		return;
	registrar->warned = true;
	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	registrar->config.ops->warn(registrar->config.arg, line);
}

static void retry_later(struct registrar *registrar)
{
	registrar->state = REGISTRAR_TRYING;
	loop_timer_in_ms(registrar->config.loop, &registrar->retry, registrar->backoff_ms);
	registrar->backoff_ms *= 2;
	if (registrar->backoff_ms > RETRY_MAX_MS)
		registrar->backoff_ms = RETRY_MAX_MS;
}

static void registrar_works(struct registrar *registrar, enum registrar_state state)
{
	registrar->state = state;
	registrar->backoff_ms = RETRY_MIN_MS;
	registrar->warned = false;
}

/* The registrar knows nothing any more: the next one must be told everything. */
static void entries_forget(struct registrar *registrar)
{
	struct ring *node, *after;

	ring_splice(&registrar->entries, &registrar->untold);
	ring_for_each(node, after, &registrar->entries) {
		struct registrar_entry *entry = ring_entry(node, struct registrar_entry, node);

		ring_remove(node);
		if (entry->state == ENTRY_REMOVED) {
			free(entry);
			continue;
		}
		entry->state = ENTRY_NEW;
		ring_append(&registrar->untold, node);
	}
}

static void client_lost(struct registrar *registrar)
{
	loop_watch_close(registrar->config.loop, &registrar->to_server);
	entries_forget(registrar);
	registrar_try(registrar);
}

/* It serves its own user and root alone. */
static void client_refused(struct registrar *registrar, uint32_t uid)
{
	registrar_warn(registrar, "control port %u is held by user %u: run rdma-bond agent",
		       registrar->config.port, uid);
	loop_watch_close(registrar->config.loop, &registrar->to_server);
	retry_later(registrar);
}

static int entry_tell(struct registrar *registrar, const struct registrar_entry *entry)
{
	struct local_msg msg = {
		.op = entry->state == ENTRY_REMOVED ? LOCAL_REMOVE : LOCAL_ADD,
		.qpn = entry->qpn,
	};

	memcpy(msg.gid, entry->gid, sizeof(msg.gid));
	if (send(registrar->to_server.fd, &msg, sizeof(msg), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return errno;
	return 0;
}

/* Tells what the socket takes; the rest when it takes more. */
static void entries_tell(struct registrar *registrar)
{
	uint32_t events = EPOLLIN;

	while (!ring_empty(&registrar->untold)) {
		struct registrar_entry *entry =
			ring_entry(registrar->untold.next, struct registrar_entry, node);

		/* Any error but a full socket is seen as its end by client_event(). */
		if (entry_tell(registrar, entry)) {
			events |= EPOLLOUT;
			break;
		}
		ring_remove(&entry->node);
		if (entry->state == ENTRY_REMOVED) {
			free(entry);
			continue;
		}
		entry->state = ENTRY_KNOWN;
		ring_append(&registrar->entries, &entry->node);
	}
	loop_watch_events(registrar->config.loop, &registrar->to_server, events);
}

/* With fd_lock held. The descriptor that came with the message, or -1. */
static int taken_fd(struct msghdr *mh)
{
	struct cmsghdr *cmsg;
	int fd = -1;

	for (cmsg = CMSG_FIRSTHDR(mh); cmsg; cmsg = CMSG_NXTHDR(mh, cmsg)) {
		if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
			continue;
		if (cmsg->cmsg_len == CMSG_LEN(sizeof(int)))
			memcpy(&fd, CMSG_DATA(cmsg), sizeof(fd));
	}
	return fd;
}

/* The connections that come have no owner until one answers their HELLO. */
static void orphan_ended(struct conn *conn, int err)
{
	(void)err;
	conn_close(conn);
}

static const struct conn_ops orphan_ops = { .ended = orphan_ended };

/* What came over the unix socket: the HELLO and its length, and the connection where one came. */
static ssize_t hand_receive(struct registrar *registrar, uint8_t *hello, struct conn **conn)
{
	struct loop *loop = registrar->config.loop;
	char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(sizeof(long))));
	struct local_msg msg;
	struct iovec iov[2] = {
		{ .iov_base = &msg, .iov_len = sizeof(msg) },
		{ .iov_base = hello, .iov_len = WIRE_MSG_MAX },
	};
	struct msghdr mh = {
		.msg_iov = iov,
		.msg_iovlen = 2,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	ssize_t len;
	int fd;

	loop_fd_begin(loop);
	len = recvmsg(registrar->to_server.fd, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	fd = len < 0 ? -1 : taken_fd(&mh);
	if (fd >= 0)
		*conn = conn_adopt(loop, fd, &orphan_ops, NULL);
	loop_fd_end(loop);
	if (len > 0 && (len < (ssize_t)sizeof(msg) || msg.op != LOCAL_HAND))
		return 0;
	return len > 0 ? len - (ssize_t)sizeof(msg) : len;
}

/* Returns false where the registrar has gone. */
static bool connection_take(struct registrar *registrar)
{
	const struct registrar_config *config = &registrar->config;
	uint8_t hello[WIRE_MSG_MAX];
	struct conn *conn = NULL;
	struct wire_msg msg;
	ssize_t len = hand_receive(registrar, hello, &conn);

	if (len < 0)
		return errno == EAGAIN || errno == EINTR;
	if (!conn)
		return len > 0;		/* no descriptor left in this process: the peer retries */
	if (len > 0 && !wire_decode(hello, (size_t)len, &msg) && msg.type == WIRE_HELLO)
		config->ops->connection(config->arg, conn, &msg.hello, hello, (size_t)len);
	else
		conn_close(conn);
	return true;
}

static void welcome_take(struct registrar *registrar)
{
	struct local_msg msg;
	ssize_t len = recv(registrar->to_server.fd, &msg, sizeof(msg), MSG_DONTWAIT);
	uint32_t uid = 0;

	if (len < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (len != sizeof(msg) || msg.op != LOCAL_WELCOME) {
		registrar_trusts(registrar->to_server.fd, &uid);
		client_refused(registrar, uid);
		return;
	}
	loop_timer_cancel(registrar->config.loop, &registrar->retry);
	registrar_works(registrar, REGISTRAR_CLIENT);
	entries_tell(registrar);
}

static void client_event(struct loop_watch *watch, uint32_t events)
{
	struct registrar *registrar = ring_entry(watch, struct registrar, to_server);

	if (registrar->state == REGISTRAR_ASKING) {
		welcome_take(registrar);
		return;
	}
	if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) && !connection_take(registrar)) {
		client_lost(registrar);
		return;
	}
	if (events & EPOLLOUT)
		entries_tell(registrar);
}

/* Connecting a unix socket never waits: it is done, refused, or EAGAIN. */
static void client_open(struct registrar *registrar)
{
	struct loop *loop = registrar->config.loop;
	struct sockaddr_un sa;
	socklen_t len = registrar_local_name(registrar->config.port, &sa);
	uint32_t uid = 0;
	int fd, err;

	loop_fd_begin(loop);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	err = loop_watch_open(loop, &registrar->to_server, fd, EPOLLIN);
	loop_fd_end(loop);
	if (err || connect(fd, (struct sockaddr *)&sa, len)) {
		loop_watch_close(loop, &registrar->to_server);
		retry_later(registrar);
		return;
	}
	if (!registrar_trusts(fd, &uid)) {
		client_refused(registrar, uid);
		return;
	}
	registrar->state = REGISTRAR_ASKING;
	loop_timer_in_ms(loop, &registrar->retry, registrar->config.greet_ms);
}

/* The registrar's process is stopped, or hangs: until it goes on, or goes, no peer finds us. */
static void client_unanswered(struct registrar *registrar)
{
	registrar->backoff_ms = RETRY_MAX_MS;
	registrar_warn(registrar, "control port %u: process %d has it and does not answer",
		       registrar->config.port, (int)registrar_pid(registrar->to_server.fd));
	loop_watch_close(registrar->config.loop, &registrar->to_server);
	retry_later(registrar);
}

static void registrar_try(struct registrar *registrar)
{
	int err = registrar_server_open(registrar);

	if (!err) {
		registrar_works(registrar, REGISTRAR_SERVER);
		return;
	}
	if (err == EADDRINUSE) {
		client_open(registrar);
		return;
	}
	registrar_warn(registrar, "control port %u: %s", registrar->config.port,
		       err == EBUSY ? "in use by another program" : strerror(err));
	retry_later(registrar);
}

static void retry_due(struct loop_timer *timer)
{
	struct registrar *registrar = ring_entry(timer, struct registrar, retry);

	if (registrar->state == REGISTRAR_ASKING)
		client_unanswered(registrar);
	else
		registrar_try(registrar);
}

struct registrar *registrar_create(const struct registrar_config *config)
{
	struct registrar *registrar = calloc(1, sizeof(*registrar));

	if (!registrar)
		return NULL;
	registrar->config = *config;
	registrar->backoff_ms = RETRY_MIN_MS;
	registrar->retry.fn = retry_due;
	registrar->to_server.fd = -1;
	registrar->to_server.fn = client_event;
	ring_init(&registrar->entries);
	ring_init(&registrar->untold);
	registrar_server_init(registrar);
	return registrar;
}

void registrar_destroy(struct registrar *registrar)
{
	struct ring *node, *after;

	loop_timer_cancel(registrar->config.loop, &registrar->retry);
	registrar_server_close(registrar);
	loop_watch_close(registrar->config.loop, &registrar->to_server);
	ring_splice(&registrar->entries, &registrar->untold);
	ring_for_each(node, after, &registrar->entries)
		free(ring_entry(node, struct registrar_entry, node));
	free(registrar);
}

struct registrar_entry *registrar_add(struct registrar *registrar, const uint8_t gid[16],
				      uint32_t qpn)
{
	struct registrar_entry *entry = calloc(1, sizeof(*entry));

	if (!entry)
		return NULL;
	memcpy(entry->gid, gid, sizeof(entry->gid));
	entry->qpn = qpn;
	entry->state = ENTRY_NEW;
	ring_append(&registrar->untold, &entry->node);
	if (registrar->state == REGISTRAR_OFF)
		registrar_try(registrar);
	else if (registrar->state == REGISTRAR_CLIENT)
		entries_tell(registrar);
	return entry;
}

void registrar_remove(struct registrar *registrar, struct registrar_entry *entry)
{
	ring_remove(&entry->node);
	if (entry->state == ENTRY_NEW || registrar->state != REGISTRAR_CLIENT) {
		free(entry);
		return;
	}
	entry->state = ENTRY_REMOVED;
	ring_append(&registrar->untold, &entry->node);
	entries_tell(registrar);
}
