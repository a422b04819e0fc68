# SPDX-License-Identifier: GPL-2.0-or-later
"""Where files lie: few extents for what is written at once, and files of very many extents."""
import ctypes
import errno
import fcntl
import os
import random
import shutil
import subprocess
import threading
import time

from harness import KERNEL, LONG, SANITIZED, MountTest, libc, run
from test_data import KEEP_SIZE, PUNCH_HOLE
from test_ops import get

MIB = 1 << 20
PIECE = 64 << 10
FS_IOC_FIEMAP = 0xc020660b


class Layout(MountTest):
	"""What e2fsprogs' filefrag counts, on a loop mount of the kernel's."""
	limit = 240

	def extents(self, image, names):
		path = self.kernel_mount(image, 'ro')
		out = run('filefrag', *(os.path.join(path, name) for name in names)).stdout
		self.kernel_umount(path)
		counts = [int(line.rsplit(': ', 1)[1].split()[0]) for line in out.splitlines()]
		self.assertEqual(len(counts), len(names), out)
		return counts

	def write_in_turn(self, top, names, size):
		files = [open(os.path.join(top, name), 'wb', buffering=0) for name in names]
		for at in range(0, size, PIECE):
			for number, f in enumerate(files):
				f.write(b'%c' % (65 + number) * PIECE)
		for f in files:
			f.close()

	def by_fuse2fs(self, names, size):
		"""How many extents fuse2fs makes of the same; None where it is not installed."""
		if not shutil.which('fuse2fs'):
			return None
		image, path = self.image(size=512 * MIB), self.directory('fuse2fs')
		daemon = subprocess.Popen(['fuse2fs', '-f', str(image), path], stdin=subprocess.DEVNULL,
					  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
		self.watchdog.tell(b'+', daemon.pid)
		end = time.monotonic() + 30
		while not os.path.ismount(path):
			if daemon.poll() is not None or time.monotonic() > end:
				return None
			time.sleep(0.01)
		self.write_in_turn(path, names, size)
		run('umount', path)
		daemon.wait(60)
		self.watchdog.tell(b'-', daemon.pid)
		return self.extents(image, names)

	def four_at_once(self, *options):
		names, size = ['one', 'two', 'three', 'four'], 64 * MIB
		image = self.image(size=512 * MIB)
		with self.mount(image, *options) as m:
			self.write_in_turn(m.path, names, size)
		counts = self.extents(image, names)
		other = self.by_fuse2fs(names, size) if LONG else None
		print('        extents of four files at once (%s): %s%s' % (
			','.join(options) or 'default', counts, '; fuse2fs: %s' % other if other else ''))
		self.assertLessEqual(max(counts), 8)

	def test_four_at_once(self):
		self.four_at_once()

	def test_four_at_once_direct_io(self):
		self.four_at_once('direct_io')

	def test_four_at_once_small_cache(self):
		self.four_at_once('direct_io', 'cache_size=16M')

	def sequential(self, *options):
		size = 1024 * MIB if LONG else 256 * MIB
		image = self.image(size=2048 * MIB)
		with self.mount(image, *options) as m:
			with open(m / 'file', 'wb', buffering=0) as f:
				for _ in range(size // MIB):
					f.write(b's' * MIB)
		counts = self.extents(image, ['file'])
		print('        extents of a file of %d MiB: %s' % (size // MIB, counts))
		self.assertLessEqual(counts[0], 16)

	def test_sequential(self):
		self.sequential()

	def test_sequential_direct_io(self):
		self.sequential('direct_io', 'cache_size=16M')


class Fiemap(MountTest):
	def test_is_not_let_through(self):
		"""What the README says: when kernels learn to ask, there is something to be written."""
		self.not_for_kernel()
		with self.mount(self.image()) as m, open(m / 'f', 'wb') as f:
			self.error(errno.EOPNOTSUPP, fcntl.ioctl, f, FS_IOC_FIEMAP, bytes(32))


class Million(MountTest):
	"""A sparse file of very many extents: each second block of 1 KiB is data."""
	limit = 240
	EXTENTS = 1000000 if LONG else 30000
	READS = 2000
	BATCH = 512

	def setUp(self):
		super().setUp()
		self.not_for_kernel()

	def block(self, number):
		return number.to_bytes(8, 'little') * 128

	def make_sparse(self, path):
		"""As make_plain(), and then a hole in each second block."""
		libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
		self.make_plain(path)
		fd = os.open(path, os.O_WRONLY)
		os.fsync(fd)
		for number in range(self.EXTENTS):
			done = libc.fallocate(fd, KEEP_SIZE | PUNCH_HOLE, number * 2048 + 1024, 1024)
			self.assertEqual(done, 0)
		os.close(fd)

	def make_plain(self, path):
		with open(path, 'wb', buffering=0) as f:
			for number in range(0, self.EXTENTS, self.BATCH):
				end = min(number + self.BATCH, self.EXTENTS)
				f.write(b''.join(self.block(n) + bytes(1024) for n in range(number, end)))

	def time_of_reads(self, path):
		"""Seconds for one block, read at random; the best of some rounds, since others work here."""
		picked, best = random.Random(3), None
		fd = os.open(path, os.O_RDONLY)
		for _ in range(5):
			began = time.monotonic()
			for _ in range(self.READS // 5):
				number = picked.randrange(self.EXTENTS - 1)
				data = os.pread(fd, 2048, number * 2048)
				self.assertTrue(data == self.block(number) + bytes(1024), 'extent %d' % number)
			took = (time.monotonic() - began) / (self.READS // 5)
			best = min(best or took, took)
		os.close(fd)
		return best

	def first_read(self, path):
		began = time.monotonic()
		fd = os.open(path, os.O_RDONLY)
		os.pread(fd, 1024, self.EXTENTS // 2 * 2048)
		os.close(fd)
		return time.monotonic() - began

	def test_random_reads(self):
		"""No read takes longer for the number of extents; memory has a bound."""
		image = self.image('-b', '1024', size=64 * MIB + 4096 * self.EXTENTS)
		options = 'direct_io', 'cache_size=16M'
		with self.mount(image, *options) as m:
			self.make_sparse(m / 'many')
			self.make_plain(m / 'few')
			peak = m.status('VmHWM')
		with self.mount(image, *options) as m:
			first = self.first_read(m / 'many')
			few = self.time_of_reads(m / 'few')
			many = self.time_of_reads(m / 'many')
			peak = max(peak, m.status('VmHWM'))
			os.unlink(m / 'many')
			peak = max(peak, m.status('VmHWM'))
		print('        %d extents: first read %.1f ms, then %.0f us; %.0f us in few extents; %d kB' % (
			self.EXTENTS, first * 1000, many * 1e6, few * 1e6, peak))
		self.assertLess(first, 0.1)
		self.assertLess(many, 4 * few)
		if not SANITIZED:
			self.assertLess(peak, 64 << 10)


class Full(MountTest):
	"""Four writers fill a disk, with large files and with files of one byte."""
	limit = 240
	WRITERS = 4

	def free(self, image):
		lines = run('dumpe2fs', '-h', image, stderr=subprocess.DEVNULL, stdout=subprocess.PIPE).stdout
		return [int(line.split()[-1]) for line in lines.splitlines() if line.startswith('Free ')]

	def store(self, path, content, sync):
		"""Returns the bytes that were accepted, and whether there was space for all."""
		done, full = 0, False
		try:
			fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
		except OSError as e:
			self.assertEqual(e.errno, errno.ENOSPC)
			return None, True
		try:
			while done < len(content):
				part = os.write(fd, content[done:done + 100000])
				if sync:
					os.fsync(fd)
				done += part
		except OSError as e:
			self.assertEqual(e.errno, errno.ENOSPC)
			full = True
			os.ftruncate(fd, done)	# what was not accepted may be there or not
			os.fsync(fd)
		os.close(fd)
		return content[:done], full

	def writer(self, top, number, held, sync):
		"""Large files and tiny ones until there is no room for a large one, then tiny ones."""
		picked, large, files = random.Random(number), True, 0
		while True:
			size = picked.randrange(1, 3 * MIB) if large and picked.randrange(3) else 1
			path = 'w%d-%d' % (number, files)
			files += 1
			content, full = self.store(os.path.join(top, path), picked.randbytes(size), sync)
			if content is not None:
				held[path] = content
			if full and (size == 1 or not large):
				return
			large = large and not full

	def work(self, top, held, sync):
		failures = []

		def guarded(number):
			try:
				self.writer(top, number, held, sync)
			except BaseException as e:
				failures.append(e)

		threads = [threading.Thread(target=guarded, args=(number,)) for number in range(self.WRITERS)]
		for thread in threads:
			thread.start()
		for thread in threads:
			thread.join()
		for failure in failures:
			raise failure

	def fill(self, *options, mkfs=(), size=40 * MIB):
		image = self.image('-N', '16384', *mkfs, size=size)
		with self.mount(image, *options):
			pass	# what a mount itself may change is no part of it
		before = self.free(image)
		held = {}
		with self.mount(image, *options) as m:
			os.mkdir(m / 'd')
			self.work(m / 'd', held, 'direct_io' not in options and not KERNEL)
			left = os.statvfs(m.path)
			if not KERNEL:
				self.assertLess(left.f_bavail, 32)
		self.assertGreater(sum(map(len, held.values())), size // 2)
		self.assertGreater(sum(len(content) == 1 for content in held.values()), 10)
		with self.mount(image, *options) as m:
			for path, content in held.items():
				self.assertTrue(get(m / ('d/' + path)) == content, path)
			self.assertLessEqual(set(held), set(os.listdir(m / 'd')))
			shutil.rmtree(m / 'd')
		self.assertEqual(self.free(image), before)

	def test_direct_io(self):
		self.fill('direct_io', size=(400 if LONG else 40) * MIB)

	def test_small_cache(self):
		self.fill('direct_io', 'cache_size=16M', mkfs=('-b', '1024'))

	def test_kernels_cache(self):
		self.fill()

	def test_block_map(self):
		self.fill('direct_io', mkfs=('-t', 'ext2', '-b', '1024'))
