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

struct transfers {
	struct ext4_volume *vol;
	bool write;
	struct image_io *ios;
	unsigned int *owners; /* of each I/O, for reads: its first folio's number in the run */
	struct iovec *iov;
	unsigned int nr, nr_iov;
	uint64_t end;			/* of the last I/O, in the image */
};

static int transfers_init(struct transfers *t, struct ext4_volume *vol, unsigned int blocks,
			  bool write)
{
	*t = (struct transfers){ .vol = vol, .write = write };
	t->ios = calloc(blocks, sizeof(*t->ios) + sizeof(*t->iov) + sizeof(*t->owners));
	if (!t->ios)
		return -ENOMEM;
	t->iov = (struct iovec *)(t->ios + blocks);
	t->owners = (unsigned int *)(t->iov + blocks);
	return 0;
}

/* Forgets what was added. */
static void transfers_reset(struct transfers *t)
{
	memset(t->ios, 0, t->nr * sizeof(*t->ios));
	t->nr = t->nr_iov = 0;
}

static void transfers_add(struct transfers *t, void *memory, uint64_t pblk, unsigned int owner)
{
	size_t len = t->vol->fs->blocksize;
	uint64_t offset = pblk * len;
	struct image_io *io = t->nr ? &t->ios[t->nr - 1] : NULL;
	struct iovec *iov;

	if (!io || t->end != offset || io->iovcnt == IOV_MAX) {
		io = &t->ios[t->nr];
		io->offset = offset;
		io->iov = &t->iov[t->nr_iov];
		io->write = t->write;
		t->owners[t->nr++] = owner;
	}
	iov = io->iovcnt ? &t->iov[t->nr_iov - 1] : NULL;
	if (iov && (char *)iov->iov_base + iov->iov_len == memory) {
		iov->iov_len += len;
	} else {
		t->iov[t->nr_iov++] = (struct iovec){ memory, len };
		io->iovcnt++;
	}
	t->end = offset + len;
}

static int transfers_submit(struct transfers *t)
{
	return t->nr ? image_submit(t->vol->vol.image, t->ios, t->nr) : 0;
}

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

static void *block_memory(const struct folio *folio, unsigned int block)
{
	return (char *)folio_address(folio) + ((size_t)block << folio->mapping->block_shift);
}

/*
 * Reading
 */

/* Sets the bit of each folio of the run that a failed transfer was for. */
static void note_failures(const struct transfers *t, struct folio **folios, bool *failed)
{
	for (unsigned int i = 0; i < t->nr; i++) {
		const struct image_io *io = &t->ios[i];
		unsigned int f = t->owners[i];

		if (!io->result)
			continue;
		for (unsigned int v = 0; v < io->iovcnt; v++) {
			char *start = io->iov[v].iov_base, *end = start + io->iov[v].iov_len;

			while (start < end) {
				char *base;

				while (base = folio_address(folios[f]),
				       start < base || start >= base + PAGE_SIZE)
					f++;
				failed[f] = true;
				start = base + PAGE_SIZE;
			}
		}
	}
}

/* Plans the reads of one folio; zeros what has no place. */
static int plan_read(struct ext4_inode *inode, struct folio *folio, unsigned int number,
		     loff_t size, struct map_extent *extent, struct transfers *t)
{
	unsigned int shift = folio->mapping->block_shift;

	for (unsigned int b = 0; b < blocks_per_page(folio->mapping); b++) {
		loff_t pos = folio_pos(folio) + ((loff_t)b << shift);
		int err;

		if (folio->valid & 1u << b)
			continue;
		if (pos >= size) {
			folio_zero(folio, (size_t)b << shift, 1u << shift);
			continue;
		}
		err = find_next(inode, folio_lblk(folio) + b, extent);
		if (err)
			return err;
		if (!extent->pblk || extent->unwritten)
			folio_zero(folio, (size_t)b << shift, 1u << shift);
		else
			transfers_add(t, block_memory(folio, b), extent->pblk, number);
	}
	return 0;
}

/* The last block of the file has just been read: what is behind the size is none of it. */
static void zero_behind(struct folio *folio, loff_t size)
{
	unsigned int shift = folio->mapping->block_shift;
	loff_t pos = folio_pos(folio);
	size_t from = size - pos, end;

	if (size <= pos || size >= pos + (loff_t)PAGE_SIZE || folio->valid & 1u << (from >> shift))
		return;
	end = ((from >> shift) + 1) << shift;
	folio_zero(folio, from, end - from);
}

static int read_blocks(struct mapping *mapping, struct folio **folios, unsigned int nr)
{
	struct ext4_inode *inode = mapping->owner;
	loff_t size = mapping_size(mapping);
	struct map_extent extent = { 0 };
	bool *failed = calloc(nr, sizeof(*failed));
	struct transfers t;
	int err, result = 0;

	if (!failed)
		return -ENOMEM;
	err = transfers_init(&t, ext4_vol(inode), nr * blocks_per_page(mapping), false);
	if (err)
		goto out;
	for (unsigned int i = 0; i < nr; i++) {
		err = plan_read(inode, folios[i], i, size, &extent, &t);
		failed[i] = err;
		result = result ? result : err;
	}
	err = transfers_submit(&t);
	result = result ? result : err;
	if (err)
		note_failures(&t, folios, failed);
	for (unsigned int i = 0; i < nr; i++) {
		if (failed[i])
			continue;
		zero_behind(folios[i], size);
		folio_mark_uptodate(folios[i]);
	}
	err = result;
	free(t.ios);
out:
	free(failed);
	return err;
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

		if (folios[i]->valid)
			continue;	/* only a whole folio is ever valid of such a file */
		folio_copy_from(folios[i], 0, data, part);
		folio_zero(folios[i], part, PAGE_SIZE - part);
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

/* A cursor over the blocks of a run that are being written. */
struct run {
	struct folio **folios;
	unsigned int blocks, per_page;	/* in the run, in a folio */
	unsigned int at, len;		/* present piece, in blocks of the run */
};

static bool run_writes(const struct run *run, unsigned int block)
{
	return run->folios[block / run->per_page]->writing >> block % run->per_page & 1;
}

/* The next piece of neighbouring blocks; false at the end. Begin with at and len 0. */
static bool run_next(struct run *run)
{
	run->at += run->len;
	run->len = 0;
	while (run->at < run->blocks && !run_writes(run, run->at))
		run->at++;
	while (run->at + run->len < run->blocks && run_writes(run, run->at + run->len))
		run->len++;
	return run->len;
}

static uint32_t run_lblk(const struct run *run)
{
	return folio_lblk(run->folios[0]) + run->at;
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
		err = piece_placed(inode, run_lblk(&run), (uint64_t)run_lblk(&run) + run.len);
		if (err <= 0)
			continue;
		err = ext4_begin(vol);
		if (err)
			continue;
		err = map_alloc_delayed(inode, run_lblk(&run), run.len);
		ext4_end(vol);
	}
	return err;
}

/* -EAGAIN: a block has lost its place, or has become unwritten, since it was placed. */
static int plan_writes(struct ext4_inode *inode, struct run run, struct transfers *t)
{
	struct map_extent extent = { 0 };

	transfers_reset(t);
	while (run_next(&run)) {
		for (unsigned int i = run.at; i < run.at + run.len; i++) {
			struct folio *folio = run.folios[i / run.per_page];
			int err = find_next(inode, folio_lblk(run.folios[0]) + i, &extent);

			if (!err && (!extent.pblk || extent.unwritten))
				err = -EAGAIN;
			if (err)
				return err;
			transfers_add(t, block_memory(folio, i % run.per_page), extent.pblk, 0);
		}
	}
	return 0;
}

/*
 * Between the two nothing keeps the map as it is: a range that is being zeroed is made unwritten
 * before its folios are dropped (falloc.c), perhaps just then.
 */
static int place_and_plan(struct ext4_inode *inode, struct run run, struct transfers *t)
{
	int err;

	do {
		err = place_run(inode, run);
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
		unsigned int settled = folios[i]->reserved & folios[i]->writing;

		blocks += __builtin_popcount(settled);
		folios[i]->reserved &= ~settled;
	}
	delalloc_release(inode, blocks);
}

static int file_write_folios(struct mapping *mapping, struct folio **folios, unsigned int nr)
{
	struct ext4_inode *inode = mapping->owner;
	struct run run = { .folios = folios, .per_page = blocks_per_page(mapping),
			   .blocks = nr * blocks_per_page(mapping) };
	struct transfers t;
	int err;

	err = transfers_init(&t, ext4_vol(inode), run.blocks, true);
	if (!err)
		err = place_and_plan(inode, run, &t);
	if (!err)
		give_back(inode, folios, nr);
	for (unsigned int i = 0; i < nr; i++)
		folio_unlock(folios[i]);
	if (!err)
		err = transfers_submit(&t);
	free(t.ios);
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
