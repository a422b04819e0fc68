/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The maple tree's cursor: the calls that change the tree. All of them under the tree's lock.
 *
 * Each prepares the store (mt_write.c), which says how many nodes it can need, gets those that the
 * cursor does not have ahead, and only then changes the tree, which cannot fail. What was got and
 * not used goes back to the pool.
 */
#include "mt_write.h"

/* Gives back what is left over, unless more stores are expected. */
static void release_nodes(struct ma_state *mas)
{
	if (!(mas->mas_flags & MA_STATE_BULK))
		mas_destroy(mas);
}

static bool bad_range(struct ma_state *mas)
{
	if (mas->index <= mas->last)
		return false;
	mas_set_err(mas, -EINVAL);
	return true;
}

/**
 * mas_store() - Store @entry from index to last, whatever is there.
 * @entry: NULL erases
 *
 * Context: The tree's lock. Takes nodes with GFP_NOWAIT only; see mas_nomem().
 * Return: The first entry that was between index and last, or NULL. On failure NULL, nothing has
 * changed, and the cursor has the error: -ENOMEM, -EINVAL.
 */
void *mas_store(struct ma_state *mas, void *entry)
{
	struct mt_write w;

	if (mas_is_err(mas) || bad_range(mas))
		return NULL;
	mt_write_prepare(&w, mas, entry);
	if (!mas_reserve(mas, w.plan.nodes, GFP_NOWAIT))
		return NULL;
	mt_write_commit(&w);
	release_nodes(mas);
	return w.content;
}

/**
 * mas_store_gfp() - mas_store() that gets the memory it needs.
 *
 * Context: The tree's lock, which is dropped for a while if @gfp may sleep and memory is short; see
 * mas_nomem().
 * Return: 0, or -ENOMEM, -EINVAL, which the cursor has as well.
 */
int mas_store_gfp(struct ma_state *mas, void *entry, gfp_t gfp)
{
	do {
		mas_store(mas, entry);
	} while (mas_nomem(mas, gfp));
	return mas_is_err(mas) ? xa_err(mas->node) : 0;
}

/**
 * mas_preallocate() - Get the nodes that storing @entry from index to last can need.
 *
 * When called again for another range, only what is missing is added.
 *
 * Context: The tree's lock, or whatever else keeps the tree from changing until
 * mas_store_prealloc(). Does not drop it, even when @gfp may sleep.
 * Return: 0, or -ENOMEM, -EINVAL; then the cursor is as after mas_reset() and mas_destroy().
 */
int mas_preallocate(struct ma_state *mas, void *entry, gfp_t gfp)
{
	struct mt_write w;
	int error;

	if (!mas_is_err(mas) && !bad_range(mas)) {
		mt_write_prepare(&w, mas, entry);
		mas->store_type = w.plan.type;
		if (mas_reserve(mas, w.plan.nodes, gfp))
			return 0;
	}
	error = xa_err(mas->node);
	mas_destroy(mas);
	mas_reset(mas);
	return error;
}

/**
 * mas_store_prealloc() - Store what mas_preallocate() got the nodes for.
 *
 * Cannot fail. Nodes that were not needed are freed.
 *
 * Context: The tree's lock. The tree, index, last and whether @entry is NULL are as they were.
 */
void mas_store_prealloc(struct ma_state *mas, void *entry)
{
	struct mt_write w;

	mt_write_prepare(&w, mas, entry);
	mt_write_commit(&w);
	mas_destroy(mas);
}

/**
 * mas_erase() - Erase the range in which index lies.
 *
 * The cursor's index and last become those of the range.
 *
 * Context: The tree's lock, which may be dropped for a while; see mas_nomem().
 * Return: The entry that was there, or NULL: nothing was there, or there is no memory (and the
 * cursor has the error).
 */
void *mas_erase(struct ma_state *mas)
{
	const unsigned long index = mas->index;
	struct mt_write w;

	do {
		if (mas_is_err(mas))
			return NULL;
		mas->index = index;
		if (!mt_write_prepare_erase(&w, mas)) {
			/* Nothing is there, or nothing any more since the lock was dropped. */
			release_nodes(mas);
			return NULL;
		}
	} while (!mas_reserve(mas, w.plan.nodes, GFP_NOWAIT) && mas_nomem(mas, GFP_KERNEL));
	if (mas_is_err(mas))
		return NULL;
	mt_write_commit(&w);
	release_nodes(mas);
	return w.content;
}

/*
 * Stores only if there is nothing from index to last; otherwise the cursor gets -EEXIST. Fails as
 * mas_store().
 */
void *mas_insert(struct ma_state *mas, void *entry)
{
	struct mt_write w;

	if (mas_is_err(mas) || bad_range(mas))
		return NULL;
	mt_write_prepare(&w, mas, entry);
	if (w.content)
		mas_set_err(mas, -EEXIST);
	else if (mas_reserve(mas, w.plan.nodes, GFP_NOWAIT))
		mt_write_commit(&w);
	return w.content;
}

/* Looks for one free index at @next or behind, then from @lo on. Return: 1: the latter. */
static int find_cyclic(struct ma_state *mas, unsigned long lo, unsigned long hi, unsigned long next)
{
	int error = -EBUSY;

	mas_reset(mas);
	if (next <= lo)
		return mas_empty_area(mas, lo, hi, 1);
	if (next <= hi)
		error = mas_empty_area(mas, next, hi, 1);
	if (error != -EBUSY)
		return error;
	mas_reset(mas);
	error = mas_empty_area(mas, lo, next - 1 < hi ? next - 1 : hi, 1);
	return error ? error : 1;
}

/**
 * mas_alloc_cyclic() - Store at a free index, going round.
 * @startp: gets the index
 * @entry: what to store
 * @range_lo: lowest index to use
 * @range_hi: highest
 * @next: where to look first; becomes the one behind
 *
 * Context: The tree's lock, which may be dropped for a while if @gfp may sleep; the search is then
 * done again. The tree has MT_FLAGS_ALLOC_RANGE.
 * Return: 0; 1 if the search started again at @range_lo; -EBUSY if nothing is free; -ENOMEM;
 * -EINVAL.
 */
int mas_alloc_cyclic(struct ma_state *mas, unsigned long *startp, void *entry,
		     unsigned long range_lo, unsigned long range_hi, unsigned long *next, gfp_t gfp)
{
	struct maple_tree *mt = mas->tree;
	int result;

	if (!mt_is_alloc(mt) || range_lo > range_hi || !entry)
		return -EINVAL;
	do {
		result = find_cyclic(mas, range_lo, range_hi, *next);
		if (result < 0)
			break;
		mas_insert(mas, entry);
	} while (mas_nomem(mas, gfp));
	/* Also when nothing is free any more, after the lock was dropped to get nodes. */
	mas_destroy(mas);
	if (result < 0)
		return result;
	if (mas_is_err(mas))
		return xa_err(mas->node);
	if (mt_flags(mt) & MT_FLAGS_ALLOC_WRAPPED) {
		mt_change_flags(mt, MT_FLAGS_ALLOC_WRAPPED, 0);
		result = 1;
	}
	*startp = mas->index;
	*next = mas->index + 1;
	/* The next search starts at 0 as if it were told to. It shall say that it went round. */
	if (!*next)
		mt_change_flags(mt, 0, MT_FLAGS_ALLOC_WRAPPED);
	return result;
}
