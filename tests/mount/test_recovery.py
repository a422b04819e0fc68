# SPDX-License-Identifier: GPL-2.0-or-later
"""After a crash of the daemon. What the kernel leaves is in test_journal.py."""
import os
import random
import shutil

from harness import MountTest, run
from test_ops import get, put


class Killed(MountTest):
	"""kill -9 of the daemon: what was fsynced is there, the rest is replayed or can be repaired."""

	def setUp(self):
		super().setUp()
		self.not_for_kernel()

	def repair(self, image):
		"""e2fsck without questions must be able to put everything right."""
		done = run('e2fsck', '-fy', image, check=False)
		self.assertIn(done.returncode, (0, 1), done.stdout)
		image.check()

	def crash(self, work, *options, mkfs=()):
		"""Work, kill the daemon, look at the image; `work` gives {name: content} of what is synced."""
		image = self.image(*mkfs)
		with self.mount(image, check=False) as m:
			put(m / 'old', b'old' * 10000)
		m = self.mount(image, *options, check=False).start()
		synced = work(m)
		m.kill()
		self.assertTrue(image.needs_recovery() or not image.clean_flag())
		copy = self.file('copy.img')
		shutil.copy(image.path, copy)
		self.repair(image)
		there = self.kernel_mount(image, 'ro')
		synced['old'] = b'old' * 10000
		for name, content in synced.items():
			self.assertTrue(get(os.path.join(there, name)) == content, name + ' differs after e2fsck')
		return copy, synced

	def sync(self, path):
		fd = os.open(path, os.O_RDONLY)
		os.fsync(fd)
		os.close(fd)

	def test_fsynced_file(self):
		content = random.Random(1).randbytes(3 << 20)

		def work(m):
			put(m / 'f', content)
			self.sync(m / 'f')
			put(m / 'never synced', b'x' * 100000)
			return {'f': content}

		self.crash(work)
		self.crash(work, 'direct_io')
		self.crash(work, mkfs=('-t', 'ext2', '-b', '1024'))

	def test_many_files(self):
		def work(m):
			os.mkdir(m / 'd')
			found = {}
			for n in range(60):
				name = 'd/f%d' % n
				found[name] = b'%d' % n * 1000
				put(m / name, found[name])
				self.sync(m / name)
			return found

		self.crash(work)

	def test_fsynced_directory(self):
		def work(m):
			put(m / 'a', b'a' * 5000)
			self.sync(m / 'a')
			os.rename(m / 'a', m / 'b')
			self.sync(m.path)
			return {'b': b'a' * 5000}

		self.crash(work)

	def test_replaced_by_rename(self):
		"""Write another file, fsync it, rename it over the old: old or new, never a mixture."""
		def work(m):
			put(m / 'f', b'one' * 3000)
			self.sync(m / 'f')
			put(m / 'g', b'two' * 3000)
			self.sync(m / 'g')
			os.rename(m / 'g', m / 'f')
			self.sync(m.path)
			return {'f': b'two' * 3000}

		self.crash(work)

	def test_unlinked_while_open(self):
		"""The space of a file that was deleted but open comes back."""
		def work(m):
			self.held = open(put(m / 'gone', b'x' * 5000000), 'rb')
			os.unlink(m / 'gone')
			self.sync(m.path)
			put(m / 'f', b'y')
			self.sync(m / 'f')
			return {'f': b'y'}

		self.crash(work)
		self.held.close()

	def test_mounts_again(self):
		"""Without e2fsck the image mounts, and has what was synced: from the journal, or without one."""
		def work(m):
			put(m / 'f', b'synced' * 1000)
			self.sync(m / 'f')
			return {'f': b'synced' * 1000}

		copy, synced = self.crash(work)
		with self.mount(copy, check=False) as m:
			self.assertIn('replayed', m.output())
			for name, content in synced.items():
				self.assertTrue(get(m / name) == content)
		done = run('e2fsck', '-fn', copy, check=False)
		self.assertEqual(done.returncode, 0, done.stdout)
		copy, synced = self.crash(work, mkfs=('-O', '^has_journal'))
		with self.mount(copy, check=False) as m:
			self.assertIn('clean', m.output())
			for name, content in synced.items():
				self.assertTrue(get(m / name) == content)
		self.assertEqual(run('e2fsck', '-fy', copy, check=False).returncode & ~1, 0)
