/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Compares what foliofs makes of a dirty journal with what e2fsck makes of it, on a copy.
 *
 * Compared is every block outside the journal's own. Of the superblock these fields are not: those
 * that tell of mounts and writes (s_mtime, s_wtime, s_mnt_count, s_last_mounted, s_kbytes_written),
 * which each of the two sets when it writes the superblock; and s_checksum, which follows from
 * them.
 */
#ifndef REPLAY_ORACLE_H
#define REPLAY_ORACLE_H

#include "ext4_fixture.h"

/* What became of a journal. Refused: it is not to be believed, the file system needs e2fsck. */
enum verdict { VERDICT_REPLAYED, VERDICT_REFUSED };

/**
 * struct oracle - e2fsck's result
 * @path: the copy that it has worked on
 * @verdict: what it says of the journal
 * @strays: replayed, but outside the file system or over the journal itself: e2fsck does so, we
 *	refuse
 * @said: its output
 */
struct oracle {
	char path[80];
	int fd;
	enum verdict verdict;
	bool strays;
	char said[2048];
};

/* Copies the image of a closed fixture and has e2fsck replay the journal of the copy. */
void oracle_ask(struct oracle *oracle, struct fixture *f);
void oracle_drop(struct oracle *oracle);

/*
 * Opens the fixture read-only, and compares what is seen with the oracle's copy; asserts that
 * nothing was written. Then opens it read-write, closes it, and compares the image. Returns how
 * many blocks differ, 0 as it should be, after saying which; -1 when the verdicts do.
 */
int oracle_compare(struct oracle *oracle, struct fixture *f);

#endif
