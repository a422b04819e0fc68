/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the tests of both trees choose by: random numbers that can be had again, and settings.
 */
#ifndef TESTS_TREE_SEED_H
#define TESTS_TREE_SEED_H

#include <stdint.h>

/* A small generator: the same seed gives the same steps. */
uint64_t test_random(uint64_t *state);
/* The seed from the environment variable FOLIOFS_SEED, else one of the clock; says it on stderr. */
uint64_t test_seed(void);
/* The number from the environment variable, else @otherwise. */
unsigned long test_setting(const char *name, unsigned long otherwise);

#endif /* TESTS_TREE_SEED_H */
