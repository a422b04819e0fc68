/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The generator is splitmix64: any seed will do, 0 as well.
 */
#include "seed.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

uint64_t test_random(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

unsigned long test_setting(const char *name, unsigned long otherwise)
{
	const char *text = getenv(name);

	return text ? strtoul(text, NULL, 0) : otherwise;
}

uint64_t test_seed(void)
{
	struct timespec now;
	uint64_t seed;

	clock_gettime(CLOCK_REALTIME, &now);
	seed = test_setting("FOLIOFS_SEED", now.tv_sec * 1000000000UL + now.tv_nsec);
	fprintf(stderr, "FOLIOFS_SEED=%lu\n", (unsigned long)seed);
	return seed;
}
