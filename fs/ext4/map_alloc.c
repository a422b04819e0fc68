/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Changing block maps: giving blocks to a range of a file and taking them away.
 *
 * A range becomes a piece of the image, or a hole: first in the image's form of the map (extents.c,
 * indirect.c), which may do a part of it in one call, then in memory (map.c). That order, under one
 * hold of the volume lock, is all that keeps the two alike.
 *
 * Writing into preallocated blocks divides an extent, and the tree may have to grow when not one
 * block is free. Then the whole extent is zeroed on the image and becomes written, which needs no
 * room; but for blocks whose data is there. Data that is being written just then is written once
 * more after that.
 *
 * Locks: all between ext4_begin() and ext4_end().
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "file.h"
#include "txn.h"

/* [mid->lblk, *end) becomes @mid, or its first part, up to *end, does. */
static int map_replace(struct ext4_inode *inode, const struct map_extent *mid, uint64_t *end)
{
	int err;

	if (map_is_extents(inode))
		err = extents_replace(inode, mid->lblk, end, mid);
	else
		err = indirect_set(inode, mid->lblk, mid->pblk, *end - mid->lblk);
	if (!err)
		map_store(inode, mid, *end);
	else if (err != -ENOSPC)
		map_drop(inode);	/* the image may have changed or not */
	return err;
}

/* The last range with blocks before @lblk, or the first one behind it; len 0: there is none. */
static int find_near(struct ext4_inode *inode, uint32_t lblk, struct map_extent *near)
{
	int err = map_around(inode, lblk, near);
	uint64_t end = err ? 0 : map_end(near);

	while (!err && !near->pblk && near->lblk)
		err = map_around(inode, near->lblk - 1, near);
	if (!err && !near->pblk && end < UINT32_MAX)
		err = map_around(inode, end, near);
	if (!err && !near->pblk)
		near->len = 0;
	return err;
}

/*
 * Where the blocks for a hole at @lblk would best be: behind those of the blocks before, with room
 * for what is missing between them when that is little, or kept for the file.
 */
static uint64_t goal_for(struct ext4_inode *inode, uint32_t lblk)
{
	struct map_extent near;
	uint64_t gap, goal;

	if (find_near(inode, lblk, &near) || !near.len)
		return blocks_inode_goal(inode);
	if (near.lblk < lblk) {
		gap = lblk - map_end(&near);
		goal = near.pblk + near.len;
		return gap < 1024 || find_in_window(inode, goal + gap) ? goal + gap : goal;
	}
	gap = near.lblk - lblk;
	return near.pblk > gap ? near.pblk - gap : near.pblk;
}

/* Fills at most @want blocks of the hole at @lblk; how many in *@done. */
static int fill_hole(struct ext4_inode *inode, uint32_t lblk, uint32_t want, bool unwritten,
		     uint32_t *done)
{
	struct ext4_volume *vol = ext4_vol(inode);
	struct map_extent mid = { .lblk = lblk, .unwritten = unwritten };
	uint64_t end;
	int err;

	err = blocks_alloc_data(inode, goal_for(inode, lblk),
				want < MAP_MAX_UNWRITTEN ? want : MAP_MAX_UNWRITTEN, &mid.pblk,
				&mid.len);
	if (err)
		return err;
	end = map_end(&mid);
	err = map_replace(inode, &mid, &end);
	*done = err ? 0 : end - lblk;
	map_count_blocks(inode, *done);
	if (*done < mid.len)
		blocks_free(vol, mid.pblk + *done, mid.len - *done);
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

/* How many blocks from @lblk on, before @end, have data on the image (*@data), or have not. */
static uint32_t data_run(struct ext4_inode *inode, uint32_t lblk, uint64_t end, bool *data)
{
	uint64_t stop = end;

	*data = false;
	for (const struct file_write *w = inode->writes; w; w = w->next) {
		for (unsigned int i = 0; w->written && i < w->nr; i++) {
			const struct map_extent *place = &w->places[i];

			if (place->lblk <= lblk && map_end(place) > lblk) {
				*data = true;
				return (map_end(place) < end ? map_end(place) : end) - lblk;
			}
			if (place->lblk > lblk && place->lblk < stop)
				stop = place->lblk;
		}
	}
	return stop - lblk;
}

/* Data that is on its way to @extent has to be written once more. */
static void write_again(struct ext4_inode *inode, const struct map_extent *extent)
{
	for (struct file_write *w = inode->writes; w; w = w->next) {
		for (unsigned int i = 0; !w->written && i < w->nr; i++) {
			const struct map_extent *place = &w->places[i];

			if (place->lblk < map_end(extent) && map_end(place) > extent->lblk)
				w->again = true;
		}
	}
}

/*
 * Makes the image's unwritten extent at @lblk written as a whole. A commit may follow before data
 * that is on its way there has come, so zeros are written first, which that may or may not have
 * passed.
 */
static int zero_out(struct ext4_inode *inode, uint32_t lblk)
{
	struct map_extent extent;
	uint64_t end;
	int err = extents_get(inode, lblk, &extent);

	if (err)
		return err;
	write_again(inode, &extent);
	end = map_end(&extent);
	for (uint32_t at = extent.lblk, run; !err && at < end; at += run) {
		bool data;

		run = data_run(inode, at, end, &data);
		if (!data)
			err = zero_blocks(ext4_vol(inode), extent.pblk + (at - extent.lblk), run);
	}
	if (err)
		return err;
	extent.unwritten = false;
	end = map_end(&extent);
	return map_replace(inode, &extent, &end);
}

/* Makes a part of @found, which is unwritten, written; how much is sure of it in found->len. */
static int make_written(struct ext4_inode *inode, struct map_extent *found)
{
	struct map_extent mid = *found;
	uint64_t end = map_end(found);
	int err;

	mid.unwritten = false;
	err = map_replace(inode, &mid, &end);
	found->len = err ? 0 : end - found->lblk;
	return err == -ENOSPC ? zero_out(inode, mid.lblk) : err;
}

/*
 * The blocks of [lblk, *stop) become written, or are given to it. @unwritten: those that are given
 * are unwritten, and it stops at *@stop when the transaction is full.
 */
static int alloc_range(struct ext4_inode *inode, uint32_t lblk, uint64_t *stop, bool unwritten)
{
	struct ext4_volume *vol = ext4_vol(inode);
	uint64_t end = *stop;
	int err = 0, werr;

	map_make_room(vol);
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
		if (unwritten && txn_is_full(vol))
			break;
	}
	*stop = lblk;
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
static uint64_t range_meta(struct ext4_inode *inode, uint32_t lblk, uint64_t holes)
{
	if (map_is_extents(inode))
		return extents_worst(inode, 1 + holes / 1024);
	if (lblk + holes <= MAP_DIRECT)
		return 0;
	return 2 + 2 + holes / (ext4_vol(inode)->fs->blocksize / 4);
}

/* alloc_range() with the space promised first. */
static int alloc_promised(struct ext4_inode *inode, uint32_t lblk, uint64_t *end, bool unwritten)
{
	struct ext4_volume *vol = ext4_vol(inode);
	uint64_t holes, reserved;
	int err;

	err = count_holes(inode, lblk, *end, &holes);
	if (err)
		return err;
	reserved = holes ? holes + range_meta(inode, lblk, holes) : 0;
	err = blocks_reserve(vol, reserved);
	if (err)
		return err;
	err = alloc_range(inode, lblk, end, unwritten);
	blocks_unreserve(vol, reserved);
	return err;
}

/**
 * map_alloc - give written blocks to a short range of a file
 * @inode: the file
 * @lblk: first block
 * @len: blocks, few enough for one operation
 *
 * Blocks that were holes hold whatever was there: the caller writes them.
 *
 * Context: between ext4_begin() and ext4_end(). May sleep.
 * Return: 0; -ENOSPC with nothing allocated; another error.
 */
int map_alloc(struct ext4_inode *inode, uint32_t lblk, uint32_t len)
{
	uint64_t end = (uint64_t)lblk + len;

	return alloc_promised(inode, lblk, &end, false);
}

/**
 * map_preallocate - give unwritten blocks to the holes of a range
 * @inode: a file with extents
 * @lblk: first block
 * @end: behind the last one, above @lblk; comes back as how far it went before the transaction was
 *	full: the caller goes on from there in another operation
 *
 * Context: between ext4_begin() and ext4_end(). May sleep.
 * Return: 0; -ENOSPC with nothing allocated; another error, and *@end says nothing.
 */
int map_preallocate(struct ext4_inode *inode, uint32_t lblk, uint64_t *end)
{
	return alloc_promised(inode, lblk, end, true);
}

/**
 * map_choose - choose blocks for data of a hole that is to be written
 * @inode: the file
 * @want: the hole, or its next part; @want->pblk is where it would best begin, 0: anywhere. Becomes
 *	what was chosen: at least one block of it
 *
 * Context: volume lock, bitmaps loaded. The blocks are reserved.
 * Return: 0 or -ENOSPC.
 */
int map_choose(struct ext4_inode *inode, struct map_extent *want)
{
	uint64_t goal = want->pblk ? want->pblk : goal_for(inode, want->lblk);

	return blocks_choose(inode, goal, want->len, &want->pblk, &want->len);
}

/* The chosen blocks of @mid, a hole as yet, become the file's; how many of them in mid->len. */
static int attach_chosen(struct ext4_inode *inode, struct map_extent *mid)
{
	uint64_t end = map_end(mid);
	int err = map_replace(inode, mid, &end);

	if (err)
		return err;
	mid->len = end - mid->lblk;
	blocks_take_chosen(ext4_vol(inode), mid->pblk, mid->len);
	map_count_blocks(inode, mid->len);
	return 0;
}

/**
 * map_attach - data has been written to blocks: they become the file's
 * @inode: the file; the caller writes it
 * @place: where the data is; @place->unwritten: in blocks that the file has already, unwritten;
 *	else in blocks that have been chosen. Comes back as what is left to be done
 * @failed: it could not be written: blocks stay, or become, unwritten (extents only)
 *
 * Context: between ext4_begin() and ext4_end(). May sleep.
 * Return: 0; -EAGAIN when the file has other blocks there by now; -ENOSPC; another error.
 */
int map_attach(struct ext4_inode *inode, struct map_extent *place, bool failed)
{
	int err;

	map_make_room(ext4_vol(inode));
	while (place->len) {
		struct map_extent mid = *place, found;

		err = map_find_locked(inode, mid.lblk, &found);
		if (err)
			return err;
		if (found.len < mid.len)
			mid.len = found.len;
		if (found.pblk != (place->unwritten ? mid.pblk : 0))
			return -EAGAIN;
		mid.unwritten = failed && map_is_extents(inode);
		if (!place->unwritten)
			err = attach_chosen(inode, &mid);
		else if (found.unwritten && !failed)
			err = make_written(inode, &mid);
		if (err)
			return err;
		place->lblk += mid.len;
		place->pblk += mid.len;
		place->len -= mid.len;
	}
	return 0;
}

/*
 * One step of map_remove() where there is a block map: it frees two indirect blocks and what is empty
 * above them at most, besides the file's blocks. A hole is passed in one step if the map can be had;
 * if not, in many.
 */
static int clear_step(struct ext4_inode *inode, uint32_t lblk, uint64_t *stop)
{
	uint32_t pointers = ext4_vol(inode)->fs->blocksize / sizeof(uint32_t);
	struct map_extent found;
	uint64_t far = (uint64_t)lblk + pointers;

	if (!map_find_locked(inode, lblk, &found) && !found.pblk && map_end(&found) > far)
		far = map_end(&found);
	if (*stop > far)
		*stop = far;
	return indirect_clear(inode, lblk, *stop);
}

/**
 * map_remove - take the blocks of a range away
 * @inode: the file
 * @lblk: first block
 * @end: behind the last one, or beyond; comes back as how far it went before the transaction was full
 *
 * Context: between ext4_begin() and ext4_end(); the file's mapping has no folio with dirty blocks
 * or under writeback there. May sleep.
 * Return: 0; -ENOSPC, for a hole in the middle of an extent: then nothing has changed; another
 * error: then a part may be gone.
 */
int map_remove(struct ext4_inode *inode, uint32_t lblk, uint64_t *end)
{
	uint64_t last = *end < UINT32_MAX ? *end : UINT32_MAX;
	int err = 0, werr;

	map_make_room(ext4_vol(inode));
	while (lblk < last && !err) {
		struct map_extent hole = { .lblk = lblk };
		uint64_t stop = last;

		if (map_is_extents(inode))
			err = extents_replace(inode, lblk, &stop, NULL);
		else
			err = clear_step(inode, lblk, &stop);
		if (!err)
			map_store(inode, &hole, stop);
		else if (err != -ENOSPC)
			map_drop(inode);
		lblk = stop;
		if (txn_is_full(ext4_vol(inode)))
			break;
	}
	*end = lblk < last ? lblk : *end;
	werr = ext4_inode_write(inode);
	return err ? err : werr;
}

/**
 * map_set_unwritten - make written blocks of a range read as zeros
 * @inode: a file with extents
 * @lblk: first block
 * @end: behind the last one; comes back as how far it went before the transaction was full
 *
 * Context: as map_remove().
 * Return: 0 or an error; the range may then be changed in part.
 */
int map_set_unwritten(struct ext4_inode *inode, uint32_t lblk, uint64_t *end)
{
	uint64_t last = *end < UINT32_MAX ? *end : UINT32_MAX, stop;
	int err = 0, werr;

	map_make_room(ext4_vol(inode));
	while (lblk < last && !err) {
		struct map_extent found;

		err = map_find_locked(inode, lblk, &found);
		if (err)
			break;
		if (found.len > last - lblk)
			found.len = last - lblk;
		stop = map_end(&found);
		if (found.pblk && !found.unwritten) {
			found.unwritten = true;
			err = map_replace(inode, &found, &stop);
		}
		lblk = stop;
		if (txn_is_full(ext4_vol(inode)))
			break;
	}
	*end = lblk < last ? lblk : *end;
	werr = ext4_inode_write(inode);
	return err ? err : werr;
}
