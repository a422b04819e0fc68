/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the cache did, and how full it is.
 *
 * Each thread has a shard of the counters for itself, from its first count to its end, so that
 * counting is an addition in memory that no other thread writes to. Those who find all taken share
 * the first one, with atomic additions. Reading adds the shards up, without a lock: figures of one
 * answer may be a few operations apart. A shard is given back with release and taken with acquire,
 * so its next owner goes on from the last one's counts.
 */
#include "internal.h"

#define NR_COUNTERS (offsetof(struct cache_stats, bound_bytes) / sizeof(uint64_t))
#define SHARED 1U /* in the bitmap of those taken: never free */

__thread unsigned int stats_own_shard;

static uint64_t taken = SHARED; /* atomic */
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_key;
static bool have_key;

static void thread_ends(void *bit)
{
	stats_own_shard = 0;
	__atomic_fetch_and(&taken, ~(uint64_t)(uintptr_t)bit, __ATOMIC_RELEASE);
}

static void make_key(void)
{
	have_key = !pthread_key_create(&thread_key, thread_ends);
}

static_assert(STATS_SHARDS < 64 && sizeof(void *) == 8, "a shard has its bit in a pointer");

/* Return: a free shard, which is taken now, or 0. */
static unsigned int take_shard(void)
{
	uint64_t old = __atomic_load_n(&taken, __ATOMIC_RELAXED);
	unsigned int shard;

	do {
		shard = __builtin_ctzll(~old);
		if (shard >= STATS_SHARDS)
			return 0;
	} while (!__atomic_compare_exchange_n(&taken, &old, old | 1ULL << shard, true,
					      __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
	return shard;
}

unsigned int stats_choose_shard(void)
{
	unsigned int shard = 0;

	pthread_once(&key_once, make_key);
	if (have_key)
		shard = take_shard();
	if (shard && pthread_setspecific(thread_key, (void *)(1UL << shard))) {
		thread_ends((void *)(1UL << shard));
		shard = 0;
	}
	stats_own_shard = shard + 1;
	return shard;
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
