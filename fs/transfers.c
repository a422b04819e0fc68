/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Transfers between folios and the image. The two arrays grow as they must; small runs, which are
 * the rule, fit in the struct. A transfer takes a stretch of the array of iovecs; where it begins
 * follows from the lengths of those before, so that array can move while it grows.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "transfers.h"

#define BAD_MAX 16

void transfers_init(struct transfers *t, struct image *image, bool write)
{
	t->image = image;
	t->write = write;
	t->ios = t->own_ios;
	t->iov = t->own_iov;
	t->nr = t->nr_iov = 0;
	t->room = t->room_iov = TRANSFERS_INLINE;
	t->end = 0;
	t->bad = 0;
}

void transfers_finish(struct transfers *t)
{
	if (t->ios != t->own_ios)
		free(t->ios);
	if (t->iov != t->own_iov)
		free(t->iov);
}

void transfers_reset(struct transfers *t)
{
	t->nr = t->nr_iov = 0;
}

/* Doubles an array. Return: the new one, or NULL and the old one stays. */
static void *grown(void *array, const void *own, unsigned int room, size_t size)
{
	void *more = realloc(array == own ? NULL : array, 2 * room * size);

	if (more && array == own)
		memcpy(more, own, room * size);
	return more;
}

static int make_room(struct transfers *t)
{
	void *more;

	if (t->nr == t->room) {
		more = grown(t->ios, t->own_ios, t->room, sizeof(*t->ios));
		if (!more)
			return -ENOMEM;
		t->ios = more;
		t->room *= 2;
	}
	if (t->nr_iov == t->room_iov) {
		more = grown(t->iov, t->own_iov, t->room_iov, sizeof(*t->iov));
		if (!more)
			return -ENOMEM;
		t->iov = more;
		t->room_iov *= 2;
	}
	return 0;
}

int transfers_add(struct transfers *t, uint64_t offset, void *memory, size_t len)
{
	struct image_io *io = t->nr ? &t->ios[t->nr - 1] : NULL;
	struct iovec *iov = t->nr_iov ? &t->iov[t->nr_iov - 1] : NULL;
	bool follows = io && t->end == offset;

	if (follows && (char *)iov->iov_base + iov->iov_len == memory) {
		iov->iov_len += len;
		t->end += len;
		return 0;
	}
	if (make_room(t))
		return -ENOMEM;
	t->iov[t->nr_iov++] = (struct iovec){ .iov_base = memory, .iov_len = len };
	if (follows && t->ios[t->nr - 1].iovcnt < IOV_MAX)
		t->ios[t->nr - 1].iovcnt++;
	else
		t->ios[t->nr++] = (struct image_io){
			.offset = offset, .iovcnt = 1, .write = t->write };
	t->end = offset + len;
	return 0;
}

int transfers_submit(struct transfers *t)
{
	struct iovec *iov = t->iov;

	for (unsigned int i = 0; i < t->nr; i++) {
		t->ios[i].iov = iov;
		iov += t->ios[i].iovcnt;
	}
	return t->nr ? image_submit(t->image, t->ios, t->nr) : 0;
}

/*
 * The failed transfer that the block's memory is part of, or NULL. *offset: where the block is in the
 * image; *alone: there was nothing else in the transfer.
 */
static const struct image_io *failed_io(const struct transfers *t, const char *memory, size_t len,
					uint64_t *offset, bool *alone)
{
	for (unsigned int i = 0; i < t->nr; i++) {
		const struct image_io *io = &t->ios[i];

		*offset = io->offset;
		*alone = io->iovcnt == 1 && io->iov[0].iov_len <= len;
		for (unsigned int v = 0; io->result < 0 && v < io->iovcnt; v++) {
			const char *base = io->iov[v].iov_base;

			if (memory >= base && memory < base + io->iov[v].iov_len) {
				*offset += memory - base;
				return io;
			}
			*offset += io->iov[v].iov_len;
		}
	}
	return NULL;
}

/* Has the block been read, if need be by itself? A few that fail so are enough. */
static bool has_read(struct transfers *t, void *memory, size_t len)
{
	struct iovec iov = { .iov_base = memory, .iov_len = len };
	struct image_io again = { .iov = &iov, .iovcnt = 1 };
	bool alone;

	if (!failed_io(t, memory, len, &again.offset, &alone))
		return true;
	if (alone || t->bad == BAD_MAX)
		return false;
	if (!image_submit(t->image, &again, 1))
		return true;
	t->bad++;
	return false;
}

void transfers_mark_valid(struct transfers *t, struct folio *folio, int err)
{
	size_t bs = (size_t)1 << folio->block_shift;

	if (!err) {
		folio_mark_uptodate(folio);
		return;
	}
	for (unsigned int b = 0; b < folio_nr_blocks(folio); b++) {
		if (!folio_block(folio, BLOCKS_VALID, b) &&
		    has_read(t, folio_block_address(folio, b), bs))
			folio_mark_valid(folio, b * bs, bs);
	}
}
