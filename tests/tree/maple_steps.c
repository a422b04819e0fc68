/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The operations, each with numbers that pick() gives, done to the tree and to the list.
 *
 * Indices lie in three windows and, more often, at the boundaries that the list has now, so that
 * stores meet ranges exactly, in part, and across many nodes. The number of ranges goes up and down
 * between limits that are chosen again at each turn: trees get deep, and empty.
 *
 * While run->failing is set, what needs memory may fail, and has then changed nothing.
 */
#include "maple_steps.h"
#include "mt_internal.h"
#include "node_alloc.h"
#include "seed.h"

#include <stdio.h>
#include <stdlib.h>

#define must(condition) ((condition) ? (void)0 : failed(run, #condition, __LINE__))

#define WINDOW (1UL << 14)
#define ROOM (LIST_MAX - 256) /* no step adds more ranges than are left then */

static const unsigned long windows[] = { 0, 1UL << 33, ULONG_MAX - WINDOW + 1 };

#define N_WINDOWS (sizeof(windows) / sizeof(windows[0]))

static _Noreturn void failed(const struct maple_run *run, const char *condition, int line)
{
	fprintf(stderr, "maple_steps.c:%d: step %lu", line, run->step);
	if (!run->bytes)
		fprintf(stderr, " of FOLIOFS_SEED=%lu", (unsigned long)run->seed);
	fprintf(stderr, ": not %s\n", condition);
	abort();
}

/* A number below @n. The bytes of a run that has come to their end are zero. */
static unsigned long pick(struct maple_run *run, unsigned long n)
{
	unsigned long number = 0;

	if (!run->bytes)
		return test_random(&run->random) % n;
	for (unsigned long most = 1; most < n && run->bytes < run->end; most <<= 8)
		number = number << 8 | *run->bytes++;
	return number % n;
}

/* One of four indices at the ends of a range, or an index of a window. */
static unsigned long pick_index(struct maple_run *run)
{
	unsigned long at;

	if (run->list.n && pick(run, 3)) {
		const struct range *range = &run->list.ranges[pick(run, run->list.n)];

		at = pick(run, 4);
		return (at & 1 ? range->last : range->first) + (at == 3) - (at == 2);
	}
	at = pick(run, pick(run, 3) ? 64 : WINDOW);
	if (!pick(run, 4))
		at = WINDOW - 1 - at;
	return windows[pick(run, N_WINDOWS)] + at;
}

static unsigned long pick_length(struct maple_run *run)
{
	static const unsigned long most[] = { 1, 4, 4, 64 };

	return 1 + pick(run, most[pick(run, 4)]);
}

static struct range range_from(unsigned long first, unsigned long length)
{
	struct range range = { first, first + (length - 1), NULL };

	if (range.last < first)
		range.last = ULONG_MAX;
	return range;
}

/* From the beginning, or the middle, of a range to the end, or the middle, of a later one. */
static struct range pick_span(struct maple_run *run)
{
	struct list *list = &run->list;
	unsigned int from = pick(run, list->n);
	unsigned int to = from + pick(run, pick(run, 2) ? 4 : 48);
	struct range range = list->ranges[from];

	if (to >= list->n)
		to = list->n - 1;
	range.last = list->ranges[to].last;
	if (!pick(run, 2))
		range.first += (list->ranges[from].last - range.first) / 2;
	if (!pick(run, 2))
		range.last -= (range.last - list->ranges[to].first) / 2;
	return range;
}

static struct range pick_range(struct maple_run *run)
{
	unsigned long index = pick_index(run), other;
	struct range around;

	switch (pick(run, 8)) {
	case 0:
		return list_around(&run->list, index);
	case 1:
		around = list_around(&run->list, index);
		around.first = index;
		return around;
	case 2:
		around = list_around(&run->list, index);
		around.last = index;
		return around;
	case 3:
		if (run->list.n)
			return pick_span(run);
		break;
	case 4:
		if (pick(run, 8))
			break;
		other = pick_index(run);
		return index < other ? (struct range){ index, other, NULL }
				     : (struct range){ other, index, NULL };
	}
	return range_from(index, pick_length(run));
}

static void *pick_entry(struct maple_run *run)
{
	unsigned long n = pick(run, 1UL << 16);

	return n & 1 ? xa_mk_value(n >> 1) : (void *)((n >> 1 << 2) + 4);
}

static void *pick_entry_or_null(struct maple_run *run)
{
	return pick(run, 4) ? pick_entry(run) : NULL;
}

static bool no_memory(const struct maple_run *run, int err)
{
	if (err != -ENOMEM)
		return false;
	must(run->failing);
	return true;
}

/* The next range with an entry, from its number on; NULL: none that begins up to @max. */
static const struct range *entry_from(const struct maple_run *run, unsigned int at,
				      unsigned long max)
{
	const struct range *range = &run->list.ranges[at];

	return at < run->list.n && range->first <= max ? range : NULL;
}

static const struct range *entry_at_or_after(const struct maple_run *run, unsigned long index,
					     unsigned long max)
{
	return entry_from(run, list_at(&run->list, index), max);
}

static const struct range *entry_after(const struct maple_run *run, unsigned long last,
				       unsigned long max)
{
	return last == ULONG_MAX ? NULL : entry_at_or_after(run, last + 1, max);
}

/* The last range that begins at or before @index; NULL: none that ends at or after @min. */
static const struct range *entry_at_or_before(const struct maple_run *run, unsigned long index,
					      unsigned long min)
{
	unsigned int at = list_at(&run->list, index);
	const struct range *range = &run->list.ranges[at];

	if (at == run->list.n || range->first > index) {
		if (!at)
			return NULL;
		range--;
	}
	return range->last >= min ? range : NULL;
}

static const struct range *entry_before(const struct maple_run *run, unsigned long first,
					unsigned long min)
{
	return first ? entry_at_or_before(run, first - 1, min) : NULL;
}

static bool at_range(const struct ma_state *mas, struct range range)
{
	return mas->index == range.first && mas->last == range.last;
}

/*
 * Looking
 */

static void op_load(struct maple_run *run)
{
	unsigned long index = pick_index(run);
	struct range around = list_around(&run->list, index);
	MA_STATE(mas, &run->mt, index, index);

	must(mtree_load(&run->mt, index) == around.entry);
	rcu_read_lock();
	must(mas_walk(&mas) == around.entry);
	must(at_range(&mas, around));
	rcu_read_unlock();
	must(mtree_empty(&run->mt) == !run->list.n);
}

static void op_find(struct maple_run *run)
{
	unsigned long index = pick_index(run), limit = pick_index(run), found = index;
	const struct range *range = entry_at_or_after(run, index, limit);

	if (index > limit)
		range = NULL;
	must(mt_find(&run->mt, &found, limit) == (range ? range->entry : NULL));
	if (range)
		must(found == range->last + 1);
	found = index;
	must(mt_find_after(&run->mt, &found, limit) == (range && index ? range->entry : NULL));
}

static void op_next_and_prev(struct maple_run *run)
{
	unsigned long index = pick_index(run), limit = pick_index(run);
	struct range around = list_around(&run->list, index);
	const struct range *range = NULL;

	if (limit > around.last)
		range = entry_after(run, around.last, limit);
	must(mt_next(&run->mt, index, limit) == (range ? range->entry : NULL));
	range = limit < around.first ? entry_before(run, around.first, limit) : NULL;
	must(mt_prev(&run->mt, index, limit) == (range ? range->entry : NULL));
}

static void op_for_each(struct maple_run *run)
{
	unsigned long from = pick_index(run), max = pick_index(run), index = from;
	unsigned int at = list_at(&run->list, from);
	void *entry;

	mt_for_each(&run->mt, entry, index, max) {
		const struct range *range = entry_from(run, at++, max);

		must(range && range->entry == entry);
		must(index == range->last + 1);
	}
	must(from > max || !entry_from(run, at, max));
}

/* Goes over everything upwards with a cursor, letting go of the tree now and then. */
static void op_iterate(struct maple_run *run)
{
	unsigned long from = pick_index(run), max = pick_index(run), pauses = pick(run, 1UL << 16);
	unsigned int at = list_at(&run->list, from);
	MA_STATE(mas, &run->mt, from, from);
	void *entry;

	rcu_read_lock();
	mas_for_each(&mas, entry, max) {
		const struct range *range = entry_from(run, at++, max);

		must(range && range->entry == entry && at_range(&mas, *range));
		if (!(pauses & 3))
			mas_pause(&mas);
		pauses = pauses >> 2 | (pauses & 3) << 14;
	}
	rcu_read_unlock();
	must(from > max || !entry_from(run, at, max));
}

static void op_iterate_down(struct maple_run *run)
{
	unsigned long from = pick_index(run), min = pick_index(run), pauses = pick(run, 1UL << 16);
	const struct range *range = from < min ? NULL : entry_at_or_before(run, from, min);
	MA_STATE(mas, &run->mt, from, from);
	void *entry;

	rcu_read_lock();
	while ((entry = mas_find_rev(&mas, min))) {
		must(range && range->entry == entry && at_range(&mas, *range));
		range = entry_before(run, range->first, min);
		if (!(pauses & 3))
			mas_pause(&mas);
		pauses = pauses >> 2 | (pauses & 3) << 14;
	}
	rcu_read_unlock();
	must(!range);
}

/* One move of a cursor that is at @now. Return: whether it is at a range still. */
static bool move(struct maple_run *run, struct ma_state *mas, struct range *now, bool up, bool all)
{
	unsigned long limit = pick(run, 4) ? (up ? ULONG_MAX : 0) : pick_index(run);
	bool within = up ? now->last < limit : now->first > limit;
	const struct range *range = NULL;
	struct range around;
	void *entry;

	if (up)
		entry = all ? mas_next_range(mas, limit) : mas_next(mas, limit);
	else
		entry = all ? mas_prev_range(mas, limit) : mas_prev(mas, limit);
	if (within && all) {
		around = list_around(&run->list, up ? now->last + 1 : now->first - 1);
		range = &around;
	} else if (within) {
		range = up ? entry_after(run, now->last, limit)
			   : entry_before(run, now->first, limit);
	}
	if (!range) {
		must(!entry);
		return false;
	}
	must(entry == range->entry && at_range(mas, *range));
	*now = *range;
	return true;
}

/* Moves up and down from one place. */
static void op_wander(struct maple_run *run)
{
	unsigned long index = pick_index(run), ways = pick(run, 1UL << 16);
	struct range now = list_around(&run->list, index);
	MA_STATE(mas, &run->mt, index, index);

	rcu_read_lock();
	must(mas_walk(&mas) == now.entry);
	for (unsigned int steps = 0; steps < 48; steps++) {
		if (!move(run, &mas, &now, ways & 1, ways & 2))
			break;
		if (!(ways & 28))
			mas_pause(&mas);
		ways = ways >> 1 | (ways & 1) << 15;
	}
	rcu_read_unlock();
}

/* Each range in turn, after the first entry. */
static void op_find_ranges(struct maple_run *run)
{
	unsigned long from = pick_index(run), limit = pick_index(run);
	bool up = from < limit, moves;
	struct range now = list_around(&run->list, from);
	MA_STATE(mas, &run->mt, from, from);
	void *entry;

	moves = !now.entry;
	rcu_read_lock();
	for (unsigned int steps = 0; steps < 48; steps++) {
		entry = up ? mas_find_range(&mas, limit) : mas_find_range_rev(&mas, limit);
		if (moves && (up ? now.last >= limit : now.first <= limit)) {
			must(!entry);
			break;
		}
		if (moves)
			now = list_around(&run->list, up ? now.last + 1 : now.first - 1);
		must(entry == now.entry && at_range(&mas, now));
		moves = true;
	}
	rcu_read_unlock();
}

static void op_gap(struct maple_run *run)
{
	unsigned long min = pick_index(run), max = pick_index(run);
	unsigned long size = pick(run, 2) ? pick_length(run) : 1 + pick(run, WINDOW);
	bool up = pick(run, 2), found;
	unsigned long start;
	MA_STATE(mas, &run->mt, 0, 0);
	int err;

	if (!(run->flags & MT_FLAGS_ALLOC_RANGE))
		return;
	mas_lock(&mas);
	err = up ? mas_empty_area(&mas, min, max, size) : mas_empty_area_rev(&mas, min, max, size);
	mas_unlock(&mas);
	if (min > max || max - min < size - 1) {
		must(err == -EINVAL);
		return;
	}
	found = list_gap(&run->list, min, max, size, up, &start);
	must(err == (found ? 0 : -EBUSY));
	if (found)
		must(mas.index == start && mas.last == start + size - 1);
}

/*
 * Storing
 */

static void op_store_range(struct maple_run *run)
{
	struct range range = pick_range(run);
	void *entry = pick_entry_or_null(run);
	int err = mtree_store_range(&run->mt, range.first, range.last, entry, GFP_KERNEL);

	if (no_memory(run, err))
		return;
	must(!err);
	list_store(&run->list, range.first, range.last, entry);
}

static void op_store(struct maple_run *run)
{
	unsigned long index = pick_index(run);
	void *entry = pick_entry_or_null(run);
	int err = mtree_store(&run->mt, index, entry, GFP_KERNEL);

	if (no_memory(run, err))
		return;
	must(!err);
	list_store(&run->list, index, index, entry);
}

static void op_insert(struct maple_run *run)
{
	struct range range = pick_range(run);
	void *entry = pick_entry(run);
	bool one = range.first == range.last && pick(run, 2);
	int err = one ? mtree_insert(&run->mt, range.first, entry, GFP_KERNEL)
		      : mtree_insert_range(&run->mt, range.first, range.last, entry, GFP_KERNEL);

	if (no_memory(run, err))
		return;
	if (!list_is_free(&run->list, range.first, range.last)) {
		must(err == -EEXIST);
		return;
	}
	must(!err);
	list_store(&run->list, range.first, range.last, entry);
}

static void op_alloc(struct maple_run *run)
{
	unsigned long min = pick_index(run), max = pick_index(run), size = pick_length(run);
	unsigned long got = 0, start;
	void *entry = pick_entry(run);
	bool up = pick(run, 2);
	int err = up ? mtree_alloc_range(&run->mt, &got, entry, size, min, max, GFP_KERNEL)
		     : mtree_alloc_rrange(&run->mt, &got, entry, size, min, max, GFP_KERNEL);

	if (no_memory(run, err))
		return;
	if (!(run->flags & MT_FLAGS_ALLOC_RANGE) || min > max || max - min < size - 1) {
		must(err == -EINVAL);
		return;
	}
	if (!list_gap(&run->list, min, max, size, up, &start)) {
		must(err == -EBUSY);
		return;
	}
	must(!err && got == start);
	list_store(&run->list, start, start + size - 1, entry);
}

static void op_alloc_cyclic(struct maple_run *run)
{
	unsigned long min = pick_index(run), max = pick_index(run);
	unsigned long next = pick(run, 8) ? pick_index(run) : ULONG_MAX;
	unsigned long from = next > min ? next : min, got = 0, start;
	unsigned long asked = next;
	void *entry = pick_entry(run);
	bool wraps = false, found;
	int ret;

	if (!(run->flags & MT_FLAGS_ALLOC_RANGE) || min > max)
		return;
	ret = mtree_alloc_cyclic(&run->mt, &got, entry, min, max, &next, GFP_KERNEL);
	if (no_memory(run, ret)) {
		must(next == asked);
		return;
	}
	found = from <= max && list_gap(&run->list, from, max, 1, true, &start);
	if (!found && from > min) {
		found = list_gap(&run->list, min, max, 1, true, &start);
		wraps = true;
	}
	if (!found) {
		must(ret == -EBUSY);
		return;
	}
	must(ret == (wraps || run->wrapped));
	must(got == start && next == start + 1);
	run->wrapped = !next;
	list_store(&run->list, start, start, entry);
}

static void op_erase(struct maple_run *run)
{
	struct range around = list_around(&run->list, pick_index(run));
	unsigned long index = pick(run, 2) ? around.first : around.last;
	MA_STATE(mas, &run->mt, 0, 0);
	void *old;

	if (pick(run, 2)) {
		old = mtree_erase(&run->mt, index);
	} else {
		mas_set(&mas, index);
		mas_lock(&mas);
		old = mas_erase(&mas);
		mas_unlock(&mas);
	}
	if (run->failing && mtree_load(&run->mt, index))
		return;
	must(old == around.entry);
	list_store(&run->list, around.first, around.last, NULL);
}

/* Erases many ranges at once. */
static void op_clear(struct maple_run *run)
{
	struct range range;
	int err;

	if (!run->list.n)
		return;
	range = pick_span(run);
	err = mtree_store_range(&run->mt, range.first, range.last, NULL, GFP_KERNEL);
	if (no_memory(run, err))
		return;
	must(!err);
	list_store(&run->list, range.first, range.last, NULL);
}

/* Stores ranges in a row, side by side or apart. */
static void op_fill(struct maple_run *run)
{
	unsigned long first = pick_index(run), length = pick_length(run), gap = pick(run, 3);
	unsigned long n = 1 + pick(run, 64);
	bool down = pick(run, 2);

	while (n-- && run->list.n < ROOM) {
		struct range range = range_from(first, length);
		void *entry = (void *)(n * 8 + 8);
		int err = mtree_store_range(&run->mt, range.first, range.last, entry, GFP_KERNEL);

		if (no_memory(run, err))
			return;
		must(!err);
		list_store(&run->list, range.first, range.last, entry);
		first = down ? first - length - gap : range.last + 1 + gap;
	}
}

/* The cursor goes on from what it stored. */
static void look_around(struct maple_run *run, struct ma_state *mas, struct range range, bool up)
{
	const struct range *next = up ? entry_after(run, range.last, ULONG_MAX)
				      : entry_before(run, range.first, 0);
	void *entry = up ? mas_next(mas, ULONG_MAX) : mas_prev(mas, 0);

	must(entry == (next ? next->entry : NULL));
	if (next)
		must(at_range(mas, *next));
}

/* The advanced stores, and a look around after. */
static void op_mas_store(struct maple_run *run)
{
	struct range range = pick_range(run);
	void *entry = pick_entry_or_null(run);
	bool gfp = pick(run, 2), up = pick(run, 2);
	MA_STATE(mas, &run->mt, range.first, range.last);
	int err;

	mas_lock(&mas);
	if (gfp) {
		err = mas_store_gfp(&mas, entry, GFP_KERNEL);
	} else {
		do {
			mas_store(&mas, entry);
		} while (mas_nomem(&mas, GFP_KERNEL));
		err = mas_is_err(&mas) ? xa_err(mas.node) : 0;
		mas_destroy(&mas);
	}
	if (!no_memory(run, err)) {
		must(!err);
		list_store(&run->list, range.first, range.last, entry);
		look_around(run, &mas, range, up);
	}
	mas_unlock(&mas);
}

/* What is preallocated is enough: behind it, no allocation succeeds. */
static void op_preallocate(struct maple_run *run)
{
	struct range range = pick_range(run), larger = pick_range(run);
	void *entry = pick_entry_or_null(run);
	bool again = pick(run, 4) == 0, unused = pick(run, 8) == 0, up = pick(run, 2);
	MA_STATE(mas, &run->mt, range.first, range.last);
	int err;

	mas_lock(&mas);
	err = mas_preallocate(&mas, entry, GFP_KERNEL);
	if (!err && again) {
		range = larger;
		mas_set_range(&mas, range.first, range.last);
		err = mas_preallocate(&mas, entry, GFP_KERNEL);
	}
	if (no_memory(run, err) || unused) {
		mas_destroy(&mas);
		mas_unlock(&mas);
		return;
	}
	must(!err);
	node_pool_fail(&mt_node_pool, 1, ULONG_MAX);
	mas_store_prealloc(&mas, entry);
	node_pool_fail(&mt_node_pool, 0, 0);
	list_store(&run->list, range.first, range.last, entry);
	look_around(run, &mas, range, up);
	mas_unlock(&mas);
}

/* Changes what a walk comes by, and walks on. There is memory, so all of it succeeds. */
static void op_edit(struct maple_run *run)
{
	unsigned long from = pick_index(run), max = pick_index(run), ways = pick(run, 1UL << 16);
	const struct range *next = from > max ? NULL : entry_at_or_after(run, from, max);
	MA_STATE(mas, &run->mt, from, from);
	unsigned long length;
	struct range range;
	void *entry, *old;

	node_pool_fail(&mt_node_pool, 0, 0);
	mas_lock(&mas);
	mas_for_each(&mas, entry, max) {
		must(next && next->entry == entry && at_range(&mas, *next));
		range = *next;
		switch (ways & 7) {
		case 0:
			must(mas_erase(&mas) == entry);
			list_store(&run->list, range.first, range.last, NULL);
			break;
		case 1:
		case 2:
			range.entry = pick_entry(run);
			do {
				old = mas_store(&mas, range.entry);
			} while (mas_nomem(&mas, GFP_KERNEL));
			must(old == entry);
			list_store(&run->list, range.first, range.last, range.entry);
			break;
		case 3:
			length = range.last - range.first + pick_length(run);
			range = range_from(range.first, length);
			mas_set_range(&mas, range.first, range.last);
			must(!mas_store_gfp(&mas, entry, GFP_KERNEL));
			list_store(&run->list, range.first, range.last, entry);
			break;
		}
		ways = ways >> 1 | (ways & 1) << 15;
		next = entry_after(run, range.last, max);
	}
	must(!next);
	mas_unlock(&mas);
}

/* A tree made anew, in order, by the bulk calls. */
static void op_bulk(struct maple_run *run)
{
	unsigned long n = 1 + pick(run, 256), gap = pick(run, 2);
	MA_STATE(mas, &run->mt, 0, 0);
	unsigned long first = pick(run, 16);
	int err;

	if (mt_in_rcu(&run->mt) || pick(run, 16))
		return;
	mtree_destroy(&run->mt);
	run->list.n = 0;
	mas_lock(&mas);
	err = mas_expected_entries(&mas, n);
	for (unsigned long i = 0; !err && i < n; i++) {
		unsigned long length = pick_length(run);

		mas_set_range(&mas, first, first + length - 1);
		mas_store(&mas, xa_mk_value(i));
		must(!mas_is_err(&mas));
		list_store(&run->list, first, first + length - 1, xa_mk_value(i));
		first += length + gap;
	}
	mas_destroy(&mas);
	mas_unlock(&mas);
	if (!no_memory(run, err))
		must(!err);
}

static void compare(struct maple_run *run, struct maple_tree *mt)
{
	MA_STATE(mas, mt, 0, 0);
	unsigned int at = 0;
	void *entry;

	must(!mt_check(mt));
	rcu_read_lock();
	mas_for_each(&mas, entry, ULONG_MAX) {
		const struct range *range = entry_from(run, at++, ULONG_MAX);

		must(range && range->entry == entry && at_range(&mas, *range));
	}
	rcu_read_unlock();
	must(at == run->list.n);
}

/* Goes on with a copy, or with what was copied. */
static void op_dup(struct maple_run *run)
{
	struct maple_tree other;
	int err;

	if (pick(run, 16))
		return;
	mt_init_flags(&other, mt_flags(&run->mt) & ~MT_FLAGS_HEIGHT_MASK);
	err = mtree_dup(&run->mt, &other, GFP_KERNEL);
	if (no_memory(run, err)) {
		must(mtree_empty(&other));
		return;
	}
	must(!err);
	compare(run, &other);
	mtree_destroy(&run->mt);
	must(mtree_empty(&run->mt));
	compare(run, &other);
	err = mtree_dup(&other, &run->mt, GFP_KERNEL);
	if (err == -ENOMEM && run->failing)
		run->list.n = 0;
	else
		must(!err);
	mtree_destroy(&other);
}

static void op_toggle_rcu(struct maple_run *run)
{
	if (!run->toggles || pick(run, 16))
		return;
	if (mt_in_rcu(&run->mt))
		mt_clear_in_rcu(&run->mt);
	else
		mt_set_in_rcu(&run->mt);
}

/* And perhaps makes a tree of one entry, without a node. */
static void op_destroy(struct maple_run *run)
{
	void *entry = pick(run, 2) ? pick_entry(run) : NULL;

	if (pick(run, 200))
		return;
	mtree_destroy(&run->mt);
	must(mtree_empty(&run->mt));
	run->list.n = 0;
	must(!mtree_store(&run->mt, 0, entry, GFP_NOWAIT));
	list_store(&run->list, 0, 0, entry);
}

static void (*const ops[])(struct maple_run *run) = {
	op_load,
	op_load,
	op_find,
	op_next_and_prev,
	op_for_each,
	op_iterate,
	op_iterate_down,
	op_wander,
	op_find_ranges,
	op_gap,
	op_gap,
	op_dup,
	op_bulk,
	op_toggle_rcu,
	op_destroy,
	op_edit,
	op_alloc,
	op_alloc_cyclic,
	op_store,
	op_store_range,
	op_store_range,
	op_insert,
	op_erase,
	op_erase,
	op_mas_store,
	op_mas_store,
	op_preallocate,
	op_preallocate,
	op_fill,
};

#define N_OPS (sizeof(ops) / sizeof(ops[0]))

/* Chooses the next limits when the tree has reached one. */
static void turn(struct maple_run *run)
{
	static const unsigned int most[] = { 3, 20, 40, 150, 600, 2000 };

	if (run->shrinking && run->list.n <= run->least) {
		run->shrinking = false;
		run->most = most[pick(run, sizeof(most) / sizeof(most[0]))];
	} else if (!run->shrinking && run->list.n >= run->most) {
		run->shrinking = true;
		run->least = pick(run, 2) ? 0 : pick(run, run->most);
	}
}

void maple_run_begin(struct maple_run *run)
{
	rcu_register_thread();
	mt_init_flags(&run->mt, run->flags);
	run->random = run->seed;
	run->shrinking = true;
}

void maple_run_step(struct maple_run *run)
{
	if (!run->bytes)
		turn(run);
	run->failing = run->fails && !pick(run, 16);
	if (run->failing)
		node_pool_fail(&mt_node_pool, 1 + pick(run, 4), ULONG_MAX);
	if ((run->shrinking && !run->bytes && !pick(run, 3)) || run->list.n >= ROOM)
		op_clear(run);
	else
		ops[pick(run, N_OPS)](run);
	node_pool_fail(&mt_node_pool, 0, 0);
	if (run->step % 16 == 0)
		must(!mt_check(&run->mt));
	if (run->step % 512 == 0)
		compare(run, &run->mt);
	run->step++;
}

static unsigned long chain_length(const struct node_pool *pool, void *node)
{
	unsigned long n = 0;

	for (; node; node = *(void **)((char *)node + pool->link))
		n++;
	return n;
}

void maple_run_end(struct maple_run *run)
{
	struct node_pool *pool = &mt_node_pool;

	compare(run, &run->mt);
	mtree_destroy(&run->mt);
	must(mtree_empty(&run->mt));
	must(!mt_check(&run->mt));
	/* What lives still is on its way back. Not to wait for readers makes short runs fast. */
	xa_spin_lock(&pool->lock);
	must(pool->live == chain_length(pool, pool->pending) + chain_length(pool, pool->waiting));
	xa_spin_unlock(&pool->lock);
}
