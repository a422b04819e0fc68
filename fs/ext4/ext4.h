/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * ext2, ext3 and ext4 on libext2fs: what the files of this directory share.
 *
 * Locks (outer first)
 *
 *	inode lock (several: by rising address, directories and files alike)
 *	invalidate lock of a file's mapping
 *	folio lock of a file
 *	volume lock		libext2fs and everything in ext2_filsys; every change of metadata
 *	folio lock of the device mapping, and so on inside the cache
 *	icache lock, orphan lists, small leaf locks: held for a few lines, never while sleeping
 *
 * Every metadata change happens between ext4_begin() and ext4_end(), which take and release the
 * volume lock. Every metadata block reaches the image through the device mapping (device.c), and
 * with a journal as part of a transaction (txn.c).
 *
 * The inode in memory: `raw` is the truth while the inode is in use, and ext4_inode_write()
 * brings it to the inode table. Its i_block, i_blocks and block-map flags are guarded by the volume
 * lock alone (writeback changes them without the inode lock); all other fields change under the
 * inode lock exclusively AND the volume lock, so either suffices to read them. The size in `raw` is
 * what the image says; mapping.size is the live one of a regular file.
 *
 * Space. reserved_blocks counts blocks that dirty folios will need, with what their maps may need
 * to find them (delayed allocation): write(2) reserves, writeback allocates, truncation gives back.
 * Free space for all others is what is left beside it (blocks.c).
 *
 * The locks of transactions (txn.h) are outside the volume lock, inside the folio locks of files; but
 * for one, a leaf.
 */
#ifndef FOLIOFS_EXT4_H
#define FOLIOFS_EXT4_H

#include <pthread.h>
#include <ext2fs/ext2_fs.h>
#include <ext2fs/ext2fs.h>
#include "list.h"
#include "maple_tree.h"
#include "volume.h"

struct dir_index;	/* dir_index.c: names of one directory in memory */
struct file_write;	/* file_write.c */
struct txns;		/* txn.c: transactions */
struct group_dirt;	/* commit.c: what of bitmaps and descriptors is to be written */

/* Free blocks that are kept for a growing file: find.c. ino 0: none. */
struct block_window {
	uint32_t ino;
	uint64_t start, end;
};

#define BLOCK_WINDOWS 32

/* Are files read one after another? walk.c; all atomic */
struct file_walk {
	uint32_t loaded;		/* inodes, so far */
	uint32_t last_ino, last_load;	/* of the file read last */
	uint32_t near;			/* how often of late the next one was near the last */
};

struct ext4_volume {
	struct volume vol;
	pthread_mutex_t lock;		/* the volume lock */
	ext2_filsys fs;
	struct mapping device;		/* the image's own mapping, MAPPING_DEVICE */
	struct image *view;		/* read-only, journal dirty: vol.image, replayed in memory */
	struct group_dirt *dirt;
	struct txns *txns;		/* NULL without a journal */
	errcode_t last_error;
	bool writable;			/* mounted rw, even if errors= turned it ro */
	uint16_t clean_state;		/* s_state to leave behind at unmount */
	unsigned int lines;		/* error.c: messages since lines_since; volume lock */
	time_t lines_since;
	time_t failing_since;		/* error.c: no data could be written; 0: it could; atomic */
	bool shutdown;			/* errors=panic: every change fails EIO */

	pthread_mutex_t space_lock;	/* leaf: this group, and inodes' delayed fields */
	uint64_t free_blocks;		/* that may be given to anybody */
	uint64_t freed_blocks;		/* that will be, when their transaction is durable */
	uint64_t reserved_blocks;
	uint64_t withheld_blocks;	/* never for data: margin for maps, root's share */
	ext2fs_block_bitmap taken;	/* blocks not to be chosen: blocks.c; volume lock */
	struct block_window windows[BLOCK_WINDOWS]; /* find.c; volume lock */
	unsigned int next_window;

	pthread_mutex_t maps_lock;	/* leaf: this group, and each map's part in it */
	struct list_head maps;		/* of inodes that have something in it, used last first */
	unsigned long map_ranges;	/* in all of them, and some for each map */
	unsigned long map_limit;	/* no more are kept when another is loaded */

	pthread_mutex_t icache_lock;
	struct ext4_inode **icache;	/* hash table by number */
	unsigned int icache_bits;
	unsigned int icache_count;	/* in the table, or just leaving it */
	unsigned int deleting;		/* unlinked inodes being deleted now; icache lock */
	uint64_t deleted;		/* so far; icache lock */
	pthread_cond_t deletion;	/* one of the two has changed */

	bool has_device;		/* device is initialised */
	struct ext4_inode *root;	/* referenced while the volume is open */
	uint64_t itable_window;		/* inode_io.c: read last; volume lock */
	struct file_walk walk;
	struct file_ra dir_ra;		/* directory blocks, as a stream on the device; volume lock */

	struct ext4_inode *orphans;	/* as the list in the image, newest first; volume lock */
	uint64_t overhead;		/* blocks that hold no files, for statfs */

	pthread_t commit_thread;	/* writes metadata every options->commit seconds */
	pthread_mutex_t commit_lock;
	pthread_cond_t commit_wake;
	bool commit_stop, commit_running;
};

/* A range of a file that lies in one piece on the image; in file system blocks. pblk 0: a hole. */
struct map_extent {
	uint32_t lblk, len;
	uint64_t pblk;
	bool unwritten;
};

/* What is known of a file's block map: map.c. */
struct ext4_map {
	struct maple_tree tree;		/* changed under the volume lock, read under RCU */
	struct list_head lru;		/* of vol->maps while there is something; maps_lock */
	unsigned int ranges;		/* in the tree; maps_lock */
	bool used;			/* since reclaim has last passed; atomic */
	int error;			/* damage was met: -EUCLEAN at each use; volume lock */
	uint32_t root;			/* extents_worst()'s; atomic */
};

struct ext4_inode {
	struct vnode vn;
	pthread_rwlock_t lock;		/* the inode lock; prefers writers */
	uint64_t refs;			/* atomic; 0 only under the icache lock */
	struct ext4_inode *hash_next;	/* icache lock */
	unsigned int pins;		/* of refs: flushers at work; icache lock */
	struct ext4_map map;
	uint32_t delayed;		/* blocks that its dirty folios reserve; space_lock */
	uint32_t delayed_meta;		/* what is reserved for its map beside them; space_lock */
	uint32_t delayed_group;		/* indirect block last charged for; space_lock */
	struct dir_index *index;	/* directories; inode lock */
	struct ext4_inode *orphan_next, *orphan_prev;	/* volume lock */
	struct file_write *writes;	/* on their way: file_write.c; volume lock */
	uint32_t load;			/* vol->walk.loaded, when it was; constant */
	uint32_t changed_in;		/* last transaction that changed it; atomic */
	bool has_mapping;		/* vn.mapping is initialised: regular files */
	bool orphan;			/* on the orphan list; volume lock */
	bool dying;			/* not to be found or pinned any more; icache lock */
	bool bad;			/* damaged: every use gives EUCLEAN */
	/*
	 * The whole inode as on the image, raw_size (the image's inode size, 128 to 4096) bytes:
	 * the struct is allocated with room for what lies behind the fixed fields (xattrs, inline
	 * data), see ext4_raw_bytes(). Must be last. With 128-byte inodes raw's further fields are
	 * 0.
	 */
	size_t raw_size;
	struct ext2_inode_large raw;
};

/* The on-disk inode as raw_size bytes; in-inode xattrs start at 128 + raw.i_extra_isize. */
static inline uint8_t *ext4_raw_bytes(struct ext4_inode *inode)
{
	return (uint8_t *)&inode->raw;
}

static inline struct ext4_volume *EXT4_VOL(struct volume *v)
{
	return (struct ext4_volume *)v;
}

static inline struct ext4_inode *EXT4_I(struct vnode *n)
{
	return (struct ext4_inode *)n;
}

static inline struct ext4_volume *ext4_vol(struct ext4_inode *inode)
{
	return (struct ext4_volume *)inode->vn.volume;
}

/*
 * volume (super.c, probe.c, recover.c, fast_commit.c, error.c, device.c, commit.c)
 */
/* Take the volume lock for a change; -EROFS or -EIO (then nothing is held) when none is allowed.
 * The bitmaps (fs->block_map, fs->inode_map) are loaded when it returns 0. */
int ext4_begin(struct ext4_volume *vol);
void ext4_end(struct ext4_volume *vol);
/* Take it to read only. */
void ext4_lock(struct ext4_volume *vol);
void ext4_unlock(struct ext4_volume *vol);
/* libext2fs's error as a negative errno (EUCLEAN for damage). */
int ext4_errno(errcode_t err);
/* Damage was met: say where, set the error flag in the superblock, follow errors=. Returns -EUCLEAN
 * or, for err == -EIO, -EIO. Volume lock held. */
int ext4_corrupt(struct ext4_volume *vol, uint32_t ino, int err, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/*
 * libext2fs failed: translates, and calls ext4_corrupt() when that means damage. Volume lock held.
 */
int ext4_failed(struct ext4_volume *vol, uint32_t ino, errcode_t err, const char *what);
/* A file's data was written, or not: when nothing goes for seconds, that is damage. No volume lock. */
void ext4_data_written(struct ext4_inode *inode, int err);

/* device.c: the io_manager and the image's mapping. Blocks in fs blocks. */
extern io_manager device_io_manager;
extern const struct mapping_ops device_mapping_ops;
errcode_t device_open_fs(struct ext4_volume *vol, int flags);	/* opens vol->fs on vol->device */
/* Bytes. -EUCLEAN when they lie outside the file system. Volume lock, for these all. */
int device_pread(struct ext4_volume *vol, uint64_t pos, void *buf, size_t len);
int device_pwrite(struct ext4_volume *vol, uint64_t pos, const void *buf, size_t len);
/* Brings blocks that will be wanted soon into the cache with few transfers. */
void device_readahead(struct ext4_volume *vol, uint64_t blk, uint64_t count);
/* The same for directory blocks, which often lie in the order of their use: with what may follow. */
void device_readahead_dir(struct ext4_volume *vol, uint64_t blk, uint64_t count);
int device_read(struct ext4_volume *vol, uint64_t blk, void *buf);	/* one block; volume lock */
int device_write(struct ext4_volume *vol, uint64_t blk, const void *buf);
/*
 * Blocks go from metadata to data, or free: nothing in the device mapping may be written over them.
 */
void device_forget(struct ext4_volume *vol, uint64_t blk, uint64_t count);

/* probe.c, recover.c: refuse with one line, or find that the image can be read only */
int probe_read_super(struct image *image, struct ext2_super_block *sb);
int probe_super(struct image *image, struct ext2_super_block *sb, bool *readonly);
int probe_groups(struct ext4_volume *vol);
/*
 * Replays a dirty journal, on the image or, read-only, in memory. *changed: all that was read of the
 * image, vol->fs included, may be old; @sb is the superblock as it is then.
 */
int recover_journal(struct ext4_volume *vol, struct ext2_super_block *sb, bool *changed);
int fast_commit_replay(struct ext4_volume *vol, struct ext2_super_block *sb);

int ext4_sync(struct volume *volume);
int ext4_statfs(struct volume *volume, struct statvfs *st);

int commit_init(struct ext4_volume *vol);
void commit_finish(struct ext4_volume *vol);
/* commit.c. Group is to be written at the next commit. Volume lock. */
void commit_mark_group(struct ext4_volume *vol, dgrp_t group);
void commit_mark_super(struct ext4_volume *vol);
/* Most blocks that are to be written for what is marked. Volume lock. */
unsigned int commit_marked_blocks(struct ext4_volume *vol);
/* Bitmaps, descriptors, superblock to the device mapping. Volume lock. */
int commit_bring(struct ext4_volume *vol);
/* Makes all changes of metadata durable, and data that was written. Takes the volume lock. */
int ext4_commit(struct ext4_volume *vol);
int ext4_commit_inode(struct ext4_inode *inode);	/* what was done to this one */
int commit_start(struct ext4_volume *vol);
void commit_stop(struct ext4_volume *vol);

/*
 * inodes (inode.c icache, inode_io.c, ialloc.c, orphan.c, attr.c)
 */
/* Reference to inode @ino, read if it is not in use. Takes the volume lock itself. */
int ext4_iget(struct ext4_volume *vol, uint32_t ino, struct ext4_inode **out);
void ext4_igrab(struct ext4_inode *inode);
/*
 * Drops references; the last of an unlinked inode deletes it. No lock held but inode locks of
 * others.
 */
void ext4_iput(struct ext4_inode *inode, uint64_t nr);
/*
 * There is no space, but unlinked files may be about to give some back: true to try again, which
 * helps in the end or not; so not more often than this.
 */
#define DELETED_TRIES 8
bool inode_wait_deleted(struct ext4_volume *vol);
/* ->pin and ->unpin of ext4_file_mapping_ops; mapping->owner is the struct ext4_inode. */
bool ext4_mapping_pin(struct mapping *mapping);
void ext4_mapping_unpin(struct mapping *mapping);
int icache_init(struct ext4_volume *vol);
/* Drops all inodes that are left, deleting unlinked ones. */
void icache_finish(struct ext4_volume *vol);
/* Reads inode @ino from the table into @inode->raw and checks it. Volume lock. */
int ext4_inode_read(struct ext4_volume *vol, struct ext4_inode *inode, uint32_t ino);
/*
 * raw to the inode table. Volume lock. A libext2fs function that is given &inode->raw (as a
 * struct ext2_inode) and writes it back comes here, too; one that writes a buffer of its own
 * (ext2fs_write_inode*) changes the image alone: call ext4_inode_reload() after it.
 */
int ext4_inode_write(struct ext4_inode *inode);
int ext4_inode_reload(struct ext4_inode *inode);	/* raw from the inode table. Volume lock. */
/* inode.c, inode_io.c among themselves and for ialloc.c and orphan.c. Volume lock. */
struct ext4_inode *inode_new(struct ext4_volume *vol, uint32_t ino);
int inode_ready(struct ext4_inode *inode);
void inode_free(struct ext4_inode *inode);
void icache_insert(struct ext4_volume *vol, struct ext4_inode *inode);
/* The inode's mapping, pinned, if it is in use and @fits; else NULL. Takes no other lock. */
struct mapping *icache_pin(struct ext4_volume *vol, uint32_t ino,
			   bool (*fits)(struct ext4_inode *inode));
struct ext4_inode *icache_peek(struct ext4_volume *vol, uint32_t ino);
int inode_get_locked(struct ext4_volume *vol, uint32_t ino, bool unlinked,
		     struct ext4_inode **out);
void inode_set_birth(struct ext4_inode *inode);
void inode_install_hooks(struct ext4_volume *vol);
void ialloc_free(struct ext4_inode *inode);
void orphan_forget(struct ext4_inode *inode);
/*
 * New inode: allocated, initialised (owner, mode, flags, times, generation; i_links_count 1, 2 for
 * a directory; extent root or inline flag; inherited flags; sgid), written, in the icache with one
 * reference, unlocked. Between begin and end. dir's inode lock is held.
 */
int ext4_ialloc(struct ext4_inode *dir, mode_t mode, const struct cred *cred,
		struct ext4_inode **out);
int orphan_add(struct ext4_inode *inode);	/* between begin and end */
int orphan_del(struct ext4_inode *inode);
int orphan_cleanup(struct ext4_volume *vol);	/* at mount */
/* VATTR_ATIME|MTIME|CTIME := now, in raw */
void ext4_touch(struct ext4_inode *inode, unsigned int what);
/* Would ext4_touch() change nothing? The clock that it takes moves every few milliseconds. */
bool ext4_is_touched(const struct ext4_inode *inode, unsigned int what);
void ext4_time_get(const struct ext4_inode *inode, unsigned int which, struct timespec *ts);
void ext4_time_set(struct ext4_inode *inode, unsigned int which, const struct timespec *ts);
int ext4_getattr(struct vnode *node, struct stat *st);
int ext4_setattr(struct vnode *node, const struct stat *st, unsigned int valid,
		 const struct cred *cred);
void walk_read(struct ext4_inode *inode);	/* walk.c: a file is read, perhaps after others */
int ext4_check_open(struct vnode *node, int flags);
void ext4_accessed(struct vnode *node);
static inline bool ext4_is_rofs(struct ext4_volume *vol)
{
	return __atomic_load_n(&vol->vol.readonly, __ATOMIC_ACQUIRE);
}
/* The inode's immutable / append-only flags forbid it: -EPERM. */
int ext4_may_change(const struct ext4_inode *inode);

/*
 * blocks and maps (blocks.c, map.c, map_alloc.c, extents.c, indirect.c)
 */
/* Takes @nr blocks out of what others may have; -ENOSPC, nothing taken. Any lock may be held. */
int blocks_reserve(struct ext4_volume *vol, uint64_t nr);
void blocks_unreserve(struct ext4_volume *vol, uint64_t nr);
/* Blocks that may be reserved yet, for statfs. */
uint64_t blocks_available(struct ext4_volume *vol);
/*
 * Allocates a block of metadata, or a run of at most @len blocks of data, at least one; marks
 * bitmaps, counts. Does not look at reservations: the caller holds one. Allocations of libext2fs
 * itself (directories, xattrs) come through a callback that leaves reserved blocks alone. Between
 * begin and end.
 */
int blocks_alloc(struct ext4_volume *vol, uint64_t goal, uint64_t *pblk);
int blocks_alloc_data(struct ext4_inode *inode, uint64_t goal, uint32_t len, uint64_t *pblk,
		      uint32_t *got);
/*
 * The same in two steps, for data that is written before it is found: chosen blocks stay free on the
 * image, but nobody else gets them. Volume lock.
 */
int blocks_choose(struct ext4_inode *inode, uint64_t goal, uint32_t len, uint64_t *pblk,
		  uint32_t *got);
void blocks_take_chosen(struct ext4_volume *vol, uint64_t pblk, uint32_t len);
void blocks_give_up(struct ext4_volume *vol, uint64_t pblk, uint32_t len);
/* Freed blocks are free to be used. Volume lock. */
void blocks_release(struct ext4_volume *vol, uint64_t pblk, uint64_t count);
/* The device mapping forgets them, too. */
void blocks_free(struct ext4_volume *vol, uint64_t pblk, uint64_t count);
/* The bitmaps have been read. Volume lock. */
int blocks_loaded(struct ext4_volume *vol);
/* Installs the callbacks, counts free blocks. Once, after ext2fs_open. */
int blocks_init(struct ext4_volume *vol);
uint64_t blocks_inode_goal(struct ext4_inode *inode);	/* where its first block would best be */

/*
 * What is at @lblk: an extent cut to start there (pblk 0: hole of len blocks). Loads the map: may
 * take the volume lock; so not with it held (map_find_locked then).
 */
int map_find(struct ext4_inode *inode, uint32_t lblk, struct map_extent *out);
int map_find_locked(struct ext4_inode *inode, uint32_t lblk, struct map_extent *out);
/*
 * Gives blocks to all of [lblk, lblk+len), allocating holes and making unwritten ones written, and
 * writes the inode. -ENOSPC: nothing new allocated. Between begin and end.
 */
int map_alloc(struct ext4_inode *inode, uint32_t lblk, uint32_t len);
/* Unwritten blocks for the holes of [lblk, *end), or of a part that ends at what *end becomes. */
int map_preallocate(struct ext4_inode *inode, uint32_t lblk, uint64_t *end);
/* The same in two steps for writeback, whose blocks are reserved: map_alloc.c. */
int map_choose(struct ext4_inode *inode, struct map_extent *want);
int map_attach(struct ext4_inode *inode, struct map_extent *place, bool failed);
/*
 * Frees [lblk, *end), or up to what *end becomes when the transaction is full before, and writes the
 * inode. Between begin and end; the mapping holds nothing there.
 */
int map_remove(struct ext4_inode *inode, uint32_t lblk, uint64_t *end);
/* Makes written blocks of [lblk, *end), or of a part as above, unwritten (extents only). */
int map_set_unwritten(struct ext4_inode *inode, uint32_t lblk, uint64_t *end);
void map_init(struct ext4_map *map);
/* The inode goes; nobody else uses it. */
void map_finish(struct ext4_inode *inode);
void maps_init(struct ext4_volume *vol);

/*
 * files (file.c file_io.c falloc.c truncate.c inline.c copy.c)
 */
extern const struct mapping_ops ext4_file_mapping_ops;
ssize_t ext4_write(struct vnode *node, loff_t pos, const void *buf, size_t len,
		   unsigned int flags);
/* Sets size; inode lock exclusive. */
int ext4_truncate(struct ext4_inode *inode, loff_t size);
/*
 * Frees everything of an inode about to be deleted (regular, directory, symlink). Between begin and
 * end.
 */
int ext4_free_data(struct ext4_inode *inode);
int ext4_free_most(struct ext4_inode *inode);	/* what is too much for one operation; begins it */
int ext4_fsync(struct vnode *node, bool datasync);
int ext4_fallocate(struct vnode *node, int mode, loff_t pos, loff_t len);
loff_t ext4_seek(struct vnode *node, loff_t pos, enum seek_whence whence);
ssize_t ext4_copy_range(struct vnode *in, loff_t in_pos, struct vnode *out, loff_t out_pos,
			size_t len);
loff_t ext4_max_size(struct ext4_inode *inode);	/* bytes: EFBIG past it */
int inline_read(struct ext4_inode *inode, void *buf, size_t size, size_t *len);	/* volume lock */
int inline_convert(struct ext4_inode *inode);	/* to blocks; between begin and end */

/*
 * names (dir*.c namei.c readdir.c rename.c symlink.c)
 */
int ext4_lookup(struct vnode *dir, const char *name, struct vnode **out);
int ext4_mknod(struct vnode *dir, const char *name, mode_t mode, dev_t rdev,
	       const struct cred *cred, struct vnode **out);
int ext4_mkdir(struct vnode *dir, const char *name, mode_t mode, const struct cred *cred,
	       struct vnode **out);
int ext4_symlink(struct vnode *dir, const char *name, const char *target, const struct cred *cred,
		 struct vnode **out);
int ext4_link(struct vnode *node, struct vnode *dir, const char *name);
int ext4_unlink(struct vnode *dir, const char *name);
int ext4_rmdir(struct vnode *dir, const char *name);
int ext4_rename(struct vnode *dir, const char *name, struct vnode *newdir, const char *newname,
		unsigned int flags, const struct cred *cred);
ssize_t ext4_readlink(struct vnode *node, char *buf, size_t size);
int ext4_readdir(struct vnode *dir, uint64_t cookie, dir_emit_t emit, void *arg);
void dir_index_free(struct ext4_inode *inode);	/* an inode without users goes: its index, if any */

/*
 * attributes (xattr.c acl.c ioctl.c trim.c)
 */
ssize_t ext4_getxattr(struct vnode *node, const char *name, void *buf, size_t size);
int ext4_setxattr(struct vnode *node, const char *name, const void *value, size_t size, int flags,
		  const struct cred *cred);
ssize_t ext4_listxattr(struct vnode *node, char *buf, size_t size, const struct cred *cred);
int ext4_removexattr(struct vnode *node, const char *name);
/* Gives a new inode its ACLs from dir's default ACL; applies cred->umask where there is none (into
 * *mode and the inode). Between begin and end. */
int acl_inherit(struct ext4_inode *dir, struct ext4_inode *inode, const struct cred *cred);
/* Frees xattr blocks and EA inodes of an inode about to be deleted. Between begin and end. */
int xattr_free(struct ext4_inode *inode);
int acl_chmod(struct ext4_inode *inode);	/* mode has changed: the access ACL follows */
int ext4_getflags(struct vnode *node, uint32_t *flags);
int ext4_setflags(struct vnode *node, uint32_t flags, const struct cred *cred);
int ext4_getfsxattr(struct vnode *node, struct vfsxattr *attr);
int ext4_trim(struct volume *volume, uint64_t start, uint64_t len, uint64_t minlen,
	      uint64_t *trimmed);
int ext4_getlabel(struct volume *volume, char label[256]);
int ext4_setlabel(struct volume *volume, const char *label);

#endif
