/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The maple tree's free ranges.
 *
 * An inner node of a tree with MT_FLAGS_ALLOC_RANGE keeps the largest run of NULL below each slot,
 * and no run crosses a leaf's end, so the first gap that is large enough lies behind the first slot
 * that promises one. Only the limits can break a promise: the part of a run that counts begins at
 * min and ends at max. Then the search goes on behind the node where it got stuck, from the root
 * again. All promises behind min are kept up to max, so that happens at most once for each level.
 *
 * In a tree that keeps no gaps each slot is taken as promising: the search is right and slow.
 *
 * The search that comes down from max is the mirror image.
 */
#include "mt_internal.h"

/* How one way down ended. */
enum outcome {
	FOUND,
	STUCK, /* go on from where the cursor's min or max says */
	DEAD,  /* met a node that has been replaced */
};

static bool promises(const void *enode, unsigned int offset, unsigned long size)
{
	return mt_type(enode) != maple_arange_64 || mt_gap(mt_to_node(enode), offset) >= size;
}

/* The first slot from the one of @from on that promises; end + 1 if none does. */
static unsigned int promising_up(const void *enode, unsigned int end, unsigned long from,
				 unsigned long size)
{
	unsigned int offset = mt_find_slot(mt_to_node(enode), end, from);

	while (offset <= end && !promises(enode, offset, size))
		offset++;
	return offset;
}

/* The last slot down from the one of @from that promises; -1 if none does. */
static int promising_down(const void *enode, unsigned int end, unsigned long from,
			  unsigned long size)
{
	int offset = mt_find_slot(mt_to_node(enode), end, from);

	while (offset >= 0 && !promises(enode, offset, size))
		offset--;
	return offset;
}

/* Takes slot @offset of the leaf, if what is free of it from @min to @max is enough. */
static bool take(struct ma_state *mas, unsigned int offset, unsigned int end, unsigned long min,
		 unsigned long max, unsigned long size)
{
	const struct maple_node *node = mt_to_node(mas->node);
	unsigned long first = mt_slot_first(node, offset, mas->min);
	unsigned long last = mt_slot_last(node, offset, end, mas->max);

	if (mt_slot(node, maple_leaf_64, offset))
		return false;
	first = first > min ? first : min;
	last = last < max ? last : max;
	if (first > last || last - first < size - 1)
		return false;
	mas->offset = offset;
	mas->end = end;
	mas->index = first;
	mas->last = last;
	return true;
}

/* Narrows the cursor's min and max from @enode's to those of its slot. Return: what is there. */
static void *enter(struct ma_state *mas, const void *enode, unsigned int offset, unsigned int end)
{
	const struct maple_node *node = mt_to_node(enode);

	mas->max = mt_slot_last(node, offset, end, mas->max);
	mas->min = mt_slot_first(node, offset, mas->min);
	return mt_slot(node, mt_type(enode), offset);
}

/* The first gap from @min on, at most to @max, on one way down from @enode, the root. */
static enum outcome search_up(struct ma_state *mas, void *enode, unsigned long min,
			      unsigned long max, unsigned long size)
{
	const struct maple_node *node;
	unsigned int offset, end;
	bool found = false;

	for (;;) {
		unsigned long from = min > mas->min ? min : mas->min;

		mas->node = enode;
		node = mt_to_node(enode);
		end = mt_end(node);
		if (mt_is_leaf(enode))
			break;
		offset = promising_up(enode, end, from, size);
		if (offset <= end)
			enode = enter(mas, enode, offset, end);
		if (mt_dead(node))
			return DEAD;
		if (offset > end)
			return STUCK;
	}
	for (offset = 0; offset <= end && !found; offset++)
		found = take(mas, offset, end, min, max, size);
	return mt_dead(node) ? DEAD : found ? FOUND : STUCK;
}

/* The last gap down from @max, at least from @min. */
static enum outcome search_down(struct ma_state *mas, void *enode, unsigned long min,
				unsigned long max, unsigned long size)
{
	const struct maple_node *node;
	unsigned int end;
	bool found = false;
	int offset;

	for (;;) {
		unsigned long from = max < mas->max ? max : mas->max;

		mas->node = enode;
		node = mt_to_node(enode);
		end = mt_end(node);
		if (mt_is_leaf(enode))
			break;
		offset = promising_down(enode, end, from, size);
		if (offset >= 0)
			enode = enter(mas, enode, offset, end);
		if (mt_dead(node))
			return DEAD;
		if (offset < 0)
			return STUCK;
	}
	for (offset = end; offset >= 0 && !found; offset--)
		found = take(mas, offset, end, min, max, size);
	return mt_dead(node) ? DEAD : found ? FOUND : STUCK;
}

/* In a tree without nodes all is free, but index 0 if @root is there. */
static bool search_root(struct ma_state *mas, const void *root, unsigned long min,
			unsigned long max, unsigned long size)
{
	if (root && !min)
		min = 1;
	if (min > max || max - min < size - 1)
		return false;
	mas->status = ma_none;
	mas->node = NULL;
	mas->index = min;
	mas->last = max;
	return true;
}

static bool search(struct ma_state *mas, unsigned long min, unsigned long max, unsigned long size,
		   bool up)
{
	enum outcome outcome;
	void *root;

	for (;;) {
		root = mt_root(mas->tree);
		if (!mt_is_node(root))
			return search_root(mas, root, min, max, size);
		mas->min = 0;
		mas->max = ULONG_MAX;
		outcome = up ? search_up(mas, root, min, max, size)
			     : search_down(mas, root, min, max, size);
		if (outcome == FOUND) {
			mas->status = ma_active;
			return true;
		}
		if (outcome == DEAD)
			continue;
		/* Behind the node where it got stuck, or before it. */
		if (up ? mas->max >= max : mas->min <= min)
			return false;
		if (up)
			min = mas->max + 1;
		else
			max = mas->min - 1;
	}
}

static int empty_area(struct ma_state *mas, unsigned long min, unsigned long max,
		      unsigned long size, bool up)
{
	if (mas_is_err(mas))
		return xa_err(mas->node);
	if (!size || min > max || max - min < size - 1)
		return -EINVAL;
	if (!search(mas, min, max, size, up)) {
		mas_reset(mas);
		return -EBUSY;
	}
	if (up)
		mas->last = mas->index + size - 1;
	else
		mas->index = mas->last - (size - 1);
	return 0;
}

/**
 * mas_empty_area() - Find the lowest free range.
 * @min: its first index at the earliest
 * @max: its last index at the latest
 * @size: how many indices
 *
 * Context: The tree's lock, or RCU if an answer that is out of date will do. The tree has
 * MT_FLAGS_ALLOC_RANGE, or the search is slow.
 * Return: 0: index and last are the range, and a store goes there. -EBUSY: there is none; -EINVAL:
 * @min to @max is less than @size, or that is 0.
 */
int mas_empty_area(struct ma_state *mas, unsigned long min, unsigned long max, unsigned long size)
{
	return empty_area(mas, min, max, size, true);
}

/**
 * mas_empty_area_rev() - Find the highest free range.
 *
 * Arguments, Context and Return are as for mas_empty_area().
 */
int mas_empty_area_rev(struct ma_state *mas, unsigned long min, unsigned long max,
		       unsigned long size)
{
	return empty_area(mas, min, max, size, false);
}
