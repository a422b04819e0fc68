/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The image's own mapping, and the io_manager that puts libext2fs on it.
 *
 * Everything that is metadata (superblock, descriptors, bitmaps, inode tables, extent and indirect
 * blocks, directories, xattr blocks) is read from and written to the folios of vol->device, by byte
 * position; the cache bounds it, writes it back by age and pressure, and ext4_commit() makes it
 * durable. The granule of valid and dirty is the file system's block. A write of bytes that are
 * there already dirties nothing, so that libext2fs and we may rewrite whole blocks freely.
 *
 * With a journal a block that changes joins the running transaction (txn.c) instead of becoming
 * dirty, and is written in its place only when that is durable. What is written must stay as it
 * was committed, while operations may change the block again: so it is written from a copy.
 *
 * Locks: all callers hold the volume lock (or are alone: mount, unmount), which is what keeps a
 * reader from seeing half of a write. The folio lock is taken for writing only.
 *
 * A position outside the file system is an error and never reaches the image: damaged block numbers
 * end here.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "ext4.h"
#include "transfers.h"
#include "txn.h"

/* Adds the folio's blocks that are (@is) or are not of a kind, as far as the mapping goes. */
static int add_blocks(struct transfers *t, struct folio *folio, enum folio_blocks kind, bool is)
{
	loff_t size = mapping_size(folio->mapping), pos;
	unsigned int block = 0, nr;
	int err = 0;

	for (; !err && (nr = folio_find_run(folio, kind, is, &block)); block += nr) {
		size_t len = (size_t)nr << folio->block_shift;

		pos = folio_pos(folio) + ((loff_t)block << folio->block_shift);
		if (pos >= size)
			break;
		if (pos + (loff_t)len > size)
			len = size - pos;
		err = transfers_add(t, pos, folio_block_address(folio, block), len);
	}
	return err;
}

static void zero_behind(struct folio *folio, loff_t size)
{
	loff_t pos = folio_pos(folio);
	size_t room = folio_size(folio), keep = size > pos ? size - pos : 0;

	if (keep < room)
		folio_zero(folio, keep, room - keep);
}

static int device_read_folios(struct mapping *mapping, struct folio **folios, unsigned int nr)
{
	struct ext4_volume *vol = mapping->owner;
	struct transfers t;
	int err = 0;

	transfers_init(&t, vol->vol.image, false);
	for (unsigned int i = 0; i < nr && !err; i++)
		err = add_blocks(&t, folios[i], BLOCKS_VALID, false);
	if (!err) {
		err = transfers_submit(&t);
		for (unsigned int i = 0; i < nr; i++) {
			zero_behind(folios[i], mapping_size(mapping));
			transfers_mark_valid(&t, folios[i], err);
		}
	}
	transfers_finish(&t);
	return err;
}

/* Adds copies of the folio's blocks that are committed; *room is where they go. */
static int add_copies(struct ext4_volume *vol, struct transfers *t, struct folio *folio,
		      char **room)
{
	size_t bs = (size_t)1 << folio->block_shift;
	unsigned int block = 0, nr;
	int err = 0;

	while (!err && (nr = folio_find_run(folio, BLOCKS_WRITING, true, &block))) {
		loff_t pos = folio_pos(folio) + ((loff_t)block << folio->block_shift);

		if (txn_may_write(vol, pos >> folio->block_shift)) {
			folio_copy_to(*room, folio, pos - folio_pos(folio), bs);
			err = transfers_add(t, pos, *room, bs);
			*room += bs;
		}
		block++;
	}
	return err;
}

static int write_copies(struct ext4_volume *vol, struct folio **folios, unsigned int nr)
{
	size_t size = 0;
	char *copies, *room;
	struct transfers t;
	int err = 0;

	for (unsigned int i = 0; i < nr; i++)
		size += folio_size(folios[i]);
	copies = room = aligned_alloc(PAGE_SIZE, size);
	if (!copies)
		err = -ENOMEM;
	transfers_init(&t, vol->vol.image, true);
	for (unsigned int i = 0; i < nr; i++) {
		if (!err)
			err = add_copies(vol, &t, folios[i], &room);
		folio_unlock(folios[i]);
	}
	if (!err)
		err = transfers_submit(&t);
	transfers_finish(&t);
	free(copies);
	return err;
}

static int device_write_folios(struct mapping *mapping, struct folio **folios, unsigned int nr)
{
	struct ext4_volume *vol = mapping->owner;
	struct transfers t;
	int err = 0;

	if (vol->txns)
		return write_copies(vol, folios, nr);
	transfers_init(&t, vol->vol.image, true);
	/* A block of the image has its place by nature: the folios can go on at once. */
	for (unsigned int i = 0; i < nr; i++) {
		if (!err)
			err = add_blocks(&t, folios[i], BLOCKS_WRITING, true);
		folio_unlock(folios[i]);
	}
	if (!err)
		err = transfers_submit(&t);
	transfers_finish(&t);
	return err;
}

const struct mapping_ops device_mapping_ops = {
	.read_folios = device_read_folios,
	.write_folios = device_write_folios,
};

static bool outside(struct ext4_volume *vol, uint64_t pos, size_t len)
{
	uint64_t size = mapping_size(&vol->device);

	return pos > size || len > size - pos;
}

/**
 * device_pread - read metadata
 * @vol: volume
 * @pos: bytes from the start of the image
 * @buf: where to
 * @len: bytes
 *
 * Context: volume lock. May sleep.
 * Return: 0, -EUCLEAN outside the file system, or the image's error.
 */
int device_pread(struct ext4_volume *vol, uint64_t pos, void *buf, size_t len)
{
	ssize_t n;

	if (outside(vol, pos, len))
		return -EUCLEAN;
	n = filemap_read(&vol->device, pos, buf, len);
	if (n < 0)
		return n;
	return (size_t)n == len ? 0 : -EIO;
}

/*
 * The folio of @pos, locked, with [pos, pos + len) valid, or to be overwritten by whole blocks.
 */
static struct folio *grab_for_write(struct ext4_volume *vol, uint64_t pos, size_t len, int *err)
{
	size_t mask = ((size_t)1 << vol->device.block_shift) - 1;
	bool whole = !((pos | len) & mask);
	char byte;

	for (;;) {
		struct folio *folio = filemap_grab_folio(&vol->device, pos >> PAGE_SHIFT, err);

		if (!folio || whole || folio_range_valid(folio, pos - folio_pos(folio), len))
			return folio;
		folio_unlock(folio);
		folio_put(folio);
		/* Read it; it may be evicted before we are back, then once more. */
		for (size_t at = 0; at < len; at += mask + 1) {
			*err = device_pread(vol, pos + at, &byte, 1);
			if (*err)
				return NULL;
		}
		*err = device_pread(vol, pos + len - 1, &byte, 1);
		if (*err)
			return NULL;
	}
}

/* Within one block of a locked folio. */
static int write_in_block(struct ext4_volume *vol, struct folio *folio, size_t offset,
			  const void *buf, size_t len)
{
	int err;

	if (folio_range_valid(folio, offset, len) &&
	    !memcmp((char *)folio_address(folio) + offset, buf, len))
		return 0;
	if (vol->txns) {
		err = txn_join(vol, folio, (folio_pos(folio) + offset) >> folio->block_shift);
		if (err)
			return err;
	}
	folio_copy_from(folio, offset, buf, len);
	folio_mark_valid(folio, offset, len);
	if (!vol->txns)
		folio_mark_dirty(folio, offset, len);
	return 0;
}

static int write_in_folio(struct ext4_volume *vol, uint64_t pos, const char *buf, size_t len)
{
	size_t bs = (size_t)1 << vol->device.block_shift, offset, n;
	struct folio *folio;
	int err = 0;

	folio = grab_for_write(vol, pos, len, &err);
	if (!folio)
		return err;
	for (offset = pos - folio_pos(folio); len && !err; offset += n, buf += n, len -= n) {
		n = bs - (offset & (bs - 1));
		if (n > len)
			n = len;
		err = write_in_block(vol, folio, offset, buf, n);
	}
	folio_unlock(folio);
	folio_put(folio);
	return err;
}

/**
 * device_pwrite - write metadata, to be brought to the image later
 * @vol: volume
 * @pos: bytes from the start of the image
 * @buf: where from
 * @len: bytes; parts of blocks are allowed
 *
 * Context: volume lock. May sleep.
 * Return: 0, -EUCLEAN outside the file system, or the error of reading a block's other part.
 */
int device_pwrite(struct ext4_volume *vol, uint64_t pos, const void *buf, size_t len)
{
	uint64_t unit = PAGE_SIZE << vol->device.min_order;
	const char *from = buf;

	if (outside(vol, pos, len))
		return -EUCLEAN;
	while (len) {
		size_t n = unit - (pos & (unit - 1));
		int err;

		if (n > len)
			n = len;
		err = write_in_folio(vol, pos, from, n);
		if (err)
			return err;
		pos += n;
		from += n;
		len -= n;
	}
	return 0;
}

static bool block_outside(struct ext4_volume *vol, uint64_t blk)
{
	return blk >= (uint64_t)mapping_size(&vol->device) >> vol->device.block_shift;
}

int device_read(struct ext4_volume *vol, uint64_t blk, void *buf)
{
	if (block_outside(vol, blk))
		return -EUCLEAN;
	return device_pread(vol, blk << vol->device.block_shift, buf, vol->vol.blocksize);
}

int device_write(struct ext4_volume *vol, uint64_t blk, const void *buf)
{
	if (block_outside(vol, blk))
		return -EUCLEAN;
	return device_pwrite(vol, blk << vol->device.block_shift, buf, vol->vol.blocksize);
}

static void read_blocks(struct ext4_volume *vol, struct file_ra *ra, uint64_t blk, uint64_t count)
{
	struct folio_batch batch;
	loff_t pos, end, size = mapping_size(&vol->device);

	if (block_outside(vol, blk))
		return;
	pos = blk << vol->device.block_shift;
	end = count < (uint64_t)(size - pos) >> vol->device.block_shift ?
		      pos + (loff_t)(count << vol->device.block_shift) :
		      size;
	while (pos < end) {
		if (filemap_get_pages_ra(&vol->device, ra, pos, end - pos, &batch) < 0 || !batch.nr)
			return;
		pos = folio_pos(batch.folios[batch.nr - 1]) +
		      folio_size(batch.folios[batch.nr - 1]);
		folio_batch_release(&batch);
	}
}

void device_readahead(struct ext4_volume *vol, uint64_t blk, uint64_t count)
{
	read_blocks(vol, NULL, blk, count);
}

/*
 * What follows may be data of files. Then it is in the cache as the image has it now, and of no use;
 * but no harm either, since it is forgotten before the blocks become metadata: when they are freed.
 */
void device_readahead_dir(struct ext4_volume *vol, uint64_t blk, uint64_t count)
{
	read_blocks(vol, &vol->dir_ra, blk, count);
}

/**
 * device_forget - blocks are metadata no longer
 * @vol: volume
 * @blk: first block
 * @count: blocks
 *
 * What the mapping holds of them is dropped, dirty or not, and never written over what they become.
 *
 * Context: volume lock. Waits for writes in flight.
 */
void device_forget(struct ext4_volume *vol, uint64_t blk, uint64_t count)
{
	txn_forget(vol, blk, count);
	invalidate_blocks(&vol->device, blk << vol->device.block_shift,
			  (blk + count) << vol->device.block_shift);
}

/*
 * The io_manager. private_data is the volume; ->open finds it in a variable of the thread that
 * opens, since all that libext2fs passes is a name.
 */
static __thread struct ext4_volume *opening;

static struct ext4_volume *channel_vol(io_channel channel)
{
	return channel->private_data;
}

/* Negative errno to errcode_t */
static errcode_t io_error(int err)
{
	return err == -EUCLEAN ? EXT2_ET_BAD_BLOCK_NUM : -err;
}

static errcode_t io_open(const char *name, int flags, io_channel *ret)
{
	io_channel channel = calloc(1, sizeof(*channel));

	if (!channel)
		return EXT2_ET_NO_MEMORY;
	channel->name = strdup(name);
	if (!channel->name) {
		free(channel);
		return EXT2_ET_NO_MEMORY;
	}
	channel->magic = EXT2_ET_MAGIC_IO_CHANNEL;
	channel->manager = device_io_manager;
	channel->block_size = SUPERBLOCK_OFFSET;
	channel->refcount = 1;
	channel->private_data = opening;
	*ret = channel;
	return 0;
}

static errcode_t io_close(io_channel channel)
{
	if (--channel->refcount > 0)
		return 0;
	free(channel->name);
	free(channel);
	return 0;
}

static errcode_t io_set_blksize(io_channel channel, int blksize)
{
	channel->block_size = blksize;
	return 0;
}

/* True when block and count cannot be meant; then there is no position to compute. */
static bool io_span(io_channel channel, unsigned long long block, int count, uint64_t *pos,
		    size_t *len)
{
	uint64_t size = channel->block_size;

	if (block > UINT64_MAX / size / 2)
		return true;
	*pos = block * size;
	*len = count < 0 ? -(size_t)count : count * size;
	return false;
}

static errcode_t io_read_blk64(io_channel channel, unsigned long long block, int count, void *data)
{
	uint64_t pos;
	size_t len;

	if (io_span(channel, block, count, &pos, &len))
		return EXT2_ET_BAD_BLOCK_NUM;
	return io_error(device_pread(channel_vol(channel), pos, data, len));
}

static errcode_t io_write_blk64(io_channel channel, unsigned long long block, int count,
				const void *data)
{
	uint64_t pos;
	size_t len;

	if (io_span(channel, block, count, &pos, &len))
		return EXT2_ET_BAD_BLOCK_NUM;
	return io_error(device_pwrite(channel_vol(channel), pos, data, len));
}

static errcode_t io_read_blk(io_channel channel, unsigned long block, int count, void *data)
{
	return io_read_blk64(channel, block, count, data);
}

static errcode_t io_write_blk(io_channel channel, unsigned long block, int count, const void *data)
{
	return io_write_blk64(channel, block, count, data);
}

static errcode_t io_write_byte(io_channel channel, unsigned long offset, int count,
			       const void *data)
{
	return io_error(device_pwrite(channel_vol(channel), offset, data, count));
}

/* ext4_commit() decides when the image is flushed. */
static errcode_t io_flush(io_channel channel)
{
	return 0;
}

static errcode_t io_discard(io_channel channel, unsigned long long block, unsigned long long count)
{
	struct ext4_volume *vol = channel_vol(channel);

	device_forget(vol, block, count);
	return io_error(image_discard(vol->vol.image, block * channel->block_size,
				      count * channel->block_size));
}

static errcode_t io_cache_readahead(io_channel channel, unsigned long long block,
				    unsigned long long count)
{
	device_readahead(channel_vol(channel), block, count);
	return 0;
}

static errcode_t io_zeroout(io_channel channel, unsigned long long block, unsigned long long count)
{
	static char zeros[EXT2_MAX_BLOCK_SIZE];
	struct ext4_volume *vol = channel_vol(channel);
	int err = 0;

	for (; count && !err; block++, count--)
		err = device_write(vol, block, zeros);
	return io_error(err);
}

static struct struct_io_manager manager = {
	.magic = EXT2_ET_MAGIC_IO_MANAGER,
	.name = "foliofs page cache",
	.open = io_open,
	.close = io_close,
	.set_blksize = io_set_blksize,
	.read_blk = io_read_blk,
	.write_blk = io_write_blk,
	.read_blk64 = io_read_blk64,
	.write_blk64 = io_write_blk64,
	.write_byte = io_write_byte,
	.flush = io_flush,
	.discard = io_discard,
	.cache_readahead = io_cache_readahead,
	.zeroout = io_zeroout,
};

io_manager device_io_manager = &manager;

errcode_t device_open_fs(struct ext4_volume *vol, int flags)
{
	errcode_t err;

	opening = vol;
	err = ext2fs_open2("image", NULL, flags, 0, 0, device_io_manager, &vol->fs);
	opening = NULL;
	return err;
}
