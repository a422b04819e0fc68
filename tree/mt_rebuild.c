/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The maple tree: stores that need new nodes.
 *
 * One way for all of them, level by level, from the leaves up. The run of a level is what it shall
 * hold where the store's two ways pass: what the left way's node has before the way, what is new,
 * what the right way's node has behind the way. On the leaves the new part is the entry, further up
 * it is the nodes just made. A run that is too short for a node is joined with the node beside it,
 * and the way moves there; so is one that is too long, if there is room beside it. The run is cut
 * into one, two or three nodes, which then are the new part of the level above, until
 *
 *	- one node took the place of one: a pointer to it replaces the old one, or
 *	- without readers, the level above can take in the new part where it is, or
 *	- the run is all that its level has, and fits into one node: the new root.
 *
 * That is the only moment at which the tree changes. Then what was replaced is buried: on each
 * level the nodes on the ways, also where a way moved away from, and whole subtrees between
 * the ways. Then nodes that stay are told their new parents, and last the buried ones are freed.
 * The order matters to who would climb from a node that stays: he comes to a dead parent and starts
 * again, and once the freeing has begun he finds no way to what is freed. (The readers of mt_walk.c
 * only go down; parents are there for them to see a node as dead, and for mt_check().)
 *
 * The node to join with is the one whose way parts lowest from the store's. So above the node
 * where the store's ways part at most one child is lost, and the numbers in mt_write.c hold.
 */
#include "mt_write.h"

#include <string.h>

/* Of the runs the longest is two full leaves of which one range each is cut, and the entry. */
#define RUN_MAX (2 * MT_RANGE_SLOTS + 1)
#define PARTS_MAX 3

struct item {
	void *slot;
	unsigned long last;
	unsigned long gap; /* below a node, in a tree that keeps gaps */
};

struct rebuild {
	struct mt_write *w;
	struct ma_state *mas;
	enum maple_type inner;
	unsigned int level;
	bool append;  /* more will come at the end: nodes are cut so that the left one is full */
	bool between; /* what lies between the store's ways is not buried yet */

	unsigned int count; /* of the run */
	unsigned int fresh; /* where its new part is, above the leaves */
	unsigned int nr_fresh;
	unsigned long min;  /* first index of the run */
	struct item run[RUN_MAX];

	unsigned int nr_made; /* inner nodes that were made */
	unsigned int nr_dead; /* nodes on the ways that are replaced */
	struct maple_node *made[PARTS_MAX * MAPLE_HEIGHT_MAX];
	struct maple_node *dead[PARTS_MAX * MAPLE_HEIGHT_MAX];

	struct mt_level left[MAPLE_HEIGHT_MAX];
	struct mt_level right[MAPLE_HEIGHT_MAX];
};

static enum maple_type level_type(const struct rebuild *b)
{
	return b->level ? b->inner : maple_leaf_64;
}

/*
 * The run
 */

static void add(struct rebuild *b, void *slot, unsigned long last, unsigned long gap)
{
	assert(b->count < RUN_MAX);
	b->run[b->count++] = (struct item){ slot, last, gap };
}

static struct item item_of(const struct rebuild *b, const struct mt_level *way, unsigned int offset)
{
	enum maple_type type = level_type(b);

	return (struct item){
		.slot = mt_slot(way->node, type, offset),
		.last = mt_slot_last(way->node, offset, way->end, way->max),
		.gap = type == maple_arange_64 ? mt_gap(way->node, offset) : 0,
	};
}

/* Adds the slots from @from up to, not including, @to. */
static void add_slots(struct rebuild *b, const struct mt_level *way, unsigned int from,
		      unsigned int to)
{
	assert(from >= to || b->count + to - from <= RUN_MAX);
	for (; from < to; from++)
		b->run[b->count++] = item_of(b, way, from);
}

static void gather_leaves(struct rebuild *b)
{
	const struct mt_write *w = b->w;
	const struct mt_level *left = &b->left[0], *right = &b->right[0];
	unsigned int at;

	b->min = left->min;
	add_slots(b, left, 0, left->offset);
	if (w->first > mt_left_first(w))
		add(b, mt_slot(left->node, maple_leaf_64, left->offset), w->first - 1, 0);
	at = b->count;
	add(b, w->entry, w->last, 0);
	if (w->last < mt_right_last(w))
		add(b, mt_slot(right->node, maple_leaf_64, right->offset), mt_right_last(w), 0);
	add_slots(b, right, right->offset + 1, right->end + 1);
	b->append = w->plan.type == wr_split_store && at + 2 >= b->count &&
		    (right->max == ULONG_MAX || b->mas->mas_flags & MA_STATE_BULK);
}

/* Without a node there is one entry at index 0 at most. */
static void gather_root(struct rebuild *b)
{
	const struct mt_write *w = b->w;
	void *sole = mt_root_locked(w->tree);

	b->min = 0;
	if (sole && w->first)
		add(b, sole, 0, 0);
	if (w->entry) {
		if (w->first > (sole ? 1 : 0))
			add(b, NULL, w->first - 1, 0);
		add(b, w->entry, w->last, 0);
	}
	if (!w->entry || w->last < ULONG_MAX)
		add(b, NULL, ULONG_MAX, 0);
}

/* The run of an inner level, around the nodes made below it. */
static void gather_inner(struct rebuild *b, const struct item *part, unsigned int n)
{
	bool old = b->level < b->w->height;
	const struct mt_level *left = &b->left[b->level], *right = &b->right[b->level];

	b->count = 0;
	if (old) {
		b->min = left->min;
		add_slots(b, left, 0, left->offset);
	}
	b->fresh = b->count;
	b->nr_fresh = n;
	for (unsigned int i = 0; i < n; i++)
		b->run[b->count++] = part[i];
	if (old)
		add_slots(b, right, right->offset + 1, right->end + 1);
}

/*
 * The ways
 */

static void replace(struct rebuild *b, struct maple_node *node)
{
	b->dead[b->nr_dead++] = node;
}

/* The nodes of @level on the ways will be replaced. */
static void replace_level(struct rebuild *b, unsigned int level)
{
	replace(b, b->left[level].node);
	if (b->right[level].node != b->left[level].node)
		replace(b, b->right[level].node);
}

/* Does the run hold all that its level has? */
static bool is_whole(const struct rebuild *b)
{
	for (unsigned int level = b->level + 1; level < b->w->height; level++) {
		if (b->left[level].offset || b->right[level].offset < b->right[level].end)
			return false;
	}
	return true;
}

/*
 * Moves a way to the node beside it, from @top down, where the way has a slot beside. The nodes
 * that it leaves are replaced too, but where the other way passes, which takes care of them.
 */
static void move_way(struct rebuild *b, struct mt_level *way, const struct mt_level *other,
		     unsigned int top, int step)
{
	for (unsigned int level = b->level; level < top; level++) {
		if (way[level].node != other[level].node)
			replace(b, way[level].node);
	}
	way[top].offset += step;
	for (unsigned int level = top; level-- > b->level;) {
		const struct mt_level *above = &way[level + 1];
		struct maple_node *node = mt_to_node(mt_slot(above->node, b->inner, above->offset));
		unsigned int end = mt_end(node);

		way[level] = (struct mt_level){
			.node = node,
			.min = mt_slot_first(above->node, above->offset, above->min),
			.max = mt_slot_last(above->node, above->offset, above->end, above->max),
			.offset = step < 0 ? end : 0,
			.end = end,
		};
	}
}

/* Joins the run with the node on its left. The way goes there from the level @top down. */
static void join_left(struct rebuild *b, unsigned int top)
{
	const struct mt_level *beside = &b->left[b->level];
	unsigned int had = b->count, more;

	move_way(b, b->left, b->right, top, -1);
	more = beside->end + 1;
	assert(had + more <= RUN_MAX);
	memmove(&b->run[more], &b->run[0], had * sizeof(b->run[0]));
	b->count = 0;
	add_slots(b, beside, 0, more);
	b->count += had;
	b->fresh += more;
	b->min = beside->min;
}

static void join_right(struct rebuild *b, unsigned int top)
{
	const struct mt_level *beside = &b->right[b->level];

	move_way(b, b->right, b->left, top, 1);
	add_slots(b, beside, 0, beside->end + 1);
}

/* Joins the run, which is too short, with the node beside it that is nearest in the tree. */
static void join(struct rebuild *b)
{
	const unsigned int height = b->w->height;
	unsigned int left = b->level + 1, right = b->level + 1;

	while (left < height && !b->left[left].offset)
		left++;
	while (right < height && b->right[right].offset == b->right[right].end)
		right++;
	if (left <= right)
		join_left(b, left);
	else
		join_right(b, right);
}

/*
 * The run is too long for a node: if the node on its left has room, the two are joined and make two
 * again. So nodes are fuller, and those that were filled in order are full. Takes no more nodes
 * than a split here, and none further up.
 */
static void spread(struct rebuild *b)
{
	unsigned int slots = mt_slots(level_type(b));
	const struct mt_level *above = &b->left[b->level + 1];

	if (b->count <= slots || b->level + 1 >= b->w->height || !above->offset ||
	    b->left[b->level].node != b->right[b->level].node)
		return;
	if (b->count + mt_end(mt_to_node(mt_slot(above->node, b->inner, above->offset - 1))) <
	    2 * slots - 2)
		join_left(b, b->level + 1);
}

/*
 * Nodes
 */

/*
 * Makes a node of a part of the run. Nodes that were made below get their parent now, those that
 * were there before when the new one is in the tree.
 */
static struct item make_node(struct rebuild *b, unsigned int from, unsigned int to)
{
	enum maple_type type = level_type(b);
	struct maple_node *node = mas_take_node(b->mas);
	void **slots = mt_slot_array(node, type);
	const struct item *run = &b->run[from];
	unsigned int end = to - from - 1;
	unsigned long min = from ? b->run[from - 1].last + 1 : b->min;
	struct item made = { mt_mk_node(node, type), run[end].last, 0 };

	for (unsigned int i = 0; i <= end; i++) {
		slots[i] = run[i].slot;
		if (i < end)
			node->pivot[i] = run[i].last;
		if (type == maple_arange_64)
			node->arange.gap[i] = run[i].gap;
		if (b->level && from + i - b->fresh < b->nr_fresh) {
			struct maple_node *child = mt_to_node(run[i].slot);

			child->word = mt_mk_word(node, i, mt_end(child));
		}
	}
	node->word = mt_mk_word(NULL, 0, end);
	if (b->level)
		b->made[b->nr_made++] = node;
	if (mt_is_alloc(b->w->tree))
		made.gap = b->level ? mt_inner_gap(node, end) :
				      mt_leaf_gap(node, end, min, made.last);
	return made;
}

/*
 * Where to cut the run, which has @from items before, so that @parts parts are left. A leaf must
 * not end with NULL. Return: 0 if there is no such place.
 */
static unsigned int cut(const struct rebuild *b, unsigned int from, unsigned int parts)
{
	static const int tries[] = { 0, -1, 1 };
	const unsigned int slots = mt_slots(level_type(b)), min = mt_min_slots(level_type(b));
	unsigned int left = b->count - from;
	unsigned int size = b->append ? left - (parts - 1) * min : left / parts;

	if (size > slots)
		size = slots;
	for (unsigned int i = 0; i < 3; i++) {
		unsigned int try = size + tries[i];

		if (try < min || try > slots || left - try < (parts - 1) * min ||
		    left - try > (parts - 1) * slots)
			continue;
		if (b->level || b->run[from + try - 1].slot)
			return from + try;
	}
	return 0;
}

/* Cuts the run into nodes. Return: how many. */
static unsigned int make_nodes(struct rebuild *b, struct item *part)
{
	unsigned int slots = mt_slots(level_type(b));
	unsigned int n = (b->count + slots - 1) / slots;
	unsigned int to[PARTS_MAX];
	unsigned int done = 0;

	while (done < n) {
		unsigned int from = done ? to[done - 1] : 0;

		assert(n <= PARTS_MAX);
		to[done] = done + 1 == n ? b->count : cut(b, from, n - done);
		if (to[done]) {
			done++;
		} else {
			n++;
			done = 0;
		}
	}
	for (unsigned int i = 0; i < n; i++)
		part[i] = make_node(b, i ? to[i - 1] : 0, to[i]);
	return n;
}

static void set_parent(struct maple_node *child, const struct maple_node *parent, unsigned int slot)
{
	__atomic_store_n(&child->word, mt_mk_word(parent, slot, mt_end(child)), __ATOMIC_RELEASE);
}

/* Tells all that is below the new nodes who its parent is. */
static void adopt(struct rebuild *b)
{
	for (unsigned int i = 0; i < b->nr_made; i++) {
		struct maple_node *node = b->made[i];
		unsigned int end = mt_end(node);

		for (unsigned int slot = 0; slot <= end; slot++) {
			struct maple_node *child = mt_to_node(mt_slot(node, b->inner, slot));

			if (mt_word(child) >> 4 != mt_mk_word(node, slot, 0) >> 4)
				set_parent(child, node, slot);
		}
	}
}

/*
 * The change
 */

static void bury_slots(const struct rebuild *b, void **chain, unsigned int level,
		       struct maple_node *node, unsigned int from, unsigned int to)
{
	for (; from < to; from++)
		mt_bury_tree(chain, mt_to_node(mt_slot(node, b->inner, from)), b->inner, level - 1);
}

/* Buries what lies between the store's two ways. */
static void bury_between(struct rebuild *b, void **chain)
{
	const struct mt_level *left = b->w->left, *right = b->w->right;
	unsigned int level = b->w->height - 1;

	b->between = false;
	while (left[level].offset == right[level].offset)
		level--;
	bury_slots(b, chain, level, left[level].node, left[level].offset + 1, right[level].offset);
	while (--level > 0) {
		bury_slots(b, chain, level, left[level].node, left[level].offset + 1,
			   left[level].end + 1);
		bury_slots(b, chain, level, right[level].node, 0, right[level].offset);
	}
}

/* After the new nodes were published. @chain: what is buried already */
static void settle(struct rebuild *b, void *chain)
{
	if (b->between)
		bury_between(b, &chain);
	for (unsigned int i = 0; i < b->nr_dead; i++)
		mt_bury(&chain, b->dead[i]);
	adopt(b);
	mt_free_buried(b->mas, chain);
}

void mt_set_root(struct maple_tree *mt, void *root, unsigned int height)
{
	mt_change_flags(mt, MT_FLAGS_HEIGHT_MASK, height << MT_FLAGS_HEIGHT_OFFSET);
	rcu_assign_pointer(mt->ma_root, root);
}

/* The run is all of its level: makes it the root if it fits. */
static bool finish_root(struct rebuild *b)
{
	struct maple_tree *mt = b->w->tree;
	struct item *run = b->run;

	if (b->count > mt_slots(level_type(b)))
		return false;
	/* A run of one node alone would have been the root on its own level. */
	assert(!b->level || b->count > 1);
	for (unsigned int level = b->level; level < b->w->height; level++)
		replace_level(b, level);
	if (!b->level && b->count == 1 && !run[0].slot)
		mt_set_root(mt, NULL, 0);
	else if (!b->level && b->count == 2 && !run[0].last && !run[1].slot &&
		 !mt_is_node(run[0].slot))
		mt_set_root(mt, run[0].slot, 0);
	else
		mt_set_root(mt, make_node(b, 0, b->count).slot, b->level + 1);
	settle(b, NULL);
	return true;
}

/* One node took the place of one: puts it there. */
static void finish_swap(struct rebuild *b, struct item *part)
{
	const struct mt_level *above = &b->left[b->level + 1];
	struct maple_node *node = mt_to_node(part->slot);

	node->word = mt_mk_word(above->node, above->offset, mt_end(node));
	rcu_assign_pointer(mt_slot_array(above->node, b->inner)[above->offset], part->slot);
	settle(b, NULL);
	if (b->inner == maple_arange_64)
		mt_update_gap(b->left, b->w->height, b->level, part->gap);
}

/* Puts @n nodes in the place of what is between the ways in the node above, where it is. */
static void splice(struct rebuild *b, const struct item *part, unsigned int n)
{
	struct mt_level *above = &b->left[b->level];
	struct maple_node *node = above->node;
	void **slots = mt_slot_array(node, b->inner);
	unsigned int from = above->offset, to = b->right[b->level].offset + 1;
	unsigned int moved = above->end + 1 - to;
	unsigned int end = from + n + moved - 1;

	if (moved && from + n != to) {
		memmove(&slots[from + n], &slots[to], moved * sizeof(*slots));
		memmove(&node->pivot[from + n], &node->pivot[to], (moved - 1) * sizeof(long));
		if (b->inner == maple_arange_64)
			memmove(&node->arange.gap[from + n], &node->arange.gap[to],
				moved * sizeof(long));
		for (unsigned int i = from + n; i <= end; i++)
			set_parent(mt_to_node(slots[i]), node, i);
	}
	for (unsigned int i = 0; i < n; i++) {
		slots[from + i] = part[i].slot;
		if (from + i < end)
			node->pivot[from + i] = part[i].last;
		if (b->inner == maple_arange_64)
			node->arange.gap[from + i] = part[i].gap;
		set_parent(mt_to_node(part[i].slot), node, from + i);
	}
	node->word = (node->word & ~15UL) | end;
	above->end = end;
}

/*
 * Without readers: changes the node above in place, if that leaves it neither too full nor too
 * empty. What is between the ways is buried first, as the node forgets it.
 */
static bool finish_in_place(struct rebuild *b, const struct item *part, unsigned int n)
{
	struct mt_level *left = &b->left[b->level], *right = &b->right[b->level];
	bool root = b->level == b->w->height - 1;
	unsigned int count = left->offset + n + right->end - right->offset;
	void *chain = NULL;

	if (b->w->rcu || left->node != right->node || count > mt_slots(b->inner) ||
	    count < (root ? 2 : mt_min_slots(b->inner)))
		return false;
	if (b->between)
		bury_between(b, &chain);
	splice(b, part, n);
	settle(b, chain);
	if (b->inner == maple_arange_64)
		mt_update_gap(b->left, b->w->height, b->level,
			      mt_inner_gap(left->node, left->end));
	return true;
}

/* Does a store that needs new nodes. The cursor has them. */
void mt_rebuild(struct mt_write *w)
{
	struct item part[PARTS_MAX];
	struct rebuild b;

	b.w = w;
	b.mas = w->mas;
	b.inner = mt_inner_type(w->tree);
	b.level = 0;
	b.count = 0;
	b.append = false;
	b.between = w->spans;
	b.nr_fresh = 0;
	b.fresh = 0;
	b.nr_made = 0;
	b.nr_dead = 0;
	memcpy(b.left, w->left, w->height * sizeof(b.left[0]));
	memcpy(b.right, w->spans ? w->right : w->left, w->height * sizeof(b.right[0]));
	if (w->height) {
		b.right[0] = w->right[0];
		gather_leaves(&b);
	} else {
		gather_root(&b);
	}
	for (;;) {
		bool whole = is_whole(&b);
		unsigned int n;

		if (!whole && b.count < mt_min_slots(level_type(&b))) {
			join(&b);
			whole = is_whole(&b);
		}
		if (whole && finish_root(&b))
			return;
		spread(&b);
		if (b.level < w->height)
			replace_level(&b, b.level);
		n = make_nodes(&b, part);
		if (!whole && n == 1 && b.left[b.level].node == b.right[b.level].node) {
			finish_swap(&b, part);
			return;
		}
		b.level++;
		if (b.level < w->height && finish_in_place(&b, part, n))
			return;
		gather_inner(&b, part, n);
	}
}
