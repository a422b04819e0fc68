/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Maple tree: ranges of unsigned long that do not overlap, each with a pointer; read without locks.
 *
 * Each index from 0 to ULONG_MAX belongs to one range, which holds an entry or NULL (nothing). A
 * range has a first and a last index, both inside. Storing over what is there cuts or replaces it;
 * storing NULL erases, and ranges of NULL that touch are one. The names, arguments and meanings are
 * those that Linux 6.12 documents, so what one knows from there holds.
 *
 * An entry is any pointer or number, but not one of 2, 6, 10 ... 4094, which are internal: turn
 * numbers into entries with xa_mk_value() (xa_entry.h). The normal API refuses those, and takes a
 * range with XA_ZERO_ENTRY as reserved: it reads as NULL.
 *
 * Inside, it is a B-tree of nodes with 256 bytes. A tree that is empty, or whose only entry is at
 * index 0 alone, has no node. A tree with MT_FLAGS_ALLOC_RANGE knows of each subtree its largest
 * gap, and finds free ranges by that.
 *
 * Which call needs what
 *
 *	mt_init, mt_init_flags		nobody else may look in
 *	mtree_load, mt_find, mt_next,
 *	mt_prev, mt_for_each		take the RCU read lock themselves
 *	mtree_empty, mt_height		nothing
 *	mtree_store, mtree_erase, and
 *	all others of mtree_		take the tree's lock themselves; with GFP_KERNEL may sleep
 *	mas_walk, mas_find, mas_next,
 *	mas_prev and their like		rcu_read_lock() or mas_lock()
 *	mas_empty_area, _rev		mas_lock(); with RCU alone the answer may be out of date
 *	mas_store, mas_erase and others
 *	that change			mas_lock(), or the user's lock with MT_FLAGS_LOCK_EXTERN
 *
 * With MT_FLAGS_USE_RCU readers may run beside anything but mt_init() and the end of the tree's
 * life. What they find is a range as it was at some moment of the call. Without that flag the tree
 * is changed in place, faster, and the user's own locking keeps readers and writers apart. Each
 * thread that reads or writes is registered with RCU (rcu.h). The tree promises that its own nodes
 * last; what entries point to, the user frees after a grace period.
 *
 * Errors: a negative errno. In a cursor it is sticky until mas_reset(), mas_set() or mas_nomem().
 *
 * Where things are: mt_walk.c walks and loads, mt_iter.c goes on and back and finds, mt_gap.c looks
 * for free ranges, mtree.c is the normal API that reads, mt_dup.c copies a tree; mt_write.c decides
 * what a store takes and does what can be done in place, mt_rebuild.c the rest, mt_nodes.c has a
 * cursor's nodes, mt_store.c and mtree_store.c the calls that change, mt_check.c checks.
 */
#ifndef FOLIO_TREE_MAPLE_TREE_H
#define FOLIO_TREE_MAPLE_TREE_H

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gfp.h"
#include "rcu.h"
#include "xa_entry.h"
#include "xa_lock.h"

#define MT_FLAGS_ALLOC_RANGE 0x01u   /* keep gaps, for mas_empty_area() and mtree_alloc_*() */
#define MT_FLAGS_USE_RCU 0x02u	     /* readers may run beside writers */
#define MT_FLAGS_HEIGHT_OFFSET 0x02u /* where the height lies in the flags */
#define MT_FLAGS_HEIGHT_MASK 0x7Cu
#define MT_FLAGS_LOCK_MASK 0x300u
#define MT_FLAGS_LOCK_IRQ 0x100u     /* one lock for all; kept for those who know it */
#define MT_FLAGS_LOCK_BH 0x200u
#define MT_FLAGS_LOCK_EXTERN 0x300u  /* the user has a lock of his own; ma_lock is never taken */
#define MT_FLAGS_ALLOC_WRAPPED 0x0800u /* set by the tree: a cyclic allocation has wrapped */

#define MAPLE_HEIGHT_MAX 31

struct maple_enode; /* an encoded pointer to a node; never followed by a user */
struct maple_node;

/* What two processors share, in bytes. */
#define MT_CACHE_LINE 64

/**
 * struct maple_tree - the tree; embed it
 * @ma_lock: writers hold it, unless the flags say MT_FLAGS_LOCK_EXTERN
 * @ma_flags: MT_FLAGS_*, and the height
 * @ma_pad: keeps the root, which every reader loads, off the cache line of the lock
 * @ma_root: NULL, the entry at index 0 when it is alone, or the top node
 */
struct maple_tree {
	struct xa_spinlock ma_lock;
	unsigned int ma_flags;
	char ma_pad[MT_CACHE_LINE - sizeof(struct xa_spinlock) - sizeof(unsigned int)];
	void *ma_root;
};

#define MTREE_INIT(name, flags) { .ma_flags = (flags) }
/* A tree under a lock of the user's. @lock is not looked at. */
#define MTREE_INIT_EXT(name, flags, lock) MTREE_INIT(name, (flags) | MT_FLAGS_LOCK_EXTERN)
#define DEFINE_MTREE(name) struct maple_tree name = MTREE_INIT(name, 0)

#define mtree_lock(mt) xa_spin_lock(&(mt)->ma_lock)
#define mtree_trylock(mt) xa_spin_trylock(&(mt)->ma_lock)
#define mtree_unlock(mt) xa_spin_unlock(&(mt)->ma_lock)
#define mtree_lock_nested(mt, subclass) mtree_lock(mt)

/** mt_init_flags() - Make an empty tree. @flags: MT_FLAGS_* */
static inline void mt_init_flags(struct maple_tree *mt, unsigned int flags)
{
	*mt = (struct maple_tree)MTREE_INIT(mt, flags);
}

/** mt_init() - Make an empty tree that needs no gaps and has no readers beside its writers. */
static inline void mt_init(struct maple_tree *mt)
{
	mt_init_flags(mt, 0);
}

/** mtree_empty() - Does the tree hold nothing? */
static inline bool mtree_empty(const struct maple_tree *mt)
{
	return !__atomic_load_n(&mt->ma_root, __ATOMIC_RELAXED);
}

static inline unsigned int mt_flags(const struct maple_tree *mt)
{
	return __atomic_load_n(&mt->ma_flags, __ATOMIC_RELAXED);
}

/** mt_height() - How many levels of nodes: 0 without a node, 1 for a sole leaf. */
static inline unsigned int mt_height(const struct maple_tree *mt)
{
	return (mt_flags(mt) & MT_FLAGS_HEIGHT_MASK) >> MT_FLAGS_HEIGHT_OFFSET;
}

static inline bool mt_external_lock(const struct maple_tree *mt)
{
	return (mt_flags(mt) & MT_FLAGS_LOCK_MASK) == MT_FLAGS_LOCK_EXTERN;
}

/* The user's lock is not looked at: nothing to remember. */
#define mt_set_external_lock(mt, lock) ((void)(mt))

/** mt_in_rcu() - May readers run beside writers? */
static inline bool mt_in_rcu(const struct maple_tree *mt)
{
	return mt_flags(mt) & MT_FLAGS_USE_RCU;
}

/**
 * mt_set_in_rcu() - From now on readers may run beside writers.
 *
 * Context: Takes the tree's lock, unless that is the user's: then it is held.
 */
void mt_set_in_rcu(struct maple_tree *mt);

/**
 * mt_clear_in_rcu() - From now on no reader runs beside a writer.
 *
 * Context: As mt_set_in_rcu(). No reader is inside.
 */
void mt_clear_in_rcu(struct maple_tree *mt);

/*
 * The normal API. Indices and ranges; no state between calls.
 */

void *mtree_load(struct maple_tree *mt, unsigned long index);

int mtree_store(struct maple_tree *mt, unsigned long index, void *entry, gfp_t gfp);
int mtree_store_range(struct maple_tree *mt, unsigned long first, unsigned long last, void *entry,
		      gfp_t gfp);
int mtree_insert(struct maple_tree *mt, unsigned long index, void *entry, gfp_t gfp);
int mtree_insert_range(struct maple_tree *mt, unsigned long first, unsigned long last, void *entry,
		       gfp_t gfp);
void *mtree_erase(struct maple_tree *mt, unsigned long index);

int mtree_alloc_range(struct maple_tree *mt, unsigned long *startp, void *entry, unsigned long size,
		      unsigned long min, unsigned long max, gfp_t gfp);
int mtree_alloc_rrange(struct maple_tree *mt, unsigned long *startp, void *entry,
		       unsigned long size, unsigned long min, unsigned long max, gfp_t gfp);
int mtree_alloc_cyclic(struct maple_tree *mt, unsigned long *startp, void *entry,
		       unsigned long range_lo, unsigned long range_hi, unsigned long *next,
		       gfp_t gfp);

int mtree_dup(struct maple_tree *mt, struct maple_tree *new, gfp_t gfp);
int __mt_dup(struct maple_tree *mt, struct maple_tree *new, gfp_t gfp);
void mtree_destroy(struct maple_tree *mt);
void __mt_destroy(struct maple_tree *mt);

void *mt_find(struct maple_tree *mt, unsigned long *index, unsigned long max);
void *mt_find_after(struct maple_tree *mt, unsigned long *index, unsigned long max);
void *mt_next(struct maple_tree *mt, unsigned long index, unsigned long max);
void *mt_prev(struct maple_tree *mt, unsigned long index, unsigned long min);

/*
 * mt_for_each() - Over the entries from @__index to @__max, each with one walk from the root, so
 * the body may sleep and may change the tree. In the body @__index is one past the entry's range.
 * mas_for_each() is faster and holds a lock.
 */
#define mt_for_each(__tree, __entry, __index, __max)                                               \
	for (__entry = mt_find(__tree, &(__index), __max); __entry;                                \
	     __entry = mt_find_after(__tree, &(__index), __max))

/*
 * The advanced API: a cursor, struct ma_state, that remembers its place. It lives on one thread's
 * stack. Before the lock (or the RCU read lock) under which it got to its place is dropped, call
 * mas_pause() or mas_reset().
 *
 * What its status says
 *
 *	ma_start	not in the tree yet: the next call walks from the root to index
 *	ma_active	at a range: index and last are its ends, node, offset, min, max its place
 *	ma_root		at the sole entry, which is in no node (index 0)
 *	ma_none		in a tree without nodes, where there is nothing
 *	ma_pause	as ma_start, but going on starts behind last, going back before index
 *	ma_overflow	going on met the limit
 *	ma_underflow	going back met the limit
 *	ma_error	failed: mas_is_err(); xa_err(mas->node) is the negative errno
 *
 * From ma_overflow going back gives the entry at the limit again, from ma_underflow going on
 * does. Stores may be called in any status but ma_error, in which nothing happens.
 *
 * A store that needs nodes takes them before it changes anything:
 *
 *	MA_STATE(mas, &tree, first, last);
 *
 *	mas_lock(&mas);
 *	do {
 *		mas_store(&mas, entry);
 *	} while (mas_nomem(&mas, GFP_KERNEL));
 *	mas_unlock(&mas);
 *	return mas_is_err(&mas) ? xa_err(mas.node) : 0;
 *
 * which is mas_store_gfp(). Or it gets them ahead, so that it cannot fail: mas_preallocate() for
 * the same range, and nothing changes the tree until mas_store_prealloc().
 */
enum maple_status {
	ma_active,
	ma_start,
	ma_root,
	ma_none,
	ma_pause,
	ma_overflow,
	ma_underflow,
	ma_error,
};

/* What a store has to do; the table in mt_internal.h says how many nodes each may take. */
enum store_type {
	wr_invalid,	   /* not looked at yet */
	wr_new_root,	   /* everything there is gets replaced */
	wr_store_root,	   /* there is no node, before or after */
	wr_exact_fit,	   /* another entry for a range that is there */
	wr_spanning_store, /* touches more than one leaf */
	wr_split_store,	   /* the leaf gets too full */
	wr_rebalance,	   /* the leaf gets too empty */
	wr_append,	   /* behind all that is in the leaf */
	wr_node_store,	   /* the leaf is written anew */
	wr_slot_store,	   /* one boundary of the leaf moves */
};

/**
 * struct ma_state - the cursor
 * @tree: the tree
 * @index: first index of the range to work on, or of the one it is at
 * @last: last index of it
 * @node: the node, in ma_active; MA_ERROR(errno) in ma_error
 * @min: first index of the node
 * @max: last index of the node
 * @alloc: nodes allocated ahead, chained
 * @allocated: how many
 * @wanted: after -ENOMEM, how many mas_nomem() shall have
 * @status: see above
 * @offset: slot in the node
 * @end: last slot in use of the node
 * @depth: of the node under the root; only in a walk for a write
 * @mas_flags: MA_STATE_*
 * @store_type: what the last store was, or the one that is preallocated for
 */
struct ma_state {
	struct maple_tree *tree;
	unsigned long index;
	unsigned long last;
	struct maple_enode *node;
	unsigned long min;
	unsigned long max;
	struct maple_node *alloc;
	unsigned int allocated;
	unsigned int wanted;
	enum maple_status status;
	unsigned char depth;
	unsigned char offset;
	unsigned char mas_flags;
	unsigned char end;
	enum store_type store_type;
};

#define MA_STATE_BULK 1u /* mas_expected_entries(): keep the nodes until mas_destroy() */

#define MA_ERROR(err) ((struct maple_enode *)(((unsigned long)(err) << 2) | 2UL))

/* MA_STATE() - Declare a cursor for the range from @first to @end, both inside. */
#define MA_STATE(name, mt, first, end)                                                             \
	struct ma_state name = {                                                                   \
		.tree = (mt), .index = (first), .last = (end), .max = ULONG_MAX,                   \
		.status = ma_start, .store_type = wr_invalid,                                      \
	}

#define mas_lock(mas) mtree_lock((mas)->tree)
#define mas_unlock(mas) mtree_unlock((mas)->tree)
#define mas_lock_nested(mas, subclass) mas_lock(mas)

/** mas_init() - Make a cursor at index @addr of @tree. */
static inline void mas_init(struct ma_state *mas, struct maple_tree *tree, unsigned long addr)
{
	*mas = (struct ma_state){ .tree = tree, .index = addr, .last = addr, .max = ULONG_MAX,
				  .status = ma_start, .store_type = wr_invalid };
}

static inline bool mas_is_active(const struct ma_state *mas)
{
	return mas->status == ma_active;
}

/** mas_is_err() - Has it failed? Then xa_err(mas->node) is the negative errno. */
static inline bool mas_is_err(const struct ma_state *mas)
{
	return mas->status == ma_error;
}

/** mas_reset() - Forget the place and the error; the next call walks from the root to index. */
static inline void mas_reset(struct ma_state *mas)
{
	mas->status = ma_start;
	mas->node = NULL;
}

/* Another range; the place is kept, and must be right for it. */
static inline void __mas_set_range(struct ma_state *mas, unsigned long start, unsigned long last)
{
	mas->index = start;
	mas->last = last;
}

/** mas_set_range() - Go to the range from @start to @last, from the root. */
static inline void mas_set_range(struct ma_state *mas, unsigned long start, unsigned long last)
{
	mas_reset(mas);
	__mas_set_range(mas, start, last);
}

/** mas_set() - Go to @index alone, from the root. */
static inline void mas_set(struct ma_state *mas, unsigned long index)
{
	mas_set_range(mas, index, index);
}

void *mas_walk(struct ma_state *mas);
void *mas_find(struct ma_state *mas, unsigned long max);
void *mas_find_range(struct ma_state *mas, unsigned long max);
void *mas_find_rev(struct ma_state *mas, unsigned long min);
void *mas_find_range_rev(struct ma_state *mas, unsigned long min);
void *mas_next(struct ma_state *mas, unsigned long max);
void *mas_next_range(struct ma_state *mas, unsigned long max);
void *mas_prev(struct ma_state *mas, unsigned long min);
void *mas_prev_range(struct ma_state *mas, unsigned long min);
void mas_pause(struct ma_state *mas);
int mas_empty_area(struct ma_state *mas, unsigned long min, unsigned long max, unsigned long size);
int mas_empty_area_rev(struct ma_state *mas, unsigned long min, unsigned long max,
		       unsigned long size);

void *mas_store(struct ma_state *mas, void *entry);
int mas_store_gfp(struct ma_state *mas, void *entry, gfp_t gfp);
void mas_store_prealloc(struct ma_state *mas, void *entry);
int mas_preallocate(struct ma_state *mas, void *entry, gfp_t gfp);
void *mas_erase(struct ma_state *mas);
int mas_alloc_cyclic(struct ma_state *mas, unsigned long *startp, void *entry,
		     unsigned long range_lo, unsigned long range_hi, unsigned long *next,
		     gfp_t gfp);
bool mas_nomem(struct ma_state *mas, gfp_t gfp);
int mas_expected_entries(struct ma_state *mas, unsigned long nr_entries);
void mas_destroy(struct ma_state *mas);

/** mas_load() - The entry at index; the cursor is then at its range. As mas_walk(). */
static inline void *mas_load(struct ma_state *mas)
{
	return mas_walk(mas);
}

/*
 * mas_for_each() - Over the entries from the cursor's index to @__max. In the body index and last
 * are the entry's range, which may be stored to and erased there.
 */
#define mas_for_each(__mas, __entry, __max)                                                        \
	while (((__entry) = mas_find((__mas), (__max))) != NULL)

/* mas_for_each_rev() - Over the entries from the cursor's index down to @__min. */
#define mas_for_each_rev(__mas, __entry, __min)                                                    \
	while (((__entry) = mas_find_rev((__mas), (__min))) != NULL)

/* For debug builds and tests: see mt_check.c. */
int mt_check(struct maple_tree *mt);

#endif /* FOLIO_TREE_MAPLE_TREE_H */
