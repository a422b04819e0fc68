/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The journal's form on the image. All numbers are big-endian.
 *
 * The log is the journal inode's data: block 0 is the superblock, blocks s_first to s_maxlen - 1 are
 * a ring. A transaction in it is revoke blocks and descriptors, each descriptor followed by the
 * blocks that its tags name, and one commit block, all with the transaction's sequence. A block that
 * begins with JBD2_MAGIC is stored with zeros there, and a flag (escaping).
 *
 * Checksums of v2 and v3 are crc32c, begun with the crc of the journal's uuid: of each block with its
 * own checksum 0, and of the sequence and the stored bytes for each tag.
 */
#ifndef FOLIOFS_JBD2_H
#define FOLIOFS_JBD2_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <ext2fs/ext2fs.h>

#define JBD2_MAGIC 0xc03b3998U
#define JBD2_MIN_BLOCKS 1024		/* of a log that anybody makes */

enum jbd2_type {
	JBD2_DESCRIPTOR = 1,
	JBD2_COMMIT = 2,
	JBD2_SUPER_V1 = 3,
	JBD2_SUPER_V2 = 4,
	JBD2_REVOKE = 5,
};

#define JBD2_COMPAT_CHECKSUM 0x1U	/* v1: the commit block has a crc of all blocks */
#define JBD2_INCOMPAT_REVOKE 0x1U
#define JBD2_INCOMPAT_64BIT 0x2U
#define JBD2_INCOMPAT_ASYNC_COMMIT 0x4U
#define JBD2_INCOMPAT_CSUM_V2 0x8U
#define JBD2_INCOMPAT_CSUM_V3 0x10U
#define JBD2_INCOMPAT_FAST_COMMIT 0x20U

#define JBD2_CRC32_CHKSUM 1
#define JBD2_CRC32C_CHKSUM 4

#define JBD2_TAG_ESCAPE 1U		/* begins with JBD2_MAGIC in truth */
#define JBD2_TAG_SAME_UUID 2U		/* no uuid follows the tag */
#define JBD2_TAG_DELETED 4U
#define JBD2_TAG_LAST 8U

struct jbd2_header {
	uint32_t magic, type, sequence;
};

struct jbd2_super {
	struct jbd2_header header;
	uint32_t blocksize, maxlen, first;
	uint32_t sequence;		/* of the first transaction in the log */
	uint32_t start;			/* its block; 0: the log is empty */
	uint32_t error;
	uint32_t feature_compat, feature_incompat, feature_ro_compat; /* none in v1 */
	uint8_t uuid[16];
	uint32_t nr_users, dynsuper, max_transaction, max_trans_data;
	uint8_t checksum_type;
	uint8_t padding2[3];
	uint32_t num_fc_blks;		/* fast commits, at the end of the log; 0: the usual number */
	uint32_t head;
	uint32_t padding[40];
	uint32_t checksum;		/* v2 and v3: of these 1024 bytes */
	uint8_t users[16 * 48];
};

#define JBD2_DEFAULT_FC_BLOCKS 256

/* Tags. 64BIT: with the high half; CSUM_V2 alone: two bytes more behind that. */
struct jbd2_tag {
	uint32_t blocknr;
	uint16_t checksum;		/* v2: low half of the crc */
	uint16_t flags;
	uint32_t blocknr_high;
};

struct jbd2_tag3 {
	uint32_t blocknr, flags, blocknr_high, checksum;
};

/* Ends descriptors and revoke blocks when there are checksums of v2 or v3. */
struct jbd2_tail {
	uint32_t checksum;
};

struct jbd2_revoke {
	struct jbd2_header header;
	uint32_t count;			/* bytes in use; block numbers of 4 or (64BIT) 8 bytes follow */
};

struct jbd2_commit {
	struct jbd2_header header;
	uint8_t chksum_type, chksum_size;	/* v1 */
	uint8_t padding[2];
	uint32_t chksum[8];			/* v1: crc32; v2, v3: the crc of this block */
	uint32_t sec_high, sec_low;
	uint32_t nsec;
};

_Static_assert(sizeof(struct jbd2_super) == 1024, "journal superblock");
_Static_assert(offsetof(struct jbd2_super, checksum) == 252, "journal superblock");
_Static_assert(offsetof(struct jbd2_commit, sec_high) == 48, "commit block");

/* Sequences wrap around: is @a later than @b? */
static inline int jbd2_after(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) > 0;
}

/* Bytes of a tag with these incompatible features. */
static inline size_t jbd2_tag_bytes(uint32_t incompat)
{
	size_t bytes = sizeof(struct jbd2_tag);

	if (incompat & JBD2_INCOMPAT_CSUM_V3)
		return sizeof(struct jbd2_tag3);
	if (incompat & JBD2_INCOMPAT_CSUM_V2)
		bytes += sizeof(uint16_t);
	return incompat & JBD2_INCOMPAT_64BIT ? bytes : bytes - sizeof(uint32_t);
}

static inline uint32_t jbd2_crc(uint32_t seed, const void *data, size_t len)
{
	return ext2fs_crc32c_le(seed, data, len);
}

static inline uint32_t jbd2_seed(const struct jbd2_super *sb)
{
	return jbd2_crc(~0U, sb->uuid, sizeof(sb->uuid));
}

#endif
