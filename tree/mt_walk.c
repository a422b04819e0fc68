/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The maple tree's way down: from the root to the range in which an index lies.
 *
 * Everything that reads goes this way, also to the neighbour of a range when that is in another
 * leaf: the range that begins behind last is the one in which last + 1 lies. So nobody follows a
 * parent pointer, whose target may have been replaced meanwhile. The price is a walk from the root
 * for each leaf, whose upper nodes are in the processor's cache by then.
 *
 * Under RCU each node may be replaced while it is looked at. It is then dead, and says so in its
 * first word. All loads from a node are acquires, and the word is loaded after the others. The
 * writer publishes the new nodes, then marks the old one dead with release, and only then may
 * anything else in it be overwritten. So who has seen something that does not belong there sees the
 * mark too, and starts from the root again. Who does not see the mark has looked at a node that was
 * in the tree; and since a node's range never changes while it is there, so is the child found in
 * it, with the range found, until the child itself is dead.
 *
 * In a leaf an entry may be replaced, or the last range cut in two. Pivots in use never change, so
 * a slot and its range belong together, if end was the same before and after.
 */
#include "mt_internal.h"

/*
 * Puts the cursor on the slot of its leaf in which @index lies.
 * @offset: a slot to begin the search with; 0, or one that is no further, as far as one knows
 * @entry: receives what is there
 * Return: false: the leaf is dead.
 */
static bool look_in_leaf(struct ma_state *mas, unsigned long index, unsigned int offset,
			 void **entry)
{
	const struct maple_node *node = mt_to_node(mas->node);
	unsigned long first, last, word = mt_word(node);
	unsigned int end;

	for (;; offset = 0) {
		end = mt_word_end(word);
		if (!offset)
			offset = mt_find_slot(node, end, index);
		while (offset < end && mt_pivot(node, offset) < index)
			offset++;
		first = mt_slot_first(node, offset, mas->min);
		last = mt_slot_last(node, offset, end, mas->max);
		*entry = mt_slot(node, maple_leaf_64, offset);
		word = mt_word(node);
		if (mt_word_dead(node, word))
			return false;
		if (mt_word_end(word) == end && first <= index && index <= last)
			break;
	}
	mas->status = ma_active;
	mas->offset = offset;
	mas->end = end;
	mas->index = first;
	mas->last = last;
	return true;
}

/* To the leaf in which @index lies, from @enode, the root. Return: false: a node is dead. */
static bool descend(struct ma_state *mas, void *enode, unsigned long index)
{
	const struct maple_node *node;
	unsigned int offset, end;

	mas->min = 0;
	mas->max = ULONG_MAX;
	while (!mt_is_leaf(enode)) {
		node = mt_to_node(enode);
		mt_prefetch(node);
		end = mt_end(node);
		offset = mt_find_slot(node, end, index);
		mas->max = mt_slot_last(node, offset, end, mas->max);
		mas->min = mt_slot_first(node, offset, mas->min);
		enode = mt_slot(node, mt_type(enode), offset);
		if (mt_dead(node))
			return false;
	}
	mas->node = enode;
	return true;
}

/* A tree without nodes: two ranges if @root is the sole entry, else one. */
static void *without_nodes(struct ma_state *mas, void *root, unsigned long index)
{
	mas->node = NULL;
	if (root && !index) {
		mas->status = ma_root;
		mas->index = 0;
		mas->last = 0;
		return root;
	}
	mas->status = ma_none;
	mas->index = root ? 1 : 0;
	mas->last = ULONG_MAX;
	return NULL;
}

/* Is the cursor in a leaf? It may be there at a limit, too. */
static bool has_place(const struct ma_state *mas)
{
	return mas->node && (mas->status == ma_active || mas->status == ma_overflow ||
			     mas->status == ma_underflow);
}

void *mas_range_at(struct ma_state *mas, unsigned long index)
{
	void *entry;

	if (has_place(mas) && mas->min <= index && index <= mas->max &&
	    look_in_leaf(mas, index, index > mas->last ? mas->offset : 0, &entry))
		return entry;
	do {
		entry = mt_root(mas->tree);
		if (!mt_is_node(entry))
			return without_nodes(mas, entry, index);
	} while (!descend(mas, entry, index) || !look_in_leaf(mas, index, 0, &entry));
	return entry;
}

/**
 * mas_walk() - Go to the range in which the cursor's index lies.
 *
 * Afterwards index and last are that range. In an empty tree it is all there is, and the status is
 * ma_none. If the sole entry is at index 0, the status is ma_root there and ma_none elsewhere.
 *
 * Context: RCU or the tree's lock.
 * Return: The entry, or NULL.
 */
void *mas_walk(struct ma_state *mas)
{
	return mas_is_err(mas) ? NULL : mas_range_at(mas, mas->index);
}
