/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The threads that serve requests.
 *
 * Waking a sleeping thread is most of a small request's cost. So one worker, the poller, looks at
 * the device for a while (spin=) before it sleeps in poll(2), and serves what it finds itself;
 * the others are parked. That must not let one slow request hold up the others, so the poller
 * hands its role on to a parked worker (or a new one) before it serves a request
 *	- that is heavy by its kind or size;
 *	- that turns out to wait for the image: image_about_to_wait() calls us;
 *	- that has kept it for longer than a few milliseconds whatever the reason: a watchdog looks,
 *	  and sleeps itself while there are no requests. Before that it gives the system what
 *	  memory the forgotten files have left.
 * Handing on before every request would wake a thread for each, which is what polling saves.
 *
 * The role is a pointer. Two workers may read the device at once for a moment; that does no harm,
 * the kernel gives each request to one of them.
 *
 * Locks: pool->lock guards all that is not marked atomic; a leaf.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include "log.h"
#include "rcu.h"
#include "session.h"

#define BUFFER_SIZE (SESSION_MAX_WRITE + 4096)
#define HEAVY_BYTES (256 << 10) /* 70 us of work; to wake another thread first costs 30 */
#define WATCH_NS 4000000
#define WATCH_QUIET 64		/* looks without a request before the watchdog sleeps */
#define TRIM_TURNS 1000		/* requests that may have left memory worth giving back */

struct worker {
	struct workers *pool;
	pthread_t thread;
	char *buf;
};

struct workers {
	struct session *session;
	int fd;			/* /dev/fuse, not blocking */
	int end_fd;		/* eventfd: the end has come; never read */
	pthread_mutex_t lock;
	pthread_cond_t parked_wake, watch_wake;
	struct worker *workers[WORKERS_MAX];
	unsigned int nr, parked;
	struct worker *poller;	/* changes under the lock; atomic */
	uint64_t turns;		/* requests taken so far; atomic */
	bool busy;		/* the poller is at a request; atomic */
	bool watch_asleep;	/* changes under the lock; atomic */
	bool stopping;		/* changes under the lock; atomic */
	int error;
	pthread_t watchdog;
};

static __thread struct worker *this_worker;
static __thread const struct fuse_in_header *current_request;

const struct fuse_in_header *workers_current(void)
{
	return current_request;
}

static void *worker_main(void *arg);

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

static bool is_poller(const struct worker *worker)
{
	return __atomic_load_n(&worker->pool->poller, __ATOMIC_RELAXED) == worker;
}

static bool is_stopping(const struct workers *pool)
{
	return __atomic_load_n(&pool->stopping, __ATOMIC_RELAXED);
}

/* One more worker. The lock is held. */
static int spawn(struct workers *pool)
{
	struct worker *worker = calloc(1, sizeof(*worker));
	int ret = ENOMEM;

	if (!worker)
		return -ret;
	worker->pool = pool;
	worker->buf = malloc(BUFFER_SIZE);
	if (worker->buf)
		ret = pthread_create(&worker->thread, NULL, worker_main, worker);
	if (ret) {
		free(worker->buf);
		free(worker);
		return -ret;
	}
	pool->workers[pool->nr++] = worker;
	return 0;
}

/* @worker is the poller no more; somebody else becomes it, now or when a worker gets free. */
static void hand_over(struct worker *worker)
{
	struct workers *pool = worker->pool;

	pthread_mutex_lock(&pool->lock);
	if (pool->poller == worker && !pool->stopping) {
		__atomic_store_n(&pool->poller, NULL, __ATOMIC_RELAXED);
		__atomic_store_n(&pool->busy, false, __ATOMIC_RELAXED);
		/*
		 * Where no thread can be had, this worker becomes the poller again when it is
		 * done.
		 */
		if (pool->parked)
			pthread_cond_signal(&pool->parked_wake);
		else if (pool->nr < WORKERS_MAX)
			spawn(pool);
	}
	pthread_mutex_unlock(&pool->lock);
}

static void about_to_wait(void)
{
	if (this_worker && is_poller(this_worker))
		hand_over(this_worker);
}

/* Parks until there is no poller; false at the end. */
static bool become_poller(struct worker *worker)
{
	struct workers *pool = worker->pool;

	pthread_mutex_lock(&pool->lock);
	pool->parked++;
	while (pool->poller && !pool->stopping)
		pthread_cond_wait(&pool->parked_wake, &pool->lock);
	pool->parked--;
	if (!pool->stopping)
		__atomic_store_n(&pool->poller, worker, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&pool->lock);
	return !is_stopping(pool);
}

static void stop(struct workers *pool, int error)
{
	uint64_t one = 1;

	pthread_mutex_lock(&pool->lock);
	if (!pool->stopping) {
		pool->error = error;
		__atomic_store_n(&pool->stopping, true, __ATOMIC_RELAXED);
		pthread_cond_broadcast(&pool->parked_wake);
		pthread_cond_signal(&pool->watch_wake);
		if (write(pool->end_fd, &one, sizeof(one)) < 0)
			log_error("cannot tell of the end: %s", strerror(errno));
	}
	pthread_mutex_unlock(&pool->lock);
}

/* Sleeps until there is a request, or the end. */
static void sleep_at_device(struct workers *pool)
{
	struct pollfd fds[] = {
		{.fd = pool->fd, .events = POLLIN},
		{.fd = pool->end_fd, .events = POLLIN},
	};

	poll(fds, 2, -1);
}

/* The next request's length; 0 at the end. */
static size_t receive(struct worker *worker)
{
	struct workers *pool = worker->pool;
	uint64_t spin = pool->session->options->spin * 1000ULL;
	uint64_t until = 0;

	while (!is_stopping(pool)) {
		ssize_t n = read(pool->fd, worker->buf, BUFFER_SIZE);

		if (n > 0)
			return n;
		if (n == 0 || errno == ENODEV) {
			stop(pool, 0);
		} else if (errno == EAGAIN) {
			uint64_t now = spin ? now_ns() : 0;

			if (!until)
				until = now + spin;
			if (now >= until) {
				sleep_at_device(pool);
				until = 0;
			}
		} else if (errno != EINTR && errno != ENOENT) {
			log_error("reading requests failed: %s", strerror(errno));
			stop(pool, -errno);
		}
	}
	return 0;
}

static bool is_heavy(const struct fuse_in_header *header)
{
	switch (header->opcode) {
	case FUSE_READ:
		return ((const struct fuse_read_in *)(header + 1))->size > HEAVY_BYTES;
	case FUSE_WRITE:
		return header->len > HEAVY_BYTES;
	case FUSE_FSYNC:
	case FUSE_LSEEK:
	case FUSE_FSYNCDIR:
	case FUSE_FALLOCATE:
	case FUSE_IOCTL:
		return true;
	}
	return false;
}

static void count(struct session *session, unsigned int opcode)
{
	if (opcode >= FOLIOFS_REQUEST_KINDS)
		opcode = FOLIOFS_REQUEST_KINDS - 1;
	__atomic_add_fetch(&session->requests[opcode], 1, __ATOMIC_RELAXED);
}

static void wake_watchdog(struct workers *pool)
{
	pthread_mutex_lock(&pool->lock);
	__atomic_store_n(&pool->watch_asleep, false, __ATOMIC_RELAXED);
	pthread_cond_signal(&pool->watch_wake);
	pthread_mutex_unlock(&pool->lock);
}

static void serve(struct worker *worker, size_t len)
{
	struct workers *pool = worker->pool;
	const struct fuse_buf buf = {.size = len, .mem = worker->buf};

	current_request = (const struct fuse_in_header *)worker->buf;
	count(pool->session, current_request->opcode);
	__atomic_add_fetch(&pool->turns, 1, __ATOMIC_RELAXED);
	if (is_heavy(current_request)) {
		about_to_wait();
	} else if (is_poller(worker)) {
		__atomic_store_n(&pool->busy, true, __ATOMIC_RELAXED);
		if (__atomic_load_n(&pool->watch_asleep, __ATOMIC_RELAXED))
			wake_watchdog(pool);
	}
	fuse_session_process_buf(pool->session->se, &buf);
	if (is_poller(worker))
		__atomic_store_n(&pool->busy, false, __ATOMIC_RELAXED);
}

static void *worker_main(void *arg)
{
	struct worker *worker = arg;

	this_worker = worker;
	rcu_register_thread();
	while (become_poller(worker)) {
		do {
			size_t len = receive(worker);

			if (!len)
				break;
			serve(worker, len);
		} while (is_poller(worker));
	}
	rcu_unregister_thread();
	return NULL;
}

/* Waits for the next look. The lock is held. */
static void watch_sleep(struct workers *pool)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += WATCH_NS;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	pthread_cond_timedwait(&pool->watch_wake, &pool->lock, &until);
}

/* The lock is held, but for the work itself. */
static void give_back_memory(struct workers *pool)
{
	pthread_mutex_unlock(&pool->lock);
	malloc_trim(0);
	pthread_mutex_lock(&pool->lock);
}

static void *watchdog_main(void *arg)
{
	struct workers *pool = arg;
	uint64_t last = 0, trimmed = 0;
	unsigned int quiet = 0;

	pthread_mutex_lock(&pool->lock);
	while (!pool->stopping) {
		uint64_t turns = __atomic_load_n(&pool->turns, __ATOMIC_RELAXED);
		struct worker *poller = pool->poller;
		bool stuck = turns == last && poller &&
			     __atomic_load_n(&pool->busy, __ATOMIC_RELAXED);

		quiet = turns == last ? quiet + 1 : 0;
		last = turns;
		if (stuck) {
			pthread_mutex_unlock(&pool->lock);
			hand_over(poller);
			pthread_mutex_lock(&pool->lock);
			quiet = 0;
		} else if (quiet > WATCH_QUIET && turns - trimmed > TRIM_TURNS) {
			trimmed = turns;
			give_back_memory(pool);
		} else if (quiet > WATCH_QUIET) {
			__atomic_store_n(&pool->watch_asleep, true, __ATOMIC_RELAXED);
			while (pool->watch_asleep && !pool->stopping)
				pthread_cond_wait(&pool->watch_wake, &pool->lock);
			quiet = 0;
		}
		if (!pool->stopping)
			watch_sleep(pool);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

static void pool_free(struct workers *pool)
{
	image_about_to_wait = NULL;
	for (unsigned int i = 0; i < pool->nr; i++) {
		free(pool->workers[i]->buf);
		free(pool->workers[i]);
	}
	if (pool->end_fd >= 0)
		close(pool->end_fd);
	pthread_cond_destroy(&pool->parked_wake);
	pthread_cond_destroy(&pool->watch_wake);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

static struct workers *pool_alloc(struct session *session)
{
	struct workers *pool = calloc(1, sizeof(*pool));
	pthread_condattr_t attr;
	int flags;

	if (!pool)
		return NULL;
	pool->session = session;
	pool->fd = fuse_session_fd(session->se);
	pool->end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&pool->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&pool->parked_wake, NULL);
	pthread_cond_init(&pool->watch_wake, &attr);
	pthread_condattr_destroy(&attr);
	flags = fcntl(pool->fd, F_GETFL);
	if (pool->end_fd < 0 || flags < 0 || fcntl(pool->fd, F_SETFL, flags | O_NONBLOCK) < 0) {
		pool_free(pool);
		return NULL;
	}
	return pool;
}

/**
 * workers_start() - begin to serve
 * @out: the pool, when 0 is returned
 * @session: mounted
 *
 * Context: signals that the threads must not take are blocked. One pool at a time.
 * Return: 0 or a negative errno, nothing logged.
 */
int workers_start(struct workers **out, struct session *session)
{
	struct workers *pool = pool_alloc(session);
	int ret;

	if (!pool)
		return -ENOMEM;
	image_about_to_wait = about_to_wait;
	ret = -pthread_create(&pool->watchdog, NULL, watchdog_main, pool);
	if (ret) {
		pool_free(pool);
		return ret;
	}
	pthread_mutex_lock(&pool->lock);
	ret = spawn(pool);
	pthread_mutex_unlock(&pool->lock);
	if (ret) {
		stop(pool, ret);
		workers_join(pool);
		return ret;
	}
	*out = pool;
	return 0;
}

int workers_end_fd(const struct workers *pool)
{
	return pool->end_fd;
}

/**
 * workers_stop() - serve no more
 * @pool: requests under way are ended, those that wait are not taken
 *
 * Context: any thread.
 */
void workers_stop(struct workers *pool)
{
	stop(pool, 0);
}

/**
 * workers_join() - wait for all threads, and free the pool
 * @pool: its end has come, or comes
 *
 * Context: not a worker. Sleeps.
 * Return: the error that ended them, or 0.
 */
int workers_join(struct workers *pool)
{
	int ret;

	/*
	 * No worker starts another one once the end has come, and it comes before the first one
	 * returns.
	 */
	pthread_join(pool->watchdog, NULL);
	for (unsigned int i = 0; i < pool->nr; i++)
		pthread_join(pool->workers[i]->thread, NULL);
	ret = pool->error;
	pool_free(pool);
	return ret;
}
