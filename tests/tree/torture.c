/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Torture of the XArray's readers: they look under RCU while writers store, erase, split and
 * replace at other orders, and while the tree grows and shrinks. Best built with a sanitizer.
 *
 * Each entry points to an object that knows its range and is freed after a grace period when the
 * last entry that points to it is gone. A reader fails if what it finds at an index does not cover
 * that index or has been freed, or if it misses one of the entries that nobody ever erases.
 *
 * FOLIOFS_SECONDS sets how long, FOLIOFS_SEED the random numbers (not the interleaving).
 */
#include "model.h"
#include "node_alloc.h"
#include "xa_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define READERS 2
#define WRITERS 2
#define BLOCK_ORDER 9 /* stores of any order stay in a block; even ones hold only order 0 */
#define BLOCKS 8
#define INDICES (BLOCKS << BLOCK_ORDER)
#define FAR (1UL << 40) /* coming and going, makes the tree grow and shrink */
#define HOT (1UL << BLOCK_ORDER) /* eight indices that are picked most */
#define STABLE(i) ((i) % 8 == 7 && !((i) >> BLOCK_ORDER & 1))

struct object {
	struct rcu_head rcu;
	unsigned long start;
	unsigned int order;
	unsigned int entries; /* how many point here; xa_lock */
	unsigned int alive;
	struct object *next_unlinked;
};

static struct xarray xa;
static bool stop;
static unsigned long looks, changes;

#define check(condition, index)                                                                    \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "torture: %s:%d: index %lx: %s\n", __FILE__, __LINE__,     \
				(unsigned long)(index), #condition);                               \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

static struct object *new_object(unsigned long start, unsigned int order)
{
	struct object *object = malloc(sizeof(*object));

	if (!object)
		abort();
	*object = (struct object){ .start = start, .order = order, .entries = 1, .alive = 1 };
	return object;
}

static void free_object(struct rcu_head *head)
{
	struct object *object = container_of(head, struct object, rcu);

	rcu_callback_begin(head);
	object->alive = 0;
	free(object);
}

/* An entry is about to go. The grace period may begin only when it is gone: see free_list(). */
static void put_object(struct object *object, struct object **unlinked)
{
	if (--object->entries)
		return;
	object->next_unlinked = *unlinked;
	*unlinked = object;
}

static void free_list(struct object *unlinked)
{
	while (unlinked) {
		struct object *next = unlinked->next_unlinked;

		call_rcu(&unlinked->rcu, free_object);
		unlinked = next;
	}
}

static void check_object(const struct object *object, unsigned long index)
{
	check(object->alive == 1, index);
	check(index - object->start < 1UL << object->order, index);
}

/* Half of the time one of few indices, where readers and writers meet within single steps. */
static unsigned long pick_index(uint64_t *random)
{
	uint64_t n = test_random(random);

	return n & 1 ? HOT + (n >> 8) % 8 : (n >> 8) % INDICES;
}

static void read_loads(uint64_t *random)
{
	for (unsigned int i = 0; i < 200; i++) {
		unsigned long index = pick_index(random);
		struct object *object;

		if (!(i & 15))
			index = FAR;
		rcu_read_lock();
		object = xa_load(&xa, index);
		check(object || !STABLE(index) || index == FAR, index);
		if (object)
			check_object(object, index);
		rcu_read_unlock();
	}
}

/* Goes over all; no stable entry may be missing between two that follow each other. */
static void read_all(uint64_t *random)
{
	unsigned long expected = 7; /* the next stable one */
	struct object *object;
	XA_STATE(xas, &xa, 0);

	rcu_read_lock();
	xas_for_each(&xas, object, ULONG_MAX) {
		if (xas_retry(&xas, object))
			continue;
		check_object(object, xas.xa_index);
		while (expected < INDICES && !STABLE(expected))
			expected += 8;
		check(xas.xa_index <= expected || expected >= INDICES, xas.xa_index);
		if (xas.xa_index == expected)
			expected += 8;
		if (xas_reload(&xas) == object && !(test_random(random) & 63)) {
			xas_pause(&xas);
			rcu_read_unlock();
			rcu_read_lock();
		}
	}
	rcu_read_unlock();
	check(expected >= INDICES - (1UL << BLOCK_ORDER), expected);
}

static void read_marked(uint64_t *random)
{
	struct object *object;
	XA_STATE(xas, &xa, test_random(random) % INDICES);

	rcu_read_lock();
	xas_for_each_marked(&xas, object, ULONG_MAX, XA_MARK_1) {
		if (!xas_retry(&xas, object))
			check_object(object, xas.xa_index);
	}
	rcu_read_unlock();
}

static void read_steps(uint64_t *random)
{
	XA_STATE(xas, &xa, test_random(random) % INDICES);
	struct object *object;

	rcu_read_lock();
	for (unsigned int i = 0; i < 100; i++) {
		object = test_random(random) & 1 ? xas_next(&xas) : xas_prev(&xas);
		if (xas_retry(&xas, object) || xa_is_sibling(object))
			continue;
		check(object || !STABLE(xas.xa_index) || xas.xa_index >= INDICES, xas.xa_index);
		if (object)
			check_object(object, xas.xa_index);
	}
	rcu_read_unlock();
}

static void *reader(void *seed)
{
	void (*const reads[])(uint64_t *) = { read_loads, read_all, read_marked, read_steps };
	uint64_t random = (uintptr_t)seed;
	unsigned long n = 0;

	rcu_register_thread();
	for (; !__atomic_load_n(&stop, __ATOMIC_RELAXED); n++)
		reads[test_random(&random) % 4](&random);
	__atomic_fetch_add(&looks, n, __ATOMIC_RELAXED);
	return NULL;
}

/* Stores a new object, or NULL, in place of all in the range; a larger entry goes whole. */
static void replace(unsigned long index, unsigned int order, bool erase, bool mark)
{
	XA_STATE_ORDER(xas, &xa, index, order);
	struct object *object = erase ? NULL : new_object(xas.xa_index, order);
	struct object *old, *unlinked = NULL;

	do {
		xas_lock(&xas);
		xas_for_each_conflict(&xas, old) {
			bool larger = xas_get_order(&xas) > (int)order;

			put_object(old, &unlinked);
			/* Would keep its order: erase it first. */
			if (larger)
				xas_store(&xas, NULL);
			if (larger)
				break;
		}
		xas_reset(&xas);
		/* What has been put must not be found again: erasing needs no memory. */
		xas_store(&xas, NULL);
		xas_reset(&xas);
		xas_store(&xas, object);
		if (object && mark)
			xas_set_mark(&xas, XA_MARK_1);
		xas_unlock(&xas);
	} while (xas_nomem(&xas, GFP_KERNEL));
	free_list(unlinked);
}

static void split(unsigned long index, uint64_t *random)
{
	unsigned int old_order = xa_get_order(&xa, index);
	unsigned int order = old_order ? test_random(random) % old_order : 0;
	XA_STATE_ORDER(xas, &xa, index, order);
	XA_STATE(look, &xa, index);
	struct object *object;

	xas_split_alloc(&xas, NULL, old_order, GFP_KERNEL);
	if (xas_error(&xas))
		return;
	xas_lock(&xas);
	object = xas_load(&look);
	if (object && xas_get_order(&look) == (int)old_order && order < old_order) {
		xas_split(&xas, object, old_order);
		object->entries += (1U << (old_order - order)) - 1;
	}
	xas_unlock(&xas);
	xas_destroy(&xas);
}

static void change(uint64_t *random)
{
	unsigned long index = pick_index(random);
	unsigned int order = 0;

	if (!(test_random(random) & 15)) {
		replace(FAR, 0, test_random(random) & 1, false);
		return;
	}
	if (STABLE(index))
		return;
	if (index >> BLOCK_ORDER & 1) {
		order = test_random(random) % (index - HOT < 8 ? 4 : BLOCK_ORDER + 1);
		if (!(test_random(random) & 3)) {
			split(index, random);
			return;
		}
	}
	replace(index, order, test_random(random) % 3 == 0, test_random(random) & 1);
}

static void *writer(void *seed)
{
	uint64_t random = (uintptr_t)seed;
	unsigned long n = 0;

	rcu_register_thread();
	for (; !__atomic_load_n(&stop, __ATOMIC_RELAXED); n++)
		change(&random);
	__atomic_fetch_add(&changes, n, __ATOMIC_RELAXED);
	return NULL;
}

static void clear_all(void)
{
	struct object *object, *unlinked = NULL;
	XA_STATE(xas, &xa, 0);

	xas_lock(&xas);
	xas_for_each(&xas, object, ULONG_MAX) {
		put_object(object, &unlinked);
		xas_store(&xas, NULL);
	}
	xas_unlock(&xas);
	free_list(unlinked);
	check(xa_empty(&xa), 0);
}

int main(void)
{
	unsigned long ms = test_setting("FOLIOFS_SECONDS", 0) * 1000;
	struct timespec duration = { .tv_nsec = 700 * 1000000L };
	pthread_t threads[READERS + WRITERS];
	uint64_t random = test_seed();

	if (ms)
		duration = (struct timespec){ .tv_sec = ms / 1000 };
	rcu_register_thread();
	for (unsigned long i = 0; i < INDICES; i++) {
		if (STABLE(i))
			replace(i, 0, false, false);
	}
	for (unsigned int i = 0; i < READERS + WRITERS; i++) {
		void *seed = (void *)(uintptr_t)test_random(&random);

		check(!pthread_create(&threads[i], NULL, i < READERS ? reader : writer, seed), i);
	}
	nanosleep(&duration, NULL);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (unsigned int i = 0; i < READERS + WRITERS; i++)
		pthread_join(threads[i], NULL);
	check(!xa_check(&xa), 0);
	clear_all();
	rcu_barrier();
	node_pool_drain(&xa_node_pool);
	check(node_pool_live(&xa_node_pool) == 0, 0);
	printf("%lu rounds of reading, %lu changes\n", looks, changes);
	return looks && changes ? 0 : 1;
}
