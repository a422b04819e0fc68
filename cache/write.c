/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writing into a mapping, folio by folio, which are made as large as the write: throttle, get the
 * folio, complete the blocks that are only partly written, have the owner reserve space, copy, mark
 * valid and dirty, raise the size.
 *
 * What the first and the last block miss is read from the backing, or zeroed where the block lies
 * behind the size. Space is reserved before a byte is changed, for the whole part if possible and
 * else block by block, so that a write on a full disk takes just what there is room for.
 *
 * The size is raised after the bytes are valid and while the folio is locked: a reader who
 * sees the new size finds them.
 */
#include "internal.h"

/* Is the block at byte @at of the folio cut by the write, and not known? */
static bool block_missing(const struct folio *folio, size_t at, size_t cut)
{
	return (cut & ((1UL << folio->block_shift) - 1)) && !folio_range_valid(folio, at, 1);
}

/* Makes the blocks that [offset, offset + len) covers only in part complete. */
static int complete_blocks(struct mapping *mapping, struct folio *folio, size_t offset, size_t len)
{
	size_t mask = (1UL << mapping->block_shift) - 1, end = offset + len;
	bool head = block_missing(folio, offset, offset);
	bool tail = block_missing(folio, end - 1, end);
	loff_t behind = mapping_size(mapping) - folio_pos(folio); /* of the size, in the folio */

	if ((head && (loff_t)(offset & ~mask) < behind) ||
	    (tail && (loff_t)((end - 1) & ~mask) < behind))
		return filemap_read_run(mapping, &folio, 1);
	if (head)
		folio_zero(folio, offset & ~mask, offset & mask);
	if (tail)
		folio_zero(folio, end, ((end + mask) & ~mask) - end);
	return 0;
}

/* Reserves space for as much of the part as there is. Return: bytes; *err says why not all. */
static size_t reserve_part(struct mapping *mapping, struct folio *folio, size_t offset, size_t len,
			   int *err)
{
	size_t bs = 1UL << mapping->block_shift, done, n;

	if (!mapping->ops->reserve)
		return len;
	*err = mapping->ops->reserve(mapping, folio, offset, len);
	if (!*err)
		return len;
	for (done = 0; done < len; done += n) {
		n = bs - ((offset + done) & (bs - 1));
		if (n > len - done)
			n = len - done;
		*err = mapping->ops->reserve(mapping, folio, offset + done, n);
		if (*err)
			break;
	}
	return done;
}

/* How large a new folio may be: as far as it is overwritten whole, so that nothing is read. */
static pgoff_t whole_pages(const struct mapping *mapping, loff_t pos, size_t len)
{
	size_t mask = (PAGE_SIZE << mapping->min_order) - 1;

	return pos & mask ? 1 : (len & ~mask) >> PAGE_SHIFT;
}

/* Writes what lies within one folio. Return: bytes; *err says why not all. */
static size_t write_part(struct mapping *mapping, loff_t pos, const void *buf, size_t len, int *err)
{
	pgoff_t pages = whole_pages(mapping, pos, len);
	struct folio *folio = filemap_grab_range(mapping, pos >> PAGE_SHIFT, pages, err);
	size_t offset;

	if (!folio)
		return 0;
	offset = pos - folio_pos(folio);
	if (len > folio_size(folio) - offset)
		len = folio_size(folio) - offset;
	*err = complete_blocks(mapping, folio, offset, len);
	len = *err ? 0 : reserve_part(mapping, folio, offset, len, err);
	if (len) {
		folio_copy_from(folio, offset, buf, len);
		folio_mark_valid(folio, offset, len);
		folio_mark_dirty(folio, offset, len);
		if (pos + (loff_t)len > mapping_size(mapping))
			mapping_set_size(mapping, pos + len);
	}
	folio_unlock(folio);
	folio_put(folio);
	return len;
}

/* Pages that become dirty by a write of @len bytes, in whole blocks. */
static unsigned long pages_touched(const struct mapping *mapping, loff_t pos, size_t len)
{
	loff_t unit = (loff_t)PAGE_SIZE << mapping->min_order;

	return ((pos + len + unit - 1) / unit - pos / unit) << mapping->min_order;
}

ssize_t filemap_write(struct mapping *mapping, loff_t pos, const void *buf, size_t len)
{
	size_t n, done = 0, most = (throttle_most(mapping->cache) - 1) << PAGE_SHIFT;
	unsigned long pages;
	int err = 0;

	while (done < len && !err) {
		n = len - done < most ? len - done : most;
		pages = pages_touched(mapping, pos, n);
		err = throttle_begin(mapping, pages);
		if (err)
			break;
		n = write_part(mapping, pos, (const char *)buf + done, n, &err);
		throttle_end(mapping, pages);
		done += n;
		pos += n;
	}
	return done ? (ssize_t)done : err;
}
