/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Memory for the nodes of trees that RCU readers walk.
 *
 * One pool for each kind of node. It takes a slab of many nodes from the system at once, so that
 * nodes lie close together, and gives back slabs that it does not need. A node that readers may
 * still see is freed with node_free_rcu(): such nodes are gathered, and one grace period serves the
 * whole gathering. The _bulk calls take and give chains of nodes, linked through the member that the pool knows, under
 * one hold of the lock.
 */
#ifndef FOLIO_TREE_NODE_ALLOC_H
#define FOLIO_TREE_NODE_ALLOC_H

#include <stddef.h>

#include "gfp.h"
#include "rcu.h"
#include "xa_lock.h"

struct node_slab;

/**
 * struct node_pool - nodes of one size; use NODE_POOL_INIT()
 * @size: bytes of a node
 * @link: offset of a pointer in the node that readers do not look at, to chain free nodes by
 * @align: of a node, a power of two
 * @max_free: how many free nodes may be kept for the sake of speed; 0: no slabs, each node comes
 *	from the system and goes back there. May be changed while nothing is allocated
 * @lock: protects all that follows; innermost
 * @partial: slabs with free nodes
 * @nr_free: how many free nodes
 * @plain: there are no slabs
 * @pending: freed nodes whose grace period has not begun
 * @nr_pending: how many
 * @waiting: freed nodes that wait for the grace period in flight
 * @in_flight: a grace period is in flight
 * @live: nodes handed out and not yet free again
 * @bulk_calls: how often node_alloc_bulk() was called
 * @bulk_nodes: how many nodes it was asked for in all
 * @fail_after: test mode: allocations that succeed before the first failure
 * @fail_times: test mode: how many fail then
 * @rcu: the grace period
 */
struct node_pool {
	size_t size;
	size_t link;
	size_t align;
	unsigned int max_free;

	struct xa_spinlock lock;
	struct node_slab *partial;
	unsigned int nr_free;
	bool plain;
	void *pending;
	unsigned int nr_pending;
	void *waiting;
	bool in_flight;
	unsigned long live;
	unsigned long bulk_calls;
	unsigned long bulk_nodes;
	unsigned long fail_after;
	unsigned long fail_times;
	struct rcu_head rcu;
};

/* AddressSanitizer can only see the use of a freed node when nodes really are freed. */
#if defined(__SANITIZE_ADDRESS__)
#define NODE_POOL_MAX_FREE 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define NODE_POOL_MAX_FREE 0
#endif
#endif
#ifndef NODE_POOL_MAX_FREE
#define NODE_POOL_MAX_FREE 1024
#endif

#define NODE_POOL_INIT_ALIGNED(type, member, alignment)                                            \
	{ .size = sizeof(type), .link = offsetof(type, member), .align = (alignment),              \
	  .max_free = NODE_POOL_MAX_FREE }
#define NODE_POOL_INIT(type, member) NODE_POOL_INIT_ALIGNED(type, member, _Alignof(type))

void *node_alloc(struct node_pool *pool, gfp_t gfp);
void node_free(struct node_pool *pool, void *node);
void node_free_rcu(struct node_pool *pool, void *node);
bool node_alloc_bulk(struct node_pool *pool, unsigned int n, void **chain, gfp_t gfp);
void node_free_bulk(struct node_pool *pool, void *chain);
void node_free_bulk_rcu(struct node_pool *pool, void *chain);
void *node_chain_pop(const struct node_pool *pool, void **chain);
void node_chain_push(const struct node_pool *pool, void **chain, void *node);
void node_pool_drain(struct node_pool *pool);
unsigned long node_pool_live(struct node_pool *pool);
void node_pool_fail(struct node_pool *pool, unsigned long nth, unsigned long times);

#endif /* FOLIO_TREE_NODE_ALLOC_H */
