/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The htree of a directory: what htree.c and htree_split.c share.
 *
 * Block 0 is the root, dressed up as the entries . and .., the second of which covers the rest of
 * the block. A node is dressed up as one free entry. Both hold an array of (hash, block) in rising
 * order of hash: a name lies under the last entry whose hash is not above its own. The first
 * entry's hash is 0 and not stored; its place holds limit and count. Bit 0 of an entry's hash says
 * that names of that hash are also in the leaf before.
 */
#ifndef FOLIOFS_EXT4_HTREE_H
#define FOLIOFS_EXT4_HTREE_H

#include "dir.h"

#define HTREE_MAX_DEPTH 3 /* levels of index blocks, the root among them */
#define HTREE_INFO_OFFSET (2 * DIR_MIN_REC)
#define HTREE_ROOT_OFFSET (HTREE_INFO_OFFSET + sizeof(struct ext2_dx_root_info))
#define HTREE_NODE_OFFSET 8

/* One block of the way down. */
struct htree_frame {
	uint32_t lblk;
	unsigned int offset; /* of its entries */
	unsigned int at;     /* the entry that was followed */
	DIR_BUF(buf);
};

struct htree_path {
	unsigned int depth; /* frames in use; the root is frame 0 */
	struct htree_frame frame[HTREE_MAX_DEPTH];
};

static inline struct ext2_dx_countlimit *frame_cl(struct htree_frame *frame)
{
	return (struct ext2_dx_countlimit *)(frame->buf + frame->offset);
}

static inline struct ext2_dx_entry *frame_entries(struct htree_frame *frame)
{
	return (struct ext2_dx_entry *)(frame->buf + frame->offset);
}

static inline uint32_t frame_child(struct htree_frame *frame, unsigned int at)
{
	return frame_entries(frame)[at].block & EXT4_DX_BLOCK_MASK;
}

static inline struct ext2_dx_root_info *htree_info(struct htree_path *path)
{
	return (struct ext2_dx_root_info *)(path->frame[0].buf + HTREE_INFO_OFFSET);
}

/* Levels of index blocks that the file system allows. */
static inline unsigned int htree_max_depth(struct ext4_inode *dir)
{
	return ext2fs_has_feature_largedir(ext4_vol(dir)->fs->super) ? 3 : 2;
}

int htree_read_root(struct ext4_inode *dir, struct htree_path *path);
int htree_probe(struct ext4_inode *dir, uint32_t hash, struct htree_path *path, uint32_t *leaf);

#endif
