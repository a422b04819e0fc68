/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Says what is left to be written, when that takes more than a second, and every ten seconds from
 * then on. A thread sleeps until it is time for a line or for its end.
 */
#include <errno.h>
#include <time.h>
#include "log.h"
#include "progress.h"

#define FIRST_SECONDS 1
#define NEXT_SECONDS 10

/* Return: whether it is the end. */
static bool wait_for_end(struct progress *progress, unsigned int seconds)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += seconds;
	while (!progress->ended &&
	       pthread_cond_clockwait(&progress->end, &progress->lock, CLOCK_MONOTONIC, &until) !=
		       ETIMEDOUT)
		continue;
	return progress->ended;
}

static void *progress_main(void *arg)
{
	struct progress *progress = arg;
	unsigned int seconds = FIRST_SECONDS;

	pthread_mutex_lock(&progress->lock);
	while (!wait_for_end(progress, seconds)) {
		log_info("writing %s back: %llu MiB left", progress->what,
			 (unsigned long long)progress->left(progress->arg) >> 20);
		seconds = NEXT_SECONDS;
	}
	pthread_mutex_unlock(&progress->lock);
	return NULL;
}

/**
 * progress_begin() - From here on, until progress_end(), lines are due.
 *
 * Context: Signals are blocked, or nobody handles them. Without a thread there are no lines.
 */
void progress_begin(struct progress *progress)
{
	progress->ended = false;
	pthread_mutex_init(&progress->lock, NULL);
	pthread_cond_init(&progress->end, NULL);
	progress->running = !pthread_create(&progress->thread, NULL, progress_main, progress);
}

/** progress_end() - All is written. Context: Waits for a line that is being told. */
void progress_end(struct progress *progress)
{
	pthread_mutex_lock(&progress->lock);
	progress->ended = true;
	pthread_cond_signal(&progress->end);
	pthread_mutex_unlock(&progress->lock);
	if (progress->running)
		pthread_join(progress->thread, NULL);
	pthread_cond_destroy(&progress->end);
	pthread_mutex_destroy(&progress->lock);
}
