/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A model of an XArray that is too simple to be wrong: windows of cells, one cell for each index.
 *
 * The windows lie at the ends of the index space and in between, so that trees get deep, grow and
 * shrink. A multi-index entry fills all the cells of its range with the same content.
 */
#ifndef TESTS_TREE_MODEL_H
#define TESTS_TREE_MODEL_H

#include "seed.h"
#include "xarray.h"

#define MODEL_ORDER 9 /* largest order, and log2 of a window's cells */
#define MODEL_CELLS (1UL << MODEL_ORDER)
#define MODEL_WINDOWS 4

struct cell {
	void *entry; /* XA_ZERO_ENTRY: reserved */
	unsigned long start;
	unsigned int order;
	unsigned int marks;
};

struct model {
	struct cell cells[MODEL_WINDOWS][MODEL_CELLS];
};

struct cell *model_cell(struct model *model, unsigned long index);
/* The cells in order of index: @i counts from 0 to MODEL_WINDOWS * MODEL_CELLS. */
unsigned long model_index(unsigned long i);
/* Replaces what the range covers, as xas_store() says. */
void model_store(struct model *model, unsigned long index, unsigned int order, void *entry);
void model_mark(struct model *model, unsigned long index, xa_mark_t mark, bool on);
void model_split(struct model *model, unsigned long index, unsigned int order, void *entry);
/* The next entry at or after @index that is visible and has the mark; NULL: none up to @max. */
struct cell *model_find(struct model *model, unsigned long index, unsigned long max,
			xa_mark_t filter);

/* Stores an entry of any order, as the advanced API is used for it. Return: 0 or negative errno. */
int test_store_order(struct xarray *xa, unsigned long index, unsigned int order, void *entry,
		     gfp_t gfp);

#endif /* TESTS_TREE_MODEL_H */
