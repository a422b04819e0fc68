/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The journal as it is on the image (jbd2's format). All numbers are big endian.
 *
 * The journal is a file of the file system. Its block 0 is the journal's superblock; blocks s_first
 * to s_maxlen - 1 are a ring, the log. A transaction in it is any number of descriptor blocks, each
 * followed by the blocks that it describes, and of revoke blocks, and at the end one commit block;
 * the next transaction follows at once, with the next number. Descriptor, revoke and commit blocks
 * begin with a struct jbd2_header that tells the transaction. With fast commits the last s_num_fc
 * blocks of the file are not part of the ring.
 *
 * Checksums come in three kinds. Version 1: the commit block has a crc32 of all descriptor blocks
 * and what they describe. Versions 2 and 3: superblock, descriptor, revoke and commit blocks have a
 * crc32c of their own, and each tag one of its block (of which version 2 keeps 16 bits); all are
 * seeded with that of the journal's UUID.
 */
#ifndef FOLIOFS_EXT4_JBD2_H
#define FOLIOFS_EXT4_JBD2_H

#include <stdint.h>

#define JBD2_MAGIC 0xc03b3998u
#define JBD2_MIN_BLOCKS 1024u		/* of a journal, and of a ring beside fast commits */
#define JBD2_DEFAULT_FC_BLOCKS 256u	/* when s_num_fc is 0 */
#define JBD2_SUPER_SIZE 1024u

typedef uint16_t jbd2_be16;
typedef uint32_t jbd2_be32;
typedef uint64_t jbd2_be64;

enum jbd2_blocktype {
	JBD2_DESCRIPTOR = 1,
	JBD2_COMMIT = 2,
	JBD2_SUPER_V1 = 3,	/* ends after s_errno */
	JBD2_SUPER_V2 = 4,
	JBD2_REVOKE = 5,
};

#define JBD2_COMPAT_CHECKSUM 0x1u	/* version 1 */
#define JBD2_INCOMPAT_REVOKE 0x1u
#define JBD2_INCOMPAT_64BIT 0x2u
#define JBD2_INCOMPAT_ASYNC_COMMIT 0x4u	/* a commit block may be there before its transaction is */
#define JBD2_INCOMPAT_CSUM_V2 0x8u
#define JBD2_INCOMPAT_CSUM_V3 0x10u
#define JBD2_INCOMPAT_FAST_COMMIT 0x20u

#define JBD2_INCOMPAT_KNOWN                                                                        \
	(JBD2_INCOMPAT_REVOKE | JBD2_INCOMPAT_64BIT | JBD2_INCOMPAT_ASYNC_COMMIT |                 \
	 JBD2_INCOMPAT_CSUM_V2 | JBD2_INCOMPAT_CSUM_V3 | JBD2_INCOMPAT_FAST_COMMIT)

/* s_checksum_type, h_chksum_type */
#define JBD2_CRC32 1
#define JBD2_CRC32C 4

struct jbd2_header {
	jbd2_be32 h_magic;
	jbd2_be32 h_blocktype;
	jbd2_be32 h_sequence;	/* of the transaction */
};

struct jbd2_super {
	struct jbd2_header s_header;
	jbd2_be32 s_blocksize;	/* bytes */
	jbd2_be32 s_maxlen;	/* blocks of the journal, this one included */
	jbd2_be32 s_first;	/* first block of the ring */
	jbd2_be32 s_sequence;	/* first transaction expected in the log */
	jbd2_be32 s_start;	/* the block it starts at; 0: the log is empty */
	jbd2_be32 s_errno;	/* the journal was aborted with this (negative) errno */
	jbd2_be32 s_feature_compat;
	jbd2_be32 s_feature_incompat;
	jbd2_be32 s_feature_ro_compat;
	uint8_t s_uuid[16];
	jbd2_be32 s_nr_users;
	jbd2_be32 s_dynsuper;
	jbd2_be32 s_max_transaction;
	jbd2_be32 s_max_trans_data;
	uint8_t s_checksum_type;	/* for versions 2 and 3 */
	uint8_t s_padding1[3];
	jbd2_be32 s_num_fc;	/* blocks for fast commits, at the end */
	jbd2_be32 s_head;
	jbd2_be32 s_padding2[40];
	jbd2_be32 s_checksum;	/* crc32c of these 1024 bytes with 0 here */
	uint8_t s_users[16 * 48];
};

_Static_assert(sizeof(struct jbd2_super) == JBD2_SUPER_SIZE, "layout");

/* Flags of a tag */
#define JBD2_TAG_ESCAPED 0x1u	/* the block began with JBD2_MAGIC; in the log it has 0 there */
#define JBD2_TAG_SAME_UUID 0x2u	/* no 16 bytes of a UUID follow the tag */
#define JBD2_TAG_DELETED 0x4u	/* not used */
#define JBD2_TAG_LAST 0x8u	/* of this descriptor block */

/*
 * What a descriptor block has behind its header for each block that follows: of version 3 all of
 * this, of others less. See journal_tag_size().
 */
struct jbd2_tag {
	jbd2_be32 t_blocknr;
	jbd2_be16 t_checksum;
	jbd2_be16 t_flags;
	jbd2_be32 t_blocknr_high;	/* with 64BIT */
};

struct jbd2_tag3 {
	jbd2_be32 t_blocknr;
	jbd2_be32 t_flags;
	jbd2_be32 t_blocknr_high;
	jbd2_be32 t_checksum;
};

/* The last 4 bytes of descriptor and revoke blocks, of versions 2 and 3 */
struct jbd2_tail {
	jbd2_be32 t_checksum;	/* of the whole block with 0 here */
};

/* A revoke block; numbers of 4 bytes, or 8 with 64BIT, follow. */
struct jbd2_revoke {
	struct jbd2_header r_header;
	jbd2_be32 r_count;	/* bytes in use, these 16 included */
};

struct jbd2_commit {
	struct jbd2_header h_header;
	uint8_t h_chksum_type;	/* of version 1 */
	uint8_t h_chksum_size;
	uint8_t h_padding[2];
	jbd2_be32 h_chksum[8];	/* only the first is used */
	jbd2_be64 h_commit_sec;
	jbd2_be32 h_commit_nsec;
};

/* How a block for fast commits begins. These are little endian. */
struct jbd2_fc_head {
	uint16_t fc_tag;
	uint16_t fc_len;
	uint32_t fc_features;
	uint32_t fc_tid;	/* the transaction that they build upon */
};

#define JBD2_FC_TAG_HEAD 0x9

#endif
