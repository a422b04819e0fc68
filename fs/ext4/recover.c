/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A journal that was not emptied must be replayed before anything else is read.
 *
 * e2fsck does that for us (fast commits included), on the image's own path, before the cache holds
 * any byte of it. Our lock on the image is one of the open file description, which e2fsck does
 * not take, so it stays ours meanwhile. As in the kernel a read-only mount replays, too, when the
 * image can be written; norecovery says not to, and to look at the image as it is.
 *
 * No locks: the mounting thread is alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "ext4.h"
#include "log.h"

extern char **environ;

/* Keeps the last line of what e2fsck says: it tells what was wrong. */
static void last_line(int fd, char *line, size_t size)
{
	size_t len = 0;
	bool ended = false;
	char c;

	while (read(fd, &c, 1) == 1) {
		if (c == '\n') {
			ended = true;
			continue;
		}
		if (ended)
			len = 0;
		ended = false;
		if (len + 1 < size)
			line[len++] = c;
	}
	line[len] = '\0';
}

static int spawn_e2fsck(const char *path, int out, pid_t *pid)
{
	static const char *const places[] = { "/usr/sbin/e2fsck", "/sbin/e2fsck",
					      "/usr/local/sbin/e2fsck" };
	char *argv[] = { "e2fsck", "-p", "-E", "journal_only", (char *)path, NULL };
	posix_spawn_file_actions_t actions;
	int err = posix_spawn_file_actions_init(&actions);

	if (err)
		return -err;
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
	posix_spawn_file_actions_adddup2(&actions, out, STDERR_FILENO);
	err = posix_spawnp(pid, "e2fsck", &actions, NULL, argv, environ);
	for (size_t i = 0; err == ENOENT && i < sizeof(places) / sizeof(places[0]); i++)
		err = posix_spawn(pid, places[i], &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	return -err;
}

static int run_e2fsck(struct image *image, const char *path)
{
	char line[200];
	int fds[2], status, err;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC))
		return -errno;
	err = spawn_e2fsck(path, fds[1], &pid);
	close(fds[1]);
	if (err) {
		close(fds[0]);
		log_error("%s: the journal must be replayed, and e2fsck cannot be run: %s",
			  image->name, strerror(-err));
		return err;
	}
	last_line(fds[0], line, sizeof(line));
	close(fds[0]);
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	/* 0: nothing to correct, 1: corrected */
	if (WIFEXITED(status) && WEXITSTATUS(status) <= 1)
		return 0;
	log_error("%s: the journal could not be replayed: %s", image->name, line);
	return -EUCLEAN;
}

/* A block device is ours alone while it is open: e2fsck would be kept out. */
static bool is_device(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISBLK(st.st_mode);
}

/* Replays, and reads the superblock again. */
static int replay(struct image *image, const struct options *options, struct ext2_super_block *sb)
{
	int err = run_e2fsck(image, options->image);

	if (!err)
		err = probe_read_super(image, sb);
	if (err)
		return err;
	if (ext2fs_has_feature_journal_needs_recovery(sb)) {
		log_error("%s: the journal is dirty and e2fsck did not replay it", image->name);
		return -EUCLEAN;
	}
	log_info("%s: the journal has been replayed", image->name);
	return 0;
}

/**
 * recover_journal - replay a dirty journal, or find a way without
 * @image: the image
 * @options: mount options; options->image is the path
 * @sb: its superblock; read again after a replay
 * @readonly: the mount will be read-only; set when it has to be
 *
 * Return: 0, or a negative errno after one clear line.
 */
int recover_journal(struct image *image, const struct options *options,
		    struct ext2_super_block *sb, bool *readonly)
{
	if (!ext2fs_has_feature_journal_needs_recovery(sb))
		return 0;
	if (options->norecovery) {
		log_warn("%s: the journal is dirty and not replayed: mounted read-only, files may "
			 "be out of date", image->name);
		*readonly = true;
		return 0;
	}
	if (options->offset) {
		/*
		 * e2fsck forgets an offset half way: it needs a file that begins with the file
		 * system.
		 */
		log_error("%s: the journal is dirty; replay it first: foliofs -o raw,offset=%"
			  PRIu64 " %s DIR; e2fsck -p -E journal_only DIR/%s; umount DIR", image->name,
			  options->offset, options->image, basename(options->image));
		return -EUCLEAN;
	}
	if (is_device(options->image)) {
		log_error("%s: the journal is dirty; run: e2fsck -p -E journal_only %s", image->name,
			  options->image);
		return -EUCLEAN;
	}
	if (access(options->image, W_OK)) {
		log_error("%s: the journal is dirty and the image cannot be written; run: e2fsck "
			  "-p -E journal_only %s, or mount with norecovery", image->name,
			  options->image);
		return -EROFS;
	}
	return replay(image, options, sb);
}
