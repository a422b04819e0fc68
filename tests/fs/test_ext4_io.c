/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Files when the image fails, when many threads work, and what a write does beside writing. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "ext4_model.h"
#include "rcu.h"

TestSuite(ext4_io, .timeout = 60);

static struct fixture f;

static void begin(const char *options)
{
	fixture_format(&f, 32 << 20, options);
	f.cache_bytes = 2 << 20;
	cr_assert(!fixture_open(&f));
}

/* The next request and all after it fail, or none. */
static void fail_reads(bool fail)
{
	__atomic_store_n(&f.fail_reads_from,
			 fail ? __atomic_load_n(&f.reads, __ATOMIC_RELAXED) + 1 : 0,
			 __ATOMIC_RELAXED);
}

static void fail_writes(bool fail)
{
	__atomic_store_n(&f.fail_writes_from,
			 fail ? __atomic_load_n(&f.writes, __ATOMIC_RELAXED) + 1 : 0,
			 __ATOMIC_RELAXED);
}

Test(ext4_io, failed_read_is_tried_again)
{
	struct model m;
	char byte;

	begin("");
	model_init(&m, &f, "file", 256 << 10, 1);
	model_write(&m, 0, 256 << 10);
	model_remount(&m);
	/* The map is loaded, one page is cached. */
	cr_assert_eq(filemap_read(&m.node->mapping, 0, &byte, 1), 1);
	fail_reads(true);
	cr_assert_eq(filemap_read(&m.node->mapping, 0, &byte, 1), 1);
	cr_assert_eq(filemap_read(&m.node->mapping, 100000, &byte, 1), -EIO);
	fail_reads(false);
	model_check(&m);
	model_finish(&m);
	fixture_finish(&f);
}

Test(ext4_io, failed_write_is_told_and_kept)
{
	struct model m;

	begin("-b 1024");
	model_init(&m, &f, "file", 64 << 10, 1);
	model_write(&m, 0, 64 << 10);
	fail_writes(true);
	cr_assert_eq(ext4_fsync(m.node, false), -EIO);
	fail_writes(false);
	cr_assert(!ext4_fsync(m.node, false));
	model_remount(&m);
	model_finish(&m);
	fixture_finish(&f);
}

/* What fsync has returned for is there after a crash, with all that is needed to find it. */
Test(ext4_io, fsync_survives_a_crash)
{
	struct model m;

	begin("-b 1024");
	model_init(&m, &f, "file", 512 << 10, 1);
	for (int i = 0; i < 100; i++)
		model_write(&m, i * 5000, 1000);
	cr_assert(!ext4_fsync(m.node, false));
	fixture_put(&f, m.node);
	fixture_crash(&f);
	cr_assert(!fixture_open(&f));
	m.node = fixture_find(&f, "file");
	model_finish(&m);
	cr_assert(!fixture_close(&f));
	fixture_drop(&f);
}

Test(ext4_io, suid_goes_with_a_write)
{
	struct vnode *node;
	struct stat st;

	begin("");
	node = fixture_create(&f, "file", 06755);
	cr_assert_eq(ext4_write(node, 0, "a", 1, 0), 1);
	cr_assert(!ext4_getattr(node, &st));
	cr_assert_eq(st.st_mode & 07777, 06755);
	cr_assert_eq(ext4_write(node, 0, "b", 1, VWRITE_KILL_PRIV), 1);
	cr_assert(!ext4_getattr(node, &st));
	cr_assert_eq(st.st_mode & 07777, 0755);
	fixture_put(&f, node);
	/* sgid without execution for the group means something else. */
	node = fixture_create(&f, "locked", 02644);
	cr_assert_eq(ext4_write(node, 0, "b", 1, VWRITE_KILL_PRIV), 1);
	cr_assert(!ext4_getattr(node, &st));
	cr_assert_eq(st.st_mode & 07777, 02644);
	fixture_put(&f, node);
	fixture_finish(&f);
}

Test(ext4_io, capability_goes_with_a_write)
{
	struct vnode *node;
	char value[20] = { 1, 0, 0, 2 };

	begin("");
	node = fixture_create(&f, "file", 0755);
	cr_assert(!ext4_setxattr(node, "security.capability", value, sizeof(value), 0,
				 &fixture_root));
	cr_assert_eq(ext4_write(node, 0, "a", 1, VWRITE_KILL_PRIV), 1);
	cr_assert_eq(ext4_getxattr(node, "security.capability", value, sizeof(value)), -ENODATA);
	fixture_put(&f, node);
	fixture_finish(&f);
}

Test(ext4_io, append_goes_to_the_end)
{
	struct vnode *node;
	char buf[6];

	begin("");
	node = fixture_create(&f, "file", 0644);
	cr_assert_eq(ext4_write(node, 0, "abc", 3, 0), 3);
	cr_assert_eq(ext4_write(node, 0, "def", 3, VWRITE_APPEND), 3);
	cr_assert_eq(filemap_read(&node->mapping, 0, buf, 6), 6);
	cr_assert(!memcmp(buf, "abcdef", 6));
	fixture_put(&f, node);
	fixture_finish(&f);
}

Test(ext4_io, immutable_is_not_written)
{
	struct vnode *node;
	uint32_t flags;

	begin("");
	node = fixture_create(&f, "file", 0644);
	cr_assert(!ext4_getflags(node, &flags));
	cr_assert(!ext4_setflags(node, flags | EXT2_IMMUTABLE_FL, &fixture_root));
	cr_assert_eq(ext4_write(node, 0, "a", 1, 0), -EPERM);
	cr_assert_eq(ext4_write(node, 0, "a", 1, VWRITE_PAGES), 1, "what was taken before is lost");
	cr_assert_eq(ext4_fallocate(node, 0, 0, 100), -EPERM);
	cr_assert(!ext4_setflags(node, flags, &fixture_root));
	fixture_put(&f, node);
	fixture_finish(&f);
}

Test(ext4_io, unlinked_file_is_used_and_freed)
{
	struct model m;
	struct vnode *root;
	struct statvfs before, after;

	begin("");
	root = fixture_find(&f, "");
	cr_assert(!f.volume->ops->statfs(f.volume, &before));
	model_init(&m, &f, "file", 256 << 10, 1);
	model_write(&m, 0, 100000);
	cr_assert(!ext4_unlink(root, "file"));
	model_write(&m, 200000, 50000);
	model_finish(&m);
	cr_assert(!f.volume->ops->statfs(f.volume, &after));
	cr_assert_eq(before.f_bfree, after.f_bfree);
	fixture_put(&f, root);
	fixture_finish(&f);
}

/*
 * Several files at once, each with a model of its own, in a cache that holds a fraction of them, on
 * an image whose allocator they share.
 */
#define THREADS 4

static void *torture(void *arg)
{
	struct model *m = arg;

	rcu_register_thread();
	for (int i = 0; i < 150; i++)
		model_step(m);
	rcu_unregister_thread();
	return NULL;
}

static void torture_on(const char *options)
{
	static const char *const names[THREADS] = { "one", "two", "three", "four" };
	struct model m[THREADS];
	pthread_t threads[THREADS];

	begin(options);
	for (int i = 0; i < THREADS; i++) {
		model_init(&m[i], &f, names[i], 2 << 20, 0);
		m[i].shared = true;
	}
	for (int i = 0; i < THREADS; i++)
		cr_assert(!pthread_create(&threads[i], NULL, torture, &m[i]));
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < THREADS; i++) {
		model_check(&m[i]);
		fixture_put(&f, m[i].node);
	}
	cr_assert(!fixture_close(&f) && !fixture_fsck(&f) && !fixture_open(&f));
	for (int i = 0; i < THREADS; i++) {
		m[i].node = fixture_find(&f, names[i]);
		model_finish(&m[i]);
	}
	fixture_finish(&f);
}

Test(ext4_io, threads_on_extents)
{
	torture_on("-b 1024");
}

Test(ext4_io, threads_on_indirect_blocks)
{
	torture_on("-t ext2 -b 4096");
}
