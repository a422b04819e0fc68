# SPDX-License-Identifier: GPL-2.0-or-later
"""What is measured side by side: the ways to mount an image, and how each is mounted and unmounted."""
import fcntl
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROUNDS = int(os.environ.get('BENCH_ROUNDS', '3'))
SIZE = int(os.environ.get('BENCH_MIB', '512'))
SECONDS = int(os.environ.get('BENCH_SECONDS', '2'))
FOLIOFS = os.environ.get('FOLIOFS', 'build/fs/foliofs')
NULLFS = os.environ.get('NULLFS', 'build/tests/bench/nullfs')
# For direct I/O foliofs gets a cache in which nothing need be written back meanwhile, as is the case for the others,
# which have all of the memory, and the null server, which has no disk.
CACHE = os.environ.get('BENCH_CACHE', '8G')
TREE = '/usr/include'
IMAGES = ('foliofs', 'fuse2fs', 'kernel')	# those that mount a file system
FULL_INODES = ('-E', 'lazy_itable_init=0,lazy_journal_init=0')
IOC_SYNC = 0xf002	# foliofs_ioctl.h

# How each is started, in the foreground. What the kernel mounts itself has no program of its own.
COMMANDS = {
	'foliofs': [FOLIOFS, '-f', '{image}', '{path}'],
	'foliofs_direct': [FOLIOFS, '-f', '-o', 'direct_io,cache_size=' + CACHE, '{image}', '{path}'],
	'null': [NULLFS, 'null', '{path}'],
	'null_direct': [NULLFS, '-o', 'direct_io', 'null', '{path}'],
	'libfuse': [NULLFS, '--libfuse-loop', 'null', '{path}'],
	'libfuse_direct': [NULLFS, '--libfuse-loop', '-o', 'direct_io', 'null', '{path}'],
	'kernel': None,
	'fuse2fs': ['fuse2fs', '-f', '{image}', '{path}'],
	'raw': [FOLIOFS, '-f', '-o', 'raw', '{image}', '{path}'],
	'raw_direct': [FOLIOFS, '-f', '-o', 'raw,cache_size=' + CACHE, '{image}', '{path}'],
	'nbdfuse': ['nbdfuse', '{path}', '[', 'nbdkit', '--exit-with-parent', 'file', '{image}', ']'],
	'qemu': ['qemu-storage-daemon', '--blockdev', 'driver=file,node-name=disk,filename={image}',
		 '--export', 'type=fuse,id=disk,node-name=disk,mountpoint={path},writable=on'],
}
ON_ITSELF = ('null', 'null_direct', 'libfuse', 'libfuse_direct')	# have no image
RAW = ('raw', 'raw_direct', 'nbdfuse', 'qemu')
PROGRAMS = {'fuse2fs': ('fuse2fs',), 'nbdfuse': ('nbdfuse', 'nbdkit'), 'qemu': ('qemu-storage-daemon',)}


def missing(system):
	"""The programs that a system needs and that are not here."""
	return [program for program in PROGRAMS.get(system, ()) if not shutil.which(program)]


def run(*words, **kw):
	kw.setdefault('stdout', subprocess.DEVNULL)
	return subprocess.run(words, check=True, text=True, stdin=subprocess.DEVNULL, **kw)


def new_image(image, size, *mkfs):
	"""A sparse file system of so many bytes; what mkfs has left in the host's cache is nobody's cost."""
	if os.path.exists(image):
		os.unlink(image)
	with open(image, 'wb') as f:
		f.truncate(size)
	run('mkfs.ext4', '-Fq', *mkfs, image)
	with open(image, 'rb') as f:
		os.fsync(f.fileno())


def forget(image):
	"""Takes the image out of the host's cache."""
	with open(image, 'rb') as f:
		os.fsync(f.fileno())
		os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Mounted:
	"""An image, mounted in one of these ways; path is a directory that is there."""

	def __init__(self, system, image, path):
		self.system, self.image, self.path = system, image, path
		self.proc = None
		if system == 'qemu':	# mounts on a file
			self.path = os.path.join(path, 'disk')
			open(self.path, 'a').close()

	def __enter__(self):
		command = COMMANDS[self.system]
		if not command:
			run('mount', '-o', 'loop,noinit_itable', self.image, self.path)
			return self
		self.proc = subprocess.Popen([word.format(image=self.image, path=self.path) for word in command],
					     stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
		end = time.monotonic() + 60
		while not os.path.ismount(self.path):
			if self.proc.poll() is not None or time.monotonic() > end:
				sys.exit('%s did not mount' % command[0])
			time.sleep(0.0005)
		return self

	def __exit__(self, *_):
		run('umount', self.path)
		if self.system == 'qemu':
			self.proc.terminate()
		if self.proc:
			self.proc.wait(300)

	def file(self, name):
		"""The file that data works are done on."""
		return {'raw': os.path.join(self.path, os.path.basename(self.image)),
			'raw_direct': os.path.join(self.path, os.path.basename(self.image)),
			'nbdfuse': os.path.join(self.path, 'nbd'),
			'qemu': self.path}.get(self.system, os.path.join(self.path, name))

	def settle(self):
		"""What was written goes to the image, so that it is no part of the next measurement."""
		run('sync', '-f', self.path)
		if self.system.split('_')[0] in ('foliofs', 'raw'):
			fd = os.open(self.path, os.O_RDONLY)
			fcntl.ioctl(fd, IOC_SYNC)
			os.close(fd)

	def rss(self):
		"""MiB of memory that the server has."""
		with open('/proc/%d/statm' % self.proc.pid) as f:
			return int(f.read().split()[1]) * os.sysconf('SC_PAGE_SIZE') / (1 << 20)


def fio_job(*words):
	"""What fio says of its job, or of all as one."""
	text = run('fio', '--fallocate=none', '--group_reporting', '--output-format=json', *words,
		   stdout=subprocess.PIPE).stdout
	return json.loads(text[text.index('{'):])['jobs'][0]


def fio(name, rw, block, *more, jobs=1):
	"""The result of one job: a dict with iops and bw_bytes."""
	job = fio_job('--name=job', '--filename=' + name, '--rw=' + rw, '--bs=' + block, '--size=%dM' % SIZE,
		      '--ioengine=psync', '--invalidate=0', '--numjobs=%d' % jobs, '--thread', *more)
	return job['write' if 'write' in rw else 'read']


def rotated(systems, number):
	return [systems[(number + n) % len(systems)] for n in range(len(systems))]


def clean_up(top):
	"""After an error something may still be mounted."""
	with open('/proc/self/mounts') as f:
		left = [line.split()[1] for line in f if line.split()[1].startswith(top + '/')]
	for path in left:
		subprocess.run(['umount', '-l', path])
	shutil.rmtree(top, ignore_errors=True)


def on_new_images(works, measure):
	"""{work: {system: [a value of each round]}}, with measure(work, system, path) for each.

	Each round takes a new image through each work with each of IMAGES, in an order that rotates.
	"""
	if os.geteuid() != 0:
		sys.exit('this needs root, for the loop device')
	top = tempfile.mkdtemp(prefix='foliofs-bench-')
	image, path = os.path.join(top, 'disk.img'), os.path.join(top, 'mnt')
	os.mkdir(path)
	results = {work: {system: [] for system in IMAGES} for work in works}
	try:
		for number in range(ROUNDS):
			for work in works:
				for system in rotated(IMAGES, number):
					new_image(image, 4 << 30, *FULL_INODES)
					with Mounted(system, image, path):
						results[work][system].append(measure(work, system, path))
	finally:
		clean_up(top)
	return results


def print_rates(prefix, unit, found):
	"""Medians of the systems, and of foliofs's ratios to the others."""
	for system in IMAGES:
		values = found[system]
		print('figure %s%s %.5g %s  # %.4g to %.4g' % (
			prefix, system, statistics.median(values), unit, min(values), max(values)))
	for other in IMAGES[1:]:
		print('figure %sfoliofs_vs_%s %.3f x' % (prefix, other, statistics.median(
			a / b for a, b in zip(found['foliofs'], found[other]))))
