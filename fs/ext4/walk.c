/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Small files that are read one after another, as tar, cp -r and grep -r do.
 *
 * Each would cost a read of the image, and the reader waits for each. But who reads a directory
 * through has looked its files up before; they were most often made together, have inode numbers close
 * to each other, and lie side by side on the image. So when a file is read that is not in the cache,
 * those around it, by inode number, are read along: the ones that are in use (looked up by somebody),
 * and not in the cache either. Whatever order the reader goes in, these are soon wanted, and are one
 * transfer or a few.
 *
 * That he reads a directory through is seen from the files before: each was near the one before it, by
 * number, or was looked up little later, as in the order of the directory. One that is far ends it
 * only if others follow, so a step into the next directory does not.
 *
 * Reading all files of a directory as soon as it has been listed in the midst of a walk was tried, too:
 * it saves half of the reads that are waited for, but no time that could be measured.
 *
 * Locks: the icache lock, for a moment for each file. The state is a hint.
 */
#include "file.h"

#define AROUND READAHEAD_FILES	/* inodes; a power of two */
#define NEAR 64			/* inodes between two files read after each other */
#define NEAR_MIN 2		/* so many and it is a walk */
#define NEAR_MAX 4

/* Called under the icache lock. */
static bool is_wanted(struct ext4_inode *inode)
{
	return inode->has_mapping && !inode->bad && !ext4_is_inline(inode) &&
	       mapping_size(&inode->vn.mapping) &&
	       !__atomic_load_n(&inode->vn.mapping.nrpages, __ATOMIC_RELAXED);
}

static void read_around(struct ext4_volume *vol, uint32_t ino)
{
	uint32_t first = ((ino - 1) & ~(AROUND - 1)) + 1;
	struct mapping *mappings[AROUND];
	unsigned int nr = 0;

	/* Those behind it first, if they cannot all be had. */
	for (uint32_t n = 1; n < AROUND; n++) {
		uint32_t next = first + ((ino - first + n) & (AROUND - 1));

		mappings[nr] = icache_pin(vol, next, is_wanted);
		nr += mappings[nr] != NULL;
	}
	if (nr)
		readahead_files(vol->vol.cache, mappings, nr);
}

/* Is the file the next one of a walk? */
static bool is_next(struct file_walk *walk, uint32_t ino, uint32_t load)
{
	uint32_t from_ino = __atomic_exchange_n(&walk->last_ino, ino, __ATOMIC_RELAXED);
	uint32_t from_load = __atomic_exchange_n(&walk->last_load, load, __ATOMIC_RELAXED);
	uint32_t near = __atomic_load_n(&walk->near, __ATOMIC_RELAXED);
	bool is_near = from_ino && (ino - from_ino + NEAR <= 2 * NEAR || load - from_load <= NEAR);

	if (is_near && near < NEAR_MAX)
		near++;
	else if (!is_near && near)
		near--;
	__atomic_store_n(&walk->near, near, __ATOMIC_RELAXED);
	return near >= NEAR_MIN;
}

/**
 * walk_read - a file is about to be read
 * @inode: a regular file
 *
 * Context: no lock held. Does not wait for I/O.
 */
void walk_read(struct ext4_inode *inode)
{
	struct ext4_volume *vol = ext4_vol(inode);
	uint32_t ino = inode->vn.ino;

	if (__atomic_load_n(&vol->walk.last_ino, __ATOMIC_RELAXED) == ino)
		return;
	if (is_next(&vol->walk, ino, inode->load) && is_wanted(inode))
		read_around(vol, ino);
}
