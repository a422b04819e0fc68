/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The LRU lists, and how frames are got back.
 *
 * Each level has two lists. A folio starts on the inactive one; a second access moves it to the
 * active one, and so does its return soon after an eviction (workingset.c). When the inactive list
 * has become low, the oldest active folios go back to its young end, where one access makes them
 * active again if they had one before. How long the inactive list is to be follows from the size of
 * the cache, inactive x sqrt(10 x GiB) = active, both the same below 1 GiB, give or take a fifth by
 * what evicted folios that come back say of it. More than that would win a little with uses that
 * keep to a law, and lose much when they move elsewhere; to tell the active folios that were not
 * used again from the others, and let them go first, was no gain either.
 *
 * Reclaim looks at the oldest inactive folios: one that nobody uses and that is clean leaves its
 * mapping, and a shadow in its place. One that is locked, dirty or being written goes to the young
 * end, and in the latter cases the flusher is woken. There is no thread for this: who wants a frame
 * reclaims a batch.
 *
 * An eviction holds the folio lock (by trylock) and the XArray lock, and freezes the reference
 * count at 2, the mapping's and its own: from there on no reader can get the folio, and it is taken
 * out and freed at once. Who fails to get a reference on a folio may therefore treat it as absent.
 *
 * A folio that is looked at is off its list with a reference held, so several threads can reclaim
 * at once, and the LRU lock is never held together with another lock.
 *
 * Which level gives frames: FILE, when a FILE folio is wanted and FILE has all it may have, or when
 * DEVICE has no more than its share; else the level with more folios. If it cannot give any, the
 * other one.
 *
 * Why waiting for a frame ends
 *
 * 1. Who waits for a frame holds no folio lock and no reference that others could need: filemap.c
 *    waits for the first missing folio of a batch only, and goes without for the rest. So folios
 *    that are locked or referenced are so by threads that are at work, or wait for something named
 *    below.
 * 2. Dirty DEVICE folios can be written at all times: their flusher is a thread of its own, it
 *    needs no frame, and no lock of the owner's above a DEVICE folio lock. So a wait for a DEVICE
 *    frame ends: FILE never has more than all but device_share frames; the others are free, clean,
 *    or dirty DEVICE ones that this flusher makes clean. An owner with a journal pins what is not
 *    committed. It keeps that below a part of the frames (txn_log.c), which is why a DEVICE folio is
 *    as small as its block; so many FILE frames can be had, since most of these are clean
 *    (flusher.c).
 * 3. So the holder of the owner's volume lock, who waits for DEVICE frames only, goes on, and the
 *    volume lock becomes free in the end.
 * 4. Dirty FILE folios can be written then: their flushers need a FILE folio lock (by trylock, or
 *    held by a thread that reads or writes the folio and needs the volume lock at most), the volume
 *    lock, and DEVICE frames. They need neither the inode lock nor the invalidate lock, which a
 *    waiter for a FILE frame may hold. So a wait for a FILE frame ends.
 * 5. Throttling (throttle.c) counts and waits by level for the same reason: who holds the volume
 *    lock and dirties DEVICE folios waits for the DEVICE flusher only.
 */
#include "internal.h"

#define SCAN_ACTIVE_MAX (4 * RECLAIM_BATCH) /* pages */
#define LEAN_MAX 5 /* a part of the inactive list's share */

/* Folios that have left their mappings, still locked, to be freed in one go. */
struct eviction {
	unsigned int nr;
	struct folio *gone[RECLAIM_BATCH];
	unsigned long pages[2];	/* [1]: that had been active */
	bool dirty;		/* one could not go for that */
};

static inline enum lru_list folio_list(const struct folio *folio)
{
	return folio_flags(folio) & FOLIO_ACTIVE ? LRU_ACTIVE : LRU_INACTIVE;
}

void lru_init(struct cache *cache)
{
	int level, list;

	for (level = 0; level < MAPPING_LEVELS; level++)
		for (list = 0; list < LRU_LISTS; list++)
			INIT_LIST_HEAD(&cache->lru[level].list[list]);
}

/*
 * The LRU lock is held from here
 */

static void lru_count(struct lru *lru, enum lru_list list, long pages)
{
	__atomic_store_n(&lru->nr[list], lru->nr[list] + pages, __ATOMIC_RELAXED);
}

static void lru_link(struct folio *folio)
{
	struct lru *lru = &folio->cache->lru[folio->level];
	enum lru_list list = folio_list(folio);

	cache_assert(!(folio_flags(folio) & FOLIO_LRU));
	list_add(&folio->lru, &lru->list[list]);
	lru_count(lru, list, 1L << folio->order);
	folio_set_flags(folio, FOLIO_LRU);
}

static void lru_unlink(struct folio *folio)
{
	struct lru *lru = &folio->cache->lru[folio->level];

	cache_assert(folio_flags(folio) & FOLIO_LRU);
	list_del_init(&folio->lru);
	lru_count(lru, folio_list(folio), -(1L << folio->order));
	folio_clear_flags(folio, FOLIO_LRU);
}

static bool inactive_is_low(struct lru *lru)
{
	unsigned long total = lru->nr[LRU_INACTIVE] + lru->nr[LRU_ACTIVE];
	unsigned long gib = total >> (30 - PAGE_SHIFT), ratio = 1;
	long share;

	while (gib && (ratio + 1) * (ratio + 1) <= 10 * gib)
		ratio++;
	share = total / (ratio + 1);
	share += workingset_lean(lru, share / LEAN_MAX);
	return (long)lru->nr[LRU_INACTIVE] < share;
}

/* Looks at the oldest active folios. Return: how many pages it has looked at. */
static unsigned long deactivate_some(struct lru *lru)
{
	unsigned long nr = RECLAIM_BATCH * lru->nr[LRU_ACTIVE] / (lru->nr[LRU_INACTIVE] + 1) + 1;
	unsigned long done = 0;

	if (nr > SCAN_ACTIVE_MAX)
		nr = SCAN_ACTIVE_MAX;
	while (done < nr && !list_empty(&lru->list[LRU_ACTIVE])) {
		struct folio *folio = list_last_entry(&lru->list[LRU_ACTIVE], struct folio, lru);

		done += 1UL << folio->order;
		lru_unlink(folio);
		folio_clear_flags(folio, FOLIO_ACTIVE);
		folio_set_flags(folio, FOLIO_WORKINGSET);
		lru_link(folio);
	}
	return done;
}

/* Takes the oldest inactive folios off the list, with a reference each. @scanned: pages */
static unsigned int isolate(struct lru *lru, struct folio **folios, unsigned long *scanned)
{
	unsigned long pages = 0;
	unsigned int n, nr = 0;

	for (n = 0; n < RECLAIM_BATCH && pages < RECLAIM_BATCH; n++) {
		struct folio *folio;

		if (list_empty(&lru->list[LRU_INACTIVE]))
			break;
		folio = list_last_entry(&lru->list[LRU_INACTIVE], struct folio, lru);
		pages += 1UL << folio->order;
		if (!folio_try_get(folio)) { /* about to be freed by its last holder */
			list_move(&folio->lru, &lru->list[LRU_INACTIVE]);
			continue;
		}
		lru_unlink(folio);
		folios[nr++] = folio;
	}
	*scanned += pages;
	return nr;
}

/*
 * The LRU lock is not held from here
 */

/* @shadow: what was in the folio's slot, to compare its age, or NULL. Context: Takes the LRU lock. */
void lru_add(struct folio *folio, void *shadow)
{
	pthread_mutex_lock(&folio->cache->lru_lock);
	if (shadow)
		workingset_refault(folio, shadow);
	lru_link(folio);
	pthread_mutex_unlock(&folio->cache->lru_lock);
}

/* Takes a folio whose last reference is gone off its list. Context: Takes the LRU lock. */
void lru_remove(struct folio *folio)
{
	struct cache *cache = folio->cache;

	if (!(folio_flags(folio) & FOLIO_LRU))
		return;
	pthread_mutex_lock(&cache->lru_lock);
	lru_unlink(folio);
	pthread_mutex_unlock(&cache->lru_lock);
}

/* The same for several folios of one cache. Context: Takes the LRU lock once. */
void lru_remove_list(struct cache *cache, struct folio **folios, unsigned int nr)
{
	unsigned int i;

	pthread_mutex_lock(&cache->lru_lock);
	for (i = 0; i < nr; i++)
		if (folio_flags(folios[i]) & FOLIO_LRU)
			lru_unlink(folios[i]);
	pthread_mutex_unlock(&cache->lru_lock);
}

/* Takes a referenced folio off its list; false when it is on none. Context: Takes the LRU lock. */
bool lru_isolate(struct folio *folio)
{
	struct cache *cache = folio->cache;
	bool on_list;

	pthread_mutex_lock(&cache->lru_lock);
	on_list = folio_flags(folio) & FOLIO_LRU;
	if (on_list)
		lru_unlink(folio);
	pthread_mutex_unlock(&cache->lru_lock);
	return on_list;
}

/**
 * folio_mark_accessed() - A folio was used: the second time since it came makes it active.
 *
 * Context: Referenced. May take the LRU lock.
 */
void folio_mark_accessed(struct folio *folio)
{
	struct cache *cache = folio->cache;
	unsigned int flags = folio_flags(folio);

	if (flags & FOLIO_AHEAD) {
		folio_clear_flags(folio, FOLIO_AHEAD);
		count_stat(cache, readahead_hits, 1);
	}
	if (!(flags & FOLIO_REFERENCED)) {
		folio_set_flags(folio, FOLIO_REFERENCED);
		return;
	}
	if ((flags & FOLIO_ACTIVE) || !(flags & FOLIO_LRU))
		return;
	pthread_mutex_lock(&cache->lru_lock);
	flags = folio_flags(folio);
	if ((flags & FOLIO_LRU) && !(flags & FOLIO_ACTIVE)) {
		lru_unlink(folio);
		folio_clear_flags(folio, FOLIO_REFERENCED);
		folio_set_flags(folio, FOLIO_ACTIVE);
		lru_link(folio);
		workingset_activation(folio);
		count_stat(cache, activations, 1);
	}
	pthread_mutex_unlock(&cache->lru_lock);
}

/*
 * Takes a locked folio out of its mapping if it is clean and only we and it use it. A write that
 * fails makes its folio dirty and ends WRITEBACK under the XArray lock alone: so both are looked at
 * under it. Context: XArray lock held.
 */
static bool evict_locked(struct xa_state *xas, struct folio *folio, struct eviction *ev)
{
	struct mapping *mapping = folio->mapping;

	if (folio_nr_dirty(folio) || folio_test_writeback(folio)) {
		ev->dirty = true;
		return false;
	}
	if (!folio_freeze(folio, 2))
		return false;
	xas_set_order(xas, folio->index, folio->order);
	xas_store(xas, workingset_eviction(mapping, folio, ev->pages));
	cache_assert(!xas_error(xas)); /* the slot is there */
	filemap_removed(mapping);
	mapping_count_pages(mapping, -(1L << folio->order));
	folio->mapping = NULL;
	return true;
}

/* The same with locked folios of one mapping. Moves those that stay to the front. Return: those. */
static unsigned int evict_run(struct folio **folios, unsigned int nr, struct eviction *ev)
{
	XA_STATE(xas, &folios[0]->mapping->i_pages, 0);
	unsigned int i, kept = 0;

	xas_set_update(&xas, workingset_update_node);
	xas_lock(&xas);
	for (i = 0; i < nr; i++) {
		if (evict_locked(&xas, folios[i], ev))
			ev->gone[ev->nr++] = folios[i];
		else
			folios[kept++] = folios[i];
	}
	xas_unlock(&xas);
	/* The mapping may be gone from here on, if no folio of it has stayed. */
	for (i = 0; i < kept; i++)
		folio_unlock(folios[i]);
	return kept;
}

/* Can it be evicted, as far as can be seen? It is locked then. */
static bool lock_clean(struct folio *folio, bool *dirty)
{
	if (!folio_trylock(folio))
		return false;
	if (!folio->mapping)
		goto unlock;
	if (!folio_nr_dirty(folio) && !folio_test_writeback(folio))
		return true;
	*dirty = true; /* spares the lock; what counts is looked at under it */
unlock:
	folio_unlock(folio);
	return false;
}

/* Frees what has been evicted, which is locked. Return: how many pages. */
static unsigned long free_gone(struct cache *cache, struct eviction *ev)
{
	unsigned int i;

	if (!ev->nr)
		return 0;
	for (i = 0; i < ev->nr; i++) {
		struct folio *folio = ev->gone[i];

		folio_unlock(folio);
		if (folio_flags(folio) & FOLIO_AHEAD)
			count_stat(cache, readahead_wasted, 1UL << folio->order);
	}
	count_stat(cache, evictions, ev->nr);
	workingset_evicted(&cache->lru[ev->gone[0]->level], ev->pages);
	arena_free_list(cache, ev->gone, ev->nr);
	return ev->pages[0] + ev->pages[1];
}

/*
 * Evicts and frees those of up to RECLAIM_BATCH isolated folios that it can, with one XArray lock
 * for neighbours of one mapping. Moves those that stay to the front, and *@nr is their number.
 * Return: how many pages are free.
 */
static unsigned long evict(struct cache *cache, struct folio **folios, unsigned int *nr, bool *dirty)
{
	struct eviction ev = {.dirty = *dirty};
	struct folio *run[RECLAIM_BATCH];
	unsigned int i, n = 0, kept = 0;

	for (i = 0; i <= *nr; i++) {
		bool ready = i < *nr && lock_clean(folios[i], &ev.dirty);

		if (n && (i == *nr || (ready && folios[i]->mapping != run[0]->mapping))) {
			n = evict_run(run, n, &ev);
			memcpy(folios + kept, run, n * sizeof(*run));
			kept += n;
			n = 0;
		}
		if (ready)
			run[n++] = folios[i];
		else if (i < *nr)
			folios[kept++] = folios[i];
	}
	*nr = kept;
	*dirty = ev.dirty;
	return free_gone(cache, &ev);
}

/**
 * evict_folio() - Evict a certain folio if that is possible at once.
 * @folio: with a reference of the caller's, which is used up
 *
 * Context: Takes the LRU lock, the folio lock by trylock, the XArray lock.
 * Return: Whether its frames are free now.
 */
bool evict_folio(struct folio *folio)
{
	struct cache *cache = folio->cache;
	bool dirty = false, isolated = lru_isolate(folio);
	unsigned int nr = 1;

	if (isolated && evict(cache, &folio, &nr, &dirty)) {
		count_stat(cache, evictions_compact, 1);
		return true;
	}
	if (isolated)
		lru_add(folio, NULL);
	folio_put(folio);
	return false;
}

static void put_back(struct cache *cache, struct folio **folios, unsigned int nr)
{
	unsigned int i;

	pthread_mutex_lock(&cache->lru_lock);
	for (i = 0; i < nr; i++)
		lru_link(folios[i]);
	pthread_mutex_unlock(&cache->lru_lock);
	for (i = 0; i < nr; i++)
		folio_put(folios[i]);
}

/* Frees RECLAIM_BATCH pages of a level, or what one look at each folio (two, if active) yields. */
static unsigned long shrink(struct cache *cache, enum mapping_level level)
{
	struct lru *lru = &cache->lru[level];
	struct folio *folios[RECLAIM_BATCH];
	unsigned long limit, scanned = 0, freed = 0;
	unsigned int nr;
	bool dirty = false;

	do {
		pthread_mutex_lock(&cache->lru_lock);
		limit = lru->nr[LRU_INACTIVE] + 2 * lru->nr[LRU_ACTIVE];
		if (inactive_is_low(lru))
			scanned += deactivate_some(lru);
		nr = isolate(lru, folios, &scanned);
		pthread_mutex_unlock(&cache->lru_lock);
		freed += evict(cache, folios, &nr, &dirty);
		if (nr)
			put_back(cache, folios, nr);
	} while (freed < RECLAIM_BATCH && scanned < limit);
	if (dirty)
		flusher_press(&cache->flushers[level]);
	workingset_shrink(cache);
	return freed;
}

/* Gets frames back so that @level can have one. Return: how many. */
static unsigned long reclaim(struct cache *cache, enum mapping_level level)
{
	enum mapping_level first = MAPPING_FILE;
	unsigned long free, used[MAPPING_LEVELS];
	unsigned long freed;

	arena_usage(cache, &free, used);
	if (level == MAPPING_FILE && free)
		return shrink(cache, MAPPING_FILE);
	if (used[MAPPING_DEVICE] > cache->device_share && used[MAPPING_DEVICE] > used[MAPPING_FILE])
		first = MAPPING_DEVICE;
	freed = shrink(cache, first);
	return freed ? freed : shrink(cache, MAPPING_LEVELS - 1 - first);
}

/*
 * Tries for a large folio: with what is free, after as many pages have been reclaimed, after
 * compaction. If all that fails, it need not be this large.
 */
static struct folio *alloc_large(struct cache *cache, enum mapping_level level, unsigned int order,
				 unsigned int min_order)
{
	struct folio *folio = arena_alloc(cache, level, order);
	unsigned long freed = 0, more;

	if (folio)
		return folio;
	if (!arena_may_take(cache, level, order)) {
		while (freed < 1UL << order && (more = reclaim(cache, level)))
			freed += more;
		folio = arena_alloc(cache, level, order);
	}
	if (!folio && arena_compact(cache, order, false))
		folio = arena_alloc(cache, level, order);
	while (!folio && --order > min_order)
		folio = arena_alloc(cache, level, order);
	return folio;
}

/**
 * folio_alloc() - A new folio for a level, with one reference.
 * @order: what is wanted
 * @min_order: what will do
 * @wait: wait until there is one; never returns NULL then
 *
 * Context: With @wait: may sleep, and no folio is locked or referenced by the caller (above).
 */
struct folio *folio_alloc(struct cache *cache, enum mapping_level level, unsigned int order,
			  unsigned int min_order, bool wait)
{
	struct folio *folio = NULL;

	if (order > min_order)
		folio = alloc_large(cache, level, order, min_order);
	while (!folio && !(folio = arena_alloc(cache, level, min_order))) {
		if (min_order && arena_may_take(cache, level, min_order) &&
		    arena_compact(cache, min_order, true))
			continue;
		if (reclaim(cache, level))
			continue;
		if (!wait)
			return NULL;
		flusher_press(&cache->flushers[MAPPING_FILE]);
		flusher_press(&cache->flushers[MAPPING_DEVICE]);
		arena_wait(cache, level, min_order);
	}
	return folio;
}
