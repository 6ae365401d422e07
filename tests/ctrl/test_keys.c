/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Keys asked, answered and withdrawn between two control channels.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fake_qp.h"

#define A "127.0.0.1"
#define B "127.0.0.2"
#define SOON 3000

static uint16_t port;

static int setup(void **state)
{
	(void)state;
	port = free_port();
	return 0;
}

static void assert_ready(struct fake_qp *qp, unsigned int count, uint32_t mask)
{
	assert_true(fake_wait(qp, FAKE_READY, count, SOON));
	assert_int_equal(qp->mask, mask);
}

static void keys_asked_and_answered(void **state)
{
	struct ctrl *x = fake_ctrl(port, NULL), *y = fake_ctrl(port, NULL);
	struct fake_qp a, b;
	uint64_t until;

	(void)state;
	fake_init(&a, A, 10, B, 20, 1);
	fake_init(&b, B, 20, A, 10, 1);
	fake_key_add(0x200, 7, 3);
	fake_up(x, &a);
	/* Before the pair is made: answered afterwards. */
	ctrl_key_ask(a.qp, 0x200);
	fake_up(y, &b);
	assert_true(fake_wait(&a, FAKE_LEARNED, 1, SOON));
	assert_int_equal(a.learned_rkey, 0x200);
	assert_int_equal(a.learned_nkeys, 3);
	assert_int_equal(a.learned_keys[2], 0x202);
	assert_int_equal(fake_count(&a, FAKE_READY), 1);

	/* No such key: said, and asked again afterwards. */
	ctrl_key_ask(a.qp, 0x300);
	assert_true(fake_wait(&a, FAKE_LEARNED, 2, SOON));
	assert_int_equal(a.learned_rkey, 0x300);
	assert_int_equal(a.learned_nkeys, 0);
	fake_key_add(0x300, 7, 2);
	/* Not at once. */
	until = now_ms() + SOON;
	while (fake_count(&a, FAKE_LEARNED) < 3 && now_ms() < until) {
		ctrl_key_ask(a.qp, 0x300);
		sleep_ms(1);
	}
	assert_int_equal(a.learned_nkeys, 2);

	/* What nobody was given needs nobody's word. */
	ctrl_key_withdraw(y, 0x555, 7);
	assert_false(ctrl_key_withdrawing(y, 0x555, 7));
	ctrl_key_withdraw(y, 0x300, 8);
	assert_false(ctrl_key_withdrawing(y, 0x300, 8));
	fake_key_remove(0x200);
	fake_key_remove(0x300);
	fake_end(&a);
	fake_end(&b);
	ctrl_destroy(x);
	ctrl_destroy(y);
}

/* Forgotten at the other side, and only there; under way until that has said so. */
static void withdrawal_is_acknowledged(void **state)
{
	struct ctrl *x = fake_ctrl(port, NULL), *y = fake_ctrl(port, NULL);
	struct fake_qp a, b;
	uint64_t until;

	(void)state;
	fake_init(&a, A, 10, B, 20, 1);
	fake_init(&b, B, 20, A, 10, 1);
	a.slow_ms = 300;
	fake_key_add(0x200, 7, 3);
	fake_up(x, &a);
	fake_up(y, &b);
	assert_ready(&a, 1, 3);
	ctrl_key_ask(a.qp, 0x200);
	assert_true(fake_wait(&a, FAKE_LEARNED, 1, SOON));
	assert_false(ctrl_key_withdrawing(y, 0x200, 7));
	ctrl_key_withdraw(y, 0x200, 7);
	fake_key_remove(0x200);
	assert_true(ctrl_key_withdrawing(y, 0x200, 7));
	assert_false(ctrl_key_withdrawing(y, 0x200, 8));
	assert_false(ctrl_key_withdrawing(y, 0x300, 7));
	assert_true(fake_wait(&a, FAKE_WITHDRAWN, 1, SOON));
	assert_int_equal(a.withdrawn_rkey, 0x200);
	until = now_ms() + SOON;
	while (ctrl_key_withdrawing(y, 0x200, 7) && now_ms() < until)
		sleep_ms(1);
	assert_false(ctrl_key_withdrawing(y, 0x200, 7));
	assert_int_equal(fake_count(&b, FAKE_WITHDRAWN), 0);
	fake_end(&a);
	fake_end(&b);
	ctrl_destroy(x);
	ctrl_destroy(y);
}

/* A withdrawal is for the QPs of that PD, on both sides of the pair, and for no others. */
static void withdrawn_for_one_pd(void **state)
{
	struct ctrl *x = fake_ctrl(port, NULL), *y = fake_ctrl(port, NULL);
	struct fake_qp a[3], b[3];

	(void)state;
	for (unsigned int i = 0; i < 3; i++) {
		/* x leads in the first and follows in the second; the third is of another PD. */
		fake_init(&a[i], A, 10 + i, B, 20 + i, 1);
		fake_init(&b[i], B, 20 + i, A, 10 + i, 1);
		if (i == 1) {
			fake_init(&a[i], B, 11, A, 21, 1);
			fake_init(&b[i], A, 21, B, 11, 1);
		}
		b[i].info.desc.pd_id = i == 2 ? 9 : 7;
		fake_up(x, &a[i]);
		fake_up(y, &b[i]);
		assert_ready(&a[i], 1, 3);
	}
	fake_key_add(0x200, 7, 2);
	ctrl_key_ask(a[0].qp, 0x200);
	assert_true(fake_wait(&a[0], FAKE_LEARNED, 1, SOON));
	ctrl_key_withdraw(y, 0x200, 7);
	assert_true(fake_wait(&a[0], FAKE_WITHDRAWN, 1, SOON));
	assert_true(fake_wait(&a[1], FAKE_WITHDRAWN, 1, SOON));
	while (ctrl_key_withdrawing(y, 0x200, 7))
		sleep_ms(1);
	assert_int_equal(fake_count(&a[2], FAKE_WITHDRAWN), 0);
	fake_key_remove(0x200);
	for (unsigned int i = 0; i < 3; i++) {
		fake_end(&a[i]);
		fake_end(&b[i]);
	}
	ctrl_destroy(x);
	ctrl_destroy(y);
}

/* Used all the time, and no key: asked for again and again, but not at every use. */
static void denied_is_not_asked_at_once(void **state)
{
	struct ctrl *x = fake_ctrl(port, NULL), *y = fake_ctrl(port, NULL);
	struct fake_qp a, b;
	uint64_t until;

	(void)state;
	fake_init(&a, A, 10, B, 20, 1);
	fake_init(&b, B, 20, A, 10, 1);
	fake_up(x, &a);
	fake_up(y, &b);
	assert_ready(&a, 1, 3);
	until = now_ms() + 500;
	while (now_ms() < until)
		ctrl_key_ask(a.qp, 0x700);
	assert_in_range(fake_count(&a, FAKE_LEARNED), 2, 11);
	/* It does not keep others from being asked. */
	sleep_ms(100);
	ctrl_key_ask(a.qp, 0x700);
	fake_key_add(0x701, 7, 2);
	ctrl_key_ask(a.qp, 0x701);
	until = now_ms() + SOON;
	while (a.learned_nkeys != 2 && now_ms() < until)
		fake_wait(&a, FAKE_LEARNED, fake_count(&a, FAKE_LEARNED) + 1, 20);
	assert_int_equal(a.learned_rkey, 0x701);
	fake_key_remove(0x701);
	fake_end(&a);
	fake_end(&b);
	ctrl_destroy(x);
	ctrl_destroy(y);
}

static void duplicates_are_dropped(void **state)
{
	struct ctrl *x = fake_ctrl(port, NULL), *y = fake_ctrl(port, NULL);
	struct fake_qp a, b;

	(void)state;
	fake_init(&a, A, 10, B, 20, 1);
	fake_init(&b, B, 20, A, 10, 1);
	b.slow_ms = 100;
	fake_key_add(0x200, 7, 2);
	fake_up(x, &a);
	fake_up(y, &b);
	assert_ready(&a, 1, 3);
	assert_ready(&b, 1, 3);
	for (int i = 0; i < 1000; i++)
		ctrl_key_ask(a.qp, 0x200);
	assert_true(fake_wait(&a, FAKE_LEARNED, 1, SOON));
	sleep_ms(300);
	assert_int_equal(fake_count(&a, FAKE_LEARNED), 1);
	assert_int_equal(fake_count(&b, FAKE_LOOKUP), 1);
	/* More than there is room for: some are dropped, the others answered, nothing breaks. */
	b.slow_ms = 0;
	for (uint32_t i = 0; i < 5000; i++)
		ctrl_key_ask(a.qp, 0x1000 + i);
	assert_true(fake_wait(&a, FAKE_LEARNED, 60, SOON));
	fake_key_remove(0x200);
	fake_end(&a);
	fake_end(&b);
	ctrl_destroy(x);
	ctrl_destroy(y);
}

static struct ctrl *hook_ctrl;

static void withdraw_in_lookup(struct fake_qp *qp, enum fake_event event)
{
	(void)qp;
	if (event == FAKE_LOOKUP)
		ctrl_key_withdraw(hook_ctrl, 0x200, 7);
}

/* Deregistered between the look and the answer: the answer must not carry the key. */
static void withdrawn_while_looked_up(void **state)
{
	struct ctrl *x = fake_ctrl(port, NULL), *y = fake_ctrl(port, NULL);
	struct fake_qp a, b;

	(void)state;
	fake_init(&a, A, 10, B, 20, 1);
	fake_init(&b, B, 20, A, 10, 1);
	hook_ctrl = y;
	b.hook = withdraw_in_lookup;
	fake_key_add(0x200, 7, 2);
	fake_up(x, &a);
	fake_up(y, &b);
	assert_ready(&a, 1, 3);
	ctrl_key_ask(a.qp, 0x200);
	assert_true(fake_wait(&a, FAKE_LEARNED, 1, SOON));
	assert_int_equal(a.learned_nkeys, 0);
	assert_false(ctrl_key_withdrawing(y, 0x200, 7));
	fake_key_remove(0x200);
	fake_end(&a);
	fake_end(&b);
	ctrl_destroy(x);
	ctrl_destroy(y);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(keys_asked_and_answered, setup),
		cmocka_unit_test_setup(withdrawal_is_acknowledged, setup),
		cmocka_unit_test_setup(withdrawn_for_one_pd, setup),
		cmocka_unit_test_setup(denied_is_not_asked_at_once, setup),
		cmocka_unit_test_setup(duplicates_are_dropped, setup),
		cmocka_unit_test_setup(withdrawn_while_looked_up, setup),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
