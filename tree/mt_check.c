/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A checker of the maple tree's structure, for tests and debugging. What it checks is the list of
 * what always holds, in mt_internal.h.
 */
#include "mt_internal.h"

#include <stdio.h>

struct check {
	struct maple_tree *mt;
	unsigned int height;
	bool was_null; /* the range before this one */
};

static bool complain(const struct maple_node *node, unsigned int offset, const char *what)
{
	fprintf(stderr, "mt_check: node %p slot %u: %s\n", (const void *)node, offset, what);
	return false;
}

static unsigned long leaf_gap(const struct maple_node *node, unsigned int offset,
			      unsigned long first, unsigned long last)
{
	return mt_slot(node, maple_leaf_64, offset) ? 0 : last - first + 1;
}

static bool check_leaf(struct check *check, const struct maple_node *node, unsigned int offset,
		       unsigned long last)
{
	const void *entry = mt_slot(node, maple_leaf_64, offset);

	if (!entry && check->was_null)
		return complain(node, offset, "two ranges of NULL touch");
	if (!entry && offset == mt_end(node) && last != ULONG_MAX)
		return complain(node, offset, "the leaf ends with NULL");
	check->was_null = !entry;
	return true;
}

/* What the word and the number of slots must be. @depth: 0 for the root */
static bool check_head(struct check *check, const void *enode, const struct maple_node *parent,
		       unsigned int slot, unsigned int depth)
{
	const struct maple_node *node = mt_to_node(enode);
	unsigned long word = mt_word(node);
	bool leaf = depth + 1 == check->height;
	enum maple_type type = leaf ? maple_leaf_64 : mt_inner_type(check->mt);
	unsigned int least = depth ? mt_min_slots(type) : leaf ? 1 : 2;

	if (mt_type(enode) != type)
		return complain(node, 0, "type of node");
	if (mt_word_dead(node, word))
		return complain(node, 0, "dead");
	if (mt_word_parent(word) != parent || mt_word_slot(word) != slot)
		return complain(node, 0, "parent");
	if (mt_word_end(word) + 1 < least)
		return complain(node, mt_word_end(word), "too few slots in use");
	if (mt_word_end(word) >= mt_slots(type))
		return complain(node, mt_word_end(word), "too many slots in use");
	return true;
}

/* @gap: gets the largest gap below */
static bool check_node(struct check *check, const void *enode, unsigned long min,
		       unsigned long max, unsigned int depth, unsigned long *gap)
{
	const struct maple_node *node = mt_to_node(enode);
	enum maple_type type = mt_type(enode);
	unsigned int end = mt_end(node);

	*gap = 0;
	for (unsigned int i = 0; i <= end; i++) {
		unsigned long last = mt_slot_last(node, i, end, max);
		const void *entry = mt_slot(node, type, i);
		unsigned long below;

		if (last < min || last > max || (i < end && last == max))
			return complain(node, i, "pivot");
		if (type == maple_leaf_64) {
			if (!check_leaf(check, node, i, last))
				return false;
			below = leaf_gap(node, i, min, last);
		} else {
			if (!mt_is_node(entry))
				return complain(node, i, "no node");
			if (!check_head(check, entry, node, i, depth + 1) ||
			    !check_node(check, entry, min, last, depth + 1, &below))
				return false;
			if (type == maple_arange_64 && mt_gap(node, i) != below)
				return complain(node, i, "gap");
		}
		*gap = below > *gap ? below : *gap;
		min = last + 1;
	}
	return true;
}

/* May this root leaf not rather be no node at all? */
static bool check_root_leaf(const struct maple_node *node)
{
	unsigned int end = mt_end(node);
	const void *entry = mt_slot(node, maple_leaf_64, 0);

	if (end ? entry && end == 1 && !mt_pivot(node, 0) && !mt_is_node(entry) &&
			  !mt_slot(node, maple_leaf_64, 1) :
		  !entry)
		return complain(node, 0, "needs no node");
	return true;
}

/**
 * mt_check() - Check that the tree is well formed; says on stderr what is not.
 *
 * Context: Nobody changes the tree: its lock held, or no other user.
 * Return: 0 or -EUCLEAN.
 */
int mt_check(struct maple_tree *mt)
{
	struct check check = { .mt = mt, .height = mt_height(mt) };
	const void *root = mt_root_locked(mt);
	unsigned long gap;

	if (mt_is_node(root) != !!check.height)
		return complain(NULL, 0, "height"), -EUCLEAN;
	if (!check.height)
		return 0;
	if (!check_head(&check, root, NULL, 0, 0) ||
	    !check_node(&check, root, 0, ULONG_MAX, 0, &gap) ||
	    (check.height == 1 && !check_root_leaf(mt_to_node(root))))
		return -EUCLEAN;
	return 0;
}
