/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See backing.h. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "backing.h"

#define must(condition)                                                                            \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);            \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

uint64_t rnd(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void count(unsigned int *counter, unsigned int n)
{
	__atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

/* Is this call to fail? */
static bool fault(int *in, int *left)
{
	if (__atomic_load_n(left, __ATOMIC_RELAXED) <= 0)
		return false;
	if (__atomic_load_n(in, __ATOMIC_RELAXED) > 0) {
		__atomic_fetch_sub(in, 1, __ATOMIC_RELAXED);
		return false;
	}
	__atomic_fetch_sub(left, 1, __ATOMIC_RELAXED);
	return true;
}

static struct backing *backing_of(struct mapping *mapping)
{
	return mapping->owner;
}

/* What a file system does to its metadata on the way. */
static void touch_volume(struct backing *b, pgoff_t index, bool change)
{
	struct test_volume *volume = b->volume;
	unsigned char buf[512];
	loff_t pos;

	if (!volume)
		return;
	pos = (index * 7919 * sizeof(buf)) % (volume->device->room - sizeof(buf));
	pthread_mutex_lock(&volume->lock);
	must(filemap_read(&volume->device->mapping, pos, buf, sizeof(buf)) == sizeof(buf));
	if (change)
		must(filemap_write(&volume->device->mapping, pos, buf, sizeof(buf)) == sizeof(buf));
	pthread_mutex_unlock(&volume->lock);
}

static unsigned int pages_of(struct folio **folios, unsigned int nr)
{
	unsigned int pages = 0;

	while (nr--)
		pages += 1U << folios[nr]->order;
	return pages;
}

static void read_block(struct backing *b, struct folio *folio, unsigned int block)
{
	size_t bs = 1UL << folio->block_shift, at = block * bs, n = bs;
	loff_t pos = folio_pos(folio) + at, size = mapping_size(&b->mapping);

	if (pos >= size) {
		folio_zero(folio, at, bs);
		return;
	}
	if (pos + (loff_t)n > size)
		n = size - pos;
	folio_copy_from(folio, at, b->data + pos, n);
	folio_zero(folio, at + n, bs - n);
}

static int read_folio(struct backing *b, struct folio *folio)
{
	size_t bs = 1UL << folio->block_shift;
	loff_t bad = b->bad_read - folio_pos(folio);
	bool is_bad = b->bad_read != NEVER && bad >= 0 && bad < (loff_t)folio_size(folio);
	unsigned int block;

	must(folio_flags(folio) & FOLIO_LOCKED);
	must(folio->mapping == &b->mapping);
	for (block = 0; block < folio_nr_blocks(folio); block++) {
		if (folio_block(folio, BLOCKS_VALID, block))
			continue;
		if (is_bad && bad >> PAGE_SHIFT == (loff_t)(block * bs) >> PAGE_SHIFT)
			continue;
		read_block(b, folio, block);
		folio_mark_valid(folio, block * bs, bs);
	}
	return is_bad ? -EIO : 0;
}

static int read_folios(struct mapping *mapping, struct folio **folios, unsigned int nr)
{
	struct backing *b = backing_of(mapping);
	int err, first = 0;
	unsigned int i;

	count(&b->read_calls, 1);
	count(&b->read_pages, pages_of(folios, nr));
	if (fault(&b->fail_reads_in, &b->fail_reads))
		return -EIO;
	if (__atomic_load_n(&b->read_delay_us, __ATOMIC_RELAXED))
		usleep(b->read_delay_us);
	touch_volume(b, folios[0]->index, false);
	for (i = 0; i < nr; i++) {
		must(!i || folios[i]->index == folio_next_index(folios[i - 1]));
		err = read_folio(b, folios[i]);
		if (err && !first)
			first = err;
	}
	return first;
}

static void settle(struct backing *b, struct folio *folio)
{
	loff_t first = folio_first_block(folio);
	unsigned int block;

	must(folio_flags(folio) & FOLIO_LOCKED);
	must(folio_test_writeback(folio) && folio_count_blocks(folio, BLOCKS_WRITING));
	for (block = 0; block < folio_nr_blocks(folio); block++) {
		if (!folio_block(folio, BLOCKS_WRITING, block))
			continue;
		must(b->placed[first + block] || folio_block(folio, BLOCKS_RESERVED, block));
		b->placed[first + block] = true;
		folio_set_reserved(folio, block, false);
		count(&b->write_blocks, 1);
	}
	folio_unlock(folio);
}

static void write_folio(struct backing *b, struct folio *folio)
{
	size_t bs = 1UL << folio->block_shift;
	unsigned int block = 0, nr;

	while ((nr = folio_find_run(folio, BLOCKS_WRITING, true, &block))) {
		must(folio_pos(folio) + (block + nr) * bs <= b->room);
		folio_copy_to(b->data + folio_pos(folio) + block * bs, folio, block * bs, nr * bs);
		block += nr;
	}
}

/* Counts the runs of a batch. */
static void count_runs(struct backing *b, struct folio **folios, unsigned int nr)
{
	unsigned int i, run = 0;

	for (i = 0; i < nr; i++) {
		must(!i || folios[i]->index >= folio_next_index(folios[i - 1]));
		if (!i || folios[i]->index > folio_next_index(folios[i - 1])) {
			count(&b->write_runs, 1);
			run = 0;
		}
		run += 1U << folios[i]->order;
		if (run > __atomic_load_n(&b->max_run, __ATOMIC_RELAXED))
			__atomic_store_n(&b->max_run, run, __ATOMIC_RELAXED);
	}
}

static int write_folios(struct mapping *mapping, struct folio **folios, unsigned int nr)
{
	struct backing *b = backing_of(mapping);
	unsigned int i;

	count(&b->write_calls, 1);
	count(&b->write_pages, pages_of(folios, nr));
	count_runs(b, folios, nr);
	touch_volume(b, folios[0]->index, true);
	for (i = 0; i < nr; i++)
		settle(b, folios[i]);
	if (b->delay_us)
		usleep(b->delay_us);
	if (fault(&b->fail_writes_in, &b->fail_writes))
		return -EIO;
	for (i = 0; i < nr; i++)
		write_folio(b, folios[i]);
	return 0;
}

static int reserve(struct mapping *mapping, struct folio *folio, size_t offset, size_t len)
{
	unsigned int first = offset >> folio->block_shift, wanted = 0, block;
	unsigned int last = (offset + len - 1) >> folio->block_shift;
	struct backing *b = backing_of(mapping);
	loff_t at = folio_first_block(folio);
	int round;

	must(folio_flags(folio) & FOLIO_LOCKED);
	for (round = 0; round < 2; round++) {
		for (block = first; block <= last; block++) {
			if (folio_block(folio, BLOCKS_RESERVED, block) || b->placed[at + block])
				continue;
			if (round)
				folio_set_reserved(folio, block, true);
			else
				wanted++;
		}
		if (round)
			break;
		if (__atomic_sub_fetch(&b->space, wanted, __ATOMIC_RELAXED) < 0) {
			__atomic_fetch_add(&b->space, wanted, __ATOMIC_RELAXED);
			return -ENOSPC;
		}
	}
	return 0;
}

static void unreserve(struct mapping *mapping, struct folio *folio, size_t offset, size_t len)
{
	unsigned int last = (offset + len - 1) >> folio->block_shift, block;
	struct backing *b = backing_of(mapping);

	must(folio_flags(folio) & FOLIO_LOCKED);
	for (block = offset >> folio->block_shift; block <= last; block++) {
		if (!folio_block(folio, BLOCKS_RESERVED, block))
			continue;
		folio_set_reserved(folio, block, false);
		__atomic_fetch_add(&b->space, 1, __ATOMIC_RELAXED);
	}
}

const struct mapping_ops backing_ops = {
	.read_folios = read_folios,
	.write_folios = write_folios,
	.reserve = reserve,
	.unreserve = unreserve,
};

struct cache *test_cache(size_t bytes, unsigned int expire_ms)
{
	struct cache_config config = {.bytes = bytes, .dirty_expire_ms = expire_ms};
	struct cache *cache;

	rcu_register_thread();
	must(!cache_create(&cache, &config));
	return cache;
}

void backing_init(struct backing *b, struct cache *cache, enum mapping_level level,
		  unsigned int block_shift, size_t room, size_t size, unsigned int seed)
{
	uint64_t state = seed * 2654435761ULL + 1;
	size_t i;

	memset(b, 0, sizeof(*b));
	room = (room + PAGE_SIZE - 1) & ~(PAGE_SIZE - 1);
	b->room = room;
	b->data = calloc(1, room);
	b->placed = calloc(room >> block_shift, sizeof(bool));
	must(b->data && b->placed);
	for (i = 0; seed && i < size; i++) {
		b->data[i] = rnd(&state);
		b->placed[i >> block_shift] = true;
	}
	b->space = LONG_MAX / 2;
	b->bad_read = NEVER;
	pthread_mutex_init(&b->inode_lock, NULL);
	must(!mapping_init(&b->mapping, cache, level, block_shift, &backing_ops, b));
	mapping_set_size(&b->mapping, size);
}

void backing_finish(struct backing *b)
{
	truncate_all(&b->mapping);
	mapping_check(&b->mapping);
	must(!b->mapping.nrpages);
	mapping_finish(&b->mapping);
	cache_check(b->mapping.cache);
	pthread_mutex_destroy(&b->inode_lock);
	free(b->data);
	free(b->placed);
}

/* The blocks wholly in [start, end) have no place any more. */
static void take_places(struct backing *b, loff_t start, loff_t end)
{
	loff_t bs = 1 << b->mapping.block_shift, pos;

	for (pos = (start + bs - 1) & ~(bs - 1); pos + bs <= end; pos += bs) {
		if (b->placed[pos / bs])
			__atomic_fetch_add(&b->space, 1, __ATOMIC_RELAXED);
		b->placed[pos / bs] = false;
		memset(b->data + pos, 0, bs);
	}
}

int backing_setsize(struct backing *b, loff_t size)
{
	loff_t old = mapping_size(&b->mapping);
	int err;

	filemap_invalidate_lock(&b->mapping);
	err = truncate_setsize(&b->mapping, size);
	if (!err && size < old)
		take_places(b, size, b->room);
	filemap_invalidate_unlock(&b->mapping);
	return err;
}

int backing_punch(struct backing *b, loff_t start, loff_t end)
{
	int err;

	filemap_invalidate_lock(&b->mapping);
	err = truncate_hole(&b->mapping, start, end);
	if (!err)
		take_places(b, start, end);
	filemap_invalidate_unlock(&b->mapping);
	return err;
}

long backing_reserved(struct backing *b)
{
	struct folio *folio;
	unsigned long index;
	long n = 0;

	xa_for_each(&b->mapping.i_pages, index, folio)
		if (!xa_is_value(folio))
			n += folio_count_blocks(folio, BLOCKS_RESERVED);
	return n;
}

unsigned long backing_shadows(struct backing *b)
{
	unsigned long index, n = 0;
	void *entry;

	xa_for_each(&b->mapping.i_pages, index, entry)
		n += xa_is_value(entry);
	return n;
}
