/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A log of any bytes is looked through. The input is four bytes (features, where the log starts, in
 * two bytes, and the low byte of the first transaction) and then the blocks of the log. The journal
 * lies in two pieces of an image in memory.
 */
#include <assert.h>
#include <endian.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "ext4/journal.h"

#define BLOCK 1024u
#define BLOCKS 1536u		/* of the journal */
#define FIRST_PIECE 1100u	/* of them, from block 100 of the image; the others from 2000 */
#define FS_BLOCKS 4096u

static unsigned char memory[FS_BLOCKS * BLOCK];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int submit(struct image *image, struct image_io *ios, unsigned int nr)
{
	for (unsigned int i = 0; i < nr; i++) {
		assert(ios[i].iovcnt == 1 && !ios[i].write);
		assert(ios[i].offset + ios[i].iov->iov_len <= sizeof(memory));
		memcpy(ios[i].iov->iov_base, memory + ios[i].offset, ios[i].iov->iov_len);
		ios[i].result = 0;
	}
	return 0;
}

static const struct image_ops ops = { .submit = submit };

static void fill_super(struct jbd2_super *super, const uint8_t *data)
{
	uint32_t checked = JBD2_INCOMPAT_CSUM_V2 | JBD2_INCOMPAT_CSUM_V3;
	uint32_t incompat = data[0] & JBD2_INCOMPAT_KNOWN & ~checked;

	*super = (struct jbd2_super){
		.s_header = { htobe32(JBD2_MAGIC), htobe32(JBD2_SUPER_V2), 0 },
		.s_blocksize = htobe32(BLOCK),
		.s_maxlen = htobe32(BLOCKS),
		.s_first = htobe32(1),
		.s_sequence = htobe32(0xffffff00u | data[3]),
		.s_start = htobe32(1 + (data[1] << 8 | data[2]) % (BLOCKS - 1)),
		.s_feature_incompat = htobe32(incompat),
		.s_feature_compat = htobe32(data[0] >> 7 ? JBD2_COMPAT_CHECKSUM : 0),
	};
}

/* Puts the log where it starts, round the end of the ring. */
static void fill_log(struct journal *journal, const uint8_t *data, size_t size)
{
	uint32_t at = be32toh(journal->super.s_start);

	memset(memory, 0, sizeof(memory));
	while (size) {
		size_t len = size < BLOCK ? size : BLOCK;

		memcpy(memory + journal_block(journal, at) * BLOCK, data, len);
		data += len;
		size -= len;
		if (++at >= journal->last)
			at = journal->first;
	}
}

static bool in_journal(uint64_t block)
{
	return (block >= 100 && block < 100 + FIRST_PIECE) ||
	       (block >= 2000 && block < 2000 + BLOCKS - FIRST_PIECE);
}

static void check(const struct replay *replay, const struct journal *journal)
{
	for (size_t i = 0; i < replay->nr; i++) {
		assert(!i || replay->blocks[i - 1].block < replay->blocks[i].block);
		assert(in_journal(replay->blocks[i].from));
	}
	if (!replay_is_sane(replay, journal, FS_BLOCKS))
		return;
	for (size_t i = 0; i < replay->nr; i++)
		assert(replay->blocks[i].block < FS_BLOCKS && !in_journal(replay->blocks[i].block));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct image image = { .ops = &ops, .size = sizeof(memory), .align = 1, .name = "fuzz" };
	struct journal journal;
	struct replay replay;

	if (size < 4 || size > 64 * BLOCK || journal_init(&journal, &image, BLOCK))
		return 0;
	fill_super(&journal.super, data);
	journal_add_run(&journal, 0, 100, FIRST_PIECE);
	journal_add_run(&journal, FIRST_PIECE, 2000, BLOCKS - FIRST_PIECE);
	if (!journal_check_super(&journal, BLOCKS)) {
		fill_log(&journal, data + 4, size - 4);
		if (!journal_scan(&journal, &replay)) {
			check(&replay, &journal);
			free(replay.blocks);
		}
	}
	journal_close(&journal);
	return 0;
}
