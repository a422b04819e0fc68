/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Listing a directory, in the order of the serials of its index.
 *
 * Cookie 0 is the start, 1 stands behind ".", 2 behind "..", and serial + 3 behind a name. Serials
 * are never used twice and names keep theirs, so a reader goes on where it was, whatever has
 * happened.
 *
 * Names are copied out in batches under the inode lock, and handed to the caller without it: the
 * caller may want to look them up.
 */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include "dir.h"

#define BATCH 32
#define FIRST_COOKIE 2

struct batch_name {
	uint64_t serial;
	uint32_t ino;
	uint8_t type, len;
	char name[EXT2_NAME_LEN + 1];
};

static unsigned int to_dt(unsigned int type)
{
	static const unsigned char dt[] = {
		[EXT2_FT_UNKNOWN] = DT_UNKNOWN, [EXT2_FT_REG_FILE] = DT_REG,
		[EXT2_FT_DIR] = DT_DIR,		[EXT2_FT_CHRDEV] = DT_CHR,
		[EXT2_FT_BLKDEV] = DT_BLK,	[EXT2_FT_FIFO] = DT_FIFO,
		[EXT2_FT_SOCK] = DT_SOCK,	[EXT2_FT_SYMLINK] = DT_LNK,
	};

	return type < sizeof(dt) ? dt[type] : DT_UNKNOWN;
}

/* Copies names from @serial on; returns how many, or an error. */
static int fill_batch(struct ext4_inode *dir, uint64_t serial, struct batch_name *batch)
{
	const struct dir_name *dn;
	int nr = 0, err;

	err = dir_lock_shared(dir);
	if (err)
		return err;
	while (nr < BATCH && (dn = dir_index_next(dir->index, serial))) {
		struct batch_name *bn = &batch[nr++];

		bn->serial = dn->serial;
		bn->ino = dn->ino;
		bn->type = dn->type;
		bn->len = dn->len;
		memcpy(bn->name, dn->name, dn->len + 1);
		serial = dn->serial + 1;
	}
	pthread_rwlock_unlock(&dir->lock);
	return nr;
}

static int get_parent(struct ext4_inode *dir, uint32_t *parent)
{
	int err = dir_lock_shared(dir);

	if (err)
		return err;
	*parent = dir->index->parent;
	pthread_rwlock_unlock(&dir->lock);
	return 0;
}

/**
 * ext4_readdir - list a directory
 * @node: directory
 * @cookie: 0, or where to go on
 * @emit: takes one entry; false when it has no room
 * @arg: for @emit
 *
 * Context: no locks held, none held while @emit runs; may sleep.
 * Return: 0, -ENOTDIR, or why the directory cannot be read.
 */
int ext4_readdir(struct vnode *node, uint64_t cookie, dir_emit_t emit, void *arg)
{
	struct ext4_inode *dir = EXT4_I(node);
	struct batch_name batch[BATCH];
	uint32_t parent;
	int nr;

	if (!S_ISDIR(vnode_mode(node)))
		return -ENOTDIR;
	nr = get_parent(dir, &parent);
	if (nr)
		return nr;
	if (cookie == 0 && !emit(arg, ".", 1, node->ino, DT_DIR, ++cookie))
		return 0;
	if (cookie == 1 && !emit(arg, "..", 2, parent, DT_DIR, ++cookie))
		return 0;
	while ((nr = fill_batch(dir, cookie - FIRST_COOKIE, batch)) > 0) {
		for (int i = 0; i < nr; i++) {
			struct batch_name *bn = &batch[i];

			cookie = bn->serial + 1 + FIRST_COOKIE;
			if (!emit(arg, bn->name, bn->len, bn->ino, to_dt(bn->type), cookie))
				return 0;
		}
	}
	return nr;
}
