/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The names of one directory in memory.
 *
 * A hash table finds a name, an array in the order of serial numbers gives readdir its order, and
 * for each block the largest gap tells where a new name fits. All three cost O(1) a change:
 *
 * - The table doubles when it holds more names than buckets.
 * - A name that goes leaves NULL in the array (found by binary search on the serials, which
 *   stay); the array is compacted when it holds more NULLs than names.
 * - hints[need / 4] says that no block before has a gap of that size. Searching moves it up, a
 *   gap that grows moves it down again, so blocks without room are not looked at twice.
 *
 * Serials are readdir's cookies. When the index is built a name's serial is its position in the
 * directory, later ones count on behind all positions: a reader in the middle of the directory
 * sees what is there all the time exactly once, whatever is removed, added, or moved to another
 * block by a split of the htree. An index that was dropped and built again gives an unchanged
 * directory the same serials.
 *
 * Memory: about 90 bytes a name. All indexes are on one list, least recently loaded or grown first
 * (lookups do not take its lock). When they hold more names together than a bound, the first ones
 * that are not locked go; but young ones stay up to a second, higher bound, lest large
 * directories in use drop and load each other all the time.
 *
 * Locks: the directory's inode lock guards its index. lru_lock guards the list and owner->index
 * against the freeing of the owner; inode locks are only tried under it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "dir.h"

#define MIN_BUCKET_BITS 4
#define NR_HINTS (264 / 4 + 1) /* the largest entry: 8 + 255 rounded up */

struct dir_index_limits dir_index_limits = {
	.names = 256 * 1024,
	.most = 1024 * 1024,
	.young = 10,
};

static pthread_mutex_t lru_lock = PTHREAD_MUTEX_INITIALIZER;
static struct dir_index *lru_first, *lru_last;
static unsigned long names_total; /* of all indexes; atomic */

static uint32_t hash_name(const char *name, size_t len)
{
	uint32_t h = 2166136261U;

	while (len--)
		h = (h ^ (unsigned char)*name++) * 16777619U;
	return h ^ h >> 15;
}

static struct dir_name **bucket(const struct dir_index *index, uint32_t hash)
{
	return &index->buckets[hash & ((1U << index->bucket_bits) - 1)];
}

static void lru_unlink(struct dir_index *index)
{
	*(index->lru_prev ? &index->lru_prev->lru_next : &lru_first) = index->lru_next;
	*(index->lru_next ? &index->lru_next->lru_prev : &lru_last) = index->lru_prev;
}

static void lru_append(struct dir_index *index)
{
	index->lru_next = NULL;
	index->lru_prev = lru_last;
	*(lru_last ? &lru_last->lru_next : &lru_first) = index;
	lru_last = index;
}

static void destroy(struct dir_index *index)
{
	for (unsigned int i = 0; i < index->used; i++)
		free(index->order[i]);
	__atomic_sub_fetch(&names_total, index->live, __ATOMIC_RELAXED);
	free(index->order);
	free(index->serials);
	free(index->buckets);
	free(index->gaps);
	free(index->hints);
	free(index);
}

static time_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return ts.tv_sec;
}

/**
 * dir_index_new - an empty index, owned by @dir and on the list
 * @dir: directory without an index
 *
 * Context: inode lock exclusive.
 * Return: the index, which is not yet dir->index; NULL without memory.
 */
struct dir_index *dir_index_new(struct ext4_inode *dir)
{
	struct dir_index *index = calloc(1, sizeof(*index));

	if (!index)
		return NULL;
	index->owner = dir;
	index->bucket_bits = MIN_BUCKET_BITS;
	index->buckets = calloc(1U << MIN_BUCKET_BITS, sizeof(*index->buckets));
	index->hints = calloc(NR_HINTS, sizeof(*index->hints));
	pthread_mutex_lock(&lru_lock);
	lru_append(index);
	pthread_mutex_unlock(&lru_lock);
	if (index->buckets && index->hints)
		return index;
	pthread_mutex_lock(&lru_lock);
	lru_unlink(index);
	pthread_mutex_unlock(&lru_lock);
	destroy(index);
	return NULL;
}

/**
 * dir_index_free - drop the index of an inode, if it has one
 * @inode: an inode that nobody uses any more, or a directory whose inode lock is held exclusively
 *
 * Context: takes the lru lock; does not sleep.
 */
void dir_index_free(struct ext4_inode *inode)
{
	struct dir_index *index;

	pthread_mutex_lock(&lru_lock);
	index = inode->index;
	inode->index = NULL;
	if (index)
		lru_unlink(index);
	pthread_mutex_unlock(&lru_lock);
	if (index)
		destroy(index);
}

static bool is_too_much(const struct dir_index *index)
{
	unsigned long names = __atomic_load_n(&names_total, __ATOMIC_RELAXED);

	if (now() - index->used_at < dir_index_limits.young)
		return names > dir_index_limits.most;
	return names > dir_index_limits.names;
}

/* Drop indexes from the old end until the bound is kept; those in use are passed over. */
static void shrink(void)
{
	struct dir_index *index, *next;

	if (__atomic_load_n(&names_total, __ATOMIC_RELAXED) <= dir_index_limits.names)
		return;
	for (index = lru_first; index; index = next) {
		struct ext4_inode *owner = index->owner;

		next = index->lru_next;
		if (!is_too_much(index))
			break;
		if (pthread_rwlock_trywrlock(&owner->lock))
			continue;
		if (owner->index == index) {
			owner->index = NULL;
			lru_unlink(index);
			destroy(index);
		}
		pthread_rwlock_unlock(&owner->lock);
	}
}

/**
 * dir_index_used - a directory's index was loaded or grew: it is the last to be dropped
 * @dir: directory with an index
 *
 * May drop other directories' indexes.
 *
 * Context: inode lock held, so that its own stays; takes the lru lock; does not sleep.
 */
void dir_index_used(struct ext4_inode *dir)
{
	pthread_mutex_lock(&lru_lock);
	dir->index->used_at = now();
	lru_unlink(dir->index);
	lru_append(dir->index);
	shrink();
	pthread_mutex_unlock(&lru_lock);
}

/**
 * dir_index_find - look a name up
 * @index: index
 * @name: name, not terminated
 * @len: its length
 *
 * Context: inode lock held, shared or exclusive.
 * Return: the name, or NULL.
 */
struct dir_name *dir_index_find(const struct dir_index *index, const char *name, size_t len)
{
	uint32_t hash = hash_name(name, len);
	struct dir_name *dn = *bucket(index, hash);

	while (dn && (dn->hash != hash || dn->len != len || memcmp(dn->name, name, len)))
		dn = dn->hash_next;
	return dn;
}

static int grow_order(struct dir_index *index)
{
	unsigned int room = index->room ? index->room * 2 : 16;
	struct dir_name **order;
	uint64_t *serials;

	order = reallocarray(index->order, room, sizeof(*order));
	if (!order)
		return -ENOMEM;
	index->order = order;
	serials = reallocarray(index->serials, room, sizeof(*serials));
	if (!serials)
		return -ENOMEM;
	index->serials = serials;
	index->room = room;
	return 0;
}

/* Doubling is an improvement only: without memory the chains become longer. */
static void grow_buckets(struct dir_index *index)
{
	struct dir_name **buckets = calloc(2U << index->bucket_bits, sizeof(*buckets));

	if (!buckets)
		return;
	free(index->buckets);
	index->buckets = buckets;
	index->bucket_bits++;
	for (unsigned int i = 0; i < index->used; i++) {
		struct dir_name *dn = index->order[i];

		if (!dn)
			continue;
		dn->hash_next = *bucket(index, dn->hash);
		*bucket(index, dn->hash) = dn;
	}
}

/**
 * dir_index_prepare - make a name ready to be added
 * @index: index
 * @name: name
 * @len: its length, at most 255
 *
 * So that adding it, once the block is written, cannot fail.
 *
 * Context: inode lock exclusive.
 * Return: a name that is in no index yet (free() it, or add it), or NULL without memory.
 */
struct dir_name *dir_index_prepare(struct dir_index *index, const char *name, size_t len)
{
	struct dir_name *dn;

	if (index->used == index->room && grow_order(index))
		return NULL;
	dn = calloc(1, sizeof(*dn) + len + 1);
	if (!dn)
		return NULL;
	memcpy(dn->name, name, len);
	dn->len = len;
	dn->hash = hash_name(name, len);
	return dn;
}

/**
 * dir_index_add - add a prepared name, with its ino, type and lblk filled in
 * @index: index
 * @dn: from dir_index_prepare(), with no other name prepared since
 * @serial: its serial, larger than any before; 0: the next one
 *
 * Context: inode lock exclusive.
 */
void dir_index_add(struct dir_index *index, struct dir_name *dn, uint64_t serial)
{
	dn->serial = serial ? serial : index->next_serial;
	index->next_serial = dn->serial + 1;
	if (index->live >> index->bucket_bits)
		grow_buckets(index);
	dn->hash_next = *bucket(index, dn->hash);
	*bucket(index, dn->hash) = dn;
	index->order[index->used] = dn;
	index->serials[index->used++] = dn->serial;
	index->live++;
	__atomic_add_fetch(&names_total, 1, __ATOMIC_RELAXED);
}

/* Position of the first serial that is at least @serial; used when there is none. */
static unsigned int find_serial(const struct dir_index *index, uint64_t serial)
{
	unsigned int low = 0, high = index->used;

	while (low < high) {
		unsigned int mid = low + (high - low) / 2;

		if (index->serials[mid] < serial)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static void compact(struct dir_index *index)
{
	unsigned int to = 0;

	for (unsigned int i = 0; i < index->used; i++) {
		if (!index->order[i])
			continue;
		index->order[to] = index->order[i];
		index->serials[to++] = index->serials[i];
	}
	index->used = to;
}

/**
 * dir_index_remove - take a name out and free it
 * @index: index
 * @dn: a name of it
 *
 * Context: inode lock exclusive.
 */
void dir_index_remove(struct dir_index *index, struct dir_name *dn)
{
	struct dir_name **p = bucket(index, dn->hash);

	while (*p != dn)
		p = &(*p)->hash_next;
	*p = dn->hash_next;
	index->order[find_serial(index, dn->serial)] = NULL;
	free(dn);
	index->live--;
	__atomic_sub_fetch(&names_total, 1, __ATOMIC_RELAXED);
	if (index->used > 2 * index->live + 64)
		compact(index);
}

/**
 * dir_index_next - the first name at or behind a serial
 * @index: index
 * @serial: where to start
 *
 * Context: inode lock held, shared or exclusive.
 * Return: the name, or NULL at the end.
 */
struct dir_name *dir_index_next(const struct dir_index *index, uint64_t serial)
{
	for (unsigned int i = find_serial(index, serial); i < index->used; i++)
		if (index->order[i])
			return index->order[i];
	return NULL;
}

/**
 * dir_index_grow - have room for the gaps of so many blocks
 * @index: index
 * @nr_blocks: blocks of the directory; new ones start without a gap
 *
 * Context: inode lock exclusive.
 * Return: 0 or -ENOMEM.
 */
int dir_index_grow(struct dir_index *index, uint32_t nr_blocks)
{
	if (nr_blocks > index->gaps_room) {
		uint32_t room = nr_blocks + nr_blocks / 2 + 4;
		uint16_t *gaps = reallocarray(index->gaps, room, sizeof(*gaps));

		if (!gaps)
			return -ENOMEM;
		index->gaps = gaps;
		index->gaps_room = room;
	}
	while (index->nr_blocks < nr_blocks)
		index->gaps[index->nr_blocks++] = 0;
	return 0;
}

/**
 * dir_index_set_gap - a block's largest gap has changed
 * @index: index
 * @lblk: block
 * @gap: bytes
 *
 * Context: inode lock exclusive.
 */
void dir_index_set_gap(struct dir_index *index, uint32_t lblk, unsigned int gap)
{
	unsigned int old = index->gaps[lblk];

	if (gap > UINT16_MAX)
		gap = UINT16_MAX;
	index->gaps[lblk] = gap;
	for (unsigned int i = old / 4; i < NR_HINTS && i <= gap / 4; i++)
		if (index->hints[i] > lblk)
			index->hints[i] = lblk;
}

/**
 * dir_index_find_gap - the first block with a gap
 * @index: index
 * @need: bytes, a multiple of 4, at most 264
 *
 * Context: inode lock exclusive.
 * Return: the block, or DIR_NO_BLOCK.
 */
uint32_t dir_index_find_gap(struct dir_index *index, unsigned int need)
{
	uint32_t *hint = &index->hints[need / 4];

	while (*hint < index->nr_blocks && index->gaps[*hint] < need)
		++*hint;
	return *hint < index->nr_blocks ? *hint : DIR_NO_BLOCK;
}
