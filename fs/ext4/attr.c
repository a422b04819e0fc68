/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Attributes: stat and its changes.
 *
 * raw holds everything but a regular file's size, which is its mapping's. Data that waits for its
 * blocks (delayed allocation) is counted as if it had them, so that nobody takes a file with data
 * for a hole.
 *
 * A change of size comes first and by itself (it takes and gives up the volume lock); the rest is
 * one change. Whoever gives a file away, or shortens it without privilege, loses its suid bits.
 *
 * Locks: the volume lock to read; the inode lock exclusively and the volume lock to change.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/sysmacros.h>
#include "ext4.h"

#define VATTR_TIMES (VATTR_ATIME | VATTR_MTIME | VATTR_CTIME)
#define VATTR_NOW (VATTR_ATIME_NOW | VATTR_MTIME_NOW)

/* Device numbers: the old short form in i_block[0], or the new one in i_block[1]. */
static dev_t get_rdev(const struct ext2_inode_large *raw)
{
	uint32_t old = raw->i_block[0], new = raw->i_block[1];

	if (old)
		return makedev(old >> 8 & 0xff, old & 0xff);
	return makedev((new & 0xfff00) >> 8, (new & 0xff) | (new >> 12 & 0xfff00));
}

/* 512-byte sectors that the image holds for it */
static uint64_t sectors(const struct ext4_inode *inode)
{
	struct ext4_volume *vol = ext4_vol((struct ext4_inode *)inode);
	uint64_t nr = inode->raw.i_blocks;

	if (!ext2fs_has_feature_huge_file(vol->fs->super))
		return nr;
	nr |= (uint64_t)inode->raw.osd2.linux2.l_i_blocks_hi << 32;
	if (inode->raw.i_flags & EXT4_HUGE_FILE_FL)
		nr *= vol->vol.blocksize / 512;
	return nr;
}

static uint64_t delayed_sectors(struct ext4_inode *inode)
{
	struct ext4_volume *vol = ext4_vol(inode);
	uint64_t nr;

	pthread_mutex_lock(&vol->space_lock);
	nr = inode->delayed;
	pthread_mutex_unlock(&vol->space_lock);
	return nr * (vol->vol.blocksize / 512);
}

int ext4_getattr(struct vnode *node, struct stat *st)
{
	struct ext4_inode *inode = EXT4_I(node);
	struct ext4_volume *vol = ext4_vol(inode);

	memset(st, 0, sizeof(*st));
	ext4_lock(vol);
	st->st_ino = node->ino;
	st->st_mode = inode->raw.i_mode;
	st->st_nlink = inode->raw.i_links_count;
	st->st_uid = inode_uid(inode->raw);
	st->st_gid = inode_gid(inode->raw);
	st->st_size = EXT2_I_SIZE(&inode->raw);
	st->st_blksize = vol->vol.blocksize;
	st->st_blocks = sectors(inode);
	if (S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode))
		st->st_rdev = get_rdev(&inode->raw);
	ext4_time_get(inode, VATTR_ATIME, &st->st_atim);
	ext4_time_get(inode, VATTR_MTIME, &st->st_mtim);
	ext4_time_get(inode, VATTR_CTIME, &st->st_ctim);
	ext4_unlock(vol);
	if (inode->has_mapping) {
		st->st_size = mapping_size(&node->mapping);
		st->st_blocks += delayed_sectors(inode);
	}
	return 0;
}

int ext4_may_change(const struct ext4_inode *inode)
{
	return inode->raw.i_flags & (EXT2_IMMUTABLE_FL | EXT2_APPEND_FL) ? -EPERM : 0;
}

/*
 * The kernel keeps the times of a file that it caches writes of, and hands them over later, by
 * itself: a refusal would count as a failed write.
 */
static bool is_cached_times(const struct ext4_inode *inode, unsigned int valid)
{
	return valid == (VATTR_MTIME | VATTR_CTIME) &&
	       __atomic_load_n(&inode->vn.writers, __ATOMIC_RELAXED);
}

/* What the flags of the inode allow. Times of an append-only file move with its data. */
static int may_set(struct ext4_inode *inode, unsigned int valid)
{
	if (inode->raw.i_flags & EXT2_IMMUTABLE_FL)
		return is_cached_times(inode, valid) ? 0 : -EPERM;
	if (valid & (VATTR_MODE | VATTR_UID | VATTR_GID | VATTR_SIZE))
		return ext4_may_change(inode);
	return 0;
}

static int check_size(struct ext4_inode *inode, loff_t size)
{
	if (S_ISDIR(inode->raw.i_mode))
		return -EISDIR;
	if (!S_ISREG(inode->raw.i_mode) || size < 0)
		return -EINVAL;
	return size > ext4_max_size(inode) ? -EFBIG : 0;
}

static void set_owner(struct ext4_inode *inode, const struct stat *st, unsigned int valid)
{
	if (valid & VATTR_UID) {
		inode->raw.i_uid = st->st_uid;
		ext2fs_set_i_uid_high(inode->raw, st->st_uid >> 16);
	}
	if (valid & VATTR_GID) {
		inode->raw.i_gid = st->st_gid;
		ext2fs_set_i_gid_high(inode->raw, st->st_gid >> 16);
	}
}

static mode_t without_suid(mode_t mode)
{
	mode &= ~S_ISUID;
	/* Without execution for the group, sgid is the mark of mandatory locking. */
	if (mode & S_IXGRP)
		mode &= ~S_ISGID;
	return mode;
}

static void set_mode(struct ext4_inode *inode, const struct stat *st, unsigned int valid,
		     const struct cred *cred)
{
	mode_t mode = inode->raw.i_mode;

	if (valid & VATTR_MODE)
		mode = (mode & S_IFMT) | (st->st_mode & 07777);
	else if (S_ISREG(mode) && (valid & (VATTR_UID | VATTR_GID) ||
				   (valid & VATTR_SIZE && !(cred && cred->privileged))))
		mode = without_suid(mode);
	inode->raw.i_mode = mode;
	__atomic_store_n(&inode->vn.mode, mode, __ATOMIC_RELEASE);
}

static void set_times(struct ext4_inode *inode, const struct stat *st, unsigned int valid)
{
	/* Whatever changes moves ctime; the caller's own values win over that. */
	unsigned int touch = VATTR_CTIME;

	if (valid & VATTR_ATIME_NOW)
		touch |= VATTR_ATIME;
	if (valid & (VATTR_MTIME_NOW | VATTR_SIZE))
		touch |= VATTR_MTIME;
	ext4_touch(inode, touch);
	if (valid & VATTR_ATIME && !(valid & VATTR_ATIME_NOW))
		ext4_time_set(inode, VATTR_ATIME, &st->st_atim);
	if (valid & VATTR_MTIME && !(valid & VATTR_MTIME_NOW))
		ext4_time_set(inode, VATTR_MTIME, &st->st_mtim);
	if (valid & VATTR_CTIME)
		ext4_time_set(inode, VATTR_CTIME, &st->st_ctim);
}

static int change(struct ext4_inode *inode, const struct stat *st, unsigned int valid,
		  const struct cred *cred)
{
	int err = ext4_begin(ext4_vol(inode));

	if (err)
		return err;
	set_owner(inode, st, valid);
	set_mode(inode, st, valid, cred);
	set_times(inode, st, valid);
	err = ext4_inode_write(inode);
	if (!err && valid & VATTR_MODE)
		err = acl_chmod(inode);
	ext4_end(ext4_vol(inode));
	return err;
}

/**
 * ext4_setattr - change attributes
 * @node: file
 * @st: new values
 * @valid: VATTR_ bits of those that count
 * @cred: who asks
 *
 * Context: takes the inode lock. May sleep.
 * Return: 0; -EPERM by the inode's flags, -EISDIR, -EINVAL, -EFBIG for sizes, or another error.
 */
int ext4_setattr(struct vnode *node, const struct stat *st, unsigned int valid,
		 const struct cred *cred)
{
	struct ext4_inode *inode = EXT4_I(node);
	int err;

	if (ext4_is_rofs(ext4_vol(inode)))
		return -EROFS;
	pthread_rwlock_wrlock(&inode->lock);
	err = may_set(inode, valid);
	if (!err && valid & VATTR_SIZE)
		err = check_size(inode, st->st_size);
	if (!err && valid & VATTR_SIZE)
		err = ext4_truncate(inode, st->st_size);
	if (!err)
		err = change(inode, st, valid, cred);
	pthread_rwlock_unlock(&inode->lock);
	return err;
}

/* Immutable files are not opened for writing, append-only ones only to append. */
int ext4_check_open(struct vnode *node, int flags)
{
	struct ext4_inode *inode = EXT4_I(node);
	uint32_t iflags;

	if ((flags & O_ACCMODE) == O_RDONLY && !(flags & O_TRUNC))
		return 0;
	ext4_lock(ext4_vol(inode));
	iflags = inode->raw.i_flags;
	ext4_unlock(ext4_vol(inode));
	if (iflags & EXT2_IMMUTABLE_FL)
		return -EPERM;
	if (iflags & EXT2_APPEND_FL && (!(flags & O_APPEND) || flags & O_TRUNC))
		return -EPERM;
	return 0;
}

static bool before(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec <= b->tv_nsec);
}

/* relatime: only the first access after a change counts, or one a day. */
static bool atime_is_old(const struct ext4_inode *inode)
{
	struct timespec atime, mtime, ctime;

	if (inode->raw.i_flags & EXT2_NOATIME_FL)
		return false;
	ext4_time_get(inode, VATTR_ATIME, &atime);
	ext4_time_get(inode, VATTR_MTIME, &mtime);
	ext4_time_get(inode, VATTR_CTIME, &ctime);
	return before(&atime, &mtime) || before(&atime, &ctime) ||
	       time(NULL) - atime.tv_sec >= 24 * 60 * 60;
}

/**
 * ext4_accessed - move atime after a read
 * @node: file or directory
 *
 * Context: takes the inode lock; does without when it is busy.
 */
void ext4_accessed(struct vnode *node)
{
	struct ext4_inode *inode = EXT4_I(node);
	bool old;

	if (inode->has_mapping)
		walk_read(inode);
	if (ext4_is_rofs(ext4_vol(inode)) || pthread_rwlock_tryrdlock(&inode->lock))
		return;
	old = atime_is_old(inode);
	pthread_rwlock_unlock(&inode->lock);
	if (!old || pthread_rwlock_trywrlock(&inode->lock))
		return;
	if (!ext4_begin(ext4_vol(inode))) {
		ext4_touch(inode, VATTR_ATIME);
		/* Nobody waits for an answer; damage and failures have been noted. */
		ext4_inode_write(inode);
		ext4_end(ext4_vol(inode));
	}
	pthread_rwlock_unlock(&inode->lock);
}
