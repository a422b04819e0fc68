/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Extent trees: the image's form of a block map on ext4.
 *
 * The extents themselves are in the map's array (map.c). Beside it a file whose extents do not fit
 * in its inode (four do) has a struct map_tree: for each level of the tree the list of its blocks,
 * from left to right, each with the number of entries in it. Level 0 holds extents, so the n-th
 * entry of level 0 is the n-th extent of the array, and the n-th entry of level 1 is the n-th block
 * of level 0. The root, in the inode, holds the blocks of the highest level.
 *
 * A change replaces a run of neighbouring extents by others. It is planned on a copy of the tree,
 * from the leaves up: blocks that lose all entries are given up, a block that gets more than it can
 * hold is divided, little blocks are joined to a neighbour; whatever must be allocated is. When the
 * plan stands nothing can fail for want of space, and array, tree, blocks and inode are changed.
 * Only blocks whose entries changed are written.
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

#define TREE_MAX_DEPTH 5
#define ROOT_ENTRIES 4u

struct tree_node {
	uint64_t pblk;
	uint32_t lblk;		/* first block of the file in it */
	uint32_t nr;		/* entries */
	bool dirty;
};

struct tree_level {
	struct tree_node *nodes;
	unsigned int nr;
};

struct map_tree {
	unsigned int depth;	/* levels in use: 0 when all is in the inode */
	struct tree_level level[TREE_MAX_DEPTH];
};

/* A change on its way: see extents_splice(). */
struct plan {
	struct ext4_inode *inode;
	struct map_tree *tree;
	unsigned int at, old, nr;		/* in the array */
	const struct map_extent *extents;
	unsigned int total;			/* extents when done */
	uint64_t *taken, *given;		/* blocks allocated, blocks to be freed */
	unsigned int nr_taken, nr_given;
};

static unsigned int node_capacity(struct ext4_volume *vol)
{
	return (vol->fs->blocksize - sizeof(struct ext3_extent_header)) /
	       sizeof(struct ext3_extent);
}

uint32_t extents_worst(struct ext4_volume *vol, unsigned int nr, uint32_t blocks)
{
	unsigned int cap = node_capacity(vol);
	uint64_t splits = (uint64_t)nr / (cap / 2) + 1;

	if (!blocks || nr + (uint64_t)blocks <= ROOT_ENTRIES)
		return 0;
	if (splits > blocks)
		splits = blocks;
	return splits + blocks / (cap / 4) + TREE_MAX_DEPTH;
}

void extents_free_tree(struct map_tree *tree)
{
	if (!tree)
		return;
	for (unsigned int i = 0; i < TREE_MAX_DEPTH; i++)
		free(tree->level[i].nodes);
	free(tree);
}

void extents_init(struct ext4_inode *inode)
{
	struct ext3_extent_header *eh = (void *)inode->raw.i_block;

	memset(inode->raw.i_block, 0, sizeof(inode->raw.i_block));
	eh->eh_magic = ext2fs_cpu_to_le16(EXT3_EXT_MAGIC);
	eh->eh_max = ext2fs_cpu_to_le16(ROOT_ENTRIES);
	/* Readers of other flags hold the inode lock, not the volume lock: no store for nothing. */
	if (!(inode->raw.i_flags & EXT4_EXTENTS_FL))
		inode->raw.i_flags |= EXT4_EXTENTS_FL;
}

/* Puts @nr nodes in place of @old at @at. */
static int level_splice(struct tree_level *level, unsigned int at, unsigned int old,
			const struct tree_node *nodes, unsigned int nr)
{
	if (nr > old) {
		struct tree_node *grown = realloc(level->nodes,
						  (level->nr + nr - old) * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		level->nodes = grown;
	}
	if (level->nr > at + old)
		memmove(&level->nodes[at + nr], &level->nodes[at + old],
			(level->nr - at - old) * sizeof(*nodes));
	if (nr)
		memcpy(&level->nodes[at], nodes, nr * sizeof(*nodes));
	level->nr += nr - old;
	return 0;
}

/*
 * Loading
 */

static int load_node(struct ext4_inode *inode, struct ext3_extent_header *eh, unsigned int depth,
		     unsigned int max, uint64_t low, uint64_t high);

static int damaged(struct ext4_inode *inode, const char *what)
{
	return ext4_corrupt(ext4_vol(inode), inode->vn.ino, -EUCLEAN, "extent tree: %s", what);
}

static int load_extents(struct ext4_inode *inode, const struct ext3_extent *ex, unsigned int nr,
			uint64_t low, uint64_t high)
{
	for (; nr; nr--, ex++) {
		uint32_t len = ext2fs_le16_to_cpu(ex->ee_len);
		struct map_extent extent = {
			.lblk = ext2fs_le32_to_cpu(ex->ee_block),
			.len = len > MAP_MAX_WRITTEN ? len - MAP_MAX_WRITTEN : len,
			.pblk = (uint64_t)ext2fs_le16_to_cpu(ex->ee_start_hi) << 32 |
				ext2fs_le32_to_cpu(ex->ee_start),
			.unwritten = len > MAP_MAX_WRITTEN,
		};
		int err;

		if (!extent.len || extent.lblk < low || map_end(&extent) > high)
			return damaged(inode, "extents out of order");
		if (!map_valid_blocks(ext4_vol(inode), extent.pblk, extent.len))
			return damaged(inode, "an extent lies outside the image");
		low = map_end(&extent);
		err = map_append(&inode->map, &extent, false);
		if (err)
			return err;
	}
	return 0;
}

static int load_child(struct ext4_inode *inode, uint64_t pblk, unsigned int depth, uint64_t low,
		      uint64_t high)
{
	struct ext4_volume *vol = ext4_vol(inode);
	struct tree_level *level = &inode->map.tree->level[depth];
	struct ext3_extent_header *eh;
	struct tree_node node = { .pblk = pblk, .lblk = low };
	int err;

	if (!map_valid_blocks(vol, pblk, 1))
		return damaged(inode, "an index points outside the image");
	eh = malloc(vol->fs->blocksize);
	if (!eh)
		return -ENOMEM;
	err = device_read(vol, pblk, eh);
	/* eh_max says where the checksum is. */
	if (!err && ext2fs_le16_to_cpu(eh->eh_max) > node_capacity(vol))
		err = damaged(inode, "header of a block");
	if (!err && !ext2fs_extent_block_csum_verify(vol->fs, inode->vn.ino, eh))
		err = damaged(inode, "checksum of a block");
	if (!err && !eh->eh_entries)
		err = damaged(inode, "an empty block");
	if (!err) {
		node.nr = ext2fs_le16_to_cpu(eh->eh_entries);
		err = level_splice(level, level->nr, 0, &node, 1);
	}
	if (!err)
		err = load_node(inode, eh, depth, node_capacity(vol), low, high);
	free(eh);
	return err;
}

static int load_indexes(struct ext4_inode *inode, const struct ext3_extent_idx *ix,
			unsigned int nr, unsigned int depth, uint64_t low, uint64_t high)
{
	int err = 0;

	for (unsigned int i = 0; i < nr && !err; i++) {
		uint64_t first = ext2fs_le32_to_cpu(ix[i].ei_block);
		uint64_t next = i + 1 < nr ? ext2fs_le32_to_cpu(ix[i + 1].ei_block) : high;

		if (first < low || next > high || first >= next)
			return damaged(inode, "indexes out of order");
		err = load_child(inode, (uint64_t)ext2fs_le16_to_cpu(ix[i].ei_leaf_hi) << 32 |
				 ext2fs_le32_to_cpu(ix[i].ei_leaf), depth - 1, first, next);
	}
	return err;
}

/* Loads what is under one block of the tree, which covers [low, high). */
static int load_node(struct ext4_inode *inode, struct ext3_extent_header *eh, unsigned int depth,
		     unsigned int max, uint64_t low, uint64_t high)
{
	unsigned int nr = ext2fs_le16_to_cpu(eh->eh_entries);

	if (ext2fs_le16_to_cpu(eh->eh_magic) != EXT3_EXT_MAGIC ||
	    ext2fs_le16_to_cpu(eh->eh_depth) != depth || ext2fs_le16_to_cpu(eh->eh_max) > max ||
	    nr > ext2fs_le16_to_cpu(eh->eh_max) || (depth && !nr))
		return damaged(inode, "header of a block");
	if (depth)
		return load_indexes(inode, EXT_FIRST_INDEX(eh), nr, depth, low, high);
	return load_extents(inode, EXT_FIRST_EXTENT(eh), nr, low, high);
}

int extents_load(struct ext4_inode *inode)
{
	struct ext3_extent_header *eh = (void *)inode->raw.i_block;
	unsigned int depth = ext2fs_le16_to_cpu(eh->eh_depth);

	if (ext2fs_le16_to_cpu(eh->eh_magic) != EXT3_EXT_MAGIC || depth > TREE_MAX_DEPTH)
		return damaged(inode, "header in the inode");
	if (depth) {
		inode->map.tree = calloc(1, sizeof(struct map_tree));
		if (!inode->map.tree)
			return -ENOMEM;
		inode->map.tree->depth = depth;
	}
	return load_node(inode, eh, depth, ROOT_ENTRIES, 0, 1ULL << 32);
}

/*
 * Planning
 */

static int plan_take(struct plan *plan, uint64_t *pblk)
{
	struct ext4_volume *vol = ext4_vol(plan->inode);
	const struct ext4_map *map = &plan->inode->map;
	uint64_t *taken, goal;
	int err;

	goal = map->nr ? map->extents[map->nr - 1].pblk : blocks_inode_goal(plan->inode);
	taken = realloc(plan->taken, (plan->nr_taken + 1) * sizeof(*taken));
	if (!taken)
		return -ENOMEM;
	plan->taken = taken;
	err = blocks_alloc(vol, goal, pblk);
	if (!err)
		taken[plan->nr_taken++] = *pblk;
	return err;
}

static int plan_give(struct plan *plan, uint64_t pblk)
{
	uint64_t *given = realloc(plan->given, (plan->nr_given + 1) * sizeof(*given));

	if (!given)
		return -ENOMEM;
	plan->given = given;
	given[plan->nr_given++] = pblk;
	return 0;
}

/* First block of the file in entry @i of level @lvl, as it will be. */
static uint32_t plan_key(const struct plan *plan, unsigned int lvl, unsigned int i)
{
	const struct map_extent *extents = plan->inode->map.extents;

	if (lvl)
		return plan->tree->level[lvl - 1].nodes[i].lblk;
	if (i < plan->at)
		return extents[i].lblk;
	if (i < plan->at + plan->nr)
		return plan->extents[i - plan->at].lblk;
	return extents[i - plan->nr + plan->old].lblk;
}

/*
 * Gives @total entries of level @lvl, the first being number @pos, to blocks: those of @have nodes
 * at @first, which may be none, and new ones. @fill: the blocks are filled one after the other (a
 * file that grows at its end), not evenly.
 */
static int plan_spread(struct plan *plan, unsigned int lvl, unsigned int first, unsigned int have,
		       unsigned int total, unsigned int pos, bool fill, unsigned int *made)
{
	unsigned int cap = node_capacity(ext4_vol(plan->inode));
	unsigned int want = (total + cap - 1) / cap;
	struct tree_level *level = &plan->tree->level[lvl];
	struct tree_node *nodes = calloc(want ? want : 1, sizeof(*nodes));
	int err = nodes ? 0 : -ENOMEM;

	for (unsigned int i = 0; i < want && !err; i++) {
		unsigned int left = want - i;

		nodes[i].dirty = true;
		nodes[i].lblk = plan_key(plan, lvl, pos);
		nodes[i].nr = fill ? (total < cap ? total : cap) : (total + left - 1) / left;
		total -= nodes[i].nr;
		pos += nodes[i].nr;
		if (i < have)
			nodes[i].pblk = level->nodes[first + i].pblk;
		else
			err = plan_take(plan, &nodes[i].pblk);
	}
	for (unsigned int i = want; i < have && !err; i++)
		err = plan_give(plan, level->nodes[first + i].pblk);
	if (!err)
		err = level_splice(level, first, have, nodes, want);
	free(nodes);
	*made = want;
	return err;
}

/* Entries [at, at + old) of level @lvl have become @nr: settles this level and those above. */
static int plan_level(struct plan *plan, unsigned int lvl, unsigned int at, unsigned int old,
		      unsigned int nr)
{
	struct tree_level *level = &plan->tree->level[lvl];
	unsigned int cap = node_capacity(ext4_vol(plan->inode));
	unsigned int first = 0, pos = 0, have = 1, span, total, made;
	bool at_end;
	uint32_t key;
	int err;

	while (first + 1 < level->nr && (pos + level->nodes[first].nr < at ||
					 (old && pos + level->nodes[first].nr == at)))
		pos += level->nodes[first++].nr;
	span = level->nodes[first].nr;
	while (pos + span < at + old)
		span += level->nodes[first + have++].nr;
	at_end = nr > old && first + have == level->nr && pos + span == at + old;
	total = span - old + nr;
	if (nr < old && first && total + level->nodes[first - 1].nr <= cap / 2) {
		first--;
		have++;
		pos -= level->nodes[first].nr;
		total += level->nodes[first].nr;
	} else if (nr < old && first + have < level->nr &&
		   total + level->nodes[first + have].nr <= cap / 2) {
		total += level->nodes[first + have++].nr;
	}

	key = level->nodes[first].lblk;
	err = plan_spread(plan, lvl, first, have, total, pos, at_end, &made);
	if (err || lvl + 1 == plan->tree->depth)
		return err;
	if (have == 1 && made == 1 && level->nodes[first].lblk == key)
		return 0;
	return plan_level(plan, lvl + 1, first, have, made);
}

/* Makes the tree as high as its entries need. */
static int plan_height(struct plan *plan)
{
	struct map_tree *tree = plan->tree;

	while (tree->depth) {
		struct tree_level *top = &tree->level[tree->depth - 1];
		unsigned int total = 0;
		int err;

		for (unsigned int i = 0; i < top->nr; i++)
			total += top->nodes[i].nr;
		if (total > ROOT_ENTRIES)
			break;
		for (unsigned int i = 0; i < top->nr; i++) {
			err = plan_give(plan, top->nodes[i].pblk);
			if (err)
				return err;
		}
		top->nr = 0;
		tree->depth--;
	}
	for (;;) {
		unsigned int made, total = plan->total;
		int err;

		if (tree->depth)
			total = tree->level[tree->depth - 1].nr;
		if (total <= ROOT_ENTRIES)
			return 0;
		if (tree->depth == TREE_MAX_DEPTH)
			return -EFBIG;
		err = plan_spread(plan, tree->depth, 0, 0, total, 0, false, &made);
		if (err)
			return err;
		tree->depth++;
	}
}

static struct map_tree *tree_copy(const struct map_tree *old)
{
	struct map_tree *tree = calloc(1, sizeof(*tree));

	if (!tree || !old)
		return tree;
	tree->depth = old->depth;
	for (unsigned int i = 0; i < old->depth; i++) {
		const struct tree_level *from = &old->level[i];

		if (level_splice(&tree->level[i], 0, 0, from->nodes, from->nr)) {
			extents_free_tree(tree);
			return NULL;
		}
	}
	return tree;
}

/*
 * Writing
 */

static void put_extent(struct ext3_extent *ex, const struct map_extent *extent)
{
	ex->ee_block = ext2fs_cpu_to_le32(extent->lblk);
	ex->ee_len = ext2fs_cpu_to_le16(extent->len + (extent->unwritten ? MAP_MAX_WRITTEN : 0));
	ex->ee_start = ext2fs_cpu_to_le32((uint32_t)extent->pblk);
	ex->ee_start_hi = ext2fs_cpu_to_le16(extent->pblk >> 32);
}

static void put_index(struct ext3_extent_idx *ix, const struct tree_node *node)
{
	ix->ei_block = ext2fs_cpu_to_le32(node->lblk);
	ix->ei_leaf = ext2fs_cpu_to_le32((uint32_t)node->pblk);
	ix->ei_leaf_hi = ext2fs_cpu_to_le16(node->pblk >> 32);
	ix->ei_unused = 0;
}

/* Fills a block of the tree with @nr entries of level @lvl, from number @pos on. */
static void put_node(struct ext4_inode *inode, struct ext3_extent_header *eh, unsigned int lvl,
		     unsigned int pos, unsigned int nr, unsigned int max)
{
	eh->eh_magic = ext2fs_cpu_to_le16(EXT3_EXT_MAGIC);
	eh->eh_entries = ext2fs_cpu_to_le16(nr);
	eh->eh_max = ext2fs_cpu_to_le16(max);
	eh->eh_depth = ext2fs_cpu_to_le16(lvl);
	for (unsigned int i = 0; i < nr; i++) {
		if (lvl)
			put_index(EXT_FIRST_INDEX(eh) + i,
				  &inode->map.tree->level[lvl - 1].nodes[pos + i]);
		else
			put_extent(EXT_FIRST_EXTENT(eh) + i, &inode->map.extents[pos + i]);
	}
}

static int write_node(struct ext4_inode *inode, void *buf, unsigned int lvl, unsigned int pos,
		      const struct tree_node *node)
{
	struct ext4_volume *vol = ext4_vol(inode);
	errcode_t err;

	memset(buf, 0, vol->fs->blocksize);
	put_node(inode, buf, lvl, pos, node->nr, node_capacity(vol));
	err = ext2fs_extent_block_csum_set(vol->fs, inode->vn.ino, buf);
	if (err)
		return ext4_failed(vol, inode->vn.ino, err, "checksum of an extent block");
	return device_write(vol, node->pblk, buf);
}

/* Writes all blocks that have changed, and the root into the inode. */
static int write_tree(struct ext4_inode *inode)
{
	struct map_tree *tree = inode->map.tree;
	unsigned int depth = tree ? tree->depth : 0;
	void *buf = depth ? malloc(ext4_vol(inode)->fs->blocksize) : NULL;
	int err = depth && !buf ? -ENOMEM : 0;

	for (unsigned int lvl = 0; lvl < depth && !err; lvl++) {
		struct tree_level *level = &tree->level[lvl];
		unsigned int pos = 0;

		for (unsigned int i = 0; i < level->nr && !err; pos += level->nodes[i++].nr) {
			if (!level->nodes[i].dirty)
				continue;
			err = write_node(inode, buf, lvl, pos, &level->nodes[i]);
			if (!err)
				level->nodes[i].dirty = false;
		}
	}
	free(buf);
	extents_init(inode);
	put_node(inode, (void *)inode->raw.i_block, depth, 0,
		 depth ? tree->level[depth - 1].nr : inode->map.nr, ROOT_ENTRIES);
	return err;
}

static int plan_make(struct plan *plan)
{
	int err;

	plan->tree = tree_copy(plan->inode->map.tree);
	if (!plan->tree)
		return -ENOMEM;
	if (plan->tree->depth) {
		err = plan_level(plan, 0, plan->at, plan->old, plan->nr);
		if (err)
			return err;
	}
	return plan_height(plan);
}

int extents_splice(struct ext4_inode *inode, unsigned int at, unsigned int old,
		   const struct map_extent *extents, unsigned int nr)
{
	struct ext4_volume *vol = ext4_vol(inode);
	struct ext4_map *map = &inode->map;
	struct plan plan = { .inode = inode, .at = at, .old = old, .nr = nr, .extents = extents,
			     .total = map->nr - old + nr };
	int err = map_room(map, nr > old ? nr - old : 0);

	if (!err && (map->tree || plan.total > ROOT_ENTRIES))
		err = plan_make(&plan);
	if (err) {
		for (unsigned int i = 0; i < plan.nr_taken; i++)
			blocks_free(vol, plan.taken[i], 1);
		extents_free_tree(plan.tree);
		goto out;
	}

	map_splice(map, at, old, extents, nr);
	extents_free_tree(map->tree);
	map->tree = plan.tree;
	if (map->tree && !map->tree->depth) {
		extents_free_tree(map->tree);
		map->tree = NULL;
	}
	for (unsigned int i = 0; i < plan.nr_given; i++)
		blocks_free(vol, plan.given[i], 1);
	map_count_blocks(inode, (int64_t)plan.nr_taken - plan.nr_given);
	err = write_tree(inode);
out:
	free(plan.taken);
	free(plan.given);
	return err;
}
