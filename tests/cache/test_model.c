/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Random operations on several files, compared with plain arrays after each step that reads.
 * FOLIO_SEED replays one run; it is printed when a run fails.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdlib.h>
#include "backing.h"

#define FILES 4
#define ROOM (512 << 10)
#define STEPS 3000
#define FAULT_STEPS 600 /* each failed write is followed by a pause */

struct model {
	unsigned char *bytes;
	loff_t size;
};

struct world {
	struct cache *cache;
	struct backing files[FILES];
	struct model models[FILES];
	uint64_t seed, state;
	unsigned char *buf;
	bool faults;
};

/* What is tried: the granule, and how large folios may be. */
struct kind {
	unsigned int shift, max_order;
};

static void setup(struct world *w, const struct kind *kind, bool faults)
{
	const char *seed = getenv("FOLIO_SEED");
	int i;

	memset(w, 0, sizeof(*w));
	w->cache = test_cache(CACHE_MIN_BYTES, 5);
	w->cache->max_order = kind->max_order;
	w->seed = seed ? strtoull(seed, NULL, 0) : now_ns() | 1;
	w->state = w->seed;
	w->faults = faults;
	w->buf = malloc(ROOM);
	for (i = 0; i < FILES; i++) {
		loff_t size = rnd(&w->state) % ROOM;

		backing_init(&w->files[i], w->cache, MAPPING_FILE, kind->shift, ROOM, size, i);
		w->models[i].bytes = calloc(1, ROOM);
		w->models[i].size = size;
		memcpy(w->models[i].bytes, w->files[i].data, size);
	}
}

static void step_write(struct world *w, struct backing *b, struct model *m, loff_t pos, size_t len)
{
	ssize_t n;
	size_t i;

	for (i = 0; i < len; i++)
		w->buf[i] = rnd(&w->state);
	n = filemap_write(&b->mapping, pos, w->buf, len);
	cr_assert(n == (ssize_t)len || w->faults, "seed %#lx: wrote %zd", w->seed, n);
	if (n <= 0)
		return;
	memcpy(m->bytes + pos, w->buf, n);
	if (pos + n > m->size)
		m->size = pos + n;
}

static void step_read(struct world *w, struct backing *b, struct model *m, loff_t pos, size_t len)
{
	loff_t want = pos >= m->size ? 0 : m->size - pos;
	ssize_t n = filemap_read(&b->mapping, pos, w->buf, len);

	if (want > (loff_t)len)
		want = len;
	cr_assert(n == want || w->faults, "seed %#lx: read %zd of %ld", w->seed, n, (long)want);
	if (n > 0)
		cr_assert(!memcmp(w->buf, m->bytes + pos, n), "seed %#lx: data at %ld + %zu",
			  w->seed, (long)pos, len);
}

static void step_size(struct world *w, struct backing *b, struct model *m, loff_t size)
{
	int err = backing_setsize(b, size);

	cr_assert(!err || w->faults);
	if (err)
		return;
	if (size < m->size)
		memset(m->bytes + size, 0, ROOM - size);
	m->size = size;
}

static void step_punch(struct world *w, struct backing *b, struct model *m, loff_t pos, size_t len)
{
	int err = backing_punch(b, pos, pos + len);

	cr_assert(!err || w->faults);
	if (!err)
		memset(m->bytes + pos, 0, len);
}

static void step_fault(struct world *w, struct backing *b)
{
	if (!w->faults)
		return;
	__atomic_store_n(&b->fail_writes_in, (int)(rnd(&w->state) % 4), __ATOMIC_RELAXED);
	__atomic_store_n(&b->fail_writes, (int)(rnd(&w->state) % 3), __ATOMIC_RELAXED);
	__atomic_store_n(&b->fail_reads_in, (int)(rnd(&w->state) % 8), __ATOMIC_RELAXED);
	__atomic_store_n(&b->fail_reads, (int)(rnd(&w->state) % 3), __ATOMIC_RELAXED);
}

static void step(struct world *w)
{
	unsigned int i = rnd(&w->state) % FILES;
	struct backing *b = &w->files[i];
	struct model *m = &w->models[i];
	loff_t pos = rnd(&w->state) % (ROOM - 1);
	size_t len = 1 + rnd(&w->state) % (rnd(&w->state) % 4 ? 9000 : 200000);

	if (len > (size_t)(ROOM - pos))
		len = ROOM - pos;
	switch (rnd(&w->state) % 16) {
	case 0 ... 5:
		step_write(w, b, m, pos, len);
		break;
	case 6 ... 11:
		step_read(w, b, m, pos, len);
		break;
	case 12:
		step_size(w, b, m,
			  rnd(&w->state) % 2		 ? pos
			  : m->size + pos % 10000 < ROOM ? m->size + pos % 10000
							 : ROOM);
		break;
	case 13:
		/* Not across the end: what lies behind it is zero already. */
		if (pos < m->size)
			step_punch(w, b, m, pos, len);
		break;
	case 14:
		cr_assert(!filemap_write_and_wait(&b->mapping) || w->faults);
		break;
	case 15:
		step_fault(w, b);
		break;
	}
}

static void finish(struct world *w)
{
	struct cache_stats stats;
	int i, tries;

	for (i = 0; i < FILES; i++) {
		struct backing *b = &w->files[i];
		struct model *m = &w->models[i];

		b->fail_reads = b->fail_writes = 0;
		for (tries = 0; filemap_write_and_wait(&b->mapping) && tries < 10; tries++)
			;
		step_read(w, b, m, 0, ROOM);
		cr_assert_eq(mapping_size(&b->mapping), m->size);
		cr_assert(!memcmp(b->data, m->bytes, m->size), "seed %#lx: backing of file %d",
			  w->seed, i);
		cr_assert_eq(backing_reserved(b), 0);
		cr_assert_eq(b->mapping.nrdirty, 0);
		cache_get_stats(w->cache, &stats);
		cr_assert_leq(stats.used_bytes, stats.bound_bytes);
		backing_finish(b);
		free(m->bytes);
	}
	free(w->buf);
	cache_destroy(w->cache);
}

static struct kind kinds[] = {{10, 0}, {10, 3}, {11, 4}, {12, 0}, {12, 5}, {13, 4}, {16, 4}};
#define NR_KINDS (sizeof(kinds) / sizeof(*kinds))

ParameterizedTestParameters(model, random)
{
	return cr_make_param_array(struct kind, kinds, NR_KINDS);
}

ParameterizedTest(struct kind *kind, model, random)
{
	struct world w;
	int i;

	setup(&w, kind, false);
	for (i = 0; i < STEPS; i++)
		step(&w);
	finish(&w);
}

ParameterizedTestParameters(model, random_faults)
{
	return cr_make_param_array(struct kind, kinds, NR_KINDS);
}

ParameterizedTest(struct kind *kind, model, random_faults)
{
	struct world w;
	int i;

	setup(&w, kind, true);
	for (i = 0; i < FAULT_STEPS; i++)
		step(&w);
	finish(&w);
}
