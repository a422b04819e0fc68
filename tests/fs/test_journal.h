/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the two suites of journals share.
 */
#ifndef TEST_JOURNAL_H
#define TEST_JOURNAL_H

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "journal_maker.h"
#include "rcu.h"
#include "replay_oracle.h"

#define MIB (1UL << 20)
#define V2 JBD2_INCOMPAT_CSUM_V2
#define V3 JBD2_INCOMPAT_CSUM_V3
#define ASYNC JBD2_INCOMPAT_ASYNC_COMMIT
#define WIDE JBD2_INCOMPAT_64BIT

#define FREE 5000	/* blocks from here on are free in a new image of 1 KiB blocks */
#define START 5		/* of the log, and its first transaction */
#define FIRST 0x7ffffffeu

static inline void open_maker(struct maker *m, struct fixture *f, uint32_t incompat,
			      uint32_t compat)
{
	fixture_format(f, 8 * MIB, "-b 1024 -J size=1");
	maker_open(m, f, incompat, compat, START, FIRST);
}

static inline void finish(struct maker *m, struct fixture *f)
{
	maker_free(m);
	fixture_drop(f);
}

/* @block has the bytes of maker_fill() with @seed. */
static inline bool holds(struct maker *m, uint64_t block, unsigned int seed)
{
	char found[4096], wanted[4096];

	maker_bytes(wanted, m->blocksize, block, seed);
	cr_assert_eq(pread(m->f->fd, found, m->blocksize, block * m->blocksize), m->blocksize);
	return !memcmp(found, wanted, m->blocksize);
}

/* A test for each entry of a table. What a parameter points to is not there in the test's process.
 */
#define CASES(name, table)                                                                         \
	ParameterizedTestParameters(SUITE, name)                                                   \
	{                                                                                          \
		static unsigned int nrs[sizeof(table) / sizeof((table)[0])];                       \
                                                                                                   \
		for (unsigned int i = 0; i < sizeof(table) / sizeof((table)[0]); i++)              \
			nrs[i] = i;                                                                \
		return cr_make_param_array(unsigned int, nrs, sizeof(nrs) / sizeof(nrs[0]));       \
	}                                                                                          \
	ParameterizedTest(unsigned int *nr, SUITE, name)

#endif
