/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Random operations on an XArray and on the model, compared after each step.
 *
 * FOLIOFS_SEED replays a run, FOLIOFS_STEPS makes it longer.
 */
#include "model.h"
#include "node_alloc.h"
#include "xa_internal.h"

#include <criterion/criterion.h>
#include <string.h>

struct run {
	struct xarray xa;
	struct model model;
	uint64_t random;
	unsigned int max_order;
	unsigned long step;
};

static unsigned long pick(struct run *run, unsigned long n)
{
	return test_random(&run->random) % n;
}

/* Small spans are more likely, so that operations meet. */
static unsigned long pick_index(struct run *run)
{
	unsigned long span = pick(run, 3) ? 40 : MODEL_CELLS;
	unsigned long at = pick(run, span);

	if (!pick(run, 4))
		at = MODEL_CELLS - 1 - at;
	return model_index(pick(run, MODEL_WINDOWS) * MODEL_CELLS + at);
}

static void *pick_entry(struct run *run)
{
	unsigned long n = test_random(&run->random);

	return n & 1 ? xa_mk_value(n >> 8) : (void *)((n >> 20 << 2) + 4);
}

static unsigned int pick_order(struct run *run)
{
	return pick(run, 3) ? 0 : pick(run, run->max_order + 1);
}

static void *seen(void *entry)
{
	return xa_is_zero(entry) ? NULL : entry;
}

static void op_load(struct run *run)
{
	unsigned long index = pick_index(run);
	struct cell *cell = model_cell(&run->model, index);

	cr_assert_eq(xa_load(&run->xa, index), seen(cell->entry));
	cr_assert_eq(xa_get_order(&run->xa, index), cell->entry ? (int)cell->order : 0);
	for (xa_mark_t mark = 0; mark < XA_MAX_MARKS; mark++)
		cr_assert_eq(xa_get_mark(&run->xa, index, mark), cell->marks >> mark & 1);
}

static void op_store(struct run *run)
{
	unsigned long index = pick_index(run);
	void *entry = pick(run, 8) ? pick_entry(run) : NULL;
	void *old = seen(model_cell(&run->model, index)->entry);

	cr_assert_eq(xa_store(&run->xa, index, entry, GFP_KERNEL), old);
	model_store(&run->model, index, 0, entry);
}

static void op_erase(struct run *run)
{
	unsigned long index = pick_index(run);
	void *old = seen(model_cell(&run->model, index)->entry);

	cr_assert_eq(xa_erase(&run->xa, index), old);
	model_store(&run->model, index, 0, NULL);
}

static void op_cmpxchg(struct run *run)
{
	unsigned long index = pick_index(run);
	void *now = seen(model_cell(&run->model, index)->entry);
	void *entry = pick(run, 4) ? pick_entry(run) : NULL;
	void *old = pick(run, 2) ? now : pick_entry(run);

	cr_assert_eq(xa_cmpxchg(&run->xa, index, old, entry, GFP_KERNEL), now);
	if (old == now)
		model_store(&run->model, index, 0, entry);
}

static void op_insert(struct run *run)
{
	unsigned long index = pick_index(run);
	struct cell *cell = model_cell(&run->model, index);
	void *entry = pick_entry(run);

	cr_assert_eq(xa_insert(&run->xa, index, entry, GFP_KERNEL), cell->entry ? -EBUSY : 0);
	if (!cell->entry)
		model_store(&run->model, index, 0, entry);
}

static void op_reserve(struct run *run)
{
	unsigned long index = pick_index(run);

	cr_assert_eq(xa_reserve(&run->xa, index, GFP_KERNEL), 0);
	if (!model_cell(&run->model, index)->entry)
		model_store(&run->model, index, 0, XA_ZERO_ENTRY);
}

static void op_release(struct run *run)
{
	unsigned long index = pick_index(run);

	xa_release(&run->xa, index);
	if (xa_is_zero(model_cell(&run->model, index)->entry))
		model_store(&run->model, index, 0, NULL);
}

static void op_mark(struct run *run)
{
	unsigned long index = pick_index(run);
	xa_mark_t mark = pick(run, XA_MAX_MARKS);
	bool on = pick(run, 3);

	if (on)
		xa_set_mark(&run->xa, index, mark);
	else
		xa_clear_mark(&run->xa, index, mark);
	model_mark(&run->model, index, mark, on);
}

static void op_store_order(struct run *run)
{
	unsigned int order = pick_order(run);
	unsigned long index = pick_index(run) >> order << order;
	void *entry = pick(run, 4) ? pick_entry(run) : NULL;

	cr_assert_eq(test_store_order(&run->xa, index, order, entry, GFP_KERNEL), 0);
	if (entry) {
		model_store(&run->model, index, order, entry);
		return;
	}
	for (unsigned long i = 0; i < 1UL << order; i++)
		model_store(&run->model, index + i, 0, NULL);
}

static xa_mark_t pick_filter(struct run *run)
{
	return pick(run, 2) ? XA_PRESENT : pick(run, XA_MAX_MARKS);
}

static void op_find(struct run *run)
{
	unsigned long index = pick_index(run), max = pick_index(run);
	unsigned long found = index;
	xa_mark_t filter = pick_filter(run);
	struct cell *cell = model_find(&run->model, index, max, filter);
	void *entry = xa_find(&run->xa, &found, max, filter);

	cr_assert_eq(entry, cell ? cell->entry : NULL);
	cr_assert_eq(found, cell && cell->start > index ? cell->start : index);
}

static void op_find_after(struct run *run)
{
	unsigned long index = pick_index(run), max = pick_index(run);
	unsigned long found = index, from = index + 1;
	xa_mark_t filter = pick_filter(run);
	struct cell *at = from ? model_find(&run->model, from, from, XA_PRESENT) : NULL;
	struct cell *cell = NULL;
	void *entry;

	/* An entry that goes on at the next index, or a reservation, is passed over. */
	if (at && at->start < from)
		from = at->start + (1UL << at->order);
	if (from)
		cell = model_find(&run->model, from, max, filter);
	entry = xa_find_after(&run->xa, &found, max, filter);
	cr_assert_eq(entry, cell ? cell->entry : NULL);
	cr_assert_eq(found, cell ? cell->start : index);
}

/* Goes over everything with a cursor, letting go of the tree now and then. */
static void op_iterate(struct run *run)
{
	unsigned long index = pick_index(run), max = pick_index(run);
	xa_mark_t filter = pick_filter(run);
	unsigned long from = index;
	XA_STATE(xas, &run->xa, index);
	struct cell *cell;
	void *entry;

	rcu_read_lock();
	for (;;) {
		entry = filter == XA_PRESENT ? xas_next_entry(&xas, max)
					     : xas_next_marked(&xas, max, filter);
		if (!entry)
			break;
		if (xas_retry(&xas, entry))
			continue;
		cell = model_find(&run->model, from, max, filter);
		cr_assert_not_null(cell);
		cr_assert_eq(entry, cell->entry);
		cr_assert_eq(xas.xa_index, cell->start > index ? cell->start : index);
		cr_assert_eq(xas_get_order(&xas), (int)cell->order);
		cr_assert_eq(xas_reload(&xas), entry);
		from = cell->start + (1UL << cell->order);
		if (!pick(run, 4))
			xas_pause(&xas);
		if (!from)
			break;
	}
	rcu_read_unlock();
	if (from && !entry)
		cr_assert_null(model_find(&run->model, from, max, filter));
}

/* Steps up and down within a window; where the tree has no node, everything is NULL. */
static void op_step(struct run *run)
{
	unsigned long i = pick(run, MODEL_CELLS);
	unsigned long base = pick(run, MODEL_WINDOWS) * MODEL_CELLS;
	XA_STATE(xas, &run->xa, model_index(base + i));
	void *entry;

	rcu_read_lock();
	entry = pick(run, 2) ? xas_next(&xas) : xas_prev(&xas);
	for (unsigned int steps = 0; steps < 100; steps++) {
		unsigned long index = model_index(base + i);

		if (xa_is_sibling(entry))
			entry = xas_reload(&xas);
		cr_assert_eq(xas.xa_index, index);
		cr_assert_eq(entry, model_cell(&run->model, index)->entry);
		if (pick(run, 2)) {
			i = (i + 1) % MODEL_CELLS;
			entry = xas_next(&xas);
		} else {
			i = (i + MODEL_CELLS - 1) % MODEL_CELLS;
			entry = xas_prev(&xas);
		}
		if (xas.xa_index != model_index(base + i)) {
			xas_set(&xas, model_index(base + i));
			entry = xas_load(&xas);
		}
	}
	rcu_read_unlock();
}

static void op_conflict(struct run *run)
{
	unsigned int order = pick_order(run);
	XA_STATE_ORDER(xas, &run->xa, pick_index(run), order);
	unsigned long index = xas.xa_index, max = index + (1UL << order) - 1;
	void *entry = pick_entry(run);
	unsigned long left; /* cells of the range that have not been seen */
	struct cell *cell;
	void *old;

	do {
		xas_lock(&xas);
		left = 1UL << order;
		xas_for_each_conflict(&xas, old) {
			while (left && !model_cell(&run->model, max - left + 1)->entry)
				left--;
			cr_assert(left, "step %lu", run->step);
			cell = model_cell(&run->model, max - left + 1);
			cr_assert_eq(old, cell->entry);
			cr_assert_eq(xas_get_order(&xas), (int)cell->order);
			left -= left < 1UL << cell->order ? left : 1UL << cell->order;
		}
		for (; left; left--)
			cr_assert_null(model_cell(&run->model, max - left + 1)->entry);
		xas_store(&xas, entry);
		xas_unlock(&xas);
	} while (xas_nomem(&xas, GFP_KERNEL));
	cr_assert_eq(xas_error(&xas), 0);
	model_store(&run->model, index, order, entry);
}

static void op_split(struct run *run)
{
	unsigned long index = pick_index(run);
	struct cell *cell = model_cell(&run->model, index);
	unsigned int old_order = cell->order;
	unsigned int order = pick(run, old_order + 1);
	void *entry = pick(run, 2) ? cell->entry : pick_entry(run);
	XA_STATE_ORDER(xas, &run->xa, index, order);

	if (!cell->entry)
		return;
	xas_split_alloc(&xas, entry, old_order, GFP_KERNEL);
	if (order - order % XA_CHUNK_SHIFT + 2 * XA_CHUNK_SHIFT <= old_order) {
		cr_assert_eq(xas_error(&xas), -EINVAL);
		return;
	}
	xas_lock(&xas);
	xas_split(&xas, entry, old_order);
	xas_unlock(&xas);
	cr_assert_null(xas.xa_alloc);
	model_split(&run->model, index, order, entry);
}

static void op_store_range(struct run *run)
{
	unsigned long base = pick(run, MODEL_WINDOWS) * MODEL_CELLS;
	unsigned long first = model_index(base + pick(run, MODEL_CELLS));
	unsigned long last = model_index(base + pick(run, MODEL_CELLS));
	void *entry = pick(run, 3) ? pick_entry(run) : NULL;

	if (last < first)
		return;
	cr_assert_null(xa_store_range(&run->xa, first, last, entry, GFP_KERNEL));
	for (;;) {
		unsigned int order = first ? __builtin_ctzl(first) : MODEL_ORDER;

		while (last - first < (1UL << order) - 1)
			order--;
		if (entry)
			model_store(&run->model, first, order, entry);
		for (unsigned long i = 0; !entry && i < 1UL << order; i++)
			model_store(&run->model, first + i, 0, NULL);
		if (last - first < 1UL << order)
			return;
		first += 1UL << order;
	}
}

static void op_create_range(struct run *run)
{
	unsigned int order = pick_order(run);
	XA_STATE_ORDER(xas, &run->xa, pick_index(run), order);
	unsigned long index = xas.xa_index;
	void *entry = pick_entry(run);

	do {
		xas_lock(&xas);
		xas_create_range(&xas);
		if (xas_error(&xas))
			goto unlock;
		for (unsigned long i = 0; i < 1UL << order; i++) {
			xas_set(&xas, index + i);
			xas_store(&xas, entry);
			model_store(&run->model, index + i, 0, entry);
			cr_assert_eq(xas_error(&xas), 0);
		}
	unlock:
		xas_unlock(&xas);
	} while (xas_nomem(&xas, GFP_KERNEL));
}

static void op_extract(struct run *run)
{
	unsigned long index = pick_index(run), max = pick_index(run);
	xa_mark_t filter = pick_filter(run);
	void *entries[16];
	unsigned int n = xa_extract(&run->xa, entries, index, max, 16, filter);

	for (unsigned int i = 0; i < 16; i++) {
		struct cell *cell = model_find(&run->model, index, max, filter);

		cr_assert_eq(i < n, cell != NULL);
		if (!cell)
			return;
		cr_assert_eq(entries[i], cell->entry);
		index = cell->start + (1UL << cell->order);
		if (!index)
			return;
	}
}

static void op_destroy(struct run *run)
{
	if (pick(run, 200))
		return;
	xa_destroy(&run->xa);
	memset(&run->model, 0, sizeof(run->model));
}

static void (*const ops[])(struct run *run) = {
	op_load,
	op_store,
	op_store,
	op_store,
	op_erase,
	op_erase,
	op_erase,
	op_cmpxchg,
	op_insert,
	op_reserve,
	op_release,
	op_mark,
	op_mark,
	op_mark,
	op_find,
	op_find_after,
	op_iterate,
	op_step,
	op_extract,
	op_destroy,
	/* Those behind here make multi-index entries. */
	op_store_order,
	op_store_order,
	op_conflict,
	op_split,
	op_split,
	op_store_range,
	op_create_range,
};
#define SINGLE_OPS 20

static void compare_all(struct run *run)
{
	for (unsigned long i = 0; i < MODEL_WINDOWS * MODEL_CELLS; i++) {
		unsigned long index = model_index(i);

		cr_assert_eq(xa_load(&run->xa, index), seen(model_cell(&run->model, index)->entry));
	}
}

static void run_model(unsigned int n_ops, unsigned int max_order, unsigned long steps)
{
	static struct run run;

	rcu_register_thread();
	run = (struct run){.random = test_seed(), .max_order = max_order};
	steps = test_setting("FOLIOFS_STEPS", steps);
	for (run.step = 0; run.step < steps; run.step++) {
		ops[pick(&run, n_ops)](&run);
		if (run.step % 16 == 0)
			cr_assert_eq(xa_check(&run.xa), 0, "step %lu", run.step);
		if (run.step % 1024 == 0)
			compare_all(&run);
	}
	compare_all(&run);
	cr_assert_eq(xa_check(&run.xa), 0);
	xa_destroy(&run.xa);
	node_pool_drain(&xa_node_pool);
	cr_assert_eq(node_pool_live(&xa_node_pool), 0);
}

Test(model, single_entries)
{
	run_model(SINGLE_OPS, 0, 60000);
}

Test(model, entries_of_all_orders)
{
	run_model(sizeof(ops) / sizeof(ops[0]), MODEL_ORDER, 60000);
}
