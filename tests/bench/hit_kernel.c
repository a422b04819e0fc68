/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The kernel's page cache under a trace, in a memory cgroup of its own.
 *
 * A child process joins a new cgroup, below the one that we are in, whose limit is the size of the
 * cache, and reads a sparse file, so that no disk is waited for. What it had allocated before stays
 * charged where it was; the cgroup pays for the file's pages, and for the few per cent that the
 * kernel needs to keep track of them. Readahead is off (POSIX_FADV_RANDOM). Whether a page is
 * there is asked by mincore(2) before each read, which leaves no trace in the cache.
 *
 * Both versions of cgroups will do. Needs root.
 */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "hit.h"

#define PAGE 4096

struct memcg {
	char path[512];
	const char *limit; /* name of the file with the limit */
};

static bool write_text(const char *dir, const char *name, const char *text)
{
	char path[600];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = write(fd, text, strlen(text));
	close(fd);
	return n == (ssize_t)strlen(text);
}

/* Our own cgroup of the hierarchy that has the memory controller. */
static bool find_own(struct memcg *cg)
{
	FILE *f = fopen("/proc/self/cgroup", "re");
	char line[400], *path;
	bool v1 = !access("/sys/fs/cgroup/memory/memory.limit_in_bytes", F_OK), found = false;

	while (f && !found && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		path = strstr(line, v1 ? ":memory:" : "0::");
		if (!path || (!v1 && path != line))
			continue;
		path = strrchr(path, ':') + 1;
		snprintf(cg->path, sizeof(cg->path), "/sys/fs/cgroup%s%s/foliofs-bench-%d",
			 v1 ? "/memory" : "", strcmp(path, "/") ? path : "", getpid());
		cg->limit = v1 ? "memory.limit_in_bytes" : "memory.max";
		found = true;
	}
	if (f)
		fclose(f);
	return found;
}

static bool memcg_make(struct memcg *cg, uint32_t frames)
{
	char text[32];

	snprintf(text, sizeof(text), "%lu", (unsigned long)frames * PAGE);
	if (!find_own(cg) || mkdir(cg->path, 0755))
		return false;
	if (write_text(cg->path, cg->limit, text))
		return true;
	rmdir(cg->path);
	return false;
}

/* Runs the trace on the open file. Return: hits in the second half, or -1. */
static long run(const struct trace *trace, int fd)
{
	void *map = mmap(NULL, (size_t)trace->pages * PAGE, PROT_READ, MAP_SHARED, fd, 0);
	unsigned char there;
	char buf[PAGE];
	long hits = 0;

	if (map == MAP_FAILED || posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM))
		return -1;
	for (size_t i = 0; i < trace->nr; i++) {
		off_t pos = (off_t)trace->use[i] * PAGE;

		if (mincore((char *)map + pos, PAGE, &there) || pread(fd, buf, PAGE, pos) != PAGE)
			return -1;
		if (i >= trace->nr / 2)
			hits += there & 1;
	}
	return hits;
}

static void child(const struct memcg *cg, const struct trace *trace, int result)
{
	char name[] = "/var/tmp/foliofs-bench-XXXXXX";
	long hits = -1;
	int fd = -1;

	if (write_text(cg->path, "cgroup.procs", "0"))
		fd = mkstemp(name);
	if (fd >= 0) {
		unlink(name);
		if (!ftruncate(fd, (off_t)trace->pages * PAGE))
			hits = run(trace, fd);
	}
	_exit(write(result, &hits, sizeof(hits)) != sizeof(hits));
}

double hit_kernel(const struct trace *trace, uint32_t frames)
{
	struct memcg cg;
	long hits = -1;
	int fds[2];
	pid_t pid;

	if (!memcg_make(&cg, frames))
		return NAN;
	if (pipe(fds))
		abort();
	pid = fork();
	if (!pid)
		child(&cg, trace, fds[1]);
	close(fds[1]);
	if (pid < 0 || read(fds[0], &hits, sizeof(hits)) != sizeof(hits))
		hits = -1;
	close(fds[0]);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	/* The last pages may still be on their way out of the cgroup. */
	for (int tries = 0; rmdir(cg.path) && tries < 100; tries++)
		usleep(10000);
	return hits < 0 ? NAN : hits / (double)(trace->nr - trace->nr / 2);
}
