# SPDX-License-Identifier: GPL-2.0-or-later
"""Images whose blocks are larger than a page, which few kernels mount: e2fsck and debugfs look at them."""
import errno
import os

from compare import compare
from harness import KERNEL, run
import test_data
from test_ops import get, put

PART = '/usr/include/linux'


class Blocks8K(test_data.OneMount):
	block = 8192
	mkfs = ('-b', '8192')
	indirect = 0
	zero = test_data.Data.zero

	def setUp(self):
		if KERNEL:
			self.skipTest('the kernel need not mount these')
		super().setUp()

	test_random_writes_against_a_model = test_data.Data.test_random_writes_against_a_model
	test_truncated_end_is_zero_when_it_grows = test_data.Data.test_truncated_end_is_zero_when_it_grows
	test_end_of_file = test_data.Data.test_end_of_file

	def test_tree(self):
		"""What was copied in is there after a new mount, and for debugfs."""
		run('cp', '-a', PART, self.m / 'tree')
		self.assertEqual(compare(PART, self.m / 'tree', directory_links=False), [])
		self.again()
		self.assertEqual(compare(PART, self.m / 'tree', directory_links=False), [])
		self.m.stop()
		dump = self.directory('dump')
		self.disk.debugfs('rdump tree %s' % dump)
		run('diff', '-r', PART, os.path.join(dump, 'tree'))

	def test_many_names(self):
		"""A directory that grows an index, and shrinks."""
		os.mkdir(self.m / 'd')
		names = ['%05d' % i + 'n' * (i * 7 % 200) for i in range(4000)]
		for name in names:
			put(self.m / 'd/' + name)
		self.assertEqual(sorted(os.listdir(self.m / 'd')), sorted(names))
		self.again()
		self.assertEqual(sorted(os.listdir(self.m / 'd')), sorted(names))
		for name in names[::2]:
			os.unlink(self.m / 'd/' + name)
		for name in names[1::4]:
			os.rename(self.m / 'd/' + name, self.m / 'd/' + name + '_')
		self.again()
		left = sorted(names[3::4] + [name + '_' for name in names[1::4]])
		self.assertEqual(sorted(os.listdir(self.m / 'd')), left)

	def test_attributes_and_symlinks(self):
		put(self.m / 'f')
		value = bytes(range(256)) * 10
		os.setxattr(self.m / 'f', 'user.a', value)
		os.setxattr(self.m / 'f', 'user.b', b'b')
		os.symlink('x' * 3000, self.m / 'l')
		self.again()
		self.assertEqual(os.getxattr(self.m / 'f', 'user.a'), value)
		self.assertEqual(os.readlink(self.m / 'l'), 'x' * 3000)
		os.removexattr(self.m / 'f', 'user.a')
		os.removexattr(self.m / 'f', 'user.b')
		self.again()
		self.assertEqual(os.listxattr(self.m / 'f'), [])

	def test_holes(self):
		"""A hole frees whole blocks and no others; cut blocks keep the rest."""
		b = self.block
		content = bytearray(os.urandom(20 * b + 100))
		f = self.new(content=bytes(content))
		os.fsync(f.fileno())
		self.fallocate(f, 2 | 1, 3 * b + 10, 5 * b)
		content[3 * b + 10:8 * b + 10] = bytes(5 * b)
		f.close()
		self.holds('f', bytes(content))
		self.assertEqual(self.allocated(self.m / 'f'), (21 - 4 + self.indirect) * b)

	def test_full(self):
		"""Everything that was accepted when the image is full is there."""
		content = os.urandom(1 << 20)
		with open(self.m / 'f', 'wb', buffering=0) as f:
			at = 0
			try:
				while f.write(content) == len(content):
					os.fsync(f.fileno())
					at += len(content)
			except OSError as e:
				self.assertEqual(e.errno, errno.ENOSPC)
			os.ftruncate(f.fileno(), at)
		self.again()
		self.assertEqual(os.stat(self.m / 'f').st_size, at)
		with open(self.m / 'f', 'rb') as f:
			for _ in range(at >> 20):
				self.assertTrue(f.read(1 << 20) == content)


class Blocks16KNoSums(Blocks8K):
	block = 16384
	mkfs = ('-b', '16384', '-O', '^metadata_csum')


class Blocks32KInline(Blocks8K):
	block = 32768
	mkfs = ('-b', '32768', '-O', 'inline_data', '-I', '512')


class Blocks64K(Blocks8K):
	block = 65536
	mkfs = ('-b', '65536')


class Blocks64KNoSums(Blocks8K):
	"""Entries of a directory can be 65536 bytes long then, which has no 16 bits."""
	block = 65536
	mkfs = ('-b', '65536', '-O', '^metadata_csum,^has_journal')


class Blocks64KBlockMap(Blocks8K):
	block = 65536
	mkfs = ('-t', 'ext2', '-b', '65536')
	zero = 2	# holes instead
	indirect = 1


class Blocks64KDirect(Blocks8K):
	block = 65536
	mkfs = ('-b', '65536')
	options = test_data.OneMount.options + ('direct_io', 'cache_size=32M')
