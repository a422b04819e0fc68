/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * See torture_common.h. The seed decides what the threads do, not how they meet.
 */
#include "torture_common.h"
#include "list.h"

#include <pthread.h>
#include <time.h>

#define READERS 2
#define WRITERS 2

static void (*do_read)(uint64_t *random), (*do_write)(uint64_t *random);
static bool stop;
static unsigned long looks, changes;

void *tortured_new(size_t size)
{
	struct tortured *object = calloc(1, size);

	if (!object)
		abort();
	object->parts = object->alive = 1;
	return object;
}

static void free_object(struct rcu_head *head)
{
	struct tortured *object = container_of(head, struct tortured, rcu);

	rcu_callback_begin(head);
	object->alive = 0;
	free(object);
}

void tortured_put(void *p, struct tortured **unlinked)
{
	struct tortured *object = p;

	if (--object->parts)
		return;
	object->next_unlinked = *unlinked;
	*unlinked = object;
}

void tortured_free(struct tortured *unlinked)
{
	while (unlinked) {
		struct tortured *next = unlinked->next_unlinked;

		call_rcu(&unlinked->rcu, free_object);
		unlinked = next;
	}
}

static void *work(void (*step)(uint64_t *), uint64_t random, unsigned long *sum)
{
	unsigned long n = 0;

	rcu_register_thread();
	for (; !__atomic_load_n(&stop, __ATOMIC_RELAXED); n++)
		step(&random);
	__atomic_fetch_add(sum, n, __ATOMIC_RELAXED);
	return NULL;
}

static void *reader(void *seed)
{
	return work(do_read, (uintptr_t)seed, &looks);
}

static void *writer(void *seed)
{
	return work(do_write, (uintptr_t)seed, &changes);
}

void torture(void (*read)(uint64_t *random), void (*write)(uint64_t *random), uint64_t seed,
	     unsigned long ms)
{
	struct timespec duration = { ms / 1000, ms % 1000 * 1000000 };
	pthread_t threads[READERS + WRITERS];

	do_read = read;
	do_write = write;
	stop = false;
	for (unsigned int i = 0; i < READERS + WRITERS; i++) {
		void *own = (void *)(uintptr_t)test_random(&seed);

		check(!pthread_create(&threads[i], NULL, i < READERS ? reader : writer, own), i);
	}
	nanosleep(&duration, NULL);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (unsigned int i = 0; i < READERS + WRITERS; i++)
		pthread_join(threads[i], NULL);
}

unsigned long torture_ms(unsigned long otherwise)
{
	unsigned long seconds = test_setting("FOLIOFS_SECONDS", 0);

	return seconds ? seconds * 1000 : otherwise;
}

int torture_result(void)
{
	printf("%lu rounds of reading, %lu changes\n", looks, changes);
	return looks && changes ? 0 : 1;
}
