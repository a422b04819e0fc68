/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * XArray: a sparse array of pointers, as long as an unsigned long can count, read without locks.
 *
 * Each index holds NULL or an entry: a pointer, a number (xa_mk_value()), or a tagged pointer; see
 * xa_entry.h. An entry may span an aligned power of two of indices (its order): a multi-index
 * entry, found at each of them. Three marks (bits) belong to each entry and are found by search.
 * The names, arguments and meanings are those that Linux 6.12 documents, so what one knows from
 * there holds.
 *
 * Inside, it is a radix tree of nodes with 1 << XA_CHUNK_SHIFT slots. An array whose only entry is
 * at index 0 has no node at all. An allocating array (XA_FLAGS_ALLOC) spends mark 0 on finding free
 * indices.
 *
 * Which call needs what
 *
 *	xa_init				nobody else may look in
 *	xa_load, xa_find*, xa_for_each*,
 *	xa_extract, xa_get_mark,
 *	xa_get_order			take the RCU read lock themselves
 *	xa_empty, xa_marked		nothing
 *	xa_store, xa_erase and others	take xa_lock themselves; with GFP_KERNEL may sleep
 *	__xa_store, __xa_erase, ...	xa_lock held; they drop and retake it to allocate when the
 *					flags allow that
 *	xas_*				see xa_state.h
 *
 * RCU readers may run beside anything but xa_init() and the end of the array's life. Each thread
 * that reads is registered with RCU (rcu.h). What a reader found may be erased at once: the array
 * only promises that its own nodes last; the user frees his objects after a grace period, or counts
 * references and looks again.
 *
 * Errors: calls that return an entry return one that xa_is_err() knows; others a negative errno.
 */
#ifndef FOLIO_TREE_XARRAY_H
#define FOLIO_TREE_XARRAY_H

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gfp.h"
#include "list.h"
#include "rcu.h"
#include "xa_entry.h"
#include "xa_lock.h"

typedef unsigned int xa_mark_t;
#define XA_MARK_0 0u
#define XA_MARK_1 1u
#define XA_MARK_2 2u
#define XA_PRESENT 8u /* as a filter of xa_find(): any entry */
#define XA_MARK_MAX XA_MARK_2
#define XA_MAX_MARKS 3
#define XA_FREE_MARK XA_MARK_0 /* of allocating arrays: the index is free */

/* The lock is the same one for all; the kinds are kept for those who know them. */
#define XA_FLAGS_LOCK_IRQ 0x01u
#define XA_FLAGS_LOCK_BH 0x02u
#define XA_FLAGS_TRACK_FREE 0x04u /* maintain XA_FREE_MARK */
#define XA_FLAGS_ZERO_BUSY 0x08u  /* index 0 is never allocated */
#define XA_FLAGS_ALLOC_WRAPPED 0x10u
#define XA_FLAGS_ACCOUNT 0x20u
/* The marks of the whole array: some entry has this mark. */
#define XA_FLAGS_MARK(mark) (0x10000u << (mark))
#define XA_FLAGS_ALLOC (XA_FLAGS_TRACK_FREE | XA_FLAGS_MARK(XA_FREE_MARK))
#define XA_FLAGS_ALLOC1 (XA_FLAGS_ALLOC | XA_FLAGS_ZERO_BUSY)

/* What two processors share, in bytes. */
#define XA_CACHE_LINE 64

/**
 * struct xarray - the array; embed it, zeroed memory is an empty one
 * @xa_lock: writers hold it
 * @xa_flags: XA_FLAGS_*; changes under the lock, read by anybody
 * @xa_pad: keeps the head, which every reader loads, off the cache line that every writer's lock and
 *	unlock takes away from the readers, wherever the array lies
 * @xa_head: the entry at index 0 when it is alone, else the top node, or NULL
 */
struct xarray {
	struct xa_spinlock xa_lock;
	gfp_t xa_flags;
	char xa_pad[XA_CACHE_LINE - sizeof(struct xa_spinlock) - sizeof(gfp_t)];
	void *xa_head;
};

#define XARRAY_INIT(name, flags) { .xa_flags = (flags) }
#define DEFINE_XARRAY_FLAGS(name, flags) struct xarray name = XARRAY_INIT(name, flags)
#define DEFINE_XARRAY(name) DEFINE_XARRAY_FLAGS(name, 0)
#define DEFINE_XARRAY_ALLOC(name) DEFINE_XARRAY_FLAGS(name, XA_FLAGS_ALLOC)
#define DEFINE_XARRAY_ALLOC1(name) DEFINE_XARRAY_FLAGS(name, XA_FLAGS_ALLOC1)

/** xa_init_flags() - Make an empty array. @flags: XA_FLAGS_ALLOC, _ALLOC1 or 0 */
static inline void xa_init_flags(struct xarray *xa, gfp_t flags)
{
	*xa = (struct xarray)XARRAY_INIT(xa, flags);
}

static inline void xa_init(struct xarray *xa)
{
	xa_init_flags(xa, 0);
}

/** struct xa_limit - the indices that an allocation may return, both ends included */
struct xa_limit {
	uint32_t max;
	uint32_t min;
};

#define XA_LIMIT(_min, _max) ((struct xa_limit){ .min = (_min), .max = (_max) })
#define xa_limit_32b XA_LIMIT(0, UINT32_MAX)
#define xa_limit_31b XA_LIMIT(0, INT32_MAX)
#define xa_limit_16b XA_LIMIT(0, UINT16_MAX)

/* Locking. All forms are the same lock; the flags of the irqsave form mean nothing. */
#define xa_trylock(xa) xa_spin_trylock(&(xa)->xa_lock)
#define xa_lock(xa) xa_spin_lock(&(xa)->xa_lock)
#define xa_unlock(xa) xa_spin_unlock(&(xa)->xa_lock)
#define xa_lock_bh(xa) xa_lock(xa)
#define xa_unlock_bh(xa) xa_unlock(xa)
#define xa_lock_irq(xa) xa_lock(xa)
#define xa_unlock_irq(xa) xa_unlock(xa)
#define xa_lock_irqsave(xa, flags) do { (flags) = 0; xa_lock(xa); } while (0)
#define xa_unlock_irqrestore(xa, flags) do { (void)(flags); xa_unlock(xa); } while (0)

/*
 * Reading
 */

void *xa_load(struct xarray *xa, unsigned long index);
bool xa_get_mark(struct xarray *xa, unsigned long index, xa_mark_t mark);
int xa_get_order(struct xarray *xa, unsigned long index);
void *xa_find(struct xarray *xa, unsigned long *index, unsigned long max, xa_mark_t filter);
void *xa_find_after(struct xarray *xa, unsigned long *index, unsigned long max, xa_mark_t filter);
unsigned int xa_extract(struct xarray *xa, void **dst, unsigned long start, unsigned long max,
			unsigned int n, xa_mark_t filter);

/** xa_empty() - Does the array hold nothing at all (nor a reservation)? */
static inline bool xa_empty(const struct xarray *xa)
{
	return !__atomic_load_n(&xa->xa_head, __ATOMIC_RELAXED);
}

/** xa_marked() - Does any entry have @mark? */
static inline bool xa_marked(const struct xarray *xa, xa_mark_t mark)
{
	return __atomic_load_n(&xa->xa_flags, __ATOMIC_RELAXED) & XA_FLAGS_MARK(mark);
}

/*
 * Going over entries, each with one walk from the head, so the body may sleep and may change the
 * array. xas_for_each() is faster, and holds a lock. @index is the index of @entry in the body, and
 * may be set there to go on elsewhere.
 */
#define xa_for_each_range(xa, index, entry, start, last)                                           \
	for (index = (start), entry = xa_find(xa, &index, last, XA_PRESENT); entry;                \
	     entry = xa_find_after(xa, &index, last, XA_PRESENT))
#define xa_for_each_start(xa, index, entry, start)                                                 \
	xa_for_each_range(xa, index, entry, start, ULONG_MAX)
#define xa_for_each(xa, index, entry) xa_for_each_start(xa, index, entry, 0)
#define xa_for_each_marked(xa, index, entry, filter)                                               \
	for (index = 0, entry = xa_find(xa, &index, ULONG_MAX, filter); entry;                     \
	     entry = xa_find_after(xa, &index, ULONG_MAX, filter))

/*
 * Writing. The __ forms want xa_lock held.
 */

void *xa_store(struct xarray *xa, unsigned long index, void *entry, gfp_t gfp);
void *xa_erase(struct xarray *xa, unsigned long index);
void *xa_store_range(struct xarray *xa, unsigned long first, unsigned long last, void *entry,
		     gfp_t gfp);
void *xa_cmpxchg(struct xarray *xa, unsigned long index, void *old, void *entry, gfp_t gfp);
int xa_insert(struct xarray *xa, unsigned long index, void *entry, gfp_t gfp);
int xa_alloc(struct xarray *xa, uint32_t *id, void *entry, struct xa_limit limit, gfp_t gfp);
int xa_alloc_cyclic(struct xarray *xa, uint32_t *id, void *entry, struct xa_limit limit,
		    uint32_t *next, gfp_t gfp);
void xa_set_mark(struct xarray *xa, unsigned long index, xa_mark_t mark);
void xa_clear_mark(struct xarray *xa, unsigned long index, xa_mark_t mark);
void xa_destroy(struct xarray *xa);

void *__xa_store(struct xarray *xa, unsigned long index, void *entry, gfp_t gfp);
void *__xa_erase(struct xarray *xa, unsigned long index);
void *__xa_cmpxchg(struct xarray *xa, unsigned long index, void *old, void *entry, gfp_t gfp);
int __xa_insert(struct xarray *xa, unsigned long index, void *entry, gfp_t gfp);
int __xa_alloc(struct xarray *xa, uint32_t *id, void *entry, struct xa_limit limit, gfp_t gfp);
int __xa_alloc_cyclic(struct xarray *xa, uint32_t *id, void *entry, struct xa_limit limit,
		      uint32_t *next, gfp_t gfp);
void __xa_set_mark(struct xarray *xa, unsigned long index, xa_mark_t mark);
void __xa_clear_mark(struct xarray *xa, unsigned long index, xa_mark_t mark);

/* The kinds of lock are one here, so are the kinds of call. */
#define xa_store_bh xa_store
#define xa_store_irq xa_store
#define xa_erase_bh xa_erase
#define xa_erase_irq xa_erase
#define xa_cmpxchg_bh xa_cmpxchg
#define xa_cmpxchg_irq xa_cmpxchg
#define xa_insert_bh xa_insert
#define xa_insert_irq xa_insert
#define xa_alloc_bh xa_alloc
#define xa_alloc_irq xa_alloc
#define xa_alloc_cyclic_bh xa_alloc_cyclic
#define xa_alloc_cyclic_irq xa_alloc_cyclic
#define xa_reserve_bh xa_reserve
#define xa_reserve_irq xa_reserve

/**
 * xa_reserve() - Make sure that a store to @index will not need memory.
 *
 * The index reads as NULL until something is stored there. What is there already stays.
 *
 * Context: Takes xa_lock. May sleep if @gfp allows it.
 * Return: 0 or -ENOMEM.
 */
static inline int xa_reserve(struct xarray *xa, unsigned long index, gfp_t gfp)
{
	return xa_err(xa_cmpxchg(xa, index, NULL, XA_ZERO_ENTRY, gfp));
}

/**
 * xa_release() - Give a reservation back, if nothing has been stored there since.
 *
 * Context: Takes xa_lock. Does not allocate.
 */
static inline void xa_release(struct xarray *xa, unsigned long index)
{
	xa_cmpxchg(xa, index, XA_ZERO_ENTRY, NULL, GFP_NOWAIT);
}

#include "xa_state.h"

#endif /* FOLIO_TREE_XARRAY_H */
