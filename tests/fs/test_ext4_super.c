/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Mounting and unmounting ext4 volumes: what is accepted, what is refused, what is left behind. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "ext4_fixture.h"

#define MIB (1UL << 20)

static void read_super(struct fixture *f, struct ext2_super_block *sb)
{
	cr_assert_eq(pread(f->fd, sb, sizeof(*sb), SUPERBLOCK_OFFSET), (ssize_t)sizeof(*sb));
}

static void write_super(struct fixture *f, struct ext2_super_block *sb)
{
	if (ext2fs_has_feature_metadata_csum(sb))
		sb->s_checksum = ext2fs_crc32c_le(~0U, (unsigned char *)sb,
						  offsetof(struct ext2_super_block, s_checksum));
	cr_assert_eq(pwrite(f->fd, sb, sizeof(*sb), SUPERBLOCK_OFFSET), (ssize_t)sizeof(*sb));
}

struct kind {
	char mkfs[80];
	unsigned int blocksize;
};

ParameterizedTestParameters(ext4_super, opens_and_leaves_clean)
{
	static struct kind kinds[] = {
		{ "", 1024 },
		{ "-b 1024", 1024 },
		{ "-b 2048", 2048 },
		{ "-b 4096", 4096 },
		{ "-t ext3", 1024 },
		{ "-t ext2", 1024 },
		{ "-O ^64bit", 1024 },
		{ "-O inline_data", 1024 },
		{ "-O ^has_journal", 1024 },
		{ "-O ^extents,^64bit", 1024 },
		{ "-b 4096 -I 128", 4096 },
		{ "-O meta_bg,^resize_inode", 1024 },
		{ "-O ^metadata_csum,uninit_bg", 1024 },
		{ "-O ^flex_bg -g 1024", 1024 },
		{ "-O orphan_file", 1024 },
		{ "-b 4096 -I 1024", 4096 },
		{ "-O ea_inode,large_dir", 1024 },
		{ "-O project", 1024 },
	};

	return cr_make_param_array(struct kind, kinds, sizeof(kinds) / sizeof(kinds[0]));
}

ParameterizedTest(struct kind *kind, ext4_super, opens_and_leaves_clean)
{
	struct ext2_super_block sb;
	struct fixture f;
	struct stat st;
	struct vnode *root;

	fixture_format(&f, 16 * MIB, kind->mkfs);
	cr_assert_eq(fixture_open(&f), 0);
	cr_expect_eq(f.volume->blocksize, kind->blocksize);
	read_super(&f, &sb);
	if (ext2fs_has_feature_journal(&sb))
		cr_expect(ext2fs_has_feature_journal_needs_recovery(&sb), "in use, but not said");
	else
		cr_expect_not(sb.s_state & EXT2_VALID_FS, "in use, but marked clean");
	root = f.volume->ops->root(f.volume);
	cr_expect_eq(f.volume->ops->getattr(root, &st), 0);
	cr_expect(S_ISDIR(st.st_mode));
	cr_expect_eq(st.st_ino, EXT2_ROOT_INO);
	cr_expect_eq(st.st_nlink, 3);
	fixture_put(&f, root);
	cr_expect_eq(fixture_close(&f), 0);
	read_super(&f, &sb);
	cr_expect(sb.s_state & EXT2_VALID_FS);
	cr_expect_not(ext2fs_has_feature_journal_needs_recovery(&sb));
	cr_expect_eq(sb.s_mnt_count, 1);
	cr_expect_str_eq((char *)sb.s_last_mounted, "/mnt/test");
	fixture_finish(&f);
}

Test(ext4_super, readonly_touches_nothing)
{
	struct fixture f;

	fixture_format(&f, 16 * MIB, "");
	f.options.ro = true;
	cr_assert_eq(fixture_open(&f), 0);
	cr_expect(f.volume->readonly);
	cr_expect_eq(ext4_begin(fixture_vol(&f)), -EROFS);
	cr_expect_eq(fixture_close(&f), 0);
	cr_expect_eq(f.writes, 0);
	fixture_finish(&f);
}

/* What is not committed stays in the cache. */
Test(ext4_super, refuses_a_cache_too_small_for_the_journal)
{
	struct fixture f;

	fixture_format(&f, 256 * MIB, "-b 65536");
	cr_expect_eq(fixture_open(&f), -EINVAL);
	cr_expect_eq(f.writes, 0);
	f.cache_bytes = 32 * MIB;
	cr_assert_eq(fixture_open(&f), 0);
	cr_expect_eq(fixture_close(&f), 0);
	fixture_finish(&f);
}

Test(ext4_super, readonly_image_is_mounted_readonly)
{
	struct fixture f;

	fixture_format(&f, 16 * MIB, "");
	f.readonly = true;
	cr_assert_eq(fixture_open(&f), 0);
	cr_expect(f.volume->readonly);
	cr_expect_eq(fixture_close(&f), 0);
	cr_expect_eq(f.writes, 0);
	fixture_finish(&f);
}

Test(ext4_super, statfs_counts_what_files_can_have)
{
	struct fixture f;
	struct statvfs st, minix;

	fixture_format(&f, 64 * MIB, "-b 4096");
	cr_assert_eq(fixture_open(&f), 0);
	cr_expect_eq(f.volume->ops->statfs(f.volume, &st), 0);
	f.options.minixdf = true;
	cr_expect_eq(f.volume->ops->statfs(f.volume, &minix), 0);
	cr_expect_eq(minix.f_blocks, 64 * MIB / 4096);
	cr_expect_lt(st.f_blocks, minix.f_blocks);
	cr_expect_geq(st.f_blocks, st.f_bfree);
	cr_expect_geq(st.f_bfree, st.f_bavail);
	cr_expect_eq(st.f_files - st.f_ffree, 11);
	cr_expect_eq(st.f_namemax, 255);
	fixture_finish(&f);
}

/* What is refused, with nothing written to the image */

struct spoil {
	const char *what;
	int error;
	void (*spoil)(struct fixture *f, struct ext2_super_block *sb);
};

static void no_magic(struct fixture *f, struct ext2_super_block *sb)
{
	sb->s_magic = 0;
}

static void big_blocks(struct fixture *f, struct ext2_super_block *sb)
{
	sb->s_log_block_size = 7;
}

static void unknown_feature(struct fixture *f, struct ext2_super_block *sb)
{
	sb->s_feature_incompat |= 0x40000000;
}

static void journal_device(struct fixture *f, struct ext2_super_block *sb)
{
	sb->s_feature_incompat |= EXT3_FEATURE_INCOMPAT_JOURNAL_DEV;
}

static void too_many_blocks(struct fixture *f, struct ext2_super_block *sb)
{
	sb->s_blocks_count += 1 << 20;
	sb->s_inodes_count = (sb->s_blocks_count - sb->s_first_data_block +
			      sb->s_blocks_per_group - 1) /
			     sb->s_blocks_per_group * sb->s_inodes_per_group;
}

static void odd_inode_size(struct fixture *f, struct ext2_super_block *sb)
{
	sb->s_inode_size = 200;
}

static void no_groups(struct fixture *f, struct ext2_super_block *sb)
{
	sb->s_blocks_per_group = 0;
}

static void wrong_inode_count(struct fixture *f, struct ext2_super_block *sb)
{
	sb->s_inodes_count++;
}

static const struct spoil spoils[] = {
	{ "magic", -EINVAL, no_magic },
	{ "block size", -EINVAL, big_blocks },
	{ "incompatible feature", -EOPNOTSUPP, unknown_feature },
	{ "journal device", -EINVAL, journal_device },
	{ "more blocks than the image has", -EINVAL, too_many_blocks },
	{ "inode size", -EUCLEAN, odd_inode_size },
	{ "blocks per group", -EUCLEAN, no_groups },
	{ "inode count", -EUCLEAN, wrong_inode_count },
};

static unsigned int spoil_index[] = { 0, 1, 2, 3, 4, 5, 6, 7 };

ParameterizedTestParameters(ext4_super, refuses)
{
	return cr_make_param_array(unsigned int, spoil_index,
				   sizeof(spoil_index) / sizeof(spoil_index[0]));
}

ParameterizedTest(unsigned int *i, ext4_super, refuses)
{
	const struct spoil *spoil = &spoils[*i];
	struct ext2_super_block sb;
	struct fixture f;

	fixture_format(&f, 16 * MIB, "");
	read_super(&f, &sb);
	spoil->spoil(&f, &sb);
	write_super(&f, &sb);
	cr_expect_eq(fixture_open(&f), spoil->error, "%s", spoil->what);
	cr_expect_eq(f.writes, 0);
	fixture_drop(&f);
}

Test(ext4_super, refuses_superblock_checksum_error)
{
	struct ext2_super_block sb;
	struct fixture f;

	fixture_format(&f, 16 * MIB, "-O metadata_csum");
	read_super(&f, &sb);
	sb.s_checksum ^= 1;
	cr_assert_eq(pwrite(f.fd, &sb, sizeof(sb), SUPERBLOCK_OFFSET), (ssize_t)sizeof(sb));
	cr_expect_eq(fixture_open(&f), -EINVAL);
	fixture_drop(&f);
}

Test(ext4_super, refuses_descriptor_checksum_error)
{
	unsigned char byte = 0x5a;
	struct fixture f;

	fixture_format(&f, 16 * MIB, "-b 4096 -O metadata_csum");
	cr_assert_eq(pwrite(f.fd, &byte, 1, 4096 + 12), 1);
	cr_expect_eq(fixture_open(&f), -EUCLEAN);
	cr_expect_eq(f.writes, 0);
	fixture_drop(&f);
}

Test(ext4_super, refuses_truncated_image)
{
	struct fixture f;

	fixture_format(&f, 16 * MIB, "");
	cr_assert_eq(ftruncate(f.fd, 15 * MIB), 0);
	cr_expect_eq(fixture_open(&f), -EINVAL);
	cr_assert_eq(ftruncate(f.fd, 1024), 0);
	cr_expect_eq(fixture_open(&f), -EINVAL);
	cr_assert_eq(ftruncate(f.fd, 0), 0);
	cr_expect_eq(fixture_open(&f), -EINVAL);
	fixture_drop(&f);
}

/* What can only be read */

struct feature_case {
	char mkfs[80];
	uint32_t ro_compat;	/* set by hand */
};

ParameterizedTestParameters(ext4_super, readonly_for_feature)
{
	static struct feature_case cases[] = {
		{ "-O quota", 0 },
		{ "-O bigalloc", 0 },
		{ "-O casefold -E encoding=utf8", 0 },
		{ "-O encrypt", 0 },
		{ "-O verity", 0 },
		{ "-O mmp", 0 },
		{ "", 0x40000000 },
		{ "", EXT4_FEATURE_RO_COMPAT_READONLY },
	};

	return cr_make_param_array(struct feature_case, cases, sizeof(cases) / sizeof(cases[0]));
}

ParameterizedTest(struct feature_case *c, ext4_super, readonly_for_feature)
{
	struct ext2_super_block sb;
	struct fixture f;

	fixture_format(&f, 16 * MIB, c->mkfs);
	read_super(&f, &sb);
	sb.s_feature_ro_compat |= c->ro_compat;
	write_super(&f, &sb);
	cr_assert_eq(fixture_open(&f), 0);
	cr_expect(f.volume->readonly);
	cr_expect_eq(fixture_close(&f), 0);
	cr_expect_eq(f.writes, 0);
	fixture_drop(&f);
}

/* An unclean image stays unclean */

Test(ext4_super, crash_is_remembered)
{
	struct ext2_super_block sb;
	struct fixture f;

	fixture_format(&f, 16 * MIB, "-O ^has_journal");
	cr_assert_eq(fixture_open(&f), 0);
	fixture_crash(&f);
	read_super(&f, &sb);
	cr_expect_not(sb.s_state & EXT2_VALID_FS);
	cr_assert_eq(fixture_open(&f), 0);
	cr_expect_eq(fixture_close(&f), 0);
	read_super(&f, &sb);
	cr_expect_not(sb.s_state & EXT2_VALID_FS);
	fixture_drop(&f);
}

/* Journals */

static void make_dirty_journal(struct fixture *f)
{
	fixture_format(f, 16 * MIB, "");
	cr_assert_eq(fixture_run(f, "printf 'journal_open\\njournal_write -b 4000 /dev/zero\\n"
				    "journal_close\\n' | PATH=$PATH:/usr/sbin debugfs -w %s "
				    ">/dev/null 2>&1"), 0);
}

static bool needs_recovery(struct fixture *f)
{
	struct ext2_super_block sb;

	read_super(f, &sb);
	return ext2fs_has_feature_journal_needs_recovery(&sb);
}

Test(ext4_super, replays_dirty_journal)
{
	struct fixture f;

	make_dirty_journal(&f);
	cr_assert(needs_recovery(&f));
	cr_assert_eq(fixture_open(&f), 0);
	cr_expect_not(f.volume->readonly);
	cr_expect_eq(fixture_close(&f), 0);
	cr_expect_not(needs_recovery(&f));
	fixture_finish(&f);
}

Test(ext4_super, norecovery_mounts_readonly)
{
	struct fixture f;

	make_dirty_journal(&f);
	f.options.norecovery = true;
	cr_assert_eq(fixture_open(&f), 0);
	cr_expect(f.volume->readonly);
	cr_expect_eq(fixture_close(&f), 0);
	cr_expect(needs_recovery(&f));
	cr_expect_eq(f.writes, 0);
	fixture_drop(&f);
}

/* Neither where the image is in its file, nor what the file is called, matters. */
Test(ext4_super, replays_dirty_journal_behind_offset)
{
	struct fixture f;

	make_dirty_journal(&f);
	f.options.offset = 4096;
	f.options.image = "/nonexistent";
	cr_assert_eq(fixture_open(&f), 0);
	cr_expect_eq(fixture_close(&f), 0);
	cr_expect_not(needs_recovery(&f));
	fixture_finish(&f);
}

Test(ext4_super, acls_are_honoured_unless_told_otherwise)
{
	struct fixture f;

	fixture_format(&f, 8 << 20, "");
	for (int acl = 0; acl < 2; acl++) {
		f.options.acl = acl;
		cr_assert_eq(fixture_open(&f), 0);
		cr_expect_eq(f.volume->posix_acl, acl);
		cr_assert_eq(fixture_close(&f), 0);
	}
	fixture_drop(&f);
}
