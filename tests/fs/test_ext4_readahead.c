/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How few reads of the image do it, and what becomes of those that fail. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ext4_fixture.h"

#define BYTES (64UL << 20)
#define DIRS 200
#define FILE_BYTES (4UL << 20)

static struct fixture f;

static long reads(void)
{
	return __atomic_load_n(&f.reads, __ATOMIC_RELAXED);
}

static void reopen(size_t readahead)
{
	cr_assert_eq(fixture_close(&f), 0);
	f.readahead_bytes = readahead;
	cr_assert_eq(fixture_open(&f), 0);
}

static bool emit(void *arg, const char *name, size_t len, uint64_t ino, unsigned int type,
		 uint64_t next)
{
	++*(unsigned int *)arg;
	return true;
}

static void make_dirs(void)
{
	struct vnode *root = f.volume->ops->root(f.volume), *dir;
	char name[16];

	for (int i = 0; i < DIRS; i++) {
		snprintf(name, sizeof(name), "dir%03d", i);
		cr_assert_eq(f.volume->ops->mkdir(root, name, 0755, &fixture_root, &dir), 0);
		fixture_put(&f, dir);
	}
	fixture_put(&f, root);
}

static void list_dirs(void)
{
	char name[16];

	for (int i = 0; i < DIRS; i++) {
		unsigned int entries = 0;
		struct vnode *dir;

		snprintf(name, sizeof(name), "dir%03d", i);
		dir = fixture_find(&f, name);
		cr_assert_eq(f.volume->ops->readdir(dir, 0, emit, &entries), 0);
		cr_assert_eq(entries, 2);
		fixture_put(&f, dir);
	}
}

/* Their blocks lie side by side: not one read for each. */
Test(ext4_readahead, walking_many_directories_takes_few_reads)
{
	long before;

	fixture_format(&f, BYTES, "-b 4096");
	cr_assert_eq(fixture_open(&f), 0);
	make_dirs();
	reopen(1 << 20);
	before = reads();
	list_dirs();
	cr_assert_lt(reads() - before, DIRS / 2, "%ld reads", reads() - before);
	fixture_finish(&f);
}

/* What was read ahead and then belonged to others is not taken for what it was. */
Test(ext4_readahead, blocks_that_change_hands_are_read_again)
{
	static char data[16384];
	char name[16];

	fixture_format(&f, BYTES, "-b 4096");
	cr_assert_eq(fixture_open(&f), 0);
	make_dirs();
	memset(data, 'x', sizeof(data));
	for (int round = 0; round < 3; round++) {
		struct vnode *root;

		reopen(1 << 20);
		list_dirs();
		root = f.volume->ops->root(f.volume);
		for (int i = 0; i < DIRS; i += 2) {
			struct vnode *dir;

			snprintf(name, sizeof(name), "dir%03d", i);
			cr_assert_eq(f.volume->ops->rmdir(root, name), 0);
			snprintf(name, sizeof(name), "file%03d", i);
			fixture_write(&f, name, data, sizeof(data));
			cr_assert_eq(f.volume->ops->sync(f.volume), 0);
			cr_assert_eq(f.volume->ops->unlink(root, name), 0);
			snprintf(name, sizeof(name), "dir%03d", i);
			cr_assert_eq(f.volume->ops->mkdir(root, name, 0755, &fixture_root, &dir),
				     0);
			fixture_put(&f, dir);
		}
		fixture_put(&f, root);
		list_dirs();
	}
	fixture_finish(&f);
}

static void read_file(struct vnode *node, const unsigned char *data, struct file_ra *ra)
{
	static unsigned char buf[8192];

	for (loff_t pos = 0; pos < (loff_t)FILE_BYTES; pos += sizeof(buf)) {
		cr_assert_eq(filemap_read_ra(&node->mapping, ra, pos, buf, sizeof(buf)),
			     sizeof(buf));
		cr_assert(!memcmp(buf, data + pos, sizeof(buf)));
	}
}

/* Large reads, few of them; each may fail once (then block by block), and nobody notices. */
Test(ext4_readahead, a_file_read_in_small_pieces)
{
	unsigned char *data = malloc(FILE_BYTES);
	struct vnode *node;
	struct file_ra ra;
	long before;

	for (size_t i = 0; i < FILE_BYTES; i++)
		data[i] = i * 7 + i / 4096;
	fixture_format(&f, BYTES, "-b 4096");
	f.cache_bytes = 32 << 20;
	cr_assert_eq(fixture_open(&f), 0);
	fixture_write(&f, "file", data, FILE_BYTES);
	for (int fail = 0; fail < 4; fail++) {
		reopen(1 << 20);
		node = fixture_find(&f, "file");
		file_ra_init(&ra);
		before = reads();
		f.fail_once = true;
		f.fail_reads_from = fail ? before + 1 + fail : 0;
		read_file(node, data, &ra);
		if (!fail)
			cr_assert_lt(reads() - before, 60, "%ld reads", reads() - before);
		f.fail_reads_from = 0;
		file_ra_finish(&ra);
		fixture_put(&f, node);
	}
	free(data);
	fixture_finish(&f);
}
