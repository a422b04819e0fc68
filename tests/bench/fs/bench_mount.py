#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""foliofs beside fuse2fs and the kernel's own ext4 over a loop device: trees and fio.

Each round takes a new image through the same work with each of the three, in an order that rotates, so
that a machine whose speed drifts treats all alike. Only the ratios say something; they are
made of medians. BENCH_ROUNDS (3) rounds; BENCH_MIB (512) is the size of fio's file, BENCH_SECONDS (3) the
length of each of its jobs. Needs root. FOLIOFS names the program.

What a figure says: `figure NAME VALUE UNIT`, and in the ratios more than 1 means that foliofs is the better one.
"""
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
SECONDS = int(os.environ.get('BENCH_SECONDS', '3'))
FOLIOFS = os.environ.get('FOLIOFS', 'build/fs/foliofs')
SYSTEMS = ('foliofs', 'fuse2fs', 'kernel')
TREE = '/usr/include'

# name: (rw, block size, direct)
JOBS = {
	'randread_4k_direct': ('randread', '4k', 1),
	'randwrite_4k_direct': ('randwrite', '4k', 1),
	'read_1m_direct': ('read', '1m', 1),
	'write_1m_direct': ('write', '1m', 1),
	'randread_4k': ('randread', '4k', 0),
	'randwrite_4k': ('randwrite', '4k', 0),
	'read_1m': ('read', '1m', 0),
	'write_1m': ('write', '1m', 0),
}


def run(*words, **kw):
	kw.setdefault('stdout', subprocess.DEVNULL)
	return subprocess.run(words, check=True, text=True, stdin=subprocess.DEVNULL, **kw)


class Mounted:
	"""An image, mounted in one of the three ways."""

	def __init__(self, system, image, path):
		self.system, self.image, self.path = system, image, path
		self.proc = None

	def __enter__(self):
		if self.system == 'kernel':
			run('mount', '-o', 'loop', self.image, self.path)
			return self
		program = FOLIOFS if self.system == 'foliofs' else 'fuse2fs'
		self.proc = subprocess.Popen([program, '-f', self.image, self.path], stdin=subprocess.DEVNULL,
					     stdout=subprocess.DEVNULL)
		end = time.monotonic() + 30
		while not os.path.ismount(self.path):
			if self.proc.poll() is not None or time.monotonic() > end:
				sys.exit('%s did not mount' % program)
			time.sleep(0.002)
		return self

	def __exit__(self, *_):
		run('umount', self.path)
		if self.proc:
			self.proc.wait(300)


class Bench:
	def __init__(self, top):
		self.top = top
		self.path = os.path.join(top, 'mnt')
		self.image = os.path.join(top, 'disk.img')
		self.archive = os.path.join(top, 'tree.tar')
		self.results = {}
		os.mkdir(self.path)
		run('tar', '-cf', self.archive, '-C', TREE, '.')

	def note(self, name, unit, system, value):
		self.results.setdefault((name, unit), {}).setdefault(system, []).append(value)

	def timed(self, name, system, *words):
		began = time.monotonic()
		run(*words)
		self.note(name, 's', system, time.monotonic() - began)

	def new_image(self):
		if os.path.exists(self.image):
			os.unlink(self.image)
		with open(self.image, 'wb') as f:
			f.truncate(4 << 30)
		run('mkfs.ext4', '-Fq', '-E', 'lazy_itable_init=0,lazy_journal_init=0', self.image)

	def trees(self, system):
		self.new_image()
		one, two = os.path.join(self.path, 'one'), os.path.join(self.path, 'two')
		began = time.monotonic()
		with Mounted(system, self.image, self.path):
			os.mkdir(one)
			self.timed('tar_x', system, 'tar', '-xf', self.archive, '-C', one)
		self.note('tar_x_until_unmounted', 's', system, time.monotonic() - began)
		with Mounted(system, self.image, self.path):
			self.timed('find_newermt', system, 'find', one, '-newermt', '2100-01-01')
			self.timed('tar_c', system, 'tar', '-cf', os.path.join(self.top, 'out.tar'), '-C', one, '.')
			self.timed('cp_r', system, 'cp', '-r', one, two)
			self.timed('rm_rf', system, 'rm', '-rf', one, two)

	def fio(self, system):
		self.new_image()
		with Mounted(system, self.image, self.path):
			name = os.path.join(self.path, 'file')
			with open(name, 'wb') as f:
				for _ in range(SIZE):
					f.write(os.urandom(1 << 20))
				f.flush()
				os.fsync(f.fileno())
			for job, (rw, block, direct) in JOBS.items():
				words = ['fio', '--name=job', '--filename=' + name, '--rw=' + rw, '--bs=' + block,
					 '--direct=%d' % direct, '--size=%dM' % SIZE, '--time_based',
					 '--runtime=%d' % SECONDS, '--ioengine=psync', '--output-format=json']
				if 'write' in rw and not direct:
					words.append('--end_fsync=1')
				done = run(*words, stdout=subprocess.PIPE)
				text = done.stdout
				result = json.loads(text[text.index('{'):])['jobs'][0]
				result = result['write' if 'write' in rw else 'read']
				if block == '4k':
					self.note(job, 'IOPS', system, result['iops'])
				else:
					self.note(job, 'MiB/s', system, result['bw_bytes'] / (1 << 20))

	def report(self):
		print('%-24s %-6s' % ('', '') + ''.join('%28s' % system for system in SYSTEMS))
		for (name, unit), found in self.results.items():
			cells = ''.join('%28s' % ('%.5g (%.4g-%.4g)' % (statistics.median(found[system]),
									min(found[system]), max(found[system])))
					for system in SYSTEMS)
			print('%-24s %-6s%s' % (name, unit, cells))
		print()
		for (name, unit), found in self.results.items():
			median = {system: statistics.median(found[system]) for system in SYSTEMS}
			for system in SYSTEMS:
				print('figure %s/%s %.6g %s' % (name, system, median[system], unit))
			for other in SYSTEMS[1:]:
				ratio = median['foliofs'] / median[other]
				if unit == 's':
					ratio = 1 / ratio
				print('figure %s/foliofs_vs_%s %.3f x' % (name, other, ratio))


def main():
	if os.geteuid() != 0:
		sys.exit('this needs root, for the loop device')
	top = tempfile.mkdtemp(prefix='foliofs-bench-')
	try:
		bench = Bench(top)
		for number in range(ROUNDS):
			order = [SYSTEMS[(number + n) % len(SYSTEMS)] for n in range(len(SYSTEMS))]
			for work in (bench.trees, bench.fio):
				for system in order:
					work(system)
		bench.report()
	finally:
		if os.path.ismount(os.path.join(top, 'mnt')):
			subprocess.run(['umount', '-l', os.path.join(top, 'mnt')])
		shutil.rmtree(top, ignore_errors=True)


if __name__ == '__main__':
	main()
