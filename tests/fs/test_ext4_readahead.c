/* SPDX-License-Identifier: GPL-2.0-or-later */
/* How few reads of the image do it, and what becomes of those that fail. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ext4_fixture.h"

#define BYTES (64UL << 20)
#define DIRS 200
#define FILE_BYTES (4UL << 20)

static struct fixture f;

static long reads(void)
{
	return __atomic_load_n(&f.reads, __ATOMIC_RELAXED);
}

static void reopen(size_t readahead)
{
	cr_assert_eq(fixture_close(&f), 0);
	f.readahead_bytes = readahead;
	cr_assert_eq(fixture_open(&f), 0);
}

static bool emit(void *arg, const char *name, size_t len, uint64_t ino, unsigned int type,
		 uint64_t next)
{
	++*(unsigned int *)arg;
	return true;
}

static void make_dirs(void)
{
	struct vnode *root = f.volume->ops->root(f.volume), *dir;
	char name[16];

	for (int i = 0; i < DIRS; i++) {
		snprintf(name, sizeof(name), "dir%03d", i);
		cr_assert_eq(f.volume->ops->mkdir(root, name, 0755, &fixture_root, &dir), 0);
		fixture_put(&f, dir);
	}
	fixture_put(&f, root);
}

static void list_dirs(void)
{
	char name[16];

	for (int i = 0; i < DIRS; i++) {
		unsigned int entries = 0;
		struct vnode *dir;

		snprintf(name, sizeof(name), "dir%03d", i);
		dir = fixture_find(&f, name);
		cr_assert_eq(f.volume->ops->readdir(dir, 0, emit, &entries), 0);
		cr_assert_eq(entries, 2);
		fixture_put(&f, dir);
	}
}

/* Their blocks lie side by side: not one read for each. */
Test(ext4_readahead, walking_many_directories_takes_few_reads)
{
	long before;

	fixture_format(&f, BYTES, "-b 4096");
	cr_assert_eq(fixture_open(&f), 0);
	make_dirs();
	reopen(1 << 20);
	before = reads();
	list_dirs();
	cr_assert_lt(reads() - before, DIRS / 2, "%ld reads", reads() - before);
	fixture_finish(&f);
}

/* What was read ahead and then belonged to others is not taken for what it was. */
Test(ext4_readahead, blocks_that_change_hands_are_read_again)
{
	static char data[16384];
	char name[16];

	fixture_format(&f, BYTES, "-b 4096");
	cr_assert_eq(fixture_open(&f), 0);
	make_dirs();
	memset(data, 'x', sizeof(data));
	for (int round = 0; round < 3; round++) {
		struct vnode *root;

		reopen(1 << 20);
		list_dirs();
		root = f.volume->ops->root(f.volume);
		for (int i = 0; i < DIRS; i += 2) {
			struct vnode *dir;

			snprintf(name, sizeof(name), "dir%03d", i);
			cr_assert_eq(f.volume->ops->rmdir(root, name), 0);
			snprintf(name, sizeof(name), "file%03d", i);
			fixture_write(&f, name, data, sizeof(data));
			cr_assert_eq(f.volume->ops->sync(f.volume), 0);
			cr_assert_eq(f.volume->ops->unlink(root, name), 0);
			snprintf(name, sizeof(name), "dir%03d", i);
			cr_assert_eq(f.volume->ops->mkdir(root, name, 0755, &fixture_root, &dir),
				     0);
			fixture_put(&f, dir);
		}
		fixture_put(&f, root);
		list_dirs();
	}
	fixture_finish(&f);
}

static void read_file(struct vnode *node, const unsigned char *data, struct file_ra *ra)
{
	static unsigned char buf[8192];

	for (loff_t pos = 0; pos < (loff_t)FILE_BYTES; pos += sizeof(buf)) {
		cr_assert_eq(filemap_read_ra(&node->mapping, ra, pos, buf, sizeof(buf)),
			     sizeof(buf));
		cr_assert(!memcmp(buf, data + pos, sizeof(buf)));
	}
}

/* Large reads, few of them; each may fail once (then block by block), and nobody notices. */
Test(ext4_readahead, a_file_read_in_small_pieces)
{
	unsigned char *data = malloc(FILE_BYTES);
	struct vnode *node;
	struct file_ra ra;
	long before;

	for (size_t i = 0; i < FILE_BYTES; i++)
		data[i] = i * 7 + i / 4096;
	fixture_format(&f, BYTES, "-b 4096");
	f.cache_bytes = 32 << 20;
	cr_assert_eq(fixture_open(&f), 0);
	fixture_write(&f, "file", data, FILE_BYTES);
	for (int fail = 0; fail < 4; fail++) {
		reopen(1 << 20);
		node = fixture_find(&f, "file");
		file_ra_init(&ra);
		before = reads();
		f.fail_once = true;
		f.fail_reads_from = fail ? before + 1 + fail : 0;
		read_file(node, data, &ra);
		if (!fail)
			cr_assert_lt(reads() - before, 60, "%ld reads", reads() - before);
		f.fail_reads_from = 0;
		file_ra_finish(&ra);
		fixture_put(&f, node);
	}
	free(data);
	fixture_finish(&f);
}

/*
 * Many small files, read one after another
 */

#define FILES 60
#define SMALL 6000

static struct vnode *files[FILES];

static void fill_small(unsigned char *data, int file)
{
	for (size_t i = 0; i < SMALL; i++)
		data[i] = file * 31 + i * 7 + i / 4096;
}

static void find_files(void)
{
	char name[16];

	for (int i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "dir/%02d", i);
		files[i] = fixture_find(&f, name);
	}
}

/* Files dir/NN, on the image side by side, and looked up, but in no cache. */
static void make_files(size_t readahead, const char *mkfs_options)
{
	static unsigned char data[SMALL];
	struct vnode *root, *dir;
	char name[16];

	fixture_format(&f, BYTES, mkfs_options);
	f.cache_bytes = 32 << 20;
	cr_assert_eq(fixture_open(&f), 0);
	root = f.volume->ops->root(f.volume);
	cr_assert_eq(f.volume->ops->mkdir(root, "dir", 0755, &fixture_root, &dir), 0);
	fixture_put(&f, dir);
	fixture_put(&f, root);
	for (int i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "dir/%02d", i);
		fill_small(data, i);
		fixture_write(&f, name, data, SMALL);
		files[i] = fixture_find(&f, name);
		cr_assert_eq(filemap_write_and_wait(&files[i]->mapping), 0);
		fixture_put(&f, files[i]);
	}
	reopen(readahead);
	find_files();
}

static void put_files(void)
{
	for (int i = 0; i < FILES; i++)
		fixture_put(&f, files[i]);
}

/* As a read request does it. */
static void read_small(int file)
{
	unsigned char data[SMALL], buf[SMALL + 1];
	struct file_ra ra;

	fill_small(data, file);
	file_ra_init(&ra);
	f.volume->ops->accessed(files[file]);
	cr_assert_eq(filemap_read_ra(&files[file]->mapping, &ra, 0, buf, sizeof(buf)), SMALL);
	cr_assert(!memcmp(buf, data, SMALL), "file %d", file);
	file_ra_finish(&ra);
}

static bool is_cached(int file)
{
	return __atomic_load_n(&files[file]->mapping.nrpages, __ATOMIC_RELAXED);
}

static unsigned int nr_cached(void)
{
	unsigned int nr = 0;

	for (int i = 0; i < FILES; i++)
		nr += is_cached(i);
	return nr;
}

/* Until nothing more is read ahead: then each file is referenced by us alone. */
static void settle(void)
{
	for (int i = 0; i < FILES; i++)
		while (__atomic_load_n(&EXT4_I(files[i])->refs, __ATOMIC_ACQUIRE) > 1)
			usleep(100);
}

struct order {
	int step;	/* from a file to the next, modulo FILES */
};

static struct order orders[] = {{1}, {FILES - 1}, {7}, {23}};

ParameterizedTestParameters(ext4_readahead, small_files)
{
	return cr_make_param_array(struct order, orders, sizeof(orders) / sizeof(*orders));
}

/* In order, backwards, or in that of a hash: they are read together. */
ParameterizedTest(struct order *order, ext4_readahead, small_files)
{
	long before;

	make_files(1 << 20, "-b 4096");
	before = reads();
	for (int i = 0, file = 5; i < FILES; i++, file = (file + order->step) % FILES) {
		bool was_cached = is_cached(file);

		read_small(file);
		if (!was_cached)
			settle();
	}
	cr_assert_lt(reads() - before, FILES / 3, "%ld reads", reads() - before);
	put_files();
	fixture_finish(&f);
}

/* One file alone says nothing of the others, nor does it when there is to be no readahead. */
Test(ext4_readahead, no_walk_no_other_files)
{
	make_files(1 << 20, "-b 4096");
	read_small(5);
	read_small(5);
	settle();
	cr_assert_eq(nr_cached(), 1);
	put_files();
	reopen(0);
	fixture_finish(&f);

	make_files(0, "-b 4096");
	for (int i = 0; i < 20; i++)
		read_small(i);
	cr_assert_eq(nr_cached(), 20);
	put_files();
	fixture_finish(&f);
}

/* No more at a time than the limit of readahead; a file of two pages counts so. */
Test(ext4_readahead, small_files_within_the_limit)
{
	make_files(64 << 10, "-b 4096");
	for (int i = 0; i < 3; i++)
		read_small(i);
	settle();
	cr_assert_leq(nr_cached(), 3 + 2 * 8);
	put_files();
	fixture_finish(&f);
}

/* Files in their inodes are passed over. */
Test(ext4_readahead, small_files_in_inodes)
{
	char command[400], buf[8];
	struct vnode *node;

	make_files(1 << 20, "-b 4096 -I 1024 -O inline_data");
	put_files();
	cr_assert_eq(fixture_close(&f), 0);
	snprintf(command, sizeof(command),
		 "PATH=$PATH:/usr/sbin:/sbin; echo ab >%s.src && debugfs -w -R 'write %s.src in' %s "
		 ">/dev/null 2>&1; rm %s.src", f.path, f.path, f.path, f.path);
	cr_assert_eq(system(command), 0);
	cr_assert_eq(fixture_open(&f), 0);
	find_files();
	node = fixture_find(&f, "in");
	cr_assert(EXT4_I(node)->raw.i_flags & EXT4_INLINE_DATA_FL);
	for (int i = 0; i < FILES; i++)
		read_small(i);
	cr_assert_eq(node->mapping.nrpages, 0);
	cr_assert_eq(filemap_read(&node->mapping, 0, buf, sizeof(buf)), 3);
	cr_assert(!memcmp(buf, "ab\n", 3));
	fixture_put(&f, node);
	put_files();
	fixture_finish(&f);
}

/* Reads that fail ahead are of no interest, and are made again by who wants the file. */
Test(ext4_readahead, small_files_that_cannot_be_read_ahead)
{
	make_files(1 << 20, "-b 4096");
	read_small(0);
	read_small(1);
	f.fail_reads_from = reads() + 1;
	f.volume->ops->accessed(files[2]);
	settle();
	cr_assert_gt(f.failures, 0);
	f.fail_reads_from = 0;
	for (int i = 0; i < FILES; i++)
		read_small(i);
	put_files();
	fixture_finish(&f);
}

/* Forgotten, cut and removed while they are being read ahead. */
Test(ext4_readahead, small_files_that_go_meanwhile)
{
	const struct stat cut = {.st_size = 100};
	struct vnode *dir;
	char name[16];

	for (int round = 0; round < 5; round++) {
		make_files(1 << 20, "-b 4096");
		for (int i = 0; i < 3; i++)
			read_small(i);
		for (int i = 10; i < 20; i++)
			cr_assert_eq(f.volume->ops->setattr(files[i], &cut, VATTR_SIZE,
							    &fixture_root), 0);
		dir = fixture_find(&f, "dir");
		for (int i = 20; i < 30; i++) {
			snprintf(name, sizeof(name), "%02d", i);
			cr_assert_eq(f.volume->ops->unlink(dir, name), 0);
		}
		fixture_put(&f, dir);
		put_files();
		fixture_finish(&f);
	}
}
