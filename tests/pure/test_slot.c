/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The slot table, rule by rule. What it is for, keeping overlapping pieces on one path, is in
 * test_model.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "slot.h"

#define U SLOT_SIZE
#define BASE (0x7f1200000000ull)

static struct slot_table *t;

static int set_up(void **state)
{
	(void)state;
	t = calloc(1, sizeof(*t));
	return !t;
}

static int tear_down(void **state)
{
	(void)state;
	free(t);
	return 0;
}

/* The run at addr is so long and has this state. */
static void expect_run(uint64_t addr, uint64_t len, int want, uint64_t want_run)
{
	uint64_t run = 0;

	assert_int_equal(slot_route(t, addr, len, &run), want);
	assert_int_equal(run, want_run);
}

static void entry_is_small(void **state)
{
	(void)state;
	assert_true(sizeof(struct slot) <= 12);
}

static void empty_is_free(void **state)
{
	(void)state;
	assert_true(slot_table_empty(t));
	expect_run(BASE + 5, 100 * U, SLOT_FREE, 100 * U);
	assert_true(slot_check(t, BASE, 1 << 30, 3));
	assert_int_equal(slot_path(t, BASE, 1 << 20), SLOT_FREE);
}

static void no_bytes_count_nothing(void **state)
{
	(void)state;
	slot_add(t, BASE + 100, 0, 1);
	assert_true(slot_table_empty(t));
	slot_add(t, BASE, U, 0);
	slot_add(t, BASE + 100, 0, 1);
	assert_true(slot_check(t, BASE + 100, 0, 1));
	expect_run(BASE, U, 0, U);
	slot_sub(t, BASE + 100, 0);
	slot_sub(t, BASE, U);
	assert_true(slot_table_empty(t));
}

static void pieces_meet_inside_a_unit(void **state)
{
	(void)state;
	slot_add(t, BASE, 3 * U + 1000, 0);
	slot_add(t, BASE + 3 * U + 1000, 2 * U, 1);
	expect_run(BASE, 6 * U, 0, 3 * U + 1000);
	expect_run(BASE + 3 * U + 1000, 3 * U - 1000, 1, 2 * U);
	expect_run(BASE + 5 * U + 1000, U, SLOT_FREE, U);
	assert_int_equal(slot_path(t, BASE, 3 * U + 1001), SLOT_MIXED);
	assert_int_equal(slot_path(t, BASE + U, 2 * U + 1000), 0);
	assert_true(slot_check(t, BASE + 3 * U, 1000, 0));
	assert_false(slot_check(t, BASE + 3 * U, 1001, 0));
	assert_false(slot_check(t, BASE + 3 * U + 999, 2, 1));
	assert_true(slot_check(t, BASE + 3 * U + 1000, U, 1));
	slot_sub(t, BASE, 3 * U + 1000);
	expect_run(BASE, 6 * U, SLOT_FREE, 3 * U + 1000);
	slot_sub(t, BASE + 3 * U + 1000, 2 * U);
	assert_true(slot_table_empty(t));
}

static void second_split_is_mixed(void **state)
{
	(void)state;
	slot_add(t, BASE, 1000, 0);
	slot_add(t, BASE + 1000, 1000, 1);
	assert_int_equal(slot_path(t, BASE + 1000, 8), 1);
	slot_add(t, BASE + 2000, 1000, 2);
	expect_run(BASE, U, 0, 1000);
	expect_run(BASE + 1000, U - 1000, SLOT_MIXED, U - 1000);
	assert_false(slot_check(t, BASE + 4000, 8, 1));
	assert_false(slot_check(t, BASE + 4000, 8, 2));
	slot_sub(t, BASE + 1000, 1000);
	assert_int_equal(slot_path(t, BASE + 4000, 8), SLOT_MIXED);	/* until nothing is left */
	slot_sub(t, BASE + 2000, 1000);
	assert_int_equal(slot_path(t, BASE + 4000, 8), SLOT_FREE);
	slot_add(t, BASE + 2000, 1000, 2);
	assert_int_equal(slot_path(t, BASE + 4000, 8), 2);
	slot_sub(t, BASE + 2000, 1000);
	slot_sub(t, BASE, 1000);
	assert_true(slot_table_empty(t));
}

static void straddling_piece_counts_in_both(void **state)
{
	(void)state;
	slot_add(t, BASE, 4096, 5);
	slot_add(t, BASE + 4000, 200, 5);
	slot_sub(t, BASE, 4096);
	expect_run(BASE, U, 5, U);
	slot_add(t, BASE + 100, 8, 5);
	slot_sub(t, BASE + 4000, 200);
	expect_run(BASE, U, 5, 4096);
	expect_run(BASE + 4096, U, SLOT_FREE, U);
	slot_sub(t, BASE + 100, 8);
	assert_true(slot_table_empty(t));
}

/* The split of a busy unit must stay, or sub would look for other parts than add counted. */
static void split_stays_while_busy(void **state)
{
	(void)state;
	slot_add(t, BASE, 1024, 0);
	slot_add(t, BASE, 2048, 0);
	slot_sub(t, BASE, 1024);
	assert_int_equal(slot_at(t, BASE)->split, 1024);
	slot_add(t, BASE + 512, 256, 0);
	slot_sub(t, BASE, 2048);
	assert_int_equal(slot_at(t, BASE)->split, 1024);
	expect_run(BASE + 1024, 10, SLOT_FREE, 10);
	slot_sub(t, BASE + 512, 256);
	assert_true(slot_table_empty(t));
	slot_add(t, BASE, 3000, 0);
	assert_int_equal(slot_at(t, BASE)->split, 3000);
	slot_sub(t, BASE, 3000);
}

static void body_and_tail_share_a_unit(void **state)
{
	(void)state;
	slot_add(t, BASE, 4 * U - 128, 1);
	slot_add(t, BASE + 4 * U - 128, 128, 0);
	expect_run(BASE, 4 * U, 1, 4 * U - 128);
	expect_run(BASE + 4 * U - 128, 128, 0, 128);
	slot_sub(t, BASE, 4 * U - 128);
	slot_sub(t, BASE + 4 * U - 128, 128);
	assert_true(slot_table_empty(t));
}

static void far_units_share_an_entry(void **state)
{
	const uint64_t far = BASE + (uint64_t)SLOT_COUNT * U;

	(void)state;
	slot_add(t, BASE, U, 1);
	assert_int_equal(slot_path(t, far, 8), 1);
	assert_int_equal(slot_path(t, far + U, 8), SLOT_FREE);
	slot_add(t, far, U, 2);
	assert_int_equal(slot_path(t, BASE, 8), SLOT_MIXED);
	slot_sub(t, BASE, U);
	slot_sub(t, far, U);
	assert_true(slot_table_empty(t));
}

static void piece_longer_than_the_table(void **state)
{
	const uint64_t len = 3ull * SLOT_COUNT * U + 12345;

	(void)state;
	slot_add(t, BASE + 777, len, 4);
	assert_false(slot_check(t, BASE - 5 * U, 1, 3));
	assert_int_equal(slot_path(t, BASE + 777, len), 4);
	slot_sub(t, BASE + 777, len);
	assert_true(slot_table_empty(t));
}

static void last_byte_of_the_address_space(void **state)
{
	const uint64_t addr = -(uint64_t)(U + 100);

	(void)state;
	slot_add(t, addr, U + 100, 2);
	expect_run(addr, U + 100, 2, U + 100);
	assert_false(slot_check(t, UINT64_MAX, 1, 0));
	slot_sub(t, addr, U + 100);
	assert_true(slot_table_empty(t));
}

static void many_pieces_in_one_unit(void **state)
{
	(void)state;
	for (int i = 0; i < 100000; i++)
		slot_add(t, BASE + i % 1000 * 8, 8, 0);
	assert_int_equal(slot_path(t, BASE, U), 0);
	for (int i = 0; i < 100000; i++)
		slot_sub(t, BASE + i % 1000 * 8, 8);
	assert_true(slot_table_empty(t));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(entry_is_small, set_up, tear_down),
		cmocka_unit_test_setup_teardown(empty_is_free, set_up, tear_down),
		cmocka_unit_test_setup_teardown(no_bytes_count_nothing, set_up, tear_down),
		cmocka_unit_test_setup_teardown(pieces_meet_inside_a_unit, set_up, tear_down),
		cmocka_unit_test_setup_teardown(second_split_is_mixed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(straddling_piece_counts_in_both, set_up, tear_down),
		cmocka_unit_test_setup_teardown(split_stays_while_busy, set_up, tear_down),
		cmocka_unit_test_setup_teardown(body_and_tail_share_a_unit, set_up, tear_down),
		cmocka_unit_test_setup_teardown(far_units_share_an_entry, set_up, tear_down),
		cmocka_unit_test_setup_teardown(piece_longer_than_the_table, set_up, tear_down),
		cmocka_unit_test_setup_teardown(last_byte_of_the_address_space, set_up, tear_down),
		cmocka_unit_test_setup_teardown(many_pieces_in_one_unit, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
