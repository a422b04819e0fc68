/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Replaying journals: made by hand, rule by rule, and compared with what e2fsck makes of them.
 */
#define SUITE ext4_journal
#include "test_journal.h"

/* Both replay it, with the same result. */
static void expect_replayed(struct maker *m, struct fixture *f)
{
	struct oracle oracle;

	maker_close(m);
	oracle_ask(&oracle, f);
	cr_expect_eq(oracle.verdict, VERDICT_REPLAYED, "%s", oracle.said);
	cr_expect_eq(oracle_compare(&oracle, f), 0);
	oracle_drop(&oracle);
}

/* Neither believes it; and the image is as before. */
static void expect_refused(struct maker *m, struct fixture *f)
{
	struct oracle oracle;

	maker_close(m);
	oracle_ask(&oracle, f);
	cr_expect_eq(oracle.verdict, VERDICT_REFUSED, "%s", oracle.said);
	cr_expect_eq(oracle_compare(&oracle, f), 0);
	oracle_drop(&oracle);
	cr_expect_eq(f->writes, 0);
	cr_expect_eq(fixture_open(f), -EUCLEAN);
}

/*
 * The kinds of journal
 */

struct kind {
	const char *mkfs;
	uint32_t incompat, compat;
};

/* Several descriptor and revoke blocks, one block several times, a revoke and its reuse */
static void write_some(struct maker *m, uint64_t from, unsigned int blocks)
{
	for (unsigned int i = 0; i < blocks; i++)
		maker_fill(m, from + i, 1);
	maker_commit(m);
	for (unsigned int i = 0; i < blocks; i += 3)
		maker_revoke(m, from + i);
	maker_fill(m, from + 1, 2);
	maker_commit(m);
	maker_fill(m, from, 3);
	maker_fill(m, from + 1, 3);
	maker_commit(m);
}

static const struct kind kinds_cases[] = {
	{ "-b 1024 -J size=1", 0, 0 },
	{ "-b 1024 -J size=1", WIDE, 0 },
	{ "-b 1024 -J size=1", 0, JBD2_COMPAT_CHECKSUM },
	{ "-b 1024 -J size=1", WIDE | ASYNC, JBD2_COMPAT_CHECKSUM },
	{ "-b 1024 -J size=1", V2, 0 },
	{ "-b 1024 -J size=1", V2 | WIDE, 0 },
	{ "-b 1024 -J size=1", V3, 0 },
	{ "-b 1024 -J size=1", V3 | WIDE | ASYNC, 0 },
	{ "-b 4096 -J size=4", V3 | WIDE, 0 },
	{ "-b 2048 -J size=2 -O ^64bit,^metadata_csum,^extent", 0, 0 },
};

CASES(kinds, kinds_cases)
{
	const struct kind *kind = &kinds_cases[*nr];
	struct fixture f;
	struct maker m;
	uint64_t from;

	fixture_format(&f, 24 * MIB, kind->mkfs);
	maker_open(&m, &f, kind->incompat, kind->compat, START, FIRST);
	/* Behind the journal, which mkfs puts where the inode tables end. */
	from = 22 * MIB / m.blocksize;
	write_some(&m, from, 300);
	expect_replayed(&m, &f);
	cr_expect(holds(&m, from, 3));
	cr_expect(holds(&m, from + 1, 3));
	cr_expect(holds(&m, from + 2, 1));
	cr_expect_not(holds(&m, from + 3, 1), "revoked");
	finish(&m, &f);
}

/* The end of a descriptor block ends it, too; a tag does not go over its checksum. */
Test(ext4_journal, full_descriptor_needs_no_last_tag)
{
	struct fixture f;
	struct maker m;

	open_maker(&m, &f, V2 | WIDE, 0);
	m.full_without_last = true;
	for (unsigned int i = 0; i < 100; i++)
		maker_fill(&m, FREE + i, 1);
	maker_commit(&m);
	expect_replayed(&m, &f);
	for (unsigned int i = 0; i < 100; i++)
		cr_expect(holds(&m, FREE + i, 1), "%u", i);
	finish(&m, &f);
}

/*
 * Where the log ends
 */

Test(ext4_journal, log_and_numbers_wrap_round)
{
	struct fixture f;
	struct maker m;

	fixture_format(&f, 8 * MIB, "-b 1024 -J size=1");
	maker_open(&m, &f, V3, 0, 1020, UINT32_MAX - 1);
	for (unsigned int n = 0; n < 4; n++) {
		maker_revoke(&m, FREE + n - 1);
		maker_fill(&m, FREE + n, n);
		maker_fill(&m, FREE + 50, n);
		maker_commit(&m);
	}
	cr_assert_lt(m.pos, START + 20);
	expect_replayed(&m, &f);
	cr_expect(holds(&m, FREE + 3, 3));
	cr_expect(holds(&m, FREE + 50, 3));
	cr_expect_not(holds(&m, FREE + 2, 2));
	finish(&m, &f);
}

Test(ext4_journal, transaction_without_commit_block_is_left_out)
{
	struct fixture f;
	struct maker m;

	open_maker(&m, &f, 0, 0);
	maker_fill(&m, FREE, 1);
	maker_commit(&m);
	maker_revoke(&m, FREE);
	maker_fill(&m, FREE + 1, 2);
	maker_tear(&m);
	expect_replayed(&m, &f);
	cr_expect(holds(&m, FREE, 1), "the revoke was not committed");
	cr_expect_not(holds(&m, FREE + 1, 2));
	finish(&m, &f);
}

Test(ext4_journal, transaction_with_another_number_ends_the_log)
{
	struct fixture f;
	struct maker m;

	open_maker(&m, &f, V3, 0);
	maker_fill(&m, FREE, 1);
	maker_commit(&m);
	m.sequence--;
	maker_fill(&m, FREE + 1, 1);
	maker_commit(&m);
	expect_replayed(&m, &f);
	cr_expect(holds(&m, FREE, 1));
	cr_expect_not(holds(&m, FREE + 1, 1));
	finish(&m, &f);
}

Test(ext4_journal, log_with_nothing_in_it)
{
	struct fixture f;
	struct maker m;

	open_maker(&m, &f, V3, 0);
	expect_replayed(&m, &f);
	finish(&m, &f);
}

Test(ext4_journal, empty_log_only_loses_the_flag)
{
	struct fixture f;
	struct maker m;

	open_maker(&m, &f, 0, 0);
	maker_fill(&m, FREE, 1);
	maker_commit(&m);
	m.super.s_start = 0;
	maker_close(&m);
	cr_assert_eq(fixture_open(&f), 0);
	cr_expect_not(holds(&m, FREE, 1));
	cr_expect_eq(fixture_close(&f), 0);
	cr_expect_eq(fixture_fsck(&f), 0);
	finish(&m, &f);
}

/*
 * Revoking
 */

Test(ext4_journal, revoke_counts_for_its_transaction_and_those_before)
{
	struct fixture f;
	struct maker m;

	open_maker(&m, &f, 0, 0);
	for (unsigned int n = 0; n < 4; n++) {
		maker_fill(&m, FREE + n, 1);
		if (n == 2)
			for (unsigned int i = 0; i < 4; i++)
				maker_revoke(&m, FREE + i);
		maker_commit(&m);
	}
	expect_replayed(&m, &f);
	for (unsigned int n = 0; n < 4; n++)
		cr_expect_eq(holds(&m, FREE + n, 1), n == 3, "block %u", n);
	finish(&m, &f);
}

/* Nobody wants the block. */
Test(ext4_journal, checksum_of_a_revoked_block_does_not_matter)
{
	struct fixture f;
	struct maker m;

	open_maker(&m, &f, V3, 0);
	maker_fill(&m, FREE, 1);
	maker_commit(&m);
	maker_poke(&m, m.data_at, 300, 1);
	maker_revoke(&m, FREE);
	maker_fill(&m, FREE + 1, 1);
	maker_commit(&m);
	expect_replayed(&m, &f);
	cr_expect(holds(&m, FREE + 1, 1));
	finish(&m, &f);
}

Test(ext4_journal, length_of_a_revoke_block_is_checked)
{
	struct fixture f;
	struct maker m;

	open_maker(&m, &f, 0, 0);
	maker_fill(&m, FREE, 1);
	maker_revoke(&m, FREE);
	maker_commit(&m);
	maker_poke(&m, m.revoke_at, 12, 0x40);
	expect_refused(&m, &f);
	finish(&m, &f);
}

/*
 * Escaping
 */

static const struct kind escaped_cases[] = {
	{ "", 0, 0 },
	{ "", V2, 0 },
	{ "", V3 | WIDE, 0 }
};

CASES(escaped, escaped_cases)
{
	const struct kind *kind = &escaped_cases[*nr];
	jbd2_be32 magic = htobe32(JBD2_MAGIC);
	char data[1024], found[1024];
	struct fixture f;
	struct maker m;

	open_maker(&m, &f, kind->incompat, kind->compat);
	memset(data, 0x5a, sizeof(data));
	memcpy(data, &magic, sizeof(magic));
	maker_block(&m, FREE, data);
	maker_fill(&m, FREE + 1, 1);
	maker_block(&m, FREE + 2, data);
	maker_commit(&m);
	expect_replayed(&m, &f);
	cr_assert_eq(pread(f.fd, found, sizeof(found), FREE * 1024), (ssize_t)sizeof(found));
	cr_expect_arr_eq(found, data, sizeof(data));
	finish(&m, &f);
}

/* A view is read in any pieces: across escaped and other blocks, from the midst of a word. */
Test(ext4_journal, view_is_read_in_any_pieces)
{
	jbd2_be32 magic = htobe32(JBD2_MAGIC);
	char data[1024], wanted[5 * 1024], found[5 * 1024];
	struct fixture f;
	struct maker m;

	open_maker(&m, &f, V3, 0);
	memset(data, 0x5a, sizeof(data));
	memcpy(data, &magic, sizeof(magic));
	maker_block(&m, FREE + 1, data);
	maker_fill(&m, FREE + 3, 1);
	maker_commit(&m);
	maker_close(&m);
	memset(wanted, 0, sizeof(wanted));
	memcpy(wanted + 1024, data, 1024);
	maker_bytes(wanted + 3 * 1024, 1024, FREE + 3, 1);
	f.options.ro = true;
	cr_assert_eq(fixture_open(&f), 0);
	for (size_t start = 1020; start < 1030; start++) {
		size_t len = sizeof(wanted) - start;
		struct iovec iov[3] = { { found, 2 }, { found + 2, 1500 },
					{ found + 1502, len - 1502 } };
		struct image_io ios[2] = {
			{ .offset = FREE * 1024 + start, .iov = iov, .iovcnt = 3 },
			{ .offset = 0, .iov = iov, .iovcnt = 1, .write = true },
		};

		memset(found, 1, sizeof(found));
		cr_expect_eq(image_submit(f.volume->image, ios, 2), -EROFS);
		cr_expect_eq(ios[0].result, 0);
		cr_expect_eq(ios[1].result, -EROFS);
		cr_expect_arr_eq(found, wanted + start, len);
	}
	cr_expect_eq(fixture_close(&f), 0);
	cr_expect_eq(f.writes, 0);
	finish(&m, &f);
}

/*
 * Checksums
 */

enum spot { IN_DESCRIPTOR, IN_DATA, IN_REVOKE, IN_COMMIT, IN_COMMIT_TAIL };

struct harm {
	const char *what;
	uint32_t incompat, compat;
	enum spot spot;
	bool last;		/* of the transactions; else the one before it */
	bool refused;		/* else replayed, without it */
};

static void harm(struct maker *m, const struct harm *harm)
{
	switch (harm->spot) {
	case IN_DESCRIPTOR:
		return maker_poke(m, m->descriptor_at, 300, 1);
	case IN_DATA:
		return maker_poke(m, m->data_at, 300, 1);
	case IN_REVOKE:
		return maker_poke(m, m->revoke_at, 300, 1);
	case IN_COMMIT:
		return maker_poke(m, m->commit_at, 0x3a, 1);
	default:
		return maker_poke(m, m->commit_at, 300, 1);
	}
}

static const struct harm bad_checksums_cases[] = {
	{ "v1 data", 0, JBD2_COMPAT_CHECKSUM, IN_DATA, true, true },
	{ "v1 descriptor", 0, JBD2_COMPAT_CHECKSUM, IN_DESCRIPTOR, true, true },
	{ "v1 data, not last", 0, JBD2_COMPAT_CHECKSUM, IN_DATA, false, true },
	{ "v1 async, last", ASYNC, JBD2_COMPAT_CHECKSUM, IN_DATA, true, false },
	{ "v1 async, not last", ASYNC, JBD2_COMPAT_CHECKSUM, IN_DATA, false, true },
	{ "v2 data", V2, 0, IN_DATA, true, true },
	{ "v2 descriptor", V2 | WIDE, 0, IN_DESCRIPTOR, true, true },
	{ "v3 data", V3, 0, IN_DATA, true, true },
	{ "v3 data, not last", V3, 0, IN_DATA, false, true },
	{ "v3 descriptor", V3, 0, IN_DESCRIPTOR, true, true },
	{ "v3 revoke", V3 | WIDE, 0, IN_REVOKE, true, true },
	{ "v3 commit", V3, 0, IN_COMMIT, true, true },
	{ "v3 async commit", V3 | ASYNC, 0, IN_COMMIT, true, false },
	{ "v3 async data", V3 | ASYNC, 0, IN_DATA, true, true },
};

CASES(bad_checksums, bad_checksums_cases)
{
	const struct harm *how = &bad_checksums_cases[*nr];
	struct fixture f;
	struct maker m;

	open_maker(&m, &f, how->incompat, how->compat);
	maker_fill(&m, FREE, 1);
	maker_commit(&m);
	maker_fill(&m, FREE + 1, 2);
	maker_revoke(&m, FREE + 9);
	maker_commit(&m);
	if (!how->last)
		harm(&m, how);
	maker_fill(&m, FREE + 2, 3);
	maker_revoke(&m, FREE + 9);
	maker_commit(&m);
	if (how->last)
		harm(&m, how);
	if (how->refused) {
		expect_refused(&m, &f);
		cr_expect_not(holds(&m, FREE, 1), "%s: replayed in part", how->what);
	} else {
		expect_replayed(&m, &f);
		cr_expect(holds(&m, FREE, 1));
		cr_expect(holds(&m, FREE + 1, 2));
		cr_expect_not(holds(&m, FREE + 2, 3), "%s", how->what);
	}
	finish(&m, &f);
}

/* Versions 2 and 3, asynchronous commits: what comes behind is not replayed, but must be right. */
Test(ext4_journal, log_goes_on_behind_an_unfinished_transaction)
{
	for (int good = 0; good < 2; good++) {
		struct fixture f;
		struct maker m;

		open_maker(&m, &f, V3 | ASYNC, 0);
		maker_fill(&m, FREE, 1);
		maker_commit(&m);
		maker_fill(&m, FREE + 1, 2);
		maker_commit(&m);
		maker_poke(&m, m.commit_at, 0x3a, 1);
		maker_fill(&m, FREE + 2, 3);
		maker_commit(&m);
		if (!good)
			maker_poke(&m, m.descriptor_at, 300, 1);
		if (good)
			expect_replayed(&m, &f);
		else
			expect_refused(&m, &f);
		cr_expect_eq(holds(&m, FREE, 1), good);
		cr_expect_not(holds(&m, FREE + 1, 2));
		cr_expect_not(holds(&m, FREE + 2, 3));
		finish(&m, &f);
	}
}

/* A second one moves the end: what was written before it is checked block by block. */
Test(ext4_journal, last_unfinished_transaction_ends_the_log)
{
	struct fixture f;
	struct maker m;

	open_maker(&m, &f, V3 | ASYNC, 0);
	for (unsigned int n = 0; n < 5; n++) {
		maker_fill(&m, FREE + n, n);
		maker_commit(&m);
		if (n == 1 || n == 3)
			maker_poke(&m, m.commit_at, 0x3a, 1);
	}
	expect_replayed(&m, &f);
	for (unsigned int n = 0; n < 5; n++)
		cr_expect_eq(holds(&m, FREE + n, n), n < 3, "%u", n);
	finish(&m, &f);
}

/* As the kernel takes it, and e2fsck 1.47.0 does not: only the first sector was written. */
Test(ext4_journal, commit_block_may_be_torn_behind_its_header)
{
	struct fixture f;
	struct maker m;

	open_maker(&m, &f, V3, 0);
	maker_fill(&m, FREE, 1);
	maker_commit(&m);
	maker_poke(&m, m.commit_at, 600, 1);
	maker_close(&m);
	cr_assert_eq(fixture_open(&f), 0);
	cr_expect(holds(&m, FREE, 1));
	cr_expect_eq(fixture_close(&f), 0);
	finish(&m, &f);
}

/* What is left of an older journal may carry on with the right number: it is older than the log. */
static const struct harm stale_blocks_cases[] = {
	{ "descriptor", V3, 0, IN_DESCRIPTOR, true, false },
	{ "revoke", V3, 0, IN_REVOKE, true, false },
	{ "commit", V3, 0, IN_COMMIT, true, false },
};

CASES(stale_blocks, stale_blocks_cases)
{
	const struct harm *how = &stale_blocks_cases[*nr];
	struct fixture f;
	struct maker m;

	open_maker(&m, &f, how->incompat, how->compat);
	maker_fill(&m, FREE, 1);
	maker_commit(&m);
	m.time -= 1000;
	maker_fill(&m, FREE + 1, 2);
	maker_revoke(&m, FREE);
	maker_commit(&m);
	harm(&m, how);
	expect_replayed(&m, &f);
	cr_expect(holds(&m, FREE, 1));
	cr_expect_not(holds(&m, FREE + 1, 2));
	finish(&m, &f);
}
