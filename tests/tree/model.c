/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The model: every operation is a loop over cells. It shares nothing with the code under test.
 */
#include "model.h"

#include <stdlib.h>

static const unsigned long bases[MODEL_WINDOWS] = {
	0,
	MODEL_CELLS * 5,
	1UL << 33,
	ULONG_MAX - MODEL_CELLS + 1,
};

struct cell *model_cell(struct model *model, unsigned long index)
{
	for (unsigned int w = 0; w < MODEL_WINDOWS; w++) {
		if (index - bases[w] < MODEL_CELLS)
			return &model->cells[w][index - bases[w]];
	}
	abort();
}

unsigned long model_index(unsigned long i)
{
	return bases[i / MODEL_CELLS] + i % MODEL_CELLS;
}

static void fill(struct model *model, unsigned long start, unsigned int order, struct cell content)
{
	for (unsigned long i = 0; i < 1UL << order; i++)
		*model_cell(model, start + i) = content;
}

void model_store(struct model *model, unsigned long index, unsigned int order, void *entry)
{
	struct cell content = *model_cell(model, index);

	if (!content.entry || content.order < order) {
		content.start = index;
		content.order = order;
		content.marks = 0;
		for (unsigned long i = 0; i < 1UL << order; i++)
			content.marks |= model_cell(model, index + i)->marks;
	}
	content.entry = entry;
	if (!entry)
		content.marks = 0;
	fill(model, content.start, content.order, content);
	if (!entry) {
		for (unsigned long i = 0; i < 1UL << content.order; i++)
			model_cell(model, content.start + i)->order = 0;
	}
}

void model_mark(struct model *model, unsigned long index, xa_mark_t mark, bool on)
{
	struct cell content = *model_cell(model, index);

	if (!content.entry)
		return;
	content.marks = on ? content.marks | 1U << mark : content.marks & ~(1U << mark);
	fill(model, content.start, content.order, content);
}

void model_split(struct model *model, unsigned long index, unsigned int order, void *entry)
{
	struct cell content = *model_cell(model, index);
	unsigned long start = content.start;
	unsigned long end = start + (1UL << content.order) - 1;

	content.order = order;
	content.entry = entry;
	for (;;) {
		content.start = start;
		fill(model, start, order, content);
		if (end - start < 1UL << order)
			break;
		start += 1UL << order;
	}
}

static bool visible(const struct cell *cell, xa_mark_t filter)
{
	if (!cell->entry || xa_is_zero(cell->entry))
		return false;
	return filter == XA_PRESENT || cell->marks >> filter & 1;
}

struct cell *model_find(struct model *model, unsigned long index, unsigned long max,
			xa_mark_t filter)
{
	for (unsigned int w = 0; w < MODEL_WINDOWS; w++) {
		unsigned long i = index > bases[w] ? index - bases[w] : 0;

		for (; i < MODEL_CELLS && bases[w] + i <= max; i++) {
			if (visible(&model->cells[w][i], filter))
				return &model->cells[w][i];
		}
	}
	return NULL;
}

int test_store_order(struct xarray *xa, unsigned long index, unsigned int order, void *entry,
		     gfp_t gfp)
{
	XA_STATE_ORDER(xas, xa, index, order);

	do {
		xas_lock(&xas);
		xas_store(&xas, entry);
		xas_unlock(&xas);
	} while (xas_nomem(&xas, gfp));
	return xas_error(&xas);
}
