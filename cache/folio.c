/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Folios: lock, references, block bitmaps, bytes.
 *
 * The lock is bit FOLIO_LOCKED of the flags. Who finds it taken sets FOLIO_WAITERS and sleeps on
 * the flags word as a futex; waiters for the end of writeback sleep there, too. Whoever clears
 * LOCKED or WRITEBACK clears WAITERS in the same step and, if it was set, wakes all; each looks
 * again and sets it again if it must go on waiting. So no waiter is forgotten, and without one no
 * system call is made.
 *
 * References: a count that is 0 for a free folio and for one that reclaim has frozen;
 * folio_try_get() fails then. A folio in a mapping has one reference from it. The last folio_put()
 * frees it.
 *
 * Setting blocks valid is a release, reading them an acquire: who sees a block valid sees its
 * bytes.
 *
 * The bitmaps lie with the frames (folio.h); for_each_frame() goes over those of a range. So that a
 * large folio need not be gone through to learn whether it is uptodate, or dirty, the second frame
 * has the totals.
 */
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "internal.h"

static void futex_wait(unsigned int *word, unsigned int value)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake_all(unsigned int *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Waits until @bit has been seen clear. */
static void wait_for_bit(struct folio *folio, unsigned int bit)
{
	unsigned int flags = folio_flags(folio);

	while (flags & bit) {
		if (!(flags & FOLIO_WAITERS) &&
		    !__atomic_compare_exchange_n(&folio->flags, &flags, flags | FOLIO_WAITERS,
						 false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			continue;
		futex_wait(&folio->flags, flags | FOLIO_WAITERS);
		flags = folio_flags(folio);
	}
}

static void clear_bit_and_wake(struct folio *folio, unsigned int bit)
{
	unsigned int old =
		__atomic_fetch_and(&folio->flags, ~(bit | FOLIO_WAITERS), __ATOMIC_ACQ_REL);

	cache_assert(old & bit);
	if (old & FOLIO_WAITERS)
		futex_wake_all(&folio->flags);
}

/** folio_trylock() - Lock without waiting. Return: whether it was got. */
bool folio_trylock(struct folio *folio)
{
	return !(__atomic_fetch_or(&folio->flags, FOLIO_LOCKED, __ATOMIC_ACQUIRE) & FOLIO_LOCKED);
}

/**
 * folio_lock() - Lock a folio that the caller has a reference on.
 *
 * Context: May sleep for as long as I/O takes. For the order see mapping.h.
 */
void folio_lock(struct folio *folio)
{
	while (!folio_trylock(folio))
		wait_for_bit(folio, FOLIO_LOCKED);
}

void folio_unlock(struct folio *folio)
{
	clear_bit_and_wake(folio, FOLIO_LOCKED);
}

bool folio_test_writeback(const struct folio *folio)
{
	return folio_flags(folio) & FOLIO_WRITEBACK;
}

/**
 * folio_wait_writeback() - Wait until no write is in flight.
 *
 * Context: May sleep. Holding the folio lock is fine: the writer has let go of it before the I/O,
 * and ends the write without it. Then WRITEBACK stays clear until the lock is released.
 */
void folio_wait_writeback(struct folio *folio)
{
	wait_for_bit(folio, FOLIO_WRITEBACK);
}

void folio_end_writeback(struct folio *folio)
{
	clear_bit_and_wake(folio, FOLIO_WRITEBACK);
}

/** folio_try_get() - Take a reference unless the count is 0. Return: whether it was got. */
bool folio_try_get(struct folio *folio)
{
	unsigned int count = __atomic_load_n(&folio->refcount, __ATOMIC_RELAXED);

	do {
		if (!count)
			return false;
	} while (!__atomic_compare_exchange_n(&folio->refcount, &count, count + 1, true,
					      __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
	return true;
}

/** folio_get() - One reference more on a folio that the caller has one on. */
void folio_get(struct folio *folio)
{
	unsigned int old = __atomic_fetch_add(&folio->refcount, 1, __ATOMIC_RELAXED);

	cache_assert(old);
	(void)old;
}

/**
 * folio_put() - Drop a reference; the last one frees the folio.
 *
 * Context: May take the LRU and arena locks.
 */
void folio_put(struct folio *folio)
{
	unsigned int old = __atomic_fetch_sub(&folio->refcount, 1, __ATOMIC_ACQ_REL);

	cache_assert(old);
	if (old != 1)
		return;
	cache_assert(!folio->mapping);
	lru_remove(folio);
	arena_free(folio);
}

/**
 * folio_put_list() - Drop a reference of each of several folios; those with none left are freed.
 * @folios: of one cache, out of their mappings; the array is used up
 *
 * Context: May take the LRU and arena locks, each once.
 */
void folio_put_list(struct cache *cache, struct folio **folios, unsigned int nr)
{
	unsigned int i, last = 0;

	for (i = 0; i < nr; i++) {
		unsigned int old = __atomic_fetch_sub(&folios[i]->refcount, 1, __ATOMIC_ACQ_REL);

		cache_assert(old);
		if (old == 1)
			folios[last++] = folios[i];
	}
	if (!last)
		return;
	lru_remove_list(cache, folios, last);
	arena_free_list(cache, folios, last);
}

/* Takes the count from @expected to 0, so that nobody can get at the folio any more. */
bool folio_freeze(struct folio *folio, unsigned int expected)
{
	return __atomic_compare_exchange_n(&folio->refcount, &expected, 0, false, __ATOMIC_ACQ_REL,
					   __ATOMIC_RELAXED);
}

void *folio_address(const struct folio *folio)
{
	return folio->address;
}

size_t folio_size(const struct folio *folio)
{
	return PAGE_SIZE << folio->order;
}

loff_t folio_pos(const struct folio *folio)
{
	return (loff_t)folio->index << PAGE_SHIFT;
}

pgoff_t folio_next_index(const struct folio *folio)
{
	return folio->index + (1UL << folio->order);
}

unsigned int folio_nr_blocks(const struct folio *folio)
{
	return folio_size(folio) >> folio->block_shift;
}

loff_t folio_first_block(const struct folio *folio)
{
	return folio_pos(folio) >> folio->block_shift;
}

void *folio_block_address(const struct folio *folio, unsigned int block)
{
	return (char *)folio->address + ((size_t)block << folio->block_shift);
}

/* The frame that has the bit of a block. */
static struct folio *block_frame(const struct folio *folio, unsigned int block, uint8_t *bit)
{
	size_t at = (size_t)block << folio->block_shift;

	*bit = 1U << ((at & (PAGE_SIZE - 1)) >> folio->block_shift);
	return (struct folio *)folio + (at >> PAGE_SHIFT);
}

bool folio_block(const struct folio *folio, enum folio_blocks kind, unsigned int block)
{
	uint8_t bit;
	struct folio *frame = block_frame(folio, block, &bit);

	return frame_blocks(frame, kind) & bit;
}

unsigned int folio_find_run(const struct folio *folio, enum folio_blocks kind, bool is,
			    unsigned int *block)
{
	unsigned int nr = folio_nr_blocks(folio), start = *block, end;

	while (start < nr && folio_block(folio, kind, start) != is)
		start++;
	for (end = start; end < nr && folio_block(folio, kind, end) == is; end++)
		;
	*block = start;
	return end - start;
}

void folio_set_reserved(struct folio *folio, unsigned int block, bool reserved)
{
	uint8_t bit;
	struct folio *frame = block_frame(folio, block, &bit);

	cache_assert(folio_flags(folio) & FOLIO_LOCKED);
	if (reserved)
		frame->blocks[BLOCKS_RESERVED] |= bit;
	else
		frame->blocks[BLOCKS_RESERVED] &= ~bit;
}

/* Are all, or is any, of the blocks that touch the range of a kind? */
bool folio_range_all(const struct folio *folio, enum folio_blocks kind, size_t offset, size_t len)
{
	for_each_frame(it, folio, offset, len)
		if ((frame_blocks(it.frame, kind) & it.mask) != it.mask)
			return false;
	return true;
}

bool folio_range_any(const struct folio *folio, enum folio_blocks kind, size_t offset, size_t len)
{
	for_each_frame(it, folio, offset, len)
		if (frame_blocks(it.frame, kind) & it.mask)
			return true;
	return false;
}

/** folio_count_blocks() - How many blocks of the whole folio are of a kind. */
unsigned int folio_count_blocks(const struct folio *folio, enum folio_blocks kind)
{
	unsigned int nr = 0;

	for_each_frame(it, folio, 0, folio_size(folio))
		nr += nr_bits(frame_blocks(it.frame, kind));
	return nr;
}

static unsigned int nr_valid(const struct folio *folio)
{
	if (!folio->order)
		return nr_bits(frame_blocks(folio, BLOCKS_VALID));
	return __atomic_load_n(&folio[1].nr_valid, __ATOMIC_ACQUIRE);
}

/** folio_nr_dirty() - How many pages of the folio hold a dirty block; 0: it is clean. */
unsigned int folio_nr_dirty(const struct folio *folio)
{
	if (!folio->order)
		return frame_blocks(folio, BLOCKS_DIRTY) != 0;
	return __atomic_load_n(&folio[1].nr_dirty, __ATOMIC_ACQUIRE);
}

/* Does the folio hold a byte that is right? */
bool folio_any_valid(const struct folio *folio)
{
	return nr_valid(folio);
}

/* The totals of a large folio change by a difference. */
static void add_valid(struct folio *folio, int blocks)
{
	if (folio->order)
		__atomic_store_n(&folio[1].nr_valid, folio[1].nr_valid + blocks, __ATOMIC_RELEASE);
}

static void add_dirty(struct folio *folio, int pages)
{
	if (folio->order)
		__atomic_store_n(&folio[1].nr_dirty, folio[1].nr_dirty + pages, __ATOMIC_RELEASE);
}

/* A folio has got its order: counts what its frames hold. */
void folio_count_totals(struct folio *folio)
{
	unsigned int valid = 0, dirty = 0;

	if (!folio->order)
		return;
	for_each_frame(it, folio, 0, folio_size(folio)) {
		valid += nr_bits(frame_blocks(it.frame, BLOCKS_VALID));
		dirty += frame_blocks(it.frame, BLOCKS_DIRTY) ? it.pages : 0;
	}
	__atomic_store_n(&folio[1].nr_valid, valid, __ATOMIC_RELEASE);
	__atomic_store_n(&folio[1].nr_dirty, dirty, __ATOMIC_RELEASE);
}

bool folio_test_uptodate(const struct folio *folio)
{
	return nr_valid(folio) == folio_nr_blocks(folio);
}

bool folio_range_valid(const struct folio *folio, size_t offset, size_t len)
{
	return (folio->order && folio_test_uptodate(folio)) ||
	       folio_range_all(folio, BLOCKS_VALID, offset, len);
}

void folio_mark_valid(struct folio *folio, size_t offset, size_t len)
{
	int blocks = 0;

	cache_assert(folio_flags(folio) & FOLIO_LOCKED);
	for_each_frame(it, folio, offset, len) {
		unsigned int old = frame_blocks(it.frame, BLOCKS_VALID);

		set_frame_blocks(it.frame, BLOCKS_VALID, old | it.mask);
		blocks += nr_bits(it.mask & ~old);
	}
	add_valid(folio, blocks);
}

void folio_mark_uptodate(struct folio *folio)
{
	if (!folio_test_uptodate(folio))
		folio_mark_valid(folio, 0, folio_size(folio));
}

/** folio_clear_valid() - The bytes of the blocks are not known any more. Context: Folio locked. */
void folio_clear_valid(struct folio *folio, size_t offset, size_t len)
{
	int blocks = 0;

	for_each_frame(it, folio, offset, len) {
		unsigned int old = frame_blocks(it.frame, BLOCKS_VALID);

		set_frame_blocks(it.frame, BLOCKS_VALID, old & ~it.mask);
		blocks += nr_bits(it.mask & old);
	}
	add_valid(folio, -blocks);
}

/* Sets or clears dirty bits. Folio locked, XArray lock held. Return: pages that changed. */
unsigned int folio_set_dirty(struct folio *folio, size_t offset, size_t len)
{
	unsigned int pages = 0;

	for_each_frame(it, folio, offset, len) {
		unsigned int old = frame_blocks(it.frame, BLOCKS_DIRTY);

		set_frame_blocks(it.frame, BLOCKS_DIRTY, old | it.mask);
		pages += old ? 0 : it.pages;
	}
	add_dirty(folio, pages);
	return pages;
}

unsigned int folio_clear_dirty(struct folio *folio, size_t offset, size_t len)
{
	unsigned int pages = 0;

	for_each_frame(it, folio, offset, len) {
		unsigned int old = frame_blocks(it.frame, BLOCKS_DIRTY);

		set_frame_blocks(it.frame, BLOCKS_DIRTY, old & ~it.mask);
		pages += old && !(old & ~it.mask) ? it.pages : 0;
	}
	add_dirty(folio, -(int)pages);
	return pages;
}

/**
 * folio_begin_write() - Its dirty blocks that touch a range become those being written.
 * @pages: out: pages that were dirty and are no more
 *
 * Context: Folio locked, XArray lock held.
 * Return: How many blocks.
 */
unsigned int folio_begin_write(struct folio *folio, size_t offset, size_t len, unsigned int *pages)
{
	unsigned int blocks = 0;

	*pages = 0;
	for_each_frame(it, folio, offset, len) {
		unsigned int dirty = frame_blocks(it.frame, BLOCKS_DIRTY);

		cache_assert(!(dirty & ~frame_blocks(it.frame, BLOCKS_VALID)));
		cache_assert(!frame_blocks(it.frame, BLOCKS_WRITING));
		if (!dirty)
			continue;
		set_frame_blocks(it.frame, BLOCKS_WRITING, dirty);
		set_frame_blocks(it.frame, BLOCKS_DIRTY, 0);
		blocks += nr_bits(dirty);
		*pages += it.pages;
	}
	add_dirty(folio, -(int)*pages);
	return blocks;
}

/**
 * folio_end_write() - The blocks that were being written are clean, or dirty again if it @failed.
 * @redirtied: out: pages that have become dirty
 *
 * Context: XArray lock held.
 * Return: Pages that were being written.
 */
unsigned int folio_end_write(struct folio *folio, bool failed, unsigned int *redirtied)
{
	unsigned int pages = 0;

	*redirtied = 0;
	for_each_frame(it, folio, 0, folio_size(folio)) {
		unsigned int writing = frame_blocks(it.frame, BLOCKS_WRITING);
		unsigned int dirty = frame_blocks(it.frame, BLOCKS_DIRTY);

		if (!writing)
			continue;
		pages += it.pages;
		if (failed) {
			*redirtied += dirty ? 0 : it.pages;
			set_frame_blocks(it.frame, BLOCKS_DIRTY, dirty | writing);
		}
		set_frame_blocks(it.frame, BLOCKS_WRITING, 0);
	}
	add_dirty(folio, *redirtied);
	return pages;
}

/**
 * folio_mark_dirty() - The blocks that touch the range are newer than the backing.
 *
 * They are valid. Space for them has been reserved.
 *
 * Context: Folio locked and in a mapping. Takes the XArray lock.
 */
void folio_mark_dirty(struct folio *folio, size_t offset, size_t len)
{
	struct mapping *mapping = folio->mapping;
	struct flusher *flusher = mapping_flusher(mapping);
	unsigned int pages;
	bool was_clean;

	cache_assert(folio_flags(folio) & FOLIO_LOCKED);
	cache_assert(mapping && folio_range_valid(folio, offset, len));
	if (!__atomic_load_n(&flusher->touched, __ATOMIC_RELAXED))
		__atomic_store_n(&flusher->touched, true, __ATOMIC_RELAXED);
	if (folio_range_all(folio, BLOCKS_DIRTY, offset, len))
		return;
	xa_lock(&mapping->i_pages);
	was_clean = !folio_nr_dirty(folio);
	pages = folio_set_dirty(folio, offset, len);
	__atomic_fetch_add(&flusher->nr_dirty, pages, __ATOMIC_RELAXED);
	if (was_clean) {
		__xa_set_mark(&mapping->i_pages, folio->index, PAGECACHE_TAG_DIRTY);
		__atomic_fetch_add(&mapping->nrdirty, 1, __ATOMIC_SEQ_CST);
	}
	xa_unlock(&mapping->i_pages);
	if (was_clean)
		flusher_queue(mapping);
}

#ifdef FOLIO_TSAN
/* Word by word with relaxed atomics: the races are meant, and ThreadSanitizer is told so. */
static void copy_bytes(void *to, const void *from, size_t len)
{
	unsigned char *dst = to;
	const unsigned char *src = from;

	while (len >= 8 && !(((uintptr_t)dst | (uintptr_t)src) & 7)) {
		__atomic_store_n((uint64_t *)dst,
				 __atomic_load_n((uint64_t *)src, __ATOMIC_RELAXED),
				 __ATOMIC_RELAXED);
		dst += 8;
		src += 8;
		len -= 8;
	}
	while (len--)
		__atomic_store_n(dst++, __atomic_load_n(src++, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

static void zero_bytes(void *to, size_t len)
{
	static const uint64_t zeros[PAGE_SIZE / sizeof(uint64_t)];

	while (len) {
		size_t n = len < sizeof(zeros) ? len : sizeof(zeros);

		copy_bytes(to, zeros, n);
		to = (char *)to + n;
		len -= n;
	}
}
#else
static void copy_bytes(void *to, const void *from, size_t len)
{
	memcpy(to, from, len);
}

static void zero_bytes(void *to, size_t len)
{
	memset(to, 0, len);
}
#endif

/* Bytes of one frame, whoever has it now. */
void frame_copy_to(void *dst, const struct folio *frame, size_t offset, size_t len)
{
	cache_assert(offset + len <= PAGE_SIZE);
	copy_bytes(dst, (char *)frame->address + offset, len);
}

void folio_copy_to(void *dst, const struct folio *folio, size_t offset, size_t len)
{
	cache_assert(offset + len <= folio_size(folio));
	copy_bytes(dst, (char *)folio->address + offset, len);
}

void folio_copy_from(struct folio *folio, size_t offset, const void *src, size_t len)
{
	cache_assert(offset + len <= folio_size(folio));
	copy_bytes((char *)folio->address + offset, src, len);
}

void folio_zero(struct folio *folio, size_t offset, size_t len)
{
	cache_assert(offset + len <= folio_size(folio));
	zero_bytes((char *)folio->address + offset, len);
}
