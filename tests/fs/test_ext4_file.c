/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Regular files on every kind of ext2/3/4 image: what is written is read, before and after a new
 * mount, and e2fsck has nothing to say. With FOLIOFS_LONG=1 a million operations on each kind of
 * map and size of blocks, in a cache smaller than the file, with a new mount now and then.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <linux/falloc.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include "ext4_model.h"

TestSuite(ext4_file, .timeout = 7200);

#define STEPS 300
#define STEPS_LONG 1000000

struct kind {
	char options[64];
	bool lasting;		/* of the long run */
};

static struct kind kinds[] = {
	{ "", false },
	{ "-b 1024", true },
	{ "-b 2048", false },
	{ "-b 4096 -O ^metadata_csum", true },
	{ "-O inline_data -I 256", false },
	{ "-O ^has_journal", false },
	{ "-b 1024 -O ^extents,^64bit", false },
	{ "-t ext3 -b 4096", true },
	{ "-t ext2 -b 1024", true },
};

ParameterizedTestParameters(ext4_file, model)
{
	return cr_make_param_array(struct kind, kinds, sizeof(kinds) / sizeof(kinds[0]));
}

ParameterizedTest(struct kind *kind, ext4_file, model)
{
	const char *env = getenv("FOLIOFS_LONG");
	bool lasting = kind->lasting && env && !strcmp(env, "1");
	struct fixture f;
	struct model m;

	fixture_format(&f, 16 << 20, kind->options);
	f.cache_bytes = 2 << 20;
	cr_assert(!fixture_open(&f));
	model_init(&m, &f, "file", 3 << 20, 0);
	m.calm = lasting;
	for (int i = 0; i < (lasting ? STEPS_LONG : STEPS); i++)
		model_step(&m);
	model_remount(&m);
	model_finish(&m);
	fixture_finish(&f);
}
