/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * POSIX ACLs. The expected values are what a Linux kernel gives for the same calls on ext4.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "ext4_fixture.h"

TestSuite(ext4_acl, .timeout = 60);

#define ACCESS "system.posix_acl_access"
#define DEFAULT "system.posix_acl_default"

/*
 * ACLs as text, one word an entry: u::7 u:1000:6 g::5 g:50:4 m::7 o::0. Written to the form of
 * setxattr(2); returns its length.
 */
static size_t from_text(const char *text, void *buf)
{
	struct {
		uint16_t tag, perm;
		uint32_t id;
	} entry;
	uint32_t version = 2;
	size_t len = 4;
	char copy[128], *save, *word;

	memcpy(buf, &version, 4);
	strcpy(copy, text);
	for (word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
		bool named = word[2] != ':';
		const char *kinds = "ugmo";

		entry.tag = (uint16_t[]){1, 4, 16, 32}[strchr(kinds, word[0]) - kinds] << named;
		entry.id = named ? strtoul(word + 2, NULL, 10) : UINT32_MAX;
		entry.perm = atoi(strrchr(word, ':') + 1);
		memcpy((char *)buf + len, &entry, sizeof(entry));
		len += sizeof(entry);
	}
	return len;
}

static int set(struct vnode *node, const char *name, const char *text, const struct cred *cred)
{
	char buf[256];
	size_t len = from_text(text, buf);

	return ext4_setxattr(node, name, buf, len, 0, cred);
}

/* @text "": there is none. */
static void expect(struct vnode *node, const char *name, const char *text)
{
	char buf[256], want[256];
	size_t want_len = from_text(text, want);
	ssize_t len = ext4_getxattr(node, name, buf, sizeof(buf));

	if (!*text)
		cr_expect_eq(len, -ENODATA, "%s: %zd", name, len);
	else
		cr_expect(len == (ssize_t)want_len && !memcmp(buf, want, len), "%s: not %s: %zd",
			  name, text, len);
}

static mode_t mode_of(struct vnode *node)
{
	struct stat st;

	cr_assert_eq(ext4_getattr(node, &st), 0);
	cr_expect_eq(st.st_mode, node->mode);
	return st.st_mode & 07777;
}

struct setting {
	char text[64];
	int err;
	mode_t mode; /* after it; 0640 before */
	char stored[64];
};

static struct setting settings[] = {
	{"u::6 g::4 o::0", 0, 0640, ""},
	{"u::7 g::5 o::1", 0, 0751, ""},
	{"u::6 u:1000:7 g::4 m::7 o::0", 0, 0670, "u::6 u:1000:7 g::4 m::7 o::0"},
	{"u::6 g::4 g:50:6 m::4 o::4", 0, 0644, "u::6 g::4 g:50:6 m::4 o::4"},
	{"u::6 g::4 m::6 o::0", 0, 0660, "u::6 g::4 m::6 o::0"},
	{"u::6 u:1:1 u:2:2 g::4 g:3:3 g:4:4 m::7 o::0", 0, 0670,
	 "u::6 u:1:1 u:2:2 g::4 g:3:3 g:4:4 m::7 o::0"},
	{"u::6 u:1000:7 g::4 o::0", -EINVAL, 0640, ""}, /* no mask */
	{"u::6 g::4", -EINVAL, 0640, ""},		/* no others */
	{"g::4 u::6 o::0", -EINVAL, 0640, ""},		/* wrong order */
	{"u::6 u::6 g::4 o::0", -EINVAL, 0640, ""},	/* twice */
	{"u::8 g::4 o::0", -EINVAL, 0640, ""},		/* no such permission */
	{"u::6 g::4 o::0 m::7", -EINVAL, 0640, ""},
	{"", 0, 0640, ""},
};

ParameterizedTestParameters(ext4_acl, setting)
{
	return cr_make_param_array(struct setting, settings,
				   sizeof(settings) / sizeof(settings[0]));
}

ParameterizedTest(struct setting *p, ext4_acl, setting)
{
	struct vnode *file;
	struct fixture f;

	fixture_format(&f, 16 << 20, "");
	cr_assert(!fixture_open(&f));
	file = fixture_create(&f, "file", S_IFREG | 0640);
	cr_expect_eq(set(file, ACCESS, p->text, &fixture_root), p->err);
	cr_expect_eq(mode_of(file), p->mode, "%o", mode_of(file));
	expect(file, ACCESS, p->stored);
	fixture_put(&f, file);
	cr_assert_eq(fixture_close(&f), 0);
	cr_assert(!fixture_open(&f));
	file = fixture_find(&f, "file");
	cr_expect_eq(mode_of(file), p->mode);
	expect(file, ACCESS, p->stored);
	cr_expect_eq(ext4_removexattr(file, ACCESS), 0);
	expect(file, ACCESS, "");
	cr_expect_eq(mode_of(file), p->mode);
	fixture_put(&f, file);
	fixture_finish(&f);
}

struct inheriting {
	char acl[64]; /* the directory's default */
	mode_t mode, umask;
	mode_t file_mode;
	char file_acl[64];
	mode_t dir_mode; /* of a directory made with the same mode */
	char dir_acl[64];
};

static struct inheriting inheritings[] = {
	{"", 0666, 022, 0644, "", 0644, ""},
	{"", 0777, 077, 0700, "", 0700, ""},
	{"u::7 g::5 o::5", 0666, 077, 0644, "", 0644, ""},
	{"u::7 g::7 o::7", 0750, 0, 0750, "", 0750, ""},
	{"u::7 u:1000:7 g::5 m::7 o::0", 0666, 022, 0660, "u::6 u:1000:7 g::5 m::6 o::0", 0660,
	 "u::6 u:1000:7 g::5 m::6 o::0"},
	{"u::7 g::7 g:50:5 m::5 o::5", 0777, 022, 0755, "u::7 g::7 g:50:5 m::5 o::5", 0755,
	 "u::7 g::7 g:50:5 m::5 o::5"},
	{"u::7 u:1:4 g::5 m::7 o::5", 0600, 022, 0600, "u::6 u:1:4 g::5 m::0 o::0", 0600,
	 "u::6 u:1:4 g::5 m::0 o::0"},
};

ParameterizedTestParameters(ext4_acl, inheriting)
{
	return cr_make_param_array(struct inheriting, inheritings,
				   sizeof(inheritings) / sizeof(inheritings[0]));
}

ParameterizedTest(struct inheriting *p, ext4_acl, inheriting)
{
	struct cred cred = {.uid = 1000, .gid = 1000, .umask = p->umask};
	struct vnode *dir, *file, *sub, *link;
	struct fixture f;

	fixture_format(&f, 16 << 20, "");
	cr_assert(!fixture_open(&f));
	dir = fixture_create(&f, "dir", S_IFDIR | 0755);
	if (*p->acl)
		cr_assert_eq(set(dir, DEFAULT, p->acl, &fixture_root), 0);
	cr_assert_eq(ext4_mknod(dir, "file", S_IFREG | p->mode, 0, &cred, &file), 0);
	cr_assert_eq(ext4_mkdir(dir, "sub", p->mode, &cred, &sub), 0);
	cr_assert_eq(ext4_symlink(dir, "link", "target", &cred, &link), 0);
	cr_expect_eq(mode_of(file), p->file_mode, "%o", mode_of(file));
	cr_expect_eq(mode_of(sub), p->dir_mode, "%o", mode_of(sub));
	cr_expect_eq(mode_of(link), 0777);
	expect(file, ACCESS, p->file_acl);
	expect(file, DEFAULT, "");
	expect(sub, ACCESS, p->dir_acl);
	expect(sub, DEFAULT, p->acl);
	expect(link, ACCESS, "");
	fixture_put(&f, link);
	fixture_put(&f, sub);
	fixture_put(&f, file);
	fixture_put(&f, dir);
	fixture_finish(&f);
}

static void chmod_to(struct vnode *node, mode_t mode)
{
	struct stat st = {.st_mode = mode};

	cr_assert_eq(ext4_setattr(node, &st, VATTR_MODE, &fixture_root), 0);
}

Test(ext4_acl, chmod_changes_the_acl)
{
	struct vnode *file;
	struct fixture f;

	fixture_format(&f, 16 << 20, "");
	cr_assert(!fixture_open(&f));
	file = fixture_create(&f, "file", S_IFREG | 0640);
	cr_assert_eq(set(file, ACCESS, "u::6 u:1000:7 g::4 m::7 o::0", &fixture_root), 0);
	chmod_to(file, 0751);
	expect(file, ACCESS, "u::7 u:1000:7 g::4 m::5 o::1");
	cr_assert_eq(set(file, ACCESS, "u::6 g::4 o::0", &fixture_root), 0);
	expect(file, ACCESS, "");
	chmod_to(file, 0600);
	expect(file, ACCESS, "");
	fixture_put(&f, file);
	fixture_finish(&f);
}

Test(ext4_acl, default_is_for_directories)
{
	struct vnode *file, *dir;
	struct fixture f;

	fixture_format(&f, 16 << 20, "");
	cr_assert(!fixture_open(&f));
	file = fixture_create(&f, "file", S_IFREG | 0640);
	dir = fixture_create(&f, "dir", S_IFDIR | 0750);
	cr_expect_eq(set(file, DEFAULT, "u::6 g::4 o::0", &fixture_root), -EACCES);
	cr_expect_eq(set(dir, DEFAULT, "u::6 g::4 o::0", &fixture_root), 0);
	expect(dir, DEFAULT, "u::6 g::4 o::0");
	cr_expect_eq(mode_of(dir), 0750);
	cr_expect_eq(ext4_removexattr(dir, DEFAULT), 0);
	expect(dir, DEFAULT, "");
	/* One that is not there counts as removed. */
	cr_expect_eq(ext4_removexattr(dir, DEFAULT), 0);
	fixture_put(&f, dir);
	fixture_put(&f, file);
	fixture_finish(&f);
}

Test(ext4_acl, setting_clears_sgid_for_those_outside_the_group)
{
	static const struct cred member = {.uid = 5, .gid = 100};
	static const struct cred stranger = {.uid = 5, .gid = 101, .pid = -1};
	struct stat st = {.st_gid = 100};
	struct vnode *file;
	struct fixture f;

	fixture_format(&f, 16 << 20, "");
	cr_assert(!fixture_open(&f));
	file = fixture_create(&f, "file", S_IFREG | 0755);
	cr_assert_eq(ext4_setattr(file, &st, VATTR_GID, &fixture_root), 0);
	chmod_to(file, 02755);
	cr_expect_eq(set(file, ACCESS, "u::7 g::7 o::5", &fixture_root), 0);
	cr_expect_eq(mode_of(file), 02775);
	cr_expect_eq(set(file, ACCESS, "u::7 g::5 o::5", &member), 0);
	cr_expect_eq(mode_of(file), 02755);
	cr_expect_eq(set(file, ACCESS, "u::7 g::5 o::0", &stranger), 0);
	cr_expect_eq(mode_of(file), 0750);
	fixture_put(&f, file);
	fixture_finish(&f);
}

/* What debugfs and kernels read on the image: version 1, and short entries for those without a
 * name. */
Test(ext4_acl, form_on_the_image)
{
	struct vnode *file;
	struct fixture f;

	fixture_format(&f, 16 << 20, "");
	cr_assert(!fixture_open(&f));
	file = fixture_create(&f, "file", S_IFREG | 0640);
	cr_assert_eq(set(file, ACCESS, "u::6 u:1000:7 g::4 m::7 o::0", &fixture_root), 0);
	fixture_put(&f, file);
	cr_assert_eq(fixture_close(&f), 0);
	cr_expect_eq(fixture_run(&f, "PATH=$PATH:/usr/sbin:/sbin; debugfs -R 'ea_list file' %s "
				     "2>/dev/null | grep -q '(28) = 01 00 00 00 01 00 06 00 02 00 "
				     "07 00 e8 03 00 00 04 00 04 00 10 00 07 00 20 00 00 00'"),
		     0);
	cr_expect_eq(fixture_fsck(&f), 0);
	fixture_drop(&f);
}
