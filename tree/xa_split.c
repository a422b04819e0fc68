/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Splitting a multi-index entry of the XArray into smaller ones that hold the same pointer.
 *
 * Within the level of its slots only siblings change hands. One level down, each slot becomes a
 * node full of the smaller entries; these nodes are allocated before the lock is taken. Further
 * down than that it does not go in one step.
 *
 * The slots are converted from the last to the first. Until the first one goes, a reader at a later
 * slot may still follow a sibling to it; if it finds a node there, it starts again.
 */
#include "xa_internal.h"

#include <assert.h>

static void split_alloc(struct xa_state *xas, unsigned int order, unsigned int nodes, gfp_t gfp)
{
	if (xas_error(xas))
		return;
	if (xas->xa_shift + 2 * XA_CHUNK_SHIFT <= order) {
		xas_set_err(xas, -EINVAL);
		return;
	}
	if (xas->xa_shift + XA_CHUNK_SHIFT > order)
		return;
	if (!xas_reserve(xas, nodes, gfp))
		xas_destroy(xas);
}

/**
 * xas_split_alloc() - Allocate what xas_split() will need.
 * @entry: the entry
 * @order: its present order; the cursor has the new one
 *
 * Context: No lock, if @gfp may sleep. On failure sets -ENOMEM, or -EINVAL when the new order is
 * two levels or more below, and keeps nothing. What was allocated is used up by xas_split(), or
 * freed by xas_destroy().
 */
void xas_split_alloc(struct xa_state *xas, void *entry, unsigned int order, gfp_t gfp)
{
	split_alloc(xas, order, 1U << (order % XA_CHUNK_SHIFT), gfp);
}

/* Of the slots, one in @step. */
static unsigned long every(unsigned int step)
{
	return step < 64 ? ~0UL / ((1UL << step) - 1) : 1;
}

/* Fills slots @first to @last with entries of @sibs siblings each, and marks these. */
static void fill(struct xa_node *node, unsigned int first, unsigned int last, unsigned int sibs,
		 void *entry, unsigned int marks)
{
	unsigned long range = ~0UL >> (63 - last) & ~0UL << first;
	unsigned int offset = last + 1;

	while (offset-- > first) {
		unsigned int owner = offset & ~sibs;

		rcu_assign_pointer(node->slots[offset],
				   owner == offset ? entry : xa_mk_sibling(owner));
	}
	xa_for_each_mark(mark) {
		unsigned long word = node_marks(node, mark);
		unsigned long set = marks >> mark & 1 ? range & every(sibs + 1) : 0;

		if ((word & range) != set)
			node_set_marks(node, mark, (word & ~range) | set);
	}
}

/* Makes a slot a node that is full of smaller entries. */
static void split_slot(struct xa_state *xas, struct xa_node *node, unsigned int offset, void *entry,
		       unsigned int marks)
{
	struct xa_node *child = xas_make_node(xas, node->shift - XA_CHUNK_SHIFT);

	child->parent = node;
	child->offset = offset;
	child->count = XA_CHUNK_SIZE;
	child->nr_values = xa_is_value(entry) ? XA_CHUNK_SIZE : 0;
	fill(child, 0, XA_CHUNK_MASK, xas->xa_sibs, entry, marks);
	rcu_assign_pointer(node->slots[offset], xa_mk_node(child));
	xa_for_each_mark(mark) {
		unsigned long word = node_marks(node, mark) & ~(1UL << offset);

		node_set_marks(node, mark, word | (unsigned long)(marks >> mark & 1) << offset);
	}
	xas_update(xas, child);
}

/*
 * Is the entry that the cursor has loaded still as it was when @nodes were allocated? An order looked
 * up without the lock may be an old one, and a split by it would tear the neighbours.
 */
static bool as_allocated(struct xa_state *xas, void *old, unsigned int order, unsigned int nodes)
{
	unsigned int shift = order - order % XA_CHUNK_SHIFT;

	if (!old || xa_is_node(old) || xas_get_order(xas) != (int)order)
		return false;
	if (xas->xa_shift == shift)
		return xas->xa_sibs < 1U << (order % XA_CHUNK_SHIFT);
	return xas->xa_shift + XA_CHUNK_SHIFT == shift && xas_reserved(xas) >= nodes;
}

/*
 * Splits the entry of the slots @first to @last, with @old in it. Where the new ones lie a level
 * down, slots from @down_first to @down_last become nodes, the others entries by themselves.
 */
static void split_slots(struct xa_state *xas, unsigned int last, unsigned int down_first,
			unsigned int down_last, void *old, void *entry)
{
	struct xa_node *node = xas->xa_node;
	unsigned int first = xas->xa_offset, marks = 0, nodes = 0;
	int values;

	xa_for_each_mark(mark)
		marks |= (unsigned int)node_get_mark(node, first, mark) << mark;
	if (xas->xa_shift == node->shift) {
		fill(node, first, last, xas->xa_sibs, entry, marks);
	} else {
		nodes = down_last - down_first + 1;
		for (unsigned int offset = last + 1; offset-- > first;) {
			if (offset >= down_first && offset <= down_last)
				split_slot(xas, node, offset, entry, marks);
			else
				fill(node, offset, offset, 0, entry, marks);
		}
	}
	values = xa_is_value(entry) * (int)(last - first + 1 - nodes) -
		 xa_is_value(old) * (int)(last - first + 1);
	if (values) {
		node->nr_values += values;
		xas_update(xas, node);
	}
	/* An entry that filled slot 0 of the top node is a node now, which can be the top itself. */
	if (nodes && !xa_parent_locked(xas->xa, node))
		xa_shrink(xas);
}

/* @all: to entries of the cursor's order everywhere. @nodes: how many that takes a level down */
static void split(struct xa_state *xas, void *entry, unsigned int order, unsigned int nodes,
		  bool all)
{
	unsigned int sibs = (1U << (order % XA_CHUNK_SHIFT)) - 1, first, at;
	void *old;

	assert(xa_spin_is_locked(&xas->xa->xa_lock));
	old = xas_load(xas);
	if (xas_error(xas))
		return;
	if (!as_allocated(xas, old, order, nodes)) {
		xas_set_err(xas, -EINVAL);
		return;
	}
	/* The sole entry in the head: of order 0, and stays so. */
	if (!xas->xa_node) {
		rcu_assign_pointer(xas->xa->xa_head, entry);
		return;
	}
	first = xas->xa_offset;
	at = get_offset(xas->xa_index, xas->xa_node);
	split_slots(xas, first + sibs, all ? first : at, all ? first + sibs : at, old, entry);
	xas_reset(xas);
}

/**
 * xas_split() - Split the entry at the cursor into entries of the cursor's order.
 * @entry: what to store in each of them
 * @order: the present order
 *
 * Each has the marks of the old entry. The cursor starts from the head afterwards.
 *
 * Context: xa_lock, after xas_split_alloc() for the same orders. Sets -EINVAL and changes nothing
 * when there is no entry of @order at the index.
 */
void xas_split(struct xa_state *xas, void *entry, unsigned int order)
{
	split(xas, entry, order, 1U << (order % XA_CHUNK_SHIFT), true);
}

/**
 * xas_carve_alloc() - Allocate what xas_carve() will need: one node at most.
 *
 * Context: As xas_split_alloc().
 */
void xas_carve_alloc(struct xa_state *xas, unsigned int order, gfp_t gfp)
{
	split_alloc(xas, order, 1, gfp);
}

/**
 * xas_carve() - As xas_split(), but only where the cursor is.
 *
 * The other slots of the entry become entries of their own, as large as a slot is. So what the
 * smaller entry at the cursor takes is one node, and not one for each slot.
 *
 * Context: xa_lock, after xas_carve_alloc() for the same order.
 */
void xas_carve(struct xa_state *xas, void *entry, unsigned int order)
{
	split(xas, entry, order, 1, false);
}
