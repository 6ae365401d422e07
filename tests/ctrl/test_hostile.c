/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Strangers on the control port: silent ones, those that talk nonsense, too many of them. In every
 * case a pair of honest QPs is made meanwhile, nothing waits, and no descriptor is left.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ctrl_conn.h"
#include "stranger.h"

/* x is the registrar, and a and b are for whoever wants to disturb. */
static void honest_start(const struct auth_key *key)
{
	x = fake_ctrl(port, key);
	fake_up(x, &a);
	sleep_ms(100);
	y = fake_ctrl(port, key);
	fake_up(y, &b);
	assert_true(fake_wait(&a, FAKE_READY, 1, SOON));
	assert_true(fake_wait(&b, FAKE_READY, 1, SOON));
}

/* A new pair, of the two processes, can be made, keys travel, and the first pair was not lost. */
static void honest_check(uint32_t qpn)
{
	struct fake_qp c, d;
	unsigned int learned = fake_count(&a, FAKE_LEARNED);

	fake_init(&c, A, qpn, B, qpn + 1, 1);
	fake_init(&d, B, qpn + 1, A, qpn, 1);
	fake_up(x, &c);
	fake_up(y, &d);
	assert_true(fake_wait(&c, FAKE_READY, 1, SOON));
	assert_true(fake_wait(&d, FAKE_READY, 1, SOON));
	ctrl_key_ask(a.qp, qpn);
	assert_true(fake_wait(&a, FAKE_LEARNED, learned + 1, SOON));
	assert_int_equal(fake_count(&a, FAKE_LOST), 0);
	assert_int_equal(fake_count(&b, FAKE_LOST), 0);
	fake_end(&c);
	fake_end(&d);
}

static void nonsense_on_our_port(void **state)
{
	static const uint8_t oversize[] = { WIRE_VERSION, WIRE_HELLO, 0, 0, 0x7f, 0xff, 0xff, 0xff };
	static const uint8_t undersize[] = { WIRE_VERSION, WIRE_HELLO, 0, 0, 0, 0, 0, 3 };
	static const char http[] = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
	uint8_t noise[20000], buf[WIRE_MSG_MAX];
	struct wire_msg msg;
	size_t len;
	int fd;

	(void)state;
	honest_start(NULL);
	fd = stranger(A);
	put(fd, oversize, sizeof(oversize));
	assert_true(closed_within(fd, 1000));
	close(fd);
	fd = stranger(A);
	put(fd, undersize, sizeof(undersize));
	assert_true(closed_within(fd, 1000));
	close(fd);
	fd = stranger(A);
	put(fd, http, sizeof(http));
	assert_true(closed_within(fd, 1000));
	close(fd);
	/* A message that is well formed but has no place. */
	fd = stranger(A);
	msg = (struct wire_msg){ .type = WIRE_PING };
	put_msg(fd, &msg);
	assert_true(closed_within(fd, 1000));
	close(fd);
	/* More than the HELLO before the answer. */
	fd = stranger(A);
	hello_to(&msg, 1, 10);
	len = wire_encode(&msg, buf);
	buf[len] = 1;
	put(fd, buf, len + 1);
	assert_true(closed_within(fd, 1000));
	close(fd);
	srand(7);
	for (int i = 0; i < 300; i++) {
		fd = stranger(A);
		for (size_t k = 0; k < sizeof(noise); k++)
			noise[k] = (uint8_t)rand();
		send(fd, noise, (size_t)rand() % sizeof(noise), MSG_NOSIGNAL);
		close(fd);
	}
	honest_check(100);
}

static void refusals(void **state)
{
	uint8_t buf[WIRE_MSG_MAX];
	struct wire_msg msg;
	size_t len;
	int fd;

	(void)state;
	honest_start(NULL);
	/* A QP that nobody has. */
	fd = stranger(A);
	hello_to(&msg, 1, 999);
	put_msg(fd, &msg);
	assert_int_equal(get_msg(fd, &msg, 1000), 1);
	assert_int_equal(msg.type, WIRE_REFUSE);
	assert_int_equal(msg.refusal, WIRE_REFUSE_UNKNOWN);
	assert_true(closed_within(fd, 1000));
	close(fd);
	/* Another version. */
	fd = stranger(A);
	hello_to(&msg, 1, 10);
	len = wire_encode(&msg, buf);
	buf[0] = WIRE_VERSION + 1;
	put(fd, buf, len);
	assert_int_equal(get_msg(fd, &msg, 1000), 1);
	assert_int_equal(msg.type, WIRE_REFUSE);
	assert_int_equal(msg.refusal, WIRE_REFUSE_VERSION);
	assert_int_equal(msg.version, WIRE_VERSION);
	close(fd);
	/* A secret that is not asked for here. */
	fd = stranger(A);
	hello_to(&msg, 1, 10);
	msg.hello.secret = 1;
	put_msg(fd, &msg);
	assert_int_equal(get_msg(fd, &msg, 1000), 1);
	assert_int_equal(msg.type, WIRE_REFUSE);
	assert_int_equal(msg.refusal, WIRE_REFUSE_SECRET);
	close(fd);
	honest_check(100);
}

/* Half a HELLO, none, or one and no more: closed after the time given, and not before. */
static void half_messages_on_our_port(void **state)
{
	uint8_t buf[WIRE_MSG_MAX];
	struct wire_msg msg;
	uint64_t began;
	size_t len;
	int fd[4];

	(void)state;
	honest_start(NULL);
	began = now_ms();
	hello_to(&msg, 1, 10);
	len = wire_encode(&msg, buf);
	for (int i = 0; i < 4; i++)
		fd[i] = stranger(A);
	put(fd[1], buf, 5);
	put(fd[2], buf, len - 1);
	put(fd[3], buf, len);
	assert_int_equal(get_msg(fd[3], &msg, 1000), 1);
	assert_int_equal(msg.type, WIRE_HELLO_ACK);
	honest_check(100);
	for (int i = 0; i < 4; i++) {
		assert_true(closed_within(fd[i], 3000));
		assert_in_range(now_ms() - began, 1000, 3000);
		close(fd[i]);
	}
	/* One byte at a time is slow, but right. */
	fd[0] = stranger(A);
	for (size_t i = 0; i < len; i++) {
		put(fd[0], buf + i, 1);
		sleep_ms(1);
	}
	assert_int_equal(get_msg(fd[0], &msg, 1000), 1);
	assert_int_equal(msg.type, WIRE_HELLO_ACK);
	close(fd[0]);
}

static void random_qp_msg(struct wire_msg *msg, enum wire_type type)
{
	qp_msg_to(&a, type, (uint32_t)rand() % 3, msg);
	msg->qp.to.generation = (uint32_t)rand() % 2;
	msg->qp.pair_id = (uint32_t)rand() % 3;
	msg->qp.path_mask = (uint32_t)rand();
}

/* It names the honest peer's QP, but is not at its host: nothing it says about it counts. */
static void impostor_at_another_address(void **state)
{
	static const enum wire_type types[] = {
		WIRE_QP_FIND, WIRE_QP_FOUND, WIRE_QP_MISSING, WIRE_QP_ADD, WIRE_QP_CONFIRM,
		WIRE_QP_REFUSE, WIRE_QP_READY, WIRE_QP_DELETE, WIRE_QP_ERROR, WIRE_KEY_GET,
		WIRE_KEY_PUT,
	};
	struct wire_msg msg;
	int fd;

	(void)state;
	honest_start(NULL);
	/* Short sessions: without pairs they are closed soon. */
	for (unsigned int session = 0; session < 20; session++) {
		fd = stranger_session("127.0.0.9", 0x1234 + session);
		for (unsigned int i = 0; i < 110; i++) {
			random_qp_msg(&msg, types[i % 11]);
			put_msg(fd, &msg);
		}
		msg = (struct wire_msg){ .type = WIRE_PING, .stamp = 77 };
		put_msg(fd, &msg);
		do
			assert_int_equal(get_msg(fd, &msg, 1000), 1);
		while (msg.type != WIRE_PONG);
		close(fd);
	}
	assert_int_equal(fake_count(&a, FAKE_GONE), 0);
	assert_int_equal(fake_count(&a, FAKE_ERROR), 0);
	assert_int_equal(fake_count(&a, FAKE_LOOKUP), 0);
	assert_int_equal(fake_count(&a, FAKE_READY), 1);
	honest_check(100);
}

/* At the right host, in a session of its own, and wild: our side stays in order. */
static void wild_session(void **state)
{
	struct wire_msg msg;
	int fd;

	(void)state;
	srand(3);
	x = fake_ctrl(port, NULL);
	fake_up(x, &a);
	y = fake_ctrl(port, NULL);
	fake_init(&b, B, 99, A, 98, 1);
	fake_up(y, &b);
	sleep_ms(100);
	for (int round = 0; round < 30; round++) {
		fd = stranger_session(B, 0x4321 + (uint64_t)round);
		for (int i = 0; i < 60; i++) {
			random_qp_msg(&msg, (enum wire_type)(WIRE_QP_FIND + rand() % 9));
			if (rand() % 4 == 0)
				msg.type = (enum wire_type)(WIRE_KEY_GET + rand() % 4);
			put_msg(fd, &msg);
		}
		/* Ends in the middle of a message, or with one that has no place. */
		if (round & 1) {
			put(fd, "\2\6\0", 3);
		} else {
			hello_to(&msg, 1, 10);
			put_msg(fd, &msg);
		}
		close(fd);
	}
	sleep_ms(300);
	fake_down(&a);
	a.info.generation++;
	fake_down(&b);
	fake_init(&b, B, 20, A, 10, 1);
	fake_up(x, &a);
	fake_up(y, &b);
	assert_true(fake_wait(&b, FAKE_READY, 1, SOON));
	honest_check(100);
}

/* A stranger that knows neither secret nor session gets nowhere. */
static void secret_is_asked_first(void **state)
{
	struct auth_key key = { .len = 32 };
	struct wire_msg msg;
	int fd;

	(void)state;
	memset(key.secret, 'k', key.len);
	honest_start(&key);
	fd = stranger(B);
	hello_to(&msg, 5, 10);
	msg.hello.secret = 1;
	put_msg(fd, &msg);
	assert_int_equal(get_msg(fd, &msg, 1000), 1);
	assert_int_equal(msg.type, WIRE_HELLO_ACK);
	/* Its own proof played back. */
	memcpy(msg.commit.proof, msg.hello_ack.proof, sizeof(msg.commit.proof));
	msg.type = WIRE_COMMIT;
	msg.commit.lost_id = 0;
	put_msg(fd, &msg);
	assert_int_equal(get_msg(fd, &msg, 1000), 1);
	assert_int_equal(msg.type, WIRE_REFUSE);
	assert_int_equal(msg.refusal, WIRE_REFUSE_SECRET);
	assert_true(closed_within(fd, 1000));
	close(fd);
	/* Something else in place of the proof. */
	fd = stranger(B);
	hello_to(&msg, 5, 10);
	msg.hello.secret = 1;
	put_msg(fd, &msg);
	assert_int_equal(get_msg(fd, &msg, 1000), 1);
	random_qp_msg(&msg, WIRE_QP_FIND);
	put_msg(fd, &msg);
	assert_true(closed_within(fd, 1000));
	close(fd);
	honest_check(100);
}

/* Hundreds that connect and say nothing: the oldest go, honest ones get through. */
static void flood_of_connections(void **state)
{
	enum { N = 300 };
	int fd[N];
	unsigned int closed = 0;

	(void)state;
	honest_start(NULL);
	for (int i = 0; i < N; i++)
		fd[i] = stranger(A);
	fake_down(&b);
	ctrl_destroy(y);
	/* A process that has to connect anew. */
	y = fake_ctrl(port, NULL);
	fake_init(&b, B, 20, A, 10, 2);
	fake_up(y, &b);
	assert_true(fake_wait(&b, FAKE_READY, 1, SOON));
	for (int i = 0; i < N; i++)
		closed += closed_within(fd[i], 0);
	assert_in_range(closed, N - 64 - 2, N);
	for (int i = 0; i < N; i++)
		close(fd[i]);
	honest_check(100);
}

/* Where there is no secret they can become sessions; not more of them than we can bear. */
static void flood_of_sessions(void **state)
{
	enum { N = 400 };
	int fd[N];
	unsigned int closed = 0;
	struct wire_msg msg;

	(void)state;
	honest_start(NULL);
	for (int i = 0; i < N; i++)
		fd[i] = stranger_session(B, 0x9000 + (uint64_t)i);
	honest_check(100);
	for (int i = 0; i < N; i++) {
		/* What is still open has been sent FINDs or PINGs at most. */
		int got;

		do
			got = get_msg(fd[i], &msg, 0);
		while (got == 1);
		closed += got == 0 || got == -1;
		close(fd[i]);
	}
	assert_in_range(closed, N - 256, N);
	honest_check(200);
}

static void nothing(struct conn *conn, int err)
{
	(void)conn;
	(void)err;
}

/* What one end sends before the other has read anything. */
static size_t sent_unread(struct loop *loop, bool trusted, unsigned int allowed)
{
	static const struct conn_ops ops = { .ended = nothing };
	struct wire_msg msg = { .type = WIRE_PONG };
	uint8_t buf[WIRE_MSG_MAX];
	size_t len = wire_encode(&msg, buf), kept;
	struct conn *conn;
	int fd[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
	conn = conn_adopt(loop, fd[0], &ops, NULL);
	assert_non_null(conn);
	if (trusted)
		conn_trust(conn);
	for (unsigned int i = 0; i < allowed; i++)
		conn_allow(conn);
	for (size_t i = 0; !conn->failed && i < (32u << 20) / len; i++)
		conn_send(conn, &msg);
	assert_int_equal(conn->failed, ENOBUFS);
	kept = conn->tx_len;
	conn_close(conn);
	close(fd[1]);
	return kept;
}

/* PINGs without reading the answers: a stranger does not get much memory by that. */
static void stranger_reads_nothing(void **state)
{
	struct loop loop;

	(void)state;
	assert_int_equal(loop_open(&loop), 0);
	assert_in_range(sent_unread(&loop, false, 0), 60 << 10, 64 << 10);
	assert_in_range(sent_unread(&loop, false, 100), 250 << 10, 300 << 10);
	assert_in_range(sent_unread(&loop, true, 0), 8000 << 10, 8192 << 10);
	assert_in_range(sent_unread(&loop, false, 100000), 8000 << 10, 8192 << 10);
	loop_close(&loop);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		port_test(nonsense_on_our_port),
		port_test(refusals),
		port_test(half_messages_on_our_port),
		port_test(impostor_at_another_address),
		port_test(wild_session),
		port_test(secret_is_asked_first),
		port_test(flood_of_connections),
		port_test(flood_of_sessions),
		port_test(stranger_reads_nothing),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
