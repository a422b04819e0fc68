/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The maple tree's cursor, one behaviour each; what a function does from each status is a table.
 */
#include "maple_fixture.h"

static void begin(void)
{
	pair_begin(&pair, MT_FLAGS_USE_RCU);
}

/* A store through the cursor, at its range, noted in the list. */
static void mas_put(struct ma_state *mas, void *entry)
{
	unsigned long first = mas->index, last = mas->last;

	cr_assert_eq(mas_store_gfp(mas, entry, GFP_KERNEL), 0);
	list_store(&pair.list, first, last, entry);
}

#define M ULONG_MAX

/*
 * From status to status. The tree holds 1 at 10 to 19, 2 at 20 to 29, 3 at 40 to 49; or its only
 * entry, 1, at index 0; or nothing.
 */

typedef void *(*call_t)(struct ma_state *mas, unsigned long limit);

static void *walk(struct ma_state *mas, unsigned long limit)
{
	return mas_walk(mas);
}

struct step {
	enum maple_status status;
	unsigned long at;
	const char *name;
	call_t call;
	unsigned long limit;
	unsigned long entry; /* 0: NULL */
	unsigned long first, last;
	enum maple_status after;
};

#define FROM(status, at, call, limit, entry, first, last, after)                                   \
	{ ma_##status, at, #status " at " #at ": " #call " " #limit, call, limit, entry,           \
	  first, last, ma_##after }

static const struct step steps[] = {
	FROM(start, 15, mas_next, M, 2, 20, 29, active),
	FROM(start, 15, mas_find, M, 1, 10, 19, active),
	FROM(start, 15, mas_find, 15, 1, 10, 19, active),
	FROM(start, 15, mas_find, 14, 0, 15, 15, start),
	FROM(start, 15, mas_find_range, M, 1, 10, 19, active),
	FROM(start, 15, mas_prev, 0, 0, 0, 9, underflow),
	FROM(start, 15, mas_find_rev, 0, 1, 10, 19, active),
	FROM(start, 15, mas_find_rev, 15, 1, 10, 19, active),
	FROM(start, 35, mas_next, M, 3, 40, 49, active),
	FROM(start, 35, mas_next, 40, 3, 40, 49, active),
	FROM(start, 35, mas_next, 39, 0, 30, 39, overflow),
	FROM(start, 35, mas_next_range, M, 3, 40, 49, active),
	FROM(start, 35, mas_find, M, 3, 40, 49, active),
	FROM(start, 35, mas_find, 39, 0, 30, 39, active),
	FROM(start, 35, mas_find_range, M, 3, 40, 49, active),
	FROM(start, 35, mas_prev, 0, 2, 20, 29, active),
	FROM(start, 35, mas_prev, 29, 2, 20, 29, active),
	FROM(start, 35, mas_prev, 30, 0, 30, 39, underflow),
	FROM(start, 35, mas_prev_range, 0, 2, 20, 29, active),
	FROM(start, 35, mas_find_rev, 0, 2, 20, 29, active),
	FROM(start, 35, mas_find_range_rev, 0, 2, 20, 29, active),
	FROM(start, 35, walk, 0, 0, 30, 39, active),
	FROM(start, 45, mas_next, M, 0, 50, M, overflow),
	FROM(start, 45, mas_next_range, M, 0, 50, M, active),
	FROM(start, M, mas_prev, 0, 3, 40, 49, active),
	FROM(start, M, mas_find, M, 0, 50, M, active),
	FROM(start, 0, mas_prev, 0, 0, 0, 0, underflow),
	FROM(start, 0, mas_find, M, 1, 10, 19, active),
	FROM(start, 0, mas_find_rev, 0, 0, 0, 9, underflow),

	FROM(active, 15, mas_next, M, 2, 20, 29, active),
	FROM(active, 15, mas_next, 20, 2, 20, 29, active),
	FROM(active, 15, mas_next, 19, 0, 10, 19, overflow),
	FROM(active, 15, mas_find, M, 2, 20, 29, active),
	FROM(active, 15, mas_find, 19, 0, 10, 19, active),
	FROM(active, 15, mas_prev, 0, 0, 0, 9, underflow),
	FROM(active, 15, mas_prev_range, 0, 0, 0, 9, active),
	FROM(active, 15, mas_prev, 10, 0, 10, 19, underflow),
	FROM(active, 25, mas_next, 35, 0, 30, 39, overflow),
	FROM(active, 25, mas_next_range, 35, 0, 30, 39, active),
	FROM(active, 25, mas_find, 35, 0, 30, 39, active),
	FROM(active, 25, mas_find, 40, 3, 40, 49, active),
	FROM(active, 25, mas_find_range, M, 0, 30, 39, active),
	FROM(active, 25, mas_prev, 0, 1, 10, 19, active),
	FROM(active, 25, mas_prev, 19, 1, 10, 19, active),
	FROM(active, 25, mas_find_rev, 0, 1, 10, 19, active),
	FROM(active, 25, mas_find_rev, 20, 0, 20, 29, underflow),
	FROM(active, 45, mas_find_range_rev, 0, 0, 30, 39, active),
	FROM(active, 25, walk, 0, 2, 20, 29, active),

	FROM(pause, 15, mas_next, M, 2, 20, 29, active),
	FROM(pause, 15, mas_find, M, 2, 20, 29, active),
	FROM(pause, 15, mas_prev, 0, 0, 0, 9, underflow),
	FROM(pause, 15, mas_find_rev, 0, 0, 0, 9, underflow),
	FROM(pause, 25, mas_find, M, 3, 40, 49, active),
	FROM(pause, 25, mas_find, 29, 0, 20, 29, pause),
	FROM(pause, 25, mas_find_rev, 0, 1, 10, 19, active),
	FROM(pause, 25, mas_find_rev, 20, 0, 20, 29, underflow),
	FROM(pause, 25, mas_prev, 0, 1, 10, 19, active),
	FROM(pause, 25, walk, 0, 2, 20, 29, active),

	FROM(overflow, 25, mas_next, M, 3, 40, 49, active),
	FROM(overflow, 25, mas_next, 29, 0, 20, 29, overflow),
	FROM(overflow, 25, mas_find, M, 3, 40, 49, active),
	FROM(overflow, 25, mas_prev, 0, 2, 20, 29, active),
	FROM(overflow, 35, mas_prev, 0, 2, 20, 29, active),
	FROM(overflow, 25, mas_find_rev, 0, 2, 20, 29, active),
	FROM(overflow, 25, walk, 0, 2, 20, 29, active),

	FROM(underflow, 25, mas_next, M, 2, 20, 29, active),
	FROM(underflow, 35, mas_next, M, 3, 40, 49, active),
	FROM(underflow, 25, mas_find, M, 2, 20, 29, active),
	FROM(underflow, 25, mas_prev, 0, 1, 10, 19, active),
	FROM(underflow, 25, mas_prev, 20, 0, 20, 29, underflow),
	FROM(underflow, 25, mas_find_rev, 0, 1, 10, 19, active),
	FROM(underflow, 25, walk, 0, 2, 20, 29, active),

	FROM(none, 15, mas_next, M, 2, 20, 29, active),
	FROM(none, 15, mas_find, M, 1, 10, 19, active),
	FROM(none, 15, mas_prev, 0, 0, 0, 9, underflow),
	FROM(none, 15, mas_find_rev, 0, 1, 10, 19, active),
	FROM(none, 15, walk, 0, 1, 10, 19, active),

	FROM(error, 15, mas_next, M, 0, 15, 15, error),
	FROM(error, 15, mas_next_range, M, 0, 15, 15, error),
	FROM(error, 15, mas_find, M, 0, 15, 15, error),
	FROM(error, 15, mas_find_range, M, 0, 15, 15, error),
	FROM(error, 15, mas_prev, 0, 0, 15, 15, error),
	FROM(error, 15, mas_prev_range, 0, 0, 15, 15, error),
	FROM(error, 15, mas_find_rev, 0, 0, 15, 15, error),
	FROM(error, 15, mas_find_range_rev, 0, 0, 15, 15, error),
};

static const struct step sole_steps[] = {
	FROM(start, 0, mas_next, M, 0, 1, M, none),
	FROM(start, 5, mas_next, M, 0, 1, M, none),
	FROM(start, 0, mas_find, M, 1, 0, 0, root),
	FROM(start, 5, mas_find, M, 0, 1, M, none),
	FROM(start, 0, mas_prev, 0, 0, 0, 0, underflow),
	FROM(start, 5, mas_prev, 0, 1, 0, 0, root),
	FROM(start, 0, mas_find_rev, 0, 1, 0, 0, root),
	FROM(start, 5, mas_find_rev, 0, 1, 0, 0, root),
	FROM(start, 0, walk, 0, 1, 0, 0, root),
	FROM(start, 5, walk, 0, 0, 1, M, none),
	FROM(root, 0, mas_next, M, 0, 1, M, none),
	FROM(root, 0, mas_find, M, 0, 1, M, none),
	FROM(root, 0, mas_prev, 0, 0, 0, 0, underflow),
	FROM(root, 0, mas_find_rev, 0, 0, 0, 0, none),
	FROM(pause, 0, mas_next, M, 0, 1, M, none),
	FROM(pause, 0, mas_find, M, 0, 1, M, none),
	FROM(none, 5, mas_next, M, 0, 1, M, none),
	FROM(none, 5, mas_prev, 0, 1, 0, 0, root),
};

static const struct step empty_steps[] = {
	FROM(start, 5, walk, 0, 0, 0, M, none),
	FROM(start, 5, mas_find, M, 0, 0, M, none),
	FROM(start, 5, mas_next, M, 0, 0, M, none),
	FROM(start, 5, mas_prev, 0, 0, 0, M, none),
	FROM(start, 5, mas_find_rev, 0, 0, 0, M, none),
	FROM(start, 5, mas_next_range, M, 0, 0, M, none),
	FROM(start, 5, mas_prev_range, 0, 0, 0, M, none),
};

/* Brings the cursor to the index, in the status. */
static void place(struct ma_state *mas, enum maple_status status, unsigned long index)
{
	mas_set(mas, index);
	if (status == ma_active || status == ma_pause || status == ma_root)
		mas_walk(mas);
	if (status == ma_pause)
		mas_pause(mas);
	if (status == ma_overflow) {
		mas_walk(mas);
		cr_assert_null(mas_next(mas, mas->last));
	}
	if (status == ma_underflow) {
		mas_walk(mas);
		cr_assert_null(mas_prev(mas, mas->index));
	}
	if (status == ma_none)
		mas->status = ma_none;
	if (status == ma_error)
		mas_set_err(mas, -EIO);
	cr_assert_eq(mas->status, status);
}

static void take_steps(const struct step *steps, unsigned int n)
{
	for (const struct step *step = steps; step < steps + n; step++) {
		void *expected = step->entry ? value(step->entry) : NULL;
		MA_STATE(mas, mt, 0, 0);
		void *entry;

		rcu_read_lock();
		place(&mas, step->status, step->at);
		entry = step->call(&mas, step->limit);
		rcu_read_unlock();
		cr_expect(entry == expected, "%s gives %p", step->name, entry);
		cr_expect(mas.index == step->first && mas.last == step->last, "%s: %lu to %lu",
			  step->name, mas.index, mas.last);
		cr_expect(mas.status == step->after, "%s: status %d", step->name, mas.status);
	}
}

#define TAKE(steps) take_steps(steps, sizeof(steps) / sizeof(steps[0]))

TestSuite(status, .init = begin, .fini = end, .timeout = 60);

Test(status, steps_in_a_tree_with_nodes)
{
	store(10, 19, value(1));
	store(20, 29, value(2));
	store(40, 49, value(3));
	TAKE(steps);
}

Test(status, steps_in_a_tree_of_the_entry_at_zero)
{
	store(0, 0, value(1));
	TAKE(sole_steps);
}

Test(status, steps_in_an_empty_tree)
{
	TAKE(empty_steps);
}

/* The limits' traps: turned around at a limit, the cursor gives the range there again. */
Test(status, turning_around_at_the_limits)
{
	MA_STATE(mas, mt, 0, 0);

	store(0, 9, value(1));
	store(M - 9, M, value(2));
	rcu_read_lock();
	cr_assert_eq(mas_find(&mas, M), value(1));
	cr_assert_null(mas_prev(&mas, 0));
	cr_assert_eq(mas.status, ma_underflow);
	cr_assert_eq(mas_next(&mas, M), value(1));
	cr_assert_eq(mas_next(&mas, M), value(2));
	cr_assert_null(mas_next(&mas, M));
	cr_assert_eq(mas.status, ma_overflow);
	cr_assert_eq(mas.last, M);
	cr_assert_eq(mas_prev(&mas, 0), value(2));
	cr_assert_eq(mas_prev(&mas, 0), value(1));
	rcu_read_unlock();
}

TestSuite(mas, .init = begin, .fini = end, .timeout = 60);

Test(mas, its_error_sticks)
{
	MA_STATE(mas, mt, 5, 9);

	mas_set_err(&mas, -EIO);
	cr_assert(mas_is_err(&mas));
	cr_assert_eq(xa_err(mas.node), -EIO);
	mas_lock(&mas);
	cr_assert_null(mas_store(&mas, value(1)));
	cr_assert_eq(xa_err(mas.node), -EIO);
	cr_assert_not(mas_nomem(&mas, GFP_KERNEL));
	mas_pause(&mas);
	cr_assert_eq(xa_err(mas.node), -EIO);
	cr_assert(mtree_empty(mt));
	mas_set_range(&mas, 5, 9);
	mas_put(&mas, value(1));
	mas_unlock(&mas);
}

Test(mas, init_makes_a_cursor_like_the_declared_one)
{
	MA_STATE(declared, mt, 7, 7);
	struct ma_state made;

	mas_init(&made, mt, 7);
	cr_assert_eq(made.tree, declared.tree);
	cr_assert_eq(made.index, declared.index);
	cr_assert_eq(made.last, declared.last);
	cr_assert_eq(made.status, ma_start);
	store(5, 9, value(1));
	rcu_read_lock();
	cr_assert_eq(mas_load(&made), value(1));
	rcu_read_unlock();
	cr_assert_eq(made.index, 5);
	cr_assert_eq(made.last, 9);
}

Test(mas, refuses_a_range_that_is_upside_down)
{
	MA_STATE(mas, mt, 9, 5);

	mas_lock(&mas);
	cr_assert_eq(mas_store_gfp(&mas, value(1), GFP_KERNEL), -EINVAL);
	mas_unlock(&mas);
	cr_assert(mtree_empty(mt));
}

Test(mas, store_returns_what_was_there)
{
	MA_STATE(mas, mt, 5, 9);

	store(5, 9, value(1));
	mas_lock(&mas);
	cr_assert_eq(mas_store(&mas, value(2)), value(1));
	mas_unlock(&mas);
	list_store(&pair.list, 5, 9, value(2));
}

Test(mas, store_without_memory_asks_by_nomem)
{
	MA_STATE(mas, mt, 5, 9);
	unsigned int attempts = 0;

	mt_node_pool.max_free = 0;
	mas_lock(&mas);
	do {
		attempts++;
		mas_store(&mas, value(1));
	} while (mas_nomem(&mas, GFP_KERNEL));
	mas_unlock(&mas);
	cr_assert_eq(attempts, 2);
	cr_assert_not(mas_is_err(&mas));
	mas_destroy(&mas);
	list_store(&pair.list, 5, 9, value(1));
}

Test(mas, nowait_gives_up_without_a_change)
{
	MA_STATE(mas, mt, 5, 9);

	mt_node_pool.max_free = 0;
	mas_lock(&mas);
	cr_assert_eq(mas_store_gfp(&mas, value(1), GFP_NOWAIT), -ENOMEM);
	mas_unlock(&mas);
	mas_destroy(&mas);
	cr_assert(mtree_empty(mt));
}

/* The dance with the lock dropped; each store needs the system once at most. */
Test(mas, the_nomem_dance_under_nowait)
{
	unsigned long danced = 0;

	mt_node_pool.max_free = 0;
	for (unsigned long i = 0; i < 500; i++) {
		unsigned int attempts = 0;
		MA_STATE(mas, mt, i * 7919 % 1000 * 10, i * 7919 % 1000 * 10 + i % 9);

		mas_lock(&mas);
		do {
			mas_store(&mas, value(i));
			cr_assert_leq(++attempts, 2);
			cr_assert_not(attempts == 1 && mas_nomem(&mas, GFP_NOWAIT));
		} while (mas_nomem(&mas, GFP_KERNEL));
		mas_unlock(&mas);
		cr_assert_not(mas_is_err(&mas));
		mas_destroy(&mas);
		danced += attempts - 1;
		list_store(&pair.list, mas.index, mas.last, value(i));
	}
	cr_assert_gt(danced, 100);
	pair_verify(&pair);
}

Test(mas, destroy_frees_what_nobody_used)
{
	MA_STATE(mas, mt, 5, 9);

	cr_assert_eq(mas_preallocate(&mas, value(1), GFP_KERNEL), 0);
	cr_assert_gt(live_nodes(), 0);
	mas_destroy(&mas);
	cr_assert_eq(live_nodes(), 0);
	cr_assert(mtree_empty(mt));
}

Test(mas, erase_takes_the_range_around_the_index)
{
	MA_STATE(mas, mt, 15, 15);

	store(10, 19, value(1));
	store(20, 29, value(2));
	mas_lock(&mas);
	cr_assert_eq(mas_erase(&mas), value(1));
	list_store(&pair.list, 10, 19, NULL);
	mas_set(&mas, 15);
	cr_assert_null(mas_erase(&mas));
	mas_unlock(&mas);
}

/* So does an erase that finds, with the nodes it got, that another was faster. */
Test(mas, erase_of_nothing_gives_back_the_nodes_ahead)
{
	MA_STATE(mas, mt, 15, 15);

	store(10, 19, value(1));
	mas_lock(&mas);
	cr_assert_eq(mas_preallocate(&mas, value(2), GFP_KERNEL), 0);
	cr_assert_not_null(mas.alloc);
	mas_set(&mas, 25);
	cr_assert_null(mas_erase(&mas));
	cr_assert_null(mas.alloc);
	mas_unlock(&mas);
}

Test(mas, erase_from_where_a_walk_is)
{
	MA_STATE(mas, mt, 0, 0);
	unsigned long n = 0;
	void *entry;

	pair_fill(&pair, 3, 200, 2, 1);
	mas_lock(&mas);
	mas_for_each(&mas, entry, M) {
		if (n++ % 3) {
			struct range range = { mas.index, mas.last, NULL };

			cr_assert_eq(mas_erase(&mas), entry);
			list_store(&pair.list, range.first, range.last, NULL);
		}
	}
	mas_unlock(&mas);
	cr_assert_eq(n, 200);
	cr_assert_eq(pair.list.n, 67);
}

Test(mas, a_walk_sees_what_is_stored_ahead_of_it)
{
	MA_STATE(mas, mt, 0, 0);
	unsigned long n = 0;
	void *entry;

	store(10, 19, value(0));
	mas_lock(&mas);
	mas_for_each(&mas, entry, M) {
		cr_assert_eq(entry, value(n));
		if (++n == 100)
			break;
		mas_set_range(&mas, 10 + n * 20, 19 + n * 20);
		mas_put(&mas, value(n));
		mas_set_range(&mas, 10 + n * 20, 10 + n * 20);
	}
	mas_unlock(&mas);
	cr_assert_eq(n, 100);
}

static void goes_over_all(unsigned long size, unsigned long gap, bool pauses)
{
	unsigned int n = 0;
	void *entry;
	MA_STATE(mas, mt, 0, 0);

	pair_fill(&pair, gap, 300, size, gap);
	rcu_read_lock();
	mas_for_each(&mas, entry, M) {
		cr_assert_eq(entry, pair.list.ranges[n++].entry);
		if (pauses)
			mas_pause(&mas);
	}
	cr_assert_eq(n, 300);
	mas_set(&mas, M);
	mas_for_each_rev(&mas, entry, 0) {
		cr_assert_eq(entry, pair.list.ranges[--n].entry);
		if (pauses)
			mas_pause(&mas);
	}
	cr_assert_eq(n, 0);
	rcu_read_unlock();
	store(0, M, NULL);
}

Test(mas, for_each_both_ways)
{
	goes_over_all(1, 0, false);
	goes_over_all(2, 1, false);
	goes_over_all(1, 0, true);
	goes_over_all(2, 1, true);
}

Test(mas, for_each_ends_at_the_last_index)
{
	unsigned int n = 0;
	void *entry;
	MA_STATE(mas, mt, 0, 0);

	store(0, 4, value(1));
	store(M, M, value(2));
	rcu_read_lock();
	mas_for_each(&mas, entry, M)
		n++;
	cr_assert_eq(n, 2);
	mas_set(&mas, M);
	mas_for_each_rev(&mas, entry, 0)
		n++;
	cr_assert_eq(n, 4);
	rcu_read_unlock();
}

Test(mas, ranges_of_null_are_seen_by_the_range_calls)
{
	MA_STATE(mas, mt, 0, 0);
	unsigned long next = 0;

	pair_fill(&pair, 1, 100, 2, 1);
	rcu_read_lock();
	mas_walk(&mas);
	while (next != M) {
		struct range around = list_around(&pair.list, next);

		cr_assert_eq(mas.index, around.first);
		cr_assert_eq(mas.last, around.last);
		next = around.last == M ? M : around.last + 1;
		cr_assert_eq(mas_next_range(&mas, M),
			     next == M ? NULL : list_around(&pair.list, next).entry);
	}
	cr_assert_eq(mas.status, ma_overflow);
	rcu_read_unlock();
}

/*
 * While a cursor stands, its node is replaced: it finds the way from the root.
 */

static void stands_while(void (*change)(void), unsigned long at, unsigned long next,
			 unsigned long prev)
{
	for (unsigned int up = 0; up < 2; up++) {
		MA_STATE(mas, mt, at, at);
		void *entry;

		pair_fill(&pair, 0, 100, 5, 5);
		rcu_read_lock();
		cr_assert_not_null(mas_walk(&mas));
		change();
		entry = up ? mas_next(&mas, M) : mas_prev(&mas, 0);
		cr_assert_eq(entry, value(up ? next : prev));
		rcu_read_unlock();
		store(0, M, NULL);
	}
}

static void change_range(void)
{
	store(500, 509, value(7));
}

static void change_neighbours(void)
{
	store(480, 498, NULL);
	store(510, 518, NULL);
}

static void change_all_around(void)
{
	store(0, 450, NULL);
	store(550, M, NULL);
}

static void change_nearly_all(void)
{
	store(0, M, value(8));
	store(0, 10, value(9));
	store(900, 990, value(10));
}

Test(mas, goes_on_from_a_node_that_is_dead)
{
	stands_while(change_range, 500, 510, 490);
	stands_while(change_neighbours, 500, 520, 470);
	stands_while(change_all_around, 500, 510, 490);
	stands_while(change_nearly_all, 500, 10, 9);
}

/* The trap: an append changes the leaf in place, also while a reader is in it. */
Test(mas, goes_on_after_an_append)
{
	MA_STATE(first, mt, 25, 25);
	MA_STATE(last, mt, 500, 500);

	store(0, M, value(0));
	store(50, M, value(1));
	rcu_read_lock();
	cr_assert_eq(mas_walk(&first), value(0));
	cr_assert_eq(mas_walk(&last), value(1));
	cr_assert_eq(last.last, M);
	for (unsigned long i = 2; i < 12; i++)
		store(i * 50, M, value(i));
	/* Its range went to the end, so there is nothing behind; turned around, it looks anew. */
	cr_assert_null(mas_next(&last, M));
	cr_assert_eq(mas_prev(&last, 0), value(1));
	cr_assert_eq(last.last, 99);
	for (unsigned long i = 1; i < 12; i++)
		cr_assert_eq(mas_next(&first, M), value(i));
	cr_assert_null(mas_next(&first, M));
	rcu_read_unlock();
}

Test(mas, a_pause_survives_any_change)
{
	MA_STATE(mas, mt, 500, 500);

	pair_fill(&pair, 0, 100, 5, 5);
	rcu_read_lock();
	cr_assert_eq(mas_walk(&mas), value(500));
	mas_pause(&mas);
	rcu_read_unlock();
	change_neighbours();
	node_pool_drain(&mt_node_pool);
	rcu_read_lock();
	cr_assert_eq(mas_find(&mas, M), value(520));
	mas_pause(&mas);
	rcu_read_unlock();
	store(0, M, NULL);
	store(0, 3, value(1));
	node_pool_drain(&mt_node_pool);
	rcu_read_lock();
	cr_assert_null(mas_find(&mas, M));
	mas_pause(&mas);
	cr_assert_eq(mas_find_rev(&mas, 0), value(1));
	rcu_read_unlock();
}

/*
 * Stores in order, of known number
 */

static void appends_ranges(unsigned long n, unsigned long gap)
{
	MA_STATE(mas, mt, 0, 0);

	mas_lock(&mas);
	cr_assert_eq(mas_expected_entries(&mas, n), 0);
	node_pool_fail(&mt_node_pool, 1, M);
	for (unsigned long i = 0; i < n; i++) {
		mas_set_range(&mas, i * 10, i * 10 + 9 - gap);
		mas_store(&mas, value(i));
		cr_assert_not(mas_is_err(&mas), "entry %lu of %lu", i, n);
		list_store(&pair.list, i * 10, i * 10 + 9 - gap, value(i));
	}
	node_pool_fail(&mt_node_pool, 0, 0);
	mas_destroy(&mas);
	mas_unlock(&mas);
	pair_verify(&pair);
	store(0, M, NULL);
	cr_assert_eq(live_nodes(), 0);
}

static void appends_many(unsigned int flags)
{
	const unsigned long sizes[] = { 1, 2, 6, 15, 16, 17, 33, 100, 1000, 4000 };

	pair_begin(&pair, flags);
	for (unsigned int s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		appends_ranges(sizes[s], 0);
		appends_ranges(sizes[s], 5);
	}
	pair_end(&pair);
}

Test(bulk, expected_entries_need_no_more_memory)
{
	appends_many(0);
}

Test(bulk, expected_entries_of_a_tree_with_gaps_need_no_more_memory)
{
	appends_many(MT_FLAGS_ALLOC_RANGE);
}
