/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Torture: threads do random things to a small tree through the volume's ops, on a cache much
 * smaller than the data, for as many seconds as the first argument says; then the image must please
 * e2fsck. Further arguments: a seed, and mkfs options instead of the usual ones.
 *
 * Every byte that is ever written at a position of a file has the value that pattern() gives the
 * position, so a read may see only that or zero (a hole, a truncated part): a block that was freed
 * under a reader, or written to the wrong place, is seen. Made to be run under ThreadSanitizer.
 * Exit status 0, or 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "ext4_fixture.h"
#include "rcu.h"

#define MIB (1UL << 20)
#define THREADS 6
#define DIRS 4
#define NAMES 24
#define SPAN (512 << 10)	/* of a file */
#define PUNCH (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)
#define CHUNK (24 << 10)	/* most bytes of one write */

struct worker {
	pthread_t thread;
	struct fixture *f;
	uint64_t state;
	unsigned long done;
};

static bool stop;
static bool faults;		/* the image fails now and then */
static int failed;

static uint8_t pattern(loff_t pos)
{
	return (pos / 5 + pos / 4096 * 31) % 255 + 1;
}

static uint32_t random_below(struct worker *w, uint32_t limit)
{
	w->state = w->state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (w->state >> 33) % limit;
}

static void complain(const char *what, long value)
{
	fprintf(stderr, "torture: %s: %ld\n", what, value);
	__atomic_store_n(&failed, 1, __ATOMIC_RELAXED);
}

/* Errors that random operations are bound to meet */
static void expect(const char *what, long ret)
{
	switch (ret) {
	case -ENOENT: case -EEXIST: case -ENOTEMPTY: case -EISDIR: case -ENOTDIR: case -EINVAL:
	case -ENOSPC: case -ENODATA: case -ESTALE: case -ENXIO: case -EPERM: case -ELOOP:
	case -EOPNOTSUPP: case -EBUSY:
		return;
	}
	if (ret < 0 && !(ret == -EIO && faults))
		complain(what, ret);
}

static struct vnode *some_dir(struct worker *w)
{
	struct vnode *root = w->f->volume->ops->root(w->f->volume), *dir;
	char name[8];

	snprintf(name, sizeof(name), "d%u", random_below(w, DIRS));
	if (w->f->volume->ops->lookup(root, name, &dir))
		return root;
	w->f->volume->ops->put(root, 1);
	return dir;
}

static void some_name(struct worker *w, char name[8])
{
	snprintf(name, 8, "n%u", random_below(w, NAMES));
}

static struct vnode *some_node(struct worker *w)
{
	struct vnode *dir = some_dir(w), *node = NULL;
	char name[8];

	some_name(w, name);
	if (w->f->volume->ops->lookup(dir, name, &node))
		node = NULL;
	w->f->volume->ops->put(dir, 1);
	return node;
}

static void do_create(struct worker *w)
{
	const struct volume_ops *ops = w->f->volume->ops;
	struct vnode *dir = some_dir(w), *node;
	char name[8];
	int err;

	some_name(w, name);
	switch (random_below(w, 8)) {
	case 0:
		err = ops->mkdir(dir, name, 0755, &fixture_root, &node);
		break;
	case 1:
		err = ops->symlink(dir, name, "somewhere/else", &fixture_root, &node);
		break;
	default:
		err = ops->mknod(dir, name, S_IFREG | 0644, 0, &fixture_root, &node);
	}
	expect("create", err);
	if (!err)
		ops->put(node, 1);
	ops->put(dir, 1);
}

static void do_remove(struct worker *w)
{
	const struct volume_ops *ops = w->f->volume->ops;
	struct vnode *dir = some_dir(w);
	char name[8];

	some_name(w, name);
	if (ops->unlink(dir, name) == -EISDIR)
		expect("rmdir", ops->rmdir(dir, name));
	ops->put(dir, 1);
}

static void do_rename(struct worker *w)
{
	static const unsigned int flags[] = { 0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE };
	const struct volume_ops *ops = w->f->volume->ops;
	struct vnode *from = some_dir(w), *to = some_dir(w);
	char old[8], new[8];

	some_name(w, old);
	some_name(w, new);
	expect("rename", ops->rename(from, old, to, new, flags[random_below(w, 5)],
				     &fixture_root));
	ops->put(from, 1);
	ops->put(to, 1);
}

static void do_link(struct worker *w)
{
	const struct volume_ops *ops = w->f->volume->ops;
	struct vnode *node = some_node(w), *dir = some_dir(w);
	char name[8];
	int err;

	some_name(w, name);
	if (node && !S_ISDIR(vnode_mode(node))) {
		err = ops->link(node, dir, name);
		expect("link", err);
		if (!err)
			ops->put(node, 1);
	}
	if (node)
		ops->put(node, 1);
	ops->put(dir, 1);
}

static void do_write(struct worker *w, struct vnode *node)
{
	static __thread uint8_t buf[CHUNK];
	loff_t pos = random_below(w, SPAN);
	size_t len = 1 + random_below(w, CHUNK);

	for (size_t i = 0; i < len; i++)
		buf[i] = pattern(pos + i);
	expect("write", w->f->volume->ops->write(node, pos, buf, len, 0));
}

static void do_read(struct worker *w, struct vnode *node)
{
	static __thread uint8_t buf[CHUNK];
	loff_t pos = random_below(w, SPAN);
	ssize_t n;

	w->f->volume->ops->accessed(node);
	n = filemap_read(&node->mapping, pos, buf, sizeof(buf));
	expect("read", n);
	for (ssize_t i = 0; i < n; i++) {
		if (buf[i] && buf[i] != pattern(pos + i)) {
			complain("wrong byte at", pos + i);
			return;
		}
	}
}

static void do_change(struct worker *w, struct vnode *node)
{
	const struct volume_ops *ops = w->f->volume->ops;
	struct stat st = { .st_size = random_below(w, SPAN), .st_mode = 0600 };
	loff_t pos = random_below(w, SPAN), len = 1 + random_below(w, SPAN / 4);

	switch (random_below(w, 8)) {
	case 0:
		expect("truncate", ops->setattr(node, &st, VATTR_SIZE, &fixture_root));
		break;
	case 1:
		expect("punch", ops->fallocate(node, PUNCH, pos, len));
		break;
	case 2:
		expect("allocate", ops->fallocate(node, 0, pos, len));
		break;
	case 3:
		expect("zero", ops->fallocate(node, FALLOC_FL_ZERO_RANGE, pos, len));
		break;
	case 4:
		expect("fsync", ops->fsync(node, false));
		break;
	default:
		do_write(w, node);
	}
}

static bool count_entry(void *arg, const char *name, size_t len, uint64_t ino, unsigned int type,
			uint64_t next)
{
	++*(unsigned int *)arg;
	return true;
}

static void do_look(struct worker *w)
{
	const struct volume_ops *ops = w->f->volume->ops;
	struct vnode *node = some_node(w), *dir = some_dir(w);
	unsigned int entries = 0;
	char value[40] = "value", target[4096];
	struct stat st;

	expect("readdir", ops->readdir(dir, 0, count_entry, &entries));
	if (entries < 2)
		complain("entries", entries);
	ops->accessed(dir);
	ops->put(dir, 1);
	if (!node)
		return;
	expect("getattr", ops->getattr(node, &st));
	if (S_ISLNK(vnode_mode(node)))
		expect("readlink", ops->readlink(node, target, sizeof(target)));
	else if (random_below(w, 2))
		expect("setxattr", ops->setxattr(node, "user.x", value, 1 + random_below(w, 39), 0,
						 &fixture_root));
	else
		expect("getxattr", ops->getxattr(node, "user.x", value, sizeof(value)));
	ops->put(node, 1);
}

static void do_data(struct worker *w)
{
	struct vnode *node = some_node(w);

	if (!node)
		return;
	if (S_ISREG(vnode_mode(node))) {
		if (random_below(w, 2))
			do_read(w, node);
		else
			do_change(w, node);
	}
	w->f->volume->ops->put(node, 1);
}

static void *work(void *arg)
{
	struct worker *w = arg;

	rcu_register_thread();
	for (; !__atomic_load_n(&stop, __ATOMIC_RELAXED); w->done++) {
		switch (random_below(w, 16)) {
		case 0: case 1:
			do_create(w);
			break;
		case 2:
			do_remove(w);
			break;
		case 3:
			do_rename(w);
			break;
		case 4:
			do_link(w);
			break;
		case 5: case 6:
			do_look(w);
			break;
		default:
			do_data(w);
		}
	}
	rcu_unregister_thread();
	return NULL;
}

static void make_dirs(struct fixture *f)
{
	char name[8];

	for (int i = 0; i < DIRS; i++) {
		snprintf(name, sizeof(name), "d%d", i);
		fixture_put(f, fixture_create(f, name, S_IFDIR | 0755));
	}
}

/* Lets the image be for @seconds, or has it fail for some ms in every 50. */
static void wait_seconds(struct fixture *f, unsigned int seconds)
{
	for (unsigned int i = 0; i < seconds * 20; i++) {
		if (faults) {
			__atomic_store_n(i & 1 ? &f->fail_writes_from : &f->fail_reads_from, 1,
					 __ATOMIC_RELAXED);
			usleep(3000);
			__atomic_store_n(&f->fail_writes_from, 0, __ATOMIC_RELAXED);
			__atomic_store_n(&f->fail_reads_from, 0, __ATOMIC_RELAXED);
		}
		usleep(50000);
	}
}

/* The image after it: sound or, when it has failed, to be made sound by e2fsck. */
static void check(struct fixture *f, int close_error)
{
	if (faults) {
		int status = fixture_run(f, "PATH=$PATH:/usr/sbin:/sbin; "
					    "e2fsck -fy %s >/dev/null 2>&1");

		if (status > 1)
			complain("e2fsck -fy", status);
		return;
	}
	if (close_error)
		complain("close", close_error);
	if (fixture_fsck(f))
		complain("e2fsck", 0);
}

static int torture(const char *mkfs, unsigned int seconds, uint64_t seed)
{
	struct worker workers[THREADS];
	unsigned long done = 0;
	struct fixture f;

	fixture_format(&f, 24 * MIB, mkfs);
	f.cache_bytes = 2 * MIB;
	f.readahead_bytes = MIB;
	f.options.commit = 1;
	if (fixture_open(&f))
		return 1;
	if (seed & 1)	/* maps are dropped all the time */
		fixture_vol(&f)->map_limit = 1100;
	make_dirs(&f);
	stop = false;
	for (int i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){ .f = &f, .state = seed * THREADS + i };
		pthread_create(&workers[i].thread, NULL, work, &workers[i]);
	}
	wait_seconds(&f, seconds);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		done += workers[i].done;
	}
	check(&f, fixture_close(&f));
	if (faults && !f.failures)
		complain("failures of the image", 0);
	printf("torture: %s: %lu operations, %ld failures, seed %llu\n", mkfs, done, f.failures,
	       (unsigned long long)seed);
	fixture_drop(&f);
	return failed;
}

int main(int argc, char **argv)
{
	static const char *const kinds[] = { "-b 4096", "-b 1024 -t ext2",
					     "-b 1024 -O inline_data" };
	unsigned int seconds = argc > 1 ? atoi(argv[1]) : 2;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL);

	if (argc > 3)
		return torture(argv[3], seconds, seed);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]) && !failed; i++)
		torture(kinds[i], seconds, seed + i);
	faults = true;
	if (!failed)
		torture("-b 1024 -O ^has_journal", seconds, seed);
	return failed;
}
