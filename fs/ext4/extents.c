/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Extent trees: the image's form of a block map on ext4.
 *
 * The root lies in the inode and holds up to four entries; nodes below it are a block each. A leaf
 * holds extents, others hold indexes: the first block of the file that a child has, and where the
 * child is. Both are 12 bytes with the file's block first, so all nodes are handled alike.
 *
 * Each operation walks the path from the root to the leaf of one block of the file, checks each
 * node on it, and works on that leaf. A change replaces neighbouring entries of the leaf by others,
 * at most two more than before (splice_node()). What becomes too full is divided, and the parent
 * gets one more entry; what becomes empty is freed, and the parent loses one; what has become
 * little is joined with its neighbour; a key that has changed is changed in the parent. All blocks
 * that this can take are taken before anything is changed, so ENOSPC leaves the tree as it was.
 *
 * Locks: all under the volume lock.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <linux/types.h>
#include <ext2fs/ext3_extents.h>
#include "map.h"

#define MAX_DEPTH 5
#define ROOT_ENTRIES 4u
#define LOAD_EXTENTS 16		/* of one window: a lookup costs no more than these */

_Static_assert(sizeof(struct ext3_extent) == sizeof(struct ext3_extent_idx), "alike");

struct node {
	struct ext3_extent_header *eh;	/* in the inode, or a copy of the block */
	uint64_t pblk;			/* 0: the inode */
	unsigned int slot;		/* of the way down */
};

/* The nodes from the root to a leaf. */
struct path {
	struct ext4_inode *inode;
	unsigned int depth;		/* the leaf is node[depth] */
	struct node node[MAX_DEPTH + 2];
	uint64_t low, high;		/* what of the file is in the leaf */
	char *buffers;			/* one block for each node but the root, and three more */
	uint64_t spare[MAX_DEPTH + 1];	/* blocks taken for what comes */
	unsigned int nr_spare;
	int64_t grown;			/* blocks that the tree has more than before */
	int err;			/* first error of writing */
};

static unsigned int node_capacity(const struct ext4_volume *vol)
{
	return (vol->fs->blocksize - sizeof(struct ext3_extent_header)) /
	       sizeof(struct ext3_extent);
}

static unsigned int nr_of(const struct node *node)
{
	return ext2fs_le16_to_cpu(node->eh->eh_entries);
}

static struct ext3_extent *entries_of(const struct node *node)
{
	return EXT_FIRST_EXTENT(node->eh);
}

static uint32_t key_of(const struct node *node, unsigned int i)
{
	return ext2fs_le32_to_cpu(entries_of(node)[i].ee_block);
}

static unsigned int room_of(const struct path *path, unsigned int level)
{
	return level ? node_capacity(ext4_vol(path->inode)) : ROOT_ENTRIES;
}

static struct map_extent get_extent(const struct ext3_extent *ex)
{
	uint32_t len = ext2fs_le16_to_cpu(ex->ee_len);

	return (struct map_extent){
		.lblk = ext2fs_le32_to_cpu(ex->ee_block),
		.len = len > MAP_MAX_WRITTEN ? len - MAP_MAX_WRITTEN : len,
		.pblk = (uint64_t)ext2fs_le16_to_cpu(ex->ee_start_hi) << 32 |
			ext2fs_le32_to_cpu(ex->ee_start),
		.unwritten = len > MAP_MAX_WRITTEN,
	};
}

static struct ext3_extent put_extent(const struct map_extent *extent)
{
	return (struct ext3_extent){
		.ee_block = ext2fs_cpu_to_le32(extent->lblk),
		.ee_len = ext2fs_cpu_to_le16(extent->len +
					     (extent->unwritten ? MAP_MAX_WRITTEN : 0)),
		.ee_start = ext2fs_cpu_to_le32((uint32_t)extent->pblk),
		.ee_start_hi = ext2fs_cpu_to_le16(extent->pblk >> 32),
	};
}

static uint64_t get_child(const struct node *node, unsigned int i)
{
	const struct ext3_extent_idx *ix = EXT_FIRST_INDEX(node->eh) + i;

	return (uint64_t)ext2fs_le16_to_cpu(ix->ei_leaf_hi) << 32 | ext2fs_le32_to_cpu(ix->ei_leaf);
}

static struct ext3_extent put_index(uint32_t lblk, uint64_t pblk)
{
	struct ext3_extent_idx ix = {
		.ei_block = ext2fs_cpu_to_le32(lblk),
		.ei_leaf = ext2fs_cpu_to_le32((uint32_t)pblk),
		.ei_leaf_hi = ext2fs_cpu_to_le16(pblk >> 32),
	};
	struct ext3_extent entry;

	memcpy(&entry, &ix, sizeof(entry));
	return entry;
}

static void set_header(struct ext3_extent_header *eh, unsigned int nr, unsigned int room,
		       unsigned int height)
{
	eh->eh_magic = ext2fs_cpu_to_le16(EXT3_EXT_MAGIC);
	eh->eh_entries = ext2fs_cpu_to_le16(nr);
	eh->eh_max = ext2fs_cpu_to_le16(room);
	eh->eh_depth = ext2fs_cpu_to_le16(height);
}

void extents_init(struct ext4_inode *inode)
{
	memset(inode->raw.i_block, 0, sizeof(inode->raw.i_block));
	set_header((void *)inode->raw.i_block, 0, ROOT_ENTRIES, 0);
	inode->raw.i_flags |= EXT4_EXTENTS_FL;
	__atomic_store_n(&inode->map.root, 0, __ATOMIC_RELAXED);
}

/*
 * How far the tree can grow. map.root: the root's depth and entries as last seen.
 */

static void note_root(struct ext4_inode *inode)
{
	const struct ext3_extent_header *eh = (void *)inode->raw.i_block;

	__atomic_store_n(&inode->map.root, ext2fs_le16_to_cpu(eh->eh_depth) << 16 |
			 ext2fs_le16_to_cpu(eh->eh_entries), __ATOMIC_RELAXED);
}

uint32_t extents_worst(struct ext4_inode *inode, uint32_t blocks)
{
	uint32_t root = __atomic_load_n(&inode->map.root, __ATOMIC_RELAXED);
	uint64_t cap = node_capacity(ext4_vol(inode)), nodes = root & 0xffff, splits = 0;

	if (!blocks || (!(root >> 16) && nodes + blocks <= ROOT_ENTRIES))
		return 0;
	/* On each level every node may be full, and be divided once by one extent more. */
	for (unsigned int depth = root >> 16; depth; depth--) {
		splits += nodes < blocks ? nodes : blocks;
		nodes = nodes < blocks ? nodes * cap : blocks;
	}
	splits += blocks / (cap / 4) + MAX_DEPTH;
	return splits < UINT32_MAX ? splits : UINT32_MAX;
}

/*
 * Walking
 */

static int check_extents(struct ext4_inode *inode, const struct node *node, uint64_t low,
			 uint64_t high)
{
	for (unsigned int i = 0; i < nr_of(node); i++) {
		struct map_extent extent = get_extent(&entries_of(node)[i]);

		if (!extent.len || extent.lblk < low || map_end(&extent) > high)
			return map_damaged(inode, "extents out of order");
		if (!map_valid_blocks(ext4_vol(inode), extent.pblk, extent.len))
			return map_damaged(inode, "an extent lies outside the image");
		low = map_end(&extent);
	}
	return 0;
}

static int check_indexes(struct ext4_inode *inode, const struct node *node, uint64_t low,
			 uint64_t high)
{
	for (unsigned int i = 0; i < nr_of(node); i++) {
		uint64_t next = i + 1 < nr_of(node) ? key_of(node, i + 1) : high;

		if (key_of(node, i) < low || next > high || key_of(node, i) >= next)
			return map_damaged(inode, "indexes out of order");
		if (!map_valid_blocks(ext4_vol(inode), get_child(node, i), 1))
			return map_damaged(inode, "an index points outside the image");
	}
	return 0;
}

/* A node of @height levels above the leaves, all of it in [low, high). */
static int check_node(struct ext4_inode *inode, const struct node *node, unsigned int height,
		      unsigned int room, uint64_t low, uint64_t high)
{
	const struct ext3_extent_header *eh = node->eh;

	if (ext2fs_le16_to_cpu(eh->eh_magic) != EXT3_EXT_MAGIC ||
	    ext2fs_le16_to_cpu(eh->eh_depth) != height || ext2fs_le16_to_cpu(eh->eh_max) > room ||
	    nr_of(node) > ext2fs_le16_to_cpu(eh->eh_max) ||
	    ((height || node->pblk) && !nr_of(node)))
		return map_damaged(inode, "header of a node");
	return height ? check_indexes(inode, node, low, high) :
			check_extents(inode, node, low, high);
}

/* Reads the block of a node; the rest is for check_node(). */
static int read_node(struct ext4_inode *inode, struct node *node)
{
	struct ext4_volume *vol = ext4_vol(inode);
	int err = device_read(vol, node->pblk, node->eh);

	if (err)
		return err;
	/* eh_max says where the checksum is. */
	if (ext2fs_le16_to_cpu(node->eh->eh_max) > node_capacity(vol))
		return map_damaged(inode, "header of a node");
	if (!ext2fs_extent_block_csum_verify(vol->fs, inode->vn.ino, node->eh))
		return map_damaged(inode, "checksum of a node");
	return 0;
}

static void *buffer_of(struct path *path, unsigned int nr)
{
	return path->buffers + (size_t)nr * ext4_vol(path->inode)->fs->blocksize;
}

/* The last entry that begins at or before @lblk; 0 when all begin behind it. */
static unsigned int search(const struct node *node, uint32_t lblk)
{
	unsigned int low = 0, high = nr_of(node);

	while (low < high) {
		unsigned int mid = low + (high - low) / 2;

		if (key_of(node, mid) > lblk)
			high = mid;
		else
			low = mid + 1;
	}
	return low ? low - 1 : 0;
}

static int walk_down(struct path *path, uint32_t lblk)
{
	unsigned int cap = node_capacity(ext4_vol(path->inode));

	for (unsigned int level = 0; level < path->depth; level++) {
		struct node *node = &path->node[level], *child = node + 1;
		unsigned int slot = search(node, lblk);
		int err;

		node->slot = slot;
		if (slot)
			path->low = key_of(node, slot);
		if (slot + 1 < nr_of(node))
			path->high = key_of(node, slot + 1);
		*child = (struct node){ buffer_of(path, level), get_child(node, slot), 0 };
		err = read_node(path->inode, child);
		if (!err)
			err = check_node(path->inode, child, path->depth - level - 1, cap,
					 key_of(node, slot), path->high);
		if (err)
			return err;
	}
	return 0;
}

static void path_end(struct path *path)
{
	free(path->buffers);
}

/* The path to the leaf that has @lblk, or would have it. path_end() in any case. */
static int path_begin(struct path *path, struct ext4_inode *inode, uint32_t lblk)
{
	struct ext3_extent_header *eh = (void *)inode->raw.i_block;
	unsigned int depth = ext2fs_le16_to_cpu(eh->eh_depth);
	int err = map_usable(inode);

	*path = (struct path){ .inode = inode, .depth = depth, .high = 1ULL << 32 };
	if (err)
		return err;
	if (ext2fs_le16_to_cpu(eh->eh_magic) != EXT3_EXT_MAGIC || depth > MAX_DEPTH)
		return map_damaged(inode, "header in the inode");
	path->buffers = malloc((size_t)(depth + 4) * ext4_vol(inode)->fs->blocksize);
	if (!path->buffers)
		return -ENOMEM;
	path->node[0].eh = eh;
	err = check_node(inode, &path->node[0], depth, ROOT_ENTRIES, 0, path->high);
	if (err)
		return err;
	note_root(inode);
	return walk_down(path, lblk);
}

/* The part of a leaf around @lblk that is loaded at once: entries [*first, *last). */
static void choose_window(const struct node *leaf, uint32_t lblk, unsigned int *first,
			  unsigned int *last)
{
	unsigned int nr = nr_of(leaf);

	*first = search(leaf, lblk) / LOAD_EXTENTS * LOAD_EXTENTS;
	*last = *first + LOAD_EXTENTS < nr ? *first + LOAD_EXTENTS : nr;
}

int extents_load(struct ext4_inode *inode, uint32_t lblk)
{
	struct map_fill fill = { .inode = inode };
	unsigned int first, last;
	struct path path;
	int err = path_begin(&path, inode, lblk);

	if (!err) {
		const struct node *leaf = &path.node[path.depth];
		uint64_t end = path.high;

		choose_window(leaf, lblk, &first, &last);
		fill.at = path.low;
		if (first) {
			struct map_extent before = get_extent(&entries_of(leaf)[first - 1]);

			fill.at = map_end(&before);
		}
		if (last < nr_of(leaf))
			end = key_of(leaf, last);
		for (; first < last; first++) {
			struct map_extent extent = get_extent(&entries_of(leaf)[first]);

			map_fill(&fill, &extent);
		}
		map_fill_end(&fill, end);
	}
	path_end(&path);
	return err;
}

int extents_get(struct ext4_inode *inode, uint32_t lblk, struct map_extent *extent)
{
	struct path path;
	int err = path_begin(&path, inode, lblk);

	if (!err) {
		const struct node *leaf = &path.node[path.depth];

		*extent = nr_of(leaf) ? get_extent(&entries_of(leaf)[search(leaf, lblk)]) :
					(struct map_extent){ 0 };
		if (extent->lblk > lblk || map_end(extent) <= lblk)
			err = map_damaged(inode, "an extent is missing");
	}
	path_end(&path);
	return err;
}

/*
 * Changing nodes. From here on nothing fails but writing, which path->err keeps.
 */

static void write_node(struct path *path, const struct node *node)
{
	struct ext4_inode *inode = path->inode;
	struct ext4_volume *vol = ext4_vol(inode);
	errcode_t err;
	int ret;

	if (!node->pblk) {
		note_root(inode);
		return;
	}
	err = ext2fs_extent_block_csum_set(vol->fs, inode->vn.ino, node->eh);
	ret = err ? ext4_failed(vol, inode->vn.ino, err, "checksum of an extent block") :
		    device_write(vol, node->pblk, node->eh);
	if (ret && !path->err)
		path->err = ret;
}

static uint64_t take_spare(struct path *path)
{
	assert(path->nr_spare);
	path->grown++;
	return path->spare[--path->nr_spare];
}

static void give_node(struct path *path, const struct node *node)
{
	blocks_free(ext4_vol(path->inode), node->pblk, 1);
	path->grown--;
}

/* A node of @nr entries in a block of its own. */
static void write_new(struct path *path, struct node *node, const struct ext3_extent *entries,
		      unsigned int nr, unsigned int height)
{
	memset(node->eh, 0, ext4_vol(path->inode)->fs->blocksize);
	set_header(node->eh, nr, room_of(path, 1), height);
	memcpy(entries_of(node), entries, nr * sizeof(*entries));
	write_node(path, node);
}

static void set_entries(struct node *node, unsigned int at, unsigned int old,
			const struct ext3_extent *entries, unsigned int nr)
{
	struct ext3_extent *all = entries_of(node);
	unsigned int total = nr_of(node) - old + nr;

	memmove(&all[at + nr], &all[at + old], (nr_of(node) - at - old) * sizeof(*all));
	if (nr)
		memcpy(&all[at], entries, nr * sizeof(*all));
	node->eh->eh_entries = ext2fs_cpu_to_le16(total);
}

/* What the root holds goes to a block below it; the path gets a level more. */
static void grow(struct path *path)
{
	struct node *root = &path->node[0], *below = &path->node[1];
	unsigned int height = ext2fs_le16_to_cpu(root->eh->eh_depth);
	struct ext3_extent index;

	memmove(&path->node[2], &path->node[1], path->depth * sizeof(*root));
	*below = (struct node){ buffer_of(path, path->depth), take_spare(path), root->slot };
	path->depth++;
	write_new(path, below, entries_of(root), nr_of(root), height);
	index = put_index(key_of(root, 0), below->pblk);
	root->slot = 0;
	set_header(root->eh, 0, ROOT_ENTRIES, height + 1);
	set_entries(root, 0, 0, &index, 1);
	write_node(path, root);
}

static void splice_node(struct path *path, unsigned int level, unsigned int at, unsigned int old,
			const struct ext3_extent *entries, unsigned int nr);

/* The same for a node that has no room for it: it is divided. */
static void split_node(struct path *path, unsigned int level, unsigned int at, unsigned int old,
		       const struct ext3_extent *entries, unsigned int nr)
{
	struct node *node = &path->node[level];
	unsigned int had = nr_of(node), total = had - old + nr, room = room_of(path, level), left;
	unsigned int height = path->depth - level;
	struct node right = { buffer_of(path, path->depth), take_spare(path), 0 };
	struct ext3_extent *all = buffer_of(path, path->depth + 1), halves[2];

	memcpy(all, entries_of(node), at * sizeof(*all));
	memcpy(&all[at], entries, nr * sizeof(*all));
	memcpy(&all[at + nr], &entries_of(node)[at + old], (had - at - old) * sizeof(*all));
	/* A file that grows at its end fills its nodes. */
	left = at + old == had ? room : total / 2;
	write_new(path, &right, &all[left], total - left, height);
	write_new(path, node, all, left, height);
	halves[0] = put_index(key_of(node, 0), node->pblk);
	halves[1] = put_index(key_of(&right, 0), right.pblk);
	splice_node(path, level - 1, path->node[level - 1].slot, 1, halves, 2);
}

/*
 * Entries [at, at + old) of a node become the @nr others, and what follows from that for the nodes
 * above. Blocks for all it takes are in path->spare. The path is void after it.
 */
static void splice_node(struct path *path, unsigned int level, unsigned int at, unsigned int old,
			const struct ext3_extent *entries, unsigned int nr)
{
	struct node *node = &path->node[level];
	uint32_t key = nr_of(node) ? key_of(node, 0) : 0;

	if (!level && nr_of(node) - old + nr > ROOT_ENTRIES) {
		grow(path);
		node = &path->node[++level];
	}
	if (nr_of(node) - old + nr > room_of(path, level)) {
		split_node(path, level, at, old, entries, nr);
		return;
	}
	set_entries(node, at, old, entries, nr);
	if (!level && !nr_of(node))
		set_header(node->eh, 0, ROOT_ENTRIES, 0);
	if (level && !nr_of(node)) {
		give_node(path, node);
		splice_node(path, level - 1, path->node[level - 1].slot, 1, NULL, 0);
		return;
	}
	write_node(path, node);
	if (level && key_of(node, 0) != key) {
		struct ext3_extent index = put_index(key_of(node, 0), node->pblk);

		splice_node(path, level - 1, path->node[level - 1].slot, 1, &index, 1);
	}
}

/* Takes the blocks for the leaf to get @more entries. -ENOSPC: none are taken. */
static int take_spares(struct path *path, int more)
{
	struct ext4_volume *vol = ext4_vol(path->inode);
	unsigned int need = 0;
	uint64_t goal;

	for (int level = path->depth; level >= 0; level--) {
		if ((int)nr_of(&path->node[level]) + more <= (int)room_of(path, level))
			break;
		need++;
		more = 1;
		if (!level && path->depth == MAX_DEPTH)
			return -EFBIG;
	}
	goal = path->depth ? path->node[path->depth].pblk : blocks_inode_goal(path->inode);
	while (path->nr_spare < need) {
		int err = blocks_alloc(vol, goal, &path->spare[path->nr_spare]);

		if (err) {
			while (path->nr_spare)
				blocks_free(vol, path->spare[--path->nr_spare], 1);
			return err;
		}
		path->nr_spare++;
	}
	return 0;
}

/*
 * Making the tree smaller
 */

/* Joins child @at of the node with the next one if both together are little. */
static int join_children(struct path *path, unsigned int level, unsigned int at)
{
	struct node *node = &path->node[level];
	unsigned int height = path->depth - level - 1, cap = node_capacity(ext4_vol(path->inode));
	struct node left = { buffer_of(path, path->depth), get_child(node, at), 0 };
	struct node right = { buffer_of(path, path->depth + 1), get_child(node, at + 1), 0 };
	uint64_t high = at + 2 < nr_of(node) ? key_of(node, at + 2) : 1ULL << 32;
	int err;

	err = read_node(path->inode, &left);
	if (!err)
		err = read_node(path->inode, &right);
	if (!err)
		err = check_node(path->inode, &left, height, cap, 0, key_of(node, at + 1));
	if (!err)
		err = check_node(path->inode, &right, height, cap, key_of(node, at + 1), high);
	if (err || nr_of(&left) + nr_of(&right) > cap / 2)
		return err;
	set_entries(&left, nr_of(&left), 0, entries_of(&right), nr_of(&right));
	write_node(path, &left);
	give_node(path, &right);
	splice_node(path, level, at + 1, 1, NULL, 0);
	return 0;
}

/* The root takes over what a sole child has, if it is little. */
static int lower(struct path *path, bool *done)
{
	struct node *root = &path->node[0];
	struct node child = { buffer_of(path, path->depth), get_child(root, 0), 0 };
	int err = read_node(path->inode, &child);

	*done = false;
	if (!err)
		err = check_node(path->inode, &child, path->depth - 1,
				 node_capacity(ext4_vol(path->inode)), 0, 1ULL << 32);
	if (err || nr_of(&child) > ROOT_ENTRIES)
		return err;
	set_header(root->eh, 0, ROOT_ENTRIES, path->depth - 1);
	set_entries(root, 0, 0, entries_of(&child), nr_of(&child));
	write_node(path, root);
	give_node(path, &child);
	*done = true;
	return 0;
}

/*
 * After entries have gone at @lblk: joins little nodes on its path, from the leaf up. When a node
 * cannot be read the tree stays as it is, which is right, too: what went before has not failed.
 */
static int tidy(struct ext4_inode *inode, uint32_t lblk, int64_t *grown)
{
	unsigned int cap = node_capacity(ext4_vol(inode));
	bool lowered = true;
	struct path path;
	int err = path_begin(&path, inode, lblk);

	for (int level = path.depth; !err && level > 0; level--) {
		struct node *parent = &path.node[level - 1];
		unsigned int at = parent->slot;

		if (nr_of(&path.node[level]) > cap / 4)
			break;
		if (at + 1 == nr_of(parent))
			at--;
		if (nr_of(parent) > 1)
			err = join_children(&path, level - 1, at);
	}
	while (!err && lowered && path.depth && nr_of(&path.node[0]) == 1) {
		err = lower(&path, &lowered);
		path.depth -= lowered;
	}
	*grown += path.grown;
	path_end(&path);
	return path.err;
}

/*
 * Changing extents
 */

/* What takes the place of a leaf's entries [at, at + old): left rest, middle, right rest. */
struct splice {
	unsigned int at, old, nr;
	struct map_extent extents[3];
};

static bool can_join(const struct map_extent *a, const struct map_extent *b)
{
	return map_end(a) == b->lblk && a->pblk + a->len == b->pblk &&
	       a->unwritten == b->unwritten &&
	       a->len + b->len <= (a->unwritten ? MAP_MAX_UNWRITTEN : MAP_MAX_WRITTEN);
}

static void add_extent(struct splice *splice, const struct map_extent *extent)
{
	struct map_extent *last = splice->nr ? &splice->extents[splice->nr - 1] : NULL;

	if (last && can_join(last, extent))
		last->len += extent->len;
	else
		splice->extents[splice->nr++] = *extent;
}

/* Entry @i of the leaf; len 0 when there is none. */
static struct map_extent leaf_extent(const struct node *leaf, unsigned int i)
{
	return i < nr_of(leaf) ? get_extent(&entries_of(leaf)[i]) : (struct map_extent){ 0 };
}

static void plan_splice(const struct node *leaf, struct splice *splice, uint32_t lblk,
			uint64_t end, const struct map_extent *mid)
{
	unsigned int i = search(leaf, lblk), stop;
	struct map_extent near = leaf_extent(leaf, i);

	if (near.len && map_end(&near) <= lblk)
		near = leaf_extent(leaf, ++i);
	*splice = (struct splice){ .at = i };
	if (near.len && near.lblk < lblk) {
		near.len = lblk - near.lblk;
		add_extent(splice, &near);
	} else if (mid && i) {
		near = leaf_extent(leaf, i - 1);
		if (can_join(&near, mid)) {
			splice->at--;
			add_extent(splice, &near);
		}
	}
	if (mid)
		add_extent(splice, mid);
	for (stop = i; near = leaf_extent(leaf, stop), near.len && near.lblk < end; stop++) {
		uint32_t skip = end - near.lblk;

		if (map_end(&near) <= end)
			continue;
		near.lblk += skip;
		near.pblk += skip;
		near.len -= skip;
		add_extent(splice, &near);
	}
	if (near.len && splice->nr && can_join(&splice->extents[splice->nr - 1], &near)) {
		add_extent(splice, &near);
		stop++;
	}
	splice->old = stop - splice->at;
}

/* Frees what the entries that have gone had in [lblk, end). */
static void free_blocks(struct ext4_inode *inode, const struct ext3_extent *gone, unsigned int nr,
			uint32_t lblk, uint64_t end)
{
	for (; nr; nr--, gone++) {
		struct map_extent extent = get_extent(gone);
		uint64_t from = extent.lblk > lblk ? extent.lblk : lblk;
		uint64_t stop = map_end(&extent) < end ? map_end(&extent) : end;

		if (from >= stop)
			continue;
		blocks_free(ext4_vol(inode), extent.pblk + (from - extent.lblk), stop - from);
		map_count_blocks(inode, -(int64_t)(stop - from));
	}
}

static int replace_in_leaf(struct path *path, uint32_t lblk, uint64_t end,
			   const struct map_extent *mid)
{
	struct node *leaf = &path->node[path->depth];
	struct ext3_extent entries[3], *gone;
	struct splice splice;
	int err;

	plan_splice(leaf, &splice, lblk, end, mid);
	if (!splice.old && !splice.nr)
		return 0;
	gone = malloc((splice.old + 1) * sizeof(*gone));
	if (!gone)
		return -ENOMEM;
	memcpy(gone, &entries_of(leaf)[splice.at], splice.old * sizeof(*gone));
	for (unsigned int i = 0; i < splice.nr; i++)
		entries[i] = put_extent(&splice.extents[i]);
	err = take_spares(path, (int)splice.nr - (int)splice.old);
	if (!err) {
		splice_node(path, path->depth, splice.at, splice.old, entries, splice.nr);
		if (!mid)
			free_blocks(path->inode, gone, splice.old, lblk, end);
		if (splice.nr < splice.old && !path->err)
			path->err = tidy(path->inode, lblk, &path->grown);
		map_count_blocks(path->inode, path->grown);
		err = path->err;
	}
	free(gone);
	return err;
}

int extents_replace(struct ext4_inode *inode, uint32_t lblk, uint64_t *end,
		    const struct map_extent *mid)
{
	struct map_extent part;
	struct path path;
	int err = path_begin(&path, inode, lblk);

	if (!err) {
		uint32_t most = mid && mid->unwritten ? MAP_MAX_UNWRITTEN : MAP_MAX_WRITTEN;

		if (*end > path.high)
			*end = path.high;
		if (mid) {
			if (*end - lblk > most)
				*end = lblk + most;
			part = *mid;
			part.len = *end - lblk;
		}
		err = replace_in_leaf(&path, lblk, *end, mid ? &part : NULL);
	}
	path_end(&path);
	return err;
}
