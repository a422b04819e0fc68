/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The maple tree's cursor goes on, goes back, and finds.
 *
 * A cursor's place is the range from its index to its last; its node is only a short cut. Going on
 * means: to the range in which last + 1 lies. While writers are busy that range may begin before,
 * over what the walk has behind it already. The walk is in the middle of it then, and it is passed
 * over: ranges come in order and never overlap, whatever is stored meanwhile, and what stays in the
 * tree during the whole walk is not missed. Going back is the mirror image.
 *
 * How a call begins, by the cursor's status. "On" is the first range that begins behind last, "at
 * index" is the range there, if it holds an entry, else on.
 *
 *	status		next		find		prev		find_rev
 *	start		walk, on	at index	walk, back	at index
 *	active		on		on		back		back
 *	pause		on		at last + 1	back		at index - 1
 *	overflow	on		on		at index	at index
 *	underflow	at index	at index	back		back
 *	root		to none		to none		underflow	to none
 *	none		walk, on	at last		walk, back	at index
 *	error		NULL		NULL		NULL		NULL
 *
 * So a cursor that met its limit stands beyond the range it is at: turned around, it gives that
 * range again. Where no range is left within the limit, next ends in overflow and prev and find_rev
 * in underflow; find ends active, or in none if the tree has no node. Then index and last are the
 * last range that was looked at.
 */
#include "mt_internal.h"

/*
 * To the next range that begins behind last, at most at @max, with an entry unless @any range is
 * wanted.
 */
static void *go_on(struct ma_state *mas, unsigned long max, bool any)
{
	unsigned long behind = mas->last;
	void *entry;

	while (mas->last < max) {
		entry = mas_range_at(mas, mas->last + 1);
		if (mas->index > behind && (entry || any))
			return entry;
	}
	if (mas->status != ma_none)
		mas->status = ma_overflow;
	return NULL;
}

/* To the range before that ends before index, at least at @min. */
static void *go_back(struct ma_state *mas, unsigned long min, bool any)
{
	unsigned long before = mas->index;
	void *entry;

	while (mas->index > min) {
		entry = mas_range_at(mas, mas->index - 1);
		if (mas->last < before && (entry || any))
			return entry;
	}
	if (mas->status != ma_none || mas->index)
		mas->status = ma_underflow;
	return NULL;
}

/* Where a tree without nodes ends. */
static void *to_none(struct ma_state *mas, unsigned long index, unsigned long last)
{
	mas->status = ma_none;
	mas->index = index;
	mas->last = last;
	return NULL;
}

static void *next(struct ma_state *mas, unsigned long max, bool any)
{
	enum maple_status was = mas->status;
	void *entry;

	if (was == ma_error)
		return NULL;
	if (mas->last >= max) {
		mas->status = ma_overflow;
		return NULL;
	}
	if (was == ma_start || was == ma_none || was == ma_underflow) {
		entry = mas_range_at(mas, mas->index);
		if (was == ma_underflow && entry)
			return entry;
		/* From nowhere to the sole entry, which is not behind index 0. */
		if (was == ma_none && mas->status == ma_root)
			return NULL;
	}
	return go_on(mas, max, any);
}

static void *prev(struct ma_state *mas, unsigned long min, bool any)
{
	enum maple_status was = mas->status;
	void *entry;

	if (was == ma_error)
		return NULL;
	if (mas->index <= min) {
		mas->status = ma_underflow;
		return NULL;
	}
	if (was == ma_start || was == ma_none || was == ma_overflow) {
		entry = mas_range_at(mas, mas->index);
		if (was == ma_overflow && entry)
			return entry;
	}
	return go_back(mas, min, any);
}

static void *find(struct ma_state *mas, unsigned long max, bool any)
{
	unsigned long from = mas->index;
	void *entry;

	switch (mas->status) {
	case ma_error:
		return NULL;
	case ma_root:
		return to_none(mas, 1, ULONG_MAX);
	case ma_active:
	case ma_overflow:
		return go_on(mas, max, any);
	case ma_none:
	case ma_pause:
		if (mas->last >= max)
			return NULL;
		from = mas->last + (mas->status == ma_pause);
		break;
	case ma_underflow:
	case ma_start:
		if (from > max)
			return NULL;
		break;
	}
	entry = mas_range_at(mas, from);
	return entry ? entry : go_on(mas, max, any);
}

static void *find_rev(struct ma_state *mas, unsigned long min, bool any)
{
	unsigned long from = mas->index;
	void *entry;

	switch (mas->status) {
	case ma_error:
		return NULL;
	case ma_root:
		return to_none(mas, 0, 0);
	case ma_active:
	case ma_underflow:
		return go_back(mas, min, any);
	case ma_none:
		if (from <= min)
			return NULL;
		break;
	case ma_pause:
		if (from <= min) {
			mas->status = ma_underflow;
			return NULL;
		}
		from--;
		break;
	case ma_overflow:
	case ma_start:
		if (from < min)
			return NULL;
		break;
	}
	entry = mas_range_at(mas, from);
	return entry ? entry : go_back(mas, min, any);
}

/**
 * mas_next() - Go on to the next entry.
 * @max: the entry begins at this index at the latest
 *
 * From ma_start that is the first entry behind the range in which the cursor's index lies.
 *
 * Context: RCU or the tree's lock.
 * Return: The entry, with index and last its range; XA_ZERO_ENTRY is one. NULL if there is none:
 * then the status is ma_overflow, or ma_none if the tree has no node.
 */
void *mas_next(struct ma_state *mas, unsigned long max)
{
	return next(mas, max, false);
}

/**
 * mas_next_range() - Go on to the next range, whether it holds an entry or NULL.
 * @max: the range begins at this index at the latest
 *
 * Context: RCU or the tree's lock.
 * Return: What the range holds. NULL also if there is none: then the status is as for mas_next().
 */
void *mas_next_range(struct ma_state *mas, unsigned long max)
{
	return next(mas, max, true);
}

/**
 * mas_prev() - Go back to the entry before.
 * @min: the entry ends at this index at the earliest
 *
 * From ma_start that is the last entry before the range in which the cursor's index lies.
 *
 * Context: RCU or the tree's lock.
 * Return: The entry, with index and last its range; XA_ZERO_ENTRY is one. NULL if there is none:
 * then the status is ma_underflow, or ma_none if the tree is empty.
 */
void *mas_prev(struct ma_state *mas, unsigned long min)
{
	return prev(mas, min, false);
}

/**
 * mas_prev_range() - Go back to the range before, whether it holds an entry or NULL.
 * @min: the range ends at this index at the earliest
 *
 * Context: RCU or the tree's lock.
 * Return: What the range holds. NULL also if there is none: then the status is as for mas_prev().
 */
void *mas_prev_range(struct ma_state *mas, unsigned long min)
{
	return prev(mas, min, true);
}

/**
 * mas_find() - The first entry at or behind the cursor's index; then the next, and so on.
 * @max: the entry begins at this index at the latest
 *
 * The first call, in ma_start, also finds an entry that begins before index and reaches it.
 *
 * Context: RCU or the tree's lock.
 * Return: The entry, with index and last its range; XA_ZERO_ENTRY is one. NULL if there is none;
 * with a larger @max the search goes on from there.
 */
void *mas_find(struct ma_state *mas, unsigned long max)
{
	void *entry = find(mas, max, false);

	if (mas->status == ma_overflow && mas->node)
		mas->status = ma_active;
	return entry;
}

/**
 * mas_find_range() - As mas_find() the first time; then the next range, entry or NULL.
 * @max: the range begins at this index at the latest
 *
 * Context: RCU or the tree's lock.
 * Return: What the range holds. NULL also if there is none: then the status is ma_overflow, or
 * ma_none if the tree has no node.
 */
void *mas_find_range(struct ma_state *mas, unsigned long max)
{
	return find(mas, max, true);
}

/**
 * mas_find_rev() - The first entry at or before the cursor's index; then the one before, and so on.
 * @min: the entry ends at this index at the earliest
 *
 * The first call, in ma_start, also finds an entry that reaches beyond index.
 *
 * Context: RCU or the tree's lock.
 * Return: The entry, with index and last its range; XA_ZERO_ENTRY is one. NULL if there is none:
 * then the status is ma_underflow, or ma_none if the tree has no node.
 */
void *mas_find_rev(struct ma_state *mas, unsigned long min)
{
	return find_rev(mas, min, false);
}

/**
 * mas_find_range_rev() - As mas_find_rev() the first time; then the range before, entry or NULL.
 * @min: the range ends at this index at the earliest
 *
 * Context: RCU or the tree's lock.
 * Return: What the range holds. NULL also if there is none: then the status is as for
 * mas_find_rev().
 */
void *mas_find_range_rev(struct ma_state *mas, unsigned long min)
{
	return find_rev(mas, min, true);
}

/**
 * mas_pause() - Let go of the tree in the middle of a walk.
 *
 * The lock or RCU may be dropped then. The walk goes on behind the present range, or before it.
 *
 * Context: RCU or the tree's lock, before it is dropped. A cursor that has failed stays so.
 */
void mas_pause(struct ma_state *mas)
{
	if (mas_is_err(mas))
		return;
	mas->status = ma_pause;
	mas->node = NULL;
}
