/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the cache did, and how full it is. Counters are read one after the other without a lock, so
 * figures of one answer may be a few operations apart.
 */
#include "internal.h"

void cache_get_stats(struct cache *cache, struct cache_stats *stats)
{
	unsigned long free, used[MAPPING_LEVELS];
	int level;

	memset(stats, 0, sizeof(*stats));
#define COUNTER(field) stats->field = __atomic_load_n(&cache->counters.field, __ATOMIC_RELAXED)
	COUNTER(hits);
	COUNTER(misses);
	COUNTER(read_bytes);
	COUNTER(written_bytes);
	COUNTER(evictions);
	COUNTER(activations);
	COUNTER(refaults);
	COUNTER(refault_activations);
	COUNTER(refault_restores);
	COUNTER(shadow_nodes_freed);
	COUNTER(readahead_sync);
	COUNTER(readahead_async);
	COUNTER(readahead_pages);
	COUNTER(readahead_hits);
	COUNTER(readahead_wasted);
	COUNTER(readahead_errors);
	COUNTER(readahead_dropped);
	COUNTER(writeback_runs);
	COUNTER(write_errors);
	COUNTER(read_errors);
	COUNTER(throttled);
	COUNTER(adds);
	COUNTER(add_walks);
	COUNTER(shadow_splits);
	COUNTER(folio_splits);
	COUNTER(compactions);
#undef COUNTER
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
