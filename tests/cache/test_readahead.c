/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Readahead windows, who reads them, and what becomes of errors: one behaviour a test. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdlib.h>
#include <unistd.h>
#include "backing.h"

#define MIB (1UL << 20)
#define ROOM (8 * MIB)
#define PAGES (ROOM >> PAGE_SHIFT)
#define MAX 256UL /* pages of a window */

static struct cache *cache;
static struct backing b;
static struct file_ra ra;
static unsigned char buf[MIB];

static void setup_with(size_t readahead, size_t size)
{
	struct cache_config config = {.bytes = 32 * MIB, .readahead_bytes = readahead};

	rcu_register_thread();
	cr_assert_eq(cache_create(&cache, &config), 0);
	backing_init(&b, cache, MAPPING_FILE, 12, ROOM, size, 1);
	file_ra_init(&ra);
}

static void setup(void)
{
	setup_with(MAX << PAGE_SHIFT, ROOM);
}

static void done(void)
{
	file_ra_finish(&ra);
	backing_finish(&b);
	cache_destroy(cache);
}

static struct cache_stats stats_of(void)
{
	struct cache_stats stats;

	cache_get_stats(cache, &stats);
	return stats;
}

/* Until no thread is at work. */
static void settle(void)
{
	while (__atomic_load_n(&b.mapping.readaheads, __ATOMIC_ACQUIRE))
		usleep(100);
}

static void read_pages(struct file_ra *how, pgoff_t index, unsigned long nr)
{
	loff_t pos = (loff_t)index << PAGE_SHIFT, left = mapping_size(&b.mapping) - pos;
	ssize_t want = (loff_t)(nr << PAGE_SHIFT) < left ? (loff_t)(nr << PAGE_SHIFT) : left;

	cr_assert_eq(filemap_read_ra(&b.mapping, how, pos, buf, nr << PAGE_SHIFT), want);
	cr_assert(!memcmp(buf, b.data + pos, want));
	settle();
}

static bool is_there(pgoff_t index)
{
	struct folio *folio = filemap_get_folio(&b.mapping, index);

	if (folio)
		folio_put(folio);
	return folio;
}

struct first {
	unsigned long wanted, size, async;
};

static struct first firsts[] = {
	{1, 4, 3},    {3, 16, 13},   {8, 32, 24},   {16, 32, 16},     {33, 128, 95},
	{64, 128, 64}, {65, 256, 191}, {200, 256, 56}, {256, 256, 128},
};

ParameterizedTestParameters(readahead, first_window)
{
	return cr_make_param_array(struct first, firsts, sizeof(firsts) / sizeof(*firsts));
}

/* Of a read at the start of a file, by the pages that it wants. */
ParameterizedTest(struct first *f, readahead, first_window)
{
	setup();
	cr_assert(readahead_sync(&b.mapping, &ra, 0, f->wanted));
	cr_assert_eq(ra.start, 0);
	cr_assert_eq(ra.size, f->size);
	cr_assert_eq(ra.async_size, f->async);
	cr_assert(is_there(f->size - 1) && !is_there(f->size));
	done();
}

/* Each mark that is met sets off the next window, up to the limit; large ones end with a piece. */
Test(readahead, windows_grow)
{
	static const unsigned long sizes[] = {4, 16, 32, 64, 140, 256, 256, 256, 256};
	unsigned int n = 0;
	pgoff_t index, start = -1UL;

	setup();
	for (index = 0; index < 1000; index++) {
		read_pages(&ra, index, 1);
		if (ra.start == start)
			continue;
		start = ra.start;
		cr_assert_lt(n, 9);
		cr_assert_eq(ra.size, sizes[n], "window %u: %lu", n, ra.size);
		n++;
	}
	cr_assert_eq(n, 9);
	done();
}

Test(readahead, a_stream_reads_all_once_and_misses_once)
{
	pgoff_t index;

	setup();
	for (index = 0; index < PAGES; index++)
		read_pages(&ra, index, 1);
	cr_assert_eq(b.read_pages, PAGES);
	cr_assert_eq(stats_of().misses, 1);
	cr_assert_lt(b.read_calls, PAGES / 64 + 10);
	cr_assert_eq(stats_of().readahead_sync, 1);
	cr_assert_eq(stats_of().readahead_pages, PAGES - 1);
	cr_assert_gt(stats_of().readahead_hits, 0);
	done();
}

Test(readahead, folios_grow_with_the_windows)
{
	unsigned int order = 0;
	pgoff_t index;

	setup();
	for (index = 0; index < 1500; index++)
		read_pages(&ra, index, 1);
	for (index = 0; index < 1500; index++) {
		struct folio *folio = filemap_get_folio(&b.mapping, index);

		cr_assert(folio);
		cr_assert_leq(folio->order, cache->max_order);
		if (index < 4)
			cr_assert_eq(folio->order, 0);
		order = folio->order > order ? folio->order : order;
		folio_put(folio);
	}
	cr_assert_geq(order, 4);
	done();
}

Test(readahead, random_reads_read_what_they_want)
{
	uint64_t state = 7;
	int i;

	setup();
	for (i = 0; i < 200; i++)
		read_pages(&ra, 2 * (1 + rnd(&state) % (PAGES / 2 - 1)), 1);
	cr_assert_eq(stats_of().readahead_pages, 0);
	cr_assert_eq(b.read_pages, stats_of().misses);
	done();
}

Test(readahead, after_many_random_reads_no_context_is_looked_for)
{
	int i;

	setup();
	for (i = 0; i < 110; i++)
		read_pages(&ra, 2000 - 16 * i, 1);
	cr_assert_gt(ra.misses, 100);
	read_pages(NULL, 10, 6);
	read_pages(&ra, 16, 1);
	cr_assert_eq(stats_of().readahead_pages, 0);
	/* But one that goes on where the last one ended. */
	read_pages(&ra, 17, 1);
	cr_assert_gt(stats_of().readahead_pages, 0);
	done();
}

/* The state is another stream's, but the pages before are there: it is one that goes on. */
Test(readahead, cached_pages_before_a_read_make_it_a_stream)
{
	setup();
	read_pages(NULL, 500, 20);
	read_pages(&ra, 1000, 1);
	cr_assert_eq(stats_of().readahead_pages, 0);
	read_pages(&ra, 520, 2);
	cr_assert_eq(ra.start, 520);
	cr_assert_eq(ra.size, 22);
	cr_assert_eq(ra.async_size, 1);
	cr_assert(is_there(541) && !is_there(542));
	done();
}

Test(readahead, streams_that_share_an_open_file)
{
	pgoff_t index;

	setup();
	for (index = 0; index < 512; index++) {
		read_pages(&ra, index, 1);
		read_pages(&ra, 1024 + index, 1);
	}
	/* Not one read call for each page: both are ahead. */
	cr_assert_lt(b.read_calls, 60);
	cr_assert_gt(stats_of().readahead_async, 6);
	done();
}

Test(readahead, nothing_is_read_behind_the_end)
{
	pgoff_t index;

	setup_with(MAX << PAGE_SHIFT, 100 * PAGE_SIZE + 17);
	for (index = 0; index <= 100; index++)
		read_pages(&ra, index, 1);
	cr_assert_eq(b.read_pages, 101);
	cr_assert(!is_there(101));
	cr_assert_eq(filemap_read_ra(&b.mapping, &ra, 101 * PAGE_SIZE, buf, 1), 0);
	done();
}

Test(readahead, no_limit_no_readahead)
{
	setup_with(0, ROOM);
	read_pages(&ra, 0, 1);
	read_pages(&ra, 1, 1);
	cr_assert_eq(b.read_pages, 2);
	cr_assert_eq(cache->readahead.nr_threads, 0);
	done();
}

Test(readahead, a_small_cache_bounds_the_window)
{
	struct cache_config config = {.bytes = MIB, .readahead_bytes = MIB};

	rcu_register_thread();
	cr_assert_eq(cache_create(&cache, &config), 0);
	backing_init(&b, cache, MAPPING_FILE, 12, ROOM, ROOM, 1);
	file_ra_init(&ra);
	read_pages(&ra, 0, 16);
	cr_assert_eq(ra.size, 16);
	done();
}

Test(readahead, a_marked_folio_ends_a_batch)
{
	struct folio_batch batch;

	setup();
	read_pages(&ra, 0, 1);
	cr_assert_eq(filemap_get_pages(&b.mapping, 0, 4 * PAGE_SIZE, &batch), 0);
	cr_assert_eq(batch.nr, 2);
	cr_assert(folio_flags(batch.folios[1]) & FOLIO_READAHEAD);
	folio_batch_release(&batch);
	done();
}

Test(readahead, what_fails_ahead_is_silent)
{
	pgoff_t bad = 40, index;

	setup();
	b.bad_read = bad << PAGE_SHIFT;
	for (index = 0; index < 200; index++) {
		if (index != bad) {
			read_pages(&ra, index, 1);
			continue;
		}
		cr_assert_eq(filemap_read_ra(&b.mapping, &ra, b.bad_read, buf, PAGE_SIZE), -EIO);
		settle();
	}
	cr_assert_gt(stats_of().readahead_errors, 0);
	b.bad_read = NEVER;
	read_pages(&ra, bad, 1);
	done();
}

Test(readahead, no_window_can_be_read_and_then_all)
{
	pgoff_t index;

	setup();
	b.fail_reads = 1000000;
	for (index = 0; index < 20; index++)
		cr_assert_eq(filemap_read_ra(&b.mapping, &ra, index << PAGE_SHIFT, buf, PAGE_SIZE),
			     -EIO);
	settle();
	b.fail_reads = 0;
	for (index = 0; index < 20; index++)
		read_pages(&ra, index, 1);
	done();
}

Test(readahead, a_reader_does_not_wait_for_the_window_ahead)
{
	uint64_t began;

	setup();
	read_pages(&ra, 0, 4);
	b.read_delay_us = 300000;
	began = now_ns();
	cr_assert_eq(filemap_read_ra(&b.mapping, &ra, 4 * PAGE_SIZE, buf, PAGE_SIZE), PAGE_SIZE);
	cr_assert_lt(now_ns() - began, 200 * MSEC);
	cr_assert_eq(b.mapping.readaheads, 1);
	b.read_delay_us = 0;
	settle();
	cr_assert_gt(stats_of().readahead_async, 0);
	done();
}

/* Threads read the pieces of a large window side by side. */
Test(readahead, a_window_is_read_in_pieces)
{
	pgoff_t index, end;
	unsigned int calls;
	uint64_t began;

	setup();
	for (index = 0; ra.size != MAX; index++)
		read_pages(&ra, index, 1);
	/* The next one begins with a mark, and another is due then. */
	for (end = ra.start + ra.size; index < ra.start; index++)
		read_pages(&ra, index, 1);
	calls = b.read_calls;
	b.read_delay_us = 100000;
	began = now_ns();
	cr_assert_eq(filemap_read_ra(&b.mapping, &ra, index << PAGE_SHIFT, buf, 1), 1);
	cr_assert_geq(b.mapping.readaheads, 4);
	settle();
	cr_assert_lt(now_ns() - began, 390 * MSEC);
	cr_assert_eq(ra.start, end);
	cr_assert(is_there(end) && is_there(end + MAX - 1) && !is_there(end + MAX));
	cr_assert_eq(b.read_calls - calls, 4);
	b.read_delay_us = 0;
	done();
}

Test(readahead, a_file_that_goes_takes_its_windows_along)
{
	struct backing other;
	struct file_ra other_ra;
	int i;

	setup();
	backing_init(&other, cache, MAPPING_FILE, 12, ROOM, ROOM, 2);
	file_ra_init(&other_ra);
	for (i = 0; i < 20; i++) {
		cr_assert_gt(filemap_read_ra(&other.mapping, &other_ra, 0, buf, 4 * PAGE_SIZE), 0);
		other.read_delay_us = 2000;
		cr_assert_gt(filemap_read_ra(&other.mapping, &other_ra, 4 * PAGE_SIZE, buf, 1), 0);
		truncate_all(&other.mapping);
		cr_assert_eq(other.mapping.readaheads, 0);
		cr_assert_eq(other.mapping.nrpages, 0);
		other.read_delay_us = 0;
	}
	file_ra_finish(&other_ra);
	backing_finish(&other);
	done();
}

/* Windows of a slow file fill the threads and the queue: another one's reads go on. */
Test(readahead, a_slow_file_does_not_stop_another)
{
	static struct file_ra streams[READAHEAD_QUEUE + 8];
	struct backing slow;
	uint64_t began;
	unsigned int i;

	setup();
	backing_init(&slow, cache, MAPPING_FILE, 12, ROOM, ROOM, 2);
	for (i = 0; i < READAHEAD_QUEUE + 8; i++) {
		file_ra_init(&streams[i]);
		cr_assert_gt(filemap_read_ra(&slow.mapping, &streams[i], i * 15 * PAGE_SIZE, buf,
					     PAGE_SIZE),
			     0);
		streams[i].last_read = i * 15;
		cr_assert_gt(filemap_read_ra(&slow.mapping, &streams[i], (i * 15 + 1) * PAGE_SIZE,
					     buf, PAGE_SIZE),
			     0);
	}
	while (__atomic_load_n(&slow.mapping.readaheads, __ATOMIC_ACQUIRE))
		usleep(100);
	read_pages(&ra, 0, 64);
	slow.read_delay_us = 50000;
	for (i = 0; i < READAHEAD_QUEUE + 8; i++)
		filemap_read_ra(&slow.mapping, &streams[i], (i * 15 + 2) * PAGE_SIZE, buf,
				PAGE_SIZE);
	began = now_ns();
	cr_assert_eq(filemap_read_ra(&b.mapping, &ra, 0, buf, 64 * PAGE_SIZE), 64 * PAGE_SIZE);
	cr_assert_lt(now_ns() - began, 40 * MSEC);
	slow.read_delay_us = 0;
	for (i = 0; i < READAHEAD_QUEUE + 8; i++)
		file_ra_finish(&streams[i]);
	backing_finish(&slow);
	done();
}

Test(readahead, what_nobody_used_is_counted_as_waste)
{
	struct cache_config config = {.bytes = 2 * MIB, .readahead_bytes = MIB};
	size_t pos;

	rcu_register_thread();
	cr_assert_eq(cache_create(&cache, &config), 0);
	backing_init(&b, cache, MAPPING_FILE, 12, ROOM, ROOM, 1);
	file_ra_init(&ra);
	read_pages(&ra, 0, 1); /* and three pages ahead, of which one is used */
	read_pages(NULL, 1, 1);
	for (pos = MIB; pos < ROOM; pos += MIB)
		cr_assert_eq(filemap_read(&b.mapping, pos, buf, MIB), MIB);
	cr_assert_eq(stats_of().readahead_pages, 3);
	cr_assert_eq(stats_of().readahead_hits, 1);
	cr_assert_eq(stats_of().readahead_wasted, 2);
	done();
}
