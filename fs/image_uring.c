/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Many transfers at once, on an io_uring of the calling thread.
 *
 * A ring for each thread needs no lock, and each thread waits for its own transfers alone. It is
 * made at the first use and freed when the thread ends. Where io_uring is refused (seccomp,
 * sysctl, memory limits) that is remembered for the whole process and the caller goes on with
 * preadv() and pwritev().
 */
#include <errno.h>
#include <liburing.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include "image_file.h"

#define RING_DEPTH 64

static bool refused;		/* atomic */
static pthread_key_t ring_key;
static pthread_once_t ring_once = PTHREAD_ONCE_INIT;

static void ring_free(void *arg)
{
	struct io_uring *ring = arg;

	io_uring_queue_exit(ring);
	free(ring);
}

static void ring_key_create(void)
{
	if (pthread_key_create(&ring_key, ring_free))
		__atomic_store_n(&refused, true, __ATOMIC_RELAXED);
}

static struct io_uring *ring_get(void)
{
	struct io_uring *ring;

	pthread_once(&ring_once, ring_key_create);
	if (__atomic_load_n(&refused, __ATOMIC_RELAXED))
		return NULL;
	ring = pthread_getspecific(ring_key);
	if (ring)
		return ring;
	ring = malloc(sizeof(*ring));
	if (!ring)
		return NULL;
	if (io_uring_queue_init(RING_DEPTH, ring, 0) < 0) {
		__atomic_store_n(&refused, true, __ATOMIC_RELAXED);
		free(ring);
		return NULL;
	}
	if (pthread_setspecific(ring_key, ring)) {
		ring_free(ring);
		return NULL;
	}
	return ring;
}

/* Puts one transfer on the ring; false when the ring is full. */
static bool ring_push(struct io_uring *ring, struct image_file *file, struct image_io *io)
{
	uint64_t pos = file->offset + io->offset;
	unsigned int nr = io->iovcnt < IOV_MAX ? io->iovcnt : IOV_MAX;
	int fd = image_file_fd(file, pos, io->iov, nr, io->write);
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	if (!sqe)
		return false;
	if (io->write)
		io_uring_prep_writev(sqe, fd, io->iov, nr, pos);
	else
		io_uring_prep_readv(sqe, fd, io->iov, nr, pos);
	io_uring_sqe_set_data(sqe, io);
	io->result = 0;
	return true;
}

static unsigned int ring_reap(struct io_uring *ring)
{
	struct io_uring_cqe *cqe;
	unsigned int head, nr = 0;

	io_uring_for_each_cqe(ring, head, cqe) {
		struct image_io *io = io_uring_cqe_get_data(cqe);

		io->result = cqe->res;
		nr++;
	}
	io_uring_cq_advance(ring, nr);
	return nr;
}

int image_uring_submit(struct image_file *file, struct image_io *ios, unsigned int nr)
{
	struct io_uring *ring = ring_get();
	unsigned int pushed = 0, in_flight = 0;

	if (!ring)
		return -ENOSYS;
	while (pushed < nr || in_flight) {
		while (pushed < nr && in_flight < RING_DEPTH &&
		       ring_push(ring, file, &ios[pushed])) {
			pushed++;
			in_flight++;
		}
		/*
		 * EINTR and a busy kernel leave all where it was: ask again. Nothing else can go
		 * wrong once the ring exists, and returning with transfers in flight would free
		 * their memory under them.
		 */
		io_uring_submit_and_wait(ring, 1);
		in_flight -= ring_reap(ring);
	}
	return 0;
}
