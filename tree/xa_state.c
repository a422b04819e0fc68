/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The XArray's cursor: everything that walks and changes nothing.
 *
 * Under RCU a walk sees slots at different times. Three things keep it right. A slot is published
 * with release and followed with acquire, so a node that is found is whole. A node's shift and
 * offset never change while readers can reach it; its parent may, and is followed like a slot. A
 * node that is taken out gets retry entries in all its slots after the last pointer to it is gone,
 * so who reads on in it is sent back to the head.
 *
 * A sibling names the slot that holds its entry; for a moment, while a writer fills a range, that
 * may be a sibling of the new entry's. Under RCU the slot may have become a node meanwhile (a
 * split), or hold another, smaller entry. So the sibling is looked at again afterwards: slots are
 * written with release in a fixed order, so who has seen the later entry sees the sibling changed.
 * Then the walk answers with a retry entry.
 */
#include "xa_internal.h"

/* Where a walk begins: the slot where the cursor is, else the head. */
static void *xas_start(struct xa_state *xas)
{
	void *entry;

	if (xas_is_node(xas))
		return xas_descend(xas, xas->xa_node);
	if (xas_error(xas))
		return NULL;
	entry = xa_head(xas->xa);
	if (xas->xa_index > max_index(entry))
		return set_bounds(xas);
	xas->xa_node = NULL;
	return entry;
}

/*
 * Follows the @sibling in slot *@offset, and moves *@offset to where it leads. Return: the entry
 * there, or a retry entry if a writer came in between.
 */
void *xa_follow_sibling(const struct xarray *xa, const struct xa_node *node, unsigned char *offset,
			void *sibling)
{
	unsigned int from = *offset;
	void *entry = sibling;

	while (xa_is_sibling(entry)) {
		*offset = xa_to_sibling(entry);
		entry = xa_entry(xa, node, *offset);
	}
	if (xa_is_node(entry) || xa_entry(xa, node, from) != sibling)
		return XA_RETRY_ENTRY;
	return entry;
}

/**
 * xas_load() - Go to the entry at the cursor's index.
 *
 * Does not expand the tree: where it does not reach, the cursor is in bounds. A cursor with an
 * order stops at the level of that order.
 *
 * Context: RCU or xa_lock.
 * Return: The entry, internal ones included (a node when it lies finer than the cursor's order).
 */
void *xas_load(struct xa_state *xas)
{
	void *entry = xas_start(xas);
	unsigned int level;

	if (!xa_is_node(entry))
		return entry;
	level = xa_to_node(entry)->shift + XA_CHUNK_SHIFT;
	return xas_walk_down(xas, entry, &level);
}

/* To the slot after the node. Return: false at the end of the tree, in bounds then. */
static bool climb(struct xa_state *xas)
{
	xas->xa_offset = xas->xa_node->offset + 1;
	xas->xa_node = xa_parent(xas->xa, xas->xa_node);
	if (xas->xa_node)
		return true;
	xas->xa_node = XAS_BOUNDS;
	return false;
}

/* To @offset of the present node, which may be one past its end; the index follows. */
static void move_to(struct xa_state *xas, unsigned int offset)
{
	xas->xa_index = slot_index(xas->xa_index, xas->xa_node, 0);
	xas->xa_index += (unsigned long)offset << xas->xa_node->shift;
	xas->xa_offset = offset;
}

/**
 * xas_find() - The first entry at or after the cursor, at most at @max; then the next, and so on.
 *
 * After xas_set() or xas_reset() the entry at the index itself counts; it may begin before that.
 *
 * Context: RCU or xa_lock.
 * Return: The entry, internal ones included, with xa_index its index; NULL when there is none. Then
 * the cursor goes on behind @max if it is used again.
 */
void *xas_find(struct xa_state *xas, unsigned long max)
{
	void *entry;

	if (xas_error(xas) || xas->xa_node == XAS_BOUNDS)
		return NULL;
	if (xas->xa_index > max)
		return set_bounds(xas);
	if (!xas->xa_node) {
		xas->xa_index = 1;
		return set_bounds(xas);
	}
	if (xas->xa_node == XAS_RESTART) {
		entry = xas_load(xas);
		if (entry)
			return entry;
		if (!xas_is_node(xas))
			return set_bounds(xas);
	}
	move_to(xas, xas->xa_offset + 1);

	while (xas->xa_index <= max) {
		if (xas->xa_offset == XA_CHUNK_SIZE) {
			if (!climb(xas))
				return NULL;
			continue;
		}
		entry = xa_entry(xas->xa, xas->xa_node, xas->xa_offset);
		if (xa_is_node(entry)) {
			xas->xa_node = xa_to_node(entry);
			xas->xa_offset = 0;
			continue;
		}
		if (entry && !xa_is_sibling(entry))
			return entry;
		move_to(xas, xas->xa_offset + 1);
	}
	xas_reset(xas);
	return NULL;
}

/* The first slot from @offset on with @mark; XA_CHUNK_SIZE when there is none. */
static unsigned int next_marked(const struct xa_node *node, unsigned int offset, xa_mark_t mark)
{
	unsigned long word;

	if (offset >= XA_CHUNK_SIZE)
		return XA_CHUNK_SIZE;
	word = node_marks(node, mark) >> offset;
	return word ? offset + __builtin_ctzl(word) : XA_CHUNK_SIZE;
}

/*
 * The start of a marked search, at the cursor's index. A search may begin inside a marked entry:
 * then that entry is the first one found, and the index stays where it is.
 */
static void *start_marked(struct xa_state *xas, xa_mark_t mark, bool *found)
{
	void *entry = xa_head(xas->xa);

	*found = true;
	if (xas->xa_index > max_index(entry))
		return set_bounds(xas);
	xas->xa_node = NULL;
	if (!xa_is_node(entry)) {
		if (entry && xa_marked(xas->xa, mark))
			return entry;
		xas->xa_index = 1;
		return set_bounds(xas);
	}
	while (xa_is_node(entry)) {
		entry = xas_descend(xas, xa_to_node(entry));
		if (!node_get_mark(xas->xa_node, xas->xa_offset, mark))
			break;
		if (entry && !xa_is_node(entry))
			return entry;
	}
	*found = false;
	return NULL;
}

/**
 * xas_find_marked() - As xas_find(), for the entries with @mark.
 *
 * Context: RCU or xa_lock.
 */
void *xas_find_marked(struct xa_state *xas, unsigned long max, xa_mark_t mark)
{
	unsigned int offset;
	void *entry;
	bool found;

	if (xas_error(xas) || xas->xa_node == XAS_BOUNDS)
		return NULL;
	if (xas->xa_index > max)
		return set_bounds(xas);
	if (!xas->xa_node) {
		xas->xa_index = 1;
		return set_bounds(xas);
	}
	if (xas->xa_node == XAS_RESTART) {
		entry = start_marked(xas, mark, &found);
		if (found)
			return entry;
	}
	offset = xas->xa_offset + 1;

	for (;;) {
		offset = next_marked(xas->xa_node, offset, mark);
		move_to(xas, offset);
		if (offset == XA_CHUNK_SIZE) {
			/* The index is that of the next slot on whichever level has one. */
			do {
				if (!climb(xas))
					return NULL;
			} while (xas->xa_offset == XA_CHUNK_SIZE);
			offset = xas->xa_offset;
			continue;
		}
		if (xas->xa_index > max)
			break;
		entry = xa_entry(xas->xa, xas->xa_node, offset);
		if (xa_is_node(entry)) {
			xas->xa_node = xa_to_node(entry);
			offset = 0;
		} else if (entry && !xa_is_sibling(entry)) {
			return entry;
		} else {
			offset++;
		}
	}
	xas_reset(xas);
	return NULL;
}

/**
 * xas_find_conflict() - The next entry in the range that the cursor's order covers.
 *
 * Context: xa_lock.
 * Return: The entry, or NULL when there is no further one: then the cursor stands where
 * xas_store() goes on without another walk.
 */
void *xas_find_conflict(struct xa_state *xas)
{
	void *entry;

	if (xas_error(xas) || !xas->xa_node)
		return NULL;
	if (xas_top(xas->xa_node)) {
		entry = xas_load(xas);
		while (xa_is_node(entry))
			entry = xas_descend(xas, xa_to_node(entry));
		if (entry)
			return entry;
		if (!xas_is_node(xas))
			return NULL;
	}
	if (xas->xa_node->shift > xas->xa_shift)
		return NULL;

	for (;;) {
		if (xas->xa_node->shift == xas->xa_shift) {
			if ((xas->xa_offset & xas->xa_sibs) == xas->xa_sibs)
				break;
		} else if (xas->xa_offset == XA_CHUNK_MASK) {
			xas->xa_offset = xas->xa_node->offset;
			xas->xa_node = xa_parent_locked(xas->xa, xas->xa_node);
			/* The range is larger than the tree: all seen, and back at the head. */
			if (!xas->xa_node)
				return NULL;
			continue;
		}
		entry = xa_entry_locked(xas->xa, xas->xa_node, ++xas->xa_offset);
		if (xa_is_sibling(entry))
			continue;
		while (xa_is_node(entry)) {
			xas->xa_node = xa_to_node(entry);
			xas->xa_offset = 0;
			entry = xa_entry_locked(xas->xa, xas->xa_node, 0);
		}
		if (entry)
			return entry;
	}
	xas->xa_offset -= xas->xa_sibs;
	return NULL;
}

/* The slot at @index, from a node that spanned the index before; up only as far as needed. */
static void *step_to(struct xa_state *xas, unsigned long index)
{
	unsigned long changed = xas->xa_index ^ index;
	struct xa_node *node = xas->xa_node;
	void *entry;

	xas->xa_index = index;
	while (changed >> node->shift > XA_CHUNK_MASK) {
		node = xa_parent(xas->xa, node);
		if (!node)
			return set_bounds(xas);
	}
	for (;;) {
		xas->xa_node = node;
		xas->xa_offset = get_offset(index, node);
		entry = xa_entry(xas->xa, node, xas->xa_offset);
		if (!xa_is_node(entry))
			return entry;
		node = xa_to_node(entry);
	}
}

/* xas_next() and xas_prev() where the neighbour may lie in another node. */
static void *step(struct xa_state *xas, unsigned long by)
{
	if (xas_frozen(xas->xa_node))
		return xas_load(xas);
	if (xas_is_node(xas))
		return step_to(xas, xas->xa_index + by);
	xas->xa_index += by;
	xas_reset(xas);
	return xas_load(xas);
}

void *__xas_next(struct xa_state *xas)
{
	return step(xas, 1);
}

void *__xas_prev(struct xa_state *xas)
{
	return step(xas, -1UL);
}

/**
 * xas_pause() - Let go of the tree in the middle of a walk.
 *
 * The lock or RCU may be dropped then. The walk goes on behind the present entry, whatever its
 * order; nothing is skipped.
 *
 * Context: RCU or xa_lock, before it is dropped.
 */
void xas_pause(struct xa_state *xas)
{
	struct xa_node *node = xas->xa_node;
	unsigned int offset;

	if (xas_invalid(xas))
		return;
	xas_reset(xas);
	if (!node) {
		xas->xa_index++;
		return;
	}
	offset = xas->xa_offset + 1;
	while (offset < XA_CHUNK_SIZE && xa_is_sibling(xa_entry(xas->xa, node, offset)))
		offset++;
	xas->xa_index = slot_index(xas->xa_index, node, 0) + ((unsigned long)offset << node->shift);
	if (!xas->xa_index)
		xas->xa_node = XAS_BOUNDS;
}

/**
 * xas_get_order() - The order of the entry that the cursor has just loaded or found.
 *
 * Context: RCU or xa_lock.
 * Return: The order; 0 where there is no entry.
 */
int xas_get_order(struct xa_state *xas)
{
	unsigned int order = 0;

	if (!xas_is_node(xas))
		return 0;
	for (;;) {
		unsigned int last = xas->xa_offset + (1U << order);
		void *sibling = xa_mk_sibling(xas->xa_offset);

		if (last >= XA_CHUNK_SIZE || xa_entry(xas->xa, xas->xa_node, last) != sibling)
			return order + xas->xa_node->shift;
		order++;
	}
}

/**
 * xas_get_mark() - Does the entry at the cursor have @mark?
 *
 * Context: RCU or xa_lock. The cursor has loaded or found an entry.
 */
bool xas_get_mark(const struct xa_state *xas, xa_mark_t mark)
{
	if (xas_invalid(xas))
		return false;
	if (!xas->xa_node)
		return xa_marked(xas->xa, mark);
	return node_get_mark(xas->xa_node, xas->xa_offset, mark);
}
