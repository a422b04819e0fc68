/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Inodes in use.
 *
 * A hash table by number holds every inode that somebody references (the kernel through lookups,
 * the session, a flusher) and those whose dirty data is still to be written after the last
 * reference went: these stay, with no reference, until the flusher has pinned and unpinned them. So
 * forgetting a file is cheap, and its pages go with it.
 *
 * An inode with no links is deleted by its last reference: data, xattrs, then the inode itself. It
 * stays in the table, `dying`, until its number is given back, so that nobody else can get the
 * number meanwhile; dying inodes are neither found nor pinned.
 *
 * Locks: the icache lock guards the table, and refs where it goes to or comes from 0. Inodes enter
 * the table only under the volume lock, too, so that one is never read twice.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "ext4.h"
#include "log.h"
#include "txn.h"

#define HASH_BITS_MIN 10
#define HASH_BITS_MAX 24
#define FORGET_WAIT_NS 50000000	/* longest way of a forget to us */

static unsigned int hash(uint32_t ino, unsigned int bits)
{
	return ino * 0x9e3779b1U >> (32 - bits);
}

int icache_init(struct ext4_volume *vol)
{
	vol->icache_bits = HASH_BITS_MIN;
	vol->icache = calloc((size_t)1 << HASH_BITS_MIN, sizeof(*vol->icache));
	return vol->icache ? 0 : -ENOMEM;
}

/* The icache lock is held. */
static struct ext4_inode *icache_find(struct ext4_volume *vol, uint32_t ino)
{
	struct ext4_inode *inode = vol->icache[hash(ino, vol->icache_bits)];

	while (inode && inode->vn.ino != ino)
		inode = inode->hash_next;
	return inode;
}

/* Doubles the table; a failure only leaves longer chains. The icache lock is held. */
static void icache_grow(struct ext4_volume *vol)
{
	unsigned int bits = vol->icache_bits + 1;
	struct ext4_inode **table, *inode, *next;

	if (bits > HASH_BITS_MAX)
		return;
	table = calloc((size_t)1 << bits, sizeof(*table));
	if (!table)
		return;
	for (size_t i = 0; i < (size_t)1 << vol->icache_bits; i++) {
		for (inode = vol->icache[i]; inode; inode = next) {
			struct ext4_inode **slot = &table[hash(inode->vn.ino, bits)];

			next = inode->hash_next;
			inode->hash_next = *slot;
			*slot = inode;
		}
	}
	free(vol->icache);
	vol->icache = table;
	vol->icache_bits = bits;
}

/*
 * The inode of number @ino, dying or not, without a reference: for callers under the volume lock,
 * that use it no longer than that. (An inode that is not dying may be dropped without the volume
 * lock; but who asks here works for somebody who holds a reference to it.)
 */
struct ext4_inode *icache_peek(struct ext4_volume *vol, uint32_t ino)
{
	struct ext4_inode *inode;

	pthread_mutex_lock(&vol->icache_lock);
	inode = icache_find(vol, ino);
	pthread_mutex_unlock(&vol->icache_lock);
	return inode;
}

void icache_insert(struct ext4_volume *vol, struct ext4_inode *inode)
{
	struct ext4_inode **slot;

	pthread_mutex_lock(&vol->icache_lock);
	if (vol->icache_count > 2U << vol->icache_bits)
		icache_grow(vol);
	slot = &vol->icache[hash(inode->vn.ino, vol->icache_bits)];
	inode->hash_next = *slot;
	*slot = inode;
	vol->icache_count++;
	pthread_mutex_unlock(&vol->icache_lock);
}

/* The icache lock is held. */
static void icache_remove(struct ext4_volume *vol, struct ext4_inode *inode)
{
	struct ext4_inode **slot = &vol->icache[hash(inode->vn.ino, vol->icache_bits)];

	while (*slot != inode)
		slot = &(*slot)->hash_next;
	*slot = inode->hash_next;
}

/* With one reference, for number @ino, not in the table */
struct ext4_inode *inode_new(struct ext4_volume *vol, uint32_t ino)
{
	size_t size = EXT2_INODE_SIZE(vol->fs->super);
	size_t room = offsetof(struct ext4_inode, raw) +
		      (size > sizeof(struct ext2_inode_large) ? size :
								sizeof(struct ext2_inode_large));
	struct ext4_inode *inode;
	pthread_rwlockattr_t attr;

	inode = calloc(1, room > sizeof(*inode) ? room : sizeof(*inode));
	if (!inode)
		return NULL;
	inode->vn.volume = &vol->vol;
	inode->vn.ino = ino;
	inode->refs = 1;
	inode->raw_size = size;
	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&inode->lock, &attr);
	pthread_rwlockattr_destroy(&attr);
	map_init(&inode->map);
	return inode;
}

/* What in the vnode follows from raw; regular files get their mapping. */
int inode_ready(struct ext4_inode *inode)
{
	struct ext4_volume *vol = ext4_vol(inode);
	int err;

	inode->vn.mode = inode->raw.i_mode;
	inode->vn.generation = inode->raw.i_generation;
	if (!S_ISREG(inode->raw.i_mode))
		return 0;
	err = mapping_init(&inode->vn.mapping, vol->vol.cache, MAPPING_FILE,
			   vol->device.block_shift, &ext4_file_mapping_ops, inode);
	if (err)
		return err;
	inode->has_mapping = true;
	mapping_set_size(&inode->vn.mapping, EXT2_I_SIZE(&inode->raw));
	return 0;
}

/* No reference is left, and the inode is not in the table. Its pages go. */
void inode_free(struct ext4_inode *inode)
{
	if (inode->has_mapping) {
		filemap_invalidate_lock(&inode->vn.mapping);
		truncate_all(&inode->vn.mapping);
		filemap_invalidate_unlock(&inode->vn.mapping);
		mapping_finish(&inode->vn.mapping);
	}
	map_finish(inode);
	dir_index_free(inode);
	pthread_rwlock_destroy(&inode->lock);
	free(inode);
}

/* An inode that has left the table goes. The volume may be gone after the last one. */
static void inode_drop(struct ext4_volume *vol, struct ext4_inode *inode)
{
	inode_free(inode);
	pthread_mutex_lock(&vol->icache_lock);
	vol->icache_count--;
	pthread_mutex_unlock(&vol->icache_lock);
}

/* A reference to an inode that is in use; NULL when it is not. -ESTALE when it is being deleted. */
static int icache_get(struct ext4_volume *vol, uint32_t ino, struct ext4_inode **out)
{
	struct ext4_inode *inode;
	int err = 0;

	pthread_mutex_lock(&vol->icache_lock);
	inode = icache_find(vol, ino);
	if (inode && inode->dying)
		err = -ESTALE;
	else if (inode)
		__atomic_add_fetch(&inode->refs, 1, __ATOMIC_ACQ_REL);
	pthread_mutex_unlock(&vol->icache_lock);
	*out = err ? NULL : inode;
	return err;
}

/* Reads it and puts it into the table. Volume lock. */
static int inode_load(struct ext4_volume *vol, uint32_t ino, bool unlinked,
		      struct ext4_inode **out)
{
	struct ext4_inode *inode = inode_new(vol, ino);
	int err;

	if (!inode)
		return -ENOMEM;
	err = ext4_inode_read(vol, inode, ino);
	if (!err && !inode->raw.i_links_count && !unlinked)
		err = ext4_corrupt(vol, ino, -EUCLEAN, "is deleted, but in use");
	if (!err)
		err = inode_ready(inode);
	if (err) {
		inode_free(inode);
		return err;
	}
	inode->load = __atomic_fetch_add(&vol->walk.loaded, 1, __ATOMIC_RELAXED);
	icache_insert(vol, inode);
	*out = inode;
	return 0;
}

/* Reference to @ino; with @unlinked also when it has no links (orphans, at mount). Volume lock. */
int inode_get_locked(struct ext4_volume *vol, uint32_t ino, bool unlinked,
		     struct ext4_inode **out)
{
	int err = icache_get(vol, ino, out);

	if (err || *out)
		return err;
	return inode_load(vol, ino, unlinked, out);
}

/**
 * ext4_iget - reference an inode by number
 * @vol: volume
 * @ino: number; reserved ones other than the root's are refused
 * @out: the inode
 *
 * Context: takes the volume lock when the inode is not in use. May sleep.
 * Return: 0, -EUCLEAN for damage, -ESTALE for one being deleted, or another error.
 */
int ext4_iget(struct ext4_volume *vol, uint32_t ino, struct ext4_inode **out)
{
	int err = icache_get(vol, ino, out);

	if (err || *out)
		return err;
	ext4_lock(vol);
	if (ino != EXT2_ROOT_INO && ino < EXT2_FIRST_INODE(vol->fs->super))
		err = ext4_corrupt(vol, ino, -EUCLEAN, "reserved inode in use");
	else
		err = inode_get_locked(vol, ino, false, out);
	ext4_unlock(vol);
	return err;
}

void ext4_igrab(struct ext4_inode *inode)
{
	uint64_t refs = __atomic_fetch_add(&inode->refs, 1, __ATOMIC_ACQ_REL);

	assert(refs);
	(void)refs;
}

/* Takes @nr references unless that would leave none. */
static bool drop_not_last(struct ext4_inode *inode, uint64_t nr)
{
	uint64_t refs = __atomic_load_n(&inode->refs, __ATOMIC_RELAXED);

	while (refs > nr) {
		if (__atomic_compare_exchange_n(&inode->refs, &refs, refs - nr, true,
						__ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			return true;
	}
	assert(refs == nr);
	return false;
}

/* Gives back all that the image holds for an unlinked inode. Between begin and end. */
static int delete_on_image(struct ext4_volume *vol, struct ext4_inode *inode)
{
	int err = ext4_free_data(inode);

	if (!err)
		err = xattr_free(inode);
	if (!err && inode->orphan)
		err = orphan_del(inode);
	if (!err) {
		inode->raw.i_dtime = time(NULL);
		err = ext4_inode_write(inode);
	}
	return err;
}

static void deletion_begins(struct ext4_volume *vol)
{
	pthread_mutex_lock(&vol->icache_lock);
	vol->deleting++;
	pthread_cond_broadcast(&vol->deletion);
	pthread_mutex_unlock(&vol->icache_lock);
}

/* The inode leaves the table, too. */
static void deletion_ends(struct ext4_volume *vol, struct ext4_inode *inode)
{
	pthread_mutex_lock(&vol->icache_lock);
	icache_remove(vol, inode);
	vol->deleting--;
	vol->deleted++;
	pthread_cond_broadcast(&vol->deletion);
	pthread_mutex_unlock(&vol->icache_lock);
}

/* The last reference of an unlinked inode is gone; it is dying. */
static void inode_delete(struct ext4_volume *vol, struct ext4_inode *inode)
{
	int err;

	deletion_begins(vol);
	/* Before the blocks are given back: nothing may be written to them any more. */
	if (inode->has_mapping) {
		filemap_invalidate_lock(&inode->vn.mapping);
		truncate_all(&inode->vn.mapping);
		filemap_invalidate_unlock(&inode->vn.mapping);
	}
	/* When it cannot be deleted now it stays an orphan in the image, for e2fsck. */
	err = ext4_free_most(inode);
	if (!err) {
		err = delete_on_image(vol, inode);
		deletion_ends(vol, inode);
		if (!err)
			ialloc_free(inode);
		orphan_forget(inode);
		ext4_end(vol);
	} else {
		ext4_lock(vol);
		deletion_ends(vol, inode);
		orphan_forget(inode);
		ext4_unlock(vol);
	}
	inode_drop(vol, inode);
}

static bool has_unlinked(struct ext4_volume *vol)
{
	bool has;

	ext4_lock(vol);
	has = vol->orphans;
	ext4_unlock(vol);
	return has;
}

/**
 * inode_wait_deleted - wait for space of unlinked files
 * @vol: volume
 *
 * The kernel forgets a file after its unlink was answered, and other requests may overtake that:
 * who removes a file and writes another at once finds the space still taken. With a journal it is
 * taken until the transaction is committed, which is done here.
 *
 * Context: no lock but inode locks of files that have names. Sleeps as long as files are being
 * deleted, or for the moment in which the next forget would come.
 * Return: whether a file was deleted meanwhile, or a commit has given back some blocks.
 */
bool inode_wait_deleted(struct ext4_volume *vol)
{
	struct timespec until;
	uint64_t before;
	bool some;
	int err = 0;

	if (txn_give_freed(vol))
		return true;
	if (!has_unlinked(vol))
		return false;
	if (image_about_to_wait)
		image_about_to_wait();
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (until.tv_nsec + FORGET_WAIT_NS) / 1000000000;
	until.tv_nsec = (until.tv_nsec + FORGET_WAIT_NS) % 1000000000;
	pthread_mutex_lock(&vol->icache_lock);
	before = vol->deleted;
	while (!vol->deleting && vol->deleted == before && err != ETIMEDOUT)
		err = pthread_cond_clockwait(&vol->deletion, &vol->icache_lock, CLOCK_MONOTONIC,
					     &until);
	while (vol->deleting && vol->deleted == before)
		pthread_cond_wait(&vol->deletion, &vol->icache_lock);
	some = vol->deleted != before;
	pthread_mutex_unlock(&vol->icache_lock);
	if (some)
		txn_give_freed(vol);
	return some;
}

static bool has_dirty_data(struct ext4_inode *inode)
{
	return inode->has_mapping &&
	       __atomic_load_n(&inode->vn.mapping.nrdirty, __ATOMIC_ACQUIRE);
}

/* Gives back @nr references, perhaps the last. The icache lock is held, and released. */
static void put_locked(struct ext4_volume *vol, struct ext4_inode *inode, uint64_t nr)
{
	bool delete;

	if (__atomic_sub_fetch(&inode->refs, nr, __ATOMIC_ACQ_REL)) {
		pthread_mutex_unlock(&vol->icache_lock);
		return;
	}
	delete = !inode->raw.i_links_count;
	if (!delete && has_dirty_data(inode)) {
		/* The flusher's unpin brings us back here. */
		pthread_mutex_unlock(&vol->icache_lock);
		return;
	}
	inode->dying = true;
	if (!delete)
		icache_remove(vol, inode);
	pthread_mutex_unlock(&vol->icache_lock);
	if (delete)
		inode_delete(vol, inode);
	else
		inode_drop(vol, inode);
}

/**
 * ext4_iput - give back references
 * @inode: inode
 * @nr: how many
 *
 * Context: no lock of this inode and not the volume lock. May sleep: the last reference of an
 * unlinked inode deletes it.
 */
void ext4_iput(struct ext4_inode *inode, uint64_t nr)
{
	struct ext4_volume *vol = ext4_vol(inode);

	if (!nr || drop_not_last(inode, nr))
		return;
	pthread_mutex_lock(&vol->icache_lock);
	put_locked(vol, inode, nr);
}

struct mapping *icache_pin(struct ext4_volume *vol, uint32_t ino,
			   bool (*fits)(struct ext4_inode *inode))
{
	struct ext4_inode *inode;

	pthread_mutex_lock(&vol->icache_lock);
	inode = icache_find(vol, ino);
	if (inode && (inode->dying || !fits(inode)))
		inode = NULL;
	if (inode) {
		__atomic_add_fetch(&inode->refs, 1, __ATOMIC_ACQ_REL);
		inode->pins++;
	}
	pthread_mutex_unlock(&vol->icache_lock);
	return inode ? &inode->vn.mapping : NULL;
}

bool ext4_mapping_pin(struct mapping *mapping)
{
	struct ext4_inode *inode = mapping->owner;
	struct ext4_volume *vol = ext4_vol(inode);
	bool alive;

	pthread_mutex_lock(&vol->icache_lock);
	alive = !inode->dying;
	if (alive) {
		__atomic_add_fetch(&inode->refs, 1, __ATOMIC_ACQ_REL);
		inode->pins++;
	}
	pthread_mutex_unlock(&vol->icache_lock);
	return alive;
}

void ext4_mapping_unpin(struct mapping *mapping)
{
	struct ext4_inode *inode = mapping->owner;
	struct ext4_volume *vol = ext4_vol(inode);

	pthread_mutex_lock(&vol->icache_lock);
	inode->pins--;
	if (!inode->dying) {
		put_locked(vol, inode, 1);
		return;
	}
	/* The volume is being closed: icache_finish() waits for us and frees it. */
	__atomic_sub_fetch(&inode->refs, 1, __ATOMIC_ACQ_REL);
	pthread_mutex_unlock(&vol->icache_lock);
}

/*
 * The next inode of the table from chain *@at on, with all its references taken over, once no
 * flusher is at work on it; NULL when there is none but those that a flusher is deleting.
 */
static struct ext4_inode *take_next(struct ext4_volume *vol, size_t *at)
{
	struct ext4_inode *inode = NULL;

	pthread_mutex_lock(&vol->icache_lock);
	for (; *at < (size_t)1 << vol->icache_bits; ++*at) {
		inode = vol->icache[*at];
		while (inode && inode->dying)
			inode = inode->hash_next;
		if (inode)
			break;
	}
	if (inode)
		inode->dying = true;
	while (inode && inode->pins) {
		pthread_mutex_unlock(&vol->icache_lock);
		usleep(1000);
		pthread_mutex_lock(&vol->icache_lock);
	}
	if (inode && inode->raw.i_links_count)
		icache_remove(vol, inode);
	pthread_mutex_unlock(&vol->icache_lock);
	return inode;
}

/* Inodes in the table, or on their way from it */
static unsigned int icache_left(struct ext4_volume *vol)
{
	unsigned int count;

	pthread_mutex_lock(&vol->icache_lock);
	count = vol->icache_count;
	pthread_mutex_unlock(&vol->icache_lock);
	return count;
}

void icache_finish(struct ext4_volume *vol)
{
	struct ext4_inode *inode;
	size_t at = 0;

	if (!vol->icache)
		return;
	while (icache_left(vol)) {
		inode = take_next(vol, &at);
		if (!inode) {
			usleep(1000);
			at = 0;
			continue;
		}
		if (has_dirty_data(inode) && inode->raw.i_links_count)
			log_error("%s: inode %llu: data could not be written and is lost",
				  vol->vol.image->name, (unsigned long long)inode->vn.ino);
		if (inode->raw.i_links_count)
			inode_drop(vol, inode);
		else
			inode_delete(vol, inode);
	}
	free(vol->icache);
	vol->icache = NULL;
}
