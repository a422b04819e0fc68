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

/* Worst growth of the map for @delayed blocks, of which the newest lie in [first, last]. */
static uint32_t worst_meta(struct ext4_inode *inode, uint32_t delayed, uint32_t first,
			   uint32_t last)
{
	struct ext4_volume *vol = ext4_vol(inode);
	uint32_t per_group = vol->fs->blocksize / 4, group, groups, worst = inode->delayed_meta;

	if (map_is_extents(inode))
		return extents_worst(inode, delayed);
	if (last < MAP_DIRECT)
		return worst;
	/* One indirect block at each level, once for each block of the lowest. */
	first = first < MAP_DIRECT ? 0 : first - MAP_DIRECT;
	group = 1 + (last - MAP_DIRECT) / per_group;
	groups = group - first / per_group;
	if (1 + first / per_group == inode->delayed_group && worst)
		groups--;
	worst += 3 * groups;
	inode->delayed_group = group;
	return worst < 3 * delayed + 3 ? worst : 3 * delayed + 3;
}

static int reserve_blocks(struct ext4_inode *inode, uint32_t nr, uint32_t first, uint32_t last)
{
	struct ext4_volume *vol = ext4_vol(inode);
	uint32_t worst, more;
	int err;

	pthread_mutex_lock(&vol->space_lock);
	worst = worst_meta(inode, inode->delayed + nr, first, last);
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
	unsigned int shift = mapping->block_shift, nr = 0;
	unsigned int first = offset >> shift, last = (offset + len - 1) >> shift;
	uint32_t base = folio_lblk(folio);
	bool need[FOLIO_BLOCKS_MAX];
	int err;

	for (unsigned int b = first; b <= last; b++) {
		struct map_extent found;

		need[b] = false;
		if (folio_block(folio, BLOCKS_DIRTY, b) || folio_block(folio, BLOCKS_RESERVED, b))
			continue;
		err = map_find(inode, base + b, &found);
		if (err)
			return err;
		need[b] = !found.pblk;
		nr += need[b];
	}
	if (!nr)
		return 0;
	err = reserve_blocks(inode, nr, base + first, base + last);
	for (unsigned int b = first; !err && b <= last; b++) {
		if (need[b])
			folio_set_reserved(folio, b, true);
	}
	return err;
}

void file_unreserve(struct mapping *mapping, struct folio *folio, size_t offset, size_t len)
{
	unsigned int first = offset >> mapping->block_shift, nr = 0;
	unsigned int last = (offset + len - 1) >> mapping->block_shift;

	for (unsigned int b = first; b <= last; b++) {
		if (!folio_block(folio, BLOCKS_RESERVED, b))
			continue;
		folio_set_reserved(folio, b, false);
		nr++;
	}
	delalloc_release(mapping->owner, nr);
}
