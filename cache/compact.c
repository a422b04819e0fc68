/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Compaction: a large block of frames is made by evicting the folios that lie in one.
 *
 * Frames come free one by one, in the order in which their folios grow old, so in time the free ones
 * are scattered and no large block is left. Folios cannot move, since readers hold pointers into
 * them; but all that is clean can be read again. So a hand goes round the arena, looks at a few
 * aligned blocks, and takes the one with the most free frames of those whose other frames hold only
 * what is of little use: clean, inactive, and not in anybody's hands. These folios are evicted, and
 * the buddy allocator joins what they leave.
 *
 * That costs what was cached there, and looking costs time, so it is done only for who can use a
 * large folio, and after a failure the next attempts are left out: 1, 2, 4, up to 64 of them. When
 * a mapping cannot do with less (its minimum order) the whole arena is looked at, and active folios
 * are evicted as well.
 *
 * Nobody owns the block meanwhile: frames that come free can be taken by others at once. Then it
 * was in vain, and the caller makes do with less.
 */
#include "internal.h"

#define COMPACT_BLOCKS 4
#define SKIP_MAX 64

/* Free pages from a frame on, to the end of the free block that it lies in; 0 when it is not free. */
static unsigned long free_pages(struct cache *cache, unsigned long pfn)
{
	unsigned long pages = 0, head;
	unsigned int order;

	pthread_mutex_lock(&cache->arena_lock);
	for (order = 0; order <= MAX_FOLIO_ORDER && !pages; order++) {
		head = pfn >> order << order;
		if ((folio_flags(&cache->frames[head]) & FOLIO_BUDDY) &&
		    head + (1UL << cache->frames[head].order) > pfn)
			pages = head + (1UL << cache->frames[head].order) - pfn;
	}
	pthread_mutex_unlock(&cache->arena_lock);
	return pages;
}

/* Is a folio that we have a reference on of little use? */
static bool is_idle(const struct folio *folio, bool hard)
{
	unsigned int busy = FOLIO_LOCKED | FOLIO_WRITEBACK;

	if (!hard)
		busy |= FOLIO_ACTIVE;
	return !(folio_flags(folio) & busy) && !folio_nr_dirty(folio) &&
	       __atomic_load_n(&folio->refcount, __ATOMIC_RELAXED) == 2;
}

/*
 * Goes over the frames of a block. With @take: evicts what is there.
 * Return: free frames, or -1 when a folio must stay.
 */
static long go_over(struct cache *cache, unsigned long pfn, unsigned int order, bool hard, bool take)
{
	unsigned long end = pfn + (1UL << order), pages;
	long free = 0;

	for (; pfn < end; pfn += pages) {
		struct folio *folio = &cache->frames[pfn];
		bool idle;

		pages = free_pages(cache, pfn);
		free += pages < end - pfn ? pages : end - pfn;
		if (pages)
			continue;
		if (!folio_try_get(folio)) /* a part of something larger, or on its way */
			return -1;
		pages = 1UL << folio->order;
		idle = is_idle(folio, hard);
		if (idle && take) {
			if (!evict_folio(folio))
				return -1;
			continue;
		}
		folio_put(folio);
		if (!idle)
			return -1;
	}
	return free;
}

/* The next aligned block under the hand. */
static unsigned long next_block(struct cache *cache, unsigned int order)
{
	unsigned long nr = cache->nr_frames >> order;
	unsigned long at = __atomic_fetch_add(&cache->compact_hand, 1, __ATOMIC_RELAXED);

	return at % nr << order;
}

static bool make_block(struct cache *cache, unsigned int order, bool hard)
{
	unsigned long tries = hard ? cache->nr_frames >> order : COMPACT_BLOCKS, best = 0;
	long most = -1;

	while (tries--) {
		unsigned long pfn = next_block(cache, order);
		long free = go_over(cache, pfn, order, hard, false);

		if (free > most) {
			most = free;
			best = pfn;
		}
	}
	return most >= 0 && go_over(cache, best, order, hard, true) >= 0;
}

/**
 * arena_compact() - Try to make a free block of 2^order frames.
 * @hard: there is no making do with less
 *
 * Context: Takes folio locks by trylock, XArray and LRU locks.
 * Return: Whether there was one for a moment.
 */
bool arena_compact(struct cache *cache, unsigned int order, bool hard)
{
	unsigned int skip = __atomic_load_n(&cache->compact_skip, __ATOMIC_RELAXED);
	unsigned int wait = __atomic_load_n(&cache->compact_wait, __ATOMIC_RELAXED);

	if (cache->nr_frames >> order == 0)
		return false;
	if (!hard && skip) {
		__atomic_store_n(&cache->compact_skip, skip - 1, __ATOMIC_RELAXED);
		return false;
	}
	if (make_block(cache, order, hard)) {
		__atomic_store_n(&cache->compact_wait, 0, __ATOMIC_RELAXED);
		count_stat(cache, compactions, 1);
		return true;
	}
	wait = wait ? 2 * wait : 1;
	if (wait > SKIP_MAX)
		wait = SKIP_MAX;
	__atomic_store_n(&cache->compact_wait, wait, __ATOMIC_RELAXED);
	__atomic_store_n(&cache->compact_skip, wait, __ATOMIC_RELAXED);
	return false;
}
