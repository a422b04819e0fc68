/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A plain red-black tree of ranges that do not overlap, for comparison with the maple tree.
 */
#ifndef TESTS_BENCH_RBTREE_H
#define TESTS_BENCH_RBTREE_H

#include <stdbool.h>
#include <stddef.h>

struct rb_node {
	struct rb_node *child[2], *parent;
	bool red;
	unsigned long first, last;
	void *entry;
};

struct rb_tree {
	struct rb_node *root;
};

/* The node whose range holds @index, or the next behind it, or NULL. */
struct rb_node *rb_at(const struct rb_tree *tree, unsigned long index);
struct rb_node *rb_next(struct rb_node *node);
/* Puts a node in; its range is free. */
void rb_insert(struct rb_tree *tree, struct rb_node *node);
void rb_erase(struct rb_tree *tree, struct rb_node *node);
/* The number of black nodes on each way down, or -1: the tree is not well-formed. */
int rb_check(const struct rb_node *node);

#endif /* TESTS_BENCH_RBTREE_H */
