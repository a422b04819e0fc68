/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A model of a maple tree that is too simple to be wrong: a sorted array of the ranges that hold
 * an entry. What lies between two of them is one empty range, as in the tree.
 */
#ifndef TESTS_TREE_MAPLE_LIST_H
#define TESTS_TREE_MAPLE_LIST_H

#include <stdbool.h>
#include <stddef.h>

#define LIST_MAX 4096 /* ranges; a store adds two at most */

struct range {
	unsigned long first, last;
	void *entry;
};

struct list {
	unsigned int n;
	struct range ranges[LIST_MAX];
};

/* Number of the first range that ends at or behind @index; list->n: none. */
unsigned int list_at(const struct list *list, unsigned long index);
/* The range around @index: one with an entry, or all that is empty there. */
struct range list_around(const struct list *list, unsigned long index);
/* Does no entry lie from @first to @last? */
bool list_is_free(const struct list *list, unsigned long first, unsigned long last);
/* Puts @entry, or nothing if it is NULL, in place of all from @first to @last. */
void list_store(struct list *list, unsigned long first, unsigned long last, void *entry);
/* The lowest, or with @up false the highest, @size empty indices in a row from @min to @max. */
bool list_gap(const struct list *list, unsigned long min, unsigned long max, unsigned long size,
	      bool up, unsigned long *start);

#endif /* TESTS_TREE_MAPLE_LIST_H */
