/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the files share that change a maple tree. Not installed.
 */
#ifndef FOLIO_TREE_MT_WRITE_H
#define FOLIO_TREE_MT_WRITE_H

#include "mt_internal.h"

/* A step of a way through the tree: a node and the slot in it where the way goes on. */
struct mt_level {
	struct maple_node *node;
	unsigned long min; /* the node's range */
	unsigned long max;
	unsigned char offset;
	unsigned char end;
};

/*
 * A store that is about to happen. Ways are by level, the leaf's is 0. The right one is the way to
 * the slot where the last index lies, or, for NULL, the index behind it: a leaf must not end with
 * NULL, so a leaf from whose end something is erased is joined with the next.
 */
struct mt_write {
	struct ma_state *mas;
	struct maple_tree *tree;
	void *entry;
	void *content;	     /* the first entry that was in the range */
	unsigned long first; /* the range; for NULL with the NULL that touches it */
	unsigned long last;
	unsigned int count;  /* slots that the leaf would use, if it is one leaf */
	unsigned int height; /* of the tree before; 0: there is no node, and no way */
	bool rcu;
	bool spans;	     /* the ways end in two leaves; else of @right only level 0 is set */
	struct mt_plan plan;
	struct mt_level left[MAPLE_HEIGHT_MAX];
	struct mt_level right[MAPLE_HEIGHT_MAX];
};

/* The leaf's range in which the store begins, and the one in which it ends. */
static inline unsigned long mt_left_first(const struct mt_write *w)
{
	return mt_slot_first(w->left[0].node, w->left[0].offset, w->left[0].min);
}

static inline unsigned long mt_right_last(const struct mt_write *w)
{
	const struct mt_level *leaf = &w->right[0];

	return mt_slot_last(leaf->node, leaf->offset, leaf->end, leaf->max);
}

/* Under the lock; others may look at the flags. */
static inline void mt_change_flags(struct maple_tree *mt, unsigned int clear, unsigned int set)
{
	__atomic_store_n(&mt->ma_flags, (mt_flags(mt) & ~clear) | set, __ATOMIC_RELAXED);
}

void *mas_insert(struct ma_state *mas, void *entry);

void mt_write_prepare(struct mt_write *w, struct ma_state *mas, void *entry);
bool mt_write_prepare_erase(struct mt_write *w, struct ma_state *mas);
void mt_write_commit(struct mt_write *w);
void mt_rebuild(struct mt_write *w);

unsigned long mt_leaf_gap(const struct maple_node *leaf, unsigned int end, unsigned long min,
			  unsigned long max);
unsigned long mt_inner_gap(const struct maple_node *node, unsigned int end);
void mt_update_gap(const struct mt_level *way, unsigned int height, unsigned int level,
		   unsigned long gap);
void mt_set_root(struct maple_tree *mt, void *root, unsigned int height);

void mt_bury(void **chain, struct maple_node *node);
void mt_bury_tree(void **chain, struct maple_node *node, enum maple_type inner,
		  unsigned int level);
void mt_free_buried(struct ma_state *mas, void *chain);

#endif /* FOLIO_TREE_MT_WRITE_H */
