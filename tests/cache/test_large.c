/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Folios of more than one page: one behaviour a test. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdlib.h>
#include "backing.h"
#include "node_alloc.h"

#define ROOM (8UL << 20)
#define NR 8 /* pages of most folios here */

static struct cache *cache;
static struct backing b;
static unsigned char buf[ROOM], expect[ROOM];

/* The pool of the XArray's nodes, to make it fail. */
extern struct node_pool xa_node_pool;

static void setup(unsigned int shift, size_t size, unsigned int seed)
{
	cache = test_cache(128UL << 20, 0);
	backing_init(&b, cache, MAPPING_FILE, shift, ROOM, size, seed);
	memcpy(expect, b.data, ROOM);
}

static void done(void)
{
	mapping_check(&b.mapping);
	backing_finish(&b);
	cache_destroy(cache);
}

static struct cache_stats stats(void)
{
	struct cache_stats stats;

	cache_get_stats(cache, &stats);
	return stats;
}

static bool reads_as_expected(void)
{
	loff_t size = mapping_size(&b.mapping);

	return filemap_read(&b.mapping, 0, buf, ROOM) == size && !memcmp(buf, expect, size);
}

/* A folio of this order at the index, with the backing's bytes; not locked or referenced. */
static struct folio *add(pgoff_t index, unsigned int order)
{
	struct folio *folio = folio_alloc(cache, MAPPING_FILE, order, order, true);

	cr_assert_eq(filemap_add_folio(&b.mapping, folio, index, false), 0);
	cr_assert_eq(filemap_read_run(&b.mapping, &folio, 1), 0);
	folio_unlock(folio);
	folio_put(folio);
	return folio;
}

static bool evict(pgoff_t index)
{
	struct folio *folio = filemap_get_folio(&b.mapping, index);

	return folio && evict_folio(folio);
}

static void *entry_at(pgoff_t index)
{
	return xa_load(&b.mapping.i_pages, index);
}

Test(large, a_read_makes_folios_as_large_as_it_is_long)
{
	struct folio_batch batch;

	setup(12, ROOM, 1);
	cr_assert_eq(filemap_get_pages(&b.mapping, 0, 2UL << 20, &batch), 0);
	cr_assert_eq(batch.nr, 1);
	cr_assert_eq(batch.folios[0]->order, 9);
	folio_batch_release(&batch);
	cr_assert_eq(filemap_get_pages(&b.mapping, 3UL << 20, 12 * PAGE_SIZE, &batch), 0);
	cr_assert_eq(batch.nr, 2);
	cr_assert(batch.folios[0]->order == 3 && batch.folios[1]->order == 2);
	folio_batch_release(&batch);
	cr_assert(reads_as_expected());
	done();
}

Test(large, an_unaligned_read_begins_small)
{
	struct folio_batch batch;

	setup(12, ROOM, 1);
	cr_assert_eq(filemap_get_pages(&b.mapping, PAGE_SIZE, 7 * PAGE_SIZE, &batch), 0);
	cr_assert_eq(batch.nr, 3);
	cr_assert(!batch.folios[0]->order && batch.folios[1]->order == 1);
	folio_batch_release(&batch);
	done();
}

Test(large, every_page_finds_its_folio)
{
	struct folio *folio, *found;
	pgoff_t i;

	setup(12, ROOM, 1);
	folio = add(512, 9);
	for (i = 512; i < 1024; i++) {
		found = filemap_get_folio(&b.mapping, i);
		cr_assert_eq(found, folio);
		folio_put(found);
	}
	cr_assert_null(filemap_get_folio(&b.mapping, 511));
	cr_assert_null(filemap_get_folio(&b.mapping, 1024));
	cr_assert_eq(b.mapping.nrpages, 512);
	done();
}

Test(large, a_batch_goes_over_folios_of_all_orders)
{
	struct folio_batch batch;
	unsigned int i;

	setup(12, ROOM, 1);
	for (i = 0; i <= MAX_FOLIO_ORDER; i++)
		add(1UL << i, i);
	cr_assert_eq(filemap_get_pages(&b.mapping, PAGE_SIZE, 1023 * PAGE_SIZE, &batch), 0);
	cr_assert_eq(batch.nr, 10);
	for (i = 0; i < batch.nr; i++)
		cr_assert_eq(batch.folios[i]->order, i);
	folio_batch_release(&batch);
	/* It begins within a folio, and ends within one. */
	cr_assert_eq(filemap_get_pages(&b.mapping, 5 * PAGE_SIZE, 20 * PAGE_SIZE, &batch), 0);
	cr_assert_eq(batch.nr, 3);
	cr_assert_eq(batch.folios[0]->index, 4);
	folio_batch_release(&batch);
	done();
}

Test(large, taken_ranges_are_refused)
{
	struct folio *folio;

	setup(12, ROOM, 1);
	add(13, 0);
	folio = folio_alloc(cache, MAPPING_FILE, 3, 3, true);
	cr_assert_eq(filemap_add_folio(&b.mapping, folio, 8, false), -EEXIST);
	cr_assert_null(folio->mapping);
	cr_assert_eq(filemap_add_folio(&b.mapping, folio, 16, false), 0);
	folio_unlock(folio);
	folio_put(folio);
	folio = folio_alloc(cache, MAPPING_FILE, 0, 0, true);
	cr_assert_eq(filemap_add_folio(&b.mapping, folio, 20, false), -EEXIST);
	folio_put(folio);
	cr_assert_eq(b.mapping.nrpages, 9);
	done();
}

Test(large, what_is_behind_the_index_makes_a_new_folio_smaller)
{
	struct folio_batch batch;

	setup(12, ROOM, 1);
	add(5, 0);
	cr_assert_eq(filemap_get_pages(&b.mapping, 0, NR * PAGE_SIZE, &batch), 0);
	cr_assert_geq(batch.nr, 1);
	cr_assert_eq(batch.folios[0]->order, 2);
	folio_batch_release(&batch);
	cr_assert(reads_as_expected());
	done();
}

/* Seed 000: how often the tree is walked. */
Test(add, one_walk)
{
	uint64_t walks;

	setup(12, ROOM, 1);
	add(100, 0); /* makes the nodes */
	add(0, 2);
	walks = stats().add_walks;
	add(101, 0);
	add(104, 3);
	cr_assert_eq(stats().add_walks, walks + 2);
	/* ... also where shadows are, if none is larger */
	cr_assert(evict(101) && evict(104));
	cr_assert(xa_is_value(entry_at(101)) && xa_is_value(entry_at(111)));
	add(101, 0);
	add(104, 3);
	cr_assert_eq(stats().add_walks, walks + 4);
	cr_assert_eq(stats().shadow_splits, 0);
	done();
}

Test(add, a_larger_shadow_is_split_in_three_walks)
{
	uint64_t walks;
	pgoff_t i;

	setup(12, ROOM, 1);
	add(512, 9);
	cr_assert(evict(700));
	cr_assert(xa_is_value(entry_at(600)));
	walks = stats().add_walks;
	add(700, 0);
	cr_assert_eq(stats().add_walks, walks + 3);
	cr_assert_eq(stats().shadow_splits, 1);
	/* The others are shadows still, those nearby of one page each. */
	for (i = 512; i < 1024; i++)
		cr_assert_eq(xa_is_value(entry_at(i)), i != 700);
	add(701, 0);
	cr_assert_eq(stats().add_walks, walks + 4);
	cr_assert_eq(stats().shadow_splits, 1);
	cr_assert_eq(xa_get_order(&b.mapping.i_pages, 702), 0);
	cr_assert_eq(xa_get_order(&b.mapping.i_pages, 600), XA_CHUNK_SHIFT);
	cr_assert(reads_as_expected());
	done();
}

Test(add, a_larger_folio_replaces_smaller_shadows)
{
	setup(12, ROOM, 1);
	add(512, 3);
	add(520, 0);
	cr_assert(evict(512) && evict(520));
	add(512, 9);
	cr_assert_eq(stats().shadow_splits, 0);
	cr_assert_eq(b.mapping.nrpages, 512);
	cr_assert(reads_as_expected());
	done();
}

static unsigned int lower[] = {0, 1, 3, 5, 6, 7, 8};

ParameterizedTestParameters(add, splits_to_any_order)
{
	return cr_make_param_array(unsigned int, lower, sizeof(lower) / sizeof(*lower));
}

ParameterizedTest(unsigned int *order, add, splits_to_any_order)
{
	pgoff_t at = 512 + (300UL >> *order << *order), i;

	setup(12, ROOM, 1);
	add(512, 9);
	cr_assert(evict(512));
	add(at, *order);
	for (i = 512; i < 1024; i++)
		cr_assert_eq(xa_is_value(entry_at(i)), i < at || i >= at + (1UL << *order));
	done();
}

/* Whichever allocation fails, nothing has changed, and nothing is left over. */
Test(add, stops_at_the_first_allocation_that_fails)
{
	struct folio *folio;
	int n, err = -ENOMEM;

	setup(12, ROOM, 1);
	add(512, 9);
	cr_assert(evict(512));
	for (n = 1; err; n++) {
		folio = folio_alloc(cache, MAPPING_FILE, 0, 0, true);
		node_pool_fail(&xa_node_pool, n, 1);
		err = filemap_add_folio(&b.mapping, folio, 700, false);
		node_pool_fail(&xa_node_pool, 0, 0);
		if (err) {
			cr_assert_eq(err, -ENOMEM);
			cr_assert(!folio->mapping && folio->refcount == 1);
			cr_assert(xa_is_value(entry_at(700)) && xa_is_value(entry_at(1023)));
			cr_assert_eq(b.mapping.nrpages, 0);
		} else {
			folio_unlock(folio);
		}
		folio_put(folio);
	}
	cr_assert_eq(n, 3); /* the one node that the slot of the page becomes */
	done();
}

Test(write, makes_folios_as_large_as_it_is_long)
{
	struct folio *folio;

	setup(12, 0, 0);
	memset(buf, 'x', ROOM);
	memset(expect, 'x', ROOM);
	cr_assert_eq(filemap_write(&b.mapping, 0, buf, 4UL << 20), 4UL << 20);
	folio = filemap_get_folio(&b.mapping, 1000);
	cr_assert(folio && folio->order == 9);
	cr_assert_eq(folio_nr_dirty(folio), 512);
	folio_put(folio);
	cr_assert_eq(stats().dirty_bytes, 4UL << 20);
	cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
	cr_assert_eq(stats().dirty_bytes, 0);
	cr_assert(!memcmp(b.data, expect, 4UL << 20));
	done();
}

Test(write, a_page_of_a_large_folio_is_written_alone)
{
	setup(12, ROOM, 1);
	add(512, 9);
	memset(buf, 'x', PAGE_SIZE);
	memset(expect + 700 * PAGE_SIZE, 'x', PAGE_SIZE);
	cr_assert_eq(filemap_write(&b.mapping, 700 * PAGE_SIZE, buf, PAGE_SIZE), PAGE_SIZE);
	cr_assert_eq(stats().dirty_bytes, PAGE_SIZE);
	mapping_check(&b.mapping);
	cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
	cr_assert_eq(b.write_blocks, 1);
	cr_assert(!memcmp(b.data, expect, ROOM));
	done();
}

Test(write, failed_blocks_of_a_large_folio_are_dirty_again)
{
	setup(12, ROOM, 1);
	add(512, 9);
	memset(buf, 'x', 3 * PAGE_SIZE);
	cr_assert_eq(filemap_write(&b.mapping, 700 * PAGE_SIZE, buf, 3 * PAGE_SIZE), 3 * PAGE_SIZE);
	b.fail_writes = 1;
	cr_assert_eq(filemap_write_and_wait(&b.mapping), -EIO);
	cr_assert_eq(stats().dirty_bytes, 3 * PAGE_SIZE);
	cr_assert_eq(b.mapping.nrdirty, 1);
	mapping_check(&b.mapping);
	cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
	cr_assert_eq(b.write_blocks, 6);
	done();
}

Test(read, only_what_is_bad_of_a_large_folio_fails)
{
	setup(12, ROOM, 1);
	b.bad_read = 700 * PAGE_SIZE + 5;
	cr_assert_eq(filemap_read(&b.mapping, 512 * PAGE_SIZE, buf, 512 * PAGE_SIZE),
		     (700 - 512) * PAGE_SIZE);
	cr_assert_eq(filemap_read(&b.mapping, 700 * PAGE_SIZE, buf, 1), -EIO);
	cr_assert_eq(filemap_read(&b.mapping, 701 * PAGE_SIZE, buf, 300 * PAGE_SIZE), 300 * PAGE_SIZE);
	b.bad_read = NEVER;
	cr_assert(reads_as_expected());
	done();
}

static unsigned int shifts[] = {10, 12, 13, 16};

ParameterizedTestParameters(truncate, cuts_a_large_folio)
{
	return cr_make_param_array(unsigned int, shifts, sizeof(shifts) / sizeof(*shifts));
}

/* What is cut off goes, what stays stays, wherever the cut is, dirty or clean. */
ParameterizedTest(unsigned int *shift, truncate, cuts_a_large_folio)
{
	static const loff_t sizes[] = {4194304, 3145728, 3145727, 2700001, 2101248, 2097152};
	unsigned int i, dirty;
	loff_t unit = *shift > 12 ? 1 << *shift : PAGE_SIZE;

	for (dirty = 0; dirty < 2; dirty++) {
		setup(*shift, ROOM, 1);
		for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
			if (dirty) {
				memset(buf, 'a' + i, 512 * PAGE_SIZE);
				memset(expect + 512 * PAGE_SIZE, 'a' + i, 512 * PAGE_SIZE);
				cr_assert_eq(filemap_write(&b.mapping, 512 * PAGE_SIZE, buf,
							   512 * PAGE_SIZE), 512 * PAGE_SIZE);
			} else if (!i) {
				add(512, 9);
			}
			cr_assert_eq(backing_setsize(&b, sizes[i]), 0);
			mapping_check(&b.mapping);
			cr_assert_leq(b.mapping.nrpages * PAGE_SIZE, sizes[i] + unit - 1);
			memset(expect + sizes[i], 0, ROOM - sizes[i]);
			cr_assert_eq(backing_setsize(&b, ROOM), 0);
			cr_assert(reads_as_expected(), "to %ld", (long)sizes[i]);
			cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
			truncate_all(&b.mapping);
			cr_assert(reads_as_expected(), "to %ld, from the backing", (long)sizes[i]);
		}
		done();
	}
}

Test(truncate, a_hole_in_a_large_folio)
{
	setup(12, ROOM, 1);
	add(512, 9);
	cr_assert_eq(backing_punch(&b, 600 * PAGE_SIZE + 100, 610 * PAGE_SIZE + 200), 0);
	memset(expect + 600 * PAGE_SIZE + 100, 0, 10 * PAGE_SIZE + 100);
	mapping_check(&b.mapping);
	cr_assert_eq(b.mapping.nrpages, 512 - 9);
	cr_assert_eq(stats().folio_splits, 1);
	cr_assert(reads_as_expected());
	cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
	truncate_all(&b.mapping);
	cr_assert(reads_as_expected());
	done();
}

Test(truncate, a_folio_that_is_read_stays_whole)
{
	struct folio_batch batch;

	setup(12, ROOM, 1);
	add(512, 9);
	cr_assert_eq(filemap_get_pages(&b.mapping, 512 * PAGE_SIZE, PAGE_SIZE, &batch), 0);
	cr_assert_eq(backing_setsize(&b, 600 * PAGE_SIZE), 0);
	cr_assert_eq(b.mapping.nrpages, 512);
	memset(expect + 600 * PAGE_SIZE, 0, ROOM - 600 * PAGE_SIZE);
	cr_assert_eq(backing_setsize(&b, ROOM), 0);
	cr_assert(reads_as_expected());
	folio_batch_release(&batch);
	done();
}

Test(truncate, without_memory_for_a_split_it_is_zeroed)
{
	setup(12, ROOM, 1);
	add(512, 9);
	node_pool_fail(&xa_node_pool, 0, 1);
	cr_assert_eq(backing_setsize(&b, 600 * PAGE_SIZE), 0);
	node_pool_fail(&xa_node_pool, 0, 0);
	cr_assert_eq(b.mapping.nrpages, 512);
	memset(expect + 600 * PAGE_SIZE, 0, ROOM - 600 * PAGE_SIZE);
	cr_assert_eq(backing_setsize(&b, ROOM), 0);
	cr_assert(reads_as_expected());
	done();
}

ParameterizedTestParameters(split, to_any_order)
{
	return cr_make_param_array(unsigned int, lower, sizeof(lower) / sizeof(*lower));
}

/* Each part has its bytes, its dirt, its marks. */
ParameterizedTest(unsigned int *order, split, to_any_order)
{
	struct folio *folio;
	int err;

	setup(10, ROOM, 1);
	add(512, 9);
	memset(buf, 'x', 1024);
	memset(expect + 700 * PAGE_SIZE + 1024, 'x', 1024);
	memset(expect + 513 * PAGE_SIZE, 'x', 1024);
	filemap_write(&b.mapping, 700 * PAGE_SIZE + 1024, buf, 1024);
	filemap_write(&b.mapping, 513 * PAGE_SIZE, buf, 1024);
	folio = filemap_grab_folio(&b.mapping, 512, &err);
	cr_assert_eq(folio_split(folio, *order), 0);
	cr_assert(folio->order == *order && folio->index == 512 && folio->refcount == 2);
	folio_unlock(folio);
	folio_put(folio);
	mapping_check(&b.mapping);
	cache_check(cache);
	cr_assert_eq(b.mapping.nrdirty, *order == 8 ? 1 : 2);
	cr_assert_eq(stats().dirty_bytes, 2 * PAGE_SIZE);
	cr_assert(reads_as_expected());
	cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
	cr_assert_eq(b.write_blocks, 2);
	done();
}

Test(split, needs_to_be_alone)
{
	struct folio *folio, *other;
	int err;

	setup(12, ROOM, 1);
	add(512, 9);
	other = filemap_get_folio(&b.mapping, 800);
	folio = filemap_grab_folio(&b.mapping, 512, &err);
	cr_assert_eq(folio_split(folio, 0), -EBUSY);
	cr_assert_eq(folio->order, 9);
	folio_put(other);
	cr_assert_eq(folio_split(folio, 0), 0);
	folio_unlock(folio);
	folio_put(folio);
	done();
}

Test(invalidate, a_part_of_a_large_folio)
{
	setup(12, ROOM, 1);
	add(512, 9);
	memset(b.data + 600 * PAGE_SIZE, 'n', 8 * PAGE_SIZE);
	memset(expect + 600 * PAGE_SIZE, 'n', 8 * PAGE_SIZE);
	invalidate_blocks(&b.mapping, 600 * PAGE_SIZE, 608 * PAGE_SIZE);
	mapping_check(&b.mapping);
	cr_assert(reads_as_expected());
	invalidate_blocks(&b.mapping, 512 * PAGE_SIZE, 1024 * PAGE_SIZE);
	cr_assert_null(filemap_get_folio(&b.mapping, 600));
	done();
}

ParameterizedTestParameters(blocks, larger_than_a_page)
{
	static unsigned int large[] = {13, 14, 15, 16};

	return cr_make_param_array(unsigned int, large, 4);
}

/* No folio is smaller than a block, and no block is ever known, or written, in part. */
ParameterizedTest(unsigned int *shift, blocks, larger_than_a_page)
{
	size_t bs = 1UL << *shift;
	struct folio *folio;
	int err;

	setup(*shift, 1000000, 1);
	folio = filemap_grab_folio(&b.mapping, 21, &err);
	cr_assert(folio && folio->order == *shift - 12);
	cr_assert_eq(folio->index, 21UL >> folio->order << folio->order);
	folio_unlock(folio);
	folio_put(folio);
	memset(buf, 'x', 100);
	memset(expect + 300000, 'x', 100);
	cr_assert_eq(filemap_write(&b.mapping, 300000, buf, 100), 100);
	cr_assert_eq(stats().dirty_bytes, bs);
	cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
	cr_assert_eq(b.write_blocks, 1);
	cr_assert(reads_as_expected());
	cr_assert_eq(backing_punch(&b, 100000, 400000), 0);
	memset(expect + 100000, 0, 300000);
	cr_assert(reads_as_expected());
	cr_assert_eq(backing_setsize(&b, 50001), 0);
	memset(expect + 50001, 0, ROOM - 50001);
	cr_assert_eq(backing_setsize(&b, 200000), 0);
	cr_assert(reads_as_expected());
	cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
	truncate_all(&b.mapping);
	cr_assert(reads_as_expected());
	done();
}
