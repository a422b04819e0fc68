/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See crash_tree.h. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ext2fs/ext2_fs.h>
#include <ext2fs/ext2fs.h>
#include "crash_tree.h"

#define SECTOR 512

struct walk {
	ext2_filsys fs;
	struct crash_tree *tree;
	FILE *out;
	const char *prefix;
	ext2_ino_t dir;
	char **subdirs;		/* path and number of directories to come */
	ext2_ino_t *numbers;
	size_t nr;
	errcode_t err;
};

static void look_at_sector(struct crash_tree *tree, struct crash_file *file,
			   const unsigned char *sector, uint64_t pos, size_t len)
{
	static const unsigned char zeros[SECTOR];
	struct crash_stamp stamp = { 0 };

	memcpy(&stamp, sector, len < sizeof(stamp) ? len : sizeof(stamp));
	if (!memcmp(sector, zeros, len)) {
		file->whole = false;
		return;
	}
	if (len < sizeof(stamp)) {
		file->whole = false;
		return;
	}
	if (stamp.file != file->file || stamp.pos != pos) {
		tree->foreign++;
		file->whole = false;
	}
	if (!file->version)
		file->version = stamp.version;
	file->whole &= stamp.version == file->version;
}

static errcode_t read_content(struct walk *w, ext2_ino_t ino, struct crash_file *file)
{
	unsigned char buf[64 * SECTOR];
	uint64_t pos = 0;
	ext2_file_t f;
	unsigned int got;
	errcode_t err = ext2fs_file_open(w->fs, ino, 0, &f);

	if (err)
		return err;
	file->whole = true;
	for (; !(err = ext2fs_file_read(f, buf, sizeof(buf), &got)) && got; pos += got) {
		file->hash = ext2fs_crc32c_le(file->hash, buf, got);
		for (unsigned int at = 0; at < got; at += SECTOR)
			look_at_sector(w->tree, file, buf + at, pos + at,
				       got - at < SECTOR ? got - at : SECTOR);
	}
	ext2fs_file_close(f);
	return err;
}

static uint32_t xattr_hash(struct walk *w, ext2_ino_t ino)
{
	struct ext2_xattr_handle *handle;
	uint32_t hash = 0;
	void *value;
	size_t len;

	if (ext2fs_xattrs_open(w->fs, ino, &handle))
		return 0;
	if (!ext2fs_xattrs_read(handle) && !ext2fs_xattr_get(handle, "user.crash", &value, &len)) {
		hash = ext2fs_crc32c_le(1, value, len);
		ext2fs_free_mem(&value);
	}
	ext2fs_xattrs_close(&handle);
	return hash;
}

static struct crash_file *add_file(struct crash_tree *tree)
{
	if (tree->nr == tree->room) {
		tree->room = tree->room ? 2 * tree->room : 64;
		tree->files = realloc(tree->files, tree->room * sizeof(*tree->files));
		assert(tree->files);
	}
	tree->files[tree->nr] = (struct crash_file){ 0 };
	return &tree->files[tree->nr++];
}

static void add_subdir(struct walk *w, const char *path, ext2_ino_t ino)
{
	w->subdirs = realloc(w->subdirs, (w->nr + 1) * sizeof(*w->subdirs));
	w->numbers = realloc(w->numbers, (w->nr + 1) * sizeof(*w->numbers));
	assert(w->subdirs && w->numbers);
	w->subdirs[w->nr] = strdup(path);
	w->numbers[w->nr++] = ino;
}

static errcode_t look_at(struct walk *w, const char *path, ext2_ino_t ino)
{
	struct crash_file file = { 0 };
	struct ext2_inode inode;
	errcode_t err = ext2fs_read_inode(w->fs, ino, &inode);

	if (err)
		return err;
	if (LINUX_S_ISDIR(inode.i_mode))
		add_subdir(w, path, ino);
	file.file = inode_uid(inode);
	file.size = EXT2_I_SIZE(&inode);
	if (LINUX_S_ISREG(inode.i_mode)) {
		err = read_content(w, ino, &file);
		file.path = strdup(path);
		*add_file(w->tree) = file;
	}
	fprintf(w->out, "%s %o links %u owner %u size %llu content %08x xattr %08x mtime %u\n", path,
		inode.i_mode, inode.i_links_count, file.file,
		LINUX_S_ISDIR(inode.i_mode) ? 0ULL : (unsigned long long)file.size, file.hash,
		xattr_hash(w, ino), inode.i_mtime);
	return err;
}

static int on_entry(ext2_ino_t dir, int entry, struct ext2_dir_entry *de, int offset, int blocksize,
		    char *buf, void *arg)
{
	struct walk *w = arg;
	char path[600];
	int len = ext2fs_dirent_name_len(de);

	(void)dir, (void)offset, (void)blocksize, (void)buf;
	if (entry == DIRENT_DOT_FILE || entry == DIRENT_DOT_DOT_FILE || !de->inode)
		return 0;
	snprintf(path, sizeof(path), "%s%s%.*s", w->prefix, *w->prefix ? "/" : "", len, de->name);
	if (!strcmp(path, "lost+found"))
		return 0;
	w->err = look_at(w, path, de->inode);
	return w->err ? DIRENT_ABORT : 0;
}

static int compare_lines(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Lines come in the order of the directories' blocks. */
static void sort_text(struct crash_tree *tree)
{
	char **lines = malloc((tree->len + 1) * sizeof(*lines)), *save, *sorted;
	size_t nr = 0, at = 0;

	sorted = malloc(tree->len + 1);
	assert(lines && sorted);
	for (char *line = strtok_r(tree->text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		lines[nr++] = line;
	qsort(lines, nr, sizeof(*lines), compare_lines);
	sorted[0] = '\0';
	for (size_t i = 0; i < nr; i++)
		at += sprintf(sorted + at, "%s\n", lines[i]);
	free(lines);
	free(tree->text);
	tree->text = sorted;
}

long crash_tree_read(struct crash_tree *tree, const char *path)
{
	struct walk w = { .tree = tree, .prefix = "" };
	errcode_t err;

	*tree = (struct crash_tree){ 0 };
	err = ext2fs_open(path, EXT2_FLAG_64BITS, 0, 0, unix_io_manager, &w.fs);
	if (err)
		return err;
	w.out = open_memstream(&tree->text, &tree->len);
	assert(w.out);
	add_subdir(&w, "", EXT2_ROOT_INO);
	for (size_t i = 0; i < w.nr && !err; i++) {
		w.prefix = w.subdirs[i];
		err = ext2fs_dir_iterate2(w.fs, w.numbers[i], 0, NULL, on_entry, &w);
		if (!err)
			err = w.err;
	}
	fclose(w.out);
	for (size_t i = 0; i < w.nr; i++)
		free(w.subdirs[i]);
	free(w.subdirs);
	free(w.numbers);
	ext2fs_close_free(&w.fs);
	sort_text(tree);
	return err;
}

void crash_tree_free(struct crash_tree *tree)
{
	for (size_t i = 0; i < tree->nr; i++)
		free(tree->files[i].path);
	free(tree->files);
	free(tree->text);
}

const struct crash_file *crash_tree_find(const struct crash_tree *tree, const char *path)
{
	for (size_t i = 0; i < tree->nr; i++)
		if (!strcmp(tree->files[i].path, path))
			return &tree->files[i];
	return NULL;
}
