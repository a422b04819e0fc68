/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Inodes: allocation, the table in memory, times, orphans, deletion, damage. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "ext4_fixture.h"

#define MIB (1UL << 20)

static const struct volume_ops *ops(struct fixture *f)
{
	return f->volume->ops;
}

static void unlink_path(struct fixture *f, const char *name)
{
	struct vnode *root = ops(f)->root(f->volume);

	cr_assert_eq(ops(f)->unlink(root, name), 0);
	fixture_put(f, root);
}

static uint32_t free_inodes(struct fixture *f)
{
	return fixture_vol(f)->fs->super->s_free_inodes_count;
}

Test(ext4_inode, same_number_is_the_same_inode)
{
	struct vnode *made, *found;
	struct fixture f;

	fixture_format(&f, 16 * MIB, "");
	cr_assert_eq(fixture_open(&f), 0);
	made = fixture_create(&f, "a", S_IFREG | 0644);
	found = fixture_find(&f, "a");
	cr_expect_eq(made, found);
	fixture_put(&f, made);
	fixture_put(&f, found);
	fixture_finish(&f);
}

Test(ext4_inode, survives_a_new_mount)
{
	struct stat before, after;
	struct vnode *node;
	struct fixture f;

	fixture_format(&f, 16 * MIB, "");
	cr_assert_eq(fixture_open(&f), 0);
	node = fixture_create(&f, "a", S_IFREG | 0640);
	cr_assert_eq(ops(&f)->getattr(node, &before), 0);
	fixture_put(&f, node);
	cr_assert_eq(fixture_close(&f), 0);
	cr_assert_eq(fixture_open(&f), 0);
	node = fixture_find(&f, "a");
	cr_assert_eq(ops(&f)->getattr(node, &after), 0);
	fixture_put(&f, node);
	cr_expect_eq(after.st_mode, S_IFREG | 0640);
	cr_expect_eq(before.st_ino, after.st_ino);
	cr_expect_eq(before.st_ctim.tv_sec, after.st_ctim.tv_sec);
	cr_expect_eq(before.st_ctim.tv_nsec, after.st_ctim.tv_nsec);
	fixture_finish(&f);
}

Test(ext4_inode, files_lie_in_their_directory_s_group)
{
	struct vnode *dir, *node;
	struct fixture f;
	char path[40];

	fixture_format(&f, 256 * MIB, "-b 1024");
	cr_assert_eq(fixture_open(&f), 0);
	for (int i = 0; i < 20; i++) {
		snprintf(path, sizeof(path), "d%d", i);
		dir = fixture_create(&f, path, S_IFDIR | 0755);
		snprintf(path, sizeof(path), "d%d/f", i);
		node = fixture_create(&f, path, S_IFREG | 0644);
		cr_expect_eq(ext2fs_group_of_ino(fixture_vol(&f)->fs, dir->ino),
			     ext2fs_group_of_ino(fixture_vol(&f)->fs, node->ino));
		fixture_put(&f, node);
		fixture_put(&f, dir);
	}
	fixture_finish(&f);
}

Test(ext4_inode, directories_of_the_root_are_spread)
{
	ext2_filsys fs;
	struct vnode *dir;
	struct fixture f;
	unsigned int used = 0;
	char path[40];

	fixture_format(&f, 256 * MIB, "-b 1024");
	cr_assert_eq(fixture_open(&f), 0);
	for (int i = 0; i < 20; i++) {
		snprintf(path, sizeof(path), "d%d", i);
		dir = fixture_create(&f, path, S_IFDIR | 0755);
		fixture_put(&f, dir);
	}
	fs = fixture_vol(&f)->fs;
	for (dgrp_t group = 0; group < fs->group_desc_count; group++)
		used += ext2fs_bg_used_dirs_count(fs, group) > 0;
	cr_expect_geq(used, 10);
	fixture_finish(&f);
}

/* Inode tables and bitmaps that mkfs left as they were are taken into use piece by piece. */
Test(ext4_inode, tables_that_were_never_written)
{
	struct fixture f;
	char path[40];

	fixture_format_on(&f, 64 * MIB, "-b 1024 -E lazy_itable_init=1,nodiscard", 0xa5);
	cr_assert_eq(fixture_open(&f), 0);
	for (int i = 0; i < 12; i++) {
		snprintf(path, sizeof(path), "d%d", i);
		fixture_put(&f, fixture_create(&f, path, S_IFDIR | 0755));
		for (int j = 0; j < 10; j++) {
			snprintf(path, sizeof(path), "d%d/f%d", i, j);
			fixture_put(&f, fixture_create(&f, path, S_IFREG | 0644));
		}
	}
	cr_assert_eq(fixture_close(&f), 0);
	cr_expect_eq(fixture_fsck(&f), 0);
	cr_assert_eq(fixture_open(&f), 0);
	fixture_put(&f, fixture_find(&f, "d11/f9"));
	fixture_finish(&f);
}

Test(ext4_inode, runs_out_with_enospc)
{
	struct vnode *root, *node;
	struct fixture f;
	char name[40];
	int err = 0, nr = 0;

	fixture_format(&f, 16 * MIB, "-N 128");
	cr_assert_eq(fixture_open(&f), 0);
	root = ops(&f)->root(f.volume);
	while (!err) {
		snprintf(name, sizeof(name), "f%d", nr);
		err = ops(&f)->mknod(root, name, S_IFREG | 0644, 0, &fixture_root, &node);
		if (!err) {
			fixture_put(&f, node);
			nr++;
		}
	}
	cr_expect_eq(err, -ENOSPC);
	cr_expect_geq(nr, 100);
	cr_expect_eq(free_inodes(&f), 0);
	cr_expect_eq(ops(&f)->unlink(root, "f0"), 0);
	cr_expect_eq(ops(&f)->mknod(root, "again", S_IFREG | 0644, 0, &fixture_root, &node), 0);
	fixture_put(&f, node);
	fixture_put(&f, root);
	fixture_finish(&f);
}

Test(ext4_inode, unlinked_file_lives_until_its_last_reference)
{
	struct vnode *node;
	struct fixture f;
	struct stat st;
	uint32_t before;
	char buf[6];

	fixture_format(&f, 16 * MIB, "");
	cr_assert_eq(fixture_open(&f), 0);
	before = free_inodes(&f);
	fixture_write(&f, "a", "hello", 5);
	node = fixture_find(&f, "a");
	unlink_path(&f, "a");
	cr_expect_eq(ops(&f)->getattr(node, &st), 0);
	cr_expect_eq(st.st_nlink, 0);
	cr_expect_eq(filemap_read(&node->mapping, 0, buf, 5), 5);
	cr_expect_eq(fixture_vol(&f)->fs->super->s_last_orphan, node->ino);
	cr_expect_eq(free_inodes(&f), before - 1);
	fixture_put(&f, node);
	cr_expect_eq(free_inodes(&f), before);
	cr_expect_eq(fixture_vol(&f)->fs->super->s_last_orphan, 0);
	fixture_finish(&f);
}

Test(ext4_inode, orphans_leave_the_list_in_any_order)
{
	static const int order[] = { 2, 0, 4, 1, 3 };
	struct vnode *nodes[5];
	struct fixture f;
	char name[2] = "a";

	fixture_format(&f, 16 * MIB, "");
	cr_assert_eq(fixture_open(&f), 0);
	for (int i = 0; i < 5; i++) {
		name[0] = 'a' + i;
		nodes[i] = fixture_create(&f, name, S_IFREG | 0644);
		unlink_path(&f, name);
	}
	for (int i = 0; i < 5; i++)
		fixture_put(&f, nodes[order[i]]);
	cr_expect_eq(fixture_vol(&f)->fs->super->s_last_orphan, 0);
	fixture_finish(&f);
}

Test(ext4_inode, files_open_at_unmount_are_deleted)
{
	struct fixture f;

	fixture_format(&f, 16 * MIB, "");
	cr_assert_eq(fixture_open(&f), 0);
	fixture_write(&f, "a", "hello", 5);
	(void)fixture_find(&f, "a");
	unlink_path(&f, "a");
	fixture_finish(&f);
}

/* After a crash the next mount deletes what had no name. */
Test(ext4_inode, orphans_of_a_crash_are_cleaned_up)
{
	struct fixture f;
	uint32_t before;

	fixture_format(&f, 16 * MIB, "");
	cr_assert_eq(fixture_open(&f), 0);
	before = free_inodes(&f);
	for (char name[] = "a"; *name <= 'd'; ++*name) {
		fixture_write(&f, name, "hello", 5);
		(void)fixture_find(&f, name);
		unlink_path(&f, name);
	}
	cr_assert_eq(ops(&f)->sync(f.volume), 0);
	fixture_crash(&f);
	cr_assert_eq(fixture_open(&f), 0);
	cr_expect_eq(free_inodes(&f), before);
	cr_expect_eq(fixture_vol(&f)->fs->super->s_last_orphan, 0);
	cr_expect_eq(fixture_close(&f), 0);
	/* It stays unclean for e2fsck, which then finds it whole. */
	cr_expect_eq(fixture_fsck(&f), 0);
	fixture_drop(&f);
}

/* The orphan file of newer kernels: made by hand. */
Test(ext4_inode, orphan_file_is_emptied)
{
	struct ext4_orphan_block_tail *tail;
	struct ext4_volume *vol;
	struct ext2_inode raw;
	struct vnode *node;
	struct fixture f;
	uint32_t before, file, *entries;
	char block[4096];
	blk64_t blk;

	fixture_format(&f, 64 * MIB, "-b 4096 -O orphan_file");
	cr_assert_eq(fixture_open(&f), 0);
	vol = fixture_vol(&f);
	before = free_inodes(&f);
	node = fixture_create(&f, "a", S_IFREG | 0644);
	unlink_path(&f, "a");
	cr_assert_eq(ext4_begin(vol), 0);
	cr_assert_eq(orphan_del(EXT4_I(node)), 0);
	file = vol->fs->super->s_orphan_file_inum;
	cr_assert_eq(ext2fs_read_inode(vol->fs, file, &raw), 0);
	cr_assert_eq(ext2fs_bmap2(vol->fs, file, &raw, NULL, 0, 0, NULL, &blk), 0);
	cr_assert_eq(device_read(vol, blk, block), 0);
	tail = ext2fs_orphan_block_tail(vol->fs, block);
	cr_assert_eq(tail->ob_magic, EXT4_ORPHAN_BLOCK_MAGIC);
	entries = (uint32_t *)block;
	entries[5] = node->ino;
	ext2fs_orphan_file_block_csum_set(vol->fs, file, blk, block);
	cr_assert_eq(device_write(vol, blk, block), 0);
	ext2fs_set_feature_orphan_present(vol->fs->super);
	commit_mark_super(vol);
	ext4_end(vol);
	cr_assert_eq(ops(&f)->sync(f.volume), 0);
	fixture_crash(&f);
	cr_assert_eq(fixture_open(&f), 0);
	vol = fixture_vol(&f);
	cr_expect_eq(free_inodes(&f), before);
	cr_expect_not(ext2fs_has_feature_orphan_present(vol->fs->super));
	cr_expect_eq(fixture_close(&f), 0);
	cr_expect_eq(fixture_fsck(&f), 0);
	fixture_drop(&f);
}

Test(ext4_inode, forgotten_file_with_dirty_data_is_written)
{
	char buf[5] = "";
	struct vnode *node;
	struct fixture f;

	fixture_format(&f, 16 * MIB, "");
	cr_assert_eq(fixture_open(&f), 0);
	fixture_write(&f, "a", "hello", 5);
	cr_assert_eq(fixture_close(&f), 0);
	cr_assert_eq(fixture_open(&f), 0);
	node = fixture_find(&f, "a");
	cr_expect_eq(filemap_read(&node->mapping, 0, buf, 5), 5);
	cr_expect_arr_eq(buf, "hello", 5);
	fixture_put(&f, node);
	fixture_finish(&f);
}

/* Times */

struct time_case {
	int64_t sec;
	long nsec;
	int64_t want;		/* with 256-byte inodes */
	int64_t want_short;	/* with 128-byte inodes */
};

ParameterizedTestParameters(ext4_inode, times)
{
	static struct time_case cases[] = {
		{ 0, 0, 0, 0 },
		{ -1, 999999999, -1, -1 },
		{ -315619200, 5, -315619200, -315619200 },		/* 1960 */
		{ INT32_MIN, 0, INT32_MIN, INT32_MIN },			/* 1901 */
		{ INT32_MAX, 1, INT32_MAX, INT32_MAX },
		{ 2147483648, 7, 2147483648, INT32_MAX },		/* 2038 */
		{ 4102444800, 123456789, 4102444800, INT32_MAX },	/* 2100 */
		{ 0x37fffffff, 0, 0x37fffffff, INT32_MAX },		/* 2446 */
		{ 0x380000000, 0, 0x37fffffff, INT32_MAX },
		{ -3000000000, 0, INT32_MIN, INT32_MIN },
	};

	return cr_make_param_array(struct time_case, cases, sizeof(cases) / sizeof(cases[0]));
}

static void check_time(const struct time_case *c, const char *mkfs, bool wide)
{
	struct stat st = { 0 }, back;
	struct vnode *node;
	struct fixture f;

	fixture_format(&f, 16 * MIB, mkfs);
	cr_assert_eq(fixture_open(&f), 0);
	cr_expect_eq(f.volume->time_gran, wide ? 1 : 1000000000);
	node = fixture_create(&f, "a", S_IFREG | 0644);
	st.st_mtim = (struct timespec){ c->sec, c->nsec };
	st.st_atim = (struct timespec){ c->sec, c->nsec };
	cr_assert_eq(ops(&f)->setattr(node, &st, VATTR_MTIME | VATTR_ATIME, &fixture_root), 0);
	fixture_put(&f, node);
	cr_assert_eq(fixture_close(&f), 0);
	cr_assert_eq(fixture_open(&f), 0);
	node = fixture_find(&f, "a");
	cr_assert_eq(ops(&f)->getattr(node, &back), 0);
	cr_expect_eq(back.st_mtim.tv_sec, wide ? c->want : c->want_short);
	cr_expect_eq(back.st_atim.tv_sec, wide ? c->want : c->want_short);
	if (c->want == c->sec)
		cr_expect_eq(back.st_mtim.tv_nsec, wide ? c->nsec : 0);
	fixture_put(&f, node);
	fixture_finish(&f);
}

ParameterizedTest(struct time_case *c, ext4_inode, times)
{
	check_time(c, "-I 256", true);
	check_time(c, "-I 128", false);
}

/* Damage: EUCLEAN for the object alone */

/* Makes a file "bad" whose inode is damaged on the image; the volume is open again. */
static uint32_t make_damage(struct fixture *f)
{
	struct ext4_volume *vol = fixture_vol(f);
	struct vnode *node;
	uint32_t ino;
	uint64_t pos;

	fixture_write(f, "bad", "hello", 5);
	node = fixture_find(f, "bad");
	ino = node->ino;
	fixture_put(f, node);
	pos = ext2fs_inode_table_loc(vol->fs, 0) * vol->vol.blocksize +
	      (ino - 1) * EXT2_INODE_SIZE(vol->fs->super);
	cr_assert_eq(fixture_close(f), 0);
	cr_assert_eq(pwrite(f->fd, "\xff\xff\xff", 3, pos + 4), 3);
	cr_assert_eq(fixture_open(f), 0);
	return ino;
}

Test(ext4_inode, damaged_inode_fails_alone)
{
	struct vnode *root, *node;
	struct fixture f;
	uint32_t ino;

	fixture_format(&f, 16 * MIB, "-O metadata_csum");
	cr_assert_eq(fixture_open(&f), 0);
	fixture_write(&f, "good", "hello", 5);
	ino = make_damage(&f);
	root = ops(&f)->root(f.volume);
	cr_expect_eq(ops(&f)->lookup(root, "bad", &node), -EUCLEAN);
	cr_expect_eq(ops(&f)->lookup(root, "good", &node), 0);
	fixture_put(&f, node);
	fixture_put(&f, root);
	cr_expect_not(f.volume->readonly);
	cr_expect(fixture_vol(&f)->fs->super->s_state & EXT2_ERROR_FS);
	cr_expect_eq(fixture_vol(&f)->fs->super->s_error_count, 1);
	cr_expect_eq(fixture_vol(&f)->fs->super->s_first_error_ino, ino);
	fixture_close(&f);
	fixture_drop(&f);
}

Test(ext4_inode, damage_turns_readonly_when_asked)
{
	struct vnode *root, *node;
	struct fixture f;

	fixture_format(&f, 16 * MIB, "-O metadata_csum");
	f.options.errors = ERRORS_REMOUNT_RO;
	cr_assert_eq(fixture_open(&f), 0);
	make_damage(&f);
	root = ops(&f)->root(f.volume);
	cr_expect_eq(ops(&f)->lookup(root, "bad", &node), -EUCLEAN);
	cr_expect(f.volume->readonly);
	cr_expect_eq(ops(&f)->mknod(root, "new", S_IFREG | 0644, 0, &fixture_root, &node), -EROFS);
	fixture_put(&f, root);
	fixture_close(&f);
	fixture_drop(&f);
}

Test(ext4_inode, damage_stops_all_changes_when_asked)
{
	struct vnode *root, *node;
	struct fixture f;

	fixture_format(&f, 16 * MIB, "-O metadata_csum");
	f.options.errors = ERRORS_PANIC;
	cr_assert_eq(fixture_open(&f), 0);
	make_damage(&f);
	root = ops(&f)->root(f.volume);
	cr_expect_eq(ops(&f)->lookup(root, "bad", &node), -EUCLEAN);
	cr_expect_eq(ext4_begin(fixture_vol(&f)), -EIO);
	fixture_put(&f, root);
	fixture_close(&f);
	fixture_drop(&f);
}

/* A bitmap that calls an open file's inode free does not cost the file. */
Test(ext4_inode, what_is_in_use_is_not_allocated)
{
	struct vnode *node, *other;
	struct fixture f;
	struct stat st;

	fixture_format(&f, 8 * MIB, "-t ext2");
	cr_assert_eq(fixture_open(&f), 0);
	node = fixture_create(&f, "file", S_IFREG | 0640);
	ext4_lock(fixture_vol(&f));
	ext2fs_unmark_inode_bitmap2(fixture_vol(&f)->fs->inode_map, node->ino);
	ext4_unlock(fixture_vol(&f));
	other = fixture_create(&f, "other", S_IFREG | 0600);
	cr_expect_neq(other->ino, node->ino);
	cr_expect_eq(f.volume->ops->getattr(node, &st), 0);
	cr_expect_eq(st.st_mode, S_IFREG | 0640);
	fixture_put(&f, other);
	fixture_put(&f, node);
	cr_assert_eq(fixture_close(&f), 0);
	fixture_drop(&f);
}
