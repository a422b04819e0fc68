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

/**
 * node_chain_push() - Put a node in front of a chain.
 *
 * Release: a reader of a node that was taken out of its tree may see the link in place of what was
 * there, and then also sees all that its writer did to the node before.
 */
void node_chain_push(const struct node_pool *pool, void **chain, void *node)
{
	__atomic_store_n(link_of(pool, node), *chain, __ATOMIC_RELEASE);
	*chain = node;
}

/** node_chain_pop() - Take the first node from a chain. Return: NULL if there is none. */
void *node_chain_pop(const struct node_pool *pool, void **chain)
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

static void *system_alloc(const struct node_pool *pool)
{
	return pool->align ? aligned_alloc(pool->align, pool->size) : malloc(pool->size);
}

static void free_chain(const struct node_pool *pool, void *chain)
{
	void *node;

	while ((node = node_chain_pop(pool, &chain)))
		free(node);
}

/* Brings @n nodes from the system to @chain, or none; further ones become free as far as they may. */
static bool refill(struct node_pool *pool, unsigned int n, void **chain)
{
	unsigned int extra = pool->max_free < REFILL - 1 ? pool->max_free : REFILL - 1;
	unsigned int got;
	void *fresh = NULL;

	for (got = 0; got < n + extra; got++) {
		void *node = system_alloc(pool);

		if (!node)
			break;
		node_chain_push(pool, &fresh, node);
	}
	if (got < n) {
		free_chain(pool, fresh);
		return false;
	}
	for (unsigned int i = 0; i < n; i++)
		node_chain_push(pool, chain, node_chain_pop(pool, &fresh));
	xa_spin_lock(&pool->lock);
	pool->live += n;
	for (; got > n; got--) {
		node_chain_push(pool, &pool->free, node_chain_pop(pool, &fresh));
		pool->nr_free++;
	}
	xa_spin_unlock(&pool->lock);
	return true;
}

/* Takes @n free nodes to @chain, or none. Pool locked. */
static bool take_free(struct node_pool *pool, unsigned int n, void **chain)
{
	if (pool->nr_free < n)
		return false;
	pool->nr_free -= n;
	pool->live += n;
	for (; n; n--)
		node_chain_push(pool, chain, node_chain_pop(pool, &pool->free));
	return true;
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
	bool failed, done;

	xa_spin_lock(&pool->lock);
	failed = fails_now(pool);
	done = !failed && take_free(pool, 1, &node);
	xa_spin_unlock(&pool->lock);

	if (!done && !failed && gfpflags_allow_blocking(gfp))
		refill(pool, 1, &node);
	if (node)
		memset(node, 0, pool->size);
	return node;
}

/**
 * node_alloc_bulk() - Get several nodes, not zeroed.
 * @n: how many
 * @chain: they are put in front of what is there
 *
 * In the test mode this is one allocation.
 *
 * Context: As node_alloc().
 * Return: true, or false, and then there are none.
 */
bool node_alloc_bulk(struct node_pool *pool, unsigned int n, void **chain, gfp_t gfp)
{
	bool failed, done;

	xa_spin_lock(&pool->lock);
	pool->bulk_calls++;
	pool->bulk_nodes += n;
	failed = fails_now(pool);
	done = !failed && take_free(pool, n, chain);
	xa_spin_unlock(&pool->lock);
	if (done || failed || !gfpflags_allow_blocking(gfp))
		return done;
	return refill(pool, n, chain);
}

/* Makes a node free, or puts it on @excess when enough are. Pool locked. */
static void retire(struct node_pool *pool, void *node, void **excess)
{
	pool->live--;
	if (pool->nr_free < pool->max_free) {
		node_chain_push(pool, &pool->free, node);
		pool->nr_free++;
	} else {
		node_chain_push(pool, excess, node);
	}
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

/**
 * node_free_bulk() - As node_free(), for each node of a chain.
 */
void node_free_bulk(struct node_pool *pool, void *chain)
{
	void *excess = NULL;
	void *node;

	if (!chain)
		return;
	xa_spin_lock(&pool->lock);
	while ((node = node_chain_pop(pool, &chain)))
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
	while ((node = node_chain_pop(pool, &pool->waiting)))
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
	void *chain = NULL;

	node_chain_push(pool, &chain, node);
	node_free_bulk_rcu(pool, chain);
}

/**
 * node_free_bulk_rcu() - As node_free_rcu(), for each node of a chain.
 */
void node_free_bulk_rcu(struct node_pool *pool, void *chain)
{
	bool begin = false;
	void *node;

	if (!chain)
		return;
	xa_spin_lock(&pool->lock);
	while ((node = node_chain_pop(pool, &chain))) {
		node_chain_push(pool, &pool->pending, node);
		pool->nr_pending++;
	}
	if (pool->nr_pending >= BATCH)
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
