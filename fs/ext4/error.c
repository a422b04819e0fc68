/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Errors: libext2fs's codes as errno, and what happens when damage is met.
 *
 * Damage in one object (an inode, a directory block, an extent tree) makes that object's use fail
 * with EUCLEAN, is told in one line, and is noted in the superblock as ext4 does, so that e2fsck
 * looks at the image. errors= (or the superblock's own setting) decides what else happens. Lines
 * are limited in rate: a damaged image can meet the same damage on every request.
 *
 * A file's data that cannot be written is no damage by itself: it stays dirty, its file's fsync tells
 * of it, and it is tried again. When for some seconds no data could be written at all, the image has
 * failed, and that is treated as damage.
 *
 * Locks: the volume lock guards the superblock and the limiter.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "ext4.h"
#include "log.h"

#define LINES_MAX 10		/* in one WINDOW */
#define WINDOW 5		/* seconds */
#define FAILING 3		/* seconds */
#define TOLD -1			/* failing_since: and it was told */

static const struct {
	errcode_t err;
	int errnum;
} errors[] = {
	{ EXT2_ET_NO_MEMORY, ENOMEM },
	{ EXT2_ET_BLOCK_ALLOC_FAIL, ENOSPC },
	{ EXT2_ET_INODE_ALLOC_FAIL, ENOSPC },
	{ EXT2_ET_DIR_NO_SPACE, ENOSPC },
	{ EXT2_ET_EXTENT_NO_SPACE, ENOSPC },
	{ EXT2_ET_EA_NO_SPACE, ENOSPC },
	{ EXT2_ET_INLINE_DATA_NO_SPACE, ENOSPC },
	{ EXT2_ET_FILE_NOT_FOUND, ENOENT },
	{ EXT2_ET_DIR_EXISTS, EEXIST },
	{ EXT2_ET_FILE_EXISTS, EEXIST },
	{ EXT2_ET_RO_FILSYS, EROFS },
	{ EXT2_ET_FILE_RO, EROFS },
	{ EXT2_ET_FILE_TOO_BIG, EFBIG },
	{ EXT2_ET_NO_DIRECTORY, ENOTDIR },
	{ EXT2_ET_INVALID_ARGUMENT, EINVAL },
	{ EXT2_ET_EA_KEY_NOT_FOUND, ENODATA },
	{ EXT2_ET_UNIMPLEMENTED, EOPNOTSUPP },
	{ EXT2_ET_OP_NOT_SUPPORTED, EOPNOTSUPP },
	{ EXT2_ET_SHORT_READ, EIO },
	{ EXT2_ET_SHORT_WRITE, EIO },
	{ EXT2_ET_GDESC_READ, EIO },
	{ EXT2_ET_GDESC_WRITE, EIO },
	{ EXT2_ET_INODE_BITMAP_READ, EIO },
	{ EXT2_ET_INODE_BITMAP_WRITE, EIO },
	{ EXT2_ET_BLOCK_BITMAP_READ, EIO },
	{ EXT2_ET_BLOCK_BITMAP_WRITE, EIO },
	{ EXT2_ET_INODE_TABLE_READ, EIO },
	{ EXT2_ET_INODE_TABLE_WRITE, EIO },
};

int ext4_errno(errcode_t err)
{
	if (err < EXT2_ET_BASE)
		return -(int)err;
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		if (errors[i].err == err)
			return -errors[i].errnum;
	}
	return -EUCLEAN;
}

/* The codes that ext4 keeps in s_first_error_errcode */
static uint8_t error_code(int err)
{
	switch (err) {
	case -EIO:
		return 2;
	case -ENOMEM:
		return 3;
	case -ENOSPC:
		return 5;
	default:
		return 16;	/* EFSCORRUPTED */
	}
}

static void note_in_super(struct ext4_volume *vol, uint32_t ino, int err)
{
	static const char who[] = "foliofs";
	struct ext2_super_block *sb = vol->fs->super;
	uint64_t now = time(NULL);

	sb->s_state |= EXT2_ERROR_FS;
	if (!sb->s_error_count++) {
		sb->s_first_error_time = now;
		sb->s_first_error_time_hi = now >> 32;
		sb->s_first_error_ino = ino;
		sb->s_first_error_block = 0;
		sb->s_first_error_line = 0;
		sb->s_first_error_errcode = error_code(err);
		memset(sb->s_first_error_func, 0, sizeof(sb->s_first_error_func));
		memcpy(sb->s_first_error_func, who, sizeof(who));
	}
	sb->s_last_error_time = now;
	sb->s_last_error_time_hi = now >> 32;
	sb->s_last_error_ino = ino;
	sb->s_last_error_block = 0;
	sb->s_last_error_line = 0;
	sb->s_last_error_errcode = error_code(err);
	memset(sb->s_last_error_func, 0, sizeof(sb->s_last_error_func));
	memcpy(sb->s_last_error_func, who, sizeof(who));
	commit_mark_super(vol);
}

static enum errors_policy policy(struct ext4_volume *vol)
{
	if (vol->vol.options->errors != ERRORS_DEFAULT)
		return vol->vol.options->errors;
	switch (vol->fs->super->s_errors) {
	case EXT2_ERRORS_RO:
		return ERRORS_REMOUNT_RO;
	case EXT2_ERRORS_PANIC:
		return ERRORS_PANIC;
	default:
		return ERRORS_CONTINUE;
	}
}

static void follow_policy(struct ext4_volume *vol)
{
	if (ext4_is_rofs(vol) || policy(vol) == ERRORS_CONTINUE)
		return;
	if (policy(vol) == ERRORS_PANIC) {
		__atomic_store_n(&vol->shutdown, true, __ATOMIC_RELEASE);
		log_error("%s: stopped for errors (errors=panic)", vol->vol.image->name);
	} else {
		log_error("%s: turned read-only for errors", vol->vol.image->name);
	}
	__atomic_store_n(&vol->vol.readonly, true, __ATOMIC_RELEASE);
}

/* True when one more line may be printed. */
static bool line_allowed(struct ext4_volume *vol)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (now.tv_sec - vol->lines_since >= WINDOW) {
		if (vol->lines > LINES_MAX)
			log_error("%s: %u more messages of damage left out", vol->vol.image->name,
				  vol->lines - LINES_MAX);
		vol->lines = 0;
		vol->lines_since = now.tv_sec;
	}
	return vol->lines++ < LINES_MAX;
}

int ext4_corrupt(struct ext4_volume *vol, uint32_t ino, int err, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	if (line_allowed(vol)) {
		va_start(ap, fmt);
		vsnprintf(text, sizeof(text), fmt, ap);
		va_end(ap);
		if (ino)
			log_error("%s: inode %u: %s", vol->vol.image->name, ino, text);
		else
			log_error("%s: %s", vol->vol.image->name, text);
	}
	if (!ext4_is_rofs(vol)) {
		note_in_super(vol, ino, err);
		follow_policy(vol);
	}
	return err == -EIO ? -EIO : -EUCLEAN;
}

int ext4_failed(struct ext4_volume *vol, uint32_t ino, errcode_t err, const char *what)
{
	int errnum = ext4_errno(err);

	vol->last_error = err;
	if (errnum == -EUCLEAN || errnum == -EIO)
		return ext4_corrupt(vol, ino, errnum, "%s: %s", what, error_message(err));
	return errnum;
}

void ext4_data_written(struct ext4_inode *inode, int err)
{
	struct ext4_volume *vol = ext4_vol(inode);
	time_t since = __atomic_load_n(&vol->failing_since, __ATOMIC_RELAXED);
	struct timespec now;

	if (err != -EIO) {
		if (since)
			__atomic_store_n(&vol->failing_since, 0, __ATOMIC_RELAXED);
		return;
	}
	clock_gettime(CLOCK_MONOTONIC, &now);
	if (!since)
		__atomic_store_n(&vol->failing_since, now.tv_sec, __ATOMIC_RELAXED);
	if (!since || since == TOLD || now.tv_sec - since < FAILING ||
	    !__atomic_compare_exchange_n(&vol->failing_since, &since, TOLD, false,
					 __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return;
	ext4_lock(vol);
	ext4_corrupt(vol, inode->vn.ino, err, "data cannot be written");
	ext4_unlock(vol);
}
