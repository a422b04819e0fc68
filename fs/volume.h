/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A volume is what a format makes of an image: files. The session (dispatch*.c) turns each FUSE
 * request into one call here and knows nothing of formats; a format knows nothing of FUSE.
 *
 * A vnode is one file in use. The format embeds it in its own inode. It is referenced: each
 * lookup, create, mknod, mkdir, symlink, link that succeeds hands out one reference to the
 * caller, and the session gives references back with ->put (one for each that the kernel
 * forgets). A file whose last link is gone lives until its last reference is.
 *
 * Locks are the format's. No call is made with a lock held. All may sleep. Permission checks are
 * the session's and the kernel's work (default_permissions), but for those that only the format
 * can know (immutable and append-only flags, read-only volumes).
 *
 * Errors are negative errno everywhere. Names are not empty, hold no '/', and are
 * NUL-terminated; the format checks their length (ENAMETOOLONG).
 */
#ifndef FOLIOFS_VOLUME_H
#define FOLIOFS_VOLUME_H

#include <sys/stat.h>
#include <sys/statvfs.h>
#include "cache.h"
#include "image.h"
#include "options.h"

struct volume;

/* Who asks. groups: supplementary groups are looked up by the session where a format needs them. */
struct cred {
	uid_t uid;
	gid_t gid;
	pid_t pid;
	mode_t umask;		/* to be applied by the format where no default ACL governs */
	bool privileged;	/* may do as root does (uid 0, or fakeroot) */
};

struct vnode {
	struct volume *volume;
	uint64_t ino;		/* the format's number; the session maps root to 1 */
	uint32_t generation;
	uint32_t mode;		/* file type bits never change; atomic otherwise */
	unsigned int writers;	/* the session's: open files that may write; atomic */
	struct mapping mapping;	/* regular files' data; initialised for these only */
};

/* Type and permissions; the latter may be changing. */
static inline uint32_t vnode_mode(const struct vnode *node)
{
	return __atomic_load_n(&node->mode, __ATOMIC_ACQUIRE);
}

/* What setattr() changes. */
enum {
	VATTR_MODE = 1 << 0,
	VATTR_UID = 1 << 1,
	VATTR_GID = 1 << 2,
	VATTR_SIZE = 1 << 3,
	VATTR_ATIME = 1 << 4,
	VATTR_MTIME = 1 << 5,
	VATTR_CTIME = 1 << 6,
	VATTR_ATIME_NOW = 1 << 7,
	VATTR_MTIME_NOW = 1 << 8,
};

/* How write() is meant. */
enum {
	VWRITE_APPEND = 1 << 0,	   /* at the end, wherever @pos */
	VWRITE_KILL_PRIV = 1 << 1, /* clears suid, sgid and security.capability */
	VWRITE_PAGES = 1 << 2,	   /* pages that the kernel took before: no flag of the file forbids it */
};

/* For directories: gives one entry; returns false when the reader has no room (the entry is not
 * consumed). @next is the cookie to go on behind this entry. @type is a DT_ value. */
typedef bool (*dir_emit_t)(void *arg, const char *name, size_t namelen, uint64_t ino,
			   unsigned int type, uint64_t next);

enum seek_whence { VSEEK_DATA, VSEEK_HOLE };

struct vfsxattr {	/* struct fsxattr without the kernel header */
	uint32_t xflags, extsize, nextents, projid, cowextsize;
};

struct volume_ops {
	/* Names. @out gets a reference. */
	int (*lookup)(struct vnode *dir, const char *name, struct vnode **out);
	/* Regular files, FIFOs, sockets, devices (by mode) */
	int (*mknod)(struct vnode *dir, const char *name, mode_t mode, dev_t rdev,
		     const struct cred *cred, struct vnode **out);
	int (*mkdir)(struct vnode *dir, const char *name, mode_t mode, const struct cred *cred,
		     struct vnode **out);
	int (*symlink)(struct vnode *dir, const char *name, const char *target,
		       const struct cred *cred, struct vnode **out);
	/* One more reference on @node. */
	int (*link)(struct vnode *node, struct vnode *dir, const char *name);
	int (*unlink)(struct vnode *dir, const char *name);
	int (*rmdir)(struct vnode *dir, const char *name);
	/* @flags: RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT */
	int (*rename)(struct vnode *dir, const char *name, struct vnode *newdir,
		      const char *newname, unsigned int flags, const struct cred *cred);
	/* Returns the target's length; @buf holds at least PATH_MAX bytes, no NUL is added. */
	ssize_t (*readlink)(struct vnode *node, char *buf, size_t size);
	/* @cookie 0: from the start. Cookies survive removal of names. */
	int (*readdir)(struct vnode *dir, uint64_t cookie, dir_emit_t emit, void *arg);

	/* Attributes. st_ino is the format's; st_blksize and all times are filled. */
	int (*getattr)(struct vnode *node, struct stat *st);
	int (*setattr)(struct vnode *node, const struct stat *st, unsigned int valid,
		       const struct cred *cred);
	/* A new reference to a vnode in use by its number; NULL when it is not. */
	struct vnode *(*root)(struct volume *volume);	/* +1 reference */
	void (*get)(struct vnode *node);
	void (*put)(struct vnode *node, uint64_t nr);
	int (*statfs)(struct volume *volume, struct statvfs *st);

	/* Data. Reading goes through filemap_get_pages() on the vnode's mapping. */
	int (*open)(struct vnode *node, int flags);	/* checks only; NULL: always fine */
	/* atime policy, after a read or readdir; may be NULL */
	void (*accessed)(struct vnode *node);
	/* Writes through the mapping, with times and limits. @flags: VWRITE_* */
	ssize_t (*write)(struct vnode *node, loff_t pos, const void *buf, size_t len,
			 unsigned int flags);
	int (*fsync)(struct vnode *node, bool datasync);	/* regular files and directories */
	int (*fallocate)(struct vnode *node, int mode, loff_t pos, loff_t len);
	loff_t (*seek)(struct vnode *node, loff_t pos, enum seek_whence whence);
	ssize_t (*copy_range)(struct vnode *in, loff_t in_pos, struct vnode *out, loff_t out_pos,
			      size_t len);

	/*
	 * Extended attributes, full names ("user.x"). size 0 asks for the length; ERANGE;
	 * ENODATA.
	 */
	ssize_t (*getxattr)(struct vnode *node, const char *name, void *buf, size_t size);
	int (*setxattr)(struct vnode *node, const char *name, const void *value, size_t size,
			int flags, const struct cred *cred);
	ssize_t (*listxattr)(struct vnode *node, char *buf, size_t size, const struct cred *cred);
	int (*removexattr)(struct vnode *node, const char *name);

	/* Controls */
	int (*getflags)(struct vnode *node, uint32_t *flags);		/* FS_*_FL */
	int (*setflags)(struct vnode *node, uint32_t flags, const struct cred *cred);
	int (*getfsxattr)(struct vnode *node, struct vfsxattr *attr);
	int (*trim)(struct volume *volume, uint64_t start, uint64_t len, uint64_t minlen,
		    uint64_t *trimmed);
	int (*getlabel)(struct volume *volume, char label[256]);
	int (*setlabel)(struct volume *volume, const char *label);

	/* Everything to the image, durable. */
	int (*sync)(struct volume *volume);
	/* Sync, mark clean, free. Returns the first error; the volume is gone in any case. */
	int (*close)(struct volume *volume);
};

/* An op that is NULL answers ENOSYS/EOPNOTSUPP as its request wants. */
struct volume {
	const struct volume_ops *ops;
	struct image *image;
	struct cache *cache;
	const struct options *options;
	bool readonly;		/* as mounted; a volume may turn read-only later (atomic) */
	bool posix_acl;		/* let the kernel check POSIX ACLs */
	unsigned int time_gran;	/* ns; 1, or 1000000000 */
	unsigned int blocksize;
	errseq_t flush_err;	/* flushes of the image that failed: volume.c */
};

/* What an open file has been told of: volume.c. */
struct open_errors {
	errseq_t data, flush;
};

int volume_flush(struct volume *volume);
void volume_open_errors(struct vnode *node, struct open_errors *told);
int volume_fsync(struct vnode *node, bool datasync, struct open_errors *told);

/*
 * Open a volume. Takes over neither image nor cache (the caller closes them after ops->close).
 * Has logged one clear line when it returns an error.
 */
int raw_open(struct volume **out, struct image *image, struct cache *cache,
	     const struct options *options);
int ext4_open(struct volume **out, struct image *image, struct cache *cache,
	      const struct options *options);

#endif
