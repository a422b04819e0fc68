/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Symbolic links. A target of at most 59 bytes lies in the inode where the block map would be, a
 * longer one in one block. Targets that another writer has put into the inode's inline data are
 * read through the same function as inline files.
 */
#include <errno.h>
#include <string.h>
#include "namei.h"

#define FAST_MAX (sizeof(((struct ext2_inode_large *)0)->i_block) - 1)

static int write_block(struct ext4_inode *inode, const char *target, size_t len)
{
	struct map_extent ext;
	DIR_BUF(buf);
	int err;

	err = map_alloc(inode, 0, 1);
	if (!err)
		err = map_find_locked(inode, 0, &ext);
	if (err)
		return err;
	memset(buf, 0, dir_blocksize(inode));
	memcpy(buf, target, len);
	return device_write(ext4_vol(inode), ext.pblk, buf);
}

/**
 * symlink_write - give a new link its target
 * @inode: new inode, a symbolic link, without blocks
 * @target: shorter than a block
 *
 * Context: between begin and end, nobody else knows @inode; may sleep.
 * Return: 0, -ENOSPC or another error. The inode is not written.
 */
int symlink_write(struct ext4_inode *inode, const char *target)
{
	size_t len = strlen(target);

	if (len <= FAST_MAX) {
		make_special(inode, 0);
		memcpy(inode->raw.i_block, target, len);
	} else {
		int err = write_block(inode, target, len);

		if (err)
			return err;
	}
	inode->raw.i_size = len;
	return 0;
}

static int read_block(struct ext4_inode *inode, char *buf, size_t len)
{
	struct map_extent ext;
	DIR_BUF(block);
	int err;

	err = map_find_locked(inode, 0, &ext);
	if (err)
		return err;
	if (!ext.pblk || len >= dir_blocksize(inode))
		return ext4_corrupt(ext4_vol(inode), inode->vn.ino, -EUCLEAN,
				    "symbolic link without its block");
	err = device_read(ext4_vol(inode), ext.pblk, block);
	if (!err)
		memcpy(buf, block, len);
	return err;
}

/**
 * ext4_readlink - what a symbolic link says
 * @node: link
 * @buf: room for it; no NUL is added
 * @size: bytes of @buf, at least PATH_MAX
 *
 * Context: no locks held; may sleep.
 * Return: length, or -EINVAL (no link), -EUCLEAN, -EIO.
 */
ssize_t ext4_readlink(struct vnode *node, char *buf, size_t size)
{
	struct ext4_inode *inode = EXT4_I(node);
	size_t len = EXT2_I_SIZE(&inode->raw);
	int err = 0;

	if (!S_ISLNK(vnode_mode(node)))
		return -EINVAL;
	ext4_lock(ext4_vol(inode));
	if (!len || len > size)
		err = ext4_corrupt(ext4_vol(inode), inode->vn.ino, -EUCLEAN,
				   "symbolic link of %zu bytes", len);
	else if (inode->raw.i_flags & EXT4_INLINE_DATA_FL)
		err = inline_read(inode, buf, len, &len);
	else if (len <= FAST_MAX && !(inode->raw.i_flags & EXT4_EXTENTS_FL))
		memcpy(buf, inode->raw.i_block, len);
	else
		err = read_block(inode, buf, len);
	ext4_unlock(ext4_vol(inode));
	return err ? err : (ssize_t)len;
}
