/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Writing back, the flusher, and write errors: one behaviour a test. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <unistd.h>
#include "backing.h"

#define ROOM (1 << 20)
#define MANY 300

static struct cache *cache;
static struct backing b;
static unsigned char buf[ROOM];

static void setup(size_t cache_bytes, unsigned int expire_ms)
{
	cache = test_cache(cache_bytes, expire_ms);
	backing_init(&b, cache, MAPPING_FILE, 12, ROOM, ROOM, 1);
}

static void done(void)
{
	backing_finish(&b);
	cache_destroy(cache);
}

/* Folios of one page each. */
static void dirty(pgoff_t first, pgoff_t nr)
{
	memset(buf, 'd', PAGE_SIZE);
	for (; nr--; first++)
		cr_assert_eq(filemap_write(&b.mapping, first * PAGE_SIZE, buf, PAGE_SIZE), PAGE_SIZE);
}

/* Neither dirty nor being written: a folio whose write is about to fail is not clean. */
static bool is_clean(struct mapping *mapping)
{
	bool clean;

	xa_lock(&mapping->i_pages);
	clean = !__atomic_load_n(&mapping->nrdirty, __ATOMIC_RELAXED) &&
		!xa_marked(&mapping->i_pages, PAGECACHE_TAG_WRITEBACK);
	xa_unlock(&mapping->i_pages);
	return clean;
}

/* Waits up to 5 s for the flusher. */
static bool becomes_clean(struct mapping *mapping)
{
	int i;

	for (i = 0; i < 500 && !is_clean(mapping); i++)
		usleep(10000);
	return is_clean(mapping);
}

Test(writeback, contiguous_folios_are_written_in_one_run)
{
	setup(16 << 20, 0);
	dirty(10, 100);
	dirty(120, 1);
	cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
	cr_assert_eq(b.write_calls, 1);
	cr_assert_eq(b.write_runs, 2);
	cr_assert_eq(b.max_run, 100);
	cr_assert_eq(b.write_pages, 101);
	mapping_check(&b.mapping);
	done();
}

Test(writeback, a_clean_mapping_is_not_written)
{
	setup(16 << 20, 0);
	dirty(0, 10);
	cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
	cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
	cr_assert_eq(b.write_pages, 10);
	done();
}

Test(writeback, a_range_leaves_the_rest_dirty)
{
	setup(16 << 20, 0);
	dirty(0, 10);
	cr_assert_eq(filemap_write_range(&b.mapping, 2 * PAGE_SIZE, 5 * PAGE_SIZE - 1), 0);
	cr_assert_eq(b.write_pages, 3);
	cr_assert_eq(b.mapping.nrdirty, 7);
	mapping_check(&b.mapping);
	done();
}

Test(writeback, a_range_leaves_the_rest_of_a_large_folio_dirty)
{
	setup(16 << 20, 0);
	memset(buf, 'd', 16 * PAGE_SIZE);
	cr_assert_eq(filemap_write(&b.mapping, 0, buf, 16 * PAGE_SIZE), 16 * PAGE_SIZE);
	cr_assert_eq(b.mapping.nrdirty, 1, "not one large folio");
	cr_assert_eq(filemap_write_range(&b.mapping, 2 * PAGE_SIZE, 5 * PAGE_SIZE - 1), 0);
	cr_assert_eq(b.write_blocks, 3);
	cr_assert(b.data[2 * PAGE_SIZE] == 'd' && b.data[5 * PAGE_SIZE - 1] == 'd');
	cr_assert(b.data[2 * PAGE_SIZE - 1] != 'd' || b.data[2 * PAGE_SIZE - 2] != 'd');
	cr_assert_eq(b.mapping.nrdirty, 1);
	mapping_check(&b.mapping);
	cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
	cr_assert_eq(b.write_blocks, 16);
	cr_assert_eq(b.mapping.nrdirty, 0);
	mapping_check(&b.mapping);
	done();
}

Test(writeback, runs_with_gaps_are_written_in_one_call)
{
	pgoff_t i;

	setup(16 << 20, 0);
	for (i = 0; i < 50; i++)
		dirty(3 * i, 1);
	cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
	cr_assert_eq(b.write_calls, 1);
	cr_assert_eq(b.write_runs, 50);
	done();
}

/* What was in one batch with a block that cannot be written gets there all the same. */
Test(writeback, after_an_error_each_folio_is_written_by_itself)
{
	setup(16 << 20, 0);
	dirty(0, 10);
	b.fail_writes = 1;
	cr_assert_eq(filemap_write_and_wait(&b.mapping), -EIO);
	cr_assert_eq(b.mapping.nrdirty, 10);
	b.fail_writes_in = 4;
	b.fail_writes = 1;
	cr_assert_eq(filemap_write_and_wait(&b.mapping), -EIO);
	cr_assert_eq(b.mapping.nrdirty, 1);
	cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
	dirty(0, 10);
	b.write_calls = 0;
	cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
	cr_assert_eq(b.write_calls, 1);
	done();
}

Test(writeback, redirtied_data_is_written_again)
{
	setup(16 << 20, 0);
	dirty(0, 1);
	cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
	cr_assert_eq(filemap_write(&b.mapping, 7, "again", 5), 5);
	cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
	cr_assert(!memcmp(b.data + 7, "again", 5));
	done();
}

static void *slow_fsync(void *arg)
{
	rcu_register_thread();
	filemap_write_and_wait(&b.mapping);
	return NULL;
}

Test(writeback, data_dirtied_while_it_is_written_is_written_again)
{
	pthread_t thread;

	setup(16 << 20, 0);
	b.delay_us = 200000;
	dirty(0, 1);
	pthread_create(&thread, NULL, slow_fsync, NULL);
	while (!xa_marked(&b.mapping.i_pages, PAGECACHE_TAG_WRITEBACK))
		usleep(1000);
	cr_assert_eq(filemap_write(&b.mapping, 0, "new", 3), 3);
	b.delay_us = 0;
	cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
	cr_assert(!memcmp(b.data, "new", 3));
	pthread_join(thread, NULL);
	mapping_check(&b.mapping);
	cr_assert_eq(b.mapping.nrdirty, 0);
	done();
}

Test(writeback, waiting_covers_writes_that_others_began)
{
	pthread_t thread;

	setup(16 << 20, 0);
	b.delay_us = 100000;
	dirty(0, 1);
	pthread_create(&thread, NULL, slow_fsync, NULL);
	while (!xa_marked(&b.mapping.i_pages, PAGECACHE_TAG_WRITEBACK))
		usleep(1000);
	cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
	cr_assert(b.data[0] == 'd' && b.data[PAGE_SIZE - 1] == 'd');
	pthread_join(thread, NULL);
	done();
}

Test(writeback, failed_writes_stay_dirty_and_are_reported_once)
{
	errseq_t since;

	setup(16 << 20, 0);
	since = filemap_sample_wb_err(&b.mapping);
	dirty(0, 3);
	b.fail_writes = 1;
	cr_assert_eq(filemap_write_and_wait(&b.mapping), -EIO);
	cr_assert_eq(b.mapping.nrdirty, 3);
	mapping_check(&b.mapping);
	cr_assert_eq(filemap_check_wb_err(&b.mapping, &since), -EIO);
	cr_assert_eq(filemap_check_wb_err(&b.mapping, &since), 0);
	cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
	cr_assert(b.data[0] == 'd');
	done();
}

Test(writeback, a_pass_goes_on_behind_an_error)
{
	setup(16 << 20, 0);
	cache->write_max = 1;
	dirty(0, 1);
	dirty(2, 1);
	dirty(4, 1);
	b.fail_writes_in = 1;
	b.fail_writes = 1;
	cr_assert_eq(filemap_write_and_wait(&b.mapping), -EIO);
	cr_assert_eq(b.write_calls, 3);
	cr_assert_eq(b.mapping.nrdirty, 1);
	done();
}

Test(errseq, each_open_file_learns_of_an_error_once)
{
	errseq_t first, second, late;

	setup(16 << 20, 0);
	first = filemap_sample_wb_err(&b.mapping);
	second = filemap_sample_wb_err(&b.mapping);
	mapping_set_error(&b.mapping, -ENOSPC);
	cr_assert_eq(filemap_check_wb_err(&b.mapping, &first), -ENOSPC);
	late = filemap_sample_wb_err(&b.mapping);
	cr_assert_eq(filemap_check_wb_err(&b.mapping, &first), 0);
	cr_assert_eq(filemap_check_wb_err(&b.mapping, &second), -ENOSPC);
	cr_assert_eq(filemap_check_wb_err(&b.mapping, &late), 0);
	mapping_set_error(&b.mapping, -ENOSPC);
	cr_assert_eq(filemap_check_wb_err(&b.mapping, &late), -ENOSPC);
	cr_assert_eq(filemap_check_wb_err(&b.mapping, &first), -ENOSPC);
	done();
}

Test(errseq, an_unseen_error_is_told_to_the_next_opener)
{
	errseq_t since;

	setup(16 << 20, 0);
	mapping_set_error(&b.mapping, -EIO);
	since = filemap_sample_wb_err(&b.mapping);
	cr_assert_eq(filemap_check_wb_err(&b.mapping, &since), -EIO);
	since = filemap_sample_wb_err(&b.mapping);
	cr_assert_eq(filemap_check_wb_err(&b.mapping, &since), 0);
	done();
}

Test(flusher, old_data_is_written)
{
	setup(16 << 20, 30);
	dirty(0, 5);
	cr_assert(becomes_clean(&b.mapping));
	cr_assert_eq(b.write_pages, 5);
	/* ... and again the next time */
	dirty(0, 5);
	cr_assert(becomes_clean(&b.mapping));
	done();
}

Test(flusher, young_data_is_not_written)
{
	setup(16 << 20, 60000);
	dirty(0, 5);
	usleep(30000);
	cr_assert_eq(b.write_pages, 0);
	done();
}

/* Nothing becomes dirty after it: why wait? */
Test(flusher, young_data_is_written_when_it_is_quiet)
{
	setup(16 << 20, 60000);
	dirty(0, 5);
	cr_assert(becomes_clean(&b.mapping));
	cr_assert_eq(b.write_pages, 5);
	done();
}

/* From the last write on it takes two tenths of a second at most, and some for a busy machine. */
Test(flusher, writing_begins_within_a_fifth_of_a_second_of_the_last_write)
{
	int round, late = 0;

	setup(16 << 20, 60000);
	for (round = 0; round < 5; round++) {
		unsigned long before = b.write_pages;
		uint64_t began;

		dirty(0, 5);
		usleep(30000 * round);
		dirty(5, 5);
		began = now_ns();
		while (__atomic_load_n(&b.write_pages, __ATOMIC_RELAXED) == before)
			usleep(1000);
		late += now_ns() - began > 210 * MSEC;
		cr_assert(becomes_clean(&b.mapping));
	}
	cr_assert_leq(late, 1);
	done();
}

/* A file that is always written to is not written back all the time, though its folios stay dirty. */
Test(flusher, what_is_written_again_and_again_is_not_quiet)
{
	uint64_t last, longest = 0;
	int round;

	setup(16 << 20, 60000);
	for (round = 0; round < 100; round++) {
		last = now_ns();
		dirty(0, 5);
		usleep(5000);
		if (now_ns() - last > longest)
			longest = now_ns() - last;
	}
	/* On a busy machine the writer itself may have paused. */
	cr_assert(!b.write_pages || longest > 80 * MSEC);
	cr_assert(becomes_clean(&b.mapping));
	done();
}

Test(flusher, much_dirty_data_is_written_without_regard_to_age)
{
	setup(CACHE_MIN_BYTES, 0);
	dirty(0, 60);
	while (__atomic_load_n(&b.mapping.nrdirty, __ATOMIC_RELAXED) > cache->background)
		usleep(1000);
	done();
}

Test(flusher, failed_writes_are_repeated_after_a_pause)
{
	setup(16 << 20, 10);
	b.fail_writes = 2;
	dirty(0, 1); /* more could be taken while they are still being dirtied */
	cr_assert(becomes_clean(&b.mapping));
	cr_assert_eq(b.write_calls, 3);
	done();
}

Test(flusher, sync_writes_all_files_and_waits)
{
	struct backing *files = calloc(MANY, sizeof(*files));
	int i;

	setup(16 << 20, 0);
	for (i = 0; i < MANY; i++) {
		backing_init(&files[i], cache, MAPPING_FILE, 12, PAGE_SIZE, 0, 0);
		files[i].delay_us = 1000;
		cr_assert_eq(filemap_write(&files[i].mapping, 0, "sync", 4), 4);
	}
	cr_assert_eq(cache_sync(cache, MAPPING_FILE), 0);
	for (i = 0; i < MANY; i++) {
		cr_assert(!memcmp(files[i].data, "sync", 4));
		cr_assert_eq(files[i].mapping.nrdirty, 0);
		backing_finish(&files[i]);
	}
	free(files);
	done();
}

Test(flusher, sync_waits_for_writes_that_others_began)
{
	pthread_t thread;

	setup(16 << 20, 0);
	b.delay_us = 100000;
	dirty(0, 1);
	pthread_create(&thread, NULL, slow_fsync, NULL);
	while (!xa_marked(&b.mapping.i_pages, PAGECACHE_TAG_WRITEBACK))
		usleep(1000);
	cr_assert_eq(cache_sync(cache, MAPPING_FILE), 0);
	cr_assert(b.data[0] == 'd');
	pthread_join(thread, NULL);
	done();
}

Test(flusher, sync_reports_an_error_and_ends)
{
	setup(16 << 20, 0);
	dirty(0, 1);
	b.fail_writes = 1000;
	cr_assert_eq(cache_sync(cache, MAPPING_FILE), -EIO);
	cr_assert_eq(cache_sync(cache, MAPPING_FILE), -EIO);
	b.fail_writes = 0;
	cr_assert_eq(cache_sync(cache, MAPPING_FILE), 0);
	done();
}

Test(flusher, sync_leaves_the_other_level_alone)
{
	struct backing device;

	setup(16 << 20, 0);
	backing_init(&device, cache, MAPPING_DEVICE, 12, ROOM, ROOM, 1);
	cr_assert_eq(filemap_write(&device.mapping, 0, "dev", 3), 3);
	dirty(0, 1);
	cr_assert_eq(cache_sync(cache, MAPPING_FILE), 0);
	cr_assert_eq(b.mapping.nrdirty, 0);
	cr_assert_eq(device.mapping.nrdirty, 1);
	cr_assert_eq(cache_sync(cache, MAPPING_DEVICE), 0);
	cr_assert_eq(device.mapping.nrdirty, 0);
	backing_finish(&device);
	done();
}

Test(flusher, a_backing_that_cannot_be_written_does_not_hang_anybody)
{
	ssize_t n;

	setup(CACHE_MIN_BYTES, 0);
	b.fail_writes = 1000000;
	n = filemap_write(&b.mapping, 0, buf, ROOM);
	cr_assert(n > 0 && n < ROOM, "%zd", n);
	cr_assert_eq(filemap_write(&b.mapping, ROOM / 2, buf, ROOM / 2), -EIO);
	cr_assert_eq(filemap_write_and_wait(&b.mapping), -EIO);
	done();
}
