/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Another process at the peer's host says that it has the peer's QP; and a peer that is one, but
 * does not keep to the rules. Strangers at other addresses are in test_hostile.c.
 */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "stranger.h"

#define NONCE 0x5151

static void assert_refused(int fd, uint32_t reason)
{
	struct wire_msg msg;

	get_type(fd, &msg, WIRE_QP_REFUSE);
	assert_int_equal(msg.qp.reason, reason);
}

/* The pair is READY and its process alive: it stays, whatever another one there says. */
static void ready_pair_is_not_taken(void **state)
{
	static const enum wire_type rounds[] = {
		WIRE_QP_REFUSE, WIRE_QP_MISSING, WIRE_QP_CONFIRM, WIRE_QP_READY, WIRE_QP_DELETE,
		WIRE_QP_ERROR, WIRE_KEY_PUT,
	};
	struct fake_qp *qps[2] = { &a, &b };
	struct wire_msg msg;

	(void)state;
	two_pair();
	for (int i = 0; i < 2; i++) {
		/* a leads, b follows. */
		int fd = stranger_session_to(i ? A : B, NONCE, qps[i]);

		for (uint32_t generation = 1; generation < 3; generation++) {
			qp_msg_to(qps[i], WIRE_QP_FIND, generation, &msg);
			put_msg(fd, &msg);
			assert_refused(fd, EBUSY);
			qp_msg_to(qps[i], i ? WIRE_QP_ADD : WIRE_QP_FOUND, generation, &msg);
			msg.qp.pair_id = 77;
			put_msg(fd, &msg);
			assert_refused(fd, EBUSY);
		}
		for (unsigned int k = 0; k < sizeof(rounds) / sizeof(*rounds); k++) {
			qp_msg_to(qps[i], rounds[k], 1, &msg);
			/* The first that a leader gives. */
			msg.qp.pair_id = 1;
			msg.qp.reason = EINVAL;
			put_msg(fd, &msg);
		}
		msg = (struct wire_msg){ .type = WIRE_PING };
		put_msg(fd, &msg);
		get_type(fd, &msg, WIRE_PONG);
		close(fd);
	}
	for (int i = 0; i < 2; i++) {
		assert_int_equal(fake_count(qps[i], FAKE_GONE), 0);
		assert_int_equal(fake_count(qps[i], FAKE_LOST), 0);
		assert_int_equal(fake_count(qps[i], FAKE_ERROR), 0);
		assert_int_equal(fake_count(qps[i], FAKE_LEARNED), 0);
	}
	/* And it can still end and begin again. */
	fake_down(&b);
	b.info.generation++;
	fake_up(y, &b);
	assert_ready(&a, 2, 3);
	assert_ready(&b, 2, 3);
}

static uint64_t nonce_of(const char *from, const struct fake_qp *qp)
{
	struct wire_msg msg;
	int fd = stranger_hello(from, 1, qp, &msg);

	close(fd);
	return msg.hello_ack.nonce;
}

/*
 * Nonces are told to anybody. From a third address, with a session to each of two processes in the
 * other's name: they still find each other, and it speaks for neither.
 */
static void nonce_is_no_proof(void **state)
{
	const char *const elsewhere = "127.0.0.9";
	struct wire_msg msg;
	struct fake_qp c;
	int fd[2];

	(void)state;
	fake_init(&c, B, 21, "203.0.113.9", 1, 1);
	fake_up(x, &a);
	fake_up(y, &c);
	sleep_ms(100);
	fd[0] = stranger_session_to(elsewhere, nonce_of(elsewhere, &c), &a);
	fd[1] = stranger_session_to(elsewhere, nonce_of(elsewhere, &a), &c);
	fake_up(y, &b);
	assert_ready(&a, 1, 3);
	assert_ready(&b, 1, 3);
	qp_msg_to(&a, WIRE_QP_FIND, 1, &msg);
	put_msg(fd[0], &msg);
	get_type(fd[0], &msg, WIRE_QP_MISSING);
	qp_msg_to(&b, WIRE_QP_FIND, 1, &msg);
	put_msg(fd[1], &msg);
	get_type(fd[1], &msg, WIRE_QP_MISSING);
	fake_end(&c);
	close(fd[0]);
	close(fd[1]);
}

/* As the peer of a; up to its CONFIRM. Returns the session; msg: a model of the pair's messages. */
static int stranger_follows(struct wire_msg *msg)
{
	int fd = stranger_session(B, NONCE);
	uint32_t pair_id;

	qp_msg_to(&a, WIRE_QP_FIND, 1, msg);
	put_msg(fd, msg);
	get_type(fd, msg, WIRE_QP_ADD);
	pair_id = msg->qp.pair_id;
	qp_msg_to(&a, WIRE_QP_CONFIRM, 1, msg);
	msg->qp.pair_id = pair_id;
	put_msg(fd, msg);
	return fd;
}

static void stranger_ready(int fd, struct wire_msg *msg)
{
	msg->type = WIRE_QP_READY;
	msg->qp.path_mask = 3;
	put_msg(fd, msg);
	assert_ready(&a, 1, 3);
}

/* Whom we are paired with dies: silently, then the heartbeats say so; or not. */
static void replaced(bool silent)
{
	struct wire_msg msg;
	int fd;

	fake_up(x, &a);
	fd = stranger_follows(&msg);
	stranger_ready(fd, &msg);
	if (!silent)
		close(fd);
	fake_up(y, &b);
	if (silent) {
		assert_false(fake_wait(&b, FAKE_READY, 1, 400));
		assert_int_equal(fake_count(&a, FAKE_GONE), 0);
	}
	assert_true(fake_wait(&a, FAKE_LOST, 1, SOON));
	assert_true(fake_wait(&b, FAKE_READY, 1, silent ? 1500 : 500));
	assert_ready(&a, 2, 3);
	assert_int_equal(fake_count(&a, FAKE_GONE), 1);
	if (silent)
		close(fd);
}

static void replaced_when_it_closed(void **state)
{
	(void)state;
	replaced(false);
}

static void replaced_when_it_is_silent(void **state)
{
	(void)state;
	replaced(true);
}

static void put_key(int fd, struct wire_msg *msg, uint32_t rkey)
{
	msg->type = WIRE_KEY_PUT;
	msg->qp.rkey = rkey;
	msg->qp.nkeys = 1;
	put_msg(fd, msg);
}

static void ping(int fd)
{
	struct wire_msg msg = { .type = WIRE_PING };

	put_msg(fd, &msg);
	get_type(fd, &msg, WIRE_PONG);
}

/* Unasked keys: before READY, and no more than the protocol says. */
static void unasked_keys_are_counted(void **state)
{
	struct wire_msg msg, got;
	int fd;

	(void)state;
	fake_up(x, &a);
	fd = stranger_follows(&msg);
	for (uint32_t i = 0; i < 2 * CTRL_KEY_OFFERS; i++)
		put_key(fd, &msg, 0x1000 + i);
	ping(fd);
	assert_int_equal(fake_count(&a, FAKE_LEARNED), CTRL_KEY_OFFERS);
	stranger_ready(fd, &msg);
	put_key(fd, &msg, 0x2000);
	ping(fd);
	assert_int_equal(fake_count(&a, FAKE_LEARNED), CTRL_KEY_OFFERS);
	/* What was asked is taken, once, and not in the name of an earlier generation. */
	ctrl_key_ask(a.qp, 0x2000);
	get_type(fd, &got, WIRE_KEY_GET);
	msg.qp.from.generation = 2;
	put_key(fd, &msg, 0x2000);
	ping(fd);
	assert_int_equal(fake_count(&a, FAKE_LEARNED), CTRL_KEY_OFFERS);
	msg.qp.from.generation = 1;
	put_key(fd, &msg, 0x2000);
	put_key(fd, &msg, 0x2000);
	ping(fd);
	assert_int_equal(fake_count(&a, FAKE_LEARNED), CTRL_KEY_OFFERS + 1);
	close(fd);
}

/* READY ends them, though there was room for more. */
static void unasked_keys_end_with_ready(void **state)
{
	struct wire_msg msg;
	int fd;

	(void)state;
	fake_up(x, &a);
	fd = stranger_follows(&msg);
	put_key(fd, &msg, 0x1000);
	stranger_ready(fd, &msg);
	put_key(fd, &msg, 0x1001);
	ping(fd);
	assert_int_equal(fake_count(&a, FAKE_LEARNED), 1);
	close(fd);
}

static void get_key(int fd, struct wire_msg *msg, uint32_t generation, unsigned int nkeys)
{
	struct wire_msg got;

	msg->type = WIRE_KEY_GET;
	msg->qp.from.generation = generation;
	msg->qp.rkey = 0x300;
	put_msg(fd, msg);
	get_type(fd, &got, WIRE_KEY_PUT);
	assert_int_equal(got.qp.nkeys, nkeys);
}

/* It never says that it has forgotten a key: its session ends, though it is not silent. */
static void withdrawals_must_be_confirmed(void **state)
{
	struct wire_msg msg, got;
	uint64_t until;
	int fd;

	(void)state;
	fake_key_add(0x300, 7, 2);
	fake_up(x, &a);
	fd = stranger_follows(&msg);
	stranger_ready(fd, &msg);
	get_key(fd, &msg, 2, 0);
	assert_int_equal(fake_count(&a, FAKE_LOOKUP), 0);
	get_key(fd, &msg, 1, 2);
	ctrl_key_withdraw(x, 0x300, 7);
	get_type(fd, &got, WIRE_KEY_DELETE);
	got.type = WIRE_KEY_DELETED;
	put_msg(fd, &got);
	for (until = now_ms() + 1500; now_ms() < until; sleep_ms(100))
		ping(fd);
	assert_int_equal(fake_count(&a, FAKE_LOST), 0);
	get_key(fd, &msg, 1, 2);
	ctrl_key_withdraw(x, 0x300, 7);
	get_type(fd, &got, WIRE_KEY_DELETE);
	got = (struct wire_msg){ .type = WIRE_PING };
	for (until = now_ms() + 2000; now_ms() < until; sleep_ms(100)) {
		uint8_t buf[WIRE_MSG_MAX];

		if (fake_count(&a, FAKE_LOST))
			break;
		send(fd, buf, wire_encode(&got, buf), MSG_NOSIGNAL);
	}
	assert_int_equal(fake_count(&a, FAKE_LOST), 1);
	fake_key_remove(0x300);
	close(fd);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		two_test(ready_pair_is_not_taken),
		two_test(nonce_is_no_proof),
		two_test(replaced_when_it_closed),
		two_test(replaced_when_it_is_silent),
		two_test(unasked_keys_are_counted),
		two_test(unasked_keys_end_with_ready),
		two_test(withdrawals_must_be_confirmed),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
