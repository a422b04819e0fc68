/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writers are slowed down to what the backing takes.
 *
 * A level may have `hard` pages that are dirty or being written, and never has more from writes: a
 * writer promises the pages that it is about to make dirty before it takes any lock, and waits as
 * long as these and what others have promised would pass the limit. (What is dirtied without a
 * write, as the edges of a truncation are, is not counted before: two blocks for a thread.)
 *
 * To run into the limit and to be stopped there, until a whole batch has been written, is bad for
 * those who wait for a single write. So from the middle between `background` and `hard` on, writers
 * pause for as long as the backing needs for what they write, 200 ms at most. They pause one after
 * the other: `paced` is the time until which all pages so far keep the backing busy, and each writer
 * adds its own. So they share its bandwidth, however many they are, and what is dirty stays about
 * where it is. A pause ends early when it has come down to the middle again.
 *
 * The bandwidth is measured under pressure only, as the flusher then always has something to write:
 * pages written in windows of 200 ms, an average in which the past counts ever less. As long as it
 * is not known only the limit stops.
 *
 * Nobody pauses for DEVICE pages: who dirties these holds a lock that others wait for.
 *
 * When many passes in a row have failed, and nothing was written since, writers get EIO instead.
 *
 *	promised, rate			atomic
 *	window_*, paced			flusher lock
 */
#include "internal.h"

#define GIVE_UP 6 /* failed passes */
#define LOOK_NS (100 * MSEC)
#define WINDOW_NS (200 * MSEC)
#define PAUSE_NS (200 * MSEC)
#define SECOND (1000 * MSEC)

static unsigned long nr_unclean(const struct flusher *flusher)
{
	return __atomic_load_n(&flusher->nr_dirty, __ATOMIC_SEQ_CST) +
	       __atomic_load_n(&flusher->nr_writeback, __ATOMIC_SEQ_CST);
}

static unsigned long middle(const struct cache *cache)
{
	return (cache->background + cache->hard) / 2;
}

static bool gives_up(const struct flusher *flusher)
{
	return __atomic_load_n(&flusher->failures, __ATOMIC_RELAXED) >= GIVE_UP;
}

/*
 * Of two writers for whom there is room once, each may see the other's promise and take its own
 * back, and they try again. What becomes dirty is counted before its promise is taken back.
 */
static bool promise(struct flusher *flusher, unsigned long pages)
{
	unsigned long all = __atomic_add_fetch(&flusher->promised, pages, __ATOMIC_SEQ_CST);

	if (all + nr_unclean(flusher) <= flusher->cache->hard)
		return true;
	__atomic_fetch_sub(&flusher->promised, pages, __ATOMIC_RELAXED);
	return false;
}

static int wait_for_room(struct flusher *flusher, unsigned long pages)
{
	int err = 0;

	flusher_press(flusher);
	count_stat(flusher->cache, throttled, 1);
	pthread_mutex_lock(&flusher->lock);
	while (!promise(flusher, pages)) {
		if (gives_up(flusher)) {
			err = -EIO;
			break;
		}
		cond_wait_until(&flusher->progress, &flusher->lock, now_ns() + LOOK_NS);
	}
	pthread_mutex_unlock(&flusher->lock);
	return err;
}

static void pause_for(struct flusher *flusher, unsigned long pages)
{
	unsigned long rate = __atomic_load_n(&flusher->rate, __ATOMIC_RELAXED);
	uint64_t now = now_ns(), until;

	if (!rate)
		return;
	count_stat(flusher->cache, throttled, 1);
	pthread_mutex_lock(&flusher->lock);
	until = (flusher->paced > now ? flusher->paced : now) + pages * SECOND / rate;
	if (until > now + PAUSE_NS)
		until = now + PAUSE_NS;
	flusher->paced = until;
	while (now < until && nr_unclean(flusher) > middle(flusher->cache) && !gives_up(flusher)) {
		cond_wait_until(&flusher->progress, &flusher->lock, until);
		now = now_ns();
	}
	pthread_mutex_unlock(&flusher->lock);
}

/**
 * throttle_begin() - Wait until the mapping's level may have more dirty pages.
 * @pages: as many, at most; throttle_most() is the bound
 *
 * Context: May sleep. No folio locked. Takes the flusher lock.
 * Return: 0, and throttle_end() is due; or -EIO when nothing can be written.
 */
int throttle_begin(struct mapping *mapping, unsigned long pages)
{
	struct flusher *flusher = mapping_flusher(mapping);
	struct cache *cache = mapping->cache;
	int err = promise(flusher, pages) ? 0 : wait_for_room(flusher, pages);

	if (err || nr_unclean(flusher) <= cache->background)
		return err;
	flusher_press(flusher);
	if (mapping->level == MAPPING_FILE && nr_unclean(flusher) > middle(cache))
		pause_for(flusher, pages);
	return 0;
}

/** throttle_end() - What was promised is dirty, or will not be. */
void throttle_end(struct mapping *mapping, unsigned long pages)
{
	__atomic_fetch_sub(&mapping_flusher(mapping)->promised, pages, __ATOMIC_SEQ_CST);
}

/** throttle_most() - How many pages may be promised at once: no writer is to need the whole limit. */
unsigned long throttle_most(const struct cache *cache)
{
	return cache->hard / 4;
}

/**
 * throttle_measure() - Pages have been written: how fast?
 *
 * Context: Flusher lock held.
 */
void throttle_measure(struct flusher *flusher, unsigned long pages)
{
	unsigned long rate, old = flusher->rate;
	uint64_t now = now_ns(), elapsed = now - flusher->window_start;

	if (!flusher->pressure)
		return;
	if (!flusher->window_start) {
		flusher->window_start = now;
		flusher->window_pages = 0;
		return;
	}
	flusher->window_pages += pages;
	if (elapsed < WINDOW_NS)
		return;
	rate = flusher->window_pages * SECOND / elapsed;
	rate = old ? (3 * old + rate) / 4 : rate;
	__atomic_store_n(&flusher->rate, rate ?: 1, __ATOMIC_RELAXED);
	flusher->window_start = now;
	flusher->window_pages = 0;
}
