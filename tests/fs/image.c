/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Images in files: bytes, offsets, short files, alignment, locks, refusals. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "image.h"

#define MIB (1 << 20)

static char path[] = "/var/tmp/foliofs-image-XXXXXX";
static unsigned char *page;	/* aligned scratch of 1 MiB */

static unsigned char pattern(uint64_t pos)
{
	return (pos * 2654435761u >> 13) ^ pos >> 9;
}

/* A file of @size bytes with a pattern in it. */
static void make_file(uint64_t size)
{
	int fd = mkstemp(path);

	cr_assert_geq(fd, 0);
	cr_assert_eq(posix_memalign((void **)&page, 4096, MIB), 0);
	for (uint64_t done = 0; done < size; done += MIB) {
		size_t len = size - done < MIB ? size - done : MIB;

		for (size_t i = 0; i < len; i++)
			page[i] = pattern(done + i);
		cr_assert_eq(pwrite(fd, page, len, done), len);
	}
	close(fd);
}

static void remove_file(void)
{
	unlink(path);
	free(page);
}

static struct image *open_image(uint64_t offset, bool readonly)
{
	const struct image_options options = {.offset = offset, .readonly = readonly};
	struct image *image = NULL;

	cr_assert_eq(image_file_open(&image, path, &options), 0);
	return image;
}

static int move(struct image *image, uint64_t offset, void *buf, size_t len, bool write)
{
	struct iovec iov = {.iov_base = buf, .iov_len = len};
	struct image_io io = {.offset = offset, .iov = &iov, .iovcnt = 1, .write = write};
	int ret = image_submit(image, &io, 1);

	cr_assert_eq(ret, io.result);
	return ret;
}

TestSuite(image, .fini = remove_file);

struct transfer {
	uint64_t file_size, image_offset, offset;
	size_t skew, len;	/* skew: of the memory, from a page boundary */
};


static struct transfer transfers[] = {
	{MIB, 0, 0, 0, 4096},
	{MIB, 0, 4096, 0, 65536},
	{MIB, 0, 512, 0, 512},
	{MIB, 0, 1, 0, 7},
	{MIB, 0, 4096, 3, 4096},
	{MIB, 0, 100, 100, 100000},
	{MIB, 512, 0, 0, 8192},
	{MIB, 777, 0, 0, 4096},
	{MIB, 65536, 4096, 0, 4096},
	{MIB + 100, 0, MIB - 4096, 0, 4096 + 100},
	{1000, 0, 0, 0, 1000},
};

ParameterizedTestParameters(image, read)
{
	return cr_make_param_array(struct transfer, transfers,
				   sizeof(transfers) / sizeof(transfers[0]));
}

ParameterizedTest(struct transfer *t, image, read)
{
	struct image *image;

	make_file(t->file_size);
	image = open_image(t->image_offset, true);
	cr_expect_eq(image->size, t->file_size - t->image_offset);
	cr_assert_eq(move(image, t->offset, page + t->skew, t->len, false), 0);
	for (size_t i = 0; i < t->len; i++)
		cr_assert_eq(page[t->skew + i], pattern(t->image_offset + t->offset + i));
	image_close(image);
}

ParameterizedTestParameters(image, write)
{
	return cr_make_param_array(struct transfer, transfers,
				   sizeof(transfers) / sizeof(transfers[0]));
}

/* Only the bytes of the write change, and the file does not grow. */
ParameterizedTest(struct transfer *t, image, write)
{
	uint64_t start = t->image_offset + t->offset;
	struct image *image;
	unsigned char byte;
	struct stat st;
	int fd;

	make_file(t->file_size);
	image = open_image(t->image_offset, false);
	memset(page, 0xee, MIB);
	cr_assert_eq(move(image, t->offset, page + t->skew, t->len, true), 0);
	cr_assert_eq(image_flush(image), 0);
	image_close(image);
	fd = open(path, O_RDONLY);
	for (uint64_t i = 0; i < t->file_size; i += i + 1 == start ? 1 : 13) {
		cr_assert_eq(pread(fd, &byte, 1, i), 1);
		cr_assert_eq(byte, i >= start && i < start + t->len ? 0xee : pattern(i));
	}
	cr_assert_eq(fstat(fd, &st), 0);
	cr_expect_eq((uint64_t)st.st_size, t->file_size);
	close(fd);
}

Test(image, behind_the_end_are_zeros)
{
	struct image *image;

	make_file(10000);
	image = open_image(0, true);
	memset(page, 0x55, 32768);
	cr_assert_eq(move(image, 8192, page, 16384, false), 0);
	cr_expect_eq(page[1807], pattern(9999));
	for (size_t i = 1808; i < 16384; i++)
		cr_assert_eq(page[i], 0);
	cr_expect_eq(page[16384], 0x55);
	image_close(image);
}

/* More transfers than a ring has room for, each of several pieces. */
static void read_many(struct image *image, unsigned char *to)
{
	enum { NR = 200, LEN = 4096 };
	struct iovec iov[NR][2];
	struct image_io ios[NR];

	for (unsigned int i = 0; i < NR; i++) {
		unsigned int j = (i * 77) % NR;

		iov[i][0] = (struct iovec){to + j * LEN, 1024};
		iov[i][1] = (struct iovec){to + j * LEN + 1024, LEN - 1024};
		ios[i] = (struct image_io){.offset = j * LEN, .iov = iov[i], .iovcnt = 2};
	}
	cr_assert_eq(image_submit(image, ios, NR), 0);
	for (unsigned int i = 0; i < NR * LEN; i++)
		cr_assert_eq(to[i], pattern(i));
}

Test(image, many_transfers_at_once)
{
	struct image *image;

	make_file(MIB);
	image = open_image(0, true);
	read_many(image, page);
	image_close(image);
}

/* Every system call @nr fails with EPERM from here on. */
static void refuse_syscall(unsigned int nr)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = 4, .filter = code};

	cr_assert_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	cr_assert_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

Test(image, goes_on_without_io_uring)
{
	struct image *image;

	make_file(MIB);
	refuse_syscall(SYS_io_uring_setup);
	image = open_image(0, true);
	read_many(image, page);
	image_close(image);
}

static void *reader(void *arg)
{
	unsigned char *to = NULL;

	cr_assert_eq(posix_memalign((void **)&to, 4096, MIB), 0);
	read_many(arg, to);
	free(to);
	return NULL;
}

Test(image, every_thread_has_its_ring)
{
	pthread_t threads[4];
	struct image *image;

	make_file(MIB);
	image = open_image(0, true);
	for (unsigned int i = 0; i < 4; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, reader, image), 0);
	for (unsigned int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	image_close(image);
}

Test(image, one_of_many_behind_the_end)
{
	struct iovec iov[2] = {{NULL, 4096}, {NULL, 4096}};
	struct image_io ios[2] = {
		{.offset = 0, .iov = &iov[0], .iovcnt = 1},
		{.offset = 6000, .iov = &iov[1], .iovcnt = 1},
	};
	struct image *image;

	make_file(8192);
	iov[0].iov_base = page;
	iov[1].iov_base = page + 4096;
	image = open_image(0, true);
	cr_assert_eq(image_submit(image, ios, 2), 0);
	cr_expect_eq(page[0], pattern(0));
	cr_expect_eq(page[4096], pattern(6000));
	cr_expect_eq(page[4096 + 2191], pattern(8191));
	cr_expect_eq(page[4096 + 2192], 0);
	image_close(image);
}

/* Direct and other transfers beside each other see each other's bytes. */
Test(image, misaligned_write_beside_aligned_ones)
{
	struct image *image;

	make_file(MIB);
	image = open_image(0, false);
	memset(page, 1, 8192);
	cr_assert_eq(move(image, 0, page, 8192, true), 0);
	memset(page, 2, 100);
	cr_assert_eq(move(image, 1000, page, 100, true), 0);
	memset(page, 3, 4096);
	cr_assert_eq(move(image, 4096, page, 4096, true), 0);
	cr_assert_eq(move(image, 0, page, 8192, false), 0);
	for (unsigned int i = 0; i < 8192; i++)
		cr_assert_eq(page[i], i >= 4096 ? 3 : i >= 1000 && i < 1100 ? 2 : 1);
	image_close(image);
}

Test(image, write_to_a_readonly_image_fails)
{
	struct image *image;

	make_file(8192);
	image = open_image(0, true);
	cr_expect(image->readonly);
	cr_expect_lt(move(image, 0, page, 4096, true), 0);
	image_close(image);
}

Test(image, discard_makes_a_hole)
{
	struct image *image;

	make_file(MIB);
	image = open_image(4096, false);
	cr_assert_eq(image_discard(image, 8192, 65536), 0);
	cr_assert_eq(move(image, 4096, page, 131072, false), 0);
	for (unsigned int i = 0; i < 131072; i++)
		cr_assert_eq(page[i], i >= 4096 && i < 4096 + 65536 ? 0 : pattern(8192 + i));
	cr_expect_eq(image_discard(image, MIB - 4096, 4096), -EINVAL);
	image_close(image);
}

/* Another process, as a lock of the same process would do as well. */
static int open_elsewhere(bool readonly)
{
	const struct image_options options = {.readonly = readonly};
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		struct image *image;

		close(STDERR_FILENO);
		_exit(-image_file_open(&image, path, &options));
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -ECHILD;
}

Test(image, a_writer_shuts_all_others_out)
{
	struct image *image;

	make_file(8192);
	image = open_image(0, false);
	cr_expect_eq(open_elsewhere(false), -EBUSY);
	cr_expect_eq(open_elsewhere(true), -EBUSY);
	image_close(image);
	cr_expect_eq(open_elsewhere(false), 0);
}

Test(image, readers_share)
{
	struct image *image;

	make_file(8192);
	image = open_image(0, true);
	cr_expect_eq(open_elsewhere(true), 0);
	cr_expect_eq(open_elsewhere(false), -EBUSY);
	image_close(image);
}

static void *close_soon(void *arg)
{
	usleep(100000);
	image_close(arg);
	return NULL;
}

Test(image, waits_a_moment_for_a_lock)
{
	pthread_t thread;

	make_file(8192);
	cr_assert_eq(pthread_create(&thread, NULL, close_soon, open_image(0, false)), 0);
	image_close(open_image(0, false));
	pthread_join(thread, NULL);
}

static int try_open(const char *name, uint64_t offset)
{
	const struct image_options options = {.offset = offset};
	struct image *image = NULL;
	int ret = image_file_open(&image, name, &options);

	image_close(image);
	return ret;
}

/*
 * A caller may hold a POSIX lock on the image that it hands us; two of us are kept apart all the
 * same.
 */
Test(image, descriptor_locked_by_the_caller)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 8192};
	struct image *image;
	char fd_path[32];
	pid_t pid;
	int fd, status;

	make_file(8192);
	fd = open(path, O_RDWR);
	cr_assert_eq(fcntl(fd, F_SETLK, &lock), 0);
	snprintf(fd_path, sizeof(fd_path), "/proc/self/fd/%d", fd);
	pid = fork();
	if (pid == 0) {
		const struct image_options options = {0};

		if (image_file_open(&image, fd_path, &options))
			_exit(1);
		close(STDERR_FILENO);
		_exit(try_open(fd_path, 0) == -EBUSY && image->size == 8192 ? 0 : 2);
	}
	waitpid(pid, &status, 0);
	cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d", status);
	cr_expect_eq(open_elsewhere(false), -EBUSY);
	close(fd);
}

Test(image, refusals)
{
	make_file(0);
	cr_expect_eq(try_open(path, 0), -EINVAL, "empty");
	cr_assert_eq(truncate(path, 4096), 0);
	cr_expect_eq(try_open(path, 4096), -EINVAL, "offset at the end");
	cr_expect_eq(try_open(path, UINT64_MAX), -EINVAL, "offset past everything");
	cr_expect_eq(try_open(path, 4095), 0);
	cr_expect_eq(try_open("/nonexistent/image", 0), -ENOENT);
	cr_expect_eq(try_open("/tmp", 0), -EISDIR);
	cr_expect_eq(try_open("/dev/null", 0), -EINVAL);
}
