/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Indirect maps: the image's form of a block map on ext2 and ext3, and of older files on ext4.
 *
 * The inode holds twelve pointers to data blocks and three to indirect blocks of one, two and three
 * levels. A pointer of 0 is a hole, of all the blocks that would be under it. Looking for a block
 * of the file walks down to its pointer and loads some more around it; a change walks from the
 * inode to the lowest indirect blocks of its range and writes each of these once, so a run of
 * blocks costs about as much as its pointers.
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

#define LOAD_POINTERS 256u	/* of one window */

/* Loads @nr pointers to data, for the blocks of the file from @lblk on. */
static int load_pointers(struct ext4_inode *inode, const uint32_t *pointers, uint64_t lblk,
			 uint32_t nr, bool swap)
{
	struct map_fill fill = { .inode = inode, .at = lblk };

	for (uint32_t i = 0; i < nr; i++) {
		struct map_extent extent = {
			.lblk = lblk + i, .len = 1,
			.pblk = swap ? ext2fs_le32_to_cpu(pointers[i]) : pointers[i],
		};

		if (!extent.pblk)
			continue;
		if (!map_valid_blocks(ext4_vol(inode), extent.pblk, 1) || lblk + i >= UINT32_MAX)
			return map_damaged(inode, "a pointer outside the image");
		map_fill(&fill, &extent);
	}
	map_fill_end(&fill, lblk + nr);
	return 0;
}

/* The indirect block of @level at @pblk covers the file from @first on, @lblk is in it. */
static int load_under(struct ext4_inode *inode, uint64_t pblk, unsigned int level, uint64_t first,
		      uint32_t lblk)
{
	struct ext4_volume *vol = ext4_vol(inode);
	uint32_t *block = malloc(vol->fs->blocksize);
	int err = 0;

	if (!block)
		return -ENOMEM;
	for (; pblk; level--) {
		uint64_t span = span_of(vol, level - 1);
		uint32_t i = (lblk - first) / span;

		err = map_valid_blocks(vol, pblk, 1) ? device_read(vol, pblk, block) :
						       map_damaged(inode, "an indirect block");
		if (err)
			goto out;
		if (level == 1) {
			i &= ~(LOAD_POINTERS - 1);
			err = load_pointers(inode, &block[i], first + i, LOAD_POINTERS, true);
			goto out;
		}
		first += i * span;
		pblk = ext2fs_le32_to_cpu(block[i]);
	}
	map_store(inode, &(struct map_extent){ .lblk = first }, first + span_of(vol, level));
out:
	free(block);
	return err;
}

int indirect_load(struct ext4_inode *inode, uint32_t lblk)
{
	struct ext4_volume *vol = ext4_vol(inode);
	int err = map_usable(inode);

	if (err)
		return err;
	if (lblk < MAP_DIRECT)
		return load_pointers(inode, inode->raw.i_block, 0, MAP_DIRECT, false);
	for (unsigned int level = 1; level <= IND_LEVELS; level++) {
		uint64_t first = first_of(vol, level);

		if (lblk < first + span_of(vol, level))
			return load_under(inode, *slot_of(inode, level), level, first, lblk);
	}
	/* Behind all that a map of this kind can have. */
	map_store(inode, &(struct map_extent){ .lblk = indirect_max_blocks(vol) }, UINT32_MAX);
	return 0;
}

/*
 * Clearing
 */

struct clear {
	struct ext4_inode *inode;
	uint64_t start, end;	/* blocks of the file */
	bool free;		/* the blocks of data go, not only the pointers to them */
	uint64_t run, run_len;	/* blocks of data that are to be freed, side by side */
};

static void free_run(struct clear *clear)
{
	if (clear->free && clear->run_len) {
		blocks_free(ext4_vol(clear->inode), clear->run, clear->run_len);
		map_count_blocks(clear->inode, -(int64_t)clear->run_len);
	}
	clear->run_len = 0;
}

static int clear_pointer(struct clear *clear, uint32_t pblk)
{
	if (!pblk)
		return 0;
	if (!map_valid_blocks(ext4_vol(clear->inode), pblk, 1))
		return map_damaged(clear->inode, "a pointer outside the image");
	if (!clear->run_len || clear->run + clear->run_len != pblk) {
		free_run(clear);
		clear->run = pblk;
	}
	clear->run_len++;
	return 0;
}

/* Clears what of the range is under *@slot; frees its block and clears it when all is gone. */
static int clear_level(struct clear *clear, uint32_t *slot, unsigned int level, uint64_t first)
{
	struct ext4_inode *inode = clear->inode;
	struct ext4_volume *vol = ext4_vol(inode);
	uint64_t span = span_of(vol, level - 1), at = ext2fs_le32_to_cpu(*slot);
	uint32_t *block, i, last;
	bool changed = false, empty = true;
	int err;

	/* A free one was met before: the pointers go in a circle. */
	if (!map_valid_blocks(vol, at, 1) || !ext2fs_test_block_bitmap2(vol->fs->block_map, at))
		return map_damaged(inode, "an indirect block");
	block = malloc(vol->fs->blocksize);
	if (!block)
		return -ENOMEM;
	err = device_read(vol, at, block);
	i = clear->start > first ? (clear->start - first) / span : 0;
	last = (clear->end - 1 - first) / span < pointers(vol) ? (clear->end - 1 - first) / span :
								  pointers(vol) - 1;
	for (; i <= last && !err; i++) {
		if (!block[i])
			continue;
		if (level > 1) {
			err = clear_level(clear, &block[i], level - 1, first + i * span);
		} else {
			err = clear_pointer(clear, ext2fs_le32_to_cpu(block[i]));
			block[i] = err ? block[i] : 0;
		}
		changed |= !block[i];
	}
	for (i = 0; i < pointers(vol) && empty; i++)
		empty = !block[i];
	if (empty && !err) {
		blocks_free(vol, at, 1);
		map_count_blocks(inode, -1);
		*slot = 0;
	} else if (changed) {
		int werr = device_write(vol, at, block);

		err = err ? err : werr;
	}
	free(block);
	return err;
}

static int clear_range(struct clear *clear)
{
	struct ext4_inode *inode = clear->inode;
	struct ext4_volume *vol = ext4_vol(inode);
	int err = map_usable(inode);

	if (err)
		return err;
	for (uint64_t lblk = clear->start; lblk < clear->end && lblk < MAP_DIRECT; lblk++) {
		err = clear_pointer(clear, inode->raw.i_block[lblk]);
		if (err)
			break;
		inode->raw.i_block[lblk] = 0;
	}
	for (unsigned int level = 1; level <= IND_LEVELS && !err; level++) {
		uint64_t first = first_of(vol, level);
		uint32_t slot = ext2fs_cpu_to_le32(*slot_of(inode, level));

		if (!slot || clear->end <= first || clear->start >= first + span_of(vol, level))
			continue;
		err = clear_level(clear, &slot, level, first);
		*slot_of(inode, level) = ext2fs_le32_to_cpu(slot);
	}
	free_run(clear);
	return err;
}

int indirect_clear(struct ext4_inode *inode, uint64_t start, uint64_t end)
{
	struct clear clear = { .inode = inode, .start = start, .end = end, .free = true };

	return clear_range(&clear);
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
	uint64_t end = lblk + (uint64_t)len;
	uint32_t start = lblk;
	int err = map_usable(inode);

	if (err)
		return err;
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
	if (len && !err)
		err = -EFBIG;
	if (err)
		clear_range(&(struct clear){ .inode = inode, .start = start, .end = end });
	return err;
}
