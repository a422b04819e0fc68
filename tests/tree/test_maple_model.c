/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Random operations on a maple tree and on the list: see maple_steps.h.
 *
 * FOLIOFS_SEED replays a run, FOLIOFS_STEPS makes it longer.
 */
#include "maple_steps.h"
#include "mt_internal.h"
#include "node_alloc.h"
#include "seed.h"

#include <criterion/criterion.h>

static void run_model(struct maple_run choices)
{
	static struct maple_run run;
	/* AddressSanitizer makes them slow. */
	unsigned long steps = test_setting("FOLIOFS_STEPS", NODE_POOL_MAX_FREE ? 40000 : 10000);

	run = choices;
	run.seed = test_seed();
	maple_run_begin(&run);
	while (run.step < steps)
		maple_run_step(&run);
	maple_run_end(&run);
	node_pool_drain(&mt_node_pool);
	cr_assert_eq(node_pool_live(&mt_node_pool), 0);
}

Test(maple_model, ranges)
{
	run_model((struct maple_run){.flags = 0});
}

Test(maple_model, ranges_and_readers)
{
	run_model((struct maple_run){.flags = MT_FLAGS_USE_RCU});
}

Test(maple_model, gaps)
{
	run_model((struct maple_run){.flags = MT_FLAGS_ALLOC_RANGE});
}

Test(maple_model, gaps_and_readers)
{
	run_model((struct maple_run){.flags = MT_FLAGS_ALLOC_RANGE | MT_FLAGS_USE_RCU});
}

Test(maple_model, readers_now_and_then)
{
	run_model((struct maple_run){.flags = MT_FLAGS_ALLOC_RANGE, .toggles = true});
}

Test(maple_model, memory_that_runs_out)
{
	run_model((struct maple_run){.flags = MT_FLAGS_USE_RCU, .fails = true});
}

Test(maple_model, gaps_and_memory_that_runs_out)
{
	run_model((struct maple_run){.flags = MT_FLAGS_ALLOC_RANGE, .fails = true});
}
