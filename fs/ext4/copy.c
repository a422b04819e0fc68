/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * copy_file_range: from one file's folios to another's, without a way through the kernel.
 *
 * The data goes through a buffer, piece by piece, so that no lock of the source is held while the
 * destination is written to; source and destination may be one file.
 */
#include <errno.h>
#include <stdlib.h>
#include "file.h"

#define COPY_PIECE (256 << 10)

/**
 * ext4_copy_range - copy a range between regular files
 * @in: the source
 * @in_pos: bytes from its start
 * @out: the destination, of the same volume
 * @out_pos: bytes from its start
 * @len: bytes; less is copied at the source's end
 *
 * Context: takes the inode lock of @out. May sleep.
 * Return: bytes copied, or the error when none was.
 */
ssize_t ext4_copy_range(struct vnode *in, loff_t in_pos, struct vnode *out, loff_t out_pos,
			size_t len)
{
	ssize_t total = 0, done = 0;
	loff_t size_left;
	size_t size;
	char *buf;

	if (!S_ISREG(vnode_mode(in)) || !S_ISREG(vnode_mode(out)))
		return -EINVAL;
	/* The end counts that the source has now: a copy to behind it moves it, in one file. */
	size_left = mapping_size(&in->mapping) - in_pos;
	if (size_left <= 0 || !len)
		return 0;
	if (len > (size_t)size_left)
		len = size_left;
	size = len < COPY_PIECE ? len : COPY_PIECE;
	ext4_accessed(in);
	/* Worth another thread for the requests of others; small files are not. */
	if (len > COPY_PIECE && image_about_to_wait)
		image_about_to_wait();
	buf = malloc(size);
	if (!buf)
		return -ENOMEM;
	while ((size_t)total < len) {
		size_t part = len - total < size ? len - total : size;

		done = filemap_read(&in->mapping, in_pos + total, buf, part);
		if (done <= 0)
			break;
		part = done;
		done = ext4_write(out, out_pos + total, buf, part,
				  total ? 0 : VWRITE_KILL_PRIV);
		if (done <= 0)
			break;
		total += done;
		if ((size_t)done < part)
			break;
	}
	free(buf);
	return total ? total : done;
}
