/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a replay of the log comes to.
 *
 * One walk through the log, transaction by transaction, as far as they are whole, writes down each
 * block that a descriptor names: its number, where in the log it lies, its transaction. What a
 * transaction added is dropped when its commit block does not follow: so half a transaction is
 * never replayed. Revoke blocks are only noted, and read again when all is known: each
 * number in them strikes out what was written down for that block by their own transaction and
 * those before it. So memory goes with the length of the log, whatever is written in it. What is
 * left is checked against its checksums, and of several versions of one block the last stays.
 *
 * Nothing is written here, and nothing will be when anything is wrong: a log with a bad checksum
 * in its midst is refused as a whole. The log ends, and all is well, at a block that is no journal
 * block, or has another transaction's number: the usual case. A descriptor or revoke block with a
 * bad checksum may be the rest of an older journal in the same place. If the commit block behind it
 * is older than the last one, or there is none, that is so, and the log ends; else it is damage.
 * A bad checksum in a commit block is damage, too, except with asynchronous commits, whose last
 * commit block may have reached the image before its transaction: then that one was not finished.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "cache.h"
#include "journal.h"

/* A block in the log */
struct entry {
	uint64_t block;		/* of the image */
	uint32_t at;		/* block of the journal */
	uint32_t sequence;
	uint32_t csum;
	bool escaped, revoked;
};

struct revoke_block {
	uint32_t at, sequence;
};

/* An array that grows by doubling */
struct growing {
	void *items;
	size_t nr, room;
	size_t begun;		/* nr before the transaction that we are in */
	size_t committed;	/* of nr, in whole transactions */
};

struct scan {
	struct journal *journal;
	uint32_t pos;		/* in the log */
	uint32_t left;		/* blocks of the ring that were not walked yet */
	uint32_t sequence;	/* the transaction that we are in */
	uint64_t last_time;	/* of the last commit block, seconds */
	uint32_t crc;		/* version 1: of the transaction so far */
	bool suspect;		/* a checksum of the transaction is bad */
	bool unfinished;	/* asynchronous commits: transaction @end was not finished */
	uint32_t end;		/* that is not to be replayed, nor are those behind it */
	bool ended;
	struct growing entries, revokes;
};

static void *grow(struct growing *list, size_t size)
{
	if (list->nr == list->room) {
		size_t room = list->room ? 2 * list->room : 64;
		void *items = realloc(list->items, room * size);

		if (!items)
			return NULL;
		list->items = items;
		list->room = room;
	}
	return (char *)list->items + list->nr++ * size;
}

/* Goes one block on. A log that is longer than its ring goes round for ever. */
static int step(struct scan *scan)
{
	if (!scan->left--)
		return journal_damaged(scan->journal, "its log has no end");
	if (++scan->pos == scan->journal->last)
		scan->pos = scan->journal->first;
	return 0;
}

/*
 * Walking through the log
 */

/* Bytes of a descriptor or revoke block that are not its checksum */
static size_t usable(const struct journal *journal)
{
	return journal->blocksize - (journal_csum_v2or3(journal) ? sizeof(struct jbd2_tail) : 0);
}

static bool tail_right(const struct journal *journal, const void *block)
{
	size_t offset = journal->blocksize - sizeof(struct jbd2_tail);
	const struct jbd2_tail *tail = (const void *)((const char *)block + offset);

	return !journal_csum_v2or3(journal) ||
	       tail->t_checksum == journal_block_csum(journal, block, offset);
}

/* Takes one tag to pieces; returns its flags. */
static uint32_t read_tag(const struct journal *journal, const char *at, struct entry *entry)
{
	struct jbd2_tag3 tag3;
	struct jbd2_tag tag;
	uint32_t high, flags;

	if (journal->incompat & JBD2_INCOMPAT_CSUM_V3) {
		memcpy(&tag3, at, sizeof(tag3));
		entry->block = be32toh(tag3.t_blocknr);
		entry->csum = be32toh(tag3.t_checksum);
		flags = be32toh(tag3.t_flags);
		high = be32toh(tag3.t_blocknr_high);
	} else {
		memset(&tag, 0, sizeof(tag));
		memcpy(&tag, at, journal->incompat & JBD2_INCOMPAT_64BIT ?
			       sizeof(tag) : offsetof(struct jbd2_tag, t_blocknr_high));
		entry->block = be32toh(tag.t_blocknr);
		entry->csum = be16toh(tag.t_checksum);
		flags = be16toh(tag.t_flags);
		high = be32toh(tag.t_blocknr_high);
	}
	if (journal->incompat & JBD2_INCOMPAT_64BIT)
		entry->block |= (uint64_t)high << 32;
	entry->escaped = flags & JBD2_TAG_ESCAPED;
	return flags;
}

/* Version 1: the next block of the log is part of the transaction's checksum. */
static int add_to_crc(struct scan *scan)
{
	int err = 0;
	const void *block = journal_peek(scan->journal, scan->pos, &err);

	if (block)
		scan->crc = ext2fs_crc32_be(scan->crc, block, scan->journal->blocksize);
	return err;
}

/* Writes down the next block of the log. */
static int add_entry(struct scan *scan, const struct entry *tag)
{
	struct entry *entry;
	int err = 0;

	if (scan->journal->compat & JBD2_COMPAT_CHECKSUM)
		err = add_to_crc(scan);
	if (err)
		return err;
	entry = grow(&scan->entries, sizeof(*entry));
	if (!entry)
		return -ENOMEM;
	*entry = *tag;
	entry->at = scan->pos;
	entry->sequence = scan->sequence;
	entry->revoked = false;
	return step(scan);
}

static int walk_descriptor(struct scan *scan, const void *peeked)
{
	const struct journal *journal = scan->journal;
	size_t size = journal_tag_size(journal), end = usable(journal);
	_Alignas(uint64_t) char block[EXT2_MAX_BLOCK_SIZE];
	struct entry tag;
	int err = 0;

	memcpy(block, peeked, journal->blocksize);
	if (!tail_right(journal, block))
		scan->suspect = true;
	if (journal->compat & JBD2_COMPAT_CHECKSUM)
		scan->crc = ext2fs_crc32_be(scan->crc, (unsigned char *)block, journal->blocksize);
	for (size_t at = sizeof(struct jbd2_header); !err && at + size <= end; at += size) {
		uint32_t flags = read_tag(journal, block + at, &tag);

		err = add_entry(scan, &tag);
		if (flags & JBD2_TAG_LAST)
			break;
		if (!(flags & JBD2_TAG_SAME_UUID))
			at += 16;
	}
	return err;
}

static int walk_revoke(struct scan *scan, const void *block, uint32_t at)
{
	struct revoke_block *revoke = grow(&scan->revokes, sizeof(*revoke));

	if (!revoke)
		return -ENOMEM;
	if (!tail_right(scan->journal, block))
		scan->suspect = true;
	*revoke = (struct revoke_block){ .at = at, .sequence = scan->sequence };
	return 0;
}

/* Version 1. A commit block without a checksum is from a kernel that did not write them. */
static bool crc_right(const struct scan *scan, const struct jbd2_commit *commit)
{
	uint32_t found = be32toh(commit->h_chksum[0]);

	if (!(scan->journal->compat & JBD2_COMPAT_CHECKSUM))
		return true;
	if (!commit->h_chksum_type && !commit->h_chksum_size && !found)
		return true;
	return commit->h_chksum_type == JBD2_CRC32 && commit->h_chksum_size == sizeof(found) &&
	       found == scan->crc;
}

/*
 * Versions 2 and 3. Of a block that was torn apart the first sector is enough, since all behind the
 * header is zero.
 */
static bool commit_right(const struct journal *journal, const struct jbd2_commit *commit)
{
	size_t offset = offsetof(struct jbd2_commit, h_chksum);
	char whole[EXT2_MAX_BLOCK_SIZE] = { 0 };

	if (!journal_csum_v2or3(journal) ||
	    commit->h_chksum[0] == journal_block_csum(journal, commit, offset))
		return true;
	memcpy(whole, commit, sizeof(*commit));
	return commit->h_chksum[0] == journal_block_csum(journal, whole, offset);
}

/* A transaction whose checksum is bad has a commit block. */
static int bad_commit(struct scan *scan, uint64_t when)
{
	const struct journal *journal = scan->journal;

	/* Of an older journal */
	if (when < scan->last_time) {
		scan->ended = true;
		return 0;
	}
	if (scan->suspect || !(journal->incompat & JBD2_INCOMPAT_ASYNC_COMMIT))
		return journal_damaged(journal, "checksum error in transaction %u", scan->sequence);
	scan->unfinished = true;
	scan->end = scan->sequence;
	scan->entries.committed = scan->entries.begun;
	scan->revokes.committed = scan->revokes.begun;
	return 0;
}

static int walk_commit(struct scan *scan, const struct jbd2_commit *commit)
{
	uint64_t when = be64toh(commit->h_commit_sec);
	int err = 0;

	/*
	 * Only the last one can be unfinished. Version 1 has one checksum for it all, so that one
	 * more commit block is a contradiction; with the others what follows has to be right for
	 * itself.
	 */
	if (scan->unfinished && scan->journal->compat & JBD2_COMPAT_CHECKSUM)
		return journal_damaged(scan->journal, "checksum error in transaction %u",
				       scan->end);
	if (scan->suspect || !crc_right(scan, commit) || !commit_right(scan->journal, commit)) {
		err = bad_commit(scan, when);
	} else if (!scan->unfinished) {
		scan->entries.committed = scan->entries.nr;
		scan->revokes.committed = scan->revokes.nr;
	}
	if (err || scan->ended)
		return err;
	scan->entries.begun = scan->entries.nr;
	scan->revokes.begun = scan->revokes.nr;
	scan->last_time = when;
	scan->crc = ~0U;
	scan->sequence++;
	return 0;
}

/* One block of the log that begins a part of a transaction, or ends it. */
static int walk_block(struct scan *scan)
{
	const struct jbd2_header *header;
	uint32_t at = scan->pos;
	int err = 0;

	header = journal_peek(scan->journal, at, &err);
	if (!header)
		return err;
	if (be32toh(header->h_magic) != JBD2_MAGIC ||
	    be32toh(header->h_sequence) != scan->sequence) {
		scan->ended = true;
		return 0;
	}
	err = step(scan);
	if (err)
		return err;
	switch (be32toh(header->h_blocktype)) {
	case JBD2_DESCRIPTOR:
		return walk_descriptor(scan, header);
	case JBD2_REVOKE:
		return walk_revoke(scan, header, at);
	case JBD2_COMMIT:
		return walk_commit(scan, (const void *)header);
	default:
		scan->ended = true;
		return 0;
	}
}

static int walk(struct scan *scan)
{
	int err = 0;

	while (!err && !scan->ended)
		err = walk_block(scan);
	if (!scan->unfinished)
		scan->end = scan->sequence;
	scan->entries.nr = scan->entries.committed;
	scan->revokes.nr = scan->revokes.committed;
	return err;
}

/*
 * Revoking, checking, and the last version of each block
 */

/* By block, then by place in the log, which is that in the array. */
static int compare(const void *a, const void *b)
{
	const struct entry *x = *(struct entry *const *)a, *y = *(struct entry *const *)b;

	if (x->block != y->block)
		return x->block < y->block ? -1 : 1;
	return x < y ? -1 : x > y;
}

static struct entry **sorted_entries(const struct growing *entries)
{
	struct entry **sorted = malloc((entries->nr + 1) * sizeof(*sorted));

	if (!sorted)
		return NULL;
	for (size_t i = 0; i < entries->nr; i++)
		sorted[i] = (struct entry *)entries->items + i;
	qsort(sorted, entries->nr, sizeof(*sorted), compare);
	return sorted;
}

/* Strikes out all versions of @block up to transaction @sequence. */
static void strike_out(struct entry **sorted, size_t nr, uint64_t block, uint32_t sequence)
{
	size_t low = 0, high = nr;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (sorted[middle]->block < block)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < nr && sorted[low]->block == block; low++) {
		if ((int32_t)(sequence - sorted[low]->sequence) >= 0)
			sorted[low]->revoked = true;
	}
}

static int apply_revoke(struct journal *journal, const struct revoke_block *revoke,
			struct entry **sorted, size_t nr)
{
	size_t size = journal->incompat & JBD2_INCOMPAT_64BIT ? sizeof(jbd2_be64) :
								sizeof(jbd2_be32);
	const char *block;
	size_t count;
	int err = 0;

	block = journal_peek(journal, revoke->at, &err);
	if (!block)
		return err;
	count = be32toh(((const struct jbd2_revoke *)block)->r_count);
	if (count > usable(journal))
		return journal_damaged(journal, "length of a revoke block");
	for (size_t at = sizeof(struct jbd2_revoke); at + size <= count; at += size) {
		uint64_t number = 0;

		memcpy((char *)&number + sizeof(number) - size, block + at, size);
		strike_out(sorted, nr, be64toh(number), revoke->sequence);
	}
	return 0;
}

static int check_csums(struct journal *journal, const struct growing *entries)
{
	uint32_t mask = journal->incompat & JBD2_INCOMPAT_CSUM_V3 ? UINT32_MAX : UINT16_MAX;
	const struct entry *entry = entries->items;
	int err = 0;

	if (!journal_csum_v2or3(journal))
		return 0;
	for (size_t i = 0; i < entries->nr; i++, entry++) {
		const void *block;

		if (entry->revoked)
			continue;
		block = journal_peek(journal, entry->at, &err);
		if (!block)
			return err;
		if ((journal_data_csum(journal, block, entry->sequence) & mask) != entry->csum)
			return journal_damaged(journal, "checksum error in its block %u",
					       entry->at);
	}
	return 0;
}

static int make_replay(const struct journal *journal, struct entry **sorted, size_t nr,
		       struct replay *replay)
{
	replay->blocks = malloc((nr + 1) * sizeof(*replay->blocks));
	if (!replay->blocks)
		return -ENOMEM;
	for (size_t i = 0; i < nr; i++) {
		const struct entry *entry = sorted[i];
		struct replay_block *last = replay->blocks + replay->nr;

		if (entry->revoked)
			continue;
		if (!replay->nr || last[-1].block != entry->block)
			replay->nr++;
		else
			last--;
		*last = (struct replay_block){ .block = entry->block,
					       .from = journal_block(journal, entry->at),
					       .escaped = entry->escaped };
	}
	return 0;
}

/* From what was written down to what is left of it. */
static int settle(struct scan *scan, struct replay *replay)
{
	struct entry **sorted = sorted_entries(&scan->entries);
	const struct revoke_block *revoke = scan->revokes.items;
	int err = sorted ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < scan->revokes.nr; i++)
		err = apply_revoke(scan->journal, &revoke[i], sorted, scan->entries.nr);
	if (!err)
		err = check_csums(scan->journal, &scan->entries);
	if (!err)
		err = make_replay(scan->journal, sorted, scan->entries.nr, replay);
	free(sorted);
	return err;
}

/* Fast commits count when they build upon the transaction that would be next. */
static int find_fast_commits(struct scan *scan, struct replay *replay)
{
	struct jbd2_fc_head head;
	const void *block;
	int err = 0;

	if (!scan->journal->fc_first)
		return 0;
	block = journal_peek(scan->journal, scan->journal->fc_first, &err);
	if (!block)
		return err;
	memcpy(&head, block, sizeof(head));
	replay->fast_commits = le16toh(head.fc_tag) == JBD2_FC_TAG_HEAD &&
			       le32toh(head.fc_tid) == scan->end;
	return 0;
}

/**
 * journal_scan - find out what a replay of the log comes to
 * @journal: open and mapped; its log is not empty
 * @replay: the result; replay->blocks is to be freed
 *
 * Return: 0, -EUCLEAN or the image's error after one line, or -ENOMEM.
 */
int journal_scan(struct journal *journal, struct replay *replay)
{
	struct scan scan = {
		.journal = journal,
		.pos = be32toh(journal->super.s_start),
		.left = journal->last - journal->first,
		.sequence = be32toh(journal->super.s_sequence),
		.crc = ~0U,
	};
	int err;

	*replay = (struct replay){ 0 };
	err = walk(&scan);
	if (!err)
		err = settle(&scan, replay);
	if (!err)
		err = find_fast_commits(&scan, replay);
	replay->sequence = scan.end + 1;
	free(scan.entries.items);
	free(scan.revokes.items);
	if (err) {
		free(replay->blocks);
		*replay = (struct replay){ 0 };
	}
	return err;
}

/* First of the replay's blocks that is not before @block */
static size_t first_from(const struct replay *replay, uint64_t block)
{
	size_t low = 0, high = replay->nr;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (replay->blocks[middle].block < block)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

bool replay_is_sane(const struct replay *replay, const struct journal *journal, uint64_t fs_blocks)
{
	if (replay->nr && replay->blocks[replay->nr - 1].block >= fs_blocks)
		return false;
	for (unsigned int i = 0; i < journal->nr_runs; i++) {
		const struct journal_run *run = &journal->runs[i];
		size_t next = first_from(replay, run->pblk);

		if (next < replay->nr && replay->blocks[next].block < run->pblk + run->len)
			return false;
	}
	return true;
}
