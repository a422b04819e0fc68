/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The command `foliofs stats [--json] MOUNTPOINT`: asks the daemon by an ioctl on the mount's
 * root. One table of figures makes both forms.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "foliofs_ioctl.h"
#include "log.h"
#include "mountpoint.h"

#define COUNT(field, label) {#field, label, offsetof(struct foliofs_stats, field), false}
#define BYTES(field, label) {#field, label, offsetof(struct foliofs_stats, field), true}

static const struct {
	const char *name, *label;
	size_t offset;
	bool bytes;
} figures[] = {
	COUNT(hits, "hits"),
	COUNT(misses, "misses"),
	BYTES(read_bytes, "read from the image"),
	BYTES(written_bytes, "written to the image"),
	COUNT(read_batches, "answers to reads"),
	COUNT(read_folios, "folios in them"),
	COUNT(evictions, "evictions"),
	COUNT(evictions_compact, "for large blocks"),
	COUNT(truncated, "truncated"),
	COUNT(invalidated, "invalidated"),
	COUNT(activations, "activations"),
	COUNT(refaults, "refaults"),
	COUNT(refault_activations, "taken in as active"),
	COUNT(refault_restores, "had been active"),
	COUNT(shadow_nodes_freed, "shadow nodes freed"),
	COUNT(readahead_sync, "windows of misses"),
	COUNT(readahead_async, "windows of marks"),
	COUNT(readahead_files, "files read with others"),
	COUNT(readahead_pages, "pages read ahead"),
	COUNT(readahead_hits, "folios of them used"),
	COUNT(readahead_wasted, "pages evicted unused"),
	COUNT(readahead_errors, "windows that failed"),
	COUNT(readahead_dropped, "windows dropped"),
	COUNT(writeback_runs, "writeback runs"),
	COUNT(write_errors, "write errors"),
	COUNT(read_errors, "read errors"),
	COUNT(throttled, "writers made to wait"),
	COUNT(adds, "folios added"),
	COUNT(add_walks, "walks for them"),
	COUNT(shadow_splits, "shadows split"),
	COUNT(folio_splits, "folios split"),
	COUNT(compactions, "large blocks made"),
	BYTES(bound_bytes, "bound of memory"),
	BYTES(used_bytes, "used of it"),
	BYTES(dirty_bytes, "dirty"),
	BYTES(writeback_bytes, "being written"),
};

#define NR_FIGURES (sizeof(figures) / sizeof(figures[0]))

static const char *const request_names[FOLIOFS_REQUEST_KINDS] = {
	[1] = "lookup",	      [2] = "forget",	   [3] = "getattr",	 [4] = "setattr",
	[5] = "readlink",     [6] = "symlink",	   [8] = "mknod",	 [9] = "mkdir",
	[10] = "unlink",      [11] = "rmdir",	   [12] = "rename",	 [13] = "link",
	[14] = "open",	      [15] = "read",	   [16] = "write",	 [17] = "statfs",
	[18] = "release",     [20] = "fsync",	   [21] = "setxattr",	 [22] = "getxattr",
	[23] = "listxattr",   [24] = "removexattr", [25] = "flush",	 [26] = "init",
	[27] = "opendir",     [28] = "readdir",	   [29] = "releasedir",	 [30] = "fsyncdir",
	[34] = "access",      [35] = "create",	   [36] = "interrupt",	 [38] = "destroy",
	[39] = "ioctl",	      [42] = "batch_forget", [43] = "fallocate",
	[44] = "readdirplus", [45] = "rename2",	   [46] = "lseek",	 [47] = "copy_file_range",
	[50] = "syncfs",      [52] = "statx",	   [63] = "other",
};

static uint64_t figure(const struct foliofs_stats *stats, size_t i)
{
	return *(const __u64 *)((const char *)stats + figures[i].offset);
}

static const char *request_name(unsigned int kind, char *buf, size_t size)
{
	if (request_names[kind])
		return request_names[kind];
	snprintf(buf, size, "opcode_%u", kind);
	return buf;
}

static void print_json(const struct foliofs_stats *stats)
{
	const char *comma = "";
	char buf[32];

	printf("{\"version\": %u, \"pid\": %u", stats->version, stats->pid);
	for (size_t i = 0; i < NR_FIGURES; i++)
		printf(", \"%s\": %llu", figures[i].name, (unsigned long long)figure(stats, i));
	printf(", \"orders\": [");
	for (unsigned int i = 0; i < FOLIOFS_ORDERS; i++)
		printf("%s%llu", i ? ", " : "", (unsigned long long)stats->orders[i]);
	printf("], \"requests\": {");
	for (unsigned int i = 0; i < FOLIOFS_REQUEST_KINDS; i++) {
		if (!stats->requests[i])
			continue;
		printf("%s\"%s\": %llu", comma, request_name(i, buf, sizeof(buf)),
		       (unsigned long long)stats->requests[i]);
		comma = ", ";
	}
	printf("}}\n");
}

static void print_table(const struct foliofs_stats *stats)
{
	char buf[32];

	printf("cache\n");
	for (size_t i = 0; i < NR_FIGURES; i++) {
		uint64_t value = figure(stats, i);

		if (figures[i].bytes)
			printf("  %-22s %12.1f MiB\n", figures[i].label, value / 1048576.0);
		else
			printf("  %-22s %12llu\n", figures[i].label, (unsigned long long)value);
	}
	printf("folios added, by pages\n");
	for (unsigned int i = 0; i < FOLIOFS_ORDERS; i++) {
		if (stats->orders[i])
			printf("  %-22u %12llu\n", 1U << i, (unsigned long long)stats->orders[i]);
	}
	printf("requests\n");
	for (unsigned int i = 0; i < FOLIOFS_REQUEST_KINDS; i++) {
		if (stats->requests[i])
			printf("  %-22s %12llu\n", request_name(i, buf, sizeof(buf)),
			       (unsigned long long)stats->requests[i]);
	}
}

int stats_main(int argc, char **argv)
{
	bool json = argc == 3 && !strcmp(argv[1], "--json");
	struct foliofs_stats stats;
	int fd, ret;

	if (argc != 2 + json) {
		log_error("usage: foliofs stats [--json] MOUNTPOINT");
		return 1;
	}
	fd = open(argv[argc - 1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) {
		log_error("cannot open %s: %s", argv[argc - 1], strerror(errno));
		return 1;
	}
	ret = ioctl(fd, FOLIOFS_IOC_STATS, &stats);
	close(fd);
	if (ret < 0) {
		log_error("%s is not the root of a foliofs mount", argv[argc - 1]);
		return 1;
	}
	if (json)
		print_json(&stats);
	else
		print_table(&stats);
	return fflush(stdout) ? 1 : 0;
}
