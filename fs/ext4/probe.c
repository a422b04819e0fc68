/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Is this an image that can be mounted, and may it be written?
 *
 * All that can be known from the superblock is checked here before libext2fs or the cache see a
 * byte of the image, and the group descriptors right after they have been read. Each refusal and
 * each reason for a read-only mount is one line for people. What can be read rightly but not kept
 * consistent by us (quota, verity, bigalloc, encryption, casefolding, ...) is mounted read-only.
 *
 * No locks: the mounting thread is alone.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include "ext4.h"
#include "log.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the image's structures are used in place: little-endian machines only"
#endif

/* Features that stop us altogether: those that libext2fs does not know, and journal devices. */
#define INCOMPAT_KNOWN                                                                             \
	(EXT2_FEATURE_INCOMPAT_FILETYPE | EXT3_FEATURE_INCOMPAT_RECOVER |                          \
	 EXT2_FEATURE_INCOMPAT_META_BG | EXT3_FEATURE_INCOMPAT_EXTENTS |                           \
	 EXT4_FEATURE_INCOMPAT_64BIT | EXT4_FEATURE_INCOMPAT_MMP | EXT4_FEATURE_INCOMPAT_FLEX_BG | \
	 EXT4_FEATURE_INCOMPAT_EA_INODE | EXT4_FEATURE_INCOMPAT_CSUM_SEED |                        \
	 EXT4_FEATURE_INCOMPAT_LARGEDIR | EXT4_FEATURE_INCOMPAT_INLINE_DATA |                      \
	 EXT4_FEATURE_INCOMPAT_ENCRYPT | EXT4_FEATURE_INCOMPAT_CASEFOLD)

#define RO_COMPAT_WRITABLE                                                                         \
	(EXT2_FEATURE_RO_COMPAT_SPARSE_SUPER | EXT2_FEATURE_RO_COMPAT_LARGE_FILE |                 \
	 EXT4_FEATURE_RO_COMPAT_HUGE_FILE | EXT4_FEATURE_RO_COMPAT_GDT_CSUM |                      \
	 EXT4_FEATURE_RO_COMPAT_DIR_NLINK | EXT4_FEATURE_RO_COMPAT_EXTRA_ISIZE |                   \
	 EXT4_FEATURE_RO_COMPAT_METADATA_CSUM | EXT4_FEATURE_RO_COMPAT_PROJECT |                   \
	 EXT4_FEATURE_RO_COMPAT_ORPHAN_PRESENT)

struct feature {
	uint32_t bit;
	const char *name;
};

static const struct feature incompat_readonly[] = {
	{ EXT4_FEATURE_INCOMPAT_MMP, "mmp" },
	{ EXT4_FEATURE_INCOMPAT_ENCRYPT, "encrypt" },
	{ EXT4_FEATURE_INCOMPAT_CASEFOLD, "casefold" },
};

static const struct feature ro_compat_readonly[] = {
	{ EXT4_FEATURE_RO_COMPAT_QUOTA, "quota" },
	{ EXT4_FEATURE_RO_COMPAT_BIGALLOC, "bigalloc" },
	{ EXT4_FEATURE_RO_COMPAT_READONLY, "read-only" },
	{ EXT4_FEATURE_RO_COMPAT_SHARED_BLOCKS, "shared_blocks" },
	{ EXT4_FEATURE_RO_COMPAT_VERITY, "verity" },
};

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

int probe_read_super(struct image *image, struct ext2_super_block *sb)
{
	int err;

	if (image->size < SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE) {
		log_error("%s: too small (%llu bytes) to hold a file system", image->name,
			  (unsigned long long)image->size);
		return -EINVAL;
	}
	err = image_transfer(image, SUPERBLOCK_OFFSET, sb, SUPERBLOCK_SIZE, false);
	if (err)
		log_error("%s: the superblock cannot be read: %s", image->name, strerror(-err));
	return err;
}

#define INODE_MAX 4096

static int refuse(const struct image *image, const char *why)
{
	log_error("%s: %s", image->name, why);
	return -EINVAL;
}

static bool checksum_right(const struct ext2_super_block *sb)
{
	if (!(sb->s_feature_ro_compat & EXT4_FEATURE_RO_COMPAT_METADATA_CSUM))
		return true;
	return ext2fs_crc32c_le(~0U, (const unsigned char *)sb,
				offsetof(struct ext2_super_block, s_checksum)) == sb->s_checksum;
}

/* The numbers that later arithmetic relies upon; NULL when they are sane. */
static const char *geometry_fault(struct ext2_super_block *sb)
{
	uint32_t block = EXT2_BLOCK_SIZE(sb), isize = EXT2_INODE_SIZE(sb);
	bool bigalloc = ext2fs_has_feature_bigalloc(sb);
	uint64_t blocks = ext2fs_blocks_count(sb), groups;

	if (isize < EXT2_GOOD_OLD_INODE_SIZE || isize > block || (isize & (isize - 1)))
		return "inode size";
	if (!sb->s_blocks_per_group || (!bigalloc && sb->s_blocks_per_group > block * 8))
		return "blocks per group";
	if (!sb->s_inodes_per_group || sb->s_inodes_per_group > block * 8)
		return "inodes per group";
	if (sb->s_first_data_block != (block == 1024 && !bigalloc) ||
	    blocks <= sb->s_first_data_block)
		return "block count";
	if (ext2fs_has_feature_64bit(sb) &&
	    (sb->s_desc_size < EXT2_MIN_DESC_SIZE_64BIT || sb->s_desc_size > EXT2_MAX_DESC_SIZE ||
	     (sb->s_desc_size & (sb->s_desc_size - 1))))
		return "descriptor size";
	if (EXT2_FIRST_INODE(sb) < EXT2_GOOD_OLD_FIRST_INO ||
	    EXT2_FIRST_INODE(sb) > sb->s_inodes_per_group)
		return "first inode";
	groups = (blocks - sb->s_first_data_block + sb->s_blocks_per_group - 1) /
		 sb->s_blocks_per_group;
	if (groups * sb->s_inodes_per_group != sb->s_inodes_count)
		return "inode count";
	if (ext2fs_free_blocks_count(sb) > blocks || sb->s_free_inodes_count > sb->s_inodes_count)
		return "free counts";
	return NULL;
}

/* The first of @features that is in @set, or NULL. */
static const char *feature_in(const struct feature *features, size_t nr, uint32_t set)
{
	for (size_t i = 0; i < nr; i++) {
		if (set & features[i].bit)
			return features[i].name;
	}
	return NULL;
}

static int check_incompat(struct image *image, const struct ext2_super_block *sb)
{
	uint32_t unknown = sb->s_feature_incompat & ~INCOMPAT_KNOWN;

	if (sb->s_feature_incompat & EXT3_FEATURE_INCOMPAT_JOURNAL_DEV)
		return refuse(image, "is a journal device, not a file system");
	if (!unknown)
		return 0;
	log_error("%s: has incompatible features that foliofs does not know (0x%x)", image->name,
		  unknown);
	return -EOPNOTSUPP;
}

static bool must_be_readonly(struct image *image, struct ext2_super_block *sb)
{
	const char *name = feature_in(incompat_readonly, ARRAY_SIZE(incompat_readonly),
				      sb->s_feature_incompat);
	uint32_t unknown = sb->s_feature_ro_compat & ~RO_COMPAT_WRITABLE;

	if (!name)
		name = feature_in(ro_compat_readonly, ARRAY_SIZE(ro_compat_readonly), unknown);
	if (name)
		log_warn("%s: the feature %s can be read only: mounted read-only", image->name,
			 name);
	else if (unknown)
		log_warn("%s: unknown features (ro_compat 0x%x): mounted read-only", image->name,
			 unknown);
	else if (ext2fs_has_feature_journal(sb) && !sb->s_journal_inum)
		log_warn("%s: the journal is on another device: mounted read-only", image->name);
	else if (sb->s_creator_os != EXT2_OS_LINUX)
		log_warn("%s: made by another system than Linux: mounted read-only", image->name);
	else
		return false;
	return true;
}

/**
 * probe_super - check what the superblock says
 * @image: the image
 * @sb: its superblock
 * @readonly: set when the file system may only be read, after a warning; else left alone
 *
 * Return: 0, or a negative errno after one clear line.
 */
int probe_super(struct image *image, struct ext2_super_block *sb, bool *readonly)
{
	const char *fault;
	uint64_t bytes;
	int err;

	if (sb->s_magic != EXT2_SUPER_MAGIC)
		return refuse(image, "no ext2, ext3 or ext4 file system found");
	if (sb->s_rev_level > EXT2_DYNAMIC_REV)
		return refuse(image, "unknown revision of the file system");
	if (!checksum_right(sb))
		return refuse(image, "checksum error in the superblock; run e2fsck");
	err = check_incompat(image, sb);
	if (err)
		return err;
	if (sb->s_log_block_size > EXT2_MAX_BLOCK_LOG_SIZE - EXT2_MIN_BLOCK_LOG_SIZE)
		return refuse(image, "the superblock is damaged (block size); run e2fsck");
	if (EXT2_INODE_SIZE(sb) > INODE_MAX && EXT2_INODE_SIZE(sb) <= EXT2_BLOCK_SIZE(sb))
		return refuse(image, "inodes of more than 4096 bytes are not supported");
	fault = geometry_fault(sb);
	if (fault) {
		log_error("%s: the superblock is damaged (%s); run e2fsck", image->name, fault);
		return -EUCLEAN;
	}
	if (ext2fs_blocks_count(sb) > UINT64_MAX / 2 / EXT2_BLOCK_SIZE(sb))
		return refuse(image, "the superblock is damaged (block count); run e2fsck");
	bytes = ext2fs_blocks_count(sb) * EXT2_BLOCK_SIZE(sb);
	if (bytes > image->size) {
		log_error("%s: truncated: the file system has %llu bytes, the image %llu",
			  image->name, (unsigned long long)bytes, (unsigned long long)image->size);
		return -EINVAL;
	}
	if (must_be_readonly(image, sb))
		*readonly = true;
	return 0;
}

static bool in_fs(ext2_filsys fs, uint64_t blk, uint64_t count)
{
	uint64_t blocks = ext2fs_blocks_count(fs->super);

	return blk > fs->super->s_first_data_block && blk < blocks && count <= blocks - blk;
}

/**
 * probe_groups - check the group descriptors
 * @vol: volume, its fs just opened
 *
 * Return: 0, or -EUCLEAN after one clear line.
 */
int probe_groups(struct ext4_volume *vol)
{
	ext2_filsys fs = vol->fs;

	for (dgrp_t group = 0; group < fs->group_desc_count; group++) {
		const char *fault = NULL;

		if (!ext2fs_group_desc_csum_verify(fs, group))
			fault = "checksum error";
		else if (!in_fs(fs, ext2fs_block_bitmap_loc(fs, group), 1) ||
			 !in_fs(fs, ext2fs_inode_bitmap_loc(fs, group), 1) ||
			 !in_fs(fs, ext2fs_inode_table_loc(fs, group), fs->inode_blocks_per_group))
			fault = "it points outside the file system";
		else if (ext2fs_bg_itable_unused(fs, group) > fs->super->s_inodes_per_group)
			fault = "unused inodes";
		if (!fault)
			continue;
		log_error("%s: group descriptor %u is damaged (%s); run e2fsck",
			  vol->vol.image->name, group, fault);
		return -EUCLEAN;
	}
	return 0;
}
