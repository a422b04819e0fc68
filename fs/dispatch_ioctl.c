/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ioctl: inode flags and the like, as the kernel asks for them on behalf of lsattr and chattr;
 * trimming and the label; and our own (foliofs_ioctl.h). Those that concern the whole volume are
 * for root and for the user who runs the daemon.
 */
#include <linux/fs.h>
#include <string.h>
#include <unistd.h>
#include "dispatch.h"
#include "mountpoint.h"

/* One ioctl under way. */
struct call {
	fuse_req_t req;
	struct vnode *node;
	struct cred cred;
	const void *in;
	size_t in_size, out_size;
};

static void reply(const struct call *call, int error, const void *out, size_t size)
{
	if (!error && size > call->out_size)
		error = -EINVAL;
	if (error)
		reply_error(call->req, error);
	else
		fuse_reply_ioctl(call->req, 0, out, size);
}

/* Copies the argument in; false when the caller gave less. */
static bool take(const struct call *call, void *arg, size_t size)
{
	if (call->in_size < size)
		return false;
	memcpy(arg, call->in, size);
	return true;
}

static bool may_administer(const struct call *call)
{
	return call->cred.privileged || call->cred.uid == geteuid();
}

static void get_flags(const struct call *call, const struct volume_ops *ops)
{
	uint32_t flags = 0;
	int ret = ops->getflags ? ops->getflags(call->node, &flags) : -ENOTTY;

	reply(call, ret, &flags, sizeof(flags));
}

static void set_flags(const struct call *call, const struct volume_ops *ops)
{
	uint32_t flags;
	int ret = -ENOTTY;

	if (!take(call, &flags, sizeof(flags)))
		ret = -EINVAL;
	else if (ops->setflags)
		ret = ops->setflags(call->node, flags, &call->cred);
	reply(call, ret, NULL, 0);
}

static void get_fsxattr(const struct call *call, const struct volume_ops *ops)
{
	struct vfsxattr attr = {0};
	int ret = ops->getfsxattr ? ops->getfsxattr(call->node, &attr) : -ENOTTY;
	struct fsxattr out = {
		.fsx_xflags = attr.xflags,
		.fsx_extsize = attr.extsize,
		.fsx_nextents = attr.nextents,
		.fsx_projid = attr.projid,
		.fsx_cowextsize = attr.cowextsize,
	};

	reply(call, ret, &out, sizeof(out));
}

static void trim(const struct call *call, const struct volume_ops *ops)
{
	struct fstrim_range range;
	uint64_t trimmed = 0;
	int ret = -ENOTTY;

	if (!take(call, &range, sizeof(range)))
		ret = -EINVAL;
	else if (!may_administer(call))
		ret = -EPERM;
	else if (ops->trim)
		ret = ops->trim(call->node->volume, range.start, range.len, range.minlen, &trimmed);
	range.len = trimmed;
	reply(call, ret, &range, sizeof(range));
}

static void get_label(const struct call *call, const struct volume_ops *ops)
{
	char label[FSLABEL_MAX] = "";
	int ret = ops->getlabel ? ops->getlabel(call->node->volume, label) : -ENOTTY;

	reply(call, ret, label, sizeof(label));
}

static void set_label(const struct call *call, const struct volume_ops *ops)
{
	char label[FSLABEL_MAX];
	int ret = -ENOTTY;

	if (!take(call, label, sizeof(label)) || !memchr(label, '\0', sizeof(label)))
		ret = -EINVAL;
	else if (!may_administer(call))
		ret = -EPERM;
	else if (ops->setlabel)
		ret = ops->setlabel(call->node->volume, label);
	reply(call, ret, NULL, 0);
}

static void copy_stats(struct foliofs_stats *out, const struct cache_stats *cs)
{
#define COPY(field) out->field = cs->field
	COPY(hits);
	COPY(misses);
	COPY(read_bytes);
	COPY(written_bytes);
	COPY(read_batches);
	COPY(read_folios);
	COPY(evictions);
	COPY(evictions_compact);
	COPY(truncated);
	COPY(invalidated);
	COPY(activations);
	COPY(refaults);
	COPY(refault_activations);
	COPY(refault_restores);
	COPY(shadow_nodes_freed);
	COPY(readahead_sync);
	COPY(readahead_async);
	COPY(readahead_files);
	COPY(readahead_pages);
	COPY(readahead_hits);
	COPY(readahead_wasted);
	COPY(readahead_errors);
	COPY(readahead_dropped);
	COPY(writeback_runs);
	COPY(write_errors);
	COPY(read_errors);
	COPY(throttled);
	COPY(adds);
	COPY(add_walks);
	COPY(shadow_splits);
	COPY(folio_splits);
	COPY(compactions);
	COPY(bound_bytes);
	COPY(used_bytes);
	COPY(dirty_bytes);
	COPY(writeback_bytes);
#undef COPY
	for (unsigned int i = 0; i < FOLIOFS_ORDERS && i <= MAX_FOLIO_ORDER; i++)
		out->orders[i] = cs->orders[i];
}

static void get_stats(const struct call *call)
{
	struct session *session = session_of(call->req);
	struct cache_stats cs;
	struct foliofs_stats out = {
		.version = 2, .pid = getpid(), .pid_namespace = pid_namespace()};

	cache_get_stats(session->cache, &cs);
	copy_stats(&out, &cs);
	for (unsigned int i = 0; i < FOLIOFS_REQUEST_KINDS; i++)
		out.requests[i] = __atomic_load_n(&session->requests[i], __ATOMIC_RELAXED);
	reply(call, 0, &out, sizeof(out));
}

static void sync_volume(const struct call *call, const struct volume_ops *ops)
{
	int ret = may_administer(call) ? ops->sync(call->node->volume) : -EPERM;

	reply(call, ret, NULL, 0);
}

void do_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
	      struct fuse_file_info *fi, unsigned int flags, const void *in_buf, size_t in_size,
	      size_t out_size)
{
	const struct volume_ops *ops = ops_of(req);
	const struct call call = {
		.req = req,
		.node = node_of(req, ino),
		.cred = request_cred(req),
		.in = in_buf,
		.in_size = in_size,
		.out_size = out_size,
	};

	switch (cmd) {
	case (unsigned int)FS_IOC_GETFLAGS:
		get_flags(&call, ops);
		return;
	case (unsigned int)FS_IOC_SETFLAGS:
		set_flags(&call, ops);
		return;
	case (unsigned int)FS_IOC_FSGETXATTR:
		get_fsxattr(&call, ops);
		return;
	case (unsigned int)FITRIM:
		trim(&call, ops);
		return;
	case (unsigned int)FS_IOC_GETFSLABEL:
		get_label(&call, ops);
		return;
	case (unsigned int)FS_IOC_SETFSLABEL:
		set_label(&call, ops);
		return;
	case (unsigned int)FOLIOFS_IOC_STATS:
		get_stats(&call);
		return;
	case (unsigned int)FOLIOFS_IOC_SYNC:
		sync_volume(&call, ops);
		return;
	}
	reply_error(req, -ENOTTY);
}
