/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The image's own mapping and the io_manager on it. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "ext4_fixture.h"

#define MIB (1UL << 20)

static uint64_t free_block(struct fixture *f)
{
	struct ext4_volume *vol = fixture_vol(f);
	blk64_t blk;

	cr_assert_eq(ext4_begin(vol), 0);
	cr_assert_eq(ext2fs_find_first_zero_block_bitmap2(vol->fs->block_map,
							  vol->fs->super->s_first_data_block + 2000,
							  4000, &blk), 0);
	ext4_end(vol);
	return blk;
}

static bool dirty(struct fixture *f)
{
	return fixture_vol(f)->device.nrdirty;
}

/* Without a journal: a commit writes blocks in their place. */
static void open_clean(struct fixture *f, const char *mkfs)
{
	char options[80];

	snprintf(options, sizeof(options), "%s -O ^has_journal", mkfs);
	fixture_format(f, 16 * MIB, options);
	cr_assert_eq(fixture_open(f), 0);
	cr_assert_eq(ext4_commit(fixture_vol(f)), 0);
	cr_assert_not(dirty(f));
}

Test(ext4_device, written_block_is_read_back_and_reaches_the_image)
{
	char block[1024], back[1024];
	struct fixture f;
	uint64_t blk;

	open_clean(&f, "-b 1024");
	blk = free_block(&f);
	memset(block, 0x42, sizeof(block));
	cr_expect_eq(device_write(fixture_vol(&f), blk, block), 0);
	cr_expect_eq(device_read(fixture_vol(&f), blk, back), 0);
	cr_expect_arr_eq(block, back, sizeof(block));
	cr_expect_eq(ext4_commit(fixture_vol(&f)), 0);
	cr_assert_eq(pread(f.fd, back, sizeof(back), blk * 1024), (ssize_t)sizeof(back));
	cr_expect_arr_eq(block, back, sizeof(block));
	fixture_finish(&f);
}

Test(ext4_device, unchanged_bytes_dirty_nothing)
{
	char block[4096];
	struct fixture f;

	open_clean(&f, "-b 4096");
	cr_assert_eq(device_read(fixture_vol(&f), 1, block), 0);
	cr_expect_eq(device_write(fixture_vol(&f), 1, block), 0);
	cr_expect_not(dirty(&f));
	fixture_finish(&f);
}

Test(ext4_device, only_the_dirty_block_of_a_page_is_written)
{
	char block[1024], before[3072], after[3072];
	struct fixture f;
	uint64_t blk;

	open_clean(&f, "-b 1024");
	blk = free_block(&f) | 3;
	memset(before, 0x11, sizeof(before));
	cr_assert_eq(device_read(fixture_vol(&f), blk - 3, block), 0);
	/* Behind the cache's back: were the neighbours written, too, this would be lost. */
	cr_assert_eq(pwrite(f.fd, before, sizeof(before), (blk - 3) * 1024),
		     (ssize_t)sizeof(before));
	memset(block, 0x22, sizeof(block));
	cr_expect_eq(device_write(fixture_vol(&f), blk, block), 0);
	cr_expect_eq(ext4_commit(fixture_vol(&f)), 0);
	cr_assert_eq(pread(f.fd, after, sizeof(after), (blk - 3) * 1024), (ssize_t)sizeof(after));
	cr_expect_arr_eq(before, after, sizeof(before));
	fixture_finish(&f);
}

Test(ext4_device, part_of_a_block_keeps_the_rest)
{
	char block[4096], back[4096];
	struct fixture f;
	uint64_t blk;

	fixture_format(&f, 64 * MIB, "-b 4096");
	cr_assert_eq(fixture_open(&f), 0);
	blk = free_block(&f);
	memset(block, 0x33, sizeof(block));
	cr_assert_eq(pwrite(f.fd, block, sizeof(block), blk * 4096), (ssize_t)sizeof(block));
	cr_expect_eq(device_pwrite(fixture_vol(&f), blk * 4096 + 100, "abc", 3), 0);
	memcpy(block + 100, "abc", 3);
	cr_expect_eq(device_read(fixture_vol(&f), blk, back), 0);
	cr_expect_arr_eq(block, back, sizeof(block));
	fixture_finish(&f);
}

Test(ext4_device, outside_is_an_error)
{
	static const uint64_t blocks[] = { 4096,       4097,	   UINT32_MAX,
					   1ULL << 52, 1ULL << 62, UINT64_MAX };
	char block[4096] = { 0 };
	struct fixture f;

	open_clean(&f, "-b 4096");
	for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
		io_channel io = fixture_vol(&f)->fs->io;

		cr_expect_eq(device_read(fixture_vol(&f), blocks[i], block), -EUCLEAN);
		cr_expect_eq(device_write(fixture_vol(&f), blocks[i], block), -EUCLEAN);
		cr_expect_neq(io_channel_read_blk64(io, blocks[i], 1, block), 0);
		cr_expect_neq(io_channel_write_blk64(io, blocks[i], 1, block), 0);
	}
	cr_expect_neq(io_channel_read_blk64(fixture_vol(&f)->fs->io, 4095, 2, block), 0);
	cr_expect_not(dirty(&f));
	fixture_finish(&f);
}

Test(ext4_device, forgotten_blocks_are_not_written)
{
	char block[1024], back[1024];
	struct fixture f;
	uint64_t blk;

	open_clean(&f, "-b 1024");
	blk = free_block(&f);
	memset(block, 0x44, sizeof(block));
	cr_expect_eq(device_write(fixture_vol(&f), blk, block), 0);
	cr_expect(dirty(&f));
	device_forget(fixture_vol(&f), blk, 1);
	cr_expect_not(dirty(&f));
	cr_expect_eq(ext4_commit(fixture_vol(&f)), 0);
	cr_assert_eq(pread(f.fd, back, sizeof(back), blk * 1024), (ssize_t)sizeof(back));
	cr_expect_neq(back[0], 0x44);
	fixture_finish(&f);
}

Test(ext4_device, failed_read_is_eio_and_is_tried_again)
{
	char block[4096];
	struct fixture f;

	open_clean(&f, "-b 4096");
	f.fail_reads_from = f.reads + 1;
	cr_expect_eq(device_read(fixture_vol(&f), 3000, block), -EIO);
	f.fail_reads_from = 0;
	cr_expect_eq(device_read(fixture_vol(&f), 3000, block), 0);
	fixture_finish(&f);
}

Test(ext4_device, failed_write_is_told_and_kept)
{
	char block[1024], back[1024];
	struct fixture f;
	uint64_t blk;

	open_clean(&f, "-b 1024");
	blk = free_block(&f);
	memset(block, 0x55, sizeof(block));
	cr_expect_eq(device_write(fixture_vol(&f), blk, block), 0);
	f.fail_writes_from = f.writes + 1;
	cr_expect_eq(ext4_commit(fixture_vol(&f)), -EIO);
	f.fail_writes_from = 0;
	cr_expect_eq(ext4_commit(fixture_vol(&f)), 0);
	cr_assert_eq(pread(f.fd, back, sizeof(back), blk * 1024), (ssize_t)sizeof(back));
	cr_expect_arr_eq(block, back, sizeof(block));
	fixture_finish(&f);
}

/* A commit costs what has changed, not what there is. */
Test(ext4_device, commit_writes_changed_groups_only)
{
	struct fixture f;
	long writes;

	fixture_format(&f, 256 * MIB, "-b 1024 -O ^flex_bg");
	cr_assert_eq(fixture_open(&f), 0);
	cr_assert_eq(ext4_commit(fixture_vol(&f)), 0);
	writes = f.writes;
	cr_expect_eq(ext4_commit(fixture_vol(&f)), 0);
	cr_expect_eq(f.writes, writes, "nothing changed, but something was written");
	cr_assert_eq(ext4_begin(fixture_vol(&f)), 0);
	commit_mark_group(fixture_vol(&f), 7);
	ext4_end(fixture_vol(&f));
	cr_expect_eq(ext4_commit(fixture_vol(&f)), 0);
	cr_expect_leq(f.writes - writes, 4);
	fixture_finish(&f);
}
