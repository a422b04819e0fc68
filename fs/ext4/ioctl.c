/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Inode flags (chattr), struct fsxattr, and the volume's label.
 *
 * Flags that describe how a file is kept (extents, index, inline data, ...) are shown but never
 * changed here. Immutable, append-only and data journalling are for the privileged.
 *
 * Locks: as in attr.c.
 */
#include <errno.h>
#include <linux/fs.h>
#include <string.h>
#include "ext4.h"

#define MODIFIABLE                                                                                 \
	(EXT2_SECRM_FL | EXT2_UNRM_FL | EXT2_SYNC_FL | EXT2_IMMUTABLE_FL | EXT2_APPEND_FL |        \
	 EXT2_NODUMP_FL | EXT2_NOATIME_FL | EXT3_JOURNAL_DATA_FL | EXT2_NOTAIL_FL |                \
	 EXT2_DIRSYNC_FL | EXT2_TOPDIR_FL | EXT4_PROJINHERIT_FL)
#define FOR_DIRECTORIES (EXT2_DIRSYNC_FL | EXT2_TOPDIR_FL | EXT4_PROJINHERIT_FL)
#define PRIVILEGED (EXT2_IMMUTABLE_FL | EXT2_APPEND_FL | EXT3_JOURNAL_DATA_FL)

int ext4_getflags(struct vnode *node, uint32_t *flags)
{
	struct ext4_inode *inode = EXT4_I(node);

	ext4_lock(ext4_vol(inode));
	*flags = inode->raw.i_flags & EXT2_FL_USER_VISIBLE;
	ext4_unlock(ext4_vol(inode));
	return 0;
}

/* What may be set on a file of this type */
static uint32_t settable(mode_t mode)
{
	if (S_ISDIR(mode))
		return MODIFIABLE;
	if (S_ISREG(mode))
		return MODIFIABLE & ~FOR_DIRECTORIES;
	return EXT2_NODUMP_FL | EXT2_NOATIME_FL;
}

static int check_flags(const struct ext4_inode *inode, uint32_t flags, const struct cred *cred)
{
	uint32_t changed = flags ^ (inode->raw.i_flags & EXT2_FL_USER_VISIBLE);

	if (changed & PRIVILEGED && !cred->privileged)
		return -EPERM;
	if (changed & ~MODIFIABLE || changed & flags & ~settable(inode->raw.i_mode))
		return -EOPNOTSUPP;
	/* While it is immutable nothing else changes. */
	if (inode->raw.i_flags & flags & EXT2_IMMUTABLE_FL && changed)
		return -EPERM;
	return 0;
}

/**
 * ext4_setflags - set FS_IOC_SETFLAGS flags
 * @node: file
 * @flags: all flags, as got from ext4_getflags() and changed
 * @cred: who asks
 *
 * Context: takes the inode lock. May sleep.
 * Return: 0, -EPERM, -EOPNOTSUPP for a flag that cannot be changed, or another error.
 */
int ext4_setflags(struct vnode *node, uint32_t flags, const struct cred *cred)
{
	struct ext4_inode *inode = EXT4_I(node);
	struct ext4_volume *vol = ext4_vol(inode);
	int err;

	pthread_rwlock_wrlock(&inode->lock);
	err = ext4_begin(vol);
	if (!err) {
		err = check_flags(inode, flags, cred);
		if (!err) {
			inode->raw.i_flags =
				(inode->raw.i_flags & ~MODIFIABLE) | (flags & MODIFIABLE);
			ext4_touch(inode, VATTR_CTIME);
			err = ext4_inode_write(inode);
		}
		ext4_end(vol);
	}
	pthread_rwlock_unlock(&inode->lock);
	return err;
}

static const struct {
	uint32_t flag, xflag;
} xflags[] = {
	{ EXT2_SYNC_FL, FS_XFLAG_SYNC },	 { EXT2_IMMUTABLE_FL, FS_XFLAG_IMMUTABLE },
	{ EXT2_APPEND_FL, FS_XFLAG_APPEND },	 { EXT2_NODUMP_FL, FS_XFLAG_NODUMP },
	{ EXT2_NOATIME_FL, FS_XFLAG_NOATIME },	 { EXT4_PROJINHERIT_FL, FS_XFLAG_PROJINHERIT },
};

int ext4_getfsxattr(struct vnode *node, struct vfsxattr *attr)
{
	struct ext4_inode *inode = EXT4_I(node);

	memset(attr, 0, sizeof(*attr));
	ext4_lock(ext4_vol(inode));
	for (size_t i = 0; i < sizeof(xflags) / sizeof(xflags[0]); i++) {
		if (inode->raw.i_flags & xflags[i].flag)
			attr->xflags |= xflags[i].xflag;
	}
	if (ext2fs_has_feature_project(ext4_vol(inode)->fs->super))
		attr->projid = inode->raw.i_projid;
	ext4_unlock(ext4_vol(inode));
	return 0;
}

int ext4_getlabel(struct volume *volume, char label[256])
{
	struct ext4_volume *vol = EXT4_VOL(volume);
	size_t size = sizeof(vol->fs->super->s_volume_name);

	memset(label, 0, 256);
	ext4_lock(vol);
	memcpy(label, vol->fs->super->s_volume_name, size);
	ext4_unlock(vol);
	return 0;
}

/**
 * ext4_setlabel - name the volume
 * @volume: volume
 * @label: at most 16 bytes
 *
 * Context: takes the volume lock.
 * Return: 0, -EINVAL when it is too long, or another error.
 */
int ext4_setlabel(struct volume *volume, const char *label)
{
	struct ext4_volume *vol = EXT4_VOL(volume);
	struct ext2_super_block *sb = vol->fs->super;
	int err;

	if (strlen(label) > sizeof(sb->s_volume_name))
		return -EINVAL;
	err = ext4_begin(vol);
	if (err)
		return err;
	memset(sb->s_volume_name, 0, sizeof(sb->s_volume_name));
	memcpy(sb->s_volume_name, label, strlen(label));
	commit_mark_super(vol);
	ext4_end(vol);
	return ext4_commit(vol);
}
