/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The operations, each with numbers that pick() gives, done to the array and to the model.
 *
 * While run->failing is set, what needs memory may fail, and has then changed nothing.
 */
#include "steps.h"
#include "node_alloc.h"
#include "xa_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define must(condition) ((condition) ? (void)0 : failed(run, #condition, __LINE__))

static _Noreturn void failed(const struct run *run, const char *condition, int line)
{
	fprintf(stderr, "steps.c:%d: step %lu: not %s\n", line, run->step, condition);
	abort();
}

/* A number below @n. The bytes of a run that has come to their end are zero. */
static unsigned long pick(struct run *run, unsigned long n)
{
	unsigned long number = 0;

	if (!run->bytes)
		return test_random(&run->random) % n;
	for (unsigned long most = 1; most < n && run->bytes < run->end; most <<= 8)
		number = number << 8 | *run->bytes++;
	return number % n;
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
	unsigned long n = pick(run, 1UL << 16);

	return n & 1 ? xa_mk_value(n >> 1) : (void *)((n >> 1 << 2) + 4);
}

static unsigned int pick_order(struct run *run)
{
	return pick(run, 3) ? 0 : pick(run, run->max_order + 1);
}

/* In an allocating array the first mark is taken. */
static xa_mark_t pick_mark(struct run *run)
{
	return run->allocates ? XA_MARK_1 + pick(run, XA_MAX_MARKS - 1) : pick(run, XA_MAX_MARKS);
}

/* What is stored for NULL by the calls that reserve then in an allocating array. */
static void *stored(const struct run *run, void *entry)
{
	return run->allocates && !entry ? XA_ZERO_ENTRY : entry;
}

static bool no_memory(const struct run *run, int err)
{
	if (err != -ENOMEM)
		return false;
	must(run->failing);
	return true;
}

static void *seen(void *entry)
{
	return xa_is_zero(entry) ? NULL : entry;
}

static void op_load(struct run *run)
{
	unsigned long index = pick_index(run);
	struct cell *cell = model_cell(&run->model, index);

	must(xa_load(&run->xa, index) == seen(cell->entry));
	must(xa_get_order(&run->xa, index) == (cell->entry ? (int)cell->order : 0));
	for (xa_mark_t mark = run->allocates; mark < XA_MAX_MARKS; mark++)
		must(xa_get_mark(&run->xa, index, mark) == (cell->marks >> mark & 1));
}

static void op_store(struct run *run)
{
	unsigned long index = pick_index(run);
	void *entry = pick(run, 8) ? pick_entry(run) : NULL;
	void *old = seen(model_cell(&run->model, index)->entry);
	void *was = xa_store(&run->xa, index, entry, GFP_KERNEL);

	if (no_memory(run, xa_err(was)))
		return;
	must(was == old);
	model_store(&run->model, index, 0, stored(run, entry));
}

static void op_erase(struct run *run)
{
	unsigned long index = pick_index(run);
	void *old = seen(model_cell(&run->model, index)->entry);

	must(xa_erase(&run->xa, index) == old);
	model_store(&run->model, index, 0, NULL);
}

static void op_cmpxchg(struct run *run)
{
	unsigned long index = pick_index(run);
	void *now = seen(model_cell(&run->model, index)->entry);
	void *entry = pick(run, 4) ? pick_entry(run) : NULL;
	void *old = pick(run, 2) ? now : pick_entry(run);
	void *was = xa_cmpxchg(&run->xa, index, old, entry, GFP_KERNEL);

	if (no_memory(run, xa_err(was)))
		return;
	must(was == now);
	if (old == now)
		model_store(&run->model, index, 0, entry);
}

static void op_insert(struct run *run)
{
	unsigned long index = pick_index(run);
	struct cell *cell = model_cell(&run->model, index);
	void *entry = pick_entry(run);
	int err = xa_insert(&run->xa, index, entry, GFP_KERNEL);

	if (no_memory(run, err))
		return;
	must(err == (cell->entry ? -EBUSY : 0));
	if (!cell->entry)
		model_store(&run->model, index, 0, entry);
}

static void op_reserve(struct run *run)
{
	unsigned long index = pick_index(run);
	int err = xa_reserve(&run->xa, index, GFP_KERNEL);

	if (no_memory(run, err))
		return;
	must(!err);
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
	xa_mark_t mark = pick_mark(run);
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
	int err = test_store_order(&run->xa, index, order, entry, GFP_KERNEL);

	if (no_memory(run, err))
		return;
	must(!err);
	if (entry) {
		model_store(&run->model, index, order, entry);
		return;
	}
	for (unsigned long i = 0; i < 1UL << order; i++)
		model_store(&run->model, index + i, 0, NULL);
}

static xa_mark_t pick_filter(struct run *run)
{
	return pick(run, 2) ? XA_PRESENT : pick_mark(run);
}

static void op_find(struct run *run)
{
	unsigned long index = pick_index(run), max = pick_index(run);
	unsigned long found = index;
	xa_mark_t filter = pick_filter(run);
	struct cell *cell = model_find(&run->model, index, max, filter);
	void *entry = xa_find(&run->xa, &found, max, filter);

	must(entry == (cell ? cell->entry : NULL));
	must(found == (cell && cell->start > index ? cell->start : index));
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
	must(entry == (cell ? cell->entry : NULL));
	must(found == (cell ? cell->start : index));
}

/* Goes over everything with a cursor, letting go of the tree now and then. */
static void op_iterate(struct run *run)
{
	unsigned long index = pick_index(run), max = pick_index(run);
	xa_mark_t filter = pick_filter(run);
	unsigned long from = index, pauses = pick(run, 1UL << 16);
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
		must(cell);
		must(entry == cell->entry);
		must(xas.xa_index == (cell->start > index ? cell->start : index));
		must(xas_get_order(&xas) == (int)cell->order);
		must(xas_reload(&xas) == entry);
		from = cell->start + (1UL << cell->order);
		if (!(pauses & 3))
			xas_pause(&xas);
		pauses = pauses >> 2 | (pauses & 3) << 14;
		if (!from)
			break;
	}
	rcu_read_unlock();
	if (from && !entry)
		must(!model_find(&run->model, from, max, filter));
}

/* Steps up and down within a window; where the tree has no node, everything is NULL. */
static void op_step(struct run *run)
{
	unsigned long i = pick(run, MODEL_CELLS);
	unsigned long base = pick(run, MODEL_WINDOWS) * MODEL_CELLS;
	unsigned long ways = pick(run, 1UL << 16);
	XA_STATE(xas, &run->xa, model_index(base + i));
	void *entry;

	rcu_read_lock();
	entry = ways & 1 ? xas_next(&xas) : xas_prev(&xas);
	for (unsigned int steps = 0; steps < 96; steps++) {
		unsigned long index = model_index(base + i);

		if (xa_is_sibling(entry))
			entry = xas_reload(&xas);
		must(xas.xa_index == index);
		must(entry == model_cell(&run->model, index)->entry);
		if (ways >> steps / 6 & 1) {
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
			must(left);
			cell = model_cell(&run->model, max - left + 1);
			must(old == cell->entry);
			must(xas_get_order(&xas) == (int)cell->order);
			left -= left < 1UL << cell->order ? left : 1UL << cell->order;
		}
		for (; left; left--)
			must(!model_cell(&run->model, max - left + 1)->entry);
		xas_store(&xas, entry);
		xas_unlock(&xas);
	} while (xas_nomem(&xas, GFP_KERNEL));
	if (no_memory(run, xas_error(&xas)))
		return;
	must(!xas_error(&xas));
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
		must(xas_error(&xas) == -EINVAL);
		return;
	}
	if (no_memory(run, xas_error(&xas)) || !pick(run, 8)) {
		xas_destroy(&xas);
		return;
	}
	xas_lock(&xas);
	xas_split(&xas, entry, old_order);
	xas_unlock(&xas);
	must(!xas.xa_alloc);
	model_split(&run->model, index, order, entry);
}

static void op_store_range(struct run *run)
{
	unsigned long base = pick(run, MODEL_WINDOWS) * MODEL_CELLS;
	unsigned long first = model_index(base + pick(run, MODEL_CELLS));
	unsigned long last = model_index(base + pick(run, MODEL_CELLS));
	void *entry = pick(run, 3) ? pick_entry(run) : NULL;
	void *ret;

	if (last < first)
		return;
	ret = xa_store_range(&run->xa, first, last, entry, GFP_KERNEL);
	if (no_memory(run, xa_err(ret)))
		return;
	must(!ret);
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
			must(xas_error(&xas) == 0);
		}
	unlock:
		xas_unlock(&xas);
	} while (xas_nomem(&xas, GFP_KERNEL));
	if (!no_memory(run, xas_error(&xas)))
		must(!xas_error(&xas));
}

/* The first free index from @from to @max, in one window; beyond @max if there is none. */
static unsigned long first_free(struct run *run, unsigned long from, unsigned long max)
{
	while (from <= max && model_cell(&run->model, from)->entry)
		from++;
	return from;
}

static void op_alloc(struct run *run)
{
	/* The two windows that 32 bits reach. */
	unsigned long base = pick(run, 2) * MODEL_CELLS;
	struct xa_limit limit = XA_LIMIT(model_index(base + pick(run, MODEL_CELLS)),
					 model_index(base + pick(run, MODEL_CELLS)));
	uint32_t id, next = model_index(base + pick(run, MODEL_CELLS));
	bool cyclic = pick(run, 2), wraps = false;
	unsigned long from = cyclic && next > limit.min ? next : limit.min;
	unsigned long expected = first_free(run, from, limit.max);
	void *entry = pick(run, 4) ? pick_entry(run) : NULL;
	int ret = cyclic ? xa_alloc_cyclic(&run->xa, &id, entry, limit, &next, GFP_KERNEL)
			 : xa_alloc(&run->xa, &id, entry, limit, GFP_KERNEL);

	if (no_memory(run, ret))
		return;
	if (!run->allocates) {
		must(ret == -EINVAL);
		return;
	}
	if (expected > limit.max && from > limit.min) {
		expected = first_free(run, limit.min, limit.max);
		wraps = true;
	}
	if (expected > limit.max) {
		must(ret == -EBUSY);
		return;
	}
	must(ret == wraps);
	must(id == expected);
	must(!cyclic || next == id + 1);
	model_store(&run->model, id, 0, stored(run, entry));
}

static void op_extract(struct run *run)
{
	unsigned long index = pick_index(run), max = pick_index(run);
	xa_mark_t filter = pick_filter(run);
	void *entries[16];
	unsigned int n = xa_extract(&run->xa, entries, index, max, 16, filter);

	for (unsigned int i = 0; i < 16; i++) {
		struct cell *cell = model_find(&run->model, index, max, filter);

		must((i < n) == (cell != NULL));
		if (!cell)
			return;
		must(entries[i] == cell->entry);
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
	op_alloc,
	op_alloc,
	/* Those behind here make multi-index entries. */
	op_store_order,
	op_store_order,
	op_conflict,
	op_split,
	op_split,
	op_store_range,
	op_create_range,
};
#define SINGLE_OPS 22

#define ALL_OPS (sizeof(ops) / sizeof(ops[0]))

static void compare_all(struct run *run)
{
	for (unsigned long i = 0; i < MODEL_WINDOWS * MODEL_CELLS; i++) {
		unsigned long index = model_index(i);

		must(xa_load(&run->xa, index) == seen(model_cell(&run->model, index)->entry));
	}
}

void run_begin(struct run *run)
{
	rcu_register_thread();
	xa_init_flags(&run->xa, run->allocates ? XA_FLAGS_ALLOC : 0);
}

void run_step(struct run *run)
{
	run->failing = run->fails && !pick(run, 16);
	if (run->failing)
		node_pool_fail(&xa_node_pool, 1 + pick(run, 4), ULONG_MAX);
	ops[pick(run, run->max_order ? ALL_OPS : SINGLE_OPS)](run);
	node_pool_fail(&xa_node_pool, 0, 0);
	if (run->step % 16 == 0)
		must(!xa_check(&run->xa));
	if (run->step % 1024 == 0)
		compare_all(run);
	run->step++;
}

static unsigned long chain_length(const struct node_pool *pool, void *node)
{
	unsigned long n = 0;

	for (; node; node = *(void **)((char *)node + pool->link))
		n++;
	return n;
}

void run_end(struct run *run)
{
	struct node_pool *pool = &xa_node_pool;

	compare_all(run);
	must(!xa_check(&run->xa));
	xa_destroy(&run->xa);
	must(xa_empty(&run->xa));
	/* What lives still is on its way back. Not to wait for readers makes short runs fast. */
	xa_spin_lock(&pool->lock);
	must(pool->live == chain_length(pool, pool->pending) + chain_length(pool, pool->waiting));
	xa_spin_unlock(&pool->lock);
}
