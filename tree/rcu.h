/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * RCU for the whole project: liburcu's memb flavour, through this one header.
 *
 * A reader brackets its look with rcu_read_lock() and rcu_read_unlock(); both are a few
 * instructions, and nothing that it finds is freed in between. What a writer has unlinked it frees
 * after a grace period, through call_rcu() or after synchronize_rcu().
 *
 * Every thread that reads, or that calls call_rcu(), has to be registered: rcu_register_thread()
 * may be called as often as one likes and undoes itself when the thread ends. Debug builds assert
 * it. A process that wants to fork() and go on in the child does so before its first call_rcu().
 *
 * Pointers are published with rcu_assign_pointer() (release) and followed with rcu_dereference()
 * (acquire, which costs nothing on x86). These are C11 atomics, so ThreadSanitizer understands
 * them. liburcu itself is not instrumented: under ThreadSanitizer the end of each read-side section
 * releases to, and each end of a grace period acquires from, one tag that stands for the grace
 * periods. A call_rcu() callback therefore starts with rcu_callback_begin(head).
 */
#ifndef FOLIO_TREE_RCU_H
#define FOLIO_TREE_RCU_H

#include <assert.h>
#include <stdbool.h>

#if defined(__SANITIZE_THREAD__)
#define FOLIO_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FOLIO_TSAN 1
#endif
#endif

/* The inlined read side is invisible to ThreadSanitizer only as long as it stays in the library. */
#if (!defined(FOLIO_TSAN) || defined(FOLIO_RCU_IMPLEMENTATION)) && !defined(_LGPL_SOURCE)
#define _LGPL_SOURCE
#endif
#include <urcu/urcu-memb.h>

#undef rcu_dereference
#undef rcu_assign_pointer

/* Follow a pointer that writers may change; pairs with rcu_assign_pointer(). */
#define rcu_dereference(p) __atomic_load_n(&(p), __ATOMIC_ACQUIRE)
/* The same where the caller holds the lock that writers take. */
#define rcu_dereference_protected(p) __atomic_load_n(&(p), __ATOMIC_RELAXED)
/* Publish: whoever follows the pointer sees all that was written before. */
#define rcu_assign_pointer(p, v) __atomic_store_n(&(p), (v), __ATOMIC_RELEASE)

extern char rcu_grace_period_tag; /* exists under ThreadSanitizer only */

#ifdef FOLIO_TSAN
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
#define rcu_tsan_acquire(addr) __tsan_acquire(addr)
#define rcu_tsan_release(addr) __tsan_release(addr)
#else
#define rcu_tsan_acquire(addr) ((void)sizeof(addr))
#define rcu_tsan_release(addr) ((void)sizeof(addr))
#endif

/**
 * rcu_register_thread() - Let the calling thread read, and free, under RCU.
 *
 * Context: Any thread; again and again if wanted. Undone by itself at the thread's end.
 */
void rcu_register_thread(void);

/**
 * rcu_unregister_thread() - Undo rcu_register_thread() now.
 *
 * Context: Outside a read-side section. Not needed before a thread ends.
 */
void rcu_unregister_thread(void);

/** rcu_thread_registered() - May the calling thread read? */
#ifdef FOLIO_TSAN
bool rcu_thread_registered(void);
#else
static inline bool rcu_thread_registered(void)
{
	return URCU_TLS(urcu_memb_reader).registered;
}
#endif

static inline void rcu_read_lock(void)
{
	assert(rcu_thread_registered());
	urcu_memb_read_lock();
}

static inline void rcu_read_unlock(void)
{
	rcu_tsan_release(&rcu_grace_period_tag);
	urcu_memb_read_unlock();
}

/** synchronize_rcu() - Wait until every reader that is inside now has left. May sleep. */
static inline void synchronize_rcu(void)
{
	urcu_memb_synchronize_rcu();
	rcu_tsan_acquire(&rcu_grace_period_tag);
}

/**
 * call_rcu() - Call @func in a thread of liburcu's after a grace period.
 * @head: lies in the object to be freed, and is not touched until @func has it
 * @func: begins with rcu_callback_begin(head)
 */
static inline void call_rcu(struct rcu_head *head, void (*func)(struct rcu_head *head))
{
	rcu_tsan_release(head);
	urcu_memb_call_rcu(head, func);
}

/** rcu_callback_begin() - First statement of each call_rcu() callback. */
static inline void rcu_callback_begin(struct rcu_head *head)
{
	rcu_tsan_acquire(head);
	rcu_tsan_acquire(&rcu_grace_period_tag);
}

/** rcu_barrier() - Wait until each callback handed in so far has run. May sleep. */
#ifdef FOLIO_TSAN
void rcu_barrier(void);
#else
static inline void rcu_barrier(void)
{
	urcu_memb_barrier();
}
#endif

#endif /* FOLIO_TREE_RCU_H */
