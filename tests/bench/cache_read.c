/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reading through the cache, in process, with the algorithms that were there before beside the cache's
 * own. The older ones live here only.
 *
 *	bench_cache_read add [ROUNDS]	seed 000: adding a folio where one was evicted
 *	bench_cache_read read [ROUNDS]	cached 4 KiB random reads, beside pread(2) of a cached file
 *	bench_cache_read batch new|old|none BYTES READS
 *					seed 001: sequential cached reads, for callgrind to count
 *
 * Prints lines "figure NAME VALUE UNIT". The variants of a comparison run in turn, in short rounds.
 * Times are those of the best round. A comparison is the median of those of neighbouring rounds, so
 * that a machine that is slower for a while is so for both.
 *
 * filemap.c is included as text, since its steps are compared one by one.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "filemap.c"

#define THREADS 2
#define CACHE_BYTES (64UL << 20)
#define FILE_PAGES (2 * CACHE_BYTES / PAGE_SIZE)
#define READS 50000UL		/* of a thread and a round */
#define ROUNDS_MAX 1000
#define SPLITS 2000UL		/* large shadows of a round */
#define HOT_PAGES 8192UL	/* of the file that is cached whole, and is larger than most L2 caches */
#define SMALL_PAGES 256UL	/* of its part that is not */

typedef int (*add_fn)(struct mapping *mapping, struct folio *folio, pgoff_t index, bool write);

static struct cache *cache;
static struct mapping file;
static char *backing;
static unsigned long old_walks, old_adds; /* atomic */

static void die(const char *what)
{
	fprintf(stderr, "bench_cache_read: %s\n", what);
	exit(1);
}

static uint64_t rnd(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static int read_memory(struct mapping *mapping, struct folio **folios, unsigned int nr)
{
	unsigned int i;

	for (i = 0; i < nr; i++) {
		loff_t at = folio_pos(folios[i]) % (FILE_PAGES * PAGE_SIZE);

		folio_copy_from(folios[i], 0, backing + at, folio_size(folios[i]));
		folio_mark_uptodate(folios[i]);
	}
	return 0;
}

static int write_nothing(struct mapping *mapping, struct folio **folios, unsigned int nr)
{
	unsigned int i;

	for (i = 0; i < nr; i++)
		folio_unlock(folios[i]);
	return 0;
}

static const struct mapping_ops ops = {.read_folios = read_memory, .write_folios = write_nothing};

static void start(size_t bytes, pgoff_t pages)
{
	struct cache_config config = {.bytes = bytes};

	backing = aligned_alloc(PAGE_SIZE, FILE_PAGES * PAGE_SIZE);
	if (!backing || cache_create(&cache, &config) ||
	    mapping_init(&file, cache, MAPPING_FILE, PAGE_SHIFT, &ops, NULL))
		die("no memory");
	memset(backing, 1, FILE_PAGES * PAGE_SIZE);
	mapping_set_size(&file, pages * PAGE_SIZE);
}

static void end(void)
{
	truncate_all(&file);
	mapping_finish(&file);
	cache_destroy(cache);
	free(backing);
}

/*
 * Adding, the older way: the order of the slot is looked up before the lock is taken, to allocate for
 * a split; the conflicts are looked for under it; the order is looked up once more before the split.
 */
static int add_to_array_old(struct mapping *mapping, struct folio *folio, void **shadow)
{
	XA_STATE_ORDER(xas, &mapping->i_pages, folio->index, folio->order);
	unsigned int walks = 0;
	void *entry;
	int order;

	xas_set_update(&xas, workingset_update_node);
	do {
		order = xa_get_order(xas.xa, xas.xa_index);
		walks++;
		if (order > folio->order) {
			xas_split_alloc(&xas, xa_load(xas.xa, xas.xa_index), order, GFP_KERNEL);
			walks++;
		}
		*shadow = NULL;
		xas_lock(&xas);
		walks++;
		xas_for_each_conflict(&xas, entry) {
			*shadow = entry;
			if (!xa_is_value(entry)) {
				xas_set_err(&xas, -EEXIST);
				goto unlock;
			}
		}
		if (*shadow) {
			order = xa_get_order(xas.xa, xas.xa_index);
			walks++;
			if (order > folio->order) {
				xas_split(&xas, *shadow, order);
				xas_reset(&xas);
				walks++;
			}
		}
		xas_store(&xas, folio);
		if (!xas_error(&xas))
			mapping_count_pages(mapping, 1L << folio->order);
unlock:
		xas_unlock(&xas);
	} while (xas_nomem(&xas, GFP_KERNEL));
	__atomic_fetch_add(&old_walks, walks, __ATOMIC_RELAXED);
	__atomic_fetch_add(&old_adds, 1, __ATOMIC_RELAXED);
	return xas_error(&xas);
}

/* filemap_add_folio() with the older step. */
static int add_folio_old(struct mapping *mapping, struct folio *folio, pgoff_t index, bool write)
{
	void *shadow;
	int err;

	folio->index = index;
	folio->block_shift = mapping->block_shift;
	folio->mapping = mapping;
	folio_lock(folio);
	folio_get(folio);
	err = add_to_array_old(mapping, folio, &shadow);
	if (err) {
		folio->mapping = NULL;
		folio_unlock(folio);
		folio_put(folio);
		return err;
	}
	lru_add(folio, write ? NULL : shadow);
	return 0;
}

/* One read of a page, which is a hit or adds a folio; what is read is looked at in place. */
static void read_page(add_fn add, pgoff_t index)
{
	struct folio *folio;

	while (!(folio = filemap_get_folio(&file, index))) {
		folio = folio_alloc(cache, MAPPING_FILE, 0, 0, true);
		if (!add(&file, folio, index, false)) {
			read_memory(&file, &folio, 1);
			folio_unlock(folio);
			break;
		}
		folio_put(folio);
	}
	if (!folio_range_valid(folio, (index << PAGE_SHIFT) - folio_pos(folio), PAGE_SIZE)) {
		folio_lock(folio); /* the other thread is reading it */
		folio_unlock(folio);
	}
	if (!*((char *)folio_address(folio) + (index << PAGE_SHIFT) - folio_pos(folio)))
		die("wrong byte");
	folio_put(folio);
}

enum reader { READ_OURS, READ_HOST, READ_MEMCPY, READERS };

struct work {
	pthread_t thread;
	add_fn add;
	enum reader reader;
	const pgoff_t *pages; /* what to read, or NULL: anything */
	unsigned long nr;
	uint64_t state;
};

static void *read_pages(void *arg)
{
	struct work *work = arg;
	unsigned long i;

	rcu_register_thread();
	for (i = 0; i < work->nr; i++)
		read_page(work->add,
			  work->pages ? work->pages[i] : rnd(&work->state) % FILE_PAGES);
	rcu_unregister_thread();
	return NULL;
}

/* Return: ns for each read. */
static double run_threads(add_fn add, const pgoff_t *pages, unsigned long nr, unsigned int threads)
{
	struct work works[THREADS];
	uint64_t begin = now_ns();
	unsigned int i;

	for (i = 0; i < threads; i++) {
		works[i] = (struct work){.add = add, .pages = pages ? pages + i * nr : NULL,
					 .nr = nr, .state = begin + i * 7919 + 1};
		pthread_create(&works[i].thread, NULL, read_pages, &works[i]);
	}
	for (i = 0; i < threads; i++)
		pthread_join(works[i].thread, NULL);
	return (double)(now_ns() - begin) / (nr * threads);
}

static void keep_best(double *best, double value)
{
	if (!*best || value < *best)
		*best = value;
}

/* What one thing took, divided by what another did, round by round. */
struct comparison {
	unsigned int nr;
	double ratios[ROUNDS_MAX];
};

static void compare(struct comparison *c, double a, double b)
{
	c->ratios[c->nr++] = a / b;
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(struct comparison *c)
{
	qsort(c->ratios, c->nr, sizeof(*c->ratios), compare_doubles);
	return c->ratios[c->nr / 2];
}

static struct cache_stats stats(void)
{
	struct cache_stats stats;

	cache_get_stats(cache, &stats);
	return stats;
}

/* Random reads over a file twice as large as the cache. */
static void bench_add(unsigned int rounds)
{
	static struct comparison speedup;
	double new = 0, old = 0;
	struct cache_stats before, after;

	start(CACHE_BYTES, FILE_PAGES);
	run_threads(filemap_add_folio, NULL, 4 * FILE_PAGES, THREADS);
	before = stats();
	while (rounds--) {
		double a = run_threads(add_folio_old, NULL, READS, THREADS);
		double b = run_threads(filemap_add_folio, NULL, READS, THREADS);

		keep_best(&old, a);
		keep_best(&new, b);
		compare(&speedup, a, b);
	}
	after = stats();
	printf("figure add.walks %.3f walks\n",
	       (double)(after.add_walks - before.add_walks) / (after.adds - before.adds));
	printf("figure add.walks_old %.3f walks\n", (double)old_walks / old_adds);
	printf("figure add.ns %.0f ns\nfigure add.ns_old %.0f ns\n", new, old);
	printf("figure add.speedup %.3f times\n", median(&speedup));
	end();
}

/* Leaves the shadow of an evicted folio of the largest order in each range. */
static void leave_large_shadows(void)
{
	unsigned long i;

	truncate_all(&file);
	for (i = 0; i < SPLITS; i++) {
		struct folio *folio =
			folio_alloc(cache, MAPPING_FILE, FILEMAP_MAX_ORDER, FILEMAP_MAX_ORDER, true);

		if (filemap_add_folio(&file, folio, i << FILEMAP_MAX_ORDER, false))
			die("cannot add a large folio");
		folio_mark_uptodate(folio);
		folio_unlock(folio);
		if (!evict_folio(folio))
			die("cannot evict a large folio");
	}
}

static double split_round(add_fn add, pgoff_t *pages, struct cache_stats *sum)
{
	struct cache_stats before, after;
	double ns;

	leave_large_shadows();
	before = stats();
	ns = run_threads(add, pages, SPLITS / THREADS, THREADS);
	after = stats();
	sum->adds += after.adds - before.adds;
	sum->add_walks += after.add_walks - before.add_walks;
	sum->shadow_splits += after.shadow_splits - before.shadow_splits;
	return ns;
}

/* Single pages where large folios were. */
static void bench_split(unsigned int rounds)
{
	static struct comparison speedup;
	double new = 0, old = 0;
	struct cache_stats sum = {0}, unused = {0};
	uint64_t state = 1;
	pgoff_t pages[SPLITS];
	unsigned long i, j;

	for (i = 0; i < SPLITS; i++) {
		j = rnd(&state) % (i + 1);
		pages[i] = pages[j];
		pages[j] = (i << FILEMAP_MAX_ORDER) + rnd(&state) % (1UL << FILEMAP_MAX_ORDER);
	}
	old_walks = old_adds = 0;
	start(CACHE_BYTES, SPLITS << FILEMAP_MAX_ORDER);
	cache->shadows.max = ULONG_MAX; /* none is to go before it was split */
	while (rounds--) {
		double a = split_round(add_folio_old, pages, &unused);
		double b = split_round(filemap_add_folio, pages, &sum);

		keep_best(&old, a);
		keep_best(&new, b);
		compare(&speedup, a, b);
	}
	if (sum.shadow_splits != sum.adds)
		die("not all insertions split a shadow");
	printf("figure add.split_walks %.3f walks\n", (double)sum.add_walks / sum.adds);
	printf("figure add.split_walks_old %.3f walks\n", (double)old_walks / old_adds);
	printf("figure add.split_ns %.0f ns\nfigure add.split_ns_old %.0f ns\n", new, old);
	printf("figure add.split_speedup %.3f times\n", median(&speedup));
	end();
}

/*
 * A batch, the older way: the walk goes on to the index behind the last one wanted, and finds there
 * that it is too far.
 */
static void collect_old(struct mapping *mapping, const struct read_range *range,
			struct folio_batch *batch)
{
	XA_STATE(xas, &mapping->i_pages, range->first);
	struct folio *folio;

	rcu_read_lock();
	for (folio = xas_load(&xas); folio; folio = xas_next(&xas)) {
		if (xas_retry(&xas, folio))
			continue;
		if (xas.xa_index > range->last || xa_is_value(folio))
			break;
		if (xa_is_sibling(folio) || !folio_try_get(folio))
			break;
		if (folio != xas_reload(&xas) || !wanted_valid(range, folio)) {
			folio_put(folio);
			break;
		}
		batch_add(batch, folio);
		if (batch->nr == FOLIO_BATCH_SIZE || (folio_flags(folio) & FOLIO_READAHEAD))
			break;
		xas_advance(&xas, folio_next_index(folio) - 1);
	}
	rcu_read_unlock();
}

typedef void (*collect_fn)(struct mapping *mapping, const struct read_range *range,
			   struct folio_batch *batch);

static void read_cached(collect_fn get_batch, loff_t pos, size_t len, char *buf)
{
	loff_t end = pos + (loff_t)len;
	struct folio_batch batch;
	size_t n;

	while (pos < end) {
		struct read_range range = {.pos = pos, .end = end, .first = pos >> PAGE_SHIFT,
					   .last = (end - 1) >> PAGE_SHIFT};

		batch.nr = 0;
		get_batch(&file, &range, &batch);
		if (!batch.nr)
			die("not cached");
		n = copy_batch(&batch, pos, end, buf);
		folio_batch_release(&batch);
		pos += n;
		buf += n;
	}
}

/* Folios of one page each. */
static void fill_cache(pgoff_t pages)
{
	char buf[PAGE_SIZE];
	pgoff_t i;

	for (i = 0; i < pages; i++)
		if (filemap_read(&file, i * PAGE_SIZE, buf, PAGE_SIZE) != (ssize_t)PAGE_SIZE)
			die("cannot fill the cache");
}

static void bench_batch(const char *variant, size_t len, unsigned long nr)
{
	collect_fn get_batch = strcmp(variant, "old") ? collect : collect_old;
	char *buf = malloc(len);
	unsigned long i;

	start(2 * CACHE_BYTES, FILE_PAGES / 4);
	fill_cache(FILE_PAGES / 4);
	for (i = 0; i < nr && strcmp(variant, "none"); i++)
		read_cached(get_batch, i * len % (FILE_PAGES / 4 * PAGE_SIZE), len, buf);
	free(buf);
	end();
}

static int host_fd = -1;
static struct folio *hot_folios[HOT_PAGES];
static unsigned long hot_pages;

/* Bare copies of the same pages: what no cache can be faster than. */
static ssize_t copy_page(char *buf, loff_t pos)
{
	folio_copy_to(buf, hot_folios[pos >> PAGE_SHIFT], 0, PAGE_SIZE);
	return PAGE_SIZE;
}

static void *hot_reads(void *arg)
{
	struct work *work = arg;
	char *buf = aligned_alloc(PAGE_SIZE, PAGE_SIZE);
	struct file_ra ra; /* of a file that this thread has opened for itself */
	unsigned long i;

	rcu_register_thread();
	file_ra_init(&ra);
	for (i = 0; i < work->nr; i++) {
		loff_t pos = rnd(&work->state) % hot_pages * PAGE_SIZE;
		ssize_t n = work->reader == READ_MEMCPY ? copy_page(buf, pos)
			    : work->reader == READ_HOST ? pread(host_fd, buf, PAGE_SIZE, pos)
				: filemap_read_ra(&file, &ra, pos, buf, PAGE_SIZE);

		if (n != (ssize_t)PAGE_SIZE)
			die("cached read failed");
	}
	file_ra_finish(&ra);
	rcu_unregister_thread();
	free(buf);
	return NULL;
}

/* Return: ns for each read of one thread. */
static double hot_round(enum reader reader, unsigned int threads)
{
	unsigned long nr = hot_pages == SMALL_PAGES ? 8 * READS : 2 * READS;
	struct work works[THREADS];
	uint64_t begin = now_ns();
	unsigned int i;

	for (i = 0; i < threads; i++) {
		works[i] = (struct work){.reader = reader, .nr = nr,
					 .state = begin + i * 7919 + 1};
		pthread_create(&works[i].thread, NULL, hot_reads, &works[i]);
	}
	for (i = 0; i < threads; i++)
		pthread_join(works[i].thread, NULL);
	return (double)(now_ns() - begin) / nr;
}

static void make_host_file(void)
{
	char name[] = "/var/tmp/bench_cache_read.XXXXXX", *buf = calloc(1, HOT_PAGES * PAGE_SIZE);

	host_fd = mkstemp(name);
	if (host_fd < 0 || !buf ||
	    write(host_fd, buf, HOT_PAGES * PAGE_SIZE) != (ssize_t)(HOT_PAGES * PAGE_SIZE))
		die("cannot make a file in /var/tmp");
	unlink(name);
	free(buf);
}

/* @what: of the figures' names; @pages: of the file, that are read */
static void bench_hot(const char *what, unsigned long pages, unsigned int rounds)
{
	static struct comparison ratio, floor, scaling, host_scaling;
	double best[READERS] = {0}, one[READERS], two[READERS];
	unsigned int reader;

	ratio.nr = floor.nr = scaling.nr = host_scaling.nr = 0;
	hot_pages = pages;
	while (rounds--) {
		for (reader = 0; reader < READERS; reader++) {
			one[reader] = hot_round(reader, 1);
			two[reader] = hot_round(reader, 2);
			keep_best(&best[reader], one[reader]);
		}
		compare(&ratio, one[READ_HOST], one[READ_OURS]);
		compare(&floor, one[READ_HOST], one[READ_MEMCPY]);
		compare(&scaling, 2 * one[READ_OURS], two[READ_OURS]);
		compare(&host_scaling, 2 * one[READ_HOST], two[READ_HOST]);
	}
	printf("figure %s %.0f ns\n", what, best[READ_OURS]);
	printf("figure %s_pread %.0f ns\n", what, best[READ_HOST]);
	printf("figure %s_memcpy %.0f ns\n", what, best[READ_MEMCPY]);
	printf("figure %s_ratio %.2f times\n", what, median(&ratio));
	printf("figure %s_memcpy_ratio %.2f times\n", what, median(&floor));
	printf("figure %s_scaling %.2f times\n", what, median(&scaling));
	printf("figure %s_pread_scaling %.2f times\n", what, median(&host_scaling));
}

static void bench_read(unsigned int rounds)
{
	pgoff_t i;

	make_host_file();
	start(2 * CACHE_BYTES, HOT_PAGES);
	fill_cache(HOT_PAGES);
	for (i = 0; i < HOT_PAGES; i++)
		hot_folios[i] = filemap_get_folio(&file, i);
	bench_hot("cache.read4k", HOT_PAGES, rounds);
	bench_hot("cache.read4k_1m", SMALL_PAGES, rounds);
	for (i = 0; i < HOT_PAGES; i++)
		folio_put(hot_folios[i]);
	end();
	close(host_fd);
}

int main(int argc, char **argv)
{
	unsigned int rounds = argc > 2 ? atoi(argv[2]) : 40;

	if (rounds > ROUNDS_MAX)
		rounds = ROUNDS_MAX;
	rcu_register_thread();
	if (argc > 1 && !strcmp(argv[1], "add")) {
		bench_add(rounds);
		bench_split(rounds);
	} else if (argc > 1 && !strcmp(argv[1], "read")) {
		bench_read(rounds);
	} else if (argc == 5 && !strcmp(argv[1], "batch")) {
		bench_batch(argv[2], strtoul(argv[3], NULL, 0), strtoul(argv[4], NULL, 0));
	} else {
		fprintf(stderr, "usage: bench_cache_read add|read [ROUNDS] | "
				"batch new|old|none BYTES READS\n");
		return 2;
	}
	rcu_unregister_thread();
	return 0;
}
