/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Block maps: which blocks of the image hold which blocks of a file.
 *
 * The map of a file in use is a sorted array of extents in memory, whatever the image's form of it
 * (extents.c, indirect.c). It is loaded whole at first use; after that the array is the truth, and
 * each change is made in the array and in the image under one hold of the volume lock. So looking
 * a block up is a binary search under a read lock that is never held over I/O, and data that is
 * read or overwritten never waits for the volume.
 *
 * Locks: loading and changing want the volume lock; who changes the array takes map->lock for
 * writing as well, so one of the two suffices to read it.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "map.h"

void map_init(struct ext4_map *map)
{
	memset(map, 0, sizeof(*map));
	pthread_rwlock_init(&map->lock, NULL);
}

void map_finish(struct ext4_map *map)
{
	extents_free_tree(map->tree);
	free(map->extents);
	pthread_rwlock_destroy(&map->lock);
}

void map_drop(struct ext4_inode *inode)
{
	struct ext4_map *map = &inode->map;

	pthread_rwlock_wrlock(&map->lock);
	extents_free_tree(map->tree);
	map->tree = NULL;
	map->nr = 0;
	map->loaded = false;
	map->error = 0;
	pthread_rwlock_unlock(&map->lock);
}

void map_begin(struct ext4_inode *inode)
{
	map_drop(inode);
	pthread_rwlock_wrlock(&inode->map.lock);
	inode->map.loaded = true;
	pthread_rwlock_unlock(&inode->map.lock);
}

unsigned int map_search(const struct ext4_map *map, uint32_t lblk)
{
	unsigned int low = 0, high = map->nr;

	while (low < high) {
		unsigned int mid = low + (high - low) / 2;

		if (map_end(&map->extents[mid]) > lblk)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

bool map_can_join(const struct map_extent *a, const struct map_extent *b)
{
	return map_end(a) == b->lblk && a->pblk + a->len == b->pblk &&
	       a->unwritten == b->unwritten &&
	       a->len + b->len <= (a->unwritten ? MAP_MAX_UNWRITTEN : MAP_MAX_WRITTEN);
}

int map_room(struct ext4_map *map, unsigned int more)
{
	struct map_extent *extents;
	unsigned int room = map->room;

	if (map->nr + more <= room)
		return 0;
	room = room ? room : 4;
	while (room < map->nr + more)
		room *= 2;
	pthread_rwlock_wrlock(&map->lock);
	extents = realloc(map->extents, room * sizeof(*extents));
	if (extents) {
		map->extents = extents;
		map->room = room;
	}
	pthread_rwlock_unlock(&map->lock);
	return extents ? 0 : -ENOMEM;
}

int map_append(struct ext4_map *map, const struct map_extent *extent, bool join)
{
	int err;

	if (join && map->nr && map_can_join(&map->extents[map->nr - 1], extent)) {
		map->extents[map->nr - 1].len += extent->len;
		return 0;
	}
	err = map_room(map, 1);
	if (!err)
		map->extents[map->nr++] = *extent;
	return err;
}

void map_splice(struct ext4_map *map, unsigned int at, unsigned int old,
		const struct map_extent *extents, unsigned int nr)
{
	assert(at + old <= map->nr && map->nr - old + nr <= map->room);
	pthread_rwlock_wrlock(&map->lock);
	memmove(&map->extents[at + nr], &map->extents[at + old],
		(map->nr - at - old) * sizeof(*extents));
	if (nr)
		memcpy(&map->extents[at], extents, nr * sizeof(*extents));
	map->nr += nr - old;
	pthread_rwlock_unlock(&map->lock);
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

int map_load(struct ext4_inode *inode)
{
	struct ext4_map *map = &inode->map;
	int err;

	if (map->loaded)
		return 0;
	if (inode->bad || map->error)
		return -EUCLEAN;
	map->nr = 0;
	if (inode->raw.i_flags & EXT4_INLINE_DATA_FL)
		return 0;	/* no block belongs to it, as yet */
	if (map_is_extents(inode))
		err = extents_load(inode);
	else
		err = indirect_load(inode);

	pthread_rwlock_wrlock(&map->lock);
	if (err) {
		map->nr = 0;
		extents_free_tree(map->tree);
		map->tree = NULL;
		if (err == -EUCLEAN)
			map->error = err;
	} else {
		map->loaded = true;
	}
	pthread_rwlock_unlock(&map->lock);
	return err;
}

/* What a loaded map has at @lblk, cut to begin there. */
static void map_look(const struct ext4_map *map, uint32_t lblk, struct map_extent *out)
{
	unsigned int i = map_search(map, lblk);
	const struct map_extent *found = i < map->nr ? &map->extents[i] : NULL;

	*out = (struct map_extent){ .lblk = lblk };
	if (!found) {
		out->len = UINT32_MAX - lblk;
	} else if (found->lblk > lblk) {
		out->len = found->lblk - lblk;
	} else {
		uint32_t skip = lblk - found->lblk;

		out->len = found->len - skip;
		out->pblk = found->pblk + skip;
		out->unwritten = found->unwritten;
	}
}

/**
 * map_find_locked - what is at a block of a file
 * @inode: the file
 * @lblk: block of the file, below UINT32_MAX
 * @out: an extent that begins at @lblk; pblk 0: a hole
 *
 * Context: volume lock held. May sleep.
 * Return: 0; -EUCLEAN when the map is damaged; another error of reading it.
 */
int map_find_locked(struct ext4_inode *inode, uint32_t lblk, struct map_extent *out)
{
	int err = map_load(inode);

	if (!err)
		map_look(&inode->map, lblk, out);
	return err;
}

/**
 * map_find - the same without the volume lock
 * @inode: the file
 * @lblk: block of the file, below UINT32_MAX
 * @out: as for map_find_locked()
 *
 * Context: takes the volume lock when the map is not loaded. May sleep.
 * Return: as map_find_locked().
 */
int map_find(struct ext4_inode *inode, uint32_t lblk, struct map_extent *out)
{
	struct ext4_volume *vol = ext4_vol(inode);
	struct ext4_map *map = &inode->map;
	bool loaded;
	int err;

	pthread_rwlock_rdlock(&map->lock);
	loaded = map->loaded;
	if (loaded)
		map_look(map, lblk, out);
	pthread_rwlock_unlock(&map->lock);
	if (loaded)
		return 0;

	ext4_lock(vol);
	err = map_find_locked(inode, lblk, out);
	ext4_unlock(vol);
	return err;
}
