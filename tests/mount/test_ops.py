# SPDX-License-Identifier: GPL-2.0-or-later
"""Names, links, modes, owners, times, attributes: every operation that is not about data."""
import ctypes
import errno
import os
import stat
import struct
import time

from harness import MountTest, libc, run

NOBODY = 65534
RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4
AT_FDCWD = -100
UTIME_NOW, UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2


def renameat2(old, new, flags):
	if libc.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags) != 0:
		number = ctypes.get_errno()
		raise OSError(number, os.strerror(number))


def utimensat(path, atime, mtime):
	"""Set times from (seconds, nanoseconds) pairs, which may hold UTIME_NOW and UTIME_OMIT."""
	times = struct.pack('qqqq', *atime, *mtime)
	if libc.utimensat(AT_FDCWD, os.fsencode(path), times, 0) != 0:
		number = ctypes.get_errno()
		raise OSError(number, os.strerror(number))


def put(path, content=b''):
	with open(path, 'wb') as f:
		f.write(content)
	return path


def get(path):
	with open(path, 'rb') as f:
		return f.read()


class as_user:
	"""Run what is inside as an ordinary user (this thread's file system ids, no capabilities)."""

	def __init__(self, uid=NOBODY, gid=NOBODY, groups=()):
		self.ids = uid, gid, list(groups)

	def __enter__(self):
		uid, gid, groups = self.ids
		self.groups = os.getgroups()
		os.setgroups(groups)
		os.setegid(gid)
		os.seteuid(uid)

	def __exit__(self, *_):
		os.seteuid(0)
		os.setegid(0)
		os.setgroups(self.groups)


class OneMount(MountTest):
	"""Each test gets a fresh mount, self.m, which others than root may use too."""

	block = 4096
	mkfs = ('-b', '4096')
	options = ('allow_other', 'default_permissions')

	def setUp(self):
		super().setUp()
		self.files = []		# open files, closed before an unmount
		self.disk = self.image(*self.mkfs)
		self.m = self.mount(self.disk, *self.options).start()

	def tearDown(self):
		self.close()
		if self.m.mounted:
			self.m.stop()

	def close(self):
		for f in self.files:
			f.close()

	def again(self):
		"""Unmount, check, and mount again: what comes now comes from the image."""
		self.close()
		self.m.stop()
		self.m = self.mount(self.disk, *self.options).start()


class Names(OneMount):
	def test_create_and_remove(self):
		m = self.m
		put(m / 'a', b'content')
		self.error(errno.EEXIST, os.open, m / 'a', os.O_CREAT | os.O_EXCL)
		self.error(errno.ENOENT, os.open, m / 'b', os.O_RDONLY)
		self.error(errno.ENOTDIR, os.stat, m / 'a/b')
		self.again()
		self.assertEqual(get(self.m / 'a'), b'content')
		os.unlink(self.m / 'a')
		self.error(errno.ENOENT, os.unlink, self.m / 'a')
		self.assertEqual(os.listdir(self.m.path), ['lost+found'])

	def test_directories_count_links(self):
		m = self.m
		self.assertEqual(os.stat(m.path).st_nlink, 3)
		os.mkdir(m / 'd')
		os.mkdir(m / 'd/one')
		os.mkdir(m / 'd/two')
		self.assertEqual(os.stat(m.path).st_nlink, 4)
		self.assertEqual(os.stat(m / 'd').st_nlink, 4)
		self.assertEqual(os.stat(m / 'd/one/..').st_ino, os.stat(m / 'd').st_ino)
		os.rename(m / 'd/one', m / 'one')
		self.assertEqual(os.stat(m / 'd').st_nlink, 3)
		self.assertEqual(os.stat(m.path).st_nlink, 5)
		self.assertEqual(os.stat(m / 'one/..').st_ino, os.stat(m.path).st_ino)
		self.error(errno.ENOTEMPTY, os.rmdir, m / 'd')
		self.error(errno.ENOTDIR, os.rmdir, put(m / 'file'))
		self.error(errno.EISDIR, os.unlink, m / 'd')
		os.rmdir(m / 'd/two')
		os.rmdir(m / 'd')
		self.assertEqual(os.stat(m.path).st_nlink, 4)

	def test_dot_entries(self):
		"""`.` and `..` are listed, with the right inodes."""
		os.mkdir(self.m / 'd')
		listed = run('ls', '-fai', self.m / 'd').stdout.split()
		found = dict(zip(listed[1::2], map(int, listed[0::2])))
		self.assertEqual(found, {'.': os.stat(self.m / 'd').st_ino,
					 '..': os.stat(self.m.path).st_ino})

	def test_hard_links(self):
		m = self.m
		put(m / 'a', b'x')
		before = os.stat(m / 'a').st_ctime_ns
		time.sleep(0.02)
		os.link(m / 'a', m / 'b')
		self.assertEqual(os.stat(m / 'a').st_nlink, 2)
		self.assertEqual(os.stat(m / 'a').st_ino, os.stat(m / 'b').st_ino)
		self.assertGreater(os.stat(m / 'a').st_ctime_ns, before)
		self.error(errno.EEXIST, os.link, m / 'a', m / 'b')
		os.mkdir(m / 'd')
		self.error(errno.EPERM, os.link, m / 'd', m / 'e')
		with open(m / 'a', 'ab') as f:
			f.write(b'y')
		self.assertEqual(get(m / 'b'), b'xy')
		os.unlink(m / 'a')
		self.assertEqual(os.stat(m / 'b').st_nlink, 1)
		os.symlink('b', m / 's')
		os.link(m / 's', m / 't', follow_symlinks=False)
		self.assertEqual(os.readlink(m / 't'), 'b')

	def test_symbolic_links(self):
		lengths = [n for n in (1, 59, 60, 61, 255, 1023, 4095) if n < self.block]
		for length in lengths:
			target = ('x/' * length)[:length]
			path = self.m / ('link-%d' % length)
			os.symlink(target, path)
			self.assertTrue(os.readlink(path) == target)
			self.assertEqual(os.lstat(path).st_size, length)
		self.again()
		for length in lengths:
			self.assertEqual(len(os.readlink(self.m / ('link-%d' % length))), length)

	def test_special_files(self):
		m = self.m
		os.mkfifo(m / 'fifo', 0o600)
		for name, kind, major, minor in (('small', stat.S_IFCHR, 5, 1), ('large', stat.S_IFBLK, 4095, 1048575),
						 ('whiteout', stat.S_IFCHR, 0, 0)):
			os.mknod(m / name, kind | 0o640, os.makedev(major, minor))
		self.again()
		m = self.m
		self.assertTrue(stat.S_ISFIFO(os.stat(m / 'fifo').st_mode))
		self.assertEqual(os.stat(m / 'small').st_rdev, os.makedev(5, 1))
		self.assertEqual(os.stat(m / 'large').st_rdev, os.makedev(4095, 1048575))
		self.assertEqual(os.stat(m / 'whiteout').st_rdev, 0)
		self.assertEqual({e.name: e.inode() for e in os.scandir(m.path)},
				 {name: os.lstat(m / name).st_ino for name in os.listdir(m.path)})

	def test_deleted_while_open(self):
		m = self.m
		f = open(put(m / 'f', b'first'), 'r+b')
		os.unlink(m / 'f')
		self.assertEqual(os.fstat(f.fileno()).st_nlink, 0)
		self.assertEqual(os.listdir(m.path), ['lost+found'])
		f.seek(0, os.SEEK_END)
		f.write(b' and second' * 10000)
		f.flush()
		f.seek(0)
		self.assertEqual(f.read(), b'first' + b' and second' * 10000)
		put(m / 'f', b'another')
		self.assertEqual(get(m / 'f'), b'another')
		os.fchmod(f.fileno(), 0o600)
		os.ftruncate(f.fileno(), 3)
		f.seek(0)
		self.assertEqual(f.read(), b'fir')
		f.close()

	def test_replaced_while_open(self):
		m = self.m
		with open(put(m / 'f', b'old'), 'rb') as f:
			os.rename(put(m / 'g', b'new'), m / 'f')
			self.assertEqual(f.read(), b'old')
			self.assertEqual(os.fstat(f.fileno()).st_nlink, 0)
		self.assertEqual(get(m / 'f'), b'new')

	def test_removed_directory_in_use(self):
		m = self.m
		os.mkdir(m / 'd')
		fd = os.open(m / 'd', os.O_RDONLY)
		os.rmdir(m / 'd')
		self.assertEqual(os.listdir(fd), [])
		self.assertEqual(os.fstat(fd).st_nlink, 0)
		self.error(errno.ENOENT, os.open, 'x', os.O_CREAT | os.O_WRONLY, dir_fd=fd)
		os.close(fd)

	def test_names_of_many_bytes(self):
		for name in ('n' * 255, '\n', ' ', 'é' * 127, '\udcff\udcfe'):
			put(self.m / name, name.encode('utf-8', 'surrogateescape'))
		self.again()
		for name in ('n' * 255, '\n', ' ', 'é' * 127, '\udcff\udcfe'):
			self.assertEqual(get(self.m / name), name.encode('utf-8', 'surrogateescape'))

	def test_inode_of_the_root(self):
		self.assertIn(os.stat(self.m.path).st_ino, (1, 2))

	def test_statfs(self):
		m = self.m
		before = os.statvfs(m.path)
		self.assertEqual(before.f_namemax, 255)
		put(m / 'f', b'x' * (8 << 20))
		with open(m / 'f', 'rb') as f:
			os.fsync(f.fileno())
		after = os.statvfs(m.path)
		taken = (before.f_bfree - after.f_bfree) * after.f_frsize
		self.assertGreaterEqual(taken, 8 << 20)
		self.assertLess(taken, 9 << 20)
		self.assertEqual(before.f_ffree - after.f_ffree, 1)
		self.assertLess(after.f_bavail, after.f_bfree)
		os.unlink(m / 'f')
		for _ in range(50):
			if os.statvfs(m.path).f_bfree == before.f_bfree:
				break
			time.sleep(0.1)
		self.assertEqual(os.statvfs(m.path).f_bfree, before.f_bfree)
		self.assertEqual(os.statvfs(m.path).f_ffree, before.f_ffree)


class Rename(OneMount):
	def test_over_a_file(self):
		m = self.m
		put(m / 'a', b'a')
		put(m / 'b', b'b')
		os.rename(m / 'a', m / 'b')
		self.assertEqual(get(m / 'b'), b'a')
		self.assertFalse(os.path.exists(m / 'a'))

	def test_kinds_must_agree(self):
		m = self.m
		put(m / 'file')
		os.mkdir(m / 'empty')
		os.mkdir(m / 'full')
		put(m / 'full/x')
		os.mkdir(m / 'other')
		self.error(errno.EISDIR, os.rename, m / 'file', m / 'empty')
		self.error(errno.ENOTDIR, os.rename, m / 'empty', m / 'file')
		self.error(errno.ENOTEMPTY, os.rename, m / 'other', m / 'full')
		self.error(errno.EINVAL, os.rename, m / 'other', m / 'other/below')
		os.rename(m / 'full', m / 'empty')
		self.assertEqual(os.listdir(m / 'empty'), ['x'])

	def test_to_another_name_of_itself(self):
		m = self.m
		os.link(put(m / 'a', b'a'), m / 'b')
		os.rename(m / 'a', m / 'b')
		self.assertEqual(get(m / 'a'), b'a')
		self.assertEqual(os.stat(m / 'a').st_nlink, 2)

	def test_noreplace(self):
		m = self.m
		put(m / 'a', b'a')
		put(m / 'b', b'b')
		self.error(errno.EEXIST, renameat2, m / 'a', m / 'b', RENAME_NOREPLACE)
		renameat2(m / 'a', m / 'c', RENAME_NOREPLACE)
		self.assertEqual((get(m / 'b'), get(m / 'c')), (b'b', b'a'))

	def test_exchange(self):
		m = self.m
		put(m / 'file', b'file')
		os.mkdir(m / 'd')
		os.mkdir(m / 'd/sub')
		os.mkdir(m / 'd/sub/below')
		renameat2(m / 'file', m / 'd/sub', RENAME_EXCHANGE)
		self.assertEqual(get(m / 'd/sub'), b'file')
		self.assertEqual(os.listdir(m / 'file'), ['below'])
		self.assertEqual(os.stat(m / 'file/..').st_ino, os.stat(m.path).st_ino)
		self.assertEqual(os.stat(m / 'd').st_nlink, 2)
		self.assertEqual(os.stat(m.path).st_nlink, 5)
		self.error(errno.ENOENT, renameat2, m / 'file', m / 'nothing', RENAME_EXCHANGE)
		self.error(errno.EINVAL, renameat2, m / 'file', m / 'd', RENAME_EXCHANGE | RENAME_NOREPLACE)

	def test_whiteout(self):
		m = self.m
		put(m / 'a', b'a')
		put(m / 'b', b'b')
		renameat2(m / 'a', m / 'c', RENAME_WHITEOUT)
		renameat2(m / 'c', m / 'b', RENAME_WHITEOUT)
		self.assertEqual(get(m / 'b'), b'a')
		for name in 'ac':
			st = os.lstat(m / name)
			self.assertTrue(stat.S_ISCHR(st.st_mode))
			self.assertEqual(st.st_rdev, 0)

	def test_updates_times(self):
		m = self.m
		os.mkdir(m / 'd')
		put(m / 'a')
		times = os.stat(m / 'd').st_mtime_ns, os.stat(m / 'a').st_ctime_ns
		time.sleep(0.02)
		os.rename(m / 'a', m / 'd/a')
		self.assertGreater(os.stat(m / 'd').st_mtime_ns, times[0])
		self.assertGreater(os.stat(m / 'd/a').st_ctime_ns, times[1])


class Times(OneMount):
	EXAMPLES = (-(1 << 31) + 1, -1, 0, 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32,
		    4102444800, (1 << 33) + 5, 3 * (1 << 32), 15032385534)

	def test_range(self):
		"""From 1901 to 2446, to the nanosecond, and the same from the image."""
		for number, when in enumerate(self.EXAMPLES):
			for ns in (0, 1, 999999999):
				path = put(self.m / ('f%d-%d' % (number, ns)))
				os.utime(path, ns=(when * 10**9 + ns, when * 10**9 + 999999999 - ns))
		self.again()
		for number, when in enumerate(self.EXAMPLES):
			for ns in (0, 1, 999999999):
				st = os.stat(self.m / ('f%d-%d' % (number, ns)))
				self.assertEqual((st.st_atime_ns, st.st_mtime_ns),
						 (when * 10**9 + ns, when * 10**9 + 999999999 - ns))

	def test_now_and_omit(self):
		path = put(self.m / 'f')
		os.utime(path, ns=(1000, 2000))
		utimensat(path, (0, UTIME_OMIT), (5, 6))
		st = os.stat(path)
		self.assertEqual((st.st_atime_ns, st.st_mtime_ns), (1000, 5 * 10**9 + 6))
		before = time.time() - 1
		utimensat(path, (0, UTIME_NOW), (0, UTIME_OMIT))
		st = os.stat(path)
		self.assertTrue(before <= st.st_atime <= time.time() + 1)
		self.assertEqual(st.st_mtime_ns, 5 * 10**9 + 6)
		utimensat(path, (7, 8), (0, UTIME_NOW))
		st = os.stat(path)
		self.assertTrue(before <= st.st_mtime <= time.time() + 1)
		self.assertEqual(st.st_atime_ns, 7 * 10**9 + 8)

	def test_write_sets_mtime_and_ctime(self):
		path = put(self.m / 'f')
		os.utime(path, ns=(0, 0))
		before = os.stat(path)
		time.sleep(0.02)
		with open(path, 'wb') as f:
			f.write(b'x')
		after = os.stat(path)
		self.assertGreater(after.st_mtime_ns, before.st_mtime_ns)
		self.assertGreater(after.st_ctime_ns, before.st_ctime_ns)
		self.assertAlmostEqual(after.st_mtime, time.time(), delta=5)
		self.again()
		self.assertEqual(os.stat(self.m / 'f').st_mtime_ns, after.st_mtime_ns)

	def test_set_after_write_stays(self):
		"""Times set on a file with unwritten data survive the writing of that data."""
		with open(self.m / 'f', 'wb') as f:
			f.write(b'x' * 100000)
			f.flush()
			os.utime(f.fileno(), ns=(10**9 + 1, 2 * 10**9 + 2))
		self.again()
		st = os.stat(self.m / 'f')
		self.assertEqual((st.st_atime_ns, st.st_mtime_ns), (10**9 + 1, 2 * 10**9 + 2))

	def test_truncate_sets_mtime(self):
		path = put(self.m / 'f', b'x' * 5000)
		for size in (100, 100000):
			os.utime(path, ns=(0, 0))
			os.truncate(path, size)
			self.assertAlmostEqual(os.stat(path).st_mtime, time.time(), delta=5)

	def test_directory_times(self):
		m = self.m
		os.mkdir(m / 'd')

		def changes(call, *arguments):
			os.utime(m / 'd', ns=(0, 0))
			call(*arguments)
			self.assertAlmostEqual(os.stat(m / 'd').st_mtime, time.time(), delta=5)

		changes(put, m / 'd/a')
		changes(os.link, m / 'd/a', m / 'd/b')
		changes(os.rename, m / 'd/b', m / 'd/c')
		changes(os.unlink, m / 'd/c')
		changes(os.mkdir, m / 'd/e')
		changes(os.rmdir, m / 'd/e')
		changes(os.symlink, 'x', m / 'd/s')
		changes(os.mkfifo, m / 'd/p')

	def test_others_may_not(self):
		path = put(self.m / 'f')
		os.chmod(path, 0o644)
		with as_user():
			self.error(errno.EPERM, os.utime, path, (1, 1))
			self.error(errno.EACCES, os.utime, path)


class Modes(OneMount):
	def test_mode_and_owner(self):
		path = put(self.m / 'f')
		os.chmod(path, 0o7654)
		self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o7654)
		os.chown(path, 4294967294, 70000)
		os.chmod(path, 0o640)
		os.symlink('f', self.m / 's')
		os.chown(self.m / 's', 5, 6, follow_symlinks=False)
		self.again()
		st = os.stat(self.m / 'f')
		self.assertEqual((st.st_uid, st.st_gid, stat.S_IMODE(st.st_mode)), (4294967294, 70000, 0o640))
		st = os.lstat(self.m / 's')
		self.assertEqual((st.st_uid, st.st_gid), (5, 6))

	def test_umask_and_owner_of_new_files(self):
		m = self.m
		os.chmod(m.path, 0o777)
		old = os.umask(0o027)
		try:
			with as_user(1234, 5678):
				os.close(os.open(m / 'f', os.O_CREAT, 0o666))
				os.mkdir(m / 'd', 0o777)
				os.mkfifo(m / 'p', 0o666)
		finally:
			os.umask(old)
		for name, mode in (('f', 0o640), ('d', 0o750), ('p', 0o640)):
			st = os.stat(m / name)
			self.assertEqual((st.st_uid, st.st_gid, stat.S_IMODE(st.st_mode)), (1234, 5678, mode))

	def test_setgid_directory(self):
		m = self.m
		os.mkdir(m / 'd')
		os.chown(m / 'd', 0, 4242)
		os.chmod(m / 'd', 0o2777)
		with as_user(1234, 5678):
			put(m / 'd/f')
			os.mkdir(m / 'd/e')
		self.assertEqual(os.stat(m / 'd/f').st_gid, 4242)
		self.assertEqual(os.stat(m / 'd/e').st_gid, 4242)
		self.assertTrue(os.stat(m / 'd/e').st_mode & stat.S_ISGID)

	def test_suid_is_cleared_by_a_write(self):
		m = self.m
		for name, call in (('write', lambda p: open(p, 'r+b').write(b'x')),
				   ('truncate', lambda p: os.truncate(p, 1))):
			with self.subTest(by=name):
				path = put(m / name, b'content')
				os.chown(path, NOBODY, NOBODY)
				os.chmod(path, 0o6777)
				with as_user(1234, 5678):
					call(path)
				self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o777)
		self.again()
		self.assertEqual(stat.S_IMODE(os.stat(self.m / 'write').st_mode), 0o777)

	def test_suid_is_cleared_by_a_new_owner(self):
		path = put(self.m / 'f')
		os.chmod(path, 0o6755)
		os.chown(path, 5, 5)
		self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o755)

	def test_capability_goes_with_a_write(self):
		path = put(self.m / 'f', b'x')
		os.setxattr(path, 'security.capability', bytes.fromhex('0100000200040000000000000000000000000000'))
		with open(path, 'ab') as f:
			f.write(b'y')
		self.assertNotIn('security.capability', os.listxattr(path))

	def test_sticky_bit(self):
		m = self.m
		os.mkdir(m / 't')
		os.chmod(m / 't', 0o1777)
		with as_user(1234, 1234):
			put(m / 't/f')
		with as_user(5678, 5678):
			self.error(errno.EPERM, os.unlink, m / 't/f')
			self.error(errno.EPERM, os.rename, m / 't/f', m / 't/g')
		with as_user(1234, 1234):
			os.unlink(m / 't/f')

	def test_permissions_hold(self):
		m = self.m
		os.chmod(put(m / 'f', b'x'), 0o600)
		os.mkdir(m / 'd', 0o700)
		with as_user():
			self.error(errno.EACCES, os.open, m / 'f', os.O_RDONLY)
			self.error(errno.EACCES, os.listdir, m / 'd')
			self.error(errno.EACCES, os.mkdir, m / 'e')
			self.assertFalse(os.access(m / 'f', os.R_OK, effective_ids=True))
		self.assertTrue(os.access(m / 'f', os.R_OK))


class Attributes(OneMount):
	def test_set_get_list_remove(self):
		path = put(self.m / 'f')
		for name in ('user.a', 'trusted.b', 'security.c'):
			os.setxattr(path, name, name.encode())
		self.assertEqual(sorted(os.listxattr(path)), ['security.c', 'trusted.b', 'user.a'])
		os.setxattr(path, 'user.a', b'changed')
		self.error(errno.EEXIST, os.setxattr, path, 'user.a', b'', os.XATTR_CREATE)
		self.error(errno.ENODATA, os.setxattr, path, 'user.z', b'', os.XATTR_REPLACE)
		os.removexattr(path, 'trusted.b')
		self.error(errno.ENODATA, os.removexattr, path, 'trusted.b')
		self.error(errno.ENODATA, os.getxattr, path, 'user.nothing')
		self.again()
		path = self.m / 'f'
		self.assertEqual(sorted(os.listxattr(path)), ['security.c', 'user.a'])
		self.assertEqual(os.getxattr(path, 'user.a'), b'changed')
		self.assertEqual(os.getxattr(path, 'security.c'), b'security.c')

	def test_sizes(self):
		"""In the inode, in a block of its own, and back again."""
		path = put(self.m / 'f')
		for size in (0, 1, 50, 500, 900, 50, 0):
			os.setxattr(path, 'user.value', b'v' * size)
			self.assertEqual(os.getxattr(path, 'user.value'), b'v' * size)
		os.setxattr(path, 'user.value', b'w' * 700)
		self.again()
		self.assertEqual(os.getxattr(self.m / 'f', 'user.value'), b'w' * 700)

	def test_too_large(self):
		path = put(self.m / 'f')
		self.error(errno.ENOSPC, os.setxattr, path, 'user.value', b'v' * 60000)
		self.error(errno.E2BIG, os.setxattr, path, 'user.value', b'v' * 70000)
		self.assertEqual(os.listxattr(path), [])

	def test_where_user_attributes_are_not_allowed(self):
		m = self.m
		os.symlink('x', m / 's')
		os.mkfifo(m / 'p')
		self.error(errno.EPERM, os.setxattr, m / 's', 'user.a', b'', follow_symlinks=False)
		self.error(errno.EPERM, os.setxattr, m / 'p', 'user.a', b'')
		os.setxattr(m / 's', 'trusted.a', b'1', follow_symlinks=False)
		self.assertEqual(os.getxattr(m / 's', 'trusted.a', follow_symlinks=False), b'1')
		self.error(errno.EOPNOTSUPP, os.setxattr, put(m / 'f'), 'unknown.a', b'')

	def test_on_directories_and_whiteouts(self):
		m = self.m
		os.mkdir(m / 'd')
		os.setxattr(m / 'd', 'trusted.overlay.opaque', b'y')
		os.setxattr(m / 'd', 'user.overlay.opaque', b'y')
		self.again()
		self.assertEqual(os.getxattr(self.m / 'd', 'trusted.overlay.opaque'), b'y')

	def test_acl(self):
		m = self.m
		os.chmod(put(m / 'f', b'x'), 0o600)
		run('setfacl', '-m', 'u:%d:r' % NOBODY, m / 'f')
		self.assertEqual(stat.S_IMODE(os.stat(m / 'f').st_mode), 0o640)
		with as_user():
			self.assertEqual(get(m / 'f'), b'x')
			self.error(errno.EACCES, os.open, m / 'f', os.O_WRONLY)
		os.chmod(m / 'f', 0o600)	# the group bits are the mask
		with as_user():
			self.error(errno.EACCES, os.open, m / 'f', os.O_RDONLY)
		os.mkdir(m / 'd')
		run('setfacl', '-d', '-m', 'u:77:rwx', m / 'd')
		os.mkdir(m / 'd/sub')
		put(m / 'd/sub/f')
		before = [run('getfacl', '-cpn', m / name).stdout for name in ('f', 'd', 'd/sub', 'd/sub/f')]
		self.assertIn('default:user:77:rwx', before[2])
		self.assertIn('user:77:rwx', before[3])
		self.again()
		self.assertEqual([run('getfacl', '-cpn', self.m / name).stdout
				  for name in ('f', 'd', 'd/sub', 'd/sub/f')], before)
		run('setfacl', '-b', self.m / 'f')
		self.assertEqual(os.listxattr(self.m / 'f'), [])

	def test_kernel_reads_them(self):
		path = put(self.m / 'f')
		for number in range(10):
			os.setxattr(path, 'user.number%d' % number, b'%d' % number * 10)
		run('setfacl', '-m', 'u:5:rwx', path)
		acl = run('getfacl', '-cpn', path).stdout
		self.m.stop()
		path = os.path.join(self.kernel_mount(self.disk, 'ro'), 'f')
		self.assertEqual(run('getfacl', '-cpn', path).stdout, acl)
		for number in range(10):
			self.assertEqual(os.getxattr(path, 'user.number%d' % number), b'%d' % number * 10)


class InlineNames(Names):
	"""The same with directories and small files inside their inodes."""
	mkfs = ('-b', '4096', '-O', 'inline_data')


class OldNames(Names):
	"""The same on ext2 with small blocks."""
	block = 1024
	mkfs = ('-t', 'ext2', '-b', '1024')
