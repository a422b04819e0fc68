/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writing dirty folios to the backing.
 *
 * A pass first turns the DIRTY marks of its range into TOWRITE marks, and then goes over these
 * only: what becomes dirty meanwhile is for the next pass, so a pass ends however fast others
 * write. It picks the next folio with the mark, one at a time, and extends it over its contiguous
 * dirty neighbours as long as their locks can be had without waiting. The owner writes the run in
 * one call.
 *
 * A pass for data integrity (sync) waits for the lock of the folio it picked and for a write of it
 * that is in flight, and then looks at the folio again: it may be dirty once more. Other passes
 * leave such folios for later. All go on past errors and return the first.
 *
 *	state of a folio		DIRTY	WRITING	WRITEBACK  marks
 *	clean				0	0	-	   none
 *	dirty				!=0	0	-	   DIRTY (TOWRITE)
 *	being written			0	!=0	x	   WRITEBACK
 *	redirtied while written		!=0	!=0	x	   WRITEBACK, DIRTY (TOWRITE)
 *
 * dirty -> being written needs the folio lock and the XArray lock; the end of the write only the
 * latter, so that who holds the folio lock can wait for it. After a failed write the blocks are
 * dirty again, with an error in the mapping. Callers keep the mapping alive: the owner by his own
 * reference, a flusher by a pin.
 */
#include "internal.h"

#define TAG_BATCH 4096

static void tag_dirty_to_write(struct mapping *mapping, pgoff_t start, pgoff_t end)
{
	XA_STATE(xas, &mapping->i_pages, start);
	unsigned int tagged = 0;
	void *entry;

	xas_lock(&xas);
	xas_for_each_marked(&xas, entry, end, PAGECACHE_TAG_DIRTY) {
		xas_set_mark(&xas, PAGECACHE_TAG_TOWRITE);
		if (++tagged % TAG_BATCH)
			continue;
		xas_pause(&xas);
		xas_unlock(&xas);
		xas_lock(&xas);
	}
	xas_unlock(&xas);
}

/* Locks a folio to be written; false when there is nothing to write or one would have to wait. */
static bool lock_dirty(struct mapping *mapping, struct folio *folio, bool sync)
{
	if (sync)
		folio_lock(folio);
	else if (!folio_trylock(folio))
		return false;
	if (folio->mapping == mapping) {
		if (sync)
			folio_wait_writeback(folio);
		if (folio_nr_dirty(folio) && !folio_test_writeback(folio))
			return true;
	}
	folio_unlock(folio);
	return false;
}

/* Appends the dirty neighbours of folios[0] that can be locked at once. Return: folios in all. */
static unsigned int extend_run(struct mapping *mapping, struct folio **folios, pgoff_t end)
{
	pgoff_t first = folios[0]->index, next = folio_next_index(folios[0]);
	XA_STATE(xas, &mapping->i_pages, next);
	struct folio *folio;
	unsigned int nr = 1;

	rcu_read_lock();
	for (folio = xas_load(&xas);; folio = xas_next(&xas)) {
		if (xas_retry(&xas, folio))
			continue;
		if (next > end || next - first >= mapping->cache->run_max)
			break;
		if (!folio || xa_is_value(folio) || xa_is_sibling(folio) || !folio_try_get(folio))
			break;
		if (folio != xas_reload(&xas) || !lock_dirty(mapping, folio, false)) {
			folio_put(folio);
			break;
		}
		folios[nr++] = folio;
		next = folio_next_index(folio);
		xas_advance(&xas, next - 1);
	}
	rcu_read_unlock();
	return nr;
}

/* The run's dirty blocks become those being written. Return: how many. */
static unsigned int begin_run(struct mapping *mapping, struct folio **folios, unsigned int nr)
{
	struct flusher *flusher = mapping_flusher(mapping);
	unsigned int i, part, blocks = 0, pages = 0;
	XA_STATE(xas, &mapping->i_pages, 0);

	xas_lock(&xas);
	for (i = 0; i < nr; i++) {
		struct folio *folio = folios[i];

		cache_assert(folio_nr_dirty(folio));
		blocks += folio_begin_write(folio, &part);
		pages += part;
		folio_set_flags(folio, FOLIO_WRITEBACK);
		xas_set(&xas, folio->index);
		xas_load(&xas);
		xas_set_mark(&xas, PAGECACHE_TAG_WRITEBACK);
		xas_clear_mark(&xas, PAGECACHE_TAG_DIRTY);
		xas_clear_mark(&xas, PAGECACHE_TAG_TOWRITE);
	}
	__atomic_fetch_sub(&mapping->nrdirty, nr, __ATOMIC_SEQ_CST);
	__atomic_fetch_sub(&flusher->nr_dirty, pages, __ATOMIC_RELAXED);
	__atomic_fetch_add(&flusher->nr_writeback, pages, __ATOMIC_RELAXED);
	xas_unlock(&xas);
	return blocks;
}

/* What was being written is clean, or dirty again if it @failed. Return: are any dirty again? */
static bool finish_folios(struct mapping *mapping, struct folio **folios, unsigned int nr,
			  bool failed)
{
	unsigned int i, part, folios_dirty = 0, pages = 0, pages_dirty = 0;
	struct flusher *flusher = mapping_flusher(mapping);
	XA_STATE(xas, &mapping->i_pages, 0);

	xas_lock(&xas);
	for (i = 0; i < nr; i++) {
		struct folio *folio = folios[i];
		bool was_clean = !folio_nr_dirty(folio);

		xas_set(&xas, folio->index);
		xas_load(&xas);
		pages += folio_end_write(folio, failed, &part);
		pages_dirty += part;
		if (failed && was_clean) {
			folios_dirty++;
			xas_set_mark(&xas, PAGECACHE_TAG_DIRTY);
		}
		folio_end_writeback(folio);
		xas_clear_mark(&xas, PAGECACHE_TAG_WRITEBACK);
	}
	__atomic_fetch_add(&mapping->nrdirty, folios_dirty, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&flusher->nr_dirty, pages_dirty, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&flusher->nr_writeback, pages, __ATOMIC_RELAXED);
	xas_unlock(&xas);
	return folios_dirty;
}

static void end_run(struct mapping *mapping, struct folio **folios, unsigned int nr, int err)
{
	bool redirtied = finish_folios(mapping, folios, nr, err != 0);
	unsigned int i;

	if (redirtied)
		flusher_queue(mapping);
	for (i = 0; i < nr; i++)
		folio_put(folios[i]);
	flusher_progress(mapping_flusher(mapping));
	arena_wake(mapping->cache);
}

/* Writes a run of locked dirty folios; unlocks and puts them. */
static int write_run(struct mapping *mapping, struct folio **folios, unsigned int nr)
{
	struct cache *cache = mapping->cache;
	unsigned int blocks = begin_run(mapping, folios, nr);
	int err = mapping->ops->write_folios(mapping, folios, nr);

	count_stat(cache, writeback_runs, 1);
	if (err) {
		count_stat(cache, write_errors, 1);
		mapping_set_error(mapping, err);
	} else {
		count_stat(cache, written_bytes, (uint64_t)blocks << mapping->block_shift);
		__atomic_store_n(&mapping_flusher(mapping)->failures, 0, __ATOMIC_RELAXED);
	}
	end_run(mapping, folios, nr, err);
	return err;
}

/**
 * writeback_range() - Write the folios of a range that are dirty now.
 * @end: last index, below ULONG_MAX
 * @sync: wait for locks and for writes in flight, and leave nothing out
 * @written: is raised by the folios that were handed to the owner; may be NULL
 *
 * Context: May sleep. No folio of the mapping locked.
 * Return: 0 or the first error; the error is recorded in the mapping and the data is dirty again.
 */
int writeback_range(struct mapping *mapping, pgoff_t start, pgoff_t end, bool sync,
		    unsigned long *written)
{
	struct folio *folios[RUN_MAX];
	int err, first_err = 0;
	unsigned int nr;

	if (!__atomic_load_n(&mapping->nrdirty, __ATOMIC_SEQ_CST))
		return 0;
	tag_dirty_to_write(mapping, start, end);
	while ((folios[0] = filemap_get_folio_tag(mapping, &start, end, PAGECACHE_TAG_TOWRITE))) {
		if (!lock_dirty(mapping, folios[0], sync)) {
			folio_put(folios[0]);
			continue;
		}
		nr = extend_run(mapping, folios, end);
		start = folio_next_index(folios[nr - 1]);
		err = write_run(mapping, folios, nr);
		if (written)
			*written += nr;
		if (err && !first_err)
			first_err = err;
	}
	return first_err;
}

static pgoff_t last_index(loff_t end)
{
	return end < 0 ? 0 : (pgoff_t)end >> PAGE_SHIFT;
}

int filemap_write_range(struct mapping *mapping, loff_t start, loff_t end)
{
	return writeback_range(mapping, start >> PAGE_SHIFT, last_index(end), true, NULL);
}

void filemap_wait_range(struct mapping *mapping, loff_t start, loff_t end)
{
	pgoff_t index = start >> PAGE_SHIFT;
	struct folio *folio;

	if (!xa_marked(&mapping->i_pages, PAGECACHE_TAG_WRITEBACK))
		return;
	while ((folio = filemap_get_folio_tag(mapping, &index, last_index(end),
					      PAGECACHE_TAG_WRITEBACK))) {
		folio_wait_writeback(folio);
		folio_put(folio);
	}
}

int filemap_write_and_wait(struct mapping *mapping)
{
	int err = filemap_write_range(mapping, 0, LLONG_MAX);

	filemap_wait_range(mapping, 0, LLONG_MAX);
	return err;
}
