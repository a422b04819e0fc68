/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The traces. All come from one seed, so every cache gets the same.
 *
 *	zipf0.9, zipf1.1	pages drawn by Zipf's law with that exponent; ranks are scattered
 *	loop			over and over a tenth more than the cache has frames
 *	scans			three in four uses draw from a hot set of half the frames, one goes on with a scan
 *				through all of the data
 *	shift			nine in ten draw from a hot set of three quarters of the frames, which moves elsewhere
 *				after every eight cachefuls of uses; one in ten draws from all
 */
#include <math.h>
#include <stdlib.h>
#include "hit.h"

const char *const trace_names[TRACES] = {"zipf0.9", "zipf1.1", "loop", "scans", "shift"};

static uint64_t state;

static uint64_t rnd(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state * 0x2545f4914f6cdd1dULL >> 11;
}

static void scatter(uint32_t *place, uint32_t pages)
{
	for (uint32_t i = 0; i < pages; i++) {
		uint32_t j = rnd() % (i + 1);

		place[i] = place[j];
		place[j] = i;
	}
}

static uint32_t find_rank(const double *sums, uint32_t pages, double at)
{
	uint32_t low = 0, high = pages - 1;

	while (low < high) {
		uint32_t mid = (low + high) / 2;

		if (sums[mid] < at)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static void make_zipf(struct trace *trace, double exponent)
{
	double *sums = malloc(trace->pages * sizeof(*sums)), sum = 0;
	uint32_t *place = malloc(trace->pages * sizeof(*place));

	if (!sums || !place)
		abort();
	scatter(place, trace->pages);
	for (uint32_t i = 0; i < trace->pages; i++)
		sums[i] = sum += pow(i + 1, -exponent);
	for (size_t i = 0; i < trace->nr; i++)
		trace->use[i] = place[find_rank(sums, trace->pages,
						sum * (rnd() & 0xffffffffffff) / 0x1p48)];
	free(sums);
	free(place);
}

static void make_loop(struct trace *trace, uint32_t frames)
{
	uint32_t length = frames + frames / 10;

	for (size_t i = 0; i < trace->nr; i++)
		trace->use[i] = i % length;
}

static void make_scans(struct trace *trace, uint32_t frames)
{
	uint32_t scan = 0;

	for (size_t i = 0; i < trace->nr; i++)
		trace->use[i] = i % 4 ? rnd() % (frames / 2) : scan++ % trace->pages;
}

static void make_shift(struct trace *trace, uint32_t frames)
{
	uint32_t base = 0, hot = frames / 4 * 3;

	for (size_t i = 0; i < trace->nr; i++) {
		if (i % (8 * (size_t)frames) == 0)
			base = rnd() % trace->pages;
		trace->use[i] = (i % 10 ? base + rnd() % hot : rnd()) % trace->pages;
	}
}

void trace_make(struct trace *trace, unsigned int kind, uint32_t pages, uint32_t frames, size_t nr)
{
	*trace = (struct trace){.pages = pages, .nr = nr, .use = malloc(nr * sizeof(uint32_t))};
	if (!trace->use)
		abort();
	state = 20261201;
	switch (kind) {
	case 0:
	case 1:
		make_zipf(trace, kind ? 1.1 : 0.9);
		break;
	case 2:
		make_loop(trace, frames);
		break;
	case 3:
		make_scans(trace, frames);
		break;
	default:
		make_shift(trace, frames);
	}
}

void trace_free(struct trace *trace)
{
	free(trace->use);
}
