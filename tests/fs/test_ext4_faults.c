/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A sweep over image failures: a small workload is run again and again, and each time one read or
 * write more goes well before the image fails, once or for good. Nothing may crash or hang; a
 * failed write must be told by somebody (an operation, sync or close) or have been made good; and
 * e2fsck must be able to make the image whole, so that it mounts.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ext4_fixture.h"

#define BYTES (8UL << 20)
#define RUNS 24		/* per kind of failure */

struct sweep {
	bool write, once;
};

ParameterizedTestParameters(ext4_faults, sweep)
{
	static struct sweep sweeps[] = {
		{ false, false }, { false, true }, { true, false }, { true, true },
	};

	return cr_make_param_array(struct sweep, sweeps, 4);
}

/* Remembers the first error. */
static void note(int *first, int err)
{
	if (err < 0 && !*first)
		*first = err;
}

static bool emit(void *arg, const char *name, size_t len, uint64_t ino, unsigned int type,
		 uint64_t next)
{
	return true;
}

/* One file: created, written, given an attribute, synced every fourth time. */
static void one_file(struct fixture *f, struct vnode *dir, int i, int *err)
{
	const struct volume_ops *ops = f->volume->ops;
	static char data[20000];
	struct vnode *node;
	char name[16];
	int ret;

	snprintf(name, sizeof(name), "f%d", i);
	ret = ops->mknod(dir, name, S_IFREG | 0644, 0, &fixture_root, &node);
	note(err, ret);
	if (ret)
		return;
	memset(data, i + 1, sizeof(data));
	note(err, ops->write(node, 0, data, sizeof(data), 0));
	note(err, ops->setxattr(node, "user.name", name, sizeof(name), 0, &fixture_root));
	if (i % 4 == 0)
		note(err, ops->fsync(node, false));
	if (i % 3 == 0)
		note(err, ops->unlink(dir, name));
	ops->put(node, 1);
}

/* Returns the first error that anything reported. */
static int workload(struct fixture *f)
{
	const struct volume_ops *ops = f->volume->ops;
	struct vnode *root = ops->root(f->volume), *dir;
	int err = 0, ret;

	ret = ops->mkdir(root, "dir", 0755, &fixture_root, &dir);
	note(&err, ret);
	if (!ret) {
		for (int i = 0; i < 12; i++)
			one_file(f, dir, i, &err);
		note(&err, ops->rename(dir, "f1", root, "moved", 0, &fixture_root));
		note(&err, ops->readdir(dir, 0, emit, NULL));
		ops->put(dir, 1);
	}
	ops->put(root, 1);
	note(&err, ops->sync(f->volume));
	return err;
}

static void arm(struct fixture *f, const struct sweep *sweep, long at)
{
	f->reads = f->writes = 0;
	f->fail_once = sweep->once;
	f->fail_reads_from = sweep->write ? 0 : at;
	f->fail_writes_from = sweep->write ? at : 0;
}

/* Mounts, works, unmounts. Returns the first error. */
static int run(struct fixture *f)
{
	int err = fixture_open(f);

	if (err)
		return err;
	err = workload(f);
	note(&err, fixture_close(f));
	return err;
}

static bool hit(struct fixture *f, long at)
{
	return f->fail_writes_from ? f->writes >= at : f->reads >= at;
}

static void must_mend(struct fixture *f)
{
	arm(f, &(struct sweep){ 0 }, 0);
	cr_assert_leq(fixture_run(f, "PATH=$PATH:/usr/sbin:/sbin e2fsck -fy %s >/dev/null 2>&1"),
		      1);
	cr_assert_eq(fixture_open(f), 0);
	cr_expect_eq(fixture_close(f), 0);
}

ParameterizedTest(struct sweep *sweep, ext4_faults, sweep)
{
	char *image = malloc(BYTES);
	struct fixture f;
	long total, step;

	fixture_format(&f, BYTES, "-b 1024 -O ^has_journal");
	f.cache_bytes = 1 << 20;
	cr_assert_eq(pread(f.fd, image, BYTES, 0), (ssize_t)BYTES);
	arm(&f, sweep, 1L << 40);
	cr_assert_eq(run(&f), 0);
	total = sweep->write ? f.writes : f.reads;
	cr_assert_eq(fixture_fsck(&f), 0);
	step = total / RUNS + 1;
	for (long at = 1; at <= total; at += step) {
		int err;

		cr_assert_eq(pwrite(f.fd, image, BYTES, 0), (ssize_t)BYTES);
		arm(&f, sweep, at);
		err = run(&f);
		/* A single failure may have been made good by writing again. */
		if (sweep->write && hit(&f, at) && !sweep->once)
			cr_expect_neq(err, 0, "write %ld of %ld failed in silence", at, total);
		if (!err)
			cr_expect_eq(fixture_fsck(&f), 0, "failure %ld was lost", at);
		must_mend(&f);
	}
	free(image);
	fixture_drop(&f);
}
