/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An ext4 image for tests: made by mkfs in a temporary file, opened through a small image of our
 * own on that file (which can be told to fail), closed, and checked with e2fsck.
 *
 * Call everything inside a test (it starts threads). Failures are criterion assertions.
 */
#ifndef EXT4_FIXTURE_H
#define EXT4_FIXTURE_H

#include "ext4/ext4.h"
#include "record.h"

struct fixture {
	char path[64];
	int fd;
	struct image image;
	struct cache *cache;
	struct volume *volume;		/* NULL while closed */
	struct options options;		/* for the next fixture_open() */
	size_t cache_bytes;		/* the same */
	size_t readahead_bytes;		/* the same; 0: no threads that read by themselves */
	unsigned int expire_ms;		/* the same: age of dirty folios; 0: 5 seconds */
	bool readonly;			/* the same: the image cannot be written */
	/*
	 * Faults: the request number from which on reads or writes fail (counted from 1), 0: never.
	 * atomic
	 */
	long reads, writes;
	long fail_reads_from, fail_writes_from;
	bool fail_once;			/* only that request fails */
	uint64_t bad_start, bad_end;	/* writes that touch these bytes fail; atomic */
	long flushes, fail_flush;	/* so far; the one that fails, 0: none */
	long failures;			/* requests that have failed so far; atomic */
	/* Called around each write, when not NULL. No lock of the fixture is held. */
	void (*around_write)(struct fixture *f, const struct image_io *io, bool after);
	struct record *record;		/* of all writes and flushes, when not NULL */
};

/* mkfs.ext4 -F with @mkfs_options on a new file of @bytes. */
void fixture_format(struct fixture *f, uint64_t bytes, const char *mkfs_options);
/* The same over bytes that are not zero. */
void fixture_format_on(struct fixture *f, uint64_t bytes, const char *mkfs_options, int fill);
/* Returns what ext4_open() returned. */
int fixture_open(struct fixture *f);
/* Closes the volume; returns what ->close returned. */
int fixture_close(struct fixture *f);
/* As the machine's crash would: nothing that is only in memory reaches the file. */
void fixture_crash(struct fixture *f);
/* e2fsck -fn: its exit status. Prints what it says when that is not 0. */
int fixture_fsck(struct fixture *f);
/* Closes, asserts that closing succeeded and e2fsck has nothing to say, and removes the file. */
void fixture_finish(struct fixture *f);
/* Removes the file without looking at it; the volume is closed. */
void fixture_drop(struct fixture *f);
/* Runs a command line with the image's path at %s; returns its exit status. */
int fixture_run(struct fixture *f, const char *format);

static inline struct ext4_volume *fixture_vol(struct fixture *f)
{
	return EXT4_VOL(f->volume);
}

extern const struct cred fixture_root;	/* privileged, 0:0, no umask */

/* Paths from the root, "a/b"; "" is the root. A reference to be put, asserted to be there. */
struct vnode *fixture_find(struct fixture *f, const char *path);
struct vnode *fixture_create(struct fixture *f, const char *path, mode_t mode);
void fixture_put(struct fixture *f, struct vnode *node);
/* Writes all of a new or old regular file. */
void fixture_write(struct fixture *f, const char *path, const void *buf, size_t len);

#endif
