/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The flushers: threads that write dirty mappings back, a few for each level.
 *
 * A mapping is queued when its first folio becomes dirty. It is on one of three lists: `dirty`, the
 * oldest first; `syncing`, when cache_sync() waits for it; `busy`, while a thread writes it. A
 * thread takes from `syncing` first, then from `dirty` what is old enough, or anything under
 * pressure: when more than `background` folios of the level are dirty, or reclaim met dirty ones.
 * When nothing was written for a tenth of a second, all is old enough, so that little is left to do
 * at an unmount: a thread looks that often, so the last write is up to two tenths ago then. What is
 * dirty already and is written again counts, too: a file that is rewritten all the time is left
 * alone.
 * One mapping is written by one thread at a time; several threads are there for many small files.
 *
 * `queued` stays set while a mapping is busy. At the end it is cleared, and then nrdirty is looked
 * at, while who dirties a folio counts it first and looks at `queued` then (both sequentially
 * consistent): one of the two sees the other, and the mapping is queued again.
 * It stays queued, too, as long as a write that somebody else began is in flight, so that
 * cache_sync() finds it.
 *
 * A pass that failed is repeated after a while that doubles from 100 ms to 10 s; cache_sync() tries
 * at once, and once only. How writers are slowed down: throttle.c.
 *
 * The flusher lock protects the lists and the mappings' fields for them. pin is called under it,
 * all other ops without it.
 */
#include <signal.h>
#include "internal.h"

#define BACKOFF_MIN 100 /* ms */
#define BACKOFF_MAX 10000
#define RETRY_NS (10 * MSEC)
#define QUIET_NS (90 * MSEC)

static unsigned long nr_dirty(struct flusher *flusher)
{
	return __atomic_load_n(&flusher->nr_dirty, __ATOMIC_RELAXED);
}

static bool under_pressure(struct flusher *flusher)
{
	return __atomic_load_n(&flusher->pressure, __ATOMIC_RELAXED);
}

static void set_pressure(struct flusher *flusher, bool on)
{
	__atomic_store_n(&flusher->pressure, on, __ATOMIC_RELAXED);
	if (!on)
		flusher->window_start = 0;
}

/*
 * The flusher lock is held from here
 */

static void enqueue(struct flusher *flusher, struct mapping *mapping)
{
	mapping->dirtied_when = now_ns();
	list_add_tail(&mapping->dirty_list, &flusher->dirty);
	__atomic_store_n(&mapping->queued, true, __ATOMIC_SEQ_CST);
}

static void dequeue(struct mapping *mapping)
{
	list_del_init(&mapping->dirty_list);
	__atomic_store_n(&mapping->queued, false, __ATOMIC_SEQ_CST);
}

static void sync_done(struct flusher *flusher, struct mapping *mapping, int err)
{
	mapping->sync_wanted = false;
	if (err && !flusher->sync_error)
		flusher->sync_error = err;
	flusher->sync_pending--;
	pthread_cond_broadcast(&flusher->progress);
}

/* Pressure stays on while there is much dirty data, even if all of it is being written. */
static void relieve(struct flusher *flusher)
{
	if (under_pressure(flusher) && nr_dirty(flusher) <= flusher->cache->background / 2)
		set_pressure(flusher, false);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return !a || (b && b < a) ? b : a;
}

/* When it will have been quiet for long enough, if it stays so; now or earlier: it has been. */
static uint64_t quiet_at(struct flusher *flusher, uint64_t now)
{
	if (__atomic_exchange_n(&flusher->touched, false, __ATOMIC_RELAXED))
		flusher->quiet_since = now;
	return flusher->quiet_since + QUIET_NS;
}

/* What to write now, or NULL, and then in *until when to look again (0: when woken). */
static struct mapping *next_mapping(struct flusher *flusher, uint64_t *until)
{
	uint64_t now = now_ns(), expire = flusher->cache->config.dirty_expire_ms * MSEC;
	uint64_t quiet = quiet_at(flusher, now), due;
	struct mapping *mapping;

	*until = 0;
	if (!list_empty(&flusher->syncing))
		return list_first_entry(&flusher->syncing, struct mapping, dirty_list);
	if (nr_dirty(flusher) > flusher->cache->background)
		set_pressure(flusher, true);
	list_for_each_entry(mapping, &flusher->dirty, dirty_list) {
		if (mapping->retry_at > now) {
			*until = earlier(*until, mapping->retry_at);
			continue;
		}
		due = earlier(mapping->dirtied_when + expire, quiet);
		if (under_pressure(flusher) || (expire && due <= now))
			return mapping;
		if (expire)
			*until = earlier(*until, due);
		break;
	}
	relieve(flusher);
	return NULL;
}

static void note_result(struct flusher *flusher, struct mapping *mapping, int err)
{
	unsigned int backoff = mapping->backoff_ms * 2;

	mapping->backoff_ms = 0;
	mapping->retry_at = 0;
	if (!err)
		return;
	if (backoff < BACKOFF_MIN)
		backoff = BACKOFF_MIN;
	mapping->backoff_ms = backoff < BACKOFF_MAX ? backoff : BACKOFF_MAX;
	mapping->retry_at = now_ns() + mapping->backoff_ms * MSEC;
	__atomic_fetch_add(&flusher->failures, 1, __ATOMIC_RELAXED);
}

/* A pass has ended: take the mapping off `busy`, to where it belongs now. */
static void end_pass(struct flusher *flusher, struct mapping *mapping, bool sync,
		     unsigned long written, int err)
{
	note_result(flusher, mapping, err);
	if (!err && !written) /* all of it is locked or being written */
		mapping->retry_at = now_ns() + RETRY_NS;
	mapping->flushing = false;
	if (sync)
		sync_done(flusher, mapping, err);
	if (mapping->sync_wanted) {
		list_move_tail(&mapping->dirty_list, &flusher->syncing);
	} else {
		dequeue(mapping);
		if (__atomic_load_n(&mapping->nrdirty, __ATOMIC_SEQ_CST) ||
		    xa_marked(&mapping->i_pages, PAGECACHE_TAG_WRITEBACK))
			enqueue(flusher, mapping);
	}
	relieve(flusher);
	pthread_cond_broadcast(&flusher->progress);
}

/* Writes one mapping back; drops the lock meanwhile. */
static void flush_mapping(struct flusher *flusher, struct mapping *mapping)
{
	const struct mapping_ops *ops = mapping->ops;
	bool sync = mapping->sync_wanted;
	unsigned long written = 0;
	int err;

	if (ops->pin && !ops->pin(mapping)) { /* its owner is about to drop it all */
		dequeue(mapping);
		if (sync)
			sync_done(flusher, mapping, 0);
		return;
	}
	mapping->flushing = true;
	list_move_tail(&mapping->dirty_list, &flusher->busy);
	if (!list_empty(&flusher->dirty) || !list_empty(&flusher->syncing))
		pthread_cond_signal(&flusher->work);
	pthread_mutex_unlock(&flusher->lock);

	err = writeback_range(mapping, 0, LLONG_MAX >> PAGE_SHIFT, sync, &written);
	if (sync)
		filemap_wait_range(mapping, 0, LLONG_MAX);

	pthread_mutex_lock(&flusher->lock);
	end_pass(flusher, mapping, sync, written, err);
	if (!ops->unpin)
		return;
	pthread_mutex_unlock(&flusher->lock);
	ops->unpin(mapping);
	pthread_mutex_lock(&flusher->lock);
}

/*
 * The flusher lock is not held from here
 */

static void *flusher_main(void *arg)
{
	struct flusher *flusher = arg;
	struct mapping *mapping;
	uint64_t until;

	rcu_register_thread();
	pthread_mutex_lock(&flusher->lock);
	while (!flusher->stop) {
		mapping = next_mapping(flusher, &until);
		if (mapping)
			flush_mapping(flusher, mapping);
		else if (until)
			cond_wait_until(&flusher->work, &flusher->lock, until);
		else
			pthread_cond_wait(&flusher->work, &flusher->lock);
	}
	pthread_mutex_unlock(&flusher->lock);
	rcu_unregister_thread();
	return NULL;
}

/* Signals are for the program's own threads. */
static int start_thread(struct flusher *flusher)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&flusher->threads[flusher->nr_threads], NULL, flusher_main, flusher);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!err)
		flusher->nr_threads++;
	return -err;
}

/**
 * flusher_start() - Start the threads of a level.
 *
 * Return: 0 or a negative errno; flusher_stop() is due only after 0.
 */
int flusher_start(struct cache *cache, enum mapping_level level, unsigned int nr_threads)
{
	struct flusher *flusher = &cache->flushers[level];
	int err = 0;

	cache_assert(nr_threads <= FLUSHERS_MAX);
	flusher->cache = cache;
	flusher->level = level;
	INIT_LIST_HEAD(&flusher->dirty);
	INIT_LIST_HEAD(&flusher->syncing);
	INIT_LIST_HEAD(&flusher->busy);
	if (pthread_mutex_init(&flusher->lock, NULL) ||
	    pthread_mutex_init(&flusher->sync_lock, NULL) || cond_init(&flusher->work) ||
	    cond_init(&flusher->progress))
		return -ENOMEM;
	while (flusher->nr_threads < nr_threads && !err)
		err = start_thread(flusher);
	if (err)
		flusher_stop(flusher);
	return err;
}

/* Ends the threads; what is dirty stays so. */
void flusher_stop(struct flusher *flusher)
{
	pthread_mutex_lock(&flusher->lock);
	flusher->stop = true;
	pthread_cond_broadcast(&flusher->work);
	pthread_mutex_unlock(&flusher->lock);
	while (flusher->nr_threads)
		pthread_join(flusher->threads[--flusher->nr_threads], NULL);
	pthread_cond_destroy(&flusher->work);
	pthread_cond_destroy(&flusher->progress);
	pthread_mutex_destroy(&flusher->lock);
	pthread_mutex_destroy(&flusher->sync_lock);
}

/* Writing is wanted now, whatever the age. Context: Takes the flusher lock. */
void flusher_press(struct flusher *flusher)
{
	if (under_pressure(flusher))
		return;
	pthread_mutex_lock(&flusher->lock);
	set_pressure(flusher, true);
	pthread_cond_broadcast(&flusher->work);
	pthread_mutex_unlock(&flusher->lock);
}

/**
 * flusher_queue() - A folio of the mapping has become dirty and is counted in nrdirty.
 *
 * Context: Takes the flusher lock the first time.
 */
void flusher_queue(struct mapping *mapping)
{
	struct flusher *flusher = mapping_flusher(mapping);

	if (nr_dirty(flusher) > flusher->cache->background)
		flusher_press(flusher);
	if (__atomic_load_n(&mapping->queued, __ATOMIC_SEQ_CST))
		return;
	pthread_mutex_lock(&flusher->lock);
	if (!mapping->queued) {
		if (list_empty(&flusher->dirty) || under_pressure(flusher))
			pthread_cond_signal(&flusher->work);
		enqueue(flusher, mapping);
	}
	pthread_mutex_unlock(&flusher->lock);
}

/**
 * flusher_forget() - The mapping is going away: take it off the lists.
 *
 * Context: Waits for a thread that writes it. No folio locked.
 */
void flusher_forget(struct mapping *mapping)
{
	struct flusher *flusher = mapping_flusher(mapping);

	pthread_mutex_lock(&flusher->lock);
	while (mapping->flushing)
		pthread_cond_wait(&flusher->progress, &flusher->lock);
	dequeue(mapping);
	if (mapping->sync_wanted)
		sync_done(flusher, mapping, 0);
	pthread_mutex_unlock(&flusher->lock);
}

/* Dirty pages are being written. Context: XArray lock. */
void flusher_begin_write(struct flusher *flusher, unsigned int pages)
{
	__atomic_fetch_add(&flusher->nr_writeback, pages, __ATOMIC_SEQ_CST);
	__atomic_fetch_sub(&flusher->nr_dirty, pages, __ATOMIC_SEQ_CST);
}

/* They are no more; some of them are dirty again. Context: XArray lock. */
void flusher_end_write(struct flusher *flusher, unsigned int pages, unsigned int redirtied)
{
	__atomic_fetch_add(&flusher->nr_dirty, redirtied, __ATOMIC_SEQ_CST);
	__atomic_fetch_sub(&flusher->nr_writeback, pages, __ATOMIC_SEQ_CST);
}

/* A write has ended, or dirty folios were dropped. Context: Takes the flusher lock. */
void flusher_progress(struct flusher *flusher, unsigned int written)
{
	pthread_mutex_lock(&flusher->lock);
	throttle_measure(flusher, written);
	pthread_cond_broadcast(&flusher->progress);
	pthread_mutex_unlock(&flusher->lock);
}

int cache_sync(struct cache *cache, enum mapping_level level)
{
	struct flusher *flusher = &cache->flushers[level];
	struct mapping *mapping;
	int err;

	pthread_mutex_lock(&flusher->sync_lock);
	pthread_mutex_lock(&flusher->lock);
	flusher->sync_error = 0;
	list_splice_tail_init(&flusher->dirty, &flusher->syncing);
	list_for_each_entry(mapping, &flusher->syncing, dirty_list) {
		mapping->sync_wanted = true;
		flusher->sync_pending++;
	}
	list_for_each_entry(mapping, &flusher->busy, dirty_list) {
		mapping->sync_wanted = true;
		flusher->sync_pending++;
	}
	pthread_cond_broadcast(&flusher->work);
	while (flusher->sync_pending)
		pthread_cond_wait(&flusher->progress, &flusher->lock);
	err = flusher->sync_error;
	pthread_mutex_unlock(&flusher->lock);
	pthread_mutex_unlock(&flusher->sync_lock);
	return err;
}
