/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The arena: all page frames of a cache in one anonymous mapping, and who has them. Behind the
 * frames lies the table of their structs; both are of huge pages, as they are visited at random.
 *
 * Frames are handed out by a buddy allocator: blocks of 2^order frames, aligned to their size, on
 * one list for each order. A block that is given back is joined with its other half as long as that
 * one is free as well. Of the structs of its frames the first one stands for the whole block. The
 * table lives as long as the cache, so whoever holds a stale pointer to a folio may still look at its
 * reference count.
 *
 * The bound of the memory is the size of the arena: there is nothing else to take frames from. FILE
 * folios never have more than all but `device_share` of them (why: reclaim.c).
 *
 * Frames come back scattered; how a large block is made then: compact.c.
 *
 * Those who wait for a frame sleep on frame_freed. They look again at every free, at every end of
 * a write, and every 10 ms, since the release of a folio lock or reference may help as well.
 *
 * The arena lock protects lists, counts and the FOLIO_BUDDY flag.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include "internal.h"

#define HUGE_PAGE (2UL << 20)

static_assert(sizeof(struct folio) == 64, "a folio's struct is one cache line");
#define WAIT_NS (10 * MSEC)
#define SHARE_MIN 32 /* frames */
#define SHARE_MAX 256

static void buddy_put(struct cache *cache, struct folio *folio, unsigned int order)
{
	folio->order = order;
	__atomic_store_n(&folio->flags, FOLIO_BUDDY, __ATOMIC_RELEASE);
	list_add(&folio->lru, &cache->free[order]);
}

static void buddy_take(struct folio *folio)
{
	list_del_init(&folio->lru);
	folio_clear_flags(folio, FOLIO_BUDDY);
}

/* The free other half of a block, or NULL. */
static struct folio *buddy_of(struct cache *cache, unsigned long pfn, unsigned int order)
{
	unsigned long other = pfn ^ (1UL << order);

	if (order == MAX_FOLIO_ORDER || other + (1UL << order) > cache->nr_frames)
		return NULL;
	if (!(folio_flags(&cache->frames[other]) & FOLIO_BUDDY) ||
	    cache->frames[other].order != order)
		return NULL;
	return &cache->frames[other];
}

static void buddy_free(struct cache *cache, struct folio *folio, unsigned int order)
{
	unsigned long pfn = folio - cache->frames;
	struct folio *buddy;

	while ((buddy = buddy_of(cache, pfn, order))) {
		buddy_take(buddy);
		pfn &= ~(1UL << order);
		order++;
	}
	buddy_put(cache, &cache->frames[pfn], order);
}

static struct folio *buddy_alloc(struct cache *cache, unsigned int order)
{
	unsigned int from = order;
	struct folio *folio;

	while (list_empty(&cache->free[from])) {
		if (from == MAX_FOLIO_ORDER)
			return NULL;
		from++;
	}
	folio = list_first_entry(&cache->free[from], struct folio, lru);
	buddy_take(folio);
	while (from > order) {
		from--;
		buddy_put(cache, folio + (1UL << from), from);
	}
	folio->order = order;
	return folio;
}

/* Enough for the one thread that changes metadata, and for a run being written. */
static unsigned long device_share(unsigned long nr_frames)
{
	unsigned long share = nr_frames / 16;

	if (share < SHARE_MIN)
		return SHARE_MIN;
	return share < SHARE_MAX ? share : SHARE_MAX;
}

static size_t huge_pages(size_t len)
{
	return (len + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
}

static void init_frames(struct cache *cache)
{
	unsigned int order = MAX_FOLIO_ORDER;
	unsigned long pfn;

	for (pfn = 0; pfn < cache->nr_frames; pfn++) {
		struct folio *folio = &cache->frames[pfn];

		folio->address = cache->base + (pfn << PAGE_SHIFT);
		folio->cache = cache;
		INIT_LIST_HEAD(&folio->lru);
	}
	for (pfn = 0; pfn < cache->nr_frames; pfn += 1UL << order) {
		while (pfn + (1UL << order) > cache->nr_frames)
			order--;
		buddy_put(cache, &cache->frames[pfn], order);
	}
	cache->nr_free = cache->nr_frames;
}

/**
 * arena_init() - Map the arena of a cache whose config is set.
 *
 * Return: 0 or -ENOMEM.
 */
int arena_init(struct cache *cache)
{
	size_t arena, table;
	int order;

	cache->nr_frames = cache->config.bytes >> PAGE_SHIFT;
	cache->device_share = device_share(cache->nr_frames);
	for (order = 0; order <= MAX_FOLIO_ORDER; order++)
		INIT_LIST_HEAD(&cache->free[order]);
	if (short_lock_init(&cache->arena_lock) || cond_init(&cache->frame_freed))
		return -ENOMEM;
	arena = huge_pages(cache->nr_frames << PAGE_SHIFT);
	table = cache->nr_frames * sizeof(*cache->frames);
	cache->map_len = arena + table + HUGE_PAGE;
	cache->map = mmap(NULL, cache->map_len, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (cache->map == MAP_FAILED)
		return -ENOMEM;
	cache->base = (char *)huge_pages((uintptr_t)cache->map);
	cache->frames = (struct folio *)(cache->base + arena);
	madvise(cache->base, cache->nr_frames << PAGE_SHIFT, MADV_HUGEPAGE);
	/* No more of them than the table fills: a small cache is to stay small. */
	madvise(cache->frames, table & ~(HUGE_PAGE - 1), MADV_HUGEPAGE);
	init_frames(cache);
	return 0;
}

void arena_finish(struct cache *cache)
{
	cache_assert(cache->nr_free == cache->nr_frames);
	munmap(cache->map, cache->map_len);
	pthread_cond_destroy(&cache->frame_freed);
	pthread_mutex_destroy(&cache->arena_lock);
}

static bool may_take(struct cache *cache, enum mapping_level level, unsigned long nr)
{
	if (cache->nr_free < nr)
		return false;
	return level == MAPPING_DEVICE ||
	       cache->nr_used[MAPPING_FILE] + nr <= cache->nr_frames - cache->device_share;
}

/* No block is anything yet, and only the first frame stands for something. */
static void clear_frames(struct folio *folio)
{
	struct folio *frame;
	int kind;

	for (frame = folio; frame < folio + (1UL << folio->order); frame++) {
		for (kind = 0; kind < BLOCKS_KINDS; kind++)
			set_frame_blocks(frame, kind, 0);
		frame->mapping = NULL;
	}
	if (!folio->order)
		return;
	__atomic_store_n(&folio[1].nr_valid, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&folio[1].nr_dirty, 0, __ATOMIC_RELAXED);
}

/**
 * arena_alloc() - Take 2^order frames for a level, without reclaim.
 *
 * Context: Takes the arena lock.
 * Return: A folio with one reference, with nothing valid and no flag set, or NULL.
 */
struct folio *arena_alloc(struct cache *cache, enum mapping_level level, unsigned int order)
{
	struct folio *folio = NULL;

	pthread_mutex_lock(&cache->arena_lock);
	if (may_take(cache, level, 1UL << order))
		folio = buddy_alloc(cache, order);
	if (folio) {
		cache->nr_free -= 1UL << order;
		cache->nr_used[level] += 1UL << order;
	}
	pthread_mutex_unlock(&cache->arena_lock);
	if (!folio)
		return NULL;
	folio->level = level;
	folio->block_shift = PAGE_SHIFT; /* until it is in a mapping */
	clear_frames(folio);
	__atomic_store_n(&folio->flags, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&folio->refcount, 1, __ATOMIC_RELEASE);
	return folio;
}

/* Is there room for 2^order frames more for a level, in one block or not? */
bool arena_may_take(struct cache *cache, enum mapping_level level, unsigned int order)
{
	bool may;

	pthread_mutex_lock(&cache->arena_lock);
	may = may_take(cache, level, 1UL << order);
	pthread_mutex_unlock(&cache->arena_lock);
	return may;
}

/**
 * arena_free_list() - Give frames of folios back. Their counts are 0 and they are on no list.
 *
 * Context: Takes the arena lock.
 */
void arena_free_list(struct cache *cache, struct folio **folios, unsigned int nr)
{
	unsigned int i;

	if (!nr)
		return;
	pthread_mutex_lock(&cache->arena_lock);
	for (i = 0; i < nr; i++) {
		struct folio *folio = folios[i];

		cache_assert(!folio->lru.next || list_empty(&folio->lru));
		cache_assert(!(folio_flags(folio) & (FOLIO_LRU | FOLIO_WRITEBACK | FOLIO_BUDDY)));
		cache_assert(!folio_range_any(folio, BLOCKS_RESERVED, 0, folio_size(folio)));
		cache->nr_free += 1UL << folio->order;
		cache->nr_used[folio->level] -= 1UL << folio->order;
		buddy_free(cache, folio, folio->order);
	}
	if (cache->frame_waiters)
		pthread_cond_broadcast(&cache->frame_freed);
	pthread_mutex_unlock(&cache->arena_lock);
}

void arena_free(struct folio *folio)
{
	arena_free_list(folio->cache, &folio, 1);
}

/* Something may have become reclaimable: let those who wait for a frame look. */
void arena_wake(struct cache *cache)
{
	if (!__atomic_load_n(&cache->frame_waiters, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&cache->arena_lock);
	pthread_cond_broadcast(&cache->frame_freed);
	pthread_mutex_unlock(&cache->arena_lock);
}

/* Is there a free block of an order? */
static bool has_block(const struct cache *cache, unsigned int order)
{
	while (order <= MAX_FOLIO_ORDER && list_empty(&cache->free[order]))
		order++;
	return order <= MAX_FOLIO_ORDER;
}

/**
 * arena_wait() - Wait a moment for 2^order frames to become free for a level.
 *
 * Context: May sleep; no folio locked (reclaim.c).
 */
void arena_wait(struct cache *cache, enum mapping_level level, unsigned int order)
{
	pthread_mutex_lock(&cache->arena_lock);
	if (!may_take(cache, level, 1UL << order) || !has_block(cache, order)) {
		__atomic_fetch_add(&cache->frame_waiters, 1, __ATOMIC_RELAXED);
		cond_wait_until(&cache->frame_freed, &cache->arena_lock, now_ns() + WAIT_NS);
		__atomic_fetch_sub(&cache->frame_waiters, 1, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&cache->arena_lock);
}

void arena_usage(struct cache *cache, unsigned long *free, unsigned long used[MAPPING_LEVELS])
{
	pthread_mutex_lock(&cache->arena_lock);
	*free = cache->nr_free;
	used[MAPPING_FILE] = cache->nr_used[MAPPING_FILE];
	used[MAPPING_DEVICE] = cache->nr_used[MAPPING_DEVICE];
	pthread_mutex_unlock(&cache->arena_lock);
}
