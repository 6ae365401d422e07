/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A spin lock of one word for the data path: a few instructions when free, and it gives the
 * processor away when its holder does not run. Held for short, without waiting for anybody else; a
 * member's own verbs are called under it, some of which are system calls on some NICs.
 */
#ifndef BOND_LOCK_H
#define BOND_LOCK_H

#include <stdbool.h>
#include <stdint.h>

struct bond_lock {
	uint32_t word;
};

void bond_lock_wait(struct bond_lock *lock);

static inline bool bond_trylock(struct bond_lock *lock)
{
	return !__atomic_exchange_n(&lock->word, 1, __ATOMIC_ACQUIRE);
}

static inline void bond_lock(struct bond_lock *lock)
{
	if (__builtin_expect(!bond_trylock(lock), 0))
		bond_lock_wait(lock);
}

static inline void bond_unlock(struct bond_lock *lock)
{
	__atomic_store_n(&lock->word, 0, __ATOMIC_RELEASE);
}

#endif
