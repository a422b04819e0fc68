/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The FUSE side of the daemon: what session.c, workers.c and dispatch*.c share. */
#ifndef FOLIOFS_SESSION_H
#define FOLIOFS_SESSION_H

#define FUSE_USE_VERSION 35
#include <fuse3/fuse_lowlevel.h>
#include <linux/fuse.h>
#include "foliofs_ioctl.h"
#include "volume.h"

#define SESSION_MAX_WRITE (1U << 20)
#define WORKERS_MAX 16
#define SESSION_MAX_FETCHING 4

/**
 * struct session - one mount
 * @mountpoint: absolute
 * @root: has one reference for as long as the session lives
 * @pinned: pages that replies point into, now; atomic
 * @pin_limit: bound of @pinned; a read that would pass it copies instead
 * @fetching: workers that wait for the kernel's dirty pages; atomic
 * @requests: by opcode; atomic
 */
struct session {
	struct volume *volume;
	struct cache *cache;
	const struct options *options;
	struct fuse_session *se;
	char *mountpoint;
	struct vnode *root;
	uint64_t pinned, pin_limit;
	unsigned int fetching;
	uint64_t requests[FOLIOFS_REQUEST_KINDS];
};

/* Before there are threads: the signals that end a session are for session_run() alone. */
void session_block_signals(void);

/**
 * session_run - mount, serve, return when unmounted
 * @session: volume, cache, options set
 * @ready: called when mounted; an error from it ends the session
 *
 * SIGTERM, SIGINT and SIGHUP unmount. The volume stays open. Return: 0, or a negative errno after
 * one clear line was logged.
 */
int session_run(struct session *session, int (*ready)(void));

/*
 * workers.c. Serves requests in threads of its own until the file system is unmounted or
 * workers_stop() is called.
 */
struct workers;
int workers_start(struct workers **out, struct session *session);
/* Readable once the workers have seen the end. */
int workers_end_fd(const struct workers *workers);
void workers_stop(struct workers *workers);
/* Waits for all of them. Returns the error that ended them, 0 after an unmount. */
int workers_join(struct workers *workers);
/* The request that this worker is at, as the kernel sent it. */
const struct fuse_in_header *workers_current(void);

/* init.c */
int init_install(struct fuse_session *se);

/* dispatch.c */
extern const struct fuse_lowlevel_ops session_ops;

#endif
