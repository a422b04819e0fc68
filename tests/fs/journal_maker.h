/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writes a journal by hand into the image of a fixture: any kind of checksum, in any place of the
 * ring, whole or broken. Written from the format, apart from the code under test.
 *
 *	maker_open(&m, &f, incompat, compat, start, sequence);
 *	maker_block(&m, 4000, data); maker_revoke(&m, 4001); maker_commit(&m);	(a transaction)
 *	maker_close(&m);		(superblocks: the journal starts at @start, and is dirty)
 *	maker_free(&m);
 *
 * Failures are criterion assertions.
 */
#ifndef JOURNAL_MAKER_H
#define JOURNAL_MAKER_H

#include <stdbool.h>
#include <stdint.h>
#include "ext4_fixture.h"
#include "ext4/jbd2.h"

#define MAKER_BLOCKS 2048	/* of one transaction */

struct maker {
	struct fixture *f;
	unsigned int blocksize;
	uint64_t *map;			/* blocks of the image that the journal consists of */
	uint32_t len, last;
	struct jbd2_super super;
	uint32_t compat, incompat, seed;

	uint32_t pos, sequence; /* where the next block goes, and what transaction it is of */
	uint64_t time;			/* of the next commit block */
	uint32_t crc;
	unsigned int nr, nr_revokes;	/* of the transaction being made */
	uint64_t blocks[MAKER_BLOCKS], revokes[MAKER_BLOCKS];
	char *data[MAKER_BLOCKS];

	bool full_without_last;		/* a descriptor block that is full has no JBD2_TAG_LAST */

	/* What tests may break: blocks of the journal, of the transaction written last */
	uint32_t descriptor_at, data_at, revoke_at, commit_at;
};

/* The log is to start at block @start of the journal with transaction @sequence. */
void maker_open(struct maker *m, struct fixture *f, uint32_t incompat, uint32_t compat,
		uint32_t start, uint32_t sequence);
/* Adds to the transaction being made; @data is a block's bytes. */
void maker_block(struct maker *m, uint64_t block, const void *data);
/* A block of bytes that follow from @block and @seed. */
void maker_fill(struct maker *m, uint64_t block, unsigned int seed);
void maker_revoke(struct maker *m, uint64_t block);
/* Writes it; the next one follows. */
void maker_commit(struct maker *m);
/* Writes all of it but the commit block. */
void maker_tear(struct maker *m);
/* Writes both superblocks. */
void maker_close(struct maker *m);
void maker_free(struct maker *m);

/* A block of the journal */
void maker_read(struct maker *m, uint32_t lblk, void *buf);
void maker_write(struct maker *m, uint32_t lblk, const void *buf);
/* Turns bits of one byte of it. */
void maker_poke(struct maker *m, uint32_t lblk, unsigned int offset, unsigned char bits);
/* The bytes that maker_fill() gives. */
void maker_bytes(void *buf, unsigned int blocksize, uint64_t block, unsigned int seed);

#endif
