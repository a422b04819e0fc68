/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Looking up, reading and writing: one behaviour a test. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdlib.h>
#include "backing.h"

#define ROOM (256 << 10)

static struct cache *cache;
static struct backing b;
static unsigned char buf[ROOM];

static void setup(unsigned int shift, size_t size, unsigned int seed)
{
	cache = test_cache(CACHE_MIN_BYTES, 0);
	backing_init(&b, cache, MAPPING_FILE, shift, ROOM, size, seed);
}

static void done(void)
{
	backing_finish(&b);
	cache_destroy(cache);
}

Test(filemap, read_gives_the_backings_bytes)
{
	setup(12, 100000, 1);
	cr_assert_eq(filemap_read(&b.mapping, 0, buf, ROOM), 100000);
	cr_assert(!memcmp(buf, b.data, 100000));
	done();
}

Test(filemap, read_is_short_at_the_size_and_empty_behind)
{
	setup(12, 5000, 1);
	cr_assert_eq(filemap_read(&b.mapping, 4999, buf, 10), 1);
	cr_assert_eq(filemap_read(&b.mapping, 5000, buf, 10), 0);
	cr_assert_eq(filemap_read(&b.mapping, 1L << 50, buf, 10), 0);
	cr_assert_eq(filemap_read(&b.mapping, 0, buf, 0), 0);
	done();
}

Test(filemap, second_read_is_a_hit)
{
	struct cache_stats stats;
	unsigned int calls;

	setup(12, 40960, 1);
	filemap_read(&b.mapping, 0, buf, 40960);
	calls = b.read_calls;
	filemap_read(&b.mapping, 0, buf, 40960);
	cr_assert_eq(b.read_calls, calls);
	cache_get_stats(cache, &stats);
	cr_assert_geq(stats.misses, 1);
	cr_assert_geq(stats.hits, stats.misses);
	cr_assert_eq(stats.read_bytes, 40960);
	cr_assert_eq(stats.used_bytes, 40960);
	done();
}

Test(filemap, a_missing_run_is_read_in_one_call)
{
	setup(12, ROOM, 1);
	cr_assert_eq(filemap_read(&b.mapping, 0, buf, 32 * PAGE_SIZE), 32 * PAGE_SIZE);
	cr_assert_eq(b.read_calls, 1);
	cr_assert_eq(b.read_pages, 32);
	done();
}

/* Makes folios of one page each. */
static void read_by_pages(void)
{
	loff_t pos;

	for (pos = 0; pos < mapping_size(&b.mapping); pos += PAGE_SIZE)
		cr_assert_gt(filemap_read(&b.mapping, pos, buf, PAGE_SIZE), 0);
}

Test(filemap, a_batch_is_in_order_and_without_a_gap)
{
	struct folio_batch batch;
	unsigned int i;

	setup(12, ROOM, 1);
	filemap_read(&b.mapping, 3 * PAGE_SIZE, buf, PAGE_SIZE);
	cr_assert_eq(filemap_get_pages(&b.mapping, PAGE_SIZE + 100, 5 * PAGE_SIZE, &batch), 0);
	cr_assert_geq(batch.nr, 1);
	cr_assert_eq(batch.folios[0]->index, 1);
	for (i = 0; i < batch.nr; i++) {
		cr_assert(!i || batch.folios[i]->index == folio_next_index(batch.folios[i - 1]));
		cr_assert(folio_test_uptodate(batch.folios[i]));
	}
	folio_batch_release(&batch);
	cr_assert_eq(filemap_get_pages(&b.mapping, 0, ROOM, &batch), 0);
	cr_assert_leq(batch.nr, FOLIO_BATCH_SIZE);
	folio_batch_release(&batch);
	done();
}

Test(filemap, a_batch_ends_with_the_last_byte_wanted)
{
	struct folio_batch batch;

	setup(12, ROOM, 1);
	read_by_pages();
	cr_assert_eq(filemap_get_pages(&b.mapping, 0, PAGE_SIZE, &batch), 0);
	cr_assert_eq(batch.nr, 1);
	folio_batch_release(&batch);
	cr_assert_eq(filemap_get_pages(&b.mapping, 0, PAGE_SIZE + 1, &batch), 0);
	cr_assert_eq(batch.nr, 2);
	folio_batch_release(&batch);
	done();
}

Test(filemap, failed_read_is_an_error_and_tried_again)
{
	setup(12, ROOM, 1);
	b.fail_reads = 1;
	cr_assert_eq(filemap_read(&b.mapping, 0, buf, 100), -EIO);
	cr_assert_eq(filemap_read(&b.mapping, 0, buf, 100), 100);
	cr_assert(!memcmp(buf, b.data, 100));
	done();
}

Test(filemap, failed_read_in_the_middle_shortens)
{
	setup(12, ROOM, 1);
	b.bad_read = 5 * PAGE_SIZE;
	cr_assert_eq(filemap_read(&b.mapping, 0, buf, ROOM), 5 * PAGE_SIZE);
	cr_assert(!memcmp(buf, b.data, 5 * PAGE_SIZE));
	cr_assert_eq(filemap_read(&b.mapping, 5 * PAGE_SIZE, buf, 1), -EIO);
	cr_assert_eq(filemap_read(&b.mapping, 6 * PAGE_SIZE, buf, PAGE_SIZE), PAGE_SIZE);
	done();
}

Test(filemap, write_beyond_the_size_raises_it)
{
	setup(12, 0, 0);
	cr_assert_eq(filemap_write(&b.mapping, 10000, "abc", 3), 3);
	cr_assert_eq(mapping_size(&b.mapping), 10003);
	cr_assert_eq(filemap_read(&b.mapping, 0, buf, ROOM), 10003);
	cr_assert(!buf[9999] && buf[10000] == 'a' && !buf[0]);
	done();
}

struct partial {
	unsigned int shift;
	size_t pos, len;
	unsigned int reads, blocks; /* calls of read_folios; blocks written back */
};

static struct partial partials[] = {
	{12, 0, 4096, 0, 1},	{12, 0, 4095, 1, 1},	 {12, 1, 4095, 1, 1},
	{12, 4095, 2, 2, 2},	{12, 8192, 12288, 0, 3}, {11, 0, 2048, 0, 1},
	{11, 2048, 4096, 0, 2}, {11, 100, 100, 1, 1},	 {10, 1024, 1024, 0, 1},
	{10, 1024, 2048, 0, 2}, {10, 1000, 2048, 1, 3},	 {10, 3072, 2048, 0, 2},
	{10, 5, 4096, 2, 5},
};

ParameterizedTestParameters(filemap, partial_writes)
{
	return cr_make_param_array(struct partial, partials, sizeof(partials) / sizeof(*partials));
}

/* Blocks written whole are not read, those cut are; only dirty blocks are written back. */
ParameterizedTest(struct partial *p, filemap, partial_writes)
{
	unsigned char *expect = malloc(ROOM);

	setup(p->shift, ROOM, 3);
	memcpy(expect, b.data, ROOM);
	memset(buf, 'x', p->len);
	memset(expect + p->pos, 'x', p->len);
	cr_assert_eq(filemap_write(&b.mapping, p->pos, buf, p->len), p->len);
	cr_assert_eq(b.read_calls, p->reads);
	cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
	cr_assert_eq(b.write_blocks, p->blocks);
	cr_assert(!memcmp(b.data, expect, ROOM));
	cr_assert_eq(filemap_read(&b.mapping, 0, buf, ROOM), ROOM);
	cr_assert(!memcmp(buf, expect, ROOM));
	free(expect);
	done();
}

Test(filemap, dirty_blocks_survive_the_reading_of_their_folio)
{
	setup(10, ROOM, 3);
	memset(buf, 'x', 1024);
	cr_assert_eq(filemap_write(&b.mapping, 1024, buf, 1024), 1024);
	cr_assert_eq(filemap_read(&b.mapping, 0, buf, 4096), 4096);
	cr_assert(!memcmp(buf, b.data, 1024));
	cr_assert(buf[1024] == 'x' && buf[2047] == 'x');
	cr_assert(!memcmp(buf + 2048, b.data + 2048, 2048));
	done();
}

Test(filemap, write_in_a_new_block_does_not_read)
{
	setup(12, 0, 0);
	cr_assert_eq(filemap_write(&b.mapping, 100, "abc", 3), 3);
	cr_assert_eq(b.read_calls, 0);
	cr_assert_eq(filemap_read(&b.mapping, 0, buf, 103), 103);
	cr_assert(!buf[0] && !buf[99] && buf[100] == 'a');
	done();
}

Test(filemap, write_fails_when_what_a_block_misses_cannot_be_read)
{
	setup(12, ROOM, 3);
	b.bad_read = 3 * PAGE_SIZE;
	memset(buf, 'x', ROOM);
	cr_assert_eq(filemap_write(&b.mapping, 3 * PAGE_SIZE + 1, buf, 10), -EIO);
	cr_assert_eq(filemap_write(&b.mapping, PAGE_SIZE, buf, 2 * PAGE_SIZE + 10), 2 * PAGE_SIZE);
	cr_assert_eq(b.mapping.nrdirty, 2);
	done();
}

Test(filemap, a_full_backing_takes_what_it_has_room_for)
{
	setup(10, 0, 0);
	b.space = 6;
	memset(buf, 'x', ROOM);
	cr_assert_eq(filemap_write(&b.mapping, 0, buf, 10000), 6 * 1024);
	cr_assert_eq(mapping_size(&b.mapping), 6 * 1024);
	cr_assert_eq(filemap_write(&b.mapping, 6 * 1024, buf, 1), -ENOSPC);
	/* What has been reserved can be written, and rewritten. */
	cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
	cr_assert_eq(filemap_write(&b.mapping, 0, buf, 6 * 1024), 6 * 1024);
	cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
	cr_assert_eq(b.space, 0);
	done();
}

Test(filemap, grab_creates_a_folio_without_content)
{
	struct folio *folio;
	int err = 0;

	setup(12, ROOM, 3);
	folio = filemap_grab_folio(&b.mapping, 2, &err);
	cr_assert(folio && !err && !folio_any_valid(folio) && !folio_trylock(folio));
	cr_assert_eq(folio_pos(folio), 2 * PAGE_SIZE);
	folio_unlock(folio);
	folio_put(folio);
	cr_assert_eq(filemap_grab_folio(&b.mapping, 2, &err), folio);
	folio_unlock(folio);
	folio_put(folio);
	done();
}

Test(filemap, an_index_is_added_once)
{
	struct folio *folio, *other;

	setup(12, ROOM, 3);
	folio = folio_alloc(cache, MAPPING_FILE, 0, 0, true);
	other = folio_alloc(cache, MAPPING_FILE, 0, 0, true);
	cr_assert_eq(filemap_add_folio(&b.mapping, folio, 7, false), 0);
	cr_assert_eq(filemap_add_folio(&b.mapping, other, 7, false), -EEXIST);
	cr_assert_eq(b.mapping.nrpages, 1);
	folio_unlock(folio);
	folio_put(folio);
	folio_put(other);
	done();
}

Test(filemap, folios_at_both_ends_of_the_index_space)
{
	setup(12, 0, 0);
	mapping_set_size(&b.mapping, LLONG_MAX);
	b.bad_read = (LLONG_MAX >> PAGE_SHIFT) << PAGE_SHIFT;
	cr_assert_eq(filemap_read(&b.mapping, LLONG_MAX - 10, buf, 100), -EIO);
	done();
}
