/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Names and links, one rule each; test_ext4_names_model.c has random sequences of all of them.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include "ext4/dir.h"
#include "ext4_fixture.h"
#include "rcu.h"

TestSuite(ext4_namei, .timeout = 120);

static struct vnode *root;

static void start(struct fixture *f, const char *options)
{
	fixture_format(f, 16 << 20, options);
	cr_assert(!fixture_open(f));
	root = fixture_find(f, "");
}

static void finish(struct fixture *f)
{
	fixture_put(f, root);
	fixture_finish(f);
}

static void make(struct fixture *f, const char *path, mode_t mode)
{
	fixture_put(f, fixture_create(f, path, mode));
}

static unsigned int links(struct vnode *node)
{
	struct stat st;

	cr_assert_eq(ext4_getattr(node, &st), 0);
	return st.st_nlink;
}

static unsigned int links_of(struct fixture *f, const char *path)
{
	struct vnode *node = fixture_find(f, path);
	unsigned int nr = links(node);

	fixture_put(f, node);
	return nr;
}

static uint64_t ino_of(struct fixture *f, const char *path)
{
	struct vnode *node = fixture_find(f, path);
	uint64_t ino = node->ino;

	fixture_put(f, node);
	return ino;
}

static int move(struct fixture *f, const char *from, const char *name, const char *to,
		const char *newname, unsigned int flags)
{
	struct vnode *a = fixture_find(f, from), *b = fixture_find(f, to);
	int err = ext4_rename(a, name, b, newname, flags, &fixture_root);

	fixture_put(f, a);
	fixture_put(f, b);
	return err;
}

static uint64_t free_blocks(struct fixture *f)
{
	struct statvfs st;

	cr_assert_eq(f->volume->ops->statfs(f->volume, &st), 0);
	return st.f_bfree;
}

static uint64_t free_inodes(struct fixture *f)
{
	struct statvfs st;

	cr_assert_eq(f->volume->ops->statfs(f->volume, &st), 0);
	return st.f_ffree;
}

Test(ext4_namei, long_names)
{
	struct vnode *node;
	struct fixture f;
	char name[300];

	start(&f, "");
	memset(name, 'n', sizeof(name));
	name[255] = '\0';
	cr_expect_eq(ext4_mknod(root, name, S_IFREG, 0, &fixture_root, &node), 0);
	fixture_put(&f, node);
	name[255] = 'n';
	name[256] = '\0';
	cr_expect_eq(ext4_mknod(root, name, S_IFREG, 0, &fixture_root, &node), -ENAMETOOLONG);
	cr_expect_eq(ext4_lookup(root, name, &node), -ENAMETOOLONG);
	cr_expect_eq(ext4_mkdir(root, name, 0755, &fixture_root, &node), -ENAMETOOLONG);
	cr_expect_eq(ext4_unlink(root, name), -ENAMETOOLONG);
	finish(&f);
}

Test(ext4_namei, wrong_types)
{
	struct vnode *dir, *file, *node;
	struct fixture f;

	start(&f, "");
	dir = fixture_create(&f, "dir", S_IFDIR | 0755);
	file = fixture_create(&f, "file", S_IFREG | 0644);
	cr_expect_eq(ext4_unlink(root, "dir"), -EISDIR);
	cr_expect_eq(ext4_rmdir(root, "file"), -ENOTDIR);
	cr_expect_eq(ext4_lookup(file, "x", &node), -ENOTDIR);
	cr_expect_eq(ext4_link(dir, root, "link"), -EPERM);
	cr_expect_eq(ext4_rmdir(root, "."), -EINVAL);
	cr_expect_eq(ext4_rmdir(root, ".."), -ENOTEMPTY);
	cr_expect_eq(ext4_unlink(root, "nothing"), -ENOENT);
	make(&f, "dir/inner", S_IFREG);
	cr_expect_eq(ext4_rmdir(root, "dir"), -ENOTEMPTY);
	fixture_put(&f, dir);
	fixture_put(&f, file);
	finish(&f);
}

Test(ext4_namei, special_files_keep_their_numbers)
{
	const dev_t devices[] = {makedev(0, 0), makedev(8, 1), makedev(255, 255), makedev(300, 5),
				 makedev(7, 70000)};
	struct vnode *node;
	struct fixture f;
	struct stat st;
	char name[16];

	start(&f, "");
	for (unsigned int i = 0; i < 5; i++) {
		sprintf(name, "dev%u", i);
		cr_assert_eq(
			ext4_mknod(root, name, S_IFBLK | 0600, devices[i], &fixture_root, &node),
			0);
		fixture_put(&f, node);
	}
	make(&f, "fifo", S_IFIFO | 0600);
	make(&f, "sock", S_IFSOCK | 0600);
	fixture_put(&f, root);
	cr_assert_eq(fixture_close(&f), 0);
	cr_assert(!fixture_open(&f));
	root = fixture_find(&f, "");
	for (unsigned int i = 0; i < 5; i++) {
		sprintf(name, "dev%u", i);
		node = fixture_find(&f, name);
		cr_assert_eq(ext4_getattr(node, &st), 0);
		cr_expect(S_ISBLK(st.st_mode) && st.st_rdev == devices[i], "%u", i);
		fixture_put(&f, node);
	}
	finish(&f);
}

struct target {
	char options[48];
	unsigned int len;
	int err;
};

static struct target targets[] = {
	{"-b 1024", 1, 0},
	{"-b 1024", 59, 0},
	{"-b 1024", 60, 0},
	{"-b 1024", 61, 0},
	{"-b 1024", 1023, 0},
	{"-b 1024", 1024, -ENAMETOOLONG},
	{"-b 4096", 4095, 0},
	{"-t ext2 -b 1024", 59, 0},
	{"-t ext2 -b 1024", 500, 0},
	{"-b 1024 -O inline_data -I 256", 59, 0},
	{"-b 1024 -O inline_data -I 256", 100, 0},
};

ParameterizedTestParameters(ext4_namei, symlinks)
{
	return cr_make_param_array(struct target, targets, sizeof(targets) / sizeof(targets[0]));
}

ParameterizedTest(struct target *p, ext4_namei, symlinks)
{
	char target[4097], buf[4097];
	struct vnode *node;
	struct fixture f;
	uint64_t blocks;

	start(&f, p->options);
	for (unsigned int i = 0; i < p->len; i++)
		target[i] = 'a' + i % 26;
	target[p->len] = '\0';
	blocks = free_blocks(&f);
	cr_assert_eq(ext4_symlink(root, "link", target, &fixture_root, &node), p->err);
	if (!p->err) {
		fixture_put(&f, node);
		fixture_put(&f, root);
		cr_assert_eq(fixture_close(&f), 0);
		cr_assert(!fixture_open(&f));
		root = fixture_find(&f, "");
		node = fixture_find(&f, "link");
		cr_expect_eq(ext4_readlink(node, buf, sizeof(buf)), (ssize_t)p->len);
		cr_expect_arr_eq(buf, target, p->len);
		fixture_put(&f, node);
		cr_expect_eq(ext4_unlink(root, "link"), 0);
	}
	cr_expect_eq(free_blocks(&f), blocks);
	finish(&f);
}

Test(ext4_namei, inline_symlink_of_another_writer_is_read)
{
	char buf[4096];
	struct vnode *node;
	struct fixture f;
	ssize_t len;

	fixture_format(&f, 16 << 20, "-O inline_data -I 256");
	cr_assert_eq(fixture_run(&f,
				 "PATH=$PATH:/usr/sbin:/sbin; debugfs -w -R \"symlink l $(printf "
				 "%%080d 7)\" %s >/dev/null 2>&1"),
		     0);
	cr_assert(!fixture_open(&f));
	node = fixture_find(&f, "l");
	len = ext4_readlink(node, buf, sizeof(buf));
	cr_expect(len == 80 && buf[79] == '7' && buf[0] == '0', "%zd", len);
	fixture_put(&f, node);
	fixture_finish(&f);
}

Test(ext4_namei, links_are_counted_and_limited)
{
	struct vnode *file, *node;
	struct fixture f;
	char name[16];
	unsigned int i;

	start(&f, "");
	file = fixture_create(&f, "file", S_IFREG | 0644);
	for (i = 1; i < 65000; i++) {
		sprintf(name, "l%u", i);
		cr_assert_eq(ext4_link(file, root, name), 0);
	}
	ext4_iput(EXT4_I(file), 64999);
	cr_expect_eq(links(file), 65000);
	cr_expect_eq(ext4_link(file, root, "more"), -EMLINK);
	cr_expect_eq(ext4_lookup(root, "more", &node), -ENOENT);
	fixture_put(&f, file);
	finish(&f);
}

/* Without dir_nlink a directory has room for 64998 subdirectories; with it, for any number. */
Test(ext4_namei, subdirectories_are_counted_and_limited)
{
	struct vnode *dir, *node;
	struct fixture f;
	uint16_t *count;

	start(&f, "-O ^dir_nlink");
	dir = fixture_create(&f, "dir", S_IFDIR | 0755);
	make(&f, "dir/one", S_IFDIR | 0755);
	cr_expect_eq(links(dir), 3);
	count = &EXT4_I(dir)->raw.i_links_count;
	*count = 65000;
	cr_expect_eq(ext4_mkdir(dir, "two", 0755, &fixture_root, &node), -EMLINK);
	make(&f, "other", S_IFDIR | 0755);
	cr_expect_eq(ext4_rename(root, "other", dir, "other", 0, &fixture_root), -EMLINK);
	*count = 3;
	cr_expect_eq(ext4_rename(root, "other", dir, "other", 0, &fixture_root), 0);
	cr_expect_eq(links(dir), 4);
	cr_expect_eq(ext4_rmdir(dir, "one"), 0);
	cr_expect_eq(links(dir), 3);
	fixture_put(&f, dir);
	finish(&f);
}

Test(ext4_namei, too_many_subdirectories_are_counted_as_one)
{
	struct vnode *dir, *node;
	struct fixture f;
	uint16_t *count;
	char name[64];

	start(&f, "-b 1024 -O dir_nlink");
	dir = fixture_create(&f, "dir", S_IFDIR | 0755);
	for (unsigned int i = 0; i < 60; i++) {
		sprintf(name, "dir/a-rather-long-name-of-a-directory-%u", i);
		make(&f, name, S_IFDIR | 0755);
	}
	cr_assert(EXT4_I(dir)->raw.i_flags & EXT2_INDEX_FL);
	cr_expect_eq(links(dir), 62);
	count = &EXT4_I(dir)->raw.i_links_count;
	*count = 65000;
	cr_expect_eq(ext4_mkdir(dir, "two", 0755, &fixture_root, &node), 0);
	fixture_put(&f, node);
	cr_expect_eq(*count, 1);
	cr_expect_eq(ext4_rmdir(dir, "two"), 0);
	cr_expect_eq(*count, 1);
	*count = 62;
	cr_assert_eq(ext4_begin(fixture_vol(&f)), 0);
	ext4_inode_write(EXT4_I(dir));
	ext4_end(fixture_vol(&f));
	fixture_put(&f, dir);
	finish(&f);
}

/* An unlinked file lives as long as somebody uses it, and then gives back all it had. */
Test(ext4_namei, unlinked_file_lives_while_it_is_used)
{
	uint64_t blocks, inodes;
	struct vnode *file;
	struct fixture f;
	char buf[5000] = "text";

	start(&f, "");
	blocks = free_blocks(&f);
	inodes = free_inodes(&f);
	fixture_write(&f, "file", buf, sizeof(buf));
	file = fixture_find(&f, "file");
	cr_expect_eq(ext4_unlink(root, "file"), 0);
	cr_expect_eq(links(file), 0);
	cr_expect_eq(ext4_link(file, root, "again"), -ENOENT);
	memset(buf, 0, sizeof(buf));
	cr_expect_eq(filemap_read(&file->mapping, 0, buf, sizeof(buf)), 5000);
	cr_expect_str_eq(buf, "text");
	cr_expect_lt(free_inodes(&f), inodes);
	fixture_put(&f, file);
	cr_expect_eq(free_inodes(&f), inodes);
	cr_expect_eq(free_blocks(&f), blocks);
	finish(&f);
}

Test(ext4_namei, removed_directory_takes_no_names)
{
	struct vnode *dir, *file, *node;
	struct fixture f;

	start(&f, "");
	dir = fixture_create(&f, "dir", S_IFDIR | 0755);
	file = fixture_create(&f, "file", S_IFREG | 0644);
	cr_expect_eq(links(root), 4);
	cr_expect_eq(ext4_rmdir(root, "dir"), 0);
	cr_expect_eq(links(root), 3);
	cr_expect_eq(links(dir), 0);
	cr_expect_eq(ext4_mknod(dir, "x", S_IFREG, 0, &fixture_root, &node), -ENOENT);
	cr_expect_eq(ext4_mkdir(dir, "x", 0755, &fixture_root, &node), -ENOENT);
	cr_expect_eq(ext4_link(file, dir, "x"), -ENOENT);
	cr_expect_eq(ext4_rename(root, "file", dir, "x", 0, &fixture_root), -ENOENT);
	fixture_put(&f, file);
	fixture_put(&f, dir);
	finish(&f);
}

Test(ext4_namei, flags_forbid)
{
	struct vnode *dir, *file, *node;
	struct fixture f;

	start(&f, "");
	dir = fixture_create(&f, "dir", S_IFDIR | 0755);
	make(&f, "dir/in", S_IFREG | 0644);
	file = fixture_create(&f, "file", S_IFREG | 0644);
	EXT4_I(dir)->raw.i_flags |= EXT2_APPEND_FL;
	EXT4_I(file)->raw.i_flags |= EXT2_IMMUTABLE_FL;
	cr_expect_eq(ext4_unlink(dir, "in"), -EPERM);
	cr_expect_eq(ext4_rename(dir, "in", root, "out", 0, &fixture_root), -EPERM);
	cr_expect_eq(ext4_mknod(dir, "more", S_IFREG, 0, &fixture_root, &node), 0);
	fixture_put(&f, node);
	cr_expect_eq(ext4_unlink(root, "file"), -EPERM);
	cr_expect_eq(ext4_link(file, root, "file2"), -EPERM);
	cr_expect_eq(ext4_rename(root, "file", root, "file2", 0, &fixture_root), -EPERM);
	EXT4_I(dir)->raw.i_flags ^= EXT2_APPEND_FL | EXT2_IMMUTABLE_FL;
	cr_expect_eq(ext4_mknod(dir, "no", S_IFREG, 0, &fixture_root, &node), -EPERM);
	EXT4_I(dir)->raw.i_flags &= ~EXT2_IMMUTABLE_FL;
	EXT4_I(file)->raw.i_flags &= ~EXT2_IMMUTABLE_FL;
	cr_expect_eq(ext4_unlink(root, "file"), 0);
	fixture_put(&f, file);
	fixture_put(&f, dir);
	finish(&f);
}

/* Every creation that has no room leaves nothing behind. */
Test(ext4_namei, no_space_leaves_nothing_half_done)
{
	uint64_t blocks, inodes;
	struct vnode *node;
	struct fixture f;
	char name[256], target[200];
	unsigned int i;
	int err = 0;

	start(&f, "-b 1024 -m 0 -O ^has_journal");
	memset(target, 't', sizeof(target));
	target[199] = '\0';
	for (i = 0; !err; i++) {
		sprintf(name, "d%0100u", i);
		err = ext4_mkdir(root, name, 0755, &fixture_root, &node);
		if (!err)
			fixture_put(&f, node);
	}
	cr_assert_eq(err, -ENOSPC);
	inodes = free_inodes(&f);
	blocks = free_blocks(&f);
	cr_expect_eq(ext4_mkdir(root, "more", 0755, &fixture_root, &node), -ENOSPC);
	if (!blocks)
		cr_expect_eq(ext4_symlink(root, "more", target, &fixture_root, &node), -ENOSPC);
	cr_expect_eq(ext4_lookup(root, "more", &node), -ENOENT);
	cr_expect_eq(free_inodes(&f), inodes);
	cr_expect_eq(free_blocks(&f), blocks);
	cr_expect_eq(links(root), i - 1 + 3);
	sprintf(name, "d%0100u", 0);
	cr_expect_eq(ext4_rmdir(root, name), 0);
	finish(&f);
}

Test(ext4_namei, readonly_volume_refuses)
{
	struct vnode *file, *node;
	struct fixture f;

	start(&f, "");
	make(&f, "file", S_IFREG | 0644);
	fixture_put(&f, root);
	cr_assert_eq(fixture_close(&f), 0);
	f.options.ro = true;
	cr_assert(!fixture_open(&f));
	root = fixture_find(&f, "");
	file = fixture_find(&f, "file");
	cr_expect_eq(ext4_mknod(root, "x", S_IFREG, 0, &fixture_root, &node), -EROFS);
	cr_expect_eq(ext4_link(file, root, "x"), -EROFS);
	cr_expect_eq(ext4_unlink(root, "file"), -EROFS);
	cr_expect_eq(ext4_rename(root, "file", root, "x", 0, &fixture_root), -EROFS);
	cr_expect_eq(ext4_setxattr(file, "user.x", "v", 1, 0, &fixture_root), -EROFS);
	fixture_put(&f, file);
	finish(&f);
}

static void make_tree(struct fixture *f)
{
	make(f, "a", S_IFDIR | 0755);
	make(f, "a/sub", S_IFDIR | 0755);
	make(f, "a/sub/deep", S_IFDIR | 0755);
	make(f, "b", S_IFDIR | 0755);
	make(f, "empty", S_IFDIR | 0755);
	make(f, "file", S_IFREG | 0644);
	make(f, "a/file", S_IFREG | 0644);
}

struct renaming {
	char from[16], name[16], to[16], newname[16];
	unsigned int flags;
	int err;
};

static struct renaming renamings[] = {
	{"", "file", "", "new", 0, 0},
	{"", "file", "", "file", 0, 0},
	{"", "file", "b", "new", 0, 0},
	{"", "file", "a", "file", 0, 0},
	{"", "file", "a", "file", RENAME_NOREPLACE, -EEXIST},
	{"", "file", "b", "file", RENAME_NOREPLACE, 0},
	{"", "nothing", "b", "file", 0, -ENOENT},
	{"", "file", "", "empty", 0, -EISDIR},
	{"", "empty", "", "file", 0, -ENOTDIR},
	{"", "a", "", "empty", 0, 0},
	{"", "empty", "", "a", 0, -ENOTEMPTY},
	{"", "a", "b", "a", 0, 0},
	{"a", "sub", "b", "sub", 0, 0},
	{"a", "sub", "", "empty", 0, 0},
	{"", "a", "a", "x", 0, -EINVAL},
	{"", "a", "a/sub", "x", 0, -EINVAL},
	{"", "a", "a/sub/deep", "x", 0, -EINVAL},
	{"a/sub", "deep", "", "a", 0, -ENOTEMPTY},
	{"a", "file", "", "a", 0, -EISDIR},
	{"", "file", "a", "file", RENAME_EXCHANGE, 0},
	{"", "file", "a", "sub", RENAME_EXCHANGE, 0},
	{"a", "sub", "", "file", RENAME_EXCHANGE, 0},
	{"a", "sub", "", "b", RENAME_EXCHANGE, 0},
	{"", "a", "a/sub", "deep", RENAME_EXCHANGE, -EINVAL},
	{"a/sub", "deep", "", "a", RENAME_EXCHANGE, -EINVAL},
	{"", "file", "a", "nothing", RENAME_EXCHANGE, -ENOENT},
	{"", "file", "b", "new", RENAME_WHITEOUT, 0},
	{"", "file", "a", "file", RENAME_WHITEOUT, 0},
	{"a", "sub", "b", "sub", RENAME_WHITEOUT, 0},
	{"", "file", "b", "x", RENAME_EXCHANGE | RENAME_NOREPLACE, -EINVAL},
	{"", "file", "b", "x", RENAME_EXCHANGE | RENAME_WHITEOUT, -EINVAL},
	{"", "file", "b", "x", 1 << 7, -EINVAL},
};

ParameterizedTestParameters(ext4_namei, rename)
{
	return cr_make_param_array(struct renaming, renamings,
				   sizeof(renamings) / sizeof(renamings[0]));
}

/* What is moved is where it should be, what was there is gone or exchanged; e2fsck checks the rest.
 */
ParameterizedTest(struct renaming *p, ext4_namei, rename)
{
	char from[40], to[40];
	struct vnode *node;
	struct fixture f;
	uint64_t ino = 0, other = 0;
	struct stat st;

	start(&f, "");
	make_tree(&f);
	snprintf(from, sizeof(from), "%s/%s", p->from, p->name);
	snprintf(to, sizeof(to), "%s/%s", p->to, p->newname);
	if (p->err != -ENOENT)
		ino = ino_of(&f, from);
	if (p->flags == RENAME_EXCHANGE && !p->err)
		other = ino_of(&f, to);
	cr_expect_eq(move(&f, p->from, p->name, p->to, p->newname, p->flags), p->err);
	if (p->err) {
		if (ino)
			cr_expect_eq(ino_of(&f, from), ino);
	} else {
		cr_expect_eq(ino_of(&f, to), ino);
	}
	if (other)
		cr_expect_eq(ino_of(&f, from), other);
	if (p->flags == RENAME_WHITEOUT && !p->err) {
		node = fixture_find(&f, from);
		cr_assert_eq(ext4_getattr(node, &st), 0);
		cr_expect(S_ISCHR(st.st_mode) && !st.st_rdev);
		fixture_put(&f, node);
	}
	finish(&f);
}

/* The new parent cannot grow: what was to be moved is where it was, with its parent. */
Test(ext4_namei, rename_without_space_changes_nothing)
{
	struct vnode *full, *file, *moved, *big, *node;
	struct fixture f;
	char name[256];
	unsigned int i;
	int err = 0;

	start(&f, "-b 1024 -m 0 -O ^has_journal");
	full = fixture_create(&f, "full", S_IFDIR | 0755);
	file = fixture_create(&f, "file", S_IFREG | 0644);
	moved = fixture_create(&f, "moved", S_IFDIR | 0755);
	for (i = 0; i < 4; i++) {
		sprintf(name, "%0200u", i);
		cr_assert_eq(ext4_link(file, full, name), 0);
		fixture_put(&f, file);
	}
	big = fixture_create(&f, "big", S_IFREG | 0644);
	for (i = 0; f.volume->ops->write(big, i * 4096, name, 200, 0) == 200; i++)
		;
	fixture_put(&f, big);
	/* What was kept back for the file's own map. */
	cr_assert_eq(f.volume->ops->sync(f.volume), 0);
	for (i = 0; !err; i++) {
		sprintf(name, "d%u", i);
		err = ext4_mkdir(root, name, 0755, &fixture_root, &node);
		if (!err)
			fixture_put(&f, node);
	}
	cr_assert_eq(err, -ENOSPC);
	cr_assert_gt(free_inodes(&f), 0);
	memset(name, 'n', 200);
	name[200] = '\0';
	cr_expect_eq(ext4_rename(root, "moved", full, name, 0, &fixture_root), -ENOSPC);
	cr_expect_eq(ext4_rename(root, "file", full, name, 0, &fixture_root), -ENOSPC);
	cr_expect_eq(ext4_lookup(full, name, &node), -ENOENT);
	cr_assert_eq(ext4_lookup(moved, "..", &node), 0);
	cr_expect_eq(node->ino, root->ino);
	fixture_put(&f, node);
	cr_expect_eq(ino_of(&f, "moved"), moved->ino);
	cr_expect_eq(links(full), 2);
	cr_expect_eq(ino_of(&f, "file"), file->ino);
	fixture_put(&f, moved);
	fixture_put(&f, file);
	fixture_put(&f, full);
	finish(&f);
}

Test(ext4_namei, rename_over_a_link_of_the_same_file_does_nothing)
{
	struct vnode *file;
	struct fixture f;

	start(&f, "");
	file = fixture_create(&f, "one", S_IFREG | 0644);
	cr_assert_eq(ext4_link(file, root, "two"), 0);
	fixture_put(&f, file);
	cr_expect_eq(ext4_rename(root, "one", root, "two", 0, &fixture_root), 0);
	cr_expect_eq(links_of(&f, "one"), 2);
	cr_expect_eq(links_of(&f, "two"), 2);
	fixture_put(&f, file);
	finish(&f);
}

Test(ext4_namei, parent_of_a_moved_directory)
{
	struct vnode *dir, *up;
	struct fixture f;

	start(&f, "-b 1024");
	make_tree(&f);
	dir = fixture_find(&f, "a/sub");
	/* Also when its first block is the root of an htree. */
	for (unsigned int i = 0; i < 40; i++) {
		char name[64];

		sprintf(name, "a/sub/%040u", i);
		make(&f, name, S_IFREG);
	}
	cr_expect_eq(move(&f, "a", "sub", "b", "sub", 0), 0);
	cr_assert_eq(ext4_lookup(dir, "..", &up), 0);
	cr_expect_eq(up->ino, ino_of(&f, "b"));
	cr_expect_eq(links_of(&f, "a"), 2);
	cr_expect_eq(links_of(&f, "b"), 3);
	fixture_put(&f, up);
	fixture_put(&f, dir);
	finish(&f);
}

/* Threads that do everything to the same few names: no deadlock, and e2fsck is content. */
struct crowd {
	struct vnode *dirs[4];
	unsigned int seed;
};

static void *crowd_member(void *arg)
{
	struct crowd *c = arg;
	struct vnode *node;
	char a[16], b[16];

	rcu_register_thread();
	for (int i = 0; i < 1500; i++) {
		struct vnode *from = c->dirs[rand_r(&c->seed) % 4];
		struct vnode *to = c->dirs[rand_r(&c->seed) % 4];

		sprintf(a, "n%u", rand_r(&c->seed) % 6);
		sprintf(b, "n%u", rand_r(&c->seed) % 6);
		switch (rand_r(&c->seed) % 7) {
		case 0:
			if (!ext4_mknod(from, a, S_IFREG, 0, &fixture_root, &node))
				ext4_iput(EXT4_I(node), 1);
			break;
		case 1:
			if (!ext4_mkdir(from, a, 0755, &fixture_root, &node))
				ext4_iput(EXT4_I(node), 1);
			break;
		case 2:
			ext4_unlink(from, a);
			break;
		case 3:
			ext4_rmdir(from, a);
			break;
		case 4:
			if (!ext4_lookup(from, a, &node)) {
				if (!ext4_link(node, to, b))
					ext4_iput(EXT4_I(node), 1);
				ext4_iput(EXT4_I(node), 1);
			}
			break;
		default:
			ext4_rename(from, a, to, b, rand_r(&c->seed) % 3 ? 0 : RENAME_EXCHANGE,
				    &fixture_root);
		}
	}
	rcu_unregister_thread();
	return NULL;
}

Test(ext4_namei, many_at_once)
{
	struct crowd crowd[4];
	pthread_t threads[4];
	struct fixture f;

	start(&f, "");
	make_tree(&f);
	for (unsigned int i = 0; i < 4; i++) {
		crowd[i].dirs[0] = fixture_find(&f, "a");
		crowd[i].dirs[1] = fixture_find(&f, "a/sub");
		crowd[i].dirs[2] = fixture_find(&f, "a/sub/deep");
		crowd[i].dirs[3] = fixture_find(&f, "b");
		crowd[i].seed = i;
		cr_assert_eq(pthread_create(&threads[i], NULL, crowd_member, &crowd[i]), 0);
	}
	for (unsigned int i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		for (unsigned int j = 0; j < 4; j++)
			fixture_put(&f, crowd[i].dirs[j]);
	}
	finish(&f);
}

/* Damage: a directory that says it is its own parent. */
Test(ext4_namei, rename_below_a_circle_ends)
{
	struct vnode *circle;
	struct fixture f;

	start(&f, "");
	make(&f, "circle", S_IFDIR | 0755);
	make(&f, "moved", S_IFDIR | 0755);
	circle = fixture_find(&f, "circle");
	cr_assert_eq(dir_load(EXT4_I(circle)), 0);
	cr_assert_eq(ext4_begin(fixture_vol(&f)), 0);
	cr_assert_eq(dir_set_parent(EXT4_I(circle), circle->ino), 0);
	ext4_end(fixture_vol(&f));
	cr_expect_eq(ext4_rename(root, "moved", circle, "x", 0, &fixture_root), -EUCLEAN);
	fixture_put(&f, circle);
	fixture_put(&f, root);
	fixture_close(&f);
	fixture_drop(&f);
}
