/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The slow half of lock.h. */
#include <sched.h>
#include <time.h>

#include "lock.h"

/* A waiter of a real-time class must sleep for a holder of none to run. */
enum { SPINS_BEFORE_YIELD = 200, YIELDS_BEFORE_SLEEP = 1200, SLEEP_NS = 50000 };

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

void bond_lock_wait(struct bond_lock *lock)
{
	const struct timespec step = { .tv_nsec = SLEEP_NS };
	unsigned int spins = 0;

	do {
		while (__atomic_load_n(&lock->word, __ATOMIC_RELAXED)) {
			if (++spins < SPINS_BEFORE_YIELD)
				cpu_relax();
			else if (spins < YIELDS_BEFORE_SLEEP)
				sched_yield();
			else
				nanosleep(&step, NULL);
		}
	} while (!bond_trylock(lock));
}
