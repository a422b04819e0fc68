/* SPDX-License-Identifier: GPL-2.0-or-later */
/* See replay_oracle.h. */
#include <criterion/criterion.h>
#include <endian.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "ext4/jbd2.h"
#include "replay_oracle.h"

/* e2fsck's words for a journal that it does not believe; its status does not tell. */
static const char *const refusals[] = {
	"replay was aborted", "checksum error", "Journal corrupted", "is corrupt", "unknown",
	"not supported", "has been deleted", "while recovering", "UNEXPECTED",
};

static bool says_no(const char *said)
{
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		if (strstr(said, refusals[i]))
			return true;
	}
	return false;
}

static void read_said(struct oracle *oracle)
{
	char path[100];
	FILE *file;
	size_t len;

	snprintf(path, sizeof(path), "%s.log", oracle->path);
	file = fopen(path, "r");
	cr_assert(file);
	len = fread(oracle->said, 1, sizeof(oracle->said) - 1, file);
	oracle->said[len] = '\0';
	fclose(file);
	unlink(path);
}

/* The blocks of a file system that are its journal's, one byte each */
struct own {
	unsigned int blocksize;
	uint64_t blocks, journal;	/* journal: its first block */
	char *is_journal;
};

static int mark(ext2_filsys fs, blk64_t *blk, e2_blkcnt_t lblk, blk64_t ref, int offset, void *arg)
{
	struct own *own = arg;

	if (lblk == 0)
		own->journal = *blk;
	if (*blk < own->blocks)
		own->is_journal[*blk] = 1;
	return 0;
}

static void find_own(struct own *own, const char *path)
{
	ext2_filsys fs;

	cr_assert_eq(ext2fs_open(path, EXT2_FLAG_64BITS | EXT2_FLAG_IGNORE_CSUM_ERRORS, 0, 0,
				 unix_io_manager, &fs), 0);
	own->blocksize = fs->blocksize;
	own->blocks = ext2fs_blocks_count(fs->super);
	own->is_journal = calloc(own->blocks, 1);
	cr_assert_eq(ext2fs_block_iterate3(fs, EXT2_JOURNAL_INO, BLOCK_FLAG_READ_ONLY, NULL, mark,
					   own), 0);
	ext2fs_free(fs);
}

/* True when the copy has grown, or its journal has changed behind the superblock. */
static bool has_strays(struct oracle *oracle, struct fixture *f)
{
	struct own own;
	char a[4096], b[4096];
	struct stat st, copy;
	bool found = false;

	cr_assert(!fstat(f->fd, &st) && !fstat(oracle->fd, &copy));
	find_own(&own, f->path);
	for (uint64_t blk = 0; blk < own.blocks && !found; blk++) {
		if (!own.is_journal[blk] || blk == own.journal)
			continue;
		pread(f->fd, a, own.blocksize, blk * own.blocksize);
		pread(oracle->fd, b, own.blocksize, blk * own.blocksize);
		found = memcmp(a, b, own.blocksize);
	}
	free(own.is_journal);
	return found || copy.st_size > st.st_size;
}

/* In memory if that can be: e2fsck flushes. */
static void choose_path(struct oracle *oracle)
{
	int fd;

	snprintf(oracle->path, sizeof(oracle->path), "%s/foliofs-oracle-XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	fd = mkstemp(oracle->path);
	cr_assert(fd >= 0);
	close(fd);
}

void oracle_ask(struct oracle *oracle, struct fixture *f)
{
	char command[600];
	int status;

	choose_path(oracle);
	snprintf(command, sizeof(command),
		 "PATH=$PATH:/usr/sbin:/sbin; cp --sparse=always %s %s && "
		 "timeout 20 e2fsck -p -E journal_only %s >%s.log 2>&1", f->path, oracle->path,
		 oracle->path, oracle->path);
	status = system(command);
	status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	read_said(oracle);
	oracle->fd = open(oracle->path, O_RDONLY);
	cr_assert(oracle->fd >= 0);
	oracle->verdict = VERDICT_REPLAYED;
	if (status > 1 || status < 0 || says_no(oracle->said))
		oracle->verdict = VERDICT_REFUSED;
	oracle->strays = oracle->verdict == VERDICT_REPLAYED && has_strays(oracle, f);
}

void oracle_drop(struct oracle *oracle)
{
	close(oracle->fd);
	unlink(oracle->path);
}

static void mask_super(struct ext2_super_block *sb, bool view)
{
	sb->s_mtime = sb->s_wtime = 0;
	sb->s_mtime_hi = sb->s_wtime_hi = 0;
	sb->s_mnt_count = 0;
	sb->s_kbytes_written = 0;
	sb->s_checksum = 0;
	memset(sb->s_last_mounted, 0, sizeof(sb->s_last_mounted));
	/* What a read-only mount sees is the blocks of the log, without what they lead to. */
	if (view) {
		ext2fs_clear_feature_journal_needs_recovery(sb);
		sb->s_state &= ~EXT2_ERROR_FS;
	}
}

/* What a mount shows, or the file itself when @image is NULL */
static int differing(struct oracle *oracle, struct fixture *f, struct image *image)
{
	_Alignas(4096) char ours[4096], theirs[4096];
	struct own own;
	int nr = 0;

	find_own(&own, oracle->path);
	for (uint64_t blk = 0; blk < own.blocks; blk++) {
		uint64_t pos = blk * own.blocksize;

		if (own.is_journal[blk])
			continue;
		if (image)
			cr_assert_eq(image_transfer(image, pos, ours, own.blocksize, false), 0);
		else
			cr_assert_eq(pread(f->fd, ours, own.blocksize, pos), own.blocksize);
		cr_assert_eq(pread(oracle->fd, theirs, own.blocksize, pos), own.blocksize);
		if (blk == SUPERBLOCK_OFFSET / own.blocksize) {
			mask_super((void *)(ours + SUPERBLOCK_OFFSET % own.blocksize), image);
			mask_super((void *)(theirs + SUPERBLOCK_OFFSET % own.blocksize), image);
		}
		if (memcmp(ours, theirs, own.blocksize) && !nr++)
			fprintf(stderr, "block %llu differs\n", (unsigned long long)blk);
	}
	free(own.is_journal);
	return nr;
}

/* Both must be empty, and go on with the same transaction. */
static int differing_journal(struct oracle *oracle, struct fixture *f)
{
	struct jbd2_super ours, theirs;
	struct own own;

	find_own(&own, oracle->path);
	pread(f->fd, &ours, sizeof(ours), own.journal * own.blocksize);
	pread(oracle->fd, &theirs, sizeof(theirs), own.journal * own.blocksize);
	free(own.is_journal);
	if (!ours.s_start && ours.s_sequence == theirs.s_sequence)
		return 0;
	fprintf(stderr, "journal: start %u, sequence %u instead of %u\n", be32toh(ours.s_start),
		be32toh(ours.s_sequence), be32toh(theirs.s_sequence));
	return 1;
}

static bool needs_recovery(struct fixture *f)
{
	struct ext2_super_block sb;

	cr_assert_eq(pread(f->fd, &sb, sizeof(sb), SUPERBLOCK_OFFSET), (ssize_t)sizeof(sb));
	return ext2fs_has_feature_journal_needs_recovery(&sb);
}

int oracle_compare(struct oracle *oracle, struct fixture *f)
{
	enum verdict verdict;
	int nr = 0;

	f->options.ro = true;
	f->writes = 0;
	if (!fixture_open(f)) {
		if (oracle->verdict == VERDICT_REPLAYED)
			nr += differing(oracle, f, f->volume->image);
		cr_assert_eq(fixture_close(f), 0);
	}
	cr_assert_eq(f->writes, 0, "a read-only mount has written");
	f->options.ro = false;
	/* What was replayed may be no file system that can be mounted: that does not count here. */
	if (!fixture_open(f))
		cr_assert_eq(fixture_close(f), 0);
	verdict = needs_recovery(f) ? VERDICT_REFUSED : VERDICT_REPLAYED;
	if (verdict != oracle->verdict)
		return -1;
	if (verdict == VERDICT_REPLAYED)
		nr += differing(oracle, f, NULL) + differing_journal(oracle, f);
	return nr;
}
