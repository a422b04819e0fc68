/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * See tree_bench.h. Time is the thread's CPU time: others on the machine cost it caches, but no turn.
 */
#include "tree_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

unsigned long *shuffled;
unsigned long sink;

void fail(const char *what)
{
	fprintf(stderr, "%s\n", what);
	exit(1);
}

double cpu_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

void shuffle(unsigned long n)
{
	uint64_t random = 88172645463325252;

	shuffled = malloc(n * sizeof(*shuffled));
	if (!shuffled)
		fail("no memory");
	for (unsigned long i = 0; i < n; i++)
		shuffled[i] = i;
	for (unsigned long i = n - 1; i; i--) {
		unsigned long j = next_random(&random) % (i + 1), other = shuffled[j];

		shuffled[j] = shuffled[i];
		shuffled[i] = other;
	}
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double median(double *values, unsigned int n)
{
	qsort(values, n, sizeof(*values), by_value);
	return values[n / 2];
}

unsigned int bench_rounds(void)
{
	const char *text = getenv("FOLIOFS_ROUNDS");
	unsigned int rounds = text ? atoi(text) : 7;

	if (!rounds || rounds > MAX_ROUNDS)
		fail("FOLIOFS_ROUNDS is from 1 to 64");
	return rounds;
}

void measure(const struct subject *subject, const char *const *op_names, unsigned long n,
	     unsigned int rounds)
{
	static double ns[MAX_OPS][MAX_ROUNDS];

	if (subject->begin)
		subject->begin();
	for (unsigned int round = 0; round < rounds; round++) {
		for (unsigned int op = 0; op_names[op]; op++) {
			double start = cpu_seconds();

			if (subject->ops[op])
				subject->ops[op]();
			ns[op][round] = (cpu_seconds() - start) * 1e9 / n;
		}
		subject->end_round();
	}
	for (unsigned int op = 0; op_names[op]; op++) {
		if (!subject->ops[op])
			continue;
		printf("figure %s.%s %.2f ns\n", subject->name, op_names[op], median(ns[op], rounds));
		printf("spread %s.%s %.2f to %.2f ns, %u rounds\n", subject->name, op_names[op],
		       ns[op][0], ns[op][rounds - 1], rounds);
	}
}
