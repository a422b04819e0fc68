/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef FOLIOFS_OPTIONS_H
#define FOLIOFS_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum errors_policy { ERRORS_DEFAULT, ERRORS_CONTINUE, ERRORS_REMOUNT_RO, ERRORS_PANIC };

struct options {
	const char *image, *mountpoint;
	bool ro, raw, direct_io, norecovery, fakeroot, foreground, debug, minixdf, acl;
	bool allow_other, default_permissions;
	bool help, version;
	uint64_t offset, cache_size, readahead;	/* bytes */
	unsigned int commit;		/* seconds */
	unsigned int spin;		/* microseconds; 0: off */
	enum errors_policy errors;
	uid_t uid;
	gid_t gid;
	bool set_uid, set_gid;
	char *lockfile;			/* made while mounted; NULL: none */
	char *fuse_opts;		/* what libfuse is to see, comma-separated; NULL: nothing */
};

/* Defaults, then the command line. 0, or -EINVAL or -ENOMEM after one clear line was logged. */
int options_parse(struct options *options, int argc, char **argv);
void options_finish(struct options *options);
/* The help, made from the table. */
void options_print_help(void);

#endif
