/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Making and ending caches and mappings.
 *
 * Limits follow from the number of frames: the flusher begins at a tenth dirty, writers of a level
 * wait at a fifth. One read is 1 MiB at most, one write 4 MiB, and both no more than an eighth of the
 * frames, so that in a tiny cache no single caller locks them all; for the same reason a folio is no
 * larger than a 64th of it.
 *
 * FILE has four flusher threads, since its writes wait for metadata and there may be thousands of
 * small files; DEVICE, one mapping, has one.
 */
#include <stdlib.h>
#include "internal.h"

#define FILE_FLUSHERS 4
#define DEVICE_FLUSHERS 1

int short_lock_init(pthread_mutex_t *lock)
{
	pthread_mutexattr_t attr;
	int err;

	err = pthread_mutexattr_init(&attr);
	if (err)
		return err;
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
	err = pthread_mutex_init(lock, &attr);
	pthread_mutexattr_destroy(&attr);
	return err;
}

int cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;
	int err;

	err = pthread_condattr_init(&attr);
	if (err)
		return err;
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	err = pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
	return err;
}

void cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t when)
{
	struct timespec ts = {.tv_sec = when / 1000000000, .tv_nsec = when % 1000000000};

	pthread_cond_timedwait(cond, lock, &ts);
}

static int start_flushers(struct cache *cache)
{
	int err = flusher_start(cache, MAPPING_FILE, FILE_FLUSHERS);

	if (err)
		return err;
	err = flusher_start(cache, MAPPING_DEVICE, DEVICE_FLUSHERS);
	if (err)
		flusher_stop(&cache->flushers[MAPPING_FILE]);
	return err;
}

static unsigned int max_order(unsigned long nr_frames)
{
	unsigned int order = 0;

	while (order < FILEMAP_MAX_ORDER && nr_frames >> (order + 1) >= 64)
		order++;
	return order;
}

int cache_create(struct cache **out, const struct cache_config *config)
{
	struct cache *cache;
	int err;

	if (config->bytes < CACHE_MIN_BYTES)
		return -EINVAL;
	cache = aligned_alloc(64, sizeof(*cache));
	if (!cache)
		return -ENOMEM;
	memset(cache, 0, sizeof(*cache));
	cache->config = *config;
	err = arena_init(cache);
	if (err)
		goto free;
	cache->background = cache->nr_frames / 10;
	cache->hard = cache->nr_frames / 5;
	cache->run_max = cache->nr_frames / 8 < RUN_MAX ? cache->nr_frames / 8 : RUN_MAX;
	cache->write_max = cache->nr_frames / 8 < WRITE_MAX ? cache->nr_frames / 8 : WRITE_MAX;
	cache->max_order = max_order(cache->nr_frames);
	short_lock_init(&cache->lru_lock);
	lru_init(cache);
	workingset_init(cache);
	err = start_flushers(cache);
	if (err)
		goto arena;
	err = readahead_start(cache);
	if (err)
		goto flushers;
	*out = cache;
	return 0;
flushers:
	flusher_stop(&cache->flushers[MAPPING_FILE]);
	flusher_stop(&cache->flushers[MAPPING_DEVICE]);
arena:
	workingset_finish(cache);
	pthread_mutex_destroy(&cache->lru_lock);
	arena_finish(cache);
free:
	free(cache);
	return err;
}

void cache_destroy(struct cache *cache)
{
	if (!cache)
		return;
	readahead_stop(cache);
	flusher_stop(&cache->flushers[MAPPING_FILE]);
	flusher_stop(&cache->flushers[MAPPING_DEVICE]);
	workingset_finish(cache);
	pthread_mutex_destroy(&cache->lru_lock);
	arena_finish(cache);
	free(cache);
}

/**
 * mapping_init() - Make an empty mapping of size 0.
 * @block_shift: granule of valid and dirty, 10 to 16
 * @owner: for the owner's ops
 *
 * Return: 0 or a negative errno.
 */
int mapping_init(struct mapping *mapping, struct cache *cache, enum mapping_level level,
		 unsigned int block_shift, const struct mapping_ops *ops, void *owner)
{
	pthread_rwlockattr_t attr;
	int err;

	if (block_shift < MIN_BLOCK_SHIFT || block_shift > MAX_BLOCK_SHIFT)
		return -EINVAL;
	memset(mapping, 0, sizeof(*mapping));
	err = pthread_rwlockattr_init(&attr);
	if (err)
		return -err;
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	err = pthread_rwlock_init(&mapping->invalidate_lock, &attr);
	pthread_rwlockattr_destroy(&attr);
	if (err)
		return -err;
	xa_init_flags(&mapping->i_pages, 0);
	INIT_LIST_HEAD(&mapping->dirty_list);
	mapping->cache = cache;
	mapping->ops = ops;
	mapping->owner = owner;
	mapping->level = level;
	mapping->block_shift = block_shift;
	mapping->min_order = block_shift > PAGE_SHIFT ? block_shift - PAGE_SHIFT : 0;
	mapping->max_order = mapping->min_order;
	if (level == MAPPING_FILE && cache->max_order > mapping->min_order)
		mapping->max_order = cache->max_order;
	mapping->last_read = (pgoff_t)-1;
	return 0;
}

void mapping_finish(struct mapping *mapping)
{
	cache_assert(!mapping->nrpages && !mapping->nrdirty && !mapping->readaheads);
	flusher_forget(mapping);
	workingset_clear(mapping, 0, ULONG_MAX);
	cache_assert(xa_empty(&mapping->i_pages));
	pthread_rwlock_destroy(&mapping->invalidate_lock);
}

loff_t mapping_size(const struct mapping *mapping)
{
	return __atomic_load_n(&mapping->size, __ATOMIC_ACQUIRE);
}

void mapping_set_size(struct mapping *mapping, loff_t size)
{
	__atomic_store_n(&mapping->size, size, __ATOMIC_RELEASE);
}

void filemap_invalidate_lock(struct mapping *mapping)
{
	pthread_rwlock_wrlock(&mapping->invalidate_lock);
}

void filemap_invalidate_unlock(struct mapping *mapping)
{
	pthread_rwlock_unlock(&mapping->invalidate_lock);
}

void filemap_invalidate_lock_shared(struct mapping *mapping)
{
	pthread_rwlock_rdlock(&mapping->invalidate_lock);
}

void filemap_invalidate_unlock_shared(struct mapping *mapping)
{
	pthread_rwlock_unlock(&mapping->invalidate_lock);
}
