/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Nodes of the maple tree: those that a cursor has ahead, and those that leave a tree.
 *
 * A cursor's nodes are a chain, got from the pool with one request for all that a store can take.
 * A store takes from the chain and never asks in between, so it fails before it has begun or not
 * at all. GFP_NOWAIT gets what the pool has; with the tree locked nothing else is tried, and
 * mas_nomem() goes to the system with the lock dropped.
 *
 * A node that leaves a tree is buried: marked as dead, which sends its readers to the root, and
 * chained. When nothing points to a buried node any more the chain is freed.
 */
#include "mt_write.h"

struct node_pool mt_node_pool = NODE_POOL_INIT_ALIGNED(struct maple_node, link, MT_NODE_SIZE);

/* Sees to it that the cursor has @n nodes. On failure it has what it had, and -ENOMEM. */
bool mas_reserve(struct ma_state *mas, unsigned int n, gfp_t gfp)
{
	void *chain = mas->alloc;

	if (mas->allocated >= n)
		return true;
	if (!node_alloc_bulk(&mt_node_pool, n - mas->allocated, &chain, gfp)) {
		mas->wanted = n;
		mas_set_err(mas, -ENOMEM);
		return false;
	}
	mas->alloc = chain;
	mas->allocated = n;
	return true;
}

struct maple_node *mas_take_node(struct ma_state *mas)
{
	void *chain = mas->alloc;
	struct maple_node *node;

	assert(mas->allocated);
	node = node_chain_pop(&mt_node_pool, &chain);
	mas->alloc = chain;
	mas->allocated--;
	return node;
}

/**
 * mas_destroy() - Free the nodes that were allocated ahead and not used.
 *
 * The cursor keeps its place, and its error.
 *
 * Context: Any.
 */
void mas_destroy(struct ma_state *mas)
{
	mas->mas_flags &= ~MA_STATE_BULK;
	node_free_bulk(&mt_node_pool, mas->alloc);
	mas->alloc = NULL;
	mas->allocated = 0;
}

/**
 * mas_nomem() - After a change failed with -ENOMEM: allocate what it needs.
 *
 * Context: The tree's lock, which is dropped and taken again when @gfp may sleep, unless it is the
 * user's; so whatever was looked up before may have changed.
 * Return: true: try again. false: it did not fail for want of memory, or there is none; then the
 * cursor has no nodes either.
 */
bool mas_nomem(struct ma_state *mas, gfp_t gfp)
{
	bool unlock = gfpflags_allow_blocking(gfp) && !mt_external_lock(mas->tree);
	bool done;

	if (!mas_is_err(mas) || mas->node != MA_ERROR(-ENOMEM))
		return false;
	if (unlock)
		mas_unlock(mas);
	done = mas_reserve(mas, mas->wanted ? mas->wanted : 1, gfp);
	if (unlock)
		mas_lock(mas);
	if (done)
		mas_reset(mas);
	else if (!(mas->mas_flags & MA_STATE_BULK))
		mas_destroy(mas);
	return done;
}

/**
 * mas_expected_entries() - Allocate ahead for many stores that append to the tree.
 * @nr_entries: how many ranges will be stored, with gaps between them or without
 *
 * Until mas_destroy() the cursor keeps its nodes, and nodes that are split leave most of what they
 * have on the left.
 *
 * Context: May sleep. The tree is not in RCU mode, where each store takes a node of its own.
 * Return: 0 or -ENOMEM.
 */
int mas_expected_entries(struct ma_state *mas, unsigned long nr_entries)
{
	enum maple_type inner = mt_inner_type(mas->tree);
	/* What a node keeps that is split while it is the last; one less, to end with an entry. */
	unsigned int leaf_fill = mt_slots(maple_leaf_64) - mt_min_slots(maple_leaf_64);
	unsigned int inner_fill = mt_slots(inner) + 1 - mt_min_slots(inner);
	unsigned long level = (nr_entries / leaf_fill + 1) * 2;
	unsigned long nodes = level + 2; /* a split has both halves before the old node is free */

	while (level > 1) {
		level = level / inner_fill + 1;
		nodes += level + 2;
	}
	if (nodes > UINT_MAX || !mas_reserve(mas, mas->allocated + nodes, GFP_KERNEL)) {
		mas_set_err(mas, -ENOMEM);
		return -ENOMEM;
	}
	mas->mas_flags |= MA_STATE_BULK;
	return 0;
}

/*
 * Marks a node as dead. Release: who sees the mark in a node and starts from the root finds what
 * was published before it. What the link overwrites is void from then on.
 */
void mt_bury(void **chain, struct maple_node *node)
{
	__atomic_store_n(&node->word, (unsigned long)node, __ATOMIC_RELEASE);
	node_chain_push(&mt_node_pool, chain, node);
}

/* Buries a node and all below it. @level: the node's; 0 is a leaf */
void mt_bury_tree(void **chain, struct maple_node *node, enum maple_type inner,
		  unsigned int level)
{
	if (level) {
		unsigned int end = mt_end(node);

		for (unsigned int i = 0; i <= end; i++)
			mt_bury_tree(chain, mt_to_node(mt_slot(node, inner, i)), inner, level - 1);
	}
	mt_bury(chain, node);
}

/*
 * Frees what was buried. Nothing in the tree points there any more, up or down. Without readers
 * the nodes can be used again at once, and the cursor gets them.
 */
void mt_free_buried(struct ma_state *mas, void *chain)
{
	void *ahead = mas->alloc;
	void *node;

	if (mt_in_rcu(mas->tree)) {
		node_free_bulk_rcu(&mt_node_pool, chain);
		return;
	}
	while ((node = node_chain_pop(&mt_node_pool, &chain))) {
		node_chain_push(&mt_node_pool, &ahead, node);
		mas->allocated++;
	}
	mas->alloc = ahead;
}
