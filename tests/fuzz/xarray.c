/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Fuzz target: a string of bytes chooses operations on an XArray, compared with the model.
 *
 * The first byte says what kind of array it is and which operations there are; see steps.h for the
 * rest. An input does not wait for a grace period, so thousands run in a second.
 */
#include "steps.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct run run;

	if (!size)
		return 0;
	run = (struct run){
		.bytes = data + 1,
		.end = data + size,
		.max_order = data[0] & 1 ? 0 : MODEL_ORDER,
		.allocates = data[0] & 2,
		.fails = data[0] & 4,
	};
	run_begin(&run);
	while (run.bytes < run.end)
		run_step(&run);
	run_end(&run);
	return 0;
}
