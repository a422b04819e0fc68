/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Torture of the maple tree's readers: they load and walk under RCU while writers store over parts
 * of ranges, over many at once, append and erase, and while the tree grows and shrinks. Best built
 * with a sanitizer.
 *
 * Each entry is an object that knows every range that it ever had in the tree: the one that it was
 * stored at, and what later stores left of it. It is freed after a grace period when nothing of it
 * is left. A reader fails if an object that it finds has been freed, if the range that it finds was
 * never one of that object's, if a walk goes back, or if it misses one of the ranges that nobody
 * ever changes.
 *
 * FOLIOFS_SECONDS sets how long, FOLIOFS_SEED the random numbers (not the interleaving).
 */
#include "list.h"
#include "mt_internal.h"
#include "node_alloc.h"
#include "torture_common.h"

#define BLOCK 512UL /* even blocks have stable ranges, and only short stores */
#define BLOCKS 8UL
#define INDICES (BLOCKS * BLOCK)
#define STABLE 8UL     /* in even blocks, each eighth index begins... */
#define STABLE_SIZE 2UL /* ...a range of two that stays */
#define HOT BLOCK      /* 32 indices that are picked most */
#define PASTS 8

struct past {
	unsigned long first, last;
};

struct object {
	struct tortured common;
	unsigned int n_pasts;
	struct past pasts[PASTS];
};

static struct maple_tree mt;

static bool is_stable(unsigned long index)
{
	return index < INDICES && !(index / BLOCK & 1) && index % STABLE < STABLE_SIZE;
}

/* The first index at or after @index that is the beginning of a stable range; or all are before. */
static unsigned long next_stable(unsigned long index)
{
	index = (index + STABLE - 1) / STABLE * STABLE;
	while (index < INDICES && !is_stable(index))
		index += STABLE;
	return index < INDICES ? index : ULONG_MAX;
}

/*
 * Objects
 */

static struct object *new_object(unsigned long first, unsigned long last)
{
	struct object *object = tortured_new(sizeof(*object));

	object->pasts[0] = (struct past){ first, last };
	object->n_pasts = 1;
	return object;
}

/* A store is about to leave this of the object. Lock held; readers look at the same time. */
static void remember(struct object *object, unsigned long first, unsigned long last)
{
	struct past *past = &object->pasts[object->n_pasts];

	past->first = first;
	past->last = last;
	object->common.parts++;
	__atomic_store_n(&object->n_pasts, object->n_pasts + 1, __ATOMIC_RELEASE);
}

static void check_object(const struct object *object, unsigned long index)
{
	unsigned int n = __atomic_load_n(&object->n_pasts, __ATOMIC_ACQUIRE);
	bool covers = false;

	check(object->common.alive == 1, index);
	check(n && n <= PASTS, index);
	for (unsigned int i = 0; i < n; i++)
		covers |= index >= object->pasts[i].first && index <= object->pasts[i].last;
	check(covers, index);
}

/* The object had just this range once. */
static void check_range(const struct object *object, const struct ma_state *mas)
{
	unsigned int n = __atomic_load_n(&object->n_pasts, __ATOMIC_ACQUIRE);
	bool was = false;

	check(object->common.alive == 1, mas->index);
	for (unsigned int i = 0; i < n; i++)
		was |= mas->index == object->pasts[i].first && mas->last == object->pasts[i].last;
	check(was, mas->index);
}

/*
 * Readers
 */

/* Half of the time one of few indices, where readers and writers meet within single steps. */
static unsigned long pick_index(uint64_t *random)
{
	uint64_t n = test_random(random);

	return n & 1 ? HOT + (n >> 8) % 32 : (n >> 8) % INDICES;
}

static void read_loads(uint64_t *random)
{
	for (unsigned int i = 0; i < 200; i++) {
		unsigned long index = i & 12 ? pick_index(random) : INDICES + i;
		struct object *object;
		MA_STATE(mas, &mt, index, index);

		rcu_read_lock();
		object = i & 1 ? mtree_load(&mt, index) : mas_walk(&mas);
		check(object || !is_stable(index), index);
		if (object)
			check_object(object, index);
		if (object && !(i & 1))
			check_range(object, &mas);
		rcu_read_unlock();
	}
}

/*
 * Now and then. Behind a pause goes on what is there then, even if it has grown over what the walk
 * has behind it.
 */
static bool lets_go(struct ma_state *mas, uint64_t *random)
{
	if (test_random(random) & 63)
		return false;
	mas_pause(mas);
	rcu_read_unlock();
	rcu_read_lock();
	return true;
}

/* Goes over all; no stable range may be missing between two that follow each other. */
static void read_all(uint64_t *random)
{
	unsigned long expected = next_stable(0), next = 0;
	struct object *object;
	bool paused = false;
	MA_STATE(mas, &mt, 0, 0);

	rcu_read_lock();
	mas_for_each(&mas, object, ULONG_MAX) {
		check_range(object, &mas);
		check(mas.index >= next || (paused && mas.last >= next), mas.index);
		check(mas.index <= expected, mas.index);
		if (mas.index == expected)
			expected = next_stable(mas.last);
		next = mas.last + 1;
		if (!next)
			break;
		paused = lets_go(&mas, random);
	}
	rcu_read_unlock();
	check(expected == ULONG_MAX, expected);
}

static void read_all_down(uint64_t *random)
{
	unsigned long before = ULONG_MAX; /* where the last step ended */
	unsigned long expected = INDICES - BLOCK - STABLE;
	struct object *object;
	bool paused = false;
	MA_STATE(mas, &mt, ULONG_MAX, ULONG_MAX);

	rcu_read_lock();
	while ((object = mas_find_rev(&mas, 0))) {
		check_range(object, &mas);
		check(mas.last <= before || (paused && mas.index <= before), mas.last);
		check(mas.index >= expected || expected == ULONG_MAX, mas.index);
		if (mas.index == expected) {
			do {
				expected -= STABLE;
			} while (expected != -STABLE && !is_stable(expected));
			if (expected == -STABLE)
				expected = ULONG_MAX;
		}
		if (!mas.index)
			break;
		before = mas.index - 1;
		paused = lets_go(&mas, random);
	}
	rcu_read_unlock();
	check(expected == ULONG_MAX, expected);
}

/* Up and down from one place, over what is empty as well. */
static void read_steps(uint64_t *random)
{
	unsigned long index = pick_index(random);
	MA_STATE(mas, &mt, index, index);
	struct object *object;

	rcu_read_lock();
	mas_walk(&mas);
	for (unsigned int i = 0; i < 100; i++) {
		unsigned long first = mas.index, last = mas.last;
		bool up = test_random(random) & 1, all = test_random(random) & 1;

		if (up)
			object = all ? mas_next_range(&mas, INDICES) : mas_next(&mas, INDICES);
		else
			object = all ? mas_prev_range(&mas, 0) : mas_prev(&mas, 0);
		if (!object && !(mas_is_active(&mas) && all))
			break;
		check(up ? mas.index > last : mas.last < first, mas.index);
		if (object)
			check_range(object, &mas);
		else
			check(next_stable(mas.index) > mas.last || mas.last >= INDICES, mas.index);
	}
	rcu_read_unlock();
}

static void read_some(uint64_t *random)
{
	void (*const reads[])(uint64_t *) = { read_loads, read_all, read_all_down, read_steps };

	reads[test_random(random) % 4](random);
}

/*
 * Writers
 */

/*
 * What a store to the range will leave of the ranges at its edges is noted in them. One that can
 * not note any more is replaced whole: the range grows. Lock held.
 */
static void cut_edges(unsigned long *first, unsigned long *last)
{
	MA_STATE(left, &mt, *first, *first);
	MA_STATE(right, &mt, *last, *last);
	struct object *object = mas_walk(&left);

	if (object && left.index < *first) {
		if (object->n_pasts < PASTS - 1)
			remember(object, left.index, *first - 1);
		else
			*first = left.index;
	}
	object = mas_walk(&right);
	if (object && right.last > *last) {
		if (object->n_pasts < PASTS)
			remember(object, *last + 1, right.last);
		else
			*last = right.last;
	}
}

/*
 * Stores a new object, or nothing, in place of all in the range. With the nodes ahead the lock is
 * held from the look at what is there to the store.
 */
static void replace(unsigned long first, unsigned long last, bool erase)
{
	struct object *object, *old;
	struct tortured *unlinked = NULL;
	MA_STATE(mas, &mt, first, first);

	mas_lock(&mas);
	cut_edges(&first, &last);
	object = erase ? NULL : new_object(first, last);
	mas_set(&mas, first);
	mas_for_each(&mas, old, last)
		tortured_put(old, &unlinked);
	mas_set_range(&mas, first, last);
	check(!mas_preallocate(&mas, object, GFP_KERNEL), first);
	mas_store_prealloc(&mas, object);
	mas_unlock(&mas);
	tortured_free(unlinked);
}

static void erase_at(unsigned long index)
{
	struct object *object;
	struct tortured *unlinked = NULL;
	MA_STATE(mas, &mt, index, index);

	mas_lock(&mas);
	object = mas_erase(&mas);
	if (object)
		tortured_put(object, &unlinked);
	mas_unlock(&mas);
	tortured_free(unlinked);
}

/*
 * Behind the last index: ranges are appended one by one, and go all at once. What reaches to the
 * end of all is cut in place, and what is left of it replaced in place.
 */
static void change_tail(uint64_t *random)
{
	unsigned long first = INDICES, before = first;
	unsigned long n = test_random(random);
	bool to_end = n & 64;

	for (unsigned long i = 0; i < n % 64; i++) {
		replace(first, to_end ? ULONG_MAX : first + i % 3, false);
		if (to_end && i)
			replace(before, first - 1, false);
		before = first;
		first += i % 3 + 1 + i % 2;
	}
	if (n & 1)
		replace(INDICES, ULONG_MAX, true);
}

static void change(uint64_t *random)
{
	unsigned long first = pick_index(random), n = test_random(random);
	unsigned long last = first + (n >> 8) % 6, most = INDICES;

	if (!(n & 63)) {
		change_tail(random);
		return;
	}
	if (first / BLOCK & 1) {
		if (!(n & 7))
			last = first + (n >> 8) % (first - HOT < 32 ? 64 : BLOCK);
		most = (first / BLOCK + 1) * BLOCK;
	} else if (is_stable(first)) {
		return;
	} else {
		most = first / STABLE * STABLE + STABLE;
	}
	if (last >= most)
		last = most - 1;
	n >>= 16;
	if (n % 4 == 0)
		erase_at(first);
	else
		replace(first, last, n % 4 == 1);
}

static void run(unsigned int flags, uint64_t random, unsigned long ms)
{
	mt_init_flags(&mt, flags);
	for (unsigned long i = next_stable(0); i < INDICES; i = next_stable(i + 1))
		replace(i, i + STABLE_SIZE - 1, false);
	torture(read_some, change, random, ms);
	check(!mt_check(&mt), 0);
	replace(0, ULONG_MAX, true);
	check(mtree_empty(&mt), 0);
	check(!mt_check(&mt), 0);
	mtree_destroy(&mt);
}

int main(void)
{
	unsigned long ms = torture_ms(800);
	uint64_t random = test_seed();

	rcu_register_thread();
	run(MT_FLAGS_USE_RCU, random, ms / 2);
	run(MT_FLAGS_USE_RCU | MT_FLAGS_ALLOC_RANGE, random, ms / 2);
	rcu_barrier();
	node_pool_drain(&mt_node_pool);
	check(node_pool_live(&mt_node_pool) == 0, 0);
	return torture_result();
}
