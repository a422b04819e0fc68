# SPDX-License-Identifier: GPL-2.0-or-later
"""What is in files: writing, holes, truncation, fallocate, seeking, copying, mapping, ioctls."""
import ctypes
import errno
import fcntl
import json
import mmap
import os
import random
import struct
import threading
import time

from harness import KERNEL, foliofs, libc, run
from test_ops import OneMount as Base, get, put

KEEP_SIZE, PUNCH_HOLE, COLLAPSE, ZERO_RANGE, INSERT = 1, 2, 8, 16, 32
FS_IOC_GETFLAGS, FS_IOC_SETFLAGS = 0x80086601, 0x40086602
FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR = 0x801c581f, 0x401c5820
FS_IOC_GETFSLABEL, FS_IOC_SETFSLABEL, FITRIM = 0x81009431, 0x41009432, 0xc0185879
IMMUTABLE, APPEND, NODUMP, NOATIME, EXTENTS = 0x10, 0x20, 0x40, 0x80, 0x80000
K = 1024


class OneMount(Base):
	@classmethod
	def setUpClass(cls):
		super().setUpClass()
		libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]

	def fallocate(self, f, mode, offset, length):
		if libc.fallocate(f.fileno(), mode, offset, length) != 0:
			number = ctypes.get_errno()
			raise OSError(number, os.strerror(number))

	def new(self, name='f', content=b''):
		put(self.m / name, content)
		f = open(self.m / name, 'r+b', buffering=0)
		self.files.append(f)
		return f

	def allocated(self, path):
		return os.stat(path).st_blocks * 512

	def holds(self, path, content):
		"""The file has just this content, in this mount and from the image."""
		self.assertTrue(get(self.m / path) == content, path + ' differs in the mount')
		self.again()
		self.assertTrue(get(self.m / path) == content, path + ' differs after a new mount')


class Data(OneMount):
	zero = ZERO_RANGE

	def test_random_writes_against_a_model(self):
		"""Writes, reads, truncations, holes: the file always is what an array would be."""
		picked = random.Random(11)
		model = bytearray()
		f = self.new()
		for step in range(1500):
			at, length = picked.randrange(300 * K), picked.randrange(1, 20 * K)
			what = picked.randrange(10)
			if what < 5:
				data = picked.randbytes(length)
				os.pwrite(f.fileno(), data, at)
				model.extend(bytes(max(0, at - len(model))))
				model[at:at + length] = data
			elif what < 7:
				self.assertTrue(os.pread(f.fileno(), length, at) == model[at:at + length])
			elif what == 7:
				size = picked.randrange(300 * K)
				os.ftruncate(f.fileno(), size)
				del model[size:]
				model.extend(bytes(size - len(model)))
			elif what == 8:
				self.fallocate(f, PUNCH_HOLE | KEEP_SIZE, at, length)
				end = min(at + length, len(model))
				if at < end:
					model[at:end] = bytes(end - at)
			elif step % 3 == 0:
				os.fsync(f.fileno())
			else:
				self.fallocate(f, self.zero | KEEP_SIZE, at, length)
				end = min(at + length, len(model))
				if at < end:
					model[at:end] = bytes(end - at)
		f.close()
		self.holds('f', bytes(model))

	def test_sparse(self):
		f = self.new()
		places = (0, 5000, 1 << 20, 100 << 20, 3 << 30)
		for at in places:
			os.pwrite(f.fileno(), b'data at %d' % at, at)
		f.close()
		self.assertLess(self.allocated(self.m / 'f'), 100 * K)
		self.again()
		with open(self.m / 'f', 'rb') as f:
			for at in places:
				self.assertEqual(os.pread(f.fileno(), 20, at)[:5], b'data ')
			self.assertEqual(os.pread(f.fileno(), 100, 50 << 20), bytes(100))
			self.assertEqual(os.fstat(f.fileno()).st_size, (3 << 30) + len(b'data at %d' % (3 << 30)))

	def test_end_of_file(self):
		f = self.new(content=b'0123456789')
		self.assertEqual(os.pread(f.fileno(), 100, 5), b'56789')
		self.assertEqual(os.pread(f.fileno(), 100, 10), b'')
		self.assertEqual(os.pread(f.fileno(), 100, 1 << 30), b'')

	def test_truncated_end_is_zero_when_it_grows(self):
		for size in (10, 1000, 4096, 5000):
			f = self.new('f%d' % size, b'\xff' * 20000)
			os.ftruncate(f.fileno(), size)
			os.ftruncate(f.fileno(), 20000)
			self.assertTrue(get(self.m / ('f%d' % size)) == b'\xff' * size + bytes(20000 - size))
			f.close()
		self.again()
		for size in (10, 1000, 4096, 5000):
			self.assertTrue(get(self.m / ('f%d' % size)) == b'\xff' * size + bytes(20000 - size))

	def test_truncate_frees(self):
		f = self.new(content=b'x' * (1 << 20))
		os.fsync(f.fileno())
		self.assertGreaterEqual(self.allocated(self.m / 'f'), 1 << 20)
		os.ftruncate(f.fileno(), 0)
		os.fsync(f.fileno())
		self.assertLessEqual(self.allocated(self.m / 'f'), 4 * K)

	def test_append(self):
		"""Two descriptors that append never write over each other."""
		put(self.m / 'f')

		def work(mark):
			fd = os.open(self.m / 'f', os.O_WRONLY | os.O_APPEND)
			for _ in range(500):
				os.write(fd, mark * 100)
			os.close(fd)

		threads = [threading.Thread(target=work, args=(mark,)) for mark in (b'a', b'b')]
		for thread in threads:
			thread.start()
		for thread in threads:
			thread.join()
		content = get(self.m / 'f')
		self.assertEqual((content.count(b'a' * 100), len(content)), (content.count(b'a') // 100, 100000))
		self.assertEqual(content.count(b'a'), 50000)

	def test_o_trunc(self):
		put(self.m / 'f', b'long content')
		put(self.m / 'f', b'short')
		self.holds('f', b'short')

	def test_o_direct(self):
		data = mmap.mmap(-1, 64 * K)
		data.write(random.Random(2).randbytes(64 * K))
		fd = os.open(self.m / 'f', os.O_RDWR | os.O_CREAT | os.O_DIRECT)
		os.pwrite(fd, data, 4096)
		back = mmap.mmap(-1, 64 * K)
		os.preadv(fd, [back], 4096)
		os.close(fd)
		self.assertTrue(back[:] == data[:])
		self.holds('f', bytes(4096) + data[:])

	def test_mapping(self):
		f = self.new(content=bytes(100 * K))
		with mmap.mmap(f.fileno(), 100 * K) as mapped:
			mapped[5000:5005] = b'hello'
			mapped.flush()
			self.assertEqual(os.pread(f.fileno(), 5, 5000), b'hello')
			mapped[99 * K:99 * K + 5] = b'there'
		f.close()
		expected = bytearray(100 * K)
		expected[5000:5005] = b'hello'
		expected[99 * K:99 * K + 5] = b'there'
		self.holds('f', bytes(expected))

	def test_fsync(self):
		f = self.new(content=b'x')
		os.fsync(f.fileno())
		os.fdatasync(f.fileno())
		fd = os.open(self.m.path, os.O_RDONLY)
		os.fsync(fd)
		os.close(fd)

	def test_two_readers_and_a_writer(self):
		"""A block that is being replaced is read old or new, never mixed or zero."""
		f = self.new(content=b'a' * 4096)
		stop, wrong = threading.Event(), []

		def read():
			fd = os.open(self.m / 'f', os.O_RDONLY)
			while not stop.is_set():
				data = os.pread(fd, 4096, 0)
				if data.count(0) or len(data) != 4096:
					wrong.append(data)
			os.close(fd)

		threads = [threading.Thread(target=read) for _ in range(2)]
		for thread in threads:
			thread.start()
		for n in range(300):
			os.pwrite(f.fileno(), b'%c' % (97 + n % 26) * 4096, 0)
		stop.set()
		for thread in threads:
			thread.join()
		self.assertEqual(wrong, [])


	def test_many_small_files_read_in_turn(self):
		"""They are read from the image together, whatever the order, and each is itself."""
		def content(number):
			return struct.pack('<I', number) * (1 + number * 37 % 5000)

		for directory in range(4):
			os.mkdir(self.m / ('d%d' % directory))
		for number in range(400):
			put(self.m / ('d%d/%03d' % (number // 100, number)), content(number))
		for order in (None, random.Random(5).shuffle):
			self.again()
			for directory in range(4):
				names = [entry.name for entry in os.scandir(self.m / ('d%d' % directory)) if entry.stat()]
				self.assertEqual(len(names), 100)
				if order:
					order(names)
				for name in names:
					with open(self.m / ('d%d/%s' % (directory, name)), 'rb') as f:
						self.assertTrue(f.read() == content(int(name)), name)
			if not KERNEL:
				figures = json.loads(foliofs('stats', '--json', self.m.path).stdout)
				self.assertGreater(figures['readahead_files'], 100)


class Allocation(OneMount):
	def test_allocate(self):
		f = self.new(content=b'begin')
		self.fallocate(f, 0, 0, 1 << 20)
		self.assertEqual(os.fstat(f.fileno()).st_size, 1 << 20)
		self.assertGreaterEqual(self.allocated(self.m / 'f'), 1 << 20)
		os.pwrite(f.fileno(), b'middle', 500000)
		f.close()
		expected = bytearray(1 << 20)
		expected[:5], expected[500000:500006] = b'begin', b'middle'
		self.holds('f', bytes(expected))

	def test_keep_size(self):
		f = self.new(content=b'begin')
		self.fallocate(f, KEEP_SIZE, 0, 1 << 20)
		self.assertEqual(os.fstat(f.fileno()).st_size, 5)
		self.assertGreaterEqual(self.allocated(self.m / 'f'), 1 << 20)
		f.close()
		self.holds('f', b'begin')
		self.assertGreaterEqual(self.allocated(self.m / 'f'), 1 << 20)

	def test_punch_hole(self):
		content = random.Random(3).randbytes(1 << 20)
		f = self.new(content=content)
		self.fallocate(f, PUNCH_HOLE | KEEP_SIZE, 100 * K + 7, 500 * K)
		self.fallocate(f, PUNCH_HOLE | KEEP_SIZE, 3, 5)
		self.fallocate(f, PUNCH_HOLE | KEEP_SIZE, 1 << 20, 1 << 20)
		self.error(errno.EOPNOTSUPP, self.fallocate, f, PUNCH_HOLE, 0, 4096)
		os.fsync(f.fileno())
		self.assertLess(self.allocated(self.m / 'f'), (1 << 20) - 480 * K)
		expected = bytearray(content)
		expected[100 * K + 7:600 * K + 7] = bytes(500 * K)
		expected[3:8] = bytes(5)
		f.close()
		self.holds('f', bytes(expected))

	def test_zero_range(self):
		content = random.Random(3).randbytes(1 << 20)
		f = self.new(content=content)
		self.fallocate(f, ZERO_RANGE, 100 * K + 7, 500 * K)
		self.fallocate(f, ZERO_RANGE, (1 << 20) - 10, 1000)
		self.assertEqual(os.fstat(f.fileno()).st_size, (1 << 20) + 990)
		self.fallocate(f, ZERO_RANGE | KEEP_SIZE, 1 << 20, 100000)
		self.assertEqual(os.fstat(f.fileno()).st_size, (1 << 20) + 990)
		expected = bytearray(content) + bytes(990)
		expected[100 * K + 7:600 * K + 7] = bytes(500 * K)
		expected[(1 << 20) - 10:1 << 20] = bytes(10)
		f.close()
		self.holds('f', bytes(expected))

	def test_bad_arguments(self):
		f = self.new(content=b'x')
		self.error(errno.EINVAL, self.fallocate, f, 0, 0, 0)
		self.error(errno.EINVAL, self.fallocate, f, 0, -1, 10)
		self.error(errno.EFBIG, self.fallocate, f, 0, 1 << 62, 1 << 61)
		with open(self.m / 'f', 'rb') as reader:
			self.error(errno.EBADF, self.fallocate, reader, 0, 0, 10)

	def test_no_space(self):
		"""What does not fit fails, and leaves size and content as they were."""
		f = self.new(content=b'kept')
		self.error(errno.ENOSPC, self.fallocate, f, 0, 0, 1 << 30)
		self.assertEqual(get(self.m / 'f')[:4], b'kept')
		put(self.m / 'g', b'there is room again' if os.fstat(f.fileno()).st_size == 4 else b'')
		f.close()


class Seek(OneMount):
	def layout(self, f):
		"""The data ranges of a file, by SEEK_DATA and SEEK_HOLE."""
		found, at, size = [], 0, os.fstat(f.fileno()).st_size
		while at < size:
			try:
				data = os.lseek(f.fileno(), at, os.SEEK_DATA)
			except OSError as e:
				self.assertEqual(e.errno, errno.ENXIO)
				break
			at = os.lseek(f.fileno(), data, os.SEEK_HOLE)
			found.append((data, at))
		return found

	def test_holes(self):
		f = self.new()
		os.pwrite(f.fileno(), b'x' * 64 * K, 128 * K)
		os.pwrite(f.fileno(), b'x' * 64 * K, 512 * K)
		os.ftruncate(f.fileno(), 1 << 20)
		expected = [(128 * K, 192 * K), (512 * K, 576 * K)]
		self.assertEqual(self.layout(f), expected)
		f.close()
		self.again()
		with open(self.m / 'f', 'rb') as f:
			self.assertEqual(self.layout(f), expected)
			self.assertEqual(os.lseek(f.fileno(), 0, os.SEEK_HOLE), 0)
			self.error(errno.ENXIO, os.lseek, f.fileno(), 1 << 20, os.SEEK_DATA)
			self.error(errno.ENXIO, os.lseek, f.fileno(), 600 * K, os.SEEK_DATA)

	def test_full_file(self):
		f = self.new(content=b'x' * 100000)
		self.assertEqual(self.layout(f), [(0, 100000)])

	def test_unwritten_is_a_hole(self):
		f = self.new()
		self.fallocate(f, 0, 0, 1 << 20)
		os.fsync(f.fileno())
		self.assertEqual(self.layout(f), [])
		os.pwrite(f.fileno(), b'x' * 4096, 256 * K)
		os.fsync(f.fileno())	# FUSE does not look into the kernel's cache for this
		self.assertEqual(self.layout(f), [(256 * K, 260 * K)])

	def test_cp_keeps_holes(self):
		f = self.new()
		os.pwrite(f.fileno(), b'x' * 4096, 8 << 20)
		f.close()
		run('cp', '--sparse=auto', self.m / 'f', self.m / 'g')
		self.assertTrue(get(self.m / 'g') == get(self.m / 'f'))
		self.assertLess(self.allocated(self.m / 'g'), 64 * K)


class Copy(OneMount):
	def test_copy_file_range(self):
		content = random.Random(9).randbytes(1 << 20)
		f, g = self.new('f', content), self.new('g', b'y' * 100)
		done = 0
		while done < 700000:
			part = os.copy_file_range(f.fileno(), g.fileno(), 700000 - done, 1234 + done, 50 + done)
			self.assertGreater(part, 0)
			done += part
		self.assertEqual(os.copy_file_range(f.fileno(), g.fileno(), 100, 1 << 20, 0), 0)
		f.close()
		g.close()
		self.holds('g', b'y' * 50 + content[1234:701234])

	def test_within_a_file(self):
		f = self.new(content=b'0123456789')
		self.assertEqual(os.copy_file_range(f.fileno(), f.fileno(), 4, 0, 10), 4)
		self.error(errno.EINVAL, os.copy_file_range, f.fileno(), f.fileno(), 4, 0, 2)
		self.assertEqual(get(self.m / 'f'), b'01234567890123')

	def test_between_unwritten_data(self):
		"""What was just written, and is on no disk yet, is copied too."""
		f, g = self.new('f'), self.new('g')
		for n in range(20):
			os.pwrite(f.fileno(), b'%06d' % n * 1000, n * 6000)
		os.copy_file_range(f.fileno(), g.fileno(), 120000, 0, 0)
		self.assertTrue(get(self.m / 'g') == get(self.m / 'f')[:os.stat(self.m / 'g').st_size])


class Ioctl(OneMount):
	def flags(self, f):
		return struct.unpack('i', fcntl.ioctl(f, FS_IOC_GETFLAGS, bytes(4)))[0]

	def set_flags(self, f, flags):
		fcntl.ioctl(f, FS_IOC_SETFLAGS, struct.pack('i', flags))

	def test_flags(self):
		f = self.new()
		self.assertEqual(self.flags(f) & (IMMUTABLE | APPEND | NODUMP | NOATIME), 0)
		self.set_flags(f, self.flags(f) | NODUMP | NOATIME)
		f.close()
		self.again()
		with open(self.m / 'f', 'rb') as f:
			self.assertEqual(self.flags(f) & (NODUMP | NOATIME), NODUMP | NOATIME)
		self.assertIn('d', run('lsattr', '-d', self.m / 'f').stdout.split()[0])

	def test_immutable(self):
		f = self.new(content=b'x')
		self.set_flags(f, self.flags(f) | IMMUTABLE)
		self.error(errno.EPERM, open, self.m / 'f', 'r+b')
		self.error(errno.EPERM, os.unlink, self.m / 'f')
		self.error(errno.EPERM, os.rename, self.m / 'f', self.m / 'g')
		self.error(errno.EPERM, os.link, self.m / 'f', self.m / 'g')
		self.error(errno.EPERM, os.chmod, self.m / 'f', 0o600)
		self.set_flags(f, self.flags(f) & ~IMMUTABLE)
		os.unlink(self.m / 'f')

	def test_pages_taken_before_immutable_are_written(self):
		with open(self.m / 'f', 'w+b') as g:
			flags = self.flags(g)
			g.write(b'y' * 8192)
			g.flush()
			self.set_flags(g, flags | IMMUTABLE)
			os.fsync(g.fileno())
			self.set_flags(g, flags)
		self.assertEqual(get(self.m / 'f'), b'y' * 8192)

	def test_times_kept_before_immutable_are_taken(self):
		with open(self.m / 'f', 'w+b', buffering=0) as g:
			flags = self.flags(g)
			g.write(b'y' * 8192)
			os.fsync(g.fileno())
			time.sleep(0.01)
			g.write(b'y' * 8192)
			mtime = os.fstat(g.fileno()).st_mtime_ns
			self.set_flags(g, flags | IMMUTABLE)
			os.fsync(g.fileno())
			self.set_flags(g, flags)
			self.assertEqual(os.fstat(g.fileno()).st_mtime_ns, mtime)

	def test_append_only(self):
		f = self.new(content=b'x')
		self.set_flags(f, self.flags(f) | APPEND)
		self.error(errno.EPERM, open, self.m / 'f', 'r+b')
		with open(self.m / 'f', 'ab') as g:
			g.write(b'y')
		self.error(errno.EPERM, os.truncate, self.m / 'f', 0)
		self.error(errno.EPERM, os.unlink, self.m / 'f')
		self.set_flags(f, self.flags(f) & ~APPEND)
		self.assertEqual(get(self.m / 'f'), b'xy')

	def test_fsgetxattr(self):
		f = self.new()
		self.set_flags(f, self.flags(f) | NODUMP)
		xflags = struct.unpack_from('I', fcntl.ioctl(f, FS_IOC_FSGETXATTR, bytes(28)))[0]
		self.assertEqual(xflags & 0x80, 0x80)	# FS_XFLAG_NODUMP

	def test_label(self):
		fd = os.open(self.m.path, os.O_RDONLY)
		fcntl.ioctl(fd, FS_IOC_SETFSLABEL, b'a label'.ljust(256, b'\0'))
		label = fcntl.ioctl(fd, FS_IOC_GETFSLABEL, bytes(256))
		self.error(errno.EINVAL, fcntl.ioctl, fd, FS_IOC_SETFSLABEL, b'x' * 17 + bytes(239))
		os.close(fd)
		self.assertEqual(label.rstrip(b'\0'), b'a label')
		self.m.stop()
		self.assertIn('a label', run('e2label', self.disk).stdout)

	def test_fitrim(self):
		"""Free space is given back to the host: the image file gets smaller there."""
		put(self.m / 'f', os.urandom(1 << 20) * 32)
		self.again()
		before = os.stat(self.disk.path).st_blocks
		os.unlink(self.m / 'f')
		self.again()
		fd = os.open(self.m.path, os.O_RDONLY)
		trimmed = struct.unpack('QQQ', fcntl.ioctl(fd, FITRIM, struct.pack('QQQ', 0, (1 << 64) - 1, 0)))[1]
		os.close(fd)
		self.assertGreaterEqual(trimmed, 32 << 20)
		self.again()
		self.assertLess(os.stat(self.disk.path).st_blocks, before - (24 << 20) // 512)

	def test_unknown(self):
		f = self.new()
		self.error(errno.ENOTTY, fcntl.ioctl, f, 0x5401, bytes(64))


class InlineData(Data):
	"""The same where small files lie inside their inodes."""
	mkfs = ('-b', '4096', '-O', 'inline_data')

	def setUp(self):
		if KERNEL:
			self.skipTest('some kernels crash when a file with inline data is truncated')
		super().setUp()

	def test_grows_out_and_back(self):
		f = self.new(content=b'tiny')
		os.pwrite(f.fileno(), b'x' * 1000, 4)
		os.ftruncate(f.fileno(), 2)
		f.close()
		self.holds('f', b'ti')


class BlockMapData(Data):
	"""The same on ext2: block maps instead of extents, small blocks."""
	mkfs = ('-t', 'ext2', '-b', '1024')
	zero = PUNCH_HOLE	# without extents there is no zeroing of ranges


class DirectData(Data):
	"""The same without the kernel's cache."""
	options = ('direct_io', 'cache_size=16M')
	test_mapping = None


class BlockMapSeek(Seek):
	"""The same on ext2. (Linux 6.18's ext4 does not see data there that is not yet written back.)"""
	mkfs = ('-t', 'ext2', '-b', '1024')
	test_unwritten_is_a_hole = None	# there is no such thing without extents

	def setUp(self):
		super().setUp()
		self.not_for_kernel()
