/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Operations on a maple tree and on the list at the same time, compared after each.
 *
 * What they do is chosen by a generator of random numbers or, for the fuzzer, by a string of bytes.
 * A difference ends the process, with a line on stderr that says where.
 */
#ifndef TESTS_TREE_MAPLE_STEPS_H
#define TESTS_TREE_MAPLE_STEPS_H

#include "maple_list.h"
#include "maple_tree.h"

#include <stdint.h>

/**
 * struct maple_run - one tree's life; zeroed but for what the caller chooses
 * @bytes: what to choose by; NULL: the generator
 * @end: behind the bytes
 * @seed: of the generator
 * @random: state of the generator
 * @flags: of the tree, MT_FLAGS_*
 * @toggles: go into RCU mode, and out of it, now and then
 * @fails: let memory run out in some steps
 * @failing: it does in this one
 * @wrapped: the last cyclic allocation took the last index of all
 * @shrinking: the tree is on its way from @most down to @least ranges, else on its way up
 * @most: how many ranges there may be before it shrinks again
 * @least: and before it grows again
 * @step: how many have been done
 * @mt: the tree
 * @list: and what should be in it
 */
struct maple_run {
	const uint8_t *bytes, *end;
	uint64_t seed, random;
	unsigned int flags;
	bool toggles;
	bool fails;
	bool failing;
	bool wrapped;
	bool shrinking;
	unsigned int most, least;
	unsigned long step;
	struct maple_tree mt;
	struct list list;
};

void maple_run_begin(struct maple_run *run);
void maple_run_step(struct maple_run *run);
/* Compares everything, destroys the tree, and checks that no node is lost. */
void maple_run_end(struct maple_run *run);

#endif /* TESTS_TREE_MAPLE_STEPS_H */
