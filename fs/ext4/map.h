/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the two forms of block map (extents.c, indirect.c), their common part (map.c, map_alloc.c)
 * and the allocator (blocks.c, find.c) share. Everything here wants the volume lock held.
 */
#ifndef FOLIOFS_EXT4_MAP_H
#define FOLIOFS_EXT4_MAP_H

#include "ext4.h"

/* Longest extents of the image's format. */
#define MAP_MAX_WRITTEN 32768u
#define MAP_MAX_UNWRITTEN 32767u

#define MAP_DIRECT EXT2_NDIR_BLOCKS

static inline bool map_is_extents(const struct ext4_inode *inode)
{
	return inode->raw.i_flags & EXT4_EXTENTS_FL;
}

static inline uint64_t map_end(const struct map_extent *extent)
{
	return (uint64_t)extent->lblk + extent->len;
}

/* 0, or the error that damage to the map is from now on. */
int map_usable(const struct ext4_inode *inode);
/* Damage was met in the image's map: says so. Returns -EUCLEAN. */
int map_damaged(struct ext4_inode *inode, const char *what);
/* As map_find_locked(), but the whole range that is known, with @lblk somewhere in it. */
int map_around(struct ext4_inode *inode, uint32_t lblk, struct map_extent *out);
/* The image says so now: [extent->lblk, end) is a hole, or at extent->pblk. */
void map_store(struct ext4_inode *inode, const struct map_extent *extent, uint64_t end);
/* Forgets the map: it is loaded again where it is used. */
void map_drop(struct ext4_inode *inode);
/* Drops maps until there is room for another window. They all are on the image. */
void map_make_room(struct ext4_volume *vol);
/* True when a run of blocks lies in the image and cannot be its superblock. */
bool map_valid_blocks(struct ext4_volume *vol, uint64_t pblk, uint64_t len);
/* Changes i_blocks by @nr file system blocks. */
void map_count_blocks(struct ext4_inode *inode, int64_t nr);

#define MAP_FILL_MAX 260

/* Ranges of one window, collected from the image in order. Begin with at the window's start. */
struct map_fill {
	struct ext4_inode *inode;
	uint64_t at;			/* all before is there */
	unsigned int nr;
	struct map_extent ranges[MAP_FILL_MAX];
};

/* What is between the last extent and this one is a hole. */
void map_fill(struct map_fill *fill, const struct map_extent *extent);
/* The window ends here: it becomes part of the map. */
void map_fill_end(struct map_fill *fill, uint64_t end);

/* What free blocks are looked for: find.c. */
struct want {
	uint64_t goal;
	uint32_t len;		/* at most */
	uint32_t ino;		/* of the file; 0: metadata */
	uint32_t ahead;		/* further blocks that the file is expected to need */
	bool steal;		/* also what is kept for others; find.c's own */
};

struct block_run {
	uint64_t start;
	uint32_t len;
};

bool find_free(struct ext4_volume *vol, struct want *want, struct block_run *run);
bool find_in_window(struct ext4_inode *inode, uint64_t pblk);
uint32_t find_window_size(struct ext4_volume *vol, uint64_t size);

/* blocks_reserve() by a caller that holds space_lock. */
int blocks_reserve_counted(struct ext4_volume *vol, uint64_t nr);

/* So little is free that the blocks of a tree may not be had. */
bool blocks_tight(struct ext4_volume *vol);

/*
 * The image's two forms of a map. All change the inode in memory, not on the image. *@end comes
 * back as where the work was stopped, behind @lblk: at the end of a leaf, or as little as one call
 * does.
 */

/* Brings what is around @lblk into the map in memory. */
int extents_load(struct ext4_inode *inode, uint32_t lblk);
/* The extent at @lblk as the image has it; there is one. */
int extents_get(struct ext4_inode *inode, uint32_t lblk, struct map_extent *extent);
/*
 * Blocks from @lblk on become @mid, which is as long, or a hole: then their blocks are freed.
 * -ENOSPC when the tree cannot grow: nothing has changed.
 */
int extents_replace(struct ext4_inode *inode, uint32_t lblk, uint64_t *end,
		    const struct map_extent *mid);
/* Sets an inode's block map to an empty extent tree. */
void extents_init(struct ext4_inode *inode);
/* Most blocks that the tree can grow by when @blocks single blocks are added. Any lock. */
uint32_t extents_worst(struct ext4_inode *inode, uint32_t blocks);

int indirect_load(struct ext4_inode *inode, uint32_t lblk);
/* Points [lblk, lblk + len), a hole, at the blocks from @pblk on. -ENOSPC: nothing has changed. */
int indirect_set(struct ext4_inode *inode, uint32_t lblk, uint64_t pblk, uint32_t len);
/* Makes a hole of [start, end); frees its blocks, and indirect blocks that become empty. */
int indirect_clear(struct ext4_inode *inode, uint64_t start, uint64_t end);
/* Number of blocks that an indirect map can have. */
uint64_t indirect_max_blocks(struct ext4_volume *vol);

#endif
