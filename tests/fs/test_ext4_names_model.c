/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Random operations on names, on an image and on a plain model, which must answer the same. Every
 * so often the trees are compared, sometimes after a new mount. FOLIOFS_SEED repeats a run.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <dirent.h>
#include <errno.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "ext4_fixture.h"

TestSuite(ext4_names_model, .timeout = 120);

#define NAMES 60
#define NODES 400
#define ROOT 0

enum kind { FREE, REG, DIRECTORY, LINK };

/* A name is an index into names[]; a directory says what each names, or -1. */
struct model_node {
	enum kind kind;
	int links, parent;
	int entries[NAMES];
};

struct model {
	struct model_node nodes[NODES];
	char names[NAMES][256];
	unsigned int seed;
	struct fixture f;
};

static unsigned int pick(struct model *m, unsigned int n)
{
	return rand_r(&m->seed) % n;
}

static void init_names(struct model *m)
{
	for (int i = 0; i < NAMES; i++) {
		int len = i % 3 ? 1 + i : 100 + i * 2;

		memset(m->names[i], 'a' + i % 26, len);
		sprintf(m->names[i] + (len > 3 ? len - 3 : 0), "%03d", i);
	}
}

static void clear_node(struct model *m, int node)
{
	m->nodes[node].kind = FREE;
	m->nodes[node].links = 0;
	for (int i = 0; i < NAMES; i++)
		m->nodes[node].entries[i] = -1;
}

static int free_node(struct model *m)
{
	for (int i = 1; i < NODES; i++)
		if (m->nodes[i].kind == FREE)
			return i;
	return -1;
}

static bool is_empty(struct model *m, int node)
{
	for (int i = 0; i < NAMES; i++)
		if (m->nodes[node].entries[i] >= 0)
			return false;
	return true;
}

static bool is_dir(struct model *m, int node)
{
	return node >= 0 && m->nodes[node].kind == DIRECTORY;
}

/* A directory, more often a shallow one. */
static int pick_dir(struct model *m)
{
	int dir = ROOT;

	while (pick(m, 3)) {
		int next = m->nodes[dir].entries[pick(m, NAMES)];

		if (is_dir(m, next))
			dir = next;
	}
	return dir;
}

/* The vnode of a directory of the model, by its path. */
static struct vnode *vnode_of(struct model *m, int dir)
{
	struct vnode *up, *node;
	int parent = m->nodes[dir].parent, name = 0;

	if (dir == ROOT)
		return m->f.volume->ops->root(m->f.volume);
	while (m->nodes[parent].entries[name] != dir)
		name++;
	up = vnode_of(m, parent);
	cr_assert_eq(ext4_lookup(up, m->names[name], &node), 0);
	fixture_put(&m->f, up);
	return node;
}

static void add(struct model *m, int dir, int name, int node)
{
	m->nodes[dir].entries[name] = node;
	if (is_dir(m, node)) {
		m->nodes[node].parent = dir;
		m->nodes[dir].links++;
	}
}

static void take(struct model *m, int dir, int name)
{
	if (is_dir(m, m->nodes[dir].entries[name]))
		m->nodes[dir].links--;
	m->nodes[dir].entries[name] = -1;
}

static void unlink_node(struct model *m, int node)
{
	if (is_dir(m, node) || !--m->nodes[node].links)
		clear_node(m, node);
}

static void step_create(struct model *m)
{
	int dir = pick_dir(m), name = pick(m, NAMES), node = free_node(m);
	enum kind kind = pick(m, 3) + REG;
	struct vnode *parent, *new;
	int want = m->nodes[dir].entries[name] >= 0 ? -EEXIST : 0, got;
	const char *text = m->names[name];

	if (node < 0)
		return;
	parent = vnode_of(m, dir);
	if (kind == REG)
		got = ext4_mknod(parent, text, S_IFREG | 0644, 0, &fixture_root, &new);
	else if (kind == DIRECTORY)
		got = ext4_mkdir(parent, text, 0755, &fixture_root, &new);
	else
		got = ext4_symlink(parent, text, text, &fixture_root, &new);
	cr_assert_eq(got, want, "create: %d, not %d", got, want);
	fixture_put(&m->f, parent);
	if (got)
		return;
	fixture_put(&m->f, new);
	m->nodes[node].kind = kind;
	m->nodes[node].links = kind == DIRECTORY ? 2 : 1;
	add(m, dir, name, node);
}

static void step_link(struct model *m)
{
	int from = pick_dir(m), name = pick(m, NAMES), dir = pick_dir(m), newname = pick(m, NAMES);
	int node = m->nodes[from].entries[name], want = 0, got;
	struct vnode *parent, *file;

	if (node < 0)
		return;
	if (is_dir(m, node))
		want = -EPERM;
	else if (m->nodes[dir].entries[newname] >= 0)
		want = -EEXIST;
	parent = vnode_of(m, from);
	cr_assert_eq(ext4_lookup(parent, m->names[name], &file), 0);
	fixture_put(&m->f, parent);
	parent = vnode_of(m, dir);
	got = ext4_link(file, parent, m->names[newname]);
	cr_assert_eq(got, want, "link: %d, not %d", got, want);
	fixture_put(&m->f, parent);
	fixture_put(&m->f, file);
	if (got)
		return;
	fixture_put(&m->f, file);
	m->nodes[node].links++;
	add(m, dir, newname, node);
}

static void step_remove(struct model *m)
{
	int dir = pick_dir(m), name = pick(m, NAMES), node = m->nodes[dir].entries[name];
	bool rmdir = pick(m, 2);
	struct vnode *parent = vnode_of(m, dir);
	int want = 0, got;

	if (node < 0)
		want = -ENOENT;
	else if (rmdir != is_dir(m, node))
		want = rmdir ? -ENOTDIR : -EISDIR;
	else if (rmdir && !is_empty(m, node))
		want = -ENOTEMPTY;
	got = rmdir ? ext4_rmdir(parent, m->names[name]) : ext4_unlink(parent, m->names[name]);
	cr_assert_eq(got, want, "remove: %d, not %d", got, want);
	fixture_put(&m->f, parent);
	if (got)
		return;
	take(m, dir, name);
	unlink_node(m, node);
}

/* Is @node @dir, or above it? */
static bool is_above(struct model *m, int node, int dir)
{
	while (dir != node && dir != ROOT)
		dir = m->nodes[dir].parent;
	return dir == node;
}

static int rename_result(struct model *m, int from, int node, int to, int over, unsigned int flags)
{
	bool exchange = flags & RENAME_EXCHANGE;

	if (node < 0 || (exchange && over < 0))
		return -ENOENT;
	if (from != to && is_dir(m, node) && is_above(m, node, to))
		return -EINVAL;
	if (from != to && exchange && is_dir(m, over) && is_above(m, over, from))
		return -EINVAL;
	if (over >= 0 && flags & RENAME_NOREPLACE)
		return -EEXIST;
	if (over < 0 || node == over || exchange)
		return 0;
	if (is_dir(m, node) && !is_dir(m, over))
		return -ENOTDIR;
	if (!is_dir(m, node) && is_dir(m, over))
		return -EISDIR;
	return is_dir(m, over) && !is_empty(m, over) ? -ENOTEMPTY : 0;
}

static void step_rename(struct model *m)
{
	static const unsigned int all_flags[] = {0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE};
	int from = pick_dir(m), name = pick(m, NAMES), to = pick_dir(m), newname = pick(m, NAMES);
	int node = m->nodes[from].entries[name], over = m->nodes[to].entries[newname];
	unsigned int flags = all_flags[pick(m, 4)];
	int want = rename_result(m, from, node, to, over, flags), got;
	struct vnode *a = vnode_of(m, from), *b = vnode_of(m, to);

	got = ext4_rename(a, m->names[name], b, m->names[newname], flags, &fixture_root);
	cr_assert_eq(got, want, "rename: %d, not %d", got, want);
	fixture_put(&m->f, a);
	fixture_put(&m->f, b);
	if (got || node == over)
		return;
	take(m, from, name);
	if (over >= 0)
		take(m, to, newname);
	add(m, to, newname, node);
	if (flags & RENAME_EXCHANGE)
		add(m, from, name, over);
	else if (over >= 0)
		unlink_node(m, over);
}

struct comparing {
	struct model *m;
	int dir;
	unsigned int nr;
};

static bool compare_name(void *arg, const char *text, size_t len, uint64_t ino, unsigned int type,
			 uint64_t next)
{
	static const unsigned int types[] = {[REG] = DT_REG, [DIRECTORY] = DT_DIR, [LINK] = DT_LNK};
	struct comparing *c = arg;
	int name = 0, node;

	/* The model does not know lost+found. */
	if (text[0] == '.' || (len == 10 && !memcmp(text, "lost+found", len)))
		return true;
	while (name < NAMES &&
	       (strlen(c->m->names[name]) != len || memcmp(c->m->names[name], text, len)))
		name++;
	cr_assert_lt(name, NAMES, "%.*s", (int)len, text);
	node = c->m->nodes[c->dir].entries[name];
	cr_assert_geq(node, 0, "%.*s is still there", (int)len, text);
	if (ext2fs_has_feature_filetype(fixture_vol(&c->m->f)->fs->super))
		cr_assert_eq(type, types[c->m->nodes[node].kind]);
	c->nr++;
	return true;
}

static void compare(struct model *m, int dir, struct vnode *vnode)
{
	struct comparing c = {.m = m, .dir = dir};
	struct model_node *model = &m->nodes[dir];
	unsigned int nr = 0;

	cr_assert_eq(ext4_readdir(vnode, 0, compare_name, &c), 0);
	for (int i = 0; i < NAMES; i++) {
		int node = model->entries[i];
		struct vnode *child;
		struct stat st;

		if (node < 0)
			continue;
		nr++;
		cr_assert_eq(ext4_lookup(vnode, m->names[i], &child), 0);
		cr_assert_eq(ext4_getattr(child, &st), 0);
		cr_assert_eq((int)st.st_nlink, m->nodes[node].links);
		if (is_dir(m, node))
			compare(m, node, child);
		fixture_put(&m->f, child);
	}
	cr_assert_eq(c.nr, nr);
}

static void remount(struct model *m)
{
	cr_assert_eq(fixture_close(&m->f), 0);
	cr_assert_eq(fixture_fsck(&m->f), 0);
	cr_assert_eq(fixture_open(&m->f), 0);
}

static void run(struct model *m, int steps)
{
	struct vnode *root;

	for (int i = 1; i <= steps; i++) {
		switch (pick(m, 8)) {
		case 0 ... 2:
			step_create(m);
			break;
		case 3:
			step_link(m);
			break;
		case 4:
			step_remove(m);
			break;
		default:
			step_rename(m);
		}
		if (i % 500)
			continue;
		if (!pick(m, 3))
			remount(m);
		root = fixture_find(&m->f, "");
		compare(m, ROOT, root);
		fixture_put(&m->f, root);
	}
}

static unsigned int new_seed(void)
{
	const char *given = getenv("FOLIOFS_SEED");

	return given ? (unsigned int)strtoul(given, NULL, 0) : (unsigned int)time(NULL);
}

struct kind_of_image {
	char options[64];
};

static struct kind_of_image images[] = {
	{"-b 1024"},
	{"-b 4096"},
	{"-b 2048 -O inline_data -I 256"},
	{"-t ext2 -b 1024 -O ^dir_index,^filetype"},
	{"-t ext3 -b 1024"},
};

ParameterizedTestParameters(ext4_names_model, random)
{
	return cr_make_param_array(struct kind_of_image, images,
				   sizeof(images) / sizeof(images[0]));
}

ParameterizedTest(struct kind_of_image *p, ext4_names_model, random)
{
	struct model *m = calloc(1, sizeof(*m));

	m->seed = new_seed();
	fprintf(stderr, "FOLIOFS_SEED=%u\n", m->seed);
	init_names(m);
	for (int i = 0; i < NODES; i++)
		clear_node(m, i);
	m->nodes[ROOT].kind = DIRECTORY;
	fixture_format(&m->f, 16 << 20, p->options);
	cr_assert(!fixture_open(&m->f));
	run(m, 5000);
	fixture_finish(&m->f);
	free(m);
}
