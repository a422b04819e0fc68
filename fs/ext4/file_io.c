/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reading file data from the image to folios. Writing is in file_write.c.
 *
 * The cache hands over runs of neighbouring folios. For each block of the run the map says where it
 * is; blocks that lie side by side on the image become one vectored transfer straight from or to
 * the folios' memory, and all transfers of a run are submitted at once.
 *
 * Reading: holes and unwritten blocks are zeros, so is everything behind the file's size. Blocks of
 * the folio that are valid already are newer than the image and are left alone.
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

static struct ext4_inode *folio_inode(const struct folio *folio)
{
	return folio->mapping->owner;
}

/*
 * Of one file or several. A folio whose blocks cannot be found fails alone, and is behind all that are
 * read. The size of each file is what it was when its reads were planned.
 */
static int read_blocks(struct folio **folios, unsigned int nr)
{
	struct map_extent extent = { 0 };
	unsigned int planned;
	struct transfers t;
	loff_t sizes[nr];
	int err = 0, plan_err = 0;

	transfers_init(&t, ext4_vol(folio_inode(folios[0]))->vol.image, false);
	for (planned = 0; planned < nr; planned++) {
		bool same = planned && folios[planned - 1]->mapping == folios[planned]->mapping;

		sizes[planned] = same ? sizes[planned - 1] : mapping_size(folios[planned]->mapping);
		if (!same)
			extent = (struct map_extent){ 0 };
		plan_err = plan_read(folio_inode(folios[planned]), folios[planned], sizes[planned],
				     &extent, &t);
		if (plan_err)
			break;
	}
	err = transfers_submit(&t);
	for (unsigned int i = 0; i < planned; i++) {
		zero_behind(folios[i], sizes[i]);
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
	return err > 0 ? read_blocks(folios, nr) : err;
}

/* A file in its inode is valid at once for who asks: nothing is read ahead of it. */
static void file_read_files(struct folio **folios, unsigned int nr)
{
	for (unsigned int i = 0; i < nr; i++)
		if (folio_inode(folios[i])->bad || ext4_is_inline(folio_inode(folios[i])))
			return;
	read_blocks(folios, nr);
}

const struct mapping_ops ext4_file_mapping_ops = {
	.read_folios = file_read_folios,
	.read_files = file_read_files,
	.write_folios = file_write_folios,
	.reserve = file_reserve,
	.unreserve = file_unreserve,
	.pin = ext4_mapping_pin,
	.unpin = ext4_mapping_unpin,
};
