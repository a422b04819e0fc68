/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The data of files: open, read, write, fsync and their kin.
 *
 * A read's reply points into the folios, which stay referenced until it is sent: no copy is made
 * here. Folios that replies point into cannot be reclaimed, so no more than a part of the cache
 * may be lent at a time; a read that would pass the limit copies into a buffer instead.
 *
 * Each open file remembers the write errors that it has been told of, so that fsync tells each
 * file of each error once.
 */
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "dispatch.h"

#define READ_MOST SESSION_MAX_WRITE
#define READ_FOLIOS (READ_MOST / PAGE_SIZE + 1)
#define COPY_MOST (1U << 30)

static int truncate_at_open(fuse_req_t req, struct vnode *node)
{
	const struct stat st = {.st_size = 0};
	struct cred cred = request_cred(req);
	int ret = ops_of(req)->setattr(node, &st, VATTR_SIZE, &cred);

	return ret ?: kill_priv(req, node);
}

static bool may_write(const struct fuse_file_info *fi)
{
	return (fi->flags & O_ACCMODE) != O_RDONLY;
}

int open_node(fuse_req_t req, struct vnode *node, struct fuse_file_info *fi)
{
	const struct volume_ops *ops = ops_of(req);
	struct open_file *file;
	int ret = ops->open ? ops->open(node, fi->flags) : 0;

	if (!ret && (fi->flags & O_TRUNC))
		ret = truncate_at_open(req, node);
	if (ret)
		return ret;
	file = malloc(sizeof(*file));
	if (!file)
		return -ENOMEM;
	volume_open_errors(node, &file->told);
	file_ra_init(&file->ra);
	fi->fh = (uintptr_t)file;
	if (may_write(fi))
		__atomic_add_fetch(&node->writers, 1, __ATOMIC_RELAXED);
	fi->direct_io = session_of(req)->options->direct_io;
	fi->keep_cache = !fi->direct_io;
	return 0;
}

void close_node(struct vnode *node, struct fuse_file_info *fi)
{
	if (may_write(fi))
		__atomic_sub_fetch(&node->writers, 1, __ATOMIC_RELAXED);
	file_ra_finish(&file_of(fi)->ra);
	free(file_of(fi));
}

void do_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct vnode *node = node_of(req, ino);
	int ret = open_node(req, node, fi);

	if (ret)
		reply_error(req, ret);
	else if (fuse_reply_open(req, fi))
		close_node(node, fi);
}

void do_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	close_node(node_of(req, ino), fi);
	fuse_reply_err(req, 0);
}

/* The reply under way: where its bytes are, and what keeps them there. */
struct lent {
	struct iovec iov[READ_FOLIOS];
	struct folio *folios[READ_FOLIOS];
	unsigned int nr_iov, nr_folios;
	size_t len;
};

static bool pin_pages(struct session *session, uint64_t nr)
{
	if (__atomic_add_fetch(&session->pinned, nr, __ATOMIC_RELAXED) <= session->pin_limit)
		return true;
	__atomic_sub_fetch(&session->pinned, nr, __ATOMIC_RELAXED);
	return false;
}

static void unpin_pages(struct session *session, uint64_t nr)
{
	__atomic_sub_fetch(&session->pinned, nr, __ATOMIC_RELAXED);
}

/* Takes over a referenced folio: its part of [pos, pos + size) joins the reply. */
static void lend_folio(struct lent *lent, struct folio *folio, loff_t pos, size_t size)
{
	size_t offset = pos - folio_pos(folio);
	size_t len = folio_size(folio) - offset;
	char *base = (char *)folio_address(folio) + offset;
	struct iovec *last = lent->nr_iov ? &lent->iov[lent->nr_iov - 1] : NULL;

	if (len > size)
		len = size;
	if (last && (char *)last->iov_base + last->iov_len == base)
		last->iov_len += len;
	else
		lent->iov[lent->nr_iov++] = (struct iovec){.iov_base = base, .iov_len = len};
	lent->folios[lent->nr_folios++] = folio;
	lent->len += len;
}

/* Gathers what there is of [pos, pos + size): 0, or the error that came behind it. */
static int lend(struct lent *lent, struct mapping *mapping, struct file_ra *ra, loff_t pos,
		size_t size)
{
	struct folio_batch batch;
	int ret = 0;

	while (lent->len < size) {
		ret = filemap_get_pages_ra(mapping, ra, pos + lent->len, size - lent->len, &batch);
		if (ret || !batch.nr)
			break;
		for (unsigned int i = 0; i < batch.nr; i++)
			lend_folio(lent, batch.folios[i], pos + lent->len, size - lent->len);
	}
	return ret;
}

/*
 * The size is read after the folios' bytes were seen valid: what lies behind it is not the
 * file's.
 */
static void clip_lent(struct lent *lent, loff_t left)
{
	while (lent->nr_iov && (loff_t)lent->len > left) {
		struct iovec *last = &lent->iov[lent->nr_iov - 1];
		size_t over = left > 0 ? lent->len - left : lent->len;

		if (over < last->iov_len) {
			last->iov_len -= over;
			lent->len -= over;
		} else {
			lent->len -= last->iov_len;
			lent->nr_iov--;
		}
	}
}

/*
 * An error behind some bytes: may these be the answer? Not where the kernel caches, which takes what
 * is missing for zeros; it asks page by page after an error, so only what is bad fails.
 */
static bool may_be_short(fuse_req_t req, size_t len)
{
	return len && session_of(req)->options->direct_io;
}

static void read_copying(fuse_req_t req, struct mapping *mapping, struct file_ra *ra, loff_t pos,
			 size_t size)
{
	char *buf = malloc(size);
	size_t done = 0;
	ssize_t ret = buf ? 0 : -ENOMEM;

	while (buf && done < size) {
		ret = filemap_read_ra(mapping, ra, pos + (loff_t)done, buf + done, size - done);
		if (ret <= 0)
			break;
		done += ret;
	}
	if (ret < 0 && !may_be_short(req, done))
		reply_error(req, ret);
	else
		fuse_reply_buf(req, buf, done);
	free(buf);
}

static void read_lending(fuse_req_t req, struct mapping *mapping, struct file_ra *ra, loff_t pos,
			 size_t size)
{
	struct lent lent;
	int ret;

	lent.nr_iov = lent.nr_folios = lent.len = 0;
	ret = lend(&lent, mapping, ra, pos, size);
	clip_lent(&lent, mapping_size(mapping) - pos);
	if (ret && !lent.len) /* a part of the first folio may be had */
		read_copying(req, mapping, ra, pos, size);
	else if (ret && !may_be_short(req, lent.len))
		reply_error(req, ret);
	else
		fuse_reply_iov(req, lent.iov, lent.nr_iov);
	for (unsigned int i = 0; i < lent.nr_folios; i++)
		folio_put(lent.folios[i]);
}

void do_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t pos, struct fuse_file_info *fi)
{
	struct session *session = session_of(req);
	struct vnode *node = node_of(req, ino);
	struct file_ra *ra = &file_of(fi)->ra;
	uint64_t pages;

	if (size > READ_MOST)
		size = READ_MOST;
	pages = (pos % PAGE_SIZE + size + PAGE_SIZE - 1) / PAGE_SIZE;
	/* Now: after the reply the kernel may forget the file. */
	if (session->volume->ops->accessed)
		session->volume->ops->accessed(node);
	if (pages <= READ_FOLIOS && pin_pages(session, pages)) {
		read_lending(req, &node->mapping, ra, pos, size);
		unpin_pages(session, pages);
	} else {
		read_copying(req, &node->mapping, ra, pos, size);
	}
}

/* A write that went past the kernel's cache says itself whether set-uid bits are to go. */
static bool kills_priv(void)
{
	const struct fuse_in_header *header = workers_current();
	const struct fuse_write_in *in = (const void *)(header + 1);

	return in->write_flags & FUSE_WRITE_KILL_SUIDGID;
}

void do_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t pos,
	      struct fuse_file_info *fi)
{
	const struct volume_ops *ops = ops_of(req);
	unsigned int flags = (kills_priv() ? VWRITE_KILL_PRIV : 0) |
			     (fi->writepage ? VWRITE_PAGES : 0);
	ssize_t ret = ops->write ? 0 : -EBADF;
	size_t done = 0;

	/* The kernel has the size and so the place of an appending write. */
	while (ops->write && done < size) {
		ret = ops->write(node_of(req, ino), pos + done, buf + done, size - done,
				 flags);
		if (ret == 0)
			ret = -EIO;
		if (ret < 0)
			break;
		done += ret;
	}
	/* Where the kernel writes back pages, it does not look at how much of them was taken. */
	if (done && (done == size || !fi->writepage))
		ret = done;
	if (ret < 0)
		reply_error(req, ret);
	else
		fuse_reply_write(req, ret);
}

void do_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	reply_error(req, volume_fsync(node_of(req, ino), datasync, &file_of(fi)->told));
}

void do_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t pos, off_t len,
		  struct fuse_file_info *fi)
{
	const struct volume_ops *ops = ops_of(req);
	struct vnode *node = node_of(req, ino);
	int ret = -EOPNOTSUPP;

	if (ops->fallocate)
		ret = ops->fallocate(node, mode, pos, len);
	reply_error(req, ret ?: kill_priv(req, node));
}

/*
 * The kernel does not write its dirty pages before it asks for data and holes. It has some only
 * while the file is open for writing; then they are fetched by telling it that the file has
 * changed. This waits for other workers, so not all of them may do it at once: 0 when it was
 * done.
 */
static int fetch_dirty_pages(fuse_req_t req, fuse_ino_t ino)
{
	struct session *session = session_of(req);
	struct vnode *node = node_of(req, ino);
	int ret = -EBUSY;

	if (!__atomic_load_n(&node->writers, __ATOMIC_RELAXED))
		return 0;
	if (__atomic_add_fetch(&session->fetching, 1, __ATOMIC_RELAXED) <= SESSION_MAX_FETCHING)
		ret = fuse_lowlevel_notify_inval_inode(session->se, ino, 0, 0);
	__atomic_sub_fetch(&session->fetching, 1, __ATOMIC_RELAXED);
	return ret;
}

void do_lseek(fuse_req_t req, fuse_ino_t ino, off_t pos, int whence, struct fuse_file_info *fi)
{
	const struct volume_ops *ops = ops_of(req);
	struct vnode *node = node_of(req, ino);
	loff_t ret;

	if (!ops->seek)
		ret = -ENOSYS;
	else if (whence != SEEK_DATA && whence != SEEK_HOLE)
		ret = -EINVAL;
	else if (fetch_dirty_pages(req, ino) == 0)
		ret = ops->seek(node, pos, whence == SEEK_DATA ? VSEEK_DATA : VSEEK_HOLE);
	else	/* To call all of it data is never wrong. */
		ret = whence == SEEK_HOLE && mapping_size(&node->mapping) > pos
			      ? mapping_size(&node->mapping) : pos;
	if (ret < 0)
		reply_error(req, ret);
	else
		fuse_reply_lseek(req, ret);
}

void do_copy_file_range(fuse_req_t req, fuse_ino_t in, off_t in_pos, struct fuse_file_info *fi_in,
			fuse_ino_t out, off_t out_pos, struct fuse_file_info *fi_out, size_t len,
			int flags)
{
	const struct volume_ops *ops = ops_of(req);
	ssize_t ret = -ENOSYS;

	if (len > COPY_MOST)
		len = COPY_MOST;
	if (flags)
		ret = -EINVAL;
	else if (ops->copy_range)
		ret = kill_priv(req, node_of(req, out)) ?:
		      ops->copy_range(node_of(req, in), in_pos, node_of(req, out), out_pos, len);
	if (ret < 0)
		reply_error(req, ret);
	else
		fuse_reply_write(req, ret);
}
