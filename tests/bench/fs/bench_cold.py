#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Cold reads: nothing of the image is in any cache, neither the kernel's nor ours.

Beside each other, in rounds: dd bs=1M iflag=direct on the image itself where the file lies (elsewhere it has
holes, which cost nothing), foliofs (with the kernel's
cache above it, and with direct_io), and the kernel's ext4 on a loop device. One stream with requests
of 128 KiB and of 1 MiB, four streams over four files at once, and tar c of a tree. Before each measurement
the file system is mounted anew and the image's pages are dropped from the kernel's cache.

The last line says how much of the processors' time the host has taken for others: with more than a few percent
the figures say little, since who needs more of the processor loses more.

BENCH_ROUNDS (3) rounds; BENCH_MIB (512), read by one stream, and by four together. Needs root. FOLIOFS names the program.

figure NAME VALUE UNIT: medians. read.cold_ratio is the worst of the four ways to read with foliofs, as a part
of dd's speed, read.cold4_ratio of four streams; read.tar_ratio is the loop mount's time by ours.
"""
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROUNDS = int(os.environ.get('BENCH_ROUNDS', '3'))
SIZE = int(os.environ.get('BENCH_MIB', '512'))
FOLIOFS = os.environ.get('FOLIOFS', 'build/fs/foliofs')
TREE = '/usr/include'
STREAMS = 4


def run(*words, **kw):
	kw.setdefault('stdout', subprocess.DEVNULL)
	kw.setdefault('stderr', subprocess.DEVNULL)
	return subprocess.run(words, check=True, stdin=subprocess.DEVNULL, **kw)


def processor_time():
	"""Ticks stolen by the host, and all, since the machine was started."""
	with open('/proc/stat') as f:
		ticks = [int(word) for word in f.readline().split()[1:9]]
	return ticks[7], sum(ticks)


class Bench:
	def __init__(self, top):
		self.top, self.path = top, os.path.join(top, 'mnt')
		self.image = os.path.join(top, 'disk.img')
		self.results = {}
		self.proc = None
		os.mkdir(self.path)

	def make_image(self):
		with open(self.image, 'wb') as f:
			f.truncate((2 * SIZE + 512) << 20)
		run('mkfs.ext4', '-Fq', '-E', 'lazy_itable_init=0,lazy_journal_init=0', self.image)
		self.mount('kernel')
		parts = [('one', SIZE)] + [('four%d' % n, SIZE // STREAMS) for n in range(STREAMS)]
		for name, size in parts:
			with open(os.path.join(self.path, name), 'wb') as f:
				os.posix_fallocate(f.fileno(), 0, size << 20)
				for _ in range(size):
					f.write(os.urandom(1 << 20))
				f.flush()
				os.fsync(f.fileno())
		run('cp', '-a', TREE, os.path.join(self.path, 'tree'))
		self.umount()
		self.find_file('one')

	def find_file(self, name):
		"""Where in the image the file begins, in MiB. It lies in one piece, but for blocks of metadata."""
		found = run('debugfs', '-R', 'bmap %s 0' % name, self.image, stdout=subprocess.PIPE)
		self.begins = int(found.stdout) * 4096 >> 20

	def mount(self, system):
		if system == 'kernel':
			run('mount', '-o', 'loop', self.image, self.path)
			return
		options = ['-o', 'direct_io'] if system == 'foliofs_direct_io' else []
		self.proc = subprocess.Popen([FOLIOFS, '-f', *options, self.image, self.path], stdin=subprocess.DEVNULL)
		end = time.monotonic() + 60
		while not os.path.ismount(self.path):
			if self.proc.poll() is not None or time.monotonic() > end:
				sys.exit('foliofs did not mount')
			time.sleep(0.002)

	def umount(self):
		run('umount', self.path)
		if self.proc:
			self.proc.wait(300)
			self.proc = None

	def forget_image(self):
		fd = os.open(self.image, os.O_RDONLY)
		os.fsync(fd)
		os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
		os.close(fd)

	def note(self, name, value):
		self.results.setdefault(name, []).append(value)

	def cold(self, name, system, work, mib=None):
		"""Seconds, or MiB/s when mib says how many are read."""
		self.forget_image()
		if system:
			self.mount(system)
		began = time.monotonic()
		work()
		took = time.monotonic() - began
		if system:
			self.umount()
		self.note(name, mib / took if mib else took)

	def dd(self, name, block, *more):
		run('dd', 'if=' + name, 'of=/dev/null', 'bs=' + block, *more)

	def four(self):
		threads = [threading.Thread(target=self.dd, args=(os.path.join(self.path, 'four%d' % n), '1M'))
			   for n in range(STREAMS)]
		for thread in threads:
			thread.start()
		for thread in threads:
			thread.join()

	def tar(self):
		# To a pipe: tar does not read what it writes to /dev/null.
		tar = subprocess.Popen(['tar', '-cf', '-', '-C', self.path, 'tree'], stdout=subprocess.PIPE)
		while tar.stdout.read(1 << 20):
			pass
		if tar.wait():
			sys.exit('tar failed')

	def round(self):
		one = os.path.join(self.path, 'one')
		self.cold('read.dd_direct', None,
			  lambda: self.dd(self.image, '1M', 'iflag=direct',
				  'skip=%d' % self.begins, 'count=%d' % SIZE), SIZE)
		for system in ('foliofs', 'foliofs_direct_io', 'kernel'):
			for block in ('128k', '1M'):
				self.cold('read.cold_%s/%s' % (block.lower(), system), system, lambda: self.dd(one, block),
					  SIZE)
			self.cold('read.cold4/' + system, system, self.four, SIZE)
		for system in ('foliofs', 'kernel'):
			self.cold('read.find/' + system, system, lambda: run('find', self.path, '-newermt', '2100-01-01'))
			self.cold('read.tar_c/' + system, system, self.tar)

	def report(self):
		median = {name: statistics.median(found) for name, found in self.results.items()}
		for name, found in self.results.items():
			unit = 's' if '.tar' in name or '.find' in name else 'MiB/s'
			print('figure %s %.5g %s  # %.4g to %.4g' % (name, median[name], unit, min(found), max(found)))
		dd = median['read.dd_direct']
		ours = {name: value for name, value in median.items() if 'foliofs' in name}
		one = min(value for name, value in ours.items() if '/foliofs' in name and 'cold_' in name)
		loop = min(value / median[name.split('/')[0] + '/kernel'] for name, value in ours.items() if 'cold_' in name)
		four = min(value for name, value in ours.items() if 'cold4' in name)
		print('figure read.cold_ratio %.3f x' % (one / dd))
		print('figure read.cold_vs_loop %.3f x' % loop)
		print('figure read.cold4_ratio %.3f x' % (four / dd))
		for work in ('tar_c', 'find'):
			print('figure read.%s_ratio %.3f x' % (work, median['read.%s/kernel' % work] / median['read.%s/foliofs' % work]))


def main():
	if os.geteuid() != 0:
		sys.exit('this needs root, for the loop device')
	top = tempfile.mkdtemp(prefix='foliofs-bench-')
	try:
		bench = Bench(top)
		bench.make_image()
		before = processor_time()
		for _ in range(ROUNDS):
			bench.round()
		stolen, time_in_all = (after - was for after, was in zip(processor_time(), before))
		bench.report()
		print('figure read.stolen %.1f %%' % (100 * stolen / time_in_all))
	finally:
		if os.path.ismount(os.path.join(top, 'mnt')):
			subprocess.run(['umount', '-l', os.path.join(top, 'mnt')])
		shutil.rmtree(top, ignore_errors=True)


if __name__ == '__main__':
	main()
