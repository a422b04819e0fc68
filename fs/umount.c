/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Mount points, and the command `foliofs umount MOUNTPOINT`.
 *
 * umount(8) returns when the kernel has let go of a FUSE file system, but the daemon may still be
 * writing to the image. The command has everything written first (so that an error is told here),
 * unmounts, and waits for the daemon's end: the image is free then. In another pid namespace the
 * daemon cannot be waited for, and a warning says so.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "foliofs_ioctl.h"
#include "log.h"
#include "mountpoint.h"
#include "progress.h"

int mountpoint_check(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0) {
		log_error("cannot use the mount point %s: %s", path, strerror(errno));
		return -1;
	}
	if (!S_ISDIR(st.st_mode)) {
		log_error("the mount point %s is not a directory", path);
		return -1;
	}
	if (access(path, W_OK | X_OK) < 0) {
		log_error("cannot use the mount point %s: %s", path, strerror(errno));
		return -1;
	}
	if (access("/dev/fuse", F_OK) < 0) {
		log_error("/dev/fuse is missing: the kernel's FUSE is not there");
		return -1;
	}
	return 0;
}

int mountpoint_unmount(const char *path, bool detach)
{
	int status;
	pid_t pid;

	if (umount2(path, UMOUNT_NOFOLLOW | (detach ? MNT_DETACH : 0)) == 0)
		return 0;
	if (errno != EPERM)
		return -1;
	pid = vfork();
	if (pid == 0) {
		execlp("fusermount3", "fusermount3", detach ? "-uz" : "-u", "-q", "--", path, NULL);
		_exit(127);
	}
	if (pid < 0)
		return -1;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

uint64_t pid_namespace(void)
{
	struct stat st;

	return stat("/proc/self/ns/pid", &st) < 0 ? 0 : st.st_ino;
}

static uint64_t bytes_left(void *fd)
{
	struct foliofs_stats stats;

	if (ioctl(*(int *)fd, FOLIOFS_IOC_STATS, &stats) < 0)
		return 0;
	return stats.dirty_bytes + stats.writeback_bytes;
}

/* Everything to the image. */
static int write_all(const char *path, int fd)
{
	struct progress progress = {.what = path, .left = bytes_left, .arg = &fd};
	int ret = 0;

	progress_begin(&progress);
	if (syncfs(fd) < 0 || ioctl(fd, FOLIOFS_IOC_SYNC) < 0) {
		log_error("writing back %s failed: %s", path, strerror(errno));
		ret = -1;
	}
	progress_end(&progress);
	return ret;
}

/* A descriptor that tells of the daemon's end; -1: there is nothing to be waited for. */
static int open_daemon(const struct foliofs_stats *stats)
{
	int daemon = -1;

	errno = ESRCH;
	if (stats->pid_namespace == pid_namespace())
		daemon = syscall(SYS_pidfd_open, stats->pid, 0);
	if (daemon < 0)
		log_warn("the daemon cannot be waited for (%s): it may use the image for a moment yet",
			 strerror(errno));
	return daemon;
}

/* Everything to the image, and who is to be waited for. Return: -1, and it was told why not. */
static int prepare(const char *path, struct foliofs_stats *stats)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), ret = -1;

	if (fd < 0 || ioctl(fd, FOLIOFS_IOC_STATS, stats) < 0)
		log_error("%s is not a foliofs mount", path);
	else
		ret = write_all(path, fd);
	if (fd >= 0)
		close(fd);
	return ret;
}

int umount_main(int argc, char **argv)
{
	struct pollfd daemon = {.events = POLLIN};
	struct foliofs_stats stats;

	if (argc != 2) {
		log_error("usage: foliofs umount MOUNTPOINT");
		return 1;
	}
	if (prepare(argv[1], &stats) < 0)
		return 1;
	daemon.fd = open_daemon(&stats);
	if (mountpoint_unmount(argv[1], false) < 0) {
		log_error("%s cannot be unmounted: %s", argv[1],
			  errno ? strerror(errno) : "fusermount3 failed");
		return 1;
	}
	while (daemon.fd >= 0 && poll(&daemon, 1, -1) < 0 && errno == EINTR)
		continue;
	return 0;
}
