/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Attributes, permissions, extended attributes, the volume's figures.
 */
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>
#include "dispatch.h"

static void reply_attr(fuse_req_t req, struct vnode *node, int error)
{
	struct stat st;

	if (!error)
		error = node_getattr(req, node, &st);
	if (error)
		reply_error(req, error);
	else
		fuse_reply_attr(req, &st, FOREVER);
}

void do_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	reply_attr(req, node_of(req, ino), 0);
}

/*
 * chown takes set-uid bits away, and so does truncation where the kernel says so: as it does in a
 * bit that libfuse keeps from us.
 */
static unsigned int drop_priv(const struct vnode *node, struct stat *attr, unsigned int valid)
{
	const struct fuse_setattr_in *in = (const void *)(workers_current() + 1);
	mode_t mode = __atomic_load_n(&node->mode, __ATOMIC_RELAXED);

	if ((valid & VATTR_MODE) || !S_ISREG(mode) || without_priv(mode) == mode)
		return valid;
	if (!(valid & (VATTR_UID | VATTR_GID)) && !(in->valid & FATTR_KILL_SUIDGID))
		return valid;
	attr->st_mode = without_priv(mode);
	return valid | VATTR_MODE;
}

void do_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		struct fuse_file_info *fi)
{
	static const struct {
		int fuse;
		unsigned int vattr;
	} bits[] = {
		{FUSE_SET_ATTR_MODE, VATTR_MODE},
		{FUSE_SET_ATTR_UID, VATTR_UID},
		{FUSE_SET_ATTR_GID, VATTR_GID},
		{FUSE_SET_ATTR_SIZE, VATTR_SIZE},
		{FUSE_SET_ATTR_ATIME, VATTR_ATIME},
		{FUSE_SET_ATTR_MTIME, VATTR_MTIME},
		{FUSE_SET_ATTR_ATIME_NOW, VATTR_ATIME_NOW},
		{FUSE_SET_ATTR_MTIME_NOW, VATTR_MTIME_NOW},
		{FUSE_SET_ATTR_CTIME, VATTR_CTIME},
	};
	const struct volume_ops *ops = ops_of(req);
	struct vnode *node = node_of(req, ino);
	struct cred cred = request_cred(req);
	unsigned int valid = 0;

	for (size_t i = 0; i < sizeof(bits) / sizeof(bits[0]); i++) {
		if (to_set & bits[i].fuse)
			valid |= bits[i].vattr;
	}
	/* "Now" is asked for together with the time that it replaces. */
	if (valid & VATTR_ATIME_NOW)
		valid &= ~VATTR_ATIME;
	if (valid & VATTR_MTIME_NOW)
		valid &= ~VATTR_MTIME;
	valid = drop_priv(node, attr, valid);
	reply_attr(req, node, ops->setattr ? ops->setattr(node, attr, valid, &cred) : -EPERM);
}

/* Asked only with fakeroot, where the kernel does not check: what root may not do either. */
void do_access(fuse_req_t req, fuse_ino_t ino, int mask)
{
	struct vnode *node = node_of(req, ino);
	struct stat st;
	int ret = 0;

	if (mask & X_OK)
		ret = node_getattr(req, node, &st);
	if (!ret && (mask & X_OK) && !S_ISDIR(st.st_mode) &&
	    !(st.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH)))
		ret = -EACCES;
	reply_error(req, ret);
}

void do_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs st;
	int ret = ops_of(req)->statfs(session_of(req)->volume, &st);

	if (ret)
		reply_error(req, ret);
	else
		fuse_reply_statfs(req, &st);
}

/* Sends what an attribute call gave: its length when @size is 0, else its bytes. */
static void reply_xattr(fuse_req_t req, const char *buf, size_t size, ssize_t ret)
{
	if (ret < 0)
		reply_error(req, ret);
	else if (!size)
		fuse_reply_xattr(req, ret);
	else
		fuse_reply_buf(req, buf, ret);
}

void do_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	const struct volume_ops *ops = ops_of(req);
	char *buf = size ? malloc(size) : NULL;
	ssize_t ret = -ENOSYS;

	if (size && !buf)
		ret = -ENOMEM;
	else if (ops->getxattr)
		ret = ops->getxattr(node_of(req, ino), name, buf, size);
	reply_xattr(req, buf, size, ret);
	free(buf);
}

void do_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	const struct volume_ops *ops = ops_of(req);
	struct cred cred = request_cred(req);
	char *buf = size ? malloc(size) : NULL;
	ssize_t ret = -ENOSYS;

	if (size && !buf)
		ret = -ENOMEM;
	else if (ops->listxattr)
		ret = ops->listxattr(node_of(req, ino), buf, size, &cred);
	reply_xattr(req, buf, size, ret);
	free(buf);
}

void do_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
		 int flags)
{
	const struct volume_ops *ops = ops_of(req);
	struct cred cred = request_cred(req);
	int ret = -ENOSYS;

	if (ops->setxattr)
		ret = ops->setxattr(node_of(req, ino), name, value, size, flags, &cred);
	reply_error(req, ret);
}

void do_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	const struct volume_ops *ops = ops_of(req);

	reply_error(req, ops->removexattr ? ops->removexattr(node_of(req, ino), name) : -ENOSYS);
}
