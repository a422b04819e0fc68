/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Gathering blocks of folios into few transfers of the image: what lies side by side on the image
 * becomes one vectored transfer, and all of them are submitted at once.
 */
#ifndef FOLIOFS_TRANSFERS_H
#define FOLIOFS_TRANSFERS_H

#include <stddef.h>
#include "cache.h"
#include "image.h"

#define TRANSFERS_INLINE 32

/**
 * struct transfers - what is to be read or written
 *
 * transfers_init() first, transfers_finish() last; the rest is internal.
 */
struct transfers {
	struct image *image;
	bool write;
	struct image_io *ios;		/* ->iov is set when they are submitted */
	struct iovec *iov;
	unsigned int nr, nr_iov, room, room_iov;
	uint64_t end;			/* of the last transfer, in the image */
	unsigned int bad;		/* blocks that failed by themselves */
	struct image_io own_ios[TRANSFERS_INLINE];
	struct iovec own_iov[TRANSFERS_INLINE];
};

void transfers_init(struct transfers *t, struct image *image, bool write);
void transfers_finish(struct transfers *t);
/* Forgets what was added. */
void transfers_reset(struct transfers *t);
/* Appends @len bytes at @offset of the image; 0 or -ENOMEM. */
int transfers_add(struct transfers *t, uint64_t offset, void *memory, size_t len);
/* Starts all and waits for all: 0 or the first error. */
int transfers_submit(struct transfers *t);
/*
 * After a read whose submit returned @err: the blocks of the folio that were not valid are now, but
 * for those that cannot be read. A block in a larger transfer that failed is tried by itself.
 */
void transfers_mark_valid(struct transfers *t, struct folio *folio, int err);

#endif
