/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See record.h. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "record.h"

struct record *record_begin(int fd)
{
	struct record *record = calloc(1, sizeof(*record));
	struct stat st;

	assert(record && !fstat(fd, &st));
	record->size = st.st_size;
	record->base = malloc(record->size);
	assert(record->base);
	if (pread(fd, record->base, record->size, 0) != (ssize_t)record->size)
		abort();
	pthread_mutex_init(&record->lock, NULL);
	return record;
}

void record_end(struct record *record)
{
	for (size_t i = 0; i < record->nr; i++)
		free(record->events[i].data);
	free(record->events);
	free(record->base);
	pthread_mutex_destroy(&record->lock);
	free(record);
}

static void add(struct record *record, struct record_event event)
{
	if (record->nr == record->room) {
		record->room = record->room ? 2 * record->room : 1024;
		record->events = realloc(record->events, record->room * sizeof(event));
		if (!record->events)
			abort();
	}
	record->events[record->nr++] = event;
}

void record_write(struct record *record, uint64_t offset, const void *data, size_t len)
{
	struct record_event event = { .offset = offset, .len = len, .data = malloc(len) };

	if (!event.data || !len || offset + len > record->size)
		abort();
	memcpy(event.data, data, len);
	add(record, event);
}

void record_flush(struct record *record)
{
	add(record, (struct record_event){ 0 });
}

size_t record_now(struct record *record)
{
	size_t now;

	pthread_mutex_lock(&record->lock);
	now = record->nr;
	pthread_mutex_unlock(&record->lock);
	return now;
}

uint32_t record_random(uint64_t *state, uint32_t limit)
{
	*state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (*state >> 33) % limit;
}

/*
 * Crashes
 */

void crash_init(struct crash *crash, const struct record *record)
{
	crash->record = record;
	crash->at = 0;
	crash->durable = malloc(record->size);
	assert(crash->durable);
	memcpy(crash->durable, record->base, record->size);
}

void crash_finish(struct crash *crash)
{
	free(crash->durable);
}

static void apply(unsigned char *state, const struct record_event *event)
{
	if (event->len)
		memcpy(state + event->offset, event->data, event->len);
}

/*
 * Some of the sectors only. The superblock of the file system, two sectors with one checksum, stays
 * whole: torn, nobody would mount it, or look for a journal, and no journal can prevent that.
 */
static void apply_torn(unsigned char *state, const struct record_event *event, uint64_t *seed)
{
	for (size_t at = 0, len; at < event->len; at += len) {
		len = event->offset + at == 1024 ? 1024 : RECORD_SECTOR;
		if (len > event->len - at)
			len = event->len - at;
		if (record_random(seed, 2))
			memcpy(state + event->offset + at, event->data + at, len);
	}
}

/* Takes what is durable at @point into crash->durable. */
static void advance(struct crash *crash, size_t point)
{
	const struct record_event *events = crash->record->events;
	size_t flush = point;

	while (flush > crash->at && events[flush - 1].len)
		flush--;
	assert(point >= crash->at);
	for (; crash->at < flush; crash->at++)
		apply(crash->durable, &events[crash->at]);
}

/* A random order of the numbers below @nr */
static size_t *shuffled(size_t nr, uint64_t *seed)
{
	size_t *order = malloc((nr ? nr : 1) * sizeof(*order));

	assert(order);
	for (size_t i = 0; i < nr; i++)
		order[i] = i;
	for (size_t i = nr; i > 1; i--) {
		size_t j = record_random(seed, i), other = order[i - 1];

		order[i - 1] = order[j];
		order[j] = other;
	}
	return order;
}

void crash_state(struct crash *crash, size_t point, uint64_t *seed, unsigned char *state)
{
	const struct record_event *events;
	size_t *order, nr;
	uint32_t keep;

	advance(crash, point);
	memcpy(state, crash->durable, crash->record->size);
	events = &crash->record->events[crash->at];
	nr = point - crash->at;
	if (!*seed) {
		for (size_t i = 0; i < nr; i++)
			apply(state, &events[i]);
		return;
	}
	order = shuffled(nr, seed);
	keep = record_random(seed, 101);	/* percent */
	for (size_t i = 0; i < nr; i++) {
		if (record_random(seed, 100) < keep)
			apply(state, &events[order[i]]);
		else if (!record_random(seed, 3))
			apply_torn(state, &events[order[i]], seed);
	}
	free(order);
}
