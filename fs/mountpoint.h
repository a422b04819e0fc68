/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FOLIOFS_MOUNTPOINT_H
#define FOLIOFS_MOUNTPOINT_H

#include <stdbool.h>
#include <stdint.h>

/* 0 when a file system can be mounted there by this user; else -1 after one clear line. */
int mountpoint_check(const char *path);
/* umount(2), or fusermount3 for those who may not; @detach: also when busy. 0 or -1. */
int mountpoint_unmount(const char *path, bool detach);
/* Number of the pid namespace that this process is in; 0 where that cannot be told. */
uint64_t pid_namespace(void);

/* The commands: `foliofs umount` and `foliofs stats`. They return the exit status. */
int umount_main(int argc, char **argv);
int stats_main(int argc, char **argv);

#endif
