/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Preallocation: how many nodes a store asks for, that these are always enough, with nodes that
 * have just the slots that they must have as well, and that none is lost.
 */
#include "maple_fixture.h"
#include "seed.h"

#define M ULONG_MAX

/*
 * The numbers of the table, from the nodes on the way down
 */

struct levels {
	unsigned int height, vacant, sufficient;
};

/* Down to the leaf, or to the node in which the store touches two slots. */
static struct levels look_down(unsigned long first, unsigned long last, void *entry)
{
	struct levels levels = { mt_height(mt), 0, 0 };
	unsigned long min = 0, max = M;
	void *enode = mt_root(mt);

	for (unsigned int depth = 0; !mt_is_leaf(enode); depth++) {
		struct maple_node *node = mt_to_node(enode);
		unsigned int end = mt_end(node), offset = mt_find_slot(node, end, first);
		unsigned int least = mt_min_slots(mt_type(enode));
		unsigned long slot_last = mt_slot_last(node, offset, end, max);

		min = mt_slot_first(node, offset, min);
		max = slot_last;
		/* A leaf does not end with NULL, so erasing up to its end touches the next one. */
		if (last > max || (last == max && !entry && max != M))
			break;
		if (end + 1 < mt_slots(mt_type(enode)))
			levels.vacant = depth + 1;
		if (depth ? end > least + 1 : end > 2)
			levels.sufficient = depth + 1;
		enode = mt_slot(node, mt_type(enode), offset);
	}
	return levels;
}

static unsigned int nodes_of(enum store_type type, struct levels levels, void *entry)
{
	unsigned int vacant = levels.height - levels.vacant, both = vacant;

	if (levels.sufficient < levels.vacant)
		both = levels.height - levels.sufficient;
	switch (type) {
	case wr_new_root:
		return entry != NULL;
	case wr_node_store:
		return mt_in_rcu(mt);
	case wr_split_store:
		return 2 * vacant + 1;
	case wr_rebalance:
		return 2 * both + 1;
	case wr_spanning_store:
		return 3 * both + 1;
	default:
		return 0;
	}
}

static void asks_right(unsigned long first, unsigned long last, void *entry)
{
	struct levels levels = look_down(first, last, entry);
	MA_STATE(mas, mt, first, last);
	struct mt_plan plan;

	mas_lock(&mas);
	plan = mas_plan(&mas, entry);
	mas_unlock(&mas);
	cr_assert_eq(plan.height, levels.height);
	cr_assert_eq(plan.nodes, nodes_of(plan.type, levels, entry),
		     "%lx to %lx, %p: type %d, height %u, vacant %u (%u), sufficient %u (%u): %u",
		     first, last, entry, plan.type, plan.height, plan.vacant, levels.vacant,
		     plan.sufficient, levels.sufficient, plan.nodes);
}

/* A tree of ranges and gaps at random. */
static void grow_at_random(uint64_t *random, unsigned int n)
{
	while (pair.list.n < n) {
		unsigned long first = test_random(random) % (8 * n);

		pair_store(&pair, first, first + test_random(random) % 6, value(first));
	}
}

MODES(prealloc, asks_for_what_the_heights_say)
{
	uint64_t random = test_seed();

	pair_begin(&pair, *mode);
	for (unsigned int n = 30; n <= 1200; n *= 2) {
		grow_at_random(&random, n);
		for (unsigned int i = 0; i < 1000; i++) {
			unsigned long first = test_random(&random) % (8 * n);
			unsigned long last = first + test_random(&random) % (i & 1 ? 8 : 8 * n);

			asks_right(first, last, i & 2 ? value(i) : NULL);
		}
	}
	pair_end(&pair);
}

/*
 * Enough
 */

/* From slots' first indices to the last ones of the next @far slots, with and without entry. */
static void try_slots(unsigned long far, unsigned int stride)
{
	struct range from = list_around(&pair.list, 0), to;

	for (;;) {
		to = from;
		for (unsigned long i = 0;; i++) {
			if (i < 13 || i + 2 > far) {
				pair_try(&pair, from.first, to.last, value(77));
				pair_try(&pair, from.first, to.last, NULL);
				pair_try(&pair, from.first + (from.first != from.last), to.last,
					 value(78));
			}
			if (to.last == M || i == far)
				break;
			to = list_around(&pair.list, to.last + 1);
		}
		for (unsigned int i = 0; i < stride * TRY_EACH; i++) {
			if (from.last == M)
				return;
			from = list_around(&pair.list, from.last + 1);
		}
	}
}

static void thin(unsigned int n, unsigned long gap)
{
	unsigned int nodes, at_minimum;

	pair_fill(&pair, 0, n, 4, gap);
	pair_thin(&pair);
	pair_verify(&pair);
	nodes = pair_count_nodes(&pair, &at_minimum);
	cr_assert_geq(nodes, 12);
	/* The last ones at each level have no neighbour to give to. */
	cr_assert_geq(at_minimum, nodes - nodes / 6 - 2, "%u of %u nodes at their minimum",
		      at_minimum, nodes);
}

MODES(prealloc, is_enough_where_every_node_is_at_its_minimum)
{
	pair_begin(&pair, *mode);
	thin(400, 0);
	try_slots(40, 2);
	pair_store(&pair, 0, M, NULL);
	thin(900, 1);
	cr_assert_geq(mt_height(mt), 3);
	try_slots(14, 5);
	pair_end(&pair);
}

/* Each store changes the tree, so that after it nodes of all fillings meet. */
MODES(prealloc, is_enough_on_the_way_to_empty)
{
	uint64_t random = test_seed();

	pair_begin(&pair, *mode);
	thin(900, 0);
	while (pair.list.n) {
		unsigned int at = test_random(&random) % pair.list.n;
		unsigned int to = at + test_random(&random) % 8;
		struct range from = pair.list.ranges[at];
		unsigned long last;

		last = pair.list.ranges[to < pair.list.n ? to : pair.list.n - 1].last;
		pair_try(&pair, from.first, last, test_random(&random) & 1 ? NULL : value(1));
		pair_store(&pair, from.first, last, NULL);
	}
	cr_assert(mtree_empty(mt));
	pair_end(&pair);
}

/*
 * Once more, and not at all
 */

MODES(prealloc, again_for_a_larger_store_asks_for_more)
{
	MA_STATE(mas, mt, 12, 13);
	struct mt_plan plan;

	pair_begin(&pair, *mode);
	pair_fill(&pair, 0, 600, 5, 0);
	mas_lock(&mas);
	cr_assert_eq(mas_preallocate(&mas, value(1), GFP_KERNEL), 0);
	mas_set_range(&mas, 12, 2000);
	plan = mas_plan(&mas, value(1));
	cr_assert_eq(plan.type, wr_spanning_store);
	mas_set_range(&mas, 12, 2000);
	cr_assert_eq(mas_preallocate(&mas, value(1), GFP_KERNEL), 0);
	cr_assert_geq(mas.allocated, plan.nodes);
	node_pool_fail(&mt_node_pool, 1, M);
	mas_store_prealloc(&mas, value(1));
	mas_unlock(&mas);
	list_store(&pair.list, 12, 2000, value(1));
	pair_end(&pair);
}

MODES(prealloc, again_for_a_smaller_store_loses_nothing)
{
	MA_STATE(mas, mt, 12, 2000);

	pair_begin(&pair, *mode);
	pair_fill(&pair, 0, 600, 5, 0);
	mas_lock(&mas);
	cr_assert_eq(mas_preallocate(&mas, value(1), GFP_KERNEL), 0);
	mas_set_range(&mas, 10, 14);
	cr_assert_eq(mas_preallocate(&mas, value(1), GFP_KERNEL), 0);
	node_pool_fail(&mt_node_pool, 1, M);
	mas_store_prealloc(&mas, value(1));
	mas_unlock(&mas);
	list_store(&pair.list, 10, 14, value(1));
	pair_end(&pair);
}

/* Whatever was preallocated for: a store that is not mas_store_prealloc() gets what it needs. */
MODES(prealloc, for_another_store_is_no_harm)
{
	MA_STATE(mas, mt, 12, 13);

	pair_begin(&pair, *mode);
	pair_fill(&pair, 0, 600, 5, 0);
	mas_lock(&mas);
	cr_assert_eq(mas_preallocate(&mas, value(1), GFP_KERNEL), 0);
	mas_set_range(&mas, 12, 2000);
	cr_assert_eq(mas_store_gfp(&mas, value(1), GFP_KERNEL), 0);
	cr_assert_null(mas.alloc);
	mas_unlock(&mas);
	list_store(&pair.list, 12, 2000, value(1));
	pair_end(&pair);
}

MODES(prealloc, gives_back_what_the_store_did_not_take)
{
	unsigned int at_minimum;
	MA_STATE(mas, mt, 3, 1500);

	pair_begin(&pair, *mode);
	pair_fill(&pair, 0, 600, 5, 0);
	mas_lock(&mas);
	cr_assert_eq(mas_preallocate(&mas, value(1), GFP_KERNEL), 0);
	mas_store_prealloc(&mas, value(1));
	cr_assert_null(mas.alloc);
	mas_unlock(&mas);
	list_store(&pair.list, 3, 1500, value(1));
	cr_assert_eq(live_nodes(), pair_count_nodes(&pair, &at_minimum) + 1);
	pair_end(&pair);
}

MODES(prealloc, unused_is_given_back_by_destroy)
{
	unsigned int at_minimum;
	MA_STATE(mas, mt, 3, 1500);

	pair_begin(&pair, *mode);
	pair_fill(&pair, 0, 600, 5, 0);
	mas_lock(&mas);
	cr_assert_eq(mas_preallocate(&mas, value(1), GFP_KERNEL), 0);
	cr_assert_gt(live_nodes(), pair_count_nodes(&pair, &at_minimum) + 1);
	mas_destroy(&mas);
	mas_unlock(&mas);
	cr_assert_eq(live_nodes(), pair_count_nodes(&pair, &at_minimum) + 1);
	pair_end(&pair);
}

MODES(prealloc, of_a_store_that_needs_nothing_takes_nothing)
{
	MA_STATE(mas, mt, 10, 14);

	pair_begin(&pair, *mode);
	pair_fill(&pair, 0, 600, 5, 0);
	node_pool_fail(&mt_node_pool, 1, M);
	mas_lock(&mas);
	cr_assert_eq(mas_preallocate(&mas, value(1), GFP_KERNEL), 0);
	cr_assert_eq(mas.allocated, 0);
	mas_store_prealloc(&mas, value(1));
	mas_unlock(&mas);
	list_store(&pair.list, 10, 14, value(1));
	pair_end(&pair);
}
