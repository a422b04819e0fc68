/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A maple tree and the list of what should be in it, changed together and compared: what the tests
 * of single behaviours begin with.
 */
#ifndef TESTS_TREE_MAPLE_PAIR_H
#define TESTS_TREE_MAPLE_PAIR_H

#include "maple_list.h"
#include "mt_internal.h"

/* Of tries by the thousands, one of so many is made. AddressSanitizer makes all of them slow. */
#define TRY_EACH (NODE_POOL_MAX_FREE ? 1 : 5)

struct pair {
	struct maple_tree mt;
	struct list list;
};

/* A whole test begins and ends with these: an empty tree, and no node left. */
void pair_begin(struct pair *pair, unsigned int flags);
void pair_end(struct pair *pair);

/* Stores with mtree_store_range(), which succeeds, and checks the tree. */
void pair_store(struct pair *pair, unsigned long first, unsigned long last, void *entry);
/* Fills with @n ranges of @size indices, @gap apart, the first at @first. */
void pair_fill(struct pair *pair, unsigned long first, unsigned int n, unsigned long size,
	       unsigned long gap);
/* Is in @mt what is in the list, and is the tree well-formed? */
void pair_compare(const struct pair *pair, struct maple_tree *mt);
void pair_verify(struct pair *pair);

/* Has each leaf, and as many inner nodes as it can, only the slots that it must have. */
void pair_thin(struct pair *pair);
/* How many nodes but the root there are; *at_minimum: with the least number of slots. */
unsigned int pair_count_nodes(struct pair *pair, unsigned int *at_minimum);

/* The cursor at the leaf that holds @index: node, min, max, end. Tree with nodes. */
struct ma_state pair_leaf(struct pair *pair, unsigned long index);

/*
 * Stores to a copy, with nodes preallocated and every other allocation failing, and compares that
 * with the list. The tree itself stays. Return: what kind of store it was.
 */
enum store_type pair_try(struct pair *pair, unsigned long first, unsigned long last, void *entry);

/* Nodes that live, after those on their way back have arrived. */
unsigned long live_nodes(void);

#endif /* TESTS_TREE_MAPLE_PAIR_H */
