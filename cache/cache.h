/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The page cache: one bounded arena of page frames, shared by all mappings attached to it.
 *
 * Include this one header. Every thread that calls in must be registered with RCU
 * (rcu_register_thread(), see rcu.h).
 */
#ifndef FOLIO_CACHE_CACHE_H
#define FOLIO_CACHE_CACHE_H

#include "folio.h"
#include "mapping.h"

#define CACHE_MIN_BYTES (1UL << 20)

/**
 * struct cache_config - how a cache is made
 * @bytes: bound of the memory for folios, rounded down to pages; at least CACHE_MIN_BYTES
 * @readahead_bytes: the most that is read ahead of a reader at a time; 0: nothing
 * @dirty_expire_ms: dirty data older than this is written back by the flusher; 0: never by age
 */
struct cache_config {
	size_t bytes;
	size_t readahead_bytes;
	unsigned int dirty_expire_ms;
};

/* First counters since creation, then the present state. */
struct cache_stats {
	uint64_t hits, misses;			/* folios asked for by reads and writes */
	uint64_t read_bytes, written_bytes;	/* to and from the backing */
	uint64_t read_batches, read_folios;	/* answers to reads, folios in them */
	uint64_t evictions;			/* folios reclaimed */
	uint64_t evictions_compact;		/* of these, to make large blocks */
	uint64_t truncated, invalidated;	/* folios dropped */
	uint64_t activations, refaults;
	uint64_t refault_activations, refault_restores;	/* of refaults: taken in as active; had been */
	uint64_t shadow_nodes_freed;
	uint64_t readahead_sync, readahead_async;	/* windows */
	uint64_t readahead_files;		/* small files read ahead with others */
	uint64_t readahead_pages, readahead_hits;	/* read ahead; of these, folios used later */
	uint64_t readahead_wasted;			/* pages read ahead, evicted unused */
	uint64_t readahead_errors, readahead_dropped;	/* runs that failed, windows not tried */
	uint64_t writeback_runs, write_errors, read_errors, throttled;
	uint64_t adds, add_walks;		/* folios added to mappings, walks of the tree for it */
	uint64_t shadow_splits, folio_splits;
	uint64_t compactions;			/* large blocks made by eviction */
	uint64_t orders[MAX_FOLIO_ORDER + 1];	/* folios added, by order */

	uint64_t bound_bytes, used_bytes, dirty_bytes, writeback_bytes;
};

/* Returns 0 and the cache in *out, or -ENOMEM, -EINVAL, -EAGAIN (threads). Starts the flushers. */
int cache_create(struct cache **out, const struct cache_config *config);
/* All mappings are finished. NULL is allowed. */
void cache_destroy(struct cache *cache);
/*
 * Writes all dirty mappings of one level and waits: starts all, then waits for all. Returns the
 * first error met by these writes (it stays recorded in its mapping, too).
 */
int cache_sync(struct cache *cache, enum mapping_level level);
void cache_get_stats(struct cache *cache, struct cache_stats *stats);

#endif
