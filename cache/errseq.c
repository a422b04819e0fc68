/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The error sequence of a mapping: each open file learns of each failed write once.
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
 * mapping_set_error() - Record a failed write.
 * @error: negative errno
 */
void mapping_set_error(struct mapping *mapping, int error)
{
	errseq_t old = __atomic_load_n(&mapping->wb_err, __ATOMIC_ACQUIRE), new;

	do {
		new = (old & ~(ERRNO_MASK | SEEN)) | ((unsigned int)-error & ERRNO_MASK);
		if (old & SEEN)
			new += COUNT_ONE;
	} while (new != old && !__atomic_compare_exchange_n(&mapping->wb_err, &old, new, false,
							    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
}

/** filemap_sample_wb_err() - What an open file remembers. Return: 0 if there is news for it. */
errseq_t filemap_sample_wb_err(struct mapping *mapping)
{
	errseq_t now = __atomic_load_n(&mapping->wb_err, __ATOMIC_ACQUIRE);

	return now & SEEN ? now : 0;
}

/**
 * filemap_check_wb_err() - Was there an error since?
 * @since: the sample; becomes the present value. Its file's fsyncs do not run at once.
 *
 * Return: 0 or the negative errno.
 */
int filemap_check_wb_err(struct mapping *mapping, errseq_t *since)
{
	errseq_t now = __atomic_load_n(&mapping->wb_err, __ATOMIC_ACQUIRE);

	if (now == *since)
		return 0;
	while (!(now & SEEN) &&
	       !__atomic_compare_exchange_n(&mapping->wb_err, &now, now | SEEN, false,
					    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		;
	*since = now | SEEN;
	return -(int)(now & ERRNO_MASK);
}
