/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What all formats share: who is told of a write that failed.
 *
 * A folio that could not be written is an error of its file's mapping; it stays dirty, and is tried
 * again. A flush of the image that failed is an error of the volume: nobody knows whose data, written
 * to the image before, was lost in a cache on the way. So whoever has a file of it open is told, each
 * open file once, as of an error of its own.
 */
#include "volume.h"

/**
 * volume_flush() - make durable what was written to the image
 *
 * Context: may sleep.
 * Return: 0 or an error, which all open files hear of as well.
 */
int volume_flush(struct volume *volume)
{
	int err = image_flush(volume->image);

	if (err)
		errseq_set(&volume->flush_err, err);
	return err;
}

/** volume_open_errors() - an open file is to hear of what fails from here on */
void volume_open_errors(struct vnode *node, struct open_errors *told)
{
	told->data = filemap_sample_wb_err(&node->mapping);
	told->flush = errseq_sample(&node->volume->flush_err);
}

/**
 * volume_fsync() - make a file durable, on behalf of one open file
 * @told: what it has heard of. Fsyncs of one open file do not run at once
 *
 * Context: no lock held. May sleep.
 * Return: 0; what has failed since it was asked last; or why it cannot be done now.
 */
int volume_fsync(struct vnode *node, bool datasync, struct open_errors *told)
{
	const struct volume_ops *ops = node->volume->ops;
	int err = ops->fsync ? ops->fsync(node, datasync) : 0;
	int data = filemap_check_wb_err(&node->mapping, &told->data);
	int flush = errseq_check(&node->volume->flush_err, &told->flush);

	return data ?: flush ?: err;
}
