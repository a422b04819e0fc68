/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Free ranges: found from below and from above, within limits, and allocated.
 */
#include "maple_fixture.h"

#define M ULONG_MAX

static void begin(void)
{
	pair_begin(&pair, MT_FLAGS_ALLOC_RANGE);
}

/* Looks in both directions for what the list says. */
static void look(unsigned long min, unsigned long max, unsigned long size)
{
	for (unsigned int up = 0; up < 2; up++) {
		MA_STATE(mas, mt, 0, 0);
		unsigned long start;
		int err;

		mas_lock(&mas);
		err = up ? mas_empty_area(&mas, min, max, size)
			 : mas_empty_area_rev(&mas, min, max, size);
		mas_unlock(&mas);
		if (!list_gap(&pair.list, min, max, size, up, &start)) {
			cr_assert_eq(err, -EBUSY, "%lu to %lu, %lu: %d", min, max, size, err);
			continue;
		}
		cr_assert_eq(err, 0, "%lu to %lu, %lu: %d", min, max, size, err);
		cr_assert_eq(mas.index, start, "%lu to %lu, %lu: %lu", min, max, size, mas.index);
		cr_assert_eq(mas.last, start + size - 1);
	}
}

/* Every limit around every boundary. */
static void look_everywhere(unsigned long most)
{
	for (unsigned long min = 0; min <= most; min++) {
		for (unsigned long max = min; max <= most; max++) {
			for (unsigned long size = 1; size <= max - min + 1 && size < 7; size++)
				look(min, max, size);
		}
	}
}

TestSuite(gap, .init = begin, .fini = end, .timeout = 60);

Test(gap, in_an_empty_tree)
{
	look(0, M, 1);
	look(0, M, M);
	look(5, 9, 5);
	look(0, 0, 1);
	look(M, M, 1);
}

Test(gap, beside_the_sole_entry)
{
	store(0, 0, value(1));
	look(0, M, 1);
	look(0, M, M);
	look(0, 0, 1);
	look(0, 1, 1);
	look(0, 1, 2);
	look(1, M, M);
	look(M, M, 1);
}

Test(gap, in_a_full_tree_there_is_none)
{
	store(0, M, value(1));
	look(0, M, 1);
	look(0, 0, 1);
	look(M, M, 1);
}

Test(gap, refuses_what_cannot_be)
{
	MA_STATE(mas, mt, 0, 0);

	mas_lock(&mas);
	cr_assert_eq(mas_empty_area(&mas, 5, 4, 1), -EINVAL);
	cr_assert_eq(mas_empty_area(&mas, 5, 9, 6), -EINVAL);
	cr_assert_eq(mas_empty_area(&mas, 5, 9, 0), -EINVAL);
	cr_assert_eq(mas_empty_area_rev(&mas, 5, 4, 1), -EINVAL);
	cr_assert_eq(mas_empty_area_rev(&mas, 5, 9, 6), -EINVAL);
	cr_assert_eq(mas_empty_area_rev(&mas, 5, 9, 0), -EINVAL);
	mas_unlock(&mas);
}

Test(gap, limits_at_every_boundary_of_a_leaf)
{
	store(2, 4, value(1));
	store(7, 7, value(2));
	store(8, 9, value(3));
	store(14, 20, value(4));
	look_everywhere(24);
}

Test(gap, limits_at_every_boundary_of_several_leaves)
{
	for (unsigned long i = 0; i < 60; i++)
		store(i * 2 + i % 5, i * 2 + i % 5, value(i));
	look_everywhere(130);
}

/* Gaps of all sizes in a deep tree; each is the first or the last that is large enough. */
Test(gap, sizes_in_a_deep_tree)
{
	unsigned long at = 0;

	for (unsigned long i = 0; i < 1500; i++) {
		unsigned long gap = i % 97 == 13 ? i : i % 3;

		store(at, at + 1, value(i));
		at += 2 + gap;
	}
	store(at, M, value(1));
	cr_assert_geq(mt_height(mt), 4);
	for (unsigned long size = 1; size < 1500; size += size < 8 ? 1 : 13) {
		look(0, M, size);
		look(at / 3, at / 2, size);
		look(at / 3 + 1, M, size);
		look(0, at / 3 + 2, size);
	}
}

Test(gap, that_begins_or_ends_outside_the_limits_counts_in_part)
{
	pair_fill(&pair, 0, 200, 2, 0);
	store(100, 119, NULL);
	for (unsigned long min = 90; min < 125; min++) {
		for (unsigned long max = min + 5; max < 135; max++)
			look(min, max, 6);
	}
}

Test(gap, at_both_ends_of_the_indices)
{
	store(10, M - 10, value(1));
	for (unsigned long size = 1; size < 13; size++) {
		look(0, M, size);
		look(0, 9 + size, size);
		look(M - 9 - size, M, size);
		look(M - size + 1, M, size);
		look(0, size - 1, size);
	}
}

/* The cursor's place is good for a store, as mtree_alloc_range() does it. */
Test(gap, is_stored_to_at_once)
{
	pair_fill(&pair, 0, 100, 3, 2);
	for (unsigned int i = 0; i < 100; i++) {
		MA_STATE(mas, mt, 0, 0);

		mas_lock(&mas);
		cr_assert_eq(i & 1 ? mas_empty_area(&mas, 10, 490, 2)
				   : mas_empty_area_rev(&mas, 10, 490, 2),
			     i < 96 ? 0 : -EBUSY);
		if (i < 96) {
			list_store(&pair.list, mas.index, mas.last, value(i));
			cr_assert_eq(mas_store_gfp(&mas, value(i), GFP_KERNEL), 0);
		}
		mas_unlock(&mas);
	}
	pair_verify(&pair);
}

TestSuite(alloc, .init = begin, .fini = end, .timeout = 60);

static void alloc(bool up, unsigned long size, unsigned long min, unsigned long max, int expected)
{
	unsigned long at = 12345, start;
	int err = up ? mtree_alloc_range(mt, &at, value(size), size, min, max, GFP_KERNEL)
		     : mtree_alloc_rrange(mt, &at, value(size), size, min, max, GFP_KERNEL);

	cr_assert_eq(err, expected, "%lu from %lu to %lu: %d", size, min, max, err);
	if (err)
		return;
	cr_assert(list_gap(&pair.list, min, max, size, up, &start));
	cr_assert_eq(at, start);
	list_store(&pair.list, start, start + size - 1, value(size));
	pair_verify(&pair);
}

Test(alloc, upwards_until_it_is_full)
{
	for (unsigned long i = 0; i < 100; i++)
		alloc(true, 3, 10, 309, 0);
	alloc(true, 1, 10, 309, -EBUSY);
	alloc(true, 1, 9, 309, 0);
	alloc(true, 1, 310, 310, 0);
}

Test(alloc, downwards_until_it_is_full)
{
	for (unsigned long i = 0; i < 100; i++)
		alloc(false, 3, 10, 309, 0);
	alloc(false, 1, 10, 309, -EBUSY);
	alloc(false, 1, 0, 309, 0);
	alloc(false, M - 310, 310, M - 1, 0);
}

Test(alloc, at_both_ends_of_the_indices)
{
	alloc(true, 1, 0, M, 0);
	alloc(false, 1, 0, M, 0);
	alloc(true, M - 1, 0, M, 0);
	alloc(true, 1, 0, M, -EBUSY);
	alloc(false, 1, 0, M, -EBUSY);
}

Test(alloc, what_is_given_back_is_used_again)
{
	for (unsigned long i = 0; i < 200; i++)
		alloc(true, 2, 0, 399, 0);
	for (unsigned long i = 0; i < 200; i += 7)
		store(i * 2, i * 2 + 1, NULL);
	alloc(true, 3, 0, 399, -EBUSY);
	for (unsigned long i = 0; i < 200; i += 7)
		alloc(i & 1, 2, 0, 399, 0);
	alloc(true, 1, 0, 399, -EBUSY);
}

Test(alloc, refuses_what_cannot_be)
{
	alloc(true, 0, 0, 9, -EINVAL);
	alloc(true, 11, 0, 9, -EINVAL);
	alloc(true, 1, 9, 8, -EINVAL);
	alloc(false, 0, 0, 9, -EINVAL);
	alloc(false, 11, 0, 9, -EINVAL);
	alloc(false, 1, 9, 8, -EINVAL);
	cr_assert(mtree_empty(mt));
}

Test(alloc, only_in_a_tree_that_keeps_gaps)
{
	DEFINE_MTREE(plain);
	unsigned long at, next = 0;

	cr_assert_eq(mtree_alloc_range(&plain, &at, value(1), 1, 0, 9, GFP_KERNEL), -EINVAL);
	cr_assert_eq(mtree_alloc_rrange(&plain, &at, value(1), 1, 0, 9, GFP_KERNEL), -EINVAL);
	cr_assert_eq(mtree_alloc_cyclic(&plain, &at, value(1), 0, 9, &next, GFP_KERNEL), -EINVAL);
	cr_assert(mtree_empty(&plain));
}

TestSuite(cyclic, .init = begin, .fini = end, .timeout = 60);

static unsigned long next;

static void cyclic(unsigned long lo, unsigned long hi, int expected, unsigned long index)
{
	unsigned long at = 12345;
	int ret = mtree_alloc_cyclic(mt, &at, value(1), lo, hi, &next, GFP_KERNEL);

	cr_assert_eq(ret, expected, "from %lu to %lu: %d", lo, hi, ret);
	if (ret < 0)
		return;
	cr_assert_eq(at, index);
	cr_assert_eq(next, index + 1);
	list_store(&pair.list, at, at, value(1));
}

Test(cyclic, goes_on_from_the_last_and_wraps_once)
{
	next = 0;
	for (unsigned long i = 5; i < 10; i++)
		cyclic(5, 9, 0, i);
	cyclic(5, 9, -EBUSY, 0);
	store(6, 7, NULL);
	next = 7;
	cyclic(5, 9, 0, 7);
	cyclic(5, 9, 1, 6);
	cyclic(5, 9, -EBUSY, 0);
	cr_assert_eq(next, 7);
}

Test(cyclic, does_not_take_at_once_what_was_given_back)
{
	next = 0;
	cyclic(0, M, 0, 0);
	cyclic(0, M, 0, 1);
	store(0, 1, NULL);
	cyclic(0, M, 0, 2);
}

Test(cyclic, behind_the_last_index_of_all_says_that_it_wrapped)
{
	next = M;
	cyclic(3, M, 0, M);
	cr_assert_eq(next, 0);
	cyclic(3, M, 1, 3);
	cyclic(3, M, 0, 4);
}
