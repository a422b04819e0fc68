/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Large blocks of frames where memory is full of small folios: one behaviour a test. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include "backing.h"

#define CACHE_BYTES (16UL << 20)
#define ROOM (32UL << 20)
#define PAGES (ROOM / PAGE_SIZE)
#define ORDER 6

static struct cache *cache;
static struct backing b;
static unsigned char buf[PAGE_SIZE << ORDER];

/* Fills the cache with folios of one page, which are old and young in no order. */
static void setup(void)
{
	uint64_t state = 7;
	pgoff_t i;

	cache = test_cache(CACHE_BYTES, 0);
	backing_init(&b, cache, MAPPING_FILE, 12, ROOM, ROOM, 1);
	for (i = 0; i < 2 * PAGES; i++)
		filemap_read(&b.mapping, rnd(&state) % PAGES * PAGE_SIZE, buf, PAGE_SIZE);
	for (i = 0; i < 4 * PAGES; i++) {
		struct folio *folio = filemap_get_folio(&b.mapping, rnd(&state) % PAGES);

		if (!folio)
			continue;
		cr_assert(lru_isolate(folio));
		lru_add(folio, NULL);
		folio_put(folio);
	}
}

static void done(void)
{
	struct cache_stats stats;

	cache_get_stats(cache, &stats);
	cr_assert_leq(stats.used_bytes, stats.bound_bytes);
	mapping_check(&b.mapping);
	cache_check(cache);
	backing_finish(&b);
	cache_destroy(cache);
}

static struct cache_stats stats(void)
{
	struct cache_stats stats;

	cache_get_stats(cache, &stats);
	return stats;
}

static void make_all(bool active)
{
	struct folio *folio;
	unsigned long index;

	xa_for_each(&b.mapping.i_pages, index, folio) {
		if (xa_is_value(folio))
			continue;
		cr_assert(lru_isolate(folio));
		if (active)
			folio_set_flags(folio, FOLIO_ACTIVE);
		else
			folio_clear_flags(folio, FOLIO_ACTIVE);
		lru_add(folio, NULL);
	}
}

/*
 * The first ones come from what is kept free for the device. Now and then the hand meets only blocks
 * that are in use, and then the next attempt is left out as well.
 */
Test(compact, large_blocks_are_made_by_eviction)
{
	struct folio *folios[20];
	int i, large = 0;

	setup();
	make_all(false);
	for (i = 0; i < 20; i++) {
		folios[i] = folio_alloc(cache, MAPPING_FILE, ORDER, 0, false);
		cr_assert(folios[i]);
		large += folios[i]->order == ORDER;
	}
	cr_assert_geq(large, 15, "%d", large);
	cr_assert_geq(stats().compactions, 10, "%lu", (unsigned long)stats().compactions);
	for (i = 0; i < 20; i++)
		folio_put(folios[i]);
	done();
}

Test(compact, active_folios_are_spared_and_less_is_given)
{
	struct folio *folio;

	setup();
	make_all(true);
	cr_assert(!arena_compact(cache, ORDER, false));
	cr_assert_eq(stats().compactions, 0);
	folio = folio_alloc(cache, MAPPING_FILE, ORDER, 0, false);
	cr_assert(folio && folio->order <= ORDER);
	folio_put(folio);
	done();
}

Test(compact, failures_make_it_rare)
{
	unsigned long hand;
	int i;

	setup();
	make_all(true);
	for (i = 0; i < 1000; i++)
		arena_compact(cache, ORDER, false);
	hand = cache->compact_hand;
	cr_assert_lt(hand, 200, "%lu", hand);
	/* A success makes it usual again. */
	make_all(false);
	for (i = 0; i < 100 && !arena_compact(cache, ORDER, false); i++)
		;
	cr_assert_lt(i, 100);
	cr_assert_eq(cache->compact_wait, 0);
	done();
}

/* A folio in each block that is not free is held: none of them may go, and none does. */
Test(compact, what_is_held_stays)
{
	struct folio *held[PAGES], *folio;
	unsigned long nr = 0, i, pfn;

	setup();
	make_all(false);
	for (pfn = 0; pfn < cache->nr_frames; pfn += 1UL << ORDER)
		for (i = pfn; i < pfn + (1UL << ORDER); i++)
			if (folio_try_get(&cache->frames[i])) {
				held[nr++] = &cache->frames[i];
				break;
			}
	cr_assert_gt(nr, 32);
	/* What is free is taken. */
	while ((folio = arena_alloc(cache, MAPPING_DEVICE, ORDER)))
		held[nr++] = folio;
	for (i = 0; i < 100; i++)
		cr_assert(!arena_compact(cache, ORDER, i % 2));
	folio = folio_alloc(cache, MAPPING_FILE, ORDER, 0, false);
	cr_assert(folio && folio->order < ORDER);
	folio_put(folio);
	for (i = 0; i < nr; i++) {
		cr_assert(held[i]->order || held[i]->mapping == &b.mapping);
		folio_put(held[i]);
	}
	done();
}

/* Large blocks of a mapping are had although all is small, active, and partly dirty. */
Test(compact, a_smallest_order_is_always_had)
{
	static unsigned char data[1 << 20];
	struct backing big;
	pgoff_t i;

	setup();
	make_all(true);
	memset(buf, 'x', PAGE_SIZE);
	for (i = 0; i < PAGES; i += 37)
		cr_assert_eq(filemap_write(&b.mapping, i * PAGE_SIZE, buf, PAGE_SIZE), PAGE_SIZE);
	backing_init(&big, cache, MAPPING_FILE, 16, sizeof(data), sizeof(data), 2);
	cr_assert_eq(filemap_read(&big.mapping, 0, data, sizeof(data)), sizeof(data));
	cr_assert(!memcmp(data, big.data, sizeof(data)));
	backing_finish(&big);
	cr_assert_eq(filemap_write_and_wait(&b.mapping), 0);
	done();
}
