/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The one pair of a suite, with short names for what its tests do most.
 */
#ifndef TESTS_TREE_MAPLE_FIXTURE_H
#define TESTS_TREE_MAPLE_FIXTURE_H

#include "maple_pair.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

static struct pair pair;
static struct maple_tree *const mt = &pair.mt;

static inline void *value(unsigned long v)
{
	return xa_mk_value(v);
}

static inline void store(unsigned long first, unsigned long last, void *entry)
{
	pair_store(&pair, first, last, entry);
}

static inline void end(void)
{
	pair_end(&pair);
}

/* A test for each kind of tree: with and without readers and gaps. */
#define MODES(suite, test)                                                                         \
	ParameterizedTestParameters(suite, test)                                                   \
	{                                                                                          \
		static unsigned int modes[] = { 0, MT_FLAGS_USE_RCU, MT_FLAGS_ALLOC_RANGE,         \
						MT_FLAGS_USE_RCU | MT_FLAGS_ALLOC_RANGE };         \
		return cr_make_param_array(unsigned int, modes, 4);                                \
	}                                                                                          \
	ParameterizedTest(unsigned int *mode, suite, test, .timeout = 120)

#endif /* TESTS_TREE_MAPLE_FIXTURE_H */
