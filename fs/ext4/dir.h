/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Directories: what the files that deal with names share.
 *
 * A directory in use has an index of its names in memory (struct dir_index), built in one pass over
 * its blocks at first use. All searching is done in the index; the blocks are touched only to
 * change them, at the one block that the index names. Index and blocks always agree.
 *
 * dir_block.c	one block: reading, checking, writing, entries in it
 * dir_index.c	the index in memory
 * dir.c	loading, insertion, removal: keeps blocks and index together
 * htree.c	the index that directories have on the image: reading, checking, finding the leaf
 * htree_split.c	its growth
 * readdir.c namei.c rename.c symlink.c	the operations
 *
 * Variable names: lblk is a block of the directory, need the bytes that an entry takes, gap the
 * bytes free in one piece, dn a name in memory, de an entry in a block.
 *
 * Locks: the index is read under the directory's inode lock, shared or exclusive, and changed under
 * the inode lock exclusively; the blocks are changed under the volume lock (ext4_begin()) as well.
 */
#ifndef FOLIOFS_EXT4_DIR_H
#define FOLIOFS_EXT4_DIR_H

#include <time.h>
#include "ext4.h"

#define DIR_MIN_REC 12 /* the smallest entry: header and one character, rounded up */
#define DIR_NO_BLOCK UINT32_MAX
#define DIR_MAX_BLOCK EXT2_MAX_BLOCK_SIZE

/* Room for one block, on the stack. */
#define DIR_BUF(name) char name[DIR_MAX_BLOCK] __attribute__((aligned(8)))

/* One name. Freed by removal; does not move. */
struct dir_name {
	struct dir_name *hash_next;
	uint64_t serial; /* rises in the order of readdir; never used twice */
	uint32_t hash;	 /* in memory only */
	uint32_t ino;
	uint32_t lblk;
	uint8_t type; /* EXT2_FT_, as the entry has it */
	uint8_t len;
	char name[];
};

struct dir_index {
	struct dir_name **buckets;
	unsigned int bucket_bits;
	unsigned int live; /* names but for . and .. */

	/* In serial order; a removed name leaves NULL until the arrays are compacted. */
	struct dir_name **order;
	uint64_t *serials;
	unsigned int used, room;
	uint64_t next_serial;

	uint32_t parent; /* what .. says */

	uint16_t *gaps; /* of each block, the largest gap, at most 65535; 0 for blocks of the htree */
	uint32_t nr_blocks, gaps_room;
	uint32_t *hints; /* by need / 4: no block before has such a gap */
	bool htree;

	time_t used_at;	/* when it was loaded or grew; seconds, monotonic */

	/* List of all indexes, least recently loaded or grown first; dir_index.c's lru lock. */
	struct dir_index *lru_next, *lru_prev;
	struct ext4_inode *owner;
};

static inline unsigned int dir_blocksize(struct ext4_inode *dir)
{
	return ext4_vol(dir)->fs->blocksize;
}

static inline unsigned int dirent_need(unsigned int len)
{
	return (8 + len + 3) & ~3U;
}

static inline struct ext2_dir_entry *dirent_at(void *buf, unsigned int offset)
{
	return (struct ext2_dir_entry *)((char *)buf + offset);
}

/* Bytes from an entry to the next; 65536, which has no 16 bits, is written as 65535. */
static inline unsigned int dirent_len(const struct ext2_dir_entry *de)
{
	return de->rec_len && de->rec_len != UINT16_MAX ? de->rec_len : UINT16_MAX + 1;
}

static inline void dirent_set_len(struct ext2_dir_entry *de, unsigned int len)
{
	de->rec_len = len > UINT16_MAX ? UINT16_MAX : len;
}

static inline unsigned int dirent_used(const struct ext2_dir_entry *de)
{
	return de->inode ? dirent_need(ext2fs_dirent_name_len(de)) : 0;
}

/*
 * dir_block.c
 */
unsigned int dir_block_end(struct ext4_inode *dir);
int dir_block_read(struct ext4_inode *dir, uint32_t lblk, void *buf);
int dir_block_write(struct ext4_inode *dir, uint32_t lblk, void *buf);
int dir_block_check(struct ext4_inode *dir, uint32_t lblk, void *buf);
bool dir_entry_is_sane(struct ext4_inode *dir, const struct ext2_dir_entry *de);
void dir_block_init(struct ext4_inode *dir, void *buf);
void dir_block_init_first(struct ext4_inode *dir, void *buf, uint32_t parent);
unsigned int dir_block_gap(struct ext4_inode *dir, void *buf);
bool dir_block_insert(struct ext4_inode *dir, void *buf, const struct dir_name *dn);
int dir_block_find(struct ext4_inode *dir, void *buf, const struct dir_name *dn,
		   unsigned int *offset, unsigned int *before);
void dir_block_remove(void *buf, unsigned int offset, unsigned int before);
int htree_block_read(struct ext4_inode *dir, uint32_t lblk, unsigned int offset, void *buf);
int htree_block_write(struct ext4_inode *dir, uint32_t lblk, unsigned int offset, void *buf);

/*
 * dir_index.c
 */
extern struct dir_index_limits {
	unsigned long names, most;	/* in all indexes; above most, young ones go, too */
	time_t young;			/* seconds */
} dir_index_limits;		/* for tests to change */
struct dir_index *dir_index_new(struct ext4_inode *dir);
struct dir_name *dir_index_find(const struct dir_index *index, const char *name, size_t len);
struct dir_name *dir_index_prepare(struct dir_index *index, const char *name, size_t len);
void dir_index_add(struct dir_index *index, struct dir_name *dn, uint64_t serial);
void dir_index_remove(struct dir_index *index, struct dir_name *dn);
struct dir_name *dir_index_next(const struct dir_index *index, uint64_t serial);
int dir_index_grow(struct dir_index *index, uint32_t nr_blocks);
void dir_index_set_gap(struct dir_index *index, uint32_t lblk, unsigned int gap);
uint32_t dir_index_find_gap(struct dir_index *index, unsigned int need);
void dir_index_used(struct ext4_inode *dir);

/*
 * dir.c
 */
int dir_load(struct ext4_inode *dir);
int dir_lock_shared(struct ext4_inode *dir);
int dir_init(struct ext4_inode *dir, uint32_t parent);
int dir_make_blocks(struct ext4_inode *dir);
int dir_insert(struct ext4_inode *dir, const char *name, uint32_t ino, mode_t mode);
int dir_remove(struct ext4_inode *dir, struct dir_name *dn);
int dir_replace(struct ext4_inode *dir, struct dir_name *dn, uint32_t ino, mode_t mode);
int dir_set_parent(struct ext4_inode *dir, uint32_t parent);
int dir_grow(struct ext4_inode *dir, uint32_t nr, uint32_t *first);
unsigned int dir_type(struct ext4_inode *dir, mode_t mode);

/*
 * htree.c htree_split.c
 */
int htree_scan(struct ext4_inode *dir, uint8_t *nodes, uint32_t nr_blocks);
int htree_hash(struct ext4_inode *dir, unsigned int version, const char *name, unsigned int len,
	       uint32_t *hash);
int htree_make(struct ext4_inode *dir);
int htree_root_read(struct ext4_inode *dir, void *buf);
int htree_root_write(struct ext4_inode *dir, void *buf);
int htree_insert(struct ext4_inode *dir, struct dir_name *dn);

#endif
