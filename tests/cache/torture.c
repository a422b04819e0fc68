/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Everything at once on the smallest cache: threads look up, write, truncate, punch, sync and
 * fsync four files, whose owner takes a volume lock and its device mapping on the way, as a file
 * system does. Made to run under ThreadSanitizer.
 *
 *	torture [SECONDS [SEED]]
 *
 * Each byte of a file is either zero or follows from file and position, so that every read can be
 * checked. One file's writes fail now and then. At the end all is written back, and backing and
 * cache must agree. A watchdog ends the run when no thread gets on for 60 seconds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "backing.h"

#define FILES 4
#define THREADS 8
#define ROOM (1 << 20)
#define STALL_S 60
#define FAULTY 3 /* the file that cannot always be written */

static struct cache *cache;
static struct backing files[FILES], device;
static struct file_ra streams[FILES]; /* all threads read each file through one open file */
static struct test_volume volume = {.lock = PTHREAD_MUTEX_INITIALIZER, .device = &device};
static const unsigned int shifts[FILES] = {10, 11, 12, 14};
static bool stop;
static unsigned long steps, faults;

static unsigned char pattern(unsigned int file, loff_t pos)
{
	return ((pos * 2654435761ULL) >> 16 ^ pos ^ file * 37) | 1;
}

static void fail(const char *what, unsigned int file, loff_t pos)
{
	fprintf(stderr, "torture: %s, file %u at %ld\n", what, file, (long)pos);
	abort();
}

static void check_bytes(unsigned int file, loff_t pos, const unsigned char *buf, size_t len)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (buf[i] && buf[i] != pattern(file, pos + i))
			fail("wrong byte", file, pos + i);
}

static void do_read(unsigned int file, loff_t pos, unsigned char *buf, size_t len)
{
	ssize_t n = filemap_read_ra(&files[file].mapping, &streams[file], pos, buf, len);

	if (n < 0)
		fail("read failed", file, pos);
	check_bytes(file, pos, buf, n);
}

static void do_pages(unsigned int file, loff_t pos, size_t len)
{
	struct folio_batch batch;
	unsigned int i;

	if (filemap_get_pages(&files[file].mapping, pos, len, &batch))
		fail("get_pages failed", file, pos);
	for (i = 0; i < batch.nr; i++)
		if (i ? batch.folios[i]->index != folio_next_index(batch.folios[i - 1])
		      : (pgoff_t)(pos >> PAGE_SHIFT) - batch.folios[i]->index >=
				1UL << batch.folios[i]->order)
			fail("gap in a batch", file, pos);
	folio_batch_release(&batch);
}

static void do_write(unsigned int file, loff_t pos, unsigned char *buf, size_t len)
{
	struct backing *b = &files[file];
	ssize_t n;
	size_t i;

	for (i = 0; i < len; i++)
		buf[i] = pattern(file, pos + i);
	pthread_mutex_lock(&b->inode_lock);
	n = filemap_write(&b->mapping, pos, buf, len);
	if (n != (ssize_t)len && !__atomic_load_n(&faults, __ATOMIC_RELAXED))
		fail("write failed", file, pos);
	pthread_mutex_unlock(&b->inode_lock);
}

static void do_truncate(unsigned int file, loff_t pos, size_t len, bool punch)
{
	struct backing *b = &files[file];
	int err;

	pthread_mutex_lock(&b->inode_lock);
	err = punch ? backing_punch(b, pos, pos + len) : backing_setsize(b, pos);
	pthread_mutex_unlock(&b->inode_lock);
	if (err)
		fail("truncation failed", file, pos);
}

/* A file that comes and goes while others evict its folios and shrink its shadows. */
static void do_short_life(loff_t size, unsigned char *buf)
{
	struct backing b;
	struct file_ra ra;

	backing_init(&b, cache, MAPPING_FILE, 12, size, size, 0);
	file_ra_init(&ra);
	if (filemap_read_ra(&b.mapping, &ra, 0, buf, size) != size)
		fail("read of a short-lived file failed", FILES, 0);
	file_ra_finish(&ra);
	truncate_all(&b.mapping);
	mapping_finish(&b.mapping);
	pthread_mutex_destroy(&b.inode_lock);
	free(b.data);
	free(b.placed);
}

static void step(uint64_t *state, unsigned char *buf)
{
	unsigned int file = rnd(state) % FILES;
	loff_t pos = rnd(state) % (ROOM - 1);
	size_t len = 1 + rnd(state) % (rnd(state) % 4 ? 8000 : 100000);

	if (len > (size_t)(ROOM - pos))
		len = ROOM - pos;
	switch (rnd(state) % 32) {
	case 0:
		do_truncate(file, pos, len, false);
		break;
	case 1:
		do_truncate(file, pos, len, true);
		break;
	case 2:
		if (filemap_write_and_wait(&files[file].mapping) && file != FAULTY)
			fail("fsync failed", file, 0);
		break;
	case 3:
		if (rnd(state) % 2)
			cache_sync(cache, MAPPING_FILE);
		else if (cache_sync(cache, MAPPING_DEVICE))
			fail("sync failed", file, 0);
		break;
	case 4:
		do_pages(file, pos, len);
		break;
	case 5:
		pos = pos * 4 % (device.room - 4096);
		pthread_mutex_lock(&volume.lock);
		invalidate_blocks(&device.mapping, pos, pos + len % 4096);
		pthread_mutex_unlock(&volume.lock);
		break;
	case 6:
		if (file != FAULTY)
			break;
		__atomic_fetch_add(&faults, 1, __ATOMIC_RELAXED);
		__atomic_store_n(&files[file].fail_writes, 1, __ATOMIC_RELAXED);
		break;
	case 7:
		do_short_life(1 + pos / 4, buf);
		break;
	case 8 ... 18:
		do_write(file, pos, buf, len);
		break;
	default:
		do_read(file, pos, buf, len);
		break;
	}
	__atomic_fetch_add(&steps, 1, __ATOMIC_RELAXED);
}

static void *worker(void *arg)
{
	uint64_t state = (uintptr_t)arg;
	unsigned char *buf = malloc(ROOM);

	rcu_register_thread();
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		step(&state, buf);
	free(buf);
	rcu_unregister_thread();
	return NULL;
}

static void watch(unsigned int seconds)
{
	unsigned int still = 0, s;
	unsigned long before = 0, now;

	for (s = 0; s < seconds; s++) {
		sleep(1);
		now = __atomic_load_n(&steps, __ATOMIC_RELAXED);
		still = now == before ? still + 1 : 0;
		if (still > STALL_S)
			fail("nothing moves", 0, 0);
		before = now;
	}
}

static void finish(unsigned int file, unsigned char *buf)
{
	struct backing *b = &files[file];
	loff_t size = mapping_size(&b->mapping);

	__atomic_store_n(&b->fail_writes, 0, __ATOMIC_RELAXED);
	if (filemap_write_and_wait(&b->mapping))
		fail("last write failed", file, 0);
	mapping_check(&b->mapping);
	if (filemap_read(&b->mapping, 0, buf, ROOM) != size)
		fail("size", file, size);
	check_bytes(file, 0, buf, size);
	if (memcmp(buf, b->data, size))
		fail("backing and cache differ", file, 0);
}

int main(int argc, char **argv)
{
	unsigned int seconds = argc > 1 ? atoi(argv[1]) : 5;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : now_ns() | 1;
	pthread_t threads[THREADS];
	struct cache_config config = {.bytes = CACHE_MIN_BYTES, .dirty_expire_ms = 20,
				      .readahead_bytes = 64 << 10};
	unsigned char *buf = malloc(ROOM);
	struct cache_stats stats;
	unsigned int i;

	printf("torture: seed %#lx\n", (unsigned long)seed);
	fflush(stdout);
	rcu_register_thread();
	if (cache_create(&cache, &config))
		fail("no cache", 0, 0);
	cache->max_order = 4;
	backing_init(&device, cache, MAPPING_DEVICE, 12, 4 * ROOM, 4 * ROOM, 0);
	for (i = 0; i < FILES; i++) {
		backing_init(&files[i], cache, MAPPING_FILE, shifts[i], ROOM, 0, 0);
		files[i].volume = &volume;
		file_ra_init(&streams[i]);
		files[i].delay_us = i * 50;
	}
	for (i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, worker, (void *)(seed + i * 7919));
	watch(seconds);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; i < FILES; i++)
		finish(i, buf);
	cache_get_stats(cache, &stats);
	if (stats.used_bytes > stats.bound_bytes)
		fail("bound", 0, 0);
	printf("torture: %lu steps, %lu evictions, %lu runs, %lu failed, %lu throttled\n", steps,
	       stats.evictions, stats.writeback_runs, stats.write_errors, stats.throttled);
	for (i = 0; i < FILES; i++) {
		file_ra_finish(&streams[i]);
		backing_finish(&files[i]);
	}
	backing_finish(&device);
	cache_destroy(cache);
	free(buf);
	return 0;
}
