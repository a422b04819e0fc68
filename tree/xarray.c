/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The XArray's normal API: each call one walk from the head, with the locking done.
 *
 * Zero entries (reservations) are hidden here: they read as NULL and are passed over by searches.
 * In an allocating array a stored NULL becomes a reservation, since only xa_erase() frees an index.
 */
#include "xarray.h"
#include "xa_internal.h"

#include <assert.h>

/*
 * Reading, under RCU
 */

/*
 * The entry at @index, or a retry entry. The shift of a node is its parent's less one level, so
 * only the top node's first line is read.
 */
static void *try_load(const struct xarray *xa, unsigned long index)
{
	void *entry = xa_head(xa);
	const struct xa_node *node;
	unsigned char offset;
	unsigned int shift;

	if (!xa_is_node(entry))
		return index ? NULL : entry;
	node = xa_to_node(entry);
	shift = node->shift;
	if (index >> shift > XA_CHUNK_MASK)
		return NULL;
	for (;;) {
		offset = (index >> shift) & XA_CHUNK_MASK;
		entry = xa_entry(xa, node, offset);
		if (!xa_is_node(entry))
			break;
		node = xa_to_node(entry);
		shift -= XA_CHUNK_SHIFT;
	}
	if (xa_is_sibling(entry))
		return xa_follow_sibling(xa, node, &offset, entry);
	return entry;
}

/**
 * xa_load() - The entry at @index.
 *
 * Context: Takes the RCU read lock.
 * Return: The entry, or NULL.
 */
void *xa_load(struct xarray *xa, unsigned long index)
{
	void *entry;

	rcu_read_lock();
	do {
		entry = try_load(xa, index);
	} while (xa_is_retry(entry));
	rcu_read_unlock();
	return xa_is_zero(entry) ? NULL : entry;
}

/* Loads under RCU, with the cursor on the entry. */
static void *load_settled(struct xa_state *xas)
{
	void *entry;

	do {
		xas_reset(xas);
		entry = xas_load(xas);
	} while (xa_is_retry(entry));
	return entry;
}

/**
 * xa_get_mark() - Does the entry at @index have @mark?
 *
 * Context: Takes the RCU read lock.
 */
bool xa_get_mark(struct xarray *xa, unsigned long index, xa_mark_t mark)
{
	XA_STATE(xas, xa, index);
	bool marked;

	rcu_read_lock();
	marked = load_settled(&xas) && xas_get_mark(&xas, mark);
	rcu_read_unlock();
	return marked;
}

/**
 * xa_get_order() - The order of the entry at @index.
 *
 * Context: Takes the RCU read lock.
 * Return: The order, 0 when there is no entry.
 */
int xa_get_order(struct xarray *xa, unsigned long index)
{
	XA_STATE(xas, xa, index);
	int order;

	rcu_read_lock();
	order = load_settled(&xas) ? xas_get_order(&xas) : 0;
	rcu_read_unlock();
	return order;
}

static void *find_step(struct xa_state *xas, unsigned long max, xa_mark_t filter)
{
	return filter < XA_MAX_MARKS ? xas_find_marked(xas, max, filter) : xas_find(xas, max);
}

/**
 * xa_find() - The first entry at or after *@index, at most at @max.
 * @index: in: where to begin; out: the index of the entry, unchanged when there is none
 * @filter: a mark that the entry has, or XA_PRESENT
 *
 * An entry that begins before *@index and covers it counts, and leaves *@index as it is.
 *
 * Context: Takes the RCU read lock.
 * Return: The entry, or NULL.
 */
void *xa_find(struct xarray *xa, unsigned long *index, unsigned long max, xa_mark_t filter)
{
	XA_STATE(xas, xa, *index);
	void *entry;

	rcu_read_lock();
	do {
		entry = find_step(&xas, max, filter);
	} while (xas_retry(&xas, entry));
	rcu_read_unlock();
	if (entry)
		*index = xas.xa_index;
	return entry;
}

/* Is the cursor's index one of an entry's further ones? */
static bool inside_entry(const struct xa_state *xas)
{
	if (!xas_is_node(xas))
		return false;
	return xas->xa_index != slot_index(xas->xa_index, xas->xa_node, xas->xa_offset);
}

/**
 * xa_find_after() - The first entry that begins after *@index, at most at @max.
 * @index: in: an index, any of an entry's; out: that of the entry found
 * @filter: a mark that the entry has, or XA_PRESENT
 *
 * Context: Takes the RCU read lock.
 * Return: The entry, or NULL.
 */
void *xa_find_after(struct xarray *xa, unsigned long *index, unsigned long max, xa_mark_t filter)
{
	XA_STATE(xas, xa, *index + 1);
	void *entry;

	if (!xas.xa_index)
		return NULL;
	rcu_read_lock();
	do {
		entry = find_step(&xas, max, filter);
	} while (xas_retry(&xas, entry) || (entry && inside_entry(&xas)));
	rcu_read_unlock();
	if (entry)
		*index = xas.xa_index;
	return entry;
}

/**
 * xa_extract() - Copy entries into an array.
 * @dst: room for @n entries
 * @start: first index
 * @max: last index
 * @filter: a mark that the entries have, or XA_PRESENT
 *
 * Context: Takes the RCU read lock.
 * Return: How many were copied.
 */
unsigned int xa_extract(struct xarray *xa, void **dst, unsigned long start, unsigned long max,
			unsigned int n, xa_mark_t filter)
{
	XA_STATE(xas, xa, start);
	unsigned int got = 0;
	void *entry;

	rcu_read_lock();
	while (got < n && (entry = find_step(&xas, max, filter))) {
		if (!xas_retry(&xas, entry))
			dst[got++] = entry;
	}
	rcu_read_unlock();
	return got;
}

/*
 * Writing, under xa_lock
 */

/* After a failed attempt under the lock: allocate with the lock dropped, or from the pool. */
static bool nomem_locked(struct xa_state *xas, gfp_t gfp)
{
	bool again;

	if (!xas_error(xas) && !xas->xa_alloc)
		return false;
	if (xas_error(xas) != -ENOMEM || !gfpflags_allow_blocking(gfp))
		return xas_nomem(xas, GFP_NOWAIT);
	xas_unlock(xas);
	again = xas_nomem(xas, gfp);
	xas_lock(xas);
	return again;
}

static void *result(const struct xa_state *xas, void *entry)
{
	if (xas_error(xas))
		return xas->xa_node;
	return xa_is_zero(entry) ? NULL : entry;
}

/**
 * __xa_store() - Store an entry at @index. NULL erases it, or reserves it in an allocating array.
 *
 * An entry of a larger order is replaced at all its indices. Marks stay.
 *
 * Context: xa_lock held; dropped and taken again if @gfp may sleep and nodes are needed.
 * Return: The old entry, or an error: xa_err() of it is -ENOMEM, or -EINVAL for an entry that
 * cannot be stored.
 */
void *__xa_store(struct xarray *xa, unsigned long index, void *entry, gfp_t gfp)
{
	XA_STATE(xas, xa, index);
	void *old;

	if (xa_is_advanced(entry))
		return XA_ERROR(-EINVAL);
	if (xa_track_free(xa) && !entry)
		entry = XA_ZERO_ENTRY;
	do {
		old = xas_store(&xas, entry);
	} while (nomem_locked(&xas, gfp));
	return result(&xas, old);
}

/** xa_store() - __xa_store() that takes xa_lock. */
void *xa_store(struct xarray *xa, unsigned long index, void *entry, gfp_t gfp)
{
	void *old;

	xa_lock(xa);
	old = __xa_store(xa, index, entry, gfp);
	xa_unlock(xa);
	return old;
}

/**
 * __xa_erase() - Erase the entry at @index, at all its indices.
 *
 * Context: xa_lock held. Does not allocate.
 * Return: The old entry, or NULL.
 */
void *__xa_erase(struct xarray *xa, unsigned long index)
{
	XA_STATE(xas, xa, index);

	return result(&xas, xas_store(&xas, NULL));
}

/** xa_erase() - __xa_erase() that takes xa_lock. */
void *xa_erase(struct xarray *xa, unsigned long index)
{
	void *old;

	xa_lock(xa);
	old = __xa_erase(xa, index);
	xa_unlock(xa);
	return old;
}

/**
 * __xa_cmpxchg() - Store @entry at @index if @old is there.
 * @old: NULL also stands for a reservation
 *
 * Context: xa_lock held; dropped and taken again if @gfp may sleep and nodes are needed.
 * Return: What was there, or an error. It is @old iff @entry has been stored.
 */
void *__xa_cmpxchg(struct xarray *xa, unsigned long index, void *old, void *entry, gfp_t gfp)
{
	XA_STATE(xas, xa, index);
	void *now;

	if (xa_is_advanced(entry))
		return XA_ERROR(-EINVAL);
	do {
		now = xas_load(&xas);
		if (now == old || (!old && xa_is_zero(now)))
			xas_store(&xas, entry);
	} while (nomem_locked(&xas, gfp));
	return result(&xas, now);
}

/** xa_cmpxchg() - __xa_cmpxchg() that takes xa_lock. */
void *xa_cmpxchg(struct xarray *xa, unsigned long index, void *old, void *entry, gfp_t gfp)
{
	void *now;

	xa_lock(xa);
	now = __xa_cmpxchg(xa, index, old, entry, gfp);
	xa_unlock(xa);
	return now;
}

/**
 * __xa_insert() - Store @entry at @index if nothing is there, nor a reservation.
 * @entry: NULL reserves
 *
 * Context: xa_lock held; dropped and taken again if @gfp may sleep and nodes are needed.
 * Return: 0, -EBUSY, -ENOMEM or -EINVAL.
 */
int __xa_insert(struct xarray *xa, unsigned long index, void *entry, gfp_t gfp)
{
	XA_STATE(xas, xa, index);

	if (xa_is_advanced(entry))
		return -EINVAL;
	if (!entry)
		entry = XA_ZERO_ENTRY;
	do {
		if (xas_load(&xas))
			xas_set_err(&xas, -EBUSY);
		else
			xas_store(&xas, entry);
	} while (nomem_locked(&xas, gfp));
	return xas_error(&xas);
}

/** xa_insert() - __xa_insert() that takes xa_lock. */
int xa_insert(struct xarray *xa, unsigned long index, void *entry, gfp_t gfp)
{
	int err;

	xa_lock(xa);
	err = __xa_insert(xa, index, entry, gfp);
	xa_unlock(xa);
	return err;
}

/* The pieces of a range: the largest order that begins at @first, aligned, and ends by @last. */
static unsigned int piece_order(unsigned long first, unsigned long last)
{
	unsigned int order = first ? __builtin_ctzl(first) : 63;

	while (order && (last - first) < (1UL << order) - 1)
		order--;
	return order;
}

/* More nodes than a range can need: at both ends, and for growing, one for each level. */
#define RANGE_NODES (3 * (64 / XA_CHUNK_SHIFT + 1))

/**
 * xa_store_range() - Store an entry at all indices from @first to @last.
 *
 * The range is stored as several multi-index entries of the largest orders that fit. An entry that
 * reaches out of the range is replaced as a whole.
 *
 * Context: Takes xa_lock. May sleep if @gfp allows it.
 * Return: NULL, or an error: then nothing has changed.
 */
void *xa_store_range(struct xarray *xa, unsigned long first, unsigned long last, void *entry,
		     gfp_t gfp)
{
	XA_STATE(xas, xa, first);

	if (xa_is_internal(entry) || last < first)
		return XA_ERROR(-EINVAL);
	if (entry && !xas_reserve(&xas, RANGE_NODES, gfp))
		return XA_ERROR(-ENOMEM);
	xas_lock(&xas);
	for (;;) {
		unsigned int order = piece_order(first, last);

		xas_set_order(&xas, first, order);
		xas_store(&xas, entry);
		if (last - first < 1UL << order)
			break;
		first += 1UL << order;
	}
	xas_unlock(&xas);
	xas_destroy(&xas);
	return NULL;
}

/* Moves @index on to the first free one below @node, or behind the node if there is none. */
static bool free_below(const struct xarray *xa, const struct xa_node *node, unsigned long *index)
{
	for (;;) {
		unsigned int offset = get_offset(*index, node);
		unsigned long word = node_marks(node, XA_FREE_MARK) >> offset;
		void *entry;

		if (!word) {
			*index = slot_index(*index, node, XA_CHUNK_MASK) + (1UL << node->shift);
			return false;
		}
		if (!(word & 1)) {
			offset += __builtin_ctzl(word);
			*index = slot_index(*index, node, offset);
		}
		entry = xa_entry_locked(xa, node, offset);
		if (!xa_is_node(entry))
			return true;
		node = xa_to_node(entry);
	}
}

/* Sets the cursor to the first free index from @min to @max. Return: false if there is none. */
static bool find_free(struct xa_state *xas, unsigned long min, unsigned long max)
{
	void *head = xa_head_locked(xas->xa);
	unsigned long index = min;

	if (head && !xa_is_node(head) && !index)
		index = 1;
	while (xa_is_node(head) && index <= max_index(head)) {
		if (free_below(xas->xa, xa_to_node(head), &index))
			break;
	}
	xas_set(xas, index);
	return index <= max;
}

/**
 * __xa_alloc() - Store @entry at the first free index within @limit.
 * @id: out: the index
 * @entry: NULL reserves
 *
 * Context: xa_lock held; dropped and taken again if @gfp may sleep and nodes are needed.
 * Return: 0; -EBUSY when no index is free, -ENOMEM, or -EINVAL for an entry that cannot be stored
 * or an array without XA_FLAGS_ALLOC.
 */
int __xa_alloc(struct xarray *xa, uint32_t *id, void *entry, struct xa_limit limit, gfp_t gfp)
{
	XA_STATE(xas, xa, 0);

	if (xa_is_advanced(entry) || !xa_track_free(xa))
		return -EINVAL;
	if (!entry)
		entry = XA_ZERO_ENTRY;
	if (!limit.min && xa->xa_flags & XA_FLAGS_ZERO_BUSY)
		limit.min = 1;
	do {
		if (!find_free(&xas, limit.min, limit.max)) {
			xas_set_err(&xas, -EBUSY);
			continue;
		}
		*id = xas.xa_index;
		xas_store(&xas, entry);
	} while (nomem_locked(&xas, gfp));
	return xas_error(&xas);
}

/** xa_alloc() - __xa_alloc() that takes xa_lock. */
int xa_alloc(struct xarray *xa, uint32_t *id, void *entry, struct xa_limit limit, gfp_t gfp)
{
	int err;

	xa_lock(xa);
	err = __xa_alloc(xa, id, entry, limit, gfp);
	xa_unlock(xa);
	return err;
}

/**
 * __xa_alloc_cyclic() - Store @entry at the first free index from *@next on, then from limit.min
 * on.
 * @id: out: the index
 * @next: in: where to begin; out: one past the index
 *
 * Context: As __xa_alloc().
 * Return: 0; 1 if the search has wrapped; errors as __xa_alloc().
 */
int __xa_alloc_cyclic(struct xarray *xa, uint32_t *id, void *entry, struct xa_limit limit,
		      uint32_t *next, gfp_t gfp)
{
	struct xa_limit from_next = limit;
	bool wrapped = xa->xa_flags & XA_FLAGS_ALLOC_WRAPPED;
	int err;

	if (from_next.min < *next)
		from_next.min = *next;
	err = __xa_alloc(xa, id, entry, from_next, gfp);
	if (err == -EBUSY && from_next.min > limit.min) {
		wrapped = true;
		err = __xa_alloc(xa, id, entry, limit, gfp);
	}
	if (err)
		return err;
	*next = *id + 1;
	/* When the counter itself wraps, it is the next allocation that has wrapped. */
	__atomic_store_n(&xa->xa_flags,
			 *next ? xa->xa_flags & ~XA_FLAGS_ALLOC_WRAPPED
			       : xa->xa_flags | XA_FLAGS_ALLOC_WRAPPED,
			 __ATOMIC_RELAXED);
	return wrapped;
}

/** xa_alloc_cyclic() - __xa_alloc_cyclic() that takes xa_lock. */
int xa_alloc_cyclic(struct xarray *xa, uint32_t *id, void *entry, struct xa_limit limit,
		    uint32_t *next, gfp_t gfp)
{
	int ret;

	xa_lock(xa);
	ret = __xa_alloc_cyclic(xa, id, entry, limit, next, gfp);
	xa_unlock(xa);
	return ret;
}

/**
 * __xa_set_mark() - Mark the entry at @index; where there is none, nothing happens.
 *
 * Context: xa_lock held.
 */
void __xa_set_mark(struct xarray *xa, unsigned long index, xa_mark_t mark)
{
	XA_STATE(xas, xa, index);

	if (xas_load(&xas))
		xas_set_mark(&xas, mark);
}

/**
 * __xa_clear_mark() - Take @mark from the entry at @index.
 *
 * Context: xa_lock held.
 */
void __xa_clear_mark(struct xarray *xa, unsigned long index, xa_mark_t mark)
{
	XA_STATE(xas, xa, index);

	if (xas_load(&xas))
		xas_clear_mark(&xas, mark);
}

/** xa_set_mark() - __xa_set_mark() that takes xa_lock. */
void xa_set_mark(struct xarray *xa, unsigned long index, xa_mark_t mark)
{
	xa_lock(xa);
	__xa_set_mark(xa, index, mark);
	xa_unlock(xa);
}

/** xa_clear_mark() - __xa_clear_mark() that takes xa_lock. */
void xa_clear_mark(struct xarray *xa, unsigned long index, xa_mark_t mark)
{
	xa_lock(xa);
	__xa_clear_mark(xa, index, mark);
	xa_unlock(xa);
}

/**
 * xa_destroy() - Make the array empty. What the entries point to is the user's business.
 *
 * Context: Takes xa_lock.
 */
void xa_destroy(struct xarray *xa)
{
	XA_STATE(xas, xa, 0);
	void *head;

	xas_lock(&xas);
	head = xa_head_locked(xa);
	xa_for_each_mark(mark)
		xa_mark_root(xa, mark, mark == XA_FREE_MARK && xa_track_free(xa));
	rcu_assign_pointer(xa->xa_head, NULL);
	if (xa_is_node(head))
		xa_free_tree(&xas, xa_to_node(head));
	xas_unlock(&xas);
}
