/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A stranger on the control port. See stranger.h.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "stranger.h"

static int connected(const char *from, const uint8_t gid[16])
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	inet_pton(AF_INET, from, &sa.sin_addr);
	assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	sa.sin_port = htons(port);
	memcpy(&sa.sin_addr, gid + 12, sizeof(sa.sin_addr));
	if (!connect(fd, (struct sockaddr *)&sa, sizeof(sa)))
		return fd;
	close(fd);
	return -1;
}

/* Somebody is about to be the registrar. */
static int stranger_at(const char *from, const uint8_t gid[16])
{
	uint64_t until = now_ms() + SOON;
	int fd;

	while ((fd = connected(from, gid)) < 0 && now_ms() < until)
		sleep_ms(5);
	assert_true(fd >= 0);
	return fd;
}

int stranger(const char *from)
{
	uint8_t gid[16];

	fake_gid(gid, A);
	return stranger_at(from, gid);
}

void put(int fd, const void *bytes, size_t len)
{
	assert_int_equal(send(fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
}

void put_msg(int fd, const struct wire_msg *msg)
{
	uint8_t buf[WIRE_MSG_MAX];

	put(fd, buf, wire_encode(msg, buf));
}

int get_msg(int fd, struct wire_msg *msg, int ms)
{
	struct pollfd poller = { .fd = fd, .events = POLLIN };
	uint8_t buf[WIRE_MSG_MAX];
	size_t have = 0, len = WIRE_HEADER_SIZE;

	while (have < len) {
		ssize_t got;

		if (poll(&poller, 1, ms) != 1)
			return -2;
		got = recv(fd, buf + have, len - have, 0);
		if (got <= 0)
			return (int)got;
		have += (size_t)got;
		if (have == WIRE_HEADER_SIZE && wire_measure(buf, have, &len))
			return -3;
	}
	return wire_decode(buf, len, msg) ? -3 : 1;
}

bool closed_within(int fd, int ms)
{
	struct wire_msg msg;
	int got = get_msg(fd, &msg, ms);

	return got == 0 || got == -1;
}

void hello_to(struct wire_msg *msg, uint64_t nonce, uint32_t qpn)
{
	memset(msg, 0, sizeof(*msg));
	msg->type = WIRE_HELLO;
	msg->hello.nonce = nonce;
	msg->hello.conn_id = nonce + 1;
	fake_gid(msg->hello.target_gid, A);
	msg->hello.target_qpn = qpn;
}

void get_type(int fd, struct wire_msg *msg, enum wire_type type)
{
	do
		assert_int_equal(get_msg(fd, msg, SOON), 1);
	while (msg->type != type);
}

int stranger_hello(const char *from, uint64_t nonce, const struct fake_qp *qp,
		   struct wire_msg *ack)
{
	int fd = stranger_at(from, qp->info.gid);

	hello_to(ack, nonce, qp->info.qpn);
	memcpy(ack->hello.target_gid, qp->info.gid, sizeof(ack->hello.target_gid));
	put_msg(fd, ack);
	assert_int_equal(get_msg(fd, ack, 1000), 1);
	assert_int_equal(ack->type, WIRE_HELLO_ACK);
	return fd;
}

int stranger_session_to(const char *from, uint64_t nonce, const struct fake_qp *qp)
{
	struct wire_msg msg;
	int fd = stranger_hello(from, nonce, qp, &msg);

	msg = (struct wire_msg){ .type = WIRE_COMMIT };
	put_msg(fd, &msg);
	assert_int_equal(get_msg(fd, &msg, 1000), 1);
	assert_int_equal(msg.type, WIRE_WELCOME);
	return fd;
}

int stranger_session(const char *from, uint64_t nonce)
{
	return stranger_session_to(from, nonce, &a);
}

void qp_msg_to(const struct fake_qp *qp, enum wire_type type, uint32_t generation,
	       struct wire_msg *msg)
{
	memset(msg, 0, sizeof(*msg));
	msg->type = type;
	memcpy(msg->qp.from.gid, qp->info.dest_gid, 16);
	msg->qp.from.qpn = qp->info.dest_qpn;
	msg->qp.from.generation = generation;
	memcpy(msg->qp.to.gid, qp->info.gid, 16);
	msg->qp.to.qpn = qp->info.qpn;
	msg->qp.desc = qp->info.desc;
}
