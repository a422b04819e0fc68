/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See ext4_model.h. A failure prints the seed: run again with FOLIOFS_SEED=that. */
#include <criterion/criterion.h>
#include <errno.h>
#include <linux/falloc.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "ext4_model.h"

#define must(m, cond, fmt, ...)                                                                    \
	cr_assert(cond, "seed %llu step %u: " fmt, (unsigned long long)(m)->seed, (m)->step,       \
		  ##__VA_ARGS__)

/* splitmix64 */
static uint64_t next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

uint64_t model_random(struct model *m, uint64_t below)
{
	return next(&m->state) % below;
}

void model_init(struct model *m, struct fixture *f, const char *path, loff_t limit, uint64_t seed)
{
	const char *env = getenv("FOLIOFS_SEED");
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	*m = (struct model){ .f = f, .path = path, .limit = limit };
	m->seed = env ? strtoull(env, NULL, 0) : (uint64_t)now.tv_nsec * 31 + now.tv_sec;
	if (seed)
		m->seed = seed;
	m->state = m->seed;
	m->data = calloc(1, limit);
	m->node = fixture_create(f, path, 0644);
}

void model_finish(struct model *m)
{
	model_check(m);
	fixture_put(m->f, m->node);
	free(m->data);
}

/* How much of [pos, pos + len) lies before the end. */
static ssize_t bytes_at(const struct model *m, loff_t pos, size_t len)
{
	if (pos >= m->size)
		return 0;
	return m->size - pos < (loff_t)len ? m->size - pos : (loff_t)len;
}

static void check_range(struct model *m, loff_t pos, size_t len)
{
	unsigned char *buf = malloc(len);
	ssize_t want = bytes_at(m, pos, len);
	ssize_t got = filemap_read(&m->node->mapping, pos, buf, len);

	must(m, got == want, "read of %zu at %lld: %zd instead of %zd", len, (long long)pos, got,
	     want);
	for (ssize_t i = 0; i < got; i++) {
		if (buf[i] != m->data[pos + i])
			must(m, false, "byte %lld of %lld is %02x instead of %02x",
			     (long long)pos + i, (long long)m->size, buf[i], m->data[pos + i]);
	}
	free(buf);
}

void model_check(struct model *m)
{
	struct stat st;

	must(m, !ext4_getattr(m->node, &st) && st.st_size == m->size, "size %lld instead of %lld",
	     (long long)st.st_size, (long long)m->size);
	check_range(m, 0, m->limit);
}

void model_remount(struct model *m)
{
	fixture_put(m->f, m->node);
	must(m, !fixture_close(m->f), "close");
	must(m, !fixture_fsck(m->f), "e2fsck");
	must(m, !fixture_open(m->f), "open");
	m->node = fixture_find(m->f, m->path);
}

void model_write(struct model *m, loff_t pos, size_t len)
{
	unsigned char *buf = malloc(len);
	ssize_t done;

	for (size_t i = 0; i < len; i++)
		buf[i] = 1 + next(&m->state) % 255;
	done = ext4_write(m->node, pos, buf, len, 0);
	must(m, done == (ssize_t)len, "write of %zu at %lld: %zd", len, (long long)pos, done);
	memcpy(m->data + pos, buf, len);
	if (pos + (loff_t)len > m->size)
		m->size = pos + len;
	free(buf);
}

void model_truncate(struct model *m, loff_t size)
{
	struct stat st = { .st_size = size };
	int err = ext4_setattr(m->node, &st, VATTR_SIZE, &fixture_root);

	must(m, !err, "truncate to %lld: %d", (long long)size, err);
	if (size < m->size)
		memset(m->data + size, 0, m->size - size);
	m->size = size;
}

void model_fallocate(struct model *m, int mode, loff_t pos, loff_t len)
{
	int err = ext4_fallocate(m->node, mode, pos, len);
	loff_t end = pos + len;

	if (err == -EOPNOTSUPP && !(mode & FALLOC_FL_PUNCH_HOLE) &&
	    !(EXT4_I(m->node)->raw.i_flags & EXT4_EXTENTS_FL))
		return;
	must(m, !err, "fallocate %d of %lld at %lld: %d", mode, (long long)len, (long long)pos,
	     err);
	if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		memset(m->data + pos, 0, len);
	if (!(mode & FALLOC_FL_KEEP_SIZE) && end > m->size)
		m->size = end;
}

static void copy(struct model *m, loff_t from, loff_t to, size_t len)
{
	ssize_t want = bytes_at(m, from, len);
	ssize_t done;

	if (to < from + want && from < to + want)
		return;
	done = ext4_copy_range(m->node, from, m->node, to, len);
	must(m, done == want, "copy of %zu: %zd instead of %zd", len, done, want);
	memcpy(m->data + to, m->data + from, want);
	if (want && to + want > m->size)
		m->size = to + want;
}

/* Nothing but zeros is in a hole, and data is not passed over. */
static void seek(struct model *m, loff_t pos)
{
	loff_t data = ext4_seek(m->node, pos, VSEEK_DATA), end = data < 0 ? m->size : data;

	must(m, data >= pos || data == -ENXIO, "seek to data: %lld", (long long)data);
	for (loff_t i = pos; i < end; i++)
		must(m, !m->data[i], "data at %lld, found at %lld", (long long)i, (long long)data);
	data = ext4_seek(m->node, pos, VSEEK_HOLE);
	must(m, pos < m->size ? data >= pos && data <= m->size : data == -ENXIO,
	     "seek to a hole: %lld", (long long)data);
}

void model_step(struct model *m)
{
	static const int modes[] = {
		0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE,
		FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
	};
	loff_t pos = model_random(m, m->limit - 1);
	size_t len = 1 + model_random(m, model_random(m, 4) ? 6000 : 200000);
	uint64_t what = model_random(m, 32);

	m->step++;
	if (!model_random(m, 4))
		pos &= ~4095;
	if (!model_random(m, 4))
		len = (len + 1023) & ~1023;
	if ((loff_t)len > m->limit - pos)
		len = m->limit - pos;
	if (what < 12)
		model_write(m, pos, len);
	else if (what < 14)
		model_truncate(m, pos);
	else if (what < 22)
		model_fallocate(m, modes[model_random(m, 6)], pos, len);
	else if (what < 26)
		check_range(m, pos, len);
	else if (what < 28)
		seek(m, pos);
	else if (what < 30)
		copy(m, pos, model_random(m, m->limit - len + 1), len);
	else if (what < 31 || m->shared || (m->calm && model_random(m, 32)))
		must(m, !ext4_fsync(m->node, false), "fsync");
	else
		model_remount(m);
}
