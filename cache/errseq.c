/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An error sequence, as a mapping's: each open file learns of each failed write once.
 *
 *	bits 0-11	the latest errno
 *	bit 12		SEEN: somebody has been told of it
 *	bits 13-31	counter, one up for each error that follows one which was seen
 *
 * An open file remembers the value at its open. When it asks at fsync and the value is another one,
 * there was an error since; it gets the errno and remembers the new value. Without the counter the
 * same errno twice could not be told from once; it need only move when somebody looked between.
 * An error that nobody has seen when a file is opened is told to that one: it samples 0.
 */
#include "internal.h"

#define ERRNO_MASK ((1U << 12) - 1)
#define SEEN (1U << 12)
#define COUNT_ONE (1U << 13)

/**
 * errseq_set() - Record a failure.
 * @error: negative errno
 */
void errseq_set(errseq_t *seq, int error)
{
	errseq_t old = __atomic_load_n(seq, __ATOMIC_ACQUIRE), new;

	do {
		new = (old & ~(ERRNO_MASK | SEEN)) | ((unsigned int)-error & ERRNO_MASK);
		if (old & SEEN)
			new += COUNT_ONE;
	} while (new != old && !__atomic_compare_exchange_n(seq, &old, new, false,
							    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
}

/** errseq_sample() - What an open file remembers. Return: 0 if there is news for it. */
errseq_t errseq_sample(errseq_t *seq)
{
	errseq_t now = __atomic_load_n(seq, __ATOMIC_ACQUIRE);

	return now & SEEN ? now : 0;
}

/**
 * errseq_check() - Was there an error since?
 * @since: the sample; becomes the present value. Its file's fsyncs do not run at once.
 *
 * Return: 0 or the negative errno.
 */
int errseq_check(errseq_t *seq, errseq_t *since)
{
	errseq_t now = __atomic_load_n(seq, __ATOMIC_ACQUIRE);

	if (now == *since)
		return 0;
	while (!(now & SEEN) &&
	       !__atomic_compare_exchange_n(seq, &now, now | SEEN, false,
					    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		;
	*since = now | SEEN;
	return -(int)(now & ERRNO_MASK);
}
