# SPDX-License-Identifier: GPL-2.0-or-later
"""Limits: the right error at the right place, and nothing lost."""
import errno
import os
import random
import time

from harness import KERNEL, MountTest
from test_ops import as_user, get, put

LINKS = 65000


class Space(MountTest):
	def fill(self, path, strict=KERNEL):
		"""Write to a file until there is no space; returns what was accepted.

		Through the kernel's cache a FUSE file system hears of a write only when the kernel writes
		back, so ENOSPC comes from fsync(2) or close(2); what is between two of them is not accepted yet.
		With `strict` it has to come from write(2).
		"""
		content = random.Random(8).randbytes(1 << 20)
		fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
		done, piece = 0, 50000
		while piece:
			at = done % len(content)
			try:
				written = os.pwrite(fd, content[at:at + piece], done)
				if not strict:
					os.fsync(fd)
				done += written
			except OSError as e:
				self.assertEqual(e.errno, errno.ENOSPC)
				piece //= 4
		os.ftruncate(fd, done)
		os.fsync(fd)
		os.close(fd)
		return (content * (done // len(content) + 1))[:done]

	def refused_write(self, path, content, at):
		"""Writing there has to fail for want of space, at once or when it is synced."""
		def write():
			fd = os.open(path, os.O_WRONLY)
			try:
				os.pwrite(fd, content, at)
				os.fsync(fd)
			finally:
				os.close(fd)

		self.error(errno.ENOSPC, write)

	def nothing_left(self, m):
		"""statfs agrees that there is no space. (The kernel's ext4 keeps some for itself.)"""
		free = os.statvfs(m.path)
		if not KERNEL:
			self.assertLessEqual(free.f_bavail * free.f_frsize, 64 << 10)

	def full_and_kept(self, *options, mkfs=()):
		strict = KERNEL or 'direct_io' in options
		image = self.image(*mkfs, size=40 << 20)
		with self.mount(image, *options) as m:
			put(m / 'first', b'first' * 1000)
			content = self.fill(m / 'f', strict)
			self.assertGreater(len(content), 20 << 20)
			self.assertTrue(get(m / 'f') == content)
			self.nothing_left(m)
			self.refused_write(m / 'f', b'x' * 100000, len(content))
			os.truncate(m / 'f', len(content))
		with self.mount(image, *options) as m:
			self.assertTrue(get(m / 'f') == content)
			self.assertEqual(get(m / 'first'), b'first' * 1000)
			os.unlink(m / 'first')
			os.truncate(m / 'f', len(content) // 2)
			with open(m / 'f', 'rb') as f:
				os.fsync(f.fileno())
			put(m / 'again', b'y' * 1000000)
			self.assertEqual(get(m / 'again'), b'y' * 1000000)

	def test_no_space(self):
		self.full_and_kept()

	def test_no_space_direct_io(self):
		self.full_and_kept('direct_io', 'cache_size=16M')

	def test_no_space_block_map(self):
		self.full_and_kept(mkfs=('-t', 'ext2', '-b', '1024'))

	def test_holes_when_full(self):
		"""Filling a hole needs space, too; writing over what is there does not."""
		with self.mount(self.image('-b', '4096', size=40 << 20)) as m:
			with open(m / 'sparse', 'wb') as f:
				f.write(b'x' * 8192)
				f.truncate(10 << 20)
				f.flush()
				os.fsync(f.fileno())
			self.fill(m / 'f')
			with open(m / 'sparse', 'r+b', buffering=0) as f:
				f.write(b'y' * 8192)
				os.fsync(f.fileno())
			self.refused_write(m / 'sparse', b'z' * (4 << 20), 5 << 20)
			self.assertTrue(get(m / 'sparse')[:5 << 20] == b'y' * 8192 + bytes((5 << 20) - 8192))

	def test_names_when_full(self):
		"""Without a free block a directory cannot grow; what is there stays."""
		with self.mount(self.image('-b', '4096', size=40 << 20)) as m:
			os.mkdir(m / 'd')
			self.fill(m / 'f')
			made = 0
			try:
				for n in range(1000):
					os.close(os.open(m / ('d/a-name-that-takes-some-space-%d' % n), os.O_CREAT))
					made += 1
			except OSError as e:
				self.assertEqual(e.errno, errno.ENOSPC)
			self.assertGreater(made, 10)
			self.assertLess(made, 1000)
			self.assertEqual(len(os.listdir(m / 'd')), made)
			self.error(errno.ENOSPC, os.mkdir, m / 'e')

	def test_no_inodes(self):
		with self.mount(self.image('-N', '64', size=40 << 20)) as m:
			made, free = 0, os.statvfs(m.path).f_ffree
			try:
				for n in range(1000):
					os.close(os.open(m / ('f%d' % n), os.O_CREAT))
					made += 1
			except OSError as e:
				self.assertEqual(e.errno, errno.ENOSPC)
			self.assertEqual(made, free)
			self.assertEqual(os.statvfs(m.path).f_ffree, 0)
			self.error(errno.ENOSPC, os.mkdir, m / 'd')
			self.error(errno.ENOSPC, os.symlink, 'x', m / 's')
			os.unlink(m / 'f3')
			for _ in range(100):	# the inode is free when the kernel has forgotten it, soon
				if os.statvfs(m.path).f_ffree:
					break
				time.sleep(0.05)
			put(m / 'again', b'x')

	def test_reserved_blocks(self):
		"""What is reserved for root, others do not get: on a shared mount nobody does."""
		image = self.image('-m', '20', size=40 << 20)
		with self.mount(image, 'allow_other') as m:
			os.chmod(m.path, 0o777)
			with as_user():
				content = self.fill(m / 'f')
			self.nothing_left(m)
			free = os.statvfs(m.path)
			self.assertGreater(free.f_bfree * free.f_frsize, 6 << 20)
			self.assertTrue(get(m / 'f') == content)
		with self.mount(image) as m:
			put(m / 'root', b'r' * (4 << 20))
			self.assertTrue(get(m / 'f') == content)

	def test_many_writers(self):
		"""Files that fill the image together: each byte accepted is there afterwards."""
		image = self.image(size=40 << 20)
		sizes = {}
		with self.mount(image, 'direct_io') as m:
			files = [open(m / ('f%d' % n), 'wb', buffering=0) for n in range(8)]
			full = False
			while not full:
				for n, f in enumerate(files):
					try:
						sizes[n] = sizes.get(n, 0) + f.write(b'%d' % n * 30000)
					except OSError as e:
						self.assertEqual(e.errno, errno.ENOSPC)
						full = True
			for f in files:
				os.fsync(f.fileno())
				f.close()
		with self.mount(image, 'ro') as m:
			for n, size in sizes.items():
				self.assertTrue(get(m / ('f%d' % n)) == b'%d' % n * size)


class Names(MountTest):
	def test_name_too_long(self):
		with self.mount(self.image()) as m:
			long = m / ('n' * 256)
			put(m / 'f')
			for call in (lambda: put(long), lambda: os.mkdir(long), lambda: os.stat(long),
				     lambda: os.symlink('x', long), lambda: os.link(m / 'f', long),
				     lambda: os.rename(m / 'f', long), lambda: os.mkfifo(long),
				     lambda: os.unlink(long)):
				self.error(errno.ENAMETOOLONG, call)
			put(m / ('n' * 255))

	def test_symlink_too_long(self):
		for block in (1024, 4096):
			with self.mount(self.image('-b', block)) as m:
				os.symlink('x' * (block - 1), m / 'longest')
				self.assertEqual(len(os.readlink(m / 'longest')), block - 1)
				self.error(errno.ENAMETOOLONG, os.symlink, 'x' * block, m / 'longer')
				self.assertEqual(sorted(os.listdir(m.path)), ['longest', 'lost+found'])


class Sizes(MountTest):
	# The largest file: with extents 2^32 - 1 blocks, with block maps what three levels reach.
	CASES = ((('-b', '4096'), 4096 * (2**32 - 1)),
		 (('-b', '1024'), 1024 * (2**32 - 1)),
		 (('-t', 'ext2', '-b', '1024'), 1024 * (12 + 256 + 256**2 + 256**3)),
		 (('-t', 'ext3', '-b', '4096'), None))

	def test_largest_offset(self):
		for mkfs, limit in self.CASES:
			with self.subTest(mkfs=' '.join(mkfs)), \
			     self.mount(self.image(*mkfs), 'direct_io') as m:
				with open(m / 'f', 'wb', buffering=0) as f:
					self.error(errno.EFBIG, os.pwrite, f.fileno(), b'x', 1 << 61)
					self.error(errno.EFBIG, os.ftruncate, f.fileno(), 1 << 61)
					if limit:
						self.error(errno.EFBIG, os.pwrite, f.fileno(), b'x', limit)
						self.assertEqual(os.pwrite(f.fileno(), b'x', limit - 1), 1)
						self.assertEqual(os.fstat(f.fileno()).st_size, limit)
				self.assertLess(os.stat(m / 'f').st_blocks, 100)

	def test_too_far_through_the_kernels_cache(self):
		"""There the kernel takes the write, and the error comes from fsync."""
		with self.mount(self.image()) as m:
			fd = os.open(m / 'f', os.O_RDWR | os.O_CREAT)
			self.assertRaises(OSError, lambda: (os.pwrite(fd, b'x', 1 << 61), os.fsync(fd)))
			self.error(errno.EFBIG, os.ftruncate, fd, 1 << 61)
			os.ftruncate(fd, 5)
			os.close(fd)
			self.assertEqual(get(m / 'f'), bytes(5))

	def test_end_is_read_back(self):
		mkfs, limit = self.CASES[0]
		image = self.image(*mkfs)
		with self.mount(image) as m:
			with open(m / 'f', 'wb') as f:
				f.seek(limit - 5)
				f.write(b'there')
		with self.mount(image) as m:
			with open(m / 'f', 'rb') as f:
				f.seek(limit - 8)
				self.assertEqual(f.read(), b'\0\0\0there')
			os.unlink(m / 'f')


class Links(MountTest):
	def many_links(self):
		"""An image with a file and directories whose link counts are set near the limit."""
		image = self.image('-b', '4096', '-O', '^dir_nlink')
		with self.mount(image) as m:
			put(m / 'f', b'x')
			os.mkdir(m / 'd')
			os.mkdir(m / 'from')
			os.mkdir(m / 'from/sub')
		image.debugfs('set_inode_field f links_count %d' % (LINKS - 1),
			      'set_inode_field d links_count %d' % (LINKS - 1), write=True)
		return image

	def test_one_more_link(self):
		with self.mount(self.many_links(), check=False) as m:
			os.link(m / 'f', m / 'last')
			self.error(errno.EMLINK, os.link, m / 'f', m / 'more')
			self.assertEqual(os.stat(m / 'f').st_nlink, LINKS)
			os.unlink(m / 'last')
			os.link(m / 'f', m / 'more')

	def test_one_more_directory(self):
		"""Without dir_nlink a directory has a limit, too, also for what is moved into it."""
		with self.mount(self.many_links(), check=False) as m:
			os.mkdir(m / 'd/last')
			self.error(errno.EMLINK, os.mkdir, m / 'd/more')
			self.error(errno.EMLINK, os.rename, m / 'from/sub', m / 'd/sub')
			os.rename(m / 'from/sub', m / 'd/last')
			put(m / 'd/file')
			self.assertEqual(os.stat(m / 'd').st_nlink, LINKS)

	def test_many_directories_with_dir_nlink(self):
		"""With dir_nlink the count becomes 1, which says that it is not known."""
		image = self.image('-b', '4096')
		with self.mount(image) as m:
			os.mkdir(m / 'd')
			for n in range(500):	# a directory with an index: only these may have so many
				put(m / ('d/file-%d' % n))
		image.debugfs('set_inode_field d links_count %d' % (LINKS - 1), write=True)
		with self.mount(image, check=False) as m:
			for n in range(5):
				os.mkdir(m / ('d/%d' % n))
			self.assertEqual(os.stat(m / 'd').st_nlink, 1)
			for n in range(5):
				os.rmdir(m / ('d/%d' % n))
			self.assertEqual(os.stat(m / 'd').st_nlink, 1)
