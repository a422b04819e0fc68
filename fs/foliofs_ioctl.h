/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a foliofs mount answers to an ioctl(2) on its root directory.
 */
#ifndef FOLIOFS_IOCTL_H
#define FOLIOFS_IOCTL_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define FOLIOFS_REQUEST_KINDS 64
#define FOLIOFS_ORDERS 10

/**
 * struct foliofs_stats - what the daemon has done since the mount
 * @version: 2
 * @pid: of the daemon, in its own pid namespace
 * @pid_namespace: inode number of that
 * @hits: and on to @orders: as in struct cache_stats (cache.h)
 * @bound_bytes: the bound of the cache's memory; used_, dirty_ and writeback_bytes are parts of
 * it, now
 * @requests: FUSE requests by opcode; the last counts all opcodes from there on
 */
struct foliofs_stats {
	__u32 version, pid;
	__u64 pid_namespace;
	__u64 hits, misses;
	__u64 read_bytes, written_bytes;
	__u64 read_batches, read_folios;
	__u64 evictions, evictions_compact, truncated, invalidated;
	__u64 activations, refaults, refault_activations, refault_restores;
	__u64 shadow_nodes_freed;
	__u64 readahead_sync, readahead_async, readahead_files, readahead_pages, readahead_hits;
	__u64 readahead_wasted, readahead_errors, readahead_dropped;
	__u64 writeback_runs, write_errors, read_errors, throttled;
	__u64 adds, add_walks, shadow_splits, folio_splits, compactions;
	__u64 orders[FOLIOFS_ORDERS];
	__u64 bound_bytes, used_bytes, dirty_bytes, writeback_bytes;
	__u64 requests[FOLIOFS_REQUEST_KINDS];
};

#define FOLIOFS_IOC_STATS _IOR(0xf0, 1, struct foliofs_stats)
/*
 * All that the daemon holds to the image, durable; an error is the first write error since the
 * last time.
 */
#define FOLIOFS_IOC_SYNC _IO(0xf0, 2)

#endif
