/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the maple tree's own files share. Not installed.
 *
 * A node is 256 bytes, aligned to 256. A leaf, and an inner node without gaps, has 16 slots and 15
 * pivots, an inner node of a tree that keeps gaps has 10 slots, 9 pivots and 10 gaps. Slot i holds
 * the range from pivot[i - 1] + 1 (the node's first index for slot 0) to pivot[i], both inside. The
 * slots in use are 0 to end; the last one ends with the node, so pivot[end] means nothing and must
 * not be looked at. All leaves lie at the same depth.
 *
 * A pointer to a node, in a slot or in the root, has bit 1 set and the node's type in bits 3 to 6.
 * A root that is no node pointer is the entry at index 0 or NULL (mt_is_node()); so an entry that
 * looks like a node pointer gets a leaf even when it is alone.
 *
 * The first word of a node says where it hangs and how far it is filled:
 *
 *	bits 8 to 63	the parent's address; 0 for the root; the node's own address: it is dead
 *	bits 4 to 7	the slot of the parent
 *	bits 0 to 3	end
 *
 * What always holds while no writer is inside (mt_check())
 *
 *	- a node's range, min to max, never changes while it is in the tree
 *	- pivots ascend; at least mt_min_slots() slots in use, 2 in a root that is no leaf
 *	- two ranges of NULL never touch, and no leaf ends with one but the last in the tree
 *	- gap[i] is the largest run of NULL below slot i; so a gap never crosses a leaf's end
 *	- the tree of one entry at index 0, and the empty tree, have no node
 *
 * What a reader in RCU mode may rely on. In a node that is in the tree its range and its pivots
 * never change. What does change is one word at a time, and published with a release:
 *
 *	- a slot gets another entry of the same range, or another node for the same range
 *	- the first word gets another parent, or another slot of it
 *	- end grows by one: the last range was cut in two, pivot and slot were written before
 *
 * Everything else makes new nodes. They are whole before the one store that publishes them. After
 * it the old nodes are marked dead, then the nodes that stay get their new parents, then the old
 * ones go to the pool, which waits for a grace period, and which may overwrite all but the first
 * word at once. So a reader takes the word, loads what it wants from the node with acquire, and
 * takes the word again. If the node is dead now, what it has is void and it starts from the root.
 * If end has changed, it looks again in the node. Otherwise it has a range as it was.
 *
 * Without RCU mode nodes change in any way, under the lock, and are freed at once.
 *
 * Names: node is a struct maple_node, enode an encoded pointer, word a node's first word; offset
 * a slot; min and max a node's range; first and last a range to store.
 */
#ifndef FOLIO_TREE_MT_INTERNAL_H
#define FOLIO_TREE_MT_INTERNAL_H

#include <assert.h>

#include "maple_tree.h"
#include "node_alloc.h"

enum maple_type {
	maple_leaf_64,
	maple_range_64,
	maple_arange_64,
};

#define MT_NODE_SIZE 256
#define MT_RANGE_SLOTS 16
#define MT_ARANGE_SLOTS 10

/* Pivots lie at the same place in each type, so the search for an index need not know the type. */
struct maple_node {
	unsigned long word;
	union {
		unsigned long pivot[MT_RANGE_SLOTS - 1];
		void *link; /* of a node that is in no tree any more */
		struct {
			unsigned long pivot[MT_RANGE_SLOTS - 1];
			void *slot[MT_RANGE_SLOTS];
		} range;
		struct {
			unsigned long pivot[MT_ARANGE_SLOTS - 1];
			void *slot[MT_ARANGE_SLOTS];
			unsigned long gap[MT_ARANGE_SLOTS];
		} arange;
	};
};

_Static_assert(sizeof(struct maple_node) == MT_NODE_SIZE, "a node fills its place");

extern struct node_pool mt_node_pool;

/*
 * Pointers to nodes
 */

#define MT_ENODE_MARK 2UL
#define MT_TYPE_SHIFT 3
#define MT_LOW_BITS (MT_NODE_SIZE - 1UL)

/* Is what is in the root, or in a slot of an inner node, a pointer to a node? */
static inline bool mt_is_node(const void *entry)
{
	return ((unsigned long)entry & 3) == MT_ENODE_MARK && (unsigned long)entry > 4096;
}

static inline struct maple_node *mt_to_node(const void *enode)
{
	return (struct maple_node *)((unsigned long)enode & ~MT_LOW_BITS);
}

static inline enum maple_type mt_type(const void *enode)
{
	return ((unsigned long)enode & MT_LOW_BITS) >> MT_TYPE_SHIFT;
}

static inline struct maple_enode *mt_mk_node(const struct maple_node *node, enum maple_type type)
{
	return (struct maple_enode *)((unsigned long)node | (unsigned long)type << MT_TYPE_SHIFT |
				      MT_ENODE_MARK);
}

static inline bool mt_is_leaf(const void *enode)
{
	return mt_type(enode) == maple_leaf_64;
}

static inline bool mt_is_alloc(const struct maple_tree *mt)
{
	return mt_flags(mt) & MT_FLAGS_ALLOC_RANGE;
}

/* The type of this tree's inner nodes. */
static inline enum maple_type mt_inner_type(const struct maple_tree *mt)
{
	return mt_is_alloc(mt) ? maple_arange_64 : maple_range_64;
}

static inline unsigned int mt_slots(enum maple_type type)
{
	return type == maple_arange_64 ? MT_ARANGE_SLOTS : MT_RANGE_SLOTS;
}

/* The least number of slots in use, but in the root. */
static inline unsigned int mt_min_slots(enum maple_type type)
{
	return type == maple_arange_64 ? 4 : 6;
}

/*
 * The root. Acquire: pairs with the release that publishes; a node found is whole.
 */

static inline void *mt_root(const struct maple_tree *mt)
{
	return rcu_dereference(mt->ma_root);
}

static inline void *mt_root_locked(const struct maple_tree *mt)
{
	return rcu_dereference_protected(mt->ma_root);
}

/*
 * The first word
 */

/* Acquire: the slots up to end are there. To be loaded before and after what is in the node. */
static inline unsigned long mt_word(const struct maple_node *node)
{
	return __atomic_load_n(&node->word, __ATOMIC_ACQUIRE);
}

static inline unsigned int mt_word_end(unsigned long word)
{
	return word & 15;
}

static inline unsigned int mt_word_slot(unsigned long word)
{
	return word >> 4 & 15;
}

/* NULL for the root. */
static inline struct maple_node *mt_word_parent(unsigned long word)
{
	return (struct maple_node *)(word & ~MT_LOW_BITS);
}

static inline unsigned long mt_mk_word(const struct maple_node *parent, unsigned int slot,
				       unsigned int end)
{
	return (unsigned long)parent | slot << 4 | end;
}

static inline bool mt_word_dead(const struct maple_node *node, unsigned long word)
{
	return mt_word_parent(word) == node;
}

/* Has the node been replaced? Then what was loaded from it before is void. */
static inline bool mt_dead(const struct maple_node *node)
{
	return mt_word_dead(node, mt_word(node));
}

static inline unsigned int mt_end(const struct maple_node *node)
{
	return mt_word_end(mt_word(node));
}

/*
 * What is in a node. Loads acquire, for mt_dead(); on x86 that costs nothing.
 */

static inline unsigned long mt_pivot(const struct maple_node *node, unsigned int offset)
{
	return __atomic_load_n(&node->pivot[offset], __ATOMIC_ACQUIRE);
}

static inline void **mt_slot_array(struct maple_node *node, enum maple_type type)
{
	return type == maple_arange_64 ? node->arange.slot : node->range.slot;
}

static inline void *mt_slot(const struct maple_node *node, enum maple_type type,
			    unsigned int offset)
{
	return rcu_dereference(mt_slot_array((struct maple_node *)node, type)[offset]);
}

/* Gaps change under the lock; without it they are hints. */
static inline unsigned long mt_gap(const struct maple_node *node, unsigned int offset)
{
	return __atomic_load_n(&node->arange.gap[offset], __ATOMIC_ACQUIRE);
}

/*
 * Lets all lines of a node be under way at once: which slot is wanted is known only when the pivots
 * are there, and these are on other lines.
 */
static inline void mt_prefetch(const struct maple_node *node)
{
	for (unsigned int line = 1; line < MT_NODE_SIZE / MT_CACHE_LINE; line++)
		__builtin_prefetch((const char *)node + line * MT_CACHE_LINE);
}

/* The first index of a slot. @min: the node's */
static inline unsigned long mt_slot_first(const struct maple_node *node, unsigned int offset,
					  unsigned long min)
{
	return offset ? mt_pivot(node, offset - 1) + 1 : min;
}

/* The last index of a slot. @end: the node's last slot in use, @max: the node's last index */
static inline unsigned long mt_slot_last(const struct maple_node *node, unsigned int offset,
					 unsigned int end, unsigned long max)
{
	return offset < end ? mt_pivot(node, offset) : max;
}

/*
 * The slot in which @index lies, which lies in the node. Counts without a branch: where the search
 * would stop nobody could predict.
 */
static inline unsigned int mt_find_slot(const struct maple_node *node, unsigned int end,
					unsigned long index)
{
	unsigned int offset = 0;

	for (unsigned int i = 0; i < end; i++)
		offset += mt_pivot(node, i) < index;
	return offset;
}

/*
 * The cursor
 */

static inline void mas_set_err(struct ma_state *mas, long err)
{
	mas->node = MA_ERROR(err);
	mas->status = ma_error;
}

/* Does the normal API refuse this entry? */
static inline bool mt_is_reserved(const void *entry)
{
	return ((unsigned long)entry & 3) == 2 && (unsigned long)entry < 4096;
}

/*
 * mas_range_at() - Go to the range in which @index lies, in the present leaf if that is there.
 *
 * Afterwards the cursor is active, or at what a tree without nodes has: then ma_root at the entry,
 * ma_none where there is nothing. Context: RCU or the tree's lock. The cursor has not failed.
 * Return: what is there. (mt_walk.c)
 */
void *mas_range_at(struct ma_state *mas, unsigned long index);

/*
 * Nodes ahead (mt_nodes.c)
 */

bool mas_reserve(struct ma_state *mas, unsigned int n, gfp_t gfp);
struct maple_node *mas_take_node(struct ma_state *mas);

/*
 * What a store would take (mt_write.c): seed 003. With h the height, V = h - vacant, and
 * B = h - sufficient if sufficient < vacant, else V:
 *
 *	exact fit, append, one slot	0
 *	node store			1 under RCU, else 0; under RCU it is also what an append
 *					and the move of a boundary are, unless they publish one word
 *	split				2V + 1
 *	rebalance			2B + 1
 *	spanning			3B + 1
 *	new root			1; 0 for NULL
 *	store root			0 or 1
 */
struct mt_plan {
	enum store_type type;
	unsigned char height;	  /* of the tree */
	unsigned char vacant;	  /* the lowest inner level with a free slot: its depth + 1, or 0 */
	unsigned char sufficient; /* the lowest that can lose one and keep its minimum, or 0 */
	unsigned int nodes;	  /* to ask for */
};

/*
 * mas_plan() - What would storing @entry over the cursor's index to last take? Changes nothing.
 * Context: the tree's lock.
 */
struct mt_plan mas_plan(const struct ma_state *mas, void *entry);

#endif /* FOLIO_TREE_MT_INTERNAL_H */
