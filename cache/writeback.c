/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writing dirty folios to the backing.
 *
 * A pass goes over the dirty folios of its range, in order. It picks the next one by its mark, one at a
 * time, and extends it over its contiguous dirty neighbours as long as their locks can be had without
 * waiting: a run. Runs are gathered until there is enough for a batch, which the owner writes in one
 * call: each run with one transfer, all of them in flight at once. Of each folio only the dirty
 * blocks are written, and of a folio that is only partly in the range, those in it.
 *
 * A pass for data integrity (sync) first turns the DIRTY marks of its range into TOWRITE marks, and
 * then goes over these only: what becomes dirty meanwhile is for the next pass, so it ends
 * however fast others write. It waits for the lock of a folio and for a write of it that is in
 * flight, and then looks at the folio again: it may be dirty once more. Nobody waits so with other
 * folios locked: the batch is written first. Other passes go by the DIRTY marks and leave folios
 * for later that are busy. All go on past errors and return the first.
 *
 * When a batch could not be written, all of it stays dirty. From then on each folio of the mapping is
 * written by itself, until a pass has met no error: so what keeps failing is just what cannot be
 * written.
 *
 *	state of a folio		DIRTY	WRITING	WRITEBACK  marks
 *	clean				0	0	-	   none
 *	dirty				!=0	0	-	   DIRTY (TOWRITE)
 *	being written			0	!=0	x	   WRITEBACK
 *	redirtied, or written in part	!=0	!=0	x	   WRITEBACK, DIRTY (TOWRITE)
 *
 * dirty -> being written needs the folio lock and the XArray lock; the end of the write only the
 * latter, so that who holds the folio lock can wait for it. A TOWRITE mark goes when the folio has
 * become clean: as long as a part is dirty, another pass may be after that. After a failed write the
 * blocks are dirty again, with an error in the mapping. Callers keep the mapping alive: the owner
 * by his own reference, a flusher by a pin.
 */
#include "internal.h"

#define TAG_BATCH 4096
#define BATCH_FOLIOS 512

/* A pass, and the batch that it gathers: locked folios, each with a reference, in rising order. */
struct pass {
	struct mapping *mapping;
	pgoff_t start, end; /* the range */
	bool sync;
	bool alone;	    /* each folio by itself */
	unsigned int nr;
	unsigned int pages; /* dirty ones */
	unsigned int runs;
	int err;	    /* the first */
	unsigned long *written;
	struct folio *folios[BATCH_FOLIOS];
};

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

/* The bytes of the folio that lie in the pass's range: from *@offset, return: how many. */
static size_t part_in_range(const struct pass *pass, const struct folio *folio, size_t *offset)
{
	pgoff_t first = folio->index, next = folio_next_index(folio);

	*offset = 0;
	if (first < pass->start) {
		*offset = (pass->start - first) << PAGE_SHIFT;
		first = pass->start;
	}
	if (next - 1 > pass->end)
		next = pass->end + 1;
	return (next - first) << PAGE_SHIFT;
}

/* Is there anything to be written of the folio? */
static bool dirty_in_range(const struct pass *pass, const struct folio *folio)
{
	size_t offset, len = part_in_range(pass, folio, &offset);

	if (len == folio_size(folio))
		return folio_nr_dirty(folio);
	return folio_range_any(folio, BLOCKS_DIRTY, offset, len);
}

/* Locks a folio to be written; false when there is nothing to write or one would have to @wait. */
static bool lock_dirty(const struct pass *pass, struct folio *folio, bool wait)
{
	if (wait)
		folio_lock(folio);
	else if (!folio_trylock(folio))
		return false;
	if (folio->mapping == pass->mapping) {
		if (wait)
			folio_wait_writeback(folio);
		if (dirty_in_range(pass, folio) && !folio_test_writeback(folio))
			return true;
	}
	folio_unlock(folio);
	return false;
}

static bool is_full(const struct pass *pass)
{
	return pass->alone ? pass->nr : pass->nr == BATCH_FOLIOS ||
					pass->pages >= pass->mapping->cache->write_max;
}

static void add_folio(struct pass *pass, struct folio *folio)
{
	pass->folios[pass->nr++] = folio;
	pass->pages += folio_nr_dirty(folio);
}

/*
 * Appends the dirty neighbours of the batch's last folio that can be locked at once.
 * Return: the index behind the run.
 */
static pgoff_t extend_run(struct pass *pass)
{
	pgoff_t next = folio_next_index(pass->folios[pass->nr - 1]);
	XA_STATE(xas, &pass->mapping->i_pages, next);
	struct folio *folio;

	rcu_read_lock();
	for (folio = xas_load(&xas); !is_full(pass) && next <= pass->end; folio = xas_next(&xas)) {
		if (xas_retry(&xas, folio))
			continue;
		if (!folio || xa_is_value(folio) || xa_is_sibling(folio) || !folio_try_get(folio))
			break;
		if (folio != xas_reload(&xas) || !lock_dirty(pass, folio, false)) {
			folio_put(folio);
			break;
		}
		add_folio(pass, folio);
		next = folio_next_index(folio);
		xas_advance(&xas, next - 1);
	}
	rcu_read_unlock();
	return next;
}

/* One folio's dirty blocks in the range become those being written. XArray lock. */
static unsigned int begin_folio(struct pass *pass, struct folio *folio, unsigned int *pages)
{
	XA_STATE(xas, &pass->mapping->i_pages, folio->index);
	size_t offset, len = part_in_range(pass, folio, &offset);
	unsigned int blocks = folio_begin_write(folio, offset, len, pages);

	cache_assert(blocks);
	folio_set_flags(folio, FOLIO_WRITEBACK);
	xas_load(&xas);
	xas_set_mark(&xas, PAGECACHE_TAG_WRITEBACK);
	if (folio_nr_dirty(folio))
		return blocks;
	xas_clear_mark(&xas, PAGECACHE_TAG_DIRTY);
	xas_clear_mark(&xas, PAGECACHE_TAG_TOWRITE);
	__atomic_fetch_sub(&pass->mapping->nrdirty, 1, __ATOMIC_SEQ_CST);
	return blocks;
}

/* The same for the batch. Return: how many blocks. */
static unsigned int begin_batch(struct pass *pass)
{
	struct flusher *flusher = mapping_flusher(pass->mapping);
	unsigned int i, part, blocks = 0, pages = 0;

	xa_lock(&pass->mapping->i_pages);
	for (i = 0; i < pass->nr; i++) {
		blocks += begin_folio(pass, pass->folios[i], &part);
		pages += part;
	}
	flusher_begin_write(flusher, pages);
	xa_unlock(&pass->mapping->i_pages);
	return blocks;
}

/*
 * What was being written is clean, or dirty again if it @failed.
 * Return: pages that were being written; *@redirtied: have folios become dirty?
 */
static unsigned int finish_folios(struct pass *pass, bool failed, bool *redirtied)
{
	unsigned int i, part, folios_dirty = 0, pages = 0, pages_dirty = 0;
	struct mapping *mapping = pass->mapping;
	XA_STATE(xas, &mapping->i_pages, 0);

	xas_lock(&xas);
	for (i = 0; i < pass->nr; i++) {
		struct folio *folio = pass->folios[i];
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
	flusher_end_write(mapping_flusher(mapping), pages, pages_dirty);
	xas_unlock(&xas);
	*redirtied = folios_dirty;
	return pages;
}

static void end_batch(struct pass *pass, int err)
{
	struct flusher *flusher = mapping_flusher(pass->mapping);
	unsigned int i, pages;
	bool redirtied;

	pages = finish_folios(pass, err != 0, &redirtied);
	if (redirtied)
		flusher_queue(pass->mapping);
	for (i = 0; i < pass->nr; i++)
		folio_put(pass->folios[i]);
	flusher_progress(flusher, err ? 0 : pages);
	arena_wake(pass->mapping->cache);
}

static void note_error(struct pass *pass, int err)
{
	count_stat(pass->mapping->cache, write_errors, 1);
	mapping_set_error(pass->mapping, err);
	if (!pass->err)
		pass->err = err;
	pass->alone = true;
	__atomic_store_n(&pass->mapping->write_alone, true, __ATOMIC_RELAXED);
}

/* Writes the batch, if there is one; unlocks and puts its folios. */
static void write_batch(struct pass *pass)
{
	struct mapping *mapping = pass->mapping;
	unsigned int blocks;
	int err;

	if (!pass->nr)
		return;
	blocks = begin_batch(pass);
	err = mapping->ops->write_folios(mapping, pass->folios, pass->nr);
	count_stat(mapping->cache, writeback_runs, pass->runs);
	if (err) {
		note_error(pass, err);
	} else {
		count_stat(mapping->cache, written_bytes, (uint64_t)blocks << mapping->block_shift);
		__atomic_store_n(&mapping_flusher(mapping)->failures, 0, __ATOMIC_RELAXED);
	}
	end_batch(pass, err);
	if (pass->written)
		*pass->written += pass->nr;
	pass->nr = pass->pages = pass->runs = 0;
}

/* Locks the first folio of a run; false when there is nothing to be written of it now. */
static bool lock_first(struct pass *pass, struct folio *folio)
{
	if (pass->nr && lock_dirty(pass, folio, false))
		return true;
	if (!pass->sync)
		return !pass->nr && lock_dirty(pass, folio, false);
	write_batch(pass);
	return lock_dirty(pass, folio, true);
}

static void go_over(struct pass *pass)
{
	xa_mark_t tag = pass->sync ? PAGECACHE_TAG_TOWRITE : PAGECACHE_TAG_DIRTY;
	pgoff_t index = pass->start;
	struct folio *folio;

	while ((folio = filemap_get_folio_tag(pass->mapping, &index, pass->end, tag))) {
		if (!lock_first(pass, folio)) {
			folio_put(folio);
			continue;
		}
		add_folio(pass, folio);
		pass->runs++;
		index = extend_run(pass);
		if (is_full(pass))
			write_batch(pass);
	}
	write_batch(pass);
}

/**
 * writeback_range() - Write what is dirty now of a range.
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
	struct pass pass;

	if (!__atomic_load_n(&mapping->nrdirty, __ATOMIC_SEQ_CST))
		return 0;
	pass.mapping = mapping;
	pass.start = start;
	pass.end = end;
	pass.sync = sync;
	pass.alone = __atomic_load_n(&mapping->write_alone, __ATOMIC_RELAXED);
	pass.nr = pass.pages = pass.runs = 0;
	pass.err = 0;
	pass.written = written;
	if (sync)
		tag_dirty_to_write(mapping, start, end);
	go_over(&pass);
	if (!pass.err && pass.alone)
		__atomic_store_n(&mapping->write_alone, false, __ATOMIC_RELAXED);
	return pass.err;
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
