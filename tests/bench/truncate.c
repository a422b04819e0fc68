/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Truncation as in seed 002, beside the older way, on a backing that does nothing.
 *
 *	bench_truncate [BIG_MIB]
 *
 * The sparse truncate: many files, of a few pages far apart each, and the time that it takes to empty
 * each one. "tiny": all fits in the cache; "large": twice the cache, so that the files that were read
 * first are shadows; "shadow_only": files whose pages have all been evicted. "big_file" empties one
 * cached file of BIG_MIB (4096, or two thirds of the memory that is free).
 *
 * The older way, kept here: folios are looked up in batches with references, and then each entry,
 * folio or shadow, is taken out by a walk of its own under a lock of its own, and freed by itself.
 *
 * Files in turn are emptied by one way and by the other, so that both meet the same machine and the same
 * state of the cache. A figure is the older way's median time for a file over the newer way's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "internal.h"

#define CACHE_BYTES (64UL << 20)
#define FILES_MAX 4096
#define FILE_PAGES 16UL		/* of a sparse file */
#define SPARSE 1021UL		/* pages from one to the next: a node of the tree for each */
#define NEAR 3UL		/* all in one node: so few that the bound on nodes of shadows keeps them */
#define BIG_ROUNDS 4
#define ROUNDS 6		/* even: the two ways change places */

enum way { BATCHES, SINGLE, WAYS };

static struct cache *cache;
static struct mapping files[FILES_MAX];
static double times[WAYS][FILES_MAX * ROUNDS];
static unsigned int nr_times[WAYS];

static int read_nothing(struct mapping *mapping, struct folio **folios, unsigned int nr)
{
	unsigned int i;

	for (i = 0; i < nr; i++)
		folio_mark_uptodate(folios[i]);
	return 0;
}

static const struct mapping_ops ops = {.read_folios = read_nothing};

/* Takes one entry out, as it was done before: a walk and a lock for it alone. */
static void drop_entry(struct mapping *mapping, pgoff_t index, void *entry)
{
	XA_STATE(xas, &mapping->i_pages, index);

	xas_set_update(&xas, workingset_update_node);
	xas_lock(&xas);
	if (xas_load(&xas) == entry) {
		xas_store(&xas, NULL);
		if (!xa_is_value(entry)) {
			struct folio *folio = entry;

			filemap_removed(mapping);
			folio->mapping = NULL;
			mapping_count_pages(mapping, -(1L << folio->order));
		}
	}
	xas_unlock(&xas);
}

static unsigned int find_entries(struct mapping *mapping, pgoff_t start, void **entries,
				 pgoff_t *indices)
{
	XA_STATE(xas, &mapping->i_pages, start);
	unsigned int nr = 0;
	void *entry;

	rcu_read_lock();
	xas_for_each(&xas, entry, ULONG_MAX >> 1) {
		if (xas_retry(&xas, entry))
			continue;
		if (!xa_is_value(entry) && !folio_try_get(entry))
			continue;
		indices[nr] = xa_is_value(entry) ? xas.xa_index : ((struct folio *)entry)->index;
		entries[nr++] = entry;
		if (nr == FOLIO_BATCH_SIZE)
			break;
	}
	rcu_read_unlock();
	return nr;
}

static void drop_single(struct mapping *mapping)
{
	pgoff_t indices[FOLIO_BATCH_SIZE], start = 0;
	void *entries[FOLIO_BATCH_SIZE];
	unsigned int i, nr;

	while ((nr = find_entries(mapping, start, entries, indices))) {
		for (i = 0; i < nr; i++) {
			struct folio *folio = entries[i];

			if (xa_is_value(folio)) {
				drop_entry(mapping, indices[i], folio);
				continue;
			}
			folio_lock(folio);
			if (folio->mapping == mapping) {
				folio_wait_writeback(folio);
				drop_entry(mapping, folio->index, folio);
				folio_put(folio);
			}
			folio_unlock(folio);
			folio_put(folio);
		}
		start = indices[nr - 1] + 1;
	}
}

static void empty_timed(struct mapping *mapping, enum way way)
{
	uint64_t start = now_ns();

	if (way == BATCHES)
		truncate_all(mapping);
	else
		drop_single(mapping);
	times[way][nr_times[way]++] = now_ns() - start;
}

static void read_sparse(struct mapping *mapping, unsigned long stride)
{
	unsigned long i;
	char byte;

	for (i = 0; i < FILE_PAGES; i++)
		filemap_read(mapping, i * stride * PAGE_SIZE, &byte, 1);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void report(const char *name)
{
	static const char *const ways[] = {"batches", "single"};
	double medians[WAYS];
	int way;

	for (way = 0; way < WAYS; way++) {
		unsigned int nr = nr_times[way];
		double *t = times[way];

		qsort(t, nr, sizeof(*t), by_value);
		medians[way] = t[nr / 2];
		printf("%-11s %-7s %5u truncates: min %.2f, quartiles %.2f %.2f %.2f, max %.2f us\n",
		       name, ways[way], nr, t[0] / 1e3, t[nr / 4] / 1e3, t[nr / 2] / 1e3,
		       t[nr * 3 / 4] / 1e3, t[nr - 1] / 1e3);
		nr_times[way] = 0;
	}
	printf("figure truncate.%s %.2f ratio\n", name, medians[SINGLE] / medians[BATCHES]);
}

/* @nr files are filled, as often as there are rounds, and @timed of them are timed. */
static void sparse(const char *name, unsigned long stride, unsigned int nr, unsigned int timed)
{
	unsigned int i, round;

	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < nr; i++)
			read_sparse(&files[i], stride);
		for (i = 0; i < timed; i++)
			empty_timed(&files[i], (i + round) % WAYS);
		for (; i < nr; i++)
			truncate_all(&files[i]);
	}
	report(name);
}

static void start_cache(size_t bytes, unsigned int nr, loff_t size)
{
	struct cache_config config = {.bytes = bytes};
	unsigned int i;

	if (cache_create(&cache, &config))
		exit(1);
	for (i = 0; i < nr; i++) {
		if (mapping_init(&files[i], cache, MAPPING_FILE, 12, &ops, NULL))
			exit(1);
		mapping_set_size(&files[i], size);
	}
}

static void stop_cache(unsigned int nr)
{
	unsigned int i;

	for (i = 0; i < nr; i++) {
		truncate_all(&files[i]);
		mapping_finish(&files[i]);
	}
	cache_destroy(cache);
}

static void big_file(size_t mib)
{
	size_t bytes = mib << 20, pos;
	int round;
	char byte;

	start_cache(bytes + bytes / 8, 1, bytes);
	for (round = 0; round < BIG_ROUNDS; round++) {
		for (pos = 0; pos < bytes; pos += PAGE_SIZE)
			filemap_read(&files[0], pos, &byte, 1);
		empty_timed(&files[0], round % WAYS);
	}
	printf("big_file: %zu MiB\n", mib);
	report("big_file");
	stop_cache(1);
}

int main(int argc, char **argv)
{
	unsigned int fitting = CACHE_BYTES / PAGE_SIZE / FILE_PAGES;
	size_t mib = 4096, free_mib = sysconf(_SC_AVPHYS_PAGES) / 256;

	if (mib > free_mib / 3 * 2)
		mib = free_mib / 3 * 2;
	if (argc > 1)
		mib = atoi(argv[1]);
	rcu_register_thread();
	start_cache(CACHE_BYTES, 2 * fitting, FILE_PAGES * SPARSE * PAGE_SIZE);
	sparse("tiny_speedup", SPARSE, fitting / 2, fitting / 2);
	sparse("large_speedup", NEAR, 2 * fitting, 2 * fitting);
	sparse("shadow_only_speedup", NEAR, 2 * fitting, fitting / 2);
	stop_cache(2 * fitting);
	big_file(mib);
	rcu_unregister_thread();
	return 0;
}
