/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Delayed allocation: space is promised when data becomes dirty and taken when it is written back.
 *
 * A dirty block that has no place yet is marked in its folio's `reserved` and counted in
 * inode->delayed. What the map may need to hold the new blocks is promised, too:
 * inode->delayed_meta is the worst case for all that the inode has delayed. It grows with them and
 * is given back as a whole when nothing of the inode is delayed any more, so it may for a time be
 * too high, never too low; a writer that finds no space writes everything back and tries again
 * (ext4_write()).
 *
 * Preallocated blocks need no promise: they have their place, and for the tree that grows when they
 * become written there is the margin of blocks.c.
 *
 * Locks: reserve and unreserve run under the folio lock; counters are under space_lock.
 */
#include <errno.h>
#include "file.h"

/* Worst growth of the map for @delayed blocks, one more of which is at @lblk. */
static uint32_t worst_meta(struct ext4_inode *inode, uint32_t delayed, uint32_t lblk,
			   unsigned int extents)
{
	struct ext4_volume *vol = ext4_vol(inode);
	uint32_t group, worst = inode->delayed_meta;

	if (map_is_extents(inode))
		return extents_worst(vol, extents, delayed);
	if (lblk < MAP_DIRECT)
		return worst;
	/* One indirect block at each level, once for each block of the lowest. */
	group = 1 + (lblk - MAP_DIRECT) / (vol->fs->blocksize / 4);
	if (group != inode->delayed_group || !worst)
		worst += 3;
	inode->delayed_group = group;
	return worst < 3 * delayed + 3 ? worst : 3 * delayed + 3;
}

static int reserve_blocks(struct ext4_inode *inode, uint32_t nr, uint32_t lblk)
{
	struct ext4_volume *vol = ext4_vol(inode);
	struct ext4_map *map = &inode->map;
	unsigned int extents;
	uint32_t worst, more;
	int err;

	pthread_rwlock_rdlock(&map->lock);
	extents = map->nr;
	pthread_rwlock_unlock(&map->lock);

	pthread_mutex_lock(&vol->space_lock);
	worst = worst_meta(inode, inode->delayed + nr, lblk, extents);
	more = worst > inode->delayed_meta ? worst - inode->delayed_meta : 0;
	err = blocks_reserve_counted(vol, (uint64_t)nr + more);
	if (!err) {
		inode->delayed += nr;
		inode->delayed_meta += more;
	}
	pthread_mutex_unlock(&vol->space_lock);
	return err;
}

void delalloc_release(struct ext4_inode *inode, uint32_t blocks)
{
	struct ext4_volume *vol = ext4_vol(inode);

	if (!blocks)
		return;
	pthread_mutex_lock(&vol->space_lock);
	inode->delayed -= blocks;
	vol->reserved_blocks -= blocks;
	if (!inode->delayed) {
		vol->reserved_blocks -= inode->delayed_meta;
		inode->delayed_meta = 0;
	}
	pthread_mutex_unlock(&vol->space_lock);
}

/**
 * file_reserve - promise space for a range of a folio that becomes dirty
 * @mapping: the file's
 * @folio: locked
 * @offset: bytes into the folio
 * @len: bytes
 *
 * Context: folio lock held. Takes the volume lock when the map is not loaded. May sleep.
 * Return: 0; -ENOSPC; an error of reading the map.
 */
int file_reserve(struct mapping *mapping, struct folio *folio, size_t offset, size_t len)
{
	struct ext4_inode *inode = mapping->owner;
	unsigned int shift = mapping->block_shift, need = 0, nr = 0;
	unsigned int first = offset >> shift, last = (offset + len - 1) >> shift;
	uint32_t base = folio_lblk(folio);
	int err;

	for (unsigned int b = first; b <= last; b++) {
		struct map_extent found;

		if ((folio->dirty | folio->reserved) & 1u << b)
			continue;
		err = map_find(inode, base + b, &found);
		if (err)
			return err;
		if (!found.pblk) {
			need |= 1u << b;
			nr++;
		}
	}
	if (!need)
		return 0;
	err = reserve_blocks(inode, nr, base + first);
	if (!err)
		folio->reserved |= need;
	return err;
}

void file_unreserve(struct mapping *mapping, struct folio *folio, unsigned int mask)
{
	mask &= folio->reserved;
	folio->reserved &= ~mask;
	delalloc_release(mapping->owner, __builtin_popcount(mask));
}
