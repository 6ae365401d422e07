/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Ends at any time: of a QP, in every phase of its pairing, and of the whole control channel.
 */
#include <errno.h>
#include <stdlib.h>

#include "two.h"

/* Down at a random time of every phase: it returns, nothing is called later, the peer lives. */
static void down_in_every_phase(void **state)
{
	(void)state;
	srand(1);
	b.slow_ms = 2;
	fake_up(y, &b);
	for (unsigned int i = 1; i <= 150; i++) {
		fake_init(&a, A, 10, B, 20, i);
		a.slow_ms = i % 3;
		fake_up(x, &a);
		ctrl_key_ask(a.qp, i);
		sleep_ms((unsigned int)rand() % 24);
		if (i % 7 == 0)
			ctrl_qp_error(a.qp, i);
		fake_down(&a);
		/* The follower goes, too, now and then. */
		if (i % 10 == 0) {
			fake_down(&b);
			b.info.generation++;
			fake_up(y, &b);
		}
		sleep_ms(i % 5);
		fake_end(&a);
	}
	fake_init(&a, A, 10, B, 20, 1000);
	fake_up(x, &a);
	assert_ready(&a, 1, 3);
}

/* Down waits for a running callback of that QP, and for no other. */
static void down_waits_for_its_callback(void **state)
{
	struct fake_qp c;
	uint64_t began;

	(void)state;
	fake_init(&c, A, 12, B, 22, 1);
	a.slow_ms = 400;
	fake_up(x, &a);
	fake_up(x, &c);
	fake_up(y, &b);
	while (!a.inside && fake_count(&a, FAKE_DESCRIBE) == 0)
		sleep_ms(1);
	began = now_ms();
	fake_down(&c);
	assert_true(now_ms() - began < 200);
	fake_down(&a);
	assert_int_equal(a.after_down, 0);
	fake_end(&c);
}

static void bad_arguments(void **state)
{
	(void)state;
	a.info.generation = 0;
	errno = 0;
	assert_null(ctrl_qp_up(x, &a.info, &a));
	assert_int_equal(errno, EINVAL);
	a.info.generation = 1;
	a.info.desc.nmembers = WIRE_MAX_MEMBERS + 1;
	assert_null(ctrl_qp_up(x, &a.info, &a));
}

/* Destroyed with QPs up, sessions live and attempts under way: returns, and leaks nothing. */
static void destroyed_in_the_middle(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < 30; i++) {
		struct ctrl *one = fake_ctrl(port, NULL), *other = fake_ctrl(port, NULL);
		struct fake_qp c;

		fake_init(&a, A, 10, B, 20, 1);
		fake_init(&b, B, 20, A, 10, 1);
		fake_init(&c, A, 11, B, 21, 1);
		fake_up(one, &a);
		fake_up(one, &c);
		fake_up(other, &b);
		ctrl_key_ask(a.qp, 1);
		sleep_ms(i % 10);
		ctrl_destroy(i & 1 ? one : other);
		ctrl_destroy(i & 1 ? other : one);
	}
	a.qp = NULL;
	b.qp = NULL;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		two_test(down_in_every_phase),
		two_test(down_waits_for_its_callback),
		two_test(bad_arguments),
		port_test(destroyed_in_the_middle),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
