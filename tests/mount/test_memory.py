# SPDX-License-Identifier: GPL-2.0-or-later
"""The daemon's memory stays bounded, whatever is written and read."""
import os
import random

from harness import LONG, SANITIZED, MountTest

TOTAL = (1024 if LONG else 256) << 20
CHUNK = 1 << 20
BOUND = (32 + 64) << 10		# kB: the cache, and what a daemon may need besides


class Memory(MountTest):
	limit = 180

	def setUp(self):
		super().setUp()
		self.not_for_kernel()
		if SANITIZED:
			self.skipTest('a sanitizer needs memory of its own')

	def bounded(self, m):
		self.assertLessEqual(m.status('VmHWM'), BOUND)

	def write_and_read(self, *options):
		"""Write a file larger than the cache, read it back in another order."""
		block = random.Random(4).randbytes(CHUNK)
		with self.mount(self.image(size=2 << 30), 'cache_size=32M', *options) as m:
			with open(m / 'file', 'wb', buffering=0) as f:
				for number in range(TOTAL // CHUNK):
					f.write(number.to_bytes(8, 'little') + block[8:])
				os.fsync(f.fileno())
			self.bounded(m)
			with open(m / 'file', 'rb', buffering=0) as f:
				os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
				for number in reversed(range(TOTAL // CHUNK)):
					data = os.pread(f.fileno(), CHUNK, number * CHUNK)
					self.assertEqual(data[:8], number.to_bytes(8, 'little'))
					self.assertTrue(data[8:] == block[8:], 'the content differs')
			self.bounded(m)

	def test_buffered(self):
		self.write_and_read()

	def test_direct_io(self):
		self.write_and_read('direct_io')

	def test_many_files(self):
		"""What is kept for each file is given back too."""
		number = 40000 if LONG else 8000
		with self.mount(self.image('-N', '65536', size=1 << 30), 'cache_size=32M') as m:
			for n in range(number):
				with open(m / ('file-%d' % n), 'wb') as f:
					f.write(b'%d' % n)
			self.bounded(m)
