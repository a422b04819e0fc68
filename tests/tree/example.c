/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An example for a newcomer: a table of words by number, read without a lock.
 *
 * With the library installed: cc example.c $(pkg-config --cflags --libs xatree)
 */
#include <stdio.h>
#include <stdlib.h>

#include "xarray.h"

#define XA_LONG_WORD XA_MARK_0

struct word {
	struct rcu_head rcu; /* to be freed when no reader looks at it any more */
	const char *text;
};

static DEFINE_XARRAY(words);

static void free_word(struct rcu_head *head)
{
	rcu_callback_begin(head);
	free(container_of(head, struct word, rcu));
}

/* Puts a word at @index, in place of what is there. Return: 0 or a negative errno. */
static int set_word(unsigned long index, const char *text)
{
	struct word *word = malloc(sizeof(*word));
	struct word *old;

	if (!word)
		return -ENOMEM;
	word->text = text;
	old = xa_store(&words, index, word, GFP_KERNEL);
	if (xa_is_err(old)) {
		free(word);
		return xa_err(old);
	}
	if (old)
		call_rcu(&old->rcu, free_word);
	if (text[0] && text[1])
		xa_set_mark(&words, index, XA_LONG_WORD);
	return 0;
}

/* A reader holds the read lock as long as it looks at what it found. */
static void print_word(unsigned long index)
{
	struct word *word;

	rcu_read_lock();
	word = xa_load(&words, index);
	printf("%lu: %s\n", index, word ? word->text : "nothing");
	rcu_read_unlock();
}

/* A cursor walks over many entries at once. */
static unsigned int count_long_words(void)
{
	XA_STATE(xas, &words, 0);
	unsigned int n = 0;
	struct word *word;

	rcu_read_lock();
	xas_for_each_marked(&xas, word, ULONG_MAX, XA_LONG_WORD) {
		if (!xas_retry(&xas, word))
			n++;
	}
	rcu_read_unlock();
	return n;
}

int main(void)
{
	unsigned long index;
	struct word *word;

	rcu_register_thread();
	if (set_word(1, "one") || set_word(1UL << 40, "far away") || set_word(2, "2") ||
	    set_word(1, "uno"))
		return 1;
	print_word(1);
	print_word(3);
	printf("%u long words\n", count_long_words());

	xa_for_each(&words, index, word) {
		printf("%lu holds %s\n", index, word->text);
		xa_erase(&words, index);
		call_rcu(&word->rcu, free_word);
	}
	rcu_barrier();
	return !xa_empty(&words);
}
