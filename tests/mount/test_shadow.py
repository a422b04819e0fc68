# SPDX-License-Identifier: GPL-2.0-or-later
"""shadow_storm: all kinds of work on the same files at once, each with a shadow that says what must be read."""
import filecmp
import os
import time

from harness import FOLIOFS, LONG, MountTest, run

STORM = os.path.join(os.path.dirname(FOLIOFS), '..', 'tests', 'mount', 'shadow_storm')
SECONDS = 75 if LONG else 4
FILES = 4


class Shadow(MountTest):
	limit = 60 + 4 * SECONDS

	def compare(self, path, copies):
		for number in range(FILES):
			name = 'file%d' % number
			self.assertTrue(filecmp.cmp(os.path.join(path, name), os.path.join(copies, name), shallow=False),
					name + ' differs')

	def storm(self, *options, mkfs=(), mmap=True, kernel=True):
		"""The storm, the unmount, e2fsck, and what the kernel's own ext4 finds in the image."""
		image, copies = self.image(*mkfs, size=256 << 20), self.directory('copies')
		words = [] if mmap else ['--no-mmap']
		with self.mount(image, *options) as m:
			done = run(STORM, '--seed', time.time_ns(), '--seconds', SECONDS, *words, m.path, copies,
				   check=False)
			self.assertEqual(done.returncode, 0, done.stdout + m.output())
			print(done.stdout.splitlines()[-1])
		if kernel:
			path = self.kernel_mount(image)
			self.compare(path, copies)
			self.kernel_umount(path)
		else:
			with self.mount(image, 'ro') as m:
				self.compare(m.path, copies)

	def test_default(self):
		self.storm()

	def test_small_cache(self):
		self.storm('cache_size=4M')

	def test_small_blocks(self):
		self.storm('cache_size=4M', mkfs=('-b', '1024'))

	def test_large_blocks(self):
		"""Of 64 KiB, with the least cache that is allowed. Few kernels mount them."""
		self.storm('cache_size=32M', mkfs=('-b', '65536'), kernel=False)

	def test_block_map(self):
		self.storm('cache_size=4M', mkfs=('-O', '^extent,^64bit,^has_journal'))

	def test_direct_io(self):
		self.storm('cache_size=4M', 'direct_io', mmap=False)
