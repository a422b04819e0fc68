/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The advanced API of the XArray: a cursor, struct xa_state, that remembers its place in the tree.
 *
 * Include xarray.h, not this file. A cursor lives on one thread's stack. It is used under
 * rcu_read_lock() to look, under xa_lock to look and to change; before the lock is dropped in
 * between, call xas_pause() or xas_reset(), or its node may be gone. Under RCU a look may return
 * XA_RETRY_ENTRY (pass what you get to xas_retry()), and in either case XA_ZERO_ENTRY.
 *
 * Its error is sticky: after a failure each call does nothing and returns NULL until
 * xas_reset(), xas_set(), or xas_nomem(), which clears -ENOMEM by allocating. So the shape is
 *
 *	do {
 *		xas_lock(&xas);
 *		xas_store(&xas, entry);
 *		xas_unlock(&xas);
 *	} while (xas_nomem(&xas, GFP_KERNEL));
 *	return xas_error(&xas);
 *
 * Where a cursor may be
 *
 *	xa_node		state
 *	a node		at slot xa_offset of it
 *	NULL		at the head: the sole entry, or a tree that is empty
 *	XAS_BOUNDS	past what the tree spans, or at the end of a walk
 *	XAS_RESTART	not in the tree: the next call starts from the head, at xa_index
 *	XA_ERROR(e)	failed
 */
#ifndef FOLIO_TREE_XA_STATE_H
#define FOLIO_TREE_XA_STATE_H

#include "xarray.h"

/**
 * struct xa_node - one node of the tree; users only see it in an update callback
 * @shift: bits of an index below this node's slots; 0 at the bottom
 * @offset: slot of this node in its parent; never changes while the node is in the tree
 * @count: slots that are not NULL; siblings count
 * @nr_values: slots that hold a value entry, or a sibling of one
 * @parent: NULL at the top
 * @array: the array
 * @private_list: for the user while the node is in the tree
 * @rcu_head: for freeing it
 * @slots: entries
 * @marks: for each mark a bit for each slot: the entry has it, or some entry below has it
 */
struct xa_node {
	unsigned char shift;
	unsigned char offset;
	unsigned char count;
	unsigned char nr_values;
	struct xa_node *parent;
	struct xarray *array;
	union {
		struct list_head private_list;
		struct rcu_head rcu_head;
	};
	void *slots[XA_CHUNK_SIZE];
	unsigned long marks[XA_MAX_MARKS];
};

/*
 * Called under xa_lock with each node whose count or nr_values has changed, and with count 0 just
 * before a node is freed: it must then be on no list any more. It may not change
 * the tree.
 */
typedef void (*xa_update_node_t)(struct xa_node *node);

struct list_lru;

/**
 * struct xa_state - the cursor
 * @xa: the array
 * @xa_index: where it is
 * @xa_shift: order of the entry to store, rounded down to a whole level
 * @xa_sibs: and how many siblings it gets
 * @xa_offset: slot of @xa_node
 * @xa_pad: unused
 * @xa_wanted: after -ENOMEM, how many nodes xas_nomem() shall allocate
 * @xa_node: the node, or one of the states above
 * @xa_alloc: nodes allocated ahead, linked through their parents
 * @xa_update: the update callback or NULL
 * @xa_lru: kept for the user
 */
struct xa_state {
	struct xarray *xa;
	unsigned long xa_index;
	unsigned char xa_shift;
	unsigned char xa_sibs;
	unsigned char xa_offset;
	unsigned char xa_pad;
	unsigned int xa_wanted;
	struct xa_node *xa_node;
	struct xa_node *xa_alloc;
	xa_update_node_t xa_update;
	struct list_lru *xa_lru;
};

#define XAS_BOUNDS ((struct xa_node *)1UL)
#define XAS_RESTART ((struct xa_node *)3UL)

#define XA_STATE_INIT(array, index, shift, sibs)                                                   \
	{ .xa = (array), .xa_index = (index), .xa_shift = (shift), .xa_sibs = (sibs),              \
	  .xa_node = XAS_RESTART }

/* XA_STATE() - Declare a cursor for single entries at @index. */
#define XA_STATE(name, array, index)                                                               \
	struct xa_state name = XA_STATE_INIT(array, index, 0, 0)

/* XA_STATE_ORDER() - Declare a cursor that stores entries of @order, aligned down to it. */
#define XA_STATE_ORDER(name, array, index, order)                                                  \
	struct xa_state name = XA_STATE_INIT(array, ((index) >> (order)) << (order),               \
					     (order) - ((order) % XA_CHUNK_SHIFT),                 \
					     (1U << ((order) % XA_CHUNK_SHIFT)) - 1)

#define xas_trylock(xas) xa_trylock((xas)->xa)
#define xas_lock(xas) xa_lock((xas)->xa)
#define xas_unlock(xas) xa_unlock((xas)->xa)
#define xas_lock_bh(xas) xa_lock((xas)->xa)
#define xas_unlock_bh(xas) xa_unlock((xas)->xa)
#define xas_lock_irq(xas) xa_lock((xas)->xa)
#define xas_unlock_irq(xas) xa_unlock((xas)->xa)
#define xas_lock_irqsave(xas, flags) xa_lock_irqsave((xas)->xa, flags)
#define xas_unlock_irqrestore(xas, flags) xa_unlock_irqrestore((xas)->xa, flags)

/*
 * Nodes and slots
 */

static inline bool xa_is_node(const void *entry)
{
	return xa_is_internal(entry) && (unsigned long)entry > 4096;
}

static inline struct xa_node *xa_to_node(const void *entry)
{
	return (struct xa_node *)((unsigned long)entry - 2);
}

static inline void *xa_mk_node(const struct xa_node *node)
{
	return (void *)((unsigned long)node | 2);
}

/* Acquire: pairs with the release with which a slot is stored; a node found is whole. */
static inline void *xa_head(const struct xarray *xa)
{
	return rcu_dereference(xa->xa_head);
}

static inline void *xa_head_locked(const struct xarray *xa)
{
	return rcu_dereference_protected(xa->xa_head);
}

static inline void *xa_entry(const struct xarray *xa, const struct xa_node *node,
			     unsigned int offset)
{
	(void)xa;
	return rcu_dereference(node->slots[offset]);
}

static inline void *xa_entry_locked(const struct xarray *xa, const struct xa_node *node,
				    unsigned int offset)
{
	(void)xa;
	return rcu_dereference_protected(node->slots[offset]);
}

static inline struct xa_node *xa_parent(const struct xarray *xa, const struct xa_node *node)
{
	(void)xa;
	return rcu_dereference(node->parent);
}

static inline struct xa_node *xa_parent_locked(const struct xarray *xa, const struct xa_node *node)
{
	(void)xa;
	return rcu_dereference_protected(node->parent);
}

/*
 * The cursor's state
 */

/** xas_error() - The negative errno of the cursor. Return: 0 if it has not failed. */
static inline int xas_error(const struct xa_state *xas)
{
	return xa_err(xas->xa_node);
}

/** xas_set_err() - Make the cursor fail. @err: negative errno */
static inline void xas_set_err(struct xa_state *xas, long err)
{
	xas->xa_node = XA_ERROR(err);
}

/** xas_invalid() - Is it in no node (restart, bounds or error)? */
static inline bool xas_invalid(const struct xa_state *xas)
{
	return (unsigned long)xas->xa_node & 3;
}

/** xas_valid() - Is it in the tree: at a node, or at the head? */
static inline bool xas_valid(const struct xa_state *xas)
{
	return !xas_invalid(xas);
}

/** xas_is_node() - Is it at a slot of a node? */
static inline bool xas_is_node(const struct xa_state *xas)
{
	return xas_valid(xas) && xas->xa_node;
}

/* Does the next step have to start from the head? Takes the node itself. */
static inline bool xas_not_node(const struct xa_node *node)
{
	return ((unsigned long)node & 3) || !node;
}

/* Is moving the index forbidden: at a restart, or failed? */
static inline bool xas_frozen(const struct xa_node *node)
{
	return (unsigned long)node & 2;
}

/* Head, bounds or restart: not in a node, and not failed. */
static inline bool xas_top(const struct xa_node *node)
{
	return node <= XAS_RESTART;
}

/** xas_reset() - Forget the place and the error; the next call starts from the head at xa_index. */
static inline void xas_reset(struct xa_state *xas)
{
	xas->xa_node = XAS_RESTART;
}

/** xas_set() - Go to @index, from the head. Orders stay. */
static inline void xas_set(struct xa_state *xas, unsigned long index)
{
	xas->xa_index = index;
	xas->xa_node = XAS_RESTART;
}

/** xas_advance() - Move to @index, which lies in the present node, to step on from there. */
static inline void xas_advance(struct xa_state *xas, unsigned long index)
{
	unsigned int shift = xas_is_node(xas) ? xas->xa_node->shift : 0;

	xas->xa_index = index;
	xas->xa_offset = (index >> shift) & XA_CHUNK_MASK;
}

/** xas_set_order() - Go to @index aligned down to @order, for an entry of that order. */
static inline void xas_set_order(struct xa_state *xas, unsigned long index, unsigned int order)
{
	xas->xa_index = order < 64 ? (index >> order) << order : 0;
	xas->xa_shift = order - order % XA_CHUNK_SHIFT;
	xas->xa_sibs = (1U << (order % XA_CHUNK_SHIFT)) - 1;
	xas->xa_node = XAS_RESTART;
}

/** xas_set_update() - Have @update called with each node that changes. */
static inline void xas_set_update(struct xa_state *xas, xa_update_node_t update)
{
	xas->xa_update = update;
}

static inline void xas_set_lru(struct xa_state *xas, struct list_lru *lru)
{
	xas->xa_lru = lru;
}

/**
 * xas_retry() - Is @entry none of the user's, so that the loop should go on?
 *
 * A retry entry means that the tree changed under the reader: the cursor is reset.
 */
static inline bool xas_retry(struct xa_state *xas, const void *entry)
{
	if (!xa_is_internal(entry))
		return false;
	if (xa_is_retry(entry)) {
		xas_reset(xas);
		return true;
	}
	return xa_is_zero(entry);
}

/**
 * xas_reload() - What is there now? To be compared after taking a reference on what was found.
 *
 * Context: RCU or xa_lock. The cursor stands on an entry.
 */
static inline void *xas_reload(struct xa_state *xas)
{
	struct xa_node *node = xas->xa_node;
	unsigned int offset;
	void *entry, *sibling;

	if (!node)
		return xa_head(xas->xa);
	offset = (xas->xa_index >> node->shift) & XA_CHUNK_MASK;
	sibling = xa_entry(xas->xa, node, offset);
	if (!xa_is_sibling(sibling))
		return sibling;
	entry = xa_entry(xas->xa, node, xa_to_sibling(sibling));
	/* The entry there may be a later one, that does not reach here: see xa_follow_sibling(). */
	return xa_entry(xas->xa, node, offset) == sibling ? entry : XA_RETRY_ENTRY;
}

/**
 * xas_distance() - How far behind the first index of the entry just loaded is the cursor's index?
 *
 * Context: RCU or xa_lock, since the load.
 */
static inline unsigned long xas_distance(const struct xa_state *xas)
{
	const struct xa_node *node = xas->xa_node;
	unsigned long first;

	if (!xas_is_node(xas))
		return 0;
	first = (unsigned long)xas->xa_offset << node->shift;
	return (xas->xa_index & ((XA_CHUNK_SIZE << node->shift) - 1)) - first;
}

void *xas_load(struct xa_state *xas);
void *xas_store(struct xa_state *xas, void *entry);
void *xas_find(struct xa_state *xas, unsigned long max);
void *xas_find_conflict(struct xa_state *xas);
void *xas_find_marked(struct xa_state *xas, unsigned long max, xa_mark_t mark);

bool xas_get_mark(const struct xa_state *xas, xa_mark_t mark);
void xas_set_mark(const struct xa_state *xas, xa_mark_t mark);
void xas_clear_mark(const struct xa_state *xas, xa_mark_t mark);
void xas_init_marks(const struct xa_state *xas);

bool xas_nomem(struct xa_state *xas, gfp_t gfp);
void xas_destroy(struct xa_state *xas);
void xas_pause(struct xa_state *xas);
void xas_create_range(struct xa_state *xas);
void xa_delete_node(struct xa_node *node, xa_update_node_t update);

int xas_get_order(struct xa_state *xas);
void xas_split(struct xa_state *xas, void *entry, unsigned int order);
void xas_split_alloc(struct xa_state *xas, void *entry, unsigned int order, gfp_t gfp);
void xas_carve(struct xa_state *xas, void *entry, unsigned int order);
void xas_carve_alloc(struct xa_state *xas, unsigned int order, gfp_t gfp);

void *__xas_next(struct xa_state *xas);
void *__xas_prev(struct xa_state *xas);

/**
 * xas_next() - One index up, whatever is there; after a reset: the present index.
 *
 * Context: RCU or xa_lock.
 * Return: The entry, which may be NULL, a sibling or internal. The index wraps at ULONG_MAX.
 */
static inline void *xas_next(struct xa_state *xas)
{
	struct xa_node *node = xas->xa_node;

	if (xas_not_node(node) || node->shift || xas->xa_offset == XA_CHUNK_MASK ||
	    xas->xa_offset != (xas->xa_index & XA_CHUNK_MASK))
		return __xas_next(xas);
	xas->xa_index++;
	xas->xa_offset++;
	return xa_entry(xas->xa, node, xas->xa_offset);
}

/** xas_prev() - One index down; otherwise as xas_next(). */
static inline void *xas_prev(struct xa_state *xas)
{
	struct xa_node *node = xas->xa_node;

	if (xas_not_node(node) || node->shift || !xas->xa_offset ||
	    xas->xa_offset != (xas->xa_index & XA_CHUNK_MASK))
		return __xas_prev(xas);
	xas->xa_index--;
	xas->xa_offset--;
	return xa_entry(xas->xa, node, xas->xa_offset);
}

/**
 * xas_next_entry() - The next entry that is not NULL, at most at @max; the step of xas_for_each().
 *
 * Context: RCU or xa_lock.
 */
static inline void *xas_next_entry(struct xa_state *xas, unsigned long max)
{
	struct xa_node *node = xas->xa_node;
	void *entry;

	if (xas_not_node(node) || node->shift || xas->xa_offset != (xas->xa_index & XA_CHUNK_MASK))
		return xas_find(xas, max);
	do {
		unsigned long index = xas->xa_index;
		unsigned int offset = (index & XA_CHUNK_MASK) + 1;

		if (index >= max || offset == XA_CHUNK_SIZE)
			return xas_find(xas, max);
		entry = xa_entry(xas->xa, node, offset);
		if (xa_is_internal(entry))
			return xas_find(xas, max);
		xas->xa_offset = offset;
		xas->xa_index = index + 1;
	} while (!entry);
	return entry;
}

/**
 * xas_next_marked() - The next entry with @mark up to @max; the step of xas_for_each_marked().
 *
 * Context: RCU or xa_lock.
 */
static inline void *xas_next_marked(struct xa_state *xas, unsigned long max, xa_mark_t mark)
{
	struct xa_node *node = xas->xa_node;
	unsigned long word, index;
	unsigned int offset;
	void *entry;

	if (xas_not_node(node) || node->shift || xas->xa_offset == XA_CHUNK_MASK)
		return xas_find_marked(xas, max, mark);
	word = __atomic_load_n(&node->marks[mark], __ATOMIC_RELAXED);
	word = word >> xas->xa_offset >> 1;
	if (!word)
		return xas_find_marked(xas, max, mark);
	offset = xas->xa_offset + 1 + __builtin_ctzl(word);
	index = (xas->xa_index & ~XA_CHUNK_MASK) + offset;
	if (index > max)
		return xas_find_marked(xas, max, mark);
	entry = xa_entry(xas->xa, node, offset);
	if (!entry || xa_is_internal(entry))
		return xas_find_marked(xas, max, mark);
	xas->xa_offset = offset;
	xas->xa_index = index;
	return entry;
}

/* Over the entries from the cursor's index to @max. Pass each to xas_retry() when under RCU. */
#define xas_for_each(xas, entry, max)                                                              \
	for (entry = xas_find(xas, max); entry; entry = xas_next_entry(xas, max))

/* Over the entries with @mark. */
#define xas_for_each_marked(xas, entry, max, mark)                                                 \
	for (entry = xas_find_marked(xas, max, mark); entry;                                       \
	     entry = xas_next_marked(xas, max, mark))

/*
 * Over the entries in the range that the cursor would store to, under xa_lock. When it ends, the
 * cursor is where xas_store() wants it.
 */
#define xas_for_each_conflict(xas, entry) while ((entry = xas_find_conflict(xas)))

/* For debug builds and tests: see xa_check.c. */
int xa_check(struct xarray *xa);

#endif /* FOLIO_TREE_XA_STATE_H */
