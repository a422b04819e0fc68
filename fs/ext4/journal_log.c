/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The journal as a file: where its blocks are on the image, what its superblock says, reading it,
 * and its checksums.
 *
 * The map is made by libext2fs from the journal's inode, as a list of runs. Nothing of it is
 * believed: every block lies in the file system and the runs leave no gap, or the journal is
 * refused. A clean mount needs the superblock only, so block 0 comes first and alone.
 *
 * The log is read forwards almost always, so a block that is not in memory brings those behind it.
 */
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cache.h"
#include "crc32c.h"
#include "journal.h"
#include "log.h"

#define WINDOW_BLOCKS 64u

int journal_damaged(const struct journal *journal, const char *fmt, ...)
{
	char text[160];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	log_error("%s: the journal is damaged (%s); run e2fsck", journal->image->name, text);
	return -EUCLEAN;
}

unsigned int journal_tag_size(const struct journal *journal)
{
	if (journal->incompat & JBD2_INCOMPAT_CSUM_V3)
		return sizeof(struct jbd2_tag3);
	return offsetof(struct jbd2_tag, t_blocknr_high) +
	       (journal->incompat & JBD2_INCOMPAT_64BIT ? sizeof(jbd2_be32) : 0) +
	       (journal->incompat & JBD2_INCOMPAT_CSUM_V2 ? sizeof(jbd2_be16) : 0);
}

/* crc32c of @len bytes with the four at @offset taken for 0 */
static uint32_t crc_without(uint32_t crc, const void *bytes, size_t len, size_t offset)
{
	static const unsigned char zeros[4];
	const unsigned char *from = bytes;

	crc = ext4_crc32c(crc, from, offset);
	crc = ext4_crc32c(crc, zeros, sizeof(zeros));
	offset += sizeof(zeros);
	return ext4_crc32c(crc, from + offset, len - offset);
}

jbd2_be32 journal_block_csum(const struct journal *journal, const void *block, size_t offset)
{
	return htobe32(crc_without(journal->seed, block, journal->blocksize, offset));
}

uint32_t journal_data_csum(const struct journal *journal, const void *block, uint32_t sequence)
{
	jbd2_be32 number = htobe32(sequence);
	uint32_t crc = ext4_crc32c(journal->seed, &number, sizeof(number));

	return ext4_crc32c(crc, block, journal->blocksize);
}

static jbd2_be32 super_csum(const struct jbd2_super *super)
{
	return htobe32(crc_without(~0U, super, sizeof(*super),
				   offsetof(struct jbd2_super, s_checksum)));
}

/*
 * The map
 */

int journal_add_run(struct journal *journal, uint32_t lblk, uint64_t pblk, uint32_t len)
{
	struct journal_run *last = journal->nr_runs ? &journal->runs[journal->nr_runs - 1] : NULL;

	if (last && last->lblk + last->len == lblk && last->pblk + last->len == pblk) {
		last->len += len;
		return 0;
	}
	if (journal->nr_runs == journal->room) {
		unsigned int room = journal->room ? 2 * journal->room : 16;
		struct journal_run *runs = realloc(journal->runs, room * sizeof(*runs));

		if (!runs)
			return -ENOMEM;
		journal->runs = runs;
		journal->room = room;
	}
	journal->runs[journal->nr_runs++] =
		(struct journal_run){ .lblk = lblk, .len = len, .pblk = pblk };
	return 0;
}

uint64_t journal_block(const struct journal *journal, uint32_t lblk)
{
	unsigned int low = 0, high = journal->nr_runs - 1;

	while (low < high) {
		unsigned int middle = (low + high + 1) / 2;

		if (journal->runs[middle].lblk <= lblk)
			low = middle;
		else
			high = middle - 1;
	}
	return journal->runs[low].pblk + (lblk - journal->runs[low].lblk);
}

/* Adds what the file has from block @lblk on, at most @max blocks; *len of them. */
static int map_piece(struct journal *journal, ext2_filsys fs, ext2_extent_handle_t tree,
		     struct ext2_inode *inode, uint32_t lblk, uint32_t max, uint32_t *len)
{
	uint64_t blocks = ext2fs_blocks_count(fs->super);
	struct ext2fs_extent extent;
	blk64_t pblk = 0;

	*len = 1;
	if (!tree) {
		if (ext2fs_bmap2(fs, fs->super->s_journal_inum, inode, NULL, 0, lblk, NULL, &pblk))
			return journal_damaged(journal, "its block map cannot be read");
	} else if (!ext2fs_extent_goto(tree, lblk) &&
		   !ext2fs_extent_get(tree, EXT2_EXTENT_CURRENT, &extent) &&
		   !(extent.e_flags & EXT2_EXTENT_FLAGS_UNINIT) && extent.e_lblk <= lblk &&
		   lblk - extent.e_lblk < extent.e_len) {
		pblk = extent.e_pblk + (lblk - extent.e_lblk);
		*len = extent.e_len - (lblk - extent.e_lblk);
	}
	if (*len > max)
		*len = max;
	if (pblk <= fs->super->s_first_data_block || pblk >= blocks || *len > blocks - pblk)
		return journal_damaged(journal, "block %u of it is nowhere", lblk);
	return journal_add_run(journal, lblk, pblk, *len);
}

/* Maps blocks [from, to) of the file. */
static int map_range(struct journal *journal, ext2_filsys fs, struct ext2_inode *inode,
		     uint32_t from, uint32_t to)
{
	ext2_extent_handle_t tree = NULL;
	uint32_t len;
	int err = 0;

	if ((inode->i_flags & EXT4_EXTENTS_FL) &&
	    ext2fs_extent_open2(fs, fs->super->s_journal_inum, inode, &tree))
		return journal_damaged(journal, "its extent tree cannot be read");
	for (; !err && from < to; from += len)
		err = map_piece(journal, fs, tree, inode, from, to - from, &len);
	if (tree)
		ext2fs_extent_free(tree);
	return err;
}

static int read_inode(struct journal *journal, ext2_filsys fs, struct ext2_inode *inode)
{
	uint64_t blocks;

	if (ext2fs_read_inode(fs, fs->super->s_journal_inum, inode))
		return journal_damaged(journal, "inode %u cannot be read",
				       fs->super->s_journal_inum);
	blocks = EXT2_I_SIZE(inode) / journal->blocksize;
	if (!LINUX_S_ISREG(inode->i_mode) || !inode->i_links_count ||
	    blocks < JBD2_MIN_BLOCKS || blocks > UINT32_MAX)
		return journal_damaged(journal, "inode %u is not a journal's",
				       fs->super->s_journal_inum);
	return 0;
}

/**
 * journal_map - find all blocks of the journal
 * @journal: opened
 * @fs: its file system
 *
 * Return: 0, -EUCLEAN after one line, or -ENOMEM.
 */
int journal_map(struct journal *journal, ext2_filsys fs)
{
	struct ext2_inode inode;
	int err = read_inode(journal, fs, &inode);

	return err ? err : map_range(journal, fs, &inode, 1, journal->len);
}

/*
 * Reading and writing
 */

const void *journal_peek(struct journal *journal, uint32_t lblk, int *err)
{
	uint32_t nr = 1;

	if (lblk - journal->window_at < journal->window_nr)
		return journal->window + (size_t)(lblk - journal->window_at) * journal->blocksize;
	while (nr < WINDOW_BLOCKS && lblk + nr < journal->len &&
	       journal_block(journal, lblk + nr) == journal_block(journal, lblk) + nr)
		nr++;
	journal->window_nr = 0;
	*err = image_transfer(journal->image, journal_block(journal, lblk) * journal->blocksize,
			      journal->window, (size_t)nr * journal->blocksize, false);
	if (*err) {
		log_error("%s: block %u of the journal cannot be read: %s", journal->image->name,
			  lblk, strerror(-*err));
		return NULL;
	}
	journal->window_at = lblk;
	journal->window_nr = nr;
	return journal->window;
}

int journal_write_super(struct journal *journal)
{
	int err = 0;
	char *block = (char *)journal_peek(journal, 0, &err);

	if (!block)
		return err;
	if (journal_csum_v2or3(journal))
		journal->super.s_checksum = super_csum(&journal->super);
	memcpy(block, &journal->super, sizeof(journal->super));
	return image_transfer(journal->image, journal_block(journal, 0) * journal->blocksize, block,
			      journal->blocksize, true);
}

/*
 * The superblock
 */

static int check_features(struct journal *journal, uint32_t ro_compat)
{
	uint32_t unknown = journal->incompat & ~JBD2_INCOMPAT_KNOWN;
	bool both = journal->incompat & JBD2_INCOMPAT_CSUM_V2 &&
		    journal->incompat & JBD2_INCOMPAT_CSUM_V3;

	if (unknown || ro_compat) {
		log_error("%s: the journal has features that foliofs does not know (incompat 0x%x, "
			  "ro_compat 0x%x)", journal->image->name, unknown, ro_compat);
		return -EOPNOTSUPP;
	}
	if (both || (journal_csum_v2or3(journal) && journal->compat & JBD2_COMPAT_CHECKSUM))
		return journal_damaged(journal, "two kinds of checksum");
	if (!journal_csum_v2or3(journal))
		return 0;
	if (journal->super.s_checksum_type != JBD2_CRC32C)
		return journal_damaged(journal, "unknown kind of checksum");
	if (journal->super.s_checksum != super_csum(&journal->super))
		return journal_damaged(journal, "checksum error in its superblock");
	return 0;
}

/* Divides the journal into superblock, ring, and fast commits; checks where the log starts. */
static int check_geometry(struct journal *journal, uint32_t file_blocks)
{
	uint32_t start = be32toh(journal->super.s_start), fc;

	journal->len = be32toh(journal->super.s_maxlen);
	journal->first = be32toh(journal->super.s_first);
	journal->last = journal->len;
	if (be32toh(journal->super.s_blocksize) != journal->blocksize)
		return journal_damaged(journal, "block size");
	if (journal->len < JBD2_MIN_BLOCKS || journal->len > file_blocks)
		return journal_damaged(journal, "length");
	if (journal->incompat & JBD2_INCOMPAT_FAST_COMMIT) {
		fc = be32toh(journal->super.s_num_fc);
		if (!fc)
			fc = JBD2_DEFAULT_FC_BLOCKS;
		if (fc <= journal->len - JBD2_MIN_BLOCKS) {
			journal->last -= fc;
			/* There is one block between, which nobody uses. */
			journal->fc_first = fc > 1 ? journal->last + 1 : 0;
		}
	}
	if (!journal->first || journal->first >= journal->last)
		return journal_damaged(journal, "first block");
	if (start && (start < journal->first || start >= journal->last))
		return journal_damaged(journal, "start of the log");
	return 0;
}

int journal_check_super(struct journal *journal, uint32_t file_blocks)
{
	const struct jbd2_super *super = &journal->super;
	uint32_t type = be32toh(super->s_header.h_blocktype), ro_compat = 0;
	int err;

	if (be32toh(super->s_header.h_magic) != JBD2_MAGIC)
		return journal_damaged(journal, "it has no superblock");
	if (type != JBD2_SUPER_V1 && type != JBD2_SUPER_V2)
		return journal_damaged(journal, "version of its superblock");
	if (type == JBD2_SUPER_V2) {
		journal->compat = be32toh(super->s_feature_compat);
		journal->incompat = be32toh(super->s_feature_incompat);
		ro_compat = be32toh(super->s_feature_ro_compat);
	}
	journal->seed = ext4_crc32c(~0U, super->s_uuid, sizeof(super->s_uuid));
	err = check_features(journal, ro_compat);
	return err ? err : check_geometry(journal, file_blocks);
}

/* A journal that knows no block of its yet. */
int journal_init(struct journal *journal, struct image *image, unsigned int blocksize)
{
	*journal = (struct journal){ .image = image, .blocksize = blocksize };
	if (!posix_memalign((void **)&journal->window, PAGE_SIZE,
			    (size_t)WINDOW_BLOCKS * blocksize))
		return 0;
	journal->window = NULL;
	return -ENOMEM;
}

/**
 * journal_open - find the journal in the file system and read its superblock
 * @journal: to be filled in; journal_close() it even when this fails
 * @image: the image
 * @fs: the file system on it, with an internal journal
 *
 * Return: 0, or a negative errno; -ENOMEM without a line.
 */
int journal_open(struct journal *journal, struct image *image, ext2_filsys fs)
{
	struct ext2_inode inode;
	const void *block;
	int err = journal_init(journal, image, fs->blocksize);

	if (!err)
		err = read_inode(journal, fs, &inode);
	if (!err)
		err = map_range(journal, fs, &inode, 0, 1);
	if (err)
		return err;
	block = journal_peek(journal, 0, &err);
	if (!block)
		return err;
	memcpy(&journal->super, block, sizeof(journal->super));
	return journal_check_super(journal, EXT2_I_SIZE(&inode) / journal->blocksize);
}

/**
 * journal_close - free what a struct journal holds
 * @journal: as journal_open() left it
 */
void journal_close(struct journal *journal)
{
	free(journal->window);
	free(journal->runs);
	*journal = (struct journal){ 0 };
}
