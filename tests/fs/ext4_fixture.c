/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See ext4_fixture.h. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "ext4_fixture.h"
#include "rcu.h"

const struct cred fixture_root = { .privileged = true };

static struct fixture *fixture_of(struct image *image)
{
	return (struct fixture *)((char *)image - offsetof(struct fixture, image));
}

/*
 * Writeback may write a block while it is changed (it is dirty again then, and written once more):
 * a race that is meant, and that pwrite() would show to ThreadSanitizer.
 */
#ifdef FOLIO_TSAN
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
#define IGNORE_READS_BEGIN() AnnotateIgnoreReadsBegin(__FILE__, __LINE__)
#define IGNORE_READS_END() AnnotateIgnoreReadsEnd(__FILE__, __LINE__)
#else
#define IGNORE_READS_BEGIN() ((void)0)
#define IGNORE_READS_END() ((void)0)
#endif

static ssize_t write_quietly(int fd, const void *buf, size_t len, off_t pos)
{
	ssize_t n;

	IGNORE_READS_BEGIN();
	n = pwrite(fd, buf, len, pos);
	IGNORE_READS_END();
	return n;
}

static int transfer(int fd, const struct image_io *io)
{
	uint64_t pos = io->offset;

	for (unsigned int i = 0; i < io->iovcnt; i++) {
		const struct iovec *iov = &io->iov[i];
		ssize_t n = io->write ? write_quietly(fd, iov->iov_base, iov->iov_len, pos) :
					pread(fd, iov->iov_base, iov->iov_len, pos);

		if (n != (ssize_t)iov->iov_len)
			return n < 0 ? -errno : -EIO;
		pos += n;
	}
	return 0;
}

static bool touches_bad(struct fixture *f, const struct image_io *io)
{
	uint64_t end = io->offset;

	for (unsigned int i = 0; i < io->iovcnt; i++)
		end += io->iov[i].iov_len;
	return io->offset < __atomic_load_n(&f->bad_end, __ATOMIC_RELAXED) &&
	       end > __atomic_load_n(&f->bad_start, __ATOMIC_RELAXED);
}

static bool fails(struct fixture *f, const struct image_io *io)
{
	long *count = io->write ? &f->writes : &f->reads;
	long from = __atomic_load_n(io->write ? &f->fail_writes_from : &f->fail_reads_from,
				    __ATOMIC_RELAXED);
	long nr = __atomic_add_fetch(count, 1, __ATOMIC_RELAXED);
	bool fail = from && (f->fail_once ? nr == from : nr >= from);

	if (io->write && touches_bad(f, io))
		fail = true;
	if (fail)
		__atomic_add_fetch(&f->failures, 1, __ATOMIC_RELAXED);
	return fail;
}

/* A write, and its place in the record. */
static int transfer_recorded(struct fixture *f, const struct image_io *io)
{
	uint64_t pos = io->offset;
	int err;

	if (!f->record || !io->write)
		return transfer(f->fd, io);
	pthread_mutex_lock(&f->record->lock);
	err = transfer(f->fd, io);
	for (unsigned int i = 0; i < io->iovcnt; pos += io->iov[i++].iov_len)
		record_write(f->record, pos, io->iov[i].iov_base, io->iov[i].iov_len);
	pthread_mutex_unlock(&f->record->lock);
	return err;
}

static int image_test_submit(struct image *image, struct image_io *ios, unsigned int nr)
{
	struct fixture *f = fixture_of(image);
	int ret = 0;

	for (unsigned int i = 0; i < nr; i++) {
		if (f->around_write && ios[i].write)
			f->around_write(f, &ios[i], false);
		ios[i].result = fails(f, &ios[i]) ? -EIO : transfer_recorded(f, &ios[i]);
		if (f->around_write && ios[i].write)
			f->around_write(f, &ios[i], true);
		if (ios[i].result && !ret)
			ret = ios[i].result;
	}
	return ret;
}

static int image_test_flush(struct image *image)
{
	struct fixture *f = fixture_of(image);
	long from = __atomic_load_n(&f->fail_writes_from, __ATOMIC_RELAXED);

	if (f->record) {
		pthread_mutex_lock(&f->record->lock);
		record_flush(f->record);
		pthread_mutex_unlock(&f->record->lock);
	}
	if (__atomic_add_fetch(&f->flushes, 1, __ATOMIC_RELAXED) == f->fail_flush)
		return -EIO;
	if (!from || f->fail_once)
		return 0;
	return __atomic_load_n(&f->writes, __ATOMIC_RELAXED) >= from ? -EIO : 0;
}

static int image_test_discard(struct image *image, uint64_t offset, uint64_t len)
{
	return fallocate(fixture_of(image)->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
			 len) ? -errno : 0;
}

static const struct image_ops image_test_ops = {
	.submit = image_test_submit,
	.flush = image_test_flush,
	.discard = image_test_discard,
};

int fixture_run(struct fixture *f, const char *format)
{
	char command[512];
	int status;

	snprintf(command, sizeof(command), format, f->path);
	status = system(command);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void fill_file(int fd, uint64_t bytes, int fill)
{
	static char block[1 << 16];

	memset(block, fill, sizeof(block));
	for (uint64_t pos = 0; pos < bytes; pos += sizeof(block))
		cr_assert_eq(pwrite(fd, block, sizeof(block), pos), (ssize_t)sizeof(block));
}

void fixture_format(struct fixture *f, uint64_t bytes, const char *mkfs_options)
{
	fixture_format_on(f, bytes, mkfs_options, 0);
}

void fixture_format_on(struct fixture *f, uint64_t bytes, const char *mkfs_options, int fill)
{
	char command[512];
	int status;

	memset(f, 0, sizeof(*f));
	strcpy(f->path, "/tmp/foliofs-ext4-XXXXXX");
	f->fd = mkstemp(f->path);
	cr_assert(f->fd >= 0 && !ftruncate(f->fd, bytes));
	if (fill)
		fill_file(f->fd, bytes, fill);
	snprintf(command, sizeof(command),
		 "PATH=$PATH:/usr/sbin:/sbin mkfs.ext4 -F -q -E nodiscard %s %s >/dev/null 2>&1",
		 mkfs_options, f->path);
	status = system(command);
	cr_assert(WIFEXITED(status) && !WEXITSTATUS(status), "mkfs %s", mkfs_options);
	f->cache_bytes = 4 << 20;
	f->options.image = f->path;
	f->options.mountpoint = "/mnt/test";
	f->options.commit = 5;
}

int fixture_open(struct fixture *f)
{
	struct cache_config config = {
		.bytes = f->cache_bytes,
		.dirty_expire_ms = f->expire_ms ? f->expire_ms : 5000,
		.readahead_bytes = f->readahead_bytes,
	};
	int err;

	f->options.cache_size = f->cache_bytes;
	rcu_register_thread();
	f->image = (struct image){ .ops = &image_test_ops, .align = 1, .name = f->path };
	f->image.readonly = f->readonly;
	f->image.size = lseek(f->fd, 0, SEEK_END);
	cr_assert(!cache_create(&f->cache, &config));
	err = ext4_open(&f->volume, &f->image, f->cache, &f->options);
	if (err) {
		f->volume = NULL;
		cache_destroy(f->cache);
	}
	return err;
}

int fixture_close(struct fixture *f)
{
	int err = f->volume->ops->close(f->volume);

	cache_destroy(f->cache);
	f->volume = NULL;
	return err;
}

void fixture_crash(struct fixture *f)
{
	int none = open("/dev/null", O_RDWR), copy = dup(f->fd);

	/* What is written from here on goes nowhere. */
	cr_assert(none >= 0 && copy >= 0 && dup2(none, f->fd) >= 0);
	fixture_close(f);
	cr_assert(dup2(copy, f->fd) >= 0);
	close(none);
	close(copy);
}

int fixture_fsck(struct fixture *f)
{
	char log[80];
	int status;

	snprintf(log, sizeof(log), "%s.log", f->path);
	status = fixture_run(f, "PATH=$PATH:/usr/sbin:/sbin; i=%s; e2fsck -fn $i >$i.log 2>&1; "
				"s=$?; [ $s = 0 ] || cat $i.log >&2; exit $s");
	unlink(log);
	return status;
}

void fixture_drop(struct fixture *f)
{
	close(f->fd);
	unlink(f->path);
}

void fixture_finish(struct fixture *f)
{
	if (f->volume)
		cr_expect_eq(fixture_close(f), 0);
	cr_expect_eq(fixture_fsck(f), 0, "e2fsck finds something");
	fixture_drop(f);
}

struct vnode *fixture_find(struct fixture *f, const char *path)
{
	struct vnode *node = f->volume->ops->root(f->volume);
	char copy[512], *save, *name;

	snprintf(copy, sizeof(copy), "%s", path);
	for (name = strtok_r(copy, "/", &save); name; name = strtok_r(NULL, "/", &save)) {
		struct vnode *next;
		int err = f->volume->ops->lookup(node, name, &next);

		cr_assert_eq(err, 0, "%s: %s: %s", path, name, strerror(-err));
		f->volume->ops->put(node, 1);
		node = next;
	}
	return node;
}

struct vnode *fixture_create(struct fixture *f, const char *path, mode_t mode)
{
	char copy[512], *name;
	struct vnode *dir, *node;
	int err;

	snprintf(copy, sizeof(copy), "/%s", path);
	name = strrchr(copy, '/');
	*name++ = '\0';
	dir = fixture_find(f, copy);
	if (S_ISDIR(mode))
		err = f->volume->ops->mkdir(dir, name, mode, &fixture_root, &node);
	else
		err = f->volume->ops->mknod(dir, name, mode, 0, &fixture_root, &node);
	cr_assert_eq(err, 0, "%s: %s", path, strerror(-err));
	f->volume->ops->put(dir, 1);
	return node;
}

void fixture_put(struct fixture *f, struct vnode *node)
{
	f->volume->ops->put(node, 1);
}

void fixture_write(struct fixture *f, const char *path, const void *buf, size_t len)
{
	struct vnode *root = f->volume->ops->root(f->volume), *node;

	if (f->volume->ops->lookup(root, path, &node))
		node = fixture_create(f, path, S_IFREG | 0644);
	fixture_put(f, root);
	cr_assert_eq(f->volume->ops->write(node, 0, buf, len, 0), (ssize_t)len);
	fixture_put(f, node);
}
