/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Keys asked, answered and withdrawn between two control channels.
 */
#include <stdlib.h>

#include "two.h"

static void keys_asked_and_answered(void **state)
{
	uint64_t until;

	(void)state;
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
}

/* Forgotten at the other side, and only there; under way until that has said so. */
static void withdrawal_is_acknowledged(void **state)
{
	uint64_t until;

	(void)state;
	a.slow_ms = 300;
	fake_key_add(0x200, 7, 3);
	two_pair();
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
}

/* A withdrawal is for the QPs of that PD, on both sides of the pair, and for no others. */
static void withdrawn_for_one_pd(void **state)
{
	struct fake_qp left[3], right[3];

	(void)state;
	for (unsigned int i = 0; i < 3; i++) {
		/* x leads in the first and follows in the second; the third is of another PD. */
		uint32_t qpn = i == 1 ? 31 : 10 + i;

		fake_init(&left[i], A, qpn, A, 20 + i, 1);
		fake_init(&right[i], A, 20 + i, A, qpn, 1);
		right[i].info.desc.pd_id = i == 2 ? 9 : 7;
		fake_up(x, &left[i]);
		fake_up(y, &right[i]);
		assert_ready(&left[i], 1, 3);
	}
	fake_key_add(0x200, 7, 2);
	ctrl_key_ask(left[0].qp, 0x200);
	assert_true(fake_wait(&left[0], FAKE_LEARNED, 1, SOON));
	ctrl_key_withdraw(y, 0x200, 7);
	assert_true(fake_wait(&left[0], FAKE_WITHDRAWN, 1, SOON));
	assert_true(fake_wait(&left[1], FAKE_WITHDRAWN, 1, SOON));
	while (ctrl_key_withdrawing(y, 0x200, 7))
		sleep_ms(1);
	assert_int_equal(fake_count(&left[2], FAKE_WITHDRAWN), 0);
	fake_key_remove(0x200);
	for (unsigned int i = 0; i < 3; i++) {
		fake_end(&left[i]);
		fake_end(&right[i]);
	}
}

/* Used all the time, and no key: asked for again and again, but not at every use. */
static void denied_is_not_asked_at_once(void **state)
{
	uint64_t until;

	(void)state;
	two_pair();
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
}

static void duplicates_are_dropped(void **state)
{
	(void)state;
	b.slow_ms = 100;
	fake_key_add(0x200, 7, 2);
	two_pair();
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
	(void)state;
	hook_ctrl = y;
	b.hook = withdraw_in_lookup;
	fake_key_add(0x200, 7, 2);
	two_pair();
	ctrl_key_ask(a.qp, 0x200);
	assert_true(fake_wait(&a, FAKE_LEARNED, 1, SOON));
	assert_int_equal(a.learned_nkeys, 0);
	assert_false(ctrl_key_withdrawing(y, 0x200, 7));
	fake_key_remove(0x200);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		two_test(keys_asked_and_answered),
		two_test(withdrawal_is_acknowledged),
		two_test(withdrawn_for_one_pd),
		two_test(denied_is_not_asked_at_once),
		two_test(duplicates_are_dropped),
		two_test(withdrawn_while_looked_up),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
