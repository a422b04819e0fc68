/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Transactions: which blocks of metadata are changed together.
 *
 * Every operation runs under the volume lock from ext4_begin() to ext4_end(), so whoever holds that
 * lock finds the metadata between two operations. A block joins the running transaction when it is
 * about to change (device.c): its folio is referenced, so that it stays in the cache, but is not
 * dirty. A commit (txn_commit.c) closes the transaction under the volume lock: it copies the blocks
 * and starts the next one. The copies go to the log; once the commit block is durable the folios
 * become dirty, and the ordinary writeback of the device mapping brings them to their place. When all
 * that a transaction changed is there, its part of the log can be used again (txn_log.c).
 *
 * A block may be dirty from an older transaction when it joins the next. Its bytes must not be
 * written then: writeback leaves it out, and it becomes dirty again when that one is durable. Until
 * then its older version is in the log alone, so the log's tail may not pass that (txn_hold()).
 *
 * File data needs no order of its own: blocks are chosen, written, and only then put into the map
 * (file_io.c). So a commit never waits for data, and who holds folio locks of files may wait for a
 * commit. Freed blocks are taken until their transaction is durable, so nothing is written over what
 * a crash would bring back (blocks.c).
 *
 * A freed block that is in the log is revoked: a replay must not write it over what the block became.
 *
 * Size. A transaction takes a quarter of the log at most, and a part of the cache; an operation adds
 * no more than `reserve` blocks, or goes in steps that look at txn_is_full(). An operation begins
 * only when transaction and log have room for it, so the running transaction can always be
 * committed, and the log can be emptied after that.
 *
 * Locks: txns->lock is a leaf under the device mapping's folio locks. The running transaction
 * changes under the volume lock as well.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "log.h"
#include "map.h"
#include "txn.h"

/* Blocks of the log that a transaction fills. */
unsigned int txn_need(const struct txns *txns, unsigned int blocks, unsigned int revokes)
{
	unsigned int size = txns->log.blocksize, tags, numbers;

	tags = (size - sizeof(struct jbd2_header) - 2 * 16 - sizeof(struct jbd2_tail)) /
	       journal_tag_size(&txns->log);
	numbers = (size - sizeof(struct jbd2_revoke) - sizeof(struct jbd2_tail)) / 8;
	return blocks + (blocks + tags - 1) / tags + (revokes + numbers - 1) / numbers + 1;
}

/* Blocks of the log that are free. txns->lock. */
uint32_t txn_free(const struct txns *txns)
{
	uint32_t size = txns->log.last - txns->log.first;
	uint32_t used = (txns->head + size - txns->tail) % size + txns->claimed + 1;

	return used < size ? size - used : 0;
}

/* What the running transaction comes to, with the bitmaps and descriptors it will get. */
static unsigned int running_size(struct txns *txns)
{
	return txns->running.nr + commit_marked_blocks(txns->vol);
}

bool txn_is_full(struct ext4_volume *vol)
{
	struct txns *txns = vol->txns;
	unsigned int size;
	bool room;

	if (!txns)
		return false;
	size = running_size(txns);
	if (size >= txns->limit)
		return true;
	pthread_mutex_lock(&txns->lock);
	room = txn_need(txns, size + txns->reserve / 2, txns->running.revoked.nr) <= txn_free(txns);
	pthread_mutex_unlock(&txns->lock);
	return !room;
}

/* Three blocks each, with as many left for the map. */
unsigned int txn_step_groups(struct ext4_volume *vol)
{
	return vol->txns ? vol->txns->reserve / 6 + 1 : UINT_MAX / 2;
}

bool txn_give_freed(struct ext4_volume *vol)
{
	bool some;

	pthread_mutex_lock(&vol->space_lock);
	some = vol->txns && vol->freed_blocks;
	pthread_mutex_unlock(&vol->space_lock);
	return some && !txn_commit(vol, txn_running(vol));
}

bool txn_has_room(struct ext4_volume *vol)
{
	struct txns *txns = vol->txns;
	unsigned int size;
	bool room;

	if (!txns)
		return true;
	size = running_size(txns);
	if (size + txns->reserve > txns->limit && txns->running.nr)
		return false;
	if (txns->running.freed.nr && blocks_tight(vol))
		return false;
	pthread_mutex_lock(&txns->lock);
	room = txn_need(txns, size + txns->reserve, txns->running.revoked.nr + txns->reserve) <=
	       txn_free(txns);
	pthread_mutex_unlock(&txns->lock);
	return room;
}

/**
 * txn_make_room - wait until an operation may begin
 * @vol: the volume; txn_has_room() has said no
 *
 * Context: inode locks and folio locks of files may be held, no other. Writes and flushes.
 * Return: 0, it may be asked again; or an error, with the journal aborted.
 */
int txn_make_room(struct ext4_volume *vol)
{
	struct txns *txns = vol->txns;
	int err = txn_commit(vol, txn_running(vol));
	bool room;

	if (err)
		return err;
	pthread_mutex_lock(&txns->lock);
	room = txn_need(txns, 2 * txns->reserve, txns->reserve) <= txn_free(txns);
	pthread_mutex_unlock(&txns->lock);
	if (room)
		return 0;
	err = txn_checkpoint(txns);
	if (err)
		txn_abort(txns, err, "metadata cannot be written to its place");
	return err;
}

uint32_t txn_running(struct ext4_volume *vol)
{
	return vol->txns ? __atomic_load_n(&vol->txns->running.seq, __ATOMIC_ACQUIRE) : 0;
}

void txn_abort(struct txns *txns, int err, const char *what)
{
	int none = 0;

	if (!__atomic_compare_exchange_n(&txns->error, &none, err, false, __ATOMIC_ACQ_REL,
					 __ATOMIC_ACQUIRE))
		return;
	__atomic_store_n(&txns->vol->vol.readonly, true, __ATOMIC_RELEASE);
	log_error("%s: %s: %s; read-only from here on, what was committed before is kept in the "
		  "journal", txns->vol->vol.image->name, what, strerror(-err));
	txn_note_error(txns, err);
}

/*
 * Transactions from @keep on must stay in the log until transaction @seq, which has newer versions
 * of what they changed, is durable. At most two are not durable at a time. txns->lock.
 */
void txn_hold(struct txns *txns, uint32_t seq, uint32_t keep)
{
	struct txn_hold *hold = &txns->holds[seq & 1];

	if (hold->set && hold->seq == seq && !seq_after(hold->keep, keep))
		return;
	*hold = (struct txn_hold){ .seq = seq, .keep = keep, .set = true };
}

static int add_range(struct txn_ranges *list, uint64_t start, uint64_t count)
{
	struct txn_range *last = list->nr ? &list->ranges[list->nr - 1] : NULL;

	if (last && count && last->start + last->count == start && last->count) {
		last->count += count;
		return 0;
	}
	if (list->nr == list->room) {
		size_t room = list->room ? 2 * list->room : 64;
		struct txn_range *more = realloc(list->ranges, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		list->ranges = more;
		list->room = room;
	}
	list->ranges[list->nr++] = (struct txn_range){ start, count };
	return 0;
}

/* The block's struct, made when there is none. txns->lock. */
static struct txn_block *get_block(struct txns *txns, uint64_t blk)
{
	struct txn_block *block = xa_load(&txns->blocks, blk);

	if (block)
		return block;
	block = calloc(1, sizeof(*block));
	if (!block)
		return NULL;
	block->blk = blk;
	if (xa_err(xa_store(&txns->blocks, blk, block, GFP_KERNEL))) {
		free(block);
		return NULL;
	}
	return block;
}

int txn_join(struct ext4_volume *vol, struct folio *folio, uint64_t blk)
{
	struct txns *txns = vol->txns;
	struct txn_block *block;

	pthread_mutex_lock(&txns->lock);
	block = get_block(txns, blk);
	if (block && !block->running) {
		folio_get(folio);
		block->folio = folio;
		block->running = true;
		list_add_tail(&block->in_running, &txns->running.blocks);
		txns->running.nr++;
	}
	pthread_mutex_unlock(&txns->lock);
	return block ? 0 : -ENOMEM;
}

bool txn_may_write(struct ext4_volume *vol, uint64_t blk)
{
	struct txns *txns = vol->txns;
	struct txn_block *block;
	bool may = true;

	if (!txns)
		return true;
	pthread_mutex_lock(&txns->lock);
	block = xa_load(&txns->blocks, blk);
	if (block && (block->running || block->committing)) {
		may = false;
		if (block->logged)
			txn_hold(txns, block->committing ? txns->committing.seq : txns->running.seq,
				 block->seq);
	}
	pthread_mutex_unlock(&txns->lock);
	return may;
}

/* The block has been freed. txns->lock. */
static int forget(struct txns *txns, struct txn_block *block)
{
	bool in_log = block->logged || block->committing;

	if (block->running) {
		list_del(&block->in_running);
		block->running = false;
		txns->running.nr--;
		folio_put(block->folio);
	}
	if (block->logged)
		txn_hold(txns, block->committing ? txns->committing.seq : txns->running.seq,
			 block->seq);
	block->logged = false;
	if (block->committing) {
		txn_hold(txns, txns->running.seq, txns->committing.seq);
		block->forgotten = true;
	}
	return in_log ? add_range(&txns->running.revoked, block->blk, 0) : 0;
}

void txn_forget(struct ext4_volume *vol, uint64_t blk, uint64_t count)
{
	struct txns *txns = vol->txns;
	struct txn_block *block;
	unsigned long index = blk;
	int err = 0;

	if (!txns || !count)
		return;
	pthread_mutex_lock(&txns->lock);
	for (block = xa_find(&txns->blocks, &index, blk + count - 1, XA_PRESENT); block;
	     block = xa_find_after(&txns->blocks, &index, blk + count - 1, XA_PRESENT)) {
		int ret = forget(txns, block);

		err = err ? err : ret;
		if (block->committing)
			continue;
		xa_erase(&txns->blocks, index);
		free(block);
	}
	pthread_mutex_unlock(&txns->lock);
	if (err)
		txn_abort(txns, err, "a freed block cannot be revoked");
}

/* Without memory to remember it by, the range stays taken until the next mount. */
void txn_free_later(struct ext4_volume *vol, uint64_t pblk, uint64_t count)
{
	struct txns *txns = vol->txns;

	pthread_mutex_lock(&txns->lock);
	add_range(&txns->running.freed, pblk, count);
	pthread_mutex_unlock(&txns->lock);
}
