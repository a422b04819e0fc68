/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An image in a regular file or on a block device.
 *
 * The file is opened twice where the host can do O_DIRECT. Transfers that are aligned take the
 * direct descriptor, so that the host does not cache what the cache above caches. What is not
 * aligned (the end of a file of odd length) takes the other one; the host keeps the two coherent
 * for reads. A write is another matter: the host's writeback of a page that holds one misaligned
 * write could overtake a direct write beside it in the same page. So the first misaligned write
 * turns direct transfers off for good.
 *
 * One transfer is one preadv() or pwritev(); more go to an io_uring at once (image_uring.c) and
 * what that leaves short is finished here.
 *
 * Locking the image. An OFD lock on the whole file keeps other foliofs, qemu and the like out. A
 * caller that hands us the image as one of its descriptors (/proc/self/fd/3), as Apptainer does,
 * may hold a POSIX lock on it itself, on our behalf: then only the far end of the file's range is
 * locked, which still meets the lock of any other foliofs.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "image_file.h"
#include "log.h"

#define IOV_LOCAL 64
#define LOCK_WAIT_MS 1000	/* an unmounted daemon may still be writing its last bytes */
#define LOCK_STEP_MS 10
#define LOCK_FAR_END (1LL << 62)

static struct image_file *to_file(struct image *image)
{
	return (struct image_file *)image;
}

int image_file_fd(struct image_file *file, uint64_t offset, const struct iovec *iov,
		  unsigned int iovcnt, bool write)
{
	uint64_t bits = offset;

	if (!__atomic_load_n(&file->direct, __ATOMIC_RELAXED))
		return file->fd;
	for (unsigned int i = 0; i < iovcnt; i++)
		bits |= (uintptr_t)iov[i].iov_base | iov[i].iov_len;
	if (!(bits & (file->image.align - 1)))
		return file->direct_fd;
	if (write)
		__atomic_store_n(&file->direct, false, __ATOMIC_RELAXED);
	return file->fd;
}

static size_t iov_length(const struct iovec *iov, unsigned int iovcnt)
{
	size_t len = 0;

	for (unsigned int i = 0; i < iovcnt; i++)
		len += iov[i].iov_len;
	return len;
}

/* What is left of @io behind its first @done bytes, at most IOV_LOCAL pieces of it. */
static unsigned int iov_rest(const struct image_io *io, size_t done, struct iovec *out)
{
	unsigned int nr = 0;

	for (unsigned int i = 0; i < io->iovcnt && nr < IOV_LOCAL; i++) {
		size_t len = io->iov[i].iov_len;

		if (done >= len) {
			done -= len;
			continue;
		}
		out[nr].iov_base = (char *)io->iov[i].iov_base + done;
		out[nr++].iov_len = len - done;
		done = 0;
	}
	return nr;
}

static void zero_rest(const struct image_io *io, size_t done)
{
	struct iovec iov[IOV_LOCAL];
	unsigned int nr;

	while ((nr = iov_rest(io, done, iov))) {
		for (unsigned int i = 0; i < nr; i++)
			memset(iov[i].iov_base, 0, iov[i].iov_len);
		done += iov_length(iov, nr);
	}
}

/* Moves what is behind the first @done bytes, however often the host stops short. */
static int transfer_rest(struct image_file *file, struct image_io *io, size_t done)
{
	size_t total = iov_length(io->iov, io->iovcnt);
	struct iovec iov[IOV_LOCAL];
	bool buffered = false;

	while (done < total) {
		unsigned int nr = iov_rest(io, done, iov);
		uint64_t pos = file->offset + io->offset + done;
		int fd = buffered ? file->fd : image_file_fd(file, pos, iov, nr, io->write);
		ssize_t n = io->write ? pwritev(fd, iov, nr, pos) : preadv(fd, iov, nr, pos);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EINVAL && fd == file->direct_fd) {
			buffered = true;
			continue;
		}
		if (n < 0)
			return -errno;
		if (n == 0 && io->write)
			return -EIO;
		if (n == 0) {
			zero_rest(io, done);
			return 0;
		}
		done += n;
	}
	return 0;
}

static int file_submit(struct image *image, struct image_io *ios, unsigned int nr)
{
	struct image_file *file = to_file(image);
	bool started = nr > 1 && image_uring_submit(file, ios, nr) == 0;
	int ret = 0;

	for (unsigned int i = 0; i < nr; i++) {
		struct image_io *io = &ios[i];
		int done = started ? io->result : 0;

		if (done == -EINTR || done == -EAGAIN || done == -EINVAL)
			done = 0;
		io->result = done < 0 ? done : transfer_rest(file, io, done);
		if (!ret)
			ret = io->result;
	}
	return ret;
}

static int file_flush(struct image *image)
{
	struct image_file *file = to_file(image);

	if (image->readonly)
		return 0;
	while (fdatasync(file->fd) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return 0;
}

static int file_discard(struct image *image, uint64_t offset, uint64_t len)
{
	struct image_file *file = to_file(image);
	uint64_t range[2] = {file->offset + offset, len};
	int ret;

	if (offset > image->size || len > image->size - offset)
		return -EINVAL;
	if (file->blkdev)
		ret = ioctl(file->fd, BLKDISCARD, range);
	else
		ret = fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, range[0],
				len);
	if (!ret)
		return 0;
	return errno == ENOTTY || errno == ENOSYS ? -EOPNOTSUPP : -errno;
}

static void file_close(struct image *image)
{
	struct image_file *file = to_file(image);

	if (file->direct_fd >= 0)
		close(file->direct_fd);
	if (file->fd >= 0)
		close(file->fd);
	free(image->name);
	free(file);
}

static const struct image_ops file_ops = {
	.submit = file_submit,
	.flush = file_flush,
	.discard = file_discard,
	.close = file_close,
};

static bool names_descriptor(const char *path)
{
	return !strncmp(path, "/proc/self/fd/", 14) || !strncmp(path, "/dev/fd/", 8);
}

/* Locks [start, end of all files): 0, 1 when a POSIX lock is in the way, or a negative errno. */
static int lock_from(struct image_file *file, off_t start)
{
	struct flock lock = {
		.l_type = file->image.readonly ? F_RDLCK : F_WRLCK,
		.l_whence = SEEK_SET,
		.l_start = start,
	};

	if (fcntl(file->fd, F_OFD_SETLK, &lock) == 0)
		return 0;
	if (errno != EAGAIN && errno != EACCES)
		return -errno;
	/* A process's lock tells its pid (0 from another namespace), an OFD lock tells -1. */
	if (fcntl(file->fd, F_OFD_GETLK, &lock) < 0 || lock.l_type == F_UNLCK || lock.l_pid < 0)
		return -EBUSY;
	return 1;
}

static int try_lock(struct image_file *file)
{
	int ret = lock_from(file, 0);

	if (ret > 0 && !names_descriptor(file->image.name))
		return -EBUSY;
	if (ret > 0)
		ret = lock_from(file, LOCK_FAR_END);
	return ret > 0 ? 0 : ret;
}

static int lock_file(struct image_file *file)
{
	const struct timespec step = {.tv_nsec = LOCK_STEP_MS * 1000000L};
	int ret = try_lock(file);

	for (int waited = 0; ret == -EBUSY && waited < LOCK_WAIT_MS; waited += LOCK_STEP_MS) {
		nanosleep(&step, NULL);
		ret = try_lock(file);
	}
	if (ret == -EBUSY) {
		log_error("%s is in use by another process", file->image.name);
		return ret;
	}
	if (ret < 0)
		log_warn("%s cannot be locked (%s); nothing else may use it", file->image.name,
			 strerror(-ret));
	return 0;
}

/* Opens for the use asked for, or for reading only where the host allows no more. */
static int open_file(struct image_file *file)
{
	const char *path = file->image.name;
	int excl = file->blkdev ? O_EXCL : 0;
	int error = 0;

	if (!file->image.readonly) {
		file->fd = open(path, O_RDWR | O_CLOEXEC | excl);
		if (file->fd >= 0)
			return 0;
		if (errno != EACCES && errno != EPERM && errno != EROFS && errno != ETXTBSY)
			goto fail;
		file->image.readonly = true;
		error = errno;
	}
	file->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (file->fd >= 0) {
		if (error)
			log_warn("%s cannot be written (%s): mounting it read-only", path,
				 strerror(error));
		return 0;
	}
fail:
	error = errno;
	log_error("cannot open %s: %s", path,
		  error == EBUSY ? "it is in use" : strerror(error));
	return -error;
}

/* Does a direct read at the image's start work in pieces of @align bytes? */
static bool direct_trial(struct image_file *file, unsigned int align)
{
	void *buf;
	ssize_t n;

	if (posix_memalign(&buf, align, align))
		return false;
	n = pread(file->direct_fd, buf, align, file->offset);
	free(buf);
	return n >= 0;
}

static unsigned int direct_align(struct image_file *file)
{
#ifdef STATX_DIOALIGN
	struct statx stx;

	if (statx(file->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) == 0 &&
	    (stx.stx_mask & STATX_DIOALIGN)) {
		unsigned int a = stx.stx_dio_mem_align, b = stx.stx_dio_offset_align;

		return a && b ? (a > b ? a : b) : 0;
	}
#endif
	for (unsigned int align = 512; align <= 4096; align *= 8) {
		if (direct_trial(file, align))
			return align;
	}
	return 0;
}

/* Sets up O_DIRECT where the host and the image's offset allow it. */
static void open_direct(struct image_file *file)
{
	char path[32];
	unsigned int align;

	file->image.align = 1;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file->fd);
	file->direct_fd =
		open(path, (file->image.readonly ? O_RDONLY : O_RDWR) | O_DIRECT | O_CLOEXEC);
	if (file->direct_fd < 0)
		return;
	align = direct_align(file);
	if (align && align <= 4096 && !(align & (align - 1)) && !(file->offset & (align - 1))) {
		file->image.align = align;
		file->direct = true;
		return;
	}
	close(file->direct_fd);
	file->direct_fd = -1;
}

static int measure(struct image_file *file, const struct stat *st)
{
	uint64_t size = st->st_size;

	if (file->blkdev && ioctl(file->fd, BLKGETSIZE64, &size) < 0) {
		log_error("cannot tell the size of %s: %s", file->image.name, strerror(errno));
		return -errno;
	}
	if (size == 0) {
		log_error("%s is empty", file->image.name);
		return -EINVAL;
	}
	if (file->offset >= size || file->offset > INT64_MAX) {
		log_error("offset %llu lies behind the end of %s (%llu bytes)",
			  (unsigned long long)file->offset, file->image.name,
			  (unsigned long long)size);
		return -EINVAL;
	}
	file->image.size = size - file->offset;
	return 0;
}

static int check_kind(struct image_file *file, struct stat *st)
{
	const char *path = file->image.name;

	if (stat(path, st) < 0) {
		int err = errno;

		log_error("cannot open %s: %s", path, strerror(err));
		return -err;
	}
	if (S_ISDIR(st->st_mode)) {
		log_error("%s is a directory, not an image", path);
		return -EISDIR;
	}
	if (!S_ISREG(st->st_mode) && !S_ISBLK(st->st_mode)) {
		log_error("%s is neither a regular file nor a block device", path);
		return -EINVAL;
	}
	file->blkdev = S_ISBLK(st->st_mode);
	return 0;
}

static int set_up(struct image_file *file)
{
	struct stat st;
	int ret = check_kind(file, &st);

	if (!ret)
		ret = open_file(file);
	if (!ret)
		ret = lock_file(file);
	if (!ret && fstat(file->fd, &st) < 0)
		ret = -errno;
	if (!ret)
		ret = measure(file, &st);
	if (!ret)
		open_direct(file);
	return ret;
}

/**
 * image_file_open() - open and lock a regular file or a block device
 * @out: the image, when 0 is returned
 * @path: as the user gave it; kept for messages
 * @options: offset in bytes, and whether to open for reading only
 *
 * Context: may sleep, up to a second for a lock that another process is about to release.
 * Return: 0, -EBUSY when the image is in use, or another errno; one clear message was logged then.
 */
int image_file_open(struct image **out, const char *path, const struct image_options *options)
{
	struct image_file *file = calloc(1, sizeof(*file));
	int ret;

	if (!file)
		return -ENOMEM;
	*file = (struct image_file){
		.image = {.ops = &file_ops, .readonly = options->readonly, .name = strdup(path)},
		.fd = -1,
		.direct_fd = -1,
		.offset = options->offset,
	};
	ret = file->image.name ? set_up(file) : -ENOMEM;
	if (ret) {
		file_close(&file->image);
		return ret;
	}
	*out = &file->image;
	return 0;
}
