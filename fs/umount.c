/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Mount points, and the command `foliofs umount MOUNTPOINT`.
 *
 * umount(8) returns when the kernel has let go of a FUSE file system, but the daemon may still be
 * writing to the image. The command has everything written first (so that an error is told here),
 * unmounts, and waits for the daemon's end: the image is free then.
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

/* Everything to the image. The daemon's pid in *@pid; 0 where it means nothing here. */
static int write_all(const char *path, pid_t *pid)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct foliofs_stats stats;
	int ret = 0;

	if (fd < 0 || ioctl(fd, FOLIOFS_IOC_STATS, &stats) < 0) {
		log_error("%s is not a foliofs mount", path);
		ret = -1;
	} else if (syncfs(fd) < 0 || ioctl(fd, FOLIOFS_IOC_SYNC) < 0) {
		log_error("writing back %s failed: %s", path, strerror(errno));
		ret = -1;
	} else {
		*pid = stats.pid_namespace == pid_namespace() ? stats.pid : 0;
	}
	if (fd >= 0)
		close(fd);
	return ret;
}

int umount_main(int argc, char **argv)
{
	struct pollfd daemon = {.fd = -1, .events = POLLIN};
	pid_t pid;

	if (argc != 2) {
		log_error("usage: foliofs umount MOUNTPOINT");
		return 1;
	}
	if (write_all(argv[1], &pid) < 0)
		return 1;
	if (pid)
		daemon.fd = syscall(SYS_pidfd_open, pid, 0);
	if (mountpoint_unmount(argv[1], false) < 0) {
		log_error("%s cannot be unmounted: %s", argv[1],
			  errno ? strerror(errno) : "fusermount3 failed");
		return 1;
	}
	while (daemon.fd >= 0 && poll(&daemon, 1, -1) < 0 && errno == EINTR)
		continue;
	return 0;
}
