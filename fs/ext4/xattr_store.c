/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Extended attributes of an inode on the image, through libext2fs.
 *
 * The library keeps them in the inode behind its fixed fields, then in one block (which inodes may
 * share), and big values in inodes of their own where the file system allows that. It reads the
 * inode from our raw, and writes a copy of its own: so raw is written before a change and read
 * back after it.
 *
 * Most questions are about attributes that are not there (security.capability, before each first
 * write to a file): when the inode has no block, its own few entries answer them without the
 * library.
 *
 * ACLs are asked for and given in the image's form (the library would convert them, but not check).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "map.h"
#include "xattr.h"

/* Name prefixes that the image stores as a number. The first that fits counts. */
static const struct {
	const char *prefix;
	uint8_t index;
} prefixes[] = {
	{"system.posix_acl_access", 2},
	{"system.posix_acl_default", 3},
	{"system.richacl", 8},
	{"system.", 7},
	{"security.", 6},
	{"trusted.", 4},
	{"user.", 1},
};

static const char *split_name(const char *name, uint8_t *index)
{
	for (unsigned int i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
		size_t len = strlen(prefixes[i].prefix);

		if (!strncmp(name, prefixes[i].prefix, len)) {
			*index = prefixes[i].index;
			return name + len;
		}
	}
	*index = 0;
	return name;
}

static uint64_t xattr_block(struct ext4_inode *inode)
{
	return ext2fs_file_acl_block(ext4_vol(inode)->fs, (struct ext2_inode *)&inode->raw);
}

/* The entries in the inode itself: NULL when it has none. */
static const char *body_entries(struct ext4_inode *inode, size_t *size)
{
	size_t start = EXT2_GOOD_OLD_INODE_SIZE + inode->raw.i_extra_isize;
	const char *raw = (const char *)ext4_raw_bytes(inode);
	uint32_t magic;

	if (inode->raw_size <= EXT2_GOOD_OLD_INODE_SIZE || start + sizeof(magic) >= inode->raw_size)
		return NULL;
	memcpy(&magic, raw + start, sizeof(magic));
	*size = inode->raw_size - start - sizeof(magic);
	return magic == EXT2_EXT_ATTR_MAGIC ? raw + start + sizeof(magic) : NULL;
}

/**
 * xattr_maybe - may an inode have an attribute?
 * @inode: inode
 * @name: full name
 *
 * Context: inode lock held; does not sleep.
 * Return: false when it surely has not.
 */
bool xattr_maybe(struct ext4_inode *inode, const char *name)
{
	size_t left = 0, len;
	const char *at = body_entries(inode, &left);
	uint8_t index;

	if (xattr_block(inode))
		return true;
	name = split_name(name, &index);
	len = strlen(name);
	while (at && left >= sizeof(struct ext2_ext_attr_entry)) {
		const struct ext2_ext_attr_entry *entry = (const void *)at;
		size_t step = EXT2_EXT_ATTR_LEN(entry->e_name_len);

		if (EXT2_EXT_IS_LAST_ENTRY(entry))
			return false;
		/* The library tells what is wrong with it. */
		if (step > left)
			return true;
		if (entry->e_name_index == index && entry->e_name_len == len &&
		    !memcmp(EXT2_EXT_ATTR_NAME(entry), name, len))
			return true;
		at += step;
		left -= step;
	}
	return false;
}

static bool has_any(struct ext4_inode *inode)
{
	size_t size = 0;
	const char *at = body_entries(inode, &size);

	return xattr_block(inode) ||
	       (at && size >= sizeof(uint32_t) && !EXT2_EXT_IS_LAST_ENTRY(at));
}

static int failed(struct ext4_inode *inode, errcode_t err)
{
	return ext4_failed(ext4_vol(inode), inode->vn.ino, err, "extended attributes");
}

/* Opens the library's handle and reads all attributes into it. */
static int open_handle(struct ext4_inode *inode, struct ext2_xattr_handle **handle)
{
	unsigned int flags = XATTR_HANDLE_FLAG_RAW;
	errcode_t err;

	err = ext2fs_xattrs_open(ext4_vol(inode)->fs, inode->vn.ino, handle);
	if (err)
		return failed(inode, err);
	ext2fs_xattrs_flags(*handle, &flags, NULL);
	err = ext2fs_xattrs_read_inode(*handle, &inode->raw);
	if (!err)
		return 0;
	ext2fs_xattrs_close(handle);
	return failed(inode, err);
}

/**
 * xattr_read - value of an attribute
 * @inode: inode
 * @name: full name
 * @value: out: the value in the image's form, to be freed
 * @len: out: its bytes
 *
 * Context: inode lock and volume lock held; may sleep.
 * Return: 0, -ENODATA, -EUCLEAN or another error.
 */
int xattr_read(struct ext4_inode *inode, const char *name, void **value, size_t *len)
{
	struct ext2_xattr_handle *handle;
	errcode_t err;
	int ret;

	if (!xattr_maybe(inode, name))
		return -ENODATA;
	ret = open_handle(inode, &handle);
	if (ret)
		return ret;
	err = ext2fs_xattr_get(handle, name, value, len);
	ext2fs_xattrs_close(&handle);
	return err ? failed(inode, err) : 0;
}

/* Blocks of values in inodes of their own, by the entries from @at on. */
static uint64_t value_blocks(struct ext4_inode *inode, const char *at, size_t left)
{
	unsigned int size = ext4_vol(inode)->fs->blocksize;
	uint64_t blocks = 0;

	while (at && left >= sizeof(struct ext2_ext_attr_entry) && !EXT2_EXT_IS_LAST_ENTRY(at)) {
		const struct ext2_ext_attr_entry *entry = (const void *)at;
		size_t step = EXT2_EXT_ATTR_LEN(entry->e_name_len);

		if (step > left)
			break;
		if (entry->e_value_inum)
			blocks += (entry->e_value_size + size - 1) / size;
		at += step;
		left -= step;
	}
	return blocks;
}

/*
 * What the library does not look after when values move to inodes of their own and back: the blocks
 * of such values count as the file's, and groups that have lost or gained inodes are to be written.
 */
struct value_inodes {
	uint64_t blocks;
	uint32_t *free; /* inodes, by group */
};

static int count_blocks(struct ext4_inode *inode, uint64_t *blocks)
{
	const size_t header = sizeof(struct ext2_ext_attr_header);
	char buf[EXT2_MAX_BLOCK_SIZE] __attribute__((aligned(8)));
	size_t size = 0;
	const char *body = body_entries(inode, &size);
	int err;

	*blocks = value_blocks(inode, body, size);
	if (!xattr_block(inode))
		return 0;
	err = device_read(ext4_vol(inode), xattr_block(inode), buf);
	if (!err)
		*blocks +=
			value_blocks(inode, buf + header, ext4_vol(inode)->fs->blocksize - header);
	return err;
}

static int value_inodes_note(struct ext4_inode *inode, struct value_inodes *note)
{
	ext2_filsys fs = ext4_vol(inode)->fs;

	note->free = NULL;
	if (!ext2fs_has_feature_ea_inode(fs->super))
		return 0;
	note->free = calloc(fs->group_desc_count, sizeof(*note->free));
	if (!note->free)
		return -ENOMEM;
	for (dgrp_t i = 0; i < fs->group_desc_count; i++)
		note->free[i] = ext2fs_bg_free_inodes_count(fs, i);
	return count_blocks(inode, &note->blocks);
}

/* After the change. */
static int value_inodes_settle(struct ext4_inode *inode, struct value_inodes *note)
{
	ext2_filsys fs = ext4_vol(inode)->fs;
	uint64_t blocks;
	int err;

	if (!note->free)
		return 0;
	for (dgrp_t i = 0; i < fs->group_desc_count; i++)
		if (note->free[i] != ext2fs_bg_free_inodes_count(fs, i))
			commit_mark_group(ext4_vol(inode), i);
	err = count_blocks(inode, &blocks);
	if (err || blocks == note->blocks)
		return err;
	map_count_blocks(inode, (int64_t)(blocks - note->blocks));
	return ext4_inode_write(inode);
}

/* The library leaves an empty block behind. */
static int free_empty_block(struct ext4_inode *inode)
{
	char buf[EXT2_MAX_BLOCK_SIZE] __attribute__((aligned(8)));
	errcode_t err;
	int ret;

	if (!xattr_block(inode))
		return 0;
	ret = device_read(ext4_vol(inode), xattr_block(inode), buf);
	if (ret || !EXT2_EXT_IS_LAST_ENTRY(buf + sizeof(struct ext2_ext_attr_header)))
		return ret;
	err = ext2fs_free_ext_attr(ext4_vol(inode)->fs, inode->vn.ino, &inode->raw);
	return err ? failed(inode, err) : ext4_inode_write(inode);
}

static int call_library(struct ext4_inode *inode, const char *name, const void *value, size_t len)
{
	struct ext2_xattr_handle *handle;
	errcode_t err;
	int ret, ret2;

	ret = open_handle(inode, &handle);
	if (ret)
		return ret;
	err = value ? ext2fs_xattr_set(handle, name, value, len)
		    : ext2fs_xattr_remove(handle, name);
	ext2fs_xattrs_close(&handle);
	ret = err ? failed(inode, err) : 0;
	ret2 = ext4_inode_reload(inode);
	return ret ? ret : ret2;
}

/* Sets @value, or removes. */
static int change(struct ext4_inode *inode, const char *name, const void *value, size_t len)
{
	struct value_inodes note;
	int ret, ret2;

	ret = ext4_inode_write(inode);
	if (ret)
		return ret;
	ret = value_inodes_note(inode, &note);
	if (!ret) {
		ret = call_library(inode, name, value, len);
		ret2 = value_inodes_settle(inode, &note);
		ret = ret ? ret : ret2;
	}
	free(note.free);
	return ret ? ret : free_empty_block(inode);
}

/**
 * xattr_write - set an attribute
 * @inode: inode; written, with all that has been changed in raw before
 * @name: full name
 * @value: value in the image's form
 * @len: its bytes
 *
 * Context: inode lock exclusive, between begin and end; may sleep.
 * Return: 0, -ENOSPC or another error.
 */
int xattr_write(struct ext4_inode *inode, const char *name, const void *value, size_t len)
{
	struct ext4_volume *vol = ext4_vol(inode);

	if (!ext2fs_has_feature_xattr(vol->fs->super)) {
		ext2fs_set_feature_xattr(vol->fs->super);
		commit_mark_super(vol);
	}
	return change(inode, name, value, len);
}

/**
 * xattr_remove - remove an attribute
 * @inode: inode; written, with all that has been changed in raw before
 * @name: full name
 *
 * Context: inode lock exclusive, between begin and end; may sleep.
 * Return: 0, -ENODATA or another error.
 */
int xattr_remove(struct ext4_inode *inode, const char *name)
{
	void *value;
	size_t len;
	int err;

	err = xattr_read(inode, name, &value, &len);
	if (err)
		return err;
	free(value);
	return change(inode, name, NULL, 0);
}

struct each {
	int (*func)(const char *name, void *arg);
	void *arg;
	int err;
};

static int each_name(char *name, char *value, size_t len, void *arg)
{
	struct each *each = arg;

	(void)value, (void)len;
	each->err = each->func(name, each->arg);
	return each->err ? XATTR_ABORT : 0;
}

/**
 * xattr_each - call a function for the name of each attribute
 * @inode: inode
 * @func: function; an error from it ends the walk
 * @arg: for @func
 *
 * Context: inode lock and volume lock held; may sleep.
 * Return: 0, the error of @func, or why the attributes cannot be read.
 */
int xattr_each(struct ext4_inode *inode, int (*func)(const char *name, void *arg), void *arg)
{
	struct each each = {.func = func, .arg = arg};
	struct ext2_xattr_handle *handle;
	int err;

	if (!has_any(inode))
		return 0;
	err = open_handle(inode, &handle);
	if (err)
		return err;
	ext2fs_xattrs_iterate(handle, each_name, &each);
	ext2fs_xattrs_close(&handle);
	return each.err;
}

/* Keeps one name, and stops. */
static int keep_name(const char *name, void *arg)
{
	char **kept = arg;

	*kept = strdup(name);
	return *kept ? -ECANCELED : -ENOMEM;
}

/* Values in inodes of their own go one by one. */
static int remove_all(struct ext4_inode *inode)
{
	for (;;) {
		char *name = NULL;
		int err = xattr_each(inode, keep_name, &name);

		if (err != -ECANCELED)
			return err;
		err = change(inode, name, NULL, 0);
		free(name);
		if (err)
			return err;
	}
}

/**
 * xattr_free - give back what the attributes of an inode take
 * @inode: inode that is being deleted
 *
 * Context: between begin and end, nobody else knows @inode; may sleep.
 * Return: 0 or a negative errno. The inode is not written.
 */
int xattr_free(struct ext4_inode *inode)
{
	ext2_filsys fs = ext4_vol(inode)->fs;
	errcode_t err;

	if (ext2fs_has_feature_ea_inode(fs->super))
		return remove_all(inode);
	if (!xattr_block(inode))
		return 0;
	err = ext2fs_free_ext_attr(fs, inode->vn.ino, &inode->raw);
	return err ? failed(inode, err) : 0;
}
