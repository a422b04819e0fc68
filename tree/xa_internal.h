/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the XArray's own files share. Not installed.
 *
 * The level of a slot is the number of index bits below it: a slot of a node has the level of the
 * node's shift, the head slot has the top node's shift + XA_CHUNK_SHIFT, or 0 without a node.
 *
 * Names: node and offset say a slot, entry is what is in it; shift is the node's.
 */
#ifndef FOLIO_TREE_XA_INTERNAL_H
#define FOLIO_TREE_XA_INTERNAL_H

#include "node_alloc.h"
#include "xarray.h"

extern struct node_pool xa_node_pool;

#define xa_for_each_mark(mark) for (xa_mark_t mark = 0; mark < XA_MAX_MARKS; mark++)

static inline bool xa_track_free(const struct xarray *xa)
{
	return __atomic_load_n(&xa->xa_flags, __ATOMIC_RELAXED) & XA_FLAGS_TRACK_FREE;
}

static inline unsigned int get_offset(unsigned long index, const struct xa_node *node)
{
	return (index >> node->shift) & XA_CHUNK_MASK;
}

/* The last index that a tree with this head spans. At most ULONG_MAX, also by overflow. */
static inline unsigned long max_index(const void *head)
{
	if (!xa_is_node(head))
		return 0;
	return (XA_CHUNK_SIZE << xa_to_node(head)->shift) - 1;
}

/* The index of a slot's first entry, in the node around @index. */
static inline unsigned long slot_index(unsigned long index, const struct xa_node *node,
				       unsigned int offset)
{
	return (index & ~((XA_CHUNK_MASK << node->shift) | ((1UL << node->shift) - 1))) +
	       ((unsigned long)offset << node->shift);
}

static inline void *set_bounds(struct xa_state *xas)
{
	xas->xa_node = XAS_BOUNDS;
	return NULL;
}

/*
 * Marks change under xa_lock, so a load and a store will do, but readers look at the same word.
 * They are hints to a reader: relaxed, and the entry is looked at after.
 */
static inline unsigned long node_marks(const struct xa_node *node, xa_mark_t mark)
{
	return __atomic_load_n(&node->marks[mark], __ATOMIC_RELAXED);
}

static inline void node_set_marks(struct xa_node *node, xa_mark_t mark, unsigned long word)
{
	__atomic_store_n(&node->marks[mark], word, __ATOMIC_RELAXED);
}

static inline bool node_get_mark(const struct xa_node *node, unsigned int offset, xa_mark_t mark)
{
	return node_marks(node, mark) >> offset & 1;
}

static inline unsigned long all_slots(void)
{
	return ~0UL >> (64 - XA_CHUNK_SIZE);
}

static inline void xa_mark_root(struct xarray *xa, xa_mark_t mark, bool on)
{
	gfp_t flags = __atomic_load_n(&xa->xa_flags, __ATOMIC_RELAXED);

	flags = on ? flags | XA_FLAGS_MARK(mark) : flags & ~XA_FLAGS_MARK(mark);
	__atomic_store_n(&xa->xa_flags, flags, __ATOMIC_RELAXED);
}

static inline void xas_update(const struct xa_state *xas, struct xa_node *node)
{
	if (xas->xa_update)
		xas->xa_update(node);
}

void *xa_follow_sibling(const struct xarray *xa, const struct xa_node *node, unsigned char *offset,
			void *sibling);

/* Goes to the cursor's slot in @node. Return: the entry, of the first slot when it has siblings. */
static inline void *xas_descend(struct xa_state *xas, struct xa_node *node)
{
	void *entry;

	xas->xa_node = node;
	xas->xa_offset = get_offset(xas->xa_index, node);
	entry = xa_entry(xas->xa, node, xas->xa_offset);
	if (xa_is_sibling(entry))
		return xa_follow_sibling(xas->xa, node, &xas->xa_offset, entry);
	return entry;
}

/*
 * Goes down from @entry, which is in a slot of level *@level, as long as there are nodes and the
 * level is above the cursor's. The shift of a node is its slot's level less one, so the walk need
 * not wait for a node's first line to find the slot in it. The cursor is written once, at the end.
 */
static inline void *xas_walk_down(struct xa_state *xas, void *entry, unsigned int *level)
{
	const unsigned long index = xas->xa_index;
	const unsigned int lowest = xas->xa_shift;
	struct xa_node *node = NULL;
	unsigned int at = *level, offset = 0;

	while (at > lowest && xa_is_node(entry)) {
		at -= XA_CHUNK_SHIFT;
		node = xa_to_node(entry);
		offset = (index >> at) & XA_CHUNK_MASK;
		entry = xa_entry(xas->xa, node, offset);
	}
	if (!node)
		return entry;
	*level = at;
	xas->xa_node = node;
	xas->xa_offset = offset;
	if (xa_is_sibling(entry))
		return xa_follow_sibling(xas->xa, node, &xas->xa_offset, entry);
	return entry;
}

unsigned int xas_reserved(const struct xa_state *xas);
bool xas_reserve(struct xa_state *xas, unsigned int n, gfp_t gfp);
struct xa_node *xas_make_node(struct xa_state *xas, unsigned int shift);
void xa_free_tree(struct xa_state *xas, struct xa_node *top);
void xa_shrink(struct xa_state *xas);

#endif /* FOLIO_TREE_XA_INTERNAL_H */
