/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Fast commits. They tell what was done to files rather than which blocks it changed, and only
 * e2fsck can replay them. When there are some behind the last transaction of the log it is run on
 * the image's own path, before the cache holds anything that changes by it. Our lock on the image
 * is one of the open file description, which e2fsck does not take, so it stays ours meanwhile.
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

/* True when e2fsck cannot be run from here; then one line has said what to run. */
static bool is_out_of_reach(const struct ext4_volume *vol)
{
	const struct options *options = vol->vol.options;
	const char *name = vol->vol.image->name;

	if (options->offset)
		/*
		 * e2fsck forgets an offset half way: it needs a file that begins with the file
		 * system.
		 */
		log_error("%s: the journal has fast commits; replay them first: foliofs -o "
			  "raw,offset=%" PRIu64 " %s DIR; e2fsck -p -E journal_only DIR/%s; umount "
			  "DIR", name, options->offset, options->image, basename(options->image));
	else if (!vol->writable)
		log_error("%s: the journal has fast commits, which a read-only mount cannot "
			  "replay; run: e2fsck -p -E journal_only %s, or mount with norecovery",
			  name, options->image);
	else if (is_device(options->image))
		log_error("%s: the journal has fast commits; run: e2fsck -p -E journal_only %s",
			  name, options->image);
	else
		return false;
	return true;
}

/**
 * fast_commit_replay - have a journal with fast commits replayed by e2fsck
 * @vol: volume; options->image is the path
 * @sb: its superblock, read again
 *
 * Return: 0, or a negative errno after one clear line.
 */
int fast_commit_replay(struct ext4_volume *vol, struct ext2_super_block *sb)
{
	struct image *image = vol->vol.image;
	int err;

	if (is_out_of_reach(vol))
		return -EUCLEAN;
	err = run_e2fsck(image, vol->vol.options->image);
	if (!err)
		err = probe_read_super(image, sb);
	if (err)
		return err;
	if (ext2fs_has_feature_journal_needs_recovery(sb)) {
		log_error("%s: the journal is dirty and e2fsck did not replay it", image->name);
		return -EUCLEAN;
	}
	log_info("%s: the journal and its fast commits have been replayed", image->name);
	return 0;
}
