/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The arena, the LRU lists and the bound of the memory: one behaviour a test. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdlib.h>
#include "backing.h"

#define MIB (1UL << 20)
#define ROOM (4 * MIB)

static unsigned char buf[ROOM];

static struct cache_stats stats_of(struct cache *cache)
{
	struct cache_stats stats;

	cache_get_stats(cache, &stats);
	return stats;
}

Test(arena, too_small_a_cache_is_refused)
{
	struct cache_config config = {.bytes = CACHE_MIN_BYTES - 1};
	struct cache *cache;

	cr_assert_eq(cache_create(&cache, &config), -EINVAL);
}

Test(arena, blocks_of_all_orders_are_aligned_and_join_again)
{
	struct cache *cache = test_cache(4 * MIB + 5 * PAGE_SIZE, 0);
	struct folio *folios[MAX_FOLIO_ORDER + 1], *all;
	unsigned int order, round;

	for (round = 0; round < 3; round++) {
		for (order = 0; order <= MAX_FOLIO_ORDER; order++) {
			folios[order] = arena_alloc(cache, MAPPING_DEVICE, order);
			cr_assert(folios[order]);
			cr_assert_eq((uintptr_t)folio_address(folios[order]) %
					     folio_size(folios[order]),
				     0);
			cache_check(cache);
		}
		for (order = 0; order <= MAX_FOLIO_ORDER; order++) {
			folio_put(folios[(order + round) % (MAX_FOLIO_ORDER + 1)]);
			cache_check(cache);
		}
	}
	all = arena_alloc(cache, MAPPING_DEVICE, MAX_FOLIO_ORDER);
	cr_assert(all);
	folio_put(all);
	cache_destroy(cache);
}

Test(arena, every_frame_is_handed_out_once)
{
	struct cache *cache = test_cache(MIB, 0);
	struct folio *folios[256];
	int i;

	for (i = 0; i < 256; i++) {
		folios[i] = arena_alloc(cache, MAPPING_DEVICE, 0);
		cr_assert(folios[i]);
		memset(folio_address(folios[i]), i, PAGE_SIZE);
	}
	cr_assert_null(arena_alloc(cache, MAPPING_DEVICE, 0));
	for (i = 0; i < 256; i++) {
		cr_assert_eq(*(unsigned char *)folio_address(folios[i]), i);
		folio_put(folios[i]);
	}
	cache_destroy(cache);
}

Test(arena, file_folios_leave_a_share_to_the_device)
{
	struct cache *cache = test_cache(MIB, 0);
	struct folio *folios[256], *device;
	int i, n = 0;

	while ((folios[n] = arena_alloc(cache, MAPPING_FILE, 0)))
		n++;
	cr_assert_eq(n, 224);
	device = arena_alloc(cache, MAPPING_DEVICE, 0);
	cr_assert(device);
	folio_put(device);
	for (i = 0; i < n; i++)
		folio_put(folios[i]);
	cache_destroy(cache);
}

Test(reclaim, reading_much_more_than_fits)
{
	struct cache *cache = test_cache(MIB, 0);
	struct backing b;
	size_t pos;

	backing_init(&b, cache, MAPPING_FILE, 12, ROOM, ROOM, 1);
	for (pos = 0; pos < ROOM; pos += 10000) {
		cr_assert_gt(filemap_read(&b.mapping, pos, buf, 10000), 0);
		cr_assert(!memcmp(buf, b.data + pos, ROOM - pos < 10000 ? ROOM - pos : 10000));
		cr_assert_leq(stats_of(cache).used_bytes, MIB);
	}
	cr_assert_gt(stats_of(cache).evictions, 0);
	mapping_check(&b.mapping);
	cache_check(cache);
	backing_finish(&b);
	cache_destroy(cache);
}

Test(reclaim, writing_much_more_than_fits)
{
	struct cache *cache = test_cache(MIB, 0);
	struct backing b;
	size_t i;

	for (i = 0; i < ROOM; i++)
		buf[i] = i * 7 + i / 4096;
	backing_init(&b, cache, MAPPING_FILE, 12, ROOM, 0, 0);
	cr_assert_eq(filemap_write(&b.mapping, 0, buf, ROOM), ROOM);
	cr_assert_leq(stats_of(cache).used_bytes, MIB);
	cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
	cr_assert(!memcmp(b.data, buf, ROOM));
	cr_assert_eq(stats_of(cache).dirty_bytes, 0);
	backing_finish(&b);
	cache_destroy(cache);
}

Test(reclaim, folios_used_twice_outlive_a_scan)
{
	struct cache *cache = test_cache(MIB, 0);
	struct backing hot, cold;
	unsigned int calls;

	backing_init(&hot, cache, MAPPING_FILE, 12, MIB, MIB, 1);
	backing_init(&cold, cache, MAPPING_FILE, 12, ROOM, ROOM, 2);
	filemap_read(&hot.mapping, 0, buf, 20 * PAGE_SIZE);
	filemap_read(&hot.mapping, 0, buf, 20 * PAGE_SIZE);
	filemap_read(&hot.mapping, 0, buf, 20 * PAGE_SIZE);
	calls = hot.read_calls;
	filemap_read(&cold.mapping, 0, buf, ROOM);
	filemap_read(&hot.mapping, 0, buf, 20 * PAGE_SIZE);
	cr_assert_eq(hot.read_calls, calls);
	cr_assert_gt(stats_of(cache).activations, 0);
	backing_finish(&hot);
	backing_finish(&cold);
	cache_destroy(cache);
}

Test(reclaim, referenced_folios_stay)
{
	struct cache *cache = test_cache(MIB, 0);
	struct folio_batch batch;
	struct backing b;
	unsigned int i;

	backing_init(&b, cache, MAPPING_FILE, 12, ROOM, ROOM, 1);
	cr_assert_eq(filemap_get_pages(&b.mapping, 0, 31 * PAGE_SIZE, &batch), 0);
	filemap_read(&b.mapping, MIB, buf, ROOM - MIB);
	for (i = 0; i < batch.nr; i++) {
		cr_assert_eq(batch.folios[i]->mapping, &b.mapping);
		cr_assert(
			!memcmp(folio_address(batch.folios[i]),
				b.data + folio_pos(batch.folios[i]), folio_size(batch.folios[i])));
	}
	folio_batch_release(&batch);
	backing_finish(&b);
	cache_destroy(cache);
}

/* A file system's write takes its volume lock and metadata: it must end although all is dirty. */
Test(reclaim, file_writes_that_need_metadata_end)
{
	struct cache *cache = test_cache(MIB, 0);
	struct backing device, b;
	struct test_volume volume = {.lock = PTHREAD_MUTEX_INITIALIZER, .device = &device};

	backing_init(&device, cache, MAPPING_DEVICE, 12, ROOM, ROOM, 1);
	backing_init(&b, cache, MAPPING_FILE, 12, ROOM, 0, 0);
	b.volume = &volume;
	cr_assert_eq(filemap_write(&b.mapping, 0, buf, ROOM), ROOM);
	cr_assert_eq(filemap_read(&b.mapping, 0, buf, ROOM), ROOM);
	cr_assert_eq(cache_sync(cache, MAPPING_FILE), 0);
	cr_assert_eq(cache_sync(cache, MAPPING_DEVICE), 0);
	backing_finish(&b);
	backing_finish(&device);
	cache_destroy(cache);
}

/* Fails the nth read and the nth write of a job, for each n until none is left to fail. */
static int job(struct backing *b)
{
	int err = 0;

	if (filemap_write(&b->mapping, 1000, buf, 300000) != 300000)
		err = -EIO;
	if (filemap_read(&b->mapping, 0, buf, ROOM) != (ssize_t)ROOM)
		err = -EIO;
	if (backing_setsize(b, 200001) || backing_punch(b, 5000, 50000))
		err = -EIO;
	if (filemap_write_and_wait(&b->mapping))
		err = -EIO;
	mapping_check(&b->mapping);
	return err;
}

static int kinds[] = {0, 1};

ParameterizedTestParameters(faults, nth_call_fails)
{
	return cr_make_param_array(int, kinds, 2);
}

ParameterizedTest(int *writes, faults, nth_call_fails)
{
	struct cache *cache = test_cache(MIB, 0);
	struct backing b;
	int n, left = 0;

	for (n = 0; !left; n++) {
		cr_assert_lt(n, 1000);
		backing_init(&b, cache, MAPPING_FILE, 10, ROOM, ROOM, 1);
		*(*writes ? &b.fail_writes_in : &b.fail_reads_in) = n;
		*(*writes ? &b.fail_writes : &b.fail_reads) = 1;
		job(&b);
		left = *writes ? b.fail_writes : b.fail_reads;
		b.fail_writes = b.fail_reads = 0;
		cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
		cr_assert_eq(backing_reserved(&b), 0);
		backing_finish(&b);
	}
	cr_assert_gt(n, 2);
	cache_destroy(cache);
}

static void *count_elsewhere(void *arg)
{
	unsigned int i;

	for (i = 0; i < 1000; i++)
		count_stat((struct cache *)arg, throttled, 1);
	return NULL;
}

Test(stats, what_all_threads_count_is_added_up)
{
	struct cache *cache = test_cache(MIB, 0);
	pthread_t threads[STATS_SHARDS + 4];
	unsigned int i;

	for (i = 0; i < STATS_SHARDS + 4; i++)
		pthread_create(&threads[i], NULL, count_elsewhere, cache);
	for (i = 0; i < STATS_SHARDS + 4; i++)
		pthread_join(threads[i], NULL);
	cr_assert_eq(stats_of(cache).throttled, (STATS_SHARDS + 4) * 1000);
	cr_assert_eq(stats_of(cache).hits, 0);
	cr_assert_eq(stats_of(cache).bound_bytes, MIB);
	cache_destroy(cache);
}

Test(stats, each_way_out_of_the_cache_is_counted)
{
	struct cache *cache = test_cache(MIB, 0);
	struct cache_stats stats;
	struct backing b;
	unsigned int order;

	backing_init(&b, cache, MAPPING_FILE, 12, ROOM, ROOM, 1);
	filemap_read(&b.mapping, 0, buf, ROOM);
	invalidate_blocks(&b.mapping, ROOM - MIB / 2, ROOM);
	backing_setsize(&b, 0);
	stats = stats_of(cache);
	cr_assert(stats.evictions && stats.truncated && stats.invalidated);
	for (order = 0; order <= MAX_FOLIO_ORDER; order++)
		stats.adds -= stats.orders[order];
	cr_assert_eq(stats.adds, 0);
	cr_assert_geq(stats.read_folios, stats.read_batches);
	cr_assert_gt(stats.read_batches, 0);
	backing_finish(&b);
	cache_destroy(cache);
}
