/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Pairing, with control channels of one process: each has its own thread, nonce and
 * sockets, so that two of them are to each other what two processes are.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "two.h"

static void assert_leader(struct fake_qp *leader, struct fake_qp *follower, unsigned int times)
{
	assert_int_equal(fake_count(leader, FAKE_DESCRIBE), times);
	assert_int_equal(fake_count(leader, FAKE_ANSWER), times);
	assert_int_equal(fake_count(leader, FAKE_OFFER), 0);
	assert_int_equal(fake_count(follower, FAKE_OFFER), times);
	assert_int_equal(fake_count(follower, FAKE_DESCRIBE), 0);
	assert_int_equal(fake_count(follower, FAKE_ANSWER), 0);
}

static void two_processes_pair(void **state)
{
	(void)state;
	fake_init(&b, B, 20, A, 10, 3);
	b.npaths = 4;
	fake_up(x, &a);
	fake_up(y, &b);
	assert_ready(&a, 1, 3);
	assert_ready(&b, 1, 3);
	assert_leader(&a, &b, 1);
	/* The descriptions arrived: path 1's QP number and PSN are made of QP and generation. */
	assert_int_equal(a.peer.npaths, 4);
	assert_int_equal(a.peer.paths[1].qpn, 20 * 16 + 1);
	assert_int_equal(a.peer.paths[1].psn, 301);
	assert_int_equal(b.peer.npaths, 2);
	assert_int_equal(b.peer.paths[0].qpn, 10);
	fake_down(&a);
	assert_true(fake_wait(&b, FAKE_GONE, 1, SOON));
	assert_int_equal(fake_count(&a, FAKE_GONE), 0);
	assert_int_equal(fake_warnings(), 0);
}

static void one_process_pairs_with_itself(void **state)
{
	(void)state;
	/* The addresses are nobody's: no network is needed. */
	fake_init(&a, "203.0.113.1", 10, "203.0.113.1", 11, 1);
	fake_init(&b, "203.0.113.1", 11, "203.0.113.1", 10, 1);
	fake_up(x, &a);
	fake_up(x, &b);
	assert_ready(&a, 1, 3);
	assert_ready(&b, 1, 3);
	assert_leader(&a, &b, 1);
	fake_key_add(0x100, 7, 2);
	ctrl_key_ask(a.qp, 0x100);
	assert_true(fake_wait(&a, FAKE_LEARNED, 1, SOON));
	assert_int_equal(a.learned_nkeys, 2);
	ctrl_key_ask(b.qp, 0x100);
	assert_true(fake_wait(&b, FAKE_LEARNED, 1, SOON));
	ctrl_key_withdraw(x, 0x100, 7);
	fake_key_remove(0x100);
	assert_true(fake_wait(&a, FAKE_WITHDRAWN, 1, SOON));
	assert_true(fake_wait(&b, FAKE_WITHDRAWN, 1, SOON));
	fake_down(&b);
	assert_true(fake_wait(&a, FAKE_GONE, 1, SOON));
}

static void qp_connected_to_itself(void **state)
{
	(void)state;
	fake_init(&a, "203.0.113.1", 10, "203.0.113.1", 10, 1);
	fake_up(x, &a);
	assert_ready(&a, 1, 3);
	assert_int_equal(fake_count(&a, FAKE_DESCRIBE), 1);
	assert_int_equal(fake_count(&a, FAKE_ANSWER), 1);
	assert_int_equal(fake_count(&a, FAKE_OFFER), 0);
	assert_int_equal(a.peer.paths[1].qpn, 10 * 16 + 1);
	fake_key_add(0x100, 7, 2);
	ctrl_key_ask(a.qp, 0x100);
	assert_true(fake_wait(&a, FAKE_LEARNED, 1, SOON));
	assert_int_equal(a.learned_nkeys, 2);
	assert_int_equal(a.learned_keys[1], 0x101);
	ctrl_key_withdraw(x, 0x100, 7);
	assert_true(fake_wait(&a, FAKE_WITHDRAWN, 1, SOON));
	fake_key_remove(0x100);
}

static void the_later_finds_the_earlier(void **state)
{
	uint64_t began;

	(void)state;
	x = fake_ctrl(port, NULL);
	fake_up(x, &a);
	sleep_ms(3000);
	y = fake_ctrl(port, NULL);
	began = now_ms();
	fake_up(y, &b);
	assert_ready(&b, 1, 3);
	assert_true(now_ms() - began < 500);
	assert_ready(&a, 1, 3);
}

/* Both connect at the same time: one session remains, every pair is made once. */
static void simultaneous_start(void **state)
{
	struct fake_qp left[4], right[4];

	(void)state;
	for (unsigned int round = 0; round < 40; round++) {
		x = fake_ctrl(port, NULL);
		y = fake_ctrl(port, NULL);
		for (unsigned int i = 0; i < 4; i++) {
			/* Leaders on both sides. */
			fake_init(&left[i], i & 1 ? A : B, 10 + i, i & 1 ? B : A, 20 + i, 1);
			fake_init(&right[i], i & 1 ? B : A, 20 + i, i & 1 ? A : B, 10 + i, 1);
		}
		for (unsigned int i = 0; i < 4; i++) {
			fake_up(x, &left[i]);
			fake_up(y, &right[i]);
		}
		for (unsigned int i = 0; i < 4; i++) {
			assert_ready(&left[i], 1, 3);
			assert_ready(&right[i], 1, 3);
			if (i & 1)
				assert_leader(&left[i], &right[i], 1);
			else
				assert_leader(&right[i], &left[i], 1);
		}
		for (unsigned int i = 0; i < 4; i++) {
			assert_int_equal(fake_count(&left[i], FAKE_LOST), 0);
			assert_int_equal(fake_count(&right[i], FAKE_LOST), 0);
			fake_end(&left[i]);
			fake_end(&right[i]);
		}
		two_end();
	}
}

static void many_qps(void **state)
{
	enum { N = 300 };
	struct fake_qp *left = calloc(N, sizeof(*left)), *right = calloc(N, sizeof(*right));

	(void)state;
	for (unsigned int i = 0; i < N; i++) {
		fake_init(&left[i], A, 1000 + i, B, 5000 + i, 1);
		fake_init(&right[i], B, 5000 + i, A, 1000 + i, 1);
		fake_up(x, &left[i]);
	}
	for (unsigned int i = 0; i < N; i++)
		fake_up(y, &right[i]);
	for (unsigned int i = 0; i < N; i++) {
		assert_true(fake_wait(&left[i], FAKE_READY, 1, 10000));
		assert_true(fake_wait(&right[i], FAKE_READY, 1, 10000));
	}
	for (unsigned int i = 0; i < N; i++) {
		fake_end(&left[i]);
		assert_true(fake_wait(&right[i], FAKE_GONE, 1, SOON));
		fake_end(&right[i]);
	}
	free(left);
	free(right);
}

/* The peer's QP was meant for another one: nobody pairs with it. */
static void both_must_name_each_other(void **state)
{
	struct fake_qp c;

	(void)state;
	fake_init(&b, B, 20, A, 99, 1);
	fake_up(x, &a);
	fake_up(y, &b);
	assert_false(fake_wait(&a, FAKE_READY, 1, 700));
	assert_int_equal(fake_count(&a, FAKE_DESCRIBE), 0);
	assert_int_equal(fake_count(&b, FAKE_OFFER), 0);
	/* And it does not keep another one, with the right name, from being found. */
	fake_down(&b);
	fake_init(&c, B, 20, A, 10, 2);
	fake_up(y, &c);
	assert_ready(&a, 1, 3);
	fake_end(&c);
}

static void reset_and_again(void **state)
{
	(void)state;
	fake_up(x, &a);
	fake_up(y, &b);
	for (unsigned int i = 1; i <= 20; i++) {
		/* Leader and follower in turn; sometimes both. */
		struct fake_qp *qp = i & 1 ? &a : &b, *other = i & 1 ? &b : &a;

		assert_ready(&a, i, 3);
		assert_ready(&b, i, 3);
		assert_int_equal(a.peer.paths[0].psn, b.info.generation * 100);
		assert_int_equal(b.peer.paths[0].psn, a.info.generation * 100);
		fake_down(qp);
		qp->info.generation++;
		if (i % 5 == 0) {
			fake_down(other);
			other->info.generation++;
			fake_up(i & 1 ? y : x, other);
		}
		fake_up(i & 1 ? x : y, qp);
	}
	assert_ready(&a, 21, 3);
	assert_ready(&b, 21, 3);
}

static void error_is_told(void **state)
{
	struct fake_qp c, d;

	(void)state;
	two_pair();
	ctrl_qp_error(b.qp, 42);
	assert_true(fake_wait(&a, FAKE_ERROR, 1, SOON));
	assert_int_equal(a.reason, 42);
	ctrl_qp_error(a.qp, 43);
	assert_true(fake_wait(&b, FAKE_ERROR, 1, SOON));
	assert_int_equal(b.reason, 43);
	/* Before it is paired. */
	fake_init(&c, A, 11, B, 21, 1);
	fake_init(&d, B, 21, A, 11, 1);
	fake_up(x, &c);
	ctrl_qp_error(c.qp, 44);
	fake_up(y, &d);
	assert_true(fake_wait(&d, FAKE_ERROR, 1, SOON));
	assert_int_equal(d.reason, 44);
	fake_end(&c);
	fake_end(&d);
}

/* A side that cannot make its paths: no READY, no end of asking, and its next generation works. */
static void refused_paths(enum fake_event which)
{
	struct fake_qp *bad = which == FAKE_OFFER ? &b : &a;
	unsigned int tries;

	bad->fail[which] = EOPNOTSUPP;
	fake_up(x, &a);
	fake_up(y, &b);
	assert_true(fake_wait(bad, which, 1, SOON));
	assert_false(fake_wait(&a, FAKE_READY, 1, 500));
	assert_int_equal(fake_count(&b, FAKE_READY), 0);
	tries = fake_count(bad, which);
	assert_int_equal(tries, 1);
	/* Who had begun hears of the end. */
	assert_int_equal(fake_count(&a, FAKE_GONE), which != FAKE_DESCRIBE);
	assert_int_equal(fake_count(&b, FAKE_GONE), which == FAKE_ANSWER);
	fake_down(bad);
	bad->fail[which] = 0;
	bad->info.generation++;
	fake_up(bad == &a ? x : y, bad);
	assert_ready(&a, 1, 3);
	assert_ready(&b, 1, 3);
}

static void describe_fails(void **state)
{
	(void)state;
	refused_paths(FAKE_DESCRIBE);
}

static void offer_fails(void **state)
{
	(void)state;
	refused_paths(FAKE_OFFER);
}

static void answer_fails(void **state)
{
	(void)state;
	refused_paths(FAKE_ANSWER);
}

/* A lack that may pass, at either side: tried again, more and more rarely, without a RESET. */
static void refused_for_now(enum fake_event which, int err)
{
	struct fake_qp *bad = which == FAKE_OFFER ? &b : &a;

	bad->fail[which] = err;
	fake_up(x, &a);
	fake_up(y, &b);
	sleep_ms(600);
	assert_in_range(fake_count(bad, which), 2, 16);
	assert_int_equal(fake_count(&a, FAKE_READY) + fake_count(&b, FAKE_READY), 0);
	bad->fail[which] = 0;
	assert_ready(&a, 1, 3);
	assert_ready(&b, 1, 3);
}

static void describe_fails_for_now(void **state)
{
	(void)state;
	refused_for_now(FAKE_DESCRIBE, EBUSY);
}

static void offer_fails_for_now(void **state)
{
	(void)state;
	refused_for_now(FAKE_OFFER, ENOMEM);
}

static void answer_fails_for_now(void **state)
{
	(void)state;
	refused_for_now(FAKE_ANSWER, EMFILE);
}

static void secret_of(struct auth_key *key, char c)
{
	memset(key, 0, sizeof(*key));
	key->len = 32;
	memset(key->secret, c, key->len);
}

static void same_secret(void **state)
{
	struct auth_key key;

	(void)state;
	secret_of(&key, 's');
	x = fake_ctrl(port, &key);
	y = fake_ctrl(port, &key);
	fake_up(x, &a);
	fake_up(y, &b);
	assert_ready(&a, 1, 3);
	assert_ready(&b, 1, 3);
	two_end();
	assert_int_equal(fake_warnings(), 0);
}

static void secrets_differ(const struct auth_key *one, const struct auth_key *other)
{
	struct fake_qp c, d;

	x = fake_ctrl(port, one);
	y = fake_ctrl(port, other);
	fake_init(&c, A, 11, A, 12, 1);
	fake_init(&d, A, 12, A, 11, 1);
	fake_up(x, &a);
	fake_up(y, &b);
	assert_false(fake_wait(&a, FAKE_READY, 1, 1000));
	assert_int_equal(fake_count(&a, FAKE_DESCRIBE), 0);
	assert_int_equal(fake_count(&b, FAKE_OFFER), 0);
	/* Said once by each side that looks, not with every attempt. */
	assert_in_range(fake_warnings(), 1, 2);
	/* Others are not disturbed. */
	fake_up(x, &c);
	fake_up(x, &d);
	assert_ready(&c, 1, 3);
	fake_end(&c);
	fake_end(&d);
	two_end();
}

static void wrong_secret(void **state)
{
	struct auth_key one, other;

	(void)state;
	secret_of(&one, 'r');
	secret_of(&other, 's');
	secrets_differ(&one, &other);
}

static void secret_on_one_side_only(void **state)
{
	struct auth_key one;

	(void)state;
	secret_of(&one, 'r');
	secrets_differ(&one, NULL);
	secrets_differ(NULL, &one);
}

/* More addresses of the same two processes, at both sides or at one: sessions side by side. */
static void second_address_is_a_session(void **state)
{
	struct fake_qp c, d, e, f;

	(void)state;
	fake_init(&c, "127.0.0.3", 11, "127.0.0.4", 21, 1);
	fake_init(&d, "127.0.0.4", 21, "127.0.0.3", 11, 1);
	fake_up(x, &a);
	fake_up(y, &b);
	assert_ready(&a, 1, 3);
	fake_up(x, &c);
	fake_up(y, &d);
	assert_ready(&c, 1, 3);
	assert_ready(&d, 1, 3);
	fake_init(&e, "127.0.0.5", 12, B, 22, 1);
	fake_init(&f, B, 22, "127.0.0.5", 12, 1);
	fake_up(x, &e);
	fake_up(y, &f);
	assert_ready(&e, 1, 3);
	assert_ready(&f, 1, 3);
	assert_int_equal(fake_count(&a, FAKE_LOST), 0);
	fake_end(&c);
	fake_end(&d);
	fake_end(&e);
	fake_end(&f);
}

/* More than a few of them. */
static void many_addresses(void **state)
{
	enum { N = 40 };
	static struct fake_qp left[N], right[N];

	(void)state;
	for (unsigned int i = 0; i < N; i++) {
		char ip[32];

		snprintf(ip, sizeof(ip), "127.0.1.%u", i + 1);
		fake_init(&left[i], A, 100 + i, ip, 200 + i, 1);
		fake_init(&right[i], ip, 200 + i, A, 100 + i, 1);
		fake_up(x, &left[i]);
		fake_up(y, &right[i]);
	}
	for (unsigned int i = 0; i < N; i++)
		assert_ready(&left[i], 1, 3);
	for (unsigned int i = 0; i < N; i++) {
		fake_end(&left[i]);
		fake_end(&right[i]);
	}
}

static void ipv6(void **state)
{
	(void)state;
	fake_init(&a, "::1", 10, "::1", 20, 1);
	fake_init(&b, "::1", 20, "::1", 10, 1);
	fake_up(x, &a);
	fake_up(y, &b);
	assert_ready(&a, 1, 3);
	assert_ready(&b, 1, 3);
}

static void gid_without_an_address(void **state)
{
	struct fake_qp c;

	(void)state;
	fake_init(&a, A, 10, "::", 20, 1);
	fake_init(&b, "203.0.113.9", 11, B, 21, 1);
	fake_init(&c, A, 12, "ff02::1", 22, 1);
	fake_up(x, &a);
	fake_up(x, &b);
	fake_up(x, &c);
	sleep_ms(300);
	/* That the local GID is not an address of this host is worth a word. */
	assert_int_equal(fake_warnings(), 1);
	fake_end(&c);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		two_test(two_processes_pair),
		two_test(one_process_pairs_with_itself),
		two_test(qp_connected_to_itself),
		port_test(the_later_finds_the_earlier),
		port_test(simultaneous_start),
		two_test(many_qps),
		two_test(both_must_name_each_other),
		two_test(reset_and_again),
		two_test(error_is_told),
		two_test(describe_fails),
		two_test(offer_fails),
		two_test(answer_fails),
		two_test(describe_fails_for_now),
		two_test(offer_fails_for_now),
		two_test(answer_fails_for_now),
		port_test(same_secret),
		port_test(wrong_secret),
		port_test(secret_on_one_side_only),
		two_test(second_address_is_a_session),
		two_test(many_addresses),
		two_test(ipv6),
		two_test(gid_without_an_address),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
