/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Extended attributes: every size in every place (inode, block, inode of its own), flags, lists,
 * limits.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include "ext4_fixture.h"

TestSuite(ext4_xattr, .timeout = 60);

static const struct cred user = {.uid = 1000, .gid = 1000};

static struct vnode *file;

static void start(struct fixture *f, const char *options)
{
	fixture_format(f, 16 << 20, options);
	cr_assert(!fixture_open(f));
	file = fixture_create(f, "file", S_IFREG | 0644);
}

static void again(struct fixture *f)
{
	fixture_put(f, file);
	cr_assert_eq(fixture_close(f), 0);
	cr_assert(!fixture_open(f));
	file = fixture_find(f, "file");
}

static void finish(struct fixture *f)
{
	fixture_put(f, file);
	fixture_finish(f);
}

static int set(const char *name, const char *value, int flags)
{
	return ext4_setxattr(file, name, value, strlen(value), flags, &fixture_root);
}

static void expect(const char *name, const char *value)
{
	char buf[256];
	ssize_t len = ext4_getxattr(file, name, buf, sizeof(buf));

	cr_expect(len == (ssize_t)strlen(value) && !memcmp(buf, value, len), "%s: %zd", name, len);
}

static uint64_t free_blocks(struct fixture *f)
{
	struct statvfs st;

	cr_assert_eq(f->volume->ops->statfs(f->volume, &st), 0);
	return st.f_bfree;
}

struct sizes {
	char options[48];
	unsigned int len;
	int err;
};

static struct sizes sizes[] = {
	{"-b 1024", 0, 0},
	{"-b 1024", 1, 0},
	{"-b 1024", 50, 0},
	{"-b 1024", 100, 0},
	{"-b 1024", 900, 0},
	{"-b 1024", 1000, -ENOSPC},
	{"-b 4096", 4000, 0},
	{"-b 4096", 4080, -ENOSPC},
	{"-b 4096", 65536, -ENOSPC},
	{"-b 4096", 65537, -E2BIG},
	{"-b 4096 -O ea_inode", 4080, 0},
	{"-b 4096 -O ea_inode", 65536, 0},
	{"-b 1024 -O ea_inode", 20000, 0},
	{"-b 1024 -I 128", 1, 0},
	{"-b 1024 -I 128", 900, 0},
	{"-b 2048 -I 512", 300, 0},
	{"-t ext2 -b 1024 -I 128", 500, 0},
	{"-b 1024 -O inline_data -I 256", 500, 0},
	{"-b 1024 -O ^metadata_csum,^ext_attr", 500, 0},
};

ParameterizedTestParameters(ext4_xattr, sizes)
{
	return cr_make_param_array(struct sizes, sizes, sizeof(sizes) / sizeof(sizes[0]));
}

/* Set beside a small one, read after a new mount, replaced, removed: all room comes back. */
ParameterizedTest(struct sizes *p, ext4_xattr, sizes)
{
	char *value = malloc(p->len + 1), *buf = malloc(p->len + 1);
	struct fixture f;
	uint64_t before;

	for (unsigned int i = 0; i < p->len; i++)
		value[i] = i * 7 + i / 256;
	start(&f, p->options);
	before = free_blocks(&f);
	cr_expect_eq(set("user.small", "here", 0), 0);
	cr_expect_eq(ext4_setxattr(file, "user.big", value, p->len, 0, &fixture_root), p->err);
	again(&f);
	expect("user.small", "here");
	cr_expect_eq(ext4_getxattr(file, "user.big", NULL, 0), p->err ? -ENODATA : (int)p->len);
	if (!p->err) {
		cr_expect_eq(ext4_getxattr(file, "user.big", buf, p->len + 1), (ssize_t)p->len);
		cr_expect(!memcmp(buf, value, p->len));
		if (p->len > 1)
			cr_expect_eq(ext4_getxattr(file, "user.big", buf, p->len - 1), -ERANGE);
		for (unsigned int i = 0; i < p->len; i++)
			value[i]++;
		cr_expect_eq(ext4_setxattr(file, "user.big", value, p->len, 0, &fixture_root), 0);
		again(&f);
		cr_expect_eq(ext4_getxattr(file, "user.big", buf, p->len + 1), (ssize_t)p->len);
		cr_expect(!memcmp(buf, value, p->len));
		cr_expect_eq(ext4_removexattr(file, "user.big"), 0);
	}
	expect("user.small", "here");
	cr_expect_eq(ext4_removexattr(file, "user.small"), 0);
	again(&f);
	cr_expect_eq(ext4_listxattr(file, NULL, 0, &fixture_root), 0);
	cr_expect_eq(free_blocks(&f), before);
	free(value);
	free(buf);
	finish(&f);
}

Test(ext4_xattr, create_and_replace)
{
	struct fixture f;

	start(&f, "");
	cr_expect_eq(set("user.a", "1", XATTR_REPLACE), -ENODATA);
	cr_expect_eq(set("user.a", "1", XATTR_CREATE), 0);
	cr_expect_eq(set("user.a", "2", XATTR_CREATE), -EEXIST);
	expect("user.a", "1");
	cr_expect_eq(set("user.a", "3", XATTR_REPLACE), 0);
	expect("user.a", "3");
	finish(&f);
}

struct name {
	char name[32];
	int err;
};

static struct name names[] = {
	{"user.x", 0},
	{"trusted.x", 0},
	{"security.x", 0},
	{"user.", -EINVAL},
	{"system.data", -EOPNOTSUPP},
	{"system.richacl", -EOPNOTSUPP},
	{"os2.x", -EOPNOTSUPP},
	{"x", -EOPNOTSUPP},
	{"system.x", -EOPNOTSUPP},
	{"security.capability", 0},
	{"trusted.overlay.opaque", 0},
};

ParameterizedTestParameters(ext4_xattr, names)
{
	return cr_make_param_array(struct name, names, sizeof(names) / sizeof(names[0]));
}

ParameterizedTest(struct name *p, ext4_xattr, names)
{
	struct fixture f;

	start(&f, "-O inline_data -I 256");
	cr_expect_eq(ext4_getxattr(file, p->name, NULL, 0), p->err ? p->err : -ENODATA);
	cr_expect_eq(set(p->name, "value", 0), p->err);
	if (!p->err)
		expect(p->name, "value");
	cr_expect_eq(ext4_removexattr(file, p->name), p->err);
	cr_expect_eq(ext4_removexattr(file, p->name), p->err ? p->err : -ENODATA);
	finish(&f);
}

Test(ext4_xattr, names_as_long_as_they_may_be)
{
	struct fixture f;
	char name[260];

	start(&f, "");
	memset(name, 'n', sizeof(name));
	memcpy(name, "user.", 5);
	name[255] = '\0';
	cr_expect_eq(set(name, "v", 0), 0);
	expect(name, "v");
	name[255] = 'n';
	name[256] = '\0';
	cr_expect_eq(set(name, "v", 0), -ERANGE);
	finish(&f);
}

Test(ext4_xattr, trusted_is_for_the_privileged)
{
	struct fixture f;
	char buf[64];

	start(&f, "");
	cr_expect_eq(ext4_setxattr(file, "trusted.t", "v", 1, 0, &user), -EPERM);
	cr_expect_eq(set("trusted.t", "v", 0), 0);
	cr_expect_eq(set("user.u", "v", 0), 0);
	cr_expect_eq(ext4_listxattr(file, buf, sizeof(buf), &user), 7);
	cr_expect_str_eq(buf, "user.u");
	cr_expect_eq(ext4_listxattr(file, NULL, 0, &fixture_root), 17);
	cr_expect_eq(ext4_listxattr(file, buf, 16, &fixture_root), -ERANGE);
	finish(&f);
}

Test(ext4_xattr, many_attributes_fill_inode_and_block)
{
	char name[32], value[32];
	struct fixture f;
	unsigned int i;
	int err = 0;

	start(&f, "-b 1024 -I 256");
	for (i = 0; !err; i++) {
		sprintf(name, "user.number%u", i);
		sprintf(value, "value %u", i);
		err = set(name, value, 0);
	}
	cr_expect_eq(err, -ENOSPC);
	cr_expect_gt(i, 20);
	again(&f);
	for (unsigned int j = 0; j < i - 1; j++) {
		sprintf(name, "user.number%u", j);
		sprintf(value, "value %u", j);
		expect(name, value);
		cr_expect_eq(ext4_removexattr(file, name), 0);
	}
	finish(&f);
}

/* A block that two files share is left to the other one when one of them changes. */
Test(ext4_xattr, shared_block)
{
	struct vnode *other;
	struct fixture f;
	char value[300];
	uint32_t count;
	ext2_filsys fs;

	start(&f, "-b 1024 -I 128");
	memset(value, 'v', 299);
	value[299] = '\0';
	cr_assert_eq(set("user.a", value, 0), 0);
	other = fixture_create(&f, "other", S_IFREG | 0644);
	cr_assert_eq(ext4_begin(fixture_vol(&f)), 0);
	fs = fixture_vol(&f)->fs;
	cr_assert_eq(ext2fs_adjust_ea_refcount3(fs, EXT4_I(file)->raw.i_file_acl, NULL, 1, &count,
						file->ino),
		     0);
	EXT4_I(other)->raw.i_file_acl = EXT4_I(file)->raw.i_file_acl;
	EXT4_I(other)->raw.i_blocks = EXT4_I(file)->raw.i_blocks;
	cr_assert_eq(ext4_inode_write(EXT4_I(other)), 0);
	ext4_end(fixture_vol(&f));
	cr_assert_eq(count, 2);

	cr_expect_eq(ext4_setxattr(other, "user.b", "new", 3, 0, &fixture_root), 0);
	cr_expect_neq(EXT4_I(other)->raw.i_file_acl, EXT4_I(file)->raw.i_file_acl);
	cr_expect_eq(ext4_getxattr(file, "user.b", NULL, 0), -ENODATA);
	cr_expect_eq(ext4_getxattr(other, "user.a", NULL, 0), 299);
	fixture_put(&f, other);
	finish(&f);
}

Test(ext4_xattr, deleted_files_give_back_their_blocks)
{
	static const char *const options[] = {"-b 1024", "-b 1024 -O ea_inode"};
	struct vnode *root;
	struct fixture f;
	char value[900];
	uint64_t before;

	memset(value, 'v', sizeof(value));
	for (unsigned int i = 0; i < 2; i++) {
		fixture_format(&f, 16 << 20, options[i]);
		cr_assert(!fixture_open(&f));
		before = free_blocks(&f);
		file = fixture_create(&f, "file", S_IFREG | 0644);
		cr_expect_eq(ext4_setxattr(file, "user.a", value, 900, 0, &fixture_root), 0);
		cr_expect_eq(ext4_setxattr(file, "user.b", value, 800, 0, &fixture_root),
			     i ? 0 : -ENOSPC);
		cr_expect_lt(free_blocks(&f), before);
		root = fixture_find(&f, "");
		cr_expect_eq(ext4_unlink(root, "file"), 0);
		fixture_put(&f, root);
		fixture_put(&f, file);
		cr_expect_eq(free_blocks(&f), before);
		fixture_finish(&f);
	}
}

Test(ext4_xattr, flags_forbid)
{
	struct fixture f;

	start(&f, "");
	EXT4_I(file)->raw.i_flags |= EXT2_IMMUTABLE_FL;
	cr_expect_eq(set("user.a", "v", 0), -EPERM);
	cr_expect_eq(ext4_removexattr(file, "user.a"), -EPERM);
	EXT4_I(file)->raw.i_flags &= ~EXT2_IMMUTABLE_FL;
	finish(&f);
}

Test(ext4_xattr, inline_data_stays_whole)
{
	struct fixture f;
	char data[120], buf[120];

	memset(data, 'd', sizeof(data));
	fixture_format(&f, 16 << 20, "-O inline_data -I 256");
	cr_assert(!fixture_open(&f));
	fixture_write(&f, "file", data, sizeof(data));
	file = fixture_find(&f, "file");
	cr_expect_eq(set("user.a", "a value of some length, too long for what is left", 0), 0);
	again(&f);
	cr_expect_eq(filemap_read(&file->mapping, 0, buf, sizeof(buf)), 120);
	cr_expect_arr_eq(buf, data, 120);
	expect("user.a", "a value of some length, too long for what is left");
	cr_expect_eq(ext4_listxattr(file, NULL, 0, &fixture_root), 7);
	finish(&f);
}

/* A damaged block: the file's attributes answer EUCLEAN, others and its data do not mind. */
Test(ext4_xattr, damaged_block)
{
	struct vnode *other;
	struct fixture f;
	uint64_t block;
	char value[300];

	start(&f, "-b 1024 -I 128 -O ^metadata_csum");
	memset(value, 'v', 299);
	value[299] = '\0';
	cr_assert_eq(set("user.a", value, 0), 0);
	block = EXT4_I(file)->raw.i_file_acl;
	fixture_put(&f, fixture_create(&f, "other", S_IFREG | 0644));
	fixture_put(&f, file);
	cr_assert_eq(fixture_close(&f), 0);
	cr_assert_eq(pwrite(f.fd, "\xff\xff\xff\xff", 4, block * 1024 + 32 + 8), 4);
	f.options.errors = ERRORS_CONTINUE;
	cr_assert(!fixture_open(&f));
	file = fixture_find(&f, "file");
	cr_expect_eq(ext4_getxattr(file, "user.a", NULL, 0), -EUCLEAN);
	cr_expect_eq(ext4_listxattr(file, NULL, 0, &fixture_root), -EUCLEAN);
	cr_expect_eq(set("user.b", "v", 0), -EUCLEAN);
	other = fixture_find(&f, "other");
	cr_expect_eq(ext4_setxattr(other, "user.b", "v", 1, 0, &fixture_root), 0);
	fixture_put(&f, other);
	fixture_put(&f, file);
	fixture_close(&f);
	fixture_drop(&f);
}
