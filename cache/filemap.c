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
 * A read for an open file has more than it wants read into the cache before, unless it looks like a
 * random one (readahead.c).
 *
 * A read of one page that is in steady use takes no reference: it copies, and looks afterwards
 * whether any folio has left the mapping meanwhile. So hits by several threads write to no line of
 * memory that they share, and no atomic operation holds the copy up.
 *
 * The size is read before the folios are looked for, and again after: bytes that are returned are
 * below both.
 */
#include "internal.h"

/* Of a folio in steady use: to be used once more changes nothing. */
#define FOLIO_IN_USE (FOLIO_ACTIVE | FOLIO_REFERENCED)
#define FETCH_AHEAD 1024 /* bytes: by then the processor has seen the pattern */

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

/* Waits for who has frozen a folio: it holds the XArray lock. */
void filemap_wait_frozen(struct mapping *mapping)
{
	xa_lock(&mapping->i_pages);
	xa_unlock(&mapping->i_pages);
}

/* The first folio with a mark, with a reference; *frozen when it cannot be had just now. */
static struct folio *find_tagged(struct xa_state *xas, pgoff_t end, xa_mark_t tag, bool *frozen)
{
	struct folio *folio;

	rcu_read_lock();
	xas_for_each_marked(xas, folio, end, tag) {
		if (xas_retry(xas, folio) || xa_is_value(folio))
			continue;
		*frozen = !folio_try_get(folio);
		if (*frozen || folio == xas_reload(xas))
			break;
		folio_put(folio);
		xas_reset(xas);
	}
	rcu_read_unlock();
	return folio;
}

/**
 * filemap_get_folio_tag() - Look the first folio with a mark up.
 * @start: where to begin; moved past the folio found
 * @end: last index, below ULONG_MAX
 *
 * Context: Takes the RCU read lock, and the XArray lock to wait for a split.
 * Return: The folio with a reference, not locked, or NULL.
 */
struct folio *filemap_get_folio_tag(struct mapping *mapping, pgoff_t *start, pgoff_t end,
				    xa_mark_t tag)
{
	XA_STATE(xas, &mapping->i_pages, *start);
	struct folio *folio = NULL;
	bool frozen;

	if (*start > end)
		return NULL;
	do {
		frozen = false;
		folio = find_tagged(&xas, end, tag, &frozen);
		if (frozen)
			filemap_wait_frozen(mapping);
		xas_reset(&xas);
	} while (frozen);
	*start = folio ? folio_next_index(folio) : end + 1;
	return folio;
}

/* What was allocated without the lock, to carve the folio's place out of this shadow. */
struct split_ahead {
	void *shadow;
	int order;		/* 0: nothing */
	unsigned int walks;	/* of the tree, until now */
};

/*
 * One look over the range of the folio, and then the store.
 * @shadow: out: what was there, or NULL
 *
 * Context: XArray lock held.
 * Return: 0, also when the cursor has failed; or the order of the shadow, which is to be carved.
 */
static int add_locked(struct xa_state *xas, struct folio *folio, struct split_ahead *ahead,
		      void **shadow)
{
	int order = 0;
	void *entry;

	*shadow = NULL;
	ahead->walks++;
	xas_for_each_conflict(xas, entry) {
		if (!xa_is_value(entry)) {
			xas_set_err(xas, -EEXIST);
			return 0;
		}
		if (!*shadow) /* one that is larger than the range is the only one */
			order = xas_get_order(xas);
		*shadow = entry;
	}
	if (ahead->order && (ahead->shadow != *shadow || ahead->order != order)) {
		xas_destroy(xas);
		ahead->order = 0;
	}
	if (order > folio->order) {
		if (!ahead->order)
			return order;
		xas_carve(xas, *shadow, order);
		ahead->order = 0;
		ahead->walks++;
		count_stat(folio->cache, shadow_splits, 1);
	}
	xas_store(xas, folio);
	if (!xas_error(xas))
		mapping_count_pages(folio->mapping, 1L << folio->order);
	return 0;
}

/* Stores the folio, and allocates what that takes. Return: 0 or the error. */
static int add_to_array(struct mapping *mapping, struct folio *folio, void **shadow)
{
	XA_STATE_ORDER(xas, &mapping->i_pages, folio->index, folio->order);
	struct split_ahead ahead = {0};
	int split;

	xas_set_update(&xas, workingset_update_node);
	do {
		xas_lock(&xas);
		split = add_locked(&xas, folio, &ahead, shadow);
		xas_unlock(&xas);
		if (!split)
			continue;
		xas_carve_alloc(&xas, split, GFP_KERNEL);
		if (xas_error(&xas))
			break;
		ahead.shadow = *shadow;
		ahead.order = split;
		xas_reset(&xas);
	} while (split || xas_nomem(&xas, GFP_KERNEL));
	xas_destroy(&xas);
	count_stat(mapping->cache, adds, 1);
	count_stat(mapping->cache, orders[folio->order], !xas_error(&xas));
	count_stat(mapping->cache, add_walks, ahead.walks);
	return xas_error(&xas);
}

/**
 * filemap_add_folio() - Put a new folio into a mapping.
 * @index: aligned to its order
 * @write: it will be written to: that it was here before says nothing of reads
 *
 * Context: May sleep to allocate nodes. Takes the XArray and LRU locks.
 * Return: 0, and the folio is locked; -EEXIST when something is in its range; -ENOMEM. In any case
 * the caller's reference remains.
 */
int filemap_add_folio(struct mapping *mapping, struct folio *folio, pgoff_t index, bool write)
{
	void *shadow;
	int err;

	cache_assert(!(index & ((1UL << folio->order) - 1)));
	cache_assert(folio->order >= mapping->min_order);
	__atomic_store_n(&folio->index, index, __ATOMIC_RELAXED); /* read_in_place() may look */
	folio->block_shift = mapping->block_shift;
	folio->mapping = mapping;
	folio_lock(folio);
	folio_get(folio);
	err = add_to_array(mapping, folio, &shadow);
	if (err) {
		folio->mapping = NULL;
		folio_unlock(folio);
		folio_put(folio);
		return err;
	}
	lru_add(folio, write ? NULL : shadow);
	return 0;
}

/* The order for a new folio that is to hold @index, when @pages from there on are wanted. */
static unsigned int wanted_order(const struct mapping *mapping, pgoff_t index, pgoff_t pages)
{
	unsigned int order = mapping->min_order;

	while (order < mapping->max_order && 2UL << order <= pages &&
	       !(index & ((2UL << order) - 1)))
		order++;
	return order;
}

/* Does a folio hold the index? */
static bool is_taken(struct mapping *mapping, pgoff_t index)
{
	void *entry = xa_load(&mapping->i_pages, index);

	return entry && !xa_is_value(entry);
}

/**
 * filemap_create_folio() - Add a new folio that holds @index.
 * @pages: wanted from @index on; more than one makes a larger folio, where that can be
 * @write: see filemap_add_folio()
 * @wait: wait for frames
 *
 * Context: May sleep; see folio_alloc().
 * Return: The folio, locked and referenced. NULL: *err is 0 for want of frames, -EEXIST when the
 * index is taken, or another error.
 */
struct folio *filemap_create_folio(struct mapping *mapping, pgoff_t index, pgoff_t pages,
				   bool write, bool wait, int *err)
{
	unsigned int order = wanted_order(mapping, index, pages), min = mapping->min_order;
	struct folio *folio;

	for (;; order--) {
		*err = 0;
		folio = folio_alloc(mapping->cache, mapping->level, order, min, wait);
		if (!folio)
			return NULL;
		order = folio->order;
		*err = filemap_add_folio(mapping, folio, index & ~((1UL << order) - 1), write);
		if (!*err)
			return folio;
		folio_put(folio);
		/* What is in the way of a large folio may lie behind the index. */
		if (*err != -EEXIST || order == min || is_taken(mapping, index))
			return NULL;
	}
}

/**
 * filemap_grab_range() - filemap_grab_folio(), where a new folio is to hold @pages if it can.
 */
struct folio *filemap_grab_range(struct mapping *mapping, pgoff_t index, pgoff_t pages, int *err)
{
	struct folio *folio;

	for (;;) {
		folio = filemap_get_folio(mapping, index);
		if (!folio) {
			folio = filemap_create_folio(mapping, index, pages, true, true, err);
			if (!folio && *err == -EEXIST)
				continue;
			count_stat(mapping->cache, misses, 1);
			return folio;
		}
		folio_lock(folio);
		if (folio->mapping == mapping) {
			folio_mark_accessed(folio);
			count_stat(mapping->cache, hits, 1);
			*err = 0;
			return folio;
		}
		folio_unlock(folio);
		folio_put(folio);
	}
}

struct folio *filemap_grab_folio(struct mapping *mapping, pgoff_t index, int *err)
{
	return filemap_grab_range(mapping, index, 1, err);
}

/* What a read wants: bytes [pos, end), in the folios first to last. */
struct read_range {
	loff_t pos, end;
	pgoff_t first, last;
};

/* Are the wanted bytes of the folio valid? */
static bool wanted_valid(const struct read_range *range, const struct folio *folio)
{
	loff_t start = folio_pos(folio), stop = range->end - start;
	size_t from = range->pos > start ? range->pos - start : 0;
	size_t to = stop < (loff_t)folio_size(folio) ? (size_t)stop : folio_size(folio);

	return folio_range_valid(folio, from, to - from);
}

static void batch_add(struct folio_batch *batch, struct folio *folio)
{
	batch->folios[batch->nr++] = folio;
}

/*
 * Takes what is there, without a gap from the first folio on, up to one with a readahead mark.
 * Whether the last one wanted has been reached is asked when it has been taken: there is no step of
 * the walk past it. A walk that has to start again in the middle could meet a new folio that reaches
 * back over those taken: it ends there.
 */
static void collect(struct mapping *mapping, const struct read_range *range,
		    struct folio_batch *batch)
{
	XA_STATE(xas, &mapping->i_pages, range->first);
	struct folio *folio;
	pgoff_t next;

	rcu_read_lock();
	for (folio = xas_load(&xas);; folio = xas_next(&xas)) {
		if (xas_retry(&xas, folio) && !batch->nr)
			continue;
		if (!folio || xa_is_value(folio) || xa_is_internal(folio) || !folio_try_get(folio))
			break;
		if (folio != xas_reload(&xas) || !wanted_valid(range, folio)) {
			folio_put(folio);
			break;
		}
		batch_add(batch, folio);
		next = folio_next_index(folio);
		if (next > range->last || batch->nr == FOLIO_BATCH_SIZE ||
		    (folio_flags(folio) & FOLIO_READAHEAD))
			break;
		xas_advance(&xas, next - 1);
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
		folio = filemap_create_folio(mapping, index, range->last - index + 1, false, wait,
					     err);
		if (*err == -EEXIST)
			*err = 0;
		return folio;
	}
	if (wait)
		folio_lock(folio);
	else if (!folio_trylock(folio))
		goto put;
	if (folio->mapping == mapping && !wanted_valid(range, folio))
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
	pgoff_t index = range->first;
	unsigned int i, nr = 0;
	bool gap = false;
	int err = 0, read_err = 0;

	filemap_invalidate_lock_shared(mapping);
	while (index - range->first < mapping->cache->run_max && index <= range->last &&
	       range->end <= mapping_size(mapping)) {
		folios[nr] = grab_missing(mapping, range, index, &err);
		if (!folios[nr])
			break;
		index = folio_next_index(folios[nr++]);
	}
	if (nr)
		read_err = filemap_read_run(mapping, folios, nr);
	filemap_invalidate_unlock_shared(mapping);
	count_stat(mapping->cache, misses, nr);
	for (i = 0; i < nr; i++) {
		gap = gap || batch->nr == FOLIO_BATCH_SIZE ||
		      !wanted_valid(range, folios[i]);
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
static void mark_batch_accessed(pgoff_t *last_read, const struct read_range *range,
				const struct folio_batch *batch)
{
	pgoff_t last = __atomic_load_n(last_read, __ATOMIC_RELAXED);
	pgoff_t end = folio_next_index(batch->folios[batch->nr - 1]) - 1;
	unsigned int i;

	i = last >= batch->folios[0]->index && last < folio_next_index(batch->folios[0]);
	for (; i < batch->nr; i++)
		folio_mark_accessed(batch->folios[i]);
	if (end > range->last)
		end = range->last;
	if (end != last)
		__atomic_store_n(last_read, end, __ATOMIC_RELAXED);
}

/* The first folio wanted cannot be had: reads ahead if it is not there. Return: whether it did. */
static bool read_ahead(struct mapping *mapping, struct file_ra *ra, const struct read_range *range)
{
	if (!ra || is_taken(mapping, range->first))
		return false;
	return readahead_sync(mapping, ra, range->first, range->last - range->first + 1);
}

/* A batch ends with a marked folio: the next window is due. */
static void look_for_mark(struct mapping *mapping, struct file_ra *ra,
			  const struct read_range *range, const struct folio_batch *batch)
{
	struct folio *last = batch->folios[batch->nr - 1];
	pgoff_t index = last->index > range->first ? last->index : range->first;

	if (ra && (folio_flags(last) & FOLIO_READAHEAD))
		readahead_async(mapping, ra, last, index, range->last - index + 1);
}

int filemap_get_pages_ra(struct mapping *mapping, struct file_ra *ra, loff_t pos, size_t len,
			 struct folio_batch *batch)
{
	struct read_range range = {.pos = pos, .first = pos >> PAGE_SHIFT};
	bool tried = false;
	int err = 0;

	batch->nr = 0;
	while (!batch->nr && !err) {
		loff_t size = mapping_size(mapping);

		if (pos >= size || !len)
			return 0;
		range.end = len < (uint64_t)(size - pos) ? pos + (loff_t)len : size;
		range.last = (range.end - 1) >> PAGE_SHIFT;
		collect(mapping, &range, batch);
		if (batch->nr && tried)
			count_stat(mapping->cache, misses, batch->nr);
		else if (batch->nr)
			count_stat(mapping->cache, hits, batch->nr);
		else if (tried || !(tried = read_ahead(mapping, ra, &range)))
			err = fill(mapping, &range, batch);
	}
	if (!batch->nr)
		return err;
	count_stat(mapping->cache, read_batches, 1);
	count_stat(mapping->cache, read_folios, batch->nr);
	look_for_mark(mapping, ra, &range, batch);
	mark_batch_accessed(ra ? &ra->last_read : &mapping->last_read, &range, batch);
	return err;
}

int filemap_get_pages(struct mapping *mapping, loff_t pos, size_t len, struct folio_batch *batch)
{
	return filemap_get_pages_ra(mapping, NULL, pos, len, batch);
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
		size_t offset = pos - folio_pos(batch->folios[i]);
		size_t n = folio_size(batch->folios[i]) - offset;

		if ((loff_t)n > end - pos)
			n = end - pos;
		folio_copy_to(buf + done, batch->folios[i], offset, n);
		done += n;
		pos += n;
	}
	return done;
}

/*
 * filemap_get_pages(); where a folio cannot be read as a whole, tries for the block of @pos alone, so
 * that what fails are the bytes that cannot be had. Moves *end to what was tried for.
 */
static int get_readable(struct mapping *mapping, struct file_ra *ra, loff_t pos, loff_t *end,
			struct folio_batch *batch)
{
	loff_t unit = (loff_t)PAGE_SIZE << mapping->min_order, n = unit - (pos & (unit - 1));
	int err = filemap_get_pages_ra(mapping, ra, pos, *end - pos, batch);

	if (!err || *end - pos <= n)
		return err;
	*end = pos + n;
	return filemap_get_pages(mapping, pos, n, batch);
}

/*
 * The frame that holds a page, by the tree alone; NULL when no folio does. Starts to fetch its first
 * bytes, before its struct has been looked at.
 */
static struct folio *find_frame(struct mapping *mapping, pgoff_t index, size_t offset,
				struct folio **folio)
{
	struct cache *cache = mapping->cache;
	XA_STATE(xas, &mapping->i_pages, index);
	struct folio *frame;
	size_t at;

	rcu_read_lock();
	do
		*folio = frame = xas_load(&xas);
	while (xas_retry(&xas, frame));
	if (!frame || xa_is_value(frame)) {
		frame = NULL;
	} else {
		frame += xas_distance(&xas);
		for (at = 0; at < FETCH_AHEAD; at += 64)
			__builtin_prefetch(cache->base + offset + at +
					   ((size_t)(frame - cache->frames) << PAGE_SHIFT));
	}
	rcu_read_unlock();
	return frame;
}

/*
 * Copies bytes that lie in one page, without a reference on its folio: no other thread's line of
 * memory is written to, and nothing waits for an atomic operation.
 *
 * The folio may leave the mapping meanwhile, and its frame hold other bytes: then the mapping has
 * counted a removal before, and what was copied is void. A folio that needs more than to be copied
 * from (its use is to be noted, a window is due) is not for this way.
 *
 * Return: @len; or 0: it takes the longer way.
 */
static size_t read_in_place(struct mapping *mapping, pgoff_t *last_read, loff_t pos, void *buf,
			    size_t len)
{
	unsigned int removals = __atomic_load_n(&mapping->removals, __ATOMIC_ACQUIRE), flags;
	pgoff_t last = __atomic_load_n(last_read, __ATOMIC_RELAXED), index = pos >> PAGE_SHIFT;
	unsigned int shift = mapping->block_shift, blocks;
	size_t offset = pos & (PAGE_SIZE - 1);
	struct folio *folio, *frame;

	if (shift > PAGE_SHIFT)
		return 0; /* the block's bit lies with another frame */
	frame = find_frame(mapping, index, offset, &folio);
	/* While a folio is split, slots of its parts have it for a moment. */
	if (!frame || __atomic_load_n(&folio->index, __ATOMIC_RELAXED) + (frame - folio) != index)
		return 0;
	flags = folio_flags(folio);
	if ((flags & (FOLIO_READAHEAD | FOLIO_AHEAD)) ||
	    (index != last && (flags & FOLIO_IN_USE) != FOLIO_IN_USE))
		return 0;
	blocks = (2U << ((offset + len - 1) >> shift)) - (1U << (offset >> shift));
	if ((frame_blocks(frame, BLOCKS_VALID) & blocks) != blocks)
		return 0;
	frame_copy_to(buf, frame, offset, len);
	cmm_smp_rmb(); /* the bytes before the count: see filemap_removed() */
	if (__atomic_load_n(&mapping->removals, __ATOMIC_RELAXED) != removals ||
	    mapping_size(mapping) < pos + (loff_t)len)
		return 0;
	if (index != last)
		__atomic_store_n(last_read, index, __ATOMIC_RELAXED);
	count_stat(mapping->cache, hits, 1);
	count_stat(mapping->cache, read_batches, 1);
	count_stat(mapping->cache, read_folios, 1);
	return len;
}

ssize_t filemap_read_ra(struct mapping *mapping, struct file_ra *ra, loff_t pos, void *buf,
			size_t len)
{
	struct folio_batch batch;
	loff_t size, end;
	size_t n, done = 0;
	int err = 0;

	if (len - 1 < PAGE_SIZE - (pos & (PAGE_SIZE - 1)))
		done = read_in_place(mapping, ra ? &ra->last_read : &mapping->last_read, pos, buf,
				     len);
	while (done < len) {
		size = mapping_size(mapping);
		end = len - done < (uint64_t)(size > pos ? size - pos : 0)
			      ? pos + (loff_t)(len - done)
			      : size;
		if (end <= pos)
			break;
		err = get_readable(mapping, ra, pos, &end, &batch);
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

ssize_t filemap_read(struct mapping *mapping, loff_t pos, void *buf, size_t len)
{
	return filemap_read_ra(mapping, NULL, pos, buf, len);
}
