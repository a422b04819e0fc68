/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Requests become calls of the volume. The table of handlers, the agreement with the kernel
 * (init), and what all handlers need. The handlers are by subject in dispatch_ns.c (names),
 * dispatch_data.c, dispatch_dir.c, dispatch_attr.c and dispatch_ioctl.c.
 *
 * The kernel holds one reference on a vnode for each entry that it was given, and gives them back
 * with FORGET. A reply that does not reach the kernel gives its reference back at once.
 *
 * There is no flush handler: the kernel asks once, hears ENOSYS and asks no more, which saves each
 * close a round trip.
 *
 * Set-uid bits. The first HANDLE_KILLPRIV stays off: with the writeback cache a write comes here
 * long after the write(2), when the bit may have been set again. The second (init.c) has the
 * kernel say with each write and truncation whether the bits are to go; O_TRUNC, chown, fallocate
 * and copies are our own part. A kernel without it clears them with a setattr, and finds nothing
 * to do here.
 */
#include <string.h>
#include "dispatch.h"

struct cred request_cred(fuse_req_t req)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);

	return (struct cred){
		.uid = ctx->uid,
		.gid = ctx->gid,
		.pid = ctx->pid,
		.umask = ctx->umask,
		.privileged = ctx->uid == 0 || session_of(req)->options->fakeroot,
	};
}

mode_t without_priv(mode_t mode)
{
	mode &= ~S_ISUID;
	if ((mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP))
		mode &= ~S_ISGID;
	return mode;
}

int kill_priv(fuse_req_t req, struct vnode *node)
{
	mode_t mode = __atomic_load_n(&node->mode, __ATOMIC_RELAXED);
	struct cred cred = request_cred(req);
	struct stat st = {.st_mode = without_priv(mode)};

	if (cred.privileged || !S_ISREG(mode) || st.st_mode == mode)
		return 0;
	return ops_of(req)->setattr(node, &st, VATTR_MODE, &cred);
}

int node_getattr(fuse_req_t req, struct vnode *node, struct stat *st)
{
	const struct options *options = session_of(req)->options;
	int ret = ops_of(req)->getattr(node, st);

	if (options->set_uid)
		st->st_uid = options->uid;
	if (options->set_gid)
		st->st_gid = options->gid;
	return ret;
}

int node_entry(fuse_req_t req, struct vnode *node, struct fuse_entry_param *entry)
{
	memset(entry, 0, sizeof(*entry));
	entry->ino = node == session_of(req)->root ? FUSE_ROOT_ID : (uintptr_t)node;
	entry->generation = node->generation;
	entry->attr_timeout = FOREVER;
	entry->entry_timeout = FOREVER;
	return node_getattr(req, node, &entry->attr);
}

void reply_node(fuse_req_t req, struct vnode *node, int error)
{
	const struct volume_ops *ops = ops_of(req);
	struct fuse_entry_param entry;

	if (error) {
		reply_error(req, error);
		return;
	}
	error = node_entry(req, node, &entry);
	if (error) {
		ops->put(node, 1);
		reply_error(req, error);
	} else if (fuse_reply_entry(req, &entry)) {
		ops->put(node, 1);
	}
}

static void want(struct fuse_conn_info *conn, unsigned int caps, bool on)
{
	if (on)
		conn->want |= conn->capable & caps;
	else
		conn->want &= ~caps;
}

static void do_init(void *userdata, struct fuse_conn_info *conn)
{
	struct session *session = userdata;
	const struct options *options = session->options;

	want(conn, FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO |
	     FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO |
	     FUSE_CAP_IOCTL_DIR | FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_DONT_MASK, true);
	want(conn, FUSE_CAP_WRITEBACK_CACHE, !options->direct_io && !session->volume->readonly);
	want(conn, FUSE_CAP_POSIX_ACL, session->volume->posix_acl && !options->fakeroot);
	want(conn, FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_HANDLE_KILLPRIV | FUSE_CAP_SPLICE_READ |
	     FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE | FUSE_CAP_POSIX_LOCKS |
	     FUSE_CAP_FLOCK_LOCKS | FUSE_CAP_EXPORT_SUPPORT, false);
	conn->max_write = SESSION_MAX_WRITE;
	/* Fewer than there are workers: writes that wait for a slow image leave some for others. */
	conn->max_background = WORKERS_MAX - 4;
	conn->congestion_threshold = WORKERS_MAX - 4;
	conn->time_gran = session->volume->time_gran;
}

const struct fuse_lowlevel_ops session_ops = {
	.init = do_init,
	.lookup = do_lookup,
	.forget = do_forget,
	.forget_multi = do_forget_multi,
	.getattr = do_getattr,
	.setattr = do_setattr,
	.readlink = do_readlink,
	.mknod = do_mknod,
	.mkdir = do_mkdir,
	.unlink = do_unlink,
	.rmdir = do_rmdir,
	.symlink = do_symlink,
	.rename = do_rename,
	.link = do_link,
	.create = do_create,
	.open = do_open,
	.read = do_read,
	.write = do_write,
	.release = do_release,
	.fsync = do_fsync,
	.opendir = do_opendir,
	.readdir = do_readdir,
	.readdirplus = do_readdirplus,
	.releasedir = do_releasedir,
	.fsyncdir = do_fsyncdir,
	.statfs = do_statfs,
	.setxattr = do_setxattr,
	.getxattr = do_getxattr,
	.listxattr = do_listxattr,
	.removexattr = do_removexattr,
	.access = do_access,
	.ioctl = do_ioctl,
	.fallocate = do_fallocate,
	.copy_file_range = do_copy_file_range,
	.lseek = do_lseek,
};
