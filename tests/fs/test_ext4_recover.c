/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Recovering at mount: what is refused, and what becomes of the superblocks.
 */
#define SUITE ext4_recover
#include "test_journal.h"

/*
 * What is refused
 */

struct spoil {
	const char *what;
	int error;
	void (*spoil)(struct maker *m);
};

static void no_magic(struct maker *m)
{
	m->super.s_header.h_magic = 0;
}

static void unknown_version(struct maker *m)
{
	m->super.s_header.h_blocktype = htobe32(6);
}

static void wrong_blocksize(struct maker *m)
{
	m->super.s_blocksize = htobe32(4096);
}

static void too_long(struct maker *m)
{
	m->super.s_maxlen = htobe32(1025);
}

static void too_short(struct maker *m)
{
	m->super.s_maxlen = htobe32(1000);
}

static void no_first(struct maker *m)
{
	m->super.s_first = 0;
}

static void first_outside(struct maker *m)
{
	m->super.s_first = htobe32(1024);
}

static void start_outside(struct maker *m)
{
	m->super.s_start = htobe32(1024);
}

static void start_on_superblock(struct maker *m)
{
	m->super.s_first = htobe32(2);
	m->super.s_start = htobe32(1);
}

static void unknown_incompat(struct maker *m)
{
	m->super.s_feature_incompat |= htobe32(0x80);
}

static void unknown_ro_compat(struct maker *m)
{
	m->super.s_feature_ro_compat = htobe32(1);
}

static void two_checksums(struct maker *m)
{
	m->super.s_feature_incompat |= htobe32(V2 | V3);
}

static void unknown_checksum(struct maker *m)
{
	m->super.s_checksum_type = 9;
}

static void block_outside(struct maker *m)
{
	maker_fill(m, 8192, 1);
	maker_commit(m);
}

static void block_far_outside(struct maker *m)
{
	maker_fill(m, 1ULL << 62 | FREE, 1);
	maker_commit(m);
}

static void block_of_the_journal(struct maker *m)
{
	maker_fill(m, m->map[900], 1);
	maker_commit(m);
}

static void no_superblock(struct maker *m)
{
	maker_fill(m, 1, 1);
	maker_commit(m);
}

/* Descriptors that lead round the ring to the first of them */
static void circle(struct maker *m)
{
	uint32_t ring = 1023;

	m->incompat = 0;
	m->super.s_feature_incompat = 0;
	while (ring) {
		unsigned int nr = ring - 1 < 100 ? ring - 1 : 100;

		for (unsigned int i = 0; i < nr; i++)
			maker_fill(m, FREE + i, 1);
		maker_tear(m);
		ring -= nr + 1;
	}
}

static const struct spoil refused_cases[] = {
	{ "no magic", -EUCLEAN, no_magic },
	{ "unknown version", -EUCLEAN, unknown_version },
	{ "wrong block size", -EUCLEAN, wrong_blocksize },
	{ "too long", -EUCLEAN, too_long },
	{ "too short", -EUCLEAN, too_short },
	{ "no first block", -EUCLEAN, no_first },
	{ "first block outside", -EUCLEAN, first_outside },
	{ "start outside", -EUCLEAN, start_outside },
	{ "start before the ring", -EUCLEAN, start_on_superblock },
	{ "unknown incompat feature", -EOPNOTSUPP, unknown_incompat },
	{ "unknown ro_compat feature", -EOPNOTSUPP, unknown_ro_compat },
	{ "two kinds of checksum", -EUCLEAN, two_checksums },
	{ "unknown checksum", -EUCLEAN, unknown_checksum },
	{ "block outside", -EUCLEAN, block_outside },
	{ "block far outside", -EUCLEAN, block_far_outside },
	{ "block of the journal", -EUCLEAN, block_of_the_journal },
	{ "no superblock then", -EINVAL, no_superblock },
	{ "log without end", -EUCLEAN, circle },
};

CASES(refused, refused_cases)
{
	const struct spoil *spoil = &refused_cases[*nr];
	struct fixture f;
	struct maker m;

	open_maker(&m, &f, V3 | WIDE, 0);
	spoil->spoil(&m);
	maker_close(&m);
	for (int ro = 0; ro < 2; ro++) {
		f.options.ro = ro;
		cr_expect_eq(fixture_open(&f), spoil->error, "%s", spoil->what);
	}
	cr_expect_eq(f.writes, 0);
	finish(&m, &f);
}

static void no_journal_inode(struct ext2_inode *inode)
{
	memset(inode, 0, sizeof(*inode));
}

static void short_file(struct ext2_inode *inode)
{
	inode->i_size = 100 * 1024;
}

static void tree_outside(struct ext2_inode *inode)
{
	inode->i_block[5] = 1 << 20;
}

static void hole(struct ext2_inode *inode)
{
	inode->i_block[3] = 7;
}

static void no_tree(struct ext2_inode *inode)
{
	inode->i_block[0] = 0;
}

static void blocks_nowhere(struct ext2_inode *inode)
{
	inode->i_flags = 0;
	memset(inode->i_block, 0xff, sizeof(inode->i_block));
}

Test(ext4_recover, journal_file_is_checked)
{
	void (*const spoils[])(struct ext2_inode *) = { no_journal_inode, short_file, tree_outside,
							hole, no_tree, blocks_nowhere };
	struct ext2_inode inode, spoilt;
	struct fixture f;
	struct maker m;
	ext2_filsys fs;

	open_maker(&m, &f, 0, 0);
	maker_fill(&m, FREE, 1);
	maker_commit(&m);
	maker_close(&m);
	cr_assert_eq(ext2fs_open(f.path, EXT2_FLAG_RW | EXT2_FLAG_64BITS, 0, 0, unix_io_manager,
				 &fs), 0);
	cr_assert_eq(ext2fs_read_inode(fs, EXT2_JOURNAL_INO, &inode), 0);
	for (size_t i = 0; i < sizeof(spoils) / sizeof(spoils[0]); i++) {
		spoilt = inode;
		spoils[i](&spoilt);
		cr_assert_eq(ext2fs_write_inode(fs, EXT2_JOURNAL_INO, &spoilt), 0);
		io_channel_flush(fs->io);
		cr_expect_eq(fixture_open(&f), -EUCLEAN, "%zu", i);
	}
	cr_expect_eq(f.writes, 0);
	ext2fs_free(fs);
	finish(&m, &f);
}

/*
 * Beside the log
 */

static void read_super(struct fixture *f, struct ext2_super_block *sb)
{
	cr_assert_eq(pread(f->fd, sb, sizeof(*sb), SUPERBLOCK_OFFSET), (ssize_t)sizeof(*sb));
}

/* Also when there is nothing to replay, and when the file system is clean. */
Test(ext4_recover, error_of_the_journal_becomes_one_of_the_file_system)
{
	for (int start = 0; start < 2; start++) {
		struct ext2_super_block sb;
		struct jbd2_super super;
		struct fixture f;
		struct maker m;

		open_maker(&m, &f, V3, 0);
		maker_fill(&m, FREE, 1);
		maker_commit(&m);
		m.super.s_errno = htobe32(-EIO);
		if (!start)
			m.super.s_start = 0;
		maker_close(&m);
		cr_assert_eq(fixture_open(&f), 0);
		cr_expect_eq(fixture_close(&f), 0);
		read_super(&f, &sb);
		cr_expect(sb.s_state & EXT2_ERROR_FS);
		cr_assert_eq(pread(f.fd, &super, sizeof(super), m.map[0] * 1024),
			     (ssize_t)sizeof(super));
		cr_expect_eq(super.s_errno, 0);
		finish(&m, &f);
	}
}

/* An older superblock in the log does not make the file system forget what was met since. */
Test(ext4_recover, errors_in_the_superblock_outlive_the_replay)
{
	struct ext2_super_block sb;
	struct fixture f;
	struct maker m;
	char block[1024];

	open_maker(&m, &f, 0, 0);
	cr_assert_eq(pread(f.fd, block, sizeof(block), SUPERBLOCK_OFFSET), 1024);
	maker_block(&m, 1, block);
	maker_commit(&m);
	read_super(&f, &sb);
	sb.s_state |= EXT2_ERROR_FS;
	sb.s_error_count = 3;
	sb.s_last_error_ino = 77;
	cr_assert_eq(pwrite(f.fd, &sb, sizeof(sb), SUPERBLOCK_OFFSET), 1024);
	maker_close(&m);
	cr_assert_eq(fixture_open(&f), 0);
	cr_expect_eq(fixture_close(&f), 0);
	read_super(&f, &sb);
	cr_expect(sb.s_state & EXT2_ERROR_FS);
	cr_expect_eq(sb.s_error_count, 3);
	cr_expect_eq(sb.s_last_error_ino, 77);
	finish(&m, &f);
}

/* A file system has grown: its new blocks are inside, though the old superblock says no. */
Test(ext4_recover, superblock_of_the_replay_says_how_large_it_is)
{
	struct ext2_super_block *sb;
	struct fixture f;
	struct maker m;
	char block[1024];

	fixture_format(&f, 8 * MIB, "-b 1024 -J size=1 -O ^metadata_csum,^resize_inode");
	cr_assert_eq(ftruncate(f.fd, 9 * MIB), 0);
	maker_open(&m, &f, 0, 0, START, FIRST);
	cr_assert_eq(pread(f.fd, block, sizeof(block), SUPERBLOCK_OFFSET), 1024);
	sb = (void *)block;
	sb->s_blocks_count = 8193;
	maker_block(&m, 1, block);
	maker_fill(&m, 8192, 1);
	maker_commit(&m);
	maker_close(&m);
	cr_assert_eq(fixture_open(&f), 0);
	cr_expect_eq(mapping_size(&fixture_vol(&f)->device), 8193 * 1024);
	cr_expect(holds(&m, 8192, 1));
	cr_expect_eq(fixture_close(&f), 0);
	finish(&m, &f);
}

/* A log that nobody needs is not replayed, and is gone after a read-write mount. */
Test(ext4_recover, log_in_a_clean_file_system_is_emptied)
{
	struct ext2_super_block sb;
	struct jbd2_super super;
	struct fixture f;
	struct maker m;

	open_maker(&m, &f, 0, 0);
	maker_fill(&m, FREE, 1);
	maker_commit(&m);
	read_super(&f, &sb);
	maker_close(&m);
	cr_assert_eq(pwrite(f.fd, &sb, sizeof(sb), SUPERBLOCK_OFFSET), 1024);
	f.options.ro = true;
	cr_assert_eq(fixture_open(&f), 0);
	cr_expect_eq(fixture_close(&f), 0);
	cr_expect_eq(f.writes, 0);
	f.options.ro = false;
	cr_assert_eq(fixture_open(&f), 0);
	cr_assert_eq(pread(f.fd, &super, sizeof(super), m.map[0] * 1024), (ssize_t)sizeof(super));
	/* The new log begins behind it. */
	cr_expect_eq(be32toh(super.s_sequence), FIRST + 2);
	cr_expect_not(holds(&m, FREE, 1));
	maker_free(&m);
	fixture_finish(&f);
}

static void make_external(struct fixture *f, bool dirty)
{
	struct ext2_super_block sb;

	fixture_format(f, 8 * MIB, "-b 1024 -O ^metadata_csum");
	read_super(f, &sb);
	sb.s_journal_inum = 0;
	sb.s_journal_dev = 0x700;
	if (dirty)
		ext2fs_set_feature_journal_needs_recovery(&sb);
	cr_assert_eq(pwrite(f->fd, &sb, sizeof(sb), SUPERBLOCK_OFFSET), 1024);
}

Test(ext4_recover, journal_on_another_device_is_left_alone)
{
	struct fixture f;

	make_external(&f, true);
	cr_expect_eq(fixture_open(&f), -EOPNOTSUPP);
	f.options.norecovery = true;
	cr_assert_eq(fixture_open(&f), 0);
	cr_expect_eq(fixture_close(&f), 0);
	fixture_drop(&f);
	make_external(&f, false);
	cr_assert_eq(fixture_open(&f), 0);
	cr_expect(f.volume->readonly);
	cr_expect_eq(fixture_close(&f), 0);
	cr_expect_eq(f.writes, 0);
	fixture_drop(&f);
}

/* An image that cannot be written is shown replayed, too. */
Test(ext4_recover, image_that_cannot_be_written)
{
	struct vnode *node;
	struct fixture f;
	struct maker m;

	open_maker(&m, &f, V3, 0);
	maker_fill(&m, FREE, 1);
	maker_commit(&m);
	maker_close(&m);
	f.readonly = true;
	cr_assert_eq(fixture_open(&f), 0);
	cr_expect(f.volume->readonly);
	cr_expect_neq(f.volume->image, &f.image);
	node = fixture_find(&f, "lost+found");
	fixture_put(&f, node);
	cr_expect_eq(fixture_close(&f), 0);
	cr_expect_eq(f.writes, 0);
	finish(&m, &f);
}

/* Files are read through the view as well: with data=journal their blocks are in the log. */
Test(ext4_recover, file_data_is_read_from_the_log)
{
	char data[3000], found[3000];
	struct map_extent extent;
	struct vnode *node;
	struct fixture f;
	struct maker m;

	fixture_format(&f, 8 * MIB, "-b 1024 -J size=1");
	cr_assert_eq(fixture_open(&f), 0);
	memset(data, 1, sizeof(data));
	fixture_write(&f, "file", data, sizeof(data));
	cr_assert_eq(f.volume->ops->sync(f.volume), 0);
	node = fixture_find(&f, "file");
	cr_assert_eq(map_find(EXT4_I(node), 1, &extent), 0);
	fixture_put(&f, node);
	cr_assert_eq(fixture_close(&f), 0);
	maker_open(&m, &f, V3, 0, START, FIRST);
	maker_fill(&m, extent.pblk, 7);
	maker_commit(&m);
	maker_close(&m);
	maker_bytes(data + 1024, 1024, extent.pblk, 7);
	f.options.ro = true;
	f.writes = 0;
	cr_assert_eq(fixture_open(&f), 0);
	node = fixture_find(&f, "file");
	cr_assert_eq(filemap_read(&node->mapping, 0, found, sizeof(found)), (ssize_t)sizeof(found));
	cr_expect_arr_eq(found, data, sizeof(data));
	fixture_put(&f, node);
	cr_expect_eq(fixture_close(&f), 0);
	cr_expect_eq(f.writes, 0);
	finish(&m, &f);
}

/* Whatever write of the recovery is the last one that is done: doing it again is right. */
Test(ext4_recover, recovery_may_end_at_any_write)
{
	struct oracle oracle;
	struct fixture f;
	struct maker m;
	bool done = false;

	open_maker(&m, &f, V3, 0);
	for (unsigned int i = 0; i < 40; i++)
		maker_fill(&m, FREE + 3 * i, 1);
	maker_commit(&m);
	maker_close(&m);
	oracle_ask(&oracle, &f);
	for (long nr = 1; !done; nr += 3) {
		f.writes = f.failures = 0;
		f.fail_writes_from = nr;
		done = !fixture_open(&f);
		f.fail_writes_from = 0;
		if (done)
			fixture_close(&f);
	}
	cr_expect_eq(f.failures, 0, "it ended without a failing write");
	cr_expect_eq(oracle_compare(&oracle, &f), 0);
	oracle_drop(&oracle);
	finish(&m, &f);
}

/*
 * The order of writing
 */

enum event { FLUSHED, BLOCK, JOURNAL_EMPTY, NO_RECOVERY, OTHER };

/* An image upon a file that writes down what is done to it */
struct recorder {
	struct image image;
	struct maker *m;
	enum event events[64];
	unsigned int nr;
};

static enum event event_of(struct maker *m, const struct image_io *io)
{
	const char *bytes = io->iov[0].iov_base;
	uint64_t block = io->offset / 1024;

	if (block == 1)
		return ext2fs_has_feature_journal_needs_recovery((struct ext2_super_block *)bytes) ?
			       OTHER :
			       NO_RECOVERY;
	if (block == m->map[0])
		return ((struct jbd2_super *)bytes)->s_start ? OTHER : JOURNAL_EMPTY;
	return block >= FREE ? BLOCK : OTHER;
}

static int recorder_submit(struct image *image, struct image_io *ios, unsigned int nr)
{
	struct recorder *recorder = (struct recorder *)image;

	for (unsigned int i = 0; i < nr; i++) {
		int fd = recorder->m->f->fd;

		if (ios[i].write) {
			cr_assert_lt(recorder->nr, 64);
			recorder->events[recorder->nr++] = event_of(recorder->m, &ios[i]);
			pwritev(fd, ios[i].iov, ios[i].iovcnt, ios[i].offset);
		} else {
			preadv(fd, ios[i].iov, ios[i].iovcnt, ios[i].offset);
		}
		ios[i].result = 0;
	}
	return 0;
}

static int recorder_flush(struct image *image)
{
	struct recorder *recorder = (struct recorder *)image;

	recorder->events[recorder->nr++] = FLUSHED;
	return 0;
}

static const struct image_ops recorder_ops = { .submit = recorder_submit,
					       .flush = recorder_flush };

/* How often an event comes behind @flush flushes and before the next one */
static unsigned int count(const struct recorder *recorder, unsigned int flush, enum event event)
{
	unsigned int found = 0;

	for (unsigned int i = 0; i < recorder->nr; i++) {
		if (recorder->events[i] == FLUSHED)
			flush--;
		else if (!flush && recorder->events[i] == event)
			found++;
	}
	return found;
}

/* A flush lies between the blocks, the journal marked empty, the flag, and all that follows. */
Test(ext4_recover, flushes_keep_the_order)
{
	static const enum event order[] = { BLOCK, JOURNAL_EMPTY, NO_RECOVERY };
	struct cache_config config = { .bytes = 4 << 20, .dirty_expire_ms = 5000 };
	struct recorder recorder = {
		.image = { .ops = &recorder_ops, .size = 8 * MIB, .align = 1 },
	};
	struct volume *volume;
	struct cache *cache;
	struct fixture f;
	struct maker m;

	open_maker(&m, &f, V3, 0);
	maker_fill(&m, FREE, 1);
	maker_fill(&m, FREE + 10, 1);
	maker_commit(&m);
	maker_close(&m);
	recorder.m = &m;
	recorder.image.name = f.path;
	f.options.cache_size = config.bytes;
	rcu_register_thread();
	cr_assert_eq(cache_create(&cache, &config), 0);
	cr_assert_eq(ext4_open(&volume, &recorder.image, cache, &f.options), 0);
	for (unsigned int flush = 0; flush < 3; flush++) {
		for (unsigned int i = 0; i < 3; i++)
			cr_expect_eq(count(&recorder, flush, order[i]) > 0, i == flush,
				     "event %u after flush %u", i, flush);
	}
	cr_expect_eq(volume->ops->close(volume), 0);
	cache_destroy(cache);
	finish(&m, &f);
}

/*
 * Journals that debugfs wrote, and fast commits
 */

struct debugfs {
	const char *mkfs, *requests;
};

/* Block 5002 is written in each. The data has to be as long as the blocks. */
static const struct debugfs debugfs_cases[] = {
	{ "-b 1024", "jo\\njw -b 5000,5001,5002 /bin/sh\\njw -r 5001\\n" },
	{ "-b 1024", "jo -c\\njw -b 5002,5001 /bin/sh\\njw -r 5002\\njw -b 5002 /bin/ls\\n" },
	{ "-b 1024 -O ^64bit,^metadata_csum", "jo\\njw -b 5000-5060 -r 5003 /bin/sh\\n" },
	{ "-b 1024 -O ^metadata_csum", "jo -c -v 2\\njw -b 5002,5003 /bin/sh\\n" },
	{ "-b 1024 -O 64bit", "jo -c -v 3\\njw -b 5002,5003 /bin/sh\\njw -b 5004 -c /bin/ls\\n" },
};

CASES(debugfs_writes, debugfs_cases)
{
	const struct debugfs *this = &debugfs_cases[*nr];
	char command[300], block[1024], zeros[1024] = { 0 };
	struct oracle oracle;
	struct fixture f;

	fixture_format(&f, 8 * MIB, this->mkfs);
	snprintf(command, sizeof(command),
		 "printf '%sjc\\n' | PATH=$PATH:/usr/sbin debugfs -w %%s >/dev/null 2>&1",
		 this->requests);
	cr_assert_eq(fixture_run(&f, command), 0);
	oracle_ask(&oracle, &f);
	cr_expect_eq(oracle.verdict, VERDICT_REPLAYED, "%s", oracle.said);
	cr_expect_eq(oracle_compare(&oracle, &f), 0);
	oracle_drop(&oracle);
	cr_assert_eq(pread(f.fd, block, sizeof(block), 5002 * 1024), 1024);
	cr_expect_arr_neq(block, zeros, sizeof(block), "nothing was replayed");
	cr_expect_eq(fixture_fsck(&f), 0);
	fixture_drop(&f);
}

/* The beginning of the area for fast commits, as for those of transaction @tid */
static void put_fast_commit(struct maker *m, uint32_t tid)
{
	struct jbd2_fc_head head = { .fc_tag = htole16(JBD2_FC_TAG_HEAD), .fc_len = htole16(8),
				     .fc_tid = htole32(tid) };
	char block[1024] = { 0 };

	memcpy(block, &head, sizeof(head));
	maker_write(m, m->last + 1, block);
}

/* Those of an earlier transaction are of no importance. */
Test(ext4_recover, fast_commits_count_for_the_next_transaction_only)
{
	for (int old = 0; old < 2; old++) {
		struct fixture f;
		struct maker m;

		fixture_format(&f, 16 * MIB, "-b 1024 -J size=2");
		maker_open(&m, &f, V3 | JBD2_INCOMPAT_FAST_COMMIT, 0, START, FIRST);
		maker_fill(&m, 12000, 1);
		maker_commit(&m);
		put_fast_commit(&m, FIRST + !old);
		maker_close(&m);
		/* e2fsck would be run on the path, and cannot be when we do not write. */
		f.options.ro = true;
		cr_expect_eq(fixture_open(&f), old ? 0 : -EUCLEAN);
		if (f.volume)
			cr_expect_eq(fixture_close(&f), 0);
		cr_expect_eq(f.writes, 0);
		finish(&m, &f);
	}
}

/* The log's ring ends before the fast commits. */
Test(ext4_recover, log_wraps_round_before_the_fast_commits)
{
	struct fixture f;
	struct maker m;

	fixture_format(&f, 16 * MIB, "-b 1024 -J size=2");
	maker_open(&m, &f, V3 | JBD2_INCOMPAT_FAST_COMMIT, 0, 2048 - 256 - 3, FIRST);
	cr_assert_eq(m.last, 2048 - 256);
	maker_fill(&m, 12000, 1);
	maker_fill(&m, 12001, 1);
	maker_fill(&m, 12002, 1);
	maker_commit(&m);
	maker_close(&m);
	cr_assert_eq(fixture_open(&f), 0);
	cr_expect(holds(&m, 12000, 1));
	cr_expect(holds(&m, 12002, 1));
	cr_expect_eq(fixture_close(&f), 0);
	finish(&m, &f);
}
