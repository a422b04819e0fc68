/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What libfuse 3.14 cannot agree with the kernel: flags of the INIT reply that it does not know.
 *
 * All replies go through reply_writev(), which adds these flags to the one for INIT where the
 * kernel offers them.
 *
 * HANDLE_KILLPRIV_V2	we clear set-uid bits ourselves where the request says so. In return the
 *			kernel remembers that a file has no security.capability; otherwise it asks
 *			before every write(2).
 * DIRECT_IO_ALLOW_MMAP	files opened with direct_io can be mapped shared.
 *
 * A libfuse that knows them has set them already, which does no harm.
 */
#include <sys/uio.h>
#include <unistd.h>
#include "session.h"

#define INIT_DIRECT_IO_ALLOW_MMAP (1ULL << 36)
#define INIT_WANTED (FUSE_HANDLE_KILLPRIV_V2 | INIT_DIRECT_IO_ALLOW_MMAP)

static uint64_t offered(const struct fuse_init_in *in)
{
	return in->flags | (in->flags & FUSE_INIT_EXT ? (uint64_t)in->flags2 << 32 : 0);
}

static void add_flags(struct fuse_init_out *out, uint64_t flags)
{
	out->flags |= (uint32_t)flags;
	if (flags >> 32) {
		out->flags |= FUSE_INIT_EXT;
		out->flags2 |= flags >> 32;
	}
}

static ssize_t reply_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	const struct fuse_in_header *request = workers_current();
	const struct fuse_out_header *reply = iov[0].iov_base;

	if (request && request->opcode == FUSE_INIT && reply->unique == request->unique &&
	    reply->error == 0 && count == 2 && iov[1].iov_len >= sizeof(struct fuse_init_out))
		add_flags(iov[1].iov_base,
			  offered((const struct fuse_init_in *)(request + 1)) & INIT_WANTED);
	return writev(fd, iov, count);
}

/* Workers read the device themselves. */
static ssize_t request_read(int fd, void *buf, size_t len, void *userdata)
{
	return read(fd, buf, len);
}

/**
 * init_install() - let replies go through this file
 * @se: mounted, not yet serving
 *
 * Return: 0 or a negative errno.
 */
int init_install(struct fuse_session *se)
{
	static const struct fuse_custom_io io = {.writev = reply_writev, .read = request_read};

	return fuse_session_custom_io(se, &io, fuse_session_fd(se));
}
