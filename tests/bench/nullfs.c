/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * nullfs [--libfuse-loop] [-o options] NAME MOUNTPOINT: the limit of what a FUSE server can do here.
 *
 * A file server without a file system: a tree of names in memory, and for each file an array as
 * large as the file. A read is answered from the array at the request's offset, a write is copied into
 * it. The rest of a server is the daemon's own: its session loop (workers.c, with spin=), its
 * agreement with the kernel (the init handler of session_ops, init.c), its command line. So what the
 * daemon is slower than this is its own cost, and not the transport's. With --libfuse-loop libfuse's
 * threads serve instead of ours.
 *
 * It is as simple as that and no simpler, as a server whose answers all come from one small buffer is
 * faster than any memory that holds files could be: the array of a large file is of huge pages, as
 * the daemon's arena is.
 *
 * Large files have a stretch of addresses of their own that never moves, so their data needs no
 * lock. Everything else, small files' data with it, is under one lock. Extended attributes: there
 * are none. A name that was removed leaves a hole in its directory's array, so a reader's
 * position stays true. Serves in the foreground until unmounted.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "dispatch.h"
#include "log.h"
#include "rcu.h"

#define BUCKETS (1U << 20)
#define LARGE (1U << 20)	/* from this size on a file has its own addresses */
#define LARGEST (8ULL << 30)	/* as many */

struct node {
	struct stat st;		/* st_size is atomic */
	uint64_t nlookup;
	struct entry **entries;	/* of a directory; NULL where a name was removed */
	unsigned int nr, room;
	char *data;		/* of a small file, or what a symbolic link says */
	size_t data_room;
	char *large;		/* of a large file; set once; atomic */
};

struct entry {
	struct entry *chain;
	struct node *dir, *node;
	unsigned int at;	/* in the directory's array */
	char name[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *table[BUCKETS];
static struct node *root;
static uint64_t last_ino = FUSE_ROOT_ID;

static struct node *to_node(fuse_ino_t ino)
{
	return ino == FUSE_ROOT_ID ? root : (struct node *)(uintptr_t)ino;
}

static size_t size_of(const struct node *node)
{
	return __atomic_load_n(&node->st.st_size, __ATOMIC_RELAXED);
}

static void set_size(struct node *node, size_t size)
{
	__atomic_store_n(&node->st.st_size, size, __ATOMIC_RELAXED);
	node->st.st_blocks = (size + 4095) / 4096 * 8;
}

static char *large_of(const struct node *node)
{
	return __atomic_load_n(&node->large, __ATOMIC_ACQUIRE);
}

/* The chain that a name is in, or would be. */
static struct entry **bucket_of(const struct node *dir, const char *name)
{
	uint64_t hash = (uintptr_t)dir >> 4;

	while (*name)
		hash = (hash ^ (unsigned char)*name++) * 0x100000001b3ULL;
	return &table[(hash ^ hash >> 32) % BUCKETS];
}

static struct entry *find(const struct node *dir, const char *name)
{
	struct entry *entry = *bucket_of(dir, name);

	while (entry && (entry->dir != dir || strcmp(entry->name, name)))
		entry = entry->chain;
	return entry;
}

static void node_free(struct node *node)
{
	if (node->large)
		munmap(node->large, LARGEST);
	free(node->data);
	free(node->entries);
	free(node);
}

static void free_unused(struct node *node)
{
	if (!node->nlookup && !node->st.st_nlink)
		node_free(node);
}

static struct node *node_new(mode_t mode, uid_t uid, gid_t gid)
{
	struct node *node = calloc(1, sizeof(*node));

	if (!node)
		return NULL;
	node->st.st_ino = last_ino++;
	node->st.st_mode = mode;
	node->st.st_uid = uid;
	node->st.st_gid = gid;
	node->st.st_blksize = 4096;
	clock_gettime(CLOCK_REALTIME, &node->st.st_mtim);
	node->st.st_atim = node->st.st_ctim = node->st.st_mtim;
	return node;
}

/* Gives @node one more name. */
static int add_entry(struct node *dir, const char *name, struct node *node)
{
	struct entry **bucket = bucket_of(dir, name);
	struct entry *entry = malloc(sizeof(*entry) + strlen(name) + 1);

	if (entry && dir->nr == dir->room) {
		unsigned int room = dir->room ? 2 * dir->room : 8;
		void *more = realloc(dir->entries, room * sizeof(*dir->entries));

		if (!more) {
			free(entry);
			return ENOMEM;
		}
		dir->entries = more;
		dir->room = room;
	}
	if (!entry)
		return ENOMEM;
	entry->dir = dir;
	entry->node = node;
	entry->at = dir->nr;
	strcpy(entry->name, name);
	entry->chain = *bucket;
	*bucket = entry;
	dir->entries[dir->nr++] = entry;
	node->st.st_nlink++;
	if (S_ISDIR(node->st.st_mode))
		dir->st.st_nlink++;
	return 0;
}

static void remove_entry(struct entry *entry)
{
	struct entry **at = bucket_of(entry->dir, entry->name);

	while (*at != entry)
		at = &(*at)->chain;
	*at = entry->chain;
	entry->dir->entries[entry->at] = NULL;
	entry->node->st.st_nlink--;
	if (S_ISDIR(entry->node->st.st_mode))
		entry->dir->st.st_nlink--;
	free(entry);
}

static bool is_empty(const struct node *dir)
{
	for (unsigned int i = 0; i < dir->nr; i++) {
		if (dir->entries[i])
			return false;
	}
	return true;
}

/* Has the file room for @size bytes? Bytes that nobody has written are zeros. */
static int make_room(struct node *node, size_t size)
{
	size_t room = node->data_room ?: 64;
	char *data;

	if (node->large || size <= node->data_room)
		return size > LARGEST ? EFBIG : 0;
	if (size > LARGEST)
		return EFBIG;
	if (size >= LARGE) {
		data = mmap(NULL, LARGEST, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (data == MAP_FAILED)
			return ENOMEM;
		madvise(data, LARGEST, MADV_HUGEPAGE);
		memcpy(data, node->data ?: "", node->data ? node->data_room : 0);
		__atomic_store_n(&node->large, data, __ATOMIC_RELEASE);
		return 0;
	}
	while (room < size)
		room *= 2;
	data = realloc(node->data, room);
	if (!data)
		return ENOMEM;
	memset(data + node->data_room, 0, room - node->data_room);
	node->data = data;
	node->data_room = room;
	return 0;
}

/* What lies behind a file's end is zero, as it may be part of it again. */
static int resize(struct node *node, size_t size)
{
	size_t was = size_of(node);
	int ret = make_room(node, size);

	if (ret)
		return ret;
	if (size < was && node->large) {
		size_t page = (size + 4095) & ~(size_t)4095;

		memset(node->large + size, 0, page - size);
		madvise(node->large + page, LARGEST - page, MADV_DONTNEED);
	} else if (size < was) {
		memset(node->data + size, 0, was - size);
	}
	set_size(node, size);
	return 0;
}

/* Copies into the file. */
static int store(struct node *node, size_t pos, const char *buf, size_t len)
{
	char *large = large_of(node);
	int ret = 0;

	if (large && pos + len <= LARGEST)
		memcpy(large + pos, buf, len);
	if (large && pos + len <= size_of(node))
		return 0;
	pthread_mutex_lock(&lock);
	ret = make_room(node, pos + len);
	if (!ret && !large)
		memcpy((node->large ?: node->data) + pos, buf, len);
	if (!ret && pos + len > size_of(node))
		set_size(node, pos + len);
	pthread_mutex_unlock(&lock);
	return ret;
}

static void entry_of(struct node *node, struct fuse_entry_param *entry)
{
	memset(entry, 0, sizeof(*entry));
	entry->ino = node == root ? FUSE_ROOT_ID : (uintptr_t)node;
	entry->attr = node->st;
	entry->attr_timeout = entry->entry_timeout = FOREVER;
	node->nlookup++;
}

/* Ends a request that gives a node: unlocks, and replies. */
static void unlock_reply_node(fuse_req_t req, struct node *node, int error)
{
	struct fuse_entry_param entry;

	if (!error)
		entry_of(node, &entry);
	pthread_mutex_unlock(&lock);
	if (error)
		fuse_reply_err(req, error);
	else
		fuse_reply_entry(req, &entry);
}

static void unlock_reply_error(fuse_req_t req, int error)
{
	pthread_mutex_unlock(&lock);
	fuse_reply_err(req, error);
}

static void null_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct entry *entry;

	pthread_mutex_lock(&lock);
	entry = find(to_node(parent), name);
	unlock_reply_node(req, entry ? entry->node : NULL, entry ? 0 : ENOENT);
}

static void forget(fuse_ino_t ino, uint64_t nlookup)
{
	struct node *node = to_node(ino);

	pthread_mutex_lock(&lock);
	node->nlookup -= nlookup;
	free_unused(node);
	pthread_mutex_unlock(&lock);
}

static void null_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
	forget(ino, nlookup);
	fuse_reply_none(req);
}

static void null_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		forget(forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

/* A new file of any kind. The lock is held. */
static int make(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		struct node **out)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct node *node;

	if (find(to_node(parent), name))
		return EEXIST;
	node = node_new(S_ISLNK(mode) ? mode : mode & ~ctx->umask, ctx->uid, ctx->gid);
	if (!node)
		return ENOMEM;
	if (S_ISDIR(mode))
		node->st.st_nlink = 1;
	if (add_entry(to_node(parent), name, node)) {
		node_free(node);
		return ENOMEM;
	}
	*out = node;
	return 0;
}

static void null_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct node *node = NULL;
	int ret;

	pthread_mutex_lock(&lock);
	ret = make(req, parent, name, mode, &node);
	if (!ret)
		node->st.st_rdev = rdev;
	unlock_reply_node(req, node, ret);
}

static void null_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	null_mknod(req, parent, name, S_IFDIR | mode, 0);
}

static void null_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	struct node *node = NULL;
	int ret;

	pthread_mutex_lock(&lock);
	ret = make(req, parent, name, S_IFLNK | 0777, &node);
	if (!ret) {
		node->data = strdup(target);
		set_size(node, strlen(target));
		if (!node->data) {
			remove_entry(find(to_node(parent), name));
			node_free(node);
			ret = ENOMEM;
		}
	}
	unlock_reply_node(req, node, ret);
}

static void null_readlink(fuse_req_t req, fuse_ino_t ino)
{
	fuse_reply_readlink(req, to_node(ino)->data);
}

static void null_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	int ret = EEXIST;

	pthread_mutex_lock(&lock);
	if (!find(to_node(parent), name))
		ret = add_entry(to_node(parent), name, to_node(ino));
	unlock_reply_node(req, to_node(ino), ret);
}

/* Removes a name. The lock is held. */
static int drop(struct entry *entry)
{
	struct node *node = entry->node;

	if (S_ISDIR(node->st.st_mode)) {
		if (!is_empty(node))
			return ENOTEMPTY;
		node->st.st_nlink--;
	}
	remove_entry(entry);
	free_unused(node);
	return 0;
}

static void null_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct entry *entry;

	pthread_mutex_lock(&lock);
	entry = find(to_node(parent), name);
	unlock_reply_error(req, entry ? drop(entry) : ENOENT);
}

static void null_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t newparent,
			const char *newname, unsigned int flags)
{
	struct entry *from, *to;
	int ret = 0;

	pthread_mutex_lock(&lock);
	from = find(to_node(parent), name);
	to = find(to_node(newparent), newname);
	if (flags & ~RENAME_NOREPLACE)
		ret = EINVAL;
	else if (!from)
		ret = ENOENT;
	else if (to && flags)
		ret = EEXIST;
	else if (to && to->node != from->node)
		ret = drop(to);
	if (!ret && from != to && !(to && to->node == from->node)) {
		ret = add_entry(to_node(newparent), newname, from->node);
		if (!ret)
			remove_entry(from);
	}
	unlock_reply_error(req, ret);
}

static void null_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct stat st;

	pthread_mutex_lock(&lock);
	st = to_node(ino)->st;
	pthread_mutex_unlock(&lock);
	fuse_reply_attr(req, &st, FOREVER);
}

static void null_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
			 struct fuse_file_info *fi)
{
	struct node *node = to_node(ino);
	struct stat *st = &node->st, now;
	int ret = 0;

	pthread_mutex_lock(&lock);
	clock_gettime(CLOCK_REALTIME, &st->st_ctim);
	if (to_set & FUSE_SET_ATTR_SIZE)
		ret = resize(node, attr->st_size);
	if (to_set & FUSE_SET_ATTR_MODE)
		st->st_mode = (st->st_mode & S_IFMT) | (attr->st_mode & ~S_IFMT);
	if (to_set & FUSE_SET_ATTR_UID)
		st->st_uid = attr->st_uid;
	if (to_set & FUSE_SET_ATTR_GID)
		st->st_gid = attr->st_gid;
	if (to_set & FUSE_SET_ATTR_ATIME)
		st->st_atim = to_set & FUSE_SET_ATTR_ATIME_NOW ? st->st_ctim : attr->st_atim;
	if (to_set & FUSE_SET_ATTR_MTIME)
		st->st_mtim = to_set & FUSE_SET_ATTR_MTIME_NOW ? st->st_ctim : attr->st_mtim;
	now = *st;
	pthread_mutex_unlock(&lock);
	if (ret)
		fuse_reply_err(req, ret);
	else
		fuse_reply_attr(req, &now, FOREVER);
}

static void open_file(fuse_req_t req, struct fuse_file_info *fi)
{
	fi->direct_io = session_of(req)->options->direct_io;
	fi->keep_cache = !fi->direct_io;
}

static void null_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (fi->flags & O_TRUNC) {
		pthread_mutex_lock(&lock);
		resize(to_node(ino), 0);
		pthread_mutex_unlock(&lock);
	}
	open_file(req, fi);
	fuse_reply_open(req, fi);
}

static void null_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
			struct fuse_file_info *fi)
{
	struct fuse_entry_param entry;
	struct node *node;
	int ret;

	pthread_mutex_lock(&lock);
	ret = make(req, parent, name, S_IFREG | mode, &node);
	if (!ret)
		entry_of(node, &entry);
	pthread_mutex_unlock(&lock);
	open_file(req, fi);
	if (ret)
		fuse_reply_err(req, ret);
	else
		fuse_reply_create(req, &entry, fi);
}

static void null_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t pos,
		      struct fuse_file_info *fi)
{
	struct node *node = to_node(ino);
	const char *large = large_of(node);
	size_t end = size_of(node), len = pos < end ? end - pos : 0;

	if (len > size)
		len = size;
	if (large) {
		fuse_reply_buf(req, large + pos, len);
	} else {
		pthread_mutex_lock(&lock);
		if (len && node->large)
			fuse_reply_buf(req, node->large + pos, len);
		else if (len && pos + len <= node->data_room)
			fuse_reply_buf(req, node->data + pos, len);
		else
			fuse_reply_buf(req, NULL, 0);
		pthread_mutex_unlock(&lock);
	}
}

static void null_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t pos,
		       struct fuse_file_info *fi)
{
	int ret = store(to_node(ino), pos, buf, size);

	if (ret)
		fuse_reply_err(req, ret);
	else
		fuse_reply_write(req, size);
}

static void null_copy_range(fuse_req_t req, fuse_ino_t in, off_t in_pos,
			    struct fuse_file_info *fi_in, fuse_ino_t out, off_t out_pos,
			    struct fuse_file_info *fi_out, size_t len, int flags)
{
	struct node *from = to_node(in), *to = to_node(out);
	size_t size;
	int ret;

	pthread_mutex_lock(&lock);
	size = size_of(from);
	if (in_pos >= size || len > size - in_pos)
		len = in_pos < size ? size - in_pos : 0;
	ret = make_room(to, out_pos + len);
	if (!ret && len) {
		memmove((to->large ?: to->data) + out_pos,
			(from->large ?: from->data) + in_pos, len);
		if (out_pos + len > size_of(to))
			set_size(to, out_pos + len);
	}
	pthread_mutex_unlock(&lock);
	if (ret)
		fuse_reply_err(req, ret);
	else
		fuse_reply_write(req, len);
}

static void null_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t pos, off_t len,
			   struct fuse_file_info *fi)
{
	struct node *node = to_node(ino);
	int ret = mode ? EOPNOTSUPP : 0;

	pthread_mutex_lock(&lock);
	if (!ret && pos + len > size_of(node))
		ret = resize(node, pos + len);
	unlock_reply_error(req, ret);
}

/* What releases and all kinds of fsync do. */
static void null_nothing(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	fuse_reply_err(req, 0);
}

static void null_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	fuse_reply_err(req, 0);
}

static void null_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	fuse_reply_open(req, fi);
}

/* One entry in the reply's buffer; what it takes, or more than @size. The lock is held. */
static size_t put_entry(fuse_req_t req, char *buf, size_t size, const char *name, struct node *node,
			off_t next, bool plus)
{
	struct fuse_entry_param entry = {.attr = node->st};
	size_t len;

	if (!plus)
		return fuse_add_direntry(req, buf, size, name, &node->st, next);
	len = fuse_add_direntry_plus(req, NULL, 0, name, &entry, next);
	if (len > size)
		return len;
	if (next > 2)
		entry_of(node, &entry);
	return fuse_add_direntry_plus(req, buf, size, name, &entry, next);
}

/* Positions: 1 and 2 are behind "." and "..", then those in the array, from 3 on. */
static void list(fuse_req_t req, fuse_ino_t ino, size_t size, off_t pos, bool plus)
{
	struct node *dir = to_node(ino);
	char *buf = malloc(size);
	size_t used = 0, len = 0;

	pthread_mutex_lock(&lock);
	for (; buf && pos < dir->nr + 2; pos++) {
		struct entry *entry = pos < 2 ? NULL : dir->entries[pos - 2];
		const char *name = pos == 0 ? "." : pos == 1 ? ".." : entry ? entry->name : NULL;

		if (!name)
			continue;
		len = put_entry(req, buf + used, size - used, name, entry ? entry->node : dir,
				pos + 1, plus);
		if (len > size - used)
			break;
		used += len;
	}
	pthread_mutex_unlock(&lock);
	if (buf)
		fuse_reply_buf(req, buf, used);
	else
		fuse_reply_err(req, ENOMEM);
	free(buf);
}

static void null_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t pos,
			 struct fuse_file_info *fi)
{
	list(req, ino, size, pos, false);
}

static void null_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t pos,
			     struct fuse_file_info *fi)
{
	list(req, ino, size, pos, true);
}

static void null_statfs(fuse_req_t req, fuse_ino_t ino)
{
	const struct statvfs st = {
		.f_bsize = 4096, .f_frsize = 4096, .f_blocks = 1 << 24, .f_bfree = 1 << 24,
		.f_bavail = 1 << 24, .f_files = 1 << 24, .f_ffree = 1 << 24, .f_namemax = NAME_MAX,
	};

	fuse_reply_statfs(req, &st);
}

static void null_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	fuse_reply_err(req, ENODATA);
}

static void null_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	if (size)
		fuse_reply_buf(req, NULL, 0);
	else
		fuse_reply_xattr(req, 0);
}

static struct fuse_lowlevel_ops null_ops = {
	.lookup = null_lookup,
	.forget = null_forget,
	.forget_multi = null_forget_multi,
	.getattr = null_getattr,
	.setattr = null_setattr,
	.readlink = null_readlink,
	.mknod = null_mknod,
	.mkdir = null_mkdir,
	.unlink = null_unlink,
	.rmdir = null_unlink,
	.symlink = null_symlink,
	.rename = null_rename,
	.link = null_link,
	.create = null_create,
	.open = null_open,
	.read = null_read,
	.write = null_write,
	.release = null_nothing,
	.fsync = null_fsync,
	.opendir = null_opendir,
	.readdir = null_readdir,
	.readdirplus = null_readdirplus,
	.releasedir = null_nothing,
	.fsyncdir = null_fsync,
	.statfs = null_statfs,
	.getxattr = null_getxattr,
	.listxattr = null_listxattr,
	.fallocate = null_fallocate,
	.copy_file_range = null_copy_range,
};

static int serve_ours(struct session *session)
{
	struct workers *workers;
	struct pollfd end = {.events = POLLIN};
	int ret = init_install(session->se) ?: workers_start(&workers, session);

	if (ret)
		return ret;
	end.fd = workers_end_fd(workers);
	while (poll(&end, 1, -1) < 0 && errno == EINTR)
		continue;
	workers_stop(workers);
	return workers_join(workers);
}

static int serve(struct session *session, bool libfuse_loop)
{
	struct fuse_loop_config config = {.clone_fd = 1, .max_idle_threads = 10};
	int ret = fuse_session_mount(session->se, session->options->mountpoint);

	if (ret)
		return ret;
	ret = libfuse_loop ? fuse_session_loop_mt(session->se, &config) : serve_ours(session);
	fuse_session_unmount(session->se);
	return ret;
}

static int run(const struct options *options, bool libfuse_loop)
{
	struct volume volume = {.posix_acl = options->acl, .time_gran = 1};
	struct session session = {.volume = &volume, .options = options};
	char *argv[] = {"nullfs", "-o", NULL, NULL};
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);
	int ret = 1;

	root = node_new(S_IFDIR | 0777, getuid(), getgid());
	if (!root || asprintf(&argv[2], "default_permissions,fsname=%s,subtype=nullfs%s%s",
			      options->image, options->fuse_opts ? "," : "",
			      options->fuse_opts ?: "") < 0)
		return 1;
	root->st.st_nlink = 2;
	root->nlookup = 1;
	null_ops.init = session_ops.init;
	session.se = fuse_session_new(&args, &null_ops, sizeof(null_ops), &session);
	if (session.se)
		ret = serve(&session, libfuse_loop) != 0;
	if (session.se)
		fuse_session_destroy(session.se);
	fuse_opt_free_args(&args);
	free(argv[2]);
	return ret;
}

int main(int argc, char **argv)
{
	bool libfuse_loop = argc > 1 && !strcmp(argv[1], "--libfuse-loop");
	struct options options;
	int status = 1;

	if (options_parse(&options, argc - libfuse_loop, argv + libfuse_loop) == 0)
		status = run(&options, libfuse_loop);
	options_finish(&options);
	return status;
}
