/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Operations on regular files: write, fsync, seek, and how large a file can be.
 *
 * A write goes into the page cache under the inode lock and then changes the inode (size, times,
 * mode) in one change of metadata; none where that is what they were, which is most of many small
 * writes, as the clock of times is a coarse one. Space was promised block by block on the way
 * (delalloc.c). When there was none, dirty data is written back, which turns worst cases into facts,
 * and the rest is tried again, as long as that helps, or unlinked files give theirs back; only then is
 * it ENOSPC.
 *
 * What lies behind a file's size in its last block need not be zeros on the image. Whoever
 * makes the size grow calls file_zero_tail() first.
 *
 * Locks: inode lock exclusive for writes, shared for seek; the volume lock only for the inode.
 */
#include <errno.h>
#include <string.h>
#include <linux/types.h>
#include <ext2fs/ext2_ext_attr.h>
#include "file.h"

static char zeros[EXT2_MAX_BLOCK_SIZE]; /* not const: so it takes no room in the program */

/**
 * ext4_max_size - where a file must end at the latest
 * @inode: a regular file
 *
 * Block numbers in a file have 32 bits; an indirect map has as many as its pointers; and i_blocks
 * counts 512-byte sectors in 32 bits unless the image has huge_file.
 *
 * Return: bytes.
 */
loff_t ext4_max_size(struct ext4_inode *inode)
{
	struct ext4_volume *vol = ext4_vol(inode);
	unsigned int bits = EXT2_BLOCK_SIZE_BITS(vol->fs->super);
	uint64_t blocks = UINT32_MAX, sectors = UINT32_MAX;

	if (!map_is_extents(inode) && !ext4_is_inline(inode)) {
		uint64_t pointers = vol->fs->blocksize / 4, most = indirect_max_blocks(vol);

		/* The indirect blocks of a full file, which i_blocks counts, too. */
		sectors -= (most / pointers + pointers + 3) << (bits - 9);
		blocks = most < blocks ? most : blocks;
	}
	if (!ext2fs_has_feature_huge_file(vol->fs->super) && sectors >> (bits - 9) < blocks)
		blocks = sectors >> (bits - 9);
	return blocks << bits;
}

/* The upper half last: see is_up_to_date(). Volume lock. */
void file_set_raw_size(struct ext4_inode *inode, uint64_t size)
{
	struct ext4_volume *vol = ext4_vol(inode);

	__atomic_store_n(&inode->raw.i_size, (uint32_t)size, __ATOMIC_RELAXED);
	__atomic_store_n(&inode->raw.i_size_high, size >> 32, __ATOMIC_RELEASE);
	if (ext2fs_needs_large_file_feature(size) &&
	    !ext2fs_has_feature_large_file(vol->fs->super)) {
		ext2fs_set_feature_large_file(vol->fs->super);
		commit_mark_super(vol);
	}
}

int file_update(struct ext4_inode *inode, uint64_t size, unsigned int times)
{
	struct ext4_volume *vol = ext4_vol(inode);
	int err = ext4_begin(vol);

	if (err)
		return err;
	file_set_raw_size(inode, size);
	ext4_touch(inode, times);
	err = ext4_inode_write(inode);
	ext4_end(vol);
	return err;
}

int file_leave_inline(struct ext4_inode *inode)
{
	struct ext4_volume *vol = ext4_vol(inode);
	int err;

	if (!ext4_is_inline(inode))
		return 0;
	err = ext4_begin(vol);
	if (err)
		return err;
	err = inline_convert(inode);
	ext4_end(vol);
	return err;
}

int file_zero_part(struct ext4_inode *inode, loff_t start, loff_t end)
{
	struct mapping *mapping = &inode->vn.mapping;
	struct map_extent found;
	ssize_t done;
	int err;

	if (start >= end)
		return 0;
	err = map_find(inode, start >> mapping->block_shift, &found);
	if (err || !found.pblk || found.unwritten)
		return err;
	done = filemap_write(mapping, start, zeros, end - start);
	if (done < 0)
		return done;
	return done == end - start ? 0 : -EIO;
}

int file_zero_tail(struct ext4_inode *inode, loff_t new_size)
{
	struct mapping *mapping = &inode->vn.mapping;
	loff_t size = mapping_size(mapping), mask = (1 << mapping->block_shift) - 1;
	loff_t end = (size + mask) & ~mask;

	return file_zero_part(inode, size, end < new_size ? end : new_size);
}

/*
 * Writing
 */

/* A write takes the bits from a program that let it run with its owner's rights. */
static void kill_suid(struct ext4_inode *inode)
{
	uint16_t mode = inode->raw.i_mode & ~S_ISUID;

	if (mode & S_IXGRP)
		mode &= ~S_ISGID;
	inode->raw.i_mode = mode;
	__atomic_store_n(&inode->vn.mode, mode, __ATOMIC_RELEASE);
}

/*
 * Has an earlier write brought size and times to what they are to be? Inode lock exclusive.
 *
 * Without the volume lock: writeback may be raising the size, never above what the mapping has. The
 * upper half is written last and read first, so a size that is half old is smaller.
 */
static bool is_up_to_date(const struct ext4_inode *inode)
{
	uint64_t size = (uint64_t)__atomic_load_n(&inode->raw.i_size_high, __ATOMIC_ACQUIRE) << 32;

	size |= __atomic_load_n(&inode->raw.i_size, __ATOMIC_RELAXED);
	return size == (uint64_t)mapping_size(&inode->vn.mapping) &&
	       ext4_is_touched(inode, VATTR_MTIME | VATTR_CTIME);
}

static ssize_t write_data(struct ext4_inode *inode, loff_t pos, const char *buf, size_t len)
{
	struct mapping *mapping = &inode->vn.mapping;
	unsigned int tries = 0;
	bool flushed = false;
	size_t done = 0;

	for (;;) {
		ssize_t n = filemap_write(mapping, pos + done, buf + done, len - done);

		if (n > 0) {
			done += n;
			tries = 0;
		}
		if (done == len || (n <= 0 && n != -ENOSPC))
			return done ? (ssize_t)done : n;
		if (n <= 0 && flushed) {
			if (tries++ == DELETED_TRIES || !inode_wait_deleted(ext4_vol(inode)))
				return done ? (ssize_t)done : n;
			continue;
		}
		cache_sync(mapping->cache, MAPPING_FILE);
		flushed = true;
	}
}

static ssize_t write_locked(struct ext4_inode *inode, loff_t pos, const void *buf, size_t len,
			    unsigned int flags)
{
	struct mapping *mapping = &inode->vn.mapping;
	loff_t max = ext4_max_size(inode);
	ssize_t done;
	int err;

	if (inode->bad)
		return -EUCLEAN;
	if (inode->raw.i_flags & EXT2_IMMUTABLE_FL && !(flags & VWRITE_PAGES))
		return -EPERM;
	if (pos >= max)
		return -EFBIG;
	if ((loff_t)len > max - pos)
		len = max - pos;
	err = file_leave_inline(inode);
	if (!err && pos > mapping_size(mapping))
		err = file_zero_tail(inode, pos);
	if (err)
		return err;
	done = write_data(inode, pos, buf, len);
	if (done <= 0)
		return done;
	if ((flags & VWRITE_KILL_PRIV) && inode->raw.i_mode & (S_ISUID | S_ISGID))
		kill_suid(inode);
	else if (is_up_to_date(inode))
		return done;
	err = file_update(inode, mapping_size(mapping), VATTR_MTIME | VATTR_CTIME);
	return err ? err : done;
}

/* Whether the inode may have security.capability. Locks as for reading raw. */
static bool has_xattrs(struct ext4_inode *inode)
{
	size_t at = EXT2_GOOD_OLD_INODE_SIZE + inode->raw.i_extra_isize;
	uint32_t magic = 0;

	if (inode->raw.i_file_acl || inode->raw.osd2.linux2.l_i_file_acl_high)
		return true;
	if (inode->raw_size >= at + sizeof(magic))
		memcpy(&magic, ext4_raw_bytes(inode) + at, sizeof(magic));
	return magic == ext2fs_cpu_to_le32(EXT2_EXT_ATTR_MAGIC);
}

static void kill_capability(struct ext4_inode *inode)
{
	bool kill;

	pthread_rwlock_rdlock(&inode->lock);
	kill = has_xattrs(inode);
	pthread_rwlock_unlock(&inode->lock);
	if (kill)
		ext4_removexattr(&inode->vn, "security.capability");
}

/**
 * ext4_write - write to a regular file
 * @node: the file
 * @pos: bytes from its start
 * @buf: data
 * @len: bytes
 * @flags: VWRITE_*
 *
 * Context: takes the inode lock. May sleep.
 * Return: bytes written, fewer than @len at a limit or when space ended; -ENOSPC, -EFBIG, -EROFS,
 * -EPERM (immutable) or another error when none was.
 */
ssize_t ext4_write(struct vnode *node, loff_t pos, const void *buf, size_t len,
		   unsigned int flags)
{
	struct ext4_inode *inode = EXT4_I(node);
	ssize_t done;

	if (!S_ISREG(vnode_mode(node)))
		return -EINVAL;
	if (ext4_is_rofs(ext4_vol(inode)))
		return -EROFS;
	if (!len)
		return 0;
	if (flags & VWRITE_KILL_PRIV)
		kill_capability(inode);
	pthread_rwlock_wrlock(&inode->lock);
	if (flags & VWRITE_APPEND)
		pos = mapping_size(&node->mapping);
	done = write_locked(inode, pos, buf, len, flags);
	pthread_rwlock_unlock(&inode->lock);
	return done;
}

/**
 * ext4_fsync - make a file and what is needed to find it durable
 * @node: a regular file or a directory
 * @datasync: times may be left out; here they are not, as the inode's block is written anyway
 *
 * Context: no lock held. May sleep.
 * Return: 0 or the first error of writing.
 */
int ext4_fsync(struct vnode *node, bool datasync)
{
	struct ext4_inode *inode = EXT4_I(node);
	int err = 0;

	if (S_ISREG(vnode_mode(node)))
		err = filemap_write_and_wait(&node->mapping);
	return err ? err : ext4_commit_inode(inode);
}

/*
 * Seeking
 */

static loff_t seek_map(struct ext4_inode *inode, loff_t pos, loff_t size, enum seek_whence whence)
{
	unsigned int bits = inode->vn.mapping.block_shift;

	while (pos < size) {
		struct map_extent found;
		int err = map_find(inode, pos >> bits, &found);

		if (err)
			return err;
		if ((found.pblk && !found.unwritten) == (whence == VSEEK_DATA))
			return pos;
		pos = (loff_t)map_end(&found) << bits;
	}
	return whence == VSEEK_DATA ? -ENXIO : size;
}

/**
 * ext4_seek - the next data or hole of a file
 * @node: a regular file
 * @pos: bytes from its start
 * @whence: which; the end of the file is a hole, unwritten blocks are holes
 *
 * Dirty data that has no place in the map yet is written back first.
 *
 * Context: takes the inode lock shared. May sleep.
 * Return: a position at or behind @pos; -ENXIO when there is none; another error.
 */
loff_t ext4_seek(struct vnode *node, loff_t pos, enum seek_whence whence)
{
	struct ext4_inode *inode = EXT4_I(node);
	struct mapping *mapping = &node->mapping;
	loff_t size, found;

	if (!S_ISREG(vnode_mode(node)))
		return -EINVAL;
	pthread_rwlock_rdlock(&inode->lock);
	size = mapping_size(mapping);
	if (pos < 0 || pos >= size) {
		found = -ENXIO;
	} else if (ext4_is_inline(inode)) {
		found = whence == VSEEK_DATA ? pos : size;
	} else {
		found = filemap_write_range(mapping, pos, size - 1);
		filemap_wait_range(mapping, pos, size - 1);
		if (!found)
			found = seek_map(inode, pos, size, whence);
	}
	pthread_rwlock_unlock(&inode->lock);
	return found;
}
