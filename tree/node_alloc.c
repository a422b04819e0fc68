/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Memory for the nodes of trees.
 *
 * Nodes are cut from slabs, which are aligned to their size, so a node's address tells its slab.
 * Each slab has a chain of its free nodes; those with any are in a list. A slab that is all free
 * goes back to the system if enough is free without it.
 *
 * A pool has two more chains: nodes freed but maybe still seen by readers (pending), and those
 * among them that wait for the grace period in flight. At most one grace period is in flight
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

#define BATCH 64 /* nodes pending that are worth a grace period */
#define SLAB_SIZE (64UL << 10)

struct node_slab {
	struct node_slab *next; /* of those with free nodes */
	struct node_slab **link;
	void *free;
	unsigned int nr_free;
};

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

/*
 * Slabs
 */

static size_t round_up(size_t n, size_t align)
{
	return (n + align - 1) & ~(align - 1);
}

static unsigned int slab_nodes(const struct node_pool *pool)
{
	return (SLAB_SIZE - round_up(sizeof(struct node_slab), pool->align)) / pool->size;
}

static struct node_slab *slab_of(void *node)
{
	return (struct node_slab *)((unsigned long)node & ~(SLAB_SIZE - 1));
}

static void slab_link(struct node_pool *pool, struct node_slab *slab)
{
	slab->next = pool->partial;
	slab->link = &pool->partial;
	if (slab->next)
		slab->next->link = &slab->next;
	pool->partial = slab;
}

static void slab_unlink(struct node_slab *slab)
{
	*slab->link = slab->next;
	if (slab->next)
		slab->next->link = slab->link;
}

/* A slab with all its nodes free, not yet the pool's. */
static struct node_slab *slab_create(const struct node_pool *pool)
{
	struct node_slab *slab = aligned_alloc(SLAB_SIZE, SLAB_SIZE);
	char *first;

	if (!slab)
		return NULL;
	first = (char *)slab + round_up(sizeof(*slab), pool->align);
	slab->free = NULL;
	slab->nr_free = slab_nodes(pool);
	/* The one with the lowest address comes first. */
	for (unsigned int i = slab->nr_free; i-- > 0;)
		node_chain_push(pool, &slab->free, first + i * pool->size);
	return slab;
}

static void slab_free_list(struct node_slab *list)
{
	while (list) {
		struct node_slab *next = list->next;

		free(list);
		list = next;
	}
}

/* Takes one of the free nodes, of which there are some. Pool locked. */
static void *slab_take(struct node_pool *pool)
{
	struct node_slab *slab = pool->partial;

	if (!--slab->nr_free)
		slab_unlink(slab);
	pool->nr_free--;
	return node_chain_pop(pool, &slab->free);
}

/* Makes a node free. Pool locked. Return: the slab, if it shall go; it is unlinked. */
static struct node_slab *slab_put(struct node_pool *pool, void *node)
{
	struct node_slab *slab = slab_of(node);
	unsigned int nodes = slab_nodes(pool);

	node_chain_push(pool, &slab->free, node);
	if (!slab->nr_free++)
		slab_link(pool, slab);
	pool->nr_free++;
	if (slab->nr_free < nodes || pool->nr_free < pool->max_free + nodes)
		return NULL;
	pool->nr_free -= nodes;
	slab_unlink(slab);
	return slab;
}

/*
 * Nodes
 */

/* What leaves the pool when nodes become free; given back to the system without the lock. */
struct excess {
	struct node_slab *slabs;
	void *nodes; /* of a pool without slabs */
};

static void free_excess(const struct node_pool *pool, struct excess *excess)
{
	void *node;

	slab_free_list(excess->slabs);
	while ((node = node_chain_pop(pool, &excess->nodes)))
		free(node);
}

/* Makes a node free. Pool locked. */
static void retire(struct node_pool *pool, void *node, struct excess *excess)
{
	struct node_slab *slab;

	pool->live--;
	if (pool->plain) {
		node_chain_push(pool, &excess->nodes, node);
		return;
	}
	slab = slab_put(pool, node);
	if (slab) {
		slab->next = excess->slabs;
		excess->slabs = slab;
	}
}

/* Brings @n nodes from the system to @chain, or none, one by one. */
static bool refill_plain(struct node_pool *pool, unsigned int n, void **chain)
{
	struct excess got = { NULL, NULL };
	void *node;

	for (unsigned int i = 0; i < n; i++) {
		node = aligned_alloc(pool->align, round_up(pool->size, pool->align));
		if (!node) {
			free_excess(pool, &got);
			return false;
		}
		node_chain_push(pool, &got.nodes, node);
	}
	while ((node = node_chain_pop(pool, &got.nodes)))
		node_chain_push(pool, chain, node);
	xa_spin_lock(&pool->lock);
	pool->live += n;
	xa_spin_unlock(&pool->lock);
	return true;
}

/* Takes @n free nodes to @chain, or none. Pool locked. */
static bool take_free(struct node_pool *pool, unsigned int n, void **chain)
{
	if (pool->nr_free < n)
		return false;
	pool->live += n;
	for (; n; n--)
		node_chain_push(pool, chain, slab_take(pool));
	return true;
}

/* Brings slabs from the system, and takes @n nodes to @chain; or none. */
static bool refill(struct node_pool *pool, unsigned int n, void **chain)
{
	struct node_slab *fresh = NULL;
	bool done;

	for (unsigned int got = 0; got < n; got += slab_nodes(pool)) {
		struct node_slab *slab = slab_create(pool);

		if (!slab) {
			slab_free_list(fresh);
			return false;
		}
		slab->next = fresh;
		fresh = slab;
	}
	xa_spin_lock(&pool->lock);
	while (fresh) {
		struct node_slab *next = fresh->next;

		pool->nr_free += fresh->nr_free;
		slab_link(pool, fresh);
		fresh = next;
	}
	done = take_free(pool, n, chain);
	xa_spin_unlock(&pool->lock);
	return done;
}

/* Gets @n nodes to @chain, or none. @bulk: count it */
static bool alloc(struct node_pool *pool, unsigned int n, void **chain, gfp_t gfp, bool bulk)
{
	bool failed, done, plain;

	xa_spin_lock(&pool->lock);
	pool->bulk_calls += bulk;
	pool->bulk_nodes += bulk ? n : 0;
	if (!pool->live && !pool->nr_free)
		pool->plain = !pool->max_free;
	plain = pool->plain;
	failed = fails_now(pool);
	done = !failed && take_free(pool, n, chain);
	xa_spin_unlock(&pool->lock);
	if (done || failed || !gfpflags_allow_blocking(gfp))
		return done;
	return plain ? refill_plain(pool, n, chain) : refill(pool, n, chain);
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

	if (alloc(pool, 1, &node, gfp, false))
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
	return alloc(pool, n, chain, gfp, true);
}

/**
 * node_free() - Give back a node that no reader can have seen.
 *
 * Context: Any. NULL is allowed.
 */
void node_free(struct node_pool *pool, void *node)
{
	struct excess excess = { NULL, NULL };

	if (!node)
		return;
	xa_spin_lock(&pool->lock);
	retire(pool, node, &excess);
	xa_spin_unlock(&pool->lock);
	free_excess(pool, &excess);
}

/**
 * node_free_bulk() - As node_free(), for each node of a chain.
 */
void node_free_bulk(struct node_pool *pool, void *chain)
{
	struct excess excess = { NULL, NULL };
	void *node;

	if (!chain)
		return;
	xa_spin_lock(&pool->lock);
	while ((node = node_chain_pop(pool, &chain)))
		retire(pool, node, &excess);
	xa_spin_unlock(&pool->lock);
	free_excess(pool, &excess);
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
	struct excess excess = { NULL, NULL };
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
	free_excess(pool, &excess);
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
 * node_pool_drain() - Wait until each node freed so far is free, and return slabs that are all free
 * to the system.
 *
 * Context: May sleep. Not inside a read-side section.
 */
void node_pool_drain(struct node_pool *pool)
{
	struct node_slab *slab, *next, *idle = NULL;
	unsigned int nodes = slab_nodes(pool);
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
	for (slab = pool->partial; slab; slab = next) {
		next = slab->next;
		if (slab->nr_free < nodes)
			continue;
		pool->nr_free -= nodes;
		slab_unlink(slab);
		slab->next = idle;
		idle = slab;
	}
	xa_spin_unlock(&pool->lock);
	slab_free_list(idle);
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
