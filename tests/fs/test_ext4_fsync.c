/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What fsync promises, while others write and while the image fails: one behaviour a test. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "ext4_fixture.h"
#include "rcu.h"

#define BYTES (16UL << 20)
#define BLOCK 4096
#define BLOCKS 64

TestSuite(ext4_fsync, .timeout = 60);

static struct fixture f;
static struct vnode *node;
static bool stop; /* atomic */
static unsigned int written; /* what the rewriter has put into its first block so far; atomic */
static enum errors_policy errors;

static void begin(const char *mkfs_options)
{
	fixture_format(&f, BYTES, mkfs_options);
	f.cache_bytes = 4 << 20;
	f.options.errors = errors;
	cr_assert_eq(fixture_open(&f), 0);
	node = fixture_create(&f, "file", 0644);
}

static void end(void)
{
	fixture_put(&f, node);
	fixture_finish(&f);
}

/* A block that is like no other. */
static const char *block_of(unsigned int nr, unsigned int version)
{
	static char block[BLOCK];

	for (unsigned int at = 0; at < BLOCK; at += 16)
		snprintf(block + at, 16, "%06x.%07x", nr, version);
	return block;
}

static void put_block(unsigned int nr, unsigned int version)
{
	cr_assert_eq(node->volume->ops->write(node, (loff_t)nr * BLOCK, block_of(nr, version), BLOCK, 0),
		     BLOCK);
}

static void put_blocks(unsigned int version)
{
	for (unsigned int nr = 0; nr < BLOCKS; nr++)
		put_block(nr, version);
}

/* Where a block lies on the image; -1: nowhere. */
static off_t find_block(unsigned int nr, unsigned int version)
{
	char *bytes = malloc(BYTES), *at;
	off_t found = -1;

	cr_assert_eq(pread(f.fd, bytes, BYTES, 0), (ssize_t)BYTES);
	at = memmem(bytes, BYTES, block_of(nr, version), BLOCK);
	if (at)
		found = at - bytes;
	free(bytes);
	return found;
}

/* How many blocks of a version are on the image. */
static unsigned int count_blocks(unsigned int version)
{
	char *bytes = malloc(BYTES);
	unsigned int nr, found = 0;

	cr_assert_eq(pread(f.fd, bytes, BYTES, 0), (ssize_t)BYTES);
	for (nr = 0; nr < BLOCKS; nr++)
		found += !!memmem(bytes, BYTES, block_of(nr, version), BLOCK);
	free(bytes);
	return found;
}

/* Never stops to write to the upper half. */
static void *rewriter(void *arg)
{
	char block[BLOCK];

	rcu_register_thread();
	for (unsigned int n = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); n++) {
		memset(block, n, sizeof(block));
		memcpy(block, &n, sizeof(n));
		node->volume->ops->write(node, (BLOCKS + n % BLOCKS) * BLOCK, block, BLOCK, 0);
		if (n % BLOCKS == 0)
			__atomic_store_n(&written, n, __ATOMIC_RELEASE);
	}
	rcu_unregister_thread();
	return NULL;
}

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static char *kinds[] = {"", "-O ^has_journal", "-b 1024"};

static struct criterion_test_params all_kinds(void)
{
	static char texts[3][32];

	for (int i = 0; i < 3; i++)
		snprintf(texts[i], sizeof(texts[i]), "%s", kinds[i]);
	return cr_make_param_array(char[32], texts, 3);
}

ParameterizedTestParameters(ext4_fsync, what_was_written_before_is_on_the_image)
{
	return all_kinds();
}

/* Although another thread rewrites other parts all the time; and it comes to an end. */
ParameterizedTest(char (*kind)[32], ext4_fsync, what_was_written_before_is_on_the_image)
{
	pthread_t thread;
	double began;

	begin(*kind);
	put_blocks(0);
	pthread_create(&thread, NULL, rewriter, NULL);
	for (unsigned int version = 1; version < 20; version++) {
		put_block(version, version);
		began = seconds();
		cr_assert_eq(node->volume->ops->fsync(node, false), 0);
		cr_assert_lt(seconds() - began, 5);
		cr_assert_neq(find_block(version, version), -1);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	end();
}

/* The same pages are written again while they are being written. */
Test(ext4_fsync, what_is_rewritten_meanwhile_is_there_as_of_the_fsync_or_newer)
{
	unsigned int before, now, ahead;
	pthread_t thread;
	off_t at;

	begin("");
	put_block(BLOCKS, 1);
	cr_assert_eq(node->volume->ops->fsync(node, false), 0);
	at = find_block(BLOCKS, 1);
	pthread_create(&thread, NULL, rewriter, NULL);
	while (!__atomic_load_n(&written, __ATOMIC_ACQUIRE))
		usleep(100);
	for (int round = 0; round < 50; round++) {
		before = __atomic_load_n(&written, __ATOMIC_ACQUIRE);
		cr_assert_eq(node->volume->ops->fsync(node, false), 0);
		cr_assert_eq(pread(f.fd, &now, sizeof(now), at), sizeof(now));
		ahead = __atomic_load_n(&written, __ATOMIC_ACQUIRE) + BLOCKS;
		cr_assert(now >= before && now <= ahead, "%u, %u, %u", before, now, ahead);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	end();
}

enum fault { NTH_WRITE, RANGE, A_WHILE, FLUSH };

struct fault_case {
	enum fault fault;
	char mkfs[32];
};

static struct fault_case cases[] = {
	{NTH_WRITE, ""}, {RANGE, ""}, {A_WHILE, ""}, {NTH_WRITE, "-O ^has_journal"},
	{RANGE, "-O ^has_journal"}, {A_WHILE, "-O ^has_journal"}, {FLUSH, "-O ^has_journal"},
};

static void set_fault(enum fault fault)
{
	off_t bad = find_block(BLOCKS / 2, 1);

	switch (fault) {
	case NTH_WRITE:
		f.fail_once = true;
		f.fail_writes_from = f.writes + 1;
		break;
	case RANGE:
		f.bad_start = bad;
		f.bad_end = bad + 1;
		break;
	case A_WHILE:
		f.bad_end = BYTES;
		break;
	case FLUSH:
		f.fail_flush = f.flushes + 1;
	}
}

static void heal(void)
{
	f.fail_writes_from = f.fail_flush = 0;
	__atomic_store_n(&f.bad_end, 0, __ATOMIC_RELAXED);
}

ParameterizedTestParameters(ext4_fsync, a_failure_is_told_to_every_open_file_once)
{
	return cr_make_param_array(struct fault_case, cases, sizeof(cases) / sizeof(*cases));
}

/* And what could not be written is there when the fault is gone. */
ParameterizedTest(struct fault_case *c, ext4_fsync, a_failure_is_told_to_every_open_file_once)
{
	struct open_errors told[3], late;
	int err;

	begin(c->mkfs);
	put_blocks(1);
	cr_assert_eq(node->volume->ops->fsync(node, false), 0);
	for (int i = 0; i < 3; i++)
		volume_open_errors(node, &told[i]);
	set_fault(c->fault);
	put_blocks(2);
	/* The flusher may have met the single failure, and may meet the others again until heal(). */
	err = node->volume->ops->fsync(node, false);
	cr_assert(err == -EIO || (!err && c->fault == NTH_WRITE));
	heal();
	cr_assert_eq(node->volume->ops->fsync(node, false), 0);
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(volume_fsync(node, false, &told[i]), -EIO);
		cr_assert_eq(volume_fsync(node, false, &told[i]), 0);
	}
	volume_open_errors(node, &late);
	cr_assert_eq(volume_fsync(node, false, &late), 0);
	cr_assert_eq(count_blocks(2), BLOCKS);
	end();
}

/* A block that cannot be written keeps none of the others from the image. */
Test(ext4_fsync, only_what_cannot_be_written_is_missing)
{
	struct open_errors told;

	begin("");
	put_blocks(1);
	cr_assert_eq(node->volume->ops->fsync(node, false), 0);
	volume_open_errors(node, &told);
	set_fault(RANGE);
	put_blocks(2);
	cr_assert_eq(volume_fsync(node, false, &told), -EIO);
	cr_assert_eq(volume_fsync(node, false, &told), -EIO); /* it was tried anew, folio by folio */
	cr_assert_geq(count_blocks(2), BLOCKS - 16);
	cr_assert_eq(find_block(BLOCKS / 2, 2), -1);
	heal();
	cr_assert_eq(node->volume->ops->fsync(node, false), 0);
	cr_assert_eq(count_blocks(2), BLOCKS);
	end();
}

/* Whose data a failed flush was about nobody knows: files that were written before hear of it. */
Test(ext4_fsync, a_failed_flush_is_told_to_other_files_as_well)
{
	struct open_errors told, other_told;
	struct vnode *other;

	begin("-O ^has_journal");
	other = fixture_create(&f, "other", 0644);
	volume_open_errors(node, &told);
	volume_open_errors(other, &other_told);
	put_blocks(1);
	f.fail_flush = f.flushes + 1;
	cr_assert_eq(volume_fsync(node, false, &told), -EIO);
	cr_assert_eq(volume_fsync(other, false, &other_told), -EIO);
	cr_assert_eq(volume_fsync(other, false, &other_told), 0);
	fixture_put(&f, other);
	end();
}

struct policy {
	enum errors_policy errors;
	int result; /* of a write when no data could be written for some time */
};

static struct policy policies[] = {
	{ERRORS_CONTINUE, BLOCK}, {ERRORS_REMOUNT_RO, -EROFS}, {ERRORS_PANIC, -EROFS},
};

ParameterizedTestParameters(ext4_fsync, an_image_that_takes_no_data_is_damaged)
{
	return cr_make_param_array(struct policy, policies, sizeof(policies) / sizeof(*policies));
}

/* What was written before is kept dirty for all that, and gets there when it can. */
ParameterizedTest(struct policy *p, ext4_fsync, an_image_that_takes_no_data_is_damaged)
{
	double began = seconds();

	errors = p->errors;
	begin("-O ^has_journal");
	put_blocks(1);
	cr_assert_eq(node->volume->ops->fsync(node, false), 0);
	put_blocks(2);
	f.bad_start = find_block(0, 1);
	f.bad_end = f.bad_start + BLOCKS * BLOCK;
	while (seconds() - began < 5) {
		cr_assert_eq(node->volume->ops->fsync(node, false), -EIO);
		usleep(100000);
	}
	cr_assert_eq(node->volume->ops->write(node, 0, block_of(0, 2), BLOCK, 0), p->result);
	heal();
	for (int i = 0; i < 200 && count_blocks(2) < BLOCKS; i++)
		usleep(50000);
	cr_assert_eq(count_blocks(2), BLOCKS);
	fixture_put(&f, node);
	fixture_close(&f);
	fixture_drop(&f);
}

static void *fsyncs(void *arg)
{
	rcu_register_thread();
	*(int *)arg = node->volume->ops->fsync(node, false);
	rcu_unregister_thread();
	return NULL;
}

/* Callers share one commit: none of them takes it for a good one. */
Test(ext4_fsync, a_commit_that_fails_fails_all_who_wait_for_it)
{
	pthread_t threads[4];
	int results[4];

	begin("");
	put_blocks(1);
	f.fail_flush = f.flushes + 1;
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, fsyncs, &results[i]);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 4; i++)
		cr_expect_lt(results[i], 0);
	fixture_put(&f, node);
	fixture_close(&f);
	fixture_drop(&f);
}
