/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The XArray's cursor: what changes the tree. All of it under xa_lock, but for xas_nomem() and
 * xas_destroy().
 *
 * A store goes down to its slot, making the nodes on the way that are missing. How many that will
 * be is known before the first is linked, from the level where the way ends, so they are all taken
 * at once or none is: a store that fails leaves the tree as it was. The number is remembered in
 * xa_wanted, and xas_nomem() allocates so many.
 *
 * The tree grows at the top: a new node with the old head in slot 0. It shrinks there as well, as
 * long as the top node has nothing but slot 0, and a node that becomes empty is taken out.
 *
 * Towards readers: a node is complete before it is published; marks of an entry are cleared before
 * the slot becomes NULL; a node taken out is unlinked first, then gets retry entries, then goes
 * to the pool, which waits for a grace period.
 */
#include "xa_internal.h"

#include <assert.h>

struct node_pool xa_node_pool = NODE_POOL_INIT(struct xa_node, private_list);

/*
 * Marks
 */

/* Sets a mark on a slot, and upwards to the root until it is there already. */
static void mark_set_up(struct xarray *xa, struct xa_node *node, unsigned int offset,
			xa_mark_t mark)
{
	while (node) {
		unsigned long word = node_marks(node, mark);

		if (word >> offset & 1)
			return;
		node_set_marks(node, mark, word | 1UL << offset);
		offset = node->offset;
		node = xa_parent_locked(xa, node);
	}
	if (!xa_marked(xa, mark))
		xa_mark_root(xa, mark, true);
}

/* Clears a mark on a slot, and upwards as long as no other slot of the node has it. */
static void mark_clear_up(struct xarray *xa, struct xa_node *node, unsigned int offset,
			  xa_mark_t mark)
{
	while (node) {
		unsigned long word = node_marks(node, mark);

		if (!(word >> offset & 1))
			return;
		word &= ~(1UL << offset);
		node_set_marks(node, mark, word);
		if (word)
			return;
		offset = node->offset;
		node = xa_parent_locked(xa, node);
	}
	if (xa_marked(xa, mark))
		xa_mark_root(xa, mark, false);
}

/**
 * xas_set_mark() - Mark the entry at the cursor.
 *
 * Context: xa_lock. The cursor has loaded or found an entry; otherwise nothing happens.
 */
void xas_set_mark(const struct xa_state *xas, xa_mark_t mark)
{
	if (!xas_invalid(xas))
		mark_set_up(xas->xa, xas->xa_node, xas->xa_offset, mark);
}

/**
 * xas_clear_mark() - Take a mark from the entry at the cursor.
 *
 * Context: As xas_set_mark().
 */
void xas_clear_mark(const struct xa_state *xas, xa_mark_t mark)
{
	if (!xas_invalid(xas))
		mark_clear_up(xas->xa, xas->xa_node, xas->xa_offset, mark);
}

/**
 * xas_init_marks() - Clear all marks of the entry at the cursor.
 *
 * The mark for free indices is no mark of an entry, and stays true.
 *
 * Context: As xas_set_mark().
 */
void xas_init_marks(const struct xa_state *xas)
{
	xa_for_each_mark(mark) {
		if (mark != XA_FREE_MARK || !xa_track_free(xas->xa))
			xas_clear_mark(xas, mark);
	}
}

/* Gives the marks of the slots that become one entry to the first of them. */
static void merge_marks(struct xa_state *xas, unsigned int sibs)
{
	unsigned long siblings = ((1UL << sibs) - 1) << 1 << xas->xa_offset;

	xa_for_each_mark(mark) {
		unsigned long word = node_marks(xas->xa_node, mark);

		if (!(word & siblings))
			continue;
		node_set_marks(xas->xa_node, mark, (word & ~siblings) | 1UL << xas->xa_offset);
	}
}

/* Keeps the mark for free indices true for slots @first to @last. Without a node: for the head. */
static void mark_free(struct xa_state *xas, unsigned int first, unsigned int last, bool is_free)
{
	if (!xa_track_free(xas->xa))
		return;
	for (unsigned int offset = first; offset <= last; offset++) {
		if (is_free)
			mark_set_up(xas->xa, xas->xa_node, offset, XA_FREE_MARK);
		else
			mark_clear_up(xas->xa, xas->xa_node, offset, XA_FREE_MARK);
	}
}

/*
 * Nodes
 */

/* How many nodes are allocated ahead. */
unsigned int xas_reserved(const struct xa_state *xas)
{
	unsigned int n = 0;

	for (struct xa_node *node = xas->xa_alloc; node; node = node->parent)
		n++;
	return n;
}

static struct xa_node *take_reserved(struct xa_state *xas)
{
	struct xa_node *node = xas->xa_alloc;

	xas->xa_alloc = node->parent;
	return node;
}

/* Allocates until @n nodes are reserved. On failure those that were got in vain go back. */
bool xas_reserve(struct xa_state *xas, unsigned int n, gfp_t gfp)
{
	unsigned int before = xas_reserved(xas);

	for (unsigned int i = before; i < n; i++) {
		struct xa_node *node = node_alloc(&xa_node_pool, gfp);

		if (!node) {
			while (i-- > before)
				node_free(&xa_node_pool, take_reserved(xas));
			xas->xa_wanted = n;
			xas_set_err(xas, -ENOMEM);
			return false;
		}
		node->parent = xas->xa_alloc;
		xas->xa_alloc = node;
	}
	return true;
}

/**
 * xas_destroy() - Free what xas_nomem() or xas_split_alloc() allocated and nobody used.
 *
 * Context: Any.
 */
void xas_destroy(struct xa_state *xas)
{
	while (xas->xa_alloc)
		node_free(&xa_node_pool, take_reserved(xas));
}

/**
 * xas_nomem() - After a change failed with -ENOMEM: allocate what it needs.
 *
 * To be called in any case after the last attempt, as it then frees what is left over.
 *
 * Context: No lock, if @gfp may sleep.
 * Return: true: try again. false: it did not fail for want of memory, or there is none.
 */
bool xas_nomem(struct xa_state *xas, gfp_t gfp)
{
	if (xas_error(xas) != -ENOMEM) {
		xas_destroy(xas);
		return false;
	}
	if (!xas_reserve(xas, xas->xa_wanted ? xas->xa_wanted : 1, gfp)) {
		xas_destroy(xas);
		return false;
	}
	xas_reset(xas);
	return true;
}

/* Makes a node of a reserved one. */
struct xa_node *xas_make_node(struct xa_state *xas, unsigned int shift)
{
	struct xa_node *node = take_reserved(xas);

	node->parent = NULL;
	node->shift = shift;
	node->array = xas->xa;
	INIT_LIST_HEAD(&node->private_list);
	if (xa_track_free(xas->xa))
		node->marks[XA_FREE_MARK] = all_slots();
	return node;
}

/* The node is unlinked: sends its readers away and frees it. */
static void free_node(struct xa_state *xas, struct xa_node *node)
{
	/* Release: who meets a retry entry and starts again must not find the node again. */
	for (unsigned int i = 0; i < XA_CHUNK_SIZE; i++)
		rcu_assign_pointer(node->slots[i], XA_RETRY_ENTRY);
	node->count = 0;
	node->nr_values = 0;
	xas_update(xas, node);
	node_free_rcu(&xa_node_pool, node);
}

/* Frees an unlinked tree, its leaves first. */
void xa_free_tree(struct xa_state *xas, struct xa_node *top)
{
	for (unsigned int i = 0; top->shift && i < XA_CHUNK_SIZE; i++) {
		void *entry = xa_entry_locked(xas->xa, top, i);

		if (xa_is_node(entry))
			xa_free_tree(xas, xa_to_node(entry));
	}
	free_node(xas, top);
}

/* Takes top nodes away that have nothing but slot 0. The cursor is then in bounds. */
void xa_shrink(struct xa_state *xas)
{
	struct xarray *xa = xas->xa;

	for (;;) {
		void *head = xa_head_locked(xa);
		struct xa_node *top;
		void *entry;

		if (!xa_is_node(head))
			return;
		top = xa_to_node(head);
		entry = xa_entry_locked(xa, top, 0);
		if (top->count != 1 || !entry)
			return;
		/* An entry that spans more than index 0 needs its slot. */
		if (!xa_is_node(entry) && top->shift)
			return;

		xas->xa_node = XAS_BOUNDS;
		if (xa_track_free(xa) && !node_get_mark(top, 0, XA_FREE_MARK))
			xa_mark_root(xa, XA_FREE_MARK, false);
		if (xa_is_node(entry))
			rcu_assign_pointer(xa_to_node(entry)->parent, NULL);
		rcu_assign_pointer(xa->xa_head, entry);
		free_node(xas, top);
	}
}

/* Takes the cursor's node out if it is empty, then its parents, and shrinks the tree. */
static void delete_empty(struct xa_state *xas)
{
	struct xarray *xa = xas->xa;
	struct xa_node *node = xas->xa_node;

	while (!node->count) {
		struct xa_node *parent = xa_parent_locked(xa, node);

		xas->xa_node = parent;
		xas->xa_offset = node->offset;
		if (!parent) {
			rcu_assign_pointer(xa->xa_head, NULL);
			free_node(xas, node);
			set_bounds(xas);
			return;
		}
		rcu_assign_pointer(parent->slots[node->offset], NULL);
		parent->count--;
		xas_update(xas, parent);
		free_node(xas, node);
		node = parent;
	}
	if (!xa_parent_locked(xa, node))
		xa_shrink(xas);
}

/*
 * Growing
 */

static unsigned int head_level(const void *head)
{
	return xa_is_node(head) ? xa_to_node(head)->shift + XA_CHUNK_SHIFT : 0;
}

/* The lowest level of the head with which the tree has a slot for the cursor. */
static unsigned int wanted_level(const struct xa_state *xas, bool allow_root)
{
	unsigned long last = xas->xa_index | (((xas->xa_sibs + 1UL) << xas->xa_shift) - 1);
	unsigned int shift = xas->xa_shift;

	if (!last && allow_root)
		return 0;
	while (last >> shift > XA_CHUNK_MASK)
		shift += XA_CHUNK_SHIFT;
	return shift + XA_CHUNK_SHIFT;
}

/*
 * How many nodes raising the head from level @have to @want takes, and those down to the cursor's
 * level. The way down leaves the new nodes where the index is not in their slot 0, and all nodes
 * after that are missing; a way that stays in slot 0 ends at the cursor's level or at the old head.
 */
static unsigned int nodes_to_grow(const struct xa_state *xas, unsigned int have, unsigned int want)
{
	unsigned int growth = (want - have) / XA_CHUNK_SHIFT;
	unsigned int level = want;

	while (level > have && level > xas->xa_shift) {
		level -= XA_CHUNK_SHIFT;
		if (xas->xa_index >> level & XA_CHUNK_MASK)
			return growth + (level - xas->xa_shift) / XA_CHUNK_SHIFT;
	}
	return growth;
}

/* Puts a new node on top of a head that is not NULL. */
static void grow_one(struct xa_state *xas, unsigned int level)
{
	struct xarray *xa = xas->xa;
	void *head = xa_head_locked(xa);
	struct xa_node *node = xas_make_node(xas, level);

	node->count = 1;
	node->nr_values = xa_is_value(head);
	node->slots[0] = head;
	xa_for_each_mark(mark) {
		if (mark == XA_FREE_MARK && xa_track_free(xa)) {
			if (!xa_marked(xa, mark))
				node->marks[mark] &= ~1UL;
			xa_mark_root(xa, mark, true);
		} else if (xa_marked(xa, mark)) {
			node->marks[mark] = 1;
		}
	}
	if (xa_is_node(head))
		rcu_assign_pointer(xa_to_node(head)->parent, node);
	rcu_assign_pointer(xa->xa_head, xa_mk_node(node));
	xas_update(xas, node);
}

/*
 * Makes the tree high enough for the cursor. Without a tree, says how high it will be.
 * @level: out: the head's level
 *
 * Return: false with an error set.
 */
static bool grow(struct xa_state *xas, bool allow_root, unsigned int *level)
{
	void *head = xa_head_locked(xas->xa);
	unsigned int have = head_level(head);
	unsigned int want = wanted_level(xas, allow_root);

	xas->xa_node = NULL;
	*level = head && have > want ? have : want;
	if (!head || want <= have)
		return true;
	if (!xas_reserve(xas, nodes_to_grow(xas, have, want), GFP_NOWAIT))
		return false;
	for (; have < want; have += XA_CHUNK_SHIFT)
		grow_one(xas, have);
	return true;
}

/* Links a new node into the cursor's slot, which is NULL. */
static struct xa_node *add_node(struct xa_state *xas, unsigned int shift)
{
	struct xa_node *parent = xas->xa_node;
	struct xa_node *node = xas_make_node(xas, shift);

	if (!parent) {
		rcu_assign_pointer(xas->xa->xa_head, xa_mk_node(node));
		return node;
	}
	node->offset = xas->xa_offset;
	node->parent = parent;
	rcu_assign_pointer(parent->slots[node->offset], xa_mk_node(node));
	parent->count++;
	xas_update(xas, parent);
	return node;
}

/*
 * Brings the cursor to the slot for an entry of its order, making what is missing on the way.
 * Stops early at a larger entry. Return: what is in the slot; NULL also on failure.
 */
static void *create_slot(struct xa_state *xas, bool allow_root)
{
	unsigned int level;
	void *entry;

	if (xas_error(xas))
		return NULL;
	if (xas_is_node(xas)) {
		entry = xas_descend(xas, xas->xa_node);
		level = xas->xa_node->shift;
	} else {
		if (!grow(xas, allow_root, &level))
			return NULL;
		entry = xa_head_locked(xas->xa);
	}

	entry = xas_walk_down(xas, entry, &level);
	if (entry || level <= xas->xa_shift)
		return entry;
	if (!xas_reserve(xas, (level - xas->xa_shift) / XA_CHUNK_SHIFT, GFP_NOWAIT))
		return NULL;
	while (level > xas->xa_shift) {
		level -= XA_CHUNK_SHIFT;
		xas_descend(xas, add_node(xas, level));
	}
	return NULL;
}

/*
 * Storing
 */

/* Puts an entry into the head, which has one or is NULL. */
static void store_head(struct xa_state *xas, void *old, void *entry)
{
	rcu_assign_pointer(xas->xa->xa_head, entry);
	if (xa_is_node(old))
		xa_free_tree(xas, xa_to_node(old));
	mark_free(xas, 0, 0, !entry);
}

/*
 * Puts an entry and its siblings into the cursor's node. What it replaces goes whole: siblings
 * behind the range that belong to the last entry in it follow the new one, or become NULL with it.
 */
static void store_slots(struct xa_state *xas, void *entry, unsigned int sibs)
{
	struct xa_node *node = xas->xa_node;
	unsigned int first = xas->xa_offset;
	unsigned int offset = first;
	int count = 0, values = 0;
	void *owner = NULL;

	for (; offset < XA_CHUNK_SIZE; offset++) {
		void *old = xa_entry_locked(xas->xa, node, offset);

		if (offset > first + sibs && !xa_is_sibling(old))
			break;
		if (!xa_is_sibling(old))
			owner = old;
		if (entry && offset > first)
			rcu_assign_pointer(node->slots[offset], xa_mk_sibling(first));
		else
			rcu_assign_pointer(node->slots[offset], entry);
		if (xa_is_node(old))
			xa_free_tree(xas, xa_to_node(old));
		count += !!entry - !!old;
		values += xa_is_value(entry) - (old && xa_is_value(owner));
	}
	mark_free(xas, first, offset - 1, !entry);
	if (!count && !values)
		return;
	node->count += count;
	node->nr_values += values;
	xas_update(xas, node);
	if (count < 0)
		delete_empty(xas);
}

/**
 * xas_store() - Store an entry of the cursor's order at its index; NULL erases.
 *
 * Everything in the range is replaced. An entry that is larger than the range is replaced as a
 * whole and keeps its order. Marks stay: a larger entry has those of all that it replaces; see
 * xas_init_marks(). Erasing clears them.
 *
 * Context: xa_lock. May set -ENOMEM: see xas_nomem().
 * Return: What was there: the entry at the index, or a node entry if there were several. NULL also
 * on failure.
 */
void *xas_store(struct xa_state *xas, void *entry)
{
	unsigned int sibs = xas->xa_sibs;
	void *old;

	assert(xa_spin_is_locked(&xas->xa->xa_lock));
	old = entry ? create_slot(xas, true) : xas_load(xas);
	if (xas_invalid(xas))
		return old;
	if (!xas->xa_node) {
		if (!entry)
			xas_init_marks(xas);
		if (old != entry)
			store_head(xas, old, entry);
		return old;
	}
	if (xas->xa_node->shift > xas->xa_shift)
		sibs = 0;
	if (old == entry && !sibs)
		return old;
	if (sibs)
		merge_marks(xas, sibs);
	if (!entry)
		xas_init_marks(xas);
	store_slots(xas, entry, sibs);
	return old;
}

/**
 * xa_delete_node() - Take a node out, with everything in it, by storing NULL in its parent's slot.
 * @node: a node of an array, as an update callback gets it
 * @update: called with each node that changes or goes, @node among them; or NULL
 *
 * So the nodes that an update callback has put on a list can be shrunk without a walk.
 *
 * Context: xa_lock of @node->array. Does not allocate.
 */
void xa_delete_node(struct xa_node *node, xa_update_node_t update)
{
	struct xarray *xa = node->array;
	unsigned int level = node->shift + XA_CHUNK_SHIFT;
	struct xa_state xas = {
		.xa = xa,
		.xa_index = level < 64 ? (unsigned long)node->offset << level : 0,
		.xa_shift = level,
		.xa_offset = node->offset,
		.xa_node = xa_parent_locked(xa, node),
		.xa_update = update,
	};

	xas_store(&xas, NULL);
}

/* At most how many nodes the slots for single entries from @first to @last can take. */
static unsigned int nodes_for_range(struct xa_state *xas, unsigned long first, unsigned long last)
{
	unsigned int have = head_level(xa_head_locked(xas->xa));
	unsigned int want = wanted_level(xas, first == last);
	unsigned int top = want > have ? want : have;
	unsigned int n = (top - have) / XA_CHUNK_SHIFT;

	for (unsigned int level = XA_CHUNK_SHIFT; level <= top; level += XA_CHUNK_SHIFT)
		n += level < 64 ? (last >> level) - (first >> level) + 1 : 1;
	return n;
}

/**
 * xas_create_range() - Make the slots for single entries in the range of the cursor's order.
 *
 * Stores of single entries there do not need memory afterwards; do them before the lock is dropped,
 * as a node that stays empty has no place in the tree. The cursor is then one for single entries,
 * at the start of the range.
 *
 * Context: xa_lock. May set -ENOMEM: see xas_nomem(); then nothing has changed.
 */
void xas_create_range(struct xa_state *xas)
{
	unsigned long first = xas->xa_index;
	unsigned long last = first | (((xas->xa_sibs + 1UL) << xas->xa_shift) - 1);
	unsigned long index = first;

	if (xas_error(xas) || !xas_reserve(xas, nodes_for_range(xas, first, last), GFP_NOWAIT))
		return;
	xas->xa_shift = 0;
	xas->xa_sibs = 0;
	do {
		xas_set(xas, index);
		/* Index 0 alone lives in the head. */
		create_slot(xas, first == last);
		index = (index | XA_CHUNK_MASK) + 1;
	} while (index && index <= last);
	xas_set(xas, first);
	xas_destroy(xas);
}
