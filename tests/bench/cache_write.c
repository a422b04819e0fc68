/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writing back as in seed 004, beside the older ways, over an image in memory.
 *
 *	bench_cache_write [NS]
 *
 * The job: four files of 16 MiB, cached; a thread for each writes 4 KiB at random places, in batches of
 * 16; when 128 batches are dirty they are written back. The image is memory: a write to it costs NS
 * (1000), about what io_uring takes for one of many transfers to a cached file, and the copy. A write is
 * what is contiguous in the image. The more it costs, the more it is worth to write fewer and larger
 * parts: with 5000 whole folios win.
 *
 *	ours	one tagged folio is looked up and extended over its dirty neighbours; runs in batches; the
 *		dirty blocks of each folio
 *	batch	16 tagged folios are looked up at a time, and a callback writes each by itself; its dirty blocks
 *	whole	as ours, but all of each folio
 *
 * "small": the files' folios are pages, as random writes make them; "large": of 1 MiB, as writes in order
 * make them. Two ways take turns in short rounds. A figure is the median over the rounds of the
 * other way's time over ours of the same round, with small folios against "batch" and with large ones
 * against "whole": in the other two cases there is next to nothing to be told apart.
 * wb.bytes_written_ratio is ours over "whole".
 *
 * writeback.c is included as text, since its steps are compared one by one.
 */
#include <stdio.h>
#include <stdlib.h>
#include "writeback.c"

#define FILES 4
#define FILE_BYTES (16UL << 20)
#define FILE_PAGES (FILE_BYTES / PAGE_SIZE)
#define BATCH 16U
#define QUEUE 128U
#define QUEUES 8U /* of a file and a round */
#define ROUNDS 15

enum way { OURS, BATCHES, WHOLE, WAYS };

struct file {
	struct mapping mapping;
	char *image;
	pthread_t thread;
	enum way way;
	uint64_t state;
	unsigned long bytes; /* written to the image */
};

static struct cache *cache;
static struct file files[FILES];
static char data[1 << 20];
static unsigned long cost = 1000; /* ns */

static uint64_t rnd(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void spin(unsigned long ns)
{
	uint64_t until = now_ns() + ns;

	while (now_ns() < until)
		continue;
}

/* One part of the image: a write of its own unless it goes on where the last one ended. */
static void write_part(struct file *file, struct folio *folio, size_t offset, size_t len, loff_t *end)
{
	loff_t pos = folio_pos(folio) + offset;

	if (pos != *end)
		spin(cost);
	folio_copy_to(file->image + pos, folio, offset, len);
	file->bytes += len;
	*end = pos + len;
}

static int write_folios(struct mapping *mapping, struct folio **folios, unsigned int nr)
{
	struct file *file = mapping->owner;
	loff_t end = -1;

	for (unsigned int i = 0; i < nr; i++) {
		struct folio *folio = folios[i];
		unsigned int block = 0, n;

		if (file->way == WHOLE) {
			write_part(file, folio, 0, folio_size(folio), &end);
			folio_unlock(folio);
			continue;
		}
		while ((n = folio_find_run(folio, BLOCKS_WRITING, true, &block))) {
			write_part(file, folio, (size_t)block << folio->block_shift,
				   (size_t)n << folio->block_shift, &end);
			block += n;
		}
		folio_unlock(folio);
	}
	return 0;
}

static int read_nothing(struct mapping *mapping, struct folio **folios, unsigned int nr)
{
	while (nr--)
		folio_mark_uptodate(folios[nr]);
	return 0;
}

static const struct mapping_ops ops = {.read_folios = read_nothing, .write_folios = write_folios};

/* Looks up to BATCH dirty folios up, with references. Return: how many. */
static unsigned int look_up(struct mapping *mapping, pgoff_t *index, struct folio **folios)
{
	XA_STATE(xas, &mapping->i_pages, *index);
	unsigned int nr = 0;
	struct folio *folio;

	rcu_read_lock();
	xas_for_each_marked(&xas, folio, ULONG_MAX, PAGECACHE_TAG_DIRTY) {
		if (xas_retry(&xas, folio) || !folio_try_get(folio))
			continue;
		folios[nr++] = folio;
		*index = folio_next_index(folio);
		if (nr == BATCH)
			break;
	}
	rcu_read_unlock();
	return nr;
}

/* The callback: writes one folio by itself, which loses its reference. */
static int write_one(struct folio *folio, void *arg)
{
	struct pass *pass = arg;

	if (!lock_dirty(pass, folio, false)) {
		folio_put(folio);
		return 0;
	}
	add_folio(pass, folio);
	pass->runs++;
	write_batch(pass);
	return pass->err;
}

static void write_back_batches(struct mapping *mapping, int (*callback)(struct folio *, void *))
{
	struct pass pass = {.mapping = mapping, .end = (LLONG_MAX >> PAGE_SHIFT)};
	struct folio *folios[BATCH];
	pgoff_t index = 0;
	unsigned int i, nr;

	while ((nr = look_up(mapping, &index, folios)))
		for (i = 0; i < nr; i++)
			callback(folios[i], &pass);
}

static void write_back(struct file *file)
{
	if (file->way == BATCHES)
		write_back_batches(&file->mapping, write_one);
	else
		writeback_range(&file->mapping, 0, (LLONG_MAX >> PAGE_SHIFT), false, NULL);
}

static void *job(void *arg)
{
	struct file *file = arg;

	rcu_register_thread();
	for (unsigned int n = 1; n <= QUEUES * QUEUE * BATCH; n++) {
		loff_t pos = rnd(&file->state) % FILE_PAGES * PAGE_SIZE;

		if (filemap_write(&file->mapping, pos, data, PAGE_SIZE) != PAGE_SIZE)
			abort();
		if (n % (QUEUE * BATCH) == 0)
			write_back(file);
	}
	rcu_unregister_thread();
	return NULL;
}

/* Seconds for the job; *@bytes: written to the image. */
static double run(enum way way, unsigned int round, unsigned long *bytes)
{
	uint64_t began = now_ns();
	unsigned int i;

	for (i = 0; i < FILES; i++) {
		files[i].way = way;
		files[i].bytes = 0;
		files[i].state = 1 + i + round * FILES;
		if (pthread_create(&files[i].thread, NULL, job, &files[i]))
			abort();
	}
	*bytes = 0;
	for (i = 0; i < FILES; i++) {
		pthread_join(files[i].thread, NULL);
		*bytes += files[i].bytes;
	}
	return (now_ns() - began) / 1e9;
}

static void start(size_t folio_bytes)
{
	struct cache_config config = {.bytes = 1UL << 30};
	unsigned int i;
	loff_t pos;

	if (cache_create(&cache, &config))
		abort();
	for (i = 0; i < FILES; i++) {
		files[i].image = malloc(FILE_BYTES);
		if (!files[i].image || mapping_init(&files[i].mapping, cache, MAPPING_FILE, PAGE_SHIFT,
						    &ops, &files[i]))
			abort();
		memset(files[i].image, 0, FILE_BYTES);
		mapping_set_size(&files[i].mapping, FILE_BYTES);
		files[i].way = OURS;
		for (pos = 0; pos < (loff_t)FILE_BYTES; pos += folio_bytes)
			if (filemap_write(&files[i].mapping, pos, data, folio_bytes) < 0)
				abort();
		write_back(&files[i]);
	}
}

static void stop(void)
{
	for (unsigned int i = 0; i < FILES; i++) {
		truncate_all(&files[i].mapping);
		mapping_finish(&files[i].mapping);
		free(files[i].image);
	}
	cache_destroy(cache);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values)
{
	qsort(values, ROUNDS, sizeof(*values), by_value);
	return values[ROUNDS / 2];
}

/* Prints by how much ours is faster than another way, with folios of a size. */
static void compare(const char *figure, enum way other, size_t folio_bytes)
{
	unsigned long bytes[WAYS];
	double ratios[ROUNDS], seconds[WAYS], middle;
	int round;

	start(folio_bytes);
	for (round = 0; round < ROUNDS; round++) {
		enum way first = round % 2 ? other : OURS, second = round % 2 ? OURS : other;

		seconds[first] = run(first, round, &bytes[first]);
		seconds[second] = run(second, round, &bytes[second]);
		ratios[round] = seconds[other] / seconds[OURS];
	}
	stop();
	middle = median(ratios);
	printf("figure %s %.3f times  # %.3f to %.3f\n", figure, middle, ratios[0],
	       ratios[ROUNDS - 1]);
	if (other == WHOLE)
		printf("figure wb.bytes_written_ratio %.3f ratio\n",
		       bytes[OURS] / (double)bytes[WHOLE]);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		cost = atol(argv[1]);
	rcu_register_thread();
	compare("wb.speedup", BATCHES, PAGE_SIZE);
	compare("wb.speedup_noranges", WHOLE, 1 << 20);
	rcu_unregister_thread();
	return 0;
}
