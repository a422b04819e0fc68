/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Changes that race each other. The pool keeps nothing, so each change drops the lock to get its
 * nodes, and what it had found before may be taken when it comes back.
 */
#include "maple_pair.h"

#include <criterion/criterion.h>
#include <pthread.h>

#define M ULONG_MAX
#define THREADS 3
#define EACH 300

static struct pair pair;
static struct maple_tree *const mt = &pair.mt;
static unsigned long next;

static void begin(void)
{
	mt_node_pool.max_free = 0;
	pair_begin(&pair, MT_FLAGS_ALLOC_RANGE | MT_FLAGS_USE_RCU);
}

static void end(void)
{
	mtree_destroy(mt);
	cr_assert_eq(live_nodes(), 0);
}

/* Each thread's own entry, to see whose a range is. */
static void *mark_of(void *thread, unsigned long i)
{
	return xa_mk_value((unsigned long)thread * EACH + i);
}

/* Runs it in all threads; each returns how many times it failed. */
static void race(void *(*run)(void *))
{
	pthread_t threads[THREADS];

	for (unsigned long i = 0; i < THREADS; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, run, (void *)i), 0);
	for (unsigned int i = 0; i < THREADS; i++) {
		void *failures;

		pthread_join(threads[i], &failures);
		cr_expect_eq((unsigned long)failures, 0, "%lu failures", (unsigned long)failures);
	}
	cr_assert_eq(mt_check(mt), 0);
}

/* From @first on, @n ranges of @size follow each other. */
static void is_packed(unsigned long first, unsigned long n, unsigned long size)
{
	MA_STATE(mas, mt, 0, 0);
	unsigned long seen = 0;
	void *entry;

	rcu_read_lock();
	mas_for_each(&mas, entry, M) {
		cr_assert_eq(mas.index, first + seen * size);
		cr_assert_eq(mas.last, mas.index + size - 1);
		seen++;
	}
	rcu_read_unlock();
	cr_assert_eq(seen, n);
}

static void *alloc_up(void *thread)
{
	unsigned long failures = 0, at;

	rcu_register_thread();
	for (unsigned long i = 0; i < EACH; i++) {
		void *mark = mark_of(thread, i);

		failures += mtree_alloc_range(mt, &at, mark, 3, 10, M, GFP_KERNEL) != 0;
		failures += mtree_load(mt, at) != mark || mtree_load(mt, at + 2) != mark;
	}
	return (void *)failures;
}

static void *alloc_down(void *thread)
{
	unsigned long failures = 0, at;

	rcu_register_thread();
	for (unsigned long i = 0; i < EACH; i++) {
		void *mark = mark_of(thread, i);

		failures += mtree_alloc_rrange(mt, &at, mark, 3, 10, M - 10, GFP_KERNEL) != 0;
		failures += mtree_load(mt, at) != mark || mtree_load(mt, at + 2) != mark;
	}
	return (void *)failures;
}

static void *alloc_cyclic(void *thread)
{
	unsigned long failures = 0, at;

	rcu_register_thread();
	for (unsigned long i = 0; i < EACH; i++) {
		void *mark = mark_of(thread, i);

		failures += mtree_alloc_cyclic(mt, &at, mark, 10, M, &next, GFP_KERNEL) != 0;
		failures += mtree_load(mt, at) != mark;
	}
	return (void *)failures;
}

/* Only one of them can have an index. */
static void *insert_same(void *thread)
{
	unsigned long failures = 0;

	rcu_register_thread();
	for (unsigned long i = 0; i < EACH; i++) {
		void *mark = mark_of(thread, i);
		int err = mtree_insert_range(mt, i * 5, i * 5 + 4, mark, GFP_KERNEL);

		failures += err && err != -EEXIST;
		failures += (mtree_load(mt, i * 5 + 2) == mark) != !err;
	}
	return (void *)failures;
}

static unsigned long erased;

/* Only one of them gets what was there. */
static void *erase_same(void *thread)
{
	rcu_register_thread();
	for (unsigned long i = 0; i < THREADS * EACH; i++) {
		if (mtree_erase(mt, i * 5 + (unsigned long)thread))
			__atomic_fetch_add(&erased, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

TestSuite(maple_race, .init = begin, .fini = end, .timeout = 60);

Test(maple_race, allocations_upwards_take_each_range_once)
{
	race(alloc_up);
	is_packed(10, THREADS * EACH, 3);
}

Test(maple_race, allocations_downwards_take_each_range_once)
{
	race(alloc_down);
	is_packed(M - 9 - THREADS * EACH * 3, THREADS * EACH, 3);
}

Test(maple_race, cyclic_allocations_take_each_index_once)
{
	race(alloc_cyclic);
	is_packed(10, THREADS * EACH, 1);
	cr_assert_eq(next, 10 + THREADS * EACH);
}

Test(maple_race, insertions_take_each_range_once)
{
	race(insert_same);
	is_packed(0, EACH, 5);
}

/* One that comes too late gives back the nodes that it got for nothing. */
Test(maple_race, erasing_the_same_ranges)
{
	/* Apart: what is erased becomes one with what is empty beside it, which takes a node. */
	for (unsigned int round = 0; round < 4; round++) {
		pair_fill(&pair, 0, THREADS * EACH, 4, 1);
		race(erase_same);
		cr_assert_eq(erased, (round + 1) * THREADS * EACH);
		cr_assert(mtree_empty(mt));
		pair.list.n = 0;
	}
}
