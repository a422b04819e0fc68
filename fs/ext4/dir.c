/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Directories: loading the index, and changing blocks and index together.
 *
 * Loading is one pass over all blocks with full checks. A bad block makes the whole directory
 * unusable (EUCLEAN) until it is repaired, but nothing else.
 *
 * A change reads the one block, changes it in a buffer, writes it, and only then changes the index,
 * in a step that cannot fail. What can fail for want of space comes before anything is written.
 *
 * A directory without htree takes a new name in the first block with a gap. When its only block is
 * full and the file system has the dir_index feature, it gets an htree (htree_split.c); without
 * the feature it grows block by block. Removal never shrinks a directory.
 *
 * A directory that lies in its inode (inline_data) is read through libext2fs. Before its first
 * change it is moved to a block, which is built from the index.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "dir.h"
#include "map.h"
#include "xattr.h"

#define READ_AHEAD 32 /* blocks */

/**
 * dir_type - what an entry says of its inode
 * @dir: directory the entry is in
 * @mode: mode of the inode
 *
 * Return: an EXT2_FT_ value; 0 without the filetype feature.
 */
unsigned int dir_type(struct ext4_inode *dir, mode_t mode)
{
	static const unsigned char types[] = {
		[S_IFREG >> 12] = EXT2_FT_REG_FILE, [S_IFDIR >> 12] = EXT2_FT_DIR,
		[S_IFCHR >> 12] = EXT2_FT_CHRDEV,   [S_IFBLK >> 12] = EXT2_FT_BLKDEV,
		[S_IFIFO >> 12] = EXT2_FT_FIFO,	    [S_IFSOCK >> 12] = EXT2_FT_SOCK,
		[S_IFLNK >> 12] = EXT2_FT_SYMLINK,
	};
	unsigned int type = (mode & S_IFMT) >> 12;

	if (!ext2fs_has_feature_filetype(ext4_vol(dir)->fs->super) || type >= sizeof(types))
		return EXT2_FT_UNKNOWN;
	return types[type];
}

static int add_loaded(struct ext4_inode *dir, const struct ext2_dir_entry *de, uint32_t lblk,
		      uint64_t serial)
{
	struct dir_name *dn = dir_index_prepare(dir->index, de->name, ext2fs_dirent_name_len(de));

	if (!dn)
		return -ENOMEM;
	dn->ino = de->inode;
	dn->type = ext2fs_dirent_file_type(de);
	dn->lblk = lblk;
	dir_index_add(dir->index, dn, serial);
	return 0;
}

static bool is_name(const struct ext2_dir_entry *de, const char *name)
{
	unsigned int len = ext2fs_dirent_name_len(de);

	return de->inode && len == strlen(name) && !memcmp(de->name, name, len);
}

/* All entries of one leaf; block 0 starts with . and .. */
static int load_block(struct ext4_inode *dir, uint32_t lblk, void *buf)
{
	unsigned int offset = 0, end = dir_block_end(dir);
	struct dir_index *index = dir->index;
	struct ext2_dir_entry *de = dirent_at(buf, 0);

	if (!lblk) {
		struct ext2_dir_entry *up = dirent_at(buf, DIR_MIN_REC);

		offset = DIR_MIN_REC + dirent_len(up);
		if (!is_name(de, ".") || de->inode != dir->vn.ino || dirent_len(de) != DIR_MIN_REC ||
		    !is_name(up, ".."))
			return ext4_corrupt(ext4_vol(dir), dir->vn.ino, -EUCLEAN,
					    "directory without . and ..");
		index->parent = up->inode;
	}
	for (; offset < end; offset += dirent_len(de)) {
		int err;

		de = dirent_at(buf, offset);
		if (!de->inode)
			continue;
		if (is_name(de, ".") || is_name(de, ".."))
			return ext4_corrupt(ext4_vol(dir), dir->vn.ino, -EUCLEAN,
					    "directory with . or .. in the middle");
		err = add_loaded(dir, de, lblk, (uint64_t)lblk * dir_blocksize(dir) + offset);
		if (err)
			return err;
	}
	dir_index_set_gap(index, lblk, dir_block_gap(dir, buf));
	return 0;
}

static bool is_node(const uint8_t *nodes, uint32_t lblk)
{
	return nodes && nodes[lblk / 8] & 1U << lblk % 8;
}

/* Brings what lies together with @lblk into the cache; returns the block up to where it has. */
static uint32_t read_ahead(struct ext4_inode *dir, uint32_t lblk, uint32_t nr)
{
	struct map_extent ext;
	uint32_t len = nr - lblk;

	if (map_find_locked(dir, lblk, &ext) || !ext.pblk)
		return lblk + 1;
	if (len > ext.len)
		len = ext.len;
	if (len > READ_AHEAD)
		len = READ_AHEAD;
	device_readahead_dir(ext4_vol(dir), ext.pblk, len);
	return lblk + len;
}

static int load_leaves(struct ext4_inode *dir, uint32_t nr, const uint8_t *nodes)
{
	uint32_t ahead = 0;
	DIR_BUF(buf);
	int err = 0;

	for (uint32_t lblk = 0; !err && lblk < nr; lblk++) {
		if (lblk == ahead)
			ahead = read_ahead(dir, lblk, nr);
		if (is_node(nodes, lblk))
			continue;
		err = dir_block_read(dir, lblk, buf);
		if (!err)
			err = dir_block_check(dir, lblk, buf);
		if (!err)
			err = load_block(dir, lblk, buf);
	}
	return err;
}

static int load_blocks(struct ext4_inode *dir)
{
	struct ext4_volume *vol = ext4_vol(dir);
	uint64_t size = EXT2_I_SIZE(&dir->raw), nr = size / dir_blocksize(dir);
	uint8_t *nodes = NULL;
	int err;

	if (!nr || size % dir_blocksize(dir) || nr > ext2fs_blocks_count(vol->fs->super))
		return ext4_corrupt(vol, dir->vn.ino, -EUCLEAN, "directory of %llu bytes",
				    (unsigned long long)size);
	dir->index->next_serial = size;
	err = dir_index_grow(dir->index, nr);
	if (err)
		return err;
	if (dir->raw.i_flags & EXT2_INDEX_FL) {
		dir->index->htree = true;
		nodes = calloc(1, nr / 8 + 1);
		if (!nodes)
			return -ENOMEM;
		err = htree_scan(dir, nodes, nr);
	}
	if (!err)
		err = load_leaves(dir, nr, nodes);
	free(nodes);
	if (dir->index->next_serial < size)
		dir->index->next_serial = size;
	return err;
}

struct load_inline {
	struct ext4_inode *dir;
	int err;
	uint64_t serial;
};

static int load_inline_entry(ext2_ino_t ino, int entry, struct ext2_dir_entry *de, int offset,
			     int blocksize, char *buf, void *arg)
{
	struct load_inline *load = arg;

	(void)ino, (void)entry, (void)offset, (void)blocksize, (void)buf;
	if (!de->inode || is_name(de, ".") || is_name(de, ".."))
		return 0;
	if (!dir_entry_is_sane(load->dir, de))
		load->err = ext4_corrupt(ext4_vol(load->dir), load->dir->vn.ino, -EUCLEAN,
					 "bad entry in an inline directory");
	else
		load->err = add_loaded(load->dir, de, 0, load->serial++);
	return load->err ? DIRENT_ABORT : 0;
}

static int load_inline(struct ext4_inode *dir)
{
	struct load_inline load = {.dir = dir, .serial = 1};
	struct ext4_volume *vol = ext4_vol(dir);
	errcode_t err;

	/* The inode's block map starts with what .. says; the library does not tell it. */
	dir->index->parent = dir->raw.i_block[0];
	if (!dir->index->parent || dir->index->parent > vol->fs->super->s_inodes_count)
		return ext4_corrupt(vol, dir->vn.ino, -EUCLEAN, "inline directory without ..");
	err = ext2fs_dir_iterate2(ext4_vol(dir)->fs, dir->vn.ino, DIRENT_FLAG_INCLUDE_INLINE_DATA,
				  NULL, load_inline_entry, &load);
	if (load.err)
		return load.err;
	if (err)
		return ext4_failed(ext4_vol(dir), dir->vn.ino, err, "reading an inline directory");
	/* Behind every position in the block that it moves to when it is changed. */
	dir->index->next_serial = dir_blocksize(dir);
	return 0;
}

/**
 * dir_load - have the index in memory
 * @dir: directory
 *
 * Context: inode lock exclusive; takes the volume lock; may sleep.
 * Return: 0, -EUCLEAN, -EIO, -ENOMEM.
 */
int dir_load(struct ext4_inode *dir)
{
	struct dir_index *index;
	int err;

	if (dir->bad)
		return -EUCLEAN;
	if (dir->index)
		return 0;
	index = dir_index_new(dir);
	if (!index)
		return -ENOMEM;
	dir->index = index;
	ext4_lock(ext4_vol(dir));
	if (dir->raw.i_flags & EXT4_INLINE_DATA_FL)
		err = load_inline(dir);
	else
		err = load_blocks(dir);
	ext4_unlock(ext4_vol(dir));
	if (err)
		dir_index_free(dir);
	else
		dir_index_used(dir);
	return err;
}

/**
 * dir_lock_shared - take the inode lock to look names up
 * @dir: directory
 *
 * Context: takes the inode lock shared and holds it on success; may take it exclusively and the
 * volume lock before, to load the index; may sleep.
 * Return: 0, or an error of dir_load() (then no lock is held).
 */
int dir_lock_shared(struct ext4_inode *dir)
{
	int err;

	for (;;) {
		pthread_rwlock_rdlock(&dir->lock);
		if (dir->index)
			return 0;
		pthread_rwlock_unlock(&dir->lock);
		pthread_rwlock_wrlock(&dir->lock);
		err = dir_load(dir);
		pthread_rwlock_unlock(&dir->lock);
		if (err)
			return err;
	}
}

/**
 * dir_grow - give a directory more blocks
 * @dir: directory
 * @nr: how many
 * @first: out: the first of them
 *
 * All or none. Their content is the caller's to write, and the inode, too.
 *
 * Context: inode lock exclusive, between begin and end; may sleep.
 * Return: 0, -ENOSPC or another error.
 */
int dir_grow(struct ext4_inode *dir, uint32_t nr, uint32_t *first)
{
	uint64_t size = EXT2_I_SIZE(&dir->raw);
	uint32_t lblk = size / dir_blocksize(dir);
	uint64_t end;
	int err;

	err = dir_index_grow(dir->index, lblk + nr);
	if (err)
		return err;
	err = map_alloc(dir, lblk, nr);
	if (err) {
		end = lblk + nr;
		map_remove(dir, lblk, &end);
		dir->index->nr_blocks = lblk;
		return err;
	}
	size += (uint64_t)nr * dir_blocksize(dir);
	dir->raw.i_size = size;
	dir->raw.i_size_high = size >> 32;
	*first = lblk;
	return 0;
}

/**
 * dir_init - give a new directory its first block
 * @dir: new inode, without blocks
 * @parent: inode number of ..
 *
 * Context: between begin and end, nobody else knows @dir; may sleep.
 * Return: 0, -ENOSPC or another error. The inode is not written.
 */
int dir_init(struct ext4_inode *dir, uint32_t parent)
{
	uint32_t first;
	DIR_BUF(buf);
	int err;

	dir->index = dir_index_new(dir);
	if (!dir->index)
		return -ENOMEM;
	err = dir_grow(dir, 1, &first);
	if (err)
		return err;
	dir_block_init_first(dir, buf, parent);
	dir->index->parent = parent;
	dir->index->next_serial = dir_blocksize(dir);
	dir_index_set_gap(dir->index, first, dir_block_gap(dir, buf));
	return dir_block_write(dir, first, buf);
}

/* The only block of a directory, from the names in its index. */
static int build_block(struct ext4_inode *dir, void *buf)
{
	const struct dir_index *index = dir->index;
	struct dir_name *dn;

	dir_block_init_first(dir, buf, index->parent);
	for (dn = dir_index_next(index, 0); dn; dn = dir_index_next(index, dn->serial + 1))
		if (!dir_block_insert(dir, buf, dn))
			return -ENOSPC;
	return 0;
}

/* Takes the names out of the inode and gives it a block. */
static int leave_inode(struct ext4_inode *dir, void *buf)
{
	uint32_t first;
	int err;

	err = xattr_remove(dir, XATTR_INLINE_DATA);
	if (err && err != -ENODATA)
		return err;
	dir->raw.i_flags &= ~EXT4_INLINE_DATA_FL;
	memset(dir->raw.i_block, 0, sizeof(dir->raw.i_block));
	if (ext2fs_has_feature_extents(ext4_vol(dir)->fs->super))
		extents_init(dir);
	map_drop(dir);
	dir->raw.i_size = 0;
	err = dir_grow(dir, 1, &first);
	if (!err)
		err = dir_block_write(dir, first, buf);
	if (err)
		return err;
	dir_index_set_gap(dir->index, first, dir_block_gap(dir, buf));
	return ext4_inode_write(dir);
}

/**
 * dir_make_blocks - a directory is to be changed: move it out of its inode
 * @dir: directory, loaded
 *
 * Context: inode lock exclusive, between begin and end; may sleep.
 * Return: 0, -ENOSPC or another error; then nothing has changed.
 */
int dir_make_blocks(struct ext4_inode *dir)
{
	void *before;
	DIR_BUF(buf);
	int err;

	if (!(dir->raw.i_flags & EXT4_INLINE_DATA_FL))
		return 0;
	err = build_block(dir, buf);
	if (err)
		return err;
	before = malloc(dir->raw_size);
	if (!before)
		return -ENOMEM;
	memcpy(before, ext4_raw_bytes(dir), dir->raw_size);
	err = leave_inode(dir, buf);
	if (err) {
		memcpy(ext4_raw_bytes(dir), before, dir->raw_size);
		map_drop(dir);
		ext4_inode_write(dir);
	}
	free(before);
	return err;
}

static bool wants_htree(struct ext4_inode *dir)
{
	struct ext2_super_block *sb = ext4_vol(dir)->fs->super;

	return dir->index->nr_blocks == 1 && ext2fs_has_feature_dir_index(sb) &&
	       sb->s_def_hash_version <= EXT2_HASH_TEA;
}

/* Into a block with a gap, or a new one. */
static int linear_insert(struct ext4_inode *dir, struct dir_name *dn)
{
	uint32_t lblk = dir_index_find_gap(dir->index, dirent_need(dn->len));
	DIR_BUF(buf);
	int err;

	if (lblk != DIR_NO_BLOCK) {
		err = dir_block_read(dir, lblk, buf);
	} else if (wants_htree(dir)) {
		err = htree_make(dir);
		return err ? err : htree_insert(dir, dn);
	} else {
		err = dir_grow(dir, 1, &lblk);
		dir_block_init(dir, buf);
	}
	if (err)
		return err;
	if (!dir_block_insert(dir, buf, dn))
		return ext4_corrupt(ext4_vol(dir), dir->vn.ino, -EUCLEAN,
				    "directory block %u lost its free space", lblk);
	err = dir_block_write(dir, lblk, buf);
	if (err)
		return err;
	dn->lblk = lblk;
	dir_index_set_gap(dir->index, lblk, dir_block_gap(dir, buf));
	return 0;
}

/**
 * dir_insert - add a name
 * @dir: directory, loaded, out of its inode
 * @name: a name that it does not have
 * @ino: what it names
 * @mode: the type bits of that
 *
 * The inode of @dir (size, blocks, flags) is changed and not written.
 *
 * Context: inode lock exclusive, between begin and end; may sleep.
 * Return: 0, -ENOSPC, -ENOMEM or another error; then nothing has changed.
 */
int dir_insert(struct ext4_inode *dir, const char *name, uint32_t ino, mode_t mode)
{
	struct dir_name *dn = dir_index_prepare(dir->index, name, strlen(name));
	int err;

	if (!dn)
		return -ENOMEM;
	dn->ino = ino;
	dn->type = dir_type(dir, mode);
	err = dir->index->htree ? htree_insert(dir, dn) : linear_insert(dir, dn);
	if (err) {
		free(dn);
		return err;
	}
	dir_index_add(dir->index, dn, 0);
	dir_index_used(dir);
	return 0;
}

/**
 * dir_remove - take a name out
 * @dir: directory, out of its inode
 * @dn: a name of its index; freed
 *
 * Context: inode lock exclusive, between begin and end; may sleep.
 * Return: 0, -EIO or -EUCLEAN; then nothing has changed.
 */
int dir_remove(struct ext4_inode *dir, struct dir_name *dn)
{
	unsigned int offset, before;
	DIR_BUF(buf);
	int err;

	err = dir_block_read(dir, dn->lblk, buf);
	if (!err)
		err = dir_block_find(dir, buf, dn, &offset, &before);
	if (err)
		return err;
	dir_block_remove(buf, offset, before);
	err = dir_block_write(dir, dn->lblk, buf);
	if (err)
		return err;
	if (!dir->index->htree)
		dir_index_set_gap(dir->index, dn->lblk, dir_block_gap(dir, buf));
	dir_index_remove(dir->index, dn);
	return 0;
}

/**
 * dir_replace - let a name name another inode
 * @dir: directory, out of its inode
 * @dn: a name of its index
 * @ino: the new inode
 * @mode: the type bits of that
 *
 * Context: inode lock exclusive, between begin and end; may sleep.
 * Return: 0, -EIO or -EUCLEAN; then nothing has changed.
 */
int dir_replace(struct ext4_inode *dir, struct dir_name *dn, uint32_t ino, mode_t mode)
{
	unsigned int offset, before, type = dir_type(dir, mode);
	DIR_BUF(buf);
	int err;

	err = dir_block_read(dir, dn->lblk, buf);
	if (!err)
		err = dir_block_find(dir, buf, dn, &offset, &before);
	if (err)
		return err;
	dirent_at(buf, offset)->inode = ino;
	ext2fs_dirent_set_file_type(dirent_at(buf, offset), type);
	err = dir_block_write(dir, dn->lblk, buf);
	if (err)
		return err;
	dn->ino = ino;
	dn->type = type;
	return 0;
}

/**
 * dir_set_parent - a directory has moved: change its ..
 * @dir: directory, loaded, out of its inode
 * @parent: inode number of the new parent
 *
 * Context: inode lock exclusive, between begin and end; may sleep.
 * Return: 0, -EIO or -EUCLEAN; then nothing has changed.
 */
int dir_set_parent(struct ext4_inode *dir, uint32_t parent)
{
	DIR_BUF(buf);
	int err;

	if (dir->index->htree)
		err = htree_root_read(dir, buf);
	else
		err = dir_block_read(dir, 0, buf);
	if (err)
		return err;
	/* It was there, behind ".", when the directory was loaded. */
	dirent_at(buf, DIR_MIN_REC)->inode = parent;
	if (dir->index->htree)
		err = htree_root_write(dir, buf);
	else
		err = dir_block_write(dir, 0, buf);
	if (!err)
		dir->index->parent = parent;
	return err;
}
