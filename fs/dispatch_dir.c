/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Reading directories. Cookies are the volume's own, so nothing is kept for an open directory.
 *
 * readdirplus looks each name up, which must not be done from within the volume's readdir (it
 * holds its locks there). So names are gathered first. One that has been removed in between is
 * left out: the kernel lets no removal return while it reads the directory, but another may be
 * under way.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include "dispatch.h"

void do_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	fuse_reply_open(req, fi);
}

void do_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	fuse_reply_err(req, 0);
}

void do_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	const struct volume_ops *ops = ops_of(req);

	reply_error(req, ops->fsync ? ops->fsync(node_of(req, ino), datasync) : 0);
}

struct listing {
	fuse_req_t req;
	char *buf;
	size_t size, used;
};

static bool emit_plain(void *arg, const char *name, size_t namelen, uint64_t ino, unsigned int type,
		       uint64_t next)
{
	struct listing *list = arg;
	struct stat st = {.st_ino = ino, .st_mode = DTTOIF(type)};
	char text[NAME_MAX + 1];
	size_t len;

	if (namelen > NAME_MAX)
		return true;
	memcpy(text, name, namelen);
	text[namelen] = '\0';
	len = fuse_add_direntry(list->req, list->buf + list->used, list->size - list->used, text,
				&st, next);
	if (len > list->size - list->used)
		return false;
	list->used += len;
	return true;
}

/* Before the reply: after it the kernel may forget the directory. */
static void accessed(fuse_req_t req, struct vnode *dir)
{
	if (ops_of(req)->accessed)
		ops_of(req)->accessed(dir);
}

void do_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t pos, struct fuse_file_info *fi)
{
	struct vnode *dir = node_of(req, ino);
	struct listing list = {.req = req, .buf = malloc(size), .size = size};
	int ret = list.buf ? ops_of(req)->readdir(dir, pos, emit_plain, &list) : -ENOMEM;

	accessed(req, dir);
	if (ret)
		reply_error(req, ret);
	else
		fuse_reply_buf(req, list.buf, list.used);
	free(list.buf);
}

/* A name gathered for readdirplus; the next one starts behind its NUL, aligned. */
struct gathered {
	uint64_t ino, next;
	unsigned int type, len;
	char name[];
};

struct gathering {
	fuse_req_t req;
	char *buf;
	size_t used;
	size_t size;		/* of the kernel's buffer */
	size_t reply_size;	/* what these names take of it */
};

static size_t gathered_size(size_t namelen)
{
	return (sizeof(struct gathered) + namelen + 1 + 7) & ~(size_t)7;
}

static bool emit_gather(void *arg, const char *name, size_t namelen, uint64_t ino,
			unsigned int type, uint64_t next)
{
	struct gathering *gather = arg;
	struct gathered *one = (struct gathered *)(gather->buf + gather->used);
	size_t len;

	if (namelen > NAME_MAX)
		return true;
	/* An entry of the reply is larger than what is gathered of it, so @buf cannot overflow. */
	len = (sizeof(struct fuse_direntplus) + namelen + 7) & ~(size_t)7;
	if (gather->reply_size + len > gather->size)
		return false;
	one->ino = ino;
	one->next = next;
	one->type = type;
	one->len = namelen;
	memcpy(one->name, name, namelen);
	one->name[namelen] = '\0';
	gather->used += gathered_size(namelen);
	gather->reply_size += len;
	return true;
}

static bool is_dot(const char *name)
{
	return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

/* Adds the entry with its attributes, or without them where these cannot be had. */
static void add_plus(struct listing *list, struct vnode *dir, const struct gathered *one)
{
	const struct volume_ops *ops = ops_of(list->req);
	struct fuse_entry_param entry;
	struct vnode *node = NULL;
	int ret = is_dot(one->name) ? -EISDIR : ops->lookup(dir, one->name, &node);

	if (ret == -ENOENT)
		return;
	if (!ret)
		ret = node_entry(list->req, node, &entry);
	if (ret) {
		if (node)
			ops->put(node, 1);
		memset(&entry, 0, sizeof(entry));
		entry.attr.st_ino = one->ino;
		entry.attr.st_mode = DTTOIF(one->type);
	}
	list->used += fuse_add_direntry_plus(list->req, list->buf + list->used,
					     list->size - list->used, one->name, &entry, one->next);
}

/* The kernel did not take the reply: its entries hold references that are ours again. */
static void take_back(struct listing *list)
{
	const struct volume_ops *ops = ops_of(list->req);
	size_t at = 0;

	while (at < list->used) {
		struct fuse_direntplus *plus = (struct fuse_direntplus *)(list->buf + at);

		if (plus->entry_out.nodeid)
			ops->put(node_of(list->req, plus->entry_out.nodeid), 1);
		at += FUSE_DIRENTPLUS_SIZE(plus);
	}
}

/* Fills the reply from @pos on; goes on when all names of a round have been removed. */
static int list_plus(struct listing *list, struct gathering *gather, struct vnode *dir,
		     uint64_t pos)
{
	int ret;

	do {
		gather->used = gather->reply_size = 0;
		ret = ops_of(list->req)->readdir(dir, pos, emit_gather, gather);
		for (size_t at = 0; !ret && at < gather->used;) {
			struct gathered *one = (struct gathered *)(gather->buf + at);

			add_plus(list, dir, one);
			pos = one->next;
			at += gathered_size(one->len);
		}
	} while (!ret && gather->used && !list->used);
	return ret;
}

void do_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t pos,
		    struct fuse_file_info *fi)
{
	struct vnode *dir = node_of(req, ino);
	struct listing list = {.req = req, .buf = malloc(size), .size = size};
	struct gathering gather = {.req = req, .buf = malloc(size), .size = size};
	int ret = -ENOMEM;

	if (list.buf && gather.buf)
		ret = list_plus(&list, &gather, dir, pos);
	accessed(req, dir);
	if (ret)
		reply_error(req, ret);
	else if (fuse_reply_buf(req, list.buf, list.used))
		take_back(&list);
	free(list.buf);
	free(gather.buf);
}
