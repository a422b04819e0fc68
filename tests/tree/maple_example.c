/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An example for a newcomer: a map of memory, in which ranges of addresses have owners.
 *
 * With the library installed: cc maple_example.c $(pkg-config --cflags --libs xatree)
 */
#include <stdio.h>

#include "maple_tree.h"

/* The tree finds free ranges, and is read while others write. */
static struct maple_tree map = MTREE_INIT(map, MT_FLAGS_ALLOC_RANGE | MT_FLAGS_USE_RCU);

static const char *owner(unsigned long address)
{
	const char *name = mtree_load(&map, address);

	return name ? name : "nobody";
}

/* Gives the lowest free pages below 64 KiB to @name. Return: the address, or 0. */
static unsigned long get(const char *name, unsigned long size)
{
	unsigned long address;
	int err = mtree_alloc_range(&map, &address, (void *)name, size, 0x1000, 0xffff, GFP_KERNEL);

	return err ? 0 : address;
}

/* A cursor goes over the ranges; a reader holds the read lock as long as it looks. */
static void print_all(void)
{
	MA_STATE(mas, &map, 0, 0);
	const char *name;

	rcu_read_lock();
	mas_for_each(&mas, name, ULONG_MAX)
		printf("%#lx to %#lx: %s\n", mas.index, mas.last, name);
	rcu_read_unlock();
}

/* What must not fail later takes its memory first. */
static int rename_range(unsigned long first, unsigned long last, const char *name)
{
	MA_STATE(mas, &map, first, last);
	int err;

	mas_lock(&mas);
	err = mas_preallocate(&mas, (void *)name, GFP_KERNEL);
	if (!err)
		mas_store_prealloc(&mas, (void *)name);
	mas_unlock(&mas);
	return err;
}

int main(void)
{
	unsigned long stack;

	rcu_register_thread();
	if (mtree_store_range(&map, 0x2000, 0x4fff, "heap", GFP_KERNEL))
		return 1;
	stack = get("stack", 0x3000);
	printf("the stack is at %#lx\n", stack);
	printf("0x2345 belongs to %s, 0x1000 to %s\n", owner(0x2345), owner(0x1000));

	/* The middle of a range becomes a range of its own. */
	if (rename_range(0x3000, 0x3fff, "guard"))
		return 1;
	print_all();
	mtree_erase(&map, stack);
	printf("0x%lx belongs to %s\n", stack, owner(stack));
	mtree_destroy(&map);
	return !mtree_empty(&map);
}
