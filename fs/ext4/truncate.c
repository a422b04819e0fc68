/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Changing a file's size, and freeing what a deleted file had.
 *
 * Growing allocates nothing: the new part is a hole. Shrinking empties the page cache behind the
 * new end first, which waits for writes in flight, so no freed block is written to after it belongs
 * to somebody else. Then size and map change under one hold of the volume lock; a commit takes the
 * image before or after, never between.
 *
 * A transaction has room for the bitmaps of some groups only, so a file that lies in many of them is
 * truncated, or deleted, in several operations: file_step() counts the groups of its blocks before,
 * and map_remove() stops when those of the map's own blocks have filled the transaction. The orphan
 * list remembers that there is more to do.
 *
 * Locks: the caller holds the inode lock exclusively; the invalidate lock keeps reads of the file
 * from the old map.
 */
#include <errno.h>
#include "file.h"
#include "txn.h"

/* First block that lies wholly behind @size. */
static uint32_t first_behind(const struct ext4_inode *inode, loff_t size)
{
	unsigned int bits = inode->vn.mapping.block_shift;

	return (size + (1 << bits) - 1) >> bits;
}

/* How much of @groups a range of blocks takes, the last one before it being in @last. */
static uint32_t groups_of(ext2_filsys fs, const struct map_extent *extent, dgrp_t *last)
{
	dgrp_t from = ext2fs_group_of_blk2(fs, extent->pblk);
	dgrp_t to = ext2fs_group_of_blk2(fs, extent->pblk + extent->len - 1);
	uint32_t nr = to - from + (from != *last);

	*last = to;
	return nr;
}

/**
 * file_step - how far one operation goes that changes the blocks of a range
 * @inode: a file
 * @lblk: the range's first block
 * @end: its end; comes back as that of what can be done at once
 *
 * Context: volume lock.
 * Return: 0 or an error of reading the map.
 */
int file_step(struct ext4_inode *inode, uint32_t lblk, uint64_t *end)
{
	ext2_filsys fs = ext4_vol(inode)->fs;
	unsigned int left = txn_step_groups(ext4_vol(inode));
	dgrp_t last = fs->group_desc_count;
	struct map_extent found;
	uint64_t at = lblk;

	if (*end > UINT32_MAX)
		*end = UINT32_MAX;
	/* Were each block in another group. */
	if (*end <= at + left)
		return 0;
	while (at < *end && left) {
		int err = map_find_locked(inode, at, &found);
		uint32_t groups;

		if (err)
			return err;
		if (found.len > *end - at)
			found.len = *end - at;
		groups = found.pblk ? groups_of(fs, &found, &last) : 0;
		if (groups > left) {
			if (at == lblk)
				at += (uint64_t)(left - 1) * fs->super->s_blocks_per_group + 1;
			break;
		}
		left -= groups;
		at += found.len;
	}
	*end = at;
	return 0;
}

/**
 * file_remove - take the blocks of a range away, in as many operations as that needs
 * @inode: a file
 * @lblk: first block
 * @end: behind the last one
 *
 * Context: as map_remove(), but not between ext4_begin() and ext4_end().
 * Return: 0 or an error: then a part may be done.
 */
int file_remove(struct ext4_inode *inode, uint32_t lblk, uint64_t end)
{
	struct ext4_volume *vol = ext4_vol(inode);
	uint64_t stop;
	int err;

	if (end > UINT32_MAX)
		end = UINT32_MAX;
	do {
		stop = end;
		err = ext4_begin(vol);
		if (err)
			return err;
		err = file_step(inode, lblk, &stop);
		if (!err)
			err = map_remove(inode, lblk, &stop);
		ext4_end(vol);
		lblk = stop;
	} while (!err && stop < end);
	return err;
}

/* The first operation of a truncation: the new size, and the blocks up to *@stop. */
static int shrink_begin(struct ext4_inode *inode, loff_t size, uint64_t *stop)
{
	uint32_t first = first_behind(inode, size);
	int err, werr;

	file_set_raw_size(inode, size);
	ext4_touch(inode, VATTR_MTIME | VATTR_CTIME);
	*stop = UINT32_MAX;
	err = file_step(inode, first, stop);
	if (!err && first < *stop)
		err = map_remove(inode, first, stop);
	if (!err && *stop < UINT32_MAX)
		err = orphan_add(inode);
	werr = ext4_inode_write(inode);
	return err ? err : werr;
}

/* There is nothing more to do for a file that was on the list for its truncation. */
static int shrink_end(struct ext4_inode *inode)
{
	struct ext4_volume *vol = ext4_vol(inode);
	int err = ext4_begin(vol);

	if (!err) {
		err = orphan_del(inode);
		ext4_end(vol);
		return err;
	}
	ext4_lock(vol);
	orphan_forget(inode);
	ext4_unlock(vol);
	return err;
}

static int shrink_map(struct ext4_inode *inode, loff_t size)
{
	struct ext4_volume *vol = ext4_vol(inode);
	bool was_orphan;
	uint64_t stop;
	int err, ret;

	err = ext4_begin(vol);
	if (err)
		return err;
	was_orphan = inode->orphan;
	err = shrink_begin(inode, size, &stop);
	ext4_end(vol);
	if (!err && stop < UINT32_MAX)
		err = file_remove(inode, stop, UINT32_MAX);
	if (was_orphan || !inode->orphan)
		return err;
	ret = shrink_end(inode);
	return err ? err : ret;
}

/**
 * ext4_truncate - set the size of a regular file
 * @inode: the file
 * @size: bytes
 *
 * Context: inode lock held exclusively. May sleep.
 * Return: 0; -EFBIG; -EROFS; another error.
 */
int ext4_truncate(struct ext4_inode *inode, loff_t size)
{
	struct mapping *mapping = &inode->vn.mapping;
	bool grow = size > mapping_size(mapping);
	int err;

	if (inode->bad)
		return -EUCLEAN;
	if (ext4_is_rofs(ext4_vol(inode)))
		return -EROFS;
	if (size > ext4_max_size(inode))
		return -EFBIG;
	err = file_leave_inline(inode);
	if (!err && grow)
		err = file_zero_tail(inode, size);
	if (err)
		return err;

	filemap_invalidate_lock(mapping);
	err = truncate_setsize(mapping, size);
	if (!err)
		err = grow ? file_update(inode, size, VATTR_MTIME | VATTR_CTIME) :
			     shrink_map(inode, size);
	filemap_invalidate_unlock(mapping);
	return err;
}

/**
 * ext4_free_most - begin to delete the blocks of an inode
 * @inode: as for ext4_free_data(), and on the orphan list
 *
 * Frees them in as many operations as that takes. The last one goes on.
 *
 * Context: no volume lock. Takes it as ext4_begin() does.
 * Return: 0, between ext4_begin() and ext4_end(); or an error, with nothing held.
 */
int ext4_free_most(struct ext4_inode *inode)
{
	struct ext4_volume *vol = ext4_vol(inode);
	uint64_t stop;
	uint32_t lblk = 0;
	int err;

	for (;; lblk = stop) {
		err = ext4_begin(vol);
		if (err)
			return err;
		if (!ext2fs_inode_has_valid_blocks2(vol->fs, (struct ext2_inode *)&inode->raw))
			return 0;
		if (!lblk && !S_ISREG(vnode_mode(&inode->vn)))
			map_drop(inode);
		stop = UINT32_MAX;
		err = file_step(inode, lblk, &stop);
		if (!err)
			err = map_remove(inode, lblk, &stop);
		if (!err && stop == UINT32_MAX)
			return 0;
		ext4_end(vol);
		if (err)
			return err;
	}
}

/**
 * ext4_free_data - free all blocks of an inode that is about to be deleted
 * @inode: regular file, directory or symbolic link; the page cache holds nothing of it
 *
 * A directory may have grown by other ways than its map in memory, so that is loaded again. What
 * ext4_free_most() has left is little, so it is done whether the transaction is full or not.
 *
 * Context: between ext4_begin() and ext4_end(). May sleep.
 * Return: 0 or an error; -EUCLEAN leaves the blocks of a damaged map alone.
 */
int ext4_free_data(struct ext4_inode *inode)
{
	ext2_filsys fs = ext4_vol(inode)->fs;
	uint64_t end = 0;
	int err = 0;

	if (!ext2fs_inode_has_valid_blocks2(fs, (struct ext2_inode *)&inode->raw))
		return 0;
	if (!S_ISREG(vnode_mode(&inode->vn)))
		map_drop(inode);
	while (!err && end < UINT32_MAX) {
		uint32_t from = end;

		end = UINT32_MAX;
		err = map_remove(inode, from, &end);
	}
	return err;
}
