/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Rates and shares by themselves. How they do together with cutting over a long time is in
 * test_sim.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "sched.h"

#define K 1024
#define MS 1000000ull

/* What it takes to have so many samples of a path whose first bytes are passed over. */
#define SAMPLES(n) (SCHED_BURST_BYTES + (n) * (uint64_t)SCHED_WINDOW_BYTES)

static struct sched s;
static double quota[BOND_MAX_PATHS];

static void expect_near(double value, double want, double part)
{
	if (fabs(value - want) > part * want)
		fail_msg("%g where %g was expected", value, want);
}

/* The path carries bytes in pieces, one after the other without a gap, at a rate in bytes/ns. */
static uint64_t carry(unsigned int path, uint64_t bytes, uint64_t piece, double rate, uint64_t from)
{
	double now = from;

	sched_posted(&s, path, piece, from);
	for (uint64_t sum = piece; sum <= bytes; sum += piece) {
		sched_posted(&s, path, piece, now);
		now += piece / rate;
		sched_acked(&s, path, piece, now);
	}
	sched_dropped(&s, path, piece, now);
	return now;
}

static void start(unsigned int num, const double *weights)
{
	sched_init(&s);
	for (unsigned int i = 0; i < num; i++)
		sched_path_start(&s, i, weights ? weights[i] : 1);
}

static void no_path_no_share(void **state)
{
	(void)state;
	start(0, NULL);
	assert_int_equal(sched_share(&s, 1 << 20, NULL, 0, quota), 0);
	assert_int_equal(sched_best(&s, 100, 0), -1);
	start(2, NULL);
	sched_path_stop(&s, 0);
	sched_path_stop(&s, 0);
	sched_path_stop(&s, 1);
	assert_int_equal(s.num_usable, 0);
	assert_int_equal(sched_share(&s, 1 << 20, NULL, 0, quota), 0);
}

static void weights_until_measured(void **state)
{
	const double weights[] = { 100, 50, 50 };

	(void)state;
	start(3, weights);
	assert_int_equal(sched_share(&s, 400 * K, NULL, 0, quota), 3);
	expect_near(quota[0], 200 * K, 1e-6);
	expect_near(quota[1], 100 * K, 1e-6);
	expect_near(quota[2], 100 * K, 1e-6);
}

static void stopped_path_gets_nothing(void **state)
{
	(void)state;
	start(3, NULL);
	sched_path_stop(&s, 1);
	assert_int_equal(sched_share(&s, 400 * K, NULL, 0, quota), 2);
	assert_true(quota[1] == 0);
	expect_near(quota[0] + quota[2], 400 * K, 1e-6);
	sched_path_start(&s, 1, 1);
	assert_int_equal(sched_share(&s, 300 * K, NULL, 0, quota), 3);
	expect_near(quota[1], 100 * K, 1e-6);
}

static void all_drain_together(void **state)
{
	(void)state;
	start(3, NULL);
	sched_posted(&s, 0, 90 * K, 0);
	sched_posted(&s, 2, 30 * K, 0);
	assert_int_equal(sched_share(&s, 180 * K, NULL, 0, quota), 3);
	expect_near(quota[0], 10 * K, 1e-6);
	expect_near(quota[1], 100 * K, 1e-6);
	expect_near(quota[2], 70 * K, 1e-6);
}

static void loaded_path_waits(void **state)
{
	(void)state;
	start(2, NULL);
	sched_posted(&s, 0, 1000 * K, 0);
	assert_int_equal(sched_share(&s, 100 * K, NULL, 0, quota), 1);
	assert_true(quota[0] == 0);
	expect_near(quota[1], 100 * K, 1e-6);
	assert_int_equal(sched_best(&s, 64 * K, 0), 1);
}

static void forced_bytes_count_instead_of_the_queue(void **state)
{
	const uint64_t forced[] = { 60 * K, 0 };

	(void)state;
	start(2, NULL);
	sched_posted(&s, 1, 500 * K, 0);
	assert_int_equal(sched_share(&s, 100 * K, forced, 0, quota), 2);
	expect_near(quota[0], 20 * K, 1e-6);
	expect_near(quota[1], 80 * K, 1e-6);
}

static void too_small_a_share_is_none(void **state)
{
	const double weights[] = { 100, 1 };

	(void)state;
	start(2, weights);
	assert_int_equal(sched_share(&s, 64 * K, NULL, 0, quota), 1);
	assert_true(quota[0] == 64 * K && quota[1] == 0);
	assert_int_equal(sched_share(&s, 4096 * K, NULL, 0, quota), 2);
	expect_near(quota[1], 4096 * K / 101.0, 1e-6);
	start(16, NULL);
	assert_int_equal(sched_share(&s, 16 * K, NULL, 0, quota), 2);
	assert_int_equal(sched_share(&s, 4 * K, NULL, 0, quota), 1);
}

static void piece_under_way_is_partly_done(void **state)
{
	(void)state;
	start(2, NULL);		/* rates are 1 byte/ns until something is measured */
	sched_posted(&s, 0, 64 * K, 0);
	sched_share(&s, 64 * K, NULL, 32 * K, quota);
	expect_near(quota[1] - quota[0], 32 * K, 1e-6);
	sched_share(&s, 64 * K, NULL, 64 * K, quota);
	expect_near(quota[0], quota[1], 1e-6);
}

static void rate_is_bytes_over_busy_time(void **state)
{
	uint64_t now;

	(void)state;
	start(1, NULL);
	now = carry(0, 1024 * K, 32 * K, 0.0125, 1000);
	expect_near(s.path[0].rate, 0.0125, 0.01);
	now = carry(0, 1024 * K, 32 * K, 0.0125, now + 5000 * MS);	/* idle time is no time */
	expect_near(s.path[0].rate, 0.0125, 0.01);
	assert_int_equal(s.in_flight, 0);
}

/* What a token bucket lets through at once is not the rate. */
static void burst_is_not_the_rate(void **state)
{
	uint64_t now = 1000;

	(void)state;
	start(1, NULL);
	sched_posted(&s, 0, 64 * K, now);
	sched_acked(&s, 0, 64 * K, now += 50000);
	now = carry(0, SCHED_WINDOW_BYTES, 32 * K, 0.0125, now);
	expect_near(s.path[0].rate, 0.0125, 0.01);
}

static void unseen_path_follows_its_weight(void **state)
{
	const double weights[] = { 100, 50 };

	(void)state;
	start(2, weights);
	carry(0, SAMPLES(1), 32 * K, 0.0125, 0);
	expect_near(s.path[1].rate, 0.00625, 0.02);
}

/* Two samples of the slower of two paths that were believed equal, four of the faster. */
static void wrong_weights_are_soon_corrected(void **state)
{
	const unsigned int pieces = 3 * (SAMPLES(2) / (32 * K)) + 3;
	double now[2] = { 0, 0 };

	(void)state;
	start(2, NULL);
	for (int i = 0; i < 2; i++)
		for (int k = 0; k < 2; k++)
			sched_posted(&s, i, 32 * K, 0);
	for (unsigned int n = 0; n < pieces; n++) {
		int path = now[0] + 32 * K / 0.0125 <= now[1] + 32 * K / 0.00625 ? 0 : 1;

		now[path] += 32 * K / (path ? 0.00625 : 0.0125);
		sched_acked(&s, path, 32 * K, now[path]);
		sched_posted(&s, path, 32 * K, now[path]);
	}
	expect_near(s.path[0].rate / s.path[1].rate, 2, 0.05);
}

/* A single window may be a third off, which is what a stall of 10 ms does to it; many may not. */
static void noise_does_not_part_equal_paths(void **state)
{
	uint64_t now;

	(void)state;
	start(2, NULL);
	now = carry(0, SAMPLES(1), 32 * K, 0.0125, 0);
	now = carry(1, SAMPLES(1), 32 * K, 0.0125 * 0.7, now);
	assert_true(s.path[0].samples == 1 && s.path[1].samples == 1);
	assert_true(s.path[0].estimate > 1.4 * s.path[1].estimate);
	assert_true(s.path[0].rate == s.path[1].rate);
	now = carry(0, SAMPLES(32), 32 * K, 0.0125, now);
	assert_true(s.path[0].rate == s.path[1].rate);
	carry(1, SAMPLES(32), 32 * K, 0.0125 * 0.7, now);
	expect_near(s.path[0].rate / s.path[1].rate, 1 / 0.7, 0.02);
}

/*
 * What a hundred windows say is not noise, but it may be what the windows share. Up to a fifth,
 * equal parts are kept: they lose little more than half of that, and a wrong cut may lose more.
 */
static void small_differences_do_not_part_paths(void **state)
{
	uint64_t now;

	(void)state;
	start(2, NULL);
	now = carry(0, SAMPLES(100), 32 * K, 0.0125, 0);
	carry(1, SAMPLES(100), 32 * K, 0.0125 * 1.1, now);
	assert_true(s.path[1].estimate > 1.09 * s.path[0].estimate);
	assert_true(s.path[0].rate == s.path[1].rate);
}

/* A second of the slowest path is worth more than five milliseconds of a fast one. */
static void long_window_counts_as_several(void **state)
{
	(void)state;
	start(1, NULL);
	carry(0, 8192 * K, 8192 * K, 0.00625, 0);
	assert_in_range(s.path[0].samples, 15, 17);
}

/* Of the first piece a burst is passed over: nearly all of a large one says something, no small one. */
static void first_piece_counts_if_large(void **state)
{
	(void)state;
	start(2, NULL);
	carry(0, 2048 * K, 2048 * K, 0.0125, 0);
	assert_int_equal(s.path[0].samples, 2);
	expect_near(s.path[0].estimate, 0.0125, 0.05);
	carry(1, 1000 * K, 1000 * K, 0.0125, 0);
	assert_int_equal(s.path[1].samples, 0);
}

/* Once apart, paths do not come together again just because one is measured anew. */
static void parted_paths_stay_apart(void **state)
{
	uint64_t now;

	(void)state;
	start(2, NULL);
	now = carry(0, SAMPLES(8), 32 * K, 0.0125, 0);
	now = carry(1, SAMPLES(8), 32 * K, 0.0125 * 0.7, now);
	expect_near(s.path[0].rate / s.path[1].rate, 1 / 0.7, 0.02);
	carry(0, SAMPLES(3), 32 * K, 0.0125 * 2, now);
	assert_in_range(s.path[0].samples, 1, 3);
	expect_near(s.path[0].rate / s.path[1].rate, 2 / 0.7, 0.02);
	start(2, NULL);
	now = carry(0, SAMPLES(8), 32 * K, 0.0125, 0);
	now = carry(1, SAMPLES(8), 32 * K, 0.0125 * 0.7, now);
	carry(1, SAMPLES(100), 32 * K, 0.0125, now);
	assert_true(s.path[0].rate == s.path[1].rate);		/* but they may */
}

static void congestion_is_noticed(void **state)
{
	uint64_t now;

	(void)state;
	start(1, NULL);
	now = carry(0, 8192 * K, 32 * K, 0.0125, 0);
	carry(0, SAMPLES(3), 32 * K, 0.004, now);
	expect_near(s.path[0].rate, 0.004, 0.02);
}

static void silent_path_gets_less(void **state)
{
	uint64_t now;

	(void)state;
	start(2, NULL);
	now = carry(0, 1024 * K, 32 * K, 0.0125, 0);
	now = carry(1, 1024 * K, 32 * K, 0.0125, now);
	sched_posted(&s, 0, 32 * K, now);
	sched_posted(&s, 1, 32 * K, now);
	now += 1000 * MS;
	sched_acked(&s, 0, 32 * K, now);
	sched_share(&s, 1024 * K, NULL, now, quota);
	assert_true(quota[0] > 20 * quota[1]);
}

/* Each path carries the same. Returns when the slower one has. */
static uint64_t lopsided_step(uint64_t now, uint64_t first_ns, uint64_t second_ns)
{
	sched_posted(&s, 0, 32 * K, now);
	sched_posted(&s, 1, 32 * K, now);
	sched_acked(&s, 0, 32 * K, now + first_ns);
	sched_acked(&s, 1, 32 * K, now + second_ns);
	return now + second_ns;
}

/* Bytes of one path come at once and it waits for the other: it could do more. */
static void idle_path_is_raised(void **state)
{
	uint64_t now = 0;

	(void)state;
	start(2, NULL);
	for (uint64_t sum = 0; sum < SAMPLES(2); sum += 32 * K)
		now = lopsided_step(now, 1 * MS, 5 * MS);
	assert_true(s.path[0].rate > 1.9 * s.path[1].rate);
}

/* Path 0 is known to be twice as fast as path 1, which has 512 KiB in flight from then on. */
static uint64_t start_unequal(void)
{
	uint64_t now;

	start(2, NULL);
	now = carry(0, SAMPLES(32), 32 * K, 0.0125, 0);
	now = carry(1, SAMPLES(32), 32 * K, 0.00625, now);
	expect_near(s.path[0].rate / s.path[1].rate, 2, 0.02);
	for (int i = 0; i < 16; i++)
		sched_posted(&s, 1, 32 * K, now);
	return now;
}

/* Path 0 carries some bytes and path 1 half of 64 KiB in 5 ms. */
static uint64_t unequal_step(uint64_t now, uint64_t first)
{
	sched_posted(&s, 0, first, now);
	sched_posted(&s, 1, 32 * K, now);
	now += 5 * MS;
	sched_acked(&s, 0, first, now);
	sched_acked(&s, 1, 32 * K, now);
	return now;
}

/* With little in flight it looks as slow as the other; given more, it is not. */
static void starved_path_is_tried_with_more(void **state)
{
	uint64_t now = start_unequal();
	double rate = s.path[0].rate;
	int steps = 0;

	(void)state;
	for (; !s.reroute; steps++) {
		assert_true(steps < 100);
		assert_true(s.path[0].rate >= rate);
		now = unequal_step(now, 32 * K);
	}
	expect_near(s.path[0].rate / rate, 1.15, 0.01);
	sched_rebalanced(&s);
	while (!s.reroute)
		now = unequal_step(now, 96 * K);
	expect_near(s.path[0].rate / s.path[1].rate, 3, 0.05);
}

/* It does not bear that out: what was known holds, routes are made for that, and tries get rare. */
static void starved_path_is_left_alone_in_the_end(void **state)
{
	uint64_t now = start_unequal();
	unsigned int reroutes = 0;
	double rate = s.path[0].rate;

	(void)state;
	for (int i = 0; i < 20000; i++) {
		now = unequal_step(now, s.path[0].raised > 0 ? 64 * K : 48 * K);
		reroutes += s.reroute;
		if (s.reroute)
			sched_rebalanced(&s);
	}
	expect_near(s.path[0].rate / rate, 1, 0.06);
	assert_in_range(reroutes, 2, 12);
}

/* What is in flight at a new start counts as load from then on, not from the clock's beginning. */
static void load_counts_from_the_start(void **state)
{
	(void)state;
	start(2, NULL);
	sched_posted(&s, 0, 32 * K, 1000000 * MS);
	sched_path_start(&s, 0, 1);
	sched_acked(&s, 0, 32 * K, 1000005 * MS);
	expect_near(s.path[0].load, 32.0 * K * 5 * MS, 1e-9);
}

/* The same rate with enough in flight is the path's own. */
static void slow_path_with_enough_to_do_is_believed(void **state)
{
	uint64_t now = start_unequal();

	(void)state;
	for (int i = 0; i < 16; i++)
		sched_posted(&s, 0, 32 * K, now);
	for (int i = 0; i < 200; i++)
		now = unequal_step(now, 32 * K);
	assert_true(!s.reroute);
	expect_near(s.path[0].rate / s.path[1].rate, 1, 0.05);
}

/* A bucket makes a path look idle that is not: after some tries it is left alone. */
static void vain_raises_become_rare(void **state)
{
	unsigned int raises = 0;
	uint64_t now = 0;

	(void)state;
	start(2, NULL);
	for (int i = 0; i < 40000; i++) {
		bool raised = s.path[0].raised > 0;

		/* given more, it turns out to be as slow as ever */
		now = lopsided_step(now, raised || i < 100 ? 5 * MS : 2 * MS, 5 * MS);
		raises += !raised && s.path[0].raised > 0;
	}
	assert_in_range(raises, 2, 6);
}

static void right_raise_is_believed(void **state)
{
	uint64_t now = 0;

	(void)state;
	start(2, NULL);
	for (int i = 0; i < 1000; i++)
		now = lopsided_step(now, 5 * MS, 5 * MS);
	expect_near(s.path[0].rate / s.path[1].rate, 1, 1e-6);
	while (!(s.path[0].raised > 0))
		now = lopsided_step(now, 2 * MS, 5 * MS);
	while (s.path[0].raised > 0) {
		sched_posted(&s, 0, 64 * K, now);
		sched_posted(&s, 1, 32 * K, now);
		sched_acked(&s, 0, 64 * K, now += 5 * MS);
		sched_acked(&s, 1, 32 * K, now);
	}
	expect_near(s.path[0].rate / s.path[1].rate, 2, 0.02);
}

static void long_unused_path_is_tried_again(void **state)
{
	uint64_t now;

	(void)state;
	start(2, NULL);
	now = carry(1, SAMPLES(2), 32 * K, 0.00001, 0);
	now = carry(0, SAMPLES(2), 32 * K, 0.0125, now);
	sched_share(&s, 64 * K, NULL, now, quota);
	assert_true(quota[1] == 0);
	sched_share(&s, 64 * K, NULL, now + 3600000 * MS, quota);
	assert_true(quota[1] == PLAN_MIN_PIECE);
	expect_near(quota[0], 64 * K - PLAN_MIN_PIECE, 1e-6);
}

static void small_pieces_are_passed_over(void **state)
{
	(void)state;
	start(1, NULL);
	sched_posted(&s, 0, SCHED_COUNTED - 1, 0);
	assert_int_equal(s.in_flight, 0);
	sched_acked(&s, 0, SCHED_COUNTED - 1, 0);
	sched_dropped(&s, 0, SCHED_COUNTED - 1, 0);
	assert_int_equal(s.in_flight, 0);
}

static void dropped_bytes_are_not_a_rate(void **state)
{
	(void)state;
	start(1, NULL);
	for (int i = 0; i < 100; i++) {
		sched_posted(&s, 0, 64 * K, i * MS);
		sched_dropped(&s, 0, 64 * K, i * MS + MS);
	}
	assert_int_equal(s.in_flight, 0);
	assert_int_equal(s.moved, 0);
	assert_true(s.path[0].estimate == 0);
}

static void clock_that_stands_still(void **state)
{
	(void)state;
	start(2, NULL);
	for (int i = 0; i < 1000; i++) {
		sched_posted(&s, i % 2, 64 * K, 7);
		sched_acked(&s, i % 2, 64 * K, 7);
	}
	assert_int_equal(sched_share(&s, 128 * K, NULL, 7, quota), 2);
	expect_near(quota[0], 64 * K, 1e-6);
}

/* Two paths that are busy all the time, for so long; a rate may depend on the other's being so. */
static double next_ns[2];

static void drive(double until_ns, const double *both, double alone)
{
	while (next_ns[0] < until_ns) {
		int i = next_ns[1] > 0 && next_ns[1] < next_ns[0];
		double now = next_ns[i], rate = s.path[!i].benched ? alone : both[i];

		sched_acked(&s, i, 64 * K, now);
		for (int k = 0; k < 2; k++)
			if (!s.path[k].in_flight && !s.path[k].benched) {
				sched_posted(&s, k, 64 * K, now);
				next_ns[k] = now + 64 * K / (k == i ? rate : both[k]);
			}
		if (s.path[i].benched)
			next_ns[i] = 0;
		assert_false(s.path[0].benched);
	}
}

static void drive_start(void)
{
	start(2, NULL);
	for (int i = 0; i < 2; i++) {
		sched_posted(&s, i, 64 * K, 1);
		next_ns[i] = 2 + i;
	}
}

/* Path 1 is the slower one: path 0 must never be left out (drive() looks). */
static void harmful_path_is_benched_until_it_helps(void **state)
{
	const double harm[] = { 0.006, 0.005 }, help[] = { 0.0125, 0.011 };

	(void)state;
	drive_start();
	drive(300e9, harm, 0.0125);
	assert_true(s.path[1].benched);
	assert_int_equal(sched_share(&s, 1 << 20, NULL, s.last_ns, quota), 1);
	assert_true(quota[1] == 0);
	drive(1000e9, help, 0.0125);
	assert_false(s.path[1].benched);
	assert_int_equal(sched_share(&s, 1 << 20, NULL, s.last_ns, quota), 2);
}

static void last_path_is_not_benched(void **state)
{
	const double harm[] = { 0.006, 0.005 };

	(void)state;
	drive_start();
	drive(300e9, harm, 0.0125);
	assert_true(s.path[1].benched);
	sched_path_stop(&s, 0);
	assert_int_equal(sched_share(&s, 1 << 20, NULL, s.last_ns, quota), 1);
	assert_true(quota[1] == 1 << 20);
	assert_int_equal(sched_best(&s, 100, s.last_ns), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_path_no_share),
		cmocka_unit_test(weights_until_measured),
		cmocka_unit_test(stopped_path_gets_nothing),
		cmocka_unit_test(all_drain_together),
		cmocka_unit_test(loaded_path_waits),
		cmocka_unit_test(forced_bytes_count_instead_of_the_queue),
		cmocka_unit_test(too_small_a_share_is_none),
		cmocka_unit_test(piece_under_way_is_partly_done),
		cmocka_unit_test(rate_is_bytes_over_busy_time),
		cmocka_unit_test(burst_is_not_the_rate),
		cmocka_unit_test(unseen_path_follows_its_weight),
		cmocka_unit_test(wrong_weights_are_soon_corrected),
		cmocka_unit_test(noise_does_not_part_equal_paths),
		cmocka_unit_test(small_differences_do_not_part_paths),
		cmocka_unit_test(long_window_counts_as_several),
		cmocka_unit_test(first_piece_counts_if_large),
		cmocka_unit_test(parted_paths_stay_apart),
		cmocka_unit_test(congestion_is_noticed),
		cmocka_unit_test(silent_path_gets_less),
		cmocka_unit_test(idle_path_is_raised),
		cmocka_unit_test(starved_path_is_tried_with_more),
		cmocka_unit_test(starved_path_is_left_alone_in_the_end),
		cmocka_unit_test(load_counts_from_the_start),
		cmocka_unit_test(slow_path_with_enough_to_do_is_believed),
		cmocka_unit_test(vain_raises_become_rare),
		cmocka_unit_test(right_raise_is_believed),
		cmocka_unit_test(long_unused_path_is_tried_again),
		cmocka_unit_test(small_pieces_are_passed_over),
		cmocka_unit_test(dropped_bytes_are_not_a_rate),
		cmocka_unit_test(clock_that_stands_still),
		cmocka_unit_test(harmful_path_is_benched_until_it_helps),
		cmocka_unit_test(last_path_is_not_benched),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
