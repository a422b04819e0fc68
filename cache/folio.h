/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A folio is one power-of-two run of page frames that holds an aligned part of a mapping.
 *
 * struct folio lives beside the arena, one for each frame, and is never freed while the cache
 * lives: a reader may find one under RCU, try to take a reference, and look again.
 *
 * State
 *
 *	VALID	blocks (1 << mapping->block_shift bytes each) whose bytes are right
 *	DIRTY	blocks that the backing does not have yet; each of them is valid
 *	WRITING	the blocks that the write in flight carries; none unless WRITEBACK
 *	RESERVED  blocks for which the owner's ops->reserve() holds space
 *
 * Each frame's struct has the bits of the blocks in its page, so a folio of any order has its
 * bitmaps without an allocation, and a split moves none of them. A block that is larger than a page
 * has its bit with its first page. Of a folio's frames the first stands for the folio; the others
 * have a count of 0, no mapping, and only their bits mean something. The second one of a large folio
 * has its totals as well.
 *
 * A folio is UPTODATE iff all its blocks are valid. VALID may be read without the lock (acquire:
 * who sees a bit sees the bytes). All four change only under the folio lock; DIRTY and WRITING
 * only under the XArray lock as well, and the end of a write changes these two under the XArray
 * lock alone (it clears WRITING, and after an error makes the blocks dirty again), so with the
 * folio lock they stand still only while WRITEBACK is clear.
 *
 * Index and order of a folio stand still for who has a reference: a split needs to have the only
 * one (split.c).
 *
 * Who may do what
 *
 *			folio lock	reference	WRITEBACK clear
 *	read bytes	-		yes		-
 *	write bytes	yes		yes		-
 *	set valid	yes		yes		-
 *	set dirty	yes		yes		-
 *	remove		yes		yes		yes
 */
#ifndef FOLIO_CACHE_FOLIO_H
#define FOLIO_CACHE_FOLIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "list.h"
#include "xarray.h"

#define PAGE_SHIFT 12
#ifndef PAGE_SIZE
#define PAGE_SIZE (1UL << PAGE_SHIFT)
#endif
#define MAX_FOLIO_ORDER 9
/* An entry of an XArray is split in one go only down to less than two levels below. */
#define FILEMAP_MAX_ORDER                                                                          \
	(2 * XA_CHUNK_SHIFT - 1 < MAX_FOLIO_ORDER ? 2 * XA_CHUNK_SHIFT - 1 : MAX_FOLIO_ORDER)
#define MIN_BLOCK_SHIFT 10
#define MAX_BLOCK_SHIFT 16
#define FOLIO_BLOCKS_MAX (PAGE_SIZE << MAX_FOLIO_ORDER >> MIN_BLOCK_SHIFT)

typedef unsigned long pgoff_t;

struct cache;
struct mapping;

enum folio_flag {
	FOLIO_LOCKED = 1 << 0,
	FOLIO_WAITERS = 1 << 1,
	FOLIO_WRITEBACK = 1 << 2,
	FOLIO_REFERENCED = 1 << 3,
	FOLIO_ACTIVE = 1 << 4,
	FOLIO_LRU = 1 << 5,
	FOLIO_BUDDY = 1 << 6,	/* free: first frame of a block on a buddy list */
	FOLIO_WORKINGSET = 1 << 7, /* has been active */
	FOLIO_READAHEAD = 1 << 8, /* who reads it sets the next window off: readahead.c */
	FOLIO_AHEAD = 1 << 9,	/* read before anybody asked, and nobody has yet */
};

enum folio_blocks { BLOCKS_VALID, BLOCKS_DIRTY, BLOCKS_WRITING, BLOCKS_RESERVED, BLOCKS_KINDS };

struct folio {
	unsigned int flags;	/* enum folio_flag; atomic */
	unsigned int refcount;	/* 0: free, frozen, or not the first frame; atomic */
	struct mapping *mapping; /* NULL once removed; changes under folio lock + XArray lock */
	union {
		pgoff_t index;	/* in pages */
		struct {	/* in the second frame; atomic */
			uint16_t nr_valid; /* blocks */
			uint16_t nr_dirty; /* pages with a dirty block */
		};
	};
	uint8_t order;
	uint8_t block_shift;	/* its mapping's, from filemap_add_folio() on */
	uint8_t level;		/* enum mapping_level that it was allocated for */
	uint8_t blocks[BLOCKS_KINDS]; /* of this frame's page; see above; the first three atomic */
	struct list_head lru;	/* under the LRU lock, or the buddy list while free */
	void *address;		/* constant, as is the next one */
	struct cache *cache;
};

void *folio_address(const struct folio *folio);
size_t folio_size(const struct folio *folio);
/* Offset of the folio's first byte in its mapping. */
loff_t folio_pos(const struct folio *folio);
/* The index behind its last page. */
pgoff_t folio_next_index(const struct folio *folio);
unsigned int folio_nr_blocks(const struct folio *folio);
/* Number of its first block in its mapping. */
loff_t folio_first_block(const struct folio *folio);
void *folio_block_address(const struct folio *folio, unsigned int block);

bool folio_try_get(struct folio *folio);
void folio_get(struct folio *folio);
void folio_put(struct folio *folio);

void folio_lock(struct folio *folio);
bool folio_trylock(struct folio *folio);
void folio_unlock(struct folio *folio);

bool folio_test_uptodate(const struct folio *folio);
bool folio_test_writeback(const struct folio *folio);
/* Is the block, counted from the folio's first one, one of these? */
bool folio_block(const struct folio *folio, enum folio_blocks kind, unsigned int block);
/*
 * The first run of blocks from *@block on that are (@is) or are not of a kind.
 * Return: its length, with its start in *@block; 0 when there is none.
 */
unsigned int folio_find_run(const struct folio *folio, enum folio_blocks kind, bool is,
			    unsigned int *block);
/* The owner's, in its ops: space for a block is held, or no more. Folio locked. */
void folio_set_reserved(struct folio *folio, unsigned int block, bool reserved);
/* True when all blocks that touch [offset, offset + len) of the folio are valid. */
bool folio_range_valid(const struct folio *folio, size_t offset, size_t len);
/* Sets every block valid: the last step of a read. Folio locked. */
void folio_mark_uptodate(struct folio *folio);
/* Sets the blocks that touch the range valid / dirty. Folio locked. dirty takes the DIRTY mark. */
void folio_mark_valid(struct folio *folio, size_t offset, size_t len);
void folio_mark_dirty(struct folio *folio, size_t offset, size_t len);
/* Waits, in a loop, until no write is in flight. Folio locked, or at least referenced. */
void folio_wait_writeback(struct folio *folio);

/*
 * The bytes. Copying goes through these, so that TSan builds know which races are meant: a reader
 * may copy bytes that a writer is changing, as read(2) beside write(2) always could.
 */
void folio_copy_to(void *dst, const struct folio *folio, size_t offset, size_t len);
void folio_copy_from(struct folio *folio, size_t offset, const void *src, size_t len);
void folio_zero(struct folio *folio, size_t offset, size_t len);

#endif
