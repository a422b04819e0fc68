/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Finding, adding and reading folios.
 *
 * A look-up takes no lock: under RCU it loads the slot, tries to take a reference on the folio, and
 * loads the slot again. If that still holds the folio, the reference is a good one; if not, the
 * folio was removed meanwhile. A reference that cannot be had (count 0) means that the folio is on
 * its way out, so it counts as a miss; who then adds one waits for the XArray lock until it has
 * gone.
 *
 * A read collects the folios there are, up to the first one that is missing or not valid. If that
 * is the first one wanted, the whole missing run behind it is created, locked, and read in one call
 * of the owner's, under the shared invalidate lock: so no truncation can free the blocks under the
 * read. The folios stay referenced on the way to the caller; with a cache that others fill as fast
 * they could be evicted before they are seen, again and again. Only the first folio of the run may
 * be waited for, its lock as well as its frame (reclaim.c says why).
 *
 * The size is read before the folios are looked for, and again after: bytes that are returned are
 * below both.
 */
#include "internal.h"

/**
 * filemap_get_folio() - Look one folio up.
 *
 * Context: Takes the RCU read lock.
 * Return: The folio with a reference, not locked, or NULL.
 */
struct folio *filemap_get_folio(struct mapping *mapping, pgoff_t index)
{
	XA_STATE(xas, &mapping->i_pages, index);
	struct folio *folio;

	rcu_read_lock();
	for (;; xas_reset(&xas)) {
		folio = xas_load(&xas);
		if (xas_retry(&xas, folio))
			continue;
		if (!folio || xa_is_value(folio) || !folio_try_get(folio)) {
			folio = NULL;
			break;
		}
		if (folio == xas_reload(&xas))
			break;
		/* Removed, or only its node has left the tree: look again. */
		folio_put(folio);
	}
	rcu_read_unlock();
	return folio;
}

/**
 * filemap_get_folio_tag() - Look the first folio with a mark up.
 * @start: where to begin; moved past the folio found
 * @end: last index, below ULONG_MAX
 *
 * Context: Takes the RCU read lock.
 * Return: The folio with a reference, not locked, or NULL.
 */
struct folio *filemap_get_folio_tag(struct mapping *mapping, pgoff_t *start, pgoff_t end,
				    xa_mark_t tag)
{
	XA_STATE(xas, &mapping->i_pages, *start);
	struct folio *folio;

	if (*start > end)
		return NULL;
	rcu_read_lock();
	xas_for_each_marked(&xas, folio, end, tag) {
		if (xas_retry(&xas, folio) || xa_is_value(folio))
			continue;
		if (!folio_try_get(folio))
			continue;
		if (folio == xas_reload(&xas))
			break;
		folio_put(folio);
		xas_reset(&xas);
	}
	*start = folio ? xas.xa_index + 1 : end + 1;
	rcu_read_unlock();
	return folio;
}

/**
 * filemap_add_folio() - Put a new folio into a mapping.
 * @write: it will be written to: that it was here before says nothing of reads
 *
 * Context: May sleep to allocate nodes. Takes the XArray and LRU locks.
 * Return: 0, and the folio is locked; -EEXIST when something is there; -ENOMEM. In any case the
 * caller's reference remains.
 */
int filemap_add_folio(struct mapping *mapping, struct folio *folio, pgoff_t index, bool write)
{
	XA_STATE(xas, &mapping->i_pages, index);
	void *old;
	int err;

	cache_assert(folio->order == 0);
	xas_set_update(&xas, workingset_update_node);
	folio->index = index;
	folio->block_shift = mapping->block_shift;
	folio->mapping = mapping;
	folio_lock(folio);
	folio_get(folio);
	do {
		xas_lock(&xas);
		old = xas_load(&xas);
		if (old && !xa_is_value(old))
			xas_set_err(&xas, -EEXIST);
		xas_store(&xas, folio);
		if (!xas_error(&xas))
			__atomic_fetch_add(&mapping->nrpages, 1, __ATOMIC_RELAXED);
		xas_unlock(&xas);
	} while (xas_nomem(&xas, GFP_KERNEL));
	err = xas_error(&xas);
	if (err) {
		folio->mapping = NULL;
		folio_unlock(folio);
		folio_put(folio);
		return err;
	}
	if (old && !write)
		workingset_refault(folio, old);
	lru_add(folio);
	return 0;
}

struct folio *filemap_grab_folio(struct mapping *mapping, pgoff_t index, int *err)
{
	struct folio *folio;

	for (;;) {
		folio = filemap_get_folio(mapping, index);
		if (folio) {
			folio_lock(folio);
			if (folio->mapping == mapping) {
				folio_mark_accessed(folio);
				count_stat(mapping->cache, hits, 1);
				return folio;
			}
			folio_unlock(folio);
			folio_put(folio);
			continue;
		}
		folio = folio_alloc(mapping->cache, mapping->level, true);
		*err = filemap_add_folio(mapping, folio, index, true);
		if (!*err) {
			count_stat(mapping->cache, misses, 1);
			return folio;
		}
		folio_put(folio);
		if (*err != -EEXIST)
			return NULL;
	}
}

/* What a read wants: bytes [pos, end), in the folios first to last. */
struct read_range {
	loff_t pos, end;
	pgoff_t first, last;
};

/* Are the wanted bytes in the folio at @index valid? */
static bool wanted_valid(const struct read_range *range, const struct folio *folio, pgoff_t index)
{
	size_t from = index == range->first ? range->pos & (PAGE_SIZE - 1) : 0;
	size_t to = index == range->last ? ((range->end - 1) & (PAGE_SIZE - 1)) + 1 : PAGE_SIZE;

	return folio_range_valid(folio, from, to - from);
}

static void batch_add(struct folio_batch *batch, struct folio *folio)
{
	batch->folios[batch->nr++] = folio;
}

/* Takes what is there, without a gap from the first folio on. */
static void collect(struct mapping *mapping, const struct read_range *range,
		    struct folio_batch *batch)
{
	XA_STATE(xas, &mapping->i_pages, range->first);
	struct folio *folio;

	rcu_read_lock();
	for (folio = xas_load(&xas);; folio = xas_next(&xas)) {
		if (xas_retry(&xas, folio))
			continue;
		if (!folio || xa_is_value(folio) || !folio_try_get(folio))
			break;
		if (folio != xas_reload(&xas) || !wanted_valid(range, folio, xas.xa_index)) {
			folio_put(folio);
			break;
		}
		batch_add(batch, folio);
		if (xas.xa_index >= range->last || batch->nr == FOLIO_BATCH_SIZE)
			break;
	}
	rcu_read_unlock();
}

/* A locked and referenced folio to be read into, or NULL (with 0 in *err: look again, or stop). */
static struct folio *grab_missing(struct mapping *mapping, const struct read_range *range,
				  pgoff_t index, int *err)
{
	bool wait = index == range->first;
	struct folio *folio = filemap_get_folio(mapping, index);

	*err = 0;
	if (!folio) {
		folio = folio_alloc(mapping->cache, mapping->level, wait);
		if (!folio)
			return NULL;
		*err = filemap_add_folio(mapping, folio, index, false);
		if (!*err)
			return folio;
		if (*err == -EEXIST)
			*err = 0;
		folio_put(folio);
		return NULL;
	}
	if (wait)
		folio_lock(folio);
	else if (!folio_trylock(folio))
		goto put;
	if (folio->mapping == mapping && !wanted_valid(range, folio, index))
		return folio;
	folio_unlock(folio);
put:
	folio_put(folio);
	return NULL;
}

int filemap_read_run(struct mapping *mapping, struct folio **folios, unsigned int nr)
{
	unsigned int i, blocks = 0;
	int err;

	for (i = 0; i < nr; i++)
		blocks += folio_nr_blocks(folios[i]) - folio_count_blocks(folios[i], BLOCKS_VALID);
	count_stat(mapping->cache, read_bytes, (uint64_t)blocks << mapping->block_shift);
	err = mapping->ops->read_folios(mapping, folios, nr);
	if (err)
		count_stat(mapping->cache, read_errors, 1);
	return err;
}

/* Reads the run that is missing from the first folio on, and hands over what has become valid. */
static int fill(struct mapping *mapping, const struct read_range *range, struct folio_batch *batch)
{
	struct folio *folios[RUN_MAX];
	unsigned int i, nr = 0;
	bool gap = false;
	int err = 0, read_err = 0;

	filemap_invalidate_lock_shared(mapping);
	while (nr < mapping->cache->run_max && range->first + nr <= range->last &&
	       range->end <= mapping_size(mapping)) {
		folios[nr] = grab_missing(mapping, range, range->first + nr, &err);
		if (!folios[nr])
			break;
		nr++;
	}
	if (nr)
		read_err = filemap_read_run(mapping, folios, nr);
	filemap_invalidate_unlock_shared(mapping);
	count_stat(mapping->cache, misses, nr);
	for (i = 0; i < nr; i++) {
		gap = gap || batch->nr == FOLIO_BATCH_SIZE ||
		      !wanted_valid(range, folios[i], folios[i]->index);
		folio_unlock(folios[i]);
		if (gap)
			folio_put(folios[i]);
		else
			batch_add(batch, folios[i]);
	}
	if (batch->nr)
		return 0;
	return nr ? (read_err ? read_err : -EIO) : err;
}

/* A read that goes on in the folio where the last one ended is the same access. */
static void mark_batch_accessed(struct mapping *mapping, const struct folio_batch *batch)
{
	pgoff_t last = __atomic_load_n(&mapping->last_read, __ATOMIC_RELAXED);
	pgoff_t end = batch->folios[batch->nr - 1]->index;
	unsigned int i;

	for (i = batch->folios[0]->index == last; i < batch->nr; i++)
		folio_mark_accessed(batch->folios[i]);
	if (end != last)
		__atomic_store_n(&mapping->last_read, end, __ATOMIC_RELAXED);
}

int filemap_get_pages(struct mapping *mapping, loff_t pos, size_t len, struct folio_batch *batch)
{
	struct read_range range = {.pos = pos, .first = pos >> PAGE_SHIFT};
	int err = 0;

	batch->nr = 0;
	while (!batch->nr && !err) {
		loff_t size = mapping_size(mapping);

		if (pos >= size || !len)
			return 0;
		range.end = len < (uint64_t)(size - pos) ? pos + (loff_t)len : size;
		range.last = (range.end - 1) >> PAGE_SHIFT;
		collect(mapping, &range, batch);
		if (batch->nr)
			count_stat(mapping->cache, hits, batch->nr);
		else
			err = fill(mapping, &range, batch);
	}
	if (batch->nr)
		mark_batch_accessed(mapping, batch);
	return err;
}

void folio_batch_release(struct folio_batch *batch)
{
	unsigned int i;

	for (i = 0; i < batch->nr; i++)
		folio_put(batch->folios[i]);
	batch->nr = 0;
}

/* Copies what the batch has of [pos, end) to @buf. Return: bytes. */
static size_t copy_batch(const struct folio_batch *batch, loff_t pos, loff_t end, char *buf)
{
	size_t done = 0;
	unsigned int i;

	for (i = 0; i < batch->nr && pos < end; i++) {
		size_t offset = pos & (PAGE_SIZE - 1);
		size_t n = PAGE_SIZE - offset;

		if ((loff_t)n > end - pos)
			n = end - pos;
		folio_copy_to(buf + done, batch->folios[i], offset, n);
		done += n;
		pos += n;
	}
	return done;
}

ssize_t filemap_read(struct mapping *mapping, loff_t pos, void *buf, size_t len)
{
	struct folio_batch batch;
	loff_t size, end;
	size_t n, done = 0;
	int err = 0;

	while (done < len) {
		size = mapping_size(mapping);
		end = len - done < (uint64_t)(size > pos ? size - pos : 0)
			      ? pos + (loff_t)(len - done)
			      : size;
		if (end <= pos)
			break;
		err = filemap_get_pages(mapping, pos, end - pos, &batch);
		if (err || !batch.nr)
			break;
		size = mapping_size(mapping);
		n = copy_batch(&batch, pos, end < size ? end : size, (char *)buf + done);
		folio_batch_release(&batch);
		if (!n)
			break;
		done += n;
		pos += n;
	}
	return done ? (ssize_t)done : err;
}
