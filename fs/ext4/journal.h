/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The journal for those who read it: where it is (journal_log.c), what is in it (journal_scan.c),
 * and the image as the journal wants it to be (journal_view.c). recover.c puts them together.
 *
 * No locks: one thread has a struct journal. A view may be used by any number of them.
 */
#ifndef FOLIOFS_EXT4_JOURNAL_H
#define FOLIOFS_EXT4_JOURNAL_H

#include <endian.h>
#include <stdbool.h>
#include <ext2fs/ext2_fs.h>
#include <ext2fs/ext2fs.h>
#include "image.h"
#include "jbd2.h"

/* Blocks of the journal's file that lie side by side on the image */
struct journal_run {
	uint32_t lblk, len;
	uint64_t pblk;
};

/**
 * struct journal - a journal that is open
 * @image: where it is
 * @blocksize: bytes, of journal and file system
 * @runs: where the blocks of its file are; just block 0 until journal_map()
 * @super: its superblock as on the image
 * @len: blocks that belong to it
 * @first: the ring is [first, last)
 * @fc_first: first block for fast commits, 0 when there are none
 * @compat, @incompat: features
 * @seed: of all checksums of versions 2 and 3
 * @window: blocks of the file that were read last, [window_at, window_at + window_nr)
 */
struct journal {
	struct image *image;
	unsigned int blocksize;
	struct journal_run *runs;
	unsigned int nr_runs, room;
	struct jbd2_super super;
	uint32_t len, first, last, fc_first;
	uint32_t compat, incompat;
	uint32_t seed;
	char *window;
	uint32_t window_at, window_nr;
};

/*
 * journal_log.c. What cannot be used is refused with one line. -EUCLEAN: damaged.
 */
/* Finds the journal of a file system and checks its superblock. journal_close() in any case. */
int journal_open(struct journal *journal, struct image *image, ext2_filsys fs);
void journal_close(struct journal *journal);
/* Finds all blocks of its file: before anything but the superblock is read. */
int journal_map(struct journal *journal, ext2_filsys fs);
/* The parts of it, for those who know where the journal is: runs are added, super is filled in. */
int journal_init(struct journal *journal, struct image *image, unsigned int blocksize);
int journal_check_super(struct journal *journal, uint32_t file_blocks);
int journal_add_run(struct journal *journal, uint32_t lblk, uint64_t pblk, uint32_t len);
/* Block of the image that block @lblk of the file is. */
uint64_t journal_block(const struct journal *journal, uint32_t lblk);
/* Block @lblk, to look at until the next call; NULL and *err. */
const void *journal_peek(struct journal *journal, uint32_t lblk, int *err);
/* Writes the superblock, with its checksum set. Not durable before a flush. */
int journal_write_super(struct journal *journal);
/* One line, and -EUCLEAN. */
int journal_damaged(const struct journal *journal, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static inline bool journal_csum_v2or3(const struct journal *journal)
{
	return journal->incompat & (JBD2_INCOMPAT_CSUM_V2 | JBD2_INCOMPAT_CSUM_V3);
}

/* Bytes of a tag, without the UUID that may follow. */
unsigned int journal_tag_size(const struct journal *journal);
/* crc32c of @block with the field at @offset taken for 0, as it is on the image. */
jbd2_be32 journal_block_csum(const struct journal *journal, const void *block, size_t offset);
/* Checksum of a block in the log, for its tag; version 2 keeps the low 16 bits. */
uint32_t journal_data_csum(const struct journal *journal, const void *block, uint32_t sequence);

/**
 * struct replay_block - a block of the image that the journal has a newer version of
 * @block: its number
 * @from: block of the image where that version is, inside the journal
 * @escaped: there its first four bytes are 0 instead of JBD2_MAGIC
 */
struct replay_block {
	uint64_t block;
	uint64_t from : 63, escaped : 1;
};

/**
 * struct replay - what a replay comes to
 * @blocks: each block once, by rising number; malloc'ed
 * @sequence: the transaction that comes next
 * @fast_commits: there are fast commits behind the last transaction
 */
struct replay {
	struct replay_block *blocks;
	size_t nr;
	uint32_t sequence;
	bool fast_commits;
};

/* journal_scan.c: reads the log, which is not empty. On an error nothing is in @replay. */
int journal_scan(struct journal *journal, struct replay *replay);
/* True when @blocks are in a file system of @fs_blocks, and none is the journal's own. */
bool replay_is_sane(const struct replay *replay, const struct journal *journal, uint64_t fs_blocks);

/*
 * journal_view.c. An image that reads as @base after the replay, and cannot be written. Closing it
 * frees replay->blocks. @base stays the caller's, and must outlive it. NULL: no memory.
 */
struct image *journal_view_create(struct image *base, const struct replay *replay,
				  unsigned int blocksize);
/* Writes all blocks of the replay to @base. Not durable before a flush. */
int journal_view_apply(struct image *view);

#endif
