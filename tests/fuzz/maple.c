/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Fuzz target: a string of bytes chooses operations on a maple tree, compared with the list.
 *
 * The first byte says what kind of tree it is; see maple_steps.h for the rest. An input does not
 * wait for a grace period, so thousands run in a second.
 */
#include "maple_steps.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct maple_run run;

	if (!size)
		return 0;
	run = (struct maple_run){
		.bytes = data + 1,
		.end = data + size,
		.flags = data[0] & (MT_FLAGS_ALLOC_RANGE | MT_FLAGS_USE_RCU),
		.fails = data[0] & 4,
		.toggles = data[0] & 8,
	};
	maple_run_begin(&run);
	while (run.bytes < run.end)
		maple_run_step(&run);
	maple_run_end(&run);
	return 0;
}
