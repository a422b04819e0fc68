/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * rename(2): moving a name, over another one or not, exchanging two, leaving a whiteout.
 *
 * Both names are looked up, then up to four inodes are locked by address (both directories and what
 * the names name), then both names are looked up again; when one has changed, all starts over.
 *
 * Moving a directory below itself is found by walking up from the new parent. Moves between
 * directories take rename_lock before anything else, so that the tree above does not change
 * during the walk.
 *
 * The steps of a move are ordered so that each that fails can be undone with steps that need no
 * space: the new parent is written into a moved directory, the new name is inserted (or the one
 * that is there is given the moved inode), the old name is removed (or given the whiteout). Only
 * then are links and times changed, which cannot fail.
 */
#include <errno.h>
#include <linux/fs.h>
#include <string.h>
#include "namei.h"

/* Outermost: before any inode lock. One daemon serves one volume. */
static pthread_mutex_t rename_lock = PTHREAD_MUTEX_INITIALIZER;

/* One side of a rename. */
struct side {
	struct ext4_inode *dir;
	const char *name;
	struct ext4_inode
		*inode;	     /* what the name names, with a reference; NULL for a free new name */
	struct dir_name *dn; /* valid with the locks held */
};

struct renaming {
	struct side from, to;
	unsigned int flags;
	const struct cred *cred;
};

static bool is_dir(const struct ext4_inode *inode)
{
	return inode && S_ISDIR(vnode_mode(&inode->vn));
}

static int check_flags(unsigned int flags)
{
	if (flags & ~(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT))
		return -EINVAL;
	if (flags & RENAME_EXCHANGE && flags & (RENAME_NOREPLACE | RENAME_WHITEOUT))
		return -EINVAL;
	return 0;
}

static int parent_of(struct ext4_inode *dir, struct ext4_inode **out)
{
	uint32_t ino;
	int err;

	err = dir_lock_shared(dir);
	if (err)
		return err;
	ino = dir->index->parent;
	pthread_rwlock_unlock(&dir->lock);
	return ext4_iget(ext4_vol(dir), ino, out);
}

/* A way up that meets more directories than there are inodes goes round in a circle. */
static int tell_circle(struct ext4_inode *dir)
{
	struct ext4_volume *vol = ext4_vol(dir);
	int err;

	ext4_lock(vol);
	err = ext4_corrupt(vol, dir->vn.ino, -EUCLEAN, "directory that does not lead to the root");
	ext4_unlock(vol);
	return err;
}

/* -EINVAL when @inode is @dir or above it. Under rename_lock. */
static int check_not_above(struct ext4_inode *inode, struct ext4_inode *dir)
{
	uint32_t left = ext4_vol(dir)->fs->super->s_inodes_count;
	struct ext4_inode *up;
	int err = 0;

	ext4_igrab(dir);
	while (dir != inode && dir->vn.ino != EXT2_ROOT_INO) {
		err = left-- ? parent_of(dir, &up) : tell_circle(dir);
		ext4_iput(dir, 1);
		if (err)
			return err;
		dir = up;
	}
	if (dir == inode)
		err = -EINVAL;
	ext4_iput(dir, 1);
	return err;
}

/* Finds both inodes, and loops that the rename would make. */
static int find_sides(struct renaming *r)
{
	int err;

	err = find_inode(r->from.dir, r->from.name, &r->from.inode);
	if (err)
		return err;
	err = find_inode(r->to.dir, r->to.name, &r->to.inode);
	if (err == -ENOENT && !(r->flags & RENAME_EXCHANGE))
		err = 0;
	if (err || r->from.dir == r->to.dir)
		return err;
	if (is_dir(r->from.inode))
		err = check_not_above(r->from.inode, r->to.dir);
	if (!err && r->flags & RENAME_EXCHANGE && is_dir(r->to.inode))
		err = check_not_above(r->to.inode, r->from.dir);
	return err;
}

static int find_sides_again(struct renaming *r)
{
	int err;

	err = dir_load(r->from.dir);
	if (!err)
		err = dir_load(r->to.dir);
	if (!err && is_dir(r->from.inode))
		err = dir_load(r->from.inode);
	if (!err && is_dir(r->to.inode))
		err = dir_load(r->to.inode);
	if (err)
		return err;
	r->from.dn = find_again(r->from.dir, r->from.name, r->from.inode);
	if (r->to.inode)
		r->to.dn = find_again(r->to.dir, r->to.name, r->to.inode);
	else if (dir_index_find(r->to.dir->index, r->to.name, strlen(r->to.name)))
		return -EAGAIN;
	return r->from.dn && (!r->to.inode || r->to.dn) ? 0 : -EAGAIN;
}

/* A directory of @gains or @loses: is there a link left in the one that gains? */
static int check_links(const struct side *gains, const struct ext4_inode *moved,
		       const struct ext4_inode *leaves)
{
	return is_dir(moved) && !is_dir(leaves) && dir_links_full(gains->dir) ? -EMLINK : 0;
}

/* All locked: may it be done? */
static int may_do(const struct renaming *r)
{
	const struct side *from = &r->from, *to = &r->to;
	bool exchange = r->flags & RENAME_EXCHANGE;
	int err;

	if (!from->dir->raw.i_links_count || !to->dir->raw.i_links_count)
		return -ENOENT;
	err = may_take(from->dir);
	if (!err)
		err = may_rename(from->inode);
	if (!err)
		err = to->inode || exchange ? may_take(to->dir) : may_add(to->dir);
	if (!err && to->inode)
		err = may_rename(to->inode);
	if (!err && from->dir != to->dir)
		err = check_links(to, from->inode, to->inode);
	if (!err && from->dir != to->dir && exchange)
		err = check_links(from, to->inode, from->inode);
	if (err || exchange || !to->inode)
		return err;
	if (is_dir(from->inode) && !is_dir(to->inode))
		return -ENOTDIR;
	if (!is_dir(from->inode) && is_dir(to->inode))
		return -EISDIR;
	return is_dir(to->inode) && to->inode->index->live ? -ENOTEMPTY : 0;
}

/* Directories that are to change lie in blocks. */
static int make_blocks(struct renaming *r)
{
	bool moves = r->from.dir != r->to.dir;
	int err;

	err = dir_make_blocks(r->from.dir);
	if (!err)
		err = dir_make_blocks(r->to.dir);
	if (!err && moves && is_dir(r->from.inode))
		err = dir_make_blocks(r->from.inode);
	if (!err && moves && is_dir(r->to.inode) && r->flags & RENAME_EXCHANGE)
		err = dir_make_blocks(r->to.inode);
	return err;
}

/* If @inode is a directory that comes from another one: its .. */
static int move_parent(struct ext4_inode *inode, struct ext4_inode *to)
{
	if (!is_dir(inode) || inode->index->parent == to->vn.ino)
		return 0;
	return dir_set_parent(inode, to->vn.ino);
}

static int name_inode(struct side *side, struct ext4_inode *inode)
{
	if (side->dn)
		return dir_replace(side->dir, side->dn, inode->vn.ino, inode->raw.i_mode);
	return dir_insert(side->dir, side->name, inode->vn.ino, inode->raw.i_mode);
}

static void unname_inode(struct side *side)
{
	if (side->dn) {
		name_inode(side, side->inode);
		return;
	}
	dir_remove(side->dir, dir_index_find(side->dir->index, side->name, strlen(side->name)));
}

/* Directories' links after directory @moved has gone from @from to @to, over @over or nothing. */
static void count_links(struct ext4_inode *from, struct ext4_inode *to, struct ext4_inode *moved,
			struct ext4_inode *over)
{
	if (is_dir(over))
		dir_links_dec(to);
	if (!is_dir(moved))
		return;
	dir_links_dec(from);
	dir_links_inc(to);
}

static int write_all(struct renaming *r)
{
	struct ext4_inode *inodes[] = {r->from.inode, r->to.inode, r->from.dir, r->to.dir};
	int err = 0;

	ext4_touch(r->from.dir, VATTR_MTIME | VATTR_CTIME);
	ext4_touch(r->to.dir, VATTR_MTIME | VATTR_CTIME);
	ext4_touch(r->from.inode, VATTR_CTIME);
	for (unsigned int i = 0; i < 4; i++) {
		int ret = inodes[i] ? ext4_inode_write(inodes[i]) : 0;

		err = err ? err : ret;
	}
	return err;
}

static int do_exchange(struct renaming *r)
{
	struct side *from = &r->from, *to = &r->to;
	int err;

	err = move_parent(from->inode, to->dir);
	if (!err)
		err = move_parent(to->inode, from->dir);
	if (!err)
		err = name_inode(to, from->inode);
	if (!err) {
		err = name_inode(from, to->inode);
		if (err)
			name_inode(to, to->inode);
	}
	if (err) {
		move_parent(from->inode, from->dir);
		move_parent(to->inode, to->dir);
		return err;
	}
	if (from->dir != to->dir && is_dir(from->inode) != is_dir(to->inode)) {
		dir_links_dec(is_dir(from->inode) ? from->dir : to->dir);
		dir_links_inc(is_dir(from->inode) ? to->dir : from->dir);
	}
	ext4_touch(to->inode, VATTR_CTIME);
	return write_all(r);
}

/* The names; @whiteout takes the old one if there is one. */
static int move_names(struct renaming *r, struct ext4_inode *whiteout)
{
	struct side *from = &r->from, *to = &r->to;
	int err;

	err = move_parent(from->inode, to->dir);
	if (err)
		return err;
	err = name_inode(to, from->inode);
	if (!err) {
		err = whiteout ? name_inode(from, whiteout) : dir_remove(from->dir, from->dn);
		if (err)
			unname_inode(to);
	}
	if (err) {
		move_parent(from->inode, from->dir);
		/* The new parent may have grown in vain. */
		ext4_inode_write(to->dir);
	}
	return err;
}

static int do_move(struct renaming *r, struct ext4_inode *whiteout)
{
	int err;

	err = move_names(r, whiteout);
	if (err)
		return err;
	count_links(r->from.dir, r->to.dir, r->from.inode, r->to.inode);
	if (r->to.inode)
		drop_link(r->to.inode);
	return write_all(r);
}

/* A whiteout is a character device 0, 0. */
static int make_whiteout(struct renaming *r, struct ext4_inode **out)
{
	int err;

	err = ext4_ialloc(r->from.dir, S_IFCHR, r->cred, out);
	if (err) {
		*out = NULL;
		return err;
	}
	make_special(*out, 0);
	return ext4_inode_write(*out);
}

/* Between begin and end. *@whiteout is to be put afterwards. */
static int do_rename(struct renaming *r, struct ext4_inode **whiteout)
{
	int err;

	err = make_blocks(r);
	if (err)
		return err;
	if (r->flags & RENAME_EXCHANGE)
		return do_exchange(r);
	if (r->flags & RENAME_WHITEOUT)
		err = make_whiteout(r, whiteout);
	if (!err)
		err = do_move(r, *whiteout);
	if (err && *whiteout)
		undo_inode(*whiteout);
	return err;
}

static int rename_locked(struct renaming *r, struct ext4_inode **whiteout)
{
	struct ext4_volume *vol = ext4_vol(r->from.dir);
	int err;

	err = find_sides_again(r);
	if (err)
		return err;
	if (r->to.inode && r->flags & RENAME_NOREPLACE)
		return -EEXIST;
	if (r->to.inode == r->from.inode)
		return 0;
	err = may_do(r);
	if (!err)
		err = ext4_begin(vol);
	if (!err) {
		err = do_rename(r, whiteout);
		ext4_end(vol);
	}
	return err;
}

/*
 * Who replaces a file by another one that he has just written wants the old one or the new, not an
 * empty one, after a crash: its data gets its blocks before the name is moved.
 */
static void write_source(struct renaming *r)
{
	struct ext4_inode *from = r->from.inode;

	/* An error is kept for fsync. */
	if (r->to.inode && from->has_mapping && !(r->flags & (RENAME_EXCHANGE | RENAME_NOREPLACE)))
		filemap_write_and_wait(&from->vn.mapping);
}

/* One try: -EAGAIN when a name has come to name something else. */
static int try_rename(struct renaming *r)
{
	struct ext4_inode *whiteout = NULL;
	struct inode_set set = {0};
	int err;

	err = find_sides(r);
	if (!err) {
		write_source(r);
		inode_set_add(&set, r->from.dir);
		inode_set_add(&set, r->to.dir);
		inode_set_add(&set, r->from.inode);
		inode_set_add(&set, r->to.inode);
		inode_set_lock(&set);
		err = rename_locked(r, &whiteout);
		inode_set_unlock(&set);
	}
	if (r->from.inode)
		ext4_iput(r->from.inode, 1);
	if (r->to.inode)
		ext4_iput(r->to.inode, 1);
	if (whiteout)
		ext4_iput(whiteout, 1);
	return err;
}

/**
 * ext4_rename - move a name
 * @dir: where it is
 * @name: the name
 * @newdir: where it goes
 * @newname: what it will be
 * @flags: RENAME_NOREPLACE; RENAME_EXCHANGE; RENAME_WHITEOUT leaves a whiteout in its old place
 * @cred: whose the whiteout will be
 *
 * Context: no locks held; may sleep.
 * Return: 0, -ENOENT, -EEXIST (NOREPLACE), -EINVAL (below itself, bad flags), -EISDIR, -ENOTDIR,
 * -ENOTEMPTY, -EMLINK, -EPERM, -ENOSPC, -EROFS or another error; then nothing has changed.
 */
int ext4_rename(struct vnode *dir, const char *name, struct vnode *newdir, const char *newname,
		unsigned int flags, const struct cred *cred)
{
	int err;

	if (!S_ISDIR(vnode_mode(dir)) || !S_ISDIR(vnode_mode(newdir)))
		return -ENOTDIR;
	err = check_flags(flags);
	if (!err)
		err = check_name(name);
	if (!err)
		err = check_name(newname);
	if (err)
		return err;
	if (dir != newdir)
		pthread_mutex_lock(&rename_lock);
	do {
		struct renaming r = {
			.from = {.dir = EXT4_I(dir), .name = name},
			.to = {.dir = EXT4_I(newdir), .name = newname},
			.flags = flags,
			.cred = cred,
		};

		err = try_rename(&r);
	} while (err == -EAGAIN);
	if (dir != newdir)
		pthread_mutex_unlock(&rename_lock);
	return err;
}
