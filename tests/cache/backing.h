/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A mapping whose backing is an array in memory, with faults, delays and limited space on demand.
 *
 * A block has a place once it was written (or existed from the start); a block without one
 * reads as zero and takes one of `space` when it is reserved. With a volume, the ops behave as a
 * file system's do: they take its lock and read and write its device mapping on the way.
 */
#ifndef TEST_CACHE_BACKING_H
#define TEST_CACHE_BACKING_H

#include "internal.h"

#define NEVER (-1)

struct test_volume {
	pthread_mutex_t lock;
	struct backing *device;
};

struct backing {
	struct mapping mapping;
	pthread_mutex_t inode_lock; /* writers and truncation; for tests with threads */
	unsigned char *data;
	bool *placed;		    /* by block */
	size_t room;		    /* bytes of data */
	long space;		    /* blocks to be had; atomic */
	struct test_volume *volume; /* or NULL */
	unsigned int delay_us;	    /* of each write */
	unsigned int read_delay_us; /* of each call to read; atomic */

	/* The nth call from now fails (0: the next), and those after it as long as the count says.
	 * Atomic. */
	int fail_reads_in, fail_reads, fail_writes_in, fail_writes;
	loff_t bad_read; /* the folio with this byte cannot be read; NEVER */

	/* what was called; atomic */
	unsigned int read_calls, read_pages, write_calls, write_runs, write_pages, write_blocks;
	unsigned int max_run; /* pages */
};

extern const struct mapping_ops backing_ops;

struct cache *test_cache(size_t bytes, unsigned int expire_ms);
/* @size bytes are there from the start, random by @seed (0: zeros, without a place). */
void backing_init(struct backing *b, struct cache *cache, enum mapping_level level,
		  unsigned int block_shift, size_t room, size_t size, unsigned int seed);
/* Truncates all, checks that nothing is left, frees. */
void backing_finish(struct backing *b);
/* As an owner does it: locks, and gives places back. */
int backing_setsize(struct backing *b, loff_t size);
int backing_punch(struct backing *b, loff_t start, loff_t end);
/* Blocks without a place that are taken: must be 0 when all is written. */
long backing_reserved(struct backing *b);
/* Shadow entries in the mapping. */
unsigned long backing_shadows(struct backing *b);

uint64_t rnd(uint64_t *state);

#endif
