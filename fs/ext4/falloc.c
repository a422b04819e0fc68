/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * fallocate: blocks without data, holes, zeros.
 *
 * Whole blocks are handled in the map, parts of blocks at the edges of a range by zeros in the page
 * cache, which forgets what it has of a range before its map changes. A range that reaches the
 * file's end takes the last block whole. Whatever may fail for want of space comes before whatever
 * loses data.
 *
 * Locks: inode lock exclusive; the invalidate lock while cache and map disagree.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include "file.h"
#include "txn.h"

/* A range of bytes, and the whole blocks in it: [first, stop). */
struct range {
	loff_t start, end;
	uint64_t first, stop;
};

static uint64_t block_up(const struct ext4_inode *inode, loff_t pos)
{
	unsigned int bits = inode->vn.mapping.block_shift;

	return ((uint64_t)pos + (1 << bits) - 1) >> bits;
}

static struct range make_range(struct ext4_inode *inode, loff_t start, loff_t end)
{
	unsigned int bits = inode->vn.mapping.block_shift;
	struct range range = { .start = start, .end = end };

	range.first = block_up(inode, start);
	range.stop = (uint64_t)end >> bits;
	if (end >= mapping_size(&inode->vn.mapping)) {
		range.stop = block_up(inode, end);
		range.end = range.stop << bits;
	}
	return range;
}

/* Unwritten blocks for the holes of [first, *stop), as far as one operation goes: to *@stop. */
static int allocate_part(struct ext4_inode *inode, uint32_t first, uint64_t *stop)
{
	struct ext4_volume *vol = ext4_vol(inode);
	int tries, err;

	/*
	 * Once more when all that is delayed has got its blocks: worst cases are then facts. And
	 * when unlinked files have given theirs back.
	 */
	for (tries = 0;; tries++) {
		uint64_t end = *stop;

		err = ext4_begin(vol);
		if (err)
			return err;
		err = map_preallocate(inode, first, &end);
		ext4_end(vol);
		if (!err)
			*stop = end;
		if (err != -ENOSPC || tries == DELETED_TRIES)
			return err;
		if (!tries)
			cache_sync(vol->vol.cache, MAPPING_FILE);
		else if (!inode_wait_deleted(vol))
			return err;
	}
}

/*
 * The same for bytes, in as many operations as it takes. Until the size has grown, which is done
 * last, unwritten blocks lie behind it, as FALLOC_FL_KEEP_SIZE leaves them. Each operation looks at
 * all holes of its range, so that has a bound, too.
 */
static int allocate(struct ext4_inode *inode, loff_t start, loff_t end)
{
	uint64_t most = (uint64_t)txn_step_groups(ext4_vol(inode)) / 2 *
			ext4_vol(inode)->fs->super->s_blocks_per_group;
	uint64_t at = start >> inode->vn.mapping.block_shift, last = block_up(inode, end), stop;
	int err = 0;

	for (; at < last && !err; at = stop) {
		stop = last - at < most ? last : at + most;
		err = allocate_part(inode, at, &stop);
	}
	return err;
}

/* Ends an operation: size, unless it is kept, and times. */
static int finish(struct ext4_inode *inode, loff_t end, bool keep_size)
{
	struct mapping *mapping = &inode->vn.mapping;
	int err = 0;

	if (!keep_size && end > mapping_size(mapping)) {
		err = file_zero_tail(inode, end);
		if (!err)
			mapping_set_size(mapping, end);
	}
	return err ? err : file_update(inode, mapping_size(mapping), VATTR_MTIME | VATTR_CTIME);
}

/* The range's whole blocks become a hole, or unwritten, in changes of their own. */
static int empty_blocks(struct ext4_inode *inode, const struct range *range, bool keep)
{
	struct ext4_volume *vol = ext4_vol(inode);
	uint64_t at, stop;
	int err = 0;

	if (range->first >= range->stop)
		return 0;
	if (!keep)
		return file_remove(inode, range->first, range->stop);
	for (at = range->first; at < range->stop && !err; at = stop) {
		stop = range->stop;
		err = ext4_begin(vol);
		if (err)
			return err;
		err = map_set_unwritten(inode, at, &stop);
		ext4_end(vol);
	}
	return err;
}

static int punch_hole(struct ext4_inode *inode, loff_t start, loff_t end)
{
	struct range range = make_range(inode, start, end);
	int err = 0;

	filemap_invalidate_lock(&inode->vn.mapping);
	/* A hole divides an extent, too. If that needs a block that is not there, it shows here. */
	if (map_is_extents(inode) && blocks_tight(ext4_vol(inode)))
		err = empty_blocks(inode, &range, true);
	if (!err)
		err = truncate_hole(&inode->vn.mapping, range.start, range.end);
	if (!err)
		err = empty_blocks(inode, &range, false);
	filemap_invalidate_unlock(&inode->vn.mapping);
	return err ? err : finish(inode, 0, true);
}

static int zero_range(struct ext4_inode *inode, loff_t start, loff_t end, bool keep_size)
{
	struct range range = make_range(inode, start, end);
	int err = allocate(inode, start, end);

	if (err)
		return err;
	filemap_invalidate_lock(&inode->vn.mapping);
	/* What fails for want of space comes before data is dropped. A flusher may make blocks
	 * written as long as their folios are dirty: hence once more after. */
	err = empty_blocks(inode, &range, true);
	if (!err)
		err = truncate_hole(&inode->vn.mapping, range.start, range.end);
	if (!err)
		err = empty_blocks(inode, &range, true);
	filemap_invalidate_unlock(&inode->vn.mapping);
	return err ? err : finish(inode, end, keep_size);
}

static int fallocate_locked(struct ext4_inode *inode, int mode, loff_t start, loff_t end)
{
	bool keep_size = mode & FALLOC_FL_KEEP_SIZE;
	int err = inode->bad ? -EUCLEAN : ext4_may_change(inode);

	if (!err)
		err = file_leave_inline(inode);
	if (err)
		return err;
	if (mode & FALLOC_FL_PUNCH_HOLE) {
		loff_t max = ext4_max_size(inode);

		if (start >= max)
			return 0;
		return punch_hole(inode, start, end < max ? end : max);
	}
	if (!map_is_extents(inode))
		return -EOPNOTSUPP;
	if (end > ext4_max_size(inode))
		return -EFBIG;
	if (mode & FALLOC_FL_ZERO_RANGE)
		return zero_range(inode, start, end, keep_size);
	err = allocate(inode, start, end);
	return err ? err : finish(inode, end, keep_size);
}

/**
 * ext4_fallocate - as fallocate(2)
 * @node: a regular file
 * @mode: 0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE with it or without, FALLOC_FL_PUNCH_HOLE
 *	with it
 * @pos: bytes from its start
 * @len: bytes
 *
 * Context: takes the inode lock. May sleep.
 * Return: 0; -EOPNOTSUPP for other modes, and for all but holes in files without extents; -ENOSPC
 * (nothing is lost, the size is as it was); -EFBIG; another error.
 */
int ext4_fallocate(struct vnode *node, int mode, loff_t pos, loff_t len)
{
	struct ext4_inode *inode = EXT4_I(node);
	loff_t end;
	int err;

	if (!S_ISREG(vnode_mode(node)))
		return S_ISDIR(vnode_mode(node)) ? -EISDIR : -ENODEV;
	if (pos < 0 || len <= 0)
		return -EINVAL;
	if (__builtin_add_overflow(pos, len, &end))
		return -EFBIG;
	if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE) ||
	    (mode & FALLOC_FL_PUNCH_HOLE && mode & FALLOC_FL_ZERO_RANGE) ||
	    (mode & FALLOC_FL_PUNCH_HOLE && !(mode & FALLOC_FL_KEEP_SIZE)))
		return -EOPNOTSUPP;
	if (ext4_is_rofs(ext4_vol(inode)))
		return -EROFS;
	pthread_rwlock_wrlock(&inode->lock);
	err = fallocate_locked(inode, mode, pos, end);
	pthread_rwlock_unlock(&inode->lock);
	return err;
}
