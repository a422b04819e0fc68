/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A line now and then about writing that takes its time. */
#ifndef FOLIOFS_PROGRESS_H
#define FOLIOFS_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/**
 * struct progress - what is being written
 * @what: its name
 * @left: how many bytes there are yet to be written; called by a thread of progress_begin()
 * @arg: for @left
 */
struct progress {
	const char *what;
	uint64_t (*left)(void *arg);
	void *arg;

	/* progress.c's own */
	pthread_mutex_t lock;
	pthread_cond_t end;
	pthread_t thread;
	bool running, ended;
};

void progress_begin(struct progress *progress);
void progress_end(struct progress *progress);

#endif
