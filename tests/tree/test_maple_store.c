/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Stores of every kind, with and without gaps and readers. First one of each kind, made to be just
 * that; then, on trees of all sizes, a store from each boundary to each other.
 */
#include "maple_fixture.h"

#define M ULONG_MAX

/* Stores, and checks that it was of this kind and asked for so many nodes. */
static void is(enum store_type type, unsigned int nodes, unsigned long first, unsigned long last,
	       void *entry)
{
	MA_STATE(mas, mt, first, last);
	struct mt_plan plan;

	mas_lock(&mas);
	plan = mas_plan(&mas, entry);
	mas_set_range(&mas, first, last);
	cr_assert_eq(mas_store_gfp(&mas, entry, GFP_KERNEL), 0);
	mas_unlock(&mas);
	list_store(&pair.list, first, last, entry);
	pair_verify(&pair);
	cr_assert_eq(plan.type, type, "%lx to %lx is of type %d", first, last, plan.type);
	cr_assert_eq(plan.nodes, nodes, "%lx to %lx asks for %u", first, last, plan.nodes);
}

MODES(kind, first_stores)
{
	pair_begin(&pair, *mode);
	is(wr_store_root, 0, 0, 0, value(1));
	is(wr_store_root, 0, 0, 0, value(2));
	is(wr_store_root, 0, 0, 0, NULL);
	is(wr_store_root, 1, 5, 9, value(1));
	pair_store(&pair, 0, M, NULL);
	is(wr_store_root, 0, 0, 0, value(1));
	is(wr_store_root, 1, 1, 1, value(2));
	pair_end(&pair);
}

MODES(kind, new_root)
{
	pair_begin(&pair, *mode);
	is(wr_store_root, 1, 0, M, value(1));
	is(wr_new_root, 1, 0, M, value(1));
	pair_store(&pair, 100, 199, NULL);
	is(wr_new_root, 1, 0, M, value(2));
	pair_fill(&pair, 0, 300, 2, 1);
	is(wr_new_root, 1, 0, M, value(3));
	pair_end(&pair);
}

MODES(kind, exact_fit)
{
	pair_begin(&pair, *mode);
	pair_fill(&pair, 0, 300, 10, 0);
	for (unsigned long i = 0; i < 300; i++)
		is(wr_exact_fit, 0, i * 10, i * 10 + 9, value(i));
	is(wr_exact_fit, 0, 3000, M, value(1));
	/* The leaf must not end with it. */
	is(wr_exact_fit, 0, pair_leaf(&pair, 1000).min, pair_leaf(&pair, 1000).min + 9, NULL);
	pair_end(&pair);
}

MODES(kind, append)
{
	pair_begin(&pair, *mode);
	pair_store(&pair, 0, M, value(0));
	for (unsigned long i = 1; i < 16; i++)
		is(wr_append, 0, i * 10, M, value(i));
	cr_assert_eq(mt_height(mt), 1);
	pair_end(&pair);
}

MODES(kind, one_slot)
{
	bool readers = *mode & MT_FLAGS_USE_RCU;
	enum store_type type = readers ? wr_node_store : wr_slot_store;

	pair_begin(&pair, *mode);
	pair_fill(&pair, 0, 10, 10, 0);
	is(type, readers, 15, 29, value(1));
	is(type, readers, 30, 45, value(2));
	pair_end(&pair);
}

MODES(kind, node_rewrite)
{
	bool readers = *mode & MT_FLAGS_USE_RCU;

	pair_begin(&pair, *mode);
	pair_fill(&pair, 0, 10, 10, 0);
	is(wr_node_store, readers, 12, 13, value(1));
	is(wr_node_store, readers, 25, 55, value(2));
	is(wr_node_store, readers, 0, 40, NULL);
	pair_end(&pair);
}

/* The first leaf that is full; the tree gets one at the latest when it is filled in order. */
static struct ma_state full_leaf(void)
{
	unsigned long index = 0;

	pair_fill(&pair, 0, 1, 10, 0);
	while (pair_leaf(&pair, 0).end < MT_RANGE_SLOTS - 1)
		pair_fill(&pair, index += 10, 1, 10, 0);
	return pair_leaf(&pair, 0);
}

MODES(kind, split)
{
	struct ma_state leaf;

	pair_begin(&pair, *mode);
	leaf = full_leaf();
	cr_assert_eq(mt_height(mt), 1);
	/* Above a root that is full, there is no vacancy: 2h + 1. */
	is(wr_split_store, 3, 12, 13, value(1));
	cr_assert_eq(mt_height(mt), 2);
	cr_assert_lt(pair_leaf(&pair, 0).max, leaf.max);
	/* Now the root has room: one leaf becomes two. */
	for (unsigned long at = 31; pair_leaf(&pair, 0).end < MT_RANGE_SLOTS - 1; at += 3)
		pair_store(&pair, at, at, value(at));
	leaf = pair_leaf(&pair, 0);
	is(wr_split_store, 3, 2, 3, value(1));
	pair_end(&pair);
}

MODES(kind, rebalance)
{
	struct ma_state leaf;

	pair_begin(&pair, *mode);
	pair_fill(&pair, 0, 100, 10, 0);
	pair_thin(&pair);
	leaf = pair_leaf(&pair, 0);
	cr_assert_eq(leaf.end + 1, mt_min_slots(maple_leaf_64));
	is(wr_rebalance, 3, 0, mt_pivot(mt_to_node(leaf.node), 1), value(1));
	pair_end(&pair);
}

MODES(kind, spanning)
{
	struct ma_state leaf, next;

	pair_begin(&pair, *mode);
	pair_fill(&pair, 0, 200, 10, 0);
	leaf = pair_leaf(&pair, 0);
	next = pair_leaf(&pair, leaf.max + 1);
	cr_assert_eq(pair_try(&pair, leaf.max, leaf.max + 1, value(1)), wr_spanning_store);
	cr_assert_eq(pair_try(&pair, 5, next.max - 5, value(1)), wr_spanning_store);
	pair_end(&pair);
}

/* The trap: what is right of the store lies in the next node, or there is nothing right of it. */
MODES(kind, spanning_to_the_end_of_a_node)
{
	struct ma_state leaf, next;

	pair_begin(&pair, *mode);
	pair_fill(&pair, 0, 300, 10, 0);
	for (unsigned long at = 0;; at = leaf.max + 1) {
		leaf = pair_leaf(&pair, at);
		if (leaf.max == M)
			break;
		next = pair_leaf(&pair, leaf.max + 1);
		for (unsigned int null = 0; null < 2; null++) {
			pair_try(&pair, leaf.min, next.max, null ? NULL : value(1));
			pair_try(&pair, leaf.min + 1, next.max, null ? NULL : value(1));
			pair_try(&pair, leaf.max, next.max, null ? NULL : value(1));
			pair_try(&pair, leaf.min, M, null ? NULL : value(1));
			pair_try(&pair, leaf.max, M, null ? NULL : value(1));
			pair_try(&pair, 0, leaf.max, null ? NULL : value(1));
			pair_try(&pair, 0, next.min, null ? NULL : value(1));
		}
	}
	pair_end(&pair);
}

/*
 * From each boundary to each other
 */

static unsigned int seen[wr_slot_store + 1];

static void try_both(unsigned long first, unsigned long last)
{
	if (first > last)
		return;
	seen[pair_try(&pair, first, last, value(77))]++;
	seen[pair_try(&pair, first, last, NULL)]++;
}

/* With each end on a boundary, and inside of the range. */
static void try_ends(const struct range *from, const struct range *to)
{
	try_both(from->first, to->last);
	try_both(from->first + 1, to->last);
	try_both(from->first, to->last - 1);
	try_both(from->first + 1, to->last - 1);
	try_both(from->first, to->last + 1);
}

/* From each range of @stride; @far: how many ranges a store may cover */
static void try_all(unsigned int n, unsigned int stride, unsigned int far, unsigned long gap)
{
	pair_fill(&pair, gap, n, 5, gap);
	pair_verify(&pair);
	for (unsigned int i = 0; i < n; i += stride * TRY_EACH) {
		for (unsigned int j = i; j < n && j < i + far; j++)
			try_ends(&pair.list.ranges[i], &pair.list.ranges[j]);
		try_both(0, pair.list.ranges[i].last);
		try_both(pair.list.ranges[i].first, M);
		try_both(pair.list.ranges[i].last + 1, M);
	}
	pair_store(&pair, 0, M, NULL);
}

MODES(each, from_boundary_to_boundary)
{
	pair_begin(&pair, *mode);
	for (unsigned int n = 1; n < 36; n += n < 8 ? 3 : n < 18 ? 1 : 5)
		try_all(n, 1, n, n & 1 ? 0 : 3);
	try_all(150, 7, 18, 3);
	try_all(151, 7, 18, 0);
	for (enum store_type type = wr_new_root; type <= wr_slot_store; type++) {
		bool never = type == wr_slot_store && *mode & MT_FLAGS_USE_RCU;

		cr_expect((seen[type] == 0) == never, "type %d: %u", type, seen[type]);
	}
	pair_end(&pair);
}

/* Ranges in an order that is neither up nor down. */
MODES(each, stored_out_of_order)
{
	pair_begin(&pair, *mode);
	for (unsigned long i = 0; i < 2000; i++) {
		unsigned long at = i * 1009 % 2000;

		pair_store(&pair, at * 3, at * 3 + at % 3, value(at));
	}
	pair_verify(&pair);
	for (unsigned long i = 0; i < 2000; i++) {
		unsigned long at = i * 1361 % 2000;

		pair_store(&pair, at * 3, at * 3 + at % 3, NULL);
	}
	cr_assert(mtree_empty(mt));
	pair_end(&pair);
}
