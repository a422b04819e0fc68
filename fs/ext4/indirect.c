/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Indirect maps: the image's form of a block map on ext2 and ext3, and of older files on ext4.
 *
 * The inode holds twelve pointers to data blocks and three to indirect blocks of one, two and three
 * levels. A pointer of 0 is a hole. Loading walks all of it into the map's array; a change walks
 * from the inode to the lowest indirect blocks of its range and writes each of these once, so a run
 * of blocks costs about as much as its pointers.
 *
 * Locks: all under the volume lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "map.h"

#define IND_LEVELS 3

static uint32_t pointers(const struct ext4_volume *vol)
{
	return vol->fs->blocksize / 4;
}

/* File blocks under one pointer of a block of @level; level 0 is a data block's own. */
static uint64_t span_of(const struct ext4_volume *vol, unsigned int level)
{
	uint64_t span = 1;

	while (level--)
		span *= pointers(vol);
	return span;
}

uint64_t indirect_max_blocks(struct ext4_volume *vol)
{
	return MAP_DIRECT + span_of(vol, 1) + span_of(vol, 2) + span_of(vol, 3);
}

/* First file block under the inode's pointer to an indirect block of @level, 1 to 3. */
static uint64_t first_of(const struct ext4_volume *vol, unsigned int level)
{
	uint64_t first = MAP_DIRECT;

	for (unsigned int i = 1; i < level; i++)
		first += span_of(vol, i);
	return first;
}

static uint32_t *slot_of(struct ext4_inode *inode, unsigned int level)
{
	return &inode->raw.i_block[MAP_DIRECT + level - 1];
}

/*
 * Loading
 */

struct walk {
	struct ext4_inode *inode;
	uint64_t budget;	/* indirect blocks that may still be met: a loop ends */
};

static int load_block(struct walk *walk, uint64_t lblk, uint64_t pblk)
{
	struct map_extent extent = { .lblk = lblk, .len = 1, .pblk = pblk };

	if (!map_valid_blocks(ext4_vol(walk->inode), pblk, 1) || lblk >= UINT32_MAX)
		return ext4_corrupt(ext4_vol(walk->inode), walk->inode->vn.ino, -EUCLEAN,
				    "block %llu of the file: a pointer outside the image",
				    (unsigned long long)lblk);
	return map_append(&walk->inode->map, &extent, true);
}

static int load_level(struct walk *walk, uint64_t lblk, uint64_t pblk, unsigned int level)
{
	struct ext4_volume *vol = ext4_vol(walk->inode);
	uint32_t *block;
	int err;

	if (!level)
		return load_block(walk, lblk, pblk);
	if (!map_valid_blocks(vol, pblk, 1) || !walk->budget--)
		return ext4_corrupt(vol, walk->inode->vn.ino, -EUCLEAN, "indirect block %llu",
				    (unsigned long long)pblk);
	block = malloc(vol->fs->blocksize);
	if (!block)
		return -ENOMEM;
	err = device_read(vol, pblk, block);
	for (uint32_t i = 0; i < pointers(vol) && !err; i++) {
		if (block[i])
			err = load_level(walk, lblk + i * span_of(vol, level - 1),
					 ext2fs_le32_to_cpu(block[i]), level - 1);
	}
	free(block);
	return err;
}

int indirect_load(struct ext4_inode *inode)
{
	struct ext4_volume *vol = ext4_vol(inode);
	struct walk walk = { inode, ext2fs_blocks_count(vol->fs->super) };
	int err = 0;

	for (unsigned int i = 0; i < MAP_DIRECT && !err; i++) {
		if (inode->raw.i_block[i])
			err = load_block(&walk, i, inode->raw.i_block[i]);
	}
	for (unsigned int level = 1; level <= IND_LEVELS && !err; level++) {
		if (*slot_of(inode, level))
			err = load_level(&walk, first_of(vol, level), *slot_of(inode, level),
					 level);
	}
	return err;
}

/*
 * Setting
 */

/* Makes sure that a pointer leads to an indirect block; reads or begins it in @block. */
static int set_step(struct ext4_inode *inode, uint64_t goal, uint32_t pointer, uint32_t *pblk,
		    uint32_t *block)
{
	struct ext4_volume *vol = ext4_vol(inode);
	uint64_t fresh;
	int err;

	*pblk = pointer;
	if (pointer)
		return device_read(vol, pointer, block);
	err = blocks_alloc(vol, goal, &fresh);
	if (err)
		return err;
	if (fresh > UINT32_MAX) {
		blocks_free(vol, fresh, 1);
		return -ENOSPC;
	}
	memset(block, 0, vol->fs->blocksize);
	map_count_blocks(inode, 1);
	*pblk = fresh;
	return 0;
}

/*
 * Sets pointers of [lblk, lblk + len), all under one indirect block of @level, which covers the
 * file from @first on and is at *@slot (0: not there yet).
 */
static int set_level(struct ext4_inode *inode, uint32_t *slot, unsigned int level, uint64_t first,
		     uint64_t lblk, uint64_t pblk, uint32_t len)
{
	struct ext4_volume *vol = ext4_vol(inode);
	uint64_t span = span_of(vol, level - 1), end = lblk + len;
	uint32_t *block = malloc(vol->fs->blocksize);
	uint32_t at;
	int err, werr;

	if (!block)
		return -ENOMEM;
	err = set_step(inode, pblk, ext2fs_le32_to_cpu(*slot), &at, block);
	if (err)
		goto out;
	for (uint32_t i = (lblk - first) / span; lblk < end && !err; i++) {
		uint64_t stop = first + (i + 1) * span;
		uint32_t part = (stop < end ? stop : end) - lblk;

		if (level == 1)
			block[i] = ext2fs_cpu_to_le32(pblk);
		else
			err = set_level(inode, &block[i], level - 1, first + i * span, lblk, pblk,
					part);
		lblk += part;
		pblk += part;
	}
	werr = device_write(vol, at, block);
	*slot = ext2fs_cpu_to_le32(at);
	err = err ? err : werr;
out:
	free(block);
	return err;
}

int indirect_set(struct ext4_inode *inode, uint32_t lblk, uint64_t pblk, uint32_t len)
{
	struct ext4_volume *vol = ext4_vol(inode);
	int err = 0;

	if (pblk + len - 1 > UINT32_MAX)
		return -ENOSPC;
	for (; len && lblk < MAP_DIRECT; len--)
		inode->raw.i_block[lblk++] = pblk++;
	for (unsigned int level = 1; level <= IND_LEVELS && len && !err; level++) {
		uint64_t first = first_of(vol, level), stop = first + span_of(vol, level);
		uint32_t part = stop - lblk < len ? stop - lblk : len;
		uint32_t slot = ext2fs_cpu_to_le32(*slot_of(inode, level));

		if (lblk >= stop)
			continue;
		err = set_level(inode, &slot, level, first, lblk, pblk, part);
		*slot_of(inode, level) = ext2fs_le32_to_cpu(slot);
		lblk += part;
		pblk += part;
		len -= part;
	}
	return len && !err ? -EFBIG : err;
}

/*
 * Clearing
 */

/* Clears what of [start, end) is under *@slot; frees its block and clears it when all is gone. */
static int clear_level(struct ext4_inode *inode, uint32_t *slot, unsigned int level,
		       uint64_t first, uint64_t start, uint64_t end)
{
	struct ext4_volume *vol = ext4_vol(inode);
	uint64_t span = span_of(vol, level - 1), at = ext2fs_le32_to_cpu(*slot);
	uint32_t *block, i, last;
	bool changed = false, empty = true;
	int err;

	block = malloc(vol->fs->blocksize);
	if (!block)
		return -ENOMEM;
	err = device_read(vol, at, block);
	i = start > first ? (start - first) / span : 0;
	last = (end - 1 - first) / span < pointers(vol) ? (end - 1 - first) / span :
							   pointers(vol) - 1;
	for (; i <= last && !err; i++) {
		if (!block[i])
			continue;
		if (level == 1)
			block[i] = 0;
		else
			err = clear_level(inode, &block[i], level - 1, first + i * span, start,
					  end);
		changed |= !block[i];
	}
	if (err)
		goto out;
	for (i = 0; i < pointers(vol) && empty; i++)
		empty = !block[i];
	if (empty) {
		blocks_free(vol, at, 1);
		map_count_blocks(inode, -1);
		*slot = 0;
	} else if (changed) {
		err = device_write(vol, at, block);
	}
out:
	free(block);
	return err;
}

int indirect_clear(struct ext4_inode *inode, uint64_t start, uint64_t end)
{
	struct ext4_volume *vol = ext4_vol(inode);
	int err = 0;

	for (uint64_t lblk = start; lblk < end && lblk < MAP_DIRECT; lblk++)
		inode->raw.i_block[lblk] = 0;
	for (unsigned int level = 1; level <= IND_LEVELS && !err; level++) {
		uint64_t first = first_of(vol, level);
		uint32_t slot = ext2fs_cpu_to_le32(*slot_of(inode, level));

		if (!slot || end <= first || start >= first + span_of(vol, level))
			continue;
		err = clear_level(inode, &slot, level, first, start, end);
		*slot_of(inode, level) = ext2fs_le32_to_cpu(slot);
	}
	return err;
}
