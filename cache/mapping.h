/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A mapping is one cached object: a file, or the image itself.
 *
 * Lock order (outer first)
 *
 *	owner's inode lock -> invalidate lock -> FILE folio lock -> owner's volume lock
 *		-> DEVICE folio lock -> XArray lock -> LRU lock -> arena lock
 *
 * Mappings have a level. A FILE mapping's reads and writes may need the owner's metadata, which
 * lives in a DEVICE mapping; never the other way round. So that writing files back can always
 * end, each level has a flusher thread of its own, and a share of the frames is kept for DEVICE.
 * Folio locks of one mapping are taken in rising index order; further ones by trylock only.
 */
#ifndef FOLIO_CACHE_MAPPING_H
#define FOLIO_CACHE_MAPPING_H

#include <pthread.h>
#include "folio.h"
#include "xarray.h"

struct cache;
struct mapping;

enum mapping_level { MAPPING_FILE, MAPPING_DEVICE, MAPPING_LEVELS };

#define FOLIO_BATCH_SIZE 31

struct folio_batch {
	unsigned int nr;
	struct folio *folios[FOLIO_BATCH_SIZE];
};

/**
 * struct mapping_ops - what the owner of a mapping does for the cache
 *
 * @read_folios: Fill a contiguous run of locked folios, all of this mapping, of any orders. Only
 *	blocks that are not VALID are written to (valid ones may be newer than the backing). Bytes
 *	at or past the mapping's size are zeroed. Calls folio_mark_uptodate() on each folio that has
 *	become right, or folio_mark_valid() for the part of it that has; returns 0, or the first
 *	error (blocks that are not valid then failed). May sleep.
 * @read_files: The same for folios of several mappings, all with these ops, in one go; each mapping's
 *	folios follow each other. Only ever ahead of a reader: errors are of no interest. NULL: not
 *	for readahead_files().
 * @write_folios: Write the WRITING blocks of folios in rising order, runs of neighbours with gaps
 *	between them, all locked and under WRITEBACK. Must folio_unlock() every one of them once
 *	the place of each block is settled and the owner's state of the folio (RESERVED) is brought
 *	up to date, before it waits for the I/O. Returns 0, or an error for all: the cache then marks these blocks
 *	dirty again and records the error. Ending WRITEBACK is the cache's work. May sleep.
 * @reserve: Before the blocks that touch [offset, offset + len) of a locked folio become dirty:
 *	make sure that writing them back cannot fail for want of space, and note it with
 *	folio_set_reserved(). Returns 0, -ENOSPC or another error. NULL: nothing to reserve.
 * @unreserve: The blocks that touch [offset, offset + len) are dropped without being written
 *	(truncation, invalidation); give back what is RESERVED of them and clear these bits. Folio
 *	locked. NULL when reserve is.
 * @pin: A flusher wants to work on the mapping: keep its owner alive; false when it is going away.
 *	Called under a lock of the cache's: must not sleep long nor call the cache. NULL: always
 *	alive while attached (mapping_finish() waits for the flusher).
 * @unpin: The flusher has finished with it. Called without locks; may end the mapping's life.
 */
struct mapping_ops {
	int (*read_folios)(struct mapping *mapping, struct folio **folios, unsigned int nr);
	void (*read_files)(struct folio **folios, unsigned int nr);
	int (*write_folios)(struct mapping *mapping, struct folio **folios, unsigned int nr);
	int (*reserve)(struct mapping *mapping, struct folio *folio, size_t offset, size_t len);
	void (*unreserve)(struct mapping *mapping, struct folio *folio, size_t offset, size_t len);
	bool (*pin)(struct mapping *mapping);
	void (*unpin)(struct mapping *mapping);
};

/* Sequence of write errors: see errseq.c. */
typedef uint32_t errseq_t;

struct mapping {
	struct xarray i_pages;		/* folios; values are shadows. Marks: PAGECACHE_TAG_* */
	struct cache *cache;
	const struct mapping_ops *ops;
	void *owner;
	enum mapping_level level;
	uint8_t block_shift;		/* 10..16: granule of valid and dirty */
	uint8_t min_order;		/* of its folios: a block lies in one */
	uint8_t max_order;		/* of its folios: DEVICE has the smallest, for they are pinned */
	unsigned int removals;		/* batches of folios taken out; atomic, under the XArray lock */
	loff_t size;			/* bytes; atomic; owner's inode lock to change */
	unsigned long nrpages;		/* atomic, under the XArray lock */
	unsigned long nrdirty;		/* folios with dirty blocks; atomic */
	errseq_t wb_err;
	bool write_alone;		/* a write has failed: one folio at a time; atomic */
	pthread_rwlock_t invalidate_lock; /* prefers writers */
	bool exiting;			/* no shadows any more: it is being torn down; atomic */
	pgoff_t last_read;		/* folio that the last read ended in; a hint, atomic */
	unsigned int readaheads;	/* windows queued or being read: readahead.c; atomic */

	/* The level's flusher's, under its lock: see flusher.c. */
	struct list_head dirty_list;	/* one of the flusher's lists, or none */
	bool queued;			/* on one; atomic, for those who look without the lock */
	bool flushing;			/* a flusher thread works on it */
	bool sync_wanted;		/* cache_sync() waits for it */
	uint64_t dirtied_when;		/* ns, CLOCK_MONOTONIC: when it was queued */
	uint64_t retry_at;		/* ns: after a write error, not before */
	unsigned int backoff_ms;
};

#define PAGECACHE_TAG_DIRTY XA_MARK_0
#define PAGECACHE_TAG_WRITEBACK XA_MARK_1
#define PAGECACHE_TAG_TOWRITE XA_MARK_2

int mapping_init(struct mapping *mapping, struct cache *cache, enum mapping_level level,
		 unsigned int block_shift, const struct mapping_ops *ops, void *owner);
/* No folio may be left (truncate first), nobody may look in. */
void mapping_finish(struct mapping *mapping);
loff_t mapping_size(const struct mapping *mapping);
void mapping_set_size(struct mapping *mapping, loff_t size);

/**
 * struct file_ra - how one open file is being read: readahead.c
 * @lock: for all but @last_read
 * @start: first page of the last window
 * @size: its pages
 * @async_size: of these, how many were ahead of the reader when the mark was set
 * @misses: reads that looked random, less those that did not
 * @last_read: page that the last read ended in; a hint, atomic
 */
struct file_ra {
	pthread_mutex_t lock;
	pgoff_t start;
	unsigned long size, async_size;
	unsigned long misses;
	pgoff_t last_read;
};

void file_ra_init(struct file_ra *ra);
void file_ra_finish(struct file_ra *ra);

/*
 * Reading. Returns in @batch referenced folios, in order and without a gap from the one with @pos,
 * whose wanted bytes are valid; at least one unless @pos >= size (then 0 folios and 0), at most
 * those that [pos, pos + len) touches. A failed read behind valid folios shortens the batch; at
 * the first folio it is the error. Takes the invalidate lock shared when it must read.
 */
int filemap_get_pages(struct mapping *mapping, loff_t pos, size_t len, struct folio_batch *batch);
/* The same for an open file, with readahead. @ra: NULL: none */
int filemap_get_pages_ra(struct mapping *mapping, struct file_ra *ra, loff_t pos, size_t len,
			 struct folio_batch *batch);
void folio_batch_release(struct folio_batch *batch);
/* Copies to @buf; short at size. Returns bytes, or an error when none could be read. */
ssize_t filemap_read(struct mapping *mapping, loff_t pos, void *buf, size_t len);
ssize_t filemap_read_ra(struct mapping *mapping, struct file_ra *ra, loff_t pos, void *buf,
			size_t len);

/*
 * Several small files will be wanted soon: reads the beginning of each in the background, all with
 * one call of ops->read_files(), as far as the limit of readahead goes.
 * @mappings: pinned (ops->pin()); each is unpinned when that is done, or cannot be
 * @nr: at most READAHEAD_FILES
 */
#define READAHEAD_FILES 64
void readahead_files(struct cache *cache, struct mapping **mappings, unsigned int nr);

/*
 * Writing: copies @len bytes to [pos, pos + len), block by block through ops->reserve(), reads what
 * a part of a block misses, marks dirty, and raises size as it goes. Returns the bytes taken (short
 * after an error met behind them), or the error. The owner holds its inode lock exclusively (FILE)
 * or its own equivalent. Throttles: waits for the flusher when too much is dirty; never fails for
 * want of memory.
 */
ssize_t filemap_write(struct mapping *mapping, loff_t pos, const void *buf, size_t len);

/*
 * Get the folio that holds an index, locked and referenced, created when it is not there (then with
 * no block valid, and of the mapping's minimum order). It may begin before the index. Never fails
 * for want of frames. Negative errno through *err and NULL otherwise.
 */
struct folio *filemap_grab_folio(struct mapping *mapping, pgoff_t index, int *err);

/*
 * Writeback. start_ starts and waits no longer than it must; _wait waits for writes in flight.
 * Ranges are closed at @start and @end, bytes. Errors: see errseq below; fdatawait does not return
 * them, check_errors does.
 */
int filemap_write_range(struct mapping *mapping, loff_t start, loff_t end);
void filemap_wait_range(struct mapping *mapping, loff_t start, loff_t end);
int filemap_write_and_wait(struct mapping *mapping);

/* Error sequence. An open file samples at open and checks at fsync: each error once for each. */
void errseq_set(errseq_t *seq, int error);
errseq_t errseq_sample(errseq_t *seq);
int errseq_check(errseq_t *seq, errseq_t *since);

/* A mapping's is of its failed writes. */
static inline errseq_t filemap_sample_wb_err(struct mapping *mapping)
{
	return errseq_sample(&mapping->wb_err);
}

static inline int filemap_check_wb_err(struct mapping *mapping, errseq_t *since)
{
	return errseq_check(&mapping->wb_err, since);
}

static inline void mapping_set_error(struct mapping *mapping, int error)
{
	errseq_set(&mapping->wb_err, error);
}

/*
 * Truncation. The owner holds its inode lock and the invalidate lock exclusively.
 * truncate_setsize: sets the size; on shrinking drops all blocks behind it. truncate_hole: [start,
 * end) reads as zero: drops the whole blocks in it. A block that is cut through is read if need be,
 * and its part is zeroed, which makes it dirty if there was anything but zeros (so a hole stays
 * one). Dropped dirty blocks go through unreserve. Both can fail with the error of such a read, and
 * have changed nothing then.
 */
int truncate_setsize(struct mapping *mapping, loff_t size);
int truncate_hole(struct mapping *mapping, loff_t start, loff_t end);
/* Drops every folio, dirty or not, and every shadow: the last step of a mapping's life. */
void truncate_all(struct mapping *mapping);
/*
 * Forget the blocks that touch [start, end), dirty or not, without zeroing: the backing has changed
 * hands. Waits for writes in flight. Blocks in folios that are partly outside become not valid.
 */
void invalidate_blocks(struct mapping *mapping, loff_t start, loff_t end);

void filemap_invalidate_lock(struct mapping *mapping);
void filemap_invalidate_unlock(struct mapping *mapping);
void filemap_invalidate_lock_shared(struct mapping *mapping);
void filemap_invalidate_unlock_shared(struct mapping *mapping);

#endif
