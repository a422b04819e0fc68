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

/* Bits of the blocks that touch [offset, offset + len). */
unsigned int folio_blocks(const struct folio *folio, size_t offset, size_t len)
{
	unsigned int first, last;

	cache_assert(offset + len <= folio_size(folio));
	if (!len)
		return 0;
	first = offset >> folio->block_shift;
	last = (offset + len - 1) >> folio->block_shift;
	return (2U << last) - (1U << first);
}

unsigned int folio_all_blocks(const struct folio *folio)
{
	return folio_blocks(folio, 0, folio_size(folio));
}

bool folio_range_valid(const struct folio *folio, size_t offset, size_t len)
{
	unsigned int blocks = folio_blocks(folio, offset, len);

	return (load_blocks(&folio->valid) & blocks) == blocks;
}

bool folio_test_uptodate(const struct folio *folio)
{
	return folio_range_valid(folio, 0, folio_size(folio));
}

void folio_mark_valid(struct folio *folio, size_t offset, size_t len)
{
	cache_assert(folio_flags(folio) & FOLIO_LOCKED);
	store_blocks(&folio->valid, folio->valid | folio_blocks(folio, offset, len));
}

void folio_mark_uptodate(struct folio *folio)
{
	folio_mark_valid(folio, 0, folio_size(folio));
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
	unsigned int blocks = folio_blocks(folio, offset, len);
	bool was_clean;

	cache_assert(folio_flags(folio) & FOLIO_LOCKED);
	cache_assert(mapping && folio_range_valid(folio, offset, len));
	if ((load_blocks(&folio->dirty) & blocks) == blocks)
		return;
	xa_lock(&mapping->i_pages);
	was_clean = !folio->dirty;
	store_blocks(&folio->dirty, folio->dirty | blocks);
	if (was_clean) {
		__xa_set_mark(&mapping->i_pages, folio->index, PAGECACHE_TAG_DIRTY);
		__atomic_fetch_add(&mapping->nrdirty, 1, __ATOMIC_SEQ_CST);
		__atomic_fetch_add(&mapping_flusher(mapping)->nr_dirty, 1, __ATOMIC_RELAXED);
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
