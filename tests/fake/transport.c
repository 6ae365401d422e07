/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Requests to other processes of the same fake-run, and theirs to us.
 *
 * Each process owns a slot, which is the upper part of its QP numbers, and listens at
 * $FAKE_DIR/proc.<slot>. A requester connects there; answers come back on the same connection.
 * A process that is stopped is a NIC that is: what it holds is neither answered nor given up.
 * Nothing here blocks: a connection that is full makes the requester try again, an answer that does
 * not fit is kept and nothing is read from that connection until it went.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine.h"

#define MAX_PER_ROUND 64

struct incoming {
	int fd;
	bool ack_waits;
	struct wire_ack ack;
};

/* All under engine.lock. */
static int listen_fd = -1;
static struct incoming incoming[FAKE_MAX_PROCS];
static uint32_t num_incoming;
static int outgoing[FAKE_MAX_PROCS]; /* by slot; 0 is none */
static uint32_t my_pid;

static int address(uint32_t slot, struct sockaddr_un *addr)
{
	const char *dir = secure_getenv("FAKE_DIR");

	addr->sun_family = AF_UNIX;
	if (!dir || snprintf(addr->sun_path, sizeof(addr->sun_path), "%s/proc.%u", dir, slot) >=
			    (int)sizeof(addr->sun_path))
		return ENAMETOOLONG;
	return 0;
}

static int claim_slot(void)
{
	for (uint32_t i = 1; i < FAKE_MAX_PROCS; i++) {
		int32_t owner = atomic_load(&engine.ctl->proc[i]);

		if (owner && (!kill(owner, 0) || errno != ESRCH))
			continue;
		if (atomic_compare_exchange_strong(&engine.ctl->proc[i], &owner, (int32_t)my_pid)) {
			engine.slot = i;
			return 0;
		}
	}
	return EUSERS;
}

int transport_start(void)
{
	struct sockaddr_un addr;
	int ret;

	my_pid = getpid();
	ret = claim_slot();
	if (ret)
		return ret;
	ret = address(engine.slot, &addr);
	if (ret)
		goto err_slot;
	unlink(addr.sun_path);
	listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (listen_fd < 0) {
		ret = errno;
		goto err_slot;
	}
	if (bind(listen_fd, (struct sockaddr *)&addr, sizeof(addr)) || listen(listen_fd, 64)) {
		ret = errno;
		goto err_close;
	}
	return 0;

err_close:
	close(listen_fd);
	listen_fd = -1;
err_slot:
	atomic_store(&engine.ctl->proc[engine.slot], 0);
	return ret;
}

static void sockets_close(void)
{
	for (uint32_t i = 0; i < num_incoming; i++)
		close(incoming[i].fd);
	num_incoming = 0;
	for (uint32_t i = 0; i < FAKE_MAX_PROCS; i++) {
		if (outgoing[i])
			close(outgoing[i]);
		outgoing[i] = 0;
	}
	if (listen_fd >= 0)
		close(listen_fd);
	listen_fd = -1;
}

void transport_stop(void)
{
	struct sockaddr_un addr;

	sockets_close();
	if (!address(engine.slot, &addr))
		unlink(addr.sun_path);
	atomic_store(&engine.ctl->proc[engine.slot], 0);
}

/* The slot and the name stay the parent's. */
void transport_fork_child(void)
{
	sockets_close();
}

/* The peer is gone, and with it the answers that we wait for. */
static void drop_outgoing(uint32_t slot)
{
	close(outgoing[slot]);
	outgoing[slot] = 0;
	for (uint32_t i = 0; i < 1u << FAKE_INDEX_BITS; i++) {
		struct fake_qp *qp = engine.qps[i];

		if (!qp || !qp->num_remote || qp->attr.dest_qp_num >> FAKE_INDEX_BITS != slot)
			continue;
		while (qp->num_remote) {
			struct wire_ack ack = { .dst_qpn = qp->qpn,
						.seq = qp->sq_acked,
						.epoch = qp->tx_epoch,
						.status = WIRE_LOST };

			requester_ack(qp, &ack);
		}
		engine_kick(qp);
	}
}

static int connect_to(uint32_t slot)
{
	struct sockaddr_un addr;
	int fd, ret;

	if (!slot || !atomic_load(&engine.ctl->proc[slot]))
		return ENOTCONN;
	ret = address(slot, &addr);
	if (ret)
		return ret;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return errno;
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr))) {
		ret = errno == EAGAIN ? EAGAIN : ENOTCONN;
		close(fd);
		return ret;
	}
	outgoing[slot] = fd;
	return 0;
}

int transport_send(const struct wire_req *req)
{
	uint32_t slot = req->dst_qpn >> FAKE_INDEX_BITS;
	size_t size = offsetof(struct wire_req, mem);
	struct wire_req copy;
	int ret;

	if (!outgoing[slot]) {
		ret = connect_to(slot);
		if (ret)
			return ret;
	}
	size += req->num_inline ? req->num_inline : req->num_mem * sizeof(req->mem[0]);
	memcpy(&copy, req, size);
	copy.pid = my_pid;
	if (send(outgoing[slot], &copy, size, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)size)
		return 0;
	if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM)
		return EAGAIN;
	drop_outgoing(slot);
	return ENOTCONN;
}

int transport_pollfds(struct pollfd *fds, int max)
{
	int num = 0;

	fds[num++] = (struct pollfd){ .fd = listen_fd, .events = POLLIN };
	for (uint32_t i = 0; i < num_incoming && num < max; i++)
		fds[num++] = (struct pollfd){ .fd = incoming[i].fd,
					      .events = incoming[i].ack_waits ? POLLOUT : POLLIN };
	for (uint32_t i = 0; i < FAKE_MAX_PROCS && num < max; i++)
		if (outgoing[i])
			fds[num++] = (struct pollfd){ .fd = outgoing[i], .events = POLLIN };
	return num;
}

/* False if the connection is over. */
static bool send_ack(struct incoming *in)
{
	ssize_t n = send(in->fd, &in->ack, sizeof(in->ack), MSG_DONTWAIT | MSG_NOSIGNAL);

	in->ack_waits = n < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM);
	return n == sizeof(in->ack) || in->ack_waits;
}

static void receive_acks(uint32_t slot)
{
	struct wire_ack ack;

	for (int i = 0; i < 2 * MAX_PER_ROUND && outgoing[slot]; i++) {
		ssize_t n = recv(outgoing[slot], &ack, sizeof(ack), MSG_DONTWAIT);
		struct fake_qp *qp;

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n != sizeof(ack)) {
			drop_outgoing(slot);
			return;
		}
		qp = engine_find_qp(ack.dst_qpn);
		if (!qp || !qp->num_remote)
			continue;
		requester_ack(qp, &ack);
		requester_progress(qp);
	}
}

static bool serve(struct incoming *in)
{
	struct wire_req req;

	if (in->ack_waits && !send_ack(in))
		return false;
	for (int i = 0; i < MAX_PER_ROUND && !in->ack_waits; i++) {
		ssize_t n = recv(in->fd, &req, sizeof(req), MSG_DONTWAIT);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR;
		if (n < (ssize_t)offsetof(struct wire_req, mem))
			return false;
		/* It may be the reply to what that answers: a wire would keep their order. */
		receive_acks((req.src_qpn >> FAKE_INDEX_BITS) % FAKE_MAX_PROCS);
		responder_execute(&req, &in->ack);
		if (!send_ack(in))
			return false;
	}
	return true;
}

static void accept_new(void)
{
	while (num_incoming < FAKE_MAX_PROCS) {
		int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0)
			return;
		incoming[num_incoming++] = (struct incoming){ .fd = fd };
	}
}

void transport_receive(void)
{
	accept_new();
	for (uint32_t i = 0; i < num_incoming;) {
		if (serve(&incoming[i])) {
			i++;
			continue;
		}
		close(incoming[i].fd);
		incoming[i] = incoming[--num_incoming];
	}
	for (uint32_t i = 1; i < FAKE_MAX_PROCS; i++)
		if (outgoing[i])
			receive_acks(i);
}
