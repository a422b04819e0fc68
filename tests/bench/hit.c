/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How often is it there? Traces of single page reads through our cache, through the kernel's page
 * cache in a memory cgroup of the same size (hit_kernel.c), and through plain LRU.
 *
 *	bench_hit [MIB [SVG]]
 *
 * The data is MIB large (1024), the cache a quarter and a half of it. Prints lines
 * "figure hit.TRACE@SIZE.CACHE VALUE ratio", higher is better. With SVG, gnuplot draws the miss
 * ratio over the size of the cache there, with an eighth of the data and from a sixteenth of it on.
 *
 * Ours has a FILE mapping's part of the frames: a share is kept for metadata, as in the product.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "hit.h"
#include "internal.h"

#define USES_PER_PAGE 20
#define CURVE_POINTS 8

static size_t misses;

static int read_nothing(struct mapping *mapping, struct folio **folios, unsigned int nr)
{
	unsigned int i;

	misses += nr;
	for (i = 0; i < nr; i++)
		folio_mark_uptodate(folios[i]);
	return 0;
}

static const struct mapping_ops ops = {.read_folios = read_nothing};

static double hit_ours(const struct trace *trace, uint32_t frames)
{
	struct cache_config config = {.bytes = (size_t)frames << PAGE_SHIFT};
	struct mapping file;
	struct cache *cache;
	size_t i, half = trace->nr / 2;
	char byte;

	if (cache_create(&cache, &config) ||
	    mapping_init(&file, cache, MAPPING_FILE, PAGE_SHIFT, &ops, NULL))
		abort();
	mapping_set_size(&file, (loff_t)trace->pages << PAGE_SHIFT);
	for (i = 0; i < trace->nr; i++) {
		if (i == half)
			misses = 0;
		filemap_read(&file, (loff_t)trace->use[i] << PAGE_SHIFT, &byte, 1);
	}
	truncate_all(&file);
	mapping_finish(&file);
	cache_destroy(cache);
	return 1 - misses / (double)(trace->nr - half);
}

/* Plain LRU: a ring of page numbers by use, linked through arrays; number trace->pages is its head. */
static double hit_lru(const struct trace *trace, uint32_t frames)
{
	uint32_t head = trace->pages, used = 0;
	uint32_t *next = calloc(head + 1, sizeof(*next)), *prev = calloc(head + 1, sizeof(*prev));
	bool *there = calloc(head, sizeof(*there));
	size_t hits = 0;

	if (!next || !prev || !there)
		abort();
	next[head] = prev[head] = head;
	for (size_t i = 0; i < trace->nr; i++) {
		uint32_t page = trace->use[i], out = there[page] ? page : prev[head];

		hits += i >= trace->nr / 2 && there[page];
		if (there[page] || used++ >= frames) {
			next[prev[out]] = next[out];
			prev[next[out]] = prev[out];
			there[out] = false;
		}
		there[page] = true;
		next[page] = next[head];
		prev[page] = head;
		prev[next[head]] = page;
		next[head] = page;
	}
	free(next);
	free(prev);
	free(there);
	return hits / (double)(trace->nr - trace->nr / 2);
}

struct ratios {
	double ours, kernel, lru;
};

static struct ratios measure(unsigned int kind, uint32_t pages, uint32_t frames)
{
	struct trace trace;
	struct ratios r;

	trace_make(&trace, kind, pages, frames, (size_t)pages * USES_PER_PAGE);
	r.ours = hit_ours(&trace, frames);
	r.kernel = hit_kernel(&trace, frames);
	r.lru = hit_lru(&trace, frames);
	trace_free(&trace);
	return r;
}

static void print_figure(const char *trace, int part, const char *cache, double value)
{
	if (isnan(value))
		printf("# hit.%s@1/%d.%s: no memory cgroup to be had\n", trace, part, cache);
	else
		printf("figure hit.%s@1/%d.%s %.4f ratio\n", trace, part, cache, value);
	fflush(stdout);
}

static void print_figures(uint32_t pages)
{
	for (unsigned int kind = 0; kind < TRACES; kind++) {
		for (int part = 4; part >= 2; part -= 2) {
			struct ratios r = measure(kind, pages, pages / part);

			print_figure(trace_names[kind], part, "ours", r.ours);
			print_figure(trace_names[kind], part, "kernel", r.kernel);
			print_figure(trace_names[kind], part, "lru", r.lru);
		}
	}
}

static void plot_curve(FILE *plot, unsigned int kind, uint32_t pages)
{
	fprintf(plot, "$d%u << EOD\n", kind);
	for (uint32_t i = 1; i <= CURVE_POINTS; i++) {
		uint32_t frames = pages / 2 / CURVE_POINTS * i;
		struct ratios r = measure(kind, pages, frames);

		fprintf(plot, "%.4f %.4f %.4f %.4f\n", frames / (double)pages, 1 - r.ours,
			1 - r.kernel, 1 - r.lru);
	}
	fprintf(plot, "EOD\n");
}

static int draw(const char *svg, uint32_t pages)
{
	FILE *plot = popen("gnuplot", "w");

	if (!plot)
		return 1;
	for (unsigned int kind = 0; kind < TRACES; kind++)
		plot_curve(plot, kind, pages);
	fprintf(plot,
		"set terminal svg size 1200,720 background 'white'\nset output '%s'\n"
		"set multiplot layout 2,3 title 'Miss ratio over the size of the cache, as a part "
		"of the data'\nset yrange [0:1]\nset xrange [0:0.52]\nset key left bottom\n",
		svg);
	for (unsigned int kind = 0; kind < TRACES; kind++)
		fprintf(plot,
			"set title '%s'\n"
			"plot $d%u using 1:2 with linespoints title 'foliofs', '' using 1:3 with "
			"linespoints title 'kernel', '' using 1:4 with linespoints title 'LRU'\n",
			trace_names[kind], kind);
	return pclose(plot) ? 1 : 0;
}

int main(int argc, char **argv)
{
	unsigned long mib = argc > 1 ? strtoul(argv[1], NULL, 0) : 1024;
	uint32_t pages = mib << (20 - PAGE_SHIFT);
	int ret = 0;

	if (mib < 64 || mib > 16384) {
		fprintf(stderr, "usage: bench_hit [MIB [SVG]], 64 to 16384 MiB\n");
		return 1;
	}
	rcu_register_thread();
	print_figures(pages);
	if (argc > 2)
		ret = draw(argv[2], pages / 8);
	rcu_unregister_thread();
	return ret;
}
