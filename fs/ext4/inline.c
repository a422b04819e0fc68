/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Inline data: small files that lie in their inode, the first 60 bytes in i_block, the rest in the
 * attribute system.data.
 *
 * They are read where they are. The first change of data or size gives the file a block, or none
 * when it is empty, and it is a file like others from then on.
 *
 * Locks: volume lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "file.h"

/**
 * inline_read - the data of an inline inode
 * @inode: has EXT4_INLINE_DATA_FL
 * @buf: where to
 * @size: of @buf
 * @len: out: bytes of data, at most the file's size and @size
 *
 * Context: volume lock held. May sleep.
 * Return: 0; -EUCLEAN; another error.
 */
int inline_read(struct ext4_inode *inode, void *buf, size_t size, size_t *len)
{
	struct ext4_volume *vol = ext4_vol(inode);
	uint64_t file_size = EXT2_I_SIZE(&inode->raw);
	char data[PAGE_SIZE];	/* no inode is larger */
	size_t held;
	errcode_t err;

	err = ext2fs_inline_data_size(vol->fs, inode->vn.ino, &held);
	if (!err && held > sizeof(data))
		err = EXT2_ET_FILESYSTEM_CORRUPTED;
	if (!err)
		err = ext2fs_inline_data_get(vol->fs, inode->vn.ino,
					     (struct ext2_inode *)&inode->raw, data, &held);
	if (err)
		return ext4_failed(vol, inode->vn.ino, err, "inline data");
	if (held > file_size)
		held = file_size;
	*len = held < size ? held : size;
	memcpy(buf, data, *len);
	return 0;
}

static int write_block(struct ext4_volume *vol, uint64_t pblk, const void *data, size_t len)
{
	size_t size = vol->fs->blocksize;
	void *block = aligned_alloc(PAGE_SIZE, size < PAGE_SIZE ? PAGE_SIZE : size);
	struct iovec iov = { block, size };
	struct image_io io = { .offset = pblk * size, .iov = &iov, .iovcnt = 1, .write = true };
	int err;

	if (!block)
		return -ENOMEM;
	memcpy(block, data, len);
	memset((char *)block + len, 0, size - len);
	err = image_submit(vol->vol.image, &io, 1);
	free(block);
	return err;
}

/* The inode becomes one of blocks, with @data in the first. On an error it may be half of both. */
static int move_to_block(struct ext4_inode *inode, const void *data, size_t len)
{
	struct ext4_volume *vol = ext4_vol(inode);
	struct map_extent found;
	int err;

	if (ext2fs_has_feature_extents(vol->fs->super))
		extents_init(inode);
	else
		memset(inode->raw.i_block, 0, sizeof(inode->raw.i_block));
	if (!len)
		return 0;
	err = map_alloc(inode, 0, 1);
	if (!err)
		err = map_find_locked(inode, 0, &found);
	if (!err && !found.pblk)
		err = -ENOMEM;	/* no memory for the map: until it is done the image does not say */
	return err ? err : write_block(vol, found.pblk, data, len);
}

static int remove_attribute(struct ext4_inode *inode)
{
	struct ext4_volume *vol = ext4_vol(inode);
	struct ext2_xattr_handle *handle;
	errcode_t err = ext2fs_xattrs_open(vol->fs, inode->vn.ino, &handle);

	if (!err) {
		err = ext2fs_xattrs_read(handle);
		if (!err)
			err = ext2fs_xattr_remove(handle, "system.data");
		ext2fs_xattrs_close(&handle);
	}
	if (err)
		return ext4_failed(vol, inode->vn.ino, err, "removing inline data");
	return ext4_inode_reload(inode);
}

/**
 * inline_convert - move a regular file's data from its inode to a block
 * @inode: a regular file; nothing happens when it is not inline
 *
 * Context: between ext4_begin() and ext4_end(). May sleep.
 * Return: 0; -ENOSPC and other errors, with the file as it was.
 */
int inline_convert(struct ext4_inode *inode)
{
	struct ext4_volume *vol = ext4_vol(inode);
	struct ext2_inode_large *raw = &inode->raw;
	uint32_t flags = raw->i_flags, old[EXT2_N_BLOCKS];
	char data[PAGE_SIZE];
	size_t len;
	int err;

	if (!(flags & EXT4_INLINE_DATA_FL))
		return 0;
	memcpy(old, raw->i_block, sizeof(old));
	err = inline_read(inode, data, sizeof(data), &len);
	if (!err && len > vol->fs->blocksize)
		err = -EUCLEAN;
	if (err)
		return err;
	map_drop(inode);
	err = move_to_block(inode, data, len);
	if (err) {
		uint64_t end = 1;

		map_remove(inode, 0, &end);
		memcpy(raw->i_block, old, sizeof(old));
		raw->i_flags = flags;
		map_drop(inode);
		ext4_inode_write(inode);
		return err;
	}
	__atomic_store_n(&raw->i_flags, raw->i_flags & ~EXT4_INLINE_DATA_FL, __ATOMIC_RELEASE);
	err = ext4_inode_write(inode);
	return err ? err : remove_attribute(inode);
}
