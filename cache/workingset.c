/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What was evicted is remembered, to tell what is used often from what was used once.
 *
 * The two lists alone cannot: a folio whose uses lie further apart than the inactive list is long
 * is evicted before its second use is seen, each time anew. So an eviction leaves a shadow in the
 * folio's slot, with the time of it. When the index is read again, the time that has gone by says
 * how many frames more the inactive list would have needed to keep the folio: the refault distance.
 * If the active list is at least as long, its folios had the use of memory that would have served
 * this one, and it may compete with them: it starts active. The clock is the level's: it goes on
 * by a folio's pages for each eviction and each activation, which is how fast folios move down the
 * inactive list. Folios created for a write are not compared: nobody has waited for them.
 *
 * That comparison alone gives nothing to a loop through a little more than the cache holds: each
 * page goes just before its next use, and the active list stays empty. So of the refaults that
 * lists a little longer would have spared, one in NEAR_KEPT is activated as well, and that part of
 * the loop stays. It ends where the active list is two thirds of the distance: as soon as it is as
 * long, the comparison lets in all of the loop, and its pages push one another out again.
 *
 * WORKINGSET says that a folio has been active. It goes into the shadow and comes back with the
 * refault, and says which of the lists was too short for the folio. A refault within the length of
 * both lists would have been a hit if the other list had been shorter: so each moves the border
 * between them by its pages, towards the active list if the folio had been active, else the other
 * way. Evictions of the two kinds are not equally many, nor are their refaults: a refault of the
 * rarer kind moves the border as many times further. Where the border starts, and how it is used:
 * reclaim.c.
 *
 *	shadow (a value entry, 63 bits)		clock << 1 | WORKINGSET
 *
 * Shadows need nodes of the tree, and a node that holds nothing else serves no folio. Such nodes
 * are on one list of the cache, the oldest first, through their private_list. Every store to a
 * mapping's array has the update callback here, which puts a node there, and takes it off, as its
 * counts change. There may be as many as would hold eight shadows for each frame; an evicting
 * thread takes the oldest of more than that out of their trees. That one comes from the list, while
 * the tree's lock lies outside the list's: so it is only tried, and if it is taken the node goes to
 * the young end.
 *
 * A mapping that is being torn down gets no shadow any more, and mapping_finish() drops what is
 * left: as long as a node is on the list, its mapping is there. It takes the XArray lock on the
 * way, and so waits for a thread that has just taken a node off the list.
 *
 *	list membership of a node	changes under XArray lock + shadow list lock
 *	the list, its length		shadow list lock
 *	clock				atomic
 */
#include "internal.h"

#define SHADOW_WORKINGSET 1UL
#define SHADOW_CLOCK_SHIFT 1
/* A value entry has one bit less than a word. */
#define CLOCK_MASK (ULONG_MAX >> (SHADOW_CLOCK_SHIFT + 1))
#define LOCK_TRIES 32
#define EVICTED_MEMORY 65536 /* pages */
#define WEIGHT_MAX 1024
#define NEAR_KEPT 32

static struct mapping *node_mapping(const struct xa_node *node)
{
	return container_of(node->array, struct mapping, i_pages);
}

/*
 * The list, with atomic changes of `next`: whether its own node is listed a thread sees without the
 * list lock, while neighbours come and go and change the pointer, though never that.
 */
static bool node_listed(const struct xa_node *node)
{
	return __atomic_load_n(&node->private_list.next, __ATOMIC_RELAXED) != &node->private_list;
}

static void node_link(struct shadow_nodes *shadows, struct xa_node *node)
{
	struct list_head *entry = &node->private_list, *last = shadows->list.prev;

	entry->prev = last;
	__atomic_store_n(&entry->next, &shadows->list, __ATOMIC_RELAXED);
	__atomic_store_n(&last->next, entry, __ATOMIC_RELAXED);
	shadows->list.prev = entry;
	__atomic_store_n(&shadows->nr, shadows->nr + 1, __ATOMIC_RELAXED);
}

static void node_unlink(struct shadow_nodes *shadows, struct xa_node *node)
{
	struct list_head *entry = &node->private_list;

	entry->next->prev = entry->prev;
	__atomic_store_n(&entry->prev->next, entry->next, __ATOMIC_RELAXED);
	__atomic_store_n(&entry->next, entry, __ATOMIC_RELAXED);
	entry->prev = entry;
	__atomic_store_n(&shadows->nr, shadows->nr - 1, __ATOMIC_RELAXED);
}

/**
 * workingset_update_node() - The update callback of every cursor that stores to a mapping's array.
 *
 * Context: XArray lock held. Takes the shadow list lock.
 */
void workingset_update_node(struct xa_node *node)
{
	struct shadow_nodes *shadows = &node_mapping(node)->cache->shadows;
	bool only_shadows = node->count && node->count == node->nr_values;

	if (node_listed(node) == only_shadows)
		return;
	pthread_mutex_lock(&shadows->lock);
	if (only_shadows)
		node_link(shadows, node);
	else
		node_unlink(shadows, node);
	pthread_mutex_unlock(&shadows->lock);
}

/* Time goes on in a level by what has moved down its inactive list. */
static void age(struct lru *lru, unsigned long pages)
{
	__atomic_fetch_add(&lru->clock, pages, __ATOMIC_RELAXED);
}

/** workingset_activation() - A folio goes from the inactive to the active list. */
void workingset_activation(struct folio *folio)
{
	age(&folio->cache->lru[folio->level], 1UL << folio->order);
}

/* How often were what the shadows of a kind stand for evicted of late? The past counts ever less. */
static void count_evicted(struct lru *lru, bool workingset, unsigned long pages)
{
	unsigned long nr = __atomic_add_fetch(&lru->evicted[workingset], pages, __ATOMIC_RELAXED);
	int kind;

	if (nr <= EVICTED_MEMORY)
		return;
	for (kind = 0; kind < 2; kind++) {
		nr = __atomic_load_n(&lru->evicted[kind], __ATOMIC_RELAXED);
		__atomic_store_n(&lru->evicted[kind], nr / 2, __ATOMIC_RELAXED);
	}
}

/* A refault that one of the lists is to blame for. */
static void move_border(struct lru *lru, bool workingset, long pages)
{
	unsigned long own = __atomic_load_n(&lru->evicted[workingset], __ATOMIC_RELAXED);
	unsigned long other = __atomic_load_n(&lru->evicted[!workingset], __ATOMIC_RELAXED);
	unsigned long weight = other / (own + 1);

	weight = weight < 1 ? 1 : weight > WEIGHT_MAX ? WEIGHT_MAX : weight;
	pages *= weight;
	__atomic_fetch_add(&lru->lean, workingset ? -pages : pages, __ATOMIC_RELAXED);
}

/* A refault within the length of both lists, but too far for the active one: is it kept anyway? */
static bool keep_near(struct lru *lru, unsigned long distance, unsigned long active)
{
	return distance > active + active / 2 && ++lru->near % NEAR_KEPT == 0;
}

/**
 * workingset_lean() - How many pages more than by its share is the inactive list to have?
 * @most: a bound, of fewer pages as well, which is where it goes on from if it is passed
 */
long workingset_lean(struct lru *lru, long most)
{
	long lean = __atomic_load_n(&lru->lean, __ATOMIC_RELAXED);
	long bounded = lean < -most ? -most : lean > most ? most : lean;

	if (bounded != lean)
		__atomic_store_n(&lru->lean, bounded, __ATOMIC_RELAXED);
	return bounded;
}

/**
 * workingset_eviction() - What is to be left in the slot of a folio that is evicted.
 * @evicted: pages evicted so far by the caller, for workingset_evicted(); goes on by the folio's
 *
 * Context: XArray lock held; the folio is still the mapping's.
 * Return: The shadow, or NULL when the mapping is being torn down.
 */
void *workingset_eviction(struct mapping *mapping, struct folio *folio, unsigned long evicted[2])
{
	struct lru *lru = &folio->cache->lru[folio->level];
	unsigned long clock = __atomic_load_n(&lru->clock, __ATOMIC_RELAXED);
	bool workingset = folio_flags(folio) & FOLIO_WORKINGSET;

	clock = (clock + evicted[0] + evicted[1]) & CLOCK_MASK;
	evicted[workingset] += 1UL << folio->order;
	if (__atomic_load_n(&mapping->exiting, __ATOMIC_RELAXED))
		return NULL;
	return xa_mk_value(clock << SHADOW_CLOCK_SHIFT | (workingset ? SHADOW_WORKINGSET : 0));
}

/**
 * workingset_evicted() - Time goes on by what a caller has evicted.
 * @evicted: pages; [1]: that had been active
 */
void workingset_evicted(struct lru *lru, const unsigned long evicted[2])
{
	int kind;

	age(lru, evicted[0] + evicted[1]);
	for (kind = 0; kind < 2; kind++)
		if (evicted[kind])
			count_evicted(lru, kind, evicted[kind]);
}

/**
 * workingset_refault() - A folio that is read again: is it to be active?
 * @folio: in its mapping, on no list yet
 * @shadow: what was in its slot
 *
 * Context: LRU lock held, for the sake of the line of memory that it shares with what changes here.
 */
void workingset_refault(struct folio *folio, void *shadow)
{
	struct cache *cache = folio->cache;
	struct lru *lru = &cache->lru[folio->level];
	unsigned long inactive = __atomic_load_n(&lru->nr[LRU_INACTIVE], __ATOMIC_RELAXED);
	unsigned long active = __atomic_load_n(&lru->nr[LRU_ACTIVE], __ATOMIC_RELAXED);
	unsigned long value = xa_to_value(shadow), clock, distance;
	bool workingset = value & SHADOW_WORKINGSET, near;

	count_stat(cache, refaults, 1);
	clock = __atomic_load_n(&lru->clock, __ATOMIC_RELAXED);
	distance = (clock - (value >> SHADOW_CLOCK_SHIFT)) & CLOCK_MASK;
	near = distance <= inactive + active;
	if (near)
		move_border(lru, workingset, 1L << folio->order);
	if (distance > active && !(near && keep_near(lru, distance, active)))
		return;
	age(lru, 1UL << folio->order);
	folio_set_flags(folio, FOLIO_ACTIVE);
	count_stat(cache, refault_activations, 1);
	if (!workingset)
		return;
	folio_set_flags(folio, FOLIO_WORKINGSET);
	count_stat(cache, refault_restores, 1);
}

/* The oldest node whose tree can be locked; locked then. Gives up after a few. */
static struct xa_node *lock_oldest(struct shadow_nodes *shadows)
{
	struct xa_node *node, *found = NULL;
	unsigned int tries;

	pthread_mutex_lock(&shadows->lock);
	for (tries = 0; tries < LOCK_TRIES && shadows->nr > shadows->max && !found; tries++) {
		node = list_first_entry(&shadows->list, struct xa_node, private_list);
		if (xa_trylock(node->array))
			found = node;
		node_unlink(shadows, node);
		if (!found)
			node_link(shadows, node);
	}
	pthread_mutex_unlock(&shadows->lock);
	return found;
}

/**
 * workingset_shrink() - Nodes that hold only shadows go until there are no more than allowed.
 *
 * Context: No XArray lock held. Takes the shadow list lock, XArray locks by trylock under it.
 */
void workingset_shrink(struct cache *cache)
{
	struct shadow_nodes *shadows = &cache->shadows;
	struct xa_node *node;
	struct xarray *xa;
	unsigned int n;

	for (n = 0; n < 4 * RECLAIM_BATCH; n++) {
		if (__atomic_load_n(&shadows->nr, __ATOMIC_RELAXED) <= shadows->max)
			return;
		node = lock_oldest(shadows);
		if (!node)
			return;
		xa = node->array;
		xa_delete_node(node, workingset_update_node);
		xa_unlock(xa);
		count_stat(cache, shadow_nodes_freed, 1);
	}
}

/**
 * workingset_clear() - Forget the shadows of a range. Nobody evicts there.
 * @last: last index
 *
 * Context: Takes the XArray lock, at least once, and lets go of it now and then.
 */
void workingset_clear(struct mapping *mapping, pgoff_t first, pgoff_t last)
{
	XA_STATE(xas, &mapping->i_pages, first);
	unsigned int n = 0;
	void *entry;

	xas_set_update(&xas, workingset_update_node);
	xas_lock(&xas);
	xas_for_each(&xas, entry, last) {
		if (xa_is_value(entry))
			xas_store(&xas, NULL);
		if (++n % 4096)
			continue;
		xas_pause(&xas);
		xas_unlock(&xas);
		xas_lock(&xas);
	}
	xas_unlock(&xas);
}

void workingset_init(struct cache *cache)
{
	short_lock_init(&cache->shadows.lock);
	INIT_LIST_HEAD(&cache->shadows.list);
	cache->shadows.max = cache->nr_frames >> (XA_CHUNK_SHIFT - 3);
}

void workingset_finish(struct cache *cache)
{
	cache_assert(!cache->shadows.nr);
	pthread_mutex_destroy(&cache->shadows.lock);
}
