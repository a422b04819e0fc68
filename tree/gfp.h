/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Allocation flags, under the names that the kernel's API gives them.
 *
 * Only one thing matters in user space: whether the call may go to the system for memory, which can
 * take long and must not happen under a lock. Without __GFP_DIRECT_RECLAIM an allocation is served
 * from what a pool already holds, or fails.
 */
#ifndef FOLIO_TREE_GFP_H
#define FOLIO_TREE_GFP_H

#include <stdbool.h>

typedef unsigned int gfp_t;

#define __GFP_DIRECT_RECLAIM 0x1u /* may ask the system */
#define __GFP_NOWARN 0x2u	  /* accepted; nothing warns here */
#define __GFP_ACCOUNT 0x4u	  /* accepted; there is nobody to charge */

#define GFP_NOWAIT 0u
#define GFP_ATOMIC 0u
#define GFP_KERNEL __GFP_DIRECT_RECLAIM
#define GFP_KERNEL_ACCOUNT (GFP_KERNEL | __GFP_ACCOUNT)
#define GFP_NOFS __GFP_DIRECT_RECLAIM
#define GFP_NOIO __GFP_DIRECT_RECLAIM

/** gfpflags_allow_blocking() - May an allocation with @gfp go to the system? */
static inline bool gfpflags_allow_blocking(gfp_t gfp)
{
	return gfp & __GFP_DIRECT_RECLAIM;
}

#endif /* FOLIO_TREE_GFP_H */
