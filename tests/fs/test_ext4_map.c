/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Block maps that are not simple: many extents, deep trees, all levels of indirect blocks, the
 * largest sizes, and damage.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <linux/falloc.h>
#include <fcntl.h>
#include <linux/types.h>
#include <ext2fs/ext3_extents.h>
#include <string.h>
#include <unistd.h>
#include "ext4_model.h"

TestSuite(ext4_map, .timeout = 60);

struct kind {
	char options[64];
	unsigned int block;
	bool extents;
};

static struct kind kinds[] = {
	{ "-b 1024", 1024, true },
	{ "-b 4096 -O ^metadata_csum", 4096, true },
	{ "-t ext2 -b 1024", 1024, false },
	{ "-t ext3 -b 4096", 4096, false },
};

#define KINDS cr_make_param_array(struct kind, kinds, sizeof(kinds) / sizeof(kinds[0]))

static void begin(struct fixture *f, struct model *m, const struct kind *kind, loff_t limit)
{
	fixture_format(f, 64 << 20, kind->options);
	cr_assert(!fixture_open(f));
	model_init(m, f, "file", limit, 1);
}

/* Pieces of the file on the image: each begins where the one before does not go on. */
static unsigned int pieces_of(struct model *m)
{
	struct map_extent found = { 0 };
	unsigned int nr = 0;

	cr_assert(!ext4_fsync(m->node, false));
	for (uint64_t lblk = 0; lblk < UINT32_MAX; lblk += found.len) {
		cr_assert(!map_find(EXT4_I(m->node), lblk, &found) && found.len);
		nr += found.pblk != 0;
	}
	return nr;
}

static uint64_t blocks_of(struct model *m)
{
	struct stat st;

	cr_assert(!ext4_fsync(m->node, false) && !ext4_getattr(m->node, &st));
	return st.st_blocks;
}

static void end(struct fixture *f, struct model *m)
{
	model_remount(m);
	model_check(m);
	model_truncate(m, 0);
	cr_assert_eq(blocks_of(m), 0);
	model_finish(m);
	fixture_finish(f);
}

ParameterizedTestParameters(ext4_map, every_other_block)
{
	return KINDS;
}

ParameterizedTest(struct kind *kind, ext4_map, every_other_block)
{
	unsigned int bs = kind->block, nr = 2000;
	struct fixture f;
	struct model m;

	begin(&f, &m, kind, (loff_t)2 * nr * bs);
	for (unsigned int i = 0; i < nr; i++)
		model_write(&m, (loff_t)2 * i * bs, bs);
	cr_assert_eq(pieces_of(&m), nr);
	model_remount(&m);
	model_check(&m);
	for (unsigned int i = 0; i < nr; i++)
		model_write(&m, ((loff_t)2 * ((i * 7) % nr) + 1) * bs, bs);
	cr_assert_geq(pieces_of(&m), 1);
	end(&f, &m);
}

ParameterizedTestParameters(ext4_map, punched_full_of_holes)
{
	return KINDS;
}

ParameterizedTest(struct kind *kind, ext4_map, punched_full_of_holes)
{
	unsigned int bs = kind->block, nr = 3000;
	struct fixture f;
	struct model m;

	begin(&f, &m, kind, (loff_t)nr * bs);
	model_write(&m, 0, nr * bs);
	cr_assert_lt(pieces_of(&m), 40);
	for (unsigned int i = 0; i < nr; i += 3)
		model_fallocate(&m, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (loff_t)i * bs, bs);
	cr_assert_geq(pieces_of(&m), nr / 3 - 1);
	model_remount(&m);
	/* From the middle outwards: leaves empty and go. */
	for (unsigned int i = 100; i < nr / 2; i += 200)
		model_fallocate(&m, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				(loff_t)(nr / 2 - i) * bs, (loff_t)2 * i * bs);
	model_remount(&m);
	model_check(&m);
	cr_assert_lt(pieces_of(&m), nr / 10);
	end(&f, &m);
}

ParameterizedTestParameters(ext4_map, backwards)
{
	return KINDS;
}

ParameterizedTest(struct kind *kind, ext4_map, backwards)
{
	unsigned int bs = kind->block, nr = 600;
	struct fixture f;
	struct model m;

	begin(&f, &m, kind, (loff_t)nr * bs);
	for (unsigned int i = nr; i--;) {
		model_write(&m, (loff_t)i * bs, bs);
		if (i % 16 == 0)
			cr_assert(!ext4_fsync(m.node, false));
	}
	end(&f, &m);
}

/* Preallocated blocks read as zeros, and become written one by one. */
Test(ext4_map, preallocation_is_split)
{
	unsigned int bs = 1024, nr = 2000;
	struct fixture f;
	struct model m;

	begin(&f, &m, &kinds[0], (loff_t)nr * bs);
	model_fallocate(&m, 0, 0, nr * bs);
	cr_assert_leq(pieces_of(&m), 4);
	model_check(&m);
	for (unsigned int i = 0; i < nr; i += 4)
		model_write(&m, (loff_t)i * bs, bs);
	cr_assert_geq(pieces_of(&m), nr / 4);
	model_remount(&m);
	model_check(&m);
	for (unsigned int i = 0; i < nr; i++)
		model_write(&m, (loff_t)i * bs, bs);
	cr_assert_leq(pieces_of(&m), 4, "neighbours are not joined");
	end(&f, &m);
}

/* Far positions of a sparse file: each level of indirect blocks, and the last byte there can be. */
ParameterizedTestParameters(ext4_map, far_positions)
{
	return KINDS;
}

ParameterizedTest(struct kind *kind, ext4_map, far_positions)
{
	uint64_t p = kind->block / 4;
	uint64_t at[] = { 0, 11, 12, 12 + p - 1, 12 + p, 12 + p + p * p - 1, 12 + p + p * p, 0 };
	unsigned int nr = sizeof(at) / sizeof(at[0]);
	struct fixture f;
	struct vnode *node;
	char byte;

	fixture_format(&f, 16 << 20, kind->options);
	cr_assert(!fixture_open(&f));
	node = fixture_create(&f, "file", 0600);
	at[nr - 1] = ext4_max_size(EXT4_I(node)) / kind->block - 1;
	for (unsigned int i = 0; i < nr; i++)
		cr_assert_eq(ext4_write(node, at[i] * kind->block, &"abcdefgh"[i], 1, 0),
			     1);
	cr_assert_eq(ext4_write(node, ext4_max_size(EXT4_I(node)), "x", 1, 0), -EFBIG);
	cr_assert_eq(ext4_write(node, ext4_max_size(EXT4_I(node)) - 1, "xy", 2, 0), 1);
	fixture_put(&f, node);
	cr_assert(!fixture_close(&f) && !fixture_fsck(&f) && !fixture_open(&f));
	node = fixture_find(&f, "file");
	for (unsigned int i = 0; i < nr; i++) {
		cr_assert_eq(filemap_read(&node->mapping, at[i] * kind->block, &byte, 1), 1);
		cr_assert_eq(byte, "abcdefgh"[i], "position %u", i);
	}
	for (unsigned int i = 0; i + 1 < nr; i++) {
		cr_assert_eq(ext4_seek(node, at[i] * kind->block, VSEEK_DATA), at[i] * kind->block);
		cr_assert_eq(ext4_seek(node, at[i] * kind->block + kind->block, VSEEK_DATA),
			     at[i + 1] * kind->block);
	}
	fixture_put(&f, node);
	fixture_finish(&f);
}

/*
 * Damage
 */

static uint64_t first_block_of(struct fixture *f, const char *path, unsigned int slot)
{
	struct vnode *node = fixture_find(f, path);
	struct ext4_inode *inode = EXT4_I(node);
	uint64_t blk = inode->raw.i_block[slot];

	fixture_put(f, node);
	return blk;
}

/* What is done to a block of the map, of @bs bytes, that is block @at of the image. */
enum damage { NO_MAGIC, DEPTH, TOO_MANY, NO_ENTRIES, ORDER, OUTSIDE, LENGTH_0, ITSELF, DAMAGES };

static void damage_leaf(char *block, enum damage damage)
{
	struct ext3_extent_header *eh = (void *)block;
	struct ext3_extent *ex = EXT_FIRST_EXTENT(eh);

	switch (damage) {
	case NO_MAGIC:
		eh->eh_magic = 0;
		break;
	case DEPTH:
	case ITSELF:
		eh->eh_depth = 7;
		break;
	case TOO_MANY:
		eh->eh_entries = 60000;
		break;
	case NO_ENTRIES:
		eh->eh_entries = 0;
		break;
	case ORDER:
		ex[1].ee_block = 0;
		break;
	case OUTSIDE:
		ex[1].ee_start = 0xfffffff0;
		break;
	case LENGTH_0:
		ex[1].ee_len = 0;
		break;
	default:
		break;
	}
}

static void change_block(struct fixture *f, uint64_t blk, enum damage damage)
{
	char block[1024];

	cr_assert_eq(pread(f->fd, block, sizeof(block), blk * 1024), 1024);
	damage_leaf(block, damage);
	cr_assert_eq(pwrite(f->fd, block, sizeof(block), blk * 1024), 1024);
}

static void write_sparse(struct fixture *f, const char *path, unsigned int nr)
{
	struct vnode *node = fixture_create(f, path, 0600);

	for (unsigned int i = 0; i < nr; i++)
		cr_assert_eq(ext4_write(node, (loff_t)i * 4096, "data", 4, 0), 4);
	cr_assert(!ext4_fsync(node, false));
	fixture_put(f, node);
}

/* The damaged file fails, whatever is tried; the other one does not notice. */
static void use_damaged(struct fixture *f, loff_t pos)
{
	struct vnode *node = fixture_find(f, "bad"), *good = fixture_find(f, "good"), *root;
	struct stat st = { .st_size = 5000 };
	char byte;

	cr_assert_eq(filemap_read(&node->mapping, pos, &byte, 1), -EUCLEAN);
	cr_assert_eq(ext4_write(node, pos, "x", 1, 0), -EUCLEAN);
	cr_assert_eq(ext4_seek(node, pos, VSEEK_DATA), -EUCLEAN);
	cr_assert_lt(ext4_setattr(node, &st, VATTR_SIZE, &fixture_root), 0);
	cr_assert_eq(filemap_read(&good->mapping, 4096, &byte, 1), 1);
	cr_assert_eq(byte, 'd');
	root = fixture_find(f, "");
	cr_assert(!ext4_unlink(root, "bad"));
	fixture_put(f, root);
	fixture_put(f, node);
	fixture_put(f, good);
}

ParameterizedTestParameters(ext4_map, damaged_tree)
{
	static int damages[DAMAGES];

	for (int i = 0; i < DAMAGES; i++)
		damages[i] = i;
	return cr_make_param_array(int, damages, DAMAGES);
}

ParameterizedTest(int *damage, ext4_map, damaged_tree)
{
	struct fixture f;
	uint64_t leaf;

	fixture_format(&f, 16 << 20, "-b 1024 -O ^metadata_csum");
	cr_assert(!fixture_open(&f));
	write_sparse(&f, "bad", 40);
	write_sparse(&f, "good", 40);
	leaf = first_block_of(&f, "bad", 4);
	cr_assert(!fixture_close(&f));
	change_block(&f, leaf, *damage);
	cr_assert(!fixture_open(&f));
	use_damaged(&f, 0);
	fixture_close(&f);
	fixture_drop(&f);
}

Test(ext4_map, checksum_of_a_leaf)
{
	struct fixture f;
	uint64_t leaf;
	char c;

	fixture_format(&f, 16 << 20, "-b 1024 -O metadata_csum");
	cr_assert(!fixture_open(&f));
	write_sparse(&f, "bad", 40);
	write_sparse(&f, "good", 40);
	leaf = first_block_of(&f, "bad", 4);
	cr_assert(!fixture_close(&f));
	cr_assert_eq(pread(f.fd, &c, 1, leaf * 1024 + 20), 1);
	c ^= 1;
	cr_assert_eq(pwrite(f.fd, &c, 1, leaf * 1024 + 20), 1);
	cr_assert(!fixture_open(&f));
	use_damaged(&f, 0);
	fixture_close(&f);
	fixture_drop(&f);
}

/* Pointers in a circle end somewhere, and freeing the same block again and again is noticed. */
static void use_looped(struct fixture *f)
{
	struct vnode *node = fixture_find(f, "bad");
	struct stat st = { .st_size = 0 };
	char byte;

	filemap_read(&node->mapping, 300 << 10, &byte, 1);
	ext4_setattr(node, &st, VATTR_SIZE, &fixture_root);
	cr_assert(fixture_vol(f)->fs->super->s_state & EXT2_ERROR_FS);
	fixture_put(f, node);
}

/* An indirect block that holds a pointer out of the image, or to itself. */
ParameterizedTestParameters(ext4_map, damaged_indirect)
{
	static int loops[] = { 0, 1 };

	return cr_make_param_array(int, loops, 2);
}

ParameterizedTest(int *loop, ext4_map, damaged_indirect)
{
	uint32_t pointers[256];
	struct fixture f;
	uint64_t blk;

	fixture_format(&f, 16 << 20, "-t ext2 -b 1024");
	cr_assert(!fixture_open(&f));
	write_sparse(&f, "bad", 200);
	write_sparse(&f, "good", 200);
	blk = first_block_of(&f, "bad", *loop ? EXT2_DIND_BLOCK : EXT2_IND_BLOCK);
	cr_assert(!fixture_close(&f));
	for (int i = 0; i < 256; i++)
		pointers[i] = *loop ? blk : 0xfffffff0;
	cr_assert_eq(pwrite(f.fd, pointers, sizeof(pointers), blk * 1024), 1024);
	cr_assert(!fixture_open(&f));
	if (*loop)
		use_looped(&f);
	else
		use_damaged(&f, 16 << 10);
	fixture_close(&f);
	fixture_drop(&f);
}
