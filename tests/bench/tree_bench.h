/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the benchmarks of both trees share: the order of random work, and rounds of operations.
 *
 * One figure is the median over the rounds of the CPU time of the measuring thread for one
 * operation; a line with the least and the most follows.
 */
#ifndef TESTS_BENCH_TREE_BENCH_H
#define TESTS_BENCH_TREE_BENCH_H

#include <stdint.h>

#define MAX_ROUNDS 64
#define MAX_OPS 8

/* What is measured: operations in their order, NULL where it has none; begin may be NULL. */
struct subject {
	const char *name;
	void (*begin)(void);
	void (*end_round)(void);
	void (*ops[MAX_OPS])(void);
};

extern unsigned long *shuffled;	/* 0 to n - 1 in random order, always the same one */
extern unsigned long sink;	/* what was found, so that no loop is left out */

_Noreturn void fail(const char *what);
double cpu_seconds(void);
uint64_t next_random(uint64_t *state);
void shuffle(unsigned long n);
/* Sorts the values. */
double median(double *values, unsigned int n);
/* From FOLIOFS_ROUNDS: 7 unless set. */
unsigned int bench_rounds(void);
/* @n: how often a call of an operation does it; @op_names ends with NULL */
void measure(const struct subject *subject, const char *const *op_names, unsigned long n,
	     unsigned int rounds);

#endif /* TESTS_BENCH_TREE_BENCH_H */
