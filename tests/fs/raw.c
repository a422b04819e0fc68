/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The raw volume on an image that fails when told to. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include "fault_image.h"
#include "rcu.h"
#include "volume.h"

#define CACHE_BYTES (4UL << 20)

static struct fault_image *fault;
static struct cache *cache;
static struct volume *volume;
static struct vnode *root, *file;
static size_t readahead_bytes; /* of the cache that open_raw() makes */

static void open_raw(uint64_t size, bool readonly)
{
	static struct options options;
	const struct cache_config config = {.bytes = CACHE_BYTES, .readahead_bytes = readahead_bytes};

	rcu_register_thread();
	fault = fault_image_create(size);
	for (uint64_t i = 0; i < size; i++)
		fault->data[i] = i * 7 + i / 4096;
	options.ro = readonly;
	cr_assert_eq(cache_create(&cache, &config), 0);
	cr_assert_eq(raw_open(&volume, &fault->image, cache, &options), 0);
	root = volume->ops->root(volume);
	cr_assert_eq(volume->ops->lookup(root, "fault.img", &file), 0);
}

static int close_raw(void)
{
	int ret = volume->ops->close(volume);

	cache_destroy(cache);
	image_close(&fault->image);
	return ret;
}

static void expect_same(uint64_t pos, const unsigned char *buf, size_t len)
{
	for (size_t i = 0; i < len; i++)
		cr_assert_eq(buf[i], (unsigned char)((pos + i) * 7 + (pos + i) / 4096));
}

static bool emit_names(void *arg, const char *name, size_t namelen, uint64_t ino, unsigned int type,
		       uint64_t next)
{
	strncat(arg, name, namelen);
	strcat(arg, type == DT_DIR ? "/ " : " ");
	return true;
}

Test(raw, one_file_of_the_images_name)
{
	char names[64] = "";
	struct vnode *none;
	struct stat st;

	open_raw(100000, false);
	cr_assert_eq(volume->ops->readdir(root, 0, emit_names, names), 0);
	cr_expect_str_eq(names, "./ ../ fault.img ");
	names[0] = '\0';
	cr_assert_eq(volume->ops->readdir(root, 2, emit_names, names), 0);
	cr_expect_str_eq(names, "fault.img ");
	cr_expect_eq(volume->ops->lookup(root, "other", &none), -ENOENT);
	cr_assert_eq(volume->ops->getattr(file, &st), 0);
	cr_expect(S_ISREG(st.st_mode));
	cr_expect_eq(st.st_size, 100000);
	cr_expect_eq(close_raw(), 0);
}

Test(raw, reads_what_the_image_holds)
{
	unsigned char buf[10000];

	open_raw(100000, false);
	cr_assert_eq(filemap_read(&file->mapping, 4000, buf, 10000), 10000);
	expect_same(4000, buf, 10000);
	cr_assert_eq(filemap_read(&file->mapping, 95000, buf, 10000), 5000);
	expect_same(95000, buf, 5000);
	cr_expect_eq(filemap_read(&file->mapping, 100000, buf, 1), 0);
	cr_expect_eq(close_raw(), 0);
}

Test(raw, writes_reach_the_image_with_fsync)
{
	unsigned char buf[9000];

	memset(buf, 0xaa, sizeof(buf));
	open_raw(100000, false);
	fault_image_track_durable(fault);
	cr_assert_eq(volume->ops->write(file, 5000, buf, sizeof(buf), 0), sizeof(buf));
	cr_assert_eq(volume->ops->fsync(file, false), 0);
	expect_same(0, fault->durable, 5000);
	cr_expect_arr_eq(fault->durable + 5000, buf, sizeof(buf));
	expect_same(14000, fault->durable + 14000, 86000);
	cr_expect_eq(close_raw(), 0);
}

Test(raw, last_page_is_written_up_to_the_end_only)
{
	unsigned char buf[500];

	memset(buf, 0xaa, sizeof(buf));
	open_raw(8192 + 700, false);
	cr_assert_eq(volume->ops->write(file, 8192 + 200, buf, 500, 0), 500);
	cr_assert_eq(volume->ops->fsync(file, false), 0);
	cr_expect_arr_eq(fault->data + 8192 + 200, buf, 500);
	cr_expect_eq(fault->bytes[FAULT_WRITE], 700);
	cr_expect_eq(close_raw(), 0);
}

Test(raw, size_is_fixed)
{
	struct stat st = {.st_size = 5};
	struct cred cred = {0};
	char buf[100] = "";

	open_raw(8192, false);
	cr_expect_eq(volume->ops->write(file, 8192, buf, 100, 0), -ENOSPC);
	cr_expect_eq(volume->ops->write(file, 8150, buf, 100, 0), 42);
	cr_expect_eq(volume->ops->setattr(file, &st, VATTR_SIZE, &cred), -EPERM);
	cr_expect_eq(volume->ops->setattr(file, &st, VATTR_MODE, &cred), -EPERM);
	cr_expect_eq(mapping_size(&file->mapping), 8192);
	cr_expect_null(volume->ops->unlink);
	cr_expect_eq(close_raw(), 0);
}

Test(raw, readonly_takes_no_write)
{
	char byte = 1;

	open_raw(8192, true);
	cr_expect(volume->readonly);
	cr_expect_eq(volume->ops->write(file, 0, &byte, 1, 0), -EROFS);
	cr_expect_eq(close_raw(), 0);
	/* The image itself is closed: nothing to look at, and nothing was written. */
}

Test(raw, failed_read_is_an_error_there_alone)
{
	unsigned char buf[4096];

	open_raw(1 << 20, false);
	fault_image_fail(fault, FAULT_READ, 40960, 45056, -EIO, -1);
	cr_expect_eq(filemap_read(&file->mapping, 40960, buf, 4096), -EIO);
	cr_expect_eq(filemap_read(&file->mapping, 36864, buf, 4096), 4096);
	cr_expect_eq(filemap_read(&file->mapping, 45056, buf, 4096), 4096);
	fault_image_heal(fault);
	cr_expect_eq(filemap_read(&file->mapping, 40960, buf, 4096), 4096);
	expect_same(40960, buf, 4096);
	cr_expect_eq(close_raw(), 0);
}

Test(raw, failed_write_is_told_once_and_tried_again)
{
	unsigned char buf[4096];
	errseq_t since;

	memset(buf, 0xbb, sizeof(buf));
	open_raw(1 << 20, false);
	since = filemap_sample_wb_err(&file->mapping);
	fault_image_fail(fault, FAULT_WRITE, 8192, 12288, -EIO, -1);
	cr_assert_eq(volume->ops->write(file, 8192, buf, 4096, 0), 4096);
	volume->ops->fsync(file, false);
	cr_expect_eq(filemap_check_wb_err(&file->mapping, &since), -EIO);
	cr_expect_eq(filemap_check_wb_err(&file->mapping, &since), 0);
	fault_image_heal(fault);
	volume->ops->fsync(file, false);
	cr_expect_arr_eq(fault->data + 8192, buf, 4096);
	close_raw();
}

Test(raw, failed_flush_is_told_to_every_open_file_once)
{
	struct open_errors one, two;

	open_raw(8192, false);
	fault_image_fail(fault, FAULT_FLUSH, 0, 1, -EIO, 1);
	volume_open_errors(file, &one);
	volume_open_errors(file, &two);
	cr_expect_eq(volume_fsync(file, false, &one), -EIO);
	cr_expect_eq(volume_fsync(file, false, &one), 0);
	cr_expect_eq(volume_fsync(file, false, &two), -EIO);
	cr_expect_eq(volume_fsync(file, false, &two), 0);
	cr_expect_eq(close_raw(), 0);
}

Test(raw, close_writes_and_tells_of_errors)
{
	char byte = 1;

	open_raw(8192, false);
	cr_assert_eq(volume->ops->write(file, 0, &byte, 1, 0), 1);
	fault_image_fail(fault, FAULT_WRITE, 0, 8192, -EIO, -1);
	cr_expect_eq(close_raw(), -EIO);
}

/* Twelve times the cache, so that folios are reclaimed and written while more are dirtied. */
Test(raw, larger_than_the_cache)
{
	enum { SIZE = 48 << 20, STEP = 40000 };
	static unsigned char buf[STEP], back[STEP];
	struct cache_stats stats;

	open_raw(SIZE, false);
	for (loff_t pos = 0; pos + STEP <= SIZE; pos += STEP) {
		memset(buf, pos / STEP, STEP);
		cr_assert_eq(volume->ops->write(file, pos, buf, STEP, 0), STEP);
	}
	for (loff_t pos = 0; pos + STEP <= SIZE; pos += STEP) {
		memset(buf, pos / STEP, STEP);
		cr_assert_eq(filemap_read(&file->mapping, pos, back, STEP), STEP);
		cr_assert_arr_eq(back, buf, STEP);
	}
	cache_get_stats(cache, &stats);
	cr_expect_leq(stats.used_bytes, CACHE_BYTES);
	cr_expect_gt(stats.evictions, 0);
	cr_expect_eq(close_raw(), 0);
}

/* Reads all in pieces, as one open file; the block at @bad cannot be read (-1: all can). */
static void read_through(struct file_ra *ra, loff_t bad)
{
	static unsigned char buf[16384];
	loff_t pos, end, size = mapping_size(&file->mapping);

	for (pos = 0; pos < size; pos = end) {
		ssize_t n;

		end = pos + (loff_t)sizeof(buf);
		end = end < size ? end : size;
		if (bad >= pos && bad < end)
			end = bad == pos ? pos + 4096 : bad;
		n = filemap_read_ra(&file->mapping, ra, pos, buf, end - pos);
		cr_assert_eq(n, bad == pos ? -EIO : end - pos, "at %ld: %zd", (long)pos, n);
		if (n > 0)
			expect_same(pos, buf, n);
	}
}

/* Bytes that the image cannot give are an error for who asks for them, and no one else. */
Test(raw, readahead_over_a_bad_block)
{
	struct file_ra ra;

	readahead_bytes = 256 << 10;
	open_raw(3 << 20, false);
	file_ra_init(&ra);
	fault_image_fail(fault, FAULT_READ, 1 << 20, (1 << 20) + 4096, -EIO, -1);
	read_through(&ra, 1 << 20);
	fault_image_heal(fault);
	read_through(&ra, -1);
	file_ra_finish(&ra);
	cr_assert_eq(close_raw(), 0);
}

/* Whichever transfer it is that fails once: nobody notices. */
Test(raw, windows_that_fail_are_read_again)
{
	for (uint64_t at = 0; at < 2 << 20; at += 300000) {
		struct file_ra ra;

		readahead_bytes = 256 << 10;
		open_raw(2 << 20, false);
		file_ra_init(&ra);
		fault_image_fail(fault, FAULT_READ, at, at + 1, -EIO, 1);
		read_through(&ra, -1);
		file_ra_finish(&ra);
		cr_assert_eq(close_raw(), 0);
	}
}
