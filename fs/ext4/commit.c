/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Making changes durable.
 *
 * Inodes, directories, extent blocks are written to the device mapping as they change. What
 * libext2fs keeps in memory (bitmaps, group descriptors, superblock) is brought there by a commit,
 * and only the groups that were marked: an fsync's cost must not grow with the image. Then the
 * device mapping is written out and the image flushed. With a journal (txn.c) these blocks join the
 * running transaction, and that is committed.
 *
 * A thread does all of it every commit= seconds: first the files (their blocks are allocated then),
 * then the metadata that tells where they are. Backup superblocks and descriptors are left alone,
 * as the kernel does.
 *
 * Locks: the volume lock guards struct group_dirt. commit_lock guards commit_stop and is held only
 * around the waiting.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "ext4.h"
#include "log.h"
#include "rcu.h"
#include "txn.h"

struct group_dirt {
	dgrp_t *list;		/* marked groups, in no order */
	unsigned int nr;
	uint8_t *marked;	/* one byte for each group */
	bool super;
	bool trouble;		/* the last commit of the thread failed: has been told */
};

int commit_init(struct ext4_volume *vol)
{
	struct group_dirt *dirt = calloc(1, sizeof(*dirt));

	if (!dirt)
		return -ENOMEM;
	vol->dirt = dirt;
	dirt->list = calloc(vol->fs->group_desc_count, sizeof(*dirt->list));
	dirt->marked = calloc(vol->fs->group_desc_count, 1);
	return dirt->list && dirt->marked ? 0 : -ENOMEM;
}

void commit_finish(struct ext4_volume *vol)
{
	if (!vol->dirt)
		return;
	free(vol->dirt->list);
	free(vol->dirt->marked);
	free(vol->dirt);
	vol->dirt = NULL;
}

void commit_mark_group(struct ext4_volume *vol, dgrp_t group)
{
	struct group_dirt *dirt = vol->dirt;

	if (dirt->marked[group])
		return;
	dirt->marked[group] = 1;
	dirt->list[dirt->nr++] = group;
}

void commit_mark_super(struct ext4_volume *vol)
{
	vol->dirt->super = true;
}

/* Two bitmaps and a descriptor block for each group, and the superblock */
unsigned int commit_marked_blocks(struct ext4_volume *vol)
{
	return 3 * vol->dirt->nr + 1;
}

static int write_block_bitmap(struct ext4_volume *vol, dgrp_t group, void *buf)
{
	ext2_filsys fs = vol->fs;
	unsigned int bits = fs->super->s_blocks_per_group;
	uint64_t first = ext2fs_group_first_block2(fs, group);
	errcode_t err;

	if (ext2fs_bg_flags_test(fs, group, EXT2_BG_BLOCK_UNINIT))
		return 0;
	/* Bits of no block are ones. */
	memset(buf, 0xff, fs->blocksize);
	err = ext2fs_get_block_bitmap_range2(fs->block_map, first, bits, buf);
	if (err)
		return ext4_errno(err);
	for (unsigned int bit = ext2fs_group_blocks_count(fs, group); bit < bits; bit++)
		ext2fs_set_bit(bit, buf);
	ext2fs_block_bitmap_csum_set(fs, group, buf, bits / 8);
	return device_write(vol, ext2fs_block_bitmap_loc(fs, group), buf);
}

static int write_inode_bitmap(struct ext4_volume *vol, dgrp_t group, void *buf)
{
	ext2_filsys fs = vol->fs;
	unsigned int bits = fs->super->s_inodes_per_group;
	errcode_t err;

	if (ext2fs_bg_flags_test(fs, group, EXT2_BG_INODE_UNINIT))
		return 0;
	memset(buf, 0xff, fs->blocksize);
	err = ext2fs_get_inode_bitmap_range2(fs->inode_map, (uint64_t)group * bits + 1, bits, buf);
	if (err)
		return ext4_errno(err);
	ext2fs_inode_bitmap_csum_set(fs, group, buf, bits / 8);
	return device_write(vol, ext2fs_inode_bitmap_loc(fs, group), buf);
}

/* Descriptor block @nr, of the primary table */
static int write_descriptors(struct ext4_volume *vol, unsigned int nr)
{
	ext2_filsys fs = vol->fs;
	uint64_t blk = ext2fs_descriptor_block_loc2(fs, fs->super->s_first_data_block, nr);

	return device_write(vol, blk, (const char *)fs->group_desc + (size_t)nr * fs->blocksize);
}

static int compare_groups(const void *a, const void *b)
{
	dgrp_t x = *(const dgrp_t *)a, y = *(const dgrp_t *)b;

	return x < y ? -1 : x > y;
}

static int write_groups(struct ext4_volume *vol)
{
	struct group_dirt *dirt = vol->dirt;
	unsigned int per_block = EXT2_DESC_PER_BLOCK(vol->fs->super);
	char buf[EXT2_MAX_BLOCK_SIZE];
	int err;

	qsort(dirt->list, dirt->nr, sizeof(*dirt->list), compare_groups);
	for (unsigned int i = 0; i < dirt->nr; i++) {
		dgrp_t group = dirt->list[i];

		if (vol->fs->block_map) {
			err = write_block_bitmap(vol, group, buf);
			if (!err)
				err = write_inode_bitmap(vol, group, buf);
			if (err)
				return err;
		}
		ext2fs_group_desc_csum_set(vol->fs, group);
		if (i + 1 < dirt->nr && dirt->list[i + 1] / per_block == group / per_block)
			continue;
		err = write_descriptors(vol, group / per_block);
		if (err)
			return err;
	}
	for (unsigned int i = 0; i < dirt->nr; i++)
		dirt->marked[dirt->list[i]] = 0;
	dirt->nr = 0;
	return 0;
}

static int write_super(struct ext4_volume *vol)
{
	struct ext2_super_block *sb = vol->fs->super;
	uint64_t now = time(NULL);
	int err;

	if (!vol->dirt->super && !(vol->fs->flags & EXT2_FLAG_DIRTY))
		return 0;
	sb->s_wtime = now;
	sb->s_wtime_hi = now >> 32;
	ext2fs_superblock_csum_set(vol->fs, sb);
	err = device_pwrite(vol, SUPERBLOCK_OFFSET, sb, SUPERBLOCK_SIZE);
	if (err)
		return err;
	vol->dirt->super = false;
	vol->fs->flags &= ~(EXT2_FLAG_DIRTY | EXT2_FLAG_BB_DIRTY | EXT2_FLAG_IB_DIRTY);
	return 0;
}

/* What libext2fs keeps goes to the device mapping. Volume lock. */
int commit_bring(struct ext4_volume *vol)
{
	int err = write_groups(vol);

	return err ? err : write_super(vol);
}

/**
 * ext4_commit - make changed metadata durable
 * @vol: volume
 *
 * Context: takes the volume lock. May sleep.
 * Return: 0 or the first error; what could not be written stays marked.
 */
int ext4_commit(struct ext4_volume *vol)
{
	int err, ret;

	if (!vol->writable)
		return 0;
	if (vol->txns)
		return txn_commit(vol, txn_running(vol));
	ext4_lock(vol);
	ret = commit_bring(vol);
	ext4_unlock(vol);
	err = cache_sync(vol->vol.cache, MAPPING_DEVICE);
	if (!err)
		err = volume_flush(&vol->vol);
	return ret ? ret : err;
}

/**
 * ext4_commit_inode - make what has been done to an inode, and data written before, durable
 * @inode: inode
 *
 * Context: no lock but inode locks. May sleep.
 * Return: 0 or an error.
 */
int ext4_commit_inode(struct ext4_inode *inode)
{
	struct ext4_volume *vol = ext4_vol(inode);

	if (!vol->txns)
		return ext4_commit(vol);
	return txn_commit(vol, __atomic_load_n(&inode->changed_in, __ATOMIC_ACQUIRE));
}

/* Files before metadata: their blocks are allocated by being written. */
int ext4_sync(struct volume *volume)
{
	struct ext4_volume *vol = EXT4_VOL(volume);
	int err = cache_sync(volume->cache, MAPPING_FILE);
	int ret = ext4_commit(vol);

	return err ? err : ret;
}

/* Waits for the next commit's time; false when the thread is to stop. */
static bool commit_wait(struct ext4_volume *vol)
{
	unsigned int seconds = vol->vol.options->commit ? vol->vol.options->commit : 5;
	struct timespec until;
	bool stop;
	int err = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += seconds;
	pthread_mutex_lock(&vol->commit_lock);
	while (!vol->commit_stop && err != ETIMEDOUT)
		err = pthread_cond_clockwait(&vol->commit_wake, &vol->commit_lock, CLOCK_MONOTONIC,
					     &until);
	stop = vol->commit_stop;
	pthread_mutex_unlock(&vol->commit_lock);
	return !stop;
}

static void *commit_main(void *arg)
{
	struct ext4_volume *vol = arg;

	rcu_register_thread();
	while (commit_wait(vol)) {
		int err = ext4_sync(&vol->vol);

		if (!err)
			err = txn_checkpoint_some(vol);

		/* One line when trouble begins; it is tried again each time. */
		if (err && !vol->dirt->trouble)
			log_error("%s: changes cannot be written: %s", vol->vol.image->name,
				  strerror(-err));
		vol->dirt->trouble = err;
	}
	rcu_unregister_thread();
	return NULL;
}

int commit_start(struct ext4_volume *vol)
{
	int err = -pthread_create(&vol->commit_thread, NULL, commit_main, vol);

	vol->commit_running = !err;
	return err;
}

void commit_stop(struct ext4_volume *vol)
{
	if (!vol->commit_running)
		return;
	pthread_mutex_lock(&vol->commit_lock);
	vol->commit_stop = true;
	pthread_cond_signal(&vol->commit_wake);
	pthread_mutex_unlock(&vol->commit_lock);
	pthread_join(vol->commit_thread, NULL);
	vol->commit_running = false;
}
