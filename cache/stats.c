/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the cache did, and how full it is.
 *
 * Each thread counts in one of a few shards, which it chooses at its first count, so that threads
 * do not pull the same line of memory to and fro. Reading adds them up, without a lock: figures of
 * one answer may be a few operations apart.
 */
#include "internal.h"

#define NR_COUNTERS (offsetof(struct cache_stats, bound_bytes) / sizeof(uint64_t))

__thread unsigned int stats_own_shard;

unsigned int stats_choose_shard(void)
{
	static unsigned int next;

	stats_own_shard = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED) % STATS_SHARDS + 1;
	return stats_own_shard - 1;
}

static void add_shard(struct cache_stats *sum, const struct cache_stats *shard)
{
	const uint64_t *from = (const uint64_t *)shard;
	uint64_t *to = (uint64_t *)sum;

	for (unsigned int i = 0; i < NR_COUNTERS; i++)
		to[i] += __atomic_load_n(&from[i], __ATOMIC_RELAXED);
}

void cache_get_stats(struct cache *cache, struct cache_stats *stats)
{
	unsigned long free, used[MAPPING_LEVELS];
	int level;

	memset(stats, 0, sizeof(*stats));
	for (unsigned int i = 0; i < STATS_SHARDS; i++)
		add_shard(stats, &cache->shards[i].stats);
	arena_usage(cache, &free, used);
	stats->bound_bytes = cache->nr_frames << PAGE_SHIFT;
	stats->used_bytes = (cache->nr_frames - free) << PAGE_SHIFT;
	for (level = 0; level < MAPPING_LEVELS; level++) {
		struct flusher *flusher = &cache->flushers[level];

		stats->dirty_bytes += __atomic_load_n(&flusher->nr_dirty, __ATOMIC_RELAXED)
				      << PAGE_SHIFT;
		stats->writeback_bytes += __atomic_load_n(&flusher->nr_writeback, __ATOMIC_RELAXED)
					  << PAGE_SHIFT;
	}
}
