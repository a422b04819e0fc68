/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Registration of threads with RCU.
 *
 * liburcu wants each thread registered once and unregistered before it ends. Here registration may
 * be repeated, and a thread-specific key's destructor undoes it at the thread's end, so nobody has
 * to remember. The initial thread never gets there when main() returns, which is fine: the process
 * ends.
 */
#include "rcu.h"

#include <stdbool.h>
#include <stdlib.h>

#ifdef FOLIO_TSAN
char rcu_grace_period_tag;
#endif

/* liburcu knows as well, but keeps it to itself where its read side is not inlined. */
static __thread bool is_registered;

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_key;

static void thread_ends(void *registered)
{
	is_registered = false;
	urcu_memb_unregister_thread();
}

static void make_key(void)
{
	/* Without a key no thread could be unregistered and the registry would dangle. */
	if (pthread_key_create(&thread_key, thread_ends))
		abort();
}

void rcu_register_thread(void)
{
	if (is_registered)
		return;
	pthread_once(&key_once, make_key);
	is_registered = true;
	urcu_memb_register_thread();
	/* Any value that is not NULL makes the destructor run. */
	if (pthread_setspecific(thread_key, &thread_key))
		abort();
}

void rcu_unregister_thread(void)
{
	if (!is_registered)
		return;
	is_registered = false;
	pthread_setspecific(thread_key, NULL);
	urcu_memb_unregister_thread();
}
