/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The image as it is after the replay of its journal.
 *
 * A view is an image upon an image: a read of a block that the journal has a newer version of is
 * answered from that version's place in the journal, all others go through as they are. So whatever
 * is above (the mapping of metadata, the folios of files, libext2fs) sees the file system replayed,
 * nothing is written, and the table of replaced blocks is all the memory it costs.
 *
 * A read-only mount stays on the view. A read-write mount looks through it at what the file system
 * will be like, and then has its blocks copied to the image.
 *
 * No locks: a view never changes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "journal.h"
#include "transfers.h"

#define COPY_BLOCKS 64u

struct view {
	struct image image;
	struct image *base;
	struct replay_block *blocks;	/* by rising number */
	size_t nr;
	unsigned int blocksize;
};

/* A part of a transfer that lies in one block */
struct piece {
	uint64_t pos;			/* in the image */
	char *memory;
	size_t len;
};

static struct view *to_view(struct image *image)
{
	return (struct view *)image;
}

/* The first replaced block that is not before @block, or NULL */
static const struct replay_block *find_from(const struct view *view, uint64_t block)
{
	size_t low = 0, high = view->nr;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (view->blocks[middle].block < block)
			low = middle + 1;
		else
			high = middle;
	}
	return low < view->nr ? &view->blocks[low] : NULL;
}

static bool is_replaced(const struct view *view, const struct image_io *io)
{
	uint64_t end = io->offset;
	const struct replay_block *next;

	for (unsigned int i = 0; i < io->iovcnt; i++)
		end += io->iov[i].iov_len;
	next = find_from(view, io->offset / view->blocksize);
	return next && next->block * view->blocksize < end;
}

static const struct replay_block *find(const struct view *view, uint64_t block)
{
	const struct replay_block *next = find_from(view, block);

	return next && next->block == block ? next : NULL;
}

static int add_piece(const struct view *view, const struct piece *piece, struct transfers *t)
{
	const struct replay_block *found = find(view, piece->pos / view->blocksize);
	uint64_t pos = piece->pos;

	if (found)
		pos = found->from * view->blocksize + pos % view->blocksize;
	return transfers_add(t, pos, piece->memory, piece->len);
}

/* Puts the magic number back that an escaped block begins with, as far as the piece has it. */
static int unescape_piece(const struct view *view, const struct piece *piece, struct transfers *t)
{
	const struct replay_block *found = find(view, piece->pos / view->blocksize);
	jbd2_be32 magic = htobe32(JBD2_MAGIC);
	size_t offset = piece->pos % view->blocksize;

	if (!found || !found->escaped)
		return 0;
	for (size_t i = 0; i < piece->len && offset + i < sizeof(magic); i++)
		piece->memory[i] = ((const char *)&magic)[offset + i];
	return 0;
}

static int for_pieces(const struct view *view, const struct image_io *io, struct transfers *t,
		      int (*what)(const struct view *view, const struct piece *piece,
				  struct transfers *t))
{
	struct piece piece = { .pos = io->offset };
	int err = 0;

	for (unsigned int i = 0; i < io->iovcnt; i++) {
		size_t left = io->iov[i].iov_len;

		piece.memory = io->iov[i].iov_base;
		for (; !err && left; left -= piece.len) {
			piece.len = view->blocksize - piece.pos % view->blocksize;
			if (piece.len > left)
				piece.len = left;
			err = what(view, &piece, t);
			piece.pos += piece.len;
			piece.memory += piece.len;
		}
	}
	return err;
}

/* A read that has replaced blocks in it */
static int read_replaced(const struct view *view, struct image_io *io)
{
	struct transfers t;

	transfers_init(&t, view->base, false);
	io->result = for_pieces(view, io, &t, add_piece);
	if (!io->result)
		io->result = transfers_submit(&t);
	if (!io->result)
		io->result = for_pieces(view, io, &t, unescape_piece);
	transfers_finish(&t);
	return io->result;
}

static int refuse_write(struct image_io *io)
{
	return io->result = -EROFS;
}

static int view_submit(struct image *image, struct image_io *ios, unsigned int nr)
{
	struct view *view = to_view(image);
	int err, ret = 0;

	for (unsigned int i = 0; i < nr;) {
		unsigned int end = i;

		while (end < nr && !ios[end].write && !is_replaced(view, &ios[end]))
			end++;
		if (end > i)
			err = image_submit(view->base, ios + i, end - i);
		else if (ios[end++].write)
			err = refuse_write(&ios[i]);
		else
			err = read_replaced(view, &ios[i]);
		if (!ret)
			ret = err;
		i = end;
	}
	return ret;
}

static int view_flush(struct image *image)
{
	return 0;
}

static int view_discard(struct image *image, uint64_t offset, uint64_t len)
{
	return -EROFS;
}

static void view_close(struct image *image)
{
	struct view *view = to_view(image);

	free(view->blocks);
	free(view->image.name);
	free(view);
}

static const struct image_ops view_ops = {
	.submit = view_submit,
	.flush = view_flush,
	.discard = view_discard,
	.close = view_close,
};

struct image *journal_view_create(struct image *base, const struct replay *replay,
				  unsigned int blocksize)
{
	struct view *view = malloc(sizeof(*view));
	char *name = strdup(base->name);

	if (!view || !name) {
		free(view);
		free(name);
		return NULL;
	}
	*view = (struct view){
		.image = { .ops = &view_ops, .size = base->size, .align = base->align,
			   .readonly = true, .name = name },
		.base = base,
		.blocks = replay->blocks,
		.nr = replay->nr,
		.blocksize = blocksize,
	};
	return &view->image;
}

/* Copies replaced blocks to where they belong. */
static int copy_blocks(struct view *view, const struct replay_block *blocks, unsigned int nr,
		       char *buf)
{
	struct transfers in, out;
	int err = 0;

	transfers_init(&in, &view->image, false);
	transfers_init(&out, view->base, true);
	for (unsigned int i = 0; !err && i < nr; i++) {
		uint64_t pos = blocks[i].block * view->blocksize;
		char *memory = buf + (size_t)i * view->blocksize;

		err = transfers_add(&in, pos, memory, view->blocksize);
		if (!err)
			err = transfers_add(&out, pos, memory, view->blocksize);
	}
	if (!err)
		err = transfers_submit(&in);
	if (!err)
		err = transfers_submit(&out);
	transfers_finish(&in);
	transfers_finish(&out);
	return err;
}

/**
 * journal_view_apply - write the replay to the image that lies below
 * @image: the view
 *
 * Context: nobody else looks at either. May be done again, as a whole, when it has failed.
 * Return: 0 or the image's error.
 */
int journal_view_apply(struct image *image)
{
	struct view *view = to_view(image);
	void *buf;
	int err = 0;

	if (posix_memalign(&buf, PAGE_SIZE, (size_t)COPY_BLOCKS * view->blocksize))
		return -ENOMEM;
	for (size_t done = 0; !err && done < view->nr; done += COPY_BLOCKS) {
		size_t left = view->nr - done;

		err = copy_blocks(view, view->blocks + done,
				  left < COPY_BLOCKS ? left : COPY_BLOCKS, buf);
	}
	free(buf);
	return err;
}
