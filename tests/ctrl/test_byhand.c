/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The host's registrar and the peer process played by hand, message by message, so that what two
 * control channels do only now and then happens each time: two connections at once, a session that
 * one side alone has lost, a peer that cannot prove the secret.
 */
#define _GNU_SOURCE 1
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_qp.h"
#include "registrar_priv.h"

#define A "127.0.0.1"
#define B "127.0.0.2"
#define SOON 3000

static uint16_t port;
static int listener, local_listener, client;
static struct ctrl *x;
static struct fake_qp a;

static int wait_for(int fd, int ms)
{
	struct pollfd poller = { .fd = fd, .events = POLLIN };

	return poll(&poller, 1, ms);
}

static int accepted(int fd)
{
	int got;

	assert_int_equal(wait_for(fd, SOON), 1);
	got = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
	assert_true(got >= 0);
	return got;
}

static int bound(const char *ip, uint16_t at)
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons(at) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	assert_true(fd >= 0);
	inet_pton(AF_INET, ip, &sa.sin_addr);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
}

/* We have the port and the unix socket before the control channel comes; it is our client. */
static void start(const struct auth_key *key)
{
	struct local_msg msg = { .op = LOCAL_WELCOME };
	struct sockaddr_un sun;
	socklen_t len;

	port = free_port();
	listener = bound("0.0.0.0", port);
	assert_int_equal(listen(listener, 16), 0);
	local_listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	len = registrar_local_name(port, &sun);
	assert_int_equal(bind(local_listener, (struct sockaddr *)&sun, len), 0);
	assert_int_equal(listen(local_listener, 16), 0);
	fake_warnings();
	x = fake_ctrl(port, key);
	fake_init(&a, A, 10, B, 20, 1);
	fake_up(x, &a);
	client = accepted(local_listener);
	assert_int_equal(send(client, &msg, sizeof(msg), MSG_NOSIGNAL), sizeof(msg));
	assert_int_equal(wait_for(client, SOON), 1);
	assert_int_equal(recv(client, &msg, sizeof(msg), 0), sizeof(msg));
	assert_int_equal(msg.op, LOCAL_ADD);
	assert_int_equal(msg.qpn, 10);
}

static void stop(void)
{
	fake_end(&a);
	ctrl_destroy(x);
	close(client);
	close(listener);
	close(local_listener);
}

static size_t put_msg(int fd, const struct wire_msg *msg)
{
	uint8_t buf[WIRE_MSG_MAX];
	size_t len = wire_encode(msg, buf);

	assert_int_equal(send(fd, buf, len, MSG_NOSIGNAL), (ssize_t)len);
	return len;
}

/* Without PINGs. WIRE_HELLO - 1 stands for the end of the stream. */
static enum wire_type get_msg(int fd, struct wire_msg *msg)
{
	do {
		uint8_t buf[WIRE_MSG_MAX];
		size_t have = 0, len = WIRE_HEADER_SIZE;

		while (have < len) {
			ssize_t got;

			assert_int_equal(wait_for(fd, SOON), 1);
			got = recv(fd, buf + have, len - have, 0);
			if (got <= 0)
				return (enum wire_type)(WIRE_HELLO - 1);
			have += (size_t)got;
			if (have == WIRE_HEADER_SIZE)
				assert_int_equal(wire_measure(buf, have, &len), 0);
		}
		assert_int_equal(wire_decode(buf, len, msg), 0);
	} while (msg->type == WIRE_PING);
	return msg->type;
}

#define assert_msg(fd, msg, kind) assert_int_equal(get_msg(fd, msg), kind)
#define assert_end(fd) do {                                                    \
	struct wire_msg end_;                                                  \
	assert_int_equal(get_msg(fd, &end_), WIRE_HELLO - 1);                  \
} while (0)

/* The control channel connects to the peer, us; returns its nonce and connection. */
static int take_connection(struct wire_msg *hello)
{
	int fd = accepted(listener);

	assert_msg(fd, hello, WIRE_HELLO);
	assert_int_equal(hello->hello.target_qpn, 20);
	return fd;
}

static void ack(int fd, uint64_t nonce, uint8_t secret)
{
	struct wire_msg msg = { .type = WIRE_HELLO_ACK };

	msg.hello_ack.nonce = nonce;
	msg.hello_ack.secret = secret;
	put_msg(fd, &msg);
}

/* The peer, us, connects and we hand it over as the registrar would. */
static int give_connection(const char *from, uint64_t nonce, uint64_t conn_id)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct local_msg local = { .op = LOCAL_HAND };
	struct wire_msg msg = { .type = WIRE_HELLO };
	uint8_t buf[WIRE_MSG_MAX];
	struct iovec iov[2] = { { &local, sizeof(local) }, { buf, 0 } };
	struct msghdr mh = { .msg_iov = iov, .msg_iovlen = 2, .msg_control = control.room,
			     .msg_controllen = sizeof(control.room) };
	int fd = bound(from, 0), other;

	inet_pton(AF_INET, A, &sa.sin_addr);
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	other = accepted(listener);
	msg.hello.nonce = nonce;
	msg.hello.conn_id = conn_id;
	fake_gid(msg.hello.target_gid, A);
	msg.hello.target_qpn = 10;
	iov[1].iov_len = wire_encode(&msg, buf);
	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_RIGHTS;
	control.head.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.head), &other, sizeof(other));
	assert_true(sendmsg(client, &mh, MSG_NOSIGNAL) > 0);
	close(other);
	assert_msg(fd, &msg, WIRE_HELLO_ACK);
	return fd;
}

static void commit(int fd, uint64_t lost_id)
{
	struct wire_msg msg = { .type = WIRE_COMMIT };

	msg.commit.lost_id = lost_id;
	put_msg(fd, &msg);
}

static void welcome(int fd)
{
	struct wire_msg msg = { .type = WIRE_WELCOME };

	put_msg(fd, &msg);
}

/* The QP is looked for on this session. */
static void assert_find(int fd)
{
	struct wire_msg msg;

	assert_msg(fd, &msg, WIRE_QP_FIND);
	assert_int_equal(msg.qp.from.qpn, 10);
	assert_int_equal(msg.qp.to.qpn, 20);
}

/* As the peer's QP, 20 at B. */
static void qp_msg_to_a(int fd, enum wire_type type)
{
	struct wire_msg msg = { .type = type };

	fake_gid(msg.qp.from.gid, B);
	msg.qp.from.qpn = 20;
	msg.qp.from.generation = 1;
	fake_gid(msg.qp.to.gid, A);
	msg.qp.to.qpn = 10;
	msg.qp.desc = a.info.desc;
	put_msg(fd, &msg);
}

static void both_at_once_ours_is_lower(void **state)
{
	struct wire_msg msg;
	int theirs, ours;

	(void)state;
	start(NULL);
	theirs = take_connection(&msg);
	ack(theirs, msg.hello.nonce - 1, 0);
	ours = give_connection(B, msg.hello.nonce - 1, 5);
	assert_msg(theirs, &msg, WIRE_COMMIT);
	commit(ours, 0);
	assert_msg(ours, &msg, WIRE_WELCOME);
	assert_find(ours);
	assert_end(theirs);
	close(theirs);
	close(ours);
	stop();
}

static void both_at_once_theirs_is_lower(void **state)
{
	struct wire_msg msg;
	int theirs, ours;

	(void)state;
	start(NULL);
	theirs = take_connection(&msg);
	ack(theirs, msg.hello.nonce + 1, 0);
	ours = give_connection(B, msg.hello.nonce + 1, 5);
	assert_msg(theirs, &msg, WIRE_COMMIT);
	commit(ours, 0);
	assert_msg(ours, &msg, WIRE_REFUSE);
	assert_int_equal(msg.refusal, WIRE_REFUSE_DUPLICATE);
	assert_end(ours);
	welcome(theirs);
	assert_find(theirs);
	close(theirs);
	close(ours);
	stop();
}

/* Only who names the session as lost replaces it. */
static void session_replaced(void **state)
{
	struct wire_msg msg;
	uint64_t nonce, conn_id;
	int theirs, ours;

	(void)state;
	start(NULL);
	theirs = take_connection(&msg);
	nonce = msg.hello.nonce + 1;
	conn_id = msg.hello.conn_id;
	ack(theirs, nonce, 0);
	assert_msg(theirs, &msg, WIRE_COMMIT);
	welcome(theirs);
	assert_find(theirs);
	ours = give_connection(B, nonce, 5);
	commit(ours, conn_id + 1);
	assert_msg(ours, &msg, WIRE_REFUSE);
	assert_int_equal(msg.refusal, WIRE_REFUSE_DUPLICATE);
	close(ours);
	ours = give_connection(B, nonce, 6);
	commit(ours, conn_id);
	assert_msg(ours, &msg, WIRE_WELCOME);
	assert_find(ours);
	while (get_msg(theirs, &msg) == WIRE_QP_FIND)
		continue;
	assert_end(theirs);
	close(theirs);
	close(ours);
	stop();
}

/*
 * A nonce is no secret: another address that claims it is a session of its own, and neither speaks
 * for QPs at the first one's address nor keeps its process from being reached there.
 */
static void same_nonce_elsewhere(void **state)
{
	struct wire_msg msg;
	struct fake_qp c;
	uint64_t nonce;
	int theirs, ours;

	(void)state;
	start(NULL);
	/* Before the one at B has got its WELCOME, and after. */
	theirs = take_connection(&msg);
	nonce = msg.hello.nonce + 1;
	ours = give_connection("127.0.0.3", nonce, 5);
	commit(ours, 0);
	assert_msg(ours, &msg, WIRE_WELCOME);
	ack(theirs, nonce, 0);
	assert_msg(theirs, &msg, WIRE_COMMIT);
	assert_int_equal(msg.commit.lost_id, 0);
	welcome(theirs);
	assert_find(theirs);
	/* A QP there is looked for over that session alone; the one at B is not found over it. */
	fake_init(&c, A, 11, "127.0.0.3", 21, 1);
	fake_up(x, &c);
	assert_msg(ours, &msg, WIRE_QP_FIND);
	assert_int_equal(msg.qp.from.qpn, 11);
	qp_msg_to_a(ours, WIRE_QP_FIND);
	assert_msg(ours, &msg, WIRE_QP_MISSING);
	qp_msg_to_a(theirs, WIRE_QP_FIND);
	do
		assert_true(get_msg(theirs, &msg) >= WIRE_HELLO);
	while (msg.type == WIRE_QP_FIND);
	assert_int_equal(msg.type, WIRE_QP_ADD);
	fake_end(&c);
	close(theirs);
	close(ours);
	stop();
}

/* It claims to have the secret, and proves it wrongly: nothing more is said to it, but a warning. */
static void peer_without_the_secret(void **state)
{
	struct auth_key key = { .len = 32 };
	struct wire_msg msg;
	int fd;

	(void)state;
	memset(key.secret, 'k', key.len);
	start(&key);
	fd = take_connection(&msg);
	assert_int_equal(msg.hello.secret, 1);
	ack(fd, 77, 1);
	assert_end(fd);
	close(fd);
	sleep_ms(50);
	assert_int_equal(fake_warnings(), 1);
	stop();
}

/* And one that does not even claim it. */
static void peer_that_wants_no_secret(void **state)
{
	struct auth_key key = { .len = 32 };
	struct wire_msg msg;
	int fd;

	(void)state;
	memset(key.secret, 'k', key.len);
	start(&key);
	fd = take_connection(&msg);
	ack(fd, 77, 0);
	assert_end(fd);
	close(fd);
	stop();
}

/* WELCOME before HELLO_ACK, HELLO_ACK twice, our own nonce: no session. */
static void answers_out_of_place(void **state)
{
	struct wire_msg msg;
	int fd;

	(void)state;
	start(NULL);
	fd = take_connection(&msg);
	ack(fd, msg.hello.nonce, 0);
	assert_end(fd);
	close(fd);
	fd = take_connection(&msg);
	ack(fd, msg.hello.nonce + 1, 0);
	assert_msg(fd, &msg, WIRE_COMMIT);
	ack(fd, 99, 0);
	assert_end(fd);
	close(fd);
	stop();
	start(NULL);
	fd = take_connection(&msg);
	welcome(fd);
	assert_end(fd);
	close(fd);
	stop();
	/* A secret that we have not got. */
	start(NULL);
	fd = take_connection(&msg);
	ack(fd, msg.hello.nonce + 1, 1);
	assert_end(fd);
	close(fd);
	stop();
}

/* The registrar goes: its client takes the port and answers there for its QP. */
static void client_takes_over(void **state)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	struct wire_msg msg = { .type = WIRE_HELLO };
	uint64_t until = now_ms() + SOON;
	int fd, taken;

	(void)state;
	start(NULL);
	close(listener);
	close(local_listener);
	close(client);
	sa.sin_port = htons(port);
	inet_pton(AF_INET, A, &sa.sin_addr);
	do {
		fd = bound(B, 0);
		taken = connect(fd, (struct sockaddr *)&sa, sizeof(sa));
		if (taken)
			close(fd);
		sleep_ms(5);
	} while (taken && now_ms() < until);
	assert_int_equal(taken, 0);
	msg.hello.nonce = 5;
	fake_gid(msg.hello.target_gid, A);
	msg.hello.target_qpn = 10;
	put_msg(fd, &msg);
	assert_msg(fd, &msg, WIRE_HELLO_ACK);
	close(fd);
	fake_end(&a);
	ctrl_destroy(x);
}

/* Another registrar takes its place: it is told of the QPs again, and of what came since. */
static void client_registers_again(void **state)
{
	struct local_msg msg = { .op = LOCAL_WELCOME };
	struct fake_qp b;

	(void)state;
	start(NULL);
	/* The client keeps trying to become the registrar itself, but the names stay ours. */
	close(client);
	client = accepted(local_listener);
	fake_init(&b, A, 11, B, 21, 1);
	fake_up(x, &b);
	assert_int_equal(send(client, &msg, sizeof(msg), MSG_NOSIGNAL), sizeof(msg));
	for (uint32_t qpn = 10; qpn < 12; qpn++) {
		assert_int_equal(wait_for(client, SOON), 1);
		assert_int_equal(recv(client, &msg, sizeof(msg), 0), sizeof(msg));
		assert_int_equal(msg.op, LOCAL_ADD);
		assert_int_equal(msg.qpn, qpn);
	}
	fake_end(&b);
	assert_int_equal(wait_for(client, SOON), 1);
	assert_int_equal(recv(client, &msg, sizeof(msg), 0), sizeof(msg));
	assert_int_equal(msg.op, LOCAL_REMOVE);
	assert_int_equal(msg.qpn, 11);
	stop();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_at_once_ours_is_lower),
		cmocka_unit_test(both_at_once_theirs_is_lower),
		cmocka_unit_test(session_replaced),
		cmocka_unit_test(same_nonce_elsewhere),
		cmocka_unit_test(peer_without_the_secret),
		cmocka_unit_test(peer_that_wants_no_secret),
		cmocka_unit_test(answers_out_of_place),
		cmocka_unit_test(client_takes_over),
		cmocka_unit_test(client_registers_again),
	};

	signal(SIGPIPE, SIG_IGN);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
