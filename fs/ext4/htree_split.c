/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Growing a directory's htree.
 *
 * A name goes to the leaf that its hash tells. A full leaf is split: its names are sorted by hash,
 * the upper half moves to a new block, and the parent gets an entry for it. When the parent is
 * full it is split the same way, and so on up; when the root is full its entries move to a new
 * node under it, which makes the tree one level deeper. At the greatest depth a full tree is
 * ENOSPC.
 *
 * All blocks that an insertion needs are allocated before the first is changed, so that want
 * of space leaves the tree as it was. New blocks are written before the ones that point to them.
 *
 * Everything runs under the volume lock and the directory's inode lock, exclusively.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "htree.h"

/* The names of a leaf, to be sorted. */
struct leaf_name {
	uint32_t hash;
	uint16_t offset, need;
};

#define LEAF_MAX_NAMES (DIR_MAX_BLOCK / DIR_MIN_REC)

static int frame_write(struct ext4_inode *dir, struct htree_frame *frame)
{
	return htree_block_write(dir, frame->lblk, frame->offset, frame->buf);
}

static bool frame_full(struct htree_frame *frame)
{
	return frame_cl(frame)->count >= frame_cl(frame)->limit;
}

/* An entry behind the one that was followed. There is room. */
static void frame_insert(struct htree_frame *frame, uint32_t hash, uint32_t lblk)
{
	struct ext2_dx_entry *entries = frame_entries(frame);
	unsigned int at = frame->at + 1, count = frame_cl(frame)->count;

	memmove(entries + at + 1, entries + at, (count - at) * sizeof(*entries));
	entries[at].hash = hash;
	entries[at].block = lblk;
	frame_cl(frame)->count = count + 1;
}

/* A node with @count entries copied from @from; the first one's hash is lost. */
static void node_init(struct ext4_inode *dir, struct htree_frame *node, uint32_t lblk,
		      const struct ext2_dx_entry *from, unsigned int count)
{
	unsigned int size = dir_blocksize(dir), tail = 0;

	if (ext2fs_has_feature_metadata_csum(ext4_vol(dir)->fs->super))
		tail = sizeof(struct ext2_dx_tail);
	memset(node->buf, 0, size);
	dirent_set_len(dirent_at(node->buf, 0), size);
	node->lblk = lblk;
	node->offset = HTREE_NODE_OFFSET;
	memcpy(frame_entries(node), from, count * sizeof(*from));
	frame_cl(node)->limit = (size - HTREE_NODE_OFFSET - tail) / sizeof(*from);
	frame_cl(node)->count = count;
}

/* All of the root's entries go to a new node below it. */
static int push_down(struct ext4_inode *dir, struct htree_path *path, uint32_t lblk)
{
	struct htree_frame *root = &path->frame[0];
	int err;

	memmove(root + 2, root + 1, (path->depth - 1) * sizeof(*root));
	node_init(dir, root + 1, lblk, frame_entries(root), frame_cl(root)->count);
	root[1].at = root->at;
	err = frame_write(dir, root + 1);
	if (err)
		return err;
	frame_cl(root)->count = 1;
	frame_entries(root)[0].block = lblk;
	root->at = 0;
	htree_info(path)->indirect_levels++;
	path->depth++;
	return frame_write(dir, root);
}

/* The upper half of a node's entries goes to a new one; the parent has room for it. */
static int split_node(struct ext4_inode *dir, struct htree_frame *parent, uint32_t lblk)
{
	struct htree_frame *node = parent + 1;
	unsigned int count = frame_cl(node)->count, keep = count / 2;
	uint32_t hash = frame_entries(node)[keep].hash;
	struct htree_frame *new = malloc(sizeof(*new));
	int err;

	if (!new)
		return -ENOMEM;
	node_init(dir, new, lblk, frame_entries(node) + keep, count - keep);
	new->at = node->at - keep;
	err = frame_write(dir, new);
	if (!err) {
		frame_insert(parent, hash, lblk);
		err = frame_write(dir, parent);
	}
	if (!err) {
		frame_cl(node)->count = keep;
		err = frame_write(dir, node);
	}
	if (!err && node->at >= keep) {
		*node = *new;
		parent->at++;
	}
	free(new);
	return err;
}

/* How many new nodes make room for one more entry in the lowest frame; -ENOSPC when none can. */
static int nodes_needed(struct ext4_inode *dir, struct htree_path *path)
{
	unsigned int full = 0;

	while (full < path->depth && frame_full(&path->frame[path->depth - 1 - full]))
		full++;
	if (full == path->depth && path->depth == htree_max_depth(dir))
		return -ENOSPC;
	return full;
}

/* Uses @nr blocks from @lblk on, as nodes_needed() said. */
static int make_room(struct ext4_inode *dir, struct htree_path *path, uint32_t lblk,
		     unsigned int nr)
{
	int err = 0;

	if (nr == path->depth) {
		err = push_down(dir, path, lblk++);
		nr--;
	}
	for (; !err && nr; nr--)
		err = split_node(dir, &path->frame[path->depth - 1 - nr], lblk++);
	return err;
}

static int compare_names(const void *a, const void *b)
{
	const struct leaf_name *x = a, *y = b;

	if (x->hash != y->hash)
		return x->hash < y->hash ? -1 : 1;
	return (int)x->offset - y->offset;
}

/* Lists the names of a leaf by hash; returns how many, or an error. */
static int list_names(struct ext4_inode *dir, void *buf, unsigned int version, unsigned int offset,
		      struct leaf_name *names)
{
	unsigned int end = dir_block_end(dir);
	int nr = 0;

	for (; offset < end; offset += dirent_len(dirent_at(buf, offset))) {
		struct ext2_dir_entry *de = dirent_at(buf, offset);
		int err;

		if (!de->inode)
			continue;
		names[nr].offset = offset;
		names[nr].need = dirent_used(de);
		err = htree_hash(dir, version, de->name, ext2fs_dirent_name_len(de),
				 &names[nr++].hash);
		if (err)
			return err;
	}
	qsort(names, nr, sizeof(*names), compare_names);
	return nr;
}

/* Where to cut so that the halves are as equal as can be, neither of them empty. */
static unsigned int find_cut(const struct leaf_name *names, unsigned int nr)
{
	unsigned int total = 0, sum = 0, cut = 0;

	for (unsigned int i = 0; i < nr; i++)
		total += names[i].need;
	while (cut < nr - 1 && sum + names[cut].need / 2 <= total / 2)
		sum += names[cut++].need;
	return cut ? cut : 1;
}

/* A leaf made of some names of another, without gaps but at its end. */
static void pack(struct ext4_inode *dir, void *to, void *from, const struct leaf_name *names,
		 unsigned int nr)
{
	struct ext2_dir_entry *last = NULL;
	unsigned int offset = 0;

	dir_block_init(dir, to);
	for (unsigned int i = 0; i < nr; i++) {
		last = dirent_at(to, offset);
		memcpy(last, dirent_at(from, names[i].offset), names[i].need);
		dirent_set_len(last, names[i].need);
		offset += names[i].need;
	}
	if (last)
		dirent_set_len(last, dirent_len(last) + dir_block_end(dir) - offset);
}

/* The index follows names that have moved to another block. */
static void names_moved(struct ext4_inode *dir, void *buf, const struct leaf_name *names,
			unsigned int nr, uint32_t lblk)
{
	for (unsigned int i = 0; i < nr; i++) {
		struct ext2_dir_entry *de = dirent_at(buf, names[i].offset);
		struct dir_name *dn =
			dir_index_find(dir->index, de->name, ext2fs_dirent_name_len(de));

		if (dn)
			dn->lblk = lblk;
	}
}

static int put_name(struct ext4_inode *dir, void *buf, uint32_t lblk, struct dir_name *dn)
{
	if (dn && !dir_block_insert(dir, buf, dn))
		return -ENOSPC;
	if (dn)
		dn->lblk = lblk;
	return dir_block_write(dir, lblk, buf);
}

/* Splits leaf @lblk, whose content is @old, into it and @new_lblk, and adds @dn, whose hash is
 * @hash. */
static int split_leaf(struct ext4_inode *dir, struct htree_path *path, uint32_t lblk, void *old,
		      uint32_t new_lblk, struct dir_name *dn, uint32_t hash)
{
	struct htree_frame *parent = &path->frame[path->depth - 1];
	struct leaf_name names[LEAF_MAX_NAMES];
	bool upper, continued;
	unsigned int cut;
	DIR_BUF(low);
	DIR_BUF(high);
	int nr, err;

	nr = list_names(dir, old, htree_info(path)->hash_version, 0, names);
	if (nr < 2)
		return nr < 0 ? nr
			      : ext4_corrupt(ext4_vol(dir), dir->vn.ino, -EUCLEAN,
					     "directory block %u is full of nothing", lblk);
	cut = find_cut(names, nr);
	continued = names[cut].hash == names[cut - 1].hash;
	upper = hash >= names[cut].hash;
	pack(dir, low, old, names, cut);
	pack(dir, high, old, names + cut, nr - cut);

	err = put_name(dir, high, new_lblk, upper ? dn : NULL);
	if (err)
		return err;
	frame_insert(parent, names[cut].hash | continued, new_lblk);
	err = frame_write(dir, parent);
	if (err)
		return err;
	err = put_name(dir, low, lblk, upper ? NULL : dn);
	if (err)
		return err;
	names_moved(dir, old, names + cut, nr - cut, new_lblk);
	return 0;
}

static int grow_and_insert(struct ext4_inode *dir, struct htree_path *path, uint32_t leaf,
			   void *buf, struct dir_name *dn, uint32_t hash)
{
	int nr = nodes_needed(dir, path), err;
	uint32_t first;

	if (nr < 0)
		return nr;
	err = dir_grow(dir, nr + 1, &first);
	if (!err)
		err = make_room(dir, path, first, nr);
	if (!err)
		err = split_leaf(dir, path, leaf, buf, first + nr, dn, hash);
	return err;
}

static int insert(struct ext4_inode *dir, struct htree_path *path, struct dir_name *dn)
{
	uint32_t hash, leaf;
	DIR_BUF(buf);
	int err;

	err = htree_read_root(dir, path);
	if (!err)
		err = htree_hash(dir, htree_info(path)->hash_version, dn->name, dn->len, &hash);
	if (!err)
		err = htree_probe(dir, hash, path, &leaf);
	if (!err)
		err = dir_block_read(dir, leaf, buf);
	if (err)
		return err;
	if (!dir_block_insert(dir, buf, dn))
		return grow_and_insert(dir, path, leaf, buf, dn, hash);
	dn->lblk = leaf;
	return dir_block_write(dir, leaf, buf);
}

/**
 * htree_insert - put a name where its hash belongs
 * @dir: directory with an htree
 * @dn: prepared name; its lblk is set
 *
 * Context: inode lock exclusive, between begin and end; may sleep.
 * Return: 0, -ENOSPC, -ENOMEM or another error.
 */
int htree_insert(struct ext4_inode *dir, struct dir_name *dn)
{
	struct htree_path *path = malloc(sizeof(*path));
	int err;

	if (!path)
		return -ENOMEM;
	err = insert(dir, path, dn);
	free(path);
	return err;
}

/* Block 0 as a root over the one leaf @lblk. Keeps . and .. of @old. */
static void root_init(struct ext4_inode *dir, struct htree_path *path, const void *old,
		      uint32_t lblk)
{
	struct ext2_super_block *sb = ext4_vol(dir)->fs->super;
	struct htree_frame *root = &path->frame[0];
	unsigned int size = dir_blocksize(dir), tail = 0;

	if (ext2fs_has_feature_metadata_csum(sb))
		tail = sizeof(struct ext2_dx_tail);
	root->lblk = 0;
	root->offset = HTREE_ROOT_OFFSET;
	memset(root->buf, 0, size);
	memcpy(root->buf, old, HTREE_INFO_OFFSET);
	dirent_set_len(dirent_at(root->buf, DIR_MIN_REC), size - DIR_MIN_REC);
	htree_info(path)->hash_version = sb->s_def_hash_version;
	htree_info(path)->info_length = sizeof(struct ext2_dx_root_info);
	frame_cl(root)->limit = (size - HTREE_ROOT_OFFSET - tail) / sizeof(struct ext2_dx_entry);
	frame_cl(root)->count = 1;
	frame_entries(root)[0].block = lblk;
}

static int make(struct ext4_inode *dir, struct htree_path *path)
{
	struct leaf_name names[LEAF_MAX_NAMES];
	unsigned int start;
	uint32_t lblk;
	DIR_BUF(old);
	DIR_BUF(leaf);
	int nr, err;

	err = dir_block_read(dir, 0, old);
	if (err)
		return err;
	if (dirent_len(dirent_at(old, 0)) != DIR_MIN_REC)
		return ext4_corrupt(ext4_vol(dir), dir->vn.ino, -EUCLEAN,
				    "directory without . and ..");
	start = DIR_MIN_REC + dirent_len(dirent_at(old, DIR_MIN_REC));
	nr = list_names(dir, old, ext4_vol(dir)->fs->super->s_def_hash_version, start, names);
	if (nr < 0)
		return nr;
	err = dir_grow(dir, 1, &lblk);
	if (err)
		return err;
	pack(dir, leaf, old, names, nr);
	root_init(dir, path, old, lblk);
	err = dir_block_write(dir, lblk, leaf);
	if (!err)
		err = htree_root_write(dir, path->frame[0].buf);
	if (err)
		return err;
	names_moved(dir, old, names, nr, lblk);
	dir->raw.i_flags |= EXT2_INDEX_FL;
	dir->index->htree = true;
	return 0;
}

/**
 * htree_make - give a directory of one block an htree
 * @dir: directory, full
 *
 * Context: inode lock exclusive, between begin and end; may sleep.
 * Return: 0, -ENOSPC, -ENOMEM or another error.
 */
int htree_make(struct ext4_inode *dir)
{
	struct htree_path *path = malloc(sizeof(*path));
	int err;

	if (!path)
		return -ENOMEM;
	err = make(dir, path);
	free(path);
	return err;
}
