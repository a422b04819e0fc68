/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the torture programs of both trees share: objects that are freed after a grace period when
 * nothing of them is in the tree any more, and threads that read and write for a while.
 */
#ifndef TESTS_TREE_TORTURE_H
#define TESTS_TREE_TORTURE_H

#include "rcu.h"
#include "seed.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define check(condition, index)                                                                    \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "torture: %s:%d: index %lx: %s\n", __FILE__, __LINE__,     \
				(unsigned long)(index), #condition);                               \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* The first member of what the tree's entries point to. */
struct tortured {
	struct rcu_head rcu;
	unsigned int parts;	/* of it in the tree now; the tree's lock */
	unsigned int alive;
	struct tortured *next_unlinked;
};

/* Zeroed, with one part. */
void *tortured_new(size_t size);
/* A part is about to go. The grace period may begin only when it is gone: see tortured_free(). */
void tortured_put(void *object, struct tortured **unlinked);
void tortured_free(struct tortured *unlinked);

/* Two threads that call @read again and again, and two that call @write, with random numbers. */
void torture(void (*read)(uint64_t *random), void (*write)(uint64_t *random), uint64_t seed,
	     unsigned long ms);
/* How long: FOLIOFS_SECONDS, or @otherwise. */
unsigned long torture_ms(unsigned long otherwise);
/* Says how much was done. Return: the program's exit status. */
int torture_result(void);

#endif /* TESTS_TREE_TORTURE_H */
