/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Every operation of the XArray that allocates, with its first, second, third... allocation
 * failing: it says so, changes nothing, leaks nothing, and works when there is memory again.
 */
#include "model.h"
#include "node_alloc.h"
#include "xa_internal.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

static struct xarray xa;

static void prepare_nothing(void)
{
}

static void put(unsigned long index, unsigned int order)
{
	void *entry = xa_mk_value(index + order);

	cr_assert_eq(test_store_order(&xa, index, order, entry, GFP_KERNEL), 0);
}

static void prepare_head(void)
{
	put(0, 0);
	xa_set_mark(&xa, 0, XA_MARK_1);
}

static void prepare_small(void)
{
	put(1, 0);
	put(3, 0);
	xa_set_mark(&xa, 3, XA_MARK_2);
}

static void prepare_large(void)
{
	put(0, 0);
	put(512, 9);
	put(1UL << 20, 2 * XA_CHUNK_SHIFT - 1);
	put(ULONG_MAX, 0);
	xa_set_mark(&xa, 600, XA_MARK_1);
}

static int op_store_zero(gfp_t gfp)
{
	return xa_err(xa_store(&xa, 0, xa_mk_value(77), gfp));
}

static int op_store_near(gfp_t gfp)
{
	return xa_err(xa_store(&xa, 70, xa_mk_value(77), gfp));
}

static int op_store_far(gfp_t gfp)
{
	return xa_err(xa_store(&xa, 1UL << 50, xa_mk_value(77), gfp));
}

static int op_cmpxchg(gfp_t gfp)
{
	return xa_err(xa_cmpxchg(&xa, 1UL << 33, NULL, xa_mk_value(77), gfp));
}

static int op_insert(gfp_t gfp)
{
	return xa_insert(&xa, 1UL << 33, xa_mk_value(77), gfp);
}

static int op_reserve(gfp_t gfp)
{
	return xa_reserve(&xa, 1UL << 34, gfp);
}

static int op_store_range(gfp_t gfp)
{
	return xa_err(xa_store_range(&xa, 3, 1UL << 44, xa_mk_value(77), gfp));
}

static int op_store_order(gfp_t gfp)
{
	return test_store_order(&xa, 1UL << 35, 2, xa_mk_value(77), gfp);
}

static int op_create_range(gfp_t gfp)
{
	XA_STATE_ORDER(xas, &xa, 1UL << 12, XA_CHUNK_SHIFT + 3);

	do {
		xas_lock(&xas);
		xas_create_range(&xas);
		for (unsigned long i = 0; !xas_error(&xas) && i < XA_CHUNK_SIZE << 3; i++) {
			xas_set(&xas, (1UL << 12) + i);
			xas_store(&xas, xa_mk_value(77));
		}
		xas_unlock(&xas);
	} while (xas_nomem(&xas, gfp));
	return xas_error(&xas);
}

/* Splits the entry at 600, if the array has one. */
static int op_split(gfp_t gfp)
{
	unsigned int order = xa_get_order(&xa, 600);
	unsigned int smaller = order > XA_CHUNK_SHIFT ? order - XA_CHUNK_SHIFT : 0;
	XA_STATE_ORDER(xas, &xa, 600, smaller);

	xas_split_alloc(&xas, xa_mk_value(77), order, gfp);
	if (xas_error(&xas))
		return xas_error(&xas);
	xas_lock(&xas);
	xas_split(&xas, xa_mk_value(77), order);
	xas_unlock(&xas);
	xas_destroy(&xas);
	return 0;
}

struct scene {
	const char *name;
	void (*prepare)(void);
	int (*op)(gfp_t gfp);
};

#define SCENES(op)                                                                                 \
	{#op " nothing", prepare_nothing, op}, {#op " head", prepare_head, op},                    \
		{#op " small", prepare_small, op},                                                 \
	{                                                                                          \
#op " large", prepare_large, op                                                    \
	}

/* Tests get a number: criterion runs them in another process, where functions lie elsewhere. */
static const struct scene scenes[] = {
	SCENES(op_store_zero),	SCENES(op_store_near),	SCENES(op_store_far),
	SCENES(op_cmpxchg),	SCENES(op_insert),	SCENES(op_reserve),
	SCENES(op_store_order), SCENES(op_store_range), SCENES(op_create_range),
	SCENES(op_split),
};

static struct criterion_test_params all_scenes(void)
{
	static unsigned int numbers[sizeof(scenes) / sizeof(scenes[0])];
	unsigned int n = sizeof(scenes) / sizeof(scenes[0]);

	for (unsigned int i = 0; i < n; i++)
		numbers[i] = i;
	return cr_make_param_array(unsigned int, numbers, n);
}

/* All that can be seen of the array, in one number. */
static unsigned long fingerprint(void)
{
	unsigned long index, sum = 17;
	void *entry;

	xa_for_each(&xa, index, entry) {
		sum = sum * 1000003 + index;
		sum = sum * 1000003 + xa_to_value(entry);
		sum = sum * 1000003 + xa_get_order(&xa, index);
		for (xa_mark_t mark = 0; mark < XA_MAX_MARKS; mark++)
			sum = sum * 3 + xa_get_mark(&xa, index, mark);
	}
	return sum;
}

static unsigned long live_nodes(void)
{
	node_pool_drain(&xa_node_pool);
	return node_pool_live(&xa_node_pool);
}

/* @keep: free nodes that the pool may keep; without any, each store starts with a failure. */
static void sweep(const struct scene *scene, unsigned int keep)
{
	unsigned int failures = 0;
	int err = -ENOMEM;

	rcu_register_thread();
	xa_node_pool.max_free = keep;
	for (unsigned long nth = 1; err; nth++) {
		unsigned long before;

		xa_init(&xa);
		scene->prepare();
		before = fingerprint();
		node_pool_fail(&xa_node_pool, nth, ULONG_MAX);
		err = scene->op(GFP_KERNEL);
		node_pool_fail(&xa_node_pool, 0, 0);
		cr_assert_eq(xa_check(&xa), 0);
		if (err) {
			failures++;
			cr_assert_eq(err, -ENOMEM, "%s, allocation %lu: %d", scene->name, nth, err);
			cr_assert_eq(fingerprint(), before, "%s, allocation %lu", scene->name, nth);
			cr_assert_eq(scene->op(GFP_KERNEL), 0);
			cr_assert_eq(xa_check(&xa), 0);
		}
		xa_destroy(&xa);
		cr_assert_lt(nth, 10000, "%s never succeeds", scene->name);
	}
	cr_assert_eq(live_nodes(), 0);
	if (scene->op == op_store_far)
		cr_assert_gt(failures, 0);
}

ParameterizedTestParameters(enomem, failing_allocations_change_nothing)
{
	return all_scenes();
}

ParameterizedTest(unsigned int *number, enomem, failing_allocations_change_nothing)
{
	sweep(&scenes[*number], NODE_POOL_MAX_FREE);
	sweep(&scenes[*number], 0);
}

ParameterizedTestParameters(enomem, nowait_never_asks_the_system)
{
	return all_scenes();
}

ParameterizedTest(unsigned int *number, enomem, nowait_never_asks_the_system)
{
	const struct scene *scene = &scenes[*number];
	unsigned long before, nodes;
	int err;

	rcu_register_thread();
	xa_node_pool.max_free = 0;
	xa_init(&xa);
	scene->prepare();
	before = fingerprint();
	nodes = live_nodes();
	err = scene->op(GFP_NOWAIT);
	if (err) {
		cr_assert_eq(err, -ENOMEM);
		cr_assert_eq(fingerprint(), before);
	}
	cr_assert_leq(live_nodes(), nodes);
	cr_assert_eq(xa_check(&xa), 0);
	xa_destroy(&xa);
	cr_assert_eq(live_nodes(), 0);
}

Test(enomem, allocating_an_index_can_fail_and_takes_none)
{
	uint32_t id, next = 0;
	DEFINE_XARRAY_ALLOC(ids);

	rcu_register_thread();
	for (unsigned int i = 0; i < 2 * XA_CHUNK_SIZE; i++) {
		xa_node_pool.max_free = 0;
		node_pool_fail(&xa_node_pool, 1, ULONG_MAX);
		if (xa_alloc_cyclic(&ids, &id, NULL, xa_limit_32b, &next, GFP_KERNEL)) {
			cr_assert_eq(next, i);
			cr_assert_eq(xa_check(&ids), 0);
			node_pool_fail(&xa_node_pool, 0, 0);
			cr_assert_eq(xa_alloc(&ids, &id, NULL, xa_limit_32b, GFP_KERNEL), 0);
			next = id + 1;
		}
		cr_assert_eq(id, i);
	}
	node_pool_fail(&xa_node_pool, 0, 0);
	xa_destroy(&ids);
	cr_assert_eq(live_nodes(), 0);
}
