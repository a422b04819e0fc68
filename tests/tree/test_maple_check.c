/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * mt_check() finds what is wrong: each test breaks one thing in a good tree and mends it again.
 */
#include "maple_pair.h"

#include <criterion/criterion.h>

#define M ULONG_MAX

static struct pair pair;
static struct maple_tree *const mt = &pair.mt;

/* Three levels, with gaps. */
static void begin(void)
{
	pair_begin(&pair, MT_FLAGS_ALLOC_RANGE);
	pair_fill(&pair, 0, 200, 5, 3);
	cr_assert_geq(mt_height(mt), 3);
}

static void end(void)
{
	pair_end(&pair);
}

static struct maple_node *leaf_of(unsigned long index)
{
	return mt_to_node(pair_leaf(&pair, index).node);
}

static struct maple_node *above(const struct maple_node *node)
{
	return mt_word_parent(mt_word(node));
}

/* With this word of the tree, and then not any more, something is wrong. */
static void minds(void *word, unsigned long broken)
{
	unsigned long *place = word, good = *place;

	cr_assert_neq(good, broken);
	cr_assert_eq(mt_check(mt), 0);
	*place = broken;
	cr_expect_eq(mt_check(mt), -EUCLEAN);
	*place = good;
	cr_assert_eq(mt_check(mt), 0);
}

TestSuite(maple_check, .init = begin, .fini = end, .timeout = 60);

Test(maple_check, a_height_that_is_not_so)
{
	unsigned int flags = mt->ma_flags;

	mt->ma_flags = flags + (1u << MT_FLAGS_HEIGHT_OFFSET);
	cr_assert_eq(mt_check(mt), -EUCLEAN);
	mt->ma_flags = flags & ~MT_FLAGS_HEIGHT_MASK;
	cr_assert_eq(mt_check(mt), -EUCLEAN);
	mt->ma_flags = flags;
}

Test(maple_check, pivots_that_do_not_ascend)
{
	struct maple_node *leaf = leaf_of(500);

	minds(&leaf->pivot[1], leaf->pivot[0]);
	minds(&leaf->pivot[1], leaf->pivot[2]);
	minds(&leaf->pivot[1], M);
	minds(&leaf->pivot[0], 0);
	minds(&above(leaf)->pivot[0], above(leaf)->pivot[1]);
}

Test(maple_check, a_gap_that_is_not_exact)
{
	struct maple_node *node = above(leaf_of(500)), *root = mt_to_node(mt_root(mt));

	minds(&node->arange.gap[0], node->arange.gap[0] + 1);
	minds(&node->arange.gap[1], 0);
	minds(&root->arange.gap[0], 0);
	minds(&root->arange.gap[mt_end(root)], 5);
}

Test(maple_check, a_parent_that_is_not_so)
{
	struct maple_node *leaf = leaf_of(500), *other = leaf_of(1500);

	cr_assert_neq(above(leaf), above(other));
	minds(&leaf->word, (leaf->word & MT_LOW_BITS) | (unsigned long)above(other));
	minds(&leaf->word, leaf->word ^ 16);
	minds(&above(leaf)->word, above(leaf)->word ^ 16);
	minds(&mt_to_node(mt_root(mt))->word, mt_to_node(mt_root(mt))->word | (unsigned long)other);
}

Test(maple_check, a_dead_node)
{
	struct maple_node *leaf = leaf_of(500);

	minds(&leaf->word, (leaf->word & MT_LOW_BITS) | (unsigned long)leaf);
	minds(&above(leaf)->word, (unsigned long)above(leaf) | (above(leaf)->word & MT_LOW_BITS));
}

Test(maple_check, too_few_slots)
{
	struct maple_node *leaf = leaf_of(500);

	minds(&leaf->word, (leaf->word & ~15UL) | (mt_min_slots(maple_leaf_64) - 2));
	minds(&above(leaf)->word, (above(leaf)->word & ~15UL) | 2);
}

Test(maple_check, null_beside_null)
{
	struct ma_state at = pair_leaf(&pair, 500);
	void **slot = leaf_of(500)->range.slot;
	unsigned int i = at.offset ? at.offset : 2;

	cr_assert_not_null(slot[i]);
	minds(&slot[i], 0);
}

Test(maple_check, a_leaf_that_ends_with_null)
{
	struct maple_node *leaf = leaf_of(500);
	unsigned int last = mt_end(leaf);

	cr_assert_null(leaf->range.slot[last - 1]);
	leaf->range.slot[last - 1] = xa_mk_value(1);
	minds(&leaf->range.slot[last], 0);
	leaf->range.slot[last - 1] = NULL;
}

Test(maple_check, something_else_where_a_node_should_be)
{
	struct maple_node *node = above(leaf_of(500));

	minds(&node->arange.slot[1], 0);
	minds(&node->arange.slot[1], (unsigned long)xa_mk_value(5));
	minds(&node->arange.slot[1], (unsigned long)node->arange.slot[1] ^ 1UL << MT_TYPE_SHIFT);
}

Test(maple_check, a_leaf_where_no_node_is_needed)
{
	struct maple_node *leaf;

	pair_store(&pair, 0, M, NULL);
	pair_store(&pair, 0, 1, xa_mk_value(1));
	cr_assert_eq(mt_height(mt), 1);
	leaf = mt_to_node(mt_root(mt));
	minds(&leaf->pivot[0], 0);
	minds(&leaf->range.slot[0], 0);
}
