/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * getxattr, setxattr, listxattr, removexattr.
 *
 * Users see user., trusted., security. and the two POSIX ACLs; other names of the image (inline
 * data, rich ACLs) are not listed and cannot be reached. trusted. is for the privileged; whether
 * a file may have user. attributes, and who may set security. ones, the kernel has checked.
 *
 * Locks: the inode lock, shared to read and exclusive to change, then the volume lock.
 */
#include <errno.h>
#include <linux/limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include "xattr.h"

static bool has_prefix(const char *name, const char *prefix)
{
	return !strncmp(name, prefix, strlen(prefix));
}

/* May the attribute be reached at all? */
static int check_name(const char *name)
{
	static const char *const open[] = {"user.", "trusted.", "security."};

	if (strlen(name) > XATTR_NAME_MAX)
		return -ERANGE;
	if (acl_is_name(name))
		return 0;
	for (unsigned int i = 0; i < sizeof(open) / sizeof(open[0]); i++)
		if (has_prefix(name, open[i]))
			return name[strlen(open[i])] ? 0 : -EINVAL;
	return -EOPNOTSUPP;
}

/* The value in the form of getxattr(2), to be freed. Inode lock held. */
static int read_value(struct ext4_inode *inode, const char *name, void **value, size_t *len)
{
	void *stored;
	int err;

	ext4_lock(ext4_vol(inode));
	err = xattr_read(inode, name, &stored, len);
	ext4_unlock(ext4_vol(inode));
	if (err || !acl_is_name(name)) {
		*value = stored;
		return err;
	}
	err = acl_to_xattr(stored, *len, value, len);
	free(stored);
	return err;
}

/**
 * ext4_getxattr - read one attribute
 * @node: file
 * @name: full name
 * @buf: room for the value
 * @size: bytes of @buf; 0 asks for the length alone
 *
 * Context: no locks held; may sleep.
 * Return: length of the value, -ENODATA, -ERANGE, -EOPNOTSUPP, -EUCLEAN or another error.
 */
ssize_t ext4_getxattr(struct vnode *node, const char *name, void *buf, size_t size)
{
	struct ext4_inode *inode = EXT4_I(node);
	void *value = NULL;
	size_t len;
	int err;

	err = check_name(name);
	if (err)
		return err;
	pthread_rwlock_rdlock(&inode->lock);
	err = xattr_maybe(inode, name) ? read_value(inode, name, &value, &len) : -ENODATA;
	pthread_rwlock_unlock(&inode->lock);
	if (err)
		return err;
	if (size && len > size)
		err = -ERANGE;
	else if (size && len)
		memcpy(buf, value, len);
	free(value);
	return err ? err : (ssize_t)len;
}

/* Do XATTR_CREATE and XATTR_REPLACE allow it? Between begin and end. */
static int check_flags(struct ext4_inode *inode, const char *name, int flags)
{
	void *value;
	size_t len;
	int err;

	if (!flags)
		return 0;
	err = xattr_read(inode, name, &value, &len);
	if (err == -ENODATA)
		return flags & XATTR_REPLACE ? -ENODATA : 0;
	if (err)
		return err;
	free(value);
	return flags & XATTR_CREATE ? -EEXIST : 0;
}

static int may_change(struct ext4_inode *inode)
{
	return inode->raw.i_flags & (EXT2_IMMUTABLE_FL | EXT2_APPEND_FL) ? -EPERM : 0;
}

static int set_locked(struct ext4_inode *inode, const char *name, const void *value, size_t size,
		      int flags, const struct cred *cred)
{
	int err;

	err = check_flags(inode, name, flags);
	if (err)
		return err;
	if (acl_is_name(name))
		err = acl_set(inode, name, value, size, cred);
	else
		err = xattr_write(inode, name, value, size);
	if (err)
		return err;
	ext4_touch(inode, VATTR_CTIME);
	return ext4_inode_write(inode);
}

/**
 * ext4_setxattr - set one attribute
 * @node: file
 * @name: full name
 * @value: its value; an access ACL sets the mode, too
 * @size: bytes of @value
 * @flags: XATTR_CREATE, XATTR_REPLACE
 * @cred: who asks
 *
 * Context: no locks held; may sleep.
 * Return: 0, -EEXIST, -ENODATA, -ENOSPC, -EOPNOTSUPP, -EPERM, -EINVAL (no ACL), -EROFS or another.
 */
int ext4_setxattr(struct vnode *node, const char *name, const void *value, size_t size, int flags,
		  const struct cred *cred)
{
	struct ext4_inode *inode = EXT4_I(node);
	int err;

	err = check_name(name);
	if (err)
		return err;
	if (has_prefix(name, "trusted.") && !cred->privileged)
		return -EPERM;
	if (size > XATTR_SIZE_MAX)
		return -E2BIG;
	pthread_rwlock_wrlock(&inode->lock);
	err = may_change(inode);
	if (!err)
		err = ext4_begin(ext4_vol(inode));
	if (!err) {
		err = set_locked(inode, name, value ? value : "", size, flags, cred);
		ext4_end(ext4_vol(inode));
	}
	pthread_rwlock_unlock(&inode->lock);
	return err;
}

struct list {
	char *buf;
	size_t size, used;
	bool privileged;
};

static int list_name(const char *name, void *arg)
{
	struct list *list = arg;
	size_t len = strlen(name) + 1;

	if (check_name(name) || (has_prefix(name, "trusted.") && !list->privileged))
		return 0;
	if (list->size && len > list->size - list->used)
		return -ERANGE;
	if (list->size)
		memcpy(list->buf + list->used, name, len);
	list->used += len;
	return 0;
}

/**
 * ext4_listxattr - names of all attributes
 * @node: file
 * @buf: room for the names, each with its NUL
 * @size: bytes of @buf; 0 asks for the length alone
 * @cred: who asks; the unprivileged do not see trusted. ones
 *
 * Context: no locks held; may sleep.
 * Return: length of the list, -ERANGE, -EUCLEAN or another error.
 */
ssize_t ext4_listxattr(struct vnode *node, char *buf, size_t size, const struct cred *cred)
{
	struct list list = {.buf = buf, .size = size, .privileged = cred->privileged};
	struct ext4_inode *inode = EXT4_I(node);
	int err;

	pthread_rwlock_rdlock(&inode->lock);
	ext4_lock(ext4_vol(inode));
	err = xattr_each(inode, list_name, &list);
	ext4_unlock(ext4_vol(inode));
	pthread_rwlock_unlock(&inode->lock);
	return err ? err : (ssize_t)list.used;
}

/**
 * ext4_removexattr - remove one attribute
 * @node: file
 * @name: full name; an ACL that is not there counts as removed
 *
 * Context: no locks held; may sleep.
 * Return: 0, -ENODATA, -EOPNOTSUPP, -EPERM, -EROFS or another error.
 */
int ext4_removexattr(struct vnode *node, const char *name)
{
	struct ext4_inode *inode = EXT4_I(node);
	int err;

	err = check_name(name);
	if (err)
		return err;
	pthread_rwlock_wrlock(&inode->lock);
	err = may_change(inode);
	if (!err)
		err = ext4_begin(ext4_vol(inode));
	if (!err) {
		err = acl_is_name(name) ? acl_remove(inode, name) : xattr_remove(inode, name);
		if (!err) {
			ext4_touch(inode, VATTR_CTIME);
			err = ext4_inode_write(inode);
		}
		ext4_end(ext4_vol(inode));
	}
	pthread_rwlock_unlock(&inode->lock);
	return err;
}
