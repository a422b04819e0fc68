/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Extended attributes: what xattr.c, xattr_store.c and acl.c share.
 *
 * xattr_store.c	values of an inode by name, as the image has them
 * xattr.c		the operations: names that users may see and set, flags, sizes
 * acl.c		POSIX ACLs: their two forms, inheritance, their tie to the mode
 */
#ifndef FOLIOFS_EXT4_XATTR_H
#define FOLIOFS_EXT4_XATTR_H

#include "ext4.h"

#define XATTR_ACL_ACCESS "system.posix_acl_access"
#define XATTR_ACL_DEFAULT "system.posix_acl_default"
#define XATTR_INLINE_DATA "system.data"	/* what of inline data does not fit into i_block */

/*
 * xattr_store.c. Inode lock held, exclusively for changes; volume lock held, between begin and end
 * for changes. Values are in the image's form. What is changed is written, raw is up to date.
 */
/* False when the inode surely has no such attribute; needs the inode lock only. */
bool xattr_maybe(struct ext4_inode *inode, const char *name);
/* @value is to be freed. -ENODATA. */
int xattr_read(struct ext4_inode *inode, const char *name, void **value, size_t *len);
int xattr_write(struct ext4_inode *inode, const char *name, const void *value, size_t len);
int xattr_remove(struct ext4_inode *inode, const char *name);	/* -ENODATA */
/* Calls @func for each name until it returns an error. */
int xattr_each(struct ext4_inode *inode, int (*func)(const char *name, void *arg), void *arg);

/* acl.c */
bool acl_is_name(const char *name);
/* From the form of the image to that of getxattr(2); @out is to be freed. */
int acl_to_xattr(const void *value, size_t len, void **out, size_t *out_len);
int acl_set(struct ext4_inode *inode, const char *name, const void *value, size_t len,
	    const struct cred *cred);
int acl_remove(struct ext4_inode *inode, const char *name);

#endif
