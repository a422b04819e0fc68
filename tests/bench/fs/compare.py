#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""foliofs beside its peers, on the same work. Run by ../compare.sh; ../README.md says how it is measured.

A work is one row of the table. The works of a stage share their mounts: all systems stay mounted, and
each work goes around them in an order that rotates from round to round, so a machine whose speed drifts
treats all alike. A ratio is taken within each round; the figure is the median of these.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack

from report import report
from systems import (COMMANDS, FULL_INODES, IMAGES, NULLFS, ON_ITSELF, RAW, ROUNDS, SECONDS, SIZE, TREE, Mounted,
		     clean_up, fio, forget, missing, new_image, rotated, run)

OUT = os.environ.get('BENCH_OUT', 'compare-out')
FILES = 10000
SYNCS = 100
SIZES = {'1g': 1 << 30, '100g': 100 << 30, '2t': 2 << 40}
SERVERS = ('foliofs', 'null', 'libfuse', 'kernel', 'fuse2fs')
DISKS = ('raw', 'nbdfuse', 'qemu')
CHOSEN = os.environ.get('BENCH_SYSTEMS', ','.join(SERVERS + DISKS)).split(',')


class Results:
	"""The samples of each work by system, kept in a file from one run to the next."""

	def __init__(self):
		self.name = os.path.join(OUT, 'compare.json')
		self.works = {}
		os.makedirs(OUT, exist_ok=True)
		if os.path.exists(self.name):
			with open(self.name) as f:
				self.works = json.load(f)

	def begin(self, work, unit):
		self.works[work] = {'unit': unit, 'systems': {}}

	def note(self, work, system, value):
		self.works[work]['systems'].setdefault(system.replace('_direct', ''), []).append(value)

	def save(self):
		with open(self.name + '.new', 'w') as f:
			json.dump(self.works, f, indent=1)
		os.rename(self.name + '.new', self.name)


def seconds(*words, **kw):
	began = time.monotonic()
	run(*words, **kw)
	return time.monotonic() - began


# Data: name: (stage, unit, fio's rw, block, jobs, more words)
TIMED = ('--time_based', '--runtime=%d' % SECONDS)
PART = ('--io_size=%dM' % (SIZE // 2), '--end_fsync=1')
DATA = {
	'dread4k_j1': ('direct', 'IOPS', 'randread', '4k', 1, TIMED),
	'dread4k_j4': ('direct', 'IOPS', 'randread', '4k', 4, TIMED),
	'dread128k': ('direct', 'MiB/s', 'read', '128k', 1, TIMED),
	'dread1m': ('direct', 'MiB/s', 'read', '1m', 1, TIMED),
	'dwrite4k': ('direct', 'IOPS', 'randwrite', '4k', 1, TIMED),
	'dwrite128k': ('direct', 'MiB/s', 'write', '128k', 1, TIMED),
	'dwrite1m': ('direct', 'MiB/s', 'write', '1m', 1, TIMED),
	'bread4k': ('buffered', 'IOPS', 'randread', '4k', 1, TIMED),
	'bread1m': ('buffered', 'MiB/s', 'read', '1m', 1, TIMED),
	'bwrite4k': ('buffered', 'IOPS', 'randwrite', '4k', 1, PART),
	'seqwrite_fsync': ('buffered', 'MiB/s', 'write', '1m', 1, ('--end_fsync=1',)),
	'fsync4k': ('buffered', 'IOPS', 'randwrite', '4k', 1, TIMED + ('--fsync=1',)),
	'cold_read': ('buffered', 'MiB/s', 'read', '1m', 1, ()),
}


class DataStage:
	"""Works on one file of SIZE MiB."""

	def __init__(self, name, systems, works):
		self.name, self.works = name, works
		if name == 'direct':
			systems = [system + '_direct' if system + '_direct' in COMMANDS else system
				   for system in systems]
		self.systems = systems

	def run(self, top, results):
		mounts = {}
		with ExitStack() as stack:
			for system in self.systems:
				mounts[system] = Data(system, os.path.join(top, system))
				stack.callback(mounts[system].leave)
			for work in self.works:
				results.begin(work, DATA[work][1])
				for number in range(ROUNDS):
					for system in rotated(self.systems, number):
						if work != 'cold_read' or system not in ON_ITSELF:
							results.note(work, system, mounts[system].do(work))


class Data:
	"""One system, mounted, with a file that its caches hold."""

	def __init__(self, system, top):
		self.system, self.image, self.path = system, os.path.join(top, 'disk.img'), os.path.join(top, 'mnt')
		os.makedirs(self.path)
		if system in RAW:
			self.fill(self.image)
		elif system not in ON_ITSELF:
			new_image(self.image, (3 * SIZE + 512) << 20, *FULL_INODES)
		self.mounted = Mounted(system, self.image, self.path)
		self.mounted.__enter__()
		self.file = self.mounted.file('file')
		if system not in RAW:
			self.fill(self.file)
		self.mounted.settle()
		self.warm()

	def leave(self):
		self.mounted.__exit__()

	@staticmethod
	def fill(name):
		with open(name, 'wb') as f:
			for _ in range(SIZE):
				f.write(os.urandom(1 << 20))
			os.fsync(f.fileno())

	def warm(self):
		for _ in range(2):
			run('dd', 'if=' + self.file, 'of=/dev/null', 'bs=1M', stderr=subprocess.DEVNULL)

	def do(self, work):
		stage, unit, rw, block, jobs, more = DATA[work]
		name = self.file
		if work == 'cold_read':
			self.leave()
			forget(self.image)
			self.mounted.__enter__()
		elif rw.endswith('read') and stage == 'buffered':
			# Which pages of memory the kernel's cache has makes a difference: others each time.
			forget(self.file)
			self.warm()
		if work == 'seqwrite_fsync' and self.system not in RAW:
			name = self.file + '.new'
		direct = '--direct=%d' % (stage == 'direct')
		result = fio(name, rw, block, direct, *more, jobs=jobs)
		if name != self.file:
			os.unlink(name)
		if 'write' in rw:
			self.mounted.settle()
		if work in ('cold_read', 'seqwrite_fsync'):
			self.warm()
		return result['iops'] if unit == 'IOPS' else result['bw_bytes'] / (1 << 20)


# Trees: name: the works that must have been done before, on the same mount
TREES = {
	'untar': (), 'find': ('untar',), 'du': ('untar',), 'tarc': ('untar',), 'cp': ('untar',), 'rm': ('cp',),
	'create10k': (), 'stat10k': ('create10k',), 'unlink10k': ('create10k',),
	'git_clone': (), 'git_status': ('git_clone',), 'compile': (),
}


def with_needs(works):
	"""The works and what they need, in the table's order."""
	wanted = set()
	todo = list(works)
	while todo:
		work = todo.pop()
		wanted.add(work)
		todo += TREES[work]
	return [work for work in TREES if work in wanted]


class TreeStage:
	"""Works on trees of files; each round begins with a new image."""

	def __init__(self, systems, works):
		self.systems, self.works = systems, works

	def prepare(self, top):
		self.archive, self.repository = os.path.join(top, 'tree.tar'), os.path.join(top, 'repository')
		run('tar', '-cf', self.archive, '-C', TREE, '.')
		if 'git_clone' in with_needs(self.works):
			run('mkdir', self.repository)
			run('tar', '-xf', self.archive, '-C', self.repository)
			for words in (['init'], ['add', '.'], ['-c', 'user.name=bench', '-c', 'user.email=bench@localhost',
							      'commit', '-m', 'tree']):
				run('git', '-C', self.repository, *words[:-1], words[-1],
				    stderr=subprocess.DEVNULL)

	def run(self, top, results):
		self.prepare(top)
		for work in self.works:
			results.begin(work, 's')
		for number in range(ROUNDS):
			with ExitStack() as stack:
				self.round(top, results, stack, rotated(self.systems, number))

	def round(self, top, results, stack, systems):
		mounts = {}
		for system in systems:
			path, image = os.path.join(top, 'mnt-' + system), os.path.join(top, system + '.img')
			os.makedirs(path, exist_ok=True)
			if system not in ON_ITSELF:
				new_image(image, 4 << 30, *FULL_INODES)
			mounts[system] = stack.enter_context(Mounted(system, image, path))
		for work in with_needs(self.works):
			for system in systems:
				took = self.do(work, mounts[system].path)
				mounts[system].settle()
				if work in self.works:
					results.note(work, system, took)

	def do(self, work, path):
		one, two, small = (os.path.join(path, name) for name in ('one', 'two', 'small'))
		clone, source = os.path.join(path, 'clone'), os.path.join(path, 'source')
		if work == 'untar':
			os.mkdir(one)
			return seconds('tar', '-xf', self.archive, '-C', one)
		if work == 'find':
			return seconds('find', one, '-newermt', '2100-01-01')
		if work == 'du':
			return seconds('du', '-s', one)
		if work == 'tarc':	# to a pipe: tar does not read what it writes to /dev/null
			return seconds('sh', '-c', 'tar -cf - -C "$1" . | cat > /dev/null', 'sh', one)
		if work == 'cp':
			return seconds('cp', '-r', one, two)
		if work == 'rm':
			return seconds('rm', '-rf', one, two)
		if work == 'git_clone':
			return seconds('git', 'clone', '-q', 'file://' + self.repository, clone)
		if work == 'git_status':
			return seconds('git', '-C', clone, 'status')
		if work == 'compile':
			run('mkdir', source)
			run('sh', '-c', 'cp -r tree cache "$1"', 'sh', source)
			return seconds('sh', '-c', 'cd "$1" && ls */*.c | xargs -P2 -I+ cc -D_GNU_SOURCE -g -O1 -Itree '
				       '-Icache -c + -o +.o && ar cr all.a */*.o', 'sh', source)
		return self.small_files(work, small)

	@staticmethod
	def small_files(work, small):
		names = [os.path.join(small, 'file-%d' % number) for number in range(FILES)]
		if work == 'create10k':
			os.mkdir(small)
		began = time.monotonic()
		for name in names:
			if work == 'create10k':
				fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
				os.write(fd, b'small\n')
				os.close(fd)
			elif work == 'stat10k':
				os.stat(name)
			else:
				os.unlink(name)
		return time.monotonic() - began


class SizeStage:
	"""Mount, a small fsync, unmount, on sparse images of several sizes."""

	def __init__(self, systems, works):
		self.systems, self.works = systems, works

	def run(self, top, results):
		sizes = [size for size in SIZES if any(work.endswith('_' + size) for work in self.works)]
		for work in self.works:
			results.begin(work, 'ms')
		for size in sizes:
			for system in self.systems:
				new_image(os.path.join(top, system + '.img'), SIZES[size])
			for number in range(ROUNDS):
				for system in rotated(self.systems, number):
					self.one(top, results, size, system)

	def one(self, top, results, size, system):
		path, image = os.path.join(top, 'mnt'), os.path.join(top, system + '.img')
		os.makedirs(path, exist_ok=True)
		mounted = Mounted(system, image, path)
		times = {}
		began = time.monotonic()
		mounted.__enter__()
		times['mount'] = time.monotonic() - began
		times['fsync'] = self.syncs(path)
		mounted.settle()
		began = time.monotonic()
		mounted.__exit__()
		times['umount'] = time.monotonic() - began
		for name, took in times.items():
			if name + '_' + size in self.works:
				results.note(name + '_' + size, system, 1000 * took)

	@staticmethod
	def syncs(path):
		times = []
		fd = os.open(os.path.join(path, 'file'), os.O_RDWR | os.O_CREAT, 0o600)
		for number in range(SYNCS):
			os.pwrite(fd, b'small', number * 4096)
			began = time.monotonic()
			os.fsync(fd)
			times.append(time.monotonic() - began)
		os.close(fd)
		os.unlink(os.path.join(path, 'file'))
		# The first ones meet parts of the image's file that the host has never written.
		return statistics.median(times[SYNCS // 2:])


SIZE_WORKS = ['%s_%s' % (name, size) for size in SIZES for name in ('mount', 'fsync', 'umount')]
ALL = list(DATA) + list(TREES) + SIZE_WORKS


def stages(works):
	"""What has to be run for these works. Systems whose programs are not here are left out."""
	def here(systems):
		return [system for system in systems if not missing(system) and system in CHOSEN]

	for name in ('direct', 'buffered'):
		chosen = [work for work in works if work in DATA and DATA[work][0] == name]
		if chosen:
			yield DataStage(name, here(SERVERS + DISKS), chosen)
	chosen = [work for work in works if work in TREES]
	if chosen:
		yield TreeStage(here(SERVERS), chosen)
	chosen = [work for work in works if work in SIZE_WORKS]
	if chosen:
		yield SizeStage(here(IMAGES), chosen)


def main(works):
	if works == ['-l']:
		print('\n'.join(ALL))
		return
	unknown = set(works) - set(ALL) - {'report'}
	if unknown:
		sys.exit('unknown: %s (-l lists the works)' % ' '.join(sorted(unknown)))
	results = Results()
	if works != ['report']:
		if os.geteuid() != 0:
			sys.exit('this needs root, for the loop device')
		for system in SERVERS + DISKS:
			for program in missing(system) if system in CHOSEN else ():
				print('%s is left out: %s is not installed' % (system, program))
		if not os.access(NULLFS, os.X_OK):
			sys.exit('%s is not built' % NULLFS)
		for stage in stages(works or ALL):
			top = tempfile.mkdtemp(prefix='foliofs-bench-')
			try:
				stage.run(top, results)
			finally:
				clean_up(top)
			results.save()
	report(results.works, ALL, OUT)


if __name__ == '__main__':
	main(sys.argv[1:])
