/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Allocating and freeing inodes.
 *
 * Where: a file goes to its directory's group, so that a directory's inodes lie together; when that
 * is full, to a group found by doubling steps, then to any. Directories below the root (or one
 * marked as a top directory) are spread over the groups that have more free inodes and blocks than
 * the average; deeper ones stay near their parent as long as its group is not crowded. This is what
 * ext4 does, in small.
 *
 * Within a group the lowest free number is taken: the tables stay dense, so that what lies behind
 * bg_itable_unused needs no initialising, and the search in the bitmap (a tree of runs) does not
 * depend on how many inodes are in use.
 *
 * Locks: the volume lock.
 */
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include "ext4.h"

static uint32_t random32(void)
{
	uint32_t value = 0;

	/* Only uniqueness is wanted of it: a failure is no harm. */
	if (getrandom(&value, sizeof(value), GRND_NONBLOCK) != sizeof(value))
		value = (uint32_t)time(NULL);
	return value;
}

static bool has_room(ext2_filsys fs, dgrp_t group, uint32_t inodes, uint32_t blocks)
{
	return ext2fs_bg_free_inodes_count(fs, group) > inodes &&
	       ext2fs_bg_free_blocks_count(fs, group) >= blocks;
}

/* The group with the fewest directories of those that are better than the average. */
static dgrp_t spread(ext2_filsys fs)
{
	dgrp_t groups = fs->group_desc_count, best = groups, start = random32() % groups;
	uint32_t inodes = fs->super->s_free_inodes_count / groups;
	uint32_t blocks = ext2fs_free_blocks_count(fs->super) / groups;

	for (dgrp_t i = 0; i < groups; i++) {
		dgrp_t group = (start + i) % groups;

		if (!ext2fs_bg_free_inodes_count(fs, group) ||
		    ext2fs_bg_free_inodes_count(fs, group) < inodes ||
		    ext2fs_bg_free_blocks_count(fs, group) < blocks)
			continue;
		if (best == groups || ext2fs_bg_used_dirs_count(fs, group) <
					      ext2fs_bg_used_dirs_count(fs, best))
			best = group;
	}
	return best;
}

static dgrp_t group_for_dir(struct ext4_inode *parent)
{
	ext2_filsys fs = ext4_vol(parent)->fs;
	dgrp_t groups = fs->group_desc_count, group, home;
	uint32_t inodes = fs->super->s_free_inodes_count / groups / 4;
	uint32_t blocks = ext2fs_free_blocks_count(fs->super) / groups / 4;

	home = ext2fs_group_of_ino(fs, parent->vn.ino);
	if (parent->vn.ino == EXT2_ROOT_INO || parent->raw.i_flags & EXT2_TOPDIR_FL) {
		group = spread(fs);
		if (group < groups)
			return group;
	}
	for (dgrp_t i = 0; i < groups; i++) {
		group = (home + i) % groups;
		if (has_room(fs, group, inodes, blocks))
			return group;
	}
	return home;
}

/* A group with a free inode near @home; group_desc_count when there is none. */
static dgrp_t group_with_inode(ext2_filsys fs, dgrp_t home)
{
	dgrp_t groups = fs->group_desc_count, group = home;

	if (has_room(fs, home, 0, 1))
		return home;
	for (dgrp_t step = 1; step < groups; step <<= 1) {
		group = (group + step) % groups;
		if (has_room(fs, group, 0, 1))
			return group;
	}
	for (dgrp_t i = 0; i < groups; i++) {
		group = (home + i) % groups;
		if (has_room(fs, group, 0, 0))
			return group;
	}
	return groups;
}

/* Finds a free inode in @group: 0 when the bitmap, against the descriptor, has none. */
static uint32_t find_in_group(ext2_filsys fs, dgrp_t group)
{
	uint32_t per_group = fs->super->s_inodes_per_group;
	ext2_ino_t first = group * per_group + 1, last = first + per_group - 1, ino;

	if (first < EXT2_FIRST_INODE(fs->super))
		first = EXT2_FIRST_INODE(fs->super);
	if (ext2fs_find_first_zero_inode_bitmap2(fs->inode_map, first, last, &ino))
		return 0;
	return ino;
}

/* Damage: the bitmap calls an inode free that is in use. It is not, from here on. */
static bool is_in_use(struct ext4_volume *vol, uint32_t ino, dgrp_t group)
{
	if (!icache_peek(vol, ino))
		return false;
	ext4_corrupt(vol, ino, -EUCLEAN, "in use, but marked free");
	ext2fs_mark_inode_bitmap2(vol->fs->inode_map, ino);
	commit_mark_group(vol, group);
	return true;
}

static int allocate_number(struct ext4_inode *dir, bool isdir, uint32_t *ino)
{
	struct ext4_volume *vol = ext4_vol(dir);
	ext2_filsys fs = vol->fs;
	dgrp_t group;

	group = isdir ? group_for_dir(dir) : ext2fs_group_of_ino(fs, dir->vn.ino);
	for (;;) {
		group = group_with_inode(fs, group);
		if (group == fs->group_desc_count)
			return -ENOSPC;
		*ino = find_in_group(fs, group);
		if (*ino && is_in_use(vol, *ino, group))
			continue;
		if (*ino)
			break;
		ext4_corrupt(vol, 0, -EUCLEAN, "group %u: free inodes counted, none in its bitmap",
			     group);
		ext2fs_bg_free_inodes_count_set(fs, group, 0);
		commit_mark_group(vol, group);
	}
	ext2fs_inode_alloc_stats2(fs, *ino, 1, isdir);
	commit_mark_group(vol, group);
	return 0;
}

static void free_number(struct ext4_volume *vol, uint32_t ino, bool isdir)
{
	ext2fs_inode_alloc_stats2(vol->fs, ino, -1, isdir);
	commit_mark_group(vol, ext2fs_group_of_ino(vol->fs, ino));
}

/* Gives back the number of an inode that is deleted. Volume lock. */
void ialloc_free(struct ext4_inode *inode)
{
	struct ext4_volume *vol = ext4_vol(inode);

	if (!ext2fs_test_inode_bitmap2(vol->fs->inode_map, inode->vn.ino)) {
		ext4_corrupt(vol, inode->vn.ino, -EUCLEAN, "deleted, but free already");
		return;
	}
	free_number(vol, inode->vn.ino, S_ISDIR(inode->raw.i_mode));
}

static void set_owner(struct ext4_inode *inode, const struct ext4_inode *dir, mode_t mode,
		      const struct cred *cred)
{
	gid_t gid = cred->gid;

	if (dir->raw.i_mode & S_ISGID) {
		gid = inode_gid(dir->raw);
		if (S_ISDIR(mode))
			mode |= S_ISGID;
	}
	inode->raw.i_mode = mode;
	inode->raw.i_uid = cred->uid;
	ext2fs_set_i_uid_high(inode->raw, cred->uid >> 16);
	inode->raw.i_gid = gid;
	ext2fs_set_i_gid_high(inode->raw, gid >> 16);
}

#define INHERITED                                                                                  \
	(EXT2_SECRM_FL | EXT2_UNRM_FL | EXT2_COMPR_FL | EXT2_SYNC_FL | EXT2_NODUMP_FL |            \
	 EXT2_NOATIME_FL | EXT2_NOCOMPR_FL | EXT3_JOURNAL_DATA_FL | EXT2_NOTAIL_FL |               \
	 EXT2_DIRSYNC_FL | EXT4_PROJINHERIT_FL)

static void set_flags(struct ext4_inode *inode, const struct ext4_inode *dir)
{
	struct ext4_volume *vol = ext4_vol(inode);
	uint32_t flags = dir->raw.i_flags & INHERITED;
	mode_t mode = inode->raw.i_mode;

	if (S_ISREG(mode))
		flags &= ~(EXT2_DIRSYNC_FL | EXT4_PROJINHERIT_FL);
	else if (!S_ISDIR(mode))
		flags &= EXT2_NODUMP_FL | EXT2_NOATIME_FL;
	if (dir->raw.i_flags & EXT4_PROJINHERIT_FL)
		inode->raw.i_projid = dir->raw.i_projid;
	if (ext2fs_has_feature_extents(vol->fs->super) &&
	    (S_ISREG(mode) || S_ISDIR(mode) || S_ISLNK(mode)))
		flags |= EXT4_EXTENTS_FL;
	inode->raw.i_flags = flags;
}

static void set_extent_root(struct ext4_inode *inode)
{
	struct ext3_extent_header *root = (void *)inode->raw.i_block;

	root->eh_magic = EXT3_EXT_MAGIC;
	root->eh_max = (sizeof(inode->raw.i_block) - sizeof(*root)) / sizeof(struct ext3_extent);
}

static void set_extra_size(struct ext4_inode *inode)
{
	struct ext2_super_block *sb = ext4_vol(inode)->fs->super;
	size_t room = inode->raw_size - EXT2_GOOD_OLD_INODE_SIZE;
	size_t want = sizeof(struct ext2_inode_large) - EXT2_GOOD_OLD_INODE_SIZE;

	if (!room)
		return;
	if (sb->s_want_extra_isize > want)
		want = sb->s_want_extra_isize;
	if (sb->s_min_extra_isize > want)
		want = sb->s_min_extra_isize;
	inode->raw.i_extra_isize = want <= room ? want & ~3UL : room;
}

static void fill(struct ext4_inode *inode, const struct ext4_inode *dir, mode_t mode,
		 const struct cred *cred)
{
	set_extra_size(inode);
	set_owner(inode, dir, mode, cred);
	set_flags(inode, dir);
	if (inode->raw.i_flags & EXT4_EXTENTS_FL)
		set_extent_root(inode);
	inode->raw.i_links_count = S_ISDIR(mode) ? 2 : 1;
	inode->raw.i_generation = random32();
	ext4_touch(inode, VATTR_ATIME | VATTR_MTIME | VATTR_CTIME);
	inode_set_birth(inode);
}

/**
 * ext4_ialloc - make a new inode
 * @dir: the directory it will be named in; its inode lock is held
 * @mode: type and permissions; the umask is not applied here
 * @cred: owner
 * @out: the inode: in use, with one reference, written
 *
 * Files, directories and symlinks have an empty extent tree where the file system has extents; a
 * fast symlink must clear EXT4_EXTENTS_FL and i_block. Setting i_links_count to 0 and putting the
 * inode undoes it all.
 *
 * Context: between ext4_begin() and ext4_end().
 * Return: 0, -ENOSPC without a free inode, or another error.
 */
int ext4_ialloc(struct ext4_inode *dir, mode_t mode, const struct cred *cred,
		struct ext4_inode **out)
{
	struct ext4_volume *vol = ext4_vol(dir);
	struct ext4_inode *inode;
	uint32_t ino;
	int err;

	err = allocate_number(dir, S_ISDIR(mode), &ino);
	if (err)
		return err;
	inode = inode_new(vol, ino);
	if (!inode) {
		free_number(vol, ino, S_ISDIR(mode));
		return -ENOMEM;
	}
	fill(inode, dir, mode, cred);
	err = inode_ready(inode);
	if (!err)
		err = ext4_inode_write(inode);
	if (err) {
		inode_free(inode);
		free_number(vol, ino, S_ISDIR(mode));
		return err;
	}
	icache_insert(vol, inode);
	*out = inode;
	return 0;
}
