/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Doubly linked lists, linked through a member of the objects on them.
 *
 * A head that points at itself is an empty list; a node that points at itself is on no list. No
 * locking: the owner of the list brings it.
 */
#ifndef FOLIO_TREE_LIST_H
#define FOLIO_TREE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list_head {
	struct list_head *next, *prev;
};

#define LIST_HEAD_INIT(name) { &(name), &(name) }
#define LIST_HEAD(name) struct list_head name = LIST_HEAD_INIT(name)

static inline void INIT_LIST_HEAD(struct list_head *list)
{
	list->next = list;
	list->prev = list;
}

static inline bool list_empty(const struct list_head *head)
{
	return head->next == head;
}

/* Links @node in between two neighbours. */
static inline void list_insert_between(struct list_head *node, struct list_head *before,
				       struct list_head *after)
{
	node->prev = before;
	node->next = after;
	before->next = node;
	after->prev = node;
}

/** list_add() - Put @node first. */
static inline void list_add(struct list_head *node, struct list_head *head)
{
	list_insert_between(node, head, head->next);
}

/** list_add_tail() - Put @node last. */
static inline void list_add_tail(struct list_head *node, struct list_head *head)
{
	list_insert_between(node, head->prev, head);
}

/** list_del_init() - Take @node off its list, if it is on one; it is then on none. */
static inline void list_del_init(struct list_head *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	INIT_LIST_HEAD(node);
}

/** list_del() - Take @node off its list. As list_del_init(): a node is never left dangling. */
static inline void list_del(struct list_head *node)
{
	list_del_init(node);
}

/** list_move() - Put @node first on the list @head, off the list where it is. */
static inline void list_move(struct list_head *node, struct list_head *head)
{
	list_del_init(node);
	list_add(node, head);
}

/** list_move_tail() - Put @node last on the list @head, off the list where it is. */
static inline void list_move_tail(struct list_head *node, struct list_head *head)
{
	list_del_init(node);
	list_add_tail(node, head);
}

/** list_splice_tail_init() - Append the whole of @list to @head; @list is then empty. */
static inline void list_splice_tail_init(struct list_head *list, struct list_head *head)
{
	if (list_empty(list))
		return;
	list->next->prev = head->prev;
	head->prev->next = list->next;
	list->prev->next = head;
	head->prev = list->prev;
	INIT_LIST_HEAD(list);
}

#ifndef container_of
#define container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))
#endif

#define list_entry(ptr, type, member) container_of(ptr, type, member)
#define list_first_entry(head, type, member) list_entry((head)->next, type, member)
#define list_last_entry(head, type, member) list_entry((head)->prev, type, member)
#define list_next_entry(pos, member) list_entry((pos)->member.next, __typeof__(*(pos)), member)
#define list_prev_entry(pos, member) list_entry((pos)->member.prev, __typeof__(*(pos)), member)

/** list_for_each_entry() - Go over a list that does not change meanwhile. */
#define list_for_each_entry(pos, head, member)                                                     \
	for (pos = list_first_entry(head, __typeof__(*pos), member); &pos->member != (head);       \
	     pos = list_next_entry(pos, member))

/** list_for_each_entry_safe() - Go over a list; the body may take @pos off it. */
#define list_for_each_entry_safe(pos, n, head, member)                                             \
	for (pos = list_first_entry(head, __typeof__(*pos), member),                               \
	    n = list_next_entry(pos, member);                                                      \
	     &pos->member != (head); pos = n, n = list_next_entry(n, member))

#endif /* FOLIO_TREE_LIST_H */
