/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a slot of an XArray may hold, told by the two low bits.
 *
 *	00	a pointer of the user's, 4-byte aligned, or NULL
 *	x1	a value of the user's: a number of 63 bits; or a pointer tagged 1 or 3
 *	10	an internal entry
 *
 * Internal entries, by their number (the bits above the two low ones)
 *
 *	0-62	sibling: the entry lies in this slot of the same node (multi-index entries)
 *	256	retry: the node has been taken out of the tree, start again from the head
 *	257	zero: reserved by the user, reads as NULL through the normal API
 *	> 1023	a pointer to a node
 *	< 0	an error; returned from calls, never stored
 */
#ifndef FOLIO_TREE_XA_ENTRY_H
#define FOLIO_TREE_XA_ENTRY_H

#include <stdbool.h>
#include <stdint.h>

/* A node has 1 << XA_CHUNK_SHIFT slots. Smaller ones make deep trees, for tests. */
#ifndef XA_CHUNK_SHIFT
#define XA_CHUNK_SHIFT 6
#endif
#define XA_CHUNK_SIZE (1UL << XA_CHUNK_SHIFT)
#define XA_CHUNK_MASK (XA_CHUNK_SIZE - 1)
_Static_assert(XA_CHUNK_SHIFT >= 2 && XA_CHUNK_SHIFT <= 6, "a mark of a node is one 64-bit word");

#define XA_MAX_ERRNO 4095L

/** xa_mk_value() - Make an entry of a number. @v: at most LONG_MAX */
static inline void *xa_mk_value(unsigned long v)
{
	return (void *)((v << 1) | 1);
}

/** xa_to_value() - The number in a value entry. */
static inline unsigned long xa_to_value(const void *entry)
{
	return (unsigned long)entry >> 1;
}

static inline bool xa_is_value(const void *entry)
{
	return (unsigned long)entry & 1;
}

/** xa_tag_pointer() - Tag a pointer with 0, 1 or 3. Tagged ones and values do not mix. */
static inline void *xa_tag_pointer(void *p, unsigned long tag)
{
	return (void *)((unsigned long)p | tag);
}

static inline void *xa_untag_pointer(void *entry)
{
	return (void *)((unsigned long)entry & ~3UL);
}

static inline unsigned int xa_pointer_tag(void *entry)
{
	return (unsigned long)entry & 3UL;
}

static inline void *xa_mk_internal(unsigned long v)
{
	return (void *)((v << 2) | 2);
}

static inline unsigned long xa_to_internal(const void *entry)
{
	return (unsigned long)entry >> 2;
}

static inline bool xa_is_internal(const void *entry)
{
	return ((unsigned long)entry & 3) == 2;
}

#define XA_RETRY_ENTRY xa_mk_internal(256)
#define XA_ZERO_ENTRY xa_mk_internal(257)

static inline bool xa_is_retry(const void *entry)
{
	return entry == XA_RETRY_ENTRY;
}

static inline bool xa_is_zero(const void *entry)
{
	return entry == XA_ZERO_ENTRY;
}

/** xa_is_advanced() - Is this an internal entry that only the advanced API may store or see? */
static inline bool xa_is_advanced(const void *entry)
{
	return xa_is_internal(entry) && (unsigned long)entry <= (unsigned long)XA_RETRY_ENTRY;
}

static inline void *xa_mk_sibling(unsigned int offset)
{
	return xa_mk_internal(offset);
}

static inline unsigned int xa_to_sibling(const void *entry)
{
	return xa_to_internal(entry);
}

static inline bool xa_is_sibling(const void *entry)
{
	return xa_is_internal(entry) && xa_to_internal(entry) < XA_CHUNK_SIZE - 1;
}

/** xa_is_err() - Did a call of the normal API fail? */
static inline bool xa_is_err(const void *entry)
{
	return xa_is_internal(entry) &&
	       (unsigned long)entry >= (unsigned long)xa_mk_internal(-XA_MAX_ERRNO);
}

/** xa_err() - The negative errno in @entry. Return: 0 when it is no error. */
static inline int xa_err(const void *entry)
{
	return xa_is_err(entry) ? (int)((long)entry >> 2) : 0;
}

/* The inverse of xa_err(). */
#define XA_ERROR(errno) ((struct xa_node *)xa_mk_internal((unsigned long)(long)(errno)))

#endif /* FOLIO_TREE_XA_ENTRY_H */
