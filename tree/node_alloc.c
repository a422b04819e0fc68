/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Memory for the nodes of trees.
 *
 * A pool has three chains: free nodes, nodes freed but maybe still seen by readers (pending), and
 * those among them that wait for the grace period in flight. At most one grace period is in flight
 * for a pool. It starts when BATCH nodes are pending; when it has passed, its nodes become free and
 * the next may start. So call_rcu(), with its wake-up of another thread, costs once for a batch,
 * and the pool itself holds the only rcu_head that is needed. Fewer than BATCH nodes may stay
 * pending for as long as nothing else is freed; node_pool_drain() gets those too.
 *
 * Nobody goes to the system for memory under the lock, and GFP_NOWAIT not at all.
 */
#include "node_alloc.h"

#include <stdlib.h>
#include <string.h>

#define BATCH 64  /* nodes pending that are worth a grace period */
#define REFILL 16 /* nodes taken from the system at once */

static void **link_of(const struct node_pool *pool, void *node)
{
	return (void **)((char *)node + pool->link);
}

static void chain_push(const struct node_pool *pool, void **chain, void *node)
{
	*link_of(pool, node) = *chain;
	*chain = node;
}

static void *chain_pop(const struct node_pool *pool, void **chain)
{
	void *node = *chain;

	if (node)
		*chain = *link_of(pool, node);
	return node;
}

/* Test mode: is this the allocation that has to fail? Pool locked. */
static bool fails_now(struct node_pool *pool)
{
	if (!pool->fail_times)
		return false;
	if (pool->fail_after) {
		pool->fail_after--;
		return false;
	}
	pool->fail_times--;
	return true;
}

/* Brings nodes from the system: one is returned, further ones become free as far as they may. */
static void *refill(struct node_pool *pool)
{
	unsigned int extra = pool->max_free < REFILL - 1 ? pool->max_free : REFILL - 1;
	void *chain = NULL;
	void *first = malloc(pool->size);
	void *node;

	if (!first)
		return NULL;
	for (; extra; extra--) {
		node = malloc(pool->size);
		if (!node)
			break;
		chain_push(pool, &chain, node);
	}
	xa_spin_lock(&pool->lock);
	pool->live++;
	while ((node = chain_pop(pool, &chain))) {
		chain_push(pool, &pool->free, node);
		pool->nr_free++;
	}
	xa_spin_unlock(&pool->lock);
	return first;
}

/**
 * node_alloc() - Get a node, zeroed.
 *
 * Context: Any lock may be held with GFP_NOWAIT, which takes only what the pool has. Otherwise may
 * ask the system.
 * Return: The node, or NULL.
 */
void *node_alloc(struct node_pool *pool, gfp_t gfp)
{
	void *node = NULL;
	bool failed;

	xa_spin_lock(&pool->lock);
	failed = fails_now(pool);
	if (!failed)
		node = chain_pop(pool, &pool->free);
	if (node) {
		pool->nr_free--;
		pool->live++;
	}
	xa_spin_unlock(&pool->lock);

	if (!node && !failed && gfpflags_allow_blocking(gfp))
		node = refill(pool);
	if (node)
		memset(node, 0, pool->size);
	return node;
}

/* Makes a node free, or puts it on @excess when enough are. Pool locked. */
static void retire(struct node_pool *pool, void *node, void **excess)
{
	pool->live--;
	if (pool->nr_free < pool->max_free) {
		chain_push(pool, &pool->free, node);
		pool->nr_free++;
	} else {
		chain_push(pool, excess, node);
	}
}

static void free_chain(const struct node_pool *pool, void *chain)
{
	void *node;

	while ((node = chain_pop(pool, &chain)))
		free(node);
}

/**
 * node_free() - Give back a node that no reader can have seen.
 *
 * Context: Any. NULL is allowed.
 */
void node_free(struct node_pool *pool, void *node)
{
	void *excess = NULL;

	if (!node)
		return;
	xa_spin_lock(&pool->lock);
	retire(pool, node, &excess);
	xa_spin_unlock(&pool->lock);
	free_chain(pool, excess);
}

/* Lets the grace period for all that is pending begin, unless one is in flight. Pool locked. */
static bool begin_grace_period(struct node_pool *pool)
{
	if (pool->in_flight || !pool->pending)
		return false;
	pool->waiting = pool->pending;
	pool->pending = NULL;
	pool->nr_pending = 0;
	pool->in_flight = true;
	return true;
}

static void grace_period_over(struct rcu_head *head)
{
	struct node_pool *pool =
		(struct node_pool *)((char *)head - offsetof(struct node_pool, rcu));
	void *excess = NULL;
	bool again = false;
	void *node;

	rcu_callback_begin(head);
	xa_spin_lock(&pool->lock);
	while ((node = chain_pop(pool, &pool->waiting)))
		retire(pool, node, &excess);
	pool->in_flight = false;
	if (pool->nr_pending >= BATCH)
		again = begin_grace_period(pool);
	xa_spin_unlock(&pool->lock);
	if (again)
		call_rcu(&pool->rcu, grace_period_over);
	free_chain(pool, excess);
}

static void start_grace_period(struct node_pool *pool)
{
	/* call_rcu() is itself a reader, so the thread must be known. */
	rcu_register_thread();
	call_rcu(&pool->rcu, grace_period_over);
}

/**
 * node_free_rcu() - Give back a node that has just been taken out of its tree.
 *
 * Readers may go on looking at it until a grace period has passed, but not at the link.
 *
 * Context: Any; does not sleep. No reader can find the node any more.
 */
void node_free_rcu(struct node_pool *pool, void *node)
{
	bool begin = false;

	xa_spin_lock(&pool->lock);
	chain_push(pool, &pool->pending, node);
	if (++pool->nr_pending >= BATCH)
		begin = begin_grace_period(pool);
	xa_spin_unlock(&pool->lock);
	if (begin)
		start_grace_period(pool);
}

/**
 * node_pool_drain() - Wait until each node freed so far is free, and return free ones to the
 * system.
 *
 * Context: May sleep. Not inside a read-side section.
 */
void node_pool_drain(struct node_pool *pool)
{
	void *chain;
	bool begin, busy;

	do {
		xa_spin_lock(&pool->lock);
		begin = begin_grace_period(pool);
		busy = pool->in_flight;
		xa_spin_unlock(&pool->lock);
		if (begin)
			start_grace_period(pool);
		if (busy)
			rcu_barrier();
	} while (busy);

	xa_spin_lock(&pool->lock);
	chain = pool->free;
	pool->free = NULL;
	pool->nr_free = 0;
	xa_spin_unlock(&pool->lock);
	free_chain(pool, chain);
}

/** node_pool_live() - How many nodes are in use, or freed and not through their grace period. */
unsigned long node_pool_live(struct node_pool *pool)
{
	unsigned long live;

	xa_spin_lock(&pool->lock);
	live = pool->live;
	xa_spin_unlock(&pool->lock);
	return live;
}

/**
 * node_pool_fail() - Test mode: let allocations fail.
 * @nth: the first that fails, counted from 1
 * @times: how many fail from there on; 0 ends the mode
 */
void node_pool_fail(struct node_pool *pool, unsigned long nth, unsigned long times)
{
	xa_spin_lock(&pool->lock);
	pool->fail_after = nth ? nth - 1 : 0;
	pool->fail_times = times;
	xa_spin_unlock(&pool->lock);
}
