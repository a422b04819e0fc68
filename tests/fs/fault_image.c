/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An image in memory with injected errors. Everything is under one lock, which makes each transfer
 * atomic: more than a real image promises, but tests of tearing have no place here.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "fault_image.h"

static struct fault_image *to_fault(struct image *image)
{
	return (struct fault_image *)image;
}

/* The error that is due, or 0. The lock is held. */
static int due(struct fault_image *fi, enum fault_op op, uint64_t start, uint64_t end)
{
	struct fault *fault = &fi->faults[op];

	fi->calls[op]++;
	if (!fault->times || start >= fault->end || end <= fault->start)
		return 0;
	if (fault->times > 0)
		fault->times--;
	return fault->error;
}

/* Copies one piece; what lies behind the end reads as zeros and cannot be written. */
static void move(struct fault_image *fi, const struct image_io *io, uint64_t pos,
		 const struct iovec *iov)
{
	uint64_t left = pos < fi->image.size ? fi->image.size - pos : 0;
	size_t len = iov->iov_len < left ? iov->iov_len : left;

	if (io->write) {
		assert(len == iov->iov_len);
		memcpy(fi->data + pos, iov->iov_base, len);
	} else {
		memcpy(iov->iov_base, fi->data + pos, len);
		memset((char *)iov->iov_base + len, 0, iov->iov_len - len);
	}
	fi->bytes[io->write ? FAULT_WRITE : FAULT_READ] += len;
}

static int transfer(struct fault_image *fi, struct image_io *io)
{
	uint64_t pos = io->offset, end = pos;
	int error;

	for (unsigned int i = 0; i < io->iovcnt; i++)
		end += io->iov[i].iov_len;
	error = due(fi, io->write ? FAULT_WRITE : FAULT_READ, io->offset, end);
	for (unsigned int i = 0; !error && i < io->iovcnt; i++) {
		move(fi, io, pos, &io->iov[i]);
		pos += io->iov[i].iov_len;
	}
	return error;
}

static int fault_submit(struct image *image, struct image_io *ios, unsigned int nr)
{
	struct fault_image *fi = to_fault(image);
	int ret = 0;

	pthread_mutex_lock(&fi->lock);
	for (unsigned int i = 0; i < nr; i++) {
		ios[i].result = transfer(fi, &ios[i]);
		if (!ret)
			ret = ios[i].result;
	}
	pthread_mutex_unlock(&fi->lock);
	return ret;
}

static int fault_flush(struct image *image)
{
	struct fault_image *fi = to_fault(image);
	int ret;

	pthread_mutex_lock(&fi->lock);
	ret = due(fi, FAULT_FLUSH, 0, UINT64_MAX);
	if (!ret && fi->durable)
		memcpy(fi->durable, fi->data, image->size);
	pthread_mutex_unlock(&fi->lock);
	return ret;
}

static int fault_discard(struct image *image, uint64_t offset, uint64_t len)
{
	struct fault_image *fi = to_fault(image);
	int ret;

	pthread_mutex_lock(&fi->lock);
	ret = due(fi, FAULT_DISCARD, offset, offset + len);
	if (!ret && offset + len <= image->size) {
		memset(fi->data + offset, 0, len);
		fi->bytes[FAULT_DISCARD] += len;
	}
	pthread_mutex_unlock(&fi->lock);
	return ret;
}

static void fault_close(struct image *image)
{
	struct fault_image *fi = to_fault(image);

	pthread_mutex_destroy(&fi->lock);
	free(fi->data);
	free(fi->durable);
	free(image->name);
	free(fi);
}

static const struct image_ops fault_ops = {
	.submit = fault_submit,
	.flush = fault_flush,
	.discard = fault_discard,
	.close = fault_close,
};

struct fault_image *fault_image_create(uint64_t size)
{
	struct fault_image *fi = calloc(1, sizeof(*fi));

	assert(fi);
	fi->image = (struct image){
		.ops = &fault_ops, .size = size, .align = 1, .name = strdup("fault.img")};
	fi->data = calloc(1, size);
	pthread_mutex_init(&fi->lock, NULL);
	assert(fi->data && fi->image.name);
	return fi;
}

struct fault_image *fault_image_load(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct fault_image *fi;
	uint64_t done = 0;
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		abort();
	fi = fault_image_create(st.st_size);
	while (done < fi->image.size &&
	       (n = pread(fd, fi->data + done, fi->image.size - done, done)) > 0)
		done += n;
	close(fd);
	return fi;
}

void fault_image_save(struct fault_image *fi, const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	uint64_t done = 0;
	ssize_t n;

	if (fd < 0)
		abort();
	while (done < fi->image.size) {
		n = pwrite(fd, fi->data + done, fi->image.size - done, done);
		if (n <= 0)
			abort();
		done += n;
	}
	close(fd);
}

void fault_image_track_durable(struct fault_image *fi)
{
	fi->durable = malloc(fi->image.size);
	assert(fi->durable);
	memcpy(fi->durable, fi->data, fi->image.size);
}

void fault_image_fail(struct fault_image *fi, enum fault_op op, uint64_t start, uint64_t end,
		      int error, int times)
{
	pthread_mutex_lock(&fi->lock);
	fi->faults[op] = (struct fault){.start = start, .end = end, .error = error, .times = times};
	pthread_mutex_unlock(&fi->lock);
}

void fault_image_heal(struct fault_image *fi)
{
	pthread_mutex_lock(&fi->lock);
	memset(fi->faults, 0, sizeof(fi->faults));
	pthread_mutex_unlock(&fi->lock);
}
