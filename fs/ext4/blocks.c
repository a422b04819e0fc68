/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Space: which blocks of the image are free, and who may have them.
 *
 * The truth is libext2fs's block bitmap. Blocks are allocated in runs, which find.c chooses. What it
 * may not choose is in a second bitmap, `taken`: all blocks in use, those that have been chosen for
 * data which is being written (it is put into a map after that), and, with a journal, freed ones until
 * their transaction is durable: after a crash they would be somebody's again.
 *
 * libext2fs keeps the counts of groups and superblock when it is told of a change
 * (ext2fs_block_alloc_stats*), which clears a group's BLOCK_UNINIT flag, too (the bitmap in memory
 * holds such a group's own metadata from the start). Its callback for single blocks, installed
 * here, sees what libext2fs allocates and frees itself; the one for ranges is not used, because it
 * is told a range that has been counted down to nothing. Each change marks the group for the next
 * commit, keeps our count of free blocks, and makes the device mapping forget blocks that are
 * freed.
 *
 * Reservations. Free blocks are shared out before they are allocated: a writer of delayed data
 * takes what it will need at most, in blocks_reserve(), and gives it back when the blocks are
 * allocated or the data has gone. What is withheld from data always: a fiftieth of the image (at
 * most 4096 blocks; 64 where there are no extents), so that dividing preallocated extents finds
 * blocks for the tree; and, on a mount that several users share (allow_other), the blocks that the
 * image reserves for root. On a mount for one user, who owns the image, root's share is his.
 * Directories and attributes may take all that is not reserved.
 *
 * Locks: the bitmap under the volume lock; the counters under space_lock, a leaf.
 */
#include <errno.h>
#include "map.h"
#include "txn.h"

#define MARGIN_DIVISOR 50
#define MARGIN_MAX 4096
#define MARGIN_MAX_INDIRECT 64
#define TIGHT 16		/* more than one change of a tree can need */

static struct ext4_volume *vol_of(ext2_filsys fs)
{
	return fs->priv_data;
}

int blocks_reserve_counted(struct ext4_volume *vol, uint64_t nr)
{
	if (nr && vol->free_blocks < vol->reserved_blocks + vol->withheld_blocks + nr)
		return -ENOSPC;
	vol->reserved_blocks += nr;
	return 0;
}

int blocks_reserve(struct ext4_volume *vol, uint64_t nr)
{
	int err;

	pthread_mutex_lock(&vol->space_lock);
	err = blocks_reserve_counted(vol, nr);
	pthread_mutex_unlock(&vol->space_lock);
	return err;
}

void blocks_unreserve(struct ext4_volume *vol, uint64_t nr)
{
	pthread_mutex_lock(&vol->space_lock);
	vol->reserved_blocks -= nr;
	pthread_mutex_unlock(&vol->space_lock);
}

bool blocks_tight(struct ext4_volume *vol)
{
	bool tight;

	pthread_mutex_lock(&vol->space_lock);
	tight = vol->free_blocks < vol->reserved_blocks + TIGHT;
	pthread_mutex_unlock(&vol->space_lock);
	return tight;
}

uint64_t blocks_available(struct ext4_volume *vol)
{
	uint64_t used, available;

	pthread_mutex_lock(&vol->space_lock);
	used = vol->reserved_blocks + vol->withheld_blocks;
	available = vol->free_blocks > used ? vol->free_blocks - used : 0;
	pthread_mutex_unlock(&vol->space_lock);
	return available;
}

uint64_t blocks_inode_goal(struct ext4_inode *inode)
{
	ext2_filsys fs = ext4_vol(inode)->fs;

	return ext2fs_group_first_block2(fs, (inode->vn.ino - 1) / fs->super->s_inodes_per_group);
}

/* The books beside libext2fs's. */
static void count_change(struct ext4_volume *vol, uint64_t pblk, uint64_t count, int inuse)
{
	ext2_filsys fs = vol->fs;
	dgrp_t last = ext2fs_group_of_blk2(fs, pblk + count - 1);

	for (dgrp_t group = ext2fs_group_of_blk2(fs, pblk); group <= last; group++)
		commit_mark_group(vol, group);
	commit_mark_super(vol);
	pthread_mutex_lock(&vol->space_lock);
	if (inuse > 0)
		vol->free_blocks -= count;
	else
		vol->freed_blocks += count;
	pthread_mutex_unlock(&vol->space_lock);
	if (inuse > 0) {
		ext2fs_mark_block_bitmap_range2(vol->taken, pblk, count);
		return;
	}
	device_forget(vol, pblk, count);
	if (vol->txns)
		txn_free_later(vol, pblk, count);
	else
		blocks_release(vol, pblk, count);
}

void blocks_release(struct ext4_volume *vol, uint64_t pblk, uint64_t count)
{
	ext2fs_unmark_block_bitmap_range2(vol->taken, pblk, count);
	pthread_mutex_lock(&vol->space_lock);
	vol->freed_blocks -= count;
	vol->free_blocks += count;
	pthread_mutex_unlock(&vol->space_lock);
}

static int alloc_run(struct ext4_volume *vol, struct want *want, uint64_t *pblk, uint32_t *got)
{
	struct block_run run;

	if (!find_free(vol, want, &run))
		return -ENOSPC;
	ext2fs_block_alloc_stats_range(vol->fs, run.start, run.len, +1);
	count_change(vol, run.start, run.len, +1);
	*pblk = run.start;
	*got = run.len;
	return 0;
}

/**
 * blocks_alloc - allocate a block for metadata
 * @vol: the volume
 * @goal: where it would best be
 * @pblk: the block
 *
 * Context: between ext4_begin() and ext4_end(); the caller holds a reservation. May sleep.
 * Return: 0; -ENOSPC when no block is free.
 */
int blocks_alloc(struct ext4_volume *vol, uint64_t goal, uint64_t *pblk)
{
	struct want want = { .goal = goal, .len = 1 };
	uint32_t got;

	return alloc_run(vol, &want, pblk, &got);
}

static struct want want_data(struct ext4_inode *inode, uint64_t goal, uint32_t len)
{
	struct want want = { .goal = goal, .len = len, .ino = inode->vn.ino };

	if (inode->has_mapping)
		want.ahead = find_window_size(ext4_vol(inode), mapping_size(&inode->vn.mapping));
	return want;
}

/**
 * blocks_alloc_data - allocate a run of blocks for a file
 * @inode: the file
 * @goal: block where it would best begin
 * @len: blocks at most, at least 1
 * @pblk: first block of the run
 * @got: its length
 *
 * Context: between ext4_begin() and ext4_end(); the caller holds a reservation. May sleep.
 * Return: 0; -ENOSPC when no block is free.
 */
int blocks_alloc_data(struct ext4_inode *inode, uint64_t goal, uint32_t len, uint64_t *pblk,
		      uint32_t *got)
{
	struct want want = want_data(inode, goal, len);

	return alloc_run(ext4_vol(inode), &want, pblk, got);
}

/**
 * blocks_choose - choose blocks for data that is to be written
 * @inode: the file
 * @goal: block where they would best begin
 * @len: blocks at most, at least 1
 * @pblk: first block of the run
 * @got: its length
 *
 * They are free on the image until blocks_take_chosen(), and free again after blocks_give_up(). The
 * caller holds a reservation all the time.
 *
 * Context: volume lock, bitmaps loaded.
 * Return: 0; -ENOSPC when no block is free.
 */
int blocks_choose(struct ext4_inode *inode, uint64_t goal, uint32_t len, uint64_t *pblk,
		  uint32_t *got)
{
	struct ext4_volume *vol = ext4_vol(inode);
	struct want want = want_data(inode, goal, len);
	struct block_run run;

	if (!find_free(vol, &want, &run))
		return -ENOSPC;
	ext2fs_mark_block_bitmap_range2(vol->taken, run.start, run.len);
	*pblk = run.start;
	*got = run.len;
	return 0;
}

void blocks_take_chosen(struct ext4_volume *vol, uint64_t pblk, uint32_t len)
{
	ext2fs_block_alloc_stats_range(vol->fs, pblk, len, +1);
	count_change(vol, pblk, len, +1);
}

void blocks_give_up(struct ext4_volume *vol, uint64_t pblk, uint32_t len)
{
	ext2fs_unmark_block_bitmap_range2(vol->taken, pblk, len);
}

/**
 * blocks_free - free a run of blocks
 * @vol: the volume
 * @pblk: first block
 * @count: blocks; no write to them is in flight
 *
 * Blocks that are free already mean damage: they are left alone and reported.
 *
 * Context: between ext4_begin() and ext4_end(). May sleep.
 */
void blocks_free(struct ext4_volume *vol, uint64_t pblk, uint64_t count)
{
	ext2_filsys fs = vol->fs;
	uint64_t end = pblk + count;
	bool damage = false;

	while (pblk < end) {
		blk64_t stop;

		if (!ext2fs_test_block_bitmap2(fs->block_map, pblk)) {
			damage = true;
			pblk++;
			continue;
		}
		if (ext2fs_find_first_zero_block_bitmap2(fs->block_map, pblk, end - 1, &stop))
			stop = end;
		ext2fs_block_alloc_stats_range(fs, pblk, stop - pblk, -1);
		count_change(vol, pblk, stop - pblk, -1);
		pblk = stop;
	}
	if (damage)
		ext4_corrupt(vol, 0, -EUCLEAN, "a block of a file is marked free");
}

/*
 * libext2fs's callbacks
 */

static void on_change(ext2_filsys fs, blk64_t pblk, int inuse)
{
	count_change(vol_of(fs), pblk, 1, inuse);
}

/* A block for libext2fs: it marks it used itself. */
static errcode_t on_alloc(ext2_filsys fs, blk64_t goal, blk64_t *out)
{
	struct ext4_volume *vol = vol_of(fs);
	struct want want = { .goal = goal, .len = 1 };
	struct block_run run;
	bool full;

	pthread_mutex_lock(&vol->space_lock);
	full = vol->free_blocks <= vol->reserved_blocks;
	pthread_mutex_unlock(&vol->space_lock);
	if (full || !find_free(vol, &want, &run))
		return EXT2_ET_BLOCK_ALLOC_FAIL;
	*out = run.start;
	return 0;
}

int blocks_loaded(struct ext4_volume *vol)
{
	errcode_t err;

	if (vol->taken)
		ext2fs_free_block_bitmap(vol->taken);
	vol->taken = NULL;
	err = ext2fs_copy_bitmap(vol->fs->block_map, &vol->taken);
	return err ? ext4_errno(err) : 0;
}

/**
 * blocks_init - begin to manage the space of an opened image
 * @vol: the volume; fs->priv_data points to it from here on
 *
 * Context: while mounting, before anything is allocated.
 * Return: 0.
 */
int blocks_init(struct ext4_volume *vol)
{
	struct ext2_super_block *super = vol->fs->super;
	uint64_t margin = ext2fs_blocks_count(super) / MARGIN_DIVISOR;
	uint64_t most = ext2fs_has_feature_extents(super) ? MARGIN_MAX : MARGIN_MAX_INDIRECT;
	const struct options *options = vol->vol.options;

	pthread_mutex_init(&vol->space_lock, NULL);
	vol->fs->priv_data = vol;
	vol->free_blocks = ext2fs_free_blocks_count(super);
	vol->reserved_blocks = 0;
	vol->withheld_blocks = margin < most ? margin : most;
	if (options && options->allow_other && !options->fakeroot)
		vol->withheld_blocks += ext2fs_r_blocks_count(super);
	ext2fs_set_alloc_block_callback(vol->fs, on_alloc, NULL);
	ext2fs_set_block_alloc_stats_callback(vol->fs, on_change, NULL);
	return 0;
}
