/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Operations on an XArray and on the model at the same time, compared after each.
 *
 * What they do is chosen by a generator of random numbers or, for the fuzzer, by a string of bytes.
 * A difference ends the process, with a line on stderr that says where.
 */
#ifndef TESTS_TREE_STEPS_H
#define TESTS_TREE_STEPS_H

#include "model.h"

/**
 * struct run - one array's life; zeroed but for what the caller chooses
 * @bytes: what to choose by; NULL: @random
 * @end: behind the bytes
 * @random: state of the generator
 * @max_order: of entries; 0: none of the operations that make multi-index entries
 * @allocates: the array is one of XA_FLAGS_ALLOC
 * @fails: let memory run out in some steps
 * @failing: it does in this one
 * @step: how many have been done
 * @xa: the array
 * @model: and what should be in it
 */
struct run {
	const uint8_t *bytes, *end;
	uint64_t random;
	unsigned int max_order;
	bool allocates;
	bool fails;
	bool failing;
	unsigned long step;
	struct xarray xa;
	struct model model;
};

void run_begin(struct run *run);
void run_step(struct run *run);
/* Compares everything, destroys the array, and checks that no node is lost. */
void run_end(struct run *run);

#endif /* TESTS_TREE_STEPS_H */
