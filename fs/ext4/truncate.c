/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Changing a file's size, and freeing what a deleted file had.
 *
 * Growing allocates nothing: the new part is a hole. Shrinking empties the page cache behind the
 * new end first, which waits for writes in flight, so no freed block is written to after it belongs
 * to somebody else. Then size and map change under one hold of the volume lock; a commit takes the
 * image before or after, never between, so the orphan list is not needed for it.
 *
 * Locks: the caller holds the inode lock exclusively; the invalidate lock keeps reads of the file
 * from the old map.
 */
#include <errno.h>
#include "file.h"

/* First block that lies wholly behind @size. */
static uint32_t first_behind(const struct ext4_inode *inode, loff_t size)
{
	unsigned int bits = inode->vn.mapping.block_shift;

	return (size + (1 << bits) - 1) >> bits;
}

static int shrink_map(struct ext4_inode *inode, loff_t size)
{
	struct ext4_volume *vol = ext4_vol(inode);
	int err, werr;

	err = ext4_begin(vol);
	if (err)
		return err;
	file_set_raw_size(inode, size);
	ext4_touch(inode, VATTR_MTIME | VATTR_CTIME);
	err = map_remove(inode, first_behind(inode, size), 1ULL << 32);
	werr = ext4_inode_write(inode);
	ext4_end(vol);
	return err ? err : werr;
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
 * ext4_free_data - free all blocks of an inode that is about to be deleted
 * @inode: regular file, directory or symbolic link; the page cache holds nothing of it
 *
 * A directory may have grown by other ways than its map in memory, so that is loaded again.
 *
 * Context: between ext4_begin() and ext4_end(). May sleep.
 * Return: 0 or an error; -EUCLEAN leaves the blocks of a damaged map alone.
 */
int ext4_free_data(struct ext4_inode *inode)
{
	ext2_filsys fs = ext4_vol(inode)->fs;

	if (!ext2fs_inode_has_valid_blocks2(fs, (struct ext2_inode *)&inode->raw))
		return 0;
	if (!S_ISREG(vnode_mode(&inode->vn)))
		map_drop(inode);
	return map_remove(inode, 0, 1ULL << 32);
}
