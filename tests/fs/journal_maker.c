/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See journal_maker.h. */
#include <criterion/criterion.h>
#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "journal_maker.h"

static bool has_csum(const struct maker *m)
{
	return m->incompat & (JBD2_INCOMPAT_CSUM_V2 | JBD2_INCOMPAT_CSUM_V3);
}

static uint32_t crc32c(uint32_t crc, const void *bytes, size_t len)
{
	return ext2fs_crc32c_le(crc, bytes, len);
}

void maker_read(struct maker *m, uint32_t lblk, void *buf)
{
	cr_assert_eq(pread(m->f->fd, buf, m->blocksize, m->map[lblk] * m->blocksize),
		     (ssize_t)m->blocksize);
}

void maker_write(struct maker *m, uint32_t lblk, const void *buf)
{
	cr_assert_eq(pwrite(m->f->fd, buf, m->blocksize, m->map[lblk] * m->blocksize),
		     (ssize_t)m->blocksize);
}

void maker_poke(struct maker *m, uint32_t lblk, unsigned int offset, unsigned char bits)
{
	char block[4096];

	maker_read(m, lblk, block);
	block[offset] ^= bits;
	maker_write(m, lblk, block);
}

/* Where the journal lies, from libext2fs's own reading of the file */
static void find_journal(struct maker *m)
{
	struct ext2_inode inode;
	ext2_filsys fs;

	cr_assert_eq(ext2fs_open(m->f->path, EXT2_FLAG_64BITS, 0, 0, unix_io_manager, &fs), 0);
	cr_assert_eq(ext2fs_read_inode(fs, EXT2_JOURNAL_INO, &inode), 0);
	m->blocksize = fs->blocksize;
	m->len = EXT2_I_SIZE(&inode) / fs->blocksize;
	m->map = calloc(m->len, sizeof(*m->map));
	for (uint32_t i = 0; i < m->len; i++) {
		blk64_t blk;

		cr_assert_eq(ext2fs_bmap2(fs, EXT2_JOURNAL_INO, &inode, NULL, 0, i, NULL, &blk),
			     0);
		m->map[i] = blk;
	}
	ext2fs_close(fs);
}

void maker_open(struct maker *m, struct fixture *f, uint32_t incompat, uint32_t compat,
		uint32_t start, uint32_t sequence)
{
	char block[4096];

	memset(m, 0, sizeof(*m));
	m->f = f;
	find_journal(m);
	maker_read(m, 0, block);
	memcpy(&m->super, block, sizeof(m->super));
	m->incompat = incompat | JBD2_INCOMPAT_REVOKE;
	m->compat = compat;
	m->super.s_feature_incompat = htobe32(m->incompat);
	m->super.s_feature_compat = htobe32(compat);
	m->super.s_checksum_type = has_csum(m) ? JBD2_CRC32C : 0;
	m->super.s_start = htobe32(start);
	m->super.s_sequence = htobe32(sequence);
	m->seed = crc32c(~0U, m->super.s_uuid, 16);
	m->last = m->len;
	if (incompat & JBD2_INCOMPAT_FAST_COMMIT)
		m->last -= be32toh(m->super.s_num_fc) ?: JBD2_DEFAULT_FC_BLOCKS;
	m->pos = start;
	m->sequence = sequence;
	m->time = 1700000000;
	m->crc = ~0U;
}

/* Puts a block at the end of the log; returns where. */
static uint32_t append(struct maker *m, const void *block)
{
	uint32_t at = m->pos;

	maker_write(m, at, block);
	if (++m->pos == m->last)
		m->pos = be32toh(m->super.s_first);
	return at;
}

static void set_header(struct maker *m, char *block, enum jbd2_blocktype type)
{
	struct jbd2_header header = {
		.h_magic = htobe32(JBD2_MAGIC),
		.h_blocktype = htobe32(type),
		.h_sequence = htobe32(m->sequence),
	};

	memset(block, 0, m->blocksize);
	memcpy(block, &header, sizeof(header));
}

static void set_tail(struct maker *m, char *block)
{
	uint32_t crc;

	if (!has_csum(m))
		return;
	crc = htobe32(crc32c(m->seed, block, m->blocksize));
	memcpy(block + m->blocksize - 4, &crc, 4);
}

void maker_block(struct maker *m, uint64_t block, const void *data)
{
	cr_assert_lt(m->nr, MAKER_BLOCKS);
	m->blocks[m->nr] = block;
	m->data[m->nr] = malloc(m->blocksize);
	memcpy(m->data[m->nr++], data, m->blocksize);
}

void maker_bytes(void *buf, unsigned int blocksize, uint64_t block, unsigned int seed)
{
	unsigned char *bytes = buf;
	uint64_t x = block * 0x9e3779b97f4a7c15 + seed * 0xbf58476d1ce4e5b9 + 1;

	for (unsigned int i = 0; i < blocksize; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		bytes[i] = x >> 32;
	}
}

void maker_fill(struct maker *m, uint64_t block, unsigned int seed)
{
	char data[4096];

	maker_bytes(data, m->blocksize, block, seed);
	maker_block(m, block, data);
}

void maker_revoke(struct maker *m, uint64_t block)
{
	cr_assert_lt(m->nr_revokes, MAKER_BLOCKS);
	m->revokes[m->nr_revokes++] = block;
}

static void put16(char *at, uint16_t value)
{
	value = htobe16(value);
	memcpy(at, &value, sizeof(value));
}

static void put32(char *at, uint32_t value)
{
	value = htobe32(value);
	memcpy(at, &value, sizeof(value));
}

static unsigned int tag_bytes(const struct maker *m)
{
	if (m->incompat & JBD2_INCOMPAT_CSUM_V3)
		return 16;
	return 8 + (m->incompat & JBD2_INCOMPAT_64BIT ? 4 : 0) +
	       (m->incompat & JBD2_INCOMPAT_CSUM_V2 ? 2 : 0);
}

static void put_tag(struct maker *m, char *at, unsigned int i, unsigned int flags)
{
	jbd2_be32 sequence = htobe32(m->sequence);
	uint32_t crc = crc32c(crc32c(m->seed, &sequence, 4), m->data[i], m->blocksize);

	put32(at, m->blocks[i]);
	if (m->incompat & JBD2_INCOMPAT_CSUM_V3) {
		put32(at + 4, flags);
		put32(at + 12, crc);
	} else {
		put16(at + 4, m->incompat & JBD2_INCOMPAT_CSUM_V2 ? crc : 0);
		put16(at + 6, flags);
	}
	if (m->incompat & JBD2_INCOMPAT_64BIT)
		put32(at + 8, m->blocks[i] >> 32);
}

/* A block that begins like a journal block must not be taken for one. */
static bool escape(char *data)
{
	jbd2_be32 magic = htobe32(JBD2_MAGIC);

	if (memcmp(data, &magic, 4))
		return false;
	memset(data, 0, 4);
	return true;
}

static void add_crc(struct maker *m, const void *block)
{
	m->crc = ext2fs_crc32_be(m->crc, block, m->blocksize);
}

/* One descriptor block with as many of the blocks from @first on as it holds; returns the next. */
static unsigned int write_descriptor(struct maker *m, unsigned int first)
{
	unsigned int end = m->blocksize - (has_csum(m) ? 4 : 0), at = 12, i = first;
	char block[4096];

	set_header(m, block, JBD2_DESCRIPTOR);
	for (; i < m->nr; i++) {
		unsigned int size = tag_bytes(m) + (i == first ? 16 : 0);
		unsigned int next = at + size + tag_bytes(m);
		bool last = i + 1 == m->nr || next > end;
		unsigned int flags = escape(m->data[i]) ? JBD2_TAG_ESCAPED : 0;

		flags |= i == first ? 0 : JBD2_TAG_SAME_UUID;
		if (i + 1 == m->nr || (last && !m->full_without_last))
			flags |= JBD2_TAG_LAST;
		put_tag(m, block + at, i, flags);
		if (i == first)
			memcpy(block + at + tag_bytes(m), m->super.s_uuid, 16);
		at += size;
		if (last) {
			i++;
			break;
		}
	}
	set_tail(m, block);
	m->descriptor_at = append(m, block);
	add_crc(m, block);
	for (unsigned int d = first; d < i; d++) {
		m->data_at = append(m, m->data[d]);
		add_crc(m, m->data[d]);
		free(m->data[d]);
	}
	return i;
}

static unsigned int write_revokes(struct maker *m, unsigned int first)
{
	unsigned int size = m->incompat & JBD2_INCOMPAT_64BIT ? 8 : 4, at = 16, i = first;
	unsigned int end = m->blocksize - (has_csum(m) ? 4 : 0);
	char block[4096];

	set_header(m, block, JBD2_REVOKE);
	for (; i < m->nr_revokes && at + size <= end; i++, at += size) {
		if (size == 8)
			put32(block + at, m->revokes[i] >> 32);
		put32(block + at + size - 4, m->revokes[i]);
	}
	put32(block + 12, at);
	set_tail(m, block);
	m->revoke_at = append(m, block);
	return i;
}

static void write_commit(struct maker *m)
{
	struct jbd2_commit *commit;
	char block[4096];

	set_header(m, block, JBD2_COMMIT);
	commit = (struct jbd2_commit *)block;
	commit->h_commit_sec = htobe64(m->time++);
	if (m->compat & JBD2_COMPAT_CHECKSUM) {
		commit->h_chksum_type = JBD2_CRC32;
		commit->h_chksum_size = 4;
		commit->h_chksum[0] = htobe32(m->crc);
	} else if (has_csum(m)) {
		commit->h_chksum[0] = htobe32(crc32c(m->seed, block, m->blocksize));
	}
	m->commit_at = append(m, block);
}

void maker_tear(struct maker *m)
{
	for (unsigned int i = 0; i < m->nr_revokes;)
		i = write_revokes(m, i);
	for (unsigned int i = 0; i < m->nr;)
		i = write_descriptor(m, i);
	m->nr = m->nr_revokes = 0;
}

void maker_commit(struct maker *m)
{
	maker_tear(m);
	write_commit(m);
	m->sequence++;
	m->crc = ~0U;
}

static void mark_dirty(struct maker *m)
{
	struct ext2_super_block sb;

	cr_assert_eq(pread(m->f->fd, &sb, sizeof(sb), SUPERBLOCK_OFFSET), (ssize_t)sizeof(sb));
	ext2fs_set_feature_journal_needs_recovery(&sb);
	if (ext2fs_has_feature_metadata_csum(&sb))
		sb.s_checksum = crc32c(~0U, &sb, offsetof(struct ext2_super_block, s_checksum));
	cr_assert_eq(pwrite(m->f->fd, &sb, sizeof(sb), SUPERBLOCK_OFFSET), (ssize_t)sizeof(sb));
}

void maker_close(struct maker *m)
{
	char block[4096];

	maker_read(m, 0, block);
	m->super.s_checksum = 0;
	if (has_csum(m))
		m->super.s_checksum = htobe32(crc32c(~0U, &m->super, sizeof(m->super)));
	memcpy(block, &m->super, sizeof(m->super));
	maker_write(m, 0, block);
	mark_dirty(m);
}

void maker_free(struct maker *m)
{
	free(m->map);
	m->map = NULL;
}
