/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * File data between folios and the image.
 *
 * The cache hands over runs of neighbouring folios. For each block of the run the map says where it
 * is; blocks that lie side by side on the image become one vectored transfer straight from or to
 * the folios' memory, and all transfers of a run are submitted at once.
 *
 * Reading: holes and unwritten blocks are zeros, so is everything behind the file's size. Blocks of
 * the folio that are valid already are newer than the image and are left alone.
 *
 * Writing: when a block has no place yet, or an unwritten one, the run is given its blocks under
 * the volume lock, in pieces as long as the allocator has them. Then the folios are unlocked, and
 * what they had reserved is given back; the transfers follow. That a block is in the map before its
 * data is on the image does no harm: its folio cannot leave the cache until then.
 *
 * Locks: folio locks held on entry; volume lock inside.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "file.h"
#include "transfers.h"

/* map_find() that goes on with the extent found last while it serves. */
static int find_next(struct ext4_inode *inode, uint32_t lblk, struct map_extent *extent)
{
	uint32_t skip = lblk - extent->lblk;

	if (!extent->len || lblk < extent->lblk || skip >= extent->len)
		return map_find(inode, lblk, extent);
	extent->lblk += skip;
	extent->len -= skip;
	if (extent->pblk)
		extent->pblk += skip;
	return 0;
}

/*
 * Blocks of one folio that lie together: begins with *@extent at @lblk, at most @nr blocks.
 * Return: how many, or an error.
 */
static int find_run(struct ext4_inode *inode, uint32_t lblk, unsigned int nr,
		    struct map_extent *extent)
{
	int err = find_next(inode, lblk, extent);

	if (err)
		return err;
	return extent->len < nr ? extent->len : nr;
}

static int add_blocks(struct transfers *t, struct folio *folio, unsigned int block,
		      unsigned int nr, uint64_t pblk)
{
	return transfers_add(t, pblk << folio->block_shift, folio_block_address(folio, block),
			     (size_t)nr << folio->block_shift);
}

/*
 * Reading
 */

/* Plans the reads of a run of blocks of one folio; zeros what has no place. */
static int plan_read_run(struct ext4_inode *inode, struct folio *folio, unsigned int block,
			 unsigned int nr, struct map_extent *extent, struct transfers *t)
{
	unsigned int shift = folio->block_shift;
	int err = 0;

	while (nr && !err) {
		int n = find_run(inode, folio_lblk(folio) + block, nr, extent);

		if (n < 0)
			return n;
		if (!extent->pblk || extent->unwritten)
			folio_zero(folio, (size_t)block << shift, (size_t)n << shift);
		else
			err = add_blocks(t, folio, block, n, extent->pblk);
		block += n;
		nr -= n;
	}
	return err;
}

/* Plans the reads of one folio; zeros what is behind the last block. */
static int plan_read(struct ext4_inode *inode, struct folio *folio, loff_t size,
		     struct map_extent *extent, struct transfers *t)
{
	unsigned int shift = folio->block_shift, block = 0, nr, inside, all = folio_nr_blocks(folio);
	loff_t behind = size - folio_pos(folio);
	int err = 0;

	inside = behind <= 0 ? 0 : (behind + (1 << shift) - 1) >> shift;
	if (inside < all)
		folio_zero(folio, (size_t)inside << shift, (size_t)(all - inside) << shift);
	for (; !err && (nr = folio_find_run(folio, BLOCKS_VALID, false, &block)); block += nr) {
		if (block >= inside)
			break;
		err = plan_read_run(inode, folio, block, nr < inside - block ? nr : inside - block,
				    extent, t);
	}
	return err;
}

/* The last block of the file has just been read: what is behind the size is none of it. */
static void zero_behind(struct folio *folio, loff_t size)
{
	unsigned int shift = folio->block_shift;
	loff_t pos = folio_pos(folio);
	size_t from = size - pos, end;

	if (size <= pos || size >= pos + (loff_t)folio_size(folio) ||
	    folio_block(folio, BLOCKS_VALID, from >> shift))
		return;
	end = ((from >> shift) + 1) << shift;
	folio_zero(folio, from, end - from);
}

/* A folio whose blocks cannot be found fails alone, and is behind all that are read. */
static int read_blocks(struct mapping *mapping, struct folio **folios, unsigned int nr)
{
	struct ext4_inode *inode = mapping->owner;
	loff_t size = mapping_size(mapping);
	struct map_extent extent = { 0 };
	unsigned int planned;
	struct transfers t;
	int err = 0, plan_err = 0;

	transfers_init(&t, ext4_vol(inode)->vol.image, false);
	for (planned = 0; planned < nr; planned++) {
		plan_err = plan_read(inode, folios[planned], size, &extent, &t);
		if (plan_err)
			break;
	}
	err = transfers_submit(&t);
	for (unsigned int i = 0; i < planned; i++) {
		zero_behind(folios[i], size);
		transfers_mark_valid(&t, folios[i], err);
	}
	transfers_finish(&t);
	return plan_err ? plan_err : err;
}

/* Reads from the inode. 1: it is not an inline file any more. */
static int read_inline(struct mapping *mapping, struct folio **folios, unsigned int nr)
{
	struct ext4_inode *inode = mapping->owner;
	struct ext4_volume *vol = ext4_vol(inode);
	char data[PAGE_SIZE];
	size_t len = 0;
	int err = 1;

	ext4_lock(vol);
	if (ext4_is_inline(inode))
		err = inline_read(inode, data, sizeof(data), &len);
	ext4_unlock(vol);
	if (err)
		return err;
	if ((loff_t)len > mapping_size(mapping))
		len = mapping_size(mapping);
	for (unsigned int i = 0; i < nr; i++) {
		size_t part = folios[i]->index ? 0 : len;

		if (folio_block(folios[i], BLOCKS_VALID, 0))
			continue;	/* only a whole folio is ever valid of such a file */
		folio_copy_from(folios[i], 0, data, part);
		folio_zero(folios[i], part, folio_size(folios[i]) - part);
		folio_mark_uptodate(folios[i]);
	}
	return 0;
}

static int file_read_folios(struct mapping *mapping, struct folio **folios, unsigned int nr)
{
	struct ext4_inode *inode = mapping->owner;
	int err = 1;

	if (inode->bad)
		return -EUCLEAN;
	if (ext4_is_inline(inode))
		err = read_inline(mapping, folios, nr);
	return err > 0 ? read_blocks(mapping, folios, nr) : err;
}

/*
 * Writing
 */

/* A cursor over the pieces of a run: neighbouring blocks that are being written. */
struct run {
	struct folio **folios;
	unsigned int nr;		/* folios */
	unsigned int i, block;		/* behind the present piece: folio, and block in it */
	uint32_t lblk, len;		/* the present piece, in blocks of the file */
};

/* The next piece, over as many folios as it goes; false at the end. Begin with zeros. */
static bool run_next(struct run *run)
{
	unsigned int len;

	run->len = 0;
	for (; run->i < run->nr; run->i++, run->block = 0) {
		struct folio *folio = run->folios[run->i];
		unsigned int from = run->block;

		len = folio_find_run(folio, BLOCKS_WRITING, true, &run->block);
		if (run->len && (!len || run->block != from)) {
			run->block = from;
			break;
		}
		if (!len)
			continue;
		if (!run->len)
			run->lblk = folio_lblk(folio) + run->block;
		run->len += len;
		run->block += len;
		if (run->block < folio_nr_blocks(folio))
			break;
	}
	return run->len;
}

/* 0: each block of the piece has a written place; 1: not so; or an error. */
static int piece_placed(struct ext4_inode *inode, uint32_t lblk, uint64_t end)
{
	struct map_extent found;
	int err;

	for (; lblk < end; lblk += found.len) {
		err = map_find(inode, lblk, &found);
		if (err)
			return err;
		if (!found.pblk || found.unwritten)
			return 1;
	}
	return 0;
}

/* Gives every block of the run its place. */
static int place_run(struct ext4_inode *inode, struct run run)
{
	struct ext4_volume *vol = ext4_vol(inode);
	int err = 0;

	while (!err && run_next(&run)) {
		err = piece_placed(inode, run.lblk, (uint64_t)run.lblk + run.len);
		if (err <= 0)
			continue;
		err = ext4_begin(vol);
		if (err)
			continue;
		err = map_alloc_delayed(inode, run.lblk, run.len);
		ext4_end(vol);
	}
	return err;
}

/* Plans the writes of a run of blocks of one folio. */
static int plan_write_run(struct ext4_inode *inode, struct folio *folio, unsigned int block,
			  unsigned int nr, struct map_extent *extent, struct transfers *t)
{
	int err = 0;

	while (nr && !err) {
		int n = find_run(inode, folio_lblk(folio) + block, nr, extent);

		if (n < 0)
			return n;
		if (!extent->pblk || extent->unwritten)
			return -EAGAIN;
		err = add_blocks(t, folio, block, n, extent->pblk);
		block += n;
		nr -= n;
	}
	return err;
}

/* -EAGAIN: a block has lost its place, or has become unwritten, since it was placed. */
static int plan_writes(struct ext4_inode *inode, const struct run *run, struct transfers *t)
{
	struct map_extent extent = { 0 };
	int err = 0;

	transfers_reset(t);
	for (unsigned int i = 0; i < run->nr; i++) {
		struct folio *folio = run->folios[i];
		unsigned int block = 0, nr;

		while (!err && (nr = folio_find_run(folio, BLOCKS_WRITING, true, &block))) {
			err = plan_write_run(inode, folio, block, nr, &extent, t);
			block += nr;
		}
	}
	return err;
}

/*
 * Between the two nothing keeps the map as it is: a range that is being zeroed is made unwritten
 * before its folios are dropped (falloc.c), perhaps just then.
 */
static int place_and_plan(struct ext4_inode *inode, const struct run *run, struct transfers *t)
{
	int err;

	do {
		err = place_run(inode, *run);
		if (!err)
			err = plan_writes(inode, run, t);
	} while (err == -EAGAIN);
	return err;
}

/* The blocks being written have their place: nothing is reserved for them any more. */
static void give_back(struct ext4_inode *inode, struct folio **folios, unsigned int nr)
{
	uint32_t blocks = 0;

	for (unsigned int i = 0; i < nr; i++) {
		for (unsigned int b = 0; b < folio_nr_blocks(folios[i]); b++) {
			if (!folio_block(folios[i], BLOCKS_RESERVED, b) ||
			    !folio_block(folios[i], BLOCKS_WRITING, b))
				continue;
			folio_set_reserved(folios[i], b, false);
			blocks++;
		}
	}
	delalloc_release(inode, blocks);
}

static int file_write_folios(struct mapping *mapping, struct folio **folios, unsigned int nr)
{
	struct ext4_inode *inode = mapping->owner;
	struct run run = { .folios = folios, .nr = nr };
	struct transfers t;
	int err;

	transfers_init(&t, ext4_vol(inode)->vol.image, true);
	err = place_and_plan(inode, &run, &t);
	if (!err)
		give_back(inode, folios, nr);
	for (unsigned int i = 0; i < nr; i++)
		folio_unlock(folios[i]);
	if (!err)
		err = transfers_submit(&t);
	transfers_finish(&t);
	return err;
}

const struct mapping_ops ext4_file_mapping_ops = {
	.read_folios = file_read_folios,
	.write_folios = file_write_folios,
	.reserve = file_reserve,
	.unreserve = file_unreserve,
	.pin = ext4_mapping_pin,
	.unpin = ext4_mapping_unpin,
};
