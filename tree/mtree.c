/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The maple tree's normal API, as far as it reads: a cursor, RCU, and one step each. Only
 * mtree_load() does without the cursor.
 *
 * What is reserved with XA_ZERO_ENTRY reads as nothing here. mt_in_rcu() does not matter: under the
 * user's own locking RCU costs a few instructions.
 */
#include "mt_internal.h"

/*
 * The way down of mt_walk.c for those who want no range, just what is there.
 * @entry: the root; receives what is at @index
 * Return: false: a node has been replaced, or has grown.
 */
static bool load(void **entry, unsigned long index)
{
	enum maple_type type;

	do {
		const struct maple_node *node = mt_to_node(*entry);
		unsigned long word, end;

		type = mt_type(*entry);
		mt_prefetch(node);
		end = mt_end(node);
		*entry = mt_slot(node, type, mt_find_slot(node, end, index));
		word = mt_word(node);
		if (mt_word_dead(node, word) || mt_word_end(word) != end)
			return false;
	} while (type != maple_leaf_64);
	return true;
}

/**
 * mtree_load() - What is at @index?
 *
 * Context: Takes the RCU read lock.
 * Return: The entry or NULL.
 */
void *mtree_load(struct maple_tree *mt, unsigned long index)
{
	void *entry;

	rcu_read_lock();
	do {
		entry = mt_root(mt);
		if (!mt_is_node(entry)) {
			entry = index ? NULL : entry;
			break;
		}
	} while (!load(&entry, index));
	rcu_read_unlock();
	return xa_is_zero(entry) ? NULL : entry;
}

/**
 * mt_find() - The first entry at or behind *@index.
 * @index: where to begin; when an entry is found, receives one more than its last index, which is 0
 *	behind ULONG_MAX
 * @max: the entry begins at this index at the latest
 *
 * Context: Takes the RCU read lock.
 * Return: The entry or NULL.
 */
void *mt_find(struct maple_tree *mt, unsigned long *index, unsigned long max)
{
	MA_STATE(mas, mt, *index, *index);
	void *entry;

	rcu_read_lock();
	do {
		entry = mas_find(&mas, max);
	} while (xa_is_zero(entry));
	rcu_read_unlock();
	if (entry)
		*index = mas.last + 1;
	return entry;
}

/**
 * mt_find_after() - As mt_find(), to go on after it.
 *
 * Finds nothing if *@index is 0: the entry found last reaches to ULONG_MAX.
 *
 * Context: Takes the RCU read lock.
 * Return: The entry or NULL.
 */
void *mt_find_after(struct maple_tree *mt, unsigned long *index, unsigned long max)
{
	return *index ? mt_find(mt, index, max) : NULL;
}

/**
 * mt_next() - The first entry behind the range in which @index lies.
 * @max: the entry begins at this index at the latest
 *
 * Context: Takes the RCU read lock.
 * Return: The entry or NULL.
 */
void *mt_next(struct maple_tree *mt, unsigned long index, unsigned long max)
{
	MA_STATE(mas, mt, index, index);
	void *entry;

	rcu_read_lock();
	do {
		entry = mas_next(&mas, max);
	} while (xa_is_zero(entry));
	rcu_read_unlock();
	return entry;
}

/**
 * mt_prev() - The last entry before the range in which @index lies.
 * @min: the entry ends at this index at the earliest
 *
 * Context: Takes the RCU read lock.
 * Return: The entry or NULL.
 */
void *mt_prev(struct maple_tree *mt, unsigned long index, unsigned long min)
{
	MA_STATE(mas, mt, index, index);
	void *entry;

	rcu_read_lock();
	do {
		entry = mas_prev(&mas, min);
	} while (xa_is_zero(entry));
	rcu_read_unlock();
	return entry;
}
