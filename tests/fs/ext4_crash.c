/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Crashes: a workload on a small image with a small journal is recorded (record.h), and states that
 * a crash could have left are made of it: every prefix at a flush in turn, and at points between,
 * with some of the later writes. Each is recovered by foliofs and by e2fsck, with FOLIOFS_LONG=1 and
 * as root by the kernel, too. Then `e2fsck -fn` finds nothing, the trees are the same, what fsync had
 * returned for is whole, a file that is replaced by rename is the old or the new one, and no sector
 * of a file belongs to another one.
 *
 * Arguments: how many states of each kind of image (FOLIOFS_LONG=1: over 5,000 in all), and a seed.
 * With a directory as the third, bad states are kept there. Exit status 0, or 1.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "crash_tree.h"
#include "ext4_fixture.h"

#define MIB (1UL << 20)
#define NAMES 40
#define DIRS 5
#define MOST (96 << 10)		/* bytes of a usual file */
#define FILL 0xa5		/* what the image held before */

/* What the image must hold from event @from on, until @until. */
struct promise {
	char path[32];
	uint32_t version;	/* at least; 0: nothing of that name */
	bool whole;		/* exactly this version, all of it */
	size_t from, until;
};

struct work {
	struct fixture *f;
	const struct volume_ops *ops;
	uint64_t seed;
	uint32_t next_file, next_version;
	struct promise *promises;
	size_t nr, room;
};

static const char *keep_dir;
static bool with_kernel;

static void path_of(char path[32], uint32_t dir, uint32_t name)
{
	if (dir)
		snprintf(path, 32, "d%u/n%u", dir, name);
	else
		snprintf(path, 32, "n%u", name);
}

static const char *name_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static uint32_t pick(struct work *w, uint32_t limit)
{
	return record_random(&w->seed, limit);
}

static struct vnode *dir_of(struct work *w, uint32_t dir)
{
	struct vnode *root = w->ops->root(w->f->volume), *node;
	char name[16];

	if (!dir)
		return root;
	snprintf(name, sizeof(name), "d%u", dir);
	if (w->ops->lookup(root, name, &node))
		node = NULL;
	w->ops->put(root, 1);
	return node;
}

/* What was promised of a path ends: it is about to change. */
static void break_promises(struct work *w, const char *path)
{
	size_t now = record_now(w->f->record), len = strlen(path);

	for (size_t i = 0; i < w->nr; i++) {
		struct promise *p = &w->promises[i];

		if (p->until == SIZE_MAX && !strncmp(p->path, path, len) &&
		    (!p->path[len] || p->path[len] == '/'))
			p->until = now;
	}
}

static void promise(struct work *w, const char *path, uint32_t version, bool whole)
{
	if (w->nr == w->room) {
		w->room = w->room ? 2 * w->room : 256;
		w->promises = realloc(w->promises, w->room * sizeof(*w->promises));
		assert(w->promises);
	}
	w->promises[w->nr] = (struct promise){ .version = version, .whole = whole,
					       .from = record_now(w->f->record),
					       .until = SIZE_MAX };
	strcpy(w->promises[w->nr++].path, path);
}

static void fill(unsigned char *buf, size_t len, uint32_t file, uint32_t version, uint64_t pos)
{
	memset(buf, (file * 7 + version) | 1, len);
	for (size_t at = 0; at + sizeof(struct crash_stamp) <= len; at += 512) {
		struct crash_stamp stamp = { file, version, pos + at };

		memcpy(buf + at, &stamp, sizeof(stamp));
	}
}

/* The number in all that belongs to a file */
static uint32_t number_of(struct work *w, struct vnode *node)
{
	struct stat st;

	return w->ops->getattr(node, &st) ? 0 : st.st_uid;
}

/* Writes all of a file anew: some whole sectors. Returns its version. */
static uint32_t write_file(struct work *w, struct vnode *node, size_t most)
{
	static unsigned char buf[1 << 20];
	uint32_t version = w->next_version++;
	size_t len = (1 + pick(w, most / 512)) * 512;
	struct stat st = { .st_size = len };

	if (w->ops->getattr(node, &st))
		return version;
	if ((size_t)st.st_size > len) {
		st.st_size = len;
		w->ops->setattr(node, &st, VATTR_SIZE, &fixture_root);
	}
	fill(buf, len, number_of(w, node), version, 0);
	w->ops->write(node, 0, buf, len, 0);
	return version;
}

static struct vnode *create(struct work *w, struct vnode *dir, const char *name)
{
	struct cred cred = { .uid = w->next_file++, .privileged = true };
	struct vnode *node;

	return w->ops->mknod(dir, name, S_IFREG | 0644, 0, &cred, &node) ? NULL : node;
}

/* The file of a name, made when there is none. */
static struct vnode *get_file(struct work *w, uint32_t d, uint32_t n)
{
	struct vnode *dir = dir_of(w, d), *node = NULL;
	char path[32];

	path_of(path, d, n);
	if (!dir)
		return NULL;
	if (w->ops->lookup(dir, name_of(path), &node)) {
		break_promises(w, path);
		node = create(w, dir, name_of(path));
	}
	w->ops->put(dir, 1);
	return node;
}

static bool is_file(struct vnode *node)
{
	return S_ISREG(vnode_mode(node));
}

/* Several names of one file: what is done to one is done to the others. */
static bool is_single(struct work *w, struct vnode *node)
{
	struct stat st;

	return !w->ops->getattr(node, &st) && st.st_nlink == 1;
}

static void do_write(struct work *w, uint32_t d, uint32_t n)
{
	struct vnode *node = get_file(w, d, n);
	uint32_t version;
	char path[32];

	if (!node)
		return;
	path_of(path, d, n);
	if (is_file(node) && is_single(w, node)) {
		break_promises(w, path);
		version = write_file(w, node, pick(w, 20) ? MOST : 8 * MOST);
		if (!pick(w, 3) && !w->ops->fsync(node, false))
			promise(w, path, version, true);
	}
	w->ops->put(node, 1);
}

/* Writes a new file and puts it in place of the old one. */
static void do_replace(struct work *w, uint32_t d, uint32_t n)
{
	struct vnode *dir = dir_of(w, d), *node, *old;
	bool synced = pick(w, 2), existed;
	char name[8], path[32];
	uint32_t version;

	if (!dir)
		return;
	snprintf(name, sizeof(name), "n%u", n);
	path_of(path, d, n);
	existed = !w->ops->lookup(dir, name, &old);
	if (existed)
		w->ops->put(old, 1);
	w->ops->unlink(dir, "new");
	node = create(w, dir, "new");
	if (node) {
		version = write_file(w, node, MOST / 4);
		if (synced)
			synced = !w->ops->fsync(node, false);
		break_promises(w, path);
		if (!w->ops->rename(dir, "new", dir, name, 0, &fixture_root) && synced &&
		    !w->ops->fsync(dir, false))
			promise(w, path, version, true);
		w->ops->put(node, 1);
	}
	w->ops->put(dir, 1);
}

static void do_remove(struct work *w, uint32_t d, uint32_t n)
{
	struct vnode *dir = dir_of(w, d);
	char name[8], path[32];

	if (!dir)
		return;
	snprintf(name, sizeof(name), "n%u", n);
	path_of(path, d, n);
	break_promises(w, path);
	if (w->ops->unlink(dir, name) == -EISDIR)
		w->ops->rmdir(dir, name);
	if (!pick(w, 4) && !w->ops->fsync(dir, false))
		promise(w, path, 0, false);
	w->ops->put(dir, 1);
}

static void do_resize(struct work *w, uint32_t d, uint32_t n)
{
	struct vnode *node = get_file(w, d, n);
	struct stat st = { .st_size = pick(w, 2 * MOST) };
	char path[32];

	path_of(path, d, n);
	if (!node)
		return;
	if (is_file(node) && is_single(w, node)) {
		break_promises(w, path);
		if (pick(w, 3))
			w->ops->setattr(node, &st, VATTR_SIZE, &fixture_root);
		else
			w->ops->fallocate(node, pick(w, 2) ? FALLOC_FL_KEEP_SIZE :
					  FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE,
					  pick(w, MOST) & ~511, (4096 + pick(w, MOST)) & ~511);
	}
	w->ops->put(node, 1);
}

static void do_link(struct work *w, uint32_t d, uint32_t n)
{
	struct vnode *node = get_file(w, d, n), *dir = dir_of(w, pick(w, DIRS));
	char name[8], path[32];

	snprintf(name, sizeof(name), "l%u", pick(w, 10));
	if (node && dir && is_file(node)) {
		path_of(path, d, n);
		break_promises(w, path);
		w->ops->unlink(dir, name);
		w->ops->link(node, dir, name);
	}
	if (node)
		w->ops->put(node, 1);
	if (dir)
		w->ops->put(dir, 1);
}

static void do_xattr(struct work *w, uint32_t d, uint32_t n)
{
	static char value[900];
	struct vnode *node = get_file(w, d, n);

	if (!node)
		return;
	memset(value, 'a' + pick(w, 26), sizeof(value));
	if (pick(w, 4))
		w->ops->setxattr(node, "user.crash", value, 1 + pick(w, sizeof(value)), 0,
				 &fixture_root);
	else
		w->ops->removexattr(node, "user.crash");
	w->ops->put(node, 1);
}

/* A tree of directories comes and goes: its blocks become those of files, and back. */
static void do_tree(struct work *w, uint32_t d)
{
	struct vnode *dir = dir_of(w, d), *sub, *node;
	char name[32];

	if (!dir)
		return;
	if (!w->ops->mkdir(dir, "tree", 0755, &fixture_root, &sub)) {
		for (int i = 0; i < 60; i++) {
			snprintf(name, sizeof(name), "a name to fill blocks %d", i);
			if (!w->ops->mkdir(sub, name, 0755, &fixture_root, &node))
				w->ops->put(node, 1);
		}
		if (!w->ops->symlink(sub, "link", "a target that is too long to be kept in the "
				     "inode, so that it has a block of its own, "
				     "which is metadata", &fixture_root, &node))
			w->ops->put(node, 1);
		w->ops->put(sub, 1);
	} else if (!w->ops->lookup(dir, "tree", &sub)) {
		for (int i = 0; i < 60; i++) {
			snprintf(name, sizeof(name), "a name to fill blocks %d", i);
			w->ops->rmdir(sub, name);
		}
		w->ops->unlink(sub, "link");
		w->ops->put(sub, 1);
		w->ops->rmdir(dir, "tree");
	}
	w->ops->put(dir, 1);
}

static void do_move(struct work *w, uint32_t d, uint32_t n)
{
	uint32_t to_d = pick(w, DIRS), to_n = pick(w, NAMES);
	struct vnode *dir = dir_of(w, d), *to = dir_of(w, to_d);
	char name[8], to_name[8], path[32];

	snprintf(name, sizeof(name), "n%u", n);
	snprintf(to_name, sizeof(to_name), "n%u", to_n);
	path_of(path, d, n);
	break_promises(w, path);
	path_of(path, to_d, to_n);
	break_promises(w, path);
	if (dir && to)
		w->ops->rename(dir, name, to, to_name, 0, &fixture_root);
	if (dir)
		w->ops->put(dir, 1);
	if (to)
		w->ops->put(to, 1);
}

static void one_step(struct work *w)
{
	uint32_t d = pick(w, DIRS), n = pick(w, NAMES);

	switch (pick(w, 16)) {
	case 0: case 1: case 2: case 3: case 4:
		do_write(w, d, n);
		break;
	case 5: case 6:
		do_replace(w, d, n % 4);
		break;
	case 7: case 8:
		do_remove(w, d, n);
		break;
	case 9: case 10:
		do_resize(w, d, n);
		break;
	case 11:
		do_link(w, d, n);
		break;
	case 12:
		do_xattr(w, d, n);
		break;
	case 13:
		do_tree(w, d);
		break;
	case 14:
		do_move(w, d, n);
		break;
	default:
		if (!pick(w, 4))
			w->ops->sync(w->f->volume);
	}
}

/* Does the work, with a record of it. */
static void run(struct work *w, unsigned int steps)
{
	char name[8];

	if (fixture_open(w->f))
		abort();
	w->ops = w->f->volume->ops;
	for (int i = 1; i < DIRS; i++) {
		snprintf(name, sizeof(name), "d%d", i);
		fixture_put(w->f, fixture_create(w->f, name, S_IFDIR | 0755));
	}
	w->ops->sync(w->f->volume);
	fixture_close(w->f);
	w->f->record = record_begin(w->f->fd);
	if (fixture_open(w->f))
		abort();
	while (steps--)
		one_step(w);
	fixture_close(w->f);
}

/*
 * States
 */

struct checker {
	struct work *w;
	unsigned char *state;
	char path[3][80];	/* for foliofs, for e2fsck, for the kernel */
	unsigned long bad, states;
};

static void complain(struct checker *c, size_t point, const char *what, const char *about)
{
	char name[300];

	fprintf(stderr, "crash: event %zu of %zu: %s%s%s\n", point, c->w->f->record->nr, what,
		about ? ": " : "", about ? about : "");
	if (keep_dir && c->bad < 20) {
		FILE *out;

		snprintf(name, sizeof(name), "%s/state-%zu-%lu.img", keep_dir, point, c->states);
		out = fopen(name, "w");
		if (out) {
			fwrite(c->state, 1, c->w->f->record->size, out);
			fclose(out);
		}
	}
	c->bad++;
}

static void put_state(const struct checker *c, const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, c->state, c->w->f->record->size) !=
			      (ssize_t)c->w->f->record->size)
		abort();
	close(fd);
}

static int shell(const char *command, const char *path)
{
	char line[300];
	int status;

	snprintf(line, sizeof(line), "PATH=$PATH:/usr/sbin:/sbin; i=%s; %s", path, command);
	status = system(line);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool is_clean(const char *path)
{
	return !shell("e2fsck -fn $i >$i.log 2>&1 || { cat $i.log >&2; false; }", path);
}

/* Mounted and unmounted by us. */
static int recover_by_foliofs(const struct checker *c)
{
	struct fixture f = { .cache_bytes = 4 << 20 };
	int err;

	strcpy(f.path, c->path[0]);
	f.fd = open(f.path, O_RDWR | O_CLOEXEC);
	if (f.fd < 0)
		abort();
	f.options = c->w->f->options;
	f.options.image = f.path;
	f.options.mountpoint = NULL;
	err = fixture_open(&f);
	if (!err)
		err = fixture_close(&f);
	close(f.fd);
	return err;
}

/* Only the journal and orphans may be its business. */
static bool recover_by_e2fsck(const char *path)
{
	return shell("e2fsck -fp $i >$i.log 2>&1; [ $? -le 1 ] && "
		     "! grep -v -e 'recovering journal' -e 'orphaned inode' -e ' files (' $i.log | "
		     "grep . >&2", path) == 0;
}

static bool recover_by_kernel(const char *path)
{
	return !shell("mkdir -p $i.d && mount -t ext4 -o loop $i $i.d && umount $i.d", path);
}

/* The tree of a recovered image is to be as ours. */
static void compare_with(struct checker *c, size_t point, const struct crash_tree *ours,
			 const char *path, const char *differ)
{
	struct crash_tree theirs = { 0 };

	if (crash_tree_read(&theirs, path))
		complain(c, point, "the tree cannot be read", path);
	else if (strcmp(ours->text, theirs.text))
		complain(c, point, differ, NULL);
	crash_tree_free(&theirs);
}

static void check_promises(struct checker *c, size_t point, const struct crash_tree *tree)
{
	for (size_t i = 0; i < c->w->nr; i++) {
		const struct promise *p = &c->w->promises[i];
		const struct crash_file *file;

		if (point < p->from || point > p->until)
			continue;
		file = crash_tree_find(tree, p->path);
		if (!p->version && file)
			complain(c, point, "a removed file is back", p->path);
		if (!p->version)
			continue;
		if (!file)
			complain(c, point, "a synced file is missing", p->path);
		else if (file->version != p->version)
			complain(c, point, "a synced file has another content", p->path);
		else if (p->whole && !file->whole)
			complain(c, point, "a synced file is not whole", p->path);
	}
}

static void check_state(struct checker *c, size_t point)
{
	struct crash_tree ours = { 0 };

	for (int i = 0; i < 2 + with_kernel; i++)
		put_state(c, c->path[i]);
	c->states++;
	if (recover_by_foliofs(c)) {
		complain(c, point, "foliofs does not mount it", NULL);
		return;
	}
	if (!recover_by_e2fsck(c->path[1]))
		complain(c, point, "e2fsck has to repair", NULL);
	if (!is_clean(c->path[0]))
		complain(c, point, "foliofs leaves it unclean", NULL);
	if (with_kernel && !recover_by_kernel(c->path[2]))
		complain(c, point, "the kernel does not mount it", NULL);
	else if (with_kernel && !is_clean(c->path[2]))
		complain(c, point, "the kernel leaves it unclean", NULL);
	if (crash_tree_read(&ours, c->path[0])) {
		complain(c, point, "the tree cannot be read", NULL);
	} else {
		compare_with(c, point, &ours, c->path[1], "foliofs and e2fsck differ");
		if (with_kernel)
			compare_with(c, point, &ours, c->path[2], "foliofs and the kernel differ");
		if (ours.foreign)
			complain(c, point, "a file shows what is not its own", NULL);
		check_promises(c, point, &ours);
	}
	crash_tree_free(&ours);
}

/* Points that are to be looked at, rising: half of them at flushes. */
static size_t next_point(const struct record *record, size_t point, size_t step)
{
	size_t next = point + step;

	if (next % 2)
		return next;
	while (next < record->nr && record->events[next].len)
		next++;
	return next;
}

struct tally {
	unsigned long states, bad;
};

/* Builds and checks about @states states, as many as there are places to crash in at most. */
static void crash_all(struct work *w, unsigned int states, struct tally *tally)
{
	struct checker c = { .w = w };
	struct record *record = w->f->record;
	struct crash crash;
	size_t step;

	c.state = malloc(record->size);
	assert(c.state);
	for (int i = 0; i < 3; i++)
		snprintf(c.path[i], sizeof(c.path[i]), "%s.%d", w->f->path, i);
	crash_init(&crash, record);
	step = record->nr / states + 1;
	for (size_t point = record_random(&w->seed, step); point <= record->nr;
	     point = next_point(record, point, 1 + record_random(&w->seed, 2 * step))) {
		uint64_t seed = record_random(&w->seed, 4) ? w->seed | 1 : 0;

		crash_state(&crash, point, &seed, c.state);
		check_state(&c, point);
	}
	crash_finish(&crash);
	printf("%zu events, %zu promises, %lu states, %lu complaints\n", record->nr, w->nr, c.states,
	       c.bad);
	tally->states += c.states;
	tally->bad += c.bad;
	for (int i = 0; i < 3; i++)
		shell("rm -f $i $i.log; [ ! -d $i.d ] || rmdir $i.d", c.path[i]);
	free(c.state);
}

static void one_work(const char *mkfs, uint64_t bytes, unsigned int states, uint64_t seed,
		     struct tally *tally)
{
	struct work w = { .seed = seed, .next_file = 1, .next_version = 1 };
	struct fixture f;

	printf("%s, seed %llu: ", mkfs, (unsigned long long)seed);
	fflush(stdout);
	fixture_format_on(&f, bytes, mkfs, FILL);
	f.options.cache_size = f.cache_bytes;
	f.options.commit = 1;
	/* So that blocks go to their place while later transactions change them. */
	f.expire_ms = 10;
	w.f = &f;
	run(&w, 400);
	crash_all(&w, states, tally);
	record_end(f.record);
	free(w.promises);
	fixture_drop(&f);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *mkfs;
		uint64_t bytes;
	} kinds[] = {
		{ "-b 1024 -J size=1", 12 * MIB },
		{ "-b 4096 -J size=4", 16 * MIB },
		{ "-t ext3 -b 1024 -J size=1", 12 * MIB },
		{ "-b 2048 -J size=2 -O ^metadata_csum,^64bit", 12 * MIB },
	};
	unsigned int nr = sizeof(kinds) / sizeof(kinds[0]);
	const char *lots = getenv("FOLIOFS_LONG");
	unsigned int states = argc > 1 ? atoi(argv[1]) : lots && *lots == '1' ? 1700 : 15;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL);
	struct tally tally = {};

	with_kernel = lots && *lots == '1' && !geteuid();
	keep_dir = argc > 3 ? argv[3] : NULL;
	for (unsigned int i = 0; i < nr; i++) {
		unsigned long before = tally.states;

		while (tally.states - before < states)
			one_work(kinds[i].mkfs, kinds[i].bytes, states - (tally.states - before),
				 seed++, &tally);
	}
	printf("%lu states, %lu complaints\n", tally.states, tally.bad);
	return tally.bad != 0;
}
