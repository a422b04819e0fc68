/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The log as a ring: opening it for writing, its tail, emptying it.
 *
 * From the mount to the unmount the superblock says needs_recovery, and the journal's own tells
 * where the log starts, be it empty or not: so a reader of the image may come at any moment. An
 * unmount brings everything to its place, says that the log is empty, and then takes the flag away.
 *
 * A checkpoint writes the dirty blocks of the device mapping in their place, flushes the image, and
 * moves the tail to behind what was committed when it began, or as far as the holds allow. The new
 * tail is durable before the part that it gives free is written to.
 *
 * Features are those that the kernel would set: checksums of version 3 where the file system has
 * checksums, none where it has not, wide block numbers where it has these. The space of fast commits
 * is part of the log.
 *
 * Locks: tail_lock around a checkpoint, and the superblock of the journal.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "log.h"
#include "txn.h"

#define LIMIT_MIN 64		/* blocks of a transaction */
#define LIMIT_MAX 2048
#define LIMIT_PART 16		/* of the cache's frames */
#define RESERVE_MAX 128

/* The log starts at @at with transaction @seq; 0: it is empty. Durable on return. */
static int write_super(struct txns *txns, uint32_t at, uint32_t seq)
{
	int err;

	txns->log.super.s_start = htobe32(at);
	txns->log.super.s_sequence = htobe32(seq);
	err = journal_write_super(&txns->log);
	return err ? err : image_flush(txns->vol->vol.image);
}

/* Where transaction @seq starts, which is in the log. txns->lock. */
static uint32_t start_of(const struct txns *txns, uint32_t seq)
{
	for (unsigned int i = 0; i < txns->nr_starts; i++)
		if (txns->starts[i].seq == seq)
			return txns->starts[i].at;
	return txns->head;
}

/* How far the tail may go when all before @upto is in its place or held. txns->lock. */
static uint32_t not_held(const struct txns *txns, uint32_t upto)
{
	for (int i = 0; i < 2; i++) {
		const struct txn_hold *hold = &txns->holds[i];

		if (hold->set && seq_after(hold->seq, txns->committed) &&
		    seq_after(upto, hold->keep))
			upto = hold->keep;
	}
	return upto;
}

/* Transactions before @seq are in the log no more. txns->lock. */
static void drop_before(struct txns *txns, uint32_t seq, uint32_t at)
{
	struct txn_block *block;
	unsigned long index;
	unsigned int gone = 0;

	while (gone < txns->nr_starts && seq_after(seq, txns->starts[gone].seq))
		gone++;
	txns->nr_starts -= gone;
	memmove(txns->starts, txns->starts + gone, txns->nr_starts * sizeof(*txns->starts));
	txns->tail = at;
	txns->tail_seq = seq;
	xa_for_each(&txns->blocks, index, block) {
		if (block->logged && seq_after(seq, block->seq))
			block->logged = false;
		if (block->logged || block->running || block->committing)
			continue;
		xa_erase(&txns->blocks, index);
		free(block);
	}
}

static int write_in_place(struct txns *txns)
{
	struct mapping *device = &txns->vol->device;
	errseq_t since = filemap_sample_wb_err(device);
	int err = filemap_write_and_wait(device);
	int ret = filemap_check_wb_err(device, &since);

	if (!err)
		err = ret;
	return err ? err : image_flush(txns->vol->vol.image);
}

static int move_tail(struct txns *txns, uint32_t upto)
{
	uint32_t at, seq;
	int err;

	pthread_mutex_lock(&txns->lock);
	seq = not_held(txns, upto);
	at = start_of(txns, seq);
	if (seq_after(seq, txns->committed))
		at = txns->head;
	pthread_mutex_unlock(&txns->lock);
	if (seq == txns->tail_seq)
		return 0;
	err = write_super(txns, at, seq);
	if (err)
		return err;
	pthread_mutex_lock(&txns->lock);
	drop_before(txns, seq, at);
	pthread_mutex_unlock(&txns->lock);
	return 0;
}

/**
 * txn_checkpoint - make room in the log
 * @txns: transactions
 *
 * Context: takes tail_lock; no lock below it is held. Writes and flushes.
 * Return: 0, though perhaps nothing could be given free; or an error of writing: all is as before.
 */
int txn_checkpoint(struct txns *txns)
{
	uint32_t upto;
	int err;

	pthread_mutex_lock(&txns->tail_lock);
	pthread_mutex_lock(&txns->lock);
	upto = txns->committed + 1;
	pthread_mutex_unlock(&txns->lock);
	err = write_in_place(txns);
	if (!err)
		err = move_tail(txns, upto);
	pthread_mutex_unlock(&txns->tail_lock);
	return err;
}

/**
 * txn_note_error - write to the journal's superblock why it was aborted
 * @txns: transactions
 * @err: negative errno
 *
 * The image may be failing, so nothing more can be done when this does: what is lost then is that
 * the next mount, or e2fsck, marks the file system as one with errors.
 *
 * Context: takes tail_lock; the volume lock may be held, which is outside it. Writes and flushes.
 */
void txn_note_error(struct txns *txns, int err)
{
	pthread_mutex_lock(&txns->tail_lock);
	txns->log.super.s_errno = htobe32(err);
	if (!journal_write_super(&txns->log))
		image_flush(txns->vol->vol.image);
	pthread_mutex_unlock(&txns->tail_lock);
}

int txn_checkpoint_some(struct ext4_volume *vol)
{
	struct txns *txns = vol->txns;
	bool full;

	if (!txns || __atomic_load_n(&txns->error, __ATOMIC_ACQUIRE))
		return 0;
	pthread_mutex_lock(&txns->lock);
	full = txn_free(txns) < (txns->log.last - txns->log.first) / 2;
	pthread_mutex_unlock(&txns->lock);
	return full ? txn_checkpoint(txns) : 0;
}

/*
 * Opening and closing
 */

static void set_features(struct txns *txns)
{
	struct ext2_super_block *sb = txns->vol->fs->super;
	struct journal *log = &txns->log;

	log->compat &= ~JBD2_COMPAT_CHECKSUM;
	log->incompat &= JBD2_INCOMPAT_64BIT;
	log->incompat |= JBD2_INCOMPAT_REVOKE;
	if (ext2fs_has_feature_64bit(sb))
		log->incompat |= JBD2_INCOMPAT_64BIT;
	if (ext2fs_has_feature_metadata_csum(sb)) {
		log->incompat |= JBD2_INCOMPAT_CSUM_V3;
		log->super.s_checksum_type = JBD2_CRC32C;
	}
	log->super.s_header.h_blocktype = htobe32(JBD2_SUPER_V2);
	log->super.s_feature_compat = htobe32(log->compat);
	log->super.s_feature_incompat = htobe32(log->incompat);
	log->last = log->len;
}

/* The bytes of the cache that a block in a transaction pins. */
static uint64_t pinned_size(const struct ext4_volume *vol)
{
	return vol->vol.blocksize > PAGE_SIZE ? vol->vol.blocksize : PAGE_SIZE;
}

/**
 * txn_check_cache - can the cache pin the blocks of two transactions?
 * @vol: the volume; nothing has been written yet
 *
 * Two, since a commit needs the volume lock.
 *
 * Return: 0, also without a journal; -EINVAL after one line.
 */
int txn_check_cache(const struct ext4_volume *vol)
{
	uint64_t least = 8 * LIMIT_MIN * pinned_size(vol);

	if (!ext2fs_has_feature_journal(vol->fs->super) || vol->vol.options->cache_size >= least)
		return 0;
	log_error("%s: a journal with blocks of %u bytes needs cache_size=%lluM at least",
		  vol->vol.image->name, vol->vol.blocksize, (unsigned long long)least >> 20);
	return -EINVAL;
}

static void set_limits(struct txns *txns)
{
	uint64_t frames = txns->vol->vol.options->cache_size / pinned_size(txns->vol);
	unsigned int size = txns->log.last - txns->log.first;

	txns->limit = frames / LIMIT_PART < LIMIT_MAX ? frames / LIMIT_PART : LIMIT_MAX;
	if (txns->limit < LIMIT_MIN)
		txns->limit = LIMIT_MIN;
	if (txns->limit > size / 4)
		txns->limit = size / 4;
	txns->reserve = txns->limit / 2 < RESERVE_MAX ? txns->limit / 2 : RESERVE_MAX;
}

static int start_log(struct txns *txns)
{
	uint32_t seq = be32toh(txns->log.super.s_sequence);

	txns->head = txns->tail = txns->log.first;
	txns->tail_seq = txns->running.seq = seq;
	txns->committed = seq - 1;
	txns->room_starts = txns->log.last - txns->log.first;
	txns->starts = calloc(txns->room_starts, sizeof(*txns->starts));
	return txns->starts ? write_super(txns, txns->head, seq) : -ENOMEM;
}

static struct txns *txns_new(struct ext4_volume *vol)
{
	struct txns *txns = calloc(1, sizeof(*txns));

	if (!txns)
		return NULL;
	txns->vol = vol;
	pthread_mutex_init(&txns->commit_lock, NULL);
	pthread_mutex_init(&txns->tail_lock, NULL);
	pthread_mutex_init(&txns->lock, NULL);
	xa_init(&txns->blocks);
	INIT_LIST_HEAD(&txns->running.blocks);
	INIT_LIST_HEAD(&txns->committing.blocks);
	return txns;
}

static void txns_free(struct txns *txns)
{
	struct txn_block *block;
	unsigned long index;

	xa_for_each(&txns->blocks, index, block) {
		if (block->running)
			folio_put(block->folio);
		if (block->committing)
			folio_put(block->closed_folio);
		free(block);
	}
	xa_destroy(&txns->blocks);
	free(txns->running.revoked.ranges);
	free(txns->running.freed.ranges);
	free(txns->committing.revoked.ranges);
	free(txns->committing.freed.ranges);
	free(txns->starts);
	journal_close(&txns->log);
	pthread_mutex_destroy(&txns->lock);
	pthread_mutex_destroy(&txns->tail_lock);
	pthread_mutex_destroy(&txns->commit_lock);
	free(txns);
}

/**
 * txn_open - begin to write the journal
 * @vol: the volume; its superblock on the image says needs_recovery already
 *
 * Context: while mounting, before anything else is changed. Writes and flushes.
 * Return: 0 (also without a journal) or an error, after one line unless it is -ENOMEM or of writing.
 */
int txn_open(struct ext4_volume *vol)
{
	struct txns *txns;
	int err;

	if (!ext2fs_has_feature_journal(vol->fs->super))
		return 0;
	txns = txns_new(vol);
	if (!txns)
		return -ENOMEM;
	err = journal_open(&txns->log, vol->vol.image, vol->fs);
	if (!err)
		err = journal_map(&txns->log, vol->fs);
	if (!err && txns->log.super.s_start)
		err = journal_damaged(&txns->log, "it is not empty");
	if (!err) {
		set_features(txns);
		set_limits(txns);
		err = start_log(txns);
	}
	if (err) {
		txns_free(txns);
		return err;
	}
	vol->txns = txns;
	return 0;
}

/**
 * txn_close - end writing the journal
 * @vol: the volume; nothing runs in it any more, and all is committed
 *
 * Context: unmounting. Writes and flushes.
 * Return: 0, with an empty log; or an error: the log is left to be replayed.
 */
int txn_close(struct ext4_volume *vol)
{
	struct txns *txns = vol->txns;
	int err;

	if (!txns)
		return 0;
	err = txns->error;
	if (!err)
		err = txn_checkpoint(txns);
	if (!err && txns->tail_seq != txns->committed + 1)
		err = -EIO;
	if (!err)
		err = write_super(txns, 0, txns->committed + 1);
	vol->txns = NULL;
	txns_free(txns);
	return err;
}
