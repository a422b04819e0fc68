/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A storm over a few files of a mounted file system, each with a shadow in memory that says what must
 * be read.
 *
 *	shadow_storm [--seed N] [--seconds N] [--threads N] [--no-mmap] DIRECTORY COPIES
 *
 * Threads read, write, map, truncate, punch, zero, allocate, sync, copy, replace and reopen the same
 * files, with buffered and with direct I/O. All that is read is compared. At the end all of each file
 * is, and COPIES gets the shadows as files of the same names, to be compared with what is there after
 * the next mount. Nothing here knows of foliofs: on the kernel's own ext4 the storm must pass as well.
 *
 * What two operations do at once to the same bytes nobody can foretell, so a file is cut into slots
 * with a lock each, which an operation takes for its bytes, from the first to the last. What changes the
 * size or the file's name has the file for itself. Writeback, reclaim and readahead go on meanwhile,
 * which is the point. What the file system does not support (fallocate on a file with a block map)
 * is left out.
 *
 * The first difference ends it with a line that tells the place. With --threads 1 the seed gives the
 * same operations again. With more it does not: what a thread does depends on the sizes that the others
 * have left.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define FILES 4
#define ROOM (4UL << 20)
#define SLOT (64UL << 10)
#define SLOTS (ROOM / SLOT)
#define LONGEST (128UL << 10)
#define PAGE 4096UL
#define THREADS_MAX 16

struct file {
	char path[4096];
	int fd, direct;			/* direct: opened with O_DIRECT */
	unsigned char *map;		/* of ROOM bytes, or NULL */
	unsigned char *shadow;
	size_t size;
	pthread_rwlock_t shape;		/* exclusive: size, name, descriptors */
	pthread_mutex_t slots[SLOTS];
};

struct worker {
	pthread_t thread;
	uint64_t state;
	unsigned long steps;
	unsigned char *buf;		/* LONGEST bytes, aligned */
};

static struct file files[FILES];
static struct worker workers[THREADS_MAX];
static const char *directory, *copies;
static uint64_t seed;
static bool use_mmap = true;
static double end_time;

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static void fail(const struct file *file, const char *what, size_t at, size_t len)
{
	fprintf(stderr, "shadow_storm: seed %llu: %s: %s at %zu, %zu bytes: %s\n",
		(unsigned long long)seed, file->path, what, at, len, strerror(errno));
	_exit(1);
}

static uint64_t rnd(struct worker *w)
{
	w->state ^= w->state << 13;
	w->state ^= w->state >> 7;
	w->state ^= w->state << 17;
	return w->state * 0x2545f4914f6cdd1dULL >> 11;
}

static bool one_in(struct worker *w, unsigned int n)
{
	return rnd(w) % n == 0;
}

static void open_file(struct file *file)
{
	file->fd = open(file->path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (file->fd < 0)
		fail(file, "open", 0, 0);
	file->direct = open(file->path, O_RDWR | O_DIRECT | O_CLOEXEC);
	if (file->direct < 0)
		fail(file, "open with O_DIRECT", 0, 0);
	if (!use_mmap)
		return;
	file->map = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
	if (file->map == MAP_FAILED)
		fail(file, "mmap", 0, ROOM);
}

static void close_file(struct file *file)
{
	if (use_mmap && munmap(file->map, ROOM))
		fail(file, "munmap", 0, ROOM);
	if (close(file->direct) || close(file->fd))
		fail(file, "close", 0, 0);
}

static void lock_slots(struct file *file, size_t at, size_t len)
{
	for (size_t i = at / SLOT; i <= (at + len - 1) / SLOT; i++)
		pthread_mutex_lock(&file->slots[i]);
}

static void unlock_slots(struct file *file, size_t at, size_t len)
{
	for (size_t i = at / SLOT; i <= (at + len - 1) / SLOT; i++)
		pthread_mutex_unlock(&file->slots[i]);
}

static void compare(const struct file *file, const char *how, size_t at, const unsigned char *bytes,
		    size_t len)
{
	size_t i;

	if (!memcmp(bytes, file->shadow + at, len))
		return;
	for (i = 0; bytes[i] == file->shadow[at + i]; i++)
		;
	fprintf(stderr, "shadow_storm: seed %llu: %s: %s of %zu bytes at %zu, size %zu: byte %zu is %#x, "
		"not %#x\n", (unsigned long long)seed, file->path, how, len, at, file->size, at + i,
		bytes[i], file->shadow[at + i]);
	_exit(1);
}

/* Chooses a part of a file up to @limit; with @whole pages, and then the length may be 0. */
static size_t choose(struct worker *w, size_t limit, bool whole, size_t *len)
{
	size_t at = rnd(w) % limit;

	*len = rnd(w) % (one_in(w, 3) ? LONGEST : one_in(w, 2) ? 3 * PAGE : 64) + 1;
	if (whole) {
		at &= ~(PAGE - 1);
		*len = (*len + PAGE - 1) & ~(PAGE - 1);
		limit &= ~(PAGE - 1);
		if (at >= limit)
			at = limit > PAGE ? limit - PAGE : 0;
	}
	if (*len > limit - at)
		*len = limit - at;
	return at;
}

/*
 * Under the shape lock, shared: what keeps the size
 */

static void read_part(struct worker *w, struct file *file, bool direct)
{
	size_t len, at = choose(w, ROOM, direct, &len), there;

	there = at >= file->size ? 0 : len < file->size - at ? len : file->size - at;
	lock_slots(file, at, len);
	if (pread(direct ? file->direct : file->fd, w->buf, len, at) != (ssize_t)there)
		fail(file, direct ? "direct read" : "read", at, len);
	compare(file, direct ? "direct read" : "read", at, w->buf, there);
	unlock_slots(file, at, len);
}

static void read_map(struct worker *w, struct file *file)
{
	size_t len, at;

	if (!file->size || !use_mmap)
		return;
	at = choose(w, file->size, false, &len);
	lock_slots(file, at, len);
	memcpy(w->buf, file->map + at, len);
	compare(file, "look at the map", at, w->buf, len);
	unlock_slots(file, at, len);
}

static void fill(struct worker *w, size_t len)
{
	uint64_t *words = (uint64_t *)w->buf;

	for (size_t i = 0; i < (len + 7) / 8; i++)
		words[i] = rnd(w);
}

static void write_part(struct worker *w, struct file *file, size_t at, size_t len, bool direct)
{
	fill(w, len);
	lock_slots(file, at, len);
	if (pwrite(direct ? file->direct : file->fd, w->buf, len, at) != (ssize_t)len)
		fail(file, direct ? "direct write" : "write", at, len);
	memcpy(file->shadow + at, w->buf, len);
	unlock_slots(file, at, len);
}

static void write_within(struct worker *w, struct file *file, bool direct)
{
	size_t len, at;

	if (file->size < 2 * PAGE)
		return;
	at = choose(w, file->size, direct, &len);
	if (len)
		write_part(w, file, at, len, direct);
}

static void write_map(struct worker *w, struct file *file)
{
	size_t len, at;

	if (!file->size || !use_mmap)
		return;
	at = choose(w, file->size, false, &len);
	fill(w, len);
	lock_slots(file, at, len);
	memcpy(file->map + at, w->buf, len);
	memcpy(file->shadow + at, w->buf, len);
	unlock_slots(file, at, len);
}

static void zero_part(struct worker *w, struct file *file, int mode)
{
	size_t len, at;

	if (!file->size)
		return;
	at = choose(w, file->size, one_in(w, 2), &len);
	if (!len)
		return;
	lock_slots(file, at, len);
	if (!fallocate(file->fd, mode | FALLOC_FL_KEEP_SIZE, at, len))
		memset(file->shadow + at, 0, len);
	else if (errno != EOPNOTSUPP)
		fail(file, mode == FALLOC_FL_PUNCH_HOLE ? "punch" : "zero", at, len);
	unlock_slots(file, at, len);
}

static void sync_file(struct worker *w, struct file *file)
{
	size_t len, at = choose(w, ROOM, true, &len);
	int err = 0;

	switch (rnd(w) % 4) {
	case 0:
		err = fsync(file->fd);
		break;
	case 1:
		err = fdatasync(file->direct);
		break;
	case 2:
		if (use_mmap && len)
			err = msync(file->map + at, len, MS_SYNC);
		break;
	default: /* what is clean in the kernel's cache is read from the server again */
		err = posix_fadvise(file->fd, 0, 0, POSIX_FADV_DONTNEED);
	}
	if (err)
		fail(file, "sync", at, len);
}

/*
 * Under the shape lock, exclusive
 */

static void write_beyond(struct worker *w, struct file *file)
{
	size_t len, at = choose(w, ROOM, false, &len);
	int fd = one_in(w, 4) ? file->direct : file->fd;

	if (fd == file->direct) {
		at &= ~(PAGE - 1);
		len &= ~(PAGE - 1);
	}
	if (!len)
		return;
	fill(w, len);
	if (pwrite(fd, w->buf, len, at) != (ssize_t)len)
		fail(file, "write that may extend", at, len);
	memcpy(file->shadow + at, w->buf, len);
	if (at + len > file->size)
		file->size = at + len;
}

static void truncate_file(struct worker *w, struct file *file)
{
	size_t size = one_in(w, 3) ? rnd(w) % (ROOM / PAGE + 1) * PAGE : rnd(w) % (ROOM + 1);

	if (ftruncate(file->fd, size))
		fail(file, "truncate", size, 0);
	if (size < file->size)
		memset(file->shadow + size, 0, file->size - size);
	file->size = size;
}

static void allocate(struct worker *w, struct file *file)
{
	size_t len, at = choose(w, ROOM, false, &len);
	bool keep = one_in(w, 2);

	if (fallocate(file->fd, keep ? FALLOC_FL_KEEP_SIZE : 0, at, len)) {
		if (errno != EOPNOTSUPP)
			fail(file, "allocate", at, len);
	} else if (!keep && at + len > file->size) {
		file->size = at + len;
	}
}

/* A new file of the same content takes its name; the old one lives until it is closed. */
static void replace(struct file *file)
{
	struct file old = *file;
	char name[4200];
	size_t done;
	ssize_t n;
	int fd;

	snprintf(name, sizeof(name), "%s.new", file->path);
	fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	for (done = 0; fd >= 0 && done < file->size; done += n) {
		n = write(fd, file->shadow + done, file->size - done);
		if (n <= 0)
			fail(file, "write anew", done, file->size - done);
	}
	if (fd < 0 || close(fd) || rename(name, file->path))
		fail(file, "replace", 0, file->size);
	open_file(file);
	close_file(&old);
}

static void compare_all(struct file *file)
{
	unsigned char *bytes = malloc(ROOM);

	if (!bytes || pread(file->fd, bytes, ROOM, 0) != (ssize_t)file->size)
		fail(file, "read all", 0, file->size);
	compare(file, "read of all", 0, bytes, file->size);
	free(bytes);
}

/* Two files, in the order of their locks; the ranges lie in the one and in the other. */
static void copy_range(struct worker *w)
{
	struct file *from = &files[rnd(w) % FILES], *to = &files[rnd(w) % FILES];
	size_t len, at = choose(w, ROOM, false, &len), there = rnd(w) % (ROOM - len + 1);
	loff_t in = at, out = there;
	ssize_t n;

	if (from == to)
		return;
	pthread_rwlock_wrlock(from < to ? &from->shape : &to->shape);
	pthread_rwlock_wrlock(from < to ? &to->shape : &from->shape);
	if (at < from->size) {
		if (len > from->size - at)
			len = from->size - at;
		n = copy_file_range(from->fd, &in, to->fd, &out, len, 0);
		if (n < 0 || (size_t)n > len)
			fail(to, "copy_file_range", there, len);
		memcpy(to->shadow + there, from->shadow + at, n);
		if (there + n > to->size)
			to->size = there + n;
	}
	pthread_rwlock_unlock(&from->shape);
	pthread_rwlock_unlock(&to->shape);
}

static void change_shape(struct worker *w, struct file *file)
{
	pthread_rwlock_wrlock(&file->shape);
	switch (rnd(w) % 16) {
	case 0 ... 5:
		write_beyond(w, file);
		break;
	case 6 ... 9:
		truncate_file(w, file);
		break;
	case 10 ... 12:
		allocate(w, file);
		break;
	case 13:
		replace(file);
		break;
	case 14:
		close_file(file);
		open_file(file);
		break;
	default:
		compare_all(file);
	}
	pthread_rwlock_unlock(&file->shape);
}

static void keep_shape(struct worker *w, struct file *file)
{
	pthread_rwlock_rdlock(&file->shape);
	switch (rnd(w) % 32) {
	case 0 ... 8:
		read_part(w, file, one_in(w, 4));
		break;
	case 9 ... 13:
		read_map(w, file);
		break;
	case 14 ... 20:
		write_within(w, file, one_in(w, 4));
		break;
	case 21 ... 25:
		write_map(w, file);
		break;
	case 26 ... 27:
		zero_part(w, file, FALLOC_FL_PUNCH_HOLE);
		break;
	case 28:
		zero_part(w, file, FALLOC_FL_ZERO_RANGE);
		break;
	default:
		sync_file(w, file);
	}
	pthread_rwlock_unlock(&file->shape);
}

static void *storm(void *arg)
{
	struct worker *w = arg;

	for (; now() < end_time; w->steps++) {
		struct file *file = &files[rnd(w) % FILES];

		switch (rnd(w) % 20) {
		case 0 ... 2:
			change_shape(w, file);
			break;
		case 3:
			copy_range(w);
			break;
		default:
			keep_shape(w, file);
		}
	}
	return NULL;
}

static void start_file(unsigned int n)
{
	struct file *file = &files[n];

	snprintf(file->path, sizeof(file->path), "%s/file%u", directory, n);
	file->shadow = calloc(1, ROOM);
	if (!file->shadow)
		fail(file, "no memory", 0, ROOM);
	pthread_rwlock_init(&file->shape, NULL);
	for (unsigned int i = 0; i < SLOTS; i++)
		pthread_mutex_init(&file->slots[i], NULL);
	open_file(file);
}

static void end_file(unsigned int n)
{
	struct file *file = &files[n], copy = {.size = file->size};
	int fd;

	compare_all(file);
	close_file(file);
	snprintf(copy.path, sizeof(copy.path), "%s/file%u", copies, n);
	fd = open(copy.path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, file->shadow, file->size) != (ssize_t)file->size || close(fd))
		fail(&copy, "write the copy", 0, file->size);
	free(file->shadow);
}

static void run(unsigned int threads, double seconds)
{
	unsigned long steps = 0;
	unsigned int i;

	end_time = now() + seconds;
	for (i = 0; i < threads; i++) {
		workers[i].state = seed * 1000003 + i + 1;
		workers[i].buf = aligned_alloc(PAGE, LONGEST + PAGE);
		if (!workers[i].buf || pthread_create(&workers[i].thread, NULL, storm, &workers[i])) {
			fprintf(stderr, "shadow_storm: cannot start threads\n");
			exit(1);
		}
	}
	for (i = 0; i < threads; i++) {
		pthread_join(workers[i].thread, NULL);
		free(workers[i].buf);
		steps += workers[i].steps;
	}
	printf("shadow_storm: seed %llu, %lu steps\n", (unsigned long long)seed, steps);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"seed", required_argument, NULL, 's'}, {"seconds", required_argument, NULL, 't'},
		{"threads", required_argument, NULL, 'n'}, {"no-mmap", no_argument, NULL, 'm'}, {0},
	};
	unsigned int i, threads = 4;
	double seconds = 10;
	int option;

	seed = time(NULL);
	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (option == 's')
			seed = strtoull(optarg, NULL, 0);
		else if (option == 't')
			seconds = atof(optarg);
		else if (option == 'n')
			threads = atoi(optarg);
		else if (option == 'm')
			use_mmap = false;
		else
			return 2;
	}
	if (argc - optind != 2 || !threads || threads > THREADS_MAX)
		return 2;
	directory = argv[optind];
	copies = argv[optind + 1];
	printf("shadow_storm: seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	for (i = 0; i < FILES; i++)
		start_file(i);
	run(threads, seconds);
	for (i = 0; i < FILES; i++)
		end_file(i);
	return 0;
}
