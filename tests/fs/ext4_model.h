/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A regular file of an ext4 fixture beside a plain array that says what must be in it.
 */
#ifndef EXT4_MODEL_H
#define EXT4_MODEL_H

#include "ext4_fixture.h"

struct model {
	struct fixture *f;
	struct vnode *node;
	const char *path;
	unsigned char *data;		/* limit bytes; all behind size are zero */
	loff_t size, limit;
	uint64_t seed, state;		/* as it began, as it is */
	unsigned int step;
	bool calm;			/* few remounts */
	bool shared;			/* others use the volume meanwhile: it stays mounted */
};

/* Creates @path, empty. @seed 0: the environment's FOLIOFS_SEED, or a new one. */
void model_init(struct model *m, struct fixture *f, const char *path, loff_t limit, uint64_t seed);
void model_finish(struct model *m);
/* A number below @below. */
uint64_t model_random(struct model *m, uint64_t below);
/* One random operation on both. */
void model_step(struct model *m);
/* The whole file against the array. */
void model_check(struct model *m);
/* Closes the volume, checks the image, opens it again. */
void model_remount(struct model *m);

void model_write(struct model *m, loff_t pos, size_t len);
void model_truncate(struct model *m, loff_t size);
void model_fallocate(struct model *m, int mode, loff_t pos, loff_t len);

#endif
