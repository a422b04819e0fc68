/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the files of the data path share: delalloc.c file.c file_io.c falloc.c truncate.c inline.c.
 */
#ifndef FOLIOFS_EXT4_FILE_H
#define FOLIOFS_EXT4_FILE_H

#include "map.h"

/* First block of the file in a folio. */
static inline uint32_t folio_lblk(const struct folio *folio)
{
	return folio_first_block(folio);
}

/* True while the file's data lies in the inode; for good only under the volume lock. */
static inline bool ext4_is_inline(const struct ext4_inode *inode)
{
	return __atomic_load_n(&inode->raw.i_flags, __ATOMIC_ACQUIRE) & EXT4_INLINE_DATA_FL;
}

/* One call of ->write_folios: where the data goes. file_write.c; volume lock to change */
struct file_write {
	struct ext4_inode *inode;
	struct map_extent *places;	/* rising, with gaps */
	bool *chosen;			/* of each place: not the file's yet */
	unsigned int nr, room;
	bool written;			/* the data is on the image */
	bool again;			/* zeros may have come over it: it must be written again */
	struct file_write *next;	/* inode->writes */
};

int file_write_folios(struct mapping *mapping, struct folio **folios, unsigned int nr);

/* delalloc.c: ->reserve and ->unreserve, and what writeback has settled */
int file_reserve(struct mapping *mapping, struct folio *folio, size_t offset, size_t len);
void file_unreserve(struct mapping *mapping, struct folio *folio, size_t offset, size_t len);
void delalloc_release(struct ext4_inode *inode, uint32_t blocks);

/* Sets the size in raw, with the superblock's large_file flag where it is needed. Volume lock. */
void file_set_raw_size(struct ext4_inode *inode, uint64_t size);
/* The same, times, and the inode to the image: one change of its own. Inode lock exclusive. */
int file_update(struct ext4_inode *inode, uint64_t size, unsigned int times);
/*
 * Before the size grows past @old_size: what the last block of the file holds behind it becomes
 * zeros, in memory and on the image. Inode lock exclusive, no other.
 */
int file_zero_tail(struct ext4_inode *inode, loff_t new_size);
/* [start, end) of one block reads as zeros, if it does not yet. Inode lock exclusive, no other. */
int file_zero_part(struct ext4_inode *inode, loff_t start, loff_t end);
/* How far one operation goes that changes blocks of [lblk, *end). Volume lock. */
int file_step(struct ext4_inode *inode, uint32_t lblk, uint64_t *end);
/* map_remove() of [lblk, end), in as many operations as it takes. */
int file_remove(struct ext4_inode *inode, uint32_t lblk, uint64_t end);
/* Converts an inline file in a change of its own. Inode lock exclusive. */
int file_leave_inline(struct ext4_inode *inode);

#endif
