/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Files in their inode, as debugfs makes them: read there, converted by any change. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ext4_model.h"

TestSuite(ext4_inline, .timeout = 60);

#define PUNCH (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)

static struct fixture f;
static struct model m;

/* A file of @len bytes that debugfs has put into the image. */
static void begin(size_t len)
{
	char command[300], name[80];
	FILE *file;

	fixture_format(&f, 16 << 20, "-O inline_data -I 256 -b 1024");
	m = (struct model){ .f = &f, .path = "file", .size = len, .limit = 64 << 10, .state = len };
	m.data = calloc(1, m.limit);
	snprintf(name, sizeof(name), "%s.src", f.path);
	file = fopen(name, "w");
	for (size_t i = 0; i < len; i++)
		m.data[i] = 'a' + i % 26;
	cr_assert(file && fwrite(m.data, 1, len, file) == len && !fclose(file));
	snprintf(command, sizeof(command),
		 "PATH=$PATH:/usr/sbin:/sbin debugfs -w -R 'write %s file' %s >/dev/null 2>&1",
		 name, f.path);
	cr_assert(!system(command));
	remove(name);
	cr_assert(!fixture_open(&f));
	m.node = fixture_find(&f, "file");
	cr_assert(EXT4_I(m.node)->raw.i_flags & EXT4_INLINE_DATA_FL,
		  "debugfs did not make it inline");
}

static void end(bool is_inline)
{
	cr_assert_eq(!!(EXT4_I(m.node)->raw.i_flags & EXT4_INLINE_DATA_FL), is_inline);
	model_check(&m);
	model_remount(&m);
	model_finish(&m);
	fixture_finish(&f);
}

static size_t lengths[] = { 1, 59, 60, 61, 100, 120 };

#define LENGTHS cr_make_param_array(size_t, lengths, sizeof(lengths) / sizeof(lengths[0]))

ParameterizedTestParameters(ext4_inline, is_read)
{
	return LENGTHS;
}

ParameterizedTest(size_t *len, ext4_inline, is_read)
{
	begin(*len);
	model_check(&m);
	cr_assert_eq(ext4_seek(m.node, 0, VSEEK_DATA), 0);
	cr_assert_eq(ext4_seek(m.node, 0, VSEEK_HOLE), *len);
	end(true);
}

ParameterizedTestParameters(ext4_inline, is_written)
{
	return LENGTHS;
}

ParameterizedTest(size_t *len, ext4_inline, is_written)
{
	begin(*len);
	model_write(&m, *len / 2, 3000);
	end(false);
}

ParameterizedTestParameters(ext4_inline, is_written_after_reading)
{
	return LENGTHS;
}

ParameterizedTest(size_t *len, ext4_inline, is_written_after_reading)
{
	begin(*len);
	model_check(&m);
	model_write(&m, *len + 2000, 1);
	end(false);
}

ParameterizedTestParameters(ext4_inline, is_truncated)
{
	return LENGTHS;
}

ParameterizedTest(size_t *len, ext4_inline, is_truncated)
{
	begin(*len);
	model_truncate(&m, *len / 2);
	model_check(&m);
	model_truncate(&m, 10000);
	end(false);
}

ParameterizedTestParameters(ext4_inline, is_emptied)
{
	return LENGTHS;
}

ParameterizedTest(size_t *len, ext4_inline, is_emptied)
{
	begin(*len);
	model_truncate(&m, 0);
	end(false);
}

ParameterizedTestParameters(ext4_inline, is_punched)
{
	return LENGTHS;
}

ParameterizedTest(size_t *len, ext4_inline, is_punched)
{
	begin(*len);
	model_fallocate(&m, PUNCH, *len / 3, *len / 3 + 1);
	if (m.size < 1000)
		model_fallocate(&m, 0, 0, 5000);
	end(false);
}

ParameterizedTestParameters(ext4_inline, is_deleted)
{
	return LENGTHS;
}

ParameterizedTest(size_t *len, ext4_inline, is_deleted)
{
	struct vnode *root;

	begin(*len);
	root = fixture_find(&f, "");
	cr_assert(!ext4_unlink(root, "file"));
	fixture_put(&f, root);
	model_finish(&m);
	fixture_finish(&f);
}

/* No block is to be had: the file stays as it is, and readable. */
Test(ext4_inline, full_image_keeps_it)
{
	struct vnode *other;
	char buf[4096];
	ssize_t done;

	begin(100);
	other = fixture_create(&f, "other", 0600);
	memset(buf, 'o', sizeof(buf));
	do {
		done = ext4_write(other, 0, buf, sizeof(buf), VWRITE_APPEND);
	} while (done > 0);
	cr_assert_eq(ext4_write(m.node, 0, "x", 1, 0), -ENOSPC);
	fixture_put(&f, other);
	end(true);
}
