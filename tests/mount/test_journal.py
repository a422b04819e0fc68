# SPDX-License-Identifier: GPL-2.0-or-later
"""Journals that the kernel wrote and did not empty.

An image is copied while the kernel has it mounted and rests. The journal of the copy is replayed by
foliofs and, on another copy, by e2fsck: no block outside the journal may differ but the superblock
(there the two note when they were there; the suites of tests/fs compare its fields).
"""
import hashlib
import os
import shutil
import stat
import struct
import subprocess
import tempfile

from harness import MountTest, run
from test_ops import get, put


def commit(path):
	"""Have the kernel commit; unlike sync that leaves metadata for the replay to write."""
	fd = os.open(path, os.O_RDONLY)
	os.fsync(fd)
	os.close(fd)


def work(top):
	"""A bit of everything that puts blocks into a journal, and takes them out again."""
	for n in range(4):
		os.mkdir(os.path.join(top, 'd%d' % n))
		for i in range(25):
			put(os.path.join(top, 'd%d/f%d' % (n, i)), b'%d ' % (n * 100 + i) * (i * 40))
		commit(top)
	for i in range(0, 25, 3):
		os.rename(os.path.join(top, 'd0/f%d' % i), os.path.join(top, 'd1/moved%d' % i))
		os.unlink(os.path.join(top, 'd2/f%d' % i))
		os.truncate(os.path.join(top, 'd3/f%d' % i), i * 13)
	os.symlink('x' * 200, os.path.join(top, 'symlink'))
	os.link(os.path.join(top, 'd1/f1'), os.path.join(top, 'hard'))
	os.setxattr(os.path.join(top, 'hard'), 'user.attr', b'v' * 300)
	commit(top)
	# Blocks of directories and maps become free, and then those of files.
	os.mkdir(os.path.join(top, 'large'))
	for i in range(150):
		put(os.path.join(top, 'large', '%d' % i + 'n' * 200), b'')
	with open(os.path.join(top, 'sparse'), 'xb') as f:
		for i in range(150):
			f.seek(i * 12288)
			f.write(b's')
	commit(top)
	commit(os.path.join(top, 'sparse'))
	shutil.rmtree(os.path.join(top, 'large'))
	os.unlink(os.path.join(top, 'sparse'))
	commit(top)
	full = os.path.join(top, 'full')
	with open(full, 'xb') as f:
		try:
			while True:
				f.write(b'full' * 4096)
		except OSError:
			pass
	os.truncate(full, os.stat(full).st_size // 2)
	commit(full)


def go_round(top):
	"""Fill a log of 1,024 blocks once, so that what follows goes round its end."""
	path = os.path.join(top, 'often')
	put(path, b'')
	for n in range(150):
		os.rename(path, path + 'x')
		os.rename(path + 'x', path)
		os.utime(path, (n, n))
		commit(path)
	work(top)


def content(top):
	"""All names under a directory, with what is there."""
	found = {}
	for where, dirs, files in os.walk(top):
		for name in dirs + files:
			path = os.path.join(where, name)
			st = os.lstat(path)
			what = [st.st_mode, st.st_nlink, st.st_size, st.st_mtime_ns, os.listxattr(path, follow_symlinks=False)]
			if stat.S_ISREG(st.st_mode):
				what.append(hashlib.sha1(get(path)).digest())
			elif stat.S_ISLNK(st.st_mode):
				what.append(os.readlink(path))
			found[os.path.relpath(path, top)] = what
	return found


class Blocks:
	"""An image as blocks."""

	def __init__(self, path):
		self.bytes = get(path)
		self.size = 1024 << struct.unpack_from('<I', self.bytes, 1024 + 24)[0]
		listed = run('debugfs', '-R', 'blocks <8>', path, stderr=subprocess.DEVNULL,
			     stdout=subprocess.PIPE).stdout.split()
		self.journal = {int(word) for word in listed if word.isdigit()}

	def differ(self, other):
		"""The blocks that differ, outside the journal and but for the superblock."""
		span = range(0, len(self.bytes), self.size)
		return [at // self.size for at in span
			if self.bytes[at:at + self.size] != other.bytes[at:at + self.size]
			and at // self.size not in self.journal and at // self.size != 1024 // self.size]


class Journal(MountTest):
	def setUp(self):
		super().setUp()
		self.not_for_kernel()
		# In memory if that can be: the kernel and e2fsck flush a lot.
		self.room = tempfile.mkdtemp(prefix='foliofs-test-',
					     dir='/dev/shm' if os.path.isdir('/dev/shm') else None)
		self.addCleanup(shutil.rmtree, self.room)

	def file(self, name):
		self.count += 1
		return os.path.join(self.room, '%d-%s' % (self.count, name))

	def dirty(self, mkfs, options=(), work=work):
		"""A copy of an image that the kernel has mounted."""
		image = self.image(*mkfs, size=16 << 20)
		there = self.kernel_mount(image, 'commit=300', *options)
		work(there)
		path = self.file('dirty.img')
		shutil.copy(image.path, path)
		self.kernel_umount(there)
		self.assertIn('needs_recovery', run('dumpe2fs', '-h', path).stdout)
		return path

	def replay(self, mkfs, options=(), work=work):
		path = self.dirty(mkfs, options, work)
		before, other = Blocks(path), self.file('e2fsck.img')
		shutil.copy(path, other)
		done = run('e2fsck', '-p', '-E', 'journal_only', other, check=False)
		self.assertIn(done.returncode, (0, 1), done.stdout)
		with self.mount(path, 'ro', check=False) as m:
			seen = content(m.path)
		self.assertEqual(before.bytes, get(path), 'a read-only mount has written')
		with self.mount(path, check=False):
			pass	# looking at files would change their times
		ours, theirs = Blocks(path), Blocks(other)
		self.assertEqual(ours.differ(theirs), [])
		self.assertGreater(len(ours.differ(before)), 5, 'there was nothing to replay')
		done = run('e2fsck', '-fn', path, check=False)
		self.assertEqual(done.returncode, 0, done.stdout)
		self.assertEqual(content(self.kernel_mount(path, 'ro')), seen)

	def test_log_that_goes_round(self):
		self.replay(('-b', '1024', '-J', 'size=1'), work=go_round)

	def test_4k(self):
		self.replay(('-b', '4096', '-J', 'size=4', '-O', '^64bit'))

	def test_ext3(self):
		self.replay(('-t', 'ext3', '-b', '1024'))

	def test_checksum_of_transactions(self):
		self.replay(('-O', '^metadata_csum'), ('journal_checksum',))

	def test_asynchronous_commits(self):
		self.replay(('-O', '^metadata_csum'), ('journal_async_commit', 'data=writeback'))
		self.replay((), ('journal_async_commit', 'data=writeback'))

	def test_data_in_the_journal(self):
		self.replay(('-b', '1024', '-J', 'size=4'), ('data=journal',))

	def test_fast_commits(self):
		"""e2fsck does it, where it can be run."""
		def some(there):
			put(os.path.join(there, 'a'), b'a')
			run('sync', '-f', there)
			for n in range(3):
				put(os.path.join(there, 'b%d' % n), b'b' * 5000)
				commit(os.path.join(there, 'b%d' % n))

		path = self.dirty(('-b', '4096', '-J', 'size=5', '-O', 'fast_commit'), work=some)
		before = get(path)
		with self.assertRaises(AssertionError) as failed:
			self.mount(path, 'ro', check=False).start()
		self.assertIn('e2fsck -p -E journal_only', str(failed.exception))
		self.assertEqual(before, get(path))
		with self.mount(path, check=False) as m:
			self.assertEqual(get(m / 'b2'), b'b' * 5000)

	def test_norecovery(self):
		"""It leaves the journal and the whole image alone."""
		path = self.dirty(())
		before = get(path)
		with self.mount(path, 'norecovery', check=False) as m:
			os.listdir(m.path)
		self.assertEqual(get(path), before)

	def test_behind_offset(self):
		path, moved = self.dirty(()), self.file('moved.img')
		put(moved, bytes(1 << 20) + get(path))
		with self.mount(path, 'ro', check=False) as m:
			seen = content(m.path)
		with self.mount(moved, 'offset=1M', check=False) as m:
			self.assertEqual(content(m.path), seen)

	def test_orphans_are_cleaned(self):
		"""Files that were deleted but open when the kernel stopped."""
		image = self.image(size=32 << 20)
		there = self.kernel_mount(image)
		with open(put(os.path.join(there, 'gone'), b'x' * 5000000), 'rb'):
			os.unlink(os.path.join(there, 'gone'))
			run('sync', '-f', there)
			path = self.file('dirty.img')
			shutil.copy(image.path, path)
		self.kernel_umount(there)
		with self.mount(path, check=False):
			pass
		done = run('e2fsck', '-fn', path, check=False)
		self.assertEqual(done.returncode, 0, done.stdout)
