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
#include "torture_common.h"
#include "xa_internal.h"

#define BLOCK_ORDER 9 /* stores of any order stay in a block; even ones hold only order 0 */
#define BLOCKS 8
#define INDICES (BLOCKS << BLOCK_ORDER)
#define FAR (1UL << 40) /* coming and going, makes the tree grow and shrink */
#define HOT (1UL << BLOCK_ORDER) /* eight indices that are picked most */
#define STABLE(i) ((i) % 8 == 7 && !((i) >> BLOCK_ORDER & 1))

struct object {
	struct tortured common; /* parts: entries that point here */
	unsigned long start;
	unsigned int order;
};

static struct xarray xa;

static struct object *new_object(unsigned long start, unsigned int order)
{
	struct object *object = tortured_new(sizeof(*object));

	object->start = start;
	object->order = order;
	return object;
}

static void check_object(const struct object *object, unsigned long index)
{
	check(object->common.alive == 1, index);
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

static void read_some(uint64_t *random)
{
	void (*const reads[])(uint64_t *) = { read_loads, read_all, read_marked, read_steps };

	reads[test_random(random) % 4](random);
}

/* Stores a new object, or NULL, in place of all in the range; a larger entry goes whole. */
static void replace(unsigned long index, unsigned int order, bool erase, bool mark)
{
	XA_STATE_ORDER(xas, &xa, index, order);
	struct object *object = erase ? NULL : new_object(xas.xa_index, order);
	struct object *old;
	struct tortured *unlinked = NULL;

	do {
		xas_lock(&xas);
		xas_for_each_conflict(&xas, old) {
			bool larger = xas_get_order(&xas) > (int)order;

			tortured_put(old, &unlinked);
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
	tortured_free(unlinked);
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
		object->common.parts += (1U << (old_order - order)) - 1;
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

static void clear_all(void)
{
	struct object *object;
	struct tortured *unlinked = NULL;
	XA_STATE(xas, &xa, 0);

	xas_lock(&xas);
	xas_for_each(&xas, object, ULONG_MAX) {
		tortured_put(object, &unlinked);
		xas_store(&xas, NULL);
	}
	xas_unlock(&xas);
	tortured_free(unlinked);
	check(xa_empty(&xa), 0);
}

int main(void)
{
	uint64_t random = test_seed();

	rcu_register_thread();
	for (unsigned long i = 0; i < INDICES; i++) {
		if (STABLE(i))
			replace(i, 0, false, false);
	}
	torture(read_some, change, random, torture_ms(700));
	check(!xa_check(&xa), 0);
	clear_all();
	rcu_barrier();
	node_pool_drain(&xa_node_pool);
	check(node_pool_live(&xa_node_pool) == 0, 0);
	return torture_result();
}
