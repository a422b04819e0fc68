/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A folio is one power-of-two run of page frames that holds an aligned part of a mapping.
 *
 * struct folio lives beside the arena, one for each frame, and is never freed while the cache
 * lives: a reader may find one under RCU, try to take a reference, and look again.
 *
 * State
 *
 *	valid	bitmap of blocks (1 << mapping->block_shift bytes each) whose bytes are right
 *	dirty	bitmap of blocks that the backing does not have yet; dirty is a subset of valid
 *	writing	the blocks that the write in flight carries; empty unless WRITEBACK
 *	reserved  bitmap of blocks for which the owner's ops->reserve() holds space
 *
 * A folio is UPTODATE iff all its blocks are valid. `valid` may be read without the lock (acquire:
 * who sees a bit sees the bytes). All four change only under the folio lock; `dirty` and `writing`
 * only under the XArray lock as well, and the end of a write changes these two under the XArray
 * lock alone (it clears `writing`, and after an error makes the blocks dirty again), so with the
 * folio lock they stand still only while WRITEBACK is clear.
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

#define PAGE_SHIFT 12
#ifndef PAGE_SIZE
#define PAGE_SIZE (1UL << PAGE_SHIFT)
#endif
#define MAX_FOLIO_ORDER 9

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
};

struct folio {
	unsigned int flags;	/* enum folio_flag; atomic */
	unsigned int refcount;	/* 0: free or frozen; atomic */
	struct mapping *mapping; /* NULL once removed; changes under folio lock + XArray lock */
	pgoff_t index;		/* in pages */
	uint8_t order;
	uint8_t block_shift;	/* its mapping's, from filemap_add_folio() on */
	uint8_t level;		/* enum mapping_level that it was allocated for */
	uint8_t valid, dirty, writing, reserved; /* see above; the first three atomic */
	struct list_head lru;	/* under the LRU lock, or the buddy list while free */
	void *address;		/* constant, as is the next one */
	struct cache *cache;
};

void *folio_address(const struct folio *folio);
size_t folio_size(const struct folio *folio);
/* Offset of the folio's first byte in its mapping. */
loff_t folio_pos(const struct folio *folio);

bool folio_try_get(struct folio *folio);
void folio_get(struct folio *folio);
void folio_put(struct folio *folio);

void folio_lock(struct folio *folio);
bool folio_trylock(struct folio *folio);
void folio_unlock(struct folio *folio);

bool folio_test_uptodate(const struct folio *folio);
bool folio_test_writeback(const struct folio *folio);
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
