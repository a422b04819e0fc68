/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The normal API of the XArray, one behaviour each. Every test ends with a well-formed, then an
 * empty array, and no node left.
 */
#include "model.h"
#include "node_alloc.h"
#include "xa_internal.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#define XA_SUITE(name) TestSuite(name, .init = begin, .fini = end)

static struct xarray xa;

static void begin(void)
{
	rcu_register_thread();
	xa_init(&xa);
}

static void end(void)
{
	cr_assert_eq(xa_check(&xa), 0);
	xa_destroy(&xa);
	cr_assert(xa_empty(&xa));
	cr_assert_eq(xa_check(&xa), 0);
	node_pool_drain(&xa_node_pool);
	cr_assert_eq(node_pool_live(&xa_node_pool), 0);
}

static void *value(unsigned long v)
{
	return xa_mk_value(v);
}

static void *store(unsigned long index, void *entry)
{
	return xa_store(&xa, index, entry, GFP_KERNEL);
}

static void store_order(unsigned long index, unsigned int order, void *entry)
{
	cr_assert_eq(test_store_order(&xa, index, order, entry, GFP_KERNEL), 0);
}

XA_SUITE(entry);

Test(entry, values_and_pointers_are_told_apart)
{
	int object;

	cr_assert(xa_is_value(value(5)));
	cr_assert_eq(xa_to_value(value(LONG_MAX)), LONG_MAX);
	cr_assert_not(xa_is_value(&object));
	cr_assert_not(xa_is_internal(&object));
	cr_assert_not(xa_is_internal(NULL));
}

Test(entry, tags_come_off_again)
{
	int object;
	void *tagged = xa_tag_pointer(&object, 3);

	cr_assert_eq(xa_pointer_tag(tagged), 3);
	cr_assert_eq(xa_untag_pointer(tagged), &object);
	store(1, tagged);
	cr_assert_eq(xa_load(&xa, 1), tagged);
}

Test(entry, errors_are_internal_and_no_nodes)
{
	void *error = XA_ERROR(-ENOMEM);

	cr_assert(xa_is_err(error));
	cr_assert_eq(xa_err(error), -ENOMEM);
	cr_assert_eq(xa_err(XA_ERROR(-4095)), -4095);
	cr_assert_eq(xa_err(XA_ZERO_ENTRY), 0);
	cr_assert_not(xa_is_err(value(ULONG_MAX)));
}

struct place {
	unsigned long index;
};

ParameterizedTestParameters(index, holds_one_entry)
{
	static struct place places[] = {
		{0},	     {1},	 {XA_CHUNK_MASK}, {XA_CHUNK_SIZE}, {1UL << 20},
		{1UL << 63}, {LONG_MAX}, {ULONG_MAX - 1}, {ULONG_MAX},
	};

	return cr_make_param_array(struct place, places, sizeof(places) / sizeof(places[0]));
}

ParameterizedTest(struct place *place, index, holds_one_entry, .init = begin, .fini = end)
{
	unsigned long index = place->index, found = 0;

	cr_assert_null(xa_load(&xa, index));
	cr_assert_null(store(index, value(7)));
	cr_assert_eq(xa_load(&xa, index), value(7));
	cr_assert_null(xa_load(&xa, index + 1));
	cr_assert_null(xa_load(&xa, index - 1));
	cr_assert_null(xa_load(&xa, index ^ 1UL << 62));
	cr_assert_eq(xa_find(&xa, &found, ULONG_MAX, XA_PRESENT), value(7));
	cr_assert_eq(found, index);
	cr_assert_null(xa_find_after(&xa, &found, ULONG_MAX, XA_PRESENT));
	cr_assert_eq(store(index, value(8)), value(7));
	xa_set_mark(&xa, index, XA_MARK_2);
	cr_assert(xa_get_mark(&xa, index, XA_MARK_2));
	cr_assert(xa_marked(&xa, XA_MARK_2));
	cr_assert_eq(xa_check(&xa), 0);
	cr_assert_eq(xa_erase(&xa, index), value(8));
	cr_assert(xa_empty(&xa));
	cr_assert_not(xa_marked(&xa, XA_MARK_2));
}

XA_SUITE(store);

Test(store, null_erases)
{
	store(3, value(1));
	cr_assert_eq(store(3, NULL), value(1));
	cr_assert(xa_empty(&xa));
}

Test(store, internal_entries_are_refused)
{
	cr_assert_eq(xa_err(store(0, xa_mk_internal(3))), -EINVAL);
	cr_assert_eq(xa_err(store(0, XA_RETRY_ENTRY)), -EINVAL);
	cr_assert(xa_empty(&xa));
}

Test(store, a_sole_entry_at_zero_needs_no_node)
{
	store(0, value(1));
	cr_assert_eq(node_pool_live(&xa_node_pool), 0);
	store(1UL << 40, value(2));
	cr_assert_gt(node_pool_live(&xa_node_pool), 0);
	xa_erase(&xa, 1UL << 40);
	cr_assert_not(xa_is_node(xa.xa_head));
	node_pool_drain(&xa_node_pool);
	cr_assert_eq(node_pool_live(&xa_node_pool), 0);
}

/* The second entry is in the top node itself, so that no node below it becomes empty. */
Test(store, an_entry_erased_from_the_top_node_lets_the_tree_shrink)
{
	store(0, value(1));
	store(1, value(2));
	xa_erase(&xa, 1);
	cr_assert_eq(xa.xa_head, value(1));
	store(1, value(2));
	cr_assert_eq(test_store_order(&xa, XA_CHUNK_SIZE, XA_CHUNK_SHIFT, value(3), GFP_KERNEL), 0);
	xa_erase(&xa, XA_CHUNK_SIZE);
	cr_assert_eq(xa_to_node(xa.xa_head)->shift, 0);
}

Test(store, marks_survive_a_new_entry_and_go_with_the_old)
{
	store(5, value(1));
	xa_set_mark(&xa, 5, XA_MARK_0);
	store(5, value(2));
	cr_assert(xa_get_mark(&xa, 5, XA_MARK_0));
	xa_erase(&xa, 5);
	store(5, value(3));
	cr_assert_not(xa_get_mark(&xa, 5, XA_MARK_0));
}

Test(store, marks_survive_growing_and_shrinking)
{
	store(0, value(1));
	xa_set_mark(&xa, 0, XA_MARK_1);
	store(ULONG_MAX, value(2));
	cr_assert(xa_get_mark(&xa, 0, XA_MARK_1));
	cr_assert_not(xa_get_mark(&xa, ULONG_MAX, XA_MARK_1));
	xa_erase(&xa, ULONG_MAX);
	cr_assert(xa_get_mark(&xa, 0, XA_MARK_1));
	cr_assert_not(xa_get_mark(&xa, 0, XA_MARK_0));
}

Test(store, marking_nothing_does_nothing)
{
	xa_set_mark(&xa, 9, XA_MARK_0);
	cr_assert_not(xa_marked(&xa, XA_MARK_0));
	store(8, value(1));
	xa_set_mark(&xa, 9, XA_MARK_0);
	cr_assert_not(xa_marked(&xa, XA_MARK_0));
}

XA_SUITE(conditional);

Test(conditional, cmpxchg_stores_only_over_the_expected)
{
	cr_assert_null(xa_cmpxchg(&xa, 1, value(9), value(2), GFP_KERNEL));
	cr_assert_null(xa_load(&xa, 1));
	cr_assert_null(xa_cmpxchg(&xa, 1, NULL, value(2), GFP_KERNEL));
	cr_assert_eq(xa_cmpxchg(&xa, 1, NULL, value(3), GFP_KERNEL), value(2));
	cr_assert_eq(xa_cmpxchg(&xa, 1, value(2), value(3), GFP_KERNEL), value(2));
	cr_assert_eq(xa_load(&xa, 1), value(3));
	cr_assert_eq(xa_cmpxchg(&xa, 1, value(3), NULL, GFP_KERNEL), value(3));
	cr_assert(xa_empty(&xa));
}

Test(conditional, insert_fails_on_what_is_there)
{
	cr_assert_eq(xa_insert(&xa, 1, value(1), GFP_KERNEL), 0);
	cr_assert_eq(xa_insert(&xa, 1, value(2), GFP_KERNEL), -EBUSY);
	cr_assert_eq(xa_load(&xa, 1), value(1));
	cr_assert_eq(xa_insert(&xa, 2, XA_RETRY_ENTRY, GFP_KERNEL), -EINVAL);
}

Test(conditional, a_reservation_reads_as_nothing_and_is_busy)
{
	unsigned long index = 0;

	cr_assert_eq(xa_reserve(&xa, 100, GFP_KERNEL), 0);
	cr_assert_null(xa_load(&xa, 100));
	cr_assert_null(xa_find(&xa, &index, ULONG_MAX, XA_PRESENT));
	cr_assert_not(xa_empty(&xa));
	cr_assert_eq(xa_insert(&xa, 100, value(1), GFP_KERNEL), -EBUSY);
	cr_assert_null(xa_cmpxchg(&xa, 100, NULL, value(1), GFP_NOWAIT));
	cr_assert_eq(xa_load(&xa, 100), value(1));
	xa_release(&xa, 100);
	cr_assert_eq(xa_load(&xa, 100), value(1), "released although it has been used");
	xa_erase(&xa, 100);
	xa_reserve(&xa, 100, GFP_KERNEL);
	xa_release(&xa, 100);
	cr_assert(xa_empty(&xa));
}

Test(conditional, a_store_into_a_reservation_needs_no_memory)
{
	xa_reserve(&xa, 1UL << 50, GFP_KERNEL);
	node_pool_fail(&xa_node_pool, 1, ULONG_MAX);
	cr_assert_null(xa_store(&xa, 1UL << 50, value(1), GFP_NOWAIT));
	node_pool_fail(&xa_node_pool, 0, 0);
	cr_assert_eq(xa_load(&xa, 1UL << 50), value(1));
}

XA_SUITE(find);

static const unsigned long some[] = {0, 1, 5, 62, 64, 500, 4096, 1UL << 30, ULONG_MAX};
#define N_SOME (sizeof(some) / sizeof(some[0]))

static void store_some(void)
{
	for (unsigned int i = 0; i < N_SOME; i++) {
		store(some[i], value(i));
		if (i % 3 == 0)
			xa_set_mark(&xa, some[i], XA_MARK_1);
	}
}

Test(find, for_each_goes_over_all_in_order)
{
	unsigned long index, i = 0;
	void *entry;

	store_some();
	xa_for_each(&xa, index, entry) {
		cr_assert_eq(index, some[i]);
		cr_assert_eq(entry, value(i));
		i++;
	}
	cr_assert_eq(i, N_SOME);
}

Test(find, for_each_range_includes_both_ends)
{
	unsigned long index, i = 2;
	void *entry;

	store_some();
	xa_for_each_range(&xa, index, entry, 5, 500)
		cr_assert_eq(entry, value(i++));
	cr_assert_eq(i, 6);
}

Test(find, for_each_start_begins_there)
{
	unsigned long index, i = 6;
	void *entry;

	store_some();
	xa_for_each_start(&xa, index, entry, 501)
		cr_assert_eq(entry, value(i++));
	cr_assert_eq(i, N_SOME);
}

Test(find, for_each_marked_finds_the_marked)
{
	unsigned long index, i = 0;
	void *entry;

	store_some();
	xa_for_each_marked(&xa, index, entry, XA_MARK_1) {
		cr_assert_eq(index, some[i]);
		i += 3;
	}
	cr_assert_eq(i, 9);
	xa_for_each_marked(&xa, index, entry, XA_MARK_0)
		cr_assert_fail("nothing has this mark");
}

Test(find, the_body_may_erase)
{
	unsigned long index;
	void *entry;

	store_some();
	xa_for_each(&xa, index, entry)
		cr_assert_eq(xa_erase(&xa, index), entry);
	cr_assert(xa_empty(&xa));
}

Test(find, extract_copies_what_fits)
{
	void *entries[N_SOME];

	store_some();
	cr_assert_eq(xa_extract(&xa, entries, 1, ULONG_MAX, 3, XA_PRESENT), 3);
	cr_assert_eq(entries[0], value(1));
	cr_assert_eq(entries[2], value(3));
	cr_assert_eq(xa_extract(&xa, entries, 1, 4096, N_SOME, XA_MARK_1), 2);
	cr_assert_eq(entries[1], value(6));
	cr_assert_eq(xa_extract(&xa, entries, 6, 61, N_SOME, XA_PRESENT), 0);
}

Test(find, index_stays_when_nothing_is_found)
{
	unsigned long index = 77;

	cr_assert_null(xa_find(&xa, &index, ULONG_MAX, XA_PRESENT));
	cr_assert_eq(index, 77);
	store(100, value(1));
	cr_assert_null(xa_find(&xa, &index, 99, XA_PRESENT));
	cr_assert_eq(index, 77);
	index = ULONG_MAX;
	cr_assert_null(xa_find_after(&xa, &index, ULONG_MAX, XA_PRESENT));
}

XA_SUITE(multi);

Test(multi, an_entry_is_found_at_each_of_its_indices)
{
	for (unsigned int order = 0; order < 20; order++) {
		unsigned long size = 1UL << order, index = size * 3, found = index + size / 2;

		store_order(index, order, value(order));
		cr_assert_eq(xa_load(&xa, index), value(order));
		cr_assert_eq(xa_load(&xa, index + size - 1), value(order));
		cr_assert_null(xa_load(&xa, index - 1));
		cr_assert_null(xa_load(&xa, index + size));
		cr_assert_eq(xa_get_order(&xa, index + size / 2), (int)order);
		cr_assert_eq(xa_find(&xa, &found, ULONG_MAX, XA_PRESENT), value(order));
		cr_assert_eq(found, index + size / 2);
		found = index;
		cr_assert_null(xa_find_after(&xa, &found, ULONG_MAX, XA_PRESENT));
		cr_assert_eq(xa_check(&xa), 0);
		cr_assert_eq(xa_erase(&xa, index + size - 1), value(order));
		cr_assert(xa_empty(&xa), "order %u", order);
	}
}

Test(multi, the_largest_order_is_half_of_all)
{
	store_order(1UL << 63, 63, value(1));
	cr_assert_eq(xa_load(&xa, ULONG_MAX), value(1));
	cr_assert_null(xa_load(&xa, LONG_MAX));
	cr_assert_eq(xa_get_order(&xa, ULONG_MAX - 5), 63);
}

Test(multi, a_larger_entry_replaces_smaller_ones_and_frees_their_nodes)
{
	unsigned int order = 2 * XA_CHUNK_SHIFT + 1;

	for (unsigned long i = 0; i < 1UL << order; i += 3)
		store(i, value(i));
	xa_set_mark(&xa, 6, XA_MARK_0);
	store_order(0, order, value(1));
	cr_assert_eq(xa_load(&xa, 6), value(1));
	cr_assert(xa_get_mark(&xa, (1UL << order) - 1, XA_MARK_0));
	cr_assert_eq(xa_check(&xa), 0);
	node_pool_drain(&xa_node_pool);
	cr_assert_eq(node_pool_live(&xa_node_pool), 1);
}

Test(multi, storing_inside_replaces_the_whole_entry)
{
	store_order(8, 2, value(1));
	cr_assert_eq(store(10, value(2)), value(1));
	cr_assert_eq(xa_load(&xa, 8), value(2));
	cr_assert_eq(xa_load(&xa, 11), value(2));
	cr_assert_eq(xa_get_order(&xa, 8), 2);
}

Test(multi, marks_are_those_of_the_whole)
{
	store_order(64, 5, value(1));
	xa_set_mark(&xa, 90, XA_MARK_2);
	cr_assert(xa_get_mark(&xa, 64, XA_MARK_2));
	cr_assert(xa_get_mark(&xa, 95, XA_MARK_2));
	cr_assert_not(xa_get_mark(&xa, 96, XA_MARK_2));
	xa_clear_mark(&xa, 65, XA_MARK_2);
	cr_assert_not(xa_marked(&xa, XA_MARK_2));
}

struct range {
	unsigned long first, last;
};

ParameterizedTestParameters(multi, store_range_covers_exactly_its_range)
{
	static struct range ranges[] = {
		{0, 0},
		{0, 63},
		{1, 1},
		{1, 62},
		{7, 300},
		{64, 127},
		{1, 1UL << 40},
		{0, LONG_MAX},
		{100, ULONG_MAX},
		{0, ULONG_MAX},
		{ULONG_MAX, ULONG_MAX},
	};

	return cr_make_param_array(struct range, ranges, sizeof(ranges) / sizeof(ranges[0]));
}

ParameterizedTest(struct range *range, multi, store_range_covers_exactly_its_range, .init = begin,
		  .fini = end)
{
	unsigned long first = range->first, last = range->last;

	cr_assert_null(xa_store_range(&xa, first, last, value(1), GFP_KERNEL));
	cr_assert_eq(xa_load(&xa, first), value(1));
	cr_assert_eq(xa_load(&xa, last), value(1));
	cr_assert_eq(xa_load(&xa, first + (last - first) / 2), value(1));
	if (first)
		cr_assert_null(xa_load(&xa, first - 1));
	if (last != ULONG_MAX)
		cr_assert_null(xa_load(&xa, last + 1));
	cr_assert_eq(xa_check(&xa), 0);
	cr_assert_null(xa_store_range(&xa, first, last, NULL, GFP_KERNEL));
	cr_assert(xa_empty(&xa));
}

Test(multi, store_range_refuses_nonsense)
{
	cr_assert_eq(xa_err(xa_store_range(&xa, 2, 1, value(1), GFP_KERNEL)), -EINVAL);
	cr_assert_eq(xa_err(xa_store_range(&xa, 1, 2, XA_ZERO_ENTRY, GFP_KERNEL)), -EINVAL);
}

static void begin_alloc(void)
{
	rcu_register_thread();
	xa_init_flags(&xa, XA_FLAGS_ALLOC);
}

TestSuite(alloc, .init = begin_alloc, .fini = end);

Test(alloc, gives_the_lowest_free_index)
{
	uint32_t id;

	for (unsigned int i = 0; i < 3 * XA_CHUNK_SIZE; i++) {
		cr_assert_eq(xa_alloc(&xa, &id, value(i), xa_limit_32b, GFP_KERNEL), 0);
		cr_assert_eq(id, i);
	}
	xa_erase(&xa, 5);
	xa_erase(&xa, XA_CHUNK_SIZE + 1);
	cr_assert_eq(xa_check(&xa), 0);
	xa_alloc(&xa, &id, value(1), xa_limit_32b, GFP_KERNEL);
	cr_assert_eq(id, 5);
	xa_alloc(&xa, &id, value(1), xa_limit_32b, GFP_KERNEL);
	cr_assert_eq(id, XA_CHUNK_SIZE + 1);
	xa_alloc(&xa, &id, value(1), xa_limit_32b, GFP_KERNEL);
	cr_assert_eq(id, 3 * XA_CHUNK_SIZE);
}

Test(alloc, keeps_within_the_limit)
{
	uint32_t id = 0;

	for (unsigned int i = 0; i < 10; i++) {
		cr_assert_eq(xa_alloc(&xa, &id, value(i), XA_LIMIT(100, 109), GFP_KERNEL), 0);
		cr_assert_eq(id, 100 + i);
	}
	cr_assert_eq(xa_alloc(&xa, &id, value(1), XA_LIMIT(100, 109), GFP_KERNEL), -EBUSY);
	cr_assert_eq(xa_alloc(&xa, &id, value(1), XA_LIMIT(UINT32_MAX, UINT32_MAX), GFP_KERNEL), 0);
	cr_assert_eq(id, UINT32_MAX);
	cr_assert_eq(xa_alloc(&xa, &id, value(1), XA_LIMIT(UINT32_MAX, UINT32_MAX), GFP_KERNEL),
		     -EBUSY);
}

Test(alloc, an_array_for_it_is_needed)
{
	DEFINE_XARRAY(plain);
	uint32_t id;

	cr_assert_eq(xa_alloc(&plain, &id, value(1), xa_limit_32b, GFP_KERNEL), -EINVAL);
	cr_assert_eq(xa_alloc(&xa, &id, XA_RETRY_ENTRY, xa_limit_32b, GFP_KERNEL), -EINVAL);
}

Test(alloc, the_first_may_be_one)
{
	DEFINE_XARRAY_ALLOC1(one);
	uint32_t id;

	cr_assert_eq(xa_alloc(&one, &id, value(1), xa_limit_32b, GFP_KERNEL), 0);
	cr_assert_eq(id, 1);
	cr_assert_eq(xa_alloc(&one, &id, value(1), xa_limit_32b, GFP_KERNEL), 0);
	cr_assert_eq(id, 2);
	cr_assert_eq(xa_check(&one), 0);
	xa_destroy(&one);
}

Test(alloc, null_and_stored_null_reserve)
{
	uint32_t id;

	cr_assert_eq(xa_alloc(&xa, &id, NULL, xa_limit_32b, GFP_KERNEL), 0);
	cr_assert_null(xa_load(&xa, 0));
	store(0, value(1));
	store(0, NULL);
	xa_alloc(&xa, &id, value(2), xa_limit_32b, GFP_KERNEL);
	cr_assert_eq(id, 1, "storing NULL does not free an index");
	xa_erase(&xa, 0);
	xa_alloc(&xa, &id, value(2), xa_limit_32b, GFP_KERNEL);
	cr_assert_eq(id, 0);
}

Test(alloc, cyclic_goes_on_and_says_when_it_wraps)
{
	struct xa_limit limit = XA_LIMIT(10, 12);
	uint32_t id, next = 0;

	for (unsigned int i = 0; i < 3; i++) {
		cr_assert_eq(xa_alloc_cyclic(&xa, &id, value(1), limit, &next, GFP_KERNEL), 0);
		cr_assert_eq(id, 10 + i);
		cr_assert_eq(next, id + 1);
	}
	cr_assert_eq(xa_alloc_cyclic(&xa, &id, value(1), limit, &next, GFP_KERNEL), -EBUSY);
	xa_erase(&xa, 11);
	cr_assert_eq(xa_alloc_cyclic(&xa, &id, value(1), limit, &next, GFP_KERNEL), 1);
	cr_assert_eq(id, 11);
}

Test(alloc, cyclic_wraps_at_the_largest_index)
{
	uint32_t id, next = UINT32_MAX;

	cr_assert_eq(xa_alloc_cyclic(&xa, &id, value(1), xa_limit_32b, &next, GFP_KERNEL), 0);
	cr_assert_eq(id, UINT32_MAX);
	cr_assert_eq(next, 0);
	cr_assert_eq(xa_alloc_cyclic(&xa, &id, value(1), xa_limit_32b, &next, GFP_KERNEL), 1);
	cr_assert_eq(id, 0);
	cr_assert_eq(xa_alloc_cyclic(&xa, &id, value(1), xa_limit_32b, &next, GFP_KERNEL), 0);
	cr_assert_eq(id, 1);
}
