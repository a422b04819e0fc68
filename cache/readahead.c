/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reading ahead: what a reader will want next is read before it asks.
 *
 * Each open file has a window, struct file_ra: the pages [start, start + size) were read last, and
 * of them the last async_size are ahead of the reader. A folio in the window carries a mark, the
 * one with page start + size - async_size.
 *
 *	|<----- size ------------------------->|
 *	|------------------#===================|
 *	start              ^ mark  async_size  |
 *
 * A read that misses (synchronous) gets a window that begins with it: when it is at the file's
 * start, goes on where the last one ended, or is larger than the limit, and also when the pages
 * just before it are there, more of them than it asks for. Else it is a random one, and just what
 * it asks for is read, by the caller. After a hundred of these more than of others not even that
 * is looked at.
 *
 * A read that comes to the mark (asynchronous) sets the next window off, a larger one, right behind
 * this one. If the mark is not this window's, several streams share the open file: then the next
 * window begins at the first page that is missing, and its size follows from how far that is.
 *
 * Synchronous windows are read by the caller, who waits for them anyway. Asynchronous ones go to a
 * few threads of the cache, so the reader does not wait for the image, in pieces: while the reader
 * is at the first one and sets the next window off, others are under way, and the image is never
 * without work. If the queue is full, what is left of the window is dropped, and the reader misses
 * later. Folios grow by two orders from one window of a stream to the next, up to a piece.
 *
 * Small files that are wanted soon (who reads a directory through reads them one after another; only
 * their owner can know that) are read by one of the threads, with one call of the owner's for all:
 * what lies side by side on the image is one transfer then.
 *
 * Nothing here is ever an error: what could not be read stays invalid, and who asks for it reads it
 * again and gets the error. Nor does anything here wait: for frames, for folios that others have
 * locked, or, in a thread, for the invalidate lock. Whatever that would cost ends the window.
 *
 * A queued window does not keep its mapping alive: truncate_all() takes it off the queue, and waits
 * for the threads that are at work for the mapping. Several files are pinned by their owner.
 *
 * Locks: file_ra's lock for its window. The readahead lock for the queue, and the mappings' fields
 * for it; no other lock is taken under either. Folio locks of new folios in rising order.
 */
#include <signal.h>
#include <stdlib.h>
#include "internal.h"

#define RANDOM_MISSES 100
#define PIECES 4	/* of the largest window */
#define PIECE_MIN 16UL	/* pages: a block of 64 KiB is not cut */
#define FILE_PART 8	/* of the limit is the most for one of several files */

struct window {
	pgoff_t start, end;	/* the pages [start, end) */
	pgoff_t wanted;		/* up to here somebody waits */
	pgoff_t mark;		/* this page's folio is marked; NO_MARK */
	unsigned int order;	/* of its folios at most */
};

#define NO_MARK ((pgoff_t)-1)

void file_ra_init(struct file_ra *ra)
{
	*ra = (struct file_ra){.last_read = (pgoff_t)-1};
	pthread_mutex_init(&ra->lock, NULL);
}

void file_ra_finish(struct file_ra *ra)
{
	pthread_mutex_destroy(&ra->lock);
}

/*
 * Sizes
 */

static unsigned long init_size(unsigned long wanted, unsigned long max)
{
	unsigned long size = 1;

	while (size < wanted)
		size *= 2;
	if (size <= max / 32)
		return size * 4;
	return size <= max / 4 ? size * 2 : max;
}

static unsigned long next_size(unsigned long size, unsigned long max)
{
	if (size < max / 16)
		return size * 4;
	return size <= max / 2 ? size * 2 : max;
}

/* How many pages before @index are there, without a gap, at most @max? */
static unsigned long pages_before(struct mapping *mapping, pgoff_t index, unsigned long max)
{
	pgoff_t at = index;

	while (at && index - at < max) {
		struct folio *folio = filemap_get_folio(mapping, at - 1);

		if (!folio)
			break;
		at = folio->index;
		folio_put(folio);
	}
	return index - at;
}

/* The first page from @index on that is missing, or one behind @max of them. */
static pgoff_t next_missing(struct mapping *mapping, pgoff_t index, unsigned long max)
{
	pgoff_t at = index;

	while (at - index <= max) {
		struct folio *folio = filemap_get_folio(mapping, at);

		if (!folio)
			break;
		at = folio_next_index(folio);
		folio_put(folio);
	}
	return at;
}

/*
 * Windows
 */

static unsigned int order_of(unsigned long pages)
{
	return pages ? 63 - __builtin_clzl(pages) : 0;
}

/* Sets the open file's window, and *w from it. */
static void set_window(struct file_ra *ra, pgoff_t start, unsigned long size, unsigned long async,
		       struct window *w)
{
	ra->start = start;
	ra->size = size;
	ra->async_size = async;
	w->start = start;
	w->end = start + size;
	w->mark = start + size - async;
}

/* The page behind the piece with @index. */
static pgoff_t piece_end(const struct cache *cache, pgoff_t index)
{
	return (index | (cache->ra_piece - 1)) + 1;
}

/* Larger windows end where a piece does, so that those behind them have whole pieces. */
static unsigned long whole_pieces(const struct cache *cache, pgoff_t start, unsigned long size)
{
	pgoff_t end = piece_end(cache, start + size - 1);

	if (size <= cache->ra_piece)
		return size;
	return end - start <= cache->ra_pages ? end - start : end - start - cache->ra_piece;
}

static void count_miss(struct file_ra *ra, bool random)
{
	if (random)
		ra->misses++;
	else if (ra->misses)
		ra->misses--;
}

/* The window of a read that misses. Return: whether there is one. Context: ra's lock. */
static bool sync_window(struct mapping *mapping, struct file_ra *ra, pgoff_t index,
			unsigned long wanted, struct window *w)
{
	unsigned long max = mapping->cache->ra_pages, size, before;
	pgoff_t last = __atomic_load_n(&ra->last_read, __ATOMIC_RELAXED);

	/* The window was set off, and no thread has come to this piece of it yet. */
	if (index - last <= 1 && index >= ra->start && index - ra->start < ra->size) {
		w->start = index;
		w->end = piece_end(mapping->cache, index + wanted - 1);
		if (w->end > ra->start + ra->size)
			w->end = ra->start + ra->size;
		w->mark = ra->start + ra->size - ra->async_size;
		w->mark = w->mark > index ? w->mark : index;
		w->order = order_of(w->end - index);
		return true;
	}
	if (!index || wanted > max || index - last <= 1) {
		count_miss(ra, false);
		size = init_size(wanted, max);
		set_window(ra, index, size, size > wanted ? size - wanted : size / 2, w);
		return true;
	}
	before = ra->misses > RANDOM_MISSES ? 0 : pages_before(mapping, index, max);
	count_miss(ra, before <= wanted);
	if (before <= wanted)
		return false;
	if (before >= index) /* all of the file up to here */
		before *= 2;
	size = before + wanted < max ? before + wanted : max;
	set_window(ra, index, size, 1, w);
	return true;
}

/* The window behind one whose mark was met, in @folio. Context: ra's lock. */
static bool async_window(struct mapping *mapping, struct file_ra *ra, struct folio *folio,
			 pgoff_t index, unsigned long wanted, struct window *w)
{
	unsigned long max = mapping->cache->ra_pages, size;
	pgoff_t expected = (ra->start + ra->size - ra->async_size) &
			   ~((1UL << folio->order) - 1), start;

	count_miss(ra, false);
	if (folio->index == expected && folio->index) {
		start = ra->start + ra->size;
		size = whole_pieces(mapping->cache, start, next_size(ra->size, max));
		set_window(ra, start, size, size, w);
		return true;
	}
	start = next_missing(mapping, index + 1, max);
	if (start - index > max)
		return false;
	size = next_size(start - index + wanted, max);
	set_window(ra, start, size, size, w);
	return true;
}

/*
 * Reading a window
 */

/* A new folio for the window at *index, or NULL; then *index is behind what is there already. */
static struct folio *new_folio(struct mapping *mapping, const struct window *w, pgoff_t *index,
			       bool *stop)
{
	unsigned long pages = w->end - *index, most = 1UL << w->order;
	struct folio *folio = filemap_get_folio(mapping, *index);
	int err;

	if (folio) {
		/* A reader was faster and reads on from here: two at one place would make it bits. */
		*stop = *index >= w->wanted && folio_flags(folio) & FOLIO_LOCKED &&
			!folio_test_uptodate(folio);
		*index = folio_next_index(folio);
		folio_put(folio);
		return NULL;
	}
	folio = filemap_create_folio(mapping, *index, pages < most ? pages : most, false, false,
				     &err);
	*stop = !folio && err != -EEXIST;
	if (!folio)
		return NULL;
	if (*index >= w->wanted)
		folio_set_flags(folio, FOLIO_AHEAD);
	*index = folio_next_index(folio);
	if (w->mark >= folio->index && w->mark < *index)
		folio_set_flags(folio, FOLIO_READAHEAD);
	return folio;
}

static void read_run(struct mapping *mapping, const struct window *w, struct folio **folios,
		     unsigned int nr)
{
	unsigned long pages = 0;
	unsigned int i;

	if (!nr)
		return;
	if (filemap_read_run(mapping, folios, nr))
		count_stat(mapping->cache, readahead_errors, 1);
	for (i = 0; i < nr; i++) {
		if (folios[i]->index >= w->wanted)
			pages += 1UL << folios[i]->order;
		folio_unlock(folios[i]);
		folio_put(folios[i]);
	}
	count_stat(mapping->cache, readahead_pages, pages);
}

/* Reads what of the window is missing. Context: The invalidate lock is held shared. */
static void read_window(struct mapping *mapping, struct window *w)
{
	struct folio *folios[RUN_MAX];
	loff_t size = mapping_size(mapping);
	pgoff_t index = w->start, file_end = (size + PAGE_SIZE - 1) >> PAGE_SHIFT, first;
	unsigned int nr = 0;
	bool stop = false;

	if (w->end > file_end)
		w->end = file_end;
	for (first = index; index < w->end && !stop;) {
		struct folio *folio = NULL;

		if (index - first < mapping->cache->run_max)
			folio = new_folio(mapping, w, &index, &stop);
		if (folio) {
			folios[nr++] = folio;
			continue;
		}
		read_run(mapping, w, folios, nr);
		nr = 0;
		first = index;
	}
	read_run(mapping, w, folios, nr);
}

/**
 * readahead_sync() - A read misses: read what it wants, and more, unless it looks like a random one.
 * @index: first page that is missing
 * @wanted: pages that the read wants from there on
 *
 * Context: May sleep. No folio locked. Takes the invalidate lock shared.
 * Return: Whether anything was tried; if not, the caller is to read what it wants.
 */
bool readahead_sync(struct mapping *mapping, struct file_ra *ra, pgoff_t index,
		    unsigned long wanted)
{
	struct window w = {.wanted = index + wanted, .order = order_of(wanted)};
	bool any;

	if (!mapping->cache->ra_pages)
		return false;
	pthread_mutex_lock(&ra->lock);
	any = sync_window(mapping, ra, index, wanted, &w);
	pthread_mutex_unlock(&ra->lock);
	if (!any)
		return false;
	count_stat(mapping->cache, readahead_sync, 1);
	filemap_invalidate_lock_shared(mapping);
	read_window(mapping, &w);
	filemap_invalidate_unlock_shared(mapping);
	return true;
}

/*
 * The threads
 */

static bool enqueue(struct readahead *pool, const struct readahead_request *request)
{
	bool room;

	pthread_mutex_lock(&pool->lock);
	room = pool->nr < READAHEAD_QUEUE;
	if (room) {
		pool->queue[(pool->head + pool->nr++) % READAHEAD_QUEUE] = *request;
		if (request->mapping)
			__atomic_fetch_add(&request->mapping->readaheads, 1, __ATOMIC_RELEASE);
		pthread_cond_signal(&pool->work);
	}
	pthread_mutex_unlock(&pool->lock);
	return room;
}

/* Return: whether there was room for all of it. */
static bool enqueue_window(struct mapping *mapping, const struct window *w)
{
	struct readahead_request piece = {.mapping = mapping, .mark = w->mark, .end = w->start};
	struct cache *cache = mapping->cache;
	bool room = true;

	while (room && piece.end < w->end) {
		piece.start = piece.end;
		piece.end = piece_end(cache, piece.start);
		if (piece.end > w->end)
			piece.end = w->end;
		piece.order = order_of(piece.end - piece.start);
		if (piece.order > w->order)
			piece.order = w->order;
		room = enqueue(&cache->readahead, &piece);
	}
	return room;
}

/**
 * readahead_async() - A read has come to a folio with a mark.
 * @folio: referenced
 * @index: of the page wanted first in it
 * @wanted: pages that the read still wants from there on
 *
 * Context: Does not wait for I/O.
 */
void readahead_async(struct mapping *mapping, struct file_ra *ra, struct folio *folio,
		     pgoff_t index, unsigned long wanted)
{
	struct cache *cache = mapping->cache;
	struct window w = {.order = folio->order + 2};
	bool any;

	if (!cache->ra_pages || folio_test_writeback(folio))
		return;
	folio_clear_flags(folio, FOLIO_READAHEAD);
	pthread_mutex_lock(&ra->lock);
	any = async_window(mapping, ra, folio, index, wanted, &w);
	pthread_mutex_unlock(&ra->lock);
	if (!any || w.start << PAGE_SHIFT >= (pgoff_t)mapping_size(mapping))
		return;
	if (enqueue_window(mapping, &w))
		count_stat(cache, readahead_async, 1);
	else
		count_stat(cache, readahead_dropped, 1);
}

static void serve(const struct readahead_request *request)
{
	struct mapping *mapping = request->mapping;
	struct window w = {request->start, request->end, request->start, request->mark,
			   request->order};

	if (pthread_rwlock_tryrdlock(&mapping->invalidate_lock)) {
		count_stat(mapping->cache, readahead_dropped, 1);
		return;
	}
	read_window(mapping, &w);
	filemap_invalidate_unlock_shared(mapping);
}

/* New folios for the beginning of a file. Return: how many. */
static unsigned int new_folios(struct mapping *mapping, unsigned long most, struct folio **folios)
{
	pgoff_t end = (mapping_size(mapping) + PAGE_SIZE - 1) >> PAGE_SHIFT, index = 0;
	struct window w = {.end = end < most ? end : most, .mark = NO_MARK};
	unsigned int nr = 0;
	bool stop = false;

	w.order = order_of(w.end);
	while (index < w.end && !stop) {
		struct folio *folio = new_folio(mapping, &w, &index, &stop);

		if (folio)
			folios[nr++] = folio;
	}
	return nr;
}

static void read_files(struct cache *cache, struct folio **folios, unsigned int nr)
{
	struct mapping *mapping = folios[0]->mapping;
	unsigned long pages = 0;
	unsigned int i;

	mapping->ops->read_files(folios, nr);
	for (i = 0; i < nr; i++) {
		pages += 1UL << folios[i]->order;
		folio_unlock(folios[i]);
		folio_put(folios[i]);
	}
	count_stat(cache, readahead_pages, pages);
	count_stat(cache, read_bytes, (uint64_t)pages << PAGE_SHIFT);
}

static void serve_files(struct cache *cache, struct readahead_files *files)
{
	unsigned long left = cache->ra_pages < RUN_MAX ? cache->ra_pages : RUN_MAX;
	struct folio *folios[RUN_MAX];
	unsigned int i, at, locked = 0, nr = 0;

	for (i = 0; i < files->nr && left; i++) {
		struct mapping *mapping = files->mappings[i];

		if (pthread_rwlock_tryrdlock(&mapping->invalidate_lock))
			continue;
		files->mappings[i] = files->mappings[locked];
		files->mappings[locked++] = mapping;
		at = nr;
		nr += new_folios(mapping, left < cache->ra_pages / FILE_PART ? left :
				 cache->ra_pages / FILE_PART, &folios[nr]);
		for (; at < nr; at++)
			left -= left < 1UL << folios[at]->order ? left : 1UL << folios[at]->order;
	}
	if (nr)
		read_files(cache, folios, nr);
	for (i = 0; i < files->nr; i++) {
		if (i < locked)
			filemap_invalidate_unlock_shared(files->mappings[i]);
		files->mappings[i]->ops->unpin(files->mappings[i]);
	}
	free(files);
}

/**
 * readahead_files() - Several small files will be wanted soon: mapping.h.
 *
 * Context: Does not wait for I/O. No lock of the mappings' owners held.
 */
void readahead_files(struct cache *cache, struct mapping **mappings, unsigned int nr)
{
	struct readahead_request request = {.files = NULL};
	unsigned int i;

	if (cache->ra_pages >= FILE_PART)
		request.files = malloc(sizeof(*request.files));
	if (request.files) {
		request.files->nr = nr;
		memcpy(request.files->mappings, mappings, nr * sizeof(*mappings));
		if (enqueue(&cache->readahead, &request)) {
			count_stat(cache, readahead_files, nr);
			return;
		}
		count_stat(cache, readahead_dropped, 1);
	}
	for (i = 0; i < nr; i++)
		mappings[i]->ops->unpin(mappings[i]);
	free(request.files);
}

/* The lock is held, and released meanwhile. */
static void serve_next(struct cache *cache)
{
	struct readahead *pool = &cache->readahead;
	struct readahead_request request = pool->queue[pool->head];

	pool->head = (pool->head + 1) % READAHEAD_QUEUE;
	pool->nr--;
	if (!request.mapping && !request.files) /* cancelled */
		return;
	pthread_mutex_unlock(&pool->lock);
	if (request.files)
		serve_files(cache, request.files);
	else
		serve(&request);
	pthread_mutex_lock(&pool->lock);
	if (!request.mapping)
		return;
	__atomic_fetch_sub(&request.mapping->readaheads, 1, __ATOMIC_RELEASE);
	pthread_cond_broadcast(&pool->idle);
}

static void *readahead_main(void *arg)
{
	struct cache *cache = arg;
	struct readahead *pool = &cache->readahead;

	rcu_register_thread();
	pthread_mutex_lock(&pool->lock);
	while (!pool->stop) {
		if (pool->nr)
			serve_next(cache);
		else
			pthread_cond_wait(&pool->work, &pool->lock);
	}
	pthread_mutex_unlock(&pool->lock);
	rcu_unregister_thread();
	return NULL;
}

/**
 * readahead_cancel() - Nobody reads the mapping any more: drop what is queued, wait for the rest.
 *
 * Context: May sleep as long as a read takes. The invalidate lock may be held exclusively.
 */
void readahead_cancel(struct mapping *mapping)
{
	struct readahead *pool = &mapping->cache->readahead;
	unsigned int i;

	if (!__atomic_load_n(&mapping->readaheads, __ATOMIC_ACQUIRE))
		return;
	pthread_mutex_lock(&pool->lock);
	for (i = 0; i < pool->nr; i++) {
		struct readahead_request *request =
			&pool->queue[(pool->head + i) % READAHEAD_QUEUE];

		if (request->mapping != mapping)
			continue;
		request->mapping = NULL;
		__atomic_fetch_sub(&mapping->readaheads, 1, __ATOMIC_RELEASE);
	}
	while (__atomic_load_n(&mapping->readaheads, __ATOMIC_ACQUIRE))
		pthread_cond_wait(&pool->idle, &pool->lock);
	pthread_mutex_unlock(&pool->lock);
}

/**
 * readahead_start() - Start the threads, if there is to be readahead.
 *
 * Return: 0 or a negative errno; readahead_stop() is due only after 0.
 */
int readahead_start(struct cache *cache)
{
	struct readahead *pool = &cache->readahead;
	sigset_t all, old;
	int err = 0;

	/* Two windows of several files must have room. */
	cache->ra_pages = cache->config.readahead_bytes >> PAGE_SHIFT;
	if (cache->ra_pages > cache->nr_frames / 16)
		cache->ra_pages = cache->nr_frames / 16;
	cache->ra_piece = cache->ra_pages < PIECES * PIECE_MIN ? PIECE_MIN :
			  1UL << order_of(cache->ra_pages / PIECES);
	if (cache->ra_piece > RUN_MAX)
		cache->ra_piece = RUN_MAX;
	if (pthread_mutex_init(&pool->lock, NULL) || pthread_cond_init(&pool->work, NULL) ||
	    pthread_cond_init(&pool->idle, NULL))
		return -ENOMEM;
	/* Signals are for the program's own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (cache->ra_pages && pool->nr_threads < READAHEAD_THREADS && !err) {
		err = pthread_create(&pool->threads[pool->nr_threads], NULL, readahead_main, cache);
		pool->nr_threads += !err;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err)
		readahead_stop(cache);
	return -err;
}

void readahead_stop(struct cache *cache)
{
	struct readahead *pool = &cache->readahead;

	pthread_mutex_lock(&pool->lock);
	pool->stop = true;
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->lock);
	while (pool->nr_threads)
		pthread_join(pool->threads[--pool->nr_threads], NULL);
	pthread_cond_destroy(&pool->work);
	pthread_cond_destroy(&pool->idle);
	pthread_mutex_destroy(&pool->lock);
}
