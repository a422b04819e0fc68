/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Directories: many names, block sizes, linear and htree to its full depth, readdir's cookies,
 * inline directories, damage. What e2fsck says is the last word in each.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ext4/dir.h"
#include "ext4_fixture.h"

TestSuite(ext4_dir, .timeout = 120);

static const char pad[] =
	"a-long-tail-for-names-that-are-to-fill-blocks-soon-and-have-many-lengths-"
	"a-long-tail-for-names-that-are-to-fill-blocks-soon-and-have-many-lengths-"
	"a-long-tail-for-names-that-are-to-fill-blocks-soon-and-have-many-lengths-"
	"a-long-tail-for-names";

/* The names of all tests: distinct, @len characters or as long as the number needs. */
static void make_name(char *name, unsigned int i, unsigned int len)
{
	int used = sprintf(name, "%u.", i);

	if (len > (unsigned int)used)
		sprintf(name + used, "%.*s", (int)(len - used), pad);
}

/* Lengths as in real directories, with a few long ones. */
static unsigned int some_length(unsigned int i)
{
	return i % 16 ? 4 + i * 7 % 28 : 60 + i * 13 % 190;
}

static int add(struct vnode *dir, struct vnode *file, unsigned int i, unsigned int len)
{
	char name[256];
	int err;

	make_name(name, i, len);
	err = ext4_link(file, dir, name);
	if (!err)
		ext4_iput(EXT4_I(file), 1);
	return err;
}

static int look(struct vnode *dir, unsigned int i, unsigned int len)
{
	struct vnode *node;
	char name[256];
	int err;

	make_name(name, i, len);
	err = ext4_lookup(dir, name, &node);
	if (!err)
		ext4_iput(EXT4_I(node), 1);
	return err;
}

static int drop(struct vnode *dir, unsigned int i, unsigned int len)
{
	char name[256];

	make_name(name, i, len);
	return ext4_unlink(dir, name);
}

struct counted {
	unsigned int names, dots, limit;
	uint64_t next;
	unsigned char *seen; /* by the number in the name */
};

static bool count(void *arg, const char *name, size_t len, uint64_t ino, unsigned int type,
		  uint64_t next)
{
	struct counted *c = arg;

	cr_assert(ino && len && next > c->next, "%.*s: inode %lu, cookie %lu after %lu", (int)len,
		  name, ino, next, c->next);
	if (c->limit && c->names == c->limit)
		return false;
	c->next = next;
	if (name[0] == '.')
		c->dots++;
	else
		c->names++;
	if (c->seen && name[0] != '.')
		c->seen[atoi(name)]++;
	return true;
}

static unsigned int count_names(struct vnode *dir)
{
	struct counted c = {0};

	cr_assert_eq(ext4_readdir(dir, 0, count, &c), 0);
	cr_assert_eq(c.dots, 2);
	return c.names;
}

struct many {
	char options[64];
	unsigned int names;
	bool htree;
};

static struct many many[] = {
	{"", 20000, true},
	{"-b 1024", 20000, true},
	{"-b 2048 -O ^metadata_csum", 4000, true},
	{"-b 4096 -O ^dir_index", 4000, false},
	{"-b 1024 -O ^dir_index,^metadata_csum", 4000, false},
	{"-b 1024 -O large_dir", 4000, true},
	{"-t ext3 -b 1024 -O dir_index", 4000, true},
	{"-t ext2 -b 1024 -O ^dir_index,^filetype", 4000, false},
};

ParameterizedTestParameters(ext4_dir, many_names)
{
	return cr_make_param_array(struct many, many, sizeof(many) / sizeof(many[0]));
}

ParameterizedTest(struct many *p, ext4_dir, many_names)
{
	struct vnode *dir, *file;
	struct fixture f;
	unsigned int i;

	fixture_format(&f, 32 << 20, p->options);
	cr_assert(!fixture_open(&f));
	dir = fixture_create(&f, "dir", S_IFDIR | 0755);
	file = fixture_create(&f, "file", S_IFREG | 0644);
	for (i = 0; i < p->names; i++)
		cr_assert_eq(add(dir, file, i, some_length(i)), 0, "%u", i);
	cr_expect_eq(!!(EXT4_I(dir)->raw.i_flags & EXT2_INDEX_FL), p->htree);
	cr_expect_eq(add(dir, file, 77, some_length(77)), -EEXIST);
	cr_expect_eq(count_names(dir), p->names);
	for (i = 0; i < p->names; i += 3)
		cr_assert_eq(drop(dir, i, some_length(i)), 0, "%u", i);
	cr_expect_eq(drop(dir, 0, some_length(0)), -ENOENT);
	fixture_put(&f, dir);
	fixture_put(&f, file);
	cr_expect_eq(fixture_close(&f), 0);
	cr_expect_eq(fixture_fsck(&f), 0);

	/* All again from what is on the image; new names fill the room of removed ones. */
	cr_assert(!fixture_open(&f));
	dir = fixture_find(&f, "dir");
	file = fixture_find(&f, "file");
	for (i = 0; i < p->names; i++)
		cr_assert_eq(look(dir, i, some_length(i)), i % 3 ? 0 : -ENOENT, "%u", i);
	for (i = 0; i < p->names; i += 3)
		cr_assert_eq(add(dir, file, i, some_length(i)), 0, "%u", i);
	cr_expect_eq(count_names(dir), p->names);
	for (i = 0; i < p->names; i++)
		cr_assert_eq(drop(dir, i, some_length(i)), 0, "%u", i);
	cr_expect_eq(count_names(dir), 0);
	cr_expect_eq(EXT4_I(file)->raw.i_links_count, 1);
	fixture_put(&f, dir);
	fixture_put(&f, file);
	fixture_finish(&f);
}

/* Long names in small blocks: a tree of two levels of index is full after some 10,000 names. */
Test(ext4_dir, htree_grows_until_it_is_full)
{
	unsigned int i, links = 0, files = 0;
	struct vnode *dir, *file = NULL;
	struct fixture f;
	char name[16];
	int err = 0;

	fixture_format(&f, 64 << 20, "-b 1024");
	cr_assert(!fixture_open(&f));
	dir = fixture_create(&f, "dir", S_IFDIR | 0755);
	for (i = 0; !err && i < 100000; i++) {
		if (!file || ++links == 60000) {
			if (file)
				fixture_put(&f, file);
			sprintf(name, "file%u", files++);
			file = fixture_create(&f, name, S_IFREG | 0644);
			links = 0;
		}
		err = add(dir, file, i, 250);
	}
	cr_expect_eq(err, -ENOSPC, "%s after %u names", strerror(-err), i);
	cr_expect_gt(i, 10000);
	cr_expect_eq(count_names(dir), i - 1);
	/* Nothing is broken by it, and room made by removal can be used. */
	cr_expect_eq(drop(dir, 5, 250), 0);
	cr_expect_eq(add(dir, file, 5, 250), 0);
	fixture_put(&f, file);
	fixture_put(&f, dir);
	fixture_finish(&f);
}

Test(ext4_dir, large_dir_has_a_third_level)
{
	struct vnode *dir, *file;
	struct fixture f;
	unsigned int i;

	fixture_format(&f, 64 << 20, "-b 1024 -O large_dir");
	cr_assert(!fixture_open(&f));
	dir = fixture_create(&f, "dir", S_IFDIR | 0755);
	file = fixture_create(&f, "file", S_IFREG | 0644);
	for (i = 0; i < 40000; i++)
		cr_assert_eq(add(dir, file, i, 250), 0, "%u", i);
	fixture_put(&f, dir);
	cr_assert_eq(fixture_close(&f), 0);
	cr_assert(!fixture_open(&f));
	dir = fixture_find(&f, "dir");
	cr_expect_eq(count_names(dir), 40000);
	fixture_put(&f, dir);
	fixture_finish(&f);
}

Test(ext4_dir, reader_sees_each_name_once_while_blocks_split)
{
	struct counted c = {.limit = 50};
	struct vnode *dir, *file;
	struct fixture f;
	unsigned int i;

	fixture_format(&f, 16 << 20, "-b 1024");
	cr_assert(!fixture_open(&f));
	dir = fixture_create(&f, "dir", S_IFDIR | 0755);
	file = fixture_create(&f, "file", S_IFREG | 0644);
	for (i = 0; i < 200; i++)
		cr_assert_eq(add(dir, file, i, 20), 0);
	fixture_put(&f, dir);
	fixture_put(&f, file);
	cr_assert_eq(fixture_close(&f), 0);
	cr_assert(!fixture_open(&f));
	dir = fixture_find(&f, "dir");
	file = fixture_find(&f, "file");

	c.seen = calloc(5000, 1);
	cr_assert_eq(ext4_readdir(dir, 0, count, &c), 0);
	for (i = 200; i < 5000; i++)
		cr_assert_eq(add(dir, file, i, 20), 0);
	for (i = 0; i < 200; i += 2)
		cr_assert_eq(drop(dir, i, 20), 0);
	c.limit = 0;
	cr_assert_eq(ext4_readdir(dir, c.next, count, &c), 0);
	for (i = 0; i < 5000; i++)
		cr_expect(c.seen[i] == 1 || (i < 200 && i % 2 == 0 && !c.seen[i]), "%u: %u", i,
			  c.seen[i]);
	free(c.seen);
	fixture_put(&f, dir);
	fixture_put(&f, file);
	fixture_finish(&f);
}

/* As rm -r does it: read some, remove these, go on with the cookie. */
Test(ext4_dir, reader_removes_what_it_reads)
{
	struct counted c = {0};
	struct vnode *dir, *file;
	struct fixture f;
	unsigned int i;

	fixture_format(&f, 16 << 20, "");
	cr_assert(!fixture_open(&f));
	dir = fixture_create(&f, "dir", S_IFDIR | 0755);
	file = fixture_create(&f, "file", S_IFREG | 0644);
	for (i = 0; i < 3000; i++)
		cr_assert_eq(add(dir, file, i, 20), 0);
	c.seen = calloc(3000, 1);
	while (c.names < 3000) {
		unsigned int before = c.names;

		c.limit = c.names + 70;
		cr_assert_eq(ext4_readdir(dir, c.next, count, &c), 0);
		cr_assert_gt(c.names, before);
		for (i = 0; i < 3000; i++) {
			if (c.seen[i] != 1)
				continue;
			cr_assert_eq(drop(dir, i, 20), 0);
			c.seen[i] = 2;
		}
	}
	cr_expect_eq(count_names(dir), 0);
	free(c.seen);
	fixture_put(&f, dir);
	fixture_put(&f, file);
	fixture_finish(&f);
}

/* A tree that e2fsck has built is read, and grows. */
Test(ext4_dir, htree_of_another_writer)
{
	struct vnode *dir, *file;
	struct fixture f;
	unsigned int i;

	fixture_format(&f, 16 << 20, "-b 1024");
	cr_assert(!fixture_open(&f));
	dir = fixture_create(&f, "dir", S_IFDIR | 0755);
	file = fixture_create(&f, "file", S_IFREG | 0644);
	for (i = 0; i < 1000; i++)
		cr_assert_eq(add(dir, file, i, 30), 0);
	fixture_put(&f, dir);
	fixture_put(&f, file);
	cr_assert_eq(fixture_close(&f), 0);
	cr_assert_lt(fixture_run(&f, "PATH=$PATH:/usr/sbin:/sbin; e2fsck -fyD %s >/dev/null 2>&1"),
		     4);
	cr_assert(!fixture_open(&f));
	dir = fixture_find(&f, "dir");
	file = fixture_find(&f, "file");
	cr_expect_eq(count_names(dir), 1000);
	for (i = 1000; i < 4000; i++)
		cr_assert_eq(add(dir, file, i, 30), 0);
	fixture_put(&f, dir);
	fixture_put(&f, file);
	fixture_finish(&f);
}

/* debugfs makes directories in their inodes; they move to a block at the first change. */
Test(ext4_dir, inline_directory_is_read_and_converted)
{
	struct vnode *dir, *file, *root;
	struct fixture f;
	int err;

	fixture_format(&f, 16 << 20, "-O inline_data -I 256");
	cr_assert_eq(fixture_run(&f,
				 "PATH=$PATH:/usr/sbin:/sbin; printf 'mkdir d\\ncd d\\nmkdir a\\n"
				 "mkdir b\\nmkdir cccccccc\\n' "
				 "| debugfs -w -f - %s >/dev/null 2>&1"),
		     0);
	cr_assert(!fixture_open(&f));
	dir = fixture_find(&f, "d");
	cr_expect(EXT4_I(dir)->raw.i_flags & EXT4_INLINE_DATA_FL);
	cr_expect_eq(count_names(dir), 3);
	fixture_put(&f, fixture_find(&f, "d/cccccccc"));
	file = fixture_create(&f, "d/new", S_IFREG | 0644);
	cr_expect(!(EXT4_I(dir)->raw.i_flags & EXT4_INLINE_DATA_FL));
	cr_expect_eq(count_names(dir), 4);
	fixture_put(&f, file);
	err = ext4_rmdir(dir, "a");
	cr_expect_eq(err, 0, "%s", strerror(-err));
	root = fixture_find(&f, "");
	/* Its .. is rewritten. */
	cr_expect_eq(ext4_rename(dir, "b", root, "b", 0, &fixture_root), 0);
	fixture_put(&f, root);
	fixture_put(&f, dir);
	fixture_finish(&f);
}

/* Bytes of a directory's first leaf, and what is written there. */
struct damage {
	unsigned int offset, len;
	char bytes[8];
	bool htree;
};

static struct damage damages[] = {
	{4, 2, "\x00\x00", false},	    /* rec_len of . */
	{4, 2, "\x0e\x00", false},	    /* not a multiple of 4 */
	{4, 2, "\xff\xff", false},	    /* past the block */
	{0, 4, "\xff\xff\xff\x7f", false},  /* inode of . */
	{8, 1, "x", false},		    /* name of . */
	{20, 2, "xx", false},		    /* name of .. */
	{28, 2, "\x04\x00", false},	    /* rec_len of the first name */
	{30, 1, "\xf0", false},		    /* a name longer than its entry */
	{24, 4, "\xff\xff\xff\xff", false}, /* its inode number */
	{32, 1, "/", false},		    /* a slash in it */
	{24, 4, "\x01\x00\x00\x00", true},  /* reserved field of the root */
	{28, 1, "\x09", true},		    /* hash version */
	{30, 1, "\x07", true},		    /* depth */
	{32, 2, "\x01\x00", true},	    /* limit */
	{34, 2, "\xff\xff", true},	    /* count */
	{36, 4, "\xff\xff\x00\x00", true},  /* a block that is not there */
	{36, 4, "\x00\x00\x00\x00", true},  /* a loop */
};

ParameterizedTestParameters(ext4_dir, damaged)
{
	return cr_make_param_array(struct damage, damages, sizeof(damages) / sizeof(damages[0]));
}

/* The directory answers EUCLEAN, its neighbour and the rest of the volume go on. */
ParameterizedTest(struct damage *p, ext4_dir, damaged)
{
	struct vnode *dir, *file, *node;
	struct counted c = {0};
	struct map_extent ext;
	struct fixture f;

	fixture_format(&f, 16 << 20, "-b 1024 -O ^metadata_csum");
	cr_assert(!fixture_open(&f));
	dir = fixture_create(&f, "bad", S_IFDIR | 0755);
	file = fixture_create(&f, "bad/file", S_IFREG | 0644);
	for (unsigned int i = 0; p->htree && i < 100; i++)
		cr_assert_eq(add(dir, file, i, 40), 0);
	cr_assert_eq(map_find(EXT4_I(dir), 0, &ext), 0);
	fixture_put(&f, file);
	fixture_put(&f, dir);
	fixture_put(&f, fixture_create(&f, "good", S_IFDIR | 0755));
	cr_assert_eq(fixture_close(&f), 0);
	cr_assert_eq(pwrite(f.fd, p->bytes, p->len, ext.pblk * 1024 + p->offset), p->len);

	f.options.errors = ERRORS_CONTINUE;
	cr_assert(!fixture_open(&f));
	dir = fixture_find(&f, "bad");
	cr_expect_eq(ext4_lookup(dir, "file", &node), -EUCLEAN);
	cr_expect_eq(ext4_readdir(dir, 0, count, &c), -EUCLEAN);
	cr_expect_eq(ext4_mknod(dir, "new", S_IFREG, 0, &fixture_root, &node), -EUCLEAN);
	cr_expect_eq(ext4_unlink(dir, "file"), -EUCLEAN);
	fixture_put(&f, dir);
	dir = fixture_find(&f, "");
	cr_expect_eq(ext4_rmdir(dir, "bad"), -EUCLEAN);
	cr_expect_eq(ext4_rmdir(dir, "good"), 0);
	fixture_put(&f, dir);
	cr_expect_eq(fixture_close(&f), 0);
	fixture_drop(&f);
}

Test(ext4_dir, bad_checksum_is_damage)
{
	struct map_extent ext;
	struct fixture f;
	struct vnode *dir;

	fixture_format(&f, 16 << 20, "-b 1024 -O metadata_csum");
	cr_assert(!fixture_open(&f));
	dir = fixture_create(&f, "bad", S_IFDIR | 0755);
	cr_assert_eq(map_find(EXT4_I(dir), 0, &ext), 0);
	fixture_put(&f, dir);
	cr_assert_eq(fixture_close(&f), 0);
	cr_assert_eq(pwrite(f.fd, "x", 1, ext.pblk * 1024 + 200), 1);
	f.options.errors = ERRORS_CONTINUE;
	cr_assert(!fixture_open(&f));
	dir = fixture_find(&f, "bad");
	cr_expect_eq(look(dir, 1, 10), -EUCLEAN);
	fixture_put(&f, dir);
	fixture_close(&f);
	fixture_drop(&f);
}

/* Indexes of directories nobody uses are dropped when there are too many names; nothing is lost. */
Test(ext4_dir, memory_of_indexes_is_bounded)
{
	struct vnode *dirs[6], *file;
	struct fixture f;
	char name[16];
	unsigned int loaded = 0;

	dir_index_limits.names = 8000;
	dir_index_limits.most = 16000;
	fixture_format(&f, 16 << 20, "");
	cr_assert(!fixture_open(&f));
	file = fixture_create(&f, "file", S_IFREG | 0644);
	for (unsigned int d = 0; d < 6; d++) {
		sprintf(name, "d%u", d);
		dirs[d] = fixture_create(&f, name, S_IFDIR | 0755);
		for (unsigned int i = 0; i < 5000; i++)
			cr_assert_eq(add(dirs[d], file, i, 12), 0);
		/* The first ones stay, being young. */
		if (d == 2)
			cr_expect(EXT4_I(dirs[0])->index && EXT4_I(dirs[1])->index);
	}
	for (unsigned int d = 0; d < 6; d++)
		loaded += !!EXT4_I(dirs[d])->index;
	cr_expect_eq(loaded, 3);
	dir_index_limits.young = 0;
	for (unsigned int d = 0; d < 6; d++) {
		cr_expect_eq(count_names(dirs[d]), 5000);
		fixture_put(&f, dirs[d]);
	}
	fixture_put(&f, file);
	fixture_finish(&f);
}

/* A block that is read again, and has become bad since the directory was loaded. */
Test(ext4_dir, block_goes_bad_later)
{
	static const unsigned char zeros[1024], ones[1024] = {[0 ... 1023] = 0xff};
	struct map_extent ext;
	struct vnode *dir, *node;
	struct fixture f;

	fixture_format(&f, 16 << 20, "-b 1024 -O ^metadata_csum");
	f.options.errors = ERRORS_CONTINUE;
	for (unsigned int i = 0; i < 2; i++) {
		cr_assert(!fixture_open(&f));
		dir = fixture_create(&f, i ? "dir1" : "dir0", S_IFDIR | 0755);
		fixture_put(&f, fixture_create(&f, i ? "dir1/sub" : "dir0/sub", S_IFDIR | 0755));
		cr_assert_eq(map_find(EXT4_I(dir), 0, &ext), 0);
		ext4_lock(fixture_vol(&f));
		cr_assert_eq(device_write(fixture_vol(&f), ext.pblk, i ? ones : zeros), 0);
		ext4_unlock(fixture_vol(&f));
		cr_expect_eq(ext4_rmdir(dir, "sub"), -EUCLEAN);
		cr_expect_eq(ext4_mkdir(dir, "new", 0755, &fixture_root, &node), -EUCLEAN);
		cr_expect_eq(ext4_rename(dir, "sub", dir, "bus", 0, &fixture_root), -EUCLEAN);
		fixture_put(&f, dir);
		cr_expect_eq(fixture_close(&f), 0);
	}
	fixture_drop(&f);
}
