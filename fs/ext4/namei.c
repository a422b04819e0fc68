/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Names and links: lookup, mknod, mkdir, link, unlink, rmdir (symlink.c and rename.c have the
 * rest).
 *
 * Creation: the directory's inode lock is taken, then in one begin and end the inode is allocated
 * and filled, the name inserted, the directory's times and links brought up to date. When the name
 * cannot be inserted the new inode loses its link and goes the way of any unlinked file.
 *
 * Removal needs the locks of the directory and of the inode that the name names, by address. So the
 * name is looked up first, both are locked, and the name is looked up again: when it names
 * something else by now, all starts over.
 *
 * An inode whose last link goes is put on the orphan list, and deleted with its last reference.
 */
#include <errno.h>
#include <string.h>
#include <sys/sysmacros.h>
#include "namei.h"

/**
 * inode_set_add - add an inode to a set that is to be locked, keeping its order
 * @set: set
 * @inode: inode; one that is there already, or NULL, changes nothing
 */
void inode_set_add(struct inode_set *set, struct ext4_inode *inode)
{
	unsigned int i = set->nr;

	if (!inode)
		return;
	for (unsigned int j = 0; j < set->nr; j++)
		if (set->inodes[j] == inode)
			return;
	for (; i && set->inodes[i - 1] > inode; i--)
		set->inodes[i] = set->inodes[i - 1];
	set->inodes[i] = inode;
	set->nr++;
}

/**
 * inode_set_lock - lock all inodes of a set exclusively
 * @set: set
 *
 * Context: no inode locks held; may sleep.
 */
void inode_set_lock(struct inode_set *set)
{
	for (unsigned int i = 0; i < set->nr; i++)
		pthread_rwlock_wrlock(&set->inodes[i]->lock);
}

/**
 * inode_set_unlock - unlock all inodes of a set
 * @set: set, locked
 */
void inode_set_unlock(struct inode_set *set)
{
	for (unsigned int i = set->nr; i--;)
		pthread_rwlock_unlock(&set->inodes[i]->lock);
}

/**
 * check_name - may a name be this long?
 * @name: name
 *
 * Return: 0 or -ENAMETOOLONG.
 */
int check_name(const char *name)
{
	return strlen(name) > EXT2_NAME_LEN ? -ENAMETOOLONG : 0;
}

/**
 * may_add - do a directory's flags let it have more names?
 * @dir: directory
 *
 * Context: inode lock held.
 * Return: 0 or -EPERM.
 */
int may_add(const struct ext4_inode *dir)
{
	return dir->raw.i_flags & EXT2_IMMUTABLE_FL ? -EPERM : 0;
}

/**
 * may_take - do a directory's flags let it lose or change names?
 * @dir: directory
 *
 * Context: inode lock held.
 * Return: 0 or -EPERM.
 */
int may_take(const struct ext4_inode *dir)
{
	return dir->raw.i_flags & (EXT2_IMMUTABLE_FL | EXT2_APPEND_FL) ? -EPERM : 0;
}

/**
 * may_rename - do an inode's flags let it gain or lose names?
 * @inode: inode
 *
 * Context: inode lock held.
 * Return: 0 or -EPERM.
 */
int may_rename(const struct ext4_inode *inode)
{
	return may_take(inode);
}

/**
 * dir_links_full - can a directory's link count not take one more subdirectory?
 * @dir: directory
 *
 * Context: inode lock held.
 */
bool dir_links_full(const struct ext4_inode *dir)
{
	struct ext2_super_block *sb = ext4_vol((struct ext4_inode *)dir)->fs->super;

	return dir->raw.i_links_count >= EXT2_LINK_MAX &&
	       !(ext2fs_has_feature_dir_nlink(sb) && dir->raw.i_flags & EXT2_INDEX_FL);
}

/**
 * dir_links_inc - a directory has one more subdirectory
 * @dir: directory that is not full; not written
 *
 * A count of 1 says that there are too many subdirectories to be counted.
 *
 * Context: inode lock exclusive, between begin and end.
 */
void dir_links_inc(struct ext4_inode *dir)
{
	if (dir->raw.i_links_count == 1)
		return;
	if (dir->raw.i_links_count >= EXT2_LINK_MAX)
		dir->raw.i_links_count = 1;
	else
		dir->raw.i_links_count++;
}

/**
 * dir_links_dec - a directory has one subdirectory less
 * @dir: directory; not written
 *
 * Context: inode lock exclusive, between begin and end.
 */
void dir_links_dec(struct ext4_inode *dir)
{
	if (dir->raw.i_links_count > 2)
		dir->raw.i_links_count--;
}

/**
 * drop_link - an inode has lost a name, a directory its only one
 * @inode: inode; not written, unless it becomes an orphan
 *
 * Context: inode lock exclusive, between begin and end.
 */
void drop_link(struct ext4_inode *inode)
{
	if (S_ISDIR(inode->raw.i_mode))
		inode->raw.i_links_count = 0;
	else if (inode->raw.i_links_count)
		inode->raw.i_links_count--;
	ext4_touch(inode, VATTR_CTIME);
	if (!inode->raw.i_links_count)
		orphan_add(inode);
}

/**
 * undo_inode - a new inode gets no name after all: its last ext4_iput() deletes it
 * @inode: inode
 *
 * Context: between begin and end.
 */
void undo_inode(struct ext4_inode *inode)
{
	inode->raw.i_links_count = 0;
	orphan_add(inode);
	ext4_inode_write(inode);
}

/**
 * find_inode - the inode that a name names
 * @dir: directory
 * @name: name
 * @out: the inode, with a reference
 *
 * Context: no locks held; may sleep.
 * Return: 0, -ENOENT, or why the directory or the inode cannot be read.
 */
int find_inode(struct ext4_inode *dir, const char *name, struct ext4_inode **out)
{
	struct dir_name *dn;
	int err;

	err = dir_lock_shared(dir);
	if (err)
		return err;
	dn = dir_index_find(dir->index, name, strlen(name));
	err = dn ? ext4_iget(ext4_vol(dir), dn->ino, out) : -ENOENT;
	pthread_rwlock_unlock(&dir->lock);
	return err;
}

/**
 * find_again - a name, if it still names what find_inode() found
 * @dir: directory, loaded
 * @name: name
 * @inode: what it named
 *
 * Context: inode lock of @dir held.
 * Return: the name, or NULL.
 */
struct dir_name *find_again(struct ext4_inode *dir, const char *name,
			    const struct ext4_inode *inode)
{
	struct dir_name *dn = dir_index_find(dir->index, name, strlen(name));

	return dn && dn->ino == inode->vn.ino ? dn : NULL;
}

/**
 * ext4_lookup - find a name
 * @node: directory
 * @name: name; "." and ".." are known, too
 * @out: what it names, with a reference
 *
 * Context: no locks held; may sleep.
 * Return: 0, -ENOENT, -ENOTDIR, -ENAMETOOLONG, or why the directory or the inode cannot be read.
 */
int ext4_lookup(struct vnode *node, const char *name, struct vnode **out)
{
	struct ext4_inode *dir = EXT4_I(node), *inode;
	const struct dir_name *dn;
	uint32_t ino = 0;
	int err;

	if (!S_ISDIR(vnode_mode(node)))
		return -ENOTDIR;
	err = check_name(name);
	if (!err)
		err = dir_lock_shared(dir);
	if (err)
		return err;
	dn = dir_index_find(dir->index, name, strlen(name));
	if (dn)
		ino = dn->ino;
	else if (!strcmp(name, "."))
		ino = dir->vn.ino;
	else if (!strcmp(name, ".."))
		ino = dir->index->parent;
	/* With the lock held, or the inode could be gone before it is found. */
	err = ino ? ext4_iget(ext4_vol(dir), ino, &inode) : -ENOENT;
	pthread_rwlock_unlock(&dir->lock);
	if (!err)
		*out = &inode->vn;
	return err;
}

/* What is needed to make an inode. */
struct creation {
	const char *name;
	mode_t mode;
	dev_t rdev;
	const char *target; /* symlinks */
	const struct cred *cred;
};

/**
 * make_special - clear the block map of a new inode; devices get their number in its place
 * @inode: device, FIFO, socket or short symbolic link; not written
 * @rdev: number of a device
 *
 * Context: nobody else knows @inode.
 */
void make_special(struct ext4_inode *inode, dev_t rdev)
{
	unsigned int maj = major(rdev), min = minor(rdev);

	inode->raw.i_flags &= ~(EXT4_EXTENTS_FL | EXT4_INLINE_DATA_FL);
	memset(inode->raw.i_block, 0, sizeof(inode->raw.i_block));
	if (!S_ISCHR(inode->raw.i_mode) && !S_ISBLK(inode->raw.i_mode))
		return;
	if (maj < 256 && min < 256)
		inode->raw.i_block[0] = maj << 8 | min;
	else
		inode->raw.i_block[1] = (min & 0xff) | maj << 8 | (min & ~0xffU) << 12;
}

/* The part of creation that depends on the type. */
static int fill_inode(struct ext4_inode *dir, struct ext4_inode *inode, const struct creation *c)
{
	int err = 0;

	if (!S_ISLNK(c->mode))
		err = acl_inherit(dir, inode, c->cred);
	if (err)
		return err;
	if (S_ISDIR(c->mode))
		err = dir_init(inode, dir->vn.ino);
	else if (S_ISLNK(c->mode))
		err = symlink_write(inode, c->target);
	else if (!S_ISREG(c->mode))
		make_special(inode, c->rdev);
	return err ? err : ext4_inode_write(inode);
}

static int insert_new(struct ext4_inode *dir, struct ext4_inode *inode, const struct creation *c)
{
	int err;

	err = dir_insert(dir, c->name, inode->vn.ino, c->mode);
	if (!err) {
		if (S_ISDIR(c->mode))
			dir_links_inc(dir);
		ext4_touch(dir, VATTR_MTIME | VATTR_CTIME);
	}
	/* A directory that got its htree and then no room has changed, too. */
	return ext4_inode_write(dir) ?: err;
}

/* Between begin and end. On error *@out is NULL, or an inode to be put. */
static int create_locked(struct ext4_inode *dir, const struct creation *c, struct ext4_inode **out)
{
	int err;

	*out = NULL;
	err = dir_make_blocks(dir);
	if (!err)
		err = ext4_ialloc(dir, c->mode, c->cred, out);
	if (err) {
		*out = NULL;
		return err;
	}
	err = fill_inode(dir, *out, c);
	if (!err)
		err = insert_new(dir, *out, c);
	if (err)
		undo_inode(*out);
	return err;
}

static int may_create(struct ext4_inode *dir, const struct creation *c)
{
	int err;

	err = dir_load(dir);
	if (err)
		return err;
	if (!dir->raw.i_links_count)
		return -ENOENT;
	if (dir_index_find(dir->index, c->name, strlen(c->name)))
		return -EEXIST;
	if (S_ISDIR(c->mode) && dir_links_full(dir))
		return -EMLINK;
	return may_add(dir);
}

static int try_create(struct ext4_inode *dir, const struct creation *c, struct vnode **out)
{
	struct ext4_inode *inode = NULL;
	int err;

	pthread_rwlock_wrlock(&dir->lock);
	err = may_create(dir, c);
	if (!err)
		err = ext4_begin(ext4_vol(dir));
	if (!err) {
		err = create_locked(dir, c, &inode);
		ext4_end(ext4_vol(dir));
	}
	pthread_rwlock_unlock(&dir->lock);
	if (err && inode)
		ext4_iput(inode, 1);
	if (!err)
		*out = &inode->vn;
	return err;
}

static int create(struct vnode *node, const struct creation *c, struct vnode **out)
{
	int tries = 0, err;

	if (!S_ISDIR(vnode_mode(node)))
		return -ENOTDIR;
	err = check_name(c->name);
	if (err)
		return err;
	do {
		err = try_create(EXT4_I(node), c, out);
	} while (err == -ENOSPC && tries++ < DELETED_TRIES &&
		 inode_wait_deleted(EXT4_VOL(node->volume)));
	return err;
}

/**
 * ext4_mknod - make a regular file, FIFO, socket or device
 * @dir: directory
 * @name: new name
 * @mode: type and permissions; the umask or the default ACL of @dir is applied
 * @rdev: number of a device
 * @cred: who asks
 * @out: the new file, with a reference
 *
 * Context: no locks held; may sleep.
 * Return: 0, -EEXIST, -ENOSPC, -ENAMETOOLONG, -EPERM (immutable), -EROFS or another error.
 */
int ext4_mknod(struct vnode *dir, const char *name, mode_t mode, dev_t rdev,
	       const struct cred *cred, struct vnode **out)
{
	if (!(mode & S_IFMT))
		mode |= S_IFREG;
	if (S_ISDIR(mode) || S_ISLNK(mode))
		return -EINVAL;
	return create(dir, &(struct creation){name, mode, rdev, NULL, cred}, out);
}

/**
 * ext4_mkdir - make a directory
 * @dir: parent
 * @name: new name
 * @mode: permissions; the umask or the default ACL of @dir is applied
 * @cred: who asks
 * @out: the new directory, with a reference
 *
 * Context: no locks held; may sleep.
 * Return: as ext4_mknod(), and -EMLINK.
 */
int ext4_mkdir(struct vnode *dir, const char *name, mode_t mode, const struct cred *cred,
	       struct vnode **out)
{
	mode = (mode & ~S_IFMT) | S_IFDIR;
	return create(dir, &(struct creation){name, mode, 0, NULL, cred}, out);
}

/**
 * ext4_symlink - make a symbolic link
 * @dir: directory
 * @name: new name
 * @target: what it says
 * @cred: who asks
 * @out: the new link, with a reference
 *
 * Context: no locks held; may sleep.
 * Return: as ext4_mknod(); -ENAMETOOLONG also for a target that does not fit into a block.
 */
int ext4_symlink(struct vnode *dir, const char *name, const char *target, const struct cred *cred,
		 struct vnode **out)
{
	if (strlen(target) >= dir_blocksize(EXT4_I(dir)))
		return -ENAMETOOLONG;
	return create(dir, &(struct creation){name, S_IFLNK | 0777, 0, target, cred}, out);
}

static int may_link(struct ext4_inode *inode, struct ext4_inode *dir, const char *name)
{
	int err;

	err = dir_load(dir);
	if (err)
		return err;
	if (!dir->raw.i_links_count || !inode->raw.i_links_count)
		return -ENOENT;
	if (dir_index_find(dir->index, name, strlen(name)))
		return -EEXIST;
	if (inode->raw.i_links_count >= EXT2_LINK_MAX)
		return -EMLINK;
	err = may_add(dir);
	return err ? err : may_rename(inode);
}

static int link_locked(struct ext4_inode *inode, struct ext4_inode *dir, const char *name)
{
	int err;

	err = dir_make_blocks(dir);
	if (err)
		return err;
	err = dir_insert(dir, name, inode->vn.ino, inode->raw.i_mode);
	if (!err) {
		inode->raw.i_links_count++;
		ext4_touch(inode, VATTR_CTIME);
		ext4_touch(dir, VATTR_MTIME | VATTR_CTIME);
		err = ext4_inode_write(inode);
	}
	return ext4_inode_write(dir) ?: err;
}

/**
 * ext4_link - give a file one more name
 * @node: not a directory; gets one reference more on success
 * @dirnode: directory
 * @name: new name
 *
 * Context: no locks held; may sleep.
 * Return: 0, -EEXIST, -EMLINK, -ENOENT (the file has no name any more), -EPERM, -ENOSPC or another.
 */
int ext4_link(struct vnode *node, struct vnode *dirnode, const char *name)
{
	struct ext4_inode *inode = EXT4_I(node), *dir = EXT4_I(dirnode);
	struct inode_set set = {0};
	int err;

	if (!S_ISDIR(vnode_mode(dirnode)))
		return -ENOTDIR;
	if (S_ISDIR(vnode_mode(node)))
		return -EPERM;
	err = check_name(name);
	if (err)
		return err;
	inode_set_add(&set, inode);
	inode_set_add(&set, dir);
	inode_set_lock(&set);
	err = may_link(inode, dir, name);
	if (!err)
		err = ext4_begin(ext4_vol(dir));
	if (!err) {
		err = link_locked(inode, dir, name);
		ext4_end(ext4_vol(dir));
	}
	inode_set_unlock(&set);
	if (!err)
		ext4_igrab(inode);
	return err;
}

/* Is it right to remove @inode, as a directory or not? All locked. */
static int may_remove(struct ext4_inode *dir, struct ext4_inode *inode, bool is_dir)
{
	int err;

	if (is_dir != !!S_ISDIR(vnode_mode(&inode->vn)))
		return is_dir ? -ENOTDIR : -EISDIR;
	err = may_take(dir);
	if (!err)
		err = may_rename(inode);
	if (err || !is_dir)
		return err;
	err = dir_load(inode);
	if (err)
		return err;
	return inode->index->live ? -ENOTEMPTY : 0;
}

static int remove_locked(struct ext4_inode *dir, struct dir_name *dn, struct ext4_inode *inode)
{
	int err;

	err = dir_make_blocks(dir);
	if (!err)
		err = dir_remove(dir, dn);
	if (err)
		return err;
	drop_link(inode);
	if (S_ISDIR(vnode_mode(&inode->vn)))
		dir_links_dec(dir);
	ext4_touch(dir, VATTR_MTIME | VATTR_CTIME);
	err = ext4_inode_write(inode);
	return ext4_inode_write(dir) ?: err;
}

/* One try: -EAGAIN when @name has come to name something else. */
static int try_remove(struct ext4_inode *dir, const char *name, bool is_dir)
{
	struct inode_set set = {0};
	struct ext4_inode *inode;
	struct dir_name *dn = NULL;
	int err;

	err = find_inode(dir, name, &inode);
	if (err)
		return err;
	inode_set_add(&set, dir);
	inode_set_add(&set, inode);
	inode_set_lock(&set);
	err = dir_load(dir);
	if (!err) {
		dn = find_again(dir, name, inode);
		err = dn ? may_remove(dir, inode, is_dir) : -EAGAIN;
	}
	if (!err)
		err = ext4_begin(ext4_vol(dir));
	if (!err) {
		err = remove_locked(dir, dn, inode);
		ext4_end(ext4_vol(dir));
	}
	inode_set_unlock(&set);
	ext4_iput(inode, 1);
	return err;
}

static int remove_name(struct vnode *dir, const char *name, bool is_dir)
{
	int err;

	if (!S_ISDIR(vnode_mode(dir)))
		return -ENOTDIR;
	err = check_name(name);
	if (err)
		return err;
	do {
		err = try_remove(EXT4_I(dir), name, is_dir);
	} while (err == -EAGAIN);
	return err;
}

/**
 * ext4_unlink - remove a name of something that is not a directory
 * @dir: directory
 * @name: name
 *
 * Context: no locks held; may sleep.
 * Return: 0, -ENOENT, -EISDIR, -EPERM (immutable, append-only), -EROFS or another error.
 */
int ext4_unlink(struct vnode *dir, const char *name)
{
	return remove_name(dir, name, false);
}

/**
 * ext4_rmdir - remove an empty directory
 * @dir: parent
 * @name: name
 *
 * Context: no locks held; may sleep.
 * Return: 0, -ENOENT, -ENOTDIR, -ENOTEMPTY, -EINVAL ("."), -EPERM, -EROFS or another error.
 */
int ext4_rmdir(struct vnode *dir, const char *name)
{
	if (!strcmp(name, "."))
		return -EINVAL;
	if (!strcmp(name, ".."))
		return -ENOTEMPTY;
	return remove_name(dir, name, true);
}
