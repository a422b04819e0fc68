/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The maple tree's normal API: the calls that change the tree. Each takes the tree's lock.
 */
#include "mt_write.h"

/**
 * mtree_store_range() - Store @entry from @first to @last, whatever is there.
 * @entry: NULL erases
 *
 * Context: Takes the tree's lock. May sleep if @gfp allows it.
 * Return: 0; -EINVAL: @entry is internal, or @first behind @last; -ENOMEM: nothing has changed.
 */
int mtree_store_range(struct maple_tree *mt, unsigned long first, unsigned long last, void *entry,
		      gfp_t gfp)
{
	MA_STATE(mas, mt, first, last);
	int error;

	if (xa_is_advanced(entry) || first > last)
		return -EINVAL;
	mtree_lock(mt);
	error = mas_store_gfp(&mas, entry, gfp);
	mtree_unlock(mt);
	return error;
}

/** mtree_store() - mtree_store_range() for @index alone. */
int mtree_store(struct maple_tree *mt, unsigned long index, void *entry, gfp_t gfp)
{
	return mtree_store_range(mt, index, index, entry, gfp);
}

/**
 * mtree_insert_range() - Store @entry from @first to @last if nothing is there.
 *
 * Context: As mtree_store_range().
 * Return: 0; -EEXIST; -EINVAL; -ENOMEM.
 */
int mtree_insert_range(struct maple_tree *mt, unsigned long first, unsigned long last, void *entry,
		       gfp_t gfp)
{
	MA_STATE(mas, mt, first, last);

	if (xa_is_advanced(entry) || first > last)
		return -EINVAL;
	mtree_lock(mt);
	do {
		mas_insert(&mas, entry);
	} while (mas_nomem(&mas, gfp));
	mtree_unlock(mt);
	mas_destroy(&mas);
	return mas_is_err(&mas) ? xa_err(mas.node) : 0;
}

/** mtree_insert() - mtree_insert_range() for @index alone. */
int mtree_insert(struct maple_tree *mt, unsigned long index, void *entry, gfp_t gfp)
{
	return mtree_insert_range(mt, index, index, entry, gfp);
}

/**
 * mtree_erase() - Erase the range in which @index lies.
 *
 * Context: Takes the tree's lock. May sleep.
 * Return: The entry that was there, or NULL.
 */
void *mtree_erase(struct maple_tree *mt, unsigned long index)
{
	MA_STATE(mas, mt, index, index);
	void *entry;

	mtree_lock(mt);
	entry = mas_erase(&mas);
	mtree_unlock(mt);
	return xa_is_zero(entry) ? NULL : entry;
}

/* Finds a free range of @size, lowest or highest, and stores there. */
static int alloc_range(struct maple_tree *mt, unsigned long *startp, void *entry,
		       unsigned long size, unsigned long min, unsigned long max, gfp_t gfp,
		       bool highest)
{
	MA_STATE(mas, mt, 0, 0);
	int error;

	if (!mt_is_alloc(mt) || mt_is_reserved(entry) || !entry || !size || min > max)
		return -EINVAL;
	mtree_lock(mt);
	do {
		mas_reset(&mas);
		error = highest ? mas_empty_area_rev(&mas, min, max, size) :
				  mas_empty_area(&mas, min, max, size);
		if (error)
			break;
		/* Whenever the lock was dropped the range may be taken, and is looked for again. */
		mas_insert(&mas, entry);
	} while (mas_nomem(&mas, gfp));
	mtree_unlock(mt);
	mas_destroy(&mas);
	if (!error && mas_is_err(&mas))
		error = xa_err(mas.node);
	if (!error)
		*startp = mas.index;
	return error;
}

/**
 * mtree_alloc_range() - Store @entry in the lowest free range of @size.
 * @startp: gets the first index
 * @size: how many indices
 * @min: lowest index to use
 * @max: highest index to use
 *
 * Context: Takes the tree's lock. May sleep if @gfp allows it. The tree has MT_FLAGS_ALLOC_RANGE.
 * Return: 0; -EBUSY if nothing is free; -EINVAL; -ENOMEM.
 */
int mtree_alloc_range(struct maple_tree *mt, unsigned long *startp, void *entry, unsigned long size,
		      unsigned long min, unsigned long max, gfp_t gfp)
{
	return alloc_range(mt, startp, entry, size, min, max, gfp, false);
}

/** mtree_alloc_rrange() - As mtree_alloc_range(), in the highest free range. */
int mtree_alloc_rrange(struct maple_tree *mt, unsigned long *startp, void *entry,
		       unsigned long size, unsigned long min, unsigned long max, gfp_t gfp)
{
	return alloc_range(mt, startp, entry, size, min, max, gfp, true);
}

/**
 * mtree_alloc_cyclic() - mas_alloc_cyclic() that takes the lock.
 *
 * Context: Takes the tree's lock. May sleep if @gfp allows it. @next belongs to the lock.
 * Return: As mas_alloc_cyclic().
 */
int mtree_alloc_cyclic(struct maple_tree *mt, unsigned long *startp, void *entry,
		       unsigned long range_lo, unsigned long range_hi, unsigned long *next,
		       gfp_t gfp)
{
	MA_STATE(mas, mt, 0, 0);
	int result;

	if (mt_is_reserved(entry))
		return -EINVAL;
	mtree_lock(mt);
	result = mas_alloc_cyclic(&mas, startp, entry, range_lo, range_hi, next, gfp);
	mtree_unlock(mt);
	return result;
}

/**
 * __mt_destroy() - Empty the tree.
 *
 * Context: The tree's lock, or no other user. With MT_FLAGS_USE_RCU readers may be inside.
 */
void __mt_destroy(struct maple_tree *mt)
{
	void *root = mt_root_locked(mt);
	unsigned int height = mt_height(mt);
	MA_STATE(mas, mt, 0, 0);
	void *chain = NULL;

	mt_set_root(mt, NULL, 0);
	if (height)
		mt_bury_tree(&chain, mt_to_node(root), mt_inner_type(mt), height - 1);
	mt_free_buried(&mas, chain);
	mas_destroy(&mas);
}

/**
 * mtree_destroy() - Empty the tree. What the entries point to is the user's.
 *
 * Context: Takes the tree's lock.
 */
void mtree_destroy(struct maple_tree *mt)
{
	mtree_lock(mt);
	__mt_destroy(mt);
	mtree_unlock(mt);
}

static void set_flag(struct maple_tree *mt, unsigned int clear, unsigned int set)
{
	bool lock = !mt_external_lock(mt);

	if (lock)
		mtree_lock(mt);
	mt_change_flags(mt, clear, set);
	if (lock)
		mtree_unlock(mt);
}

void mt_set_in_rcu(struct maple_tree *mt)
{
	set_flag(mt, 0, MT_FLAGS_USE_RCU);
}

void mt_clear_in_rcu(struct maple_tree *mt)
{
	set_flag(mt, MT_FLAGS_USE_RCU, 0);
}
