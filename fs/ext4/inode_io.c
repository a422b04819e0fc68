/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Inodes between memory and the inode table, and the coding of times.
 *
 * An inode is read and written as one run of bytes of the device mapping; nothing around it in its
 * block is touched, so slots that were never initialised (lazy initialisation of the tables) stay
 * as they are.
 *
 * Times: 32 bits of signed seconds, and in larger inodes 32 more: 2 bits that extend the
 * seconds upwards (to 2446) and 30 of nanoseconds. Each field's extra half is there only when
 * i_extra_isize says so. Coded here, because libext2fs's own helpers lose the 2 bits.
 *
 * Locks: the volume lock, but for the times, which follow raw's rules.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#include "crc32c.h"
#include "ext4.h"
#include "txn.h"

/* Inode tables are read in windows of this many bytes. */
#define WINDOW_BYTES (256 << 10)

static int inode_pos(struct ext4_volume *vol, uint32_t ino, uint64_t *pos)
{
	ext2_filsys fs = vol->fs;
	uint64_t table, offset;

	if (!ino || ino > fs->super->s_inodes_count)
		return ext4_corrupt(vol, ino, -EUCLEAN, "no such inode");
	table = ext2fs_inode_table_loc(fs, ext2fs_group_of_ino(fs, ino));
	offset = (uint64_t)((ino - 1) % fs->super->s_inodes_per_group) * EXT2_INODE_SIZE(fs->super);
	*pos = (table << vol->device.block_shift) + offset;
	return 0;
}

/* Blocks of a group's inode table that hold inodes in use, perhaps with others among them. */
static uint64_t used_blocks(ext2_filsys fs, dgrp_t group)
{
	uint64_t inodes = fs->super->s_inodes_per_group;

	if (ext2fs_has_group_desc_csum(fs))
		inodes -= ext2fs_bg_itable_unused(fs, group);
	return (inodes * EXT2_INODE_SIZE(fs->super) + fs->blocksize - 1) / fs->blocksize;
}

/* The first inode wanted from a window of its table brings all of it. */
static void read_around(struct ext4_volume *vol, uint32_t ino, uint64_t pos)
{
	ext2_filsys fs = vol->fs;
	dgrp_t group = ext2fs_group_of_ino(fs, ino);
	uint64_t table = ext2fs_inode_table_loc(fs, group), used = used_blocks(fs, group);
	uint64_t length = WINDOW_BYTES / fs->blocksize;
	uint64_t start = ((pos >> vol->device.block_shift) - table) / length * length;

	if (table + start == vol->itable_window)
		return;
	vol->itable_window = table + start;
	if (start < used)
		device_readahead(vol, table + start, used - start < length ? used - start : length);
}

static bool known_type(uint32_t mode)
{
	return S_ISREG(mode) || S_ISDIR(mode) || S_ISLNK(mode) || S_ISCHR(mode) ||
	       S_ISBLK(mode) || S_ISFIFO(mode) || S_ISSOCK(mode);
}

/* NULL when all is well with the fields that everybody relies on */
static const char *inode_fault(struct ext4_volume *vol, struct ext4_inode *inode)
{
	const struct ext2_inode_large *raw = &inode->raw;
	uint64_t acl = ext2fs_file_acl_block(vol->fs, (const struct ext2_inode *)raw);

	if (!ext2fs_inode_csum_verify(vol->fs, inode->vn.ino, &inode->raw))
		return "checksum error";
	if (inode->raw_size > EXT2_GOOD_OLD_INODE_SIZE &&
	    (raw->i_extra_isize & 3 ||
	     EXT2_GOOD_OLD_INODE_SIZE + raw->i_extra_isize > inode->raw_size))
		return "size of its extra fields";
	if (!known_type(raw->i_mode))
		return "file type";
	if (EXT2_I_SIZE(raw) > INT64_MAX)
		return "size";
	if (acl && (acl <= vol->fs->super->s_first_data_block ||
		    acl >= ext2fs_blocks_count(vol->fs->super)))
		return "xattr block outside the file system";
	return NULL;
}

int ext4_inode_read(struct ext4_volume *vol, struct ext4_inode *inode, uint32_t ino)
{
	const char *fault;
	uint64_t pos;
	int err = inode_pos(vol, ino, &pos);

	if (err)
		return err;
	read_around(vol, ino, pos);
	err = device_pread(vol, pos, ext4_raw_bytes(inode), inode->raw_size);
	if (err)
		return err == -EIO ? ext4_corrupt(vol, ino, err, "cannot be read") : err;
	fault = inode_fault(vol, inode);
	return fault ? ext4_corrupt(vol, ino, -EUCLEAN, "damaged: %s", fault) : 0;
}

int ext4_inode_reload(struct ext4_inode *inode)
{
	struct ext4_volume *vol = ext4_vol(inode);
	uint64_t pos;
	int err = inode_pos(vol, inode->vn.ino, &pos);

	return err ? err : device_pread(vol, pos, ext4_raw_bytes(inode), inode->raw_size);
}

/* True when the inode has a field that ends @end bytes into it. */
static bool reaches(const struct ext4_inode *inode, size_t end)
{
	return inode->raw_size > EXT2_GOOD_OLD_INODE_SIZE &&
	       EXT2_GOOD_OLD_INODE_SIZE + inode->raw.i_extra_isize >= end;
}

#define HAS(inode, field)                                                                          \
	reaches(inode, offsetof(struct ext2_inode_large, field) +                                  \
			       sizeof(((struct ext2_inode_large *)0)->field))

/* Covers the volume's seed, the number, the generation, and all bytes with the checksum as 0. */
static void set_csum(struct ext4_inode *inode)
{
	struct ext2_inode_large *raw = &inode->raw;
	ext2_filsys fs = ext4_vol(inode)->fs;
	uint32_t ino = inode->vn.ino, crc;
	bool wide = HAS(inode, i_checksum_hi);

	if (fs->super->s_creator_os != EXT2_OS_LINUX ||
	    !ext2fs_has_feature_metadata_csum(fs->super))
		return;
	raw->osd2.linux2.l_i_checksum_lo = 0;
	if (wide)
		raw->i_checksum_hi = 0;
	crc = ext4_crc32c(fs->csum_seed, &ino, sizeof(ino));
	crc = ext4_crc32c(crc, &raw->i_generation, sizeof(raw->i_generation));
	crc = ext4_crc32c(crc, ext4_raw_bytes(inode), inode->raw_size);
	raw->osd2.linux2.l_i_checksum_lo = crc;
	if (wide)
		raw->i_checksum_hi = crc >> 16;
}

/**
 * ext4_inode_write - bring raw to the inode table
 * @inode: inode
 *
 * Context: volume lock, between ext4_begin() and ext4_end(). May sleep.
 * Return: 0 or an error of the device mapping.
 */
int ext4_inode_write(struct ext4_inode *inode)
{
	struct ext4_volume *vol = ext4_vol(inode);
	uint64_t pos;
	int err = inode_pos(vol, inode->vn.ino, &pos);

	if (err)
		return err;
	set_csum(inode);
	/* libext2fs keeps a few inodes of its own: they would be old now. */
	ext2fs_flush_icache(vol->fs);
	__atomic_store_n(&inode->changed_in, txn_running(vol), __ATOMIC_RELEASE);
	return device_pwrite(vol, pos, ext4_raw_bytes(inode), inode->raw_size);
}

/* Where a time is kept; *extra is NULL when it has no second half. */
static uint32_t *time_fields(struct ext4_inode *inode, unsigned int which, uint32_t **extra)
{
	struct ext2_inode_large *raw = &inode->raw;

	switch (which) {
	case VATTR_ATIME:
		*extra = HAS(inode, i_atime_extra) ? &raw->i_atime_extra : NULL;
		return &raw->i_atime;
	case VATTR_MTIME:
		*extra = HAS(inode, i_mtime_extra) ? &raw->i_mtime_extra : NULL;
		return &raw->i_mtime;
	default:
		*extra = HAS(inode, i_ctime_extra) ? &raw->i_ctime_extra : NULL;
		return &raw->i_ctime;
	}
}

/* Writes one time, clamped to what the fields can say. */
static void encode(uint32_t *low, uint32_t *extra, struct timespec ts)
{
	int64_t max = extra ? ((int64_t)EXT4_EPOCH_MASK << 32) + INT32_MAX : INT32_MAX;
	uint32_t epoch;

	if (ts.tv_sec < INT32_MIN)
		ts = (struct timespec){ .tv_sec = INT32_MIN };
	if (ts.tv_sec > max)
		ts = (struct timespec){ .tv_sec = max };
	*low = (uint32_t)ts.tv_sec;
	epoch = (uint64_t)(ts.tv_sec - (int32_t)*low) >> 32 & EXT4_EPOCH_MASK;
	if (extra)
		*extra = epoch | (uint32_t)ts.tv_nsec << EXT4_EPOCH_BITS;
}

void ext4_time_get(const struct ext4_inode *inode, unsigned int which, struct timespec *ts)
{
	uint32_t *extra;
	uint32_t *low = time_fields((struct ext4_inode *)inode, which, &extra);

	ts->tv_sec = (int32_t)*low;
	ts->tv_nsec = 0;
	if (!extra)
		return;
	ts->tv_sec += (int64_t)(*extra & EXT4_EPOCH_MASK) << 32;
	ts->tv_nsec = *extra >> EXT4_EPOCH_BITS;
	if (ts->tv_nsec > 999999999)
		ts->tv_nsec = 0;
}

void ext4_time_set(struct ext4_inode *inode, unsigned int which, const struct timespec *ts)
{
	uint32_t *extra;
	uint32_t *low = time_fields(inode, which, &extra);

	encode(low, extra, *ts);
}

/* What the kernel uses for inode times, too; precise enough, and cheap. */
static struct timespec now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME_COARSE, &ts);
	return ts;
}

void ext4_touch(struct ext4_inode *inode, unsigned int what)
{
	struct timespec ts = now();

	if (what & VATTR_ATIME)
		ext4_time_set(inode, VATTR_ATIME, &ts);
	if (what & VATTR_MTIME)
		ext4_time_set(inode, VATTR_MTIME, &ts);
	if (what & VATTR_CTIME)
		ext4_time_set(inode, VATTR_CTIME, &ts);
}

bool ext4_is_touched(const struct ext4_inode *inode, unsigned int what)
{
	struct timespec ts = now(), was;

	for (unsigned int which = VATTR_ATIME; which <= VATTR_CTIME; which <<= 1) {
		if (!(what & which))
			continue;
		ext4_time_get(inode, which, &was);
		if (was.tv_sec != ts.tv_sec || was.tv_nsec != ts.tv_nsec)
			return false;
	}
	return true;
}

void inode_set_birth(struct ext4_inode *inode)
{
	if (HAS(inode, i_crtime))
		encode(&inode->raw.i_crtime,
		       HAS(inode, i_crtime_extra) ? &inode->raw.i_crtime_extra : NULL, now());
}

static struct ext4_inode *in_use(ext2_filsys fs, ext2_ino_t ino)
{
	struct ext4_volume *vol = fs->priv_data;

	return vol->icache ? icache_peek(vol, ino) : NULL;
}

/* libext2fs wants the first 128 bytes: raw is the truth while the inode is in use. */
static errcode_t hook_read(ext2_filsys fs, ext2_ino_t ino, struct ext2_inode *to)
{
	struct ext4_inode *inode = in_use(fs, ino);

	if (!inode)
		return EXT2_ET_CALLBACK_NOTHANDLED;
	if (to != (struct ext2_inode *)&inode->raw)
		memcpy(to, &inode->raw, sizeof(*to));
	return 0;
}

/*
 * It writes an inode back: raw itself is written by us, a copy by the library (which knows its
 * length).
 */
static errcode_t hook_write(ext2_filsys fs, ext2_ino_t ino, struct ext2_inode *from)
{
	struct ext4_inode *inode = in_use(fs, ino);

	if (!inode || from != (struct ext2_inode *)&inode->raw)
		return EXT2_ET_CALLBACK_NOTHANDLED;
	return -ext4_inode_write(inode);
}

void inode_install_hooks(struct ext4_volume *vol)
{
	vol->fs->priv_data = vol;
	vol->fs->read_inode = hook_read;
	vol->fs->write_inode = hook_write;
}
