/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An image is where the bytes come from and go to. A format sees bytes 0 to size - 1 of it; an
 * offset= within the file is added here.
 *
 * All calls may be made from any thread at once.
 */
#ifndef FOLIOFS_IMAGE_H
#define FOLIOFS_IMAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

struct image;

/**
 * struct image_io - one contiguous transfer
 * @offset: bytes from the start of the image
 * @iov: memory, in order
 * @iovcnt: number of elements
 * @write: direction
 * @result: out: 0 or a negative errno (a read behind the end of the file is zeros; a short
 *	transfer is gone on with inside)
 */
struct image_io {
	uint64_t offset;
	const struct iovec *iov;
	unsigned int iovcnt;
	bool write;
	int result;
};

struct image_ops {
	/* Starts all @nr transfers, returns when all have ended: 0 or the first error. */
	int (*submit)(struct image *image, struct image_io *ios, unsigned int nr);
	/* Makes all writes that have ended durable. */
	int (*flush)(struct image *image);
	/* Deallocates; contents undefined after. -EOPNOTSUPP when it cannot. */
	int (*discard)(struct image *image, uint64_t offset, uint64_t len);
	void (*close)(struct image *image);
};

/**
 * struct image - common part
 * @size: bytes
 * @align: what offset and memory of a transfer are best multiples of (1 when the host caches)
 * @readonly: it cannot be written, or has been opened so
 * @name: path as the user gave it, for messages
 */
struct image {
	const struct image_ops *ops;
	uint64_t size;
	unsigned int align;
	bool readonly;
	char *name;
};

struct image_options {
	uint64_t offset;	/* bytes into the file */
	bool readonly;		/* open for reading only */
};

/*
 * image_file_open - open and lock a regular file or a block device. A file that cannot be opened
 * for writing (EACCES, EROFS, EPERM) is opened for reading, with a warning. The OFD lock covers
 * the whole file: exclusive when writable, shared when read-only; -EBUSY when it is taken. One
 * clear message has been logged when an error is returned.
 */
int image_file_open(struct image **out, const char *path, const struct image_options *options);

/*
 * Called in the thread that is about to wait for transfers. The session sets it, before there are
 * threads, so that a worker can let another one take requests meanwhile; NULL without a session.
 */
extern void (*image_about_to_wait)(void);

static inline int image_submit(struct image *image, struct image_io *ios, unsigned int nr)
{
	if (image_about_to_wait)
		image_about_to_wait();
	return image->ops->submit(image, ios, nr);
}

/* One transfer of one piece of memory */
static inline int image_transfer(struct image *image, uint64_t offset, void *memory, size_t len,
				 bool write)
{
	struct iovec iov = { .iov_base = memory, .iov_len = len };
	struct image_io io = { .offset = offset, .iov = &iov, .iovcnt = 1, .write = write };

	return image_submit(image, &io, 1);
}

static inline int image_flush(struct image *image)
{
	return image->ops->flush(image);
}

static inline int image_discard(struct image *image, uint64_t offset, uint64_t len)
{
	return image->ops->discard(image, offset, len);
}

/* Releases the lock and closes; NULL is allowed. Does not flush. */
void image_close(struct image *image);

#endif
