/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Registration of threads with RCU.
 *
 * liburcu wants each thread registered once and unregistered before it ends. Here registration may
 * be repeated, and a thread-specific key's destructor undoes it at the thread's end, so nobody has
 * to remember. The initial thread never gets there when main() returns, which is fine: the process ends.
 */
#include "rcu.h"

#include <stdlib.h>

#ifdef FOLIO_TSAN
char rcu_grace_period_tag;
#endif

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_key;

static void thread_ends(void *registered)
{
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
	if (URCU_TLS(urcu_memb_reader).registered)
		return;
	pthread_once(&key_once, make_key);
	urcu_memb_register_thread();
	/* Any value that is not NULL makes the destructor run. */
	if (pthread_setspecific(thread_key, &thread_key))
		abort();
}

void rcu_unregister_thread(void)
{
	if (!URCU_TLS(urcu_memb_reader).registered)
		return;
	pthread_setspecific(thread_key, NULL);
	urcu_memb_unregister_thread();
}
