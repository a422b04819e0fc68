/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The list: one binary search, and loops. It shares nothing with the code under test.
 */
#include "maple_list.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

unsigned int list_at(const struct list *list, unsigned long index)
{
	unsigned int low = 0, high = list->n;

	while (low < high) {
		unsigned int middle = (low + high) / 2;

		if (list->ranges[middle].last < index)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct range list_around(const struct list *list, unsigned long index)
{
	unsigned int at = list_at(list, index);
	struct range empty = { 0, ULONG_MAX, NULL };

	if (at < list->n && list->ranges[at].first <= index)
		return list->ranges[at];
	if (at)
		empty.first = list->ranges[at - 1].last + 1;
	if (at < list->n)
		empty.last = list->ranges[at].first - 1;
	return empty;
}

bool list_is_free(const struct list *list, unsigned long first, unsigned long last)
{
	unsigned int at = list_at(list, first);

	return at == list->n || list->ranges[at].first > last;
}

/* Puts @n ranges in place of those from number @from to before @to. */
static void replace(struct list *list, unsigned int from, unsigned int to,
		    const struct range *ranges, unsigned int n)
{
	if (list->n + n - (to - from) > LIST_MAX)
		abort();
	memmove(&list->ranges[from + n], &list->ranges[to],
		(list->n - to) * sizeof(list->ranges[0]));
	memcpy(&list->ranges[from], ranges, n * sizeof(ranges[0]));
	list->n = list->n + n - (to - from);
}

void list_store(struct list *list, unsigned long first, unsigned long last, void *entry)
{
	unsigned int from = list_at(list, first), to = list_at(list, last);
	struct range ranges[3];
	unsigned int n = 0;

	if (to < list->n && list->ranges[to].first <= last)
		to++;
	if (from < to && list->ranges[from].first < first) {
		ranges[n] = list->ranges[from];
		ranges[n++].last = first - 1;
	}
	if (entry)
		ranges[n++] = (struct range){ first, last, entry };
	if (from < to && list->ranges[to - 1].last > last) {
		ranges[n] = list->ranges[to - 1];
		ranges[n++].first = last + 1;
	}
	replace(list, from, to, ranges, n);
}

/* The part of the empty range @empty that lies from @min to @max is large enough? */
static bool fits(struct range empty, unsigned long min, unsigned long max, unsigned long size,
		 bool up, unsigned long *start)
{
	unsigned long first = empty.first > min ? empty.first : min;
	unsigned long last = empty.last < max ? empty.last : max;

	if (empty.entry || first > last || last - first < size - 1)
		return false;
	*start = up ? first : last - (size - 1);
	return true;
}

bool list_gap(const struct list *list, unsigned long min, unsigned long max, unsigned long size,
	      bool up, unsigned long *start)
{
	unsigned long index = up ? min : max;

	for (;;) {
		struct range around = list_around(list, index);

		if (fits(around, min, max, size, up, start))
			return true;
		if (up ? around.last >= max : around.first <= min)
			return false;
		index = up ? around.last + 1 : around.first - 1;
	}
}
