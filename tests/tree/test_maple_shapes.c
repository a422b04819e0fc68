/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Stores to trees of all shapes: built node by node, some with each node at its minimum, some with
 * each one full, some mixed, which stores alone would hardly ever make. A store may need the most
 * nodes just there. Each is tried on a copy, with what mas_preallocate() gets and not a node more.
 *
 * FOLIOFS_TREES sets how many trees, FOLIOFS_SEED replays a run.
 */
#include "maple_pair.h"
#include "mt_write.h"
#include "seed.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

enum filling { LEAST, NEAR_LEAST, LEAST_MOSTLY, FULL_MOSTLY, FULL, ANY, FILLINGS };

/* How high trees may be that the list can hold, without gaps and with them. */
static const unsigned int highest[2][FILLINGS] = { { 4, 4, 3, 3, 3, 3 }, { 5, 4, 4, 3, 3, 3 } };

static struct pair pair;

struct builder {
	uint64_t random;
	enum filling filling;
	struct ma_state mas;
	unsigned long index; /* behind what has been built */
	bool was_null;
};

static unsigned long pick(struct builder *b, unsigned long n)
{
	return test_random(&b->random) % n;
}

static unsigned int pick_count(struct builder *b, enum maple_type type)
{
	unsigned int least = mt_min_slots(type), most = mt_slots(type);

	switch (b->filling) {
	case LEAST:
		return least;
	case NEAR_LEAST:
		return least + pick(b, 3);
	case LEAST_MOSTLY:
		return pick(b, 4) ? least : most;
	case FULL_MOSTLY:
		return pick(b, 4) ? most : least;
	case FULL:
		return most;
	default:
		return least + pick(b, most - least + 1);
	}
}

/* The entry and the last index of the next range. @end: of a leaf; @edge: of the tree */
static void *build_range(struct builder *b, bool end, bool edge, struct mt_level *slot)
{
	void *entry = xa_mk_value(b->index);

	slot->min = b->index;
	slot->max = edge ? ULONG_MAX : b->index + pick(b, 5);
	if (!b->was_null && (edge || (!end && !pick(b, 3))))
		entry = NULL;
	else
		list_store(&pair.list, slot->min, slot->max, entry);
	b->was_null = !entry;
	b->index = slot->max + 1;
	return entry;
}

/* Builds a node and all below it. @edge: it is the last of its level. Return: the largest gap. */
static unsigned long build(struct builder *b, unsigned int level, bool edge, struct mt_level *up)
{
	enum maple_type type = level ? mt_inner_type(&pair.mt) : maple_leaf_64;
	bool root = level + 1 == mt_height(&pair.mt);
	unsigned int count = root && pick(b, 2) ? 2 + pick(b, 3) : pick_count(b, type);
	struct maple_node *node = mas_take_node(&b->mas);
	void **slots = mt_slot_array(node, type);
	unsigned long largest = 0;

	*up = (struct mt_level){ .node = node, .min = b->index };
	node->word = mt_mk_word(NULL, 0, count - 1);
	for (unsigned int i = 0; i < count; i++) {
		bool end = i + 1 == count;
		struct mt_level slot;
		unsigned long gap;

		if (level) {
			gap = build(b, level - 1, edge && end, &slot);
			slots[i] = mt_mk_node(slot.node, level > 1 ? type : maple_leaf_64);
			slot.node->word = mt_mk_word(node, i, mt_end(slot.node));
		} else {
			slots[i] = build_range(b, end, edge && end, &slot);
			gap = slots[i] ? 0 : slot.max - slot.min + 1;
		}
		if (!end)
			node->pivot[i] = slot.max;
		if (type == maple_arange_64)
			node->arange.gap[i] = gap;
		largest = gap > largest ? gap : largest;
		up->max = slot.max;
	}
	return largest;
}

/* Makes a tree of some shape. Return: an index near its end. */
static unsigned long build_tree(struct builder *b)
{
	struct mt_level root;
	unsigned int height;

	b->filling = pick(b, FILLINGS);
	height = 2 + pick(b, highest[mt_is_alloc(&pair.mt)][b->filling] - 1);
	b->index = 0;
	b->was_null = false;
	mas_init(&b->mas, &pair.mt, 0);
	cr_assert(mas_reserve(&b->mas, 4096, GFP_KERNEL));
	mt_set_root(&pair.mt, NULL, height);
	build(b, height - 1, true, &root);
	mt_set_root(&pair.mt, mt_mk_node(root.node, mt_inner_type(&pair.mt)), height);
	mas_destroy(&b->mas);
	pair_verify(&pair);
	return pair.list.ranges[pair.list.n - 1].first;
}

/* A store of any size, often along the ranges that are there. */
static void try_store(struct builder *b, unsigned long end)
{
	unsigned long reach = pick(b, 2) ? 20 : pick(b, 2) ? 200 : end;
	unsigned long first = pick(b, 15) ? pick(b, end) : 0;
	unsigned long last = pick(b, 15) ? first + pick(b, reach + 1) : ULONG_MAX;
	struct range at;

	if (pick(b, 2)) {
		at = list_around(&pair.list, first);
		first = at.first;
	}
	if (pick(b, 2)) {
		at = list_around(&pair.list, last);
		last = at.last;
	}
	pair_try(&pair, first, last, pick(b, 2) ? xa_mk_value(77) : NULL);
}

ParameterizedTestParameters(shapes, no_store_needs_more_than_it_asks_for)
{
	static unsigned int modes[] = { 0, MT_FLAGS_USE_RCU, MT_FLAGS_ALLOC_RANGE,
					MT_FLAGS_USE_RCU | MT_FLAGS_ALLOC_RANGE };

	return cr_make_param_array(unsigned int, modes, 4);
}

ParameterizedTest(unsigned int *mode, shapes, no_store_needs_more_than_it_asks_for, .timeout = 120)
{
	static struct builder b;
	unsigned long trees = test_setting("FOLIOFS_TREES", 60);

	b.random = test_seed();
	for (unsigned long tree = 0; tree < trees; tree++) {
		unsigned long end;

		pair_begin(&pair, *mode);
		end = build_tree(&b);
		for (unsigned int i = 0; i < 40; i++)
			try_store(&b, end);
		pair_end(&pair);
	}
}
