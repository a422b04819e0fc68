/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the two kinds of block map (extents.c, indirect.c) and their common part (map.c,
 * map_alloc.c) share. Everything here wants the volume lock held.
 */
#ifndef FOLIOFS_EXT4_MAP_H
#define FOLIOFS_EXT4_MAP_H

#include "ext4.h"

/* Longest extents of the image's format; maps in memory keep to them, too. */
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

/* Index of the first extent that ends behind @lblk; map->nr when there is none. */
unsigned int map_search(const struct ext4_map *map, uint32_t lblk);
/* Loads the map if it is not; 0 or an error. */
int map_load(struct ext4_inode *inode);
/* Forgets the map: it is loaded again at the next use. */
void map_drop(struct ext4_inode *inode);
/* The map is empty from here on, whatever the inode says: it is about to get its first block. */
void map_begin(struct ext4_inode *inode);
/* Adds an extent behind all others while loading, joined to the last one where @join allows. */
int map_append(struct ext4_map *map, const struct map_extent *extent, bool join);
/* Room for @more further extents: -ENOMEM. */
int map_room(struct ext4_map *map, unsigned int more);
/* Puts @nr extents where @old were, from index @at on. There is room. Takes the map's lock. */
void map_splice(struct ext4_map *map, unsigned int at, unsigned int old,
		const struct map_extent *extents, unsigned int nr);
/* True when a run of blocks lies in the image and cannot be its superblock. */
bool map_valid_blocks(struct ext4_volume *vol, uint64_t pblk, uint64_t len);
bool map_can_join(const struct map_extent *a, const struct map_extent *b);
/* Changes i_blocks by @nr file system blocks. */
void map_count_blocks(struct ext4_inode *inode, int64_t nr);

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

int extents_load(struct ext4_inode *inode);
/* map_splice(), and the same in the image; on an error nothing has changed. */
int extents_splice(struct ext4_inode *inode, unsigned int at, unsigned int old,
		   const struct map_extent *extents, unsigned int nr);
void extents_free_tree(struct map_tree *tree);
/* Sets an inode's block map to an empty extent tree. */
void extents_init(struct ext4_inode *inode);
/* Most blocks that the tree can grow by when @blocks single blocks are added. Any lock. */
uint32_t extents_worst(struct ext4_volume *vol, unsigned int nr, uint32_t blocks);

int indirect_load(struct ext4_inode *inode);
/* Points [lblk, lblk + len) at the blocks from @pblk on. -ENOSPC: no room for indirect blocks. */
int indirect_set(struct ext4_inode *inode, uint32_t lblk, uint64_t pblk, uint32_t len);
/* Clears the pointers of [start, end) and frees indirect blocks that become empty. */
int indirect_clear(struct ext4_inode *inode, uint64_t start, uint64_t end);
/* Number of blocks that an indirect map can have. */
uint64_t indirect_max_blocks(struct ext4_volume *vol);

#endif
