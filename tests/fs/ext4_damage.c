/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Damage: a small image full of all kinds of things has some bytes of it changed at random, is
 * mounted, looked through, changed here and there, and unmounted. Errors are fine; a crash, a hang
 * or a sanitizer's complaint is not. Arguments: how many times, and a seed. On a failure the seed
 * of that round is printed.
 */
#include <fcntl.h>
#include <linux/falloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ext4_fixture.h"

#define BYTES (4UL << 20)
#define BLOCK 1024
#define DEPTH 6
#define ENTRIES 64
#define SECONDS 60		/* for one round */

static uint64_t state, round_seed;

static uint32_t random_below(uint32_t limit)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (state >> 33) % limit;
}

static void tell_seed(int sig)
{
	char line[80];
	int len = snprintf(line, sizeof(line), "damage: signal %d in the round of seed %llu\n", sig,
			   (unsigned long long)round_seed);

	if (write(STDERR_FILENO, line, len) < 0)
		_exit(2);
	_exit(1);
}

/* What is in the image before it is damaged */

static void fill_dir(struct fixture *f, const char *dir, int files)
{
	static char data[40000];
	char path[64];

	for (int i = 0; i < files; i++) {
		struct vnode *node;

		snprintf(path, sizeof(path), "%s/file%d", dir, i);
		node = fixture_create(f, path, S_IFREG | 0644);
		memset(data, i + 1, sizeof(data));
		/* With holes, so that there are many extents. */
		for (int at = 0; at < i; at++)
			f->volume->ops->write(node, at * 3 * BLOCK, data, 100 + i * 7, 0);
		f->volume->ops->setxattr(node, "user.long", data, 10 + i * 40, 0, &fixture_root);
		fixture_put(f, node);
	}
}

static void fill(struct fixture *f)
{
	struct vnode *root = f->volume->ops->root(f->volume), *node;
	char target[200];

	for (int i = 0; i < 4; i++) {
		char name[] = "dirN";

		name[3] = '0' + i;
		fixture_put(f, fixture_create(f, name, S_IFDIR | 0755));
		fill_dir(f, name, i == 0 ? 40 : 8);
	}
	memset(target, 't', sizeof(target));
	target[sizeof(target) - 1] = '\0';
	f->volume->ops->symlink(root, "slow", target, &fixture_root, &node);
	fixture_put(f, node);
	f->volume->ops->symlink(root, "fast", "short", &fixture_root, &node);
	fixture_put(f, node);
	fixture_put(f, root);
}

/* Looking through */

struct entries {
	unsigned int nr;
	char names[ENTRIES][256];
};

static bool collect(void *arg, const char *name, size_t len, uint64_t ino, unsigned int type,
		    uint64_t next)
{
	struct entries *entries = arg;

	if (entries->nr == ENTRIES || len > 255)
		return false;
	memcpy(entries->names[entries->nr], name, len);
	entries->names[entries->nr++][len] = '\0';
	return true;
}

static void change_file(struct fixture *f, struct vnode *node)
{
	const struct volume_ops *ops = f->volume->ops;
	struct stat st = { .st_size = random_below(60000) };
	char data[3000] = "changed";

	switch (random_below(6)) {
	case 0:
		ops->setattr(node, &st, VATTR_SIZE, &fixture_root);
		break;
	case 1:
		ops->write(node, random_below(100000), data, sizeof(data), VWRITE_KILL_PRIV);
		break;
	case 2:
		ops->fallocate(node, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			       random_below(20000), 10000);
		break;
	case 3:
		ops->fallocate(node, 0, random_below(200000), 5000);
		break;
	case 4:
		ops->setxattr(node, "user.new", data, random_below(600), 0, &fixture_root);
		break;
	default:
		ops->fsync(node, false);
	}
}

static void look_at(struct fixture *f, struct vnode *node)
{
	const struct volume_ops *ops = f->volume->ops;
	char buf[8192];
	struct stat st;
	ssize_t n;

	ops->getattr(node, &st);
	n = ops->listxattr(node, buf, sizeof(buf), &fixture_root);
	for (char *name = buf; n > 0 && name < buf + n; name += strlen(name) + 1) {
		char value[4096];

		ops->getxattr(node, name, value, sizeof(value));
	}
	if (S_ISLNK(vnode_mode(node)))
		ops->readlink(node, buf, sizeof(buf));
	if (!S_ISREG(vnode_mode(node)))
		return;
	filemap_read(&node->mapping, 0, buf, sizeof(buf));
	filemap_read(&node->mapping, random_below(100000), buf, sizeof(buf));
	ops->seek(node, random_below(50000), VSEEK_HOLE);
	change_file(f, node);
}

static void change_dir(struct fixture *f, struct vnode *dir, struct entries *entries)
{
	const struct volume_ops *ops = f->volume->ops;
	struct vnode *node;

	if (entries->nr > 2) {
		ops->unlink(dir, entries->names[2 + random_below(entries->nr - 2)]);
		ops->rename(dir, entries->names[2 + random_below(entries->nr - 2)], dir, "moved", 0,
			    &fixture_root);
	}
	if (!ops->mknod(dir, "new", S_IFREG | 0644, 0, &fixture_root, &node))
		ops->put(node, 1);
	if (!ops->mkdir(dir, "newdir", 0755, &fixture_root, &node))
		ops->put(node, 1);
}

static void walk(struct fixture *f, struct vnode *dir, int depth)
{
	const struct volume_ops *ops = f->volume->ops;
	struct entries *entries = calloc(1, sizeof(*entries));
	struct vnode *node;

	ops->readdir(dir, 0, collect, entries);
	look_at(f, dir);
	for (unsigned int i = 0; i < entries->nr; i++) {
		const char *name = entries->names[i];

		if (!strcmp(name, ".") || !strcmp(name, "..") || ops->lookup(dir, name, &node))
			continue;
		if (S_ISDIR(vnode_mode(node)) && depth)
			walk(f, node, depth - 1);
		else
			look_at(f, node);
		ops->put(node, 1);
	}
	change_dir(f, dir, entries);
	free(entries);
}

/* Damaging */

static bool interesting(const unsigned char *image, size_t block)
{
	for (size_t i = 0; i < BLOCK; i++) {
		if (image[block * BLOCK + i])
			return true;
	}
	return false;
}

static void damage(unsigned char *image)
{
	unsigned int changes = 1 + random_below(12);

	while (changes--) {
		size_t block = random_below(BYTES / BLOCK);
		/* The superblock is one block of many: half of the time it is left alone. */
		while (!interesting(image, block) || (block == 1 && random_below(2)))
			block = random_below(BYTES / BLOCK);
		image[block * BLOCK + random_below(BLOCK)] =
			random_below(4) ? random_below(256) : 0xff;
	}
}

static void one_round(struct fixture *f, const unsigned char *clean, unsigned char *image)
{
	struct vnode *root;

	memcpy(image, clean, BYTES);
	damage(image);
	if (pwrite(f->fd, image, BYTES, 0) != (ssize_t)BYTES)
		abort();
	alarm(SECONDS);
	f->options.ro = !random_below(4);
	if (!fixture_open(f)) {
		root = f->volume->ops->root(f->volume);
		walk(f, root, DEPTH);
		f->volume->ops->put(root, 1);
		f->volume->ops->sync(f->volume);
		fixture_close(f);
	}
	alarm(0);
}

static void damage_kind(const char *mkfs, unsigned int rounds, uint64_t seed)
{
	unsigned char *clean = malloc(BYTES), *image = malloc(BYTES);
	struct fixture f;

	fixture_format(&f, BYTES, mkfs);
	f.cache_bytes = 1 << 20;
	if (fixture_open(&f))
		abort();
	fill(&f);
	fixture_close(&f);
	if (pread(f.fd, clean, BYTES, 0) != (ssize_t)BYTES)
		abort();
	for (unsigned int i = 0; i < rounds; i++) {
		round_seed = state = seed + i;
		one_round(&f, clean, image);
	}
	fixture_drop(&f);
	free(clean);
	free(image);
}

int main(int argc, char **argv)
{
	static const char *const kinds[] = {
		"-b 1024 -N 256 -O ^has_journal,^metadata_csum",
		"-b 1024 -N 256 -O ^has_journal,^metadata_csum,inline_data",
		"-b 1024 -N 256 -t ext2",
		"-b 1024 -N 256 -O ^has_journal,metadata_csum",
	};
	unsigned int rounds = argc > 1 ? atoi(argv[1]) : 25;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;

	/* With a third argument, to look into one round: what is said on standard output, too. */
	if (argc <= 3 && !freopen("/dev/null", "w", stdout))
		return 2;
	signal(SIGALRM, tell_seed);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		damage_kind(kinds[i], rounds, seed);
	return 0;
}
