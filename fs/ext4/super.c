/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Opening and closing an ext2, ext3 or ext4 volume.
 *
 * A mount looks before it touches (probe.c), puts the image under its mapping and libext2fs on
 * that, replays the journal (recover.c; then all that was read is read again), checks the
 * descriptors, and, read-write, clears the clean flag on the image before anything else is changed,
 * and finishes orphans. An unmount writes files, then metadata, makes both durable, and only then
 * sets the clean flag again (as it was found: an image that was unclean stays so until e2fsck has
 * looked at it).
 *
 * The bitmaps are read by the first change: a read-only mount, and one that is only read, do not
 * pay for them.
 *
 * Locks: see ext4.h. The mounting and unmounting thread is alone.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "ext4.h"
#include "log.h"
#include "txn.h"

#define BITS_MAX (1ULL << 26)	/* blocks of an image whose bitmaps are kept as they are */

void ext4_lock(struct ext4_volume *vol)
{
	pthread_mutex_lock(&vol->lock);
}

void ext4_unlock(struct ext4_volume *vol)
{
	pthread_mutex_unlock(&vol->lock);
}

static int load_bitmaps(struct ext4_volume *vol)
{
	errcode_t err = ext2fs_read_bitmaps(vol->fs);

	if (!err)
		return blocks_loaded(vol);
	if (vol->fs->block_map)
		ext2fs_free_block_bitmap(vol->fs->block_map);
	if (vol->fs->inode_map)
		ext2fs_free_inode_bitmap(vol->fs->inode_map);
	vol->fs->block_map = NULL;
	vol->fs->inode_map = NULL;
	return ext4_failed(vol, 0, err, "the bitmaps cannot be read");
}

/**
 * ext4_begin - start a change of metadata
 * @vol: volume
 *
 * Context: takes the volume lock and keeps it until ext4_end(). May sleep: the first change reads
 * the bitmaps, and when the transaction or the log is full this waits for a commit.
 * Return: 0; -EROFS, -EIO (stopped by errors=panic), -EUCLEAN or another error, nothing held then.
 */
int ext4_begin(struct ext4_volume *vol)
{
	int err = 0;

	for (;;) {
		ext4_lock(vol);
		if (__atomic_load_n(&vol->shutdown, __ATOMIC_ACQUIRE))
			err = -EIO;
		else if (ext4_is_rofs(vol))
			err = -EROFS;
		else if (!vol->taken || !vol->fs->inode_map)
			err = load_bitmaps(vol);
		if (!err && txn_has_room(vol))
			return 0;
		ext4_unlock(vol);
		if (!err)
			err = txn_make_room(vol);
		if (err)
			return err;
	}
}

void ext4_end(struct ext4_volume *vol)
{
	ext4_unlock(vol);
}

static struct vnode *ext4_root(struct volume *volume)
{
	struct ext4_inode *root = EXT4_VOL(volume)->root;

	ext4_igrab(root);
	return &root->vn;
}

static void ext4_get(struct vnode *node)
{
	ext4_igrab(EXT4_I(node));
}

static void ext4_put(struct vnode *node, uint64_t nr)
{
	ext4_iput(EXT4_I(node), nr);
}

/* Blocks of superblocks, descriptors, bitmaps and inode tables, and the journal's */
static uint64_t count_overhead(ext2_filsys fs)
{
	uint64_t blocks = fs->super->s_first_data_block;
	struct ext2_inode journal;

	for (dgrp_t group = 0; group < fs->group_desc_count; group++) {
		blk_t used;

		ext2fs_super_and_bgd_loc2(fs, group, NULL, NULL, NULL, &used);
		blocks += used + 2 + fs->inode_blocks_per_group;
	}
	if (fs->super->s_journal_inum &&
	    !ext2fs_read_inode(fs, fs->super->s_journal_inum, &journal))
		blocks += EXT2_I_SIZE(&journal) / fs->blocksize;
	return blocks;
}

int ext4_statfs(struct volume *volume, struct statvfs *st)
{
	struct ext4_volume *vol = EXT4_VOL(volume);
	struct ext2_super_block *sb = vol->fs->super;

	memset(st, 0, sizeof(*st));
	ext4_lock(vol);
	if (!vol->overhead)
		vol->overhead = count_overhead(vol->fs);
	st->f_blocks = ext2fs_blocks_count(sb);
	if (!volume->options->minixdf && vol->overhead < st->f_blocks)
		st->f_blocks -= vol->overhead;
	st->f_files = sb->s_inodes_count;
	st->f_ffree = st->f_favail = sb->s_free_inodes_count;
	memcpy(&st->f_fsid, sb->s_uuid, sizeof(st->f_fsid));
	ext4_unlock(vol);
	pthread_mutex_lock(&vol->space_lock);
	if (vol->free_blocks + vol->freed_blocks > vol->reserved_blocks)
		st->f_bfree = vol->free_blocks + vol->freed_blocks - vol->reserved_blocks;
	pthread_mutex_unlock(&vol->space_lock);
	st->f_bavail = blocks_available(vol);
	st->f_bsize = st->f_frsize = volume->blocksize;
	st->f_namemax = EXT2_NAME_LEN;
	return 0;
}

static int ext4_close(struct volume *volume);

static const struct volume_ops ext4_ops = {
	.lookup = ext4_lookup,
	.mknod = ext4_mknod,
	.mkdir = ext4_mkdir,
	.symlink = ext4_symlink,
	.link = ext4_link,
	.unlink = ext4_unlink,
	.rmdir = ext4_rmdir,
	.rename = ext4_rename,
	.readlink = ext4_readlink,
	.readdir = ext4_readdir,
	.getattr = ext4_getattr,
	.setattr = ext4_setattr,
	.root = ext4_root,
	.get = ext4_get,
	.put = ext4_put,
	.statfs = ext4_statfs,
	.open = ext4_check_open,
	.accessed = ext4_accessed,
	.write = ext4_write,
	.fsync = ext4_fsync,
	.fallocate = ext4_fallocate,
	.seek = ext4_seek,
	.copy_range = ext4_copy_range,
	.getxattr = ext4_getxattr,
	.setxattr = ext4_setxattr,
	.listxattr = ext4_listxattr,
	.removexattr = ext4_removexattr,
	.getflags = ext4_getflags,
	.setflags = ext4_setflags,
	.getfsxattr = ext4_getfsxattr,
	.trim = ext4_trim,
	.getlabel = ext4_getlabel,
	.setlabel = ext4_setlabel,
	.sync = ext4_sync,
	.close = ext4_close,
};

static struct ext4_volume *volume_new(struct image *image, struct cache *cache,
				      const struct options *options)
{
	struct ext4_volume *vol = calloc(1, sizeof(*vol));

	if (!vol)
		return NULL;
	vol->vol.ops = &ext4_ops;
	vol->vol.image = image;
	vol->vol.cache = cache;
	vol->vol.options = options;
	vol->vol.posix_acl = options->acl;
	vol->itable_window = UINT64_MAX;
	file_ra_init(&vol->dir_ra);
	pthread_mutex_init(&vol->lock, NULL);
	pthread_mutex_init(&vol->icache_lock, NULL);
	pthread_cond_init(&vol->deletion, NULL);
	pthread_mutex_init(&vol->commit_lock, NULL);
	pthread_cond_init(&vol->commit_wake, NULL);
	return vol;
}

/* Frees what there is of a volume; drops all that its mappings hold. */
static void volume_free(struct ext4_volume *vol)
{
	txn_close(vol);
	commit_finish(vol);
	if (vol->taken)
		ext2fs_free_block_bitmap(vol->taken);
	if (vol->fs)
		ext2fs_free(vol->fs);
	if (vol->has_device) {
		filemap_invalidate_lock(&vol->device);
		truncate_all(&vol->device);
		filemap_invalidate_unlock(&vol->device);
		mapping_finish(&vol->device);
	}
	image_close(vol->view);
	file_ra_finish(&vol->dir_ra);
	pthread_cond_destroy(&vol->commit_wake);
	pthread_mutex_destroy(&vol->commit_lock);
	pthread_cond_destroy(&vol->deletion);
	pthread_mutex_destroy(&vol->icache_lock);
	pthread_mutex_destroy(&vol->lock);
	free(vol->icache);
	free(vol);
}

/* Looks at the superblock and decides whether to write. */
static int probe(struct ext4_volume *vol, struct ext2_super_block *sb)
{
	const struct options *options = vol->vol.options;
	struct image *image = vol->vol.image;
	bool readonly = options->ro || options->norecovery || image->readonly;
	int err = probe_read_super(image, sb);

	if (!err)
		err = probe_super(image, sb, &readonly);
	if (err)
		return err;
	vol->vol.readonly = readonly;
	vol->writable = !readonly;
	vol->vol.blocksize = EXT2_BLOCK_SIZE(sb);
	vol->vol.time_gran = EXT2_INODE_SIZE(sb) > EXT2_GOOD_OLD_INODE_SIZE ? 1 : 1000000000;
	return 0;
}

static int open_device(struct ext4_volume *vol, struct ext2_super_block *sb)
{
	int ret = mapping_init(&vol->device, vol->vol.cache, MAPPING_DEVICE,
			       EXT2_BLOCK_SIZE_BITS(sb), &device_mapping_ops, vol);

	vol->has_device = !ret;
	return ret;
}

/* Opens libext2fs on the device mapping, again when the image has changed under it. */
static int open_fs(struct ext4_volume *vol, struct ext2_super_block *sb)
{
	errcode_t err;

	if (vol->fs) {
		ext2fs_free(vol->fs);
		vol->fs = NULL;
		invalidate_blocks(&vol->device, 0, mapping_size(&vol->device));
	}
	mapping_set_size(&vol->device, ext2fs_blocks_count(sb) * vol->vol.blocksize);
	err = device_open_fs(vol, EXT2_FLAG_64BITS | EXT2_FLAG_SKIP_MMP |
					  (vol->writable ? EXT2_FLAG_RW : 0));
	if (err) {
		log_error("%s: cannot be opened: %s", vol->vol.image->name, error_message(err));
		return ext4_errno(err);
	}
	/*
	 * Bits as on the image: what they cost does not depend on how the free space lies. Only for
	 * very large images runs of bits, in a tree, are the lesser evil.
	 */
	vol->fs->default_bitmap_type = ext2fs_blocks_count(sb) <= BITS_MAX ?
				       EXT2FS_BMAP64_BITARRAY : EXT2FS_BMAP64_RBTREE;
	inode_install_hooks(vol);
	return 0;
}

/* The file system, with nothing left in its journal */
static int open_recovered(struct ext4_volume *vol, struct ext2_super_block *sb)
{
	bool changed = false;
	int err = open_fs(vol, sb);

	if (!err)
		err = recover_journal(vol, sb, &changed);
	if (!err && changed)
		err = open_fs(vol, sb);
	return err ? err : probe_groups(vol);
}

static int open_root(struct ext4_volume *vol)
{
	int err = ext4_iget(vol, EXT2_ROOT_INO, &vol->root);

	if (!err && !S_ISDIR(vol->root->raw.i_mode)) {
		ext4_iput(vol->root, 1);
		vol->root = NULL;
		log_error("%s: the root directory is damaged; run e2fsck", vol->vol.image->name);
		return -EUCLEAN;
	}
	/* Damage was told when it was met. */
	if (err && err != -EUCLEAN)
		log_error("%s: the root directory cannot be read: %s", vol->vol.image->name,
			  strerror(-err));
	return err;
}

static void warn_of_state(struct ext4_volume *vol)
{
	struct ext2_super_block *sb = vol->fs->super;

	if (sb->s_state & EXT2_ERROR_FS)
		log_warn("%s: has errors noted; e2fsck is recommended", vol->vol.image->name);
	else if (!(sb->s_state & EXT2_VALID_FS))
		log_warn("%s: was not unmounted cleanly; e2fsck is recommended",
			 vol->vol.image->name);
}

/*
 * Says on the image that it is in use, before anything else changes: with a journal that it is to be
 * replayed, else that it is not clean.
 */
static int mark_mounted(struct ext4_volume *vol)
{
	struct ext2_super_block *sb = vol->fs->super;
	const char *where = vol->vol.options->mountpoint;
	uint64_t now = time(NULL);

	warn_of_state(vol);
	vol->clean_state = sb->s_state & EXT2_VALID_FS;
	if (ext2fs_has_feature_journal(sb))
		ext2fs_set_feature_journal_needs_recovery(sb);
	else
		sb->s_state &= ~EXT2_VALID_FS;
	sb->s_mnt_count++;
	sb->s_mtime = now;
	sb->s_mtime_hi = now >> 32;
	if (where) {
		memset(sb->s_last_mounted, 0, sizeof(sb->s_last_mounted));
		memcpy(sb->s_last_mounted, where, strnlen(where, sizeof(sb->s_last_mounted) - 1));
	}
	commit_mark_super(vol);
	return ext4_commit(vol);
}

/* The journal is empty, if there is one. */
static int mark_clean(struct ext4_volume *vol)
{
	ext2fs_clear_feature_journal_needs_recovery(vol->fs->super);
	vol->fs->super->s_state |= vol->clean_state;
	commit_mark_super(vol);
	return ext4_commit(vol);
}

static int start_writing(struct ext4_volume *vol)
{
	int err = txn_check_cache(vol);

	if (err)
		return err;
	err = mark_mounted(vol);
	if (!err)
		err = txn_open(vol);
	if (err) {
		log_error("%s: cannot be written: %s", vol->vol.image->name, strerror(-err));
		return err;
	}
	if (orphan_cleanup(vol))
		log_warn("%s: deleted files could not all be cleaned up; e2fsck is recommended",
			 vol->vol.image->name);
	return commit_start(vol);
}

static int open_parts(struct ext4_volume *vol)
{
	struct ext2_super_block sb;
	int err;

	maps_init(vol);
	err = probe(vol, &sb);
	if (!err)
		err = icache_init(vol);
	if (!err)
		err = open_device(vol, &sb);
	if (!err)
		err = open_recovered(vol, &sb);
	if (!err)
		err = commit_init(vol);
	if (!err)
		err = blocks_init(vol);
	if (!err)
		err = open_root(vol);
	if (!err && vol->writable)
		err = start_writing(vol);
	return err;
}

/**
 * ext4_open - mount an ext2, ext3 or ext4 image
 * @out: the volume
 * @image: the image; stays the caller's
 * @cache: the cache; stays the caller's
 * @options: mount options; must outlive the volume
 *
 * Context: starts a thread. Before any other thread knows the volume.
 * Return: 0, or a negative errno after one clear line.
 */
int ext4_open(struct volume **out, struct image *image, struct cache *cache,
	      const struct options *options)
{
	struct ext4_volume *vol = volume_new(image, cache, options);
	int err;

	initialize_ext2_error_table();
	if (!vol)
		return -ENOMEM;
	err = open_parts(vol);
	if (err == -ENOMEM)
		log_error("%s: %s", image->name, strerror(ENOMEM));
	if (err) {
		if (vol->root)
			ext4_iput(vol->root, 1);
		volume_free(vol);
		return err;
	}
	*out = &vol->vol;
	return 0;
}

/* ->close: see volume.h. Nobody uses the volume any more; inodes still referenced are dropped. */
static int ext4_close(struct volume *volume)
{
	struct ext4_volume *vol = EXT4_VOL(volume);
	int err, ret;

	commit_stop(vol);
	ret = ext4_sync(volume);
	ext4_iput(vol->root, 1);
	icache_finish(vol);
	err = ext4_commit(vol);
	if (!err && !ret && vol->writable)
		err = txn_close(vol);
	if (!err && !ret && vol->writable)
		err = mark_clean(vol);
	volume_free(vol);
	return ret ? ret : err;
}
