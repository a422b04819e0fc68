/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Block maps: which blocks of the image hold which blocks of a file.
 *
 * What is known of a file's map is a maple tree from ranges of its blocks to where they are. The
 * image always says the same, in one of its own two forms (extents.c, indirect.c): a change is made
 * there first and here after it, under one hold of the volume lock. So a map in memory may be
 * forgotten at any time, and comes back from the image, window by window, where it is looked at. A
 * window is the part of the image's map that is read at once: a few dozen extents of a leaf, or
 * some hundred pointers of an indirect block; for most files it is all there is.
 *
 *	entry of a range	means
 *	NULL			not loaded
 *	value, MAP_HOLE		a hole
 *	value, MAP_WRITTEN	block b of the file is block b + distance of the image
 *	value, MAP_UNWRITTEN	the same, but it reads as zeros
 *
 * A value is the distance, which may be negative, above two bits of state. Neighbours that go on
 * side by side on the image have the same value, and become one range when they are stored, however
 * many extents they are there. Blocks whose place is not chosen yet (delayed allocation) are holes
 * here: that they are dirty is in their folios (delalloc.c).
 *
 * Looking up takes no lock: it runs under RCU. Only what is not loaded waits for the volume. So
 * data that is read again, overwritten or written back to its place never does.
 *
 * Memory. All maps together hold a bounded number of ranges: one for each RANGE_PER bytes of the
 * cache. (A range costs about 25 bytes in a large map; the smallest map has a node of 256 bytes,
 * which MAP_BASE stands for.) When that is reached, whole maps are dropped before the next window
 * is loaded: of the inode that has been without a look at it for longest, by one bit for each, set
 * by every lookup. Nothing in them can be lost, so dirty and delayed data does not matter. That is
 * also what happens when there is no memory for a change: it is on the image already, and the map
 * is dropped, so it cannot fail any more.
 *
 * Locks: the tree changes under the volume lock, and under maps_lock where a map is dropped as a
 * whole. maps_lock is a leaf.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "map.h"

#define RANGE_PER 512		/* bytes of the cache's bound */
#define RANGES_MIN 8192
#define MAP_BASE 8		/* ranges that the smallest tree costs beside its own */
#define WINDOW_RANGES 1024	/* more than one window has */

enum map_state { MAP_HOLE, MAP_WRITTEN, MAP_UNWRITTEN };

#define STATE_BITS 2
#define DISTANCE_BIAS (1ULL << 32)	/* makes it positive */

static void *make_entry(const struct map_extent *extent)
{
	enum map_state state = extent->unwritten ? MAP_UNWRITTEN : MAP_WRITTEN;

	if (!extent->pblk)
		return xa_mk_value(MAP_HOLE);
	return xa_mk_value((extent->pblk + DISTANCE_BIAS - extent->lblk) << STATE_BITS | state);
}

/* What the cursor, which is at @entry, has found. */
static void read_entry(const struct ma_state *mas, const void *entry, struct map_extent *out)
{
	unsigned long value = xa_to_value(entry);
	enum map_state state = value & ((1 << STATE_BITS) - 1);

	*out = (struct map_extent){ .lblk = mas->index, .len = mas->last - mas->index + 1 };
	if (state == MAP_HOLE)
		return;
	out->pblk = (value >> STATE_BITS) - DISTANCE_BIAS + mas->index;
	out->unwritten = state == MAP_UNWRITTEN;
}

/* Cuts a range so that it begins at @lblk. */
static void cut_front(struct map_extent *extent, uint32_t lblk)
{
	uint32_t skip = lblk - extent->lblk;

	extent->lblk = lblk;
	extent->len -= skip;
	if (extent->pblk)
		extent->pblk += skip;
}

void map_init(struct ext4_map *map)
{
	memset(map, 0, sizeof(*map));
	mt_init_flags(&map->tree, MT_FLAGS_USE_RCU | MT_FLAGS_LOCK_EXTERN);
	INIT_LIST_HEAD(&map->lru);
}

void maps_init(struct ext4_volume *vol)
{
	struct cache_stats stats;

	pthread_mutex_init(&vol->maps_lock, NULL);
	INIT_LIST_HEAD(&vol->maps);
	cache_get_stats(vol->vol.cache, &stats);
	vol->map_limit = stats.bound_bytes / RANGE_PER;
	if (vol->map_limit < RANGES_MIN)
		vol->map_limit = RANGES_MIN;
}

/*
 * Reclaim
 */

/* The maps lock is held. */
static void drop_locked(struct ext4_volume *vol, struct ext4_map *map)
{
	__mt_destroy(&map->tree);
	if (list_empty(&map->lru))
		return;
	vol->map_ranges -= map->ranges + MAP_BASE;
	map->ranges = 0;
	list_del_init(&map->lru);
}

static void drop(struct ext4_volume *vol, struct ext4_map *map)
{
	pthread_mutex_lock(&vol->maps_lock);
	drop_locked(vol, map);
	pthread_mutex_unlock(&vol->maps_lock);
}

void map_finish(struct ext4_inode *inode)
{
	drop(ext4_vol(inode), &inode->map);
}

void map_drop(struct ext4_inode *inode)
{
	drop(ext4_vol(inode), &inode->map);
}

void map_make_room(struct ext4_volume *vol)
{
	pthread_mutex_lock(&vol->maps_lock);
	while (vol->map_ranges + WINDOW_RANGES > vol->map_limit && !list_empty(&vol->maps)) {
		struct ext4_map *map = list_last_entry(&vol->maps, struct ext4_map, lru);

		if (__atomic_exchange_n(&map->used, false, __ATOMIC_RELAXED))
			list_move(&map->lru, &vol->maps);
		else
			drop_locked(vol, map);
	}
	pthread_mutex_unlock(&vol->maps_lock);
}

/*
 * Storing
 */

/* Takes a neighbour that goes on with the same entry into the range. */
static void join_before(struct maple_tree *tree, unsigned long *first, void *entry)
{
	MA_STATE(near, tree, *first - 1, *first - 1);

	if (*first && mas_walk(&near) == entry)
		*first = near.index;
}

static void join_behind(struct maple_tree *tree, unsigned long *last, void *entry)
{
	MA_STATE(near, tree, *last + 1, *last + 1);

	if (*last < UINT32_MAX - 1 && mas_walk(&near) == entry)
		*last = near.last;
}

/* Ranges that have something in [first, last], but for those that stay beside it. */
static int count_ranges(struct maple_tree *tree, unsigned long first, unsigned long last)
{
	MA_STATE(at, tree, first, first);
	int nr = 0;

	rcu_read_lock();
	while (mas_find(&at, last))
		nr += 1 - (at.index < first) - (at.last > last);
	rcu_read_unlock();
	return nr;
}

static void count_stored(struct ext4_volume *vol, struct ext4_map *map, int more)
{
	pthread_mutex_lock(&vol->maps_lock);
	map->ranges += more;
	vol->map_ranges += more;
	if (list_empty(&map->lru)) {
		list_add(&map->lru, &vol->maps);
		vol->map_ranges += MAP_BASE;
	}
	pthread_mutex_unlock(&vol->maps_lock);
}

/* False when there is no memory for it. */
static bool store_range(struct maple_tree *tree, unsigned long first, unsigned long last,
			void *entry)
{
	MA_STATE(mas, tree, first, last);

	if (mas_preallocate(&mas, entry, GFP_KERNEL)) {
		mas_destroy(&mas);
		return false;
	}
	mas_store_prealloc(&mas, entry);
	return true;
}

void map_store(struct ext4_inode *inode, const struct map_extent *extent, uint64_t end)
{
	struct ext4_volume *vol = ext4_vol(inode);
	struct ext4_map *map = &inode->map;
	unsigned long first = extent->lblk, last = (end < UINT32_MAX ? end : UINT32_MAX) - 1;
	void *entry = make_entry(extent);
	int old;

	if (end <= first)
		return;
	rcu_read_lock();
	join_before(&map->tree, &first, entry);
	join_behind(&map->tree, &last, entry);
	rcu_read_unlock();
	old = count_ranges(&map->tree, first, last);
	if (store_range(&map->tree, first, last, entry))
		count_stored(vol, map, 1 - old);
	else
		drop(vol, map);
}

/*
 * Loading a window
 */

static void fill_add(struct map_fill *fill, const struct map_extent *extent, uint64_t end)
{
	struct map_extent *last = fill->nr ? &fill->ranges[fill->nr - 1] : NULL;

	if (last && make_entry(last) == make_entry(extent)) {
		last->len += end - extent->lblk;
	} else {
		assert(fill->nr < MAP_FILL_MAX);
		last = &fill->ranges[fill->nr++];
		*last = *extent;
		last->len = end - extent->lblk;
	}
	fill->at = end;
}

void map_fill(struct map_fill *fill, const struct map_extent *extent)
{
	struct map_extent hole = { .lblk = fill->at };

	if (extent->lblk > fill->at)
		fill_add(fill, &hole, extent->lblk);
	fill_add(fill, extent, map_end(extent) < UINT32_MAX ? map_end(extent) : UINT32_MAX);
}

void map_fill_end(struct map_fill *fill, uint64_t end)
{
	struct ext4_volume *vol = ext4_vol(fill->inode);
	struct ext4_map *map = &fill->inode->map;
	struct map_extent hole = { .lblk = fill->at };
	int old;

	if (end > UINT32_MAX)
		end = UINT32_MAX;
	if (fill->at < end)
		fill_add(fill, &hole, end);
	if (!fill->nr)
		return;
	old = count_ranges(&map->tree, fill->ranges[0].lblk, end - 1);
	for (unsigned int i = 0; i < fill->nr; i++) {
		struct map_extent *range = &fill->ranges[i];
		unsigned long first = range->lblk, last = map_end(range) - 1;
		void *entry = make_entry(range);

		rcu_read_lock();
		if (!i)
			join_before(&map->tree, &first, entry);
		if (i + 1 == fill->nr)
			join_behind(&map->tree, &last, entry);
		rcu_read_unlock();
		old += (first < range->lblk) + (last >= map_end(range));
		if (!store_range(&map->tree, first, last, entry)) {
			drop(vol, map);
			return;
		}
	}
	count_stored(vol, map, (int)fill->nr - old);
}

bool map_valid_blocks(struct ext4_volume *vol, uint64_t pblk, uint64_t len)
{
	uint64_t count = ext2fs_blocks_count(vol->fs->super);

	return pblk > vol->fs->super->s_first_data_block && pblk < count && len <= count - pblk;
}

void map_count_blocks(struct ext4_inode *inode, int64_t nr)
{
	ext2_filsys fs = ext4_vol(inode)->fs;
	struct ext2_inode *raw = (struct ext2_inode *)&inode->raw;

	if (nr > 0)
		ext2fs_iblk_add_blocks(fs, raw, nr);
	else if (nr < 0)
		ext2fs_iblk_sub_blocks(fs, raw, -nr);
}

int map_usable(const struct ext4_inode *inode)
{
	return inode->bad ? -EUCLEAN : inode->map.error;
}

int map_damaged(struct ext4_inode *inode, const char *what)
{
	inode->map.error = -EUCLEAN;
	return ext4_corrupt(ext4_vol(inode), inode->vn.ino, -EUCLEAN, "block map: %s", what);
}

/*
 * Looking up
 */

/* False when @lblk is not loaded. */
static bool look(struct ext4_map *map, uint32_t lblk, struct map_extent *out)
{
	MA_STATE(mas, &map->tree, lblk, lblk);
	void *entry;

	rcu_read_lock();
	entry = mas_walk(&mas);
	if (entry)
		read_entry(&mas, entry, out);
	rcu_read_unlock();
	if (entry && !__atomic_load_n(&map->used, __ATOMIC_RELAXED))
		__atomic_store_n(&map->used, true, __ATOMIC_RELAXED);
	return entry;
}

static int load(struct ext4_inode *inode, uint32_t lblk)
{
	map_make_room(ext4_vol(inode));
	return map_is_extents(inode) ? extents_load(inode, lblk) : indirect_load(inode, lblk);
}

int map_around(struct ext4_inode *inode, uint32_t lblk, struct map_extent *out)
{
	int err;

	if (look(&inode->map, lblk, out))
		return 0;
	if (inode->raw.i_flags & EXT4_INLINE_DATA_FL) {
		/* No block belongs to it, as yet. */
		*out = (struct map_extent){ .len = UINT32_MAX };
		return 0;
	}
	err = load(inode, lblk);
	if (err)
		return err;
	return look(&inode->map, lblk, out) ? 0 : -ENOMEM;
}

/**
 * map_find_locked - what is at a block of a file
 * @inode: the file
 * @lblk: block of the file, below UINT32_MAX
 * @out: what begins at @lblk, as far as is known; pblk 0: a hole
 *
 * Context: volume lock held. May sleep.
 * Return: 0; -EUCLEAN when the map is damaged; another error of reading it.
 */
int map_find_locked(struct ext4_inode *inode, uint32_t lblk, struct map_extent *out)
{
	int err = map_around(inode, lblk, out);

	if (!err)
		cut_front(out, lblk);
	return err;
}

/**
 * map_find - the same without the volume lock
 * @inode: the file
 * @lblk: block of the file, below UINT32_MAX
 * @out: as for map_find_locked()
 *
 * Context: takes the volume lock when it is not loaded. May sleep.
 * Return: as map_find_locked().
 */
int map_find(struct ext4_inode *inode, uint32_t lblk, struct map_extent *out)
{
	struct ext4_volume *vol = ext4_vol(inode);
	int err;

	if (look(&inode->map, lblk, out)) {
		cut_front(out, lblk);
		return 0;
	}
	ext4_lock(vol);
	err = map_find_locked(inode, lblk, out);
	ext4_unlock(vol);
	return err;
}
