/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Committing: the running transaction becomes durable.
 *
 * Under the volume lock what libext2fs keeps in memory is brought to the device mapping, the
 * transaction is closed, and its blocks are copied, in the order and with all that the log wants, to
 * one piece of memory. Then operations go on, in the next transaction. The piece is written with few
 * transfers, revokes first, and the image flushed: that makes file data durable, too, which was
 * written before the metadata that tells of it was changed. The commit block follows, and a second
 * flush. At its place there are zeros before, so that one sector makes the difference, and a commit
 * block that is half written cannot be met. Only then do the blocks become dirty, to be written in
 * their place, and may the blocks be used again that the transaction freed.
 *
 * One commit is under way at a time. Who wants one waits for it, and mostly finds that the next one,
 * made by somebody who waited longer, has done his as well.
 *
 * Locks: commit_lock, then the volume lock for the copying.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "log.h"
#include "map.h"
#include "transfers.h"
#include "txn.h"

/* The log's form of a transaction, as it is put together. */
struct record {
	struct txns *txns;
	uint32_t seq;
	char *data;
	unsigned int nr;		/* blocks so far */
	char *descriptor;		/* the present one; NULL: none */
	size_t used;			/* bytes of it */
	char *last_tag;
};

static char *next_block(struct record *r)
{
	char *block = r->data + (size_t)r->nr++ * r->txns->log.blocksize;

	memset(block, 0, r->txns->log.blocksize);
	return block;
}

static char *begin_block(struct record *r, enum jbd2_blocktype type)
{
	char *block = next_block(r);
	struct jbd2_header header = {
		.h_magic = htobe32(JBD2_MAGIC),
		.h_blocktype = htobe32(type),
		.h_sequence = htobe32(r->seq),
	};

	memcpy(block, &header, sizeof(header));
	return block;
}

static size_t tail_size(const struct record *r)
{
	return journal_csum_v2or3(&r->txns->log) ? sizeof(struct jbd2_tail) : 0;
}

static void end_block(struct record *r, char *block)
{
	size_t at = r->txns->log.blocksize - sizeof(struct jbd2_tail);
	jbd2_be32 csum;

	if (!tail_size(r))
		return;
	csum = journal_block_csum(&r->txns->log, block, at);
	memcpy(block + at, &csum, sizeof(csum));
}

static void put_revokes(struct record *r, const struct txn_ranges *revoked)
{
	bool wide = r->txns->log.incompat & JBD2_INCOMPAT_64BIT;
	size_t each = wide ? 8 : 4, room = r->txns->log.blocksize - tail_size(r), used = 0;
	char *block = NULL;
	jbd2_be32 count;

	for (size_t i = 0; i < revoked->nr; i++) {
		jbd2_be64 number = htobe64(revoked->ranges[i].start);

		if (!block) {
			block = begin_block(r, JBD2_REVOKE);
			used = sizeof(struct jbd2_revoke);
		}
		memcpy(block + used, (char *)&number + (8 - each), each);
		used += each;
		if (used + each <= room && i + 1 < revoked->nr)
			continue;
		count = htobe32(used);
		memcpy(block + offsetof(struct jbd2_revoke, r_count), &count, sizeof(count));
		end_block(r, block);
		block = NULL;
	}
}

static bool is_v3(const struct record *r)
{
	return r->txns->log.incompat & JBD2_INCOMPAT_CSUM_V3;
}

/* Writes a tag, and returns its bytes. */
static size_t put_tag(struct record *r, char *to, uint64_t blk, uint32_t flags, uint32_t csum)
{
	size_t size = journal_tag_size(&r->txns->log);

	if (is_v3(r)) {
		struct jbd2_tag3 tag = {
			.t_blocknr = htobe32((uint32_t)blk),
			.t_flags = htobe32(flags),
			.t_blocknr_high = htobe32(blk >> 32),
			.t_checksum = htobe32(csum),
		};
		memcpy(to, &tag, sizeof(tag));
	} else {
		struct jbd2_tag tag = {
			.t_blocknr = htobe32((uint32_t)blk),
			.t_flags = htobe16(flags),
			.t_blocknr_high = htobe32(blk >> 32),
		};
		memcpy(to, &tag, size < sizeof(tag) ? size : sizeof(tag));
	}
	return size;
}

/* The present descriptor has no more tags. */
static void end_descriptor(struct record *r)
{
	size_t at = is_v3(r) ? offsetof(struct jbd2_tag3, t_flags) + 3 :
			       offsetof(struct jbd2_tag, t_flags) + 1;

	if (!r->descriptor)
		return;
	/* The flags fit in their last byte. */
	r->last_tag[at] |= JBD2_TAG_LAST;
	end_block(r, r->descriptor);
	r->descriptor = NULL;
}

static void put_block(struct record *r, const struct txn_block *block)
{
	size_t size = r->txns->log.blocksize, pos = block->blk * size;
	const uint32_t magic = htobe32(JBD2_MAGIC);
	uint32_t flags = JBD2_TAG_SAME_UUID, csum = 0;
	bool first = !r->descriptor;
	char *to;

	if (first) {
		r->descriptor = begin_block(r, JBD2_DESCRIPTOR);
		r->used = sizeof(struct jbd2_header);
		flags = 0;
	}
	to = next_block(r);
	folio_copy_to(to, block->closed_folio, pos - folio_pos(block->closed_folio), size);
	if (!memcmp(to, &magic, sizeof(magic))) {
		memset(to, 0, sizeof(magic));
		flags |= JBD2_TAG_ESCAPED;
	}
	if (is_v3(r))
		csum = journal_data_csum(&r->txns->log, to, r->seq);
	r->last_tag = r->descriptor + r->used;
	r->used += put_tag(r, r->last_tag, block->blk, flags, csum);
	if (first) {
		memcpy(r->descriptor + r->used, r->txns->log.super.s_uuid, 16);
		r->used += 16;
	}
	if (r->used + journal_tag_size(&r->txns->log) + 16 + tail_size(r) > size)
		end_descriptor(r);
}

/* The last block, in which zeros have been written to the log. */
static void put_commit(struct record *r)
{
	struct jbd2_commit *commit;
	struct timespec now;

	r->nr--;
	commit = (void *)begin_block(r, JBD2_COMMIT);
	clock_gettime(CLOCK_REALTIME, &now);
	commit->h_commit_sec = htobe64(now.tv_sec);
	commit->h_commit_nsec = htobe32(now.tv_nsec);
	if (tail_size(r))
		commit->h_chksum[0] = journal_block_csum(&r->txns->log, commit,
							 offsetof(struct jbd2_commit, h_chksum));
}

/* Moves what is running to what is committing; the next one begins. Volume lock. */
static void close_running(struct txns *txns, unsigned int blocks)
{
	struct txn_block *block;

	pthread_mutex_lock(&txns->lock);
	txns->committing = txns->running;
	INIT_LIST_HEAD(&txns->committing.blocks);
	list_for_each_entry(block, &txns->running.blocks, in_running) {
		block->closed_folio = block->folio;
		block->running = false;
		block->committing = true;
		list_add_tail(&block->in_committing, &txns->committing.blocks);
	}
	txns->is_committing = true;
	txns->claimed = blocks;
	INIT_LIST_HEAD(&txns->running.blocks);
	txns->running.nr = 0;
	txns->running.revoked = txns->running.freed = (struct txn_ranges){ 0 };
	/* Read without a lock: it goes from one number to the next. */
	__atomic_store_n(&txns->running.seq, txns->committing.seq + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&txns->closed, txns->closed + 1, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&txns->lock);
}

/* Closes the running transaction and makes @r of it; r->nr 0: nothing has changed. */
static int make_record(struct txns *txns, struct record *r)
{
	struct ext4_volume *vol = txns->vol;
	struct txn_block *block;
	unsigned int blocks;
	int err;

	*r = (struct record){ .txns = txns };
	ext4_lock(vol);
	err = commit_bring(vol);
	if (err || (!txns->running.nr && !txns->running.revoked.nr))
		goto out;
	assert(txns->running.nr <= txns->limit + txns->reserve);
	blocks = txn_need(txns, txns->running.nr, txns->running.revoked.nr);
	if (posix_memalign((void **)&r->data, PAGE_SIZE, (size_t)blocks * txns->log.blocksize)) {
		r->data = NULL;
		err = -ENOMEM;
		goto out;
	}
	close_running(txns, blocks);
	r->seq = txns->committing.seq;
	put_revokes(r, &txns->committing.revoked);
	list_for_each_entry(block, &txns->committing.blocks, in_committing)
		put_block(r, block);
	end_descriptor(r);
	next_block(r);
	assert(r->nr <= blocks);
out:
	ext4_unlock(vol);
	return err;
}

/* Blocks [from, to) of the record to where they belong in the log. */
static int write_part(const struct record *r, unsigned int from, unsigned int to)
{
	struct txns *txns = r->txns;
	uint32_t first = txns->log.first, size = txns->log.last - first;
	size_t bs = txns->log.blocksize;
	struct transfers t;
	int err = 0;

	transfers_init(&t, txns->vol->vol.image, true);
	for (unsigned int i = from; i < to && !err; i++) {
		uint32_t at = first + (txns->head - first + i) % size;

		err = transfers_add(&t, journal_block(&txns->log, at) * bs, r->data + i * bs, bs);
	}
	if (!err)
		err = transfers_submit(&t);
	transfers_finish(&t);
	return err;
}

/* The log must hold the record; it does unless an operation was larger than they should be. */
static int ensure_space(const struct record *r)
{
	struct txns *txns = r->txns;
	uint32_t size = txns->log.last - txns->log.first;
	bool fits = false;
	int err = 0;

	for (int tries = 0; tries < 2 && !err && !fits; tries++) {
		pthread_mutex_lock(&txns->lock);
		fits = (txns->head + size - txns->tail) % size + r->nr < size;
		pthread_mutex_unlock(&txns->lock);
		if (!fits)
			err = txn_checkpoint(txns);
	}
	if (err || fits)
		return err;
	pthread_mutex_lock(&txns->lock);
	fits = (txns->head + size - txns->tail) % size + r->nr < size;
	pthread_mutex_unlock(&txns->lock);
	return fits ? 0 : -ENOSPC;
}

static int write_record(struct record *r)
{
	struct image *image = r->txns->vol->vol.image;
	int err = ensure_space(r);

	if (!err)
		err = write_part(r, 0, r->nr);
	if (!err)
		err = image_flush(image);
	put_commit(r);
	if (!err)
		err = write_part(r, r->nr - 1, r->nr);
	return err ? err : image_flush(image);
}

/* One block of the transaction is in the log for good: from here on it may go to its place. */
static void settle_block(struct txns *txns, struct txn_block *block)
{
	size_t size = txns->log.blocksize;
	struct folio *folio = block->closed_folio;
	loff_t pos = (loff_t)block->blk * size;
	bool dirty;

	folio_lock(folio);
	pthread_mutex_lock(&txns->lock);
	list_del(&block->in_committing);
	block->committing = false;
	dirty = !block->forgotten;
	block->logged = dirty;
	block->seq = txns->committing.seq;
	if (block->forgotten && !block->running) {
		xa_erase(&txns->blocks, block->blk);
		free(block);
	} else {
		block->forgotten = false;
	}
	pthread_mutex_unlock(&txns->lock);
	if (dirty)
		folio_mark_dirty(folio, pos - folio_pos(folio), size);
	folio_unlock(folio);
	folio_put(folio);
}

/* Blocks that were freed in the transaction can be used. */
static void release_freed(struct txns *txns)
{
	struct txn_ranges *freed = &txns->committing.freed;

	if (!freed->nr)
		return;
	ext4_lock(txns->vol);
	for (size_t i = 0; i < freed->nr; i++)
		blocks_release(txns->vol, freed->ranges[i].start, freed->ranges[i].count);
	ext4_unlock(txns->vol);
}

static void note_start(struct txns *txns, uint32_t seq, uint32_t at)
{
	assert(txns->nr_starts < txns->room_starts);
	txns->starts[txns->nr_starts++] = (struct txn_start_pos){ seq, at };
}

static void settle(struct txns *txns, const struct record *r)
{
	uint32_t first = txns->log.first, size = txns->log.last - first;
	struct txn_block *block, *next;

	list_for_each_entry_safe(block, next, &txns->committing.blocks, in_committing)
		settle_block(txns, block);
	release_freed(txns);
	pthread_mutex_lock(&txns->lock);
	note_start(txns, r->seq, txns->head);
	txns->head = first + (txns->head - first + r->nr) % size;
	txns->claimed = 0;
	txns->is_committing = false;
	free(txns->committing.revoked.ranges);
	free(txns->committing.freed.ranges);
	txns->committing.revoked = txns->committing.freed = (struct txn_ranges){ 0 };
	__atomic_store_n(&txns->committed, r->seq, __ATOMIC_RELEASE);
	txns->durable = txns->closed;
	pthread_mutex_unlock(&txns->lock);
}

/* commit_lock is held. @nothing: there was nothing to commit, and no flush was made. */
static int commit_running(struct txns *txns, bool *nothing)
{
	struct record r;
	int err = make_record(txns, &r);

	*nothing = !err && !r.nr;
	if (err || !r.nr)
		return err;
	err = write_record(&r);
	if (err)
		txn_abort(txns, err, "the journal cannot be written");
	else
		settle(txns, &r);
	free(r.data);
	return err;
}

/**
 * txn_commit - make a transaction durable, and the data of files that was written before
 * @vol: the volume
 * @seq: the transaction
 *
 * Context: no lock but inode locks and folio locks of files. Writes and flushes.
 * Return: 0 or an error: the journal is aborted, or there is no memory.
 */
int txn_commit(struct ext4_volume *vol, uint32_t seq)
{
	struct txns *txns = vol->txns;
	uint64_t closed = __atomic_load_n(&txns->closed, __ATOMIC_ACQUIRE);
	bool nothing = false, covered;
	int err;

	if (image_about_to_wait)
		image_about_to_wait();
	pthread_mutex_lock(&txns->commit_lock);
	err = __atomic_load_n(&txns->error, __ATOMIC_ACQUIRE);
	/* What somebody else has committed meanwhile was flushed after our data if it was closed
	 * after we came. */
	covered = txns->durable > closed;
	if (!err && seq_after(seq, txns->committed)) {
		err = commit_running(txns, &nothing);
		covered = !nothing;
	}
	pthread_mutex_unlock(&txns->commit_lock);
	if (!err && !covered)
		err = volume_flush(&vol->vol);
	return err;
}
