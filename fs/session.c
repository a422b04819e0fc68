/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One mount from its beginning to its end.
 *
 * The main thread mounts, starts the workers and then waits for the first of: the workers have
 * seen the unmount; a signal. On a signal the kernel's dirty pages are fetched (syncfs) and the
 * file system is unmounted while the workers go on serving, so that nothing that was written is
 * lost. A mount that is busy is detached; its users get a short while to end.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "log.h"
#include "mountpoint.h"
#include "session.h"

#define DETACH_WAIT_MS 2000
#define DIRTY_PERCENT "20"

static void end_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGHUP);
}

/* Commas in a value would end the option. */
static char *escaped(const char *value)
{
	char *out = malloc(2 * strlen(value) + 1), *to = out;

	if (!out)
		return NULL;
	for (; *value; value++) {
		if (*value == ',' || *value == '\\')
			*to++ = '\\';
		*to++ = *value;
	}
	*to = '\0';
	return out;
}

static char *fuse_options(const struct session *session)
{
	const struct options *options = session->options;
	bool checks = !options->fakeroot || options->default_permissions;
	char *name = escaped(options->image), *all = NULL;

	if (name && asprintf(&all, "fsname=%s,subtype=foliofs%s%s%s%s", name,
			     session->volume->readonly ? ",ro" : "",
			     checks ? ",default_permissions" : "", options->fuse_opts ? "," : "",
			     options->fuse_opts ?: "") < 0)
		all = NULL;
	free(name);
	return all;
}

static int session_new(struct session *session)
{
	char *options = fuse_options(session);
	char *argv[] = {"foliofs", "-o", options, session->options->debug ? "-d" : NULL, NULL};
	struct fuse_args args = FUSE_ARGS_INIT(session->options->debug ? 4 : 3, argv);

	if (!options)
		return -ENOMEM;
	session->se = fuse_session_new(&args, &session_ops, sizeof(session_ops), session);
	fuse_opt_free_args(&args);
	free(options);
	return session->se ? 0 : -EINVAL;
}

/* Unmounts while the workers serve. */
static void unmount_now(struct session *session)
{
	int fd = open(session->mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0) {
		if (syncfs(fd) < 0)
			log_error("writing back the kernel's pages failed: %s", strerror(errno));
		close(fd);
	}
	if (mountpoint_unmount(session->mountpoint, false) &&
	    mountpoint_unmount(session->mountpoint, true))
		log_error("%s cannot be unmounted", session->mountpoint);
}

/* Waits for the end; returns when the workers have seen it or are to be stopped. */
static void wait_for_end(struct session *session, struct workers *workers, int signal_fd)
{
	struct pollfd fds[] = {
		{.fd = workers_end_fd(workers), .events = POLLIN},
		{.fd = signal_fd, .events = POLLIN},
	};

	while (poll(fds, 2, -1) < 0 && errno == EINTR)
		continue;
	if (fds[0].revents)
		return;
	unmount_now(session);
	poll(fds, 1, DETACH_WAIT_MS);
}

/*
 * Of all dirty pages that the kernel allows, it leaves a hundredth to a FUSE file system, since it
 * cannot know whether its server is to be trusted: a page that is written to twice reaches us twice.
 * The administrator may trust us with more. For others it stays as it is.
 */
static void raise_dirty_share(const struct session *session)
{
	char path[64];
	struct statx stx;
	int fd;

	if (session->options->direct_io || session->volume->readonly ||
	    statx(AT_FDCWD, session->mountpoint, AT_STATX_DONT_SYNC, STATX_TYPE, &stx) < 0)
		return;
	snprintf(path, sizeof(path), "/sys/class/bdi/%u:%u/max_ratio", stx.stx_dev_major,
		 stx.stx_dev_minor);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (write(fd, DIRTY_PERCENT, strlen(DIRTY_PERCENT)) < 0)
		log_info("%s cannot be changed: %s", path, strerror(errno));
	close(fd);
}

static int serve(struct session *session, int signal_fd, int (*ready)(void))
{
	struct workers *workers;
	int ret = workers_start(&workers, session), err;

	if (ret) {
		log_error("cannot start threads: %s", strerror(-ret));
		return ret;
	}
	raise_dirty_share(session);
	ret = ready();
	if (!ret)
		wait_for_end(session, workers, signal_fd);
	else
		unmount_now(session);
	workers_stop(workers);
	err = workers_join(workers);
	return ret ?: err;
}

static int mount_and_serve(struct session *session, int signal_fd, int (*ready)(void))
{
	int ret = session_new(session);

	if (ret) {
		log_error("cannot set up the FUSE session");
		return ret;
	}
	if (fuse_session_mount(session->se, session->mountpoint) == 0) {
		ret = init_install(session->se);
		if (ret)
			log_error("cannot set up the FUSE session: %s", strerror(-ret));
		else
			ret = serve(session, signal_fd, ready);
		fuse_session_unmount(session->se);
	} else {
		log_error("cannot mount on %s", session->mountpoint);
		ret = -EIO;
	}
	fuse_session_destroy(session->se);
	return ret;
}

void session_block_signals(void)
{
	sigset_t set;

	end_signals(&set);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
}

int session_run(struct session *session, int (*ready)(void))
{
	struct cache_stats stats;
	sigset_t set;
	int signal_fd, ret = -EMFILE;

	cache_get_stats(session->cache, &stats);
	session->pin_limit = stats.bound_bytes / PAGE_SIZE / 4;
	session->root = session->volume->ops->root(session->volume);
	session->mountpoint = realpath(session->options->mountpoint, NULL);
	end_signals(&set);
	signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
	if (signal_fd >= 0 && session->mountpoint)
		ret = mount_and_serve(session, signal_fd, ready);
	else
		log_error("cannot prepare the mount: %s", strerror(errno));
	if (signal_fd >= 0)
		close(signal_fd);
	session->volume->ops->put(session->root, 1);
	free(session->mountpoint);
	return ret;
}
