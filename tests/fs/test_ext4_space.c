/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The end of space: ENOSPC comes from the call that asks for too much, never later, and everything
 * accepted before is there after a new mount.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "ext4_model.h"
#include "rcu.h"

TestSuite(ext4_space, .timeout = 60);

struct kind {
	char options[64];
	unsigned int size;	/* MiB */
};

static struct kind kinds[] = {
	{ "-b 1024", 3 },
	{ "-b 4096 -O ^has_journal", 8 },
	{ "-t ext2 -b 1024", 3 },
	{ "-t ext3 -b 4096", 12 },
	{ "-b 1024 -O ^has_journal,inline_data", 3 },
};

#define KINDS cr_make_param_array(struct kind, kinds, sizeof(kinds) / sizeof(kinds[0]))

static void begin(struct fixture *f, const struct kind *kind)
{
	fixture_format(f, (uint64_t)kind->size << 20, kind->options);
	cr_assert(!fixture_open(f));
}

static uint64_t free_blocks(struct fixture *f)
{
	struct statvfs st;

	cr_assert(!f->volume->ops->sync(f->volume));
	cr_assert(!f->volume->ops->statfs(f->volume, &st));
	return st.f_bfree;
}

static void remount(struct fixture *f)
{
	cr_assert(!fixture_close(f), "data that was accepted could not be written");
	cr_assert(!fixture_fsck(f));
	cr_assert(!fixture_open(f));
}

static void unlink_name(struct fixture *f, const char *name)
{
	struct vnode *root = fixture_find(f, "");

	cr_assert(!ext4_unlink(root, name));
	fixture_put(f, root);
}

/* What block @nr of file @file is filled with. */
static void fill(char *buf, size_t len, unsigned int file, unsigned int nr)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = file * 31 + nr * 7 + i;
}

ParameterizedTestParameters(ext4_space, one_file)
{
	return KINDS;
}

ParameterizedTest(struct kind *kind, ext4_space, one_file)
{
	struct fixture f;
	struct vnode *node;
	char buf[5000], got[5000];
	uint64_t before;
	loff_t size = 0;
	ssize_t done;

	begin(&f, kind);
	before = free_blocks(&f);
	node = fixture_create(&f, "file", 0600);
	for (unsigned int i = 0;; i++) {
		fill(buf, sizeof(buf), 0, i);
		done = ext4_write(node, size, buf, sizeof(buf), 0);
		if (done > 0)
			size += done;
		if (done != sizeof(buf))
			break;
	}
	if (done >= 0)
		done = ext4_write(node, size, buf, sizeof(buf), 0);
	cr_assert_eq(done, -ENOSPC);
	cr_assert_eq(mapping_size(&node->mapping), size);
	cr_assert(!ext4_fsync(node, false));
	/* What has its place can be written again. */
	fill(buf, sizeof(buf), 0, 0);
	cr_assert_eq(ext4_write(node, 0, buf, sizeof(buf), 0), sizeof(buf));
	fixture_put(&f, node);
	remount(&f);

	node = fixture_find(&f, "file");
	cr_assert_eq(mapping_size(&node->mapping), size);
	for (unsigned int i = 0; (loff_t)i * (loff_t)sizeof(buf) < size; i++) {
		loff_t pos = (loff_t)i * sizeof(buf);
		ssize_t want = size - pos < (loff_t)sizeof(buf) ? size - pos : (ssize_t)sizeof(buf);

		fill(buf, sizeof(buf), 0, i);
		cr_assert_eq(filemap_read(&node->mapping, pos, got, sizeof(got)), want);
		cr_assert(!memcmp(buf, got, want), "block %u", i);
	}
	unlink_name(&f, "file");
	fixture_put(&f, node);
	cr_assert_eq(free_blocks(&f), before);
	fixture_finish(&f);
}

/* Blocks far apart: each may need an extent or indirect blocks of its own. */
ParameterizedTestParameters(ext4_space, scattered)
{
	return KINDS;
}

ParameterizedTest(struct kind *kind, ext4_space, scattered)
{
	unsigned int files = 3, nr[3] = { 0 };
	struct vnode *nodes[3];
	char buf[1024], got[1024], name[16];
	loff_t step = 300 * 4096;
	struct fixture f;

	begin(&f, kind);
	for (unsigned int i = 0; i < files; i++) {
		snprintf(name, sizeof(name), "file%u", i);
		nodes[i] = fixture_create(&f, name, 0600);
	}
	for (unsigned int i = 0;; i++) {
		unsigned int n = i % files;
		ssize_t done;

		fill(buf, sizeof(buf), n, nr[n]);
		done = ext4_write(nodes[n], nr[n] * step, buf, sizeof(buf), 0);
		if (done == -ENOSPC)
			break;
		cr_assert_eq(done, sizeof(buf));
		nr[n]++;
	}
	cr_assert_gt(nr[0], 20);
	for (unsigned int i = 0; i < files; i++) {
		cr_assert(!ext4_fsync(nodes[i], false));
		fixture_put(&f, nodes[i]);
	}
	remount(&f);
	for (unsigned int n = 0; n < files; n++) {
		snprintf(name, sizeof(name), "file%u", n);
		nodes[n] = fixture_find(&f, name);
		for (unsigned int i = 0; i < nr[n]; i++) {
			fill(buf, sizeof(buf), n, i);
			cr_assert_eq(filemap_read(&nodes[n]->mapping, i * step, got, sizeof(got)),
				     sizeof(got));
			cr_assert(!memcmp(buf, got, sizeof(buf)), "file %u block %u", n, i);
		}
		fixture_put(&f, nodes[n]);
	}
	fixture_finish(&f);
}

ParameterizedTestParameters(ext4_space, small_files)
{
	return KINDS;
}

ParameterizedTest(struct kind *kind, ext4_space, small_files)
{
	char buf[700], got[700], name[16];
	struct fixture f;
	struct vnode *node, *root;
	unsigned int nr;
	int err = 0;

	begin(&f, kind);
	root = fixture_find(&f, "");
	for (nr = 0; nr < 1000; nr++) {
		ssize_t done;

		snprintf(name, sizeof(name), "f%u", nr);
		err = ext4_mknod(root, name, S_IFREG | 0600, 0, &fixture_root, &node);
		if (err)
			break;
		fill(buf, sizeof(buf), nr, 0);
		done = ext4_write(node, 0, buf, sizeof(buf), 0);
		fixture_put(&f, node);
		if (done != sizeof(buf)) {
			cr_assert_eq(done, -ENOSPC);
			break;
		}
	}
	cr_assert(!err || err == -ENOSPC);
	cr_assert_gt(nr, 50);
	fixture_put(&f, root);
	remount(&f);
	for (unsigned int i = 0; i < nr; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		node = fixture_find(&f, name);
		fill(buf, sizeof(buf), i, 0);
		cr_assert_eq(filemap_read(&node->mapping, 0, got, sizeof(got)), sizeof(got));
		cr_assert(!memcmp(buf, got, sizeof(buf)), "file %u", i);
		fixture_put(&f, node);
	}
	fixture_finish(&f);
}

/* fallocate takes all or nothing, and keeps its word. */
Test(ext4_space, preallocation)
{
	struct kind kind = { "-b 1024 -O ^has_journal", 3 };
	struct fixture f;
	struct vnode *node, *other;
	char buf[1024];
	loff_t len = 3 << 20;
	uint64_t before;
	ssize_t done;

	begin(&f, &kind);
	node = fixture_create(&f, "file", 0600);
	other = fixture_create(&f, "other", 0600);
	before = free_blocks(&f);
	cr_assert_eq(ext4_fallocate(node, 0, 0, len), -ENOSPC);
	cr_assert_eq(mapping_size(&node->mapping), 0);
	cr_assert_eq(free_blocks(&f), before);
	while (ext4_fallocate(node, 0, 0, len) == -ENOSPC)
		len -= 16 << 10;
	cr_assert_gt(len, 1 << 20);
	/* The rest for somebody else. */
	do {
		done = ext4_write(other, mapping_size(&other->mapping), buf, sizeof(buf), 0);
	} while (done > 0);
	cr_assert_eq(done, -ENOSPC);
	/* Every second block, backwards: the extents are divided as often as can be. */
	for (loff_t pos = len - 2048; pos >= 0; pos -= 2048) {
		fill(buf, sizeof(buf), 1, pos >> 10);
		cr_assert_eq(ext4_write(node, pos, buf, sizeof(buf), 0), sizeof(buf));
	}
	cr_assert(!ext4_fsync(node, false));
	fixture_put(&f, node);
	fixture_put(&f, other);
	fixture_finish(&f);
}

/* Takes every block that is free: a file of one block needs nothing else. */
static void take_all(struct fixture *f)
{
	static unsigned int nr;
	struct vnode *node;
	char buf[1024] = "other", name[16];
	ssize_t done;

	do {
		snprintf(name, sizeof(name), "f%u", nr++);
		node = fixture_create(f, name, 0600);
		while ((done = ext4_write(node, 0, buf, sizeof(buf), VWRITE_APPEND)) > 0)
			;
		done = mapping_size(&node->mapping);
		cr_assert(!ext4_fsync(node, false));
		fixture_put(f, node);
	} while (done);
	cr_assert_eq(free_blocks(f), 0);
}

/* A file of @nr KiB, @written or preallocated, on an image without one free block. */
static void begin_full(struct fixture *f, struct model *m, unsigned int nr, bool written)
{
	struct kind kind = { "-b 1024 -O ^has_journal", 3 };

	begin(f, &kind);
	model_init(m, f, "file", nr << 10, 1);
	if (written)
		model_write(m, 0, nr << 10);
	else
		model_fallocate(m, 0, 0, nr << 10);
	cr_assert(!ext4_fsync(m->node, false));
	fixture_vol(f)->withheld_blocks = 0;
	take_all(f);
}

/* With not one block free, writing into preallocated blocks still cannot fail. */
Test(ext4_space, preallocation_on_a_full_image)
{
	unsigned int nr = 1000;
	struct fixture f;
	struct model m;

	begin_full(&f, &m, nr, false);
	for (unsigned int i = 0; i < nr; i += 2) {
		model_write(&m, i << 10, 1024);
		if (i % 50 == 0)
			cr_assert(!ext4_fsync(m.node, false));
	}
	cr_assert(!ext4_fsync(m.node, false));
	model_remount(&m);
	model_finish(&m);
	fixture_finish(&f);
}

/* A hole may need a block for the tree: it is punched, or refused with nothing lost. */
Test(ext4_space, holes_on_a_full_image)
{
	unsigned int nr = 1000, refused = 0;
	struct fixture f;
	struct model m;

	begin_full(&f, &m, nr, true);
	for (unsigned int i = 10; i < nr; i += 100) {
		int err;

		model_write(&m, i << 10, 1024);
		err = ext4_fallocate(m.node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, i << 10,
				     1024);
		if (!err)
			memset(m.data + (i << 10), 0, 1024);
		else
			cr_assert_eq(err, -ENOSPC);
		refused += err == -ENOSPC;
		take_all(&f);
		model_check(&m);
	}
	cr_assert_gt(refused, 0);
	cr_assert_lt(refused, 10);
	model_remount(&m);
	model_finish(&m);
	fixture_finish(&f);
}

static void *forget_late(void *node)
{
	rcu_register_thread();
	usleep(10000);
	ext4_iput(EXT4_I(node), 1);
	rcu_unregister_thread();
	return NULL;
}

/* The kernel forgets a removed file a little after it was told that it is removed. */
Test(ext4_space, a_write_waits_for_what_was_removed)
{
	static char data[1 << 20];
	struct vnode *big, *next;
	pthread_t thread;
	struct fixture f;
	loff_t size = 0;
	ssize_t done;

	begin(&f, &kinds[1]);
	big = fixture_create(&f, "big", 0600);
	next = fixture_create(&f, "next", 0600);
	while ((done = ext4_write(big, size, data, sizeof(data), 0)) > 0)
		size += done;
	cr_assert_eq(done, -ENOSPC);
	unlink_name(&f, "big");
	cr_assert(!pthread_create(&thread, NULL, forget_late, big));
	cr_expect_eq(ext4_write(next, 0, data, sizeof(data), 0), (ssize_t)sizeof(data));
	cr_assert(!pthread_join(thread, NULL));
	fixture_put(&f, next);
	fixture_finish(&f);
}

/* A file that stays open gives nothing: no longer than a moment is waited for it. */
Test(ext4_space, a_removed_file_in_use_does_not_hold_writers_up, .timeout = 10)
{
	static char data[1 << 20];
	struct vnode *big;
	struct fixture f;
	loff_t size = 0;
	ssize_t done;

	begin(&f, &kinds[1]);
	big = fixture_create(&f, "big", 0600);
	unlink_name(&f, "big");
	while ((done = ext4_write(big, size, data, sizeof(data), 0)) > 0)
		size += done;
	cr_expect_eq(done, -ENOSPC);
	fixture_put(&f, big);
	fixture_finish(&f);
}

Test(ext4_space, a_creation_waits_for_what_was_removed)
{
	struct vnode *root, *node = NULL;
	pthread_t thread;
	struct fixture f;
	char name[20];
	int err = 0;

	fixture_format(&f, 8 << 20, "-N 64");
	cr_assert(!fixture_open(&f));
	root = fixture_find(&f, "");
	for (int i = 0; !err; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		err = ext4_mknod(root, name, S_IFREG | 0600, 0, &fixture_root, &node);
		if (!err)
			fixture_put(&f, node);
	}
	cr_assert_eq(err, -ENOSPC);
	node = fixture_find(&f, "n0");
	unlink_name(&f, "n0");
	cr_assert(!pthread_create(&thread, NULL, forget_late, node));
	cr_expect_eq(ext4_mknod(root, "new", S_IFREG | 0600, 0, &fixture_root, &node), 0);
	cr_assert(!pthread_join(thread, NULL));
	fixture_put(&f, node);
	fixture_put(&f, root);
	fixture_finish(&f);
}
