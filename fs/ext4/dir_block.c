/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One block of a directory.
 *
 * A leaf block is a chain of entries, each of which reaches (rec_len) to the next one, the last to
 * the end. Free space is what an entry has behind its name, or an entry with inode 0. With
 * checksums the chain ends 12 bytes early: a false entry there holds the checksum of all before.
 *
 * The root and the nodes of an htree are dressed up as blocks with nothing free, and have their
 * checksum behind the array of their entries; their content is htree.c's affair.
 *
 * A block is read whole, changed in a buffer of the caller, and written whole: so a change is there
 * or is not. Only dir_block_check() distrusts what it sees: every block goes through it when the
 * index is built, and from then on the daemon is the only writer.
 *
 * Everything here runs under the volume lock.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include "crc32c.h"
#include "dir.h"

#define DX_ENTRY sizeof(struct ext2_dx_entry)

static bool has_csum(struct ext4_inode *dir)
{
	return ext2fs_has_feature_metadata_csum(ext4_vol(dir)->fs->super);
}

/* Offset behind the last entry of a leaf. */
unsigned int dir_block_end(struct ext4_inode *dir)
{
	return dir_blocksize(dir) - (has_csum(dir) ? sizeof(struct ext2_dir_entry_tail) : 0);
}

static struct ext2_dir_entry_tail *leaf_tail(struct ext4_inode *dir, void *buf)
{
	return (struct ext2_dir_entry_tail *)((char *)buf + dir_block_end(dir));
}

/* The checksum's start: the file system's seed, the inode's number, its generation. */
static uint32_t csum_seed(struct ext4_inode *dir)
{
	uint32_t ino = dir->vn.ino, generation = dir->raw.i_generation, crc;

	crc = ext4_crc32c(ext4_vol(dir)->fs->csum_seed, &ino, sizeof(ino));
	return ext4_crc32c(crc, &generation, sizeof(generation));
}

static uint32_t leaf_csum(struct ext4_inode *dir, const void *buf)
{
	return ext4_crc32c(csum_seed(dir), buf, dir_block_end(dir));
}

/* Where @lblk is; a hole or an unwritten block is damage. */
static int find_block(struct ext4_inode *dir, uint32_t lblk, uint64_t *pblk)
{
	struct map_extent ext;
	int err;

	err = map_find_locked(dir, lblk, &ext);
	if (err)
		return err;
	if (!ext.pblk || ext.unwritten)
		return ext4_corrupt(ext4_vol(dir), dir->vn.ino, -EUCLEAN,
				    "directory block %u is a hole", lblk);
	*pblk = ext.pblk;
	return 0;
}

static int read_block(struct ext4_inode *dir, uint32_t lblk, void *buf)
{
	uint64_t pblk;
	int err;

	err = find_block(dir, lblk, &pblk);
	return err ? err : device_read(ext4_vol(dir), pblk, buf);
}

static int write_block(struct ext4_inode *dir, uint32_t lblk, const void *buf)
{
	uint64_t pblk = 0;
	int err;

	err = find_block(dir, lblk, &pblk);
	return err ? err : device_write(ext4_vol(dir), pblk, buf);
}

/**
 * dir_block_write - seal a leaf block with its checksum and write it
 * @dir: directory
 * @lblk: its block
 * @buf: the block; the checksum in it is set
 *
 * Context: volume lock held, inode lock exclusive; may sleep.
 * Return: 0 or a negative errno.
 */
int dir_block_write(struct ext4_inode *dir, uint32_t lblk, void *buf)
{
	if (has_csum(dir))
		leaf_tail(dir, buf)->det_checksum = leaf_csum(dir, buf);
	return write_block(dir, lblk, buf);
}

static bool name_is_sane(const struct ext2_dir_entry *de, unsigned int len)
{
	return len && !memchr(de->name, '/', len) && !memchr(de->name, '\0', len);
}

static const char *check_entry(struct ext4_inode *dir, const struct ext2_dir_entry *de,
			       unsigned int room)
{
	unsigned int len = ext2fs_dirent_name_len(de);
	struct ext2_super_block *sb = ext4_vol(dir)->fs->super;

	if (room < DIR_MIN_REC || dirent_len(de) < DIR_MIN_REC || dirent_len(de) % 4 ||
	    dirent_len(de) > room)
		return "bad entry length";
	if (!de->inode)
		return NULL;
	if (dirent_need(len) > dirent_len(de))
		return "name longer than its entry";
	if (!name_is_sane(de, len))
		return "illegal name";
	if (de->inode > sb->s_inodes_count ||
	    (de->inode < EXT2_FIRST_INODE(sb) && de->inode != EXT2_ROOT_INO))
		return "illegal inode number";
	return NULL;
}

/**
 * dir_entry_is_sane - may a name in use that is not in a block be used?
 * @dir: directory
 * @de: its entry; rec_len bytes of it are there
 */
bool dir_entry_is_sane(struct ext4_inode *dir, const struct ext2_dir_entry *de)
{
	return !check_entry(dir, de, dirent_len(de));
}

static const char *check_tail(struct ext4_inode *dir, void *buf)
{
	struct ext2_dir_entry_tail *tail = leaf_tail(dir, buf);

	if (!has_csum(dir))
		return NULL;
	if (tail->det_reserved_zero1 || tail->det_rec_len != sizeof(*tail) ||
	    tail->det_reserved_name_len != EXT2_DIR_NAME_LEN_CSUM)
		return "no room for a checksum";
	return tail->det_checksum == leaf_csum(dir, buf) ? NULL : "bad checksum";
}

/**
 * dir_block_read - read a leaf
 * @dir: directory
 * @lblk: its block
 * @buf: room for one block; on success a sound chain of entries
 *
 * Context: volume lock held; may sleep.
 * Return: 0, -EUCLEAN, -EIO.
 */
int dir_block_read(struct ext4_inode *dir, uint32_t lblk, void *buf)
{
	unsigned int offset, end = dir_block_end(dir);
	int err;

	err = read_block(dir, lblk, buf);
	if (err)
		return err;
	for (offset = 0; offset < end; offset += dirent_len(dirent_at(buf, offset))) {
		const char *wrong = check_entry(dir, dirent_at(buf, offset), end - offset);

		if (wrong)
			return ext4_corrupt(ext4_vol(dir), dir->vn.ino, -EUCLEAN,
					    "directory block %u, offset %u: %s", lblk, offset,
					    wrong);
	}
	return 0;
}

/**
 * dir_block_check - is a leaf that has been read what was written once?
 * @dir: directory
 * @lblk: the block's place, for the message
 * @buf: the block
 *
 * Context: volume lock held.
 * Return: 0 or -EUCLEAN (reported).
 */
int dir_block_check(struct ext4_inode *dir, uint32_t lblk, void *buf)
{
	const char *wrong = check_tail(dir, buf);

	if (wrong)
		return ext4_corrupt(ext4_vol(dir), dir->vn.ino, -EUCLEAN, "directory block %u: %s",
				    lblk, wrong);
	return 0;
}

/**
 * dir_block_init - an empty leaf
 * @dir: directory
 * @buf: room for one block
 */
void dir_block_init(struct ext4_inode *dir, void *buf)
{
	memset(buf, 0, dir_blocksize(dir));
	dirent_set_len(dirent_at(buf, 0), dir_block_end(dir));
	if (has_csum(dir)) {
		leaf_tail(dir, buf)->det_rec_len = sizeof(struct ext2_dir_entry_tail);
		leaf_tail(dir, buf)->det_reserved_name_len = EXT2_DIR_NAME_LEN_CSUM;
	}
}

static void set_entry(struct ext2_dir_entry *de, uint32_t ino, const char *name, unsigned int len,
		      unsigned int type)
{
	de->inode = ino;
	ext2fs_dirent_set_name_len(de, len);
	ext2fs_dirent_set_file_type(de, type);
	memcpy(de->name, name, len);
	memset(de->name + len, 0, dirent_need(len) - 8 - len);
}

/**
 * dir_block_init_first - the first block of a new directory: . and ..
 * @dir: directory
 * @buf: room for one block
 * @parent: inode of ..
 */
void dir_block_init_first(struct ext4_inode *dir, void *buf, uint32_t parent)
{
	unsigned int type = dir_type(dir, S_IFDIR), end = dir_block_end(dir);

	dir_block_init(dir, buf);
	dirent_set_len(dirent_at(buf, 0), DIR_MIN_REC);
	dirent_set_len(dirent_at(buf, DIR_MIN_REC), end - DIR_MIN_REC);
	set_entry(dirent_at(buf, 0), dir->vn.ino, ".", 1, type);
	set_entry(dirent_at(buf, DIR_MIN_REC), parent, "..", 2, type);
}

/**
 * dir_block_gap - the largest gap of a leaf
 * @dir: directory
 * @buf: a sound block
 *
 * Return: bytes.
 */
unsigned int dir_block_gap(struct ext4_inode *dir, void *buf)
{
	unsigned int offset = 0, end = dir_block_end(dir), gap = 0;

	while (offset < end) {
		struct ext2_dir_entry *de = dirent_at(buf, offset);

		if (dirent_len(de) - dirent_used(de) > gap)
			gap = dirent_len(de) - dirent_used(de);
		offset += dirent_len(de);
	}
	return gap;
}

/**
 * dir_block_insert - put a name into the first gap that holds it
 * @dir: directory
 * @buf: a sound leaf, in memory
 * @dn: the name
 *
 * Return: false when no gap is large enough; @buf is as it was then.
 */
bool dir_block_insert(struct ext4_inode *dir, void *buf, const struct dir_name *dn)
{
	unsigned int offset = 0, end = dir_block_end(dir), need = dirent_need(dn->len);

	while (offset < end) {
		struct ext2_dir_entry *de = dirent_at(buf, offset);
		unsigned int used = dirent_used(de);

		if (dirent_len(de) - used >= need) {
			struct ext2_dir_entry *new = dirent_at(buf, offset + used);

			if (used) {
				dirent_set_len(new, dirent_len(de) - used);
				dirent_set_len(de, used);
			}
			set_entry(new, dn->ino, dn->name, dn->len, dn->type);
			return true;
		}
		offset += dirent_len(de);
	}
	return false;
}

/**
 * dir_block_find - find a name's entry
 * @dir: directory
 * @buf: the block that the index says it is in
 * @dn: the name
 * @offset: out: of its entry
 * @before: out: of the entry before it; equal to @offset when it is the first
 *
 * Context: volume lock held.
 * Return: 0, or -EUCLEAN when the block does not hold it.
 */
int dir_block_find(struct ext4_inode *dir, void *buf, const struct dir_name *dn,
		   unsigned int *offset, unsigned int *before)
{
	unsigned int end = dir_block_end(dir);

	*before = 0;
	for (*offset = 0; *offset < end; *offset += dirent_len(dirent_at(buf, *offset))) {
		struct ext2_dir_entry *de = dirent_at(buf, *offset);

		if (de->inode == dn->ino && ext2fs_dirent_name_len(de) == dn->len &&
		    !memcmp(de->name, dn->name, dn->len))
			return 0;
		*before = *offset;
	}
	return ext4_corrupt(ext4_vol(dir), dir->vn.ino, -EUCLEAN, "directory block %u lost a name",
			    dn->lblk);
}

/**
 * dir_block_remove - take an entry out; its space goes to the one before
 * @buf: block
 * @offset: of the entry
 * @before: of the entry before, or @offset
 */
void dir_block_remove(void *buf, unsigned int offset, unsigned int before)
{
	struct ext2_dir_entry *de = dirent_at(buf, offset);

	if (before != offset)
		dirent_set_len(dirent_at(buf, before),
			       dirent_len(dirent_at(buf, before)) + dirent_len(de));
	else
		de->inode = 0;
}

/* The checksum of an htree block covers the entries in use, found through count at @offset. */
static uint32_t htree_csum(struct ext4_inode *dir, const void *buf, unsigned int offset,
			   const struct ext2_dx_countlimit *cl)
{
	const unsigned char *tail = (const unsigned char *)buf + offset + cl->limit * DX_ENTRY;
	uint32_t crc, zero = 0;

	crc = ext4_crc32c(csum_seed(dir), buf, offset + cl->count * DX_ENTRY);
	crc = ext4_crc32c(crc, tail, offsetof(struct ext2_dx_tail, dt_checksum));
	return ext4_crc32c(crc, &zero, sizeof(zero));
}

/**
 * htree_block_read - read a root or node and check its frame
 * @dir: directory
 * @lblk: its block
 * @offset: where its entries start
 * @buf: room for one block
 *
 * On success count and limit are safe to use, and the checksum is right.
 *
 * Context: volume lock held; may sleep.
 * Return: 0, -EUCLEAN, -EIO.
 */
int htree_block_read(struct ext4_inode *dir, uint32_t lblk, unsigned int offset, void *buf)
{
	unsigned int tail = has_csum(dir) ? sizeof(struct ext2_dx_tail) : 0;
	struct ext2_dx_countlimit *cl = (void *)((char *)buf + offset);
	struct ext2_dx_tail *dt = (void *)((char *)buf + dir_blocksize(dir) - sizeof(*dt));
	const char *wrong = NULL;
	int err;

	err = read_block(dir, lblk, buf);
	if (err)
		return err;
	if (cl->limit != (dir_blocksize(dir) - offset - tail) / DX_ENTRY)
		wrong = "bad limit";
	else if (!cl->count || cl->count > cl->limit)
		wrong = "bad count";
	else if (tail && dt->dt_checksum != htree_csum(dir, buf, offset, cl))
		wrong = "bad checksum";
	if (wrong)
		return ext4_corrupt(ext4_vol(dir), dir->vn.ino, -EUCLEAN,
				    "directory index block %u: %s", lblk, wrong);
	return 0;
}

/**
 * htree_block_write - seal a root or node with its checksum and write it
 * @dir: directory
 * @lblk: its block
 * @offset: where its entries start
 * @buf: the block
 *
 * Context: volume lock held, inode lock exclusive; may sleep.
 * Return: 0 or a negative errno.
 */
int htree_block_write(struct ext4_inode *dir, uint32_t lblk, unsigned int offset, void *buf)
{
	struct ext2_dx_countlimit *cl = (void *)((char *)buf + offset);
	struct ext2_dx_tail *dt = (void *)((char *)buf + dir_blocksize(dir) - sizeof(*dt));

	if (has_csum(dir)) {
		dt->dt_reserved = 0;
		dt->dt_checksum = htree_csum(dir, buf, offset, cl);
	}
	return write_block(dir, lblk, buf);
}
