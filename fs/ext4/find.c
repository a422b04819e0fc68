/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Finding free blocks.
 *
 * The goal if it is free, whatever there is: right behind the blocks before is better than a longer
 * run elsewhere. Else the first run behind it, group by group, that is long enough; when there is
 * none, the longest that was seen. Full groups are passed over by their counts.
 *
 * Files that grow side by side would cut each other into pieces. So the free blocks behind what a
 * file was given last are kept for it: its window, longer than the file, within bounds. Others
 * look for blocks elsewhere first. The windows that were
 * made last are known, by inode number; they are a matter of memory alone, and a wrong one does
 * no harm. Small files have none, so that they lie close together.
 *
 * Not free are also blocks that have been chosen, and those freed lately: see blocks.c.
 *
 * Locks: the volume lock.
 */
#include "map.h"

#define MAX_RUNS 64		/* looked at in one group before the longest is taken */
#define MAX_GROUPS 64		/* looked at for a run with a window behind it */
#define WINDOW_FROM (128 << 10)	/* bytes: smaller files have none */
#define WINDOW_MAX (64 << 20)	/* bytes */
#define WINDOW_TIMES 8		/* the file's size */
#define WINDOW_PART 32		/* of the free blocks is the most for one window */

/*
 * Cuts [start, *stop) where a window of another file than @ino begins. When @start is in one:
 * returns that one's end, else @start.
 */
static uint64_t cut_at_windows(const struct ext4_volume *vol, uint32_t ino, uint64_t start,
			       uint64_t *stop)
{
	for (unsigned int i = 0; i < BLOCK_WINDOWS; i++) {
		const struct block_window *w = &vol->windows[i];

		if (w->ino == ino || w->end <= start || w->start >= *stop)
			continue;
		if (w->start <= start)
			return w->end;
		*stop = w->start;
	}
	return start;
}

/* The next free run of at most @want blocks in [*from, last], which it passes; false: none. */
static bool next_run(struct ext4_volume *vol, const struct want *want, uint32_t len,
		     uint64_t *from, uint64_t last, struct block_run *run)
{
	while (*from <= last) {
		blk64_t start, used;
		uint64_t stop;

		if (ext2fs_find_first_zero_block_bitmap2(vol->taken, *from, last, &start))
			return false;
		stop = last - start >= len ? start + len : last + 1;
		if (!want->steal) {
			*from = cut_at_windows(vol, want->ino, start, &stop);
			if (*from > start)
				continue;
		}
		if (!ext2fs_find_first_set_block_bitmap2(vol->taken, start, stop - 1, &used))
			stop = used;
		*from = stop;
		*run = (struct block_run){ start, stop - start };
		return true;
	}
	return false;
}

/* Looks for a run of @len blocks in [from, last]: true when there is, else @best is longest. */
static bool find_in(struct ext4_volume *vol, const struct want *want, uint32_t len, uint64_t from,
		    uint64_t last, struct block_run *best)
{
	struct block_run run;

	for (unsigned int seen = 0; seen < MAX_RUNS; seen++) {
		if (!next_run(vol, want, len, &from, last, &run))
			return false;
		if (run.len > best->len)
			*best = run;
		if (best->len >= len)
			return true;
	}
	return false;
}

/* The run at the goal itself. */
static bool find_at_goal(struct ext4_volume *vol, const struct want *want, struct block_run *run)
{
	uint64_t last = ext2fs_group_last_block2(vol->fs,
						 ext2fs_group_of_blk2(vol->fs, want->goal));
	uint64_t from = want->goal;

	return !ext2fs_test_block_bitmap2(vol->taken, want->goal) &&
	       next_run(vol, want, want->len, &from, last, run) && run->start == want->goal;
}

static bool find_run(struct ext4_volume *vol, const struct want *want, struct block_run *best)
{
	ext2_filsys fs = vol->fs;
	dgrp_t first = ext2fs_group_of_blk2(fs, want->goal);

	if (find_at_goal(vol, want, best))
		return true;
	*best = (struct block_run){ 0 };
	for (dgrp_t i = 0; i <= fs->group_desc_count; i++) {
		dgrp_t group = (first + i) % fs->group_desc_count;
		uint64_t from = ext2fs_group_first_block2(fs, group);

		if (!ext2fs_bg_free_blocks_count(fs, group))
			continue;
		if (!i && want->goal > from)
			from = want->goal;
		if (find_in(vol, want, want->len + want->ahead, from,
			    ext2fs_group_last_block2(fs, group), best))
			return true;
		if (i >= MAX_GROUPS && best->len >= want->len)
			return true;
	}
	return best->len;
}

static struct block_window *window_of(struct ext4_volume *vol, uint32_t ino)
{
	for (unsigned int i = 0; i < BLOCK_WINDOWS; i++)
		if (vol->windows[i].ino == ino)
			return &vol->windows[i];
	return NULL;
}

/* The window of a file that has just been given @run: the one it has, or what is free behind. */
static void set_window(struct ext4_volume *vol, const struct want *want,
		       const struct block_run *run)
{
	uint64_t start = run->start + run->len, stop = start + want->ahead;
	uint64_t count = ext2fs_blocks_count(vol->fs->super);
	struct block_window *w = window_of(vol, want->ino);
	blk64_t used;

	if (w && start > w->start && start < w->end)
		return;
	if (!w)
		w = &vol->windows[vol->next_window++ % BLOCK_WINDOWS];
	*w = (struct block_window){ 0 };
	if (stop > count)
		stop = count;
	if (start >= stop)
		return;
	if (!ext2fs_find_first_set_block_bitmap2(vol->taken, start, stop - 1, &used))
		stop = used;
	if (cut_at_windows(vol, want->ino, start, &stop) > start)
		return;
	*w = (struct block_window){ .ino = want->ino, .start = start, .end = stop };
}

/**
 * find_in_window - whether a block is kept for a file
 * @inode: the file
 * @pblk: the block
 */
bool find_in_window(struct ext4_inode *inode, uint64_t pblk)
{
	const struct block_window *w = window_of(ext4_vol(inode), inode->vn.ino);

	return w && pblk >= w->start && pblk < w->end;
}

/**
 * find_window_size - blocks that are worth keeping behind those of a file
 * @vol: the volume
 * @size: bytes that the file has, or is about to have
 */
uint32_t find_window_size(struct ext4_volume *vol, uint64_t size)
{
	uint64_t most = vol->free_blocks / WINDOW_PART, window;

	if (size < WINDOW_FROM)
		return 0;
	window = size < WINDOW_MAX / WINDOW_TIMES ? size * WINDOW_TIMES : WINDOW_MAX;
	window /= vol->fs->blocksize;
	return window < most ? window : most;
}

/**
 * find_free - choose free blocks; they are not marked
 * @vol: the volume
 * @want: what for; a goal may be nonsense
 * @run: the choice, at least one block and at most want->len
 *
 * Context: volume lock held.
 * Return: false when no block is free.
 */
bool find_free(struct ext4_volume *vol, struct want *want, struct block_run *run)
{
	struct ext2_super_block *super = vol->fs->super;

	if (want->goal < super->s_first_data_block || want->goal >= ext2fs_blocks_count(super))
		want->goal = super->s_first_data_block;
	want->steal = false;
	if (!find_run(vol, want, run)) {
		want->steal = true;
		if (!find_run(vol, want, run))
			return false;
	}
	if (run->len > want->len)
		run->len = want->len;
	if (want->ahead)
		set_window(vol, want, run);
	return true;
}
