/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How writers are slowed down, and who is not: one behaviour a test. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include "backing.h"
#include "rcu.h"

#define MIB (1UL << 20)
#define ROOM (32 * MIB)
#define WRITERS 4

static struct cache *cache;
static struct backing b, other;
static struct flusher *flusher;
static char buf[MIB];
static bool stop; /* atomic */
static unsigned long most; /* pages that were seen dirty or being written; XArray locks */

static void setup(size_t bytes, unsigned int block_shift)
{
	cache = test_cache(bytes, 0);
	backing_init(&b, cache, MAPPING_FILE, block_shift, ROOM, ROOM, 1);
	backing_init(&other, cache, MAPPING_FILE, block_shift, ROOM, ROOM, 1);
	flusher = &cache->flushers[MAPPING_FILE];
	stop = false;
	most = 0;
}

static void done(void)
{
	cr_assert_eq(flusher->promised, 0);
	backing_finish(&b);
	backing_finish(&other);
	cache_destroy(cache);
}

static unsigned long unclean(void)
{
	return __atomic_load_n(&flusher->nr_dirty, __ATOMIC_SEQ_CST) +
	       __atomic_load_n(&flusher->nr_writeback, __ATOMIC_SEQ_CST);
}

/* Pages go from one number to the other under the XArray lock. */
static void look(void)
{
	unsigned long now;

	xa_lock(&b.mapping.i_pages);
	xa_lock(&other.mapping.i_pages);
	now = unclean();
	if (now > most)
		most = now;
	xa_unlock(&other.mapping.i_pages);
	xa_unlock(&b.mapping.i_pages);
}

static bool stopped(void)
{
	return __atomic_load_n(&stop, __ATOMIC_RELAXED);
}

/* Writes anywhere, until it is stopped or cannot. */
static void *writer(void *arg)
{
	uint64_t state = (uintptr_t)arg;

	rcu_register_thread();
	while (!stopped()) {
		size_t len = rnd(&state) % (rnd(&state) % 8 ? 3 * PAGE_SIZE : MIB) + 1;
		loff_t pos = rnd(&state) % (ROOM - len);

		pthread_mutex_lock(&b.inode_lock);
		cr_assert_eq(filemap_write(&b.mapping, pos, buf, len), (ssize_t)len);
		pthread_mutex_unlock(&b.inode_lock);
		look();
	}
	rcu_unregister_thread();
	return NULL;
}

static void *watcher(void *arg)
{
	while (!stopped())
		look();
	return NULL;
}

static void end(pthread_t *threads, int nr)
{
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	while (nr--)
		pthread_join(threads[nr], NULL);
}

struct shape {
	size_t bytes;
	unsigned int block_shift;
};

static struct shape shapes[] = {{MIB, 12}, {MIB, 10}, {4 * MIB, 12}, {16 * MIB, 12}, {4 * MIB, 16}};

ParameterizedTestParameters(throttle, no_more_than_the_limit_is_dirty)
{
	return cr_make_param_array(struct shape, shapes, sizeof(shapes) / sizeof(*shapes));
}

ParameterizedTest(struct shape *s, throttle, no_more_than_the_limit_is_dirty)
{
	pthread_t threads[2];

	setup(s->bytes, s->block_shift);
	b.delay_us = other.delay_us = 500;
	pthread_create(&threads[0], NULL, writer, (void *)3);
	pthread_create(&threads[1], NULL, watcher, NULL);
	for (int n = 0; n < 500; n++)
		cr_assert_eq(filemap_write(&other.mapping, n * 7919UL % 8000 * PAGE_SIZE, buf,
					   2 * PAGE_SIZE), 2 * PAGE_SIZE);
	end(threads, 2);
	cr_assert_leq(most, cache->hard, "%lu, %lu", most, cache->hard);
	cr_assert_gt(most, cache->background);
	done();
}

/* Each call to write takes 5 ms, and has a quarter of a MiB at most. */
Test(throttle, the_speed_of_the_backing_is_measured)
{
	double rate;
	uint64_t began;
	unsigned int before;
	int n;

	setup(2 * MIB, 12);
	b.delay_us = 5000;
	for (n = 0; n < 8; n++)
		filemap_write(&b.mapping, n * MIB, buf, MIB);
	began = now_ns();
	before = __atomic_load_n(&b.write_pages, __ATOMIC_RELAXED);
	for (n = 8; n < 32; n++)
		filemap_write(&b.mapping, n * MIB, buf, MIB);
	rate = (__atomic_load_n(&b.write_pages, __ATOMIC_RELAXED) - before) * 1e9 / (now_ns() - began);
	cr_assert(flusher->rate > rate / 2 && flusher->rate < rate * 2, "%lu, %f", flusher->rate, rate);
	done();
}

/* As long as it is dirty enough a writer pauses for what the backing needs for its pages. */
Test(throttle, writers_share_the_measured_speed)
{
	uint64_t began;

	setup(4 * MIB, 12);
	b.fail_writes = 1000; /* it stays dirty */
	while (unclean() <= (cache->background + cache->hard) / 2)
		cr_assert_eq(filemap_write(&b.mapping, unclean() * PAGE_SIZE, buf, 1), 1);
	flusher->failures = 0;
	flusher->rate = 1000;
	began = now_ns();
	cr_assert_eq(throttle_begin(&b.mapping, 20), 0);
	cr_assert_geq(now_ns() - began, 20 * MSEC);
	throttle_end(&b.mapping, 20);
	/* Another one has its place behind those pages. */
	flusher->failures = 0;
	flusher->paced = now_ns() + 30 * MSEC;
	began = now_ns();
	cr_assert_eq(throttle_begin(&b.mapping, 1), 0);
	cr_assert_geq(now_ns() - began, 25 * MSEC);
	throttle_end(&b.mapping, 1);
	b.fail_writes = 0;
	done();
}

static bool hit_fails; /* atomic */

static void *reader(void *arg)
{
	char byte;

	rcu_register_thread();
	for (int n = 0; n < 20000; n++)
		if (filemap_read(arg, n % 16 * PAGE_SIZE, &byte, 1) != 1)
			__atomic_store_n(&hit_fails, true, __ATOMIC_RELAXED);
	rcu_unregister_thread();
	return NULL;
}

/* The writers stand still, all of them: cached data is read as ever. */
Test(throttle, a_slow_image_does_not_hold_up_readers_of_cached_data)
{
	pthread_t writers[WRITERS], hits;
	unsigned int calls;
	uint64_t began;
	int n;

	setup(4 * MIB, 12);
	for (n = 0; n < 64; n++)
		filemap_read(&other.mapping, n % 16 * PAGE_SIZE, buf, 1);
	b.delay_us = 1000000;
	for (n = 0; n < WRITERS; n++)
		pthread_create(&writers[n], NULL, writer, (void *)(uintptr_t)(n + 1));
	while (unclean() + __atomic_load_n(&flusher->promised, __ATOMIC_RELAXED) < cache->hard / 2)
		usleep(1000);
	calls = __atomic_load_n(&other.read_calls, __ATOMIC_RELAXED);
	began = now_ns();
	pthread_create(&hits, NULL, reader, &other.mapping);
	pthread_join(hits, NULL);
	cr_assert(!hit_fails);
	cr_assert_eq(other.read_calls, calls);
	cr_assert_lt(now_ns() - began, 500 * MSEC);
	__atomic_store_n(&b.delay_us, 0, __ATOMIC_RELAXED);
	end(writers, WRITERS);
	done();
}
