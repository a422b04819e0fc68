/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A journal that was not emptied is replayed before anything that it may change is used.
 *
 * What the replay comes to is found first (journal_scan.c), and looked at through a view of the
 * image (journal_view.c): the superblock must be right, and every block lie in the file system that
 * it describes. Only then is anything written, or, by a mount that is read-only, nothing: it stays
 * on the view.
 *
 * The order of writing lets a crash come at any time: the blocks; flush; the journal marked empty;
 * flush; the superblock without needs_recovery; flush. Until the journal is empty the replay is
 * done once more, as a whole, with the same result. An error that the journal was aborted with is
 * in the superblock before it leaves the journal. What the superblock itself knew of errors was
 * written to it without the journal, so an older copy from the log does not overrule it.
 *
 * A log in a file system that does not need recovery is of no use to anybody, but e2fsck might
 * replay it: a read-write mount empties it, as the kernel does.
 *
 * No locks: the mounting thread is alone.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "ext4.h"
#include "journal.h"
#include "log.h"

/* Writes the superblock with the whole of its block. */
static int write_super(struct ext4_volume *vol, struct ext2_super_block *sb)
{
	size_t blocksize = vol->vol.blocksize, offset = SUPERBLOCK_OFFSET % blocksize;
	uint64_t pos = SUPERBLOCK_OFFSET - offset;
	char *block;
	int err;

	if (posix_memalign((void **)&block, PAGE_SIZE, blocksize))
		return -ENOMEM;
	err = image_transfer(vol->vol.image, pos, block, blocksize, false);
	if (!err) {
		if (ext2fs_has_feature_metadata_csum(sb))
			sb->s_checksum = ext2fs_crc32c_le(
				~0U, (unsigned char *)sb,
				offsetof(struct ext2_super_block, s_checksum));
		memcpy(block + offset, sb, SUPERBLOCK_SIZE);
		err = image_transfer(vol->vol.image, pos, block, blocksize, true);
	}
	free(block);
	return err;
}

/* Brings what was known of errors into a superblock that comes from the journal. */
static void keep_errors(struct ext2_super_block *sb, const struct ext2_super_block *old,
			const struct journal *journal)
{
	size_t start = offsetof(struct ext2_super_block, s_error_count);
	size_t end = offsetof(struct ext2_super_block, s_mount_opts);

	sb->s_state |= old->s_state & EXT2_ERROR_FS;
	if (journal->super.s_errno)
		sb->s_state |= EXT2_ERROR_FS;
	memcpy((char *)sb + start, (const char *)old + start, end - start);
}

/* Marks the journal empty; the next transaction will have the number @sequence. */
static int empty_journal(struct journal *journal, uint32_t sequence)
{
	journal->super.s_start = 0;
	journal->super.s_sequence = htobe32(sequence);
	journal->super.s_errno = 0;
	return journal_write_super(journal);
}

/* Makes the image what it is to be. Without a @view there was nothing to replay. */
static int write_out(struct ext4_volume *vol, struct journal *journal, struct image *view,
		     uint32_t sequence, struct ext2_super_block *sb)
{
	struct image *image = vol->vol.image;
	int err = view ? journal_view_apply(view) : 0;

	keep_errors(sb, vol->fs->super, journal);
	if (!err)
		err = write_super(vol, sb);
	if (!err)
		err = image_flush(image);
	if (!err)
		err = empty_journal(journal, sequence);
	if (!err)
		err = image_flush(image);
	ext2fs_clear_feature_journal_needs_recovery(sb);
	if (!err)
		err = write_super(vol, sb);
	if (!err)
		err = image_flush(image);
	if (err)
		log_error("%s: the journal could not be replayed: %s", image->name, strerror(-err));
	return err;
}

/* Reads the superblock as it will be, and checks what the journal wants to change. */
static int look_ahead(struct ext4_volume *vol, const struct journal *journal,
		      const struct replay *replay, struct image *view, struct ext2_super_block *sb)
{
	bool readonly = !vol->writable;
	int err = probe_read_super(view, sb);

	if (!err)
		err = probe_super(view, sb, &readonly);
	if (err)
		return err;
	if (EXT2_BLOCK_SIZE(sb) != vol->vol.blocksize)
		return journal_damaged(journal, "it changes the block size");
	if (!replay_is_sane(replay, journal, ext2fs_blocks_count(sb)))
		return journal_damaged(journal, "block number");
	vol->vol.readonly = readonly;
	vol->writable = !readonly;
	return 0;
}

/* Replays the log. Takes over replay->blocks. */
static int use_replay(struct ext4_volume *vol, struct journal *journal,
		      const struct replay *replay, struct ext2_super_block *sb)
{
	struct image *image = vol->vol.image, *view;
	int err;

	view = journal_view_create(image, replay, vol->vol.blocksize);
	if (!view) {
		free(replay->blocks);
		return -ENOMEM;
	}
	err = look_ahead(vol, journal, replay, view, sb);
	if (!err && !vol->writable) {
		vol->vol.image = vol->view = view;
		log_info("%s: the journal is dirty: replayed in memory, not on the image",
			 image->name);
		return 0;
	}
	if (!err)
		err = write_out(vol, journal, view, replay->sequence, sb);
	if (!err)
		log_info("%s: the journal has been replayed", image->name);
	image_close(view);
	return err;
}

static int recover(struct ext4_volume *vol, struct journal *journal, struct ext2_super_block *sb,
		   bool *changed)
{
	bool dirty = ext2fs_has_feature_journal_needs_recovery(sb), log = journal->super.s_start;
	struct replay replay = { .sequence = be32toh(journal->super.s_sequence) };
	int err = 0;

	if (log)
		err = journal_map(journal, vol->fs);
	if (!err && log)
		err = journal_scan(journal, &replay);
	if (err)
		return err;
	*changed = true;
	if (dirty && log && !replay.fast_commits)
		return use_replay(vol, journal, &replay, sb);
	free(replay.blocks);
	if (dirty && log)
		return fast_commit_replay(vol, sb);
	if (vol->writable && (dirty || log || journal->super.s_errno))
		return write_out(vol, journal, NULL, replay.sequence, sb);
	*changed = false;
	return 0;
}

/* False when the journal is not to be looked at, with *err when that cannot be. */
static bool journal_counts(struct ext4_volume *vol, struct ext2_super_block *sb, int *err)
{
	bool dirty = ext2fs_has_feature_journal_needs_recovery(sb);
	const char *name = vol->vol.image->name;

	if (!ext2fs_has_feature_journal(sb) || (!dirty && !vol->writable))
		return false;
	if (vol->vol.options->norecovery) {
		log_warn("%s: the journal is dirty and not replayed: files may be out of date",
			 name);
		return false;
	}
	if (!sb->s_journal_inum) {
		log_error("%s: the journal is dirty, and on another device, which foliofs does not "
			  "use; run: e2fsck -p -E journal_only %s", name,
			  vol->vol.options->image);
		*err = -EOPNOTSUPP;
		return false;
	}
	return true;
}

/**
 * recover_journal - replay a dirty journal
 * @vol: volume; its fs has been opened, and nothing of it is used yet
 * @sb: its superblock; as it is after the replay when *changed
 * @changed: set when all that was read of the image may be old
 *
 * The mount may turn read-only, and vol->vol.image may be another one, that shows the image
 * replayed.
 *
 * Return: 0, or a negative errno; -ENOMEM without a line.
 */
int recover_journal(struct ext4_volume *vol, struct ext2_super_block *sb, bool *changed)
{
	struct journal journal;
	int err = 0;

	if (!journal_counts(vol, sb, &err))
		return err;
	err = journal_open(&journal, vol->vol.image, vol->fs);
	if (!err && journal.super.s_errno && !vol->writable)
		log_warn("%s: the journal was aborted with an error (%s); e2fsck is recommended",
			 vol->vol.image->name, strerror(-(int32_t)be32toh(journal.super.s_errno)));
	if (!err)
		err = recover(vol, &journal, sb, changed);
	journal_close(&journal);
	return err;
}
