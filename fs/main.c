/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * foliofs [-o options] IMAGE MOUNTPOINT
 *
 * The checks that need no change of anything come first, then the image (opened and locked), the
 * cache, the volume, the mount. What fails is told in one line on standard error, with exit
 * status 1, and what was set up before it is taken down.
 *
 * Without -f the work is done in a child, and the parent waits for it: threads, rings and locks
 * are all made after the fork. The child says through a pipe when it has mounted; when it ends
 * without that, its messages have been seen and the parent fails, too.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "log.h"
#include "mountpoint.h"
#include "progress.h"
#include "rcu.h"
#include "session.h"

#ifndef FOLIOFS_VERSION
#define FOLIOFS_VERSION "0"
#endif

#define ARENAS 2

static int ready_fd = -1;	/* the parent's ear; -1 in the foreground */

/* Mounted: let the parent go, and what it had of the terminal. */
static int tell_ready(void)
{
	int null;

	if (ready_fd < 0)
		return 0;
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0 || chdir("/") < 0) {
		log_error("cannot go to the background: %s", strerror(errno));
		return -errno;
	}
	log_background();
	if (write(ready_fd, "", 1) < 0)
		return -errno;
	close(ready_fd);
	for (int fd = 0; fd <= 2; fd++)
		dup2(null, fd);
	close(null);
	return 0;
}

/* In the parent: exit status once the child has mounted or ended. */
static int wait_for_child(pid_t pid, int fd)
{
	char byte;
	int status;
	ssize_t n;

	do {
		n = read(fd, &byte, 1);
	} while (n < 0 && errno == EINTR);
	if (n == 1)
		return 0;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	if (WIFSIGNALED(status))
		log_error("the daemon was ended by signal %d", WTERMSIG(status));
	return 1;
}

/* Returns in the child alone. */
static void go_background(void)
{
	int fds[2];
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0 || (pid = fork()) < 0) {
		log_error("cannot start the daemon: %s", strerror(errno));
		exit(1);
	}
	if (pid) {
		close(fds[1]);
		exit(wait_for_child(pid, fds[0]));
	}
	close(fds[0]);
	ready_fd = fds[1];
	setsid();
}

static int open_volume(struct session *session, struct image *image)
{
	const struct options *options = session->options;
	struct volume **out = &session->volume;

	return options->raw ? raw_open(out, image, session->cache, options)
			    : ext4_open(out, image, session->cache, options);
}

/* Dirty bytes of the cache. */
static uint64_t bytes_left(void *cache)
{
	struct cache_stats stats;

	cache_get_stats(cache, &stats);
	return stats.dirty_bytes + stats.writeback_bytes;
}

static int close_volume(struct session *session)
{
	struct progress progress = {
		.what = session->options->image,
		.left = bytes_left,
		.arg = session->cache,
	};
	int err;

	progress_begin(&progress);
	err = session->volume->ops->close(session->volume);
	progress_end(&progress);
	return err;
}

static int serve_volume(struct session *session)
{
	int ret = session_run(session, tell_ready);
	int err = close_volume(session);

	if (err)
		log_error("writing back %s failed: %s", session->options->image, strerror(-err));
	return ret ?: err;
}

static int serve_image(const struct options *options, struct image *image)
{
	struct session session = {.options = options};
	const struct cache_config config = {
		.bytes = options->cache_size,
		.readahead_bytes = options->readahead,
		.dirty_expire_ms = options->commit * 1000,
	};
	int ret = cache_create(&session.cache, &config);

	if (ret) {
		log_error("cannot set up a cache of %llu MiB: %s",
			  (unsigned long long)options->cache_size >> 20, strerror(-ret));
		return ret;
	}
	ret = open_volume(&session, image);
	if (!ret)
		ret = serve_volume(&session);
	cache_destroy(session.cache);
	return ret;
}

static int serve(struct options *options)
{
	const struct image_options how = {.offset = options->offset, .readonly = options->ro};
	struct image *image;
	int ret = image_file_open(&image, options->image, &how);

	if (ret)
		return ret;
	session_block_signals();
	rcu_register_thread();
	ret = serve_image(options, image);
	rcu_unregister_thread();
	image_close(image);
	return ret;
}

/* Makes the lock file and finds its absolute name, as the daemon leaves its directory. */
static int make_lockfile(struct options *options)
{
	int fd = open(options->lockfile, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	char *path = fd < 0 ? NULL : realpath(options->lockfile, NULL);

	if (!path) {
		log_error("cannot make the lock file %s: %s", options->lockfile, strerror(errno));
		return -1;
	}
	close(fd);
	free(options->lockfile);
	options->lockfile = path;
	return 0;
}

static int mount_main(struct options *options)
{
	int ret;

	if (mountpoint_check(options->mountpoint) < 0)
		return 1;
	if (!options->foreground)
		go_background();
	if (options->lockfile && make_lockfile(options) < 0)
		return 1;
	ret = serve(options);
	if (options->lockfile)
		unlink(options->lockfile);
	return ret ? 1 : 0;
}

/* Descriptors 0 to 2 are there, so that no image takes their place and gets our messages. */
static void keep_standard_fds(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR);
	} while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

int main(int argc, char **argv)
{
	struct options options;
	int status = 1;

	/* Many threads, few of them at work at a time: more arenas would keep more memory unused. */
	mallopt(M_ARENA_MAX, ARENAS);
	keep_standard_fds();
	signal(SIGPIPE, SIG_IGN);
	if (argc > 1 && !strcmp(argv[1], "stats"))
		return stats_main(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "umount"))
		return umount_main(argc - 1, argv + 1);
	if (options_parse(&options, argc, argv) == 0) {
		status = 0;
		if (options.help)
			options_print_help();
		else if (options.version)
			printf("foliofs %s\n", FOLIOFS_VERSION);
		else
			status = mount_main(&options);
	}
	options_finish(&options);
	return status;
}
