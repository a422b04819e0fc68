/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The slow half of the XArray's lock.
 *
 * A waiter spins as long as a critical section usually lasts, looking without writing so that the
 * holder keeps its cache line. Then it marks the lock as having sleepers (2) and sleeps. Who wakes
 * takes the lock as 2 too: there may be others asleep, and one wake too many is harmless.
 */
#include "xa_lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SPINS 128

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#else
	__asm__ volatile("" ::: "memory");
#endif
}

static void futex_wait(struct xa_spinlock *lock, uint32_t value)
{
	syscall(SYS_futex, &lock->value, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

void xa_spin_lock_slow(struct xa_spinlock *lock)
{
	for (int i = 0; i < SPINS; i++) {
		if (!xa_spin_is_locked(lock) && xa_spin_trylock(lock))
			return;
		cpu_relax();
	}
	while (__atomic_exchange_n(&lock->value, 2, __ATOMIC_ACQUIRE) != 0)
		futex_wait(lock, 2);
}

void xa_spin_wake(struct xa_spinlock *lock)
{
	syscall(SYS_futex, &lock->value, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
