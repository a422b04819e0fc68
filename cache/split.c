/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Splitting a folio into smaller ones, where only a part of it shall stay.
 *
 * Nodes for the smaller entries are allocated first. Under the XArray lock the reference count is
 * frozen, which needs that nobody but the mapping and the caller has one: so nobody can see index
 * or order change, and a reader who finds the old folio in a slot meanwhile gets no reference, and
 * looks again when the lock is free. Then the first frame of each part becomes a folio, with the
 * bitmaps of blocks where they have always been, and takes its slot.
 *
 * The parts are locked until they are on an LRU list. They have no reference but the mapping's, and
 * need none: nobody can remove them before.
 */
#include "internal.h"

#define INHERITED (FOLIO_ACTIVE | FOLIO_REFERENCED | FOLIO_WORKINGSET)

/* Makes a frame of a frozen folio the first one of a folio of its own, locked. */
static void make_part(const struct folio *folio, struct folio *part, unsigned int order)
{
	__atomic_store_n(&part->index, folio->index + (part - folio), __ATOMIC_RELAXED);
	part->mapping = folio->mapping;
	part->order = order;
	part->block_shift = folio->block_shift;
	part->level = folio->level;
	INIT_LIST_HEAD(&part->lru);
	__atomic_store_n(&part->flags, (folio_flags(folio) & INHERITED) | FOLIO_LOCKED,
			 __ATOMIC_RELAXED);
	folio_count_totals(part);
	__atomic_store_n(&part->refcount, 1, __ATOMIC_RELEASE);
}

/* The folio's reference count is frozen; the cursor has the order of the parts. */
static void split_locked(struct xa_state *xas, struct folio *folio, unsigned int order)
{
	unsigned long i, nr = 1UL << folio->order, step = 1UL << order;
	struct mapping *mapping = folio->mapping;
	long dirty = -(folio_nr_dirty(folio) != 0);

	xas_split(xas, folio, folio->order);
	cache_assert(!xas_error(xas));
	for (i = step; i < nr; i += step)
		make_part(folio, folio + i, order);
	folio->order = order;
	folio_count_totals(folio);
	for (i = 0; i < nr; i += step) {
		xas_set(xas, folio[i].index);
		xas_store(xas, folio + i);
		if (folio_nr_dirty(folio + i)) {
			dirty++;
			continue;
		}
		xas_clear_mark(xas, PAGECACHE_TAG_DIRTY);
		xas_clear_mark(xas, PAGECACHE_TAG_TOWRITE);
	}
	__atomic_fetch_add(&mapping->nrdirty, dirty, __ATOMIC_SEQ_CST);
}

/**
 * folio_split() - Split a folio into folios of @order.
 * @folio: locked, in its mapping, not under WRITEBACK, with one reference of the caller's, who has
 *	both afterwards on the first part
 * @order: less than its own, and not less than the mapping's minimum
 *
 * Context: May sleep to allocate nodes. Takes the XArray and LRU locks.
 * Return: 0; -EBUSY when somebody uses the folio; -ENOMEM. Then nothing has changed.
 */
int folio_split(struct folio *folio, unsigned int order)
{
	XA_STATE_ORDER(xas, &folio->mapping->i_pages, folio->index, order);
	unsigned long i, nr = 1UL << folio->order;
	int err;

	cache_assert(folio_flags(folio) & FOLIO_LOCKED && !folio_test_writeback(folio));
	cache_assert(order < folio->order && order >= folio->mapping->min_order);
	if (!lru_isolate(folio))
		return -EBUSY;
	xas_set_update(&xas, workingset_update_node);
	xas_split_alloc(&xas, folio, folio->order, GFP_KERNEL);
	err = xas_error(&xas);
	if (!err) {
		xas_lock(&xas);
		if (folio_freeze(folio, 2)) {
			split_locked(&xas, folio, order);
			__atomic_store_n(&folio->refcount, 2, __ATOMIC_RELEASE);
		} else {
			err = -EBUSY;
		}
		xas_unlock(&xas);
		xas_destroy(&xas);
	}
	lru_add(folio, NULL);
	if (err)
		return err;
	for (i = 1UL << order; i < nr; i += 1UL << order) {
		lru_add(folio + i, NULL);
		folio_unlock(folio + i);
	}
	count_stat(folio->cache, folio_splits, 1);
	return 0;
}
