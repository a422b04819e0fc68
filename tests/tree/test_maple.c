/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The normal API of the maple tree, one behaviour each. Every test ends with a well-formed tree
 * that holds what the list says, then an empty one, and no node left.
 */
#include "maple_fixture.h"

static void begin(void)
{
	pair_begin(&pair, 0);
}

static void begin_gaps(void)
{
	pair_begin(&pair, MT_FLAGS_ALLOC_RANGE);
}

TestSuite(tree, .init = begin, .fini = end, .timeout = 60);

Test(tree, is_empty_as_it_is_declared)
{
	DEFINE_MTREE(declared);
	struct maple_tree zeroed = { 0 };

	cr_assert(mtree_empty(&declared));
	cr_assert_eq(mt_height(&declared), 0);
	cr_assert_null(mtree_load(&declared, 0));
	cr_assert_null(mtree_load(&declared, ULONG_MAX));
	cr_assert_eq(mtree_store(&zeroed, 7, value(1), GFP_KERNEL), 0);
	cr_assert_eq(mtree_load(&zeroed, 7), value(1));
	mtree_destroy(&zeroed);
}

Test(tree, of_one_entry_at_index_zero_needs_no_node)
{
	store(0, 0, value(1));
	cr_assert_not(mtree_empty(mt));
	cr_assert_eq(mt_height(mt), 0);
	cr_assert_eq(live_nodes(), 0);
	cr_assert_eq(mtree_load(mt, 0), value(1));
	cr_assert_null(mtree_load(mt, 1));
	store(0, 0, value(2));
	cr_assert_eq(live_nodes(), 0);
	cr_assert_eq(mtree_load(mt, 0), value(2));
}

Test(tree, of_one_entry_elsewhere_is_a_leaf)
{
	store(1, 1, value(1));
	cr_assert_eq(mt_height(mt), 1);
	cr_assert_eq(live_nodes(), 1);
}

Test(tree, an_entry_that_looks_like_a_node_gets_a_leaf_at_index_zero)
{
	/* To the tree any number that ends in binary 10. The advanced API takes it. */
	void *entry = (void *)0x10002UL;
	MA_STATE(mas, mt, 0, 0);

	mas_lock(&mas);
	cr_assert_eq(mas_store_gfp(&mas, entry, GFP_KERNEL), 0);
	mas_unlock(&mas);
	list_store(&pair.list, 0, 0, entry);
	cr_assert_eq(mt_height(mt), 1);
	cr_assert_eq(mtree_load(mt, 0), entry);
	store(0, 0, value(1));
	cr_assert_eq(mt_height(mt), 0);
}

Test(tree, a_range_reads_the_same_from_end_to_end)
{
	store(10, 20, value(1));
	cr_assert_null(mtree_load(mt, 9));
	cr_assert_eq(mtree_load(mt, 10), value(1));
	cr_assert_eq(mtree_load(mt, 15), value(1));
	cr_assert_eq(mtree_load(mt, 20), value(1));
	cr_assert_null(mtree_load(mt, 21));
}

Test(tree, ranges_reach_both_ends_of_the_indices)
{
	store(0, 9, value(1));
	store(ULONG_MAX - 9, ULONG_MAX, value(2));
	cr_assert_eq(mtree_load(mt, 0), value(1));
	cr_assert_eq(mtree_load(mt, ULONG_MAX), value(2));
	cr_assert_null(mtree_load(mt, 10));
	cr_assert_null(mtree_load(mt, ULONG_MAX - 10));
	store(ULONG_MAX, ULONG_MAX, value(3));
	store(0, 0, value(4));
	pair_verify(&pair);
}

Test(tree, one_range_may_be_all_there_is)
{
	store(5, 5, value(1));
	store(0, ULONG_MAX, value(2));
	cr_assert_eq(mtree_load(mt, 0), value(2));
	cr_assert_eq(mtree_load(mt, ULONG_MAX), value(2));
	store(7, 7, NULL);
	pair_verify(&pair);
	cr_assert_null(mtree_load(mt, 7));
	store(0, ULONG_MAX, NULL);
	cr_assert(mtree_empty(mt));
}

Test(tree, equal_neighbours_stay_two_ranges)
{
	store(1, 5, value(1));
	store(6, 9, value(1));
	cr_assert_eq(mtree_erase(mt, 7), value(1));
	list_store(&pair.list, 6, 9, NULL);
	cr_assert_eq(mtree_load(mt, 5), value(1));
	cr_assert_null(mtree_load(mt, 6));
}

Test(tree, a_store_cuts_what_it_covers_in_part)
{
	store(10, 19, value(1));
	store(20, 29, value(2));
	store(15, 24, value(3));
	cr_assert_eq(mtree_load(mt, 14), value(1));
	cr_assert_eq(mtree_load(mt, 15), value(3));
	cr_assert_eq(mtree_load(mt, 24), value(3));
	cr_assert_eq(mtree_load(mt, 25), value(2));
	store(17, 17, value(4));
	cr_assert_eq(mtree_load(mt, 16), value(3));
	cr_assert_eq(mtree_load(mt, 18), value(3));
}

Test(tree, storing_null_erases_a_part)
{
	store(10, 19, value(1));
	store(12, 13, NULL);
	store(0, 10, NULL);
	cr_assert_null(mtree_load(mt, 10));
	cr_assert_eq(mtree_load(mt, 11), value(1));
	cr_assert_null(mtree_load(mt, 13));
	cr_assert_eq(mtree_load(mt, 19), value(1));
}

Test(tree, refuses_ranges_that_are_upside_down)
{
	cr_assert_eq(mtree_store_range(mt, 2, 1, value(1), GFP_KERNEL), -EINVAL);
	cr_assert_eq(mtree_insert_range(mt, 2, 1, value(1), GFP_KERNEL), -EINVAL);
	cr_assert(mtree_empty(mt));
}

Test(tree, refuses_internal_entries)
{
	void *internal = xa_mk_internal(256);
	unsigned long at;

	cr_assert_eq(mtree_store(mt, 1, internal, GFP_KERNEL), -EINVAL);
	cr_assert_eq(mtree_store_range(mt, 1, 2, internal, GFP_KERNEL), -EINVAL);
	cr_assert_eq(mtree_insert(mt, 1, internal, GFP_KERNEL), -EINVAL);
	cr_assert_eq(mtree_insert_range(mt, 1, 2, internal, GFP_KERNEL), -EINVAL);
	cr_assert_eq(mtree_alloc_range(mt, &at, internal, 1, 0, 9, GFP_KERNEL), -EINVAL);
	cr_assert(mtree_empty(mt));
}

/* A reserved range: there to those who look with a cursor, nothing to the others. */
Test(tree, reserved_ranges_read_as_null)
{
	unsigned long index = 0;
	MA_STATE(mas, mt, 5, 9);

	mas_lock(&mas);
	cr_assert_eq(mas_store_gfp(&mas, XA_ZERO_ENTRY, GFP_KERNEL), 0);
	mas_unlock(&mas);
	list_store(&pair.list, 5, 9, XA_ZERO_ENTRY);
	cr_assert_null(mtree_load(mt, 7));
	cr_assert_null(mt_find(mt, &index, ULONG_MAX));
	cr_assert_eq(mtree_insert(mt, 7, value(1), GFP_KERNEL), -EEXIST);
	store(20, 20, value(2));
	cr_assert_eq(mt_find(mt, &index, ULONG_MAX), value(2));
	rcu_read_lock();
	mas_set(&mas, 7);
	cr_assert_eq(mas_walk(&mas), XA_ZERO_ENTRY);
	rcu_read_unlock();
}

TestSuite(insert, .init = begin, .fini = end, .timeout = 60);

static void insert(unsigned long first, unsigned long last, int expected)
{
	cr_assert_eq(mtree_insert_range(mt, first, last, value(first), GFP_KERNEL), expected);
	if (!expected)
		list_store(&pair.list, first, last, value(first));
	pair_verify(&pair);
}

Test(insert, takes_what_is_free)
{
	insert(10, 19, 0);
	insert(20, 29, 0);
	insert(0, 9, 0);
	insert(30, ULONG_MAX, 0);
	for (unsigned long i = 0; i < 40; i++)
		insert(i, i, -EEXIST);
	insert(ULONG_MAX, ULONG_MAX, -EEXIST);
}

Test(insert, refuses_what_overlaps)
{
	insert(10, 19, 0);
	insert(0, 10, -EEXIST);
	insert(19, 30, -EEXIST);
	insert(0, ULONG_MAX, -EEXIST);
	insert(15, 15, -EEXIST);
	insert(20, 20, 0);
}

Test(insert, refuses_what_overlaps_across_leaves)
{
	pair_fill(&pair, 100, 60, 2, 2);
	insert(0, 100, -EEXIST);
	insert(102, 104, -EEXIST);
	insert(102, 103, 0);
	insert(0, 99, 0);
	insert(338, ULONG_MAX, 0);
}

Test(insert, of_an_index_beside_the_sole_entry)
{
	cr_assert_eq(mtree_insert(mt, 0, value(1), GFP_KERNEL), 0);
	cr_assert_eq(mtree_insert(mt, 0, value(2), GFP_KERNEL), -EEXIST);
	cr_assert_eq(mtree_insert(mt, 1, value(3), GFP_KERNEL), 0);
	list_store(&pair.list, 0, 0, value(1));
	list_store(&pair.list, 1, 1, value(3));
}

TestSuite(erase, .init = begin, .fini = end, .timeout = 60);

static void erase(unsigned long index)
{
	struct range around = list_around(&pair.list, index);

	cr_assert_eq(mtree_erase(mt, index), around.entry);
	list_store(&pair.list, around.first, around.last, NULL);
	pair_verify(&pair);
}

Test(erase, takes_the_whole_range)
{
	store(10, 19, value(1));
	store(20, 29, value(2));
	erase(15);
	cr_assert_null(mtree_load(mt, 10));
	cr_assert_null(mtree_load(mt, 19));
	cr_assert_eq(mtree_load(mt, 20), value(2));
	erase(15);
	erase(20);
	cr_assert(mtree_empty(mt));
	cr_assert_null(mtree_erase(mt, 0));
}

Test(erase, of_the_sole_entry)
{
	store(0, 0, value(1));
	cr_assert_null(mtree_erase(mt, 1));
	erase(0);
	cr_assert(mtree_empty(mt));
}

/* Also leaves one entry at index 0, which has no node again, before the last. */
static void down_to_empty(bool up, unsigned long size, unsigned long gap)
{
	unsigned int n = 400;

	pair_fill(&pair, 0, n, size, gap);
	cr_assert_geq(mt_height(mt), 3);
	for (unsigned int i = 0; i < n; i++)
		erase((up ? i : n - 1 - i) * (size + gap));
	cr_assert(mtree_empty(mt));
	cr_assert_eq(mt_height(mt), 0);
	cr_assert_eq(live_nodes(), 0);
}

Test(erase, upwards_until_the_tree_is_empty)
{
	down_to_empty(true, 3, 2);
	down_to_empty(true, 1, 0);
}

Test(erase, downwards_until_the_tree_is_empty)
{
	down_to_empty(false, 3, 2);
	down_to_empty(false, 1, 0);
}

Test(erase, a_tree_shrinks_to_the_entry_at_zero)
{
	pair_fill(&pair, 0, 40, 1, 1);
	for (unsigned long i = 39; i; i--)
		erase(2 * i);
	cr_assert_eq(mt_height(mt), 0);
	cr_assert_eq(mtree_load(mt, 0), value(0));
}

TestSuite(find, .init = begin, .fini = end, .timeout = 60);

static void finds(unsigned long from, unsigned long max, void *entry, unsigned long after)
{
	cr_assert_eq(mt_find(mt, &from, max), entry);
	cr_assert_eq(from, after);
}

Test(find, goes_to_the_next_and_behind_it)
{
	store(10, 19, value(1));
	store(30, 39, value(2));
	finds(0, ULONG_MAX, value(1), 20);
	finds(10, 10, value(1), 20);
	finds(19, 19, value(1), 20);
	finds(20, ULONG_MAX, value(2), 40);
	finds(0, 9, NULL, 0);
	finds(20, 29, NULL, 20);
	finds(40, ULONG_MAX, NULL, 40);
	finds(15, 9, NULL, 15);
}

Test(find, after_the_end_there_is_nothing)
{
	unsigned long index = ULONG_MAX;

	store(ULONG_MAX - 4, ULONG_MAX, value(1));
	finds(0, ULONG_MAX, value(1), 0);
	cr_assert_eq(mt_find(mt, &index, ULONG_MAX), value(1));
	cr_assert_eq(index, 0);
	cr_assert_null(mt_find_after(mt, &index, ULONG_MAX));
	index = 1;
	cr_assert_eq(mt_find_after(mt, &index, ULONG_MAX), value(1));
}

Test(find, the_sole_entry)
{
	store(0, 0, value(1));
	finds(0, 0, value(1), 1);
	finds(0, ULONG_MAX, value(1), 1);
	finds(1, ULONG_MAX, NULL, 1);
}

Test(find, for_each_sees_each_once_and_ends)
{
	unsigned long index = 0, n = 0;
	void *entry;

	pair_fill(&pair, 0, 100, 2, 1);
	store(ULONG_MAX, ULONG_MAX, value(5));
	mt_for_each(mt, entry, index, ULONG_MAX) {
		cr_assert_eq(entry, pair.list.ranges[n].entry);
		n++;
	}
	cr_assert_eq(n, 101);
}

Test(find, for_each_may_erase_what_it_sees)
{
	unsigned long index = 0, n = 0;
	void *entry;

	pair_fill(&pair, 0, 100, 2, 1);
	mt_for_each(mt, entry, index, ULONG_MAX) {
		cr_assert_eq(mtree_erase(mt, index - 1), entry);
		n++;
	}
	cr_assert_eq(n, 100);
	cr_assert(mtree_empty(mt));
	pair.list.n = 0;
}

Test(find, next_and_prev_pass_over_the_range_of_the_index)
{
	store(10, 19, value(1));
	store(20, 29, value(2));
	store(40, 49, value(3));
	cr_assert_eq(mt_next(mt, 0, ULONG_MAX), value(1));
	cr_assert_eq(mt_next(mt, 10, ULONG_MAX), value(2));
	cr_assert_eq(mt_next(mt, 15, ULONG_MAX), value(2));
	cr_assert_eq(mt_next(mt, 25, ULONG_MAX), value(3));
	cr_assert_eq(mt_next(mt, 25, 40), value(3));
	cr_assert_null(mt_next(mt, 25, 39));
	cr_assert_null(mt_next(mt, 45, ULONG_MAX));
	cr_assert_null(mt_next(mt, ULONG_MAX, ULONG_MAX));
	cr_assert_eq(mt_prev(mt, ULONG_MAX, 0), value(3));
	cr_assert_eq(mt_prev(mt, 45, 0), value(2));
	cr_assert_eq(mt_prev(mt, 30, 0), value(2));
	cr_assert_eq(mt_prev(mt, 29, 19), value(1));
	cr_assert_null(mt_prev(mt, 29, 20));
	cr_assert_null(mt_prev(mt, 19, 0));
	cr_assert_null(mt_prev(mt, 0, 0));
}

Test(find, next_and_prev_of_the_sole_entry)
{
	store(0, 0, value(1));
	cr_assert_null(mt_next(mt, 0, ULONG_MAX));
	cr_assert_null(mt_prev(mt, 0, 0));
	cr_assert_eq(mt_prev(mt, 1, 0), value(1));
	cr_assert_eq(mt_prev(mt, ULONG_MAX, 0), value(1));
}

TestSuite(copy, .init = begin_gaps, .fini = end, .timeout = 60);

/* Fills the tree with @n ranges, copies it, and uses both. */
static void copies(unsigned int n)
{
	struct maple_tree copy;
	unsigned long nodes;

	pair_fill(&pair, 0, n, 2, 1);
	nodes = live_nodes();
	mt_init_flags(&copy, MT_FLAGS_ALLOC_RANGE);
	cr_assert_eq(mtree_dup(mt, &copy, GFP_KERNEL), 0);
	cr_assert_eq(live_nodes(), 2 * nodes);
	cr_assert_eq(mt_height(&copy), mt_height(mt));
	pair_compare(&pair, &copy);
	cr_assert_eq(mtree_store_range(&copy, 0, 3 * n, value(9), GFP_KERNEL), 0);
	cr_assert_eq(mt_check(&copy), 0);
	pair_verify(&pair);
	mtree_destroy(&copy);
	pair_verify(&pair);
	store(0, ULONG_MAX, NULL);
}

Test(copy, is_equal_and_apart)
{
	for (unsigned int n = 0; n < 20; n++)
		copies(n);
	copies(100);
	copies(1000);
}

Test(copy, outlives_what_it_is_of)
{
	struct maple_tree copy;

	pair_fill(&pair, 0, 200, 2, 1);
	mt_init_flags(&copy, MT_FLAGS_ALLOC_RANGE);
	cr_assert_eq(mtree_dup(mt, &copy, GFP_KERNEL), 0);
	mtree_destroy(mt);
	pair_compare(&pair, &copy);
	cr_assert_eq(mtree_dup(&copy, mt, GFP_KERNEL), 0);
	mtree_destroy(&copy);
}

Test(copy, under_locks_of_the_users)
{
	struct maple_tree copy;

	pair_fill(&pair, 0, 100, 2, 1);
	mt_init_flags(&copy, MT_FLAGS_ALLOC_RANGE);
	mtree_lock(mt);
	mtree_lock(&copy);
	cr_assert_eq(__mt_dup(mt, &copy, GFP_KERNEL), 0);
	cr_assert_eq(__mt_dup(mt, &copy, GFP_KERNEL), -EINVAL);
	mtree_unlock(&copy);
	mtree_unlock(mt);
	pair_compare(&pair, &copy);
	mtree_destroy(&copy);
}

Test(copy, goes_into_an_empty_tree_of_the_same_kind_only)
{
	struct maple_tree copy;

	pair_fill(&pair, 0, 50, 2, 1);
	mt_init_flags(&copy, 0);
	cr_assert_eq(mtree_dup(mt, &copy, GFP_KERNEL), -EINVAL);
	cr_assert(mtree_empty(&copy));
	mt_init_flags(&copy, MT_FLAGS_ALLOC_RANGE);
	cr_assert_eq(mtree_store(&copy, 5, value(1), GFP_KERNEL), 0);
	cr_assert_eq(mtree_dup(mt, &copy, GFP_KERNEL), -EINVAL);
	cr_assert_eq(mtree_load(&copy, 5), value(1));
	mtree_destroy(&copy);
}

TestSuite(mode, .init = begin, .fini = end, .timeout = 60);

Test(mode, can_change_while_the_tree_is_in_use)
{
	cr_assert_not(mt_in_rcu(mt));
	pair_fill(&pair, 0, 100, 2, 1);
	mt_set_in_rcu(mt);
	cr_assert(mt_in_rcu(mt));
	pair_fill(&pair, 1, 100, 2, 1);
	mt_clear_in_rcu(mt);
	cr_assert_not(mt_in_rcu(mt));
	pair_fill(&pair, 2, 100, 2, 1);
}

Test(mode, a_lock_of_the_users_is_left_alone)
{
	struct maple_tree own = MTREE_INIT_EXT(own, 0, NULL);
	MA_STATE(mas, &own, 5, 9);

	cr_assert(mt_external_lock(&own));
	cr_assert_eq(mas_store_gfp(&mas, value(1), GFP_KERNEL), 0);
	mt_set_in_rcu(&own);
	cr_assert(mt_in_rcu(&own));
	cr_assert_eq(mtree_load(&own, 7), value(1));
	cr_assert_not(xa_spin_is_locked(&own.ma_lock));
	__mt_destroy(&own);
	cr_assert(mtree_empty(&own));
}

Test(mode, destroying_leaves_a_tree_that_can_be_used)
{
	pair_fill(&pair, 0, 100, 2, 1);
	mtree_destroy(mt);
	pair.list.n = 0;
	cr_assert(mtree_empty(mt));
	cr_assert_eq(mt_height(mt), 0);
	pair_fill(&pair, 0, 100, 2, 1);
}
