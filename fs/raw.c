/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The raw format: a directory with one file in it, which is the image. Its size is fixed.
 *
 * Both vnodes live as long as the volume, so references need no count. The file's data is a mapping
 * of its own right on the image: offsets are the image's. The last page may lie partly behind the
 * end; there it reads as zeros and is never written.
 *
 * Locks: one for writers, so that filemap_write() has the one that it asks for. Attributes are
 * those of the image at the time of the mount; only times change, in memory alone.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "log.h"
#include "transfers.h"
#include "volume.h"

#define RAW_ROOT_INO 1
#define RAW_FILE_INO 2
#define RAW_BLOCK 4096

struct raw_volume {
	struct volume vol;
	struct vnode root, file;
	pthread_mutex_t write_lock;
	pthread_mutex_t time_lock;		/* atime, mtime, ctime */
	struct timespec atime, mtime, ctime;
	char name[NAME_MAX + 1];
};

static struct raw_volume *to_raw(struct volume *volume)
{
	return (struct raw_volume *)volume;
}

static struct raw_volume *node_raw(struct vnode *node)
{
	return to_raw(node->volume);
}

static int raw_lookup(struct vnode *dir, const char *name, struct vnode **out)
{
	struct raw_volume *raw = node_raw(dir);

	if (strlen(name) > NAME_MAX)
		return -ENAMETOOLONG;
	if (dir != &raw->root || strcmp(name, raw->name))
		return dir == &raw->root ? -ENOENT : -ENOTDIR;
	*out = &raw->file;
	return 0;
}

static int raw_readdir(struct vnode *dir, uint64_t cookie, dir_emit_t emit, void *arg)
{
	struct raw_volume *raw = node_raw(dir);
	const struct {
		const char *name;
		uint64_t ino;
		unsigned int type;
	} entries[] = {
		{".", RAW_ROOT_INO, DT_DIR},
		{"..", RAW_ROOT_INO, DT_DIR},
		{raw->name, RAW_FILE_INO, DT_REG},
	};

	for (; cookie < 3; cookie++) {
		if (!emit(arg, entries[cookie].name, strlen(entries[cookie].name),
			  entries[cookie].ino, entries[cookie].type, cookie + 1))
			break;
	}
	return 0;
}

static int raw_getattr(struct vnode *node, struct stat *st)
{
	struct raw_volume *raw = node_raw(node);
	bool is_file = node == &raw->file;

	memset(st, 0, sizeof(*st));
	st->st_ino = node->ino;
	st->st_mode = node->mode;
	st->st_nlink = is_file ? 1 : 2;
	st->st_uid = getuid();
	st->st_gid = getgid();
	st->st_size = is_file ? mapping_size(&node->mapping) : RAW_BLOCK;
	st->st_blksize = RAW_BLOCK;
	st->st_blocks = (st->st_size + 511) / 512;
	pthread_mutex_lock(&raw->time_lock);
	st->st_atim = raw->atime;
	st->st_mtim = raw->mtime;
	st->st_ctim = raw->ctime;
	pthread_mutex_unlock(&raw->time_lock);
	return 0;
}

static int raw_setattr(struct vnode *node, const struct stat *st, unsigned int valid,
		       const struct cred *cred)
{
	struct raw_volume *raw = node_raw(node);
	struct timespec now;

	if (valid & (VATTR_MODE | VATTR_UID | VATTR_GID))
		return -EPERM;
	if ((valid & VATTR_SIZE) &&
	    (node != &raw->file || st->st_size != mapping_size(&node->mapping)))
		return -EPERM;
	clock_gettime(CLOCK_REALTIME, &now);
	pthread_mutex_lock(&raw->time_lock);
	if (valid & (VATTR_ATIME | VATTR_ATIME_NOW))
		raw->atime = valid & VATTR_ATIME_NOW ? now : st->st_atim;
	if (valid & (VATTR_MTIME | VATTR_MTIME_NOW))
		raw->mtime = valid & VATTR_MTIME_NOW ? now : st->st_mtim;
	raw->ctime = now;
	pthread_mutex_unlock(&raw->time_lock);
	return 0;
}

static struct vnode *raw_root(struct volume *volume)
{
	return &to_raw(volume)->root;
}

static void raw_get(struct vnode *node)
{
}

static void raw_put(struct vnode *node, uint64_t nr)
{
}

static int raw_statfs(struct volume *volume, struct statvfs *st)
{
	struct raw_volume *raw = to_raw(volume);

	memset(st, 0, sizeof(*st));
	st->f_bsize = RAW_BLOCK;
	st->f_frsize = RAW_BLOCK;
	st->f_blocks = (mapping_size(&raw->file.mapping) + RAW_BLOCK - 1) / RAW_BLOCK;
	st->f_files = 2;
	st->f_namemax = NAME_MAX;
	return 0;
}

static ssize_t raw_write(struct vnode *node, loff_t pos, const void *buf, size_t len,
			 unsigned int flags)
{
	struct raw_volume *raw = node_raw(node);
	loff_t size = mapping_size(&node->mapping);
	ssize_t ret;

	if (raw->vol.readonly)
		return -EROFS;
	if ((flags & VWRITE_APPEND) || pos >= size)
		return len ? -ENOSPC : 0;
	if ((loff_t)len > size - pos)
		len = size - pos;
	pthread_mutex_lock(&raw->write_lock);
	ret = filemap_write(&node->mapping, pos, buf, len);
	pthread_mutex_unlock(&raw->write_lock);
	pthread_mutex_lock(&raw->time_lock);
	clock_gettime(CLOCK_REALTIME, &raw->mtime);
	raw->ctime = raw->mtime;
	pthread_mutex_unlock(&raw->time_lock);
	return ret;
}

static int raw_fsync(struct vnode *node, bool datasync)
{
	struct raw_volume *raw = node_raw(node);
	int ret = filemap_write_and_wait(&raw->file.mapping);
	int ret2 = volume_flush(&raw->vol);

	return ret ?: ret2;
}

static int raw_sync(struct volume *volume)
{
	return raw_fsync(&to_raw(volume)->file, false);
}

/* Adds the folio's blocks that are (@is) or are not of a kind, as far as the image goes. */
static int add_blocks(struct transfers *t, struct folio *folio, enum folio_blocks kind, bool is)
{
	unsigned int block = 0, nr;
	int err = 0;

	while (!err && (nr = folio_find_run(folio, kind, is, &block))) {
		loff_t pos = folio_pos(folio) + (loff_t)block * RAW_BLOCK;
		size_t len = (size_t)nr * RAW_BLOCK;

		if (pos >= (loff_t)t->image->size)
			break;
		if ((uint64_t)pos + len > t->image->size)
			len = t->image->size - pos;
		err = transfers_add(t, pos, folio_block_address(folio, block), len);
		block += nr;
	}
	return err;
}

/* What lies behind the end of the image reads as zeros. */
static void zero_behind(struct folio *folio, loff_t size)
{
	loff_t pos = folio_pos(folio);
	size_t keep = size > pos ? size - pos : 0;

	if (keep < folio_size(folio))
		folio_zero(folio, keep, folio_size(folio) - keep);
}

static int raw_read_folios(struct mapping *mapping, struct folio **folios, unsigned int nr)
{
	struct raw_volume *raw = mapping->owner;
	struct transfers t;
	int ret = 0;

	transfers_init(&t, raw->vol.image, false);
	for (unsigned int i = 0; i < nr && !ret; i++)
		ret = add_blocks(&t, folios[i], BLOCKS_VALID, false);
	if (!ret) {
		ret = transfers_submit(&t);
		for (unsigned int i = 0; i < nr; i++) {
			zero_behind(folios[i], mapping_size(mapping));
			transfers_mark_valid(&t, folios[i], ret);
		}
	}
	transfers_finish(&t);
	return ret;
}

static int raw_write_folios(struct mapping *mapping, struct folio **folios, unsigned int nr)
{
	struct raw_volume *raw = mapping->owner;
	struct transfers t;
	int ret = 0;

	/*
	 * Every block has its place, and WRITEBACK keeps the folios and their bytes where they
	 * are.
	 */
	transfers_init(&t, raw->vol.image, true);
	for (unsigned int i = 0; i < nr; i++) {
		if (!ret)
			ret = add_blocks(&t, folios[i], BLOCKS_WRITING, true);
		folio_unlock(folios[i]);
	}
	if (!ret)
		ret = transfers_submit(&t);
	transfers_finish(&t);
	return ret;
}

static const struct mapping_ops raw_mapping_ops = {
	.read_folios = raw_read_folios,
	.write_folios = raw_write_folios,
};

static int raw_close(struct volume *volume)
{
	struct raw_volume *raw = to_raw(volume);
	struct mapping *mapping = &raw->file.mapping;
	int ret = volume->readonly ? 0 : raw_sync(volume);

	filemap_invalidate_lock(mapping);
	truncate_all(mapping);
	filemap_invalidate_unlock(mapping);
	mapping_finish(mapping);
	pthread_mutex_destroy(&raw->write_lock);
	pthread_mutex_destroy(&raw->time_lock);
	free(raw);
	return ret;
}

static const struct volume_ops raw_ops = {
	.lookup = raw_lookup,
	.readdir = raw_readdir,
	.getattr = raw_getattr,
	.setattr = raw_setattr,
	.root = raw_root,
	.get = raw_get,
	.put = raw_put,
	.statfs = raw_statfs,
	.write = raw_write,
	.fsync = raw_fsync,
	.sync = raw_sync,
	.close = raw_close,
};

static void raw_set_name(struct raw_volume *raw, const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *base = slash ? slash + 1 : path;

	snprintf(raw->name, sizeof(raw->name), "%s", *base ? base : "image");
}

/**
 * raw_open() - show an image as one file
 * @out: the volume, when 0 is returned
 * @image: stays the caller's
 * @cache: stays the caller's
 * @options: stays the caller's
 *
 * Context: may sleep; the thread is registered with RCU.
 * Return: 0, or an errno after one clear line was logged.
 */
int raw_open(struct volume **out, struct image *image, struct cache *cache,
	     const struct options *options)
{
	struct raw_volume *raw = calloc(1, sizeof(*raw));
	mode_t write = image->readonly || options->ro ? 0 : S_IWUSR;
	int ret;

	if (!raw) {
		log_error("out of memory");
		return -ENOMEM;
	}
	raw->vol = (struct volume){
		.ops = &raw_ops,
		.image = image,
		.cache = cache,
		.options = options,
		.readonly = image->readonly || options->ro,
		.time_gran = 1,
		.blocksize = RAW_BLOCK,
	};
	raw->root = (struct vnode){
		.volume = &raw->vol, .ino = RAW_ROOT_INO, .mode = S_IFDIR | S_IRUSR | S_IXUSR};
	raw->file.volume = &raw->vol;
	raw->file.ino = RAW_FILE_INO;
	raw->file.mode = S_IFREG | S_IRUSR | write;
	ret = mapping_init(&raw->file.mapping, cache, MAPPING_FILE, PAGE_SHIFT, &raw_mapping_ops,
			   raw);
	if (ret) {
		log_error("cannot set up the cache: %s", strerror(-ret));
		free(raw);
		return ret;
	}
	mapping_set_size(&raw->file.mapping, image->size);
	pthread_mutex_init(&raw->write_lock, NULL);
	pthread_mutex_init(&raw->time_lock, NULL);
	clock_gettime(CLOCK_REALTIME, &raw->mtime);
	raw->atime = raw->ctime = raw->mtime;
	raw_set_name(raw, image->name);
	*out = &raw->vol;
	return 0;
}
