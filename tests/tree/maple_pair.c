/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Trees are thinned by stores alone: one entry over two neighbours leaves a slot less, and one over
 * two leaves leaves a leaf less. What the tree makes of it is counted, not assumed.
 */
#include "maple_pair.h"

#include <criterion/criterion.h>

#include <string.h>

unsigned long live_nodes(void)
{
	node_pool_drain(&mt_node_pool);
	return node_pool_live(&mt_node_pool);
}

void pair_begin(struct pair *pair, unsigned int flags)
{
	rcu_register_thread();
	mt_init_flags(&pair->mt, flags);
	pair->list.n = 0;
}

void pair_end(struct pair *pair)
{
	node_pool_fail(&mt_node_pool, 0, 0);
	pair_verify(pair);
	mtree_destroy(&pair->mt);
	cr_assert(mtree_empty(&pair->mt));
	cr_assert_eq(live_nodes(), 0);
}

void pair_compare(const struct pair *pair, struct maple_tree *mt)
{
	MA_STATE(mas, mt, 0, 0);
	unsigned int at = 0;
	void *entry;

	cr_assert_eq(mt_check(mt), 0);
	rcu_read_lock();
	mas_for_each(&mas, entry, ULONG_MAX) {
		const struct range *range = &pair->list.ranges[at++];

		cr_assert(at <= pair->list.n && entry == range->entry &&
				  mas.index == range->first && mas.last == range->last,
			  "range %u: %p at %lx to %lx", at - 1, entry, mas.index, mas.last);
	}
	rcu_read_unlock();
	cr_assert_eq(at, pair->list.n);
}

void pair_verify(struct pair *pair)
{
	pair_compare(pair, &pair->mt);
}

void pair_store(struct pair *pair, unsigned long first, unsigned long last, void *entry)
{
	cr_assert_eq(mtree_store_range(&pair->mt, first, last, entry, GFP_KERNEL), 0);
	list_store(&pair->list, first, last, entry);
	cr_assert_eq(mt_check(&pair->mt), 0, "after a store to %lx to %lx", first, last);
}

void pair_fill(struct pair *pair, unsigned long first, unsigned int n, unsigned long size,
	       unsigned long gap)
{
	for (unsigned int i = 0; i < n; i++) {
		unsigned long last = first + size - 1;
		void *entry = xa_mk_value(first);

		cr_assert_eq(mtree_store_range(&pair->mt, first, last, entry, GFP_KERNEL), 0);
		list_store(&pair->list, first, last, entry);
		first += size + gap;
	}
	cr_assert_eq(mt_check(&pair->mt), 0);
}

enum store_type pair_try(struct pair *pair, unsigned long first, unsigned long last, void *entry)
{
	static struct pair copy;
	MA_STATE(mas, &copy.mt, first, last);
	struct mt_plan plan;

	mt_init_flags(&copy.mt, mt_flags(&pair->mt) & ~MT_FLAGS_HEIGHT_MASK);
	cr_assert_eq(mtree_dup(&pair->mt, &copy.mt, GFP_KERNEL), 0);
	copy.list.n = pair->list.n;
	memcpy(copy.list.ranges, pair->list.ranges, pair->list.n * sizeof(struct range));

	mas_lock(&mas);
	plan = mas_plan(&mas, entry);
	mas_set_range(&mas, first, last);
	cr_assert_eq(mas_preallocate(&mas, entry, GFP_KERNEL), 0);
	cr_assert_eq(mas.store_type, plan.type);
	cr_assert_eq(mas.allocated, plan.nodes, "%u of %u nodes for %lx to %lx", mas.allocated,
		     plan.nodes, first, last);
	node_pool_fail(&mt_node_pool, 1, ULONG_MAX);
	mas_store_prealloc(&mas, entry);
	node_pool_fail(&mt_node_pool, 0, 0);
	mas_unlock(&mas);
	list_store(&copy.list, first, last, entry);
	pair_compare(&copy, &copy.mt);
	mtree_destroy(&copy.mt);
	return plan.type;
}

struct ma_state pair_leaf(struct pair *pair, unsigned long index)
{
	MA_STATE(mas, &pair->mt, index, index);

	rcu_read_lock();
	mas_walk(&mas);
	rcu_read_unlock();
	cr_assert(mas_is_active(&mas));
	mas.end = mt_end(mt_to_node(mas.node));
	return mas;
}

/* Stores one entry over this slot of a leaf and the next. */
static void join(struct pair *pair, const struct ma_state *leaf, unsigned int offset)
{
	const struct maple_node *node = mt_to_node(leaf->node);
	unsigned long first = mt_slot_first(node, offset, leaf->min);
	unsigned long last = mt_slot_last(node, offset + 1, leaf->end, leaf->max);

	pair_store(pair, first, last, xa_mk_value(first));
}

/* Leaves with no more slots than they must have, as long as the leaf's end is an index to go to. */
static void thin_leaves(struct pair *pair)
{
	unsigned long index = 0;

	while (mt_height(&pair->mt) > 1) {
		struct ma_state leaf = pair_leaf(pair, index);

		if (leaf.end + 1 > mt_min_slots(maple_leaf_64)) {
			join(pair, &leaf, leaf.end / 2);
		} else {
			if (leaf.max == ULONG_MAX)
				return;
			index = leaf.max + 1;
		}
	}
}

/* The node over the leaf of @index. */
static struct maple_node *over(struct pair *pair, unsigned long index)
{
	struct ma_state leaf = pair_leaf(pair, index);

	return mt_word_parent(mt_word(mt_to_node(leaf.node)));
}

/* One leaf less in each node over leaves that has more than it must have. */
static void thin_above(struct pair *pair)
{
	unsigned int least = mt_min_slots(mt_inner_type(&pair->mt));
	unsigned long index = 0;

	while (mt_height(&pair->mt) > 2) {
		struct ma_state leaf = pair_leaf(pair, index), next;
		struct maple_node *node = over(pair, index);

		if (leaf.max == ULONG_MAX)
			return;
		next = pair_leaf(pair, leaf.max + 1);
		if (mt_end(node) + 1 > least && node == over(pair, leaf.max + 1)) {
			/* Two leaves of six become one: what is left of both and a slot. */
			pair_store(pair, leaf.index, next.last, xa_mk_value(leaf.index));
			next = pair_leaf(pair, leaf.index);
		}
		if (next.max == ULONG_MAX)
			return;
		index = next.max + 1;
	}
}

void pair_thin(struct pair *pair)
{
	unsigned int before, after;

	thin_leaves(pair);
	do {
		pair_count_nodes(pair, &before);
		thin_above(pair);
		thin_leaves(pair);
		pair_count_nodes(pair, &after);
	} while (after > before);
}

static void count(const void *enode, unsigned int *nodes, unsigned int *at_minimum)
{
	const struct maple_node *node = mt_to_node(enode);
	enum maple_type type = mt_type(enode);
	unsigned int end = mt_end(node);

	*nodes += 1;
	*at_minimum += end + 1 == mt_min_slots(type);
	for (unsigned int i = 0; !mt_is_leaf(enode) && i <= end; i++)
		count(mt_slot(node, type, i), nodes, at_minimum);
}

unsigned int pair_count_nodes(struct pair *pair, unsigned int *at_minimum)
{
	void *root = mt_root(&pair->mt);
	unsigned int nodes = 0;

	*at_minimum = 0;
	if (!mt_is_node(root) || mt_is_leaf(root))
		return 0;
	for (unsigned int i = 0; i <= mt_end(mt_to_node(root)); i++)
		count(mt_slot(mt_to_node(root), mt_type(root), i), &nodes, at_minimum);
	return nodes;
}
