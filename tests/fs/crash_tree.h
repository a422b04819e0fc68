/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The tree of an ext4 image as text, read by libext2fs alone: one line for each name, with what is to
 * be equal on two images. Used by the crash tests, whose files say what belongs into them.
 */
#ifndef FOLIOFS_TESTS_CRASH_TREE_H
#define FOLIOFS_TESTS_CRASH_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Each 512 bytes of a file begin with this. A file's owner is the number that is in all of it, so
 * what belongs to another file, or to none, is seen.
 */
struct crash_stamp {
	uint32_t file;		/* i_uid */
	uint32_t version;	/* of the content */
	uint64_t pos;
};

struct crash_file {
	char *path;
	uint32_t file;
	uint64_t size;
	uint32_t hash;		/* of the content */
	uint32_t version;	/* of the first stamp; 0: none */
	bool whole;		/* all stamps are of this version, none is missing */
};

struct crash_tree {
	struct crash_file *files;	/* regular ones */
	size_t nr, room;
	char *text;
	size_t len;
	unsigned int foreign;	/* sectors with what does not belong there */
};

/* 0, or an error of libext2fs. */
long crash_tree_read(struct crash_tree *tree, const char *path);
void crash_tree_free(struct crash_tree *tree);
const struct crash_file *crash_tree_find(const struct crash_tree *tree, const char *path);

#endif
