/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An image in memory that fails when told to, for all suites of fs/.
 */
#ifndef FOLIOFS_FAULT_IMAGE_H
#define FOLIOFS_FAULT_IMAGE_H

#include <pthread.h>
#include "image.h"

enum fault_op { FAULT_READ, FAULT_WRITE, FAULT_FLUSH, FAULT_DISCARD, FAULT_OPS };

/**
 * struct fault - transfers that touch [start, end) fail with @error, @times times (-1: for ever)
 */
struct fault {
	uint64_t start, end;
	int error, times;
};

/**
 * struct fault_image
 * @data: the bytes, for tests to look at and to change while nothing is in flight
 * @faults: at most one for each operation; under @lock
 * @calls: transfers (not submissions), flushes, discards so far
 * @bytes: moved so far
 * @durable: what was in @data at the last flush; NULL before fault_image_track_durable()
 */
struct fault_image {
	struct image image;
	unsigned char *data, *durable;
	pthread_mutex_t lock;
	struct fault faults[FAULT_OPS];
	uint64_t calls[FAULT_OPS], bytes[FAULT_OPS];
};

/* Zeros, or the bytes of a file. */
struct fault_image *fault_image_create(uint64_t size);
struct fault_image *fault_image_load(const char *path);
/* For e2fsck and the like. */
void fault_image_save(struct fault_image *fault, const char *path);
/* From here on, @durable follows @data at each flush: what a crash would leave at the least. */
void fault_image_track_durable(struct fault_image *fault);

/* Transfers that touch [start, end), flushes (any range), fail from now on. */
void fault_image_fail(struct fault_image *fault, enum fault_op op, uint64_t start, uint64_t end,
		      int error, int times);
void fault_image_heal(struct fault_image *fault);

#endif
