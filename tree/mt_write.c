/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The maple tree: what a store has to do, how many nodes that can take, and what is done in place.
 *
 * A store goes down from the root twice at most, to the leaf where its range begins and, when that
 * is another, to the one where it ends. Both ways are kept, so that nothing has to be looked up
 * again on the way back to the root. What is there then says which kind of store it is. A store
 * that fits into one leaf, and that no reader can catch half done, is made in place, here. All
 * others build new nodes (mt_rebuild.c).
 *
 * In place without RCU mode is whatever leaves the leaf between its minimum and its slots. In RCU
 * mode it is what one word publishes: another entry for a range that is there, or a new range at
 * the end of the last one.
 *
 * How far new nodes may be needed upwards (seed 003): a leaf that splits gives its parent one child
 * more, which ends where a node has a slot free. A leaf that is joined with a neighbour takes one
 * away, which ends where a node can spare one. Those two levels are looked for on the way down, and
 * above where the store's two ways part, as below it children are lost and gained together. A
 * store that spans may leave three nodes on a level in place of what was there, others two.
 */
#include "mt_write.h"

#include <string.h>

/* Goes down to where @index is. The tree has @height > 0 levels. */
static void walk(const struct maple_tree *mt, struct mt_level *way, unsigned int height,
		 unsigned long index)
{
	enum maple_type inner = mt_inner_type(mt);
	unsigned long min = 0, max = ULONG_MAX;
	const void *enode = mt_root_locked(mt);

	for (struct mt_level *level = &way[height - 1];; level--) {
		struct maple_node *node = mt_to_node(enode);
		unsigned int end, offset;

		mt_prefetch(node);
		end = mt_end(node);
		offset = mt_find_slot(node, end, index);
		*level = (struct mt_level){ node, min, max, offset, end };
		if (level == way)
			return;
		min = mt_slot_first(node, offset, min);
		max = mt_slot_last(node, offset, end, max);
		enode = mt_slot(node, inner, offset);
	}
}

static void *leaf_slot(const struct mt_level *leaf, unsigned int offset)
{
	return mt_slot(leaf->node, maple_leaf_64, offset);
}

/* Looks for the levels up to which nodes may be needed. */
static void find_heights(struct mt_write *w)
{
	enum maple_type inner = mt_inner_type(w->tree);
	unsigned long right = w->spans ? w->right[0].max : w->left[0].max;

	for (unsigned int level = w->height - 1; level > 0; level--) {
		unsigned int end = w->left[level].end;
		bool root = level == w->height - 1;

		if (right > w->left[level - 1].max)
			return;
		if (end < mt_slots(inner) - 1)
			w->plan.vacant = w->height - level;
		if (end > (root ? 2 : mt_min_slots(inner) + 1))
			w->plan.sufficient = w->height - level;
	}
}

/* How many nodes to ask for: the table in mt_internal.h. */
static unsigned int nodes_wanted(const struct mt_write *w)
{
	unsigned int vacant = w->height - w->plan.vacant;
	unsigned int both = w->plan.sufficient < w->plan.vacant ? w->height - w->plan.sufficient :
								  vacant;

	switch (w->plan.type) {
	case wr_split_store:
		return 2 * vacant + 1;
	case wr_rebalance:
		return 2 * both + 1;
	case wr_spanning_store:
		return 3 * both + 1;
	case wr_node_store:
		return w->rcu;
	case wr_new_root:
		return w->entry != NULL;
	case wr_store_root:
		return !w->height && w->entry && (w->last || mt_is_node(w->entry));
	default:
		return 0;
	}
}

/* Does a root that is a leaf lose all but an entry at index 0, which can do without a node? */
static bool leaves_sole_entry(const struct mt_write *w)
{
	const struct mt_level *leaf = &w->left[0];
	const void *sole;

	if (w->height != 1 || w->count != 2)
		return false;
	if (!w->entry && w->first == 1)
		sole = leaf_slot(leaf, 0);
	else if (w->entry && !w->last && !leaf_slot(leaf, leaf->end))
		sole = w->entry;
	else
		return false;
	return !mt_is_node(sole);
}

/* Is the store behind all that is in the leaf, and without harm to readers? */
static bool appends(const struct mt_write *w)
{
	const struct mt_level *leaf = &w->left[0];

	if (leaf->offset != leaf->end)
		return false;
	return !w->rcu || w->last == leaf->max;
}

static enum store_type store_type(const struct mt_write *w)
{
	const struct mt_level *leaf = &w->left[0];

	if (!w->first && w->last == ULONG_MAX)
		return wr_new_root;
	if (w->spans)
		return wr_spanning_store;
	if (leaves_sole_entry(w))
		return wr_store_root;
	if (w->count > MT_RANGE_SLOTS)
		return wr_split_store;
	if (w->count < mt_min_slots(maple_leaf_64) && w->height > 1)
		return wr_rebalance;
	if (w->count == leaf->end + 1U && leaf->offset == w->right[0].offset)
		return wr_exact_fit;
	if (appends(w))
		return wr_append;
	if (w->count == leaf->end + 1U && !w->rcu)
		return wr_slot_store;
	return wr_node_store;
}

/*
 * Lets a store of NULL take in the NULL on its both sides, which is in the leaf: see mt_check(). If
 * what is behind stays, the store ends in the slot before.
 */
static void widen(struct mt_write *w)
{
	struct mt_level *left = &w->left[0], *right = &w->right[0];

	if (!leaf_slot(left, left->offset)) {
		w->first = mt_left_first(w);
	} else if (left->offset && w->first == mt_left_first(w) &&
		   !leaf_slot(left, left->offset - 1)) {
		left->offset--;
		w->first = mt_left_first(w);
	}
	if (!leaf_slot(right, right->offset))
		w->last = mt_right_last(w);
	else if (!w->spans && right->offset > left->offset &&
		 w->last == mt_pivot(right->node, right->offset - 1))
		right->offset--;
}

/* The ways are found for @first; now the rest. */
static void prepare(struct mt_write *w)
{
	struct mt_level *left = &w->left[0], *right = &w->right[0];
	unsigned long end = w->entry || w->last == ULONG_MAX ? w->last : w->last + 1;

	w->spans = end > left->max;
	if (w->spans) {
		walk(w->tree, w->right, w->height, end);
	} else {
		*right = *left;
		while (right->offset < right->end && mt_pivot(right->node, right->offset) < end)
			right->offset++;
	}
	w->content = leaf_slot(left, left->offset);
	/* The range behind NULL is not NULL, and is in the same leaf. */
	if (!w->content && left->offset < left->end &&
	    w->last > mt_pivot(left->node, left->offset))
		w->content = leaf_slot(left, left->offset + 1);
	if (!w->entry)
		widen(w);
	w->count = left->offset + (w->first > mt_left_first(w)) + 1 +
		   (w->last < mt_right_last(w)) + right->end - right->offset;
	w->plan.type = store_type(w);
	if (w->plan.type == wr_split_store || w->plan.type == wr_rebalance ||
	    w->plan.type == wr_spanning_store)
		find_heights(w);
	w->plan.nodes = nodes_wanted(w);
}

/* Without a node: the sole entry, if there is one, is at index 0. */
static void prepare_root(struct mt_write *w)
{
	w->spans = false;
	w->content = w->first ? NULL : mt_root_locked(w->tree);
	w->plan.type = wr_store_root;
	w->plan.nodes = nodes_wanted(w);
}

static void begin(struct mt_write *w, const struct ma_state *mas, void *entry)
{
	w->mas = (struct ma_state *)mas;
	w->tree = mas->tree;
	w->entry = entry;
	w->first = mas->index;
	w->last = mas->last;
	w->height = mt_height(mas->tree);
	w->rcu = mt_in_rcu(mas->tree);
	w->plan = (struct mt_plan){ .height = w->height };
	if (w->height)
		walk(w->tree, w->left, w->height, w->first);
}

/* Finds out what storing @entry to the cursor's range will do. Changes nothing. */
void mt_write_prepare(struct mt_write *w, struct ma_state *mas, void *entry)
{
	begin(w, mas, entry);
	if (w->height)
		prepare(w);
	else
		prepare_root(w);
}

/*
 * The same for erasing the range in which the cursor's index lies; the cursor gets this range.
 * Return: false: there is nothing.
 */
bool mt_write_prepare_erase(struct mt_write *w, struct ma_state *mas)
{
	begin(w, mas, NULL);
	if (w->height) {
		const struct mt_level *leaf = &w->left[0];

		if (!leaf_slot(leaf, leaf->offset))
			return false;
		w->first = mt_left_first(w);
		w->last = mt_slot_last(leaf->node, leaf->offset, leaf->end, leaf->max);
	} else {
		if (w->first || !mt_root_locked(w->tree))
			return false;
		w->last = 0;
	}
	mas->index = w->first;
	mas->last = w->last;
	if (w->height)
		prepare(w);
	else
		prepare_root(w);
	return true;
}

struct mt_plan mas_plan(const struct ma_state *mas, void *entry)
{
	struct mt_write w;

	mt_write_prepare(&w, (struct ma_state *)mas, entry);
	if (w.height && w.plan.type != wr_new_root && !w.plan.vacant && !w.plan.sufficient)
		find_heights(&w);
	return w.plan;
}

/*
 * Gaps
 */

/* The largest gap in a leaf. */
unsigned long mt_leaf_gap(const struct maple_node *leaf, unsigned int end, unsigned long min,
			  unsigned long max)
{
	unsigned long largest = 0;

	for (unsigned int i = 0; i <= end; i++) {
		unsigned long last = i < end ? leaf->pivot[i] : max;

		if (!leaf->range.slot[i] && last - min + 1 > largest)
			largest = last - min + 1;
		min = last + 1;
	}
	return largest;
}

/* The largest gap below an inner node. */
unsigned long mt_inner_gap(const struct maple_node *node, unsigned int end)
{
	unsigned long largest = 0;

	for (unsigned int i = 0; i <= end; i++) {
		if (node->arange.gap[i] > largest)
			largest = node->arange.gap[i];
	}
	return largest;
}

/* The node of @level on a way has @gap: brings the levels above up to date. */
void mt_update_gap(const struct mt_level *way, unsigned int height, unsigned int level,
		   unsigned long gap)
{
	while (++level < height) {
		const struct mt_level *above = &way[level];

		if (mt_gap(above->node, above->offset) == gap)
			return;
		__atomic_store_n(&above->node->arange.gap[above->offset], gap, __ATOMIC_RELAXED);
		gap = mt_inner_gap(above->node, above->end);
	}
}

/*
 * In place
 */

/*
 * Writes the store into its leaf. What follows the store moves, what comes before stays; the range
 * where the store begins, and the one where it ends, may keep a part.
 */
static void place(struct mt_write *w)
{
	struct mt_level *leaf = &w->left[0];
	struct maple_node *node = leaf->node;
	unsigned long *pivot = node->pivot;
	void **slot = node->range.slot;
	unsigned int from = w->right[0].offset;
	unsigned long from_last = mt_right_last(w);
	void *from_slot = slot[from];
	unsigned int at = leaf->offset + (w->first > mt_left_first(w));
	unsigned int rest = at + 1 + (w->last < from_last);
	unsigned int moved = leaf->end - from;
	unsigned int end = w->count - 1;

	if (moved && rest != from + 1) {
		memmove(&slot[rest], &slot[from + 1], moved * sizeof(*slot));
		memmove(&pivot[rest], &pivot[from + 1], (moved - 1) * sizeof(*pivot));
	}
	if (rest > at + 1) {
		slot[at + 1] = from_slot;
		if (at + 1 < end)
			pivot[at + 1] = from_last;
	}
	if (at > leaf->offset)
		pivot[at - 1] = w->first - 1;
	slot[at] = w->entry;
	if (at < end)
		pivot[at] = w->last;
	node->word = (node->word & ~15UL) | end;
	leaf->offset = at;
	leaf->end = end;
}

/* An append beside readers: they see the new slot when they see the new end. */
static void append_published(struct mt_write *w)
{
	struct mt_level *leaf = &w->left[0];
	struct maple_node *node = leaf->node;

	__atomic_store_n(&node->pivot[leaf->end], w->first - 1, __ATOMIC_RELAXED);
	__atomic_store_n(&node->range.slot[leaf->end + 1], w->entry, __ATOMIC_RELAXED);
	__atomic_store_n(&node->word, node->word + 1, __ATOMIC_RELEASE);
	leaf->offset = ++leaf->end;
}

static void store_in_place(struct mt_write *w)
{
	struct mt_level *leaf = &w->left[0];
	struct ma_state *mas = w->mas;

	if (w->plan.type == wr_exact_fit)
		rcu_assign_pointer(leaf->node->range.slot[leaf->offset], w->entry);
	else if (w->rcu)
		append_published(w);
	else
		place(w);
	if (w->height > 1 && mt_is_alloc(w->tree))
		mt_update_gap(w->left, w->height, 0,
			      mt_leaf_gap(leaf->node, leaf->end, leaf->min, leaf->max));
	mas->node = mt_mk_node(leaf->node, maple_leaf_64);
	mas->min = leaf->min;
	mas->max = leaf->max;
	mas->offset = leaf->offset;
	mas->end = leaf->end;
	mas->status = ma_active;
}

/* Does the store. The cursor has the nodes that the plan wants. */
void mt_write_commit(struct mt_write *w)
{
	assert(w->mas->allocated >= w->plan.nodes);
	w->mas->store_type = w->plan.type;
	switch (w->plan.type) {
	case wr_exact_fit:
	case wr_append:
	case wr_slot_store:
		store_in_place(w);
		return;
	case wr_node_store:
		if (!w->rcu) {
			store_in_place(w);
			return;
		}
		break;
	default:
		break;
	}
	mt_rebuild(w);
	/* Going on starts behind what was stored. */
	w->mas->status = ma_pause;
	w->mas->node = NULL;
}
