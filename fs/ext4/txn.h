/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Transactions: what the files that write the journal share with those that change metadata.
 * How it works is told in txn.c. All is a no-op, or 0, on a volume without a journal.
 */
#ifndef FOLIOFS_EXT4_TXN_H
#define FOLIOFS_EXT4_TXN_H

#include "ext4.h"
#include "journal.h"

/* Sequences wrap around. */
static inline bool seq_after(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) > 0;
}

/* A block of metadata that a transaction has, or the log. */
struct txn_block {
	uint64_t blk;
	uint32_t seq;			/* last transaction that has it in the log, if @logged */
	bool logged;
	bool running, committing;	/* is in that transaction, whose list it is on */
	bool forgotten;			/* freed since it joined the one that is committing */
	struct list_head in_running, in_committing;
	struct folio *folio, *closed_folio; /* referenced while running, committing */
};

struct txn_range {
	uint64_t start, count;
};

/* A growing array of ranges, or of single blocks. */
struct txn_ranges {
	struct txn_range *ranges;
	size_t nr, room;
};

struct txn {
	uint32_t seq;
	struct list_head blocks;
	unsigned int nr;
	struct txn_ranges revoked, freed;
};

/* Where a transaction of the log starts */
struct txn_start_pos {
	uint32_t seq, at;
};

/* Transactions from @keep on stay in the log until @seq is committed. */
struct txn_hold {
	uint32_t seq, keep;
	bool set;
};

struct txns {
	struct ext4_volume *vol;
	struct journal log;		/* geometry, checksums, superblock */
	unsigned int limit;		/* blocks of a transaction, but for what one operation adds */
	unsigned int reserve;		/* most that an operation adds */

	pthread_mutex_t commit_lock;	/* outermost: one commit at a time */
	pthread_mutex_t tail_lock;	/* below the volume lock, too: a checkpoint; log.super */

	pthread_mutex_t lock;		/* leaf, below a DEVICE folio's lock: all that follows */
	struct xarray blocks;		/* struct txn_block by number */
	struct txn running, committing;	/* running changes under the volume lock, too */
	bool is_committing;
	uint32_t committed;		/* last transaction that is durable */
	uint32_t head, tail, tail_seq;	/* the log is [tail, head) of the ring */
	uint32_t claimed;		/* blocks behind head that the committing one will fill */
	struct txn_start_pos *starts;	/* of the transactions in the log, the oldest first */
	unsigned int nr_starts, room_starts;
	struct txn_hold holds[2];	/* by parity of the sequence */
	uint64_t closed;		/* transactions closed so far */
	uint64_t durable;		/* of them, the last that is durable */
	int error;			/* aborted; atomic */
};

/* txn.c */
/* Room for one more operation in transaction and log? Volume lock. */
bool txn_has_room(struct ext4_volume *vol);
/* Waits for it. No lock but inode locks and FILE folio locks. */
int txn_make_room(struct ext4_volume *vol);
/* Groups whose blocks one operation may change. */
unsigned int txn_step_groups(struct ext4_volume *vol);
/* Commits when that makes blocks free; true then. No lock but inode locks. */
bool txn_give_freed(struct ext4_volume *vol);
/* An operation that goes in steps should end this one. Volume lock. */
bool txn_is_full(struct ext4_volume *vol);
/* Block @blk, in @folio, is about to change. Volume lock, folio lock. 0 or -ENOMEM. */
int txn_join(struct ext4_volume *vol, struct folio *folio, uint64_t blk);
/* May the block be written in its place now? Folio locked. */
bool txn_may_write(struct ext4_volume *vol, uint64_t blk);
/* Blocks are metadata no longer. Volume lock. */
void txn_forget(struct ext4_volume *vol, uint64_t blk, uint64_t count);
/* Blocks freed now may be used once the running transaction is durable. Volume lock. */
void txn_free_later(struct ext4_volume *vol, uint64_t pblk, uint64_t count);
/* The transaction that a change made now belongs to. */
uint32_t txn_running(struct ext4_volume *vol);
/* Ends all writing: one message, and the volume is read-only. */
void txn_abort(struct txns *txns, int err, const char *what);
void txn_hold(struct txns *txns, uint32_t seq, uint32_t keep);
unsigned int txn_need(const struct txns *txns, unsigned int blocks, unsigned int revokes);
uint32_t txn_free(const struct txns *txns);

/* txn_commit.c */
/* Makes transaction @seq, and all data written before, durable. No lock but inode locks. */
int txn_commit(struct ext4_volume *vol, uint32_t seq);

/* txn_log.c */
/* Is the cache large enough for the journal? While mounting, before anything is written. */
int txn_check_cache(const struct ext4_volume *vol);
/* Opens the journal, which is empty, to be written. While mounting. */
int txn_open(struct ext4_volume *vol);
/* Empties it when all is well; frees. Nobody changes anything any more. */
int txn_close(struct ext4_volume *vol);
/* Brings what is committed to its place, and moves the log's tail. */
int txn_checkpoint(struct txns *txns);
/* Tells the next mount, and e2fsck, that the journal was aborted, if that can still be written. */
void txn_note_error(struct txns *txns, int err);
/* The same when more than half of the log is in use. */
int txn_checkpoint_some(struct ext4_volume *vol);

#endif
