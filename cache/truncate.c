/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Dropping what is cached: truncation, holes, invalidation.
 *
 * A range is emptied in two passes. The first is one walk that waits for nothing: batch by batch,
 * each under one XArray lock, it takes out the folios that can be locked at once and drops the
 * shadows between them; the folios of a batch are then freed as one list. Nobody adds a folio
 * meanwhile, so a walk that has left none leaves no shadow either, and all is done; a file of
 * shadows alone costs just this. Otherwise the second pass waits for locks and for writes in
 * flight, folio by folio, and starts over until it finds the range empty. A folio whose reference
 * count is frozen is being evicted; taking the XArray lock once waits for that. Those that were
 * evicted meanwhile have left shadows, which are dropped at the end.
 *
 * A large folio that an end of the range cuts is zeroed there and split, and what lies in the range
 * goes. If it cannot be split, since somebody reads it, it stays: its part is clean and zero.
 *
 * A folio is never truncated under a write: who holds its lock and has seen WRITEBACK clear is
 * alone.
 *
 * An edge is the part [from, to) that is to read as zero, up to where a folio of the mapping's
 * smallest size can begin or end. Blocks that lie wholly in it
 * are zeroed in memory and their dirt is dropped: the owner frees their place. A block that is cut
 * is read if need be, and if anything but zeros is in its part, it is zeroed and becomes dirty. So
 * a block that is a hole stays one, and no byte behind the size of a file ever comes back when the
 * file grows. What may fail comes first: both edges of a hole are read before either is changed.
 * Between, their folios are referenced but not locked, so that one thread at most keeps one frame
 * while it waits for another (reclaim.c). A cut block that holds data has a place or a reservation
 * already, so reserving it again does not fail in practice.
 */
#include "internal.h"

#define REMOVAL_BATCH 64	/* folios that are taken out under one lock */
#define ENTRIES_AT_ONCE 4096	/* entries, shadows most of all, that are looked at under one lock */
#define LAST_INDEX ((pgoff_t)(LLONG_MAX >> PAGE_SHIFT))

/*
 * Finds referenced folios in [*start, end] and moves *start behind them. *frozen is set when one
 * was passed over because it is being evicted, or split.
 */
static unsigned int find_folios(struct mapping *mapping, pgoff_t *start, pgoff_t end,
				struct folio_batch *batch, bool *frozen)
{
	XA_STATE(xas, &mapping->i_pages, *start);
	struct folio *folio;

	batch->nr = 0;
	if (*start > end)
		return 0;
	*start = end + 1;
	rcu_read_lock();
	xas_for_each(&xas, folio, end) {
		if (xas_retry(&xas, folio) || xa_is_value(folio))
			continue;
		if (!folio_try_get(folio)) {
			*frozen = true;
			continue;
		}
		if (folio != xas_reload(&xas)) {
			folio_put(folio);
			xas_reset(&xas);
			continue;
		}
		batch->folios[batch->nr++] = folio;
		if (batch->nr < FOLIO_BATCH_SIZE)
			continue;
		*start = folio_next_index(folio);
		break;
	}
	rcu_read_unlock();
	return batch->nr;
}

/* Dirt that is dropped, of one mapping, is told to the flusher. No XArray lock held. */
static void dirt_dropped(struct mapping *mapping, unsigned int pages)
{
	struct flusher *flusher = mapping_flusher(mapping);

	if (!pages)
		return;
	__atomic_fetch_sub(&flusher->nr_dirty, pages, __ATOMIC_RELAXED);
	flusher_progress(flusher, 0);
}

static void unreserve(struct mapping *mapping, struct folio *folio, size_t offset, size_t len)
{
	if (folio_range_any(folio, BLOCKS_RESERVED, offset, len))
		mapping->ops->unreserve(mapping, folio, offset, len);
	cache_assert(!folio_range_any(folio, BLOCKS_RESERVED, offset, len));
}

/* The blocks that touch the range lose their dirt and reservation. Folio locked, no WRITEBACK. */
static void forget_dirty(struct mapping *mapping, struct folio *folio, size_t offset, size_t len)
{
	unsigned int pages;

	unreserve(mapping, folio, offset, len);
	if (!folio_nr_dirty(folio) || !folio_range_any(folio, BLOCKS_DIRTY, offset, len))
		return;
	xa_lock(&mapping->i_pages);
	pages = folio_clear_dirty(folio, offset, len);
	if (!folio_nr_dirty(folio)) {
		__xa_clear_mark(&mapping->i_pages, folio->index, PAGECACHE_TAG_DIRTY);
		__xa_clear_mark(&mapping->i_pages, folio->index, PAGECACHE_TAG_TOWRITE);
		__atomic_fetch_sub(&mapping->nrdirty, 1, __ATOMIC_SEQ_CST);
	}
	xa_unlock(&mapping->i_pages);
	dirt_dropped(mapping, pages);
}

/* Folios that leave their mapping together, locked. */
struct removal {
	struct folio *folios[REMOVAL_BATCH];
	unsigned int nr, entries;	/* folios; entries of the tree that were looked at */
	pgoff_t first;			/* of the range; for take_out_idle() */
	unsigned long pages;
	unsigned int dirty;		/* pages */
};

/*
 * The XArray lock is held from here
 */

/*
 * The slot under the cursor holds a locked folio that is not under WRITEBACK: empties it. The
 * marks go with the entry; a reservation is given back by removal_finish().
 */
static void take_out(struct xa_state *xas, struct folio *folio, struct removal *removal)
{
	struct mapping *mapping = folio->mapping;

	cache_assert(!folio_test_writeback(folio));
	if (folio_nr_dirty(folio)) {
		removal->dirty += folio_clear_dirty(folio, 0, folio_size(folio));
		__atomic_fetch_sub(&mapping->nrdirty, 1, __ATOMIC_SEQ_CST);
	}
	xas_store(xas, NULL);
	folio->mapping = NULL;
	removal->pages += 1UL << folio->order;
	removal->folios[removal->nr++] = folio;
}

static void took_out(struct mapping *mapping, const struct removal *removal)
{
	if (!removal->nr)
		return;
	filemap_removed(mapping);
	mapping_count_pages(mapping, -(long)removal->pages);
}

/* Does the folio lie wholly in a range of indices? */
static bool is_inside(const struct folio *folio, pgoff_t first, pgoff_t last)
{
	return folio->index >= first && folio_next_index(folio) - 1 <= last;
}

/*
 * Goes on with a walk for one batch: takes out what lies in the range and can be locked at once,
 * and drops shadows. The mapping's reference keeps a folio while it is in its slot, so none is
 * taken. *@left is set when a folio stays. Return: whether the walk is to go on.
 */
static bool take_out_idle(struct xa_state *xas, pgoff_t last, struct removal *removal, bool *left)
{
	pgoff_t first = removal->first;
	struct folio *folio;

	xas_for_each(xas, folio, last) {
		if (xa_is_value(folio)) {
			xas_store(xas, NULL);
		} else if (!is_inside(folio, first, last) || !folio_trylock(folio)) {
			*left = true;
		} else if (folio_test_writeback(folio)) {
			folio_unlock(folio);
			*left = true;
		} else {
			take_out(xas, folio, removal);
		}
		if (removal->nr == REMOVAL_BATCH || ++removal->entries == ENTRIES_AT_ONCE)
			return true;
	}
	return false;
}

/*
 * The XArray lock is not held from here
 */

/* Gives back what the folios had reserved, unlocks them and drops the mapping's references. */
static void removal_finish(struct mapping *mapping, struct removal *removal)
{
	unsigned int i;

	for (i = 0; i < removal->nr; i++) {
		struct folio *folio = removal->folios[i];

		unreserve(mapping, folio, 0, folio_size(folio));
		folio_unlock(folio);
	}
	dirt_dropped(mapping, removal->dirty);
	folio_put_list(mapping->cache, removal->folios, removal->nr);
}

/* Takes a locked folio, not under WRITEBACK, out of the mapping; unlocks and puts it. */
static void remove_folio(struct mapping *mapping, struct folio *folio)
{
	XA_STATE(xas, &mapping->i_pages, folio->index);
	struct removal removal = {.nr = 0};

	xas_set_update(&xas, workingset_update_node);
	xas_lock(&xas);
	xas_load(&xas);
	take_out(&xas, folio, &removal);
	took_out(mapping, &removal);
	xas_unlock(&xas);
	removal_finish(mapping, &removal);
	folio_put(folio);
}

/*
 * Pass 1: what can be had without waiting, in one walk, with one lock a batch. Return: whether a
 * folio is left, so that there may also be shadows again.
 */
static bool remove_idle(struct mapping *mapping, pgoff_t first, pgoff_t last)
{
	XA_STATE(xas, &mapping->i_pages, first);
	bool more = true, left = false;

	xas_set_update(&xas, workingset_update_node);
	while (more) {
		struct removal removal;

		removal.first = first;
		removal.nr = removal.entries = removal.dirty = 0;
		removal.pages = 0;
		xas_lock(&xas);
		more = take_out_idle(&xas, last, &removal, &left);
		took_out(mapping, &removal);
		if (more)
			xas_pause(&xas);
		xas_unlock(&xas);
		count_stat(mapping->cache, truncated, removal.nr);
		removal_finish(mapping, &removal);
	}
	return left;
}

/* Locks a folio, waits for its write; false, with the folio put, when it is not the mapping's. */
static bool lock_idle(struct mapping *mapping, struct folio *folio)
{
	folio_lock(folio);
	if (folio->mapping == mapping) {
		folio_wait_writeback(folio);
		return true;
	}
	folio_unlock(folio);
	folio_put(folio);
	return false;
}

/*
 * A locked folio that the range cuts: its part is zeroed, and it is split there, so that the part can
 * go. Where that cannot be, since somebody uses it, it stays whole. Unlocks and puts it.
 * Return: whether it was split.
 */
static bool trim_folio(struct mapping *mapping, struct folio *folio, pgoff_t first, pgoff_t last)
{
	pgoff_t from = first > folio->index ? first : folio->index;
	pgoff_t to = last < folio_next_index(folio) - 1 ? last + 1 : folio_next_index(folio);
	size_t lo = (from - folio->index) << PAGE_SHIFT, len = (to - from) << PAGE_SHIFT;
	/* The parts are as large as the places of the cuts allow. */
	unsigned int order = __builtin_ctzl(from | to | 1UL << folio->order);
	bool split;

	forget_dirty(mapping, folio, lo, len);
	folio_zero(folio, lo, len);
	split = order < folio->order && !folio_split(folio, order);
	folio_unlock(folio);
	folio_put(folio);
	return split;
}

/* Pass 2, once. Return: whether anything was there that has gone, or can go now. */
static bool remove_busy(struct mapping *mapping, pgoff_t first, pgoff_t last)
{
	bool found = false, frozen = false;
	struct folio_batch batch;
	pgoff_t next = first;
	unsigned int i;

	while (find_folios(mapping, &next, last, &batch, &frozen)) {
		for (i = 0; i < batch.nr; i++) {
			struct folio *folio = batch.folios[i];
			bool inside = is_inside(folio, first, last);

			found |= inside;
			if (!lock_idle(mapping, folio))
				continue;
			count_stat(mapping->cache, truncated, inside);
			if (inside)
				remove_folio(mapping, folio);
			else
				found |= trim_folio(mapping, folio, first, last);
		}
	}
	if (frozen)
		filemap_wait_frozen(mapping);
	return found || frozen;
}

/* Empties a range, of whole folios of the mapping's smallest size. */
static void remove_range(struct mapping *mapping, pgoff_t first, pgoff_t last)
{
	if (first > last)
		return;
	if (!remove_idle(mapping, first, last))
		return;
	while (remove_busy(mapping, first, last))
		;
	workingset_clear(mapping, first, last);
}

/* Does [at, at + len) of a valid block hold anything but zeros? Folio locked. */
static bool holds_data(const struct folio *folio, size_t at, size_t len)
{
	const unsigned char *p = (unsigned char *)folio_address(folio) + at;

	return len && (p[0] || memcmp(p, p + 1, len - 1));
}

/* The part of the block of byte @at that lies in [lo, hi); 0 when the block is not cut. */
static size_t cut_part(const struct folio *folio, size_t lo, size_t hi, size_t at, size_t *part)
{
	size_t bs = 1UL << folio->block_shift, start = at & ~(bs - 1);

	*part = start > lo ? start : lo;
	if (*part == start && start + bs <= hi)
		return 0;
	return (start + bs < hi ? start + bs : hi) - *part;
}

/* Reserves space for the block of byte @at if it is cut and will change. */
static int reserve_cut(struct mapping *mapping, struct folio *folio, size_t lo, size_t hi,
		       size_t at)
{
	size_t part, len = cut_part(folio, lo, hi, at, &part);

	if (!len || !folio_range_valid(folio, part, len) || !holds_data(folio, part, len) ||
	    !mapping->ops->reserve)
		return 0;
	return mapping->ops->reserve(mapping, folio, part, len);
}

/* The part [from, to) of one folio of the smallest size; the same when there is none. */
struct edge {
	loff_t from, to;
	struct folio *folio; /* referenced, or NULL when there is nothing to do */
};

static size_t edge_lo(const struct edge *edge)
{
	return edge->from - folio_pos(edge->folio);
}

static size_t edge_hi(const struct edge *edge)
{
	return edge_lo(edge) + (edge->to - edge->from);
}

static void edge_put(struct edge *edge)
{
	if (edge->folio)
		folio_put(edge->folio);
	edge->folio = NULL;
}

/* Looks a folio up so that one which is just being split is not missed. */
static struct folio *get_settled(struct mapping *mapping, pgoff_t index)
{
	struct folio *folio;

	xa_lock(&mapping->i_pages);
	folio = xa_load(&mapping->i_pages, index);
	if (xa_is_value(folio))
		folio = NULL;
	if (folio)
		folio_get(folio);
	xa_unlock(&mapping->i_pages);
	return folio;
}

/* Finds the folio, and reads it where a block is cut. */
static int edge_get(struct mapping *mapping, struct edge *edge)
{
	loff_t mask = (1 << mapping->block_shift) - 1, size = mapping_size(mapping);
	bool head = (edge->from & mask) && edge->from < size;
	bool tail = (edge->to & mask) && (edge->to & ~mask) < size;
	int err = 0;

	edge->folio = NULL;
	if (edge->from == edge->to)
		return 0;
	if (!head && !tail) {
		edge->folio = get_settled(mapping, edge->from >> PAGE_SHIFT);
		return 0;
	}
	edge->folio = filemap_grab_folio(mapping, edge->from >> PAGE_SHIFT, &err);
	if (!edge->folio)
		return err;
	if ((head && !folio_range_valid(edge->folio, edge_lo(edge), 1)) ||
	    (tail && !folio_range_valid(edge->folio, edge_hi(edge) - 1, 1)))
		err = filemap_read_run(mapping, &edge->folio, 1);
	folio_unlock(edge->folio);
	if (err)
		edge_put(edge);
	return err;
}

/* Gives back what is reserved for blocks that are not dirty. Folio locked, no WRITEBACK. */
static void unreserve_clean(struct mapping *mapping, struct folio *folio)
{
	size_t bs = 1UL << folio->block_shift;
	unsigned int block;

	for (block = 0; block < folio_nr_blocks(folio); block++)
		if (folio_block(folio, BLOCKS_RESERVED, block) &&
		    !folio_block(folio, BLOCKS_DIRTY, block))
			mapping->ops->unreserve(mapping, folio, block * bs, bs);
}

/* Locks the folio and reserves for the blocks that will be dirty. */
static int edge_lock(struct mapping *mapping, struct edge *edge)
{
	struct folio *folio = edge->folio;
	int err;

	if (!folio)
		return 0;
	if (!lock_idle(mapping, folio)) { /* evicted meanwhile */
		edge->folio = NULL;
		return 0;
	}
	err = reserve_cut(mapping, folio, edge_lo(edge), edge_hi(edge), edge_lo(edge));
	if (!err)
		err = reserve_cut(mapping, folio, edge_lo(edge), edge_hi(edge), edge_hi(edge) - 1);
	if (!err)
		return 0;
	unreserve_clean(mapping, folio);
	folio_unlock(folio);
	edge_put(edge);
	return err;
}

static void zero_cut(struct folio *folio, size_t lo, size_t hi, size_t at)
{
	size_t part, len = cut_part(folio, lo, hi, at, &part);

	if (!len || !folio_range_valid(folio, part, len) || !holds_data(folio, part, len))
		return;
	folio_zero(folio, part, len);
	folio_mark_dirty(folio, part, len);
}

/* Zeroes the locked edge, unlocks and puts it. */
static void edge_zero(struct mapping *mapping, struct edge *edge)
{
	size_t bs = 1UL << mapping->block_shift, lo, hi, first, last;
	struct folio *folio = edge->folio;

	if (!folio)
		return;
	lo = edge_lo(edge);
	hi = edge_hi(edge);
	first = (lo + bs - 1) & ~(bs - 1);
	last = hi & ~(bs - 1);
	zero_cut(folio, lo, hi, lo);
	zero_cut(folio, lo, hi, hi - 1);
	if (first < last) {
		forget_dirty(mapping, folio, first, last - first);
		folio_zero(folio, first, last - first);
	}
	folio_unlock(folio);
	edge_put(edge);
}

/* Up to the boundary of a folio of the smallest size. */
static loff_t unit_up(const struct mapping *mapping, loff_t pos)
{
	loff_t mask = ((loff_t)PAGE_SIZE << mapping->min_order) - 1;

	return (pos + mask) & ~mask;
}

int truncate_setsize(struct mapping *mapping, loff_t size)
{
	struct edge edge = {.from = size, .to = unit_up(mapping, size)};
	int err;

	if (size >= mapping_size(mapping)) {
		mapping_set_size(mapping, size);
		return 0;
	}
	err = edge_get(mapping, &edge);
	if (!err)
		err = edge_lock(mapping, &edge);
	if (err)
		return err;
	mapping_set_size(mapping, size);
	edge_zero(mapping, &edge);
	remove_range(mapping, edge.to >> PAGE_SHIFT, LAST_INDEX);
	return 0;
}

int truncate_hole(struct mapping *mapping, loff_t start, loff_t end)
{
	loff_t mask = ((loff_t)PAGE_SIZE << mapping->min_order) - 1;
	loff_t first = unit_up(mapping, start), last = end & ~mask;
	struct edge edges[2] = {{start, first, NULL}, {last, end, NULL}};
	int err;

	if (start >= end)
		return 0;
	if (first > last) { /* within one folio of the smallest size */
		edges[0].to = end;
		edges[1].from = end;
	}
	err = edge_get(mapping, &edges[0]);
	if (!err)
		err = edge_get(mapping, &edges[1]);
	if (!err)
		err = edge_lock(mapping, &edges[0]);
	if (!err) {
		edge_zero(mapping, &edges[0]);
		err = edge_lock(mapping, &edges[1]);
	}
	if (!err) {
		edge_zero(mapping, &edges[1]);
		if (first < last)
			remove_range(mapping, first >> PAGE_SHIFT, (last >> PAGE_SHIFT) - 1);
	}
	edge_put(&edges[0]);
	edge_put(&edges[1]);
	return err;
}

void truncate_all(struct mapping *mapping)
{
	__atomic_store_n(&mapping->exiting, true, __ATOMIC_RELAXED);
	readahead_cancel(mapping);
	remove_range(mapping, 0, LAST_INDEX);
	filemap_wait_frozen(mapping);
	__atomic_store_n(&mapping->exiting, false, __ATOMIC_RELAXED);
}

/* The part of the folio that lies in [start, end) is not valid any more. Folio locked; put. */
static void invalidate_part(struct mapping *mapping, struct folio *folio, loff_t start, loff_t end)
{
	loff_t pos = folio_pos(folio);
	size_t lo = start > pos ? start - pos : 0;
	size_t hi = end - pos < (loff_t)folio_size(folio) ? end - pos : folio_size(folio);

	forget_dirty(mapping, folio, lo, hi - lo);
	folio_clear_valid(folio, lo, hi - lo);
	if (!folio_any_valid(folio)) {
		count_stat(mapping->cache, invalidated, 1);
		remove_folio(mapping, folio);
		return;
	}
	folio_unlock(folio);
	folio_put(folio);
}

/* Return: whether one was passed over. */
static bool invalidate_once(struct mapping *mapping, loff_t start, loff_t end)
{
	pgoff_t index = start >> PAGE_SHIFT, last = (end - 1) >> PAGE_SHIFT;
	struct folio_batch batch;
	bool frozen = false;
	unsigned int i;

	while (find_folios(mapping, &index, last, &batch, &frozen)) {
		for (i = 0; i < batch.nr; i++) {
			if (lock_idle(mapping, batch.folios[i]))
				invalidate_part(mapping, batch.folios[i], start, end);
		}
	}
	return frozen;
}

void invalidate_blocks(struct mapping *mapping, loff_t start, loff_t end)
{
	if (start >= end)
		return;
	while (invalidate_once(mapping, start, end))
		filemap_wait_frozen(mapping);
}
