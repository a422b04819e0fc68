/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The invariants, checked one by one; for tests and for debugging. Nobody else may use the cache,
 * or the mapping, meanwhile. The first violation is printed and aborts.
 */
#include <stdio.h>
#include <stdlib.h>
#include "internal.h"

#define check(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: violated: %s\n", __func__, __LINE__, #condition);  \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

static unsigned int folio_refs(const struct folio *folio)
{
	return __atomic_load_n(&folio->refcount, __ATOMIC_ACQUIRE);
}

static void check_buddy(struct cache *cache)
{
	unsigned long nr_free = 0;
	struct folio *folio;
	unsigned int order;

	for (order = 0; order <= MAX_FOLIO_ORDER; order++) {
		list_for_each_entry(folio, &cache->free[order], lru) {
			check(folio_flags(folio) == FOLIO_BUDDY);
			check(folio->order == order);
			check(!folio_refs(folio) && !folio->mapping);
			check(!((folio - cache->frames) & ((1UL << order) - 1)));
			nr_free += 1UL << order;
		}
	}
	check(nr_free == cache->nr_free);
	check(cache->nr_free + cache->nr_used[MAPPING_FILE] + cache->nr_used[MAPPING_DEVICE] ==
	      cache->nr_frames);
	check(cache->nr_used[MAPPING_FILE] <= cache->nr_frames - cache->device_share);
}

static void check_lru(struct cache *cache, enum mapping_level level)
{
	struct lru *lru = &cache->lru[level];
	struct folio *folio;
	int list;

	for (list = 0; list < LRU_LISTS; list++) {
		unsigned long nr = 0;

		list_for_each_entry(folio, &lru->list[list], lru) {
			check(folio_refs(folio) && folio->level == level);
			check(folio_flags(folio) & FOLIO_LRU);
			check(!(folio_flags(folio) & FOLIO_ACTIVE) == (list == LRU_INACTIVE));
			nr += 1UL << folio->order;
		}
		check(nr == lru->nr[list]);
	}
}

static void check_shadow_nodes(struct cache *cache)
{
	struct xa_node *node;
	unsigned long nr = 0;

	pthread_mutex_lock(&cache->shadows.lock);
	list_for_each_entry(node, &cache->shadows.list, private_list) {
		check(node->count && node->count == node->nr_values);
		nr++;
	}
	check(nr == cache->shadows.nr);
	pthread_mutex_unlock(&cache->shadows.lock);
}

/** cache_check() - Assert what must hold of arena and lists. Context: Nobody uses the cache. */
void cache_check(struct cache *cache)
{
	pthread_mutex_lock(&cache->arena_lock);
	check_buddy(cache);
	pthread_mutex_unlock(&cache->arena_lock);
	pthread_mutex_lock(&cache->lru_lock);
	check_lru(cache, MAPPING_FILE);
	check_lru(cache, MAPPING_DEVICE);
	pthread_mutex_unlock(&cache->lru_lock);
	check_shadow_nodes(cache);
}

static void check_frames(const struct folio *folio)
{
	unsigned int valid = 0, dirty = 0;

	for_each_frame(it, folio, 0, folio_size(folio)) {
		unsigned int unclean = frame_blocks(it.frame, BLOCKS_DIRTY) |
				       frame_blocks(it.frame, BLOCKS_WRITING);

		check(!(unclean & ~frame_blocks(it.frame, BLOCKS_VALID)));
		check(!(frame_blocks(it.frame, BLOCKS_RESERVED) & ~unclean));
		check(it.frame == folio || (!folio_refs(it.frame) && !it.frame->mapping));
		valid += nr_bits(frame_blocks(it.frame, BLOCKS_VALID));
		dirty += frame_blocks(it.frame, BLOCKS_DIRTY) ? it.pages : 0;
	}
	check(dirty == folio_nr_dirty(folio));
	check(!folio->order || valid == folio[1].nr_valid);
}

static void check_folio(struct mapping *mapping, struct xa_state *xas, struct folio *folio)
{
	bool dirty = folio_nr_dirty(folio);
	bool writing = folio_range_any(folio, BLOCKS_WRITING, 0, folio_size(folio));

	check(folio->mapping == mapping && folio->index == xas->xa_index);
	check(folio->order == xas_get_order(xas));
	check(folio_refs(folio) && folio->level == mapping->level);
	check(folio->block_shift == mapping->block_shift);
	check_frames(folio);
	check(writing == !!(folio_flags(folio) & FOLIO_WRITEBACK));
	check(dirty == xas_get_mark(xas, PAGECACHE_TAG_DIRTY));
	check(writing == xas_get_mark(xas, PAGECACHE_TAG_WRITEBACK));
	check(dirty || !xas_get_mark(xas, PAGECACHE_TAG_TOWRITE));
}

/* A node holds a folio, or a node that does, or is listed. */
static void check_node(const struct xa_node *node)
{
	if (node)
		check(list_empty(&node->private_list) == (node->count != node->nr_values));
}

/** mapping_check() - Assert what must hold of a mapping. Context: Nobody uses the mapping. */
void mapping_check(struct mapping *mapping)
{
	XA_STATE(xas, &mapping->i_pages, 0);
	unsigned long nrpages = 0, nrdirty = 0;
	struct folio *folio;

	xas_lock(&xas);
	xas_for_each(&xas, folio, ULONG_MAX) {
		check_node(xas.xa_node);
		if (xa_is_value(folio))
			continue;
		check_folio(mapping, &xas, folio);
		nrpages += 1UL << folio->order;
		nrdirty += folio_nr_dirty(folio) != 0;
	}
	check(nrpages == mapping->nrpages);
	check(nrdirty == mapping->nrdirty);
	check(!nrdirty || mapping->queued);
	xas_unlock(&xas);
}
