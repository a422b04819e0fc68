/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The textbook's red-black tree, with both sides of each case written once: a child's side is a
 * number, and the other side is its opposite.
 */
#include "rbtree.h"

struct rb_node *rb_at(const struct rb_tree *tree, unsigned long index)
{
	struct rb_node *node = tree->root, *best = NULL;

	while (node) {
		if (node->last < index) {
			node = node->child[1];
			continue;
		}
		best = node;
		if (node->first <= index)
			break;
		node = node->child[0];
	}
	return best;
}

struct rb_node *rb_next(struct rb_node *node)
{
	if (node->child[1]) {
		node = node->child[1];
		while (node->child[0])
			node = node->child[0];
		return node;
	}
	while (node->parent && node == node->parent->child[1])
		node = node->parent;
	return node->parent;
}

static bool is_red(const struct rb_node *node)
{
	return node && node->red;
}

/* Puts @to, which may be NULL, where @from is. */
static void put_in_place(struct rb_tree *tree, struct rb_node *from, struct rb_node *to)
{
	struct rb_node *parent = from->parent;

	if (!parent)
		tree->root = to;
	else
		parent->child[parent->child[1] == from] = to;
	if (to)
		to->parent = parent;
}

/* Lets @node sink to @side; its child of the other side takes its place. */
static void rotate(struct rb_tree *tree, struct rb_node *node, int side)
{
	struct rb_node *up = node->child[!side];

	node->child[!side] = up->child[side];
	if (up->child[side])
		up->child[side]->parent = node;
	put_in_place(tree, node, up);
	up->child[side] = node;
	node->parent = up;
}

/* @node is red; its parent may be. */
static void mend_insert(struct rb_tree *tree, struct rb_node *node)
{
	while (is_red(node->parent)) {
		struct rb_node *parent = node->parent, *grand = parent->parent;
		int side = parent == grand->child[1];
		struct rb_node *uncle = grand->child[!side];

		if (is_red(uncle)) {
			parent->red = uncle->red = false;
			grand->red = true;
			node = grand;
			continue;
		}
		if (node == parent->child[!side]) {
			rotate(tree, parent, side);
			parent = node;
		}
		parent->red = false;
		grand->red = true;
		rotate(tree, grand, !side);
		break;
	}
	tree->root->red = false;
}

void rb_insert(struct rb_tree *tree, struct rb_node *node)
{
	struct rb_node *parent = NULL, **link = &tree->root;

	while (*link) {
		parent = *link;
		link = &parent->child[parent->first < node->first];
	}
	node->child[0] = node->child[1] = NULL;
	node->parent = parent;
	node->red = true;
	*link = node;
	mend_insert(tree, node);
}

/* The ways through @parent's child of @side have one black node too few. */
static void mend_erase(struct rb_tree *tree, struct rb_node *parent, int side)
{
	struct rb_node *node, *sibling;

	while (parent && !is_red(parent->child[side])) {
		sibling = parent->child[!side];
		if (sibling->red) {
			sibling->red = false;
			parent->red = true;
			rotate(tree, parent, side);
			sibling = parent->child[!side];
		}
		if (!is_red(sibling->child[0]) && !is_red(sibling->child[1])) {
			sibling->red = true;
			node = parent;
			parent = node->parent;
			side = parent && node == parent->child[1];
			continue;
		}
		if (!is_red(sibling->child[!side])) {
			sibling->child[side]->red = false;
			sibling->red = true;
			rotate(tree, sibling, !side);
			sibling = parent->child[!side];
		}
		sibling->red = parent->red;
		parent->red = sibling->child[!side]->red = false;
		rotate(tree, parent, side);
		return;
	}
	node = parent ? parent->child[side] : tree->root;
	if (node)
		node->red = false;
}

void rb_erase(struct rb_tree *tree, struct rb_node *node)
{
	struct rb_node *next = node, *child, *parent;
	bool was_red;
	int side;

	/* What is cut out has one child at most: the node itself, or the one behind it. */
	if (node->child[0] && node->child[1])
		next = rb_next(node);
	child = next->child[0] ? next->child[0] : next->child[1];
	parent = next->parent;
	side = parent && next == parent->child[1];
	was_red = next->red;
	put_in_place(tree, next, child);
	if (next != node) {
		if (parent == node)
			parent = next;
		put_in_place(tree, node, next);
		next->red = node->red;
		for (int i = 0; i < 2; i++) {
			next->child[i] = node->child[i];
			if (next->child[i])
				next->child[i]->parent = next;
		}
	}
	if (!was_red)
		mend_erase(tree, parent, side);
}

int rb_check(const struct rb_node *node)
{
	int black[2];

	if (!node)
		return 0;
	for (int i = 0; i < 2; i++) {
		const struct rb_node *child = node->child[i];

		if (child && (child->parent != node || (child->red && node->red) ||
			      (child->first > node->first) != i))
			return -1;
		black[i] = rb_check(child);
	}
	if (black[0] < 0 || black[0] != black[1])
		return -1;
	return black[0] + !node->red;
}
