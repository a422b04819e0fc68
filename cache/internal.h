/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the files of the cache share. Fields are grouped by the lock that protects them.
 *
 * Locks, outer first; nothing sleeps or does I/O under the last four:
 *
 *	folio lock -> XArray lock -> flusher lock (mapping queues) -> LRU lock -> arena lock
 *
 * The shadow list lock is taken under the XArray lock, and no lock under it but another XArray's by
 * trylock.
 */
#ifndef FOLIO_CACHE_INTERNAL_H
#define FOLIO_CACHE_INTERNAL_H

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <time.h>
#include "cache.h"

#define cache_assert(condition) assert(condition)

#define RUN_MAX 256 /* pages, at most, of one read of the backing: 1 MiB */
#define WRITE_MAX 1024 /* of one batch that is written */
#define RECLAIM_BATCH 32
#define FLUSHERS_MAX 4
#define MSEC 1000000ULL /* in ns */

#define CACHE_LINE 64

enum lru_list { LRU_INACTIVE, LRU_ACTIVE, LRU_LISTS };

struct lru {
	struct list_head list[LRU_LISTS]; /* newest first */
	unsigned long nr[LRU_LISTS];	  /* pages; may be read without the lock */

	/* workingset.c; all atomic */
	unsigned long clock;
	long lean;			  /* pages more (less) that the inactive list is to have */
	unsigned long evicted[2];	  /* pages of late; [1]: that had been active */
	unsigned long near;		  /* refaults that longer lists would have spared */
} __attribute__((aligned(CACHE_LINE)));

#define READAHEAD_QUEUE 128
#define READAHEAD_THREADS 4

struct readahead_files {
	unsigned int nr;
	struct mapping *mappings[READAHEAD_FILES]; /* pinned */
};

struct readahead_request {
	struct readahead_files *files; /* NULL: a window */
	struct mapping *mapping;       /* of the window; NULL: cancelled */
	pgoff_t start, end, mark;
	unsigned int order;
};

/* Windows to be read, and who reads them: readahead.c. */
struct readahead {
	pthread_mutex_t lock;
	pthread_cond_t work; /* the threads wait here */
	pthread_cond_t idle; /* readahead_cancel() */
	struct readahead_request queue[READAHEAD_QUEUE];
	unsigned int head, nr;
	bool stop;
	unsigned int nr_threads;
	pthread_t threads[READAHEAD_THREADS];
};

/* Nodes of trees that hold nothing but shadows: workingset.c. */
struct shadow_nodes {
	pthread_mutex_t lock;
	struct list_head list; /* the oldest first */
	unsigned long nr;      /* may be read without the lock */
	unsigned long max;     /* constant */
};

/* The flusher of one level: flusher.c. */
struct flusher {
	struct cache *cache;
	enum mapping_level level;
	unsigned long nr_dirty, nr_writeback; /* pages; atomic */
	bool touched;	       /* something was written since a thread last looked; atomic */
	bool pressure;	       /* write without regard to age; atomic, set under the lock */
	unsigned int failures; /* failed passes since the last good one; atomic */

	pthread_mutex_t lock;
	pthread_cond_t work;	    /* the flusher's threads wait here */
	pthread_cond_t progress;    /* throttled writers, cache_sync(), mapping_finish() */
	struct list_head dirty;	    /* mappings, the oldest first */
	struct list_head syncing;   /* mappings that cache_sync() waits for */
	struct list_head busy;	    /* mappings that a thread is writing */
	unsigned long sync_pending; /* mappings with sync_wanted */
	int sync_error;
	uint64_t quiet_since;	    /* ns: when a thread last found `touched` set */
	unsigned long promised;	    /* throttle.c, this and the next four: pages; atomic */
	unsigned long rate;	    /* pages a second; atomic */
	uint64_t paced;		    /* ns */
	uint64_t window_start;	    /* ns; 0: none */
	unsigned long window_pages;
	bool stop;

	pthread_mutex_t sync_lock; /* one cache_sync() at a time; outermost */
	unsigned int nr_threads;
	pthread_t threads[FLUSHERS_MAX];
};

/* One thread's counters; the first shard is those of all who have none: stats.c. */
struct stats_shard {
	struct cache_stats stats;
} __attribute__((aligned(CACHE_LINE)));

#define STATS_SHARDS 32

struct cache {
	/* constant */
	struct cache_config config;
	void *map;
	size_t map_len;
	char *base;			/* first byte of the first frame */
	struct folio *frames;
	unsigned long nr_frames;
	unsigned long device_share;	/* frames that FILE folios never take */
	unsigned long background, hard; /* dirty pages of one level: flush, and wait */
	unsigned long ra_pages;		/* the most to read ahead; 0: nothing */
	unsigned long ra_piece;		/* of that by one thread at a time; a power of two */
	unsigned int run_max;		/* pages of one read, at most RUN_MAX */
	unsigned int write_max;		/* dirty pages that are enough for a batch to be written */
	unsigned int max_order;		/* of folios, but for a mapping's minimum */

	/* arena lock */
	pthread_mutex_t arena_lock __attribute__((aligned(CACHE_LINE)));
	struct list_head free[MAX_FOLIO_ORDER + 1];
	unsigned long nr_free, nr_used[MAPPING_LEVELS];
	unsigned int frame_waiters; /* atomic */
	pthread_cond_t frame_freed;

	/* compact.c; atomic */
	unsigned long compact_hand;
	unsigned int compact_wait, compact_skip;

	/* LRU lock */
	pthread_mutex_t lru_lock __attribute__((aligned(CACHE_LINE)));
	struct lru lru[MAPPING_LEVELS];

	struct shadow_nodes shadows __attribute__((aligned(CACHE_LINE)));
	struct readahead readahead;
	struct flusher flushers[MAPPING_LEVELS];
	struct stats_shard shards[STATS_SHARDS]; /* atomic */
};

/* Which of the shards the calling thread counts in. */
extern __thread unsigned int stats_own_shard; /* + 1 */
unsigned int stats_choose_shard(void);

static inline struct cache_stats *own_stats(struct cache *cache)
{
	unsigned int shard = stats_own_shard ? stats_own_shard - 1 : stats_choose_shard();

	return &cache->shards[shard].stats;
}

/* Of own_stats(): the first shard is shared. */
static inline void stats_add(uint64_t *counter, uint64_t n)
{
	if (stats_own_shard > 1)
		__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
	else
		__atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

#define count_stat(cache, field, n) stats_add(&own_stats(cache)->field, n)

static inline uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

static inline struct flusher *mapping_flusher(struct mapping *mapping)
{
	return &mapping->cache->flushers[mapping->level];
}

/* A lock held for moments only: who finds it taken spins before it sleeps. Return: an errno. */
int short_lock_init(pthread_mutex_t *lock);
/* A condition variable whose timed waits are on CLOCK_MONOTONIC. */
int cond_init(pthread_cond_t *cond);
/* Waits until @when (now_ns() time). */
void cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t when);

/* arena.c */
int arena_init(struct cache *cache);
void arena_finish(struct cache *cache);
struct folio *arena_alloc(struct cache *cache, enum mapping_level level, unsigned int order);
void arena_free(struct folio *folio);
void arena_free_list(struct cache *cache, struct folio **folios, unsigned int nr);
void arena_wake(struct cache *cache);
bool arena_may_take(struct cache *cache, enum mapping_level level, unsigned int order);
void arena_wait(struct cache *cache, enum mapping_level level, unsigned int order);
void arena_usage(struct cache *cache, unsigned long *free, unsigned long used[MAPPING_LEVELS]);

/* compact.c */
bool arena_compact(struct cache *cache, unsigned int order, bool hard);

/* folio.c */
static inline unsigned int folio_flags(const struct folio *folio)
{
	return __atomic_load_n(&folio->flags, __ATOMIC_ACQUIRE);
}

/* The bits of one frame. */
static inline unsigned int frame_blocks(const struct folio *frame, enum folio_blocks kind)
{
	return __atomic_load_n(&frame->blocks[kind], __ATOMIC_ACQUIRE);
}

/* How many of the bits of one frame are set, from a table of 16 digits. */
static inline unsigned int nr_bits(unsigned int bits)
{
	static_assert(PAGE_SIZE >> MIN_BLOCK_SHIFT <= 4, "a frame has at most four blocks");
	return 0x4332322132212110ULL >> (4 * bits) & 15;
}

static inline void set_frame_blocks(struct folio *frame, enum folio_blocks kind, uint8_t bits)
{
	__atomic_store_n(&frame->blocks[kind], bits, __ATOMIC_RELEASE);
}

/* Going over the frames that have the bits of a range: for_each_frame(). */
struct frame_iter {
	struct folio *folio;
	struct folio *frame;	/* the present one */
	unsigned int mask;	/* the bits in it that the range touches */
	unsigned int pages;	/* that its bits speak of: 1, or those of a block larger than a page */
	unsigned int next, end;	/* blocks of the folio */
};

static inline struct frame_iter frame_iter_init(const struct folio *folio, size_t offset,
						size_t len)
{
	unsigned int shift = folio->block_shift;

	cache_assert(offset + len <= PAGE_SIZE << folio->order);
	return (struct frame_iter){
		.folio = (struct folio *)folio,
		.pages = shift > PAGE_SHIFT ? 1U << (shift - PAGE_SHIFT) : 1,
		.next = offset >> shift,
		.end = len ? ((offset + len - 1) >> shift) + 1 : 0,
	};
}

static inline bool frame_iter_next(struct frame_iter *it)
{
	unsigned int shift = it->folio->block_shift, first = it->next, bits, stop;

	if (first >= it->end)
		return false;
	if (shift >= PAGE_SHIFT) {
		it->frame = it->folio + ((size_t)first << (shift - PAGE_SHIFT));
		it->mask = 1;
		it->next++;
		return true;
	}
	bits = PAGE_SHIFT - shift;
	it->frame = it->folio + (first >> bits);
	stop = ((first >> bits) + 1) << bits;
	if (stop > it->end)
		stop = it->end;
	it->mask = ((1U << (stop - first)) - 1) << (first & ((1U << bits) - 1));
	it->next = stop;
	return true;
}

#define for_each_frame(it, folio, offset, len)                                                     \
	for (struct frame_iter it = frame_iter_init(folio, offset, len); frame_iter_next(&it);)

static inline void folio_set_flags(struct folio *folio, unsigned int bits)
{
	__atomic_fetch_or(&folio->flags, bits, __ATOMIC_ACQ_REL);
}

static inline void folio_clear_flags(struct folio *folio, unsigned int bits)
{
	__atomic_fetch_and(&folio->flags, ~bits, __ATOMIC_ACQ_REL);
}

bool folio_range_all(const struct folio *folio, enum folio_blocks kind, size_t offset, size_t len);
bool folio_range_any(const struct folio *folio, enum folio_blocks kind, size_t offset, size_t len);
unsigned int folio_count_blocks(const struct folio *folio, enum folio_blocks kind);
unsigned int folio_nr_dirty(const struct folio *folio);
bool folio_any_valid(const struct folio *folio);
void folio_count_totals(struct folio *folio);
void folio_clear_valid(struct folio *folio, size_t offset, size_t len);
unsigned int folio_set_dirty(struct folio *folio, size_t offset, size_t len);
unsigned int folio_clear_dirty(struct folio *folio, size_t offset, size_t len);
unsigned int folio_begin_write(struct folio *folio, size_t offset, size_t len, unsigned int *pages);
unsigned int folio_end_write(struct folio *folio, bool failed, unsigned int *redirtied);
void frame_copy_to(void *dst, const struct folio *frame, size_t offset, size_t len);
void folio_put_list(struct cache *cache, struct folio **folios, unsigned int nr);
bool folio_freeze(struct folio *folio, unsigned int expected);
void folio_end_writeback(struct folio *folio);

/* reclaim.c */
void lru_init(struct cache *cache);
void lru_add(struct folio *folio, void *shadow);
void lru_remove(struct folio *folio);
void lru_remove_list(struct cache *cache, struct folio **folios, unsigned int nr);
void folio_mark_accessed(struct folio *folio);
bool lru_isolate(struct folio *folio);
bool evict_folio(struct folio *folio);
struct folio *folio_alloc(struct cache *cache, enum mapping_level level, unsigned int order,
			  unsigned int min_order, bool wait);

/* readahead.c */
int readahead_start(struct cache *cache);
void readahead_stop(struct cache *cache);
bool readahead_sync(struct mapping *mapping, struct file_ra *ra, pgoff_t index,
		    unsigned long wanted);
void readahead_async(struct mapping *mapping, struct file_ra *ra, struct folio *folio,
		     pgoff_t index, unsigned long wanted);
void readahead_cancel(struct mapping *mapping);

/* workingset.c */
void workingset_init(struct cache *cache);
void workingset_finish(struct cache *cache);
/* xas_set_update() with it on every cursor that stores to a mapping's array. */
void workingset_update_node(struct xa_node *node);
long workingset_lean(struct lru *lru, long most);
void *workingset_eviction(struct mapping *mapping, struct folio *folio, unsigned long evicted[2]);
void workingset_evicted(struct lru *lru, const unsigned long evicted[2]);
void workingset_activation(struct folio *folio);
void workingset_refault(struct folio *folio, void *shadow);
void workingset_shrink(struct cache *cache);
void workingset_clear(struct mapping *mapping, pgoff_t first, pgoff_t last);

/* filemap.c */
int filemap_add_folio(struct mapping *mapping, struct folio *folio, pgoff_t index, bool write);
struct folio *filemap_get_folio(struct mapping *mapping, pgoff_t index);
struct folio *filemap_get_folio_tag(struct mapping *mapping, pgoff_t *start, pgoff_t end,
				    xa_mark_t tag);
struct folio *filemap_create_folio(struct mapping *mapping, pgoff_t index, pgoff_t pages,
				   bool write, bool wait, int *err);
struct folio *filemap_grab_range(struct mapping *mapping, pgoff_t index, pgoff_t pages, int *err);
void filemap_wait_frozen(struct mapping *mapping);
/* Context: XArray lock. */
static inline void mapping_count_pages(struct mapping *mapping, long pages)
{
	__atomic_store_n(&mapping->nrpages, mapping->nrpages + pages, __ATOMIC_RELAXED);
}

/*
 * Folios have left their slots: who read their bytes without a reference shall know before the
 * frames are used again. Context: XArray lock.
 */
static inline void filemap_removed(struct mapping *mapping)
{
	__atomic_store_n(&mapping->removals, mapping->removals + 1, __ATOMIC_RELEASE);
}

/* Reads a run of locked folios, with the counting. */
int filemap_read_run(struct mapping *mapping, struct folio **folios, unsigned int nr);

/* split.c */
int folio_split(struct folio *folio, unsigned int order);

/* writeback.c: one pass over what was dirty when it began. */
int writeback_range(struct mapping *mapping, pgoff_t start, pgoff_t end, bool sync,
		    unsigned long *written);

/* check.c: asserts the invariants of a cache, or a mapping, that nobody uses meanwhile. */
void cache_check(struct cache *cache);
void mapping_check(struct mapping *mapping);

/* flusher.c */
int flusher_start(struct cache *cache, enum mapping_level level, unsigned int nr_threads);
void flusher_stop(struct flusher *flusher);
void flusher_queue(struct mapping *mapping);
void flusher_forget(struct mapping *mapping);
void flusher_press(struct flusher *flusher);
void flusher_begin_write(struct flusher *flusher, unsigned int pages);
void flusher_end_write(struct flusher *flusher, unsigned int pages, unsigned int redirtied);
void flusher_progress(struct flusher *flusher, unsigned int written);

/* throttle.c */
int throttle_begin(struct mapping *mapping, unsigned long pages);
void throttle_end(struct mapping *mapping, unsigned long pages);
unsigned long throttle_most(const struct cache *cache);
void throttle_measure(struct flusher *flusher, unsigned long pages);

#endif
