/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Changing block maps: giving blocks to a range of a file and taking them away.
 *
 * All changes come down to one, map_replace(): a range of file blocks becomes one extent, or a
 * hole. It finds the extents that the range touches, cuts those at its edges, joins what has become
 * neighbours, and hands the difference to the image's form of the map: for extents the splice of
 * extents.c, for indirect maps the array and the pointers.
 *
 * Writing into preallocated blocks divides an extent, and the tree may have to grow when not one
 * block is free. Then the whole extent is zeroed on the image and becomes written, which needs no
 * room.
 *
 * Locks: all between ext4_begin() and ext4_end().
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "map.h"

/* The extents that take the place of a window of the array: left rest, middle, right rest. */
struct window {
	unsigned int at, old, nr;
	struct map_extent extents[3];
};

static void window_add(struct window *w, const struct map_extent *extent)
{
	struct map_extent *last = w->nr ? &w->extents[w->nr - 1] : NULL;

	if (last && map_can_join(last, extent))
		last->len += extent->len;
	else
		w->extents[w->nr++] = *extent;
}

static void window_make(const struct ext4_map *map, struct window *w, uint32_t lblk, uint64_t end,
			const struct map_extent *mid)
{
	const struct map_extent *extents = map->extents;
	unsigned int i = map_search(map, lblk), j = i;
	struct map_extent rest;

	w->at = i;
	w->nr = 0;
	if (i < map->nr && extents[i].lblk < lblk) {
		rest = extents[i];
		rest.len = lblk - rest.lblk;
		window_add(w, &rest);
	} else if (mid && i && map_can_join(&extents[i - 1], mid)) {
		w->at = i - 1;
		window_add(w, &extents[i - 1]);
	}
	if (mid)
		window_add(w, mid);
	while (j < map->nr && extents[j].lblk < end)
		j++;
	if (j > i && map_end(&extents[j - 1]) > end) {
		uint32_t skip = end - extents[j - 1].lblk;

		rest = extents[j - 1];
		rest.lblk += skip;
		rest.pblk += skip;
		rest.len -= skip;
		window_add(w, &rest);
	} else if (w->nr && j < map->nr && map_can_join(&w->extents[w->nr - 1], &extents[j])) {
		window_add(w, &extents[j++]);
	}
	w->old = j - w->at;
}

static int replace_indirect(struct ext4_inode *inode, const struct window *w, uint32_t lblk,
			    uint64_t end, const struct map_extent *mid)
{
	int err = map_room(&inode->map, w->nr);

	if (err)
		return err;
	if (mid) {
		err = indirect_set(inode, lblk, mid->pblk, mid->len);
		if (err)
			indirect_clear(inode, lblk, end);
	} else {
		err = indirect_clear(inode, lblk, end);
	}
	if (!err)
		map_splice(&inode->map, w->at, w->old, w->extents, w->nr);
	return err;
}

/* [lblk, end) becomes @mid, which covers it, or a hole. On an error nothing has changed. */
static int map_replace(struct ext4_inode *inode, uint32_t lblk, uint64_t end,
		       const struct map_extent *mid)
{
	struct window w;

	window_make(&inode->map, &w, lblk, end, mid);
	if (map_is_extents(inode))
		return extents_splice(inode, w.at, w.old, w.extents, w.nr);
	return replace_indirect(inode, &w, lblk, end, mid);
}

/*
 * Where the blocks for a hole at @lblk would best be: behind those of the blocks before, with room
 * for what is missing between them when that is little, or kept for the file.
 */
static uint64_t goal_for(struct ext4_inode *inode, uint32_t lblk)
{
	const struct ext4_map *map = &inode->map;
	unsigned int i = map_search(map, lblk);
	const struct map_extent *near;
	uint64_t gap, goal;

	if (!map->nr)
		return blocks_inode_goal(inode);
	if (i) {
		near = &map->extents[i - 1];
		gap = lblk - map_end(near);
		goal = near->pblk + near->len;
		return gap < 1024 || find_in_window(inode, goal + gap) ? goal + gap : goal;
	}
	near = &map->extents[0];
	return near->pblk > near->lblk - lblk ? near->pblk - (near->lblk - lblk) : near->pblk;
}

/* Fills at most @want blocks of the hole at @lblk; how many in *@done. */
static int fill_hole(struct ext4_inode *inode, uint32_t lblk, uint32_t want, bool unwritten,
		     uint32_t *done)
{
	struct ext4_volume *vol = ext4_vol(inode);
	struct map_extent mid = { .lblk = lblk, .unwritten = unwritten };
	int err;

	err = blocks_alloc_data(inode, goal_for(inode, lblk),
				want < MAP_MAX_UNWRITTEN ? want : MAP_MAX_UNWRITTEN, &mid.pblk,
				&mid.len);
	if (err)
		return err;
	err = map_replace(inode, lblk, map_end(&mid), &mid);
	if (err)
		blocks_free(vol, mid.pblk, mid.len);
	else
		map_count_blocks(inode, mid.len);
	*done = mid.len;
	return err;
}

/* Writes zeros over a run of blocks. */
static int zero_blocks(struct ext4_volume *vol, uint64_t pblk, uint32_t len)
{
	size_t size = 64 << 10, bs = vol->fs->blocksize;
	char *zeros = aligned_alloc(PAGE_SIZE, size);
	int err = zeros ? 0 : -ENOMEM;

	if (zeros)
		memset(zeros, 0, size);
	while (len && !err) {
		uint32_t part = len < size / bs ? len : size / bs;
		struct iovec iov = { zeros, part * bs };
		struct image_io io = { .offset = pblk * bs, .iov = &iov, .iovcnt = 1,
				       .write = true };

		err = image_submit(vol->vol.image, &io, 1);
		pblk += part;
		len -= part;
	}
	free(zeros);
	return err;
}

/*
 * Makes the unwritten extent at @lblk written as a whole. None of its blocks is being written to:
 * who writes has made them written first, under the volume lock.
 */
static int zero_out(struct ext4_inode *inode, uint32_t lblk)
{
	struct map_extent extent = inode->map.extents[map_search(&inode->map, lblk)];
	int err = zero_blocks(ext4_vol(inode), extent.pblk, extent.len);

	if (err)
		return err;
	extent.unwritten = false;
	return map_replace(inode, extent.lblk, map_end(&extent), &extent);
}

/* Makes @found, a part of an unwritten extent, written. */
static int make_written(struct ext4_inode *inode, const struct map_extent *found)
{
	struct map_extent mid = *found;
	int err;

	mid.unwritten = false;
	err = map_replace(inode, mid.lblk, map_end(&mid), &mid);
	return err == -ENOSPC ? zero_out(inode, mid.lblk) : err;
}

/* The blocks of [lblk, end) change between written and unwritten, or are given to it. */
static int alloc_range(struct ext4_inode *inode, uint32_t lblk, uint64_t end, bool unwritten)
{
	int err = 0, werr;

	while (lblk < end && !err) {
		struct map_extent found;

		err = map_find_locked(inode, lblk, &found);
		if (err)
			break;
		if (found.len > end - lblk)
			found.len = end - lblk;
		if (!found.pblk) {
			err = fill_hole(inode, lblk, found.len, unwritten, &found.len);
		} else if (found.unwritten && !unwritten) {
			err = make_written(inode, &found);
		}
		lblk += found.len;
	}
	werr = ext4_inode_write(inode);
	return err ? err : werr;
}

/* Blocks of [lblk, end) that are holes. */
static int count_holes(struct ext4_inode *inode, uint32_t lblk, uint64_t end, uint64_t *holes)
{
	struct map_extent found;
	int err = 0;

	*holes = 0;
	while (lblk < end && !(err = map_find_locked(inode, lblk, &found))) {
		uint64_t stop = map_end(&found) < end ? map_end(&found) : end;

		if (!found.pblk)
			*holes += stop - lblk;
		lblk = stop;
	}
	return err;
}

/* Most blocks that the map itself can need for @holes further blocks in one range. */
static uint64_t range_meta(struct ext4_inode *inode, uint64_t holes)
{
	struct ext4_volume *vol = ext4_vol(inode);

	if (map_is_extents(inode))
		return inode->map.nr + holes / MAP_MAX_UNWRITTEN < 4 ? 0 :
		       extents_worst(vol, inode->map.nr, 2 + holes / 1024);
	return inode->map.nr || holes > MAP_DIRECT ? 2 + 2 + holes / (vol->fs->blocksize / 4) : 0;
}

/**
 * map_alloc - give blocks to a range of a file
 * @inode: the file
 * @lblk: first block
 * @len: blocks
 * @unwritten: holes get unwritten blocks, and unwritten ones stay; else all become written
 *
 * Written blocks that were holes hold whatever was there: the caller writes them.
 *
 * Context: between ext4_begin() and ext4_end(). May sleep.
 * Return: 0; -ENOSPC with nothing allocated; another error.
 */
int map_alloc(struct ext4_inode *inode, uint32_t lblk, uint32_t len, bool unwritten)
{
	struct ext4_volume *vol = ext4_vol(inode);
	uint64_t end = (uint64_t)lblk + len, holes, reserved;
	int err;

	err = count_holes(inode, lblk, end, &holes);
	if (err)
		return err;
	reserved = holes ? holes + range_meta(inode, holes) : 0;
	err = blocks_reserve(vol, reserved);
	if (err)
		return err;
	err = alloc_range(inode, lblk, end, unwritten);
	blocks_unreserve(vol, reserved);
	return err;
}

int map_alloc_delayed(struct ext4_inode *inode, uint32_t lblk, uint32_t len)
{
	return alloc_range(inode, lblk, (uint64_t)lblk + len, false);
}

/* Copies of the extents that touch [lblk, end), cut to it. */
static int pieces_of(const struct ext4_map *map, uint32_t lblk, uint64_t end,
		     struct map_extent **out, unsigned int *nr)
{
	unsigned int first = map_search(map, lblk), last = first;
	struct map_extent *pieces;

	while (last < map->nr && map->extents[last].lblk < end)
		last++;
	*nr = last - first;
	*out = pieces = malloc((*nr ? *nr : 1) * sizeof(*pieces));
	if (!pieces)
		return -ENOMEM;
	if (!*nr)
		return 0;
	memcpy(pieces, &map->extents[first], *nr * sizeof(*pieces));
	if (pieces[0].lblk < lblk) {
		uint32_t skip = lblk - pieces[0].lblk;

		pieces[0].lblk += skip;
		pieces[0].pblk += skip;
		pieces[0].len -= skip;
	}
	if (map_end(&pieces[*nr - 1]) > end)
		pieces[*nr - 1].len = end - pieces[*nr - 1].lblk;
	return 0;
}

/**
 * map_remove - take the blocks of a range away
 * @inode: the file
 * @lblk: first block
 * @len: blocks; may reach beyond the last
 *
 * Context: between ext4_begin() and ext4_end(); the file's mapping has no folio with dirty blocks
 * or under writeback there. May sleep.
 * Return: 0 or an error: then nothing has been freed.
 */
int map_remove(struct ext4_inode *inode, uint32_t lblk, uint64_t len)
{
	struct ext4_volume *vol = ext4_vol(inode);
	uint64_t end = lblk + len < UINT32_MAX ? lblk + len : UINT32_MAX;
	struct map_extent *pieces;
	unsigned int nr;
	int err;

	err = map_load(inode);
	if (err)
		return err;
	err = pieces_of(&inode->map, lblk, end, &pieces, &nr);
	if (!err && nr)
		err = map_replace(inode, lblk, end, NULL);
	if (err || !nr)
		goto out;
	for (unsigned int i = 0; i < nr; i++) {
		blocks_free(vol, pieces[i].pblk, pieces[i].len);
		map_count_blocks(inode, -(int64_t)pieces[i].len);
	}
	err = ext4_inode_write(inode);
out:
	free(pieces);
	return err;
}

/**
 * map_set_unwritten - make written blocks of a range read as zeros
 * @inode: a file with extents
 * @lblk: first block
 * @len: blocks
 *
 * Context: as map_remove().
 * Return: 0 or an error; the range may then be changed in part.
 */
int map_set_unwritten(struct ext4_inode *inode, uint32_t lblk, uint32_t len)
{
	uint64_t end = (uint64_t)lblk + len;
	int err = 0, werr;

	while (lblk < end && !err) {
		struct map_extent found;

		err = map_find_locked(inode, lblk, &found);
		if (err)
			break;
		if (found.len > end - lblk)
			found.len = end - lblk;
		if (found.pblk && !found.unwritten) {
			if (found.len > MAP_MAX_UNWRITTEN)
				found.len = MAP_MAX_UNWRITTEN;
			found.unwritten = true;
			err = map_replace(inode, lblk, map_end(&found), &found);
		}
		lblk += found.len;
	}
	werr = ext4_inode_write(inode);
	return err ? err : werr;
}
