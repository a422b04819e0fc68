/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How fast the maple tree is, beside a red-black tree in the same process, and how many nodes it
 * asks for.
 *
 * The subjects hold 2^18 ranges of 16 indices, side by side. One figure is the median over several
 * rounds of the CPU time of the measuring thread for one operation; a line with the least and the
 * most follows it. Each operation brings its own locking, as a user would call it. Random means a
 * permutation of all ranges. To overwrite stores four indices in the middle of a range, which leaves
 * three ranges. mt is the tree as mt_init() makes it, mt_rcu has readers beside its writers, and
 * mt_gaps keeps track of gaps too; the red-black tree takes its nodes from an array.
 *
 * The nodes: a pattern of stores that is the same each time (ranges appended, their middles
 * changed, stretches erased, gaps filled) in a tree with gaps and readers. Each store asks for what
 * the tree's vacant and sufficient heights say; beside it is what the whole height would have asked
 * for: 3h + 1 to store over several leaves, 2h + 1 to split, 2h - 1 to rebalance.
 *
 * FOLIOFS_ROUNDS: rounds, 7 unless set. Prints one line `figure NAME VALUE UNIT` for each.
 */
#include "mt_internal.h"
#include "node_alloc.h"
#include "rbtree.h"
#include "tree_bench.h"

#include <stdio.h>
#include <stdlib.h>

#define N (1UL << 18)
#define SIZE 16UL

/*
 * Maple tree
 */

static struct maple_tree mt;

static void mt_begin(void)
{
	mt_init(&mt);
}

static void mt_rcu_begin(void)
{
	mt_init_flags(&mt, MT_FLAGS_USE_RCU);
}

static void mt_gaps_begin(void)
{
	mt_init_flags(&mt, MT_FLAGS_USE_RCU | MT_FLAGS_ALLOC_RANGE);
}

static void mt_end_round(void)
{
	if (mt_check(&mt))
		fail("the tree is not well-formed");
	mtree_destroy(&mt);
}

static void mt_put(unsigned long first, unsigned long last)
{
	if (mtree_store_range(&mt, first, last, xa_mk_value(first), GFP_KERNEL))
		fail("no memory");
}

static void mt_store_seq(void)
{
	for (unsigned long i = 0; i < N; i++)
		mt_put(i * SIZE, i * SIZE + SIZE - 1);
}

static void mt_load_random(void)
{
	for (unsigned long i = 0; i < N; i++)
		sink += xa_to_value(mtree_load(&mt, shuffled[i] * SIZE + 5));
}

static void mt_iterate(void)
{
	MA_STATE(mas, &mt, 0, 0);
	unsigned long sum = 0;
	void *entry;

	rcu_read_lock();
	mas_for_each(&mas, entry, ULONG_MAX)
		sum += xa_to_value(entry);
	rcu_read_unlock();
	sink += sum;
}

static void mt_overwrite_random(void)
{
	for (unsigned long i = 0; i < N; i++)
		mt_put(shuffled[i] * SIZE + 6, shuffled[i] * SIZE + 9);
}

static void mt_erase_random(void)
{
	for (unsigned long i = 0; i < N; i++)
		sink += (unsigned long)mtree_erase(&mt, shuffled[i] * SIZE + 5);
}

/*
 * Red-black tree
 */

static struct rb_tree rb;
static struct xa_spinlock rb_lock;
static struct rb_node *rb_nodes;
static unsigned long rb_used;

static void rb_begin(void)
{
	rb_nodes = calloc(3 * N, sizeof(*rb_nodes));
	if (!rb_nodes)
		fail("no memory");
}

static void rb_end_round(void)
{
	if (rb_check(rb.root) < 0)
		fail("the red-black tree is not well-formed");
	rb.root = NULL;
	rb_used = 0;
}

static void rb_add(unsigned long first, unsigned long last, void *entry)
{
	struct rb_node *node = &rb_nodes[rb_used++];

	node->first = first;
	node->last = last;
	node->entry = entry;
	rb_insert(&rb, node);
}

static void rb_store_seq(void)
{
	for (unsigned long i = 0; i < N; i++) {
		xa_spin_lock(&rb_lock);
		rb_add(i * SIZE, i * SIZE + SIZE - 1, xa_mk_value(i * SIZE));
		xa_spin_unlock(&rb_lock);
	}
}

static void rb_load_random(void)
{
	for (unsigned long i = 0; i < N; i++) {
		xa_spin_lock(&rb_lock);
		sink += xa_to_value(rb_at(&rb, shuffled[i] * SIZE + 5)->entry);
		xa_spin_unlock(&rb_lock);
	}
}

static void rb_iterate(void)
{
	unsigned long sum = 0;

	for (struct rb_node *node = rb_at(&rb, 0); node; node = rb_next(node))
		sum += xa_to_value(node->entry);
	sink += sum;
}

static void rb_overwrite_random(void)
{
	for (unsigned long i = 0; i < N; i++) {
		unsigned long first = shuffled[i] * SIZE + 6, last = first + 3;
		struct rb_node *node;

		xa_spin_lock(&rb_lock);
		node = rb_at(&rb, first);
		rb_add(last + 1, node->last, node->entry);
		node->last = first - 1;
		rb_add(first, last, xa_mk_value(first));
		xa_spin_unlock(&rb_lock);
	}
}

static void rb_erase_random(void)
{
	for (unsigned long i = 0; i < N; i++) {
		xa_spin_lock(&rb_lock);
		rb_erase(&rb, rb_at(&rb, shuffled[i] * SIZE + 5));
		xa_spin_unlock(&rb_lock);
	}
}

/*
 * Time
 */

static const char *const op_names[] = {
	"store_seq", "load_random", "iterate", "overwrite_random", "erase_random", NULL,
};

#define MT_OPS {mt_store_seq, mt_load_random, mt_iterate, mt_overwrite_random, mt_erase_random}

static const struct subject subjects[] = {
	{"mt", mt_begin, mt_end_round, MT_OPS},
	{"mt_rcu", mt_rcu_begin, mt_end_round, MT_OPS},
	{"mt_gaps", mt_gaps_begin, mt_end_round, MT_OPS},
	{"rb",
	 rb_begin,
	 rb_end_round,
	 {rb_store_seq, rb_load_random, rb_iterate, rb_overwrite_random, rb_erase_random}},
};

/*
 * Nodes
 */

#define SIZES 100

struct requests {
	unsigned long requests;
	unsigned long nodes;
	unsigned long by_size[SIZES];
};

static struct requests by_height, by_vacancy;

static void count(struct requests *requests, unsigned int nodes)
{
	if (!nodes)
		return;
	requests->requests++;
	requests->nodes += nodes;
	requests->by_size[nodes]++;
}

/* What a store of this type in a tree of this height asked for before. */
static unsigned int worst_case(struct mt_plan plan)
{
	switch (plan.type) {
	case wr_spanning_store:
		return 3 * plan.height + 1;
	case wr_split_store:
		return 2 * plan.height + 1;
	case wr_rebalance:
		return 2 * plan.height - 1;
	default:
		return plan.nodes;
	}
}

static void count_store(unsigned long first, unsigned long last, void *entry)
{
	MA_STATE(mas, &mt, first, last);

	mas_lock(&mas);
	count(&by_height, worst_case(mas_plan(&mas, entry)));
	mas_set_range(&mas, first, last);
	if (mas_preallocate(&mas, entry, GFP_KERNEL))
		fail("no memory");
	count(&by_vacancy, mas.allocated);
	mas_store_prealloc(&mas, entry);
	mas_unlock(&mas);
}

#define PATTERN (1UL << 16) /* ranges */
#define STRIDE (SIZE + 8)   /* a gap of 8 behind each */

/* One turn over the whole tree, an operation for each range. */
static void pattern_turn(uint64_t *random)
{
	for (unsigned long i = 0; i < PATTERN; i++) {
		unsigned long n = next_random(random), first = n % PATTERN * STRIDE;

		n >>= 32;
		if (n % 16 < 6)
			count_store(first + 4, first + 7 + n / 16 % 4, xa_mk_value(first));
		else if (n % 16 < 9)
			count_store(first + SIZE, first + STRIDE - 1, xa_mk_value(i));
		else if (n % 16 < 12)
			count_store(first + 2, first + 2 + n / 16 % 20, NULL);
		else if (n % 16 < 15)
			count_store(first, first + SIZE - 1, xa_mk_value(first));
		else
			count_store(first, first + n / 16 % (12 * STRIDE), NULL);
	}
}

static void count_nodes(void)
{
	unsigned long asked = mt_node_pool.bulk_nodes;
	uint64_t random = 88172645463325252;

	mt_gaps_begin();
	for (unsigned long i = 0; i < PATTERN; i++)
		count_store(i * STRIDE, i * STRIDE + SIZE - 1, xa_mk_value(i));
	for (unsigned int turn = 0; turn < 8; turn++)
		pattern_turn(&random);
	if (mt_node_pool.bulk_nodes - asked != by_vacancy.nodes)
		fail("the pool was asked for another number of nodes");
	printf("nodes asked for at once: how often by the whole height, and by vacancy\n");
	for (unsigned int size = 1; size < SIZES; size++) {
		if (by_height.by_size[size] || by_vacancy.by_size[size])
			printf("%5u %10lu %10lu\n", size, by_height.by_size[size],
			       by_vacancy.by_size[size]);
	}
	printf("  all %10lu %10lu requests\n", by_height.requests, by_vacancy.requests);
	printf("      %10lu %10lu nodes\n", by_height.nodes, by_vacancy.nodes);
	printf("figure mt.prealloc_ratio %.3f ratio\n",
	       (double)by_vacancy.nodes / by_height.nodes);
	mt_end_round();
}

int main(void)
{
	unsigned int rounds = bench_rounds();

	rcu_register_thread();
	shuffle(N);
	for (unsigned int i = 0; i < sizeof(subjects) / sizeof(subjects[0]); i++)
		measure(&subjects[i], op_names, N, rounds);
	count_nodes();
	return 0;
}
