/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Every operation of the maple tree that allocates, with its first, second, third... allocation
 * failing: it says so, changes nothing, leaks nothing, and works when there is memory again.
 */
#include "maple_pair.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#define M ULONG_MAX

static struct pair pair;
static struct maple_tree *const mt = &pair.mt;

/*
 * Trees
 */

static void prepare_nothing(void)
{
}

static void prepare_head(void)
{
	pair_store(&pair, 0, 0, xa_mk_value(5));
}

static void prepare_leaf(void)
{
	pair_fill(&pair, 0, 5, 10, 2);
}

/* A leaf that is full. */
static void prepare_full(void)
{
	pair_fill(&pair, 0, 15, 10, 0);
}

static void prepare_large(void)
{
	pair_fill(&pair, 0, 400, 9, 1);
}

static void prepare_thin(void)
{
	pair_fill(&pair, 0, 300, 9, 1);
	pair_thin(&pair);
}

/*
 * Operations. Return: 0 or a negative errno; what they did is in the list then.
 */

static void *const entry = (void *)4096;

static int stored(int err, unsigned long first, unsigned long last, void *what)
{
	if (!err)
		list_store(&pair.list, first, last, what);
	return err;
}

static int store(unsigned long first, unsigned long last, void *what, gfp_t gfp)
{
	return stored(mtree_store_range(mt, first, last, what, gfp), first, last, what);
}

static int op_store_middle(gfp_t gfp)
{
	return store(52, 54, entry, gfp);
}

static int op_store_zero(gfp_t gfp)
{
	return store(0, 0, entry, gfp);
}

static int op_store_end(gfp_t gfp)
{
	return store(M - 5, M, entry, gfp);
}

static int op_store_over_many(gfp_t gfp)
{
	return store(25, 3017, entry, gfp);
}

static int op_store_all(gfp_t gfp)
{
	return store(0, M, entry, gfp);
}

static int op_store_null(gfp_t gfp)
{
	return store(11, 12, NULL, gfp);
}

static int op_store_null_over_many(gfp_t gfp)
{
	return store(11, 2012, NULL, gfp);
}

static int op_insert(gfp_t gfp)
{
	unsigned long at = 1UL << 40;

	return stored(mtree_insert_range(mt, at, at + 9, entry, gfp), at, at + 9, entry);
}

static int op_mas_store_gfp(gfp_t gfp)
{
	MA_STATE(mas, mt, 33, 34);
	int err;

	mas_lock(&mas);
	err = mas_store_gfp(&mas, entry, gfp);
	mas_unlock(&mas);
	mas_destroy(&mas);
	return stored(err, 33, 34, entry);
}

static int op_preallocate(gfp_t gfp)
{
	MA_STATE(mas, mt, 25, 3017);
	int err;

	mas_lock(&mas);
	err = mas_preallocate(&mas, entry, gfp);
	if (!err) {
		mas_set_range(&mas, 13, 3017);
		err = mas_preallocate(&mas, entry, gfp);
	}
	if (!err)
		mas_store_prealloc(&mas, entry);
	cr_assert_null(mas.alloc);
	mas_unlock(&mas);
	return stored(err, 13, 3017, entry);
}

/* Goes with GFP_KERNEL always, as the API has it. */
static int op_erase(gfp_t gfp)
{
	MA_STATE(mas, mt, 11, 11);
	struct range around = list_around(&pair.list, 11);
	void *old;
	int err;

	if (gfp == GFP_NOWAIT)
		return 0;
	mas_lock(&mas);
	old = mas_erase(&mas);
	mas_unlock(&mas);
	err = mas_is_err(&mas) ? xa_err(mas.node) : 0;
	mas_destroy(&mas);
	cr_assert_eq(old, err ? NULL : around.entry);
	return stored(err, around.first, around.last, NULL);
}

static int op_mtree_erase(gfp_t gfp)
{
	struct range around = list_around(&pair.list, 25);
	void *old;

	if (!around.entry || gfp == GFP_NOWAIT)
		return 0;
	old = mtree_erase(mt, 25);
	if (!old)
		return -ENOMEM;
	cr_assert_eq(old, around.entry);
	return stored(0, around.first, around.last, NULL);
}

static int op_alloc(gfp_t gfp)
{
	unsigned long at = 7;
	int err;

	if (!(mt_flags(mt) & MT_FLAGS_ALLOC_RANGE))
		return 0;
	err = mtree_alloc_range(mt, &at, entry, 3, 2, M - 9, gfp);
	return stored(err, at, at + 2, entry);
}

static int op_alloc_down(gfp_t gfp)
{
	unsigned long at = 7;
	int err;

	if (!(mt_flags(mt) & MT_FLAGS_ALLOC_RANGE))
		return 0;
	err = mtree_alloc_rrange(mt, &at, entry, 1, 2, M - 9, gfp);
	return stored(err, at, at, entry);
}

static int op_alloc_cyclic(gfp_t gfp)
{
	unsigned long at = 7, next = 35;
	int err;

	if (!(mt_flags(mt) & MT_FLAGS_ALLOC_RANGE))
		return 0;
	err = mtree_alloc_cyclic(mt, &at, entry, 2, M - 9, &next, gfp);
	cr_assert(err < 0 ? next == 35 && at == 7 : next == at + 1);
	return stored(err, at, at, entry);
}

static int op_dup(gfp_t gfp)
{
	struct maple_tree copy;
	int err;

	mt_init_flags(&copy, mt_flags(mt) & ~MT_FLAGS_HEIGHT_MASK);
	err = mtree_dup(mt, &copy, gfp);
	if (!err)
		pair_compare(&pair, &copy);
	else
		cr_assert(mtree_empty(&copy));
	mtree_destroy(&copy);
	return err;
}

/* Into an empty tree only, and with GFP_KERNEL. */
static int op_expected(gfp_t gfp)
{
	MA_STATE(mas, mt, 0, 0);
	int err;

	if (!mtree_empty(mt) || mt_in_rcu(mt) || gfp == GFP_NOWAIT)
		return 0;
	mas_lock(&mas);
	err = mas_expected_entries(&mas, 100);
	mas_destroy(&mas);
	mas_unlock(&mas);
	return err;
}

struct tree {
	const char *name;
	void (*prepare)(void);
};

static const struct tree trees[] = {
	{"nothing", prepare_nothing}, {"head", prepare_head},	{"leaf", prepare_leaf},
	{"full", prepare_full},	      {"large", prepare_large}, {"thin", prepare_thin},
};

#define N_TREES (sizeof(trees) / sizeof(trees[0]))

struct op {
	const char *name;
	int (*run)(gfp_t gfp);
	bool asks; /* for memory, in a large tree at least; others may find room in place */
};

/* Tests get a number: criterion runs them in another process, where functions lie elsewhere. */
static const struct op ops[] = {
	{"store_middle", op_store_middle, false},
	{"store_zero", op_store_zero, false},
	{"store_end", op_store_end, false},
	{"store_all", op_store_all, true},
	{"store_over_many", op_store_over_many, true},
	{"store_null", op_store_null, false},
	{"store_null_over_many", op_store_null_over_many, true},
	{"insert", op_insert, false},
	{"mas_store_gfp", op_mas_store_gfp, false},
	{"preallocate", op_preallocate, true},
	{"erase", op_erase, false},
	{"mtree_erase", op_mtree_erase, false},
	{"alloc", op_alloc, false},
	{"alloc_down", op_alloc_down, false},
	{"alloc_cyclic", op_alloc_cyclic, false},
	{"dup", op_dup, true},
	{"expected", op_expected, false},
};

#define N_OPS (sizeof(ops) / sizeof(ops[0]))

static const unsigned int modes[] = { 0, MT_FLAGS_USE_RCU | MT_FLAGS_ALLOC_RANGE };

#define N_MODES (sizeof(modes) / sizeof(modes[0]))

static struct criterion_test_params all_ops(void)
{
	static unsigned int numbers[N_OPS];

	for (unsigned int i = 0; i < N_OPS; i++)
		numbers[i] = i;
	return cr_make_param_array(unsigned int, numbers, N_OPS);
}

/*
 * The pool keeps no free nodes, so each change asks twice: at once, and with the lock dropped.
 * Return: how many times it failed until it succeeded.
 */
static unsigned int sweep(const struct op *op, const struct tree *tree, unsigned int mode)
{
	unsigned int failures = 0;
	int err = -ENOMEM;

	for (unsigned long nth = 1; err; nth++) {
		pair_begin(&pair, mode);
		tree->prepare();
		node_pool_fail(&mt_node_pool, nth, M);
		err = op->run(GFP_KERNEL);
		node_pool_fail(&mt_node_pool, 0, 0);
		pair_verify(&pair);
		if (err) {
			failures++;
			cr_assert_eq(err, -ENOMEM, "%s in %s, allocation %lu: %d", op->name,
				     tree->name, nth, err);
			cr_assert_eq(op->run(GFP_KERNEL), 0);
		}
		pair_end(&pair);
		cr_assert_lt(nth, 100, "%s in %s never succeeds", op->name, tree->name);
	}
	return failures;
}

ParameterizedTestParameters(maple_enomem, failing_allocations_change_nothing)
{
	return all_ops();
}

ParameterizedTest(unsigned int *number, maple_enomem, failing_allocations_change_nothing)
{
	const struct op *op = &ops[*number];

	mt_node_pool.max_free = 0;
	for (const struct tree *tree = trees; tree < trees + N_TREES; tree++) {
		unsigned int failures = 0;

		for (unsigned int i = 0; i < N_MODES; i++)
			failures += sweep(op, tree, modes[i]);
		if (op->asks && tree->prepare == prepare_large)
			cr_assert_gt(failures, 0, "%s asks for nothing", op->name);
	}
}

ParameterizedTestParameters(maple_enomem, nowait_never_asks_the_system)
{
	return all_ops();
}

ParameterizedTest(unsigned int *number, maple_enomem, nowait_never_asks_the_system)
{
	const struct op *op = &ops[*number];

	mt_node_pool.max_free = 0;
	for (unsigned int i = 0; i < N_TREES * N_MODES; i++) {
		unsigned long nodes;
		int err;

		pair_begin(&pair, modes[i % N_MODES]);
		trees[i / N_MODES].prepare();
		nodes = live_nodes();
		err = op->run(GFP_NOWAIT);
		cr_assert(!err || err == -ENOMEM);
		cr_assert_leq(live_nodes(), nodes);
		pair_end(&pair);
	}
}
