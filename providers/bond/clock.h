/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The time that the scheduler measures rates with. */
#ifndef BOND_CLOCK_H
#define BOND_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

#endif
