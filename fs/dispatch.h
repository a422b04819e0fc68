/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the handlers of requests share. */
#ifndef FOLIOFS_DISPATCH_H
#define FOLIOFS_DISPATCH_H

#include <errno.h>
#include "session.h"

/*
 * The daemon is the image's only owner: what the kernel knows stays true until the kernel changes
 * it.
 */
#define FOREVER (365.0 * 24 * 3600)

/* What an open file needs: fi->fh. */
struct open_file {
	struct open_errors told;
	struct file_ra ra;
};

static inline struct session *session_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static inline const struct volume_ops *ops_of(fuse_req_t req)
{
	return session_of(req)->volume->ops;
}

/*
 * The kernel's number of a file is the address of its vnode, which it holds references to; the
 * root's is 1.
 */
static inline struct vnode *node_of(fuse_req_t req, fuse_ino_t ino)
{
	return ino == FUSE_ROOT_ID ? session_of(req)->root : (struct vnode *)(uintptr_t)ino;
}

static inline struct open_file *file_of(const struct fuse_file_info *fi)
{
	return (struct open_file *)(uintptr_t)fi->fh;
}

static inline void reply_error(fuse_req_t req, int error)
{
	fuse_reply_err(req, -error);
}

struct cred request_cred(fuse_req_t req);
/* @mode without the bits that a change by somebody without privilege takes away. */
mode_t without_priv(mode_t mode);
/* Clears these bits, as the data is about to be changed. */
int kill_priv(fuse_req_t req, struct vnode *node);
/* Attributes as this mount shows them. */
int node_getattr(fuse_req_t req, struct vnode *node, struct stat *st);
/* Fills an entry for @node, whose reference becomes the kernel's when the reply is sent. */
int node_entry(fuse_req_t req, struct vnode *node, struct fuse_entry_param *entry);
/* Replies with @node, or with @error when that is set; gives the reference back when it fails. */
void reply_node(fuse_req_t req, struct vnode *node, int error);

/* dispatch_ns.c */
void do_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void do_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup);
void do_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void do_readlink(fuse_req_t req, fuse_ino_t ino);
void do_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void do_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void do_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void do_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void do_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void do_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
	       const char *newname, unsigned int flags);
void do_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent, const char *newname);
void do_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	       struct fuse_file_info *fi);

/* dispatch_data.c */
int open_node(fuse_req_t req, struct vnode *node, struct fuse_file_info *fi);
void close_node(struct vnode *node, struct fuse_file_info *fi);
void do_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void do_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void do_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t pos, struct fuse_file_info *fi);
void do_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t pos,
	      struct fuse_file_info *fi);
void do_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void do_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t pos, off_t len,
		  struct fuse_file_info *fi);
void do_lseek(fuse_req_t req, fuse_ino_t ino, off_t pos, int whence, struct fuse_file_info *fi);
void do_copy_file_range(fuse_req_t req, fuse_ino_t in, off_t in_pos, struct fuse_file_info *fi_in,
			fuse_ino_t out, off_t out_pos, struct fuse_file_info *fi_out, size_t len,
			int flags);

/* dispatch_dir.c */
void do_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void do_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void do_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t pos, struct fuse_file_info *fi);
void do_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t pos,
		    struct fuse_file_info *fi);
void do_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);

/* dispatch_attr.c */
void do_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void do_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		struct fuse_file_info *fi);
void do_access(fuse_req_t req, fuse_ino_t ino, int mask);
void do_statfs(fuse_req_t req, fuse_ino_t ino);
void do_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void do_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
		 int flags);
void do_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void do_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

/* dispatch_ioctl.c */
void do_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
	      struct fuse_file_info *fi, unsigned int flags, const void *in_buf, size_t in_size,
	      size_t out_size);

#endif
