/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * POSIX ACLs.
 *
 * getxattr(2) and setxattr(2) speak of them in one form, a version and entries of 8 bytes, the
 * image keeps them in another, where entries that name nobody are 4 bytes long. In memory an ACL is
 * an array of entries, which has been checked: the owner's entry, users, the owning group's,
 * groups, a mask if there are users or groups, others, in this order, each kind but users and
 * groups once.
 *
 * Ties to the mode: an access ACL's entries for owner, others, and mask (or group, without a mask)
 * are the permission bits. Setting an ACL sets these bits; chmod changes the entries; an ACL that
 * says no more than the mode is not stored.
 *
 * A new inode in a directory with a default ACL gets that as its access ACL, cut down to what the
 * creator's mode allows, and a new directory as its default ACL, too; the umask does not count
 * then.
 *
 * Locks: inode lock exclusive (but for conversion) and volume lock.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "xattr.h"

enum {
	TAG_USER_OBJ = 0x01,
	TAG_USER = 0x02,
	TAG_GROUP_OBJ = 0x04,
	TAG_GROUP = 0x08,
	TAG_MASK = 0x10,
	TAG_OTHER = 0x20,
};

#define XATTR_VERSION 2
#define DISK_VERSION 1
#define NO_ID UINT32_MAX

struct acl_entry {
	uint16_t tag, perm;
	uint32_t id;
};

struct acl {
	unsigned int nr;
	struct acl_entry entries[];
};

/**
 * acl_is_name - is an attribute an ACL?
 * @name: full name
 */
bool acl_is_name(const char *name)
{
	return !strcmp(name, XATTR_ACL_ACCESS) || !strcmp(name, XATTR_ACL_DEFAULT);
}

static bool has_id(unsigned int tag)
{
	return tag == TAG_USER || tag == TAG_GROUP;
}

static unsigned int disk_entry_size(unsigned int tag)
{
	return has_id(tag) ? sizeof(struct acl_entry) : 2 * sizeof(uint16_t);
}

/* Is an entry of kind @tag right behind one of kind @last (0 at the start)? */
static bool may_follow(unsigned int last, unsigned int tag)
{
	switch (tag) {
	case TAG_USER_OBJ:
		return last == 0;
	case TAG_USER:
		return last == TAG_USER_OBJ || last == TAG_USER;
	case TAG_GROUP_OBJ:
		return last == TAG_USER_OBJ || last == TAG_USER;
	case TAG_GROUP:
		return last == TAG_GROUP_OBJ || last == TAG_GROUP;
	case TAG_MASK:
	case TAG_OTHER:
		return last == TAG_GROUP_OBJ || last == TAG_GROUP ||
		       (tag == TAG_OTHER && last == TAG_MASK);
	default:
		return false;
	}
}

static bool is_valid(const struct acl *acl)
{
	unsigned int last = 0;
	bool named = false, mask = false;

	for (unsigned int i = 0; i < acl->nr; i++) {
		const struct acl_entry *entry = &acl->entries[i];

		if (entry->perm & ~7 || !may_follow(last, entry->tag))
			return false;
		if (has_id(entry->tag) && entry->id == NO_ID)
			return false;
		named |= has_id(entry->tag);
		mask |= entry->tag == TAG_MASK;
		last = entry->tag;
	}
	return last == TAG_OTHER && (mask || !named);
}

static struct acl *acl_alloc(size_t nr)
{
	return calloc(1, sizeof(struct acl) + nr * sizeof(struct acl_entry));
}

/* From the form of setxattr(2): -EINVAL, -EOPNOTSUPP for another version. */
static int from_xattr(const void *value, size_t len, struct acl **out)
{
	size_t nr = len / sizeof(struct acl_entry);
	struct acl *acl;
	uint32_t version;

	if (len < sizeof(version) || (len - sizeof(version)) % sizeof(struct acl_entry))
		return -EINVAL;
	memcpy(&version, value, sizeof(version));
	if (version != XATTR_VERSION)
		return -EOPNOTSUPP;
	acl = acl_alloc(nr);
	if (!acl)
		return -ENOMEM;
	acl->nr = nr;
	memcpy(acl->entries, (const char *)value + sizeof(version), nr * sizeof(struct acl_entry));
	*out = acl;
	if (is_valid(acl))
		return 0;
	free(acl);
	return -EINVAL;
}

/* From the image's form: -EUCLEAN. */
static int from_disk(const void *value, size_t len, struct acl **out)
{
	const char *at = (const char *)value + sizeof(uint32_t), *end = (const char *)value + len;
	struct acl *acl = acl_alloc(len / (2 * sizeof(uint16_t)));
	uint32_t version = 0;

	if (!acl)
		return -ENOMEM;
	if (len >= sizeof(version))
		memcpy(&version, value, sizeof(version));
	while (version == DISK_VERSION && (size_t)(end - at) >= 2 * sizeof(uint16_t)) {
		struct acl_entry *entry = &acl->entries[acl->nr++];
		unsigned int size;

		entry->id = NO_ID;
		memcpy(entry, at, 2 * sizeof(uint16_t));
		size = disk_entry_size(entry->tag);
		if (size > (size_t)(end - at))
			break;
		memcpy(entry, at, size);
		at += size;
	}
	*out = acl;
	if (version == DISK_VERSION && at == end && is_valid(acl))
		return 0;
	free(acl);
	return -EUCLEAN;
}

static void *to_disk(const struct acl *acl, size_t *len)
{
	uint32_t version = DISK_VERSION;
	char *value = malloc(sizeof(version) + acl->nr * sizeof(struct acl_entry)), *at = value;

	if (!value)
		return NULL;
	memcpy(at, &version, sizeof(version));
	at += sizeof(version);
	for (unsigned int i = 0; i < acl->nr; i++) {
		unsigned int size = disk_entry_size(acl->entries[i].tag);

		memcpy(at, &acl->entries[i], size);
		at += size;
	}
	*len = at - value;
	return value;
}

/**
 * acl_to_xattr - an ACL in the form of getxattr(2)
 * @value: in the image's form
 * @len: bytes of @value
 * @out: out: in the other form, to be freed
 * @out_len: out: its bytes
 *
 * Return: 0, -EUCLEAN, -ENOMEM.
 */
int acl_to_xattr(const void *value, size_t len, void **out, size_t *out_len)
{
	uint32_t version = XATTR_VERSION;
	struct acl *acl;
	char *to;
	int err;

	err = from_disk(value, len, &acl);
	if (err)
		return err;
	*out_len = sizeof(version) + acl->nr * sizeof(struct acl_entry);
	to = malloc(*out_len);
	if (to) {
		memcpy(to, &version, sizeof(version));
		memcpy(to + sizeof(version), acl->entries, acl->nr * sizeof(struct acl_entry));
	}
	free(acl);
	*out = to;
	return to ? 0 : -ENOMEM;
}

/* The entry of a kind that occurs at most once. */
static struct acl_entry *find_entry(struct acl *acl, unsigned int tag)
{
	for (unsigned int i = 0; i < acl->nr; i++)
		if (acl->entries[i].tag == tag)
			return &acl->entries[i];
	return NULL;
}

/* The entry that the mode's group bits stand for. */
static struct acl_entry *group_entry(struct acl *acl)
{
	struct acl_entry *mask = find_entry(acl, TAG_MASK);

	return mask ? mask : find_entry(acl, TAG_GROUP_OBJ);
}

static mode_t permissions(struct acl *acl)
{
	return find_entry(acl, TAG_USER_OBJ)->perm << 6 | group_entry(acl)->perm << 3 |
	       find_entry(acl, TAG_OTHER)->perm;
}

/* Does the ACL say no more than the mode can? */
static bool is_mode(const struct acl *acl)
{
	return acl->nr == 3;
}

static void set_mode(struct ext4_inode *inode, mode_t mode)
{
	inode->raw.i_mode = mode;
	__atomic_store_n(&inode->vn.mode, mode, __ATOMIC_RELEASE);
}

static int read_acl(struct ext4_inode *inode, const char *name, struct acl **out)
{
	void *value;
	size_t len;
	int err;

	err = xattr_read(inode, name, &value, &len);
	if (err)
		return err;
	err = from_disk(value, len, out);
	free(value);
	if (err == -EUCLEAN)
		return ext4_corrupt(ext4_vol(inode), inode->vn.ino, err, "damaged ACL");
	return err;
}

static int write_acl(struct ext4_inode *inode, const char *name, const struct acl *acl)
{
	void *value;
	size_t len;
	int err;

	value = to_disk(acl, &len);
	if (!value)
		return -ENOMEM;
	err = xattr_write(inode, name, value, len);
	free(value);
	return err;
}

/* Is the caller in group @gid? Supplementary groups are what the kernel says of its process. */
static bool in_group(const struct cred *cred, gid_t gid)
{
	unsigned int group;
	char path[32], line[4096];
	bool found = false;
	FILE *file;

	if (cred->gid == gid)
		return true;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)cred->pid);
	file = fopen(path, "re");
	if (!file)
		return false;
	while (!found && fgets(line, sizeof(line), file)) {
		int used = 0;

		if (strncmp(line, "Groups:", 7))
			continue;
		for (char *at = line + 7; !found && sscanf(at, "%u%n", &group, &used) == 1;
		     at += used)
			found = group == gid;
	}
	fclose(file);
	return found;
}

/* An access ACL is to be set: the mode that goes with it. */
static mode_t mode_with(struct ext4_inode *inode, struct acl *acl, const struct cred *cred)
{
	mode_t mode = (inode->raw.i_mode & ~0777) | permissions(acl);

	if (mode & S_ISGID && !cred->privileged && !in_group(cred, inode_gid(inode->raw)))
		mode &= ~S_ISGID;
	return mode;
}

/* Sets an access ACL; the inode is changed and not written when only the mode is. */
static int set_access(struct ext4_inode *inode, struct acl *acl, const struct cred *cred)
{
	mode_t mode = mode_with(inode, acl, cred);
	int err;

	if (is_mode(acl)) {
		err = xattr_remove(inode, XATTR_ACL_ACCESS);
		if (err == -ENODATA)
			err = 0;
	} else {
		err = write_acl(inode, XATTR_ACL_ACCESS, acl);
	}
	if (!err)
		set_mode(inode, mode);
	return err;
}

/**
 * acl_set - set an ACL
 * @inode: file
 * @name: which one
 * @value: in the form of setxattr(2); empty: remove it
 * @len: bytes of @value
 * @cred: who asks
 *
 * Context: inode lock exclusive, between begin and end; may sleep.
 * Return: 0, -EINVAL, -EOPNOTSUPP, -EACCES (a default ACL on no directory), -ENOSPC or another
 * error. The inode may be changed and not written.
 */
int acl_set(struct ext4_inode *inode, const char *name, const void *value, size_t len,
	    const struct cred *cred)
{
	struct acl *acl;
	int err;

	if (S_ISLNK(vnode_mode(&inode->vn)))
		return -EOPNOTSUPP;
	/* A header without entries says the same as nothing. */
	if (len <= sizeof(uint32_t))
		return acl_remove(inode, name);
	err = from_xattr(value, len, &acl);
	if (err)
		return err;
	if (!strcmp(name, XATTR_ACL_ACCESS))
		err = set_access(inode, acl, cred);
	else if (S_ISDIR(vnode_mode(&inode->vn)))
		err = write_acl(inode, name, acl);
	else
		err = -EACCES;
	free(acl);
	return err;
}

/**
 * acl_remove - remove an ACL; the mode stays
 * @inode: file
 * @name: which one
 *
 * Context: inode lock exclusive, between begin and end; may sleep.
 * Return: 0, also when there is none, or an error.
 */
int acl_remove(struct ext4_inode *inode, const char *name)
{
	int err = xattr_remove(inode, name);

	return err == -ENODATA ? 0 : err;
}

/* Cuts an inherited ACL down to @mode, and returns the permissions that it leaves. */
static mode_t cut_down(struct acl *acl, mode_t mode)
{
	find_entry(acl, TAG_USER_OBJ)->perm &= mode >> 6;
	group_entry(acl)->perm &= mode >> 3;
	find_entry(acl, TAG_OTHER)->perm &= mode;
	return permissions(acl);
}

static int inherit(struct ext4_inode *inode, struct acl *acl)
{
	mode_t mode = inode->raw.i_mode;
	int err = 0;

	if (S_ISDIR(mode))
		err = write_acl(inode, XATTR_ACL_DEFAULT, acl);
	mode = (mode & ~0777) | cut_down(acl, mode);
	if (!err && !is_mode(acl))
		err = write_acl(inode, XATTR_ACL_ACCESS, acl);
	if (!err)
		set_mode(inode, mode);
	return err;
}

/**
 * acl_inherit - permissions of a new inode
 * @dir: the directory it is made in
 * @inode: the new inode, no symbolic link
 * @cred: whose umask counts where there is no default ACL
 *
 * Context: @dir's inode lock exclusive, between begin and end; may sleep.
 * Return: 0, -ENOSPC or another error. The inode is not written.
 */
int acl_inherit(struct ext4_inode *dir, struct ext4_inode *inode, const struct cred *cred)
{
	struct acl *acl;
	int err;

	err = read_acl(dir, XATTR_ACL_DEFAULT, &acl);
	if (err == -ENODATA) {
		set_mode(inode, inode->raw.i_mode & ~(cred->umask & 0777));
		return 0;
	}
	if (err)
		return err;
	err = inherit(inode, acl);
	free(acl);
	return err;
}

/**
 * acl_chmod - the mode has changed: the access ACL follows
 * @inode: file
 *
 * Context: inode lock exclusive, between begin and end; may sleep.
 * Return: 0, also without an ACL, or an error. What is changed is written.
 */
int acl_chmod(struct ext4_inode *inode)
{
	mode_t mode = inode->raw.i_mode;
	struct acl *acl;
	int err;

	err = read_acl(inode, XATTR_ACL_ACCESS, &acl);
	if (err)
		return err == -ENODATA ? 0 : err;
	find_entry(acl, TAG_USER_OBJ)->perm = mode >> 6 & 7;
	group_entry(acl)->perm = mode >> 3 & 7;
	find_entry(acl, TAG_OTHER)->perm = mode & 7;
	err = write_acl(inode, XATTR_ACL_ACCESS, acl);
	free(acl);
	return err;
}
