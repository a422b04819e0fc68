/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A checker of the XArray's structure, for tests and debugging.
 *
 * What holds of every node while nobody is inside a change
 *
 *	shift	one level below its parent's; 0 for a node without nodes below
 *	offset	the slot of the parent that points here; 0 at the top
 *	count	the slots that are not NULL, and never 0
 *	values	the slots that hold a value or a sibling of one
 *	slots	no retry entry; no node at the bottom; siblings follow their entry, which is no
 *		node, in a run that is aligned and a power of two long
 *	marks	none on siblings and empty slots; on a node iff some slot in it has the mark
 *	free	(allocating arrays) on exactly those slots under which something is free
 *	top	has something besides slot 0, or there an entry that spans more than index 0
 */
#include "xa_internal.h"

#include <stdio.h>

static bool complain(const struct xa_node *node, unsigned int offset, const char *what)
{
	fprintf(stderr, "xa_check: node %p shift %u slot %u: %s\n", (const void *)node,
		node ? node->shift : 0, offset, what);
	return false;
}

static bool check_node(struct xarray *xa, struct xa_node *node);

/* Checks one slot's marks against what is in it. @owner: not a sibling. */
static bool check_marks(struct xarray *xa, struct xa_node *node, unsigned int offset)
{
	void *entry = node->slots[offset];

	xa_for_each_mark(mark) {
		bool is_free = mark == XA_FREE_MARK && xa_track_free(xa);
		bool expected = is_free && !entry;

		if (xa_is_node(entry))
			expected = node_marks(xa_to_node(entry), mark);
		else if (entry && !xa_is_sibling(entry) && !is_free)
			continue;
		if (node_get_mark(node, offset, mark) != expected)
			return complain(node, offset, "mark");
	}
	return true;
}

static bool check_child(struct xarray *xa, struct xa_node *node, unsigned int offset)
{
	struct xa_node *child = xa_to_node(node->slots[offset]);

	if (!node->shift)
		return complain(node, offset, "node below the bottom");
	if (child->parent != node || child->offset != offset)
		return complain(node, offset, "child's way back");
	if (child->shift != node->shift - XA_CHUNK_SHIFT)
		return complain(node, offset, "child's shift");
	return check_node(xa, child);
}

/* Checks the run of an entry and its siblings. Return: its length, 0 if it is wrong. */
static unsigned int check_run(struct xa_node *node, unsigned int first)
{
	unsigned int end = first + 1;

	while (end < XA_CHUNK_SIZE && xa_is_sibling(node->slots[end])) {
		if (xa_to_sibling(node->slots[end]) != first)
			return complain(node, end, "sibling of another");
		end++;
	}
	end -= first;
	if (end & (end - 1) || first & (end - 1))
		return complain(node, first, "run of siblings");
	if (end > 1 && (!node->slots[first] || xa_is_node(node->slots[first])))
		return complain(node, first, "siblings of no entry");
	return end;
}

static bool check_node(struct xarray *xa, struct xa_node *node)
{
	unsigned int count = 0, values = 0;

	if (node->array != xa)
		return complain(node, 0, "array");
	for (unsigned int offset = 0; offset < XA_CHUNK_SIZE;) {
		void *entry = node->slots[offset];
		unsigned int length;

		if (xa_is_sibling(entry) || xa_is_retry(entry))
			return complain(node, offset, "entry");
		if (xa_is_node(entry) && !check_child(xa, node, offset))
			return false;
		length = check_run(node, offset);
		if (!length)
			return false;
		count += entry ? length : 0;
		values += xa_is_value(entry) ? length : 0;
		for (unsigned int end = offset + length; offset < end; offset++) {
			if (!check_marks(xa, node, offset))
				return false;
		}
	}
	if (!count || count != node->count)
		return complain(node, 0, "count");
	if (values != node->nr_values)
		return complain(node, 0, "nr_values");
	return true;
}

/**
 * xa_check() - Check that the array is well formed; says on stderr what is not.
 *
 * Context: Nobody changes the array: xa_lock held, or no other user.
 * Return: 0 or -EUCLEAN.
 */
int xa_check(struct xarray *xa)
{
	void *head = xa_head_locked(xa);
	struct xa_node *top;
	void *first;

	if (!xa_is_node(head)) {
		xa_for_each_mark(mark) {
			bool is_free = mark == XA_FREE_MARK && xa_track_free(xa);

			if ((is_free || !head) && xa_marked(xa, mark) != (is_free && !head))
				return complain(NULL, 0, "mark of the head"), -EUCLEAN;
		}
		return 0;
	}
	top = xa_to_node(head);
	first = top->slots[0];
	if (top->parent || top->offset)
		return complain(top, 0, "top"), -EUCLEAN;
	if (top->count == 1 && first && (xa_is_node(first) || !top->shift))
		return complain(top, 0, "not shrunk"), -EUCLEAN;
	xa_for_each_mark(mark) {
		if (xa_marked(xa, mark) != !!node_marks(top, mark))
			return complain(top, 0, "mark of the array"), -EUCLEAN;
	}
	return check_node(xa, top) ? 0 : -EUCLEAN;
}
