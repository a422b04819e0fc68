/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What image_file.c and image_uring.c share. */
#ifndef FOLIOFS_IMAGE_FILE_H
#define FOLIOFS_IMAGE_FILE_H

#include "image.h"

/**
 * struct image_file - a regular file or a block device
 * @fd: through the host's page cache; holds the OFD lock
 * @direct_fd: the same file with O_DIRECT; -1 where that does not work
 * @direct: transfers that are aligned go to @direct_fd; atomic, goes from true to false once
 * @offset: of the image's first byte
 * @blkdev: it is a block device
 */
struct image_file {
	struct image image;
	int fd, direct_fd;
	bool direct;
	uint64_t offset;
	bool blkdev;
};

/* The descriptor that fits a transfer's alignment. */
int image_file_fd(struct image_file *file, uint64_t offset, const struct iovec *iov,
		  unsigned int iovcnt, bool write);

/*
 * Starts all transfers on this thread's ring and waits for them. Each result is then the number of
 * bytes moved by one attempt, or a negative errno. Returns -ENOSYS, with nothing done, where there
 * is no ring.
 */
int image_uring_submit(struct image_file *file, struct image_io *ios, unsigned int nr);

#endif
