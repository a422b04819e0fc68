/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The advanced API of the XArray: the cursor, one behaviour each.
 */
#include "model.h"
#include "node_alloc.h"
#include "xa_internal.h"

#include <criterion/criterion.h>

#define N(x) ((x)*XA_CHUNK_SIZE)

static struct xarray xa;

static void begin(void)
{
	rcu_register_thread();
	xa_init(&xa);
}

static void end(void)
{
	node_pool_fail(&xa_node_pool, 0, 0);
	cr_assert_eq(xa_check(&xa), 0);
	xa_destroy(&xa);
	node_pool_drain(&xa_node_pool);
	cr_assert_eq(node_pool_live(&xa_node_pool), 0);
}

static void *value(unsigned long v)
{
	return xa_mk_value(v);
}

static void store_order(unsigned long index, unsigned int order, void *entry)
{
	cr_assert_eq(test_store_order(&xa, index, order, entry, GFP_KERNEL), 0);
}

static void store(unsigned long index, void *entry)
{
	store_order(index, 0, entry);
}

TestSuite(cursor, .init = begin, .fini = end);

Test(cursor, knows_where_it_is)
{
	XA_STATE(xas, &xa, 5);

	cr_assert(xas_invalid(&xas));
	cr_assert_null(xas_load(&xas));
	cr_assert_eq(xas.xa_node, XAS_BOUNDS);
	store(0, value(1));
	xas_set(&xas, 0);
	cr_assert_eq(xas_load(&xas), value(1));
	cr_assert(xas_valid(&xas));
	cr_assert_not(xas_is_node(&xas), "a sole entry is in the head");
	store(5, value(2));
	xas_set(&xas, 5);
	cr_assert_eq(xas_load(&xas), value(2));
	cr_assert(xas_is_node(&xas));
	cr_assert_eq(xas.xa_offset, 5);
	xas_reset(&xas);
	cr_assert_eq(xas.xa_node, XAS_RESTART);
	cr_assert_eq(xas.xa_index, 5);
}

Test(cursor, its_error_sticks)
{
	XA_STATE(xas, &xa, 0);

	store(0, value(1));
	xas_set_err(&xas, -EIO);
	cr_assert_eq(xas_error(&xas), -EIO);
	cr_assert_null(xas_load(&xas));
	cr_assert_null(xas_find(&xas, ULONG_MAX));
	cr_assert_null(xas_find_marked(&xas, ULONG_MAX, XA_MARK_0));
	cr_assert_null(xas_find_conflict(&xas));
	cr_assert_null(xas_next(&xas));
	cr_assert_null(xas_prev(&xas));
	cr_assert_eq(xas.xa_index, 0);
	xas_pause(&xas);
	xas_lock(&xas);
	cr_assert_null(xas_store(&xas, value(2)));
	xas_create_range(&xas);
	xas_unlock(&xas);
	cr_assert_eq(xas_error(&xas), -EIO);
	cr_assert_not(xas_nomem(&xas, GFP_KERNEL));
	cr_assert_eq(xas_error(&xas), -EIO);
	xas_reset(&xas);
	cr_assert_eq(xas_load(&xas), value(1));
}

Test(cursor, nomem_allocates_what_the_store_lacks)
{
	XA_STATE(xas, &xa, ULONG_MAX);
	unsigned int attempts = 0;

	xa_node_pool.max_free = 0;
	do {
		attempts++;
		xas_lock(&xas);
		xas_store(&xas, value(1));
		xas_unlock(&xas);
	} while (xas_nomem(&xas, GFP_KERNEL));
	cr_assert_eq(attempts, 2);
	cr_assert_null(xas.xa_alloc);
	cr_assert_eq(xa_load(&xa, ULONG_MAX), value(1));
}

Test(cursor, create_range_of_index_zero_alone_needs_no_node)
{
	XA_STATE(xas, &xa, 0);

	xas_lock(&xas);
	xas_create_range(&xas);
	xas_store(&xas, value(1));
	xas_unlock(&xas);
	cr_assert_eq(xas_error(&xas), 0);
	cr_assert_eq(xa.xa_head, value(1));
}

Test(cursor, destroy_frees_what_nobody_used)
{
	XA_STATE(xas, &xa, 1);

	xas_set_err(&xas, -ENOMEM);
	cr_assert(xas_nomem(&xas, GFP_KERNEL));
	cr_assert_eq(node_pool_live(&xa_node_pool), 1);
	xas_destroy(&xas);
	cr_assert_eq(node_pool_live(&xa_node_pool), 0);
}

Test(cursor, retry_restarts_and_zero_is_passed_over)
{
	XA_STATE(xas, &xa, 1);

	store(1, value(1));
	xas_load(&xas);
	cr_assert_not(xas_retry(&xas, value(1)));
	cr_assert_not(xas_retry(&xas, NULL));
	cr_assert(xas_is_node(&xas));
	cr_assert(xas_retry(&xas, XA_ZERO_ENTRY));
	cr_assert(xas_is_node(&xas));
	cr_assert(xas_retry(&xas, XA_RETRY_ENTRY));
	cr_assert_eq(xas.xa_node, XAS_RESTART);
}

Test(cursor, a_reader_in_a_freed_node_is_told_to_retry)
{
	XA_STATE(xas, &xa, N(1));

	store(N(1), value(1));
	store(N(1) + 1, value(2));
	rcu_read_lock();
	cr_assert_eq(xas_load(&xas), value(1));
	store_order(N(1), XA_CHUNK_SHIFT, value(3));
	cr_assert(xa_is_retry(xas_reload(&xas)));
	cr_assert(xas_retry(&xas, xas_next(&xas)));
	cr_assert_eq(xas_load(&xas), value(3));
	rcu_read_unlock();
}

Test(cursor, reload_sees_what_is_there_now)
{
	XA_STATE(xas, &xa, 9);

	store_order(8, 2, value(1));
	rcu_read_lock();
	cr_assert_eq(xas_load(&xas), value(1));
	cr_assert_eq(xas_reload(&xas), value(1));
	xa_store(&xa, 8, value(2), GFP_KERNEL);
	cr_assert_eq(xas_reload(&xas), value(2));
	rcu_read_unlock();
}

TestSuite(step, .init = begin, .fini = end);

Test(step, after_a_reset_the_first_step_stays)
{
	XA_STATE(xas, &xa, 10);

	store(10, value(1));
	cr_assert_eq(xas_next(&xas), value(1));
	cr_assert_eq(xas.xa_index, 10);
	xas_reset(&xas);
	cr_assert_eq(xas_prev(&xas), value(1));
	cr_assert_eq(xas.xa_index, 10);
	cr_assert_null(xas_next(&xas));
	cr_assert_eq(xas.xa_index, 11);
}

Test(step, crosses_nodes_and_holes)
{
	XA_STATE(xas, &xa, 0);

	store(N(1), value(1));
	store(N(20), value(2));
	for (unsigned long i = 0; i <= N(21); i++) {
		void *expected = i == N(1) ? value(1) : i == N(20) ? value(2) : NULL;

		cr_assert_eq(xas_next(&xas), expected);
		cr_assert_eq(xas.xa_index, i);
	}
	for (unsigned long i = N(21); i-- > 0;) {
		void *expected = i == N(1) ? value(1) : i == N(20) ? value(2) : NULL;

		cr_assert_eq(xas_prev(&xas), expected);
		cr_assert_eq(xas.xa_index, i);
	}
}

Test(step, wraps_at_both_ends)
{
	XA_STATE(xas, &xa, ULONG_MAX);

	store(0, value(1));
	store(ULONG_MAX, value(2));
	cr_assert_eq(xas_next(&xas), value(2));
	cr_assert_eq(xas_next(&xas), value(1));
	cr_assert_eq(xas.xa_index, 0);
	cr_assert_eq(xas_prev(&xas), value(2));
	cr_assert_eq(xas.xa_index, ULONG_MAX);
}

Test(step, wraps_in_a_small_tree_as_well)
{
	XA_STATE(xas, &xa, 0);

	store(0, value(1));
	cr_assert_eq(xas_next(&xas), value(1));
	cr_assert_null(xas_prev(&xas));
	cr_assert_eq(xas.xa_index, ULONG_MAX);
	cr_assert_eq(xas_next(&xas), value(1));
	cr_assert_eq(xas.xa_index, 0);
}

Test(step, advance_moves_within_the_node)
{
	XA_STATE(xas, &xa, 1);

	store_order(0, 2, value(1));
	store(4, value(2));
	cr_assert_eq(xas_load(&xas), value(1));
	xas_advance(&xas, 3);
	cr_assert_eq(xas_next(&xas), value(2));
	cr_assert_eq(xas.xa_index, 4);
}

TestSuite(walk, .init = begin, .fini = end);

Test(walk, goes_on_behind_its_maximum)
{
	XA_STATE(xas, &xa, 0);

	store(5, value(1));
	store(11, value(2));
	rcu_read_lock();
	cr_assert_eq(xas_find(&xas, 10), value(1));
	cr_assert_null(xas_find(&xas, 10));
	cr_assert_eq(xas_find(&xas, 20), value(2));
	cr_assert_null(xas_find(&xas, ULONG_MAX));
	rcu_read_unlock();
}

Test(walk, pause_skips_nothing_at_any_order)
{
	for (unsigned int order = 0; order < 2 * XA_CHUNK_SHIFT; order++) {
		unsigned long size = 1UL << order;
		XA_STATE(xas, &xa, size + size / 2); /* begins in the middle of an entry */
		unsigned long i = 1;
		void *entry;

		for (unsigned long j = 1; j < 6; j++)
			store_order(j * size, order, value(j));
		rcu_read_lock();
		xas_for_each(&xas, entry, ULONG_MAX) {
			cr_assert_eq(entry, value(i++), "order %u", order);
			xas_pause(&xas);
			rcu_read_unlock();
			rcu_read_lock();
		}
		rcu_read_unlock();
		cr_assert_eq(i, 6);
		xa_destroy(&xa);
	}
}

Test(walk, pause_at_the_last_index_ends_it)
{
	XA_STATE(xas, &xa, 3);

	store(ULONG_MAX, value(1));
	store(0, value(2));
	rcu_read_lock();
	cr_assert_eq(xas_find(&xas, ULONG_MAX), value(1));
	xas_pause(&xas);
	cr_assert_null(xas_find(&xas, ULONG_MAX));
	rcu_read_unlock();
}

Test(walk, the_body_may_erase_through_the_cursor)
{
	XA_STATE(xas, &xa, 0);
	unsigned long n = 0;
	void *entry;

	for (unsigned long i = 0; i < N(3); i += 2)
		store(i, value(i));
	xas_lock(&xas);
	xas_for_each(&xas, entry, ULONG_MAX) {
		cr_assert_eq(entry, value(n));
		xas_store(&xas, NULL);
		n += 2;
	}
	xas_unlock(&xas);
	cr_assert_eq(n, N(3));
	cr_assert(xa_empty(&xa));
}

Test(walk, marked_ones_lose_their_mark_on_the_way)
{
	XA_STATE(xas, &xa, 0);
	unsigned long n = 0;
	void *entry;

	for (unsigned long i = 0; i < N(3); i++) {
		store(i, value(i));
		if (i % 5 == 0)
			xa_set_mark(&xa, i, XA_MARK_0);
	}
	xas_lock(&xas);
	xas_for_each_marked(&xas, entry, ULONG_MAX, XA_MARK_0) {
		cr_assert_eq(entry, value(n));
		cr_assert(xas_get_mark(&xas, XA_MARK_0));
		xas_clear_mark(&xas, XA_MARK_0);
		xas_set_mark(&xas, XA_MARK_2);
		n += 5;
	}
	xas_unlock(&xas);
	cr_assert_geq(n, N(3));
	cr_assert_not(xa_marked(&xa, XA_MARK_0));
	cr_assert(xa_get_mark(&xa, 5, XA_MARK_2));
}

TestSuite(conflict, .init = begin, .fini = end);

Test(conflict, finds_each_entry_of_the_range_once)
{
	XA_STATE_ORDER(xas, &xa, N(2), XA_CHUNK_SHIFT + 1);
	unsigned int n = 0;
	void *entry;

	store(N(2) - 1, value(99));
	store(N(2) + 1, value(0));
	store_order(N(2) + 4, 2, value(1));
	store_order(N(3), XA_CHUNK_SHIFT, value(2));
	store(N(4), value(99));
	xas_lock(&xas);
	xas_for_each_conflict(&xas, entry)
		cr_assert_eq(entry, value(n++));
	cr_assert_eq(n, 3);
	xas_store(&xas, value(7));
	xas_unlock(&xas);
	cr_assert_eq(xas_error(&xas), 0);
	cr_assert_eq(xa_load(&xa, N(4) - 1), value(7));
	cr_assert_eq(xa_load(&xa, N(4)), value(99));
	cr_assert_eq(xa_load(&xa, N(2) - 1), value(99));
}

Test(conflict, a_larger_entry_is_the_only_one)
{
	XA_STATE_ORDER(xas, &xa, 4, 1);
	unsigned int n = 0;
	void *entry;

	store_order(0, 4, value(1));
	store(16, value(2));
	xas_lock(&xas);
	xas_for_each_conflict(&xas, entry) {
		cr_assert_eq(entry, value(1));
		cr_assert_eq(xas_get_order(&xas), 4);
		n++;
	}
	xas_unlock(&xas);
	cr_assert_eq(n, 1);
}

Test(conflict, the_range_may_exceed_the_tree)
{
	XA_STATE_ORDER(xas, &xa, 0, 3 * XA_CHUNK_SHIFT);
	unsigned int n = 0;
	void *entry;

	store(0, value(1));
	store(2, value(2));
	xas_lock(&xas);
	xas_for_each_conflict(&xas, entry)
		n++;
	xas_unlock(&xas);
	cr_assert_eq(n, 2);
}

TestSuite(split, .init = begin, .fini = end);

static void split(unsigned long index, unsigned int order, unsigned int into)
{
	XA_STATE_ORDER(xas, &xa, index, into);

	xas_split_alloc(&xas, value(2), order, GFP_KERNEL);
	cr_assert_eq(xas_error(&xas), 0);
	xas_lock(&xas);
	xas_split(&xas, value(2), order);
	xas_unlock(&xas);
	cr_assert_null(xas.xa_alloc);
}

Test(split, from_each_order_into_each_smaller_one)
{
	for (unsigned int order = 1; order < 2 * XA_CHUNK_SHIFT + 2; order++) {
		unsigned int level = order / XA_CHUNK_SHIFT;
		unsigned int lowest = level ? (level - 1) * XA_CHUNK_SHIFT : 0;

		for (unsigned int into = lowest; into <= order; into++) {
			unsigned long first = 3UL << order;

			store_order(first, order, value(1));
			xa_set_mark(&xa, first, XA_MARK_1);
			split(first + 1, order, into);
			cr_assert_eq(xa_check(&xa), 0);
			for (unsigned long i = 0; i < 1UL << order; i++) {
				cr_assert_eq(xa_load(&xa, first + i), value(2));
				cr_assert_eq(xa_get_order(&xa, first + i), (int)into);
				cr_assert(xa_get_mark(&xa, first + i, XA_MARK_1));
			}
			cr_assert_null(xa_load(&xa, first - 1));
			cr_assert_null(xa_load(&xa, first + (1UL << order)));
			xa_destroy(&xa);
		}
	}
}

/* The order of what is left around @at of an entry of @order that was carved there. */
static int left_order(unsigned long first, unsigned long at, unsigned int order, unsigned int into)
{
	unsigned int level = order - order % XA_CHUNK_SHIFT;

	if (into >= level || first >> level == at >> level)
		return into;
	return level;
}

Test(split, carving_from_each_order_takes_one_node)
{
	for (unsigned int order = 1; order < 2 * XA_CHUNK_SHIFT; order++) {
		for (unsigned int into = 0; into < order; into++) {
			unsigned long first = 3UL << order, at = first + (5UL << order >> 3);
			XA_STATE_ORDER(xas, &xa, at, into);

			store_order(first, order, value(1));
			xa_set_mark(&xa, first, XA_MARK_1);
			xas_carve_alloc(&xas, order, GFP_KERNEL);
			cr_assert_eq(!!xas.xa_alloc,
				     into / XA_CHUNK_SHIFT != order / XA_CHUNK_SHIFT);
			cr_assert(!xas.xa_alloc || !xas.xa_alloc->parent);
			xas_lock(&xas);
			xas_carve(&xas, value(2), order);
			xas_unlock(&xas);
			cr_assert_null(xas.xa_alloc);
			cr_assert_eq(xas_error(&xas), 0);
			cr_assert_eq(xa_check(&xa), 0);
			for (unsigned long i = first; i < first + (1UL << order); i++) {
				cr_assert_eq(xa_load(&xa, i), value(2));
				cr_assert_eq(xa_get_order(&xa, i), left_order(i, at, order, into));
				cr_assert(xa_get_mark(&xa, i, XA_MARK_1));
			}
			cr_assert_null(xa_load(&xa, first - 1));
			cr_assert_null(xa_load(&xa, first + (1UL << order)));
			xa_destroy(&xa);
		}
	}
}

Test(split, distance_from_the_start_of_an_entry)
{
	for (unsigned int order = 0; order < 2 * XA_CHUNK_SHIFT; order++) {
		unsigned long first = 3UL << order;

		store_order(first, order, value(1));
		for (unsigned long i = 0; i < 1UL << order; i++) {
			XA_STATE(xas, &xa, first + i);

			rcu_read_lock();
			cr_assert_eq(xas_load(&xas), value(1));
			cr_assert_eq(xas_distance(&xas), i);
			rcu_read_unlock();
		}
		xa_destroy(&xa);
	}
}

Test(split, a_top_node_with_nothing_but_what_was_split_goes)
{
	store_order(0, XA_CHUNK_SHIFT, value(1));
	cr_assert_eq(xa_to_node(xa.xa_head)->shift, XA_CHUNK_SHIFT);
	split(0, XA_CHUNK_SHIFT, 0);
	cr_assert_eq(xa_to_node(xa.xa_head)->shift, 0);
	cr_assert_eq(xa_load(&xa, XA_CHUNK_MASK), value(2));
	cr_assert_null(xa_load(&xa, XA_CHUNK_SIZE));
}

Test(split, two_levels_down_is_refused)
{
	XA_STATE(xas, &xa, 0);

	xas_split_alloc(&xas, value(1), 2 * XA_CHUNK_SHIFT, GFP_KERNEL);
	cr_assert_eq(xas_error(&xas), -EINVAL);
	cr_assert_null(xas.xa_alloc);
}

Test(split, stops_at_the_first_failure_and_keeps_nothing)
{
	XA_STATE(xas, &xa, 0);

	node_pool_fail(&xa_node_pool, 2, 1);
	xas_split_alloc(&xas, value(1), XA_CHUNK_SHIFT + 2, GFP_KERNEL);
	cr_assert_eq(xas_error(&xas), -ENOMEM);
	cr_assert_null(xas.xa_alloc);
	cr_assert_eq(node_pool_live(&xa_node_pool), 0);
}

Test(split, an_order_that_has_changed_is_refused)
{
	XA_STATE(xas, &xa, 0);

	store_order(0, XA_CHUNK_SHIFT - 1, value(1));
	store_order(XA_CHUNK_SIZE / 2, 0, value(3));
	xas_split_alloc(&xas, value(2), XA_CHUNK_SHIFT, GFP_KERNEL);
	xas_lock(&xas);
	xas_split(&xas, value(2), XA_CHUNK_SHIFT);
	xas_unlock(&xas);
	cr_assert_eq(xas_error(&xas), -EINVAL);
	xas_destroy(&xas);
	cr_assert_eq(xa_load(&xa, 1), value(1));
	cr_assert_eq(xa_load(&xa, XA_CHUNK_SIZE / 2), value(3));
}

Test(split, nothing_to_split_is_refused)
{
	XA_STATE(xas, &xa, 0);

	xas_split_alloc(&xas, value(1), XA_CHUNK_SHIFT, GFP_KERNEL);
	xas_lock(&xas);
	xas_split(&xas, value(1), XA_CHUNK_SHIFT);
	xas_unlock(&xas);
	cr_assert_eq(xas_error(&xas), -EINVAL);
	xas_destroy(&xas);
	cr_assert(xa_empty(&xa));
}

/* The update callback: a list of the nodes that hold values only. */

static LIST_HEAD(values_only);
static unsigned int updates;

static void track_values(struct xa_node *node)
{
	updates++;
	list_del_init(&node->private_list);
	if (node->count && node->count == node->nr_values)
		list_add(&node->private_list, &values_only);
}

static void store_tracked(unsigned long index, unsigned int order, void *entry)
{
	XA_STATE_ORDER(xas, &xa, index, order);

	xas_set_update(&xas, track_values);
	do {
		xas_lock(&xas);
		xas_store(&xas, entry);
		xas_unlock(&xas);
	} while (xas_nomem(&xas, GFP_KERNEL));
}

TestSuite(update, .init = begin, .fini = end);

Test(update, sees_nodes_become_and_cease_to_be_of_values)
{
	int object;

	store_tracked(N(1), 0, value(1));
	cr_assert_not(list_empty(&values_only));
	store_tracked(N(1) + 1, 0, &object);
	cr_assert(list_empty(&values_only));
	store_tracked(N(1) + 1, 0, value(2));
	cr_assert_not(list_empty(&values_only));
	store_tracked(N(1), 0, NULL);
	store_tracked(N(1) + 1, 0, NULL);
	cr_assert(list_empty(&values_only));
	cr_assert(xa_empty(&xa));
}

Test(update, counts_siblings_and_freed_nodes)
{
	int object;

	store_tracked(4, 2, value(1));
	cr_assert_not(list_empty(&values_only));
	store_tracked(5, 0, &object);
	cr_assert(list_empty(&values_only));
	store_tracked(5, 0, value(2));
	cr_assert_not(list_empty(&values_only));
	store_tracked(0, XA_CHUNK_SHIFT, &object);
	cr_assert(list_empty(&values_only), "the node of values is freed");
}

static void delete_listed(void)
{
	struct xa_node *node = list_first_entry(&values_only, struct xa_node, private_list);

	xa_lock(&xa);
	xa_delete_node(node, track_values);
	xa_unlock(&xa);
}

Test(update, a_node_is_deleted_with_its_parents)
{
	int object;

	for (unsigned long i = 0; i < XA_CHUNK_SIZE; i++)
		store_tracked(N(N(1)) + i, 0, value(i));
	store_tracked(3, 0, &object);
	xa_set_mark(&xa, N(N(1)) + 1, XA_MARK_1);
	delete_listed();
	cr_assert(list_empty(&values_only));
	cr_assert_null(xa_load(&xa, N(N(1))));
	cr_assert_null(xa_load(&xa, N(N(1)) + 1));
	cr_assert_eq(xa_load(&xa, 3), &object);
	cr_assert_not(xa_marked(&xa, XA_MARK_1));
	cr_assert_eq(xa_check(&xa), 0);
	store_tracked(3, 0, NULL);
	cr_assert(xa_empty(&xa));
}

Test(update, the_top_node_is_deleted)
{
	store_tracked(1, 0, value(1));
	store_tracked(2, 0, value(2));
	delete_listed();
	cr_assert(list_empty(&values_only));
	cr_assert(xa_empty(&xa));
	cr_assert_eq(xa_check(&xa), 0);
}

Test(update, sees_the_nodes_of_a_split)
{
	XA_STATE(xas, &xa, 0);

	store_tracked(0, XA_CHUNK_SHIFT, value(1));
	updates = 0;
	xas_set_update(&xas, track_values);
	xas_split_alloc(&xas, value(1), XA_CHUNK_SHIFT, GFP_KERNEL);
	xas_lock(&xas);
	xas_split(&xas, value(1), XA_CHUNK_SHIFT);
	xas_unlock(&xas);
	/* The new node; the old one; and that the old one goes, as the new one is the top now. */
	cr_assert_eq(updates, 3);
	cr_assert_not(list_empty(&values_only));
	for (unsigned long i = 0; i < XA_CHUNK_SIZE; i++)
		store_tracked(i, 0, NULL);
	cr_assert(list_empty(&values_only));
}
