/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A storm over large folios and their shadows: threads insert folios of all orders over the same few
 * ranges, while others evict, split, truncate, invalidate, write, and add larger ones again, and
 * allocations of nodes fail. Made to run under AddressSanitizer and ThreadSanitizer.
 *
 *	storm [SECONDS [SEED]]
 *
 * Each word of a page says which page it is. The lower half of the file is never truncated, so a word
 * there is right or there is a bug; in the upper half it may be zero as well. Nothing may be lost at
 * the end: no frame, no node, no mark. A watchdog ends the run when a thread does not get on for 60
 * seconds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "internal.h"
#include "node_alloc.h"

#define CACHE_BYTES (24UL << 20)
#define ORDER FILEMAP_MAX_ORDER
#define RANGE (1UL << ORDER)	/* pages */
#define RANGES 8
#define PAGES (RANGES * RANGE)
#define STABLE (PAGES / 2)	/* pages that are always there */
#define THREADS 6
#define READ_MOST (64 * PAGE_SIZE)
#define STALL_S 60

extern struct node_pool xa_node_pool;

static struct cache *cache;
static struct mapping file;
static pthread_mutex_t inode_lock = PTHREAD_MUTEX_INITIALIZER;
static bool present[PAGES];	/* on the backing; atomic */
static bool stop;
static unsigned long steps[THREADS], failures;

static void fail(const char *what, pgoff_t index)
{
	fprintf(stderr, "storm: %s at page %lu\n", what, index);
	abort();
}

static uint64_t rnd(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static uint64_t word_of(pgoff_t index)
{
	return (index + 1) * 0x9e3779b97f4a7c15ULL | 1;
}

static void fill_page(uint64_t *page, pgoff_t index)
{
	unsigned int i;

	for (i = 0; i < PAGE_SIZE / sizeof(*page); i++)
		page[i] = word_of(index);
}

static void check_page(const uint64_t *page, pgoff_t index)
{
	unsigned int i;

	for (i = 0; i < PAGE_SIZE / sizeof(*page); i++)
		if (page[i] != word_of(index) && (page[i] || index < STABLE))
			fail("wrong byte", index);
}

static bool on_backing(pgoff_t index)
{
	return __atomic_load_n(&present[index], __ATOMIC_RELAXED);
}

static int read_folios(struct mapping *mapping, struct folio **folios, unsigned int nr)
{
	static const uint64_t zeros[PAGE_SIZE / 8];
	uint64_t page[PAGE_SIZE / 8];
	unsigned int i, block;

	for (i = 0; i < nr; i++) {
		for (block = 0; block < folio_nr_blocks(folios[i]); block++) {
			pgoff_t index = folios[i]->index + block;
			bool data = on_backing(index) &&
				    (loff_t)index * (loff_t)PAGE_SIZE < mapping_size(mapping);

			if (folio_block(folios[i], BLOCKS_VALID, block))
				continue;
			fill_page(page, index);
			folio_copy_from(folios[i], block * PAGE_SIZE, data ? page : zeros, PAGE_SIZE);
		}
		folio_mark_uptodate(folios[i]);
	}
	return 0;
}

static int write_folios(struct mapping *mapping, struct folio **folios, unsigned int nr)
{
	uint64_t page[PAGE_SIZE / 8];
	unsigned int i, block;

	for (i = 0; i < nr; i++) {
		for (block = 0; block < folio_nr_blocks(folios[i]); block++) {
			pgoff_t index = folios[i]->index + block;

			if (!folio_block(folios[i], BLOCKS_WRITING, block))
				continue;
			folio_copy_to(page, folios[i], block * PAGE_SIZE, PAGE_SIZE);
			check_page(page, index);
			__atomic_store_n(&present[index], true, __ATOMIC_RELAXED);
		}
		folio_unlock(folios[i]);
	}
	return 0;
}

static const struct mapping_ops ops = {.read_folios = read_folios, .write_folios = write_folios};

/* Errors are allowed where a node could not be had. */
static void expect(ssize_t err, const char *what, pgoff_t index)
{
	if (err == -ENOMEM)
		__atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
	else if (err < 0)
		fail(what, index);
}

static void do_read(pgoff_t index, size_t len, char *buf)
{
	ssize_t n = filemap_read(&file, index * PAGE_SIZE, buf, len);
	pgoff_t i;

	expect(n, "read failed", index);
	for (i = 0; n > 0 && i < n / PAGE_SIZE; i++)
		check_page((uint64_t *)(buf + i * PAGE_SIZE), index + i);
}

/* A batch: every folio is one of this file's, and lies where it should. */
static void do_batch(pgoff_t index, size_t len)
{
	struct folio_batch batch;
	uint64_t page[PAGE_SIZE / 8];
	unsigned int i;

	expect(filemap_get_pages(&file, index * PAGE_SIZE, len, &batch), "no batch", index);
	for (i = 0; i < batch.nr; i++) {
		struct folio *folio = batch.folios[i];

		if (i ? folio->index != folio_next_index(batch.folios[i - 1])
		      : index - folio->index >= 1UL << folio->order)
			fail("gap in a batch", index);
		folio_copy_to(page, folio, folio_size(folio) - PAGE_SIZE, PAGE_SIZE);
		if (folio_range_valid(folio, folio_size(folio) - PAGE_SIZE, PAGE_SIZE))
			check_page(page, folio_next_index(folio) - 1);
	}
	folio_batch_release(&batch);
}

static void do_insert(pgoff_t index, unsigned int order)
{
	struct folio *folio = folio_alloc(cache, MAPPING_FILE, order, order, false);
	int err;

	if (!folio)
		return;
	index &= ~((1UL << order) - 1);
	filemap_invalidate_lock_shared(&file);
	err = filemap_add_folio(&file, folio, index, false);
	if (!err) {
		filemap_read_run(&file, &folio, 1);
		folio_unlock(folio);
	} else if (err != -EEXIST) {
		expect(err, "insertion failed", index);
	}
	filemap_invalidate_unlock_shared(&file);
	folio_put(folio);
}

static void do_evict(pgoff_t first, unsigned long pages)
{
	pgoff_t index;

	for (index = first; index < first + pages; index++) {
		struct folio *folio = filemap_get_folio(&file, index);

		if (folio)
			evict_folio(folio);
	}
}

static void do_split(pgoff_t index, uint64_t *state)
{
	struct folio *folio = filemap_get_folio(&file, index);
	int err;

	if (!folio)
		return;
	folio_lock(folio);
	if (folio->mapping == &file && folio->order) {
		folio_wait_writeback(folio);
		err = folio_split(folio, rnd(state) % folio->order);
		if (err != -EBUSY)
			expect(err, "split failed", index);
	}
	folio_unlock(folio);
	folio_put(folio);
}

static void do_truncate(pgoff_t index, unsigned long pages, bool punch)
{
	int err;

	index = STABLE + index % (PAGES - STABLE);
	if (!punch || pages > PAGES - index)
		pages = PAGES - index;
	pthread_mutex_lock(&inode_lock);
	filemap_invalidate_lock(&file);
	if (punch)
		err = truncate_hole(&file, index * PAGE_SIZE, (index + pages) * PAGE_SIZE);
	else
		err = truncate_setsize(&file, index * PAGE_SIZE);
	expect(err, "truncation failed", index);
	if (!err) {
		for (pgoff_t i = index; i < index + pages; i++)
			__atomic_store_n(&present[i], false, __ATOMIC_RELAXED);
		truncate_setsize(&file, PAGES * PAGE_SIZE);
	}
	filemap_invalidate_unlock(&file);
	pthread_mutex_unlock(&inode_lock);
}

static void do_write(pgoff_t index, unsigned long pages, char *buf)
{
	unsigned long i;

	if (pages > PAGES - index)
		pages = PAGES - index;
	for (i = 0; i < pages; i++)
		fill_page((uint64_t *)(buf + i * PAGE_SIZE), index + i);
	pthread_mutex_lock(&inode_lock);
	expect(filemap_write(&file, index * PAGE_SIZE, buf, pages * PAGE_SIZE), "write failed",
	       index);
	pthread_mutex_unlock(&inode_lock);
}

static void step(uint64_t *state, char *buf)
{
	/* Mostly within two ranges, of which one can be truncated. */
	pgoff_t range = rnd(state) % 4 ? rnd(state) % 2 * (RANGES - 1) : rnd(state) % RANGES;
	pgoff_t index = range * RANGE + rnd(state) % RANGE;
	unsigned long pages = 1 + rnd(state) % (READ_MOST / PAGE_SIZE);

	switch (rnd(state) % 24) {
	case 0 ... 2:
		do_insert(index, 0);
		break;
	case 3 ... 4:
		do_insert(index, rnd(state) % (ORDER + 1));
		break;
	case 5 ... 6: /* a large one again, where smaller ones were */
		do_evict(range * RANGE, RANGE);
		do_insert(index, ORDER);
		break;
	case 7 ... 8:
		do_evict(index, 1);
		break;
	case 9 ... 10:
		do_split(index, state);
		break;
	case 11:
		do_truncate(index, pages, rnd(state) % 2);
		break;
	case 12:
		pthread_mutex_lock(&inode_lock);
		invalidate_blocks(&file, index * PAGE_SIZE, (index + pages) * PAGE_SIZE);
		pthread_mutex_unlock(&inode_lock);
		break;
	case 13 ... 14:
		do_write(index, pages, buf);
		break;
	case 15:
		if (filemap_write_and_wait(&file))
			fail("fsync failed", 0);
		break;
	case 16:
		node_pool_fail(&xa_node_pool, rnd(state) % 20, rnd(state) % 3);
		break;
	case 17 ... 18:
		do_batch(index, pages * PAGE_SIZE);
		break;
	default:
		do_read(index, rnd(state) % 2 ? PAGE_SIZE : pages * PAGE_SIZE, buf);
		break;
	}
}

static uint64_t seed;

static void *worker(void *arg)
{
	unsigned long nr = (uintptr_t)arg;
	uint64_t state = seed + nr * 7919;
	char *buf = aligned_alloc(PAGE_SIZE, READ_MOST);

	rcu_register_thread();
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		step(&state, buf);
		__atomic_fetch_add(&steps[nr], 1, __ATOMIC_RELAXED);
	}
	free(buf);
	rcu_unregister_thread();
	return NULL;
}

static void watch(unsigned int seconds)
{
	unsigned long before[THREADS] = {0}, now;
	unsigned int still[THREADS] = {0}, s, i;
	struct cache_stats stats;

	for (s = 0; s < seconds; s++) {
		sleep(1);
		cache_get_stats(cache, &stats);
		if (stats.used_bytes > CACHE_BYTES)
			fail("bound", 0);
		for (i = 0; i < THREADS; i++) {
			now = __atomic_load_n(&steps[i], __ATOMIC_RELAXED);
			still[i] = now == before[i] ? still[i] + 1 : 0;
			before[i] = now;
			if (still[i] > STALL_S)
				fail("a thread does not get on", i);
		}
	}
}

/* Everything is still right, and everything can be given back. */
static void finish(void)
{
	char *buf = aligned_alloc(PAGE_SIZE, READ_MOST);
	struct cache_stats stats;
	unsigned long sum = 0;
	pgoff_t index;
	int i;

	node_pool_fail(&xa_node_pool, 0, 0);
	mapping_check(&file);
	for (index = 0; index < PAGES; index += READ_MOST / PAGE_SIZE)
		do_read(index, READ_MOST, buf);
	if (filemap_write_and_wait(&file))
		fail("last write failed", 0);
	mapping_check(&file);
	cache_check(cache);
	for (i = 0; i < THREADS; i++)
		sum += steps[i];
	cache_get_stats(cache, &stats);
	printf("storm: %lu steps, %lu evictions, %lu shadows split, %lu folios split, %lu failures, "
	       "%.3f walks for an insertion\n", sum, stats.evictions, stats.shadow_splits,
	       stats.folio_splits, failures, (double)stats.add_walks / stats.adds);
	fflush(stdout);
	if (!stats.shadow_splits || !stats.folio_splits || !failures)
		fail("nothing happened", 0);
	truncate_all(&file);
	mapping_check(&file);
	mapping_finish(&file);
	cache_check(cache);
	cache_destroy(cache);
	node_pool_drain(&xa_node_pool);
	if (node_pool_live(&xa_node_pool))
		fail("nodes are left", node_pool_live(&xa_node_pool));
	free(buf);
}

int main(int argc, char **argv)
{
	struct cache_config config = {.bytes = CACHE_BYTES, .dirty_expire_ms = 20};
	unsigned int seconds = argc > 1 ? atoi(argv[1]) : 5;
	pthread_t threads[THREADS];
	unsigned long i;

	seed = argc > 2 ? strtoull(argv[2], NULL, 0) : now_ns() | 1;
	printf("storm: seed %#lx\n", (unsigned long)seed);
	fflush(stdout);
	rcu_register_thread();
	if (cache_create(&cache, &config) ||
	    mapping_init(&file, cache, MAPPING_FILE, PAGE_SHIFT, &ops, NULL))
		return 1;
	mapping_set_size(&file, PAGES * PAGE_SIZE);
	memset(present, 1, sizeof(present));
	for (i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, worker, (void *)i);
	watch(seconds);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	finish();
	return 0;
}
