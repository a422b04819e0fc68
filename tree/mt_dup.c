/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A copy of a maple tree.
 *
 * The inner nodes say how many nodes there are, so all memory is there before the first node is
 * copied: then nothing can fail. The copy goes over the tree once, from the top, parents before
 * children, and is published whole. mtree_dup() gets the memory without the lock, and looks again
 * whether it is enough.
 */
#include "mt_internal.h"

#include <string.h>

static unsigned int count_nodes(const void *enode)
{
	const struct maple_node *node = mt_to_node(enode);
	unsigned int end = mt_end(node);
	unsigned int count = 1;
	unsigned int i;

	if (mt_is_leaf(enode))
		return 1;
	/* All leaves lie at the same depth: those below one node need not be looked at. */
	if (mt_is_leaf(mt_slot(node, mt_type(enode), 0)))
		return count + end + 1;
	for (i = 0; i <= end; i++)
		count += count_nodes(mt_slot(node, mt_type(enode), i));
	return count;
}

/* Copies the nodes from @enode down. @parent, @slot: where the copy hangs */
static struct maple_enode *copy_nodes(struct ma_state *mas, const void *enode,
				      const struct maple_node *parent, unsigned int slot)
{
	const struct maple_node *node = mt_to_node(enode);
	struct maple_node *copy = mas_take_node(mas);
	unsigned int end = mt_end(node);
	void **slots;
	unsigned int i;

	memcpy(copy, node, sizeof(*copy));
	copy->word = mt_mk_word(parent, slot, end);
	if (!mt_is_leaf(enode)) {
		slots = mt_slot_array(copy, mt_type(enode));
		for (i = 0; i <= end; i++)
			slots[i] = copy_nodes(mas, slots[i], copy, i);
	}
	return mt_mk_node(copy, mt_type(enode));
}

/* How many nodes copying @mt takes; negative if @new cannot be made its copy. */
static long nodes_needed(const struct maple_tree *mt, const struct maple_tree *new)
{
	const unsigned int own = MT_FLAGS_HEIGHT_MASK | MT_FLAGS_ALLOC_WRAPPED;
	void *root = mt_root_locked(mt);

	if (!mtree_empty(new) || ((mt_flags(mt) ^ mt_flags(new)) & ~own))
		return -EINVAL;
	return mt_is_node(root) ? count_nodes(root) : 0;
}

/* With enough nodes in @mas. */
static void copy_tree(struct ma_state *mas, const struct maple_tree *mt, struct maple_tree *new)
{
	unsigned int flags = mt_flags(new) & ~MT_FLAGS_HEIGHT_MASK;
	void *root = mt_root_locked(mt);

	if (mt_is_node(root))
		root = copy_nodes(mas, root, NULL, 0);
	flags |= mt_flags(mt) & MT_FLAGS_HEIGHT_MASK;
	__atomic_store_n(&new->ma_flags, flags, __ATOMIC_RELAXED);
	rcu_assign_pointer(new->ma_root, root);
}

/**
 * __mt_dup() - Make @new a copy of @mt.
 *
 * Context: The locks of both trees, or nobody else may change either. May sleep if @gfp allows it.
 * Return: 0. -EINVAL: @new is not empty, or has other flags. -ENOMEM: @new is empty still.
 */
int __mt_dup(struct maple_tree *mt, struct maple_tree *new, gfp_t gfp)
{
	MA_STATE(mas, new, 0, 0);
	long needed = nodes_needed(mt, new);

	if (needed < 0)
		return needed;
	if (mas_reserve(&mas, needed, gfp))
		copy_tree(&mas, mt, new);
	else
		needed = -ENOMEM;
	mas_destroy(&mas);
	return needed < 0 ? needed : 0;
}

/**
 * mtree_dup() - Make @new a copy of @mt. The entries are the same ones.
 *
 * Context: Takes the locks of @mt and then of @new. May sleep if @gfp allows it.
 * Return: 0. -EINVAL: @new is not empty, or has other flags. -ENOMEM: @new is empty still.
 */
int mtree_dup(struct maple_tree *mt, struct maple_tree *new, gfp_t gfp)
{
	MA_STATE(mas, new, 0, 0);
	bool enough = false;
	long needed = 0;

	while (needed >= 0 && !enough) {
		if (!mas_reserve(&mas, needed, gfp)) {
			needed = -ENOMEM;
			break;
		}
		mtree_lock(mt);
		mtree_lock(new);
		needed = nodes_needed(mt, new);
		enough = needed >= 0 && mas.allocated >= needed;
		if (enough)
			copy_tree(&mas, mt, new);
		mtree_unlock(new);
		mtree_unlock(mt);
	}
	mas_destroy(&mas);
	return needed < 0 ? needed : 0;
}
