/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Random operations on an XArray and on the model: see steps.h.
 *
 * FOLIOFS_SEED replays a run, FOLIOFS_STEPS makes it longer.
 */
#include "node_alloc.h"
#include "steps.h"
#include "xa_internal.h"

#include <criterion/criterion.h>

static void run_model(struct run choices)
{
	static struct run run;
	unsigned long steps = test_setting("FOLIOFS_STEPS", 40000);

	run = choices;
	run.random = test_seed();
	run_begin(&run);
	while (run.step < steps)
		run_step(&run);
	run_end(&run);
	node_pool_drain(&xa_node_pool);
	cr_assert_eq(node_pool_live(&xa_node_pool), 0);
}

Test(model, single_entries)
{
	run_model((struct run){.max_order = 0});
}

Test(model, entries_of_all_orders)
{
	run_model((struct run){.max_order = MODEL_ORDER});
}

Test(model, an_allocating_array)
{
	run_model((struct run){.max_order = MODEL_ORDER, .allocates = true});
}

Test(model, memory_that_runs_out)
{
	run_model((struct run){.max_order = MODEL_ORDER, .fails = true});
}

Test(model, an_allocating_array_and_memory_that_runs_out)
{
	run_model((struct run){.max_order = 0, .allocates = true, .fails = true});
}
