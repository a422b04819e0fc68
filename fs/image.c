/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What all kinds of image share. The kinds are in files of their own (image_file.c); each fills
 * struct image and its ops, and frees itself and the name in ops->close.
 */
#include <stddef.h>
#include "image.h"

void (*image_about_to_wait)(void);

/**
 * image_close() - release the lock and close
 * @image: may be NULL
 *
 * Context: nobody uses the image any more. May sleep.
 */
void image_close(struct image *image)
{
	if (image)
		image->ops->close(image);
}
