/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * FITRIM: free blocks are given back to whatever holds the image (a sparse file gets smaller).
 *
 * All changes are committed first: metadata on the image must not point to blocks that are
 * discarded. Then group by group under the volume lock, so that nobody allocates a block while it
 * is discarded.
 *
 * Locks: the volume lock, for one group at a time.
 */
#include <errno.h>
#include "ext4.h"

struct trim {
	uint64_t minlen;	/* blocks */
	uint64_t done;		/* blocks */
};

/* Discards the free runs of [from, last]. Volume lock. */
static int trim_range(struct ext4_volume *vol, uint64_t from, uint64_t last, struct trim *trim)
{
	unsigned int shift = vol->device.block_shift;

	while (from <= last) {
		blk64_t start, stop;
		int err;

		if (ext2fs_find_first_zero_block_bitmap2(vol->taken, from, last, &start))
			return 0;
		if (ext2fs_find_first_set_block_bitmap2(vol->taken, start, last, &stop))
			stop = last + 1;
		from = stop;
		if (stop - start < trim->minlen)
			continue;
		/* The cache may have read them with their neighbours; they are not so any more. */
		device_forget(vol, start, stop - start);
		err = image_discard(vol->vol.image, start << shift, (stop - start) << shift);
		if (err)
			return err;
		trim->done += stop - start;
	}
	return 0;
}

static int trim_groups(struct ext4_volume *vol, uint64_t first, uint64_t last, struct trim *trim)
{
	ext2_filsys fs = vol->fs;

	for (uint64_t from = first; from <= last;) {
		dgrp_t group = ext2fs_group_of_blk2(fs, from);
		uint64_t end = ext2fs_group_last_block2(fs, group);
		int err = ext4_begin(vol);

		if (err)
			return err;
		err = trim_range(vol, from, end < last ? end : last, trim);
		ext4_end(vol);
		if (err)
			return err;
		from = end + 1;
	}
	return 0;
}

/**
 * ext4_trim - discard free blocks
 * @volume: volume
 * @start: bytes from the start of the file system
 * @len: bytes
 * @minlen: runs shorter than this many bytes are left alone
 * @trimmed: bytes that were discarded
 *
 * Context: takes the volume lock again and again. May sleep long.
 * Return: 0, -EINVAL outside the file system, -EOPNOTSUPP when the image cannot discard, or
 * another error.
 */
int ext4_trim(struct volume *volume, uint64_t start, uint64_t len, uint64_t minlen,
	      uint64_t *trimmed)
{
	struct ext4_volume *vol = EXT4_VOL(volume);
	unsigned int shift = vol->device.block_shift;
	uint64_t blocks = ext2fs_blocks_count(vol->fs->super), first = start >> shift, last;
	struct trim trim = { .minlen = minlen >> shift };
	int err;

	*trimmed = 0;
	if (first >= blocks || len < volume->blocksize)
		return -EINVAL;
	last = (len >> shift) < blocks - first ? first + (len >> shift) - 1 : blocks - 1;
	if (first < vol->fs->super->s_first_data_block)
		first = vol->fs->super->s_first_data_block;
	if (!trim.minlen)
		trim.minlen = 1;
	err = ext4_commit(vol);
	if (!err)
		err = trim_groups(vol, first, last, &trim);
	*trimmed = trim.done << shift;
	return err;
}
