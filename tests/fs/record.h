/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What an image was told to do, in order, and what a crash could have made of it.
 *
 * A record begins with the image as it is, and notes each write and each flush. A crash at some point
 * leaves everything that was written before the last flush, and of the later writes any, in any
 * order, each whole or with some of its 512-byte sectors only.
 */
#ifndef FOLIOFS_TESTS_RECORD_H
#define FOLIOFS_TESTS_RECORD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RECORD_SECTOR 512

struct record_event {
	uint64_t offset;
	size_t len;		/* 0: a flush */
	unsigned char *data;
};

struct record {
	pthread_mutex_t lock;	/* held by who writes to the image, too */
	unsigned char *base;	/* the image before the first event */
	size_t size;
	struct record_event *events;
	size_t nr, room;
};

struct record *record_begin(int fd);
void record_end(struct record *record);
/* Lock held. */
void record_write(struct record *record, uint64_t offset, const void *data, size_t len);
void record_flush(struct record *record);
/* How many events there are so far. */
size_t record_now(struct record *record);

/* Random numbers that depend on *state alone. */
uint32_t record_random(uint64_t *state, uint32_t limit);

/**
 * struct crash - the image as crashes at rising points leave it
 * @durable: what was there for certain at the point
 * @at: events that are in @durable
 */
struct crash {
	const struct record *record;
	unsigned char *durable;
	size_t at;
};

void crash_init(struct crash *crash, const struct record *record);
void crash_finish(struct crash *crash);
/*
 * One state for a crash when @point events had been issued, into @state (record->size bytes). How many
 * of the writes after the last flush are in it, which, and how torn, *@seed decides; *@seed 0: all
 * of them, whole. Points must not fall from call to call.
 */
void crash_state(struct crash *crash, size_t point, uint64_t *seed, unsigned char *state);

#endif
