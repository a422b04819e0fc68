/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the parts of the hit ratio benchmark share: traces of page numbers, and caches to run them
 * through.
 */
#ifndef BENCH_HIT_H
#define BENCH_HIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * struct trace - pages in the order of their use
 * @pages: the data's size
 * @nr: uses; hits are counted over the second half
 */
struct trace {
	uint32_t pages;
	size_t nr;
	uint32_t *use;
};

/* hit_trace.c. @frames: of the cache that it is meant for; only some traces follow it. */
#define TRACES 5
extern const char *const trace_names[TRACES];
void trace_make(struct trace *trace, unsigned int kind, uint32_t pages, uint32_t frames, size_t nr);
void trace_free(struct trace *trace);

/* hit_kernel.c: the kernel's page cache, in a memory cgroup of @frames pages. NAN when that fails. */
double hit_kernel(const struct trace *trace, uint32_t frames);

#endif
