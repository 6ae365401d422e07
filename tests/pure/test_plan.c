/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The rules of cutting, one by one: alignment, units, tails, forced runs, merging, waiting,
 * rebalancing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "plan.h"
#include "sched.h"
#include "slot.h"

enum { K = 1024, MIB = 1024 * K, U = SLOT_SIZE };

#define BASE 0x7f1200000000ull

static struct slot_table *slots;
static struct sched s;
static struct plan_piece piece[PLAN_MAX_PIECES];
static unsigned int num;

static void start(unsigned int paths)
{
	memset(slots, 0, sizeof(*slots));
	sched_init(&s);
	for (unsigned int i = 0; i < paths; i++)
		sched_path_start(&s, i, 1);
}

static int set_up(void **state)
{
	(void)state;
	slots = calloc(1, sizeof(*slots));
	return !slots;
}

static int tear_down(void **state)
{
	(void)state;
	free(slots);
	return 0;
}

static enum plan_result cut(uint64_t addr, uint64_t len, bool want_tail)
{
	struct plan_op op = { .raddr = addr, .len = len, .want_tail = want_tail };

	num = 0;
	return plan_cut(&op, slots, &s, 0, piece, 2 * s.npaths + 2, &num);
}

static void post(uint64_t addr, bool want_tail, uint64_t len)
{
	for (unsigned int i = 0; i < num; i++) {
		slot_add(slots, addr + piece[i].off, piece[i].len, piece[i].path);
		sched_posted(&s, piece[i].path, piece[i].len, 0);
	}
	if (want_tail)
		slot_add(slots, addr + len - PLAN_TAIL, PLAN_TAIL, 0);
}

static void expect_piece(unsigned int i, uint64_t off, uint64_t len, unsigned int path)
{
	assert_true(i < num);
	assert_int_equal(piece[i].off, off);
	assert_int_equal(piece[i].len, len);
	assert_int_equal(piece[i].path, path);
}

static void one_piece_for_each_path(void **state)
{
	(void)state;
	for (unsigned int paths = 1; paths <= 8; paths++) {
		start(paths);
		assert_int_equal(cut(BASE, 1 << 20, false), PLAN_OK);
		assert_int_equal(num, paths);
		for (unsigned int i = 0; i < num; i++) {
			assert_int_equal(piece[i].path, i);
			assert_in_range(piece[i].len, (1 << 20) / paths - 4096,
					(1 << 20) / paths + 4096);
		}
	}
}

static void cuts_are_aligned(void **state)
{
	static const struct { uint64_t len, align; } cases[] = {
		{ 20000, 512 }, { 65536, 512 }, { 131072, 1024 }, { 300000, 2048 },
		{ 524288, 4096 }, { 4 << 20, 4096 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (unsigned int odd = 0; odd < 9000; odd += 1111) {
			start(3);
			assert_int_equal(cut(BASE + odd, cases[i].len, false), PLAN_OK);
			assert_true(num >= 2);
			for (unsigned int k = 1; k < num; k++)
				assert_int_equal((BASE + odd + piece[k].off) % cases[i].align, 0);
		}
}

static void short_operation_stays_whole(void **state)
{
	(void)state;
	start(2);
	assert_int_equal(cut(BASE, 8 * K, false), PLAN_OK);
	assert_int_equal(num, 1);
	assert_int_equal(cut(BASE, 16 * K, true), PLAN_OK);
	assert_int_equal(num, 2);
	expect_piece(0, 0, 8 * K, 0);
	expect_piece(1, 8 * K, 8 * K - PLAN_TAIL, 1);
}

static void tail_is_left_out(void **state)
{
	(void)state;
	start(2);
	assert_int_equal(cut(BASE, 64 * K, true), PLAN_OK);
	assert_int_equal(num, 2);
	assert_int_equal(piece[1].off + piece[1].len, 64 * K - PLAN_TAIL);
	post(BASE, true, 64 * K);
	assert_int_equal(slot_path(slots, BASE + 64 * K - PLAN_TAIL, PLAN_TAIL), 0);
	assert_int_equal(slot_path(slots, BASE + 64 * K - PLAN_TAIL - 1, 1), 1);
}

/* The unit that the tail begins in is split there, so that no piece may end in it before. */
static void no_cut_in_the_tails_unit(void **state)
{
	const double weights[] = { 7.9, 1 };	/* 56.7 KiB of 64 */

	(void)state;
	start(0);
	for (unsigned int i = 0; i < 2; i++)
		sched_path_start(&s, i, weights[i]);
	assert_int_equal(cut(BASE, 64 * K, true), PLAN_OK);
	expect_piece(0, 0, 56 * K, 0);
	post(BASE, true, 64 * K);
	for (uint64_t a = BASE; a < BASE + 64 * K; a += 64)
		assert_int_not_equal(slot_path(slots, a, 64), SLOT_MIXED);
}

static void repeat_is_cut_alike(void **state)
{
	struct plan_piece first[PLAN_MAX_PIECES];

	(void)state;
	start(3);
	assert_int_equal(cut(BASE + 5000, 100000, true), PLAN_OK);
	memcpy(first, piece, sizeof(first));
	post(BASE + 5000, true, 100000);
	sched_posted(&s, 0, 20 * K, 0);		/* although path 0 has more to do now */
	for (int i = 0; i < 2; i++) {
		assert_int_equal(cut(BASE + 5000, 100000, true), PLAN_OK);
		assert_int_equal(num, 3);
		for (unsigned int k = 0; k < num; k++)
			expect_piece(k, first[k].off, first[k].len, first[k].path);
		post(BASE + 5000, true, 100000);
	}
}

static void forced_bytes_count_against_the_share(void **state)
{
	(void)state;
	start(2);
	slot_add(slots, BASE, 48 * K, 1);
	assert_int_equal(cut(BASE, 128 * K, false), PLAN_OK);
	assert_int_equal(num, 2);
	expect_piece(0, 0, 64 * K, 1);
	expect_piece(1, 64 * K, 64 * K, 0);
}

static void free_bytes_join_their_neighbours(void **state)
{
	(void)state;
	start(2);
	slot_add(slots, BASE + 64 * K, 8 * K, 0);
	slot_add(slots, BASE, 8 * K, 1);
	assert_int_equal(cut(BASE, 72 * K, false), PLAN_OK);
	assert_int_equal(num, 2);
	assert_int_equal(piece[0].path, 1);
	assert_int_equal(piece[1].path, 0);
	assert_in_range(piece[0].len, 32 * K, 40 * K);
}

static void cut_avoids_a_busy_unit(void **state)
{
	(void)state;
	start(2);
	slot_add(slots, BASE + 64 * K - 100, 100, 1);	/* splits the unit at its end */
	assert_int_equal(cut(BASE, 122 * K, false), PLAN_OK);	/* best at 61 KiB */
	for (unsigned int i = 1; i < num; i++) {
		uint64_t addr = BASE + piece[i].off;

		assert_true(addr % U == 0 || addr == BASE + 64 * K - 100 ||
			    slot_idle(slot_at(slots, addr)));
	}
	post(BASE, false, 122 * K);
	for (uint64_t a = BASE; a < BASE + 128 * K; a += 4)
		assert_int_not_equal(slot_path(slots, a, 4), SLOT_MIXED);
}

/* Whatever the address, length and weights: an idle table never gets a mixed part. */
static void fresh_cuts_mix_nothing(void **state)
{
	(void)state;
	srand(3);
	for (int i = 0; i < 20000; i++) {
		uint64_t addr = BASE + rand() % 100000, len = 300 + rand() % 300000;
		bool tail = rand() & 1;

		start(0);
		for (int k = 0, n = 1 + rand() % 8; k < n; k++)
			sched_path_start(&s, k, 1 + rand() % 10);
		assert_int_equal(cut(addr, len, tail), PLAN_OK);
		post(addr, tail, len);
		for (unsigned int k = 0; k < num; k++)
			if (slot_path(slots, addr + piece[k].off, piece[k].len) !=
			    (int)piece[k].path)
				fail_msg("round %d, piece %u: %#lx+%lu", i, k, addr, len);
	}
}

static void mixed_waits(void **state)
{
	(void)state;
	start(2);
	slot_add(slots, BASE + 100, 100, 0);
	slot_add(slots, BASE + 50, 10, 1);
	assert_int_equal(cut(BASE, 64 * K, false), PLAN_WAIT);
	slot_sub(slots, BASE + 100, 100);
	slot_sub(slots, BASE + 50, 10);
	assert_int_equal(cut(BASE, 64 * K, false), PLAN_OK);
}

static void tail_on_another_path_waits(void **state)
{
	(void)state;
	start(2);
	slot_add(slots, BASE + 64 * K - 200, 200, 1);
	assert_int_equal(cut(BASE, 64 * K, true), PLAN_WAIT);
	assert_int_equal(cut(BASE, 64 * K, false), PLAN_OK);
	slot_sub(slots, BASE + 64 * K - 200, 200);
	slot_add(slots, BASE + 64 * K - 200, 200, 0);
	assert_int_equal(cut(BASE, 64 * K, true), PLAN_OK);
}

static void too_many_pieces_wait(void **state)
{
	(void)state;
	start(2);
	for (int i = 0; i < 6; i++)
		slot_add(slots, BASE + i * 16 * K, 16 * K, i & 1);
	assert_int_equal(cut(BASE, 96 * K, false), PLAN_OK);
	assert_int_equal(num, 6);
	for (int i = 6; i < 64; i++)
		slot_add(slots, BASE + i * 16 * K, 16 * K, i & 1);
	assert_int_equal(cut(BASE, 112 * K, false), PLAN_WAIT);
	assert_int_equal(cut(BASE, 1024 * K, false), PLAN_WAIT);
}

/* Repeats of a first cut do not queue up behind a path that may be very slow. */
static void unseen_path_fills_slowly(void **state)
{
	unsigned int posted = 0;

	(void)state;
	start(2);
	while (cut(BASE, 64 * K, true) == PLAN_OK && posted < 100) {
		post(BASE, true, 64 * K);
		posted++;
	}
	assert_in_range(posted, 4, 5);
	s.path[0].estimate = 1;
	s.path[1].estimate = 1;
	assert_int_equal(cut(BASE, 64 * K, true), PLAN_OK);
}

static void no_path_waits(void **state)
{
	(void)state;
	start(2);
	slot_add(slots, BASE, 64 * K, 1);
	sched_path_stop(&s, 1);
	assert_int_equal(cut(BASE, 64 * K, false), PLAN_WAIT);	/* its path is gone */
	assert_int_equal(cut(BASE + 64 * K, 64 * K, false), PLAN_OK);
	assert_int_equal(num, 1);
	sched_path_stop(&s, 0);
	assert_int_equal(cut(BASE + 64 * K, 64 * K, false), PLAN_WAIT);
}

/* A path that joins finds all slots on the first one. */
static void new_path_brings_a_rebalance(void **state)
{
	int tries = 0;

	(void)state;
	start(1);
	for (int i = 0; i < 16; i++) {
		assert_int_equal(cut(BASE, 64 * K, true), PLAN_OK);
		post(BASE, true, 64 * K);
	}
	s.path[0].estimate = 1;		/* as if measured */
	sched_path_start(&s, 1, 1);
	for (; tries < 50; tries++) {
		if (cut(BASE, 64 * K, true) == PLAN_REBALANCE)
			break;
		assert_int_equal(num, 1);
		sched_acked(&s, 0, 64 * K - PLAN_TAIL, 0);
		post(BASE, true, 64 * K);
	}
	assert_in_range(tries, 1, 16);
	assert_int_equal(cut(BASE, 64 * K, true), PLAN_OK);	/* the offer is not repeated */
	memset(slots, 0, sizeof(*slots));
	sched_acked(&s, 0, s.in_flight, 0);
	assert_int_equal(cut(BASE, 64 * K, true), PLAN_OK);
	assert_int_equal(num, 2);
}

static void good_routes_stay(void **state)
{
	(void)state;
	start(3);
	assert_int_equal(cut(BASE, 64 * K, true), PLAN_OK);
	post(BASE, true, 64 * K);
	for (int i = 0; i < 100000; i++)
		assert_int_equal(cut(BASE, 64 * K, true), PLAN_OK);
}

/* The best cut is in the tail's unit. What is possible instead is as good as it gets. */
static void routes_that_cannot_be_better_stay(void **state)
{
	(void)state;
	start(0);
	sched_path_start(&s, 0, 7.9);
	sched_path_start(&s, 1, 1);
	for (int i = 0; i < 2; i++)
		s.path[i].estimate = s.path[i].rate;	/* as if measured */
	assert_int_equal(cut(BASE, 64 * K, true), PLAN_OK);
	post(BASE, true, 64 * K);
	for (int i = 0; i < 100000; i++)
		assert_int_equal(cut(BASE, 64 * K, true), PLAN_OK);
}

/* A large piece is posted in parts of about one length; together they are all of it. */
static void pieces_go_out_in_parts(void **state)
{
	static const uint64_t addr[] = { 0, 1, SLOT_SIZE - 1, 0x7f0000001234, -(256ull * MIB) };

	(void)state;
	for (unsigned int i = 0; i < sizeof(addr) / sizeof(*addr); i++)
		for (uint64_t len = 1; len < 200 * MIB; len += 1 + len / 3) {
			uint64_t done = 0, part, least = UINT64_MAX, most = 0;
			unsigned int parts = 0;

			for (; done < len; done += part, parts++) {
				part = plan_part(len, addr[i] + done, len - done);
				assert_true(part && part <= len - done);
				if (part < len - done)
					assert_int_equal(slot_offset(addr[i] + done + part), 0);
				least = part < least ? part : least;
				most = part > most ? part : most;
			}
			assert_in_range(parts, 1, PLAN_PARTS);
			assert_int_equal(parts > 1, 2 * len >= 3 * PLAN_MIN_PART);
			if (parts > 1)
				assert_true(least + PLAN_PARTS * SLOT_SIZE >= PLAN_MIN_PART / 4 * 3 &&
					    most - least <= PLAN_PARTS * SLOT_SIZE);
		}
}

/* One busy half way through a free run's neighbour takes the run, if that is its due. */
static void a_free_run_joins_the_neighbour_behind(void **state)
{
	(void)state;
	start(2);
	/* Of a cut in two the first half of each piece is done. */
	slot_add(slots, BASE + 256 * K, 256 * K, 0);
	slot_add(slots, BASE + 768 * K, 256 * K, 1);
	sched_posted(&s, 0, 256 * K, 0);
	sched_posted(&s, 1, 256 * K, 0);
	assert_int_equal(cut(BASE, 1024 * K, false), PLAN_OK);
	assert_int_equal(num, 2);
	assert_int_equal(piece[0].path, 0);
	assert_int_equal(piece[0].len, 512 * K);
	assert_int_equal(piece[1].path, 1);
}

static void part_done(unsigned int path, unsigned int part)
{
	slot_sub(slots, BASE + path * MIB + part * (256 * K), 256 * K);
	sched_acked(&s, path, 256 * K, part + 1);
}

/* Large pieces on paths not known yet: the next follow before the last part is done, if none lags. */
static void unseen_paths_do_not_run_dry(void **state)
{
	(void)state;
	start(2);
	for (unsigned int i = 0; i < 2; i++)
		for (unsigned int k = 0; k < PLAN_PARTS; k++) {
			assert_int_equal(plan_part(MIB, BASE + i * MIB + k * (256 * K), MIB), 256 * K);
			slot_add(slots, BASE + i * MIB + k * (256 * K), 256 * K, i);
			sched_posted(&s, i, 256 * K, 0);
		}
	for (unsigned int k = 0; k + 1 < PLAN_PARTS; k++) {
		assert_int_equal(cut(BASE, 2 * MIB, false), PLAN_WAIT);
		part_done(0, k);
		assert_int_equal(cut(BASE, 2 * MIB, false), PLAN_WAIT);
		part_done(1, k);
	}
	for (unsigned int i = 0; i < 2; i++)
		s.path[i].estimate = 0;		/* what the acknowledgements say of rates is not the matter */
	assert_int_equal(cut(BASE, 2 * MIB, false), PLAN_OK);
	part_done(0, PLAN_PARTS - 1);
	s.path[0].estimate = 0;
	assert_int_equal(cut(BASE, 2 * MIB, false), PLAN_WAIT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_piece_for_each_path),
		cmocka_unit_test(cuts_are_aligned),
		cmocka_unit_test(short_operation_stays_whole),
		cmocka_unit_test(tail_is_left_out),
		cmocka_unit_test(no_cut_in_the_tails_unit),
		cmocka_unit_test(repeat_is_cut_alike),
		cmocka_unit_test(forced_bytes_count_against_the_share),
		cmocka_unit_test(free_bytes_join_their_neighbours),
		cmocka_unit_test(cut_avoids_a_busy_unit),
		cmocka_unit_test(fresh_cuts_mix_nothing),
		cmocka_unit_test(mixed_waits),
		cmocka_unit_test(tail_on_another_path_waits),
		cmocka_unit_test(too_many_pieces_wait),
		cmocka_unit_test(unseen_path_fills_slowly),
		cmocka_unit_test(pieces_go_out_in_parts),
		cmocka_unit_test(a_free_run_joins_the_neighbour_behind),
		cmocka_unit_test(unseen_paths_do_not_run_dry),
		cmocka_unit_test(no_path_waits),
		cmocka_unit_test(new_path_brings_a_rebalance),
		cmocka_unit_test(good_routes_stay),
		cmocka_unit_test(routes_that_cannot_be_better_stay),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
