/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Truncation, holes and invalidation: one behaviour a test. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <unistd.h>
#include "backing.h"

#define ROOM (256 << 10)

static struct cache *cache;
static struct backing b;
static unsigned char buf[ROOM], expect[ROOM];

static void setup(unsigned int shift, size_t size)
{
	cache = test_cache(16 << 20, 0);
	backing_init(&b, cache, MAPPING_FILE, shift, ROOM, size, 1);
	memcpy(expect, b.data, ROOM);
}

static void done(void)
{
	backing_finish(&b);
	cache_destroy(cache);
}

static void drop_cache(void)
{
	cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
	truncate_all(&b.mapping);
}

static bool reads_as_expected(loff_t size)
{
	return filemap_read(&b.mapping, 0, buf, ROOM) == size && !memcmp(buf, expect, size);
}

static unsigned int shifts[] = {10, 11, 12};

ParameterizedTestParameters(truncate, shrink_and_grow)
{
	return cr_make_param_array(unsigned int, shifts, 3);
}

/* Bytes that were cut off never come back, neither from memory nor from the backing. */
ParameterizedTest(unsigned int *shift, truncate, shrink_and_grow)
{
	static const loff_t sizes[] = {100001, 100000, 98304, 4097, 4096, 4095, 1024, 1, 0};
	unsigned int i;

	setup(*shift, 150000);
	for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		cr_assert_eq(backing_setsize(&b, sizes[i]), 0);
		cr_assert_eq(mapping_size(&b.mapping), sizes[i]);
		memset(expect + sizes[i], 0, ROOM - sizes[i]);
		cr_assert_eq(backing_setsize(&b, 150000), 0);
		cr_assert(reads_as_expected(150000), "to %ld", (long)sizes[i]);
		drop_cache();
		cr_assert(reads_as_expected(150000), "to %ld", (long)sizes[i]);
	}
	done();
}

ParameterizedTestParameters(truncate, holes)
{
	return cr_make_param_array(unsigned int, shifts, 3);
}

ParameterizedTest(unsigned int *shift, truncate, holes)
{
	static const loff_t holes[][2] = {
		{0, 1},	       {100, 200},     {1024, 2048},   {4000, 4200},	{8192, 12288},
		{5000, 30000}, {31000, 40960}, {40961, 41000}, {99999, 100000}, {90000, 200000}};
	unsigned int i;

	setup(*shift, 100000);
	for (i = 0; i < sizeof(holes) / sizeof(*holes); i++) {
		memset(buf, 'w', 5000);
		memset(expect + holes[i][0], 'w', 5000);
		if (holes[i][0] + 5000 <= 100000) /* some of it dirty */
			cr_assert_eq(filemap_write(&b.mapping, holes[i][0], buf, 5000), 5000);
		else
			memcpy(expect + holes[i][0], b.data + holes[i][0], 5000);
		cr_assert_eq(backing_punch(&b, holes[i][0], holes[i][1]), 0);
		memset(expect + holes[i][0], 0, holes[i][1] - holes[i][0]);
		cr_assert(reads_as_expected(100000), "hole %u", i);
		drop_cache();
		cr_assert(reads_as_expected(100000), "hole %u again", i);
	}
	done();
}

Test(truncate, a_cut_in_a_hole_leaves_it_one)
{
	setup(12, 0);
	mapping_set_size(&b.mapping, 100000);
	cr_assert_eq(backing_setsize(&b, 50000), 0);
	cr_assert_eq(backing_punch(&b, 1000, 30000), 0);
	cr_assert_eq(b.mapping.nrdirty, 0);
	cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
	cr_assert_eq(b.write_calls, 0);
	done();
}

Test(truncate, dropped_blocks_give_their_reservation_back)
{
	long space;

	setup(10, 0);
	space = b.space;
	memset(buf, 'x', 20000);
	cr_assert_eq(filemap_write(&b.mapping, 0, buf, 20000), 20000);
	cr_assert_eq(b.space, space - 20);
	cr_assert_eq(backing_setsize(&b, 5000), 0);
	cr_assert_eq(b.space, space - 5);
	cr_assert_eq(backing_punch(&b, 1024, 3072), 0);
	cr_assert_eq(b.space, space - 3);
	cr_assert_eq(backing_setsize(&b, 0), 0);
	cr_assert_eq(b.space, space);
	cr_assert_eq(b.mapping.nrdirty, 0);
	done();
}

Test(truncate, failed_read_of_the_cut_block_changes_nothing)
{
	setup(12, 100000);
	b.bad_read = 50000;
	cr_assert_eq(backing_setsize(&b, 50000), -EIO);
	cr_assert_eq(mapping_size(&b.mapping), 100000);
	cr_assert_eq(backing_punch(&b, 1000, 50000), -EIO);
	b.bad_read = NEVER;
	cr_assert(reads_as_expected(100000));
	done();
}

Test(truncate, growing_reads_nothing)
{
	setup(12, 5000);
	cr_assert_eq(backing_setsize(&b, 100000), 0);
	cr_assert_eq(b.read_calls, 0);
	cr_assert(reads_as_expected(100000));
	done();
}

static void *slow_fsync(void *arg)
{
	rcu_register_thread();
	filemap_write_and_wait(&b.mapping);
	return NULL;
}

Test(truncate, waits_for_a_write_in_flight)
{
	pthread_t thread;

	setup(12, 0);
	memset(buf, 'x', 8192);
	filemap_write(&b.mapping, 0, buf, 8192);
	b.delay_us = 100000;
	pthread_create(&thread, NULL, slow_fsync, NULL);
	while (!xa_marked(&b.mapping.i_pages, PAGECACHE_TAG_WRITEBACK))
		usleep(1000);
	cr_assert_eq(backing_setsize(&b, 0), 0);
	cr_assert_eq(b.mapping.nrpages, 0);
	pthread_join(thread, NULL);
	done();
}

Test(truncate, readers_keep_what_they_hold)
{
	struct folio_batch batch;

	setup(12, 100000);
	cr_assert_eq(filemap_get_pages(&b.mapping, 0, 8192, &batch), 0);
	truncate_all(&b.mapping);
	cr_assert(!memcmp(folio_address(batch.folios[0]), expect, PAGE_SIZE));
	folio_batch_release(&batch);
	done();
}

Test(invalidate, forgets_dirty_blocks_without_writing_them)
{
	int i;

	setup(12, 100000);
	memset(buf, 'x', 16384);
	for (i = 0; i < 4; i++)
		filemap_write(&b.mapping, i * 4096, buf, 4096);
	invalidate_blocks(&b.mapping, 4096, 12288);
	cr_assert_eq(b.mapping.nrpages, 2);
	cr_assert_eq(b.mapping.nrdirty, 2);
	memset(expect, 'x', 4096);
	memset(expect + 12288, 'x', 4096);
	cr_assert(reads_as_expected(100000));
	done();
}

Test(invalidate, blocks_of_a_folio_that_is_partly_outside)
{
	setup(10, 100000);
	memset(buf, 'x', 4096);
	filemap_write(&b.mapping, 0, buf, 4096);
	invalidate_blocks(&b.mapping, 1024, 2048);
	cr_assert_eq(b.mapping.nrpages, 1);
	mapping_check(&b.mapping);
	memset(expect, 'x', 1024);
	memset(expect + 2048, 'x', 2048);
	cr_assert(reads_as_expected(100000));
	cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
	cr_assert_eq(b.write_blocks, 3);
	done();
}

Test(invalidate, what_the_backing_has_now_is_read)
{
	setup(12, 100000);
	filemap_read(&b.mapping, 0, buf, 8192);
	memset(b.data, 'n', 4096);
	memset(expect, 'n', 4096);
	invalidate_blocks(&b.mapping, 0, 1);
	cr_assert(reads_as_expected(100000));
	done();
}

/* Folios leave by the batch, dirty or clean, with one lock for each batch. */
Test(truncate, takes_out_batches)
{
	unsigned long before;

	setup(12, ROOM);
	cr_assert(reads_as_expected(ROOM));
	cr_assert_eq(filemap_write(&b.mapping, 0, buf, 10 * PAGE_SIZE), (ssize_t)(10 * PAGE_SIZE));
	before = b.mapping.removals;
	truncate_all(&b.mapping);
	cr_assert_eq(b.mapping.nrpages, 0);
	cr_assert_eq(b.mapping.nrdirty, 0);
	cr_assert_eq(b.mapping.removals - before, 1);
	done();
}
