/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Damaged logs: a few bytes of a journal are changed at random, e2fsck replays it on a copy, we do
 * on the image. No crash, no hang, no sanitizer's complaint; the verdict has to be e2fsck's, and so
 * has every block outside the journal. Arguments: how many rounds for each kind of journal, and a
 * seed; with a seed, what is said is shown. On a failure the seed of that round is
 * printed.
 *
 * The verdicts may differ where foliofs is with the kernel and not with e2fsck:
 *	- a log that writes outside the file system or over the journal itself is refused;
 *	- numbers in the journal's superblock that make no sense are refused, too;
 *	- a commit block may be torn behind its header.
 */
#include <endian.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "journal_maker.h"
#include "replay_oracle.h"

#define BYTES (4UL << 20)
#define BLOCK 1024
#define FREE 3000		/* free blocks from here on */
#define START 1015		/* of the log: it goes round the end of the ring */
#define SECONDS 60		/* for one round */
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

struct kind {
	uint32_t incompat, compat;
};

static const struct kind kinds[] = {
	{ 0, 0 },
	{ JBD2_INCOMPAT_ASYNC_COMMIT, JBD2_COMPAT_CHECKSUM },
	{ JBD2_INCOMPAT_CSUM_V2 | JBD2_INCOMPAT_64BIT, 0 },
	{ JBD2_INCOMPAT_CSUM_V3 | JBD2_INCOMPAT_ASYNC_COMMIT, 0 },
};

static uint64_t state, round_seed;
static unsigned int round_kind;

static uint32_t random_below(uint32_t limit)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (state >> 33) % limit;
}

static void tell_seed(int sig)
{
	char line[100];
	int len = snprintf(line, sizeof(line), "journal_damage: signal %d, kind %u, seed %llu\n",
			   sig, round_kind, (unsigned long long)round_seed);

	if (write(STDERR_FILENO, line, len) < 0)
		_exit(2);
	_exit(1);
}

/* Several transactions with all that a log can have */
static void write_log(struct maker *m)
{
	char data[BLOCK] = { 0 };
	jbd2_be32 magic = htobe32(JBD2_MAGIC);

	memcpy(data, &magic, sizeof(magic));
	for (unsigned int t = 0; t < 5; t++) {
		for (unsigned int i = 0; i < 4; i++)
			maker_fill(m, FREE + t * 3 + i, t);
		maker_block(m, FREE + 100 + t, data);
		if (t)
			maker_revoke(m, FREE + t * 3 - 2);
		maker_commit(m);
	}
}

/* Where the log is in use, and a little more */
static uint32_t any_block(struct maker *m)
{
	uint32_t used = m->pos + m->last - START - 1, at = START + random_below(used + 2);

	return at < m->last ? at : at - m->last + be32toh(m->super.s_first);
}

static bool is_commit(const unsigned char *block)
{
	struct jbd2_header header;

	memcpy(&header, block, sizeof(header));
	return be32toh(header.h_magic) == JBD2_MAGIC &&
	       be32toh(header.h_blocktype) == JBD2_COMMIT;
}

static void damage(struct maker *m, uint32_t lblk)
{
	static const unsigned char values[] = { 0, 1, 0x7f, 0x80, 0xff };
	unsigned char block[BLOCK];
	unsigned int at;

	maker_read(m, lblk, block);
	at = random_below(10) < 7 ? random_below(64) : random_below(BLOCK);
	if (is_commit(block))
		at %= sizeof(struct jbd2_commit) - 4;
	if (random_below(2))
		block[at] ^= 1 << random_below(8);
	else
		block[at] = values[random_below(sizeof(values))];
	maker_write(m, lblk, block);
}

/* Returns whether the journal's superblock was hit. */
static bool damage_some(struct maker *m)
{
	bool super = false;

	for (unsigned int n = 1 + random_below(3); n; n--) {
		uint32_t lblk = random_below(8) ? any_block(m) : 0;

		super |= !lblk;
		damage(m, lblk);
	}
	return super;
}

static void one_round(struct maker *m, struct fixture *f, const char *image)
{
	struct oracle oracle;
	bool super, right;
	int differ;

	alarm(SECONDS);
	if (pwrite(f->fd, image, BYTES, 0) != (ssize_t)BYTES)
		abort();
	super = damage_some(m);
	oracle_ask(&oracle, f);
	differ = oracle_compare(&oracle, f);
	right = differ == 0;
	if (differ < 0 && oracle.verdict == VERDICT_REPLAYED)
		right = oracle.strays || super;
	oracle_drop(&oracle);
	alarm(0);
	if (right)
		return;
	fprintf(stderr, "journal_damage: kind %u, seed %llu: %s; e2fsck: %s\n", round_kind,
		(unsigned long long)round_seed, differ < 0 ? "another verdict" : "blocks differ",
		oracle.said);
	fixture_drop(f);
	exit(1);
}

static void damage_kind(const struct kind *kind, unsigned int rounds, uint64_t seed)
{
	char *image = malloc(BYTES);
	struct fixture f;
	struct maker m;

	fixture_format(&f, BYTES, "-b 1024 -J size=1 -N 64");
	f.cache_bytes = 1 << 20;
	maker_open(&m, &f, kind->incompat, kind->compat, START, 7);
	write_log(&m);
	maker_close(&m);
	if (!image || pread(f.fd, image, BYTES, 0) != (ssize_t)BYTES)
		abort();
	for (unsigned int i = 0; i < rounds; i++) {
		round_seed = state = seed + i;
		one_round(&m, &f, image);
	}
	maker_free(&m);
	fixture_drop(&f);
	free(image);
}

int main(int argc, char **argv)
{
	unsigned int rounds = argc > 1 ? atoi(argv[1]) : 20;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;

	if (argc <= 2 && !freopen("/dev/null", "w", stdout))
		return 2;
	signal(SIGALRM, tell_seed);
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		round_kind = i;
		damage_kind(&kinds[i], rounds, seed);
	}
	return 0;
}
