/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Regular files on every kind of ext2/3/4 image: what is written is read, before and after a new
 * mount, and e2fsck has nothing to say.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <linux/falloc.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include "ext4_model.h"

TestSuite(ext4_file, .timeout = 60);

struct kind {
	char options[64];
};

static struct kind kinds[] = {
	{ "" },
	{ "-b 1024" },
	{ "-b 2048" },
	{ "-b 4096 -O ^metadata_csum" },
	{ "-O inline_data -I 256" },
	{ "-O ^has_journal" },
	{ "-b 1024 -O ^extents,^64bit" },
	{ "-t ext3 -b 4096" },
	{ "-t ext2 -b 1024" },
};

ParameterizedTestParameters(ext4_file, model)
{
	return cr_make_param_array(struct kind, kinds, sizeof(kinds) / sizeof(kinds[0]));
}

ParameterizedTest(struct kind *kind, ext4_file, model)
{
	struct fixture f;
	struct model m;

	fixture_format(&f, 16 << 20, kind->options);
	f.cache_bytes = 2 << 20;
	cr_assert(!fixture_open(&f));
	model_init(&m, &f, "file", 3 << 20, 0);
	for (int i = 0; i < 300; i++)
		model_step(&m);
	model_remount(&m);
	model_finish(&m);
	fixture_finish(&f);
}
