/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Transactions: what a commit costs, when blocks come back, what does not fit into one transaction,
 * and an image that fails. Crashes are ext4_crash.c's.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ext4_fixture.h"
#include "txn.h"

#define MIB (1UL << 20)
#define FILES 24

static void begin(struct fixture *f, uint64_t bytes, const char *mkfs)
{
	fixture_format(f, bytes, mkfs);
	f->options.cache_size = f->cache_bytes;
	cr_assert_eq(fixture_open(f), 0);
}

static void set_size(struct vnode *node, loff_t size)
{
	struct stat st = { .st_size = size };

	cr_assert_eq(ext4_setattr(node, &st, VATTR_SIZE, &fixture_root), 0);
}

static void remove_name(struct fixture *f, const char *name)
{
	struct vnode *root = fixture_find(f, "");

	cr_assert_eq(ext4_unlink(root, name), 0);
	fixture_put(f, root);
}

Test(ext4_txn, a_commit_of_one_inode_is_small)
{
	struct fixture f;
	struct vnode *node;
	long writes;

	begin(&f, 64 * MIB, "");
	fixture_write(&f, "file", "x", 1);
	node = fixture_find(&f, "file");
	cr_assert_eq(ext4_fsync(node, false), 0);
	writes = f.writes;
	set_size(node, 5000);
	cr_assert_eq(ext4_fsync(node, false), 0);
	/* The log, the commit block. */
	cr_expect_leq(f.writes - writes, 3);
	writes = f.writes;
	cr_assert_eq(ext4_fsync(node, false), 0);
	cr_expect_eq(f.writes, writes, "nothing had changed");
	fixture_put(&f, node);
	fixture_finish(&f);
}

Test(ext4_txn, freed_blocks_are_free_after_the_commit)
{
	static char data[256 << 10];
	struct fixture f;
	struct ext4_volume *vol;
	uint64_t free;

	begin(&f, 16 * MIB, "-b 1024");
	vol = fixture_vol(&f);
	fixture_write(&f, "file", data, sizeof(data));
	cr_assert_eq(f.volume->ops->sync(f.volume), 0);
	free = vol->free_blocks;
	remove_name(&f, "file");
	/* A flusher that looks at the file meanwhile deletes it when it is done. */
	for (int i = 0; i < 1000 && vol->freed_blocks < sizeof(data) / 1024; i++)
		usleep(1000);
	cr_expect_eq(vol->free_blocks, free);
	cr_expect_geq(vol->freed_blocks, sizeof(data) / 1024);
	cr_assert_eq(ext4_commit(vol), 0);
	cr_expect_geq(vol->free_blocks, free + sizeof(data) / 1024);
	cr_expect_eq(vol->freed_blocks, 0);
	fixture_finish(&f);
}

/* Groups of 256 blocks: a file of 20 MiB is in 80 of them, more than a transaction may change. */
static void make_wide(struct fixture *f, const char *name)
{
	static char data[MIB];
	struct vnode *node;

	begin(f, 48 * MIB, "-b 1024 -g 256 -J size=1 -O ^resize_inode");
	node = fixture_create(f, name, S_IFREG | 0600);
	for (int i = 0; i < 20; i++)
		cr_assert_eq(ext4_write(node, i * MIB, data, sizeof(data), 0), (ssize_t)sizeof(data));
	fixture_put(f, node);
	cr_assert_eq(f->volume->ops->sync(f->volume), 0);
}

Test(ext4_txn, large_truncation_goes_in_steps)
{
	struct vnode *node;
	struct fixture f;
	uint32_t seq;

	make_wide(&f, "wide");
	seq = txn_running(fixture_vol(&f));
	node = fixture_find(&f, "wide");
	set_size(node, 100);
	cr_expect_gt(txn_running(fixture_vol(&f)), seq, "one transaction took it all");
	cr_expect_not(EXT4_I(node)->orphan);
	fixture_put(&f, node);
	fixture_finish(&f);
}

Test(ext4_txn, large_deletion_goes_in_steps)
{
	struct fixture f;
	uint32_t seq;

	make_wide(&f, "wide");
	seq = txn_running(fixture_vol(&f));
	remove_name(&f, "wide");
	/* A flusher that looks at the file meanwhile deletes it when it is done. */
	for (int i = 0; i < 1000 && txn_running(fixture_vol(&f)) == seq; i++)
		usleep(1000);
	cr_expect_gt(txn_running(fixture_vol(&f)), seq, "one transaction took it all");
	fixture_finish(&f);
}

/* In the middle of it the machine stops: the rest is done by the next mount. */
Test(ext4_txn, crash_in_a_large_deletion)
{
	struct fixture f;

	make_wide(&f, "wide");
	remove_name(&f, "wide");
	fixture_crash(&f);
	cr_assert_eq(fixture_open(&f), 0);
	fixture_finish(&f);
}

/* From here on all free blocks but @left of each group look as if they were not free. */
static void hide_blocks(struct ext4_volume *vol, unsigned int left)
{
	ext2_filsys fs = vol->fs;

	cr_assert_eq(ext4_begin(vol), 0);
	for (dgrp_t group = 0; group < fs->group_desc_count; group++) {
		uint64_t blk = ext2fs_group_first_block2(fs, group);
		uint64_t last = ext2fs_group_last_block2(fs, group);

		for (unsigned int seen = 0; blk <= last; blk++) {
			if (!ext2fs_test_block_bitmap2(vol->taken, blk) && seen++ >= left)
				ext2fs_mark_block_bitmap2(vol->taken, blk);
		}
	}
	ext4_end(vol);
}

/* Two blocks here, two there: the bitmaps alone are more than the log has blocks. */
Test(ext4_txn, large_preallocation_goes_in_steps)
{
	const loff_t size = 2400 * 1024;
	struct vnode *node;
	struct fixture f;
	uint32_t seq;

	fixture_format(&f, 320 * MIB, "-b 1024 -g 256 -J size=1 -O ^resize_inode -N 20480");
	f.options.cache_size = f.cache_bytes = 32 * MIB;
	cr_assert_eq(fixture_open(&f), 0);
	node = fixture_create(&f, "file", S_IFREG | 0600);
	cr_assert_eq(ext4_commit(fixture_vol(&f)), 0);
	hide_blocks(fixture_vol(&f), 2);
	seq = txn_running(fixture_vol(&f));
	cr_expect_eq(ext4_fallocate(node, 0, 0, size), 0);
	cr_expect_eq(mapping_size(&node->mapping), size);
	cr_expect_gt(txn_running(fixture_vol(&f)), seq + 1, "one transaction took most of it");
	cr_expect_eq(ext4_fsync(node, false), 0);
	fixture_put(&f, node);
	fixture_finish(&f);
}

/* The steps before the last are in the log: blocks behind the end of the file. */
Test(ext4_txn, crash_in_a_large_preallocation)
{
	struct vnode *node;
	struct fixture f;
	struct stat st;

	begin(&f, 48 * MIB, "-b 1024 -g 256 -J size=1 -O ^resize_inode");
	node = fixture_create(&f, "file", S_IFREG | 0600);
	cr_assert_eq(ext4_commit(fixture_vol(&f)), 0);
	hide_blocks(fixture_vol(&f), 4);
	cr_expect_eq(ext4_fallocate(node, 0, 0, 500 * 1024), 0);
	fixture_put(&f, node);
	fixture_crash(&f);
	cr_assert_eq(fixture_open(&f), 0);
	node = fixture_find(&f, "file");
	cr_assert_eq(ext4_getattr(node, &st), 0);
	cr_expect_gt(st.st_blocks, 0);
	cr_expect_eq(st.st_size, 0);
	fixture_put(&f, node);
	fixture_finish(&f);
}

/*
 * Data beside an unwritten extent that is zeroed for want of room
 */

#define KIB 1024
#define PREALLOCATED (64 * KIB)
#define OLD 0xa5		/* what has been in the blocks before */

static struct {
	struct vnode *node;
	uint64_t offset;		/* where block 40 is on the image */
	bool after;			/* what follows happens after its data is written */
	char *image;			/* the image after the commit, with all that was written */
} beside;

static void write_kib(struct vnode *node, unsigned int kib, char fill)
{
	char data[KIB];

	memset(data, fill, sizeof(data));
	cr_assert_eq(ext4_write(node, kib * KIB, data, KIB, 0), KIB);
}

/* Block 40 is on its way: meanwhile block 24 gets there, and both are in one extent. */
static void write_beside(struct fixture *f, const struct image_io *io, bool after)
{
	struct mapping *mapping = &beside.node->mapping;

	if (io->offset != beside.offset || after != beside.after)
		return;
	f->around_write = NULL;
	write_kib(beside.node, 24, 'b');
	cr_assert_eq(filemap_write_range(mapping, 24 * KIB, 25 * KIB - 1), 0);
	filemap_wait_range(mapping, 24 * KIB, 25 * KIB - 1);
	cr_assert_eq(ext4_commit(fixture_vol(f)), 0);
	beside.image = malloc(f->image.size);
	cr_assert_eq(pread(f->fd, beside.image, f->image.size, 0), (ssize_t)f->image.size);
}

static char byte_at(struct fixture *f, loff_t pos)
{
	struct vnode *node = fixture_find(f, "file");
	char byte;

	cr_assert_eq(filemap_read(&node->mapping, pos, &byte, 1), 1);
	fixture_put(f, node);
	return byte;
}

static void write_two_beside(struct fixture *f)
{
	struct map_extent extent;

	beside.node = fixture_create(f, "file", S_IFREG | 0600);
	cr_assert_eq(ext4_fallocate(beside.node, 0, 0, PREALLOCATED), 0);
	write_kib(beside.node, 8, 'a');
	cr_assert_eq(ext4_fsync(beside.node, false), 0);
	hide_blocks(fixture_vol(f), 0);
	cr_assert_eq(map_find(EXT4_I(beside.node), 40, &extent), 0);
	beside.offset = extent.pblk * KIB;
	write_kib(beside.node, 40, 'c');
	f->around_write = write_beside;
	cr_expect_eq(filemap_write_and_wait(&beside.node->mapping), 0);
	cr_assert(beside.image, "block 40 was not written to its place");
	fixture_put(f, beside.node);
}

ParameterizedTestParameters(ext4_txn, zeroed_extent_shows_nothing_old)
{
	static bool after[] = { false, true };

	return cr_make_param_array(bool, after, 2);
}

ParameterizedTest(bool *after, ext4_txn, zeroed_extent_shows_nothing_old)
{
	struct fixture f;
	char byte;

	beside.after = *after;
	fixture_format_on(&f, 8 * MIB, "-b 1024 -J size=1", OLD);
	cr_assert_eq(fixture_open(&f), 0);
	write_two_beside(&f);
	cr_expect_eq(fixture_close(&f), 0);
	cr_assert_eq(fixture_open(&f), 0);
	cr_expect_eq(byte_at(&f, 24 * KIB), 'b');
	cr_expect_eq(byte_at(&f, 40 * KIB), 'c');
	cr_expect_eq(byte_at(&f, 41 * KIB), 0);
	cr_expect_eq(fixture_close(&f), 0);
	/* Now what a crash would have left. */
	cr_assert_eq(pwrite(f.fd, beside.image, f.image.size, 0), (ssize_t)f.image.size);
	cr_assert_eq(fixture_open(&f), 0);
	cr_expect_eq(byte_at(&f, 24 * KIB), 'b');
	byte = byte_at(&f, 40 * KIB);
	cr_expect(!byte || byte == 'c', "the block shows what was in it before");
	cr_expect_eq(byte_at(&f, 41 * KIB), 0);
	free(beside.image);
	fixture_finish(&f);
}

/* The size of a small file as its inode on the image says, in its place. */
static uint32_t size_in_place(struct fixture *f, uint32_t ino)
{
	ext2_filsys fs = fixture_vol(f)->fs;
	uint32_t nr = (ino - 1) % fs->super->s_inodes_per_group;
	uint64_t table = ext2fs_inode_table_loc(fs, (ino - 1) / fs->super->s_inodes_per_group);
	struct ext2_inode raw;

	cr_assert_eq(pread(f->fd, &raw, sizeof(raw),
			   table * fs->blocksize + nr * EXT2_INODE_SIZE(fs->super)),
		     (ssize_t)sizeof(raw));
	return ext2fs_le32_to_cpu(raw.i_size);
}

/* A block is dirty from an older transaction when it joins the running one, and must be left out. */
Test(ext4_txn, uncommitted_block_is_not_written_in_place)
{
	struct vnode *node;
	struct fixture f;

	begin(&f, 8 * MIB, "-b 1024 -J size=1");
	node = fixture_create(&f, "file", S_IFREG | 0600);
	set_size(node, 100);
	cr_assert_eq(ext4_fsync(node, false), 0);
	set_size(node, 200);
	cr_assert_eq(txn_checkpoint(fixture_vol(&f)->txns), 0);
	cr_expect_neq(size_in_place(&f, node->ino), 200);
	cr_assert_eq(ext4_fsync(node, false), 0);
	cr_assert_eq(txn_checkpoint(fixture_vol(&f)->txns), 0);
	cr_expect_eq(size_in_place(&f, node->ino), 200);
	set_size(node, 300);
	cr_assert_eq(txn_checkpoint(fixture_vol(&f)->txns), 0);
	fixture_put(&f, node);
	fixture_crash(&f);
	cr_assert_eq(fixture_open(&f), 0);
	node = fixture_find(&f, "file");
	cr_expect_eq(mapping_size(&node->mapping), 200);
	fixture_put(&f, node);
	fixture_finish(&f);
}

Test(ext4_txn, log_is_used_again_and_again)
{
	struct vnode *node;
	struct fixture f;
	uint32_t seq;

	begin(&f, 16 * MIB, "-b 1024 -J size=1");
	seq = txn_running(fixture_vol(&f));
	node = fixture_create(&f, "file", S_IFREG | 0600);
	for (int i = 0; i < 600; i++) {
		set_size(node, i + 1);
		cr_assert_eq(ext4_fsync(node, false), 0);
	}
	cr_expect_geq(txn_running(fixture_vol(&f)) - seq, 600);
	fixture_put(&f, node);
	fixture_finish(&f);
}

/*
 * Faults
 */

struct sweep {
	bool flush, once;
};

/* Files are created, written and synced; how many fsyncs succeeded, one after the other. */
static int work(struct fixture *f, bool synced[FILES])
{
	int nr = 0;

	for (int i = 0; i < FILES; i++) {
		struct vnode *root = fixture_find(f, ""), *node;
		static char data[3000];
		char name[16];

		snprintf(name, sizeof(name), "f%d", i);
		memset(data, 'a' + i, sizeof(data));
		synced[i] = false;
		if (!ext4_mknod(root, name, S_IFREG | 0600, 0, &fixture_root, &node)) {
			ssize_t n = ext4_write(node, 0, data, sizeof(data), 0);

			synced[i] = n == (ssize_t)sizeof(data) && !ext4_fsync(node, false);
			fixture_put(f, node);
		}
		nr += synced[i];
		if (i % 8 == 7)
			txn_checkpoint(fixture_vol(f)->txns);
		fixture_put(f, root);
	}
	return nr;
}

/* What was synced is there, as it was. */
static void check_synced(struct fixture *f, const bool synced[FILES])
{
	for (int i = 0; i < FILES; i++) {
		char name[16], data[3000], want[3000];
		struct vnode *node;

		if (!synced[i])
			continue;
		snprintf(name, sizeof(name), "f%d", i);
		memset(want, 'a' + i, sizeof(want));
		node = fixture_find(f, name);
		cr_expect_eq(filemap_read(&node->mapping, 0, data, sizeof(data)),
			     (ssize_t)sizeof(data));
		cr_expect_arr_eq(data, want, sizeof(data), "%s", name);
		fixture_put(f, node);
	}
}

/* Lines on standard error, which goes to a file meanwhile, that say that all is over. */
static int messages(const char *path)
{
	char line[300];
	int nr = 0;
	FILE *file = fopen(path, "r");

	cr_assert(file);
	while (fgets(line, sizeof(line), file))
		nr += strstr(line, "read-only from here on") != NULL;
	fclose(file);
	return nr;
}

/* Request number @at fails. False: there were fewer. */
static bool fail_at(const struct sweep *sweep, long at)
{
	char errors[] = "/tmp/foliofs-txn-XXXXXX";
	int file = mkstemp(errors), old = dup(STDERR_FILENO);
	bool synced[FILES], reached;
	struct fixture f;

	begin(&f, 8 * MIB, "-b 1024 -J size=1");
	f.fail_once = sweep->once;
	f.fail_flush = sweep->flush ? f.flushes + at : 0;
	f.fail_writes_from = sweep->flush ? 0 : f.writes + at;
	cr_assert(file >= 0 && old >= 0 && dup2(file, STDERR_FILENO) >= 0);
	work(&f, synced);
	reached = sweep->flush ? f.flushes >= f.fail_flush : f.writes >= f.fail_writes_from;
	fixture_close(&f);
	dup2(old, STDERR_FILENO);
	close(old);
	close(file);
	cr_expect_leq(messages(errors), 1, "request %ld", at);
	unlink(errors);
	f.fail_flush = f.fail_writes_from = 0;
	cr_assert_eq(fixture_open(&f), 0, "request %ld", at);
	check_synced(&f, synced);
	fixture_finish(&f);
	return reached;
}

ParameterizedTestParameters(ext4_txn, failed_request_loses_nothing_synced)
{
	static struct sweep sweeps[] = { { false, true }, { false, false }, { true, true } };

	return cr_make_param_array(struct sweep, sweeps, sizeof(sweeps) / sizeof(sweeps[0]));
}

ParameterizedTest(struct sweep *sweep, ext4_txn, failed_request_loses_nothing_synced)
{
	const char *all = getenv("FOLIOFS_LONG");
	long step = all && *all == '1' ? 1 : 7, at = 1;

	while (fail_at(sweep, at))
		at += step;
	cr_expect_gt(at, 20, "the work has become too little");
}

/* The next mount takes it from the journal's superblock. */
Test(ext4_txn, failed_commit_is_remembered)
{
	struct vnode *node;
	struct fixture f;

	begin(&f, 8 * MIB, "-b 1024 -J size=1");
	node = fixture_create(&f, "file", S_IFREG | 0600);
	f.fail_flush = f.flushes + 1;
	cr_expect_eq(ext4_fsync(node, false), -EIO);
	fixture_put(&f, node);
	cr_expect_neq(fixture_close(&f), 0);
	f.fail_flush = 0;
	cr_assert_eq(fixture_open(&f), 0);
	cr_expect(fixture_vol(&f)->fs->super->s_state & EXT2_ERROR_FS);
	fixture_finish(&f);
}

Test(ext4_txn, failed_commit_turns_readonly)
{
	struct vnode *node;
	struct fixture f;

	begin(&f, 8 * MIB, "-b 1024 -J size=1");
	node = fixture_create(&f, "file", S_IFREG | 0600);
	f.fail_writes_from = f.writes + 1;
	cr_expect_eq(ext4_fsync(node, false), -EIO);
	cr_expect(ext4_is_rofs(fixture_vol(&f)));
	f.fail_writes_from = 0;
	cr_expect_eq(ext4_fsync(node, false), -EIO, "what is not committed never will be");
	cr_expect_eq(ext4_write(node, 0, "x", 1, 0), -EROFS);
	fixture_put(&f, node);
	cr_expect_neq(fixture_close(&f), 0);
	cr_assert_eq(fixture_open(&f), 0);
	cr_expect_not(ext4_is_rofs(fixture_vol(&f)));
	fixture_finish(&f);
}
