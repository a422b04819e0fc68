/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How fast the XArray is, beside JudyL and liburcu's hash table in the same process.
 *
 * The subjects hold 2^20 entries. One figure is the median over several rounds of the CPU time of
 * the measuring thread for one operation, so that other load on the machine counts little. Each
 * operation brings its own locking, as a user would call it: a lock for each store, a read-side
 * section for each load; an iteration has one for the whole. Random means a permutation of the same
 * indices. The hash table has its final size, and its nodes are one array, from the start.
 *
 * The readers' figures are loads for each second of CPU time, in threads that run at the same time.
 *
 * FOLIOFS_ROUNDS: rounds, 7 unless set. Prints one line `figure NAME VALUE UNIT` for each.
 */
#include "node_alloc.h"
#include "tree_bench.h"
#include "xa_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef HAVE_JUDY
#include <Judy.h>
#endif
#ifdef HAVE_LFHT
#include <urcu/rculfhash.h>
#endif

#define N (1UL << 20)

/*
 * XArray
 */

static struct xarray xa;

static void xa_put(unsigned long index)
{
	if (xa_err(xa_store(&xa, index, xa_mk_value(index), GFP_KERNEL)))
		fail("no memory");
}

static void xa_store_seq(void)
{
	for (unsigned long i = 0; i < N; i++)
		xa_put(i);
}

static void xa_store_random(void)
{
	for (unsigned long i = 0; i < N; i++)
		xa_put(shuffled[i]);
}

static void xa_load_seq(void)
{
	for (unsigned long i = 0; i < N; i++)
		sink += xa_to_value(xa_load(&xa, i));
}

static void xa_load_random(void)
{
	for (unsigned long i = 0; i < N; i++)
		sink += xa_to_value(xa_load(&xa, shuffled[i]));
}

static void xa_iterate(void)
{
	XA_STATE(xas, &xa, 0);
	unsigned long sum = 0;
	void *entry;

	rcu_read_lock();
	xas_for_each(&xas, entry, ULONG_MAX)
		sum += xa_to_value(entry);
	rcu_read_unlock();
	sink += sum;
}

static void xa_mark_all(void)
{
	for (unsigned long i = 0; i < N; i++)
		xa_set_mark(&xa, i, XA_MARK_1);
}

static void xa_iterate_marked(void)
{
	XA_STATE(xas, &xa, 0);
	unsigned long sum = 0;
	void *entry;

	rcu_read_lock();
	xas_for_each_marked(&xas, entry, ULONG_MAX, XA_MARK_1)
		sum += xa_to_value(entry);
	rcu_read_unlock();
	sink += sum;
}

static void xa_erase_seq(void)
{
	for (unsigned long i = 0; i < N; i++)
		sink += xa_to_value(xa_erase(&xa, i));
}

/*
 * JudyL: no marks, and no readers beside a writer
 */

#ifdef HAVE_JUDY
static Pvoid_t judy;

static void judy_put(unsigned long index)
{
	PWord_t slot;

	JLI(slot, judy, index);
	if (slot == PJERR)
		fail("no memory");
	*slot = index;
}

static void judy_store_seq(void)
{
	for (unsigned long i = 0; i < N; i++)
		judy_put(i);
}

static void judy_store_random(void)
{
	for (unsigned long i = 0; i < N; i++)
		judy_put(shuffled[i]);
}

static void judy_load_seq(void)
{
	PWord_t slot;

	for (unsigned long i = 0; i < N; i++) {
		JLG(slot, judy, i);
		sink += *slot;
	}
}

static void judy_load_random(void)
{
	PWord_t slot;

	for (unsigned long i = 0; i < N; i++) {
		JLG(slot, judy, shuffled[i]);
		sink += *slot;
	}
}

static void judy_iterate(void)
{
	unsigned long sum = 0;
	Word_t index = 0;
	PWord_t slot;

	JLF(slot, judy, index);
	while (slot) {
		sum += *slot;
		JLN(slot, judy, index);
	}
	sink += sum;
}

static void judy_erase_seq(void)
{
	int found;

	for (unsigned long i = 0; i < N; i++) {
		JLD(found, judy, i);
		sink += found;
	}
}
#endif

/*
 * liburcu's hash table: no order, no marks
 */

#ifdef HAVE_LFHT
struct lfht_entry {
	struct cds_lfht_node node;
	unsigned long index;
};

static struct cds_lfht *lfht;
static struct lfht_entry *lfht_entries;

static void lfht_begin(void)
{
	lfht = cds_lfht_new_flavor(N, N, N, 0, &urcu_memb_flavor, NULL);
	lfht_entries = calloc(N, sizeof(*lfht_entries));
	if (!lfht || !lfht_entries)
		fail("no memory");
	for (unsigned long i = 0; i < N; i++)
		lfht_entries[i].index = i;
}

static unsigned long hash(unsigned long index)
{
	index *= 0x9e3779b97f4a7c15;
	return index ^ index >> 32;
}

static int match(struct cds_lfht_node *node, const void *key)
{
	return caa_container_of(node, struct lfht_entry, node)->index ==
	       *(const unsigned long *)key;
}

static void lfht_put(unsigned long index)
{
	rcu_read_lock();
	cds_lfht_add_replace(lfht, hash(index), match, &index, &lfht_entries[index].node);
	rcu_read_unlock();
}

static struct cds_lfht_node *lfht_get(unsigned long index)
{
	struct cds_lfht_iter iter;

	cds_lfht_lookup(lfht, hash(index), match, &index, &iter);
	return cds_lfht_iter_get_node(&iter);
}

static void lfht_load(unsigned long index)
{
	rcu_read_lock();
	sink += caa_container_of(lfht_get(index), struct lfht_entry, node)->index;
	rcu_read_unlock();
}

static void lfht_store_seq(void)
{
	for (unsigned long i = 0; i < N; i++)
		lfht_put(i);
}

static void lfht_store_random(void)
{
	for (unsigned long i = 0; i < N; i++)
		lfht_put(shuffled[i]);
}

static void lfht_load_seq(void)
{
	for (unsigned long i = 0; i < N; i++)
		lfht_load(i);
}

static void lfht_load_random(void)
{
	for (unsigned long i = 0; i < N; i++)
		lfht_load(shuffled[i]);
}

static void lfht_iterate(void)
{
	struct cds_lfht_iter iter;

	rcu_read_lock();
	for (cds_lfht_first(lfht, &iter); cds_lfht_iter_get_node(&iter); cds_lfht_next(lfht, &iter))
		sink += caa_container_of(iter.node, struct lfht_entry, node)->index;
	rcu_read_unlock();
}

static void lfht_erase_seq(void)
{
	for (unsigned long i = 0; i < N; i++) {
		rcu_read_lock();
		sink += cds_lfht_del(lfht, lfht_get(i));
		rcu_read_unlock();
	}
	/* A node may be added again only after a grace period. */
	synchronize_rcu();
}
#endif

/*
 * One thread
 */

static const char *const op_names[] = {
	"store_seq", "load_seq",       "load_random", "iterate",
	"set_mark",  "iterate_marked", "erase_seq",   "store_random", NULL,
};

/* A round begins and ends empty: the random stores come last, and are erased unmeasured. */
static const struct subject subjects[] = {
	{"xa",
	 NULL,
	 xa_erase_seq,
	 {xa_store_seq, xa_load_seq, xa_load_random, xa_iterate, xa_mark_all, xa_iterate_marked,
	  xa_erase_seq, xa_store_random}},
#ifdef HAVE_JUDY
	{"judy",
	 NULL,
	 judy_erase_seq,
	 {judy_store_seq, judy_load_seq, judy_load_random, judy_iterate, NULL, NULL, judy_erase_seq,
	  judy_store_random}},
#endif
#ifdef HAVE_LFHT
	{"lfht",
	 lfht_begin,
	 lfht_erase_seq,
	 {lfht_store_seq, lfht_load_seq, lfht_load_random, lfht_iterate, NULL, NULL, lfht_erase_seq,
	  lfht_store_random}},
#endif
};

/*
 * Several threads
 */

#define LOADS (1UL << 22)

static bool stop_writer;

/* Loads all over the array. Return, through *rate: loads for each second of CPU time. */
static void *read_at_random(void *rate)
{
	unsigned long found = 0;
	double start;

	rcu_register_thread();
	start = cpu_seconds();
	for (unsigned long i = 0; i < LOADS; i++)
		found += xa_to_value(xa_load(&xa, shuffled[i % N]));
	*(double *)rate = LOADS / (cpu_seconds() - start);
	__atomic_fetch_add(&sink, found, __ATOMIC_RELAXED);
	return NULL;
}

/* Erases and stores again, all over the array. */
static void *write_at_random(void *unused)
{
	for (unsigned long i = 0; !__atomic_load_n(&stop_writer, __ATOMIC_RELAXED); i++) {
		unsigned long index = shuffled[(i * 7) % N];

		xa_erase(&xa, index);
		xa_put(index);
	}
	return NULL;
}

static double read_in_threads(unsigned int n)
{
	pthread_t threads[2];
	double rates[2], sum = 0;

	for (unsigned int i = 0; i < n; i++) {
		if (pthread_create(&threads[i], NULL, read_at_random, &rates[i]))
			fail("no thread");
	}
	for (unsigned int i = 0; i < n; i++) {
		pthread_join(threads[i], NULL);
		sum += rates[i];
	}
	return sum;
}

static void measure_threads(unsigned int rounds)
{
	double two[MAX_ROUNDS], beside[MAX_ROUNDS];
	pthread_t writer;

	xa_store_seq();
	for (unsigned int round = 0; round < rounds; round++) {
		double alone = read_in_threads(1);

		two[round] = read_in_threads(2) / alone;
		__atomic_store_n(&stop_writer, false, __ATOMIC_RELAXED);
		if (pthread_create(&writer, NULL, write_at_random, NULL))
			fail("no thread");
		beside[round] = read_in_threads(1) / alone;
		__atomic_store_n(&stop_writer, true, __ATOMIC_RELAXED);
		pthread_join(writer, NULL);
	}
	printf("figure xa.readers2_scaling %.2f ratio\n", median(two, rounds));
	printf("figure xa.reader_beside_writer %.2f ratio\n", median(beside, rounds));
}

static void measure_memory(void)
{
	uint64_t random = 88172645463325252;
	double node = sizeof(struct xa_node);

	printf("figure xa.bytes_per_entry_dense %.2f B\n",
	       node_pool_live(&xa_node_pool) * node / N);
	xa_destroy(&xa);
	node_pool_drain(&xa_node_pool);
	for (unsigned long i = 0; i < N / 16; i++)
		xa_put(next_random(&random) >> 32);
	printf("figure xa.bytes_per_entry_sparse %.2f B\n",
	       node_pool_live(&xa_node_pool) * node / (N / 16));
	xa_destroy(&xa);
}

int main(void)
{
	unsigned int rounds = bench_rounds();

	rcu_register_thread();
	shuffle(N);
	for (unsigned int i = 0; i < sizeof(subjects) / sizeof(subjects[0]); i++)
		measure(&subjects[i], op_names, N, rounds);
	measure_threads(rounds);
	node_pool_drain(&xa_node_pool);
	measure_memory();
	return 0;
}
