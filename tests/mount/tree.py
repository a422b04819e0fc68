# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes and changes trees, the same way each time, so that two file systems can be compared."""
import os
import random
import shutil
import socket
import stat
import zlib

from harness import run


def copy(source, target):
	"""Copy a tree with everything that belongs to it, to a name that does not exist yet."""
	run('cp', '-a', source, target)


def data(size, seed):
	return random.Random(seed).randbytes(size)


def put(path, content):
	with open(path, 'xb') as f:
		f.write(content)


def make_oddities(top):
	"""A directory with what /usr/include does not have."""
	os.mkdir(top)

	def at(*names):
		return os.path.join(top, *names)

	for size in (0, 1, 59, 60, 61, 100, 155, 160, 200, 1023, 1024, 1025, 4095, 4096, 4097, 65537):
		put(at('size-%d' % size), data(size, size))
	put(at('big'), data(9 << 20, 'big'))
	with open(at('holes'), 'xb') as f:
		for index in range(20):
			f.seek(index * 300000)
			f.write(data(5000, index))
		f.truncate(7 << 20)
	with open(at('end-hole'), 'xb') as f:
		f.write(data(10000, 'begin'))	# first, as inline data must not be truncated
		f.flush()
		f.truncate((64 << 20) + 12345)
	os.mkdir(at('names'))
	for name in ('n' * 255, ' ', '\n', '-x', '...', 'äöü-名前-🙂', '*', '\\', 'a\tb'):
		put(at('names', name), name.encode())
	put(os.path.join(os.fsencode(at('names')), b'\xff\xfe\x80'), b'not UTF-8')
	os.mkdir(at('links'))
	for length in (1, 58, 59, 60, 61, 500, 1000):
		os.symlink(('../' * length)[:length], at('links', 'symlink-%d' % length))
	os.mkdir(at('hard'))
	put(at('hard', 'one'), b'linked')
	for name in ('two', 'three', 'four'):
		os.link(at('hard', 'one'), at('hard', name))
	os.mkfifo(at('fifo'), 0o640)
	os.mknod(at('char'), stat.S_IFCHR | 0o600, os.makedev(1, 3))
	os.mknod(at('block'), stat.S_IFBLK | 0o660, os.makedev(259, 70000))
	os.mknod(at('whiteout'), stat.S_IFCHR, os.makedev(0, 0))
	with socket.socket(socket.AF_UNIX) as s:
		here = os.getcwd()
		os.chdir(top)	# a socket's address is short
		try:
			s.bind('socket')
		finally:
			os.chdir(here)
	make_attributes(at('attributes'))
	make_modes(at('modes'))
	os.mkdir(at('many'))
	for number in range(600):
		put(at('many', 'a-rather-long-name-so-that-blocks-fill-up-%05d' % number), b'%d' % number)
	deep = at('deep')
	for level in range(40):
		os.mkdir(deep)
		deep = os.path.join(deep, 'level-%d' % level)


def make_attributes(top):
	os.mkdir(top)
	for name in ('none', 'small', 'many', 'large', 'capable', 'acl'):
		put(os.path.join(top, name), name.encode())
	path = os.path.join(top, 'small')
	os.setxattr(path, 'user.one', b'1')
	os.setxattr(path, 'user.empty', b'')
	os.setxattr(path, 'trusted.overlay.opaque', b'y')
	path = os.path.join(top, 'many')
	for number in range(12):
		os.setxattr(path, 'user.number-%d' % number, b'value %d' % number)
	os.setxattr(os.path.join(top, 'large'), 'user.large', data(700, 'attribute'))
	os.setxattr(os.path.join(top, 'capable'), 'security.capability',
		    bytes.fromhex('0100000200040000000000000000000000000000'))
	run('setfacl', '-m', 'u:12345:rw,g:54321:r,m::rw', os.path.join(top, 'acl'))
	os.mkdir(os.path.join(top, 'directory'))
	run('setfacl', '-d', '-m', 'u:12345:rwx', os.path.join(top, 'directory'))
	put(os.path.join(top, 'directory', 'inherits'), b'')
	os.mkdir(os.path.join(top, 'directory', 'child'))


def make_modes(top):
	os.mkdir(top)
	for mode in (0, 0o400, 0o644, 0o777, 0o4755, 0o2755, 0o6711, 0o1777):
		path = os.path.join(top, 'file-%o' % mode)
		put(path, b'')
		os.chown(path, 1000 + mode, 70000 + mode)
		os.chmod(path, mode)
		path = os.path.join(top, 'directory-%o' % mode)
		os.mkdir(path)
		os.chown(path, 4000000000 - mode, 65534)
		os.chmod(path, mode)


def change(top):
	"""Rename, link, delete and rewrite parts of a tree; what is done depends on the names alone.

	Only files above 8 KiB are truncated: so no file with inline data is, which some kernels crash on.
	"""
	picked = random.Random(1)
	files, directories = [], []
	for at, below, names in os.walk(top):
		below.sort()
		directories += [os.path.join(at, name) for name in below]
		files += [os.path.join(at, name) for name in sorted(names)]
	regular = [path for path in files if stat.S_ISREG(os.lstat(path).st_mode)]
	picked.shuffle(regular)
	step = max(1, len(regular) // 12)
	lots = [regular[n * step:(n + 1) * step] for n in range(12)]
	for path in lots[0]:
		os.unlink(path)
	for path in lots[1]:
		os.rename(path, path[:-1] + '~' if len(os.path.basename(path)) > 254 else path + '~')
	for old, new in zip(lots[2], lots[3]):
		os.rename(old, new)		# over a file that is there, often in another directory
	for number, path in enumerate(lots[4]):
		os.link(path, os.path.join(top, 'link-%d' % number))
	for path in lots[5]:
		rewrite(path, picked)
	for path in lots[6]:
		with open(path, 'ab') as f:
			f.write(data(picked.randrange(10000), path[len(top):]))
	for path in lots[7]:
		replace(path, data(picked.randrange(50000), path[len(top):]))
	for path in lots[8]:
		if os.lstat(path).st_size > 8192:
			os.truncate(path, picked.randrange(8193, os.lstat(path).st_size + 1))
	for path in lots[9]:
		os.setxattr(path, 'user.changed', data(picked.randrange(100), path[len(top):]))
		os.chmod(path, 0o600 + picked.randrange(64))
	for number, path in enumerate(directories):
		if number % 7 == 3 and not os.path.islink(path) and os.path.isdir(path):
			os.rename(path, os.path.join(top, 'moved-%d' % number))
	for number, path in enumerate(directories):
		if number % 11 == 5 and not os.path.islink(path) and os.path.isdir(path):
			shutil.rmtree(path)


def rewrite(path, picked):
	"""Write over some ranges of a file, in place."""
	size = os.lstat(path).st_size
	with open(path, 'r+b') as f:
		for _ in range(picked.randrange(1, 6)):
			f.seek(picked.randrange(size + 1))
			f.write(picked.randbytes(picked.randrange(1, 6000)))


def replace(path, content):
	"""Give a file new content the careful way: write another, sync it, rename."""
	new = os.path.join(os.path.dirname(path), '.new')
	put(new, content)
	os.rename(new, path)


def set_times(top):
	"""Set all modification times, from 1901 to 2446 with nanoseconds, by the names alone.

	Directories last, from below, as work inside a directory changes its time.
	"""
	first, last = -(1 << 31), (1 << 34) - (1 << 31) - 1
	for at, _, names in os.walk(os.fsencode(top), topdown=False):
		for name in sorted(names) + [b'']:
			path = os.path.join(at, name) if name else at
			mark = zlib.crc32(path[len(top):] or b'.')
			when = (first + mark * 4 % (last - first)) * 10**9 + mark % 10**9
			os.utime(path, ns=(when, when), follow_symlinks=False)
		for name in sorted(os.listdir(at)):
			path = os.path.join(at, name)
			if os.path.islink(path):
				mark = zlib.crc32(path[len(top):])
				os.utime(path, ns=(mark * 10**9 + 1, mark * 10**9 + 1), follow_symlinks=False)
