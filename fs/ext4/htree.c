/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reading a directory's htree: hashing, the way down to a leaf, and the check of the whole tree
 * when a directory is loaded.
 *
 * Names are found through the index in memory, never through the htree. The tree is read only to
 * find the leaf where a new name belongs, so that others who read the image find it there.
 *
 * The check at loading makes sure that every block is in the tree once, that hashes rise, and that
 * the depth is legal; it gives the set of blocks that are not leaves.
 *
 * Everything runs under the volume lock.
 */
#include <errno.h>
#include <string.h>
#include "htree.h"

/* The largest hash is kept for the end of a directory in cookies of kernels; it never occurs. */
#define HASH_END 0xfffffffeU

/**
 * htree_hash - the hash of a name on the image
 * @dir: directory
 * @version: as the root has it
 * @name: name
 * @len: its length
 * @hash: out
 *
 * Return: 0 or -EUCLEAN.
 */
int htree_hash(struct ext4_inode *dir, unsigned int version, const char *name, unsigned int len,
	       uint32_t *hash)
{
	struct ext2_super_block *sb = ext4_vol(dir)->fs->super;
	ext2_dirhash_t minor;
	errcode_t err;

	if (sb->s_flags & EXT2_FLAGS_UNSIGNED_HASH)
		version += EXT2_HASH_LEGACY_UNSIGNED;
	err = ext2fs_dirhash2(version, name, len, NULL, 0, sb->s_hash_seed, hash, &minor);
	if (err)
		return ext4_failed(ext4_vol(dir), dir->vn.ino, err, "hashing a name");
	*hash &= ~1U;
	if (*hash == HASH_END)
		*hash -= 2;
	return 0;
}

/**
 * htree_read_root - read block 0 into the first frame
 * @dir: directory
 * @path: path; its depth is set to what the root says
 *
 * Context: volume lock held; may sleep.
 * Return: 0, -EUCLEAN, -EIO.
 */
int htree_read_root(struct ext4_inode *dir, struct htree_path *path)
{
	struct htree_frame *root = &path->frame[0];
	struct ext2_dx_root_info *info = htree_info(path);
	int err;

	root->lblk = 0;
	root->offset = HTREE_ROOT_OFFSET;
	err = htree_root_read(dir, root->buf);
	if (err)
		return err;
	if (dirent_len(dirent_at(root->buf, 0)) != DIR_MIN_REC || info->reserved_zero ||
	    info->info_length != sizeof(*info) || info->hash_version > EXT2_HASH_TEA ||
	    info->indirect_levels >= htree_max_depth(dir))
		return ext4_corrupt(ext4_vol(dir), dir->vn.ino, -EUCLEAN,
				    "bad directory index root");
	path->depth = info->indirect_levels + 1;
	return 0;
}

/**
 * htree_root_read - read block 0 as it is, with its checksum checked
 * @dir: directory
 * @buf: room for one block
 *
 * Context: volume lock held; may sleep.
 * Return: 0, -EUCLEAN, -EIO.
 */
int htree_root_read(struct ext4_inode *dir, void *buf)
{
	return htree_block_read(dir, 0, HTREE_ROOT_OFFSET, buf);
}

/**
 * htree_root_write - seal the root with its checksum and write it
 * @dir: directory
 * @buf: block 0
 *
 * Context: volume lock held, inode lock exclusive; may sleep.
 * Return: 0 or a negative errno.
 */
int htree_root_write(struct ext4_inode *dir, void *buf)
{
	return htree_block_write(dir, 0, HTREE_ROOT_OFFSET, buf);
}

static int read_node(struct ext4_inode *dir, uint32_t lblk, struct htree_frame *frame)
{
	frame->lblk = lblk;
	frame->offset = HTREE_NODE_OFFSET;
	return htree_block_read(dir, lblk, HTREE_NODE_OFFSET, frame->buf);
}

/* The last entry whose hash is not above @hash. */
static unsigned int search(struct htree_frame *frame, uint32_t hash)
{
	struct ext2_dx_entry *entries = frame_entries(frame);
	unsigned int low = 1, high = frame_cl(frame)->count;

	while (low < high) {
		unsigned int mid = (low + high) / 2;

		if (entries[mid].hash > hash)
			high = mid;
		else
			low = mid + 1;
	}
	return low - 1;
}

/**
 * htree_probe - go down to the leaf where a hash belongs
 * @dir: directory
 * @hash: hash
 * @path: its root has been read; the other frames are filled in
 * @leaf: out: block of the leaf
 *
 * Context: volume lock held; may sleep.
 * Return: 0, -EUCLEAN, -EIO.
 */
int htree_probe(struct ext4_inode *dir, uint32_t hash, struct htree_path *path, uint32_t *leaf)
{
	for (unsigned int level = 0; level < path->depth; level++) {
		struct htree_frame *frame = &path->frame[level];
		int err;

		frame->at = search(frame, hash);
		*leaf = frame_child(frame, frame->at);
		if (level + 1 == path->depth)
			break;
		err = read_node(dir, *leaf, frame + 1);
		if (err)
			return err;
	}
	return 0;
}

/* What scanning knows: the blocks met, the blocks that are no leaves, the last hash met. */
struct scan {
	struct ext4_inode *dir;
	uint8_t *nodes, *met;
	uint32_t nr_blocks, last_hash;
	struct htree_path path;
};

static bool test_and_set(uint8_t *bits, uint32_t nr)
{
	bool was = bits[nr / 8] & 1U << nr % 8;

	bits[nr / 8] |= 1U << nr % 8;
	return was;
}

static int scan_frame(struct scan *scan, unsigned int level)
{
	struct htree_frame *frame = &scan->path.frame[level];
	struct ext2_dx_entry *entries = frame_entries(frame);

	test_and_set(scan->nodes, frame->lblk);
	for (unsigned int i = 0; i < frame_cl(frame)->count; i++) {
		uint32_t child = frame_child(frame, i);
		int err = 0;

		if (child >= scan->nr_blocks || test_and_set(scan->met, child) ||
		    (i && entries[i].hash < scan->last_hash))
			return ext4_corrupt(ext4_vol(scan->dir), scan->dir->vn.ino, -EUCLEAN,
					    "bad entry %u in directory index block %u", i,
					    frame->lblk);
		if (i)
			scan->last_hash = entries[i].hash;
		if (level + 1 < scan->path.depth)
			err = read_node(scan->dir, child, frame + 1);
		if (!err && level + 1 < scan->path.depth)
			err = scan_frame(scan, level + 1);
		if (err)
			return err;
	}
	return 0;
}

static int scan_tree(struct scan *scan)
{
	struct ext4_inode *dir = scan->dir;
	struct ext2_dir_entry *self, *up;
	int err;

	err = htree_read_root(dir, &scan->path);
	if (err)
		return err;
	self = dirent_at(scan->path.frame[0].buf, 0);
	up = dirent_at(self, DIR_MIN_REC);
	if (self->inode != dir->vn.ino || dirent_len(up) != dir_blocksize(dir) - DIR_MIN_REC ||
	    ext2fs_dirent_name_len(up) != 2 || memcmp(up->name, "..", 2) || !up->inode ||
	    up->inode > ext4_vol(dir)->fs->super->s_inodes_count)
		return ext4_corrupt(ext4_vol(dir), dir->vn.ino, -EUCLEAN,
				    "directory without . and ..");
	dir->index->parent = up->inode;
	test_and_set(scan->met, 0);
	return scan_frame(scan, 0);
}

/**
 * htree_scan - check the tree of a directory that is being loaded
 * @dir: directory with an empty index
 * @nodes: bitmap of @nr_blocks bits, zero; out: the blocks that are no leaves
 * @nr_blocks: blocks of the directory
 *
 * A leaf that the tree does not reach is allowed: its names are found all the same.
 *
 * Context: inode lock exclusive, volume lock held; may sleep.
 * Return: 0, -EUCLEAN, -EIO, -ENOMEM.
 */
int htree_scan(struct ext4_inode *dir, uint8_t *nodes, uint32_t nr_blocks)
{
	struct scan *scan = calloc(1, sizeof(*scan));
	int err = -ENOMEM;

	if (!scan)
		return -ENOMEM;
	scan->dir = dir;
	scan->nodes = nodes;
	scan->nr_blocks = nr_blocks;
	scan->met = calloc(1, nr_blocks / 8 + 1);
	if (scan->met)
		err = scan_tree(scan);
	free(scan->met);
	free(scan);
	return err;
}
