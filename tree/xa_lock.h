/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The lock of an XArray: four bytes, zero when free, so that zeroed memory is an unlocked lock.
 *
 * Critical sections are short, but a user-space thread can be preempted inside one: a waiter spins
 * for a moment and then sleeps on a futex. The value is 0 free, 1 held, 2 held with sleepers.
 * Taking it is an acquire, giving it back a release.
 */
#ifndef FOLIO_TREE_XA_LOCK_H
#define FOLIO_TREE_XA_LOCK_H

#include <stdbool.h>
#include <stdint.h>

struct xa_spinlock {
	uint32_t value;
};

void xa_spin_lock_slow(struct xa_spinlock *lock);
void xa_spin_wake(struct xa_spinlock *lock);

static inline bool xa_spin_trylock(struct xa_spinlock *lock)
{
	uint32_t expected = 0;

	return __atomic_compare_exchange_n(&lock->value, &expected, 1, false, __ATOMIC_ACQUIRE,
					   __ATOMIC_RELAXED);
}

static inline void xa_spin_lock(struct xa_spinlock *lock)
{
	if (!xa_spin_trylock(lock))
		xa_spin_lock_slow(lock);
}

static inline void xa_spin_unlock(struct xa_spinlock *lock)
{
	if (__atomic_exchange_n(&lock->value, 0, __ATOMIC_RELEASE) == 2)
		xa_spin_wake(lock);
}

static inline bool xa_spin_is_locked(const struct xa_spinlock *lock)
{
	return __atomic_load_n(&lock->value, __ATOMIC_RELAXED) != 0;
}

#endif /* FOLIO_TREE_XA_LOCK_H */
