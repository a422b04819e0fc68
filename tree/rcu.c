/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Registration of threads with RCU.
 *
 * liburcu wants each thread registered once and unregistered before it ends. Here registration may
 * be repeated, and a thread-specific key's destructor undoes it at the thread's end, so nobody has
 * to remember. The initial thread never gets there when main() returns, which is fine: the process
 * ends.
 */
#define FOLIO_RCU_IMPLEMENTATION
#include "rcu.h"

#include <semaphore.h>
#include <stdlib.h>

#ifdef FOLIO_TSAN
char rcu_grace_period_tag;

bool rcu_thread_registered(void)
{
	return URCU_TLS(urcu_memb_reader).registered;
}

struct barrier {
	struct rcu_head rcu;
	sem_t reached;
};

static void barrier_reached(struct rcu_head *head)
{
	rcu_callback_begin(head);
	sem_post(&((struct barrier *)head)->reached);
}

/*
 * liburcu's own has allocations that look like races to ThreadSanitizer. Its callbacks run in one
 * thread, in order, as long as nobody asks for more threads, so a callback of ours will do.
 */
void rcu_barrier(void)
{
	struct barrier barrier;

	sem_init(&barrier.reached, 0, 0);
	call_rcu(&barrier.rcu, barrier_reached);
	while (sem_wait(&barrier.reached))
		;
	sem_destroy(&barrier.reached);
}
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
	if (rcu_thread_registered())
		return;
	pthread_once(&key_once, make_key);
	urcu_memb_register_thread();
	/* Any value that is not NULL makes the destructor run. */
	if (pthread_setspecific(thread_key, &thread_key))
		abort();
}

void rcu_unregister_thread(void)
{
	if (!rcu_thread_registered())
		return;
	pthread_setspecific(thread_key, NULL);
	urcu_memb_unregister_thread();
}
