/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Names: lookup, creation, removal, renaming.
 *
 * A volume without an operation that changes names answers EPERM, as a file system that has no
 * such files does. A name that is not there is told to the kernel as an entry without a file,
 * which it keeps: nobody else can make the name appear.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include "dispatch.h"

void do_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param none = {.entry_timeout = FOREVER};
	struct vnode *node;
	int ret = ops_of(req)->lookup(node_of(req, parent), name, &node);

	if (ret == -ENOENT)
		fuse_reply_entry(req, &none);
	else
		reply_node(req, node, ret);
}

void do_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
	/*
	 * The root's references are the session's: the kernel was not given any by a lookup of
	 * "/".
	 */
	if (ino != FUSE_ROOT_ID)
		ops_of(req)->put(node_of(req, ino), nlookup);
	fuse_reply_none(req);
}

void do_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++) {
		if (forgets[i].ino != FUSE_ROOT_ID)
			ops_of(req)->put(node_of(req, forgets[i].ino), forgets[i].nlookup);
	}
	fuse_reply_none(req);
}

void do_readlink(fuse_req_t req, fuse_ino_t ino)
{
	const struct volume_ops *ops = ops_of(req);
	char target[PATH_MAX + 1];
	ssize_t len = ops->readlink ? ops->readlink(node_of(req, ino), target, PATH_MAX) : -EINVAL;

	if (len < 0) {
		reply_error(req, len);
		return;
	}
	target[len] = '\0';
	fuse_reply_readlink(req, target);
}

void do_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	const struct volume_ops *ops = ops_of(req);
	struct cred cred = request_cred(req);
	struct vnode *node = NULL;
	int ret = -EPERM;

	if (ops->mknod)
		ret = ops->mknod(node_of(req, parent), name, mode, rdev, &cred, &node);
	reply_node(req, node, ret);
}

void do_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	const struct volume_ops *ops = ops_of(req);
	struct cred cred = request_cred(req);
	struct vnode *node = NULL;
	int ret = -EPERM;

	if (ops->mkdir)
		ret = ops->mkdir(node_of(req, parent), name, mode, &cred, &node);
	reply_node(req, node, ret);
}

void do_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	const struct volume_ops *ops = ops_of(req);
	struct cred cred = request_cred(req);
	struct vnode *node = NULL;
	int ret = -EPERM;

	if (ops->symlink)
		ret = ops->symlink(node_of(req, parent), name, target, &cred, &node);
	reply_node(req, node, ret);
}

void do_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname)
{
	const struct volume_ops *ops = ops_of(req);
	struct vnode *node = node_of(req, ino);

	reply_node(req, node,
		   ops->link ? ops->link(node, node_of(req, newparent), newname) : -EPERM);
}

void do_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	const struct volume_ops *ops = ops_of(req);

	reply_error(req, ops->unlink ? ops->unlink(node_of(req, parent), name) : -EPERM);
}

void do_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	const struct volume_ops *ops = ops_of(req);

	reply_error(req, ops->rmdir ? ops->rmdir(node_of(req, parent), name) : -EPERM);
}

void do_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
	       const char *newname, unsigned int flags)
{
	const struct volume_ops *ops = ops_of(req);
	struct cred cred = request_cred(req);
	int ret = -EPERM;

	if (ops->rename)
		ret = ops->rename(node_of(req, parent), name, node_of(req, newparent), newname,
				  flags, &cred);
	reply_error(req, ret);
}

/* The file that O_CREAT is to open: a new one, or one that was there after all. */
static int create_node(fuse_req_t req, struct vnode *dir, const char *name, mode_t mode, int *flags,
		       struct vnode **out)
{
	const struct volume_ops *ops = ops_of(req);
	struct cred cred = request_cred(req);
	int ret = -EPERM;

	if (ops->mknod)
		ret = ops->mknod(dir, name, S_IFREG | (mode & 07777), 0, &cred, out);
	if (ret == -EEXIST && !(*flags & O_EXCL))
		return ops->lookup(dir, name, out);
	*flags &= ~O_TRUNC;
	return ret;
}

void do_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	       struct fuse_file_info *fi)
{
	const struct volume_ops *ops = ops_of(req);
	struct fuse_entry_param entry;
	struct vnode *node;
	int ret = create_node(req, node_of(req, parent), name, mode, &fi->flags, &node);

	if (ret) {
		reply_error(req, ret);
		return;
	}
	ret = open_node(req, node, fi);
	if (!ret) {
		ret = node_entry(req, node, &entry);
		if (!ret && fuse_reply_create(req, &entry, fi) == 0)
			return;
		close_node(node, fi);
	}
	if (ret)
		reply_error(req, ret);
	ops->put(node, 1);
}
