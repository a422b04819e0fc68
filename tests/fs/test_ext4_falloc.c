/* SPDX-License-Identifier: GPL-2.0-or-later */
/* fallocate's modes, seeking, copying: what each does to size, blocks and data. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <string.h>
#include <unistd.h>
#include "ext4_model.h"
#include "rcu.h"

TestSuite(ext4_falloc, .timeout = 60);

#define KEEP FALLOC_FL_KEEP_SIZE
#define PUNCH (FALLOC_FL_PUNCH_HOLE | KEEP)
#define ZERO FALLOC_FL_ZERO_RANGE

static struct fixture f;
static struct model m;

static void begin(const char *options)
{
	fixture_format(&f, 16 << 20, options);
	cr_assert(!fixture_open(&f));
	model_init(&m, &f, "file", 1 << 20, 1);
}

static void end(void)
{
	model_remount(&m);
	model_finish(&m);
	fixture_finish(&f);
}

static uint64_t kib_held(void)
{
	struct stat st;

	cr_assert(!ext4_fsync(m.node, false) && !ext4_getattr(m.node, &st));
	return st.st_blocks / 2;
}

Test(ext4_falloc, allocates_and_grows)
{
	begin("-b 1024");
	model_fallocate(&m, 0, 1000, 100000);
	cr_assert_eq(m.size, 101000);
	cr_assert_eq(kib_held(), 99);
	end();
}

Test(ext4_falloc, keeps_size)
{
	begin("-b 1024");
	model_write(&m, 0, 1500);
	model_fallocate(&m, KEEP, 0, 100 << 10);
	cr_assert_eq(kib_held(), 100);
	model_check(&m);
	/* Writing goes into it, truncating frees it. */
	model_write(&m, 50 << 10, 1 << 10);
	cr_assert_eq(kib_held(), 100);
	model_truncate(&m, 51 << 10);
	cr_assert_eq(kib_held(), 51);
	end();
}

Test(ext4_falloc, punches_whole_blocks_and_parts)
{
	begin("-b 1024");
	model_write(&m, 0, 64 << 10);
	cr_assert_eq(kib_held(), 64);
	model_fallocate(&m, PUNCH, 1000, 10000);
	model_check(&m);
	cr_assert_eq(kib_held(), 55);
	/* Delayed data, never written back */
	model_write(&m, 0, 64 << 10);
	model_fallocate(&m, PUNCH, 0, 64 << 10);
	cr_assert_eq(kib_held(), 0);
	end();
}

Test(ext4_falloc, punch_within_one_block_frees_nothing)
{
	begin("-b 4096");
	model_write(&m, 0, 12 << 10);
	model_fallocate(&m, PUNCH, 5000, 1000);
	cr_assert_eq(kib_held(), 12);
	end();
}

Test(ext4_falloc, punch_reaches_behind_the_end)
{
	begin("-b 4096");
	model_write(&m, 0, 10000);
	model_fallocate(&m, KEEP, 0, 100 << 10);
	model_fallocate(&m, PUNCH, 8192, 200 << 10);
	cr_assert_eq(m.size, 10000);
	cr_assert_eq(kib_held(), 8);
	end();
}

Test(ext4_falloc, zeroes_keeping_blocks)
{
	begin("-b 1024");
	model_write(&m, 0, 64 << 10);
	model_fallocate(&m, ZERO, 1000, 20000);
	model_check(&m);
	cr_assert_eq(kib_held(), 64);
	model_fallocate(&m, ZERO, 60 << 10, 20 << 10);
	cr_assert_eq(m.size, 80 << 10);
	cr_assert_eq(kib_held(), 80);
	model_fallocate(&m, ZERO | KEEP, 70 << 10, 20 << 10);
	cr_assert_eq(m.size, 80 << 10);
	cr_assert_eq(kib_held(), 90);
	end();
}

static void *fsync_until(void *stop)
{
	intptr_t err = 0;

	rcu_register_thread();
	while (!err && !__atomic_load_n((bool *)stop, __ATOMIC_RELAXED))
		err = filemap_write_and_wait(&m.node->mapping);
	rcu_unregister_thread();
	return (void *)err;
}

/* Data that is written back while its place becomes unwritten is no error. */
Test(ext4_falloc, zeroes_under_writeback)
{
	static char data[256 << 10];
	bool stop = false;
	struct vnode *other;
	pthread_t thread;
	void *err;

	begin("-b 1024");
	other = fixture_create(&f, "other", 0600);
	/* One extent for each block, so that a run takes its time. */
	for (size_t pos = 0; pos < sizeof(data); pos += 1024) {
		cr_assert_eq(ext4_write(m.node, pos, data, 1024, 0), 1024);
		cr_assert(!filemap_write_and_wait(&m.node->mapping));
		cr_assert_eq(ext4_write(other, pos, data, 1024, 0), 1024);
		cr_assert(!filemap_write_and_wait(&other->mapping));
	}
	fixture_put(&f, other);
	cr_assert(!pthread_create(&thread, NULL, fsync_until, &stop));
	for (int i = 0; i < 600; i++) {
		cr_assert_eq(ext4_write(m.node, 0, data, sizeof(data), 0),
			     (ssize_t)sizeof(data));
		usleep(i % 400);
		cr_assert(!ext4_fallocate(m.node, ZERO, 0, sizeof(data)));
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	cr_assert(!pthread_join(thread, &err));
	cr_expect_eq((intptr_t)err, 0);
	m.size = sizeof(data);
	end();
}

Test(ext4_falloc, without_extents_only_holes)
{
	begin("-t ext2 -b 1024");
	model_write(&m, 0, 64 << 10);
	cr_assert_eq(ext4_fallocate(m.node, 0, 0, 4096), -EOPNOTSUPP);
	cr_assert_eq(ext4_fallocate(m.node, ZERO, 0, 4096), -EOPNOTSUPP);
	model_fallocate(&m, PUNCH, 10 << 10, 40 << 10);
	/* The indirect block stays for the end. */
	cr_assert_eq(kib_held(), 25);
	model_fallocate(&m, PUNCH, 10 << 10, 60 << 10);
	cr_assert_eq(kib_held(), 10);
	end();
}

struct bad {
	int mode;
	loff_t pos, len;
	int err;
};

ParameterizedTestParameters(ext4_falloc, refuses)
{
	static struct bad bads[] = {
		{ 0, -1, 10, -EINVAL },
		{ 0, 0, 0, -EINVAL },
		{ FALLOC_FL_PUNCH_HOLE, 0, 10, -EOPNOTSUPP },
		{ PUNCH | ZERO, 0, 10, -EOPNOTSUPP },
		{ FALLOC_FL_COLLAPSE_RANGE, 0, 4096, -EOPNOTSUPP },
		{ 0, INT64_MAX - 5, 10, -EFBIG },
		{ 0, 1LL << 50, 10, -EFBIG },
		{ 0, 0, 1 << 30, -ENOSPC },
	};

	return cr_make_param_array(struct bad, bads, sizeof(bads) / sizeof(bads[0]));
}

ParameterizedTest(struct bad *bad, ext4_falloc, refuses)
{
	begin("");
	model_write(&m, 0, 100);
	cr_assert_eq(ext4_fallocate(m.node, bad->mode, bad->pos, bad->len), bad->err);
	end();
}

Test(ext4_falloc, seek_finds_delayed_data_and_holes)
{
	begin("-b 4096");
	model_write(&m, 100 << 10, 4096);
	model_truncate(&m, 200 << 10);
	cr_assert_eq(ext4_seek(m.node, 0, VSEEK_DATA), 100 << 10);
	cr_assert_eq(ext4_seek(m.node, 0, VSEEK_HOLE), 0);
	cr_assert_eq(ext4_seek(m.node, 101 << 10, VSEEK_DATA), 101 << 10);
	cr_assert_eq(ext4_seek(m.node, 101 << 10, VSEEK_HOLE), 104 << 10);
	cr_assert_eq(ext4_seek(m.node, 104 << 10, VSEEK_DATA), -ENXIO);
	cr_assert_eq(ext4_seek(m.node, 150 << 10, VSEEK_HOLE), 150 << 10);
	cr_assert_eq(ext4_seek(m.node, 200 << 10, VSEEK_HOLE), -ENXIO);
	/* Unwritten blocks are a hole. */
	model_fallocate(&m, 0, 0, 200 << 10);
	cr_assert_eq(ext4_seek(m.node, 0, VSEEK_DATA), 100 << 10);
	cr_assert_eq(ext4_seek(m.node, 100 << 10, VSEEK_HOLE), 104 << 10);
	end();
}

/* What the image has behind the end of a file in its last block must not come up. */
Test(ext4_falloc, growth_shows_zeros)
{
	struct map_extent ext;
	char junk[4096];

	begin("-b 4096");
	model_write(&m, 0, 5000);
	cr_assert(!ext4_fsync(m.node, false));
	cr_assert(!map_find(EXT4_I(m.node), 1, &ext));
	model_remount(&m);
	memset(junk, 'j', sizeof(junk));
	cr_assert_eq(pwrite(f.fd, junk, 4096 - 904, ext.pblk * 4096 + 904), 4096 - 904);
	model_truncate(&m, 6000);
	model_check(&m);
	model_write(&m, 8000, 10);
	model_remount(&m);
	model_check(&m);
	end();
}

Test(ext4_falloc, copy_ends_at_the_source_end)
{
	struct vnode *other;
	char buf[100];

	begin("");
	model_write(&m, 0, 300000);
	other = fixture_create(&f, "other", 0600);
	cr_assert_eq(ext4_copy_range(m.node, 100, other, 5000, 1 << 20), 299900);
	cr_assert_eq(mapping_size(&other->mapping), 304900);
	cr_assert_eq(filemap_read(&other->mapping, 304800, buf, 100), 100);
	cr_assert(!memcmp(buf, m.data + 299900, 100));
	cr_assert_eq(filemap_read(&other->mapping, 4990, buf, 20), 20);
	cr_assert(!memcmp(buf, "\0\0\0\0\0\0\0\0\0\0", 10) && !memcmp(buf + 10, m.data + 100, 10));
	cr_assert_eq(ext4_copy_range(m.node, 300000, other, 0, 10), 0);
	fixture_put(&f, other);
	end();
}

Test(ext4_falloc, copy_within_a_file_does_not_follow_its_end)
{
	begin("");
	model_write(&m, 0, 10000);
	cr_assert_eq(ext4_copy_range(m.node, 9000, m.node, 20000, 50000), 1000);
	cr_assert_eq(mapping_size(&m.node->mapping), 21000);
	model_truncate(&m, 10000);
	end();
}
