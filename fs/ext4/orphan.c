/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Orphans: inodes that have no name any more but are in use, or are being truncated.
 *
 * The image keeps them in a list that starts in the superblock and goes on in i_dtime, so that
 * after a crash they can be deleted or truncated. In memory the list is double, since its members
 * leave in any order. A mount finishes what it finds, both in the list and in the orphan file that
 * newer kernels use instead; we write the list only, which every kernel and e2fsck understands.
 *
 * Locks: the volume lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "ext4.h"
#include "log.h"

/* Puts it at the head in memory. */
static void link_in(struct ext4_volume *vol, struct ext4_inode *inode)
{
	inode->orphan = true;
	inode->orphan_prev = NULL;
	inode->orphan_next = vol->orphans;
	if (vol->orphans)
		vol->orphans->orphan_prev = inode;
	vol->orphans = inode;
}

/* Takes it out of the list in memory alone. Nothing when it is not there. */
void orphan_forget(struct ext4_inode *inode)
{
	if (!inode->orphan)
		return;
	if (inode->orphan_prev)
		inode->orphan_prev->orphan_next = inode->orphan_next;
	else
		ext4_vol(inode)->orphans = inode->orphan_next;
	if (inode->orphan_next)
		inode->orphan_next->orphan_prev = inode->orphan_prev;
	inode->orphan = false;
	inode->orphan_next = inode->orphan_prev = NULL;
}

/**
 * orphan_add - note in the image that an inode is to be deleted or truncated
 * @inode: inode; nothing happens when it is noted already
 *
 * Context: between ext4_begin() and ext4_end(). May sleep.
 * Return: 0 or an error, the list as before.
 */
int orphan_add(struct ext4_inode *inode)
{
	struct ext4_volume *vol = ext4_vol(inode);
	struct ext2_super_block *sb = vol->fs->super;
	int err;

	if (inode->orphan)
		return 0;
	inode->raw.i_dtime = sb->s_last_orphan;
	err = ext4_inode_write(inode);
	if (err) {
		inode->raw.i_dtime = 0;
		return err;
	}
	sb->s_last_orphan = inode->vn.ino;
	commit_mark_super(vol);
	link_in(vol, inode);
	return 0;
}

/**
 * orphan_del - an inode need not be looked after any more
 * @inode: inode; nothing happens when it is not on the list
 *
 * Context: between ext4_begin() and ext4_end(). May sleep.
 * Return: 0 or an error of writing an inode; it is off the list in memory in any case.
 */
int orphan_del(struct ext4_inode *inode)
{
	struct ext4_volume *vol = ext4_vol(inode);
	struct ext4_inode *prev = inode->orphan_prev;
	int err = 0;

	if (!inode->orphan)
		return 0;
	if (prev) {
		prev->raw.i_dtime = inode->raw.i_dtime;
		err = ext4_inode_write(prev);
	} else {
		vol->fs->super->s_last_orphan = inode->raw.i_dtime;
		commit_mark_super(vol);
	}
	orphan_forget(inode);
	inode->raw.i_dtime = 0;
	return err ? err : ext4_inode_write(inode);
}

/* Deletes or truncates one. It is referenced, and loses that reference. */
static int finish(struct ext4_volume *vol, struct ext4_inode *inode)
{
	int err = 0;

	if (inode->raw.i_links_count) {
		if (S_ISREG(inode->raw.i_mode)) {
			pthread_rwlock_wrlock(&inode->lock);
			err = ext4_truncate(inode, EXT2_I_SIZE(&inode->raw));
			pthread_rwlock_unlock(&inode->lock);
		}
		if (!err)
			err = ext4_begin(vol);
		if (!err) {
			err = orphan_del(inode);
			ext4_end(vol);
		}
	}
	ext4_iput(inode, 1);
	return err;
}

/* Takes the whole list of the image into memory, referenced; returns how many. Volume lock. */
static unsigned int load_list(struct ext4_volume *vol)
{
	struct ext2_super_block *sb = vol->fs->super;
	struct ext4_inode *inode, *last = NULL;
	unsigned int nr = 0;
	uint32_t ino = sb->s_last_orphan;

	while (ino) {
		if (inode_get_locked(vol, ino, true, &inode))
			break;
		if (inode->orphan) {
			ext4_corrupt(vol, ino, -EUCLEAN, "twice on the orphan list");
			break;
		}
		inode->orphan = true;
		inode->orphan_prev = last;
		if (last)
			last->orphan_next = inode;
		else
			vol->orphans = inode;
		last = inode;
		ino = inode->raw.i_dtime;
		nr++;
	}
	/* What could not be read is cut off: e2fsck finds it by its missing links. */
	if (!ino)
		return nr;
	if (last) {
		last->raw.i_dtime = 0;
		ext4_inode_write(last);
	} else {
		sb->s_last_orphan = 0;
		commit_mark_super(vol);
	}
	return nr;
}

static int clean_list(struct ext4_volume *vol, unsigned int *nr)
{
	unsigned int left;
	int ret = 0;

	ext4_lock(vol);
	left = load_list(vol);
	ext4_unlock(vol);
	for (; left && vol->orphans; left--, ++*nr) {
		struct ext4_inode *inode = vol->orphans;
		int err = finish(vol, inode);

		if (err && !ret)
			ret = err;
		if (err)
			break;
	}
	return ret;
}

/* One block of the orphan file: finishes its inodes, then empties it. */
static int clean_block(struct ext4_volume *vol, uint32_t file, uint64_t blk, unsigned int *nr)
{
	uint32_t *entries = malloc(vol->vol.blocksize);
	unsigned int room = (vol->vol.blocksize - sizeof(struct ext4_orphan_block_tail)) / 4;
	struct ext4_inode *inode;
	int err;

	if (!entries)
		return -ENOMEM;
	ext4_lock(vol);
	err = device_read(vol, blk, entries);
	ext4_unlock(vol);
	for (unsigned int i = 0; !err && i < room; i++) {
		if (!entries[i])
			continue;
		ext4_lock(vol);
		err = inode_get_locked(vol, entries[i], true, &inode);
		ext4_unlock(vol);
		if (!err)
			err = finish(vol, inode);
		++*nr;
	}
	if (!err)
		err = ext4_begin(vol);
	if (!err) {
		memset(entries, 0, room * 4);
		ext2fs_orphan_file_block_csum_set(vol->fs, file, blk, (char *)entries);
		err = device_write(vol, blk, entries);
		ext4_end(vol);
	}
	free(entries);
	return err;
}

static int clean_file(struct ext4_volume *vol, unsigned int *nr)
{
	struct ext2_super_block *sb = vol->fs->super;
	uint32_t ino = sb->s_orphan_file_inum;
	struct ext2_inode raw;
	uint64_t blocks;
	int err = 0;

	if (!ext2fs_has_feature_orphan_file(sb) || !ext2fs_has_feature_orphan_present(sb))
		return 0;
	if (ext2fs_read_inode(vol->fs, ino, &raw))
		return -EUCLEAN;
	blocks = EXT2_I_SIZE(&raw) / vol->vol.blocksize;
	for (uint64_t i = 0; !err && i < blocks; i++) {
		blk64_t blk = 0;

		if (ext2fs_bmap2(vol->fs, ino, &raw, NULL, 0, i, NULL, &blk) || !blk)
			return -EUCLEAN;
		err = clean_block(vol, ino, blk, nr);
	}
	if (err)
		return err;
	ext2fs_clear_feature_orphan_present(sb);
	commit_mark_super(vol);
	return 0;
}

/**
 * orphan_cleanup - finish what an unclean unmount left undone
 * @vol: volume, writable
 *
 * Context: mount. Takes the volume lock.
 * Return: 0 or the first error; the rest stays on the list.
 */
int orphan_cleanup(struct ext4_volume *vol)
{
	unsigned int nr = 0;
	int err = clean_list(vol, &nr);
	int ret = clean_file(vol, &nr);

	if (nr)
		log_info("%s: %u deleted or half truncated files cleaned up", vol->vol.image->name,
			 nr);
	return err ? err : ret;
}
