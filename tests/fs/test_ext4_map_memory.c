/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Maps in memory: what is loaded, what is one range, what gives way, and what becomes of it when
 * there is no memory. And that blocks which have left a map are nothing else's any more.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/types.h>
#include <ext2fs/ext3_extents.h>
#include <string.h>
#include <unistd.h>
#include "ext4_model.h"
#include "map.h"
#include "mt_internal.h"

TestSuite(ext4_map_memory, .timeout = 60);

#define PUNCH (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)
#define WINDOW_MOST 300		/* ranges; more than one window has */

struct kind {
	char options[64];
	unsigned int block;
};

static struct kind kinds[] = {
	{ "-b 1024", 1024 },
	{ "-b 4096", 4096 },
	{ "-t ext2 -b 1024", 1024 },
	{ "-t ext3 -b 4096", 4096 },
};

#define KINDS cr_make_param_array(struct kind, kinds, sizeof(kinds) / sizeof(kinds[0]))

static struct fixture f;
static struct model m;

static void begin(const struct kind *kind, loff_t limit)
{
	fixture_format(&f, 64 << 20, kind->options);
	cr_assert(!fixture_open(&f));
	model_init(&m, &f, "file", limit, 1);
}

static void end(void)
{
	model_remount(&m);
	model_finish(&m);
	fixture_finish(&f);
}

/* A file with @nr extents of one block, each behind a hole. */
static void begin_sparse(const struct kind *kind, unsigned int nr)
{
	begin(kind, (loff_t)2 * nr * kind->block);
	for (unsigned int i = 0; i < nr; i++)
		model_write(&m, ((loff_t)2 * i + 1) * kind->block, kind->block);
	model_remount(&m);
}

static unsigned int ranges_of(struct model *model)
{
	return EXT4_I(model->node)->map.ranges;
}

static unsigned long ranges_in_all(void)
{
	return fixture_vol(&f)->map_ranges;
}

static void read_byte(loff_t pos)
{
	unsigned char byte;

	cr_assert_eq(filemap_read(&m.node->mapping, pos, &byte, 1), 1);
	cr_assert_eq(byte, m.data[pos]);
}

ParameterizedTestParameters(ext4_map_memory, a_window_is_loaded_where_it_is_looked_at)
{
	return KINDS;
}

ParameterizedTest(struct kind *kind, ext4_map_memory, a_window_is_loaded_where_it_is_looked_at)
{
	unsigned int nr = 2500, before;

	begin_sparse(kind, nr);
	cr_expect_eq(ranges_of(&m), 0);
	read_byte((loff_t)nr * kind->block);
	before = ranges_of(&m);
	cr_expect_gt(before, 0);
	cr_expect_lt(before, WINDOW_MOST);
	read_byte((loff_t)(2 * nr - 1) * kind->block);
	cr_expect_gt(ranges_of(&m), before);
	cr_expect_lt(ranges_of(&m), 2 * WINDOW_MOST);
	model_check(&m);
	cr_expect_eq(ranges_of(&m), 2 * nr + 1, "the hole behind the end, and nothing twice");
	end();
}

ParameterizedTestParameters(ext4_map_memory, maps_give_way)
{
	return KINDS;
}

/* Two files that take turns, with room for a part of one. Each look brings back what it needs. */
ParameterizedTest(struct kind *kind, ext4_map_memory, maps_give_way)
{
	unsigned int nr = 2000, limit = 2000;
	struct vnode *other;
	char buf[4096];

	begin_sparse(kind, nr);
	fixture_vol(&f)->map_limit = limit;
	other = fixture_create(&f, "other", 0600);
	for (unsigned int i = 0; i < nr; i++) {
		loff_t pos = (loff_t)(i * 7 % nr * 2 + 1) * kind->block;

		read_byte(pos);
		memset(buf, i, sizeof(buf));
		cr_assert_eq(ext4_write(other, pos, buf, kind->block, 0), kind->block);
		cr_assert_leq(ranges_in_all(), limit);
	}
	cr_expect(!ext4_fsync(other, false));
	for (unsigned int i = 0; i < nr; i++) {
		loff_t pos = (loff_t)(i * 7 % nr * 2 + 1) * kind->block;

		cr_assert_eq(filemap_read(&other->mapping, pos, buf, 1), 1);
		cr_assert_eq(buf[0], (char)i);
		cr_assert_leq(ranges_in_all(), limit);
	}
	model_check(&m);
	fixture_put(&f, other);
	end();
}

/* However many extents and however many steps it took: what lies in one piece is one range. */
Test(ext4_map_memory, side_by_side_is_one_range)
{
	unsigned int nr = 200;

	begin(&kinds[0], (loff_t)4 * nr << 10);
	model_fallocate(&m, 0, 0, (loff_t)2 * nr << 10);
	for (unsigned int i = 0; i < nr; i++) {
		model_write(&m, (loff_t)(i * 7 % nr) << 10, 1024);
		cr_assert(!ext4_fsync(m.node, false));
	}
	cr_expect_eq(ranges_of(&m), 3, "written, unwritten, nothing: %u", ranges_of(&m));
	for (unsigned int i = nr; i < 4 * nr; i++) {
		model_write(&m, (loff_t)i << 10, 1024);
		cr_assert(!ext4_fsync(m.node, false));
	}
	cr_expect_leq(ranges_of(&m), 4, "%u", ranges_of(&m));
	end();
}

ParameterizedTestParameters(ext4_map_memory, a_change_needs_no_memory)
{
	return KINDS;
}

/* What has been changed on the image stays, whether there is memory to note it or not. */
ParameterizedTest(struct kind *kind, ext4_map_memory, a_change_needs_no_memory)
{
	unsigned int nr = 600, failed = 0;

	begin_sparse(kind, nr);
	for (unsigned int i = 0; i < nr; i += 3) {
		loff_t pos = (loff_t)(2 * i + 1) * kind->block;
		int err;

		node_pool_fail(&mt_node_pool, 1 + i % 5, 1 + i % 4);
		err = ext4_fallocate(m.node, PUNCH, pos, kind->block);
		node_pool_fail(&mt_node_pool, 0, 0);
		if (!err)
			memset(m.data + pos, 0, kind->block);
		else
			cr_assert_eq(err, -ENOMEM);
		failed += !!err;
	}
	cr_expect_lt(failed, nr / 3);
	model_check(&m);
	end();
}

/* Blocks of the image that hold the map of the file, not its data. */
static unsigned int map_blocks(uint64_t *blocks, unsigned int most)
{
	struct ext4_inode *inode = EXT4_I(m.node);
	unsigned int nr = 0;

	for (uint64_t blk = 1; blk < ext2fs_blocks_count(fixture_vol(&f)->fs->super); blk++) {
		struct ext3_extent_header eh;

		if (pread(f.fd, &eh, sizeof(eh), blk << inode->vn.mapping.block_shift) !=
			    sizeof(eh) ||
		    eh.eh_magic != EXT3_EXT_MAGIC || !eh.eh_entries || nr == most)
			continue;
		if (ext2fs_test_block_bitmap2(fixture_vol(&f)->fs->block_map, blk))
			blocks[nr++] = blk;
	}
	return nr;
}

static bool cached(uint64_t blk)
{
	struct mapping *device = &fixture_vol(&f)->device;
	loff_t pos = blk << device->block_shift;
	void *entry = xa_load(&device->i_pages, pos >> PAGE_SHIFT);

	return entry && !xa_is_value(entry) &&
	       folio_range_valid(entry, pos - folio_pos(entry), 1 << device->block_shift);
}

/* Freed blocks of a tree are nothing to the image's own cache, clean or dirty. */
Test(ext4_map_memory, freed_map_blocks_leave_no_stale_folio)
{
	uint64_t blocks[64];
	unsigned int nr, were = 0;

	begin_sparse(&kinds[0], 2000);
	model_write(&m, 0, 1024);
	cr_assert(!ext4_fsync(m.node, false));
	nr = map_blocks(blocks, 64);
	cr_assert_gt(nr, 20);
	model_check(&m);
	/* Some of them are dirty when they go. */
	for (unsigned int i = 0; i < 40; i++)
		model_fallocate(&m, PUNCH, (loff_t)(100 * i + 1) << 10, 1024);
	for (unsigned int i = 0; i < nr; i++)
		were += cached(blocks[i]);
	cr_expect_gt(were, 10);
	model_truncate(&m, 0);
	for (unsigned int i = 0; i < nr; i++)
		cr_expect_not(cached(blocks[i]), "block %lu", (unsigned long)blocks[i]);
	/* They become data, which a late write of what they were would spoil. */
	model_write(&m, 0, 2 << 20);
	cr_assert(!ext4_fsync(m.node, false));
	end();
}
