/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Shadows, refaults and the nodes that hold shadows only: one behaviour a test. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdlib.h>
#include "backing.h"

#define MIB (1UL << 20)
#define ROOM (32 * MIB)
#define FRAMES (MIB >> PAGE_SHIFT)
#define CLOCK_MASK (ULONG_MAX >> 2)

static struct cache *cache;
static struct backing b;
static struct lru *lru;
static unsigned char buf[MIB];

static void setup(size_t size)
{
	cache = test_cache(MIB, 0);
	backing_init(&b, cache, MAPPING_FILE, 12, ROOM, size, 0);
	lru = &cache->lru[MAPPING_FILE];
}

static void done(void)
{
	backing_finish(&b);
	cr_assert_eq(cache->shadows.nr, 0);
	cache_destroy(cache);
}

static struct cache_stats stats_of(void)
{
	struct cache_stats stats;

	cache_get_stats(cache, &stats);
	return stats;
}

static void read_page(pgoff_t index)
{
	b.mapping.last_read = -1UL; /* each read is an access of its own */
	cr_assert_eq(filemap_read(&b.mapping, index << PAGE_SHIFT, buf, 1), 1);
}

/* Reads pages that nobody has read, until what is inactive has been evicted. */
static void scan(pgoff_t from, unsigned long nr)
{
	pgoff_t index;

	for (index = from; index < from + nr; index++)
		read_page(index);
}

static void *entry_at(pgoff_t index)
{
	return xa_load(&b.mapping.i_pages, index);
}

static bool has_flag(pgoff_t index, unsigned int flag)
{
	struct folio *folio = entry_at(index);

	cr_assert(folio && !xa_is_value(folio));
	return folio_flags(folio) & flag;
}

static unsigned long clock_in(void *shadow)
{
	return xa_to_value(shadow) >> 1;
}

Test(workingset, an_eviction_leaves_a_shadow)
{
	setup(ROOM);
	read_page(0);
	scan(1000, FRAMES);
	cr_assert(xa_is_value(entry_at(0)));
	cr_assert_eq(backing_shadows(&b), stats_of().evictions);
	mapping_check(&b.mapping);
	done();
}

Test(workingset, a_folio_read_again_takes_the_place_of_its_shadow)
{
	setup(ROOM);
	read_page(0);
	scan(1000, FRAMES);
	read_page(0);
	cr_assert(!xa_is_value(entry_at(0)));
	cr_assert_eq(stats_of().refaults, 1);
	done();
}

/* Every eviction and every activation is one tick for each page. */
Test(workingset, the_clock_counts_what_moves_down_the_inactive_list)
{
	struct cache_stats stats;

	setup(ROOM);
	scan(0, 300);
	scan(200, 100);
	scan(250, 50);
	scan(0, 10);
	stats = stats_of();
	cr_assert(stats.evictions && stats.activations);
	cr_assert_eq(lru->clock,
		     stats.evictions + stats.activations + stats.refault_activations);
	done();
}

struct distance {
	unsigned long clock, distance; /* of the clock at the refault */
	unsigned long active;
	bool activates;
};

static struct distance distances[] = {
	{1000, 0, 0, true},	   {1000, 1, 0, false},	       {1000, 10, 10, true},
	{1000, 11, 10, false},	   {1000, 9, 10, true},	       {5, 10, 10, true},
	{5, 11, 10, false},	   {0, CLOCK_MASK, 10, false}, {CLOCK_MASK + 3, 10, 10, true},
	{CLOCK_MASK, 10, 9, false},
};

ParameterizedTestParameters(workingset, refault_distance)
{
	return cr_make_param_array(struct distance, distances,
				   sizeof(distances) / sizeof(*distances));
}

/* A folio is activated when it was gone for no longer than the active list is long. */
ParameterizedTest(struct distance *d, workingset, refault_distance)
{
	struct folio *folio;
	void *shadow;

	setup(ROOM);
	scan(0, d->active);
	scan(0, d->active);
	cr_assert_eq(lru->nr[LRU_ACTIVE], d->active);
	folio = arena_alloc(cache, MAPPING_FILE, 0);
	lru->clock = d->clock;
	shadow = xa_mk_value(((d->clock - d->distance) & CLOCK_MASK) << 1);
	workingset_refault(folio, shadow);
	cr_assert_eq(!!(folio_flags(folio) & FOLIO_ACTIVE), d->activates);
	cr_assert_eq(lru->clock, d->clock + d->activates);
	cr_assert(!(folio_flags(folio) & FOLIO_WORKINGSET));
	folio_put(folio);
	done();
}

Test(workingset, what_was_active_says_so_in_its_shadow_and_after_the_refault)
{
	setup(ROOM);
	scan(0, 20);
	scan(0, 20);
	cr_assert(has_flag(0, FOLIO_ACTIVE) && !has_flag(0, FOLIO_WORKINGSET));
	/* Others become active and push the first ones down, out of both lists. */
	scan(1000, 200);
	scan(1000, 200);
	scan(2000, FRAMES);
	scan(2100, 100);
	scan(3000, 3 * FRAMES);
	cr_assert(xa_is_value(entry_at(0)) && (xa_to_value(entry_at(0)) & 1));
	lru->clock = clock_in(entry_at(0));
	read_page(0);
	cr_assert(has_flag(0, FOLIO_ACTIVE) && has_flag(0, FOLIO_WORKINGSET));
	done();
}

Test(workingset, a_folio_that_is_written_is_not_compared)
{
	setup(ROOM);
	read_page(0);
	scan(1000, FRAMES);
	cr_assert_eq(filemap_write(&b.mapping, 0, buf, PAGE_SIZE), PAGE_SIZE);
	cr_assert_eq(stats_of().refaults, 0);
	cr_assert(!has_flag(0, FOLIO_ACTIVE));
	done();
}

/* What is evicted and comes back says which list was too short. */
Test(workingset, a_refault_moves_the_border_towards_its_list)
{
	struct folio *folio;

	setup(ROOM);
	scan(0, 40);
	folio = arena_alloc(cache, MAPPING_FILE, 0);
	lru->clock = 1000;
	workingset_refault(folio, xa_mk_value(990 << 1));
	cr_assert_eq(lru->lean, 1);
	workingset_refault(folio, xa_mk_value(990 << 1 | 1));
	workingset_refault(folio, xa_mk_value(990 << 1 | 1));
	cr_assert_eq(lru->lean, -1);
	/* The rarer kind says more. */
	lru->evicted[0] = 1000;
	lru->evicted[1] = 99;
	workingset_refault(folio, xa_mk_value(990 << 1 | 1));
	cr_assert_eq(lru->lean, -11);
	/* One that was gone too long would not have been kept by either. */
	workingset_refault(folio, xa_mk_value(500 << 1 | 1));
	cr_assert_eq(lru->lean, -11);
	cr_assert_eq(workingset_lean(lru, 5), -5);
	cr_assert_eq(lru->lean, -5);
	folio_put(folio);
	done();
}

/* Some of a loop that the lists are a little too short for stays, instead of none. */
Test(workingset, a_part_of_a_loop_longer_than_the_cache_is_kept)
{
	unsigned long hits, reads, loop = FRAMES + FRAMES / 2;
	unsigned int round;

	setup(ROOM);
	for (round = 0; round < 40; round++)
		scan(0, loop);
	hits = stats_of().hits;
	reads = 10 * loop;
	for (round = 0; round < 10; round++)
		scan(0, loop);
	hits = stats_of().hits - hits;
	cr_assert_gt(hits, reads / 10, "%lu of %lu", hits, reads);
	cr_assert_lt(lru->nr[LRU_ACTIVE], lru->nr[LRU_INACTIVE]);
	done();
}

static struct distance nears[] = {
	{1000, 11, 10, false}, {1000, 15, 10, false}, {1000, 16, 10, true}, {1000, 40, 10, true},
	{1000, 41, 10, false}, {1000, 500, 10, false},
};

ParameterizedTestParameters(workingset, near_refault)
{
	return cr_make_param_array(struct distance, nears, sizeof(nears) / sizeof(*nears));
}

/* With thirty inactive pages: which distances are those of which one in some is kept? */
ParameterizedTest(struct distance *d, workingset, near_refault)
{
	unsigned int n, kept = 0;

	setup(ROOM);
	scan(0, d->active);
	scan(0, d->active);
	scan(1000, 30);
	for (n = 0; n < 64; n++) {
		struct folio *folio = arena_alloc(cache, MAPPING_FILE, 0);

		lru->clock = d->clock;
		workingset_refault(folio, xa_mk_value((d->clock - d->distance) << 1));
		kept += !!(folio_flags(folio) & FOLIO_ACTIVE);
		folio_put(folio);
	}
	cr_assert_eq(kept, d->activates ? 2 : 0);
	done();
}

struct range {
	loff_t start, end;
};

static struct range ranges[] = {
	{0, 64 << PAGE_SHIFT}, {10 << PAGE_SHIFT, 11 << PAGE_SHIFT}, {100, 200 << PAGE_SHIFT},
	{64 << PAGE_SHIFT, ROOM},
};

ParameterizedTestParameters(workingset, truncation_clears_shadows)
{
	return cr_make_param_array(struct range, ranges, sizeof(ranges) / sizeof(*ranges));
}

/* Of the range alone. */
ParameterizedTest(struct range *r, workingset, truncation_clears_shadows)
{
	pgoff_t index, first = (r->start + PAGE_SIZE - 1) >> PAGE_SHIFT, end = r->end >> PAGE_SHIFT;
	void *before[1000];

	setup(ROOM);
	scan(0, 1000);
	for (index = 0; index < 1000; index++)
		before[index] = entry_at(index);
	cr_assert_eq(backing_punch(&b, r->start, r->end), 0);
	for (index = 0; index < 1000; index++) {
		if (index >= first && index < end)
			cr_assert_null(entry_at(index));
		else if (xa_is_value(before[index]) && index != first - 1)
			cr_assert_eq(entry_at(index), before[index]);
	}
	mapping_check(&b.mapping);
	done();
}

Test(workingset, truncating_to_nothing_leaves_an_empty_array)
{
	setup(ROOM);
	scan(0, 1000);
	cr_assert_eq(backing_setsize(&b, 0), 0);
	cr_assert(xa_empty(&b.mapping.i_pages));
	cr_assert_eq(cache->shadows.nr, 0);
	done();
}

Test(workingset, no_shadow_is_left_while_a_mapping_goes)
{
	setup(ROOM);
	scan(0, 100);
	b.mapping.exiting = true;
	scan(1000, FRAMES);
	cr_assert(stats_of().evictions);
	cr_assert_eq(backing_shadows(&b), 0);
	b.mapping.exiting = false;
	done();
}

Test(workingset, nodes_with_shadows_only_are_bounded)
{
	unsigned long index;

	setup(ROOM);
	for (index = 0; index < ROOM >> PAGE_SHIFT; index++) {
		read_page(index);
		/* A reclaim can add the nodes of a batch and then shrinks. */
		cr_assert_leq(cache->shadows.nr, cache->shadows.max);
	}
	cr_assert_gt(stats_of().shadow_nodes_freed, 0);
	cr_assert_lt(backing_shadows(&b), (cache->shadows.max + 1) * XA_CHUNK_SIZE + FRAMES);
	mapping_check(&b.mapping);
	cache_check(cache);
	done();
}

/* Each shadow is alone in its node: nodes, not shadows, are what is bounded. */
Test(workingset, sparse_shadows_are_bounded_too)
{
	unsigned long index, nr = ROOM >> PAGE_SHIFT;

	setup(ROOM);
	mapping_set_size(&b.mapping, (loff_t)1 << 50);
	b.bad_read = NEVER;
	for (index = 0; index < nr; index += XA_CHUNK_SIZE / 2)
		read_page(index);
	for (index = 1; index < nr; index += XA_CHUNK_SIZE)
		read_page(index);
	scan(0, FRAMES);
	cr_assert_leq(cache->shadows.nr, cache->shadows.max);
	mapping_check(&b.mapping);
	mapping_set_size(&b.mapping, ROOM);
	done();
}

Test(workingset, a_node_whose_tree_is_locked_stays)
{
	unsigned long nr;

	setup(ROOM);
	scan(0, 4 * FRAMES);
	nr = cache->shadows.nr;
	cr_assert_gt(nr, 1);
	cache->shadows.max = 0;
	xa_lock(&b.mapping.i_pages);
	workingset_shrink(cache);
	cr_assert_eq(cache->shadows.nr, nr);
	xa_unlock(&b.mapping.i_pages);
	workingset_shrink(cache);
	cr_assert_eq(cache->shadows.nr, 0);
	mapping_check(&b.mapping);
	done();
}

/*
 * A random user: the clock agrees with what was counted, no two shadows have the same time, none
 * comes from the future, and each index is at most once something.
 */
static void check_shadows(void)
{
	struct cache_stats stats = stats_of();
	unsigned char *seen;
	unsigned long index;
	void *entry;

	cr_assert_eq(lru->clock,
		     stats.evictions + stats.activations + stats.refault_activations);
	seen = calloc(1, lru->clock + 1);
	xa_for_each(&b.mapping.i_pages, index, entry) {
		if (!xa_is_value(entry))
			continue;
		cr_assert_lt(clock_in(entry), lru->clock);
		cr_assert(!seen[clock_in(entry)]);
		seen[clock_in(entry)] = 1;
	}
	free(seen);
	mapping_check(&b.mapping);
}

Test(workingset, model)
{
	uint64_t state = 20261201;
	unsigned int step;

	setup(ROOM);
	for (step = 0; step < 20000; step++) {
		pgoff_t index = rnd(&state) % (rnd(&state) % 4 ? 400 : ROOM >> PAGE_SHIFT);
		loff_t pos = (loff_t)index << PAGE_SHIFT;

		switch (rnd(&state) % 64) {
		case 0:
			cr_assert_eq(backing_punch(&b, pos, pos + (rnd(&state) % 50 << PAGE_SHIFT)),
				     0);
			break;
		case 1:
			check_shadows();
			break;
		case 2 ... 10:
			filemap_write(&b.mapping, pos, "x", 1);
			break;
		default:
			if (pos < mapping_size(&b.mapping))
				read_page(index);
		}
	}
	check_shadows();
	cr_assert_gt(stats_of().refaults, 100);
	cr_assert_gt(stats_of().refault_activations, 10);
	done();
}
