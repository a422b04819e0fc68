/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The cache's hot paths, on a backing that does nothing, so that only the cache's own work is
 * measured. Where the cache uses a newer algorithm, the older one runs beside it.
 *
 *	bench_cache [ROUNDS]
 *
 * Prints lines "figure NAME VALUE UNIT": the best of the rounds. Lower is better.
 */
#include <stdio.h>
#include <stdlib.h>
#include "internal.h"

#define CACHE_BYTES (64UL << 20)
#define NR 4096UL /* folios of the file */

static struct cache *cache;
static struct mapping file;
static char buf[1 << 20];

static int read_nothing(struct mapping *mapping, struct folio **folios, unsigned int nr)
{
	unsigned int i;

	for (i = 0; i < nr; i++)
		folio_mark_uptodate(folios[i]);
	return 0;
}

static int write_nothing(struct mapping *mapping, struct folio **folios, unsigned int nr)
{
	unsigned int i;

	for (i = 0; i < nr; i++)
		folio_unlock(folios[i]);
	return 0;
}

static const struct mapping_ops ops = {.read_folios = read_nothing, .write_folios = write_nothing};

static void fill_file(void)
{
	unsigned long pos;

	for (pos = 0; pos < NR * PAGE_SIZE; pos += sizeof(buf))
		filemap_read(&file, pos, buf, sizeof(buf));
}

static void dirty_file(void)
{
	unsigned long i;

	for (i = 0; i < NR; i++)
		filemap_write(&file, i * PAGE_SIZE, buf, PAGE_SIZE);
}

static void bench_read_hit(void)
{
	unsigned long i;

	for (i = 0; i < NR; i++)
		filemap_read(&file, i * PAGE_SIZE, buf, PAGE_SIZE);
}

static void bench_lookup(void)
{
	unsigned long i;

	for (i = 0; i < NR; i++)
		folio_put(filemap_get_folio(&file, i * 2654435761UL % NR));
}

static void bench_batches(void)
{
	struct folio_batch batch;
	unsigned long i = 0;

	while (i < NR) {
		filemap_get_pages(&file, i * PAGE_SIZE, NR * PAGE_SIZE, &batch);
		i += batch.nr;
		folio_batch_release(&batch);
	}
}

static void drop_file(void)
{
	truncate_all(&file);
}

static void write_runs(void)
{
	filemap_write_and_wait(&file);
}

/* The older way: look dirty folios up in batches, and write each by itself. */
static void write_single(void)
{
	unsigned long i;

	for (i = 0; i < NR; i++)
		filemap_write_range(&file, i * PAGE_SIZE, i * PAGE_SIZE + PAGE_SIZE - 1);
}

/* The older way: one walk and one lock for each folio. */
static void drop_single(void)
{
	unsigned long i;

	for (i = 0; i < NR; i++)
		invalidate_blocks(&file, i * PAGE_SIZE, (i + 1) * PAGE_SIZE);
}

struct bench {
	const char *name;
	void (*prepare)(void);
	void (*run)(void);
};

static const struct bench benches[] = {
	{"cache_lookup", fill_file, bench_lookup},
	{"cache_read_hit_4k", fill_file, bench_read_hit},
	{"cache_get_pages_hit", fill_file, bench_batches},
	{"cache_read_miss", drop_file, fill_file},
	{"cache_write_new", drop_file, dirty_file},
	{"cache_write_dirty", dirty_file, dirty_file},
	{"cache_writeback_runs", dirty_file, write_runs},
	{"cache_writeback_single", dirty_file, write_single},
	{"cache_truncate_batches", fill_file, drop_file},
	{"cache_truncate_single", fill_file, drop_single},
};

static double best_of(const struct bench *bench, unsigned int rounds)
{
	uint64_t best = UINT64_MAX, start;

	while (rounds--) {
		bench->prepare();
		start = now_ns();
		bench->run();
		if (now_ns() - start < best)
			best = now_ns() - start;
	}
	return (double)best / NR;
}

int main(int argc, char **argv)
{
	unsigned int i, rounds = argc > 1 ? atoi(argv[1]) : 20;
	struct cache_config config = {.bytes = CACHE_BYTES};

	rcu_register_thread();
	if (cache_create(&cache, &config) ||
	    mapping_init(&file, cache, MAPPING_FILE, 12, &ops, NULL))
		return 1;
	/* Only the passes that are asked for: no limit is reached. */
	cache->background = cache->hard = 2 * NR;
	mapping_set_size(&file, NR * PAGE_SIZE);
	for (i = 0; i < sizeof(benches) / sizeof(*benches); i++)
		printf("figure %s %.1f ns/folio\n", benches[i].name, best_of(&benches[i], rounds));
	truncate_all(&file);
	mapping_finish(&file);
	cache_destroy(cache);
	return 0;
}
