/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Attributes, inode flags, label, trim. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/sysmacros.h>
#include "ext4_fixture.h"

#define MIB (1UL << 20)

static const struct cred nobody = { .uid = 65534, .gid = 65534 };

static struct vnode *start(struct fixture *f, const char *mkfs, mode_t mode)
{
	fixture_format(f, 16 * MIB, mkfs);
	cr_assert_eq(fixture_open(f), 0);
	return fixture_create(f, "a", mode);
}

static void end(struct fixture *f, struct vnode *node)
{
	fixture_put(f, node);
	fixture_finish(f);
}

static struct stat stat_of(struct fixture *f, struct vnode *node)
{
	struct stat st;

	cr_assert_eq(f->volume->ops->getattr(node, &st), 0);
	return st;
}

static int set(struct fixture *f, struct vnode *node, struct stat st, unsigned int valid)
{
	return f->volume->ops->setattr(node, &st, valid, &fixture_root);
}

Test(ext4_attr, mode_changes_permissions_only)
{
	struct fixture f;
	struct vnode *node = start(&f, "", S_IFREG | 0644);

	cr_expect_eq(set(&f, node, (struct stat){ .st_mode = S_IFDIR | 04711 }, VATTR_MODE), 0);
	cr_expect_eq(stat_of(&f, node).st_mode, S_IFREG | 04711);
	cr_expect_eq(node->mode, S_IFREG | 04711);
	end(&f, node);
}

Test(ext4_attr, owner_has_32_bits_and_clears_suid)
{
	struct fixture f;
	struct vnode *node = start(&f, "", S_IFREG | 06755);
	struct stat st = { .st_uid = 0x12345678, .st_gid = 0x9abcdef0 };

	cr_expect_eq(set(&f, node, st, VATTR_UID | VATTR_GID), 0);
	st = stat_of(&f, node);
	cr_expect_eq(st.st_uid, 0x12345678);
	cr_expect_eq(st.st_gid, 0x9abcdef0);
	cr_expect_eq(st.st_mode, S_IFREG | 0755);
	end(&f, node);
}

Test(ext4_attr, sgid_without_group_execution_stays)
{
	struct fixture f;
	struct vnode *node = start(&f, "", S_IFREG | 02644);

	cr_expect_eq(set(&f, node, (struct stat){ .st_uid = 5 }, VATTR_UID), 0);
	cr_expect_eq(stat_of(&f, node).st_mode, S_IFREG | 02644);
	end(&f, node);
}

Test(ext4_attr, directory_keeps_sgid_on_chown)
{
	struct fixture f;
	struct vnode *node = start(&f, "", S_IFDIR | 02755);

	cr_expect_eq(set(&f, node, (struct stat){ .st_uid = 5 }, VATTR_UID), 0);
	cr_expect_eq(stat_of(&f, node).st_mode, S_IFDIR | 02755);
	end(&f, node);
}

Test(ext4_attr, truncation_to_the_same_size_moves_times)
{
	struct fixture f;
	struct vnode *node = start(&f, "", S_IFREG | 0644);
	struct stat old = { .st_mtim.tv_sec = 1000, .st_ctim.tv_sec = 1000 };

	cr_assert_eq(set(&f, node, old, VATTR_MTIME | VATTR_CTIME), 0);
	cr_expect_eq(stat_of(&f, node).st_mtim.tv_sec, 1000);
	cr_expect_eq(set(&f, node, (struct stat){ 0 }, VATTR_SIZE), 0);
	cr_expect_gt(stat_of(&f, node).st_mtim.tv_sec, 1000);
	cr_expect_gt(stat_of(&f, node).st_ctim.tv_sec, 1000);
	end(&f, node);
}

Test(ext4_attr, size_of_other_things_cannot_be_set)
{
	struct fixture f;
	struct vnode *dir = start(&f, "", S_IFDIR | 0755);
	struct vnode *fifo = fixture_create(&f, "fifo", S_IFIFO | 0644);

	cr_expect_eq(set(&f, dir, (struct stat){ 0 }, VATTR_SIZE), -EISDIR);
	cr_expect_eq(set(&f, fifo, (struct stat){ 0 }, VATTR_SIZE), -EINVAL);
	fixture_put(&f, fifo);
	end(&f, dir);
}

Test(ext4_attr, size_has_a_limit)
{
	struct fixture f;
	struct vnode *node = start(&f, "", S_IFREG | 0644);

	cr_expect_eq(set(&f, node, (struct stat){ .st_size = INT64_MAX }, VATTR_SIZE), -EFBIG);
	cr_expect_eq(set(&f, node, (struct stat){ .st_size = -1 }, VATTR_SIZE), -EINVAL);
	end(&f, node);
}

Test(ext4_attr, now_is_now)
{
	struct fixture f;
	struct vnode *node = start(&f, "", S_IFREG | 0644);
	struct stat st = { .st_atim.tv_sec = 1000, .st_mtim.tv_sec = 1000 };

	cr_assert_eq(set(&f, node, st, VATTR_ATIME | VATTR_MTIME), 0);
	cr_assert_eq(set(&f, node, st, VATTR_ATIME_NOW), 0);
	cr_expect_gt(stat_of(&f, node).st_atim.tv_sec, 1000);
	cr_expect_eq(stat_of(&f, node).st_mtim.tv_sec, 1000);
	end(&f, node);
}

Test(ext4_attr, relatime)
{
	struct fixture f;
	struct vnode *node = start(&f, "", S_IFREG | 0644);
	struct stat st = { .st_atim.tv_sec = 1000, .st_mtim.tv_sec = 1000 };
	struct timespec atime;

	cr_assert_eq(set(&f, node, st, VATTR_ATIME), 0);
	f.volume->ops->accessed(node);
	atime = stat_of(&f, node).st_atim;
	cr_expect_gt(atime.tv_sec, 1000);
	/* Newer than mtime and ctime, and not a day old: stays. */
	st.st_atim.tv_sec = atime.tv_sec + 3600;
	cr_assert_eq(set(&f, node, st, VATTR_ATIME), 0);
	f.volume->ops->accessed(node);
	cr_expect_eq(stat_of(&f, node).st_atim.tv_sec, atime.tv_sec + 3600);
	end(&f, node);
}

Test(ext4_attr, delayed_data_counts_as_blocks)
{
	static char data[64 << 10];
	struct fixture f;
	struct vnode *node = start(&f, "", S_IFREG | 0644);

	memset(data, 1, sizeof(data));
	fixture_write(&f, "a", data, sizeof(data));
	cr_expect_geq(stat_of(&f, node).st_blocks, (blkcnt_t)(sizeof(data) / 512));
	cr_expect_eq(f.volume->ops->sync(f.volume), 0);
	cr_expect_eq(stat_of(&f, node).st_blocks, (blkcnt_t)(sizeof(data) / 512));
	cr_expect_eq(stat_of(&f, node).st_size, (off_t)sizeof(data));
	end(&f, node);
}

Test(ext4_attr, group_and_sgid_are_inherited)
{
	struct fixture f;
	struct vnode *dir = start(&f, "", S_IFDIR | 02775), *node;

	cr_assert_eq(set(&f, dir, (struct stat){ .st_gid = 77 }, VATTR_GID), 0);
	node = fixture_create(&f, "a/file", S_IFREG | 0644);
	cr_expect_eq(stat_of(&f, node).st_gid, 77);
	cr_expect_eq(stat_of(&f, node).st_mode, S_IFREG | 0644);
	fixture_put(&f, node);
	node = fixture_create(&f, "a/dir", S_IFDIR | 0755);
	cr_expect_eq(stat_of(&f, node).st_gid, 77);
	cr_expect_eq(stat_of(&f, node).st_mode, S_IFDIR | 02755);
	fixture_put(&f, node);
	end(&f, dir);
}

Test(ext4_attr, device_numbers_survive)
{
	const dev_t devices[] = { makedev(1, 3), makedev(259, 70000), makedev(4000, 1) };
	struct vnode *root, *node;
	struct fixture f;
	char name[] = "a";

	fixture_format(&f, 16 * MIB, "");
	cr_assert_eq(fixture_open(&f), 0);
	root = f.volume->ops->root(f.volume);
	for (int i = 0; i < 3; i++, name[0]++) {
		cr_assert_eq(f.volume->ops->mknod(root, name, S_IFCHR | 0644, devices[i],
						  &fixture_root, &node), 0);
		cr_expect_eq(stat_of(&f, node).st_rdev, devices[i]);
		fixture_put(&f, node);
	}
	end(&f, root);
}

/* Flags */

Test(ext4_attr, immutable_needs_privilege_and_forbids_all)
{
	struct fixture f;
	struct vnode *node = start(&f, "", S_IFREG | 0644);
	uint32_t flags;

	cr_assert_eq(f.volume->ops->getflags(node, &flags), 0);
	cr_expect(flags & EXT4_EXTENTS_FL);
	cr_expect_eq(f.volume->ops->setflags(node, flags | FS_IMMUTABLE_FL, &nobody), -EPERM);
	cr_expect_eq(f.volume->ops->setflags(node, flags | FS_IMMUTABLE_FL, &fixture_root), 0);
	cr_expect_eq(set(&f, node, (struct stat){ .st_mode = 0600 }, VATTR_MODE), -EPERM);
	cr_expect_eq(f.volume->ops->open(node, O_WRONLY), -EPERM);
	cr_expect_eq(f.volume->ops->open(node, O_RDONLY), 0);
	cr_expect_eq(f.volume->ops->setflags(node, flags, &fixture_root), 0);
	cr_expect_eq(set(&f, node, (struct stat){ .st_mode = 0600 }, VATTR_MODE), 0);
	end(&f, node);
}

Test(ext4_attr, append_only_opens_to_append)
{
	struct fixture f;
	struct vnode *node = start(&f, "", S_IFREG | 0644);
	uint32_t flags;

	cr_assert_eq(f.volume->ops->getflags(node, &flags), 0);
	cr_expect_eq(f.volume->ops->setflags(node, flags | FS_APPEND_FL, &fixture_root), 0);
	cr_expect_eq(f.volume->ops->open(node, O_RDWR), -EPERM);
	cr_expect_eq(f.volume->ops->open(node, O_RDWR | O_APPEND | O_TRUNC), -EPERM);
	cr_expect_eq(f.volume->ops->open(node, O_RDWR | O_APPEND), 0);
	cr_expect_eq(set(&f, node, (struct stat){ 0 }, VATTR_SIZE), -EPERM);
	end(&f, node);
}

Test(ext4_attr, flags_of_the_format_cannot_be_changed)
{
	struct fixture f;
	struct vnode *node = start(&f, "", S_IFREG | 0644);
	struct vfsxattr attr;
	uint32_t flags;

	cr_assert_eq(f.volume->ops->getflags(node, &flags), 0);
	cr_expect_eq(f.volume->ops->setflags(node, flags & ~EXT4_EXTENTS_FL, &fixture_root),
		     -EOPNOTSUPP);
	cr_expect_eq(f.volume->ops->setflags(node, flags | FS_DIRSYNC_FL, &fixture_root),
		     -EOPNOTSUPP);
	cr_expect_eq(f.volume->ops->setflags(node, flags | FS_NODUMP_FL, &nobody), 0);
	cr_expect_eq(f.volume->ops->getfsxattr(node, &attr), 0);
	cr_expect_eq(attr.xflags, FS_XFLAG_NODUMP);
	end(&f, node);
}

Test(ext4_attr, flags_are_inherited)
{
	struct fixture f;
	struct vnode *dir = start(&f, "", S_IFDIR | 0755), *node;
	uint32_t flags, got;

	cr_assert_eq(f.volume->ops->getflags(dir, &flags), 0);
	cr_assert_eq(f.volume->ops->setflags(dir, flags | FS_NODUMP_FL | FS_DIRSYNC_FL,
					     &fixture_root), 0);
	node = fixture_create(&f, "a/file", S_IFREG | 0644);
	cr_assert_eq(f.volume->ops->getflags(node, &got), 0);
	cr_expect_eq(got & (FS_NODUMP_FL | FS_DIRSYNC_FL), FS_NODUMP_FL);
	fixture_put(&f, node);
	end(&f, dir);
}

/* The volume */

Test(ext4_attr, label)
{
	char label[256];
	struct fixture f;

	fixture_format(&f, 16 * MIB, "-L before");
	cr_assert_eq(fixture_open(&f), 0);
	cr_expect_eq(f.volume->ops->getlabel(f.volume, label), 0);
	cr_expect_str_eq(label, "before");
	cr_expect_eq(f.volume->ops->setlabel(f.volume, "seventeen letters"), -EINVAL);
	cr_expect_eq(f.volume->ops->setlabel(f.volume, "sixteen letters!"), 0);
	cr_assert_eq(fixture_close(&f), 0);
	cr_assert_eq(fixture_open(&f), 0);
	cr_expect_eq(f.volume->ops->getlabel(f.volume, label), 0);
	cr_expect_str_eq(label, "sixteen letters!");
	fixture_finish(&f);
}

Test(ext4_attr, trim_discards_free_blocks_only)
{
	static char data[1 << 20], back[1 << 20];
	struct vnode *node;
	uint64_t trimmed;
	struct fixture f;

	fixture_format(&f, 16 * MIB, "");
	cr_assert_eq(fixture_open(&f), 0);
	memset(data, 0x77, sizeof(data));
	fixture_write(&f, "a", data, sizeof(data));
	cr_expect_eq(f.volume->ops->trim(f.volume, 0, UINT64_MAX, 0, &trimmed), 0);
	cr_expect_gt(trimmed, 8 * MIB);
	cr_expect_lt(trimmed, 16 * MIB);
	cr_expect_eq(f.volume->ops->trim(f.volume, 17 * MIB, MIB, 0, &trimmed), -EINVAL);
	cr_assert_eq(fixture_close(&f), 0);
	cr_assert_eq(fixture_open(&f), 0);
	node = fixture_find(&f, "a");
	cr_expect_eq(filemap_read(&node->mapping, 0, back, sizeof(back)), (ssize_t)sizeof(back));
	cr_expect_arr_eq(data, back, sizeof(data));
	fixture_put(&f, node);
	fixture_finish(&f);
}

/* What the cache has read of a free block is not what the block holds once it is discarded. */
Test(ext4_attr, trimmed_blocks_are_not_remembered)
{
	static char data[20 << 10];
	struct vnode *root, *node;
	uint64_t trimmed;
	struct fixture f;
	uint32_t blk;

	fixture_format(&f, 16 * MIB, "-t ext2 -b 1024");
	cr_assert_eq(fixture_open(&f), 0);
	memset(data, 0x77, sizeof(data));
	fixture_write(&f, "a", data, sizeof(data));
	node = fixture_find(&f, "a");
	cr_assert_eq(ext4_fsync(node, false), 0);
	blk = EXT4_I(node)->raw.i_block[EXT2_IND_BLOCK];
	root = f.volume->ops->root(f.volume);
	cr_assert_eq(ext4_unlink(root, "a"), 0);
	fixture_put(&f, node);
	fixture_put(&f, root);
	ext4_lock(fixture_vol(&f));
	device_readahead(fixture_vol(&f), blk, 1);
	ext4_unlock(fixture_vol(&f));
	cr_assert_eq(f.volume->ops->trim(f.volume, 0, UINT64_MAX, 0, &trimmed), 0);
	/* The same again: block for block what was there before. */
	fixture_write(&f, "a", data, sizeof(data));
	node = fixture_find(&f, "a");
	cr_assert_eq(ext4_fsync(node, false), 0);
	cr_assert_eq(EXT4_I(node)->raw.i_block[EXT2_IND_BLOCK], blk);
	fixture_put(&f, node);
	fixture_finish(&f);
}
