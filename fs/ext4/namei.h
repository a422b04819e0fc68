/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What namei.c, symlink.c and rename.c share. */
#ifndef FOLIOFS_EXT4_NAMEI_H
#define FOLIOFS_EXT4_NAMEI_H

#include "dir.h"

/* Inodes locked together: in rising order of address, each once. */
struct inode_set {
	unsigned int nr;
	struct ext4_inode *inodes[4];
};

void inode_set_add(struct inode_set *set, struct ext4_inode *inode); /* NULL is passed over */
void inode_set_lock(struct inode_set *set);
void inode_set_unlock(struct inode_set *set);

int check_name(const char *name);
/* Inode flags: may names be added to a directory, or taken out of it; may an inode lose one? */
int may_add(const struct ext4_inode *dir);
int may_take(const struct ext4_inode *dir);
int may_rename(const struct ext4_inode *inode);
int find_inode(struct ext4_inode *dir, const char *name, struct ext4_inode **out);
struct dir_name *find_again(struct ext4_inode *dir, const char *name,
			    const struct ext4_inode *inode);

bool dir_links_full(const struct ext4_inode *dir);
void dir_links_inc(struct ext4_inode *dir);
void dir_links_dec(struct ext4_inode *dir);
void drop_link(struct ext4_inode *inode);
void undo_inode(struct ext4_inode *inode);
void make_special(struct ext4_inode *inode, dev_t rdev);
int symlink_write(struct ext4_inode *inode, const char *target);

#endif
