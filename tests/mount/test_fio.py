# SPDX-License-Identifier: GPL-2.0-or-later
"""fio with verification, on ten times as much data as the cache holds."""
from harness import MountTest, run

JOBS = 4
TOTAL = 160		# MiB, over all jobs
CACHE = 'cache_size=16M'


class Fio(MountTest):
	limit = 180

	def fio(self, m, engine, rw, *more):
		"""One fio run with four jobs, each on a file of its own."""
		block = '64k' if rw == 'write' else '4k'
		run('fio', '--name=verify', '--directory=' + m.path, '--ioengine=' + engine, '--rw=' + rw,
		    '--bs=' + block, '--size=%dM' % (TOTAL // JOBS),
		    '--numjobs=%d' % JOBS, '--iodepth=8', '--thread', '--group_reporting',
		    '--fallocate=none', '--verify=crc32c', '--verify_fatal=1', '--verify_state_save=0', '--randrepeat=1',
		    '--randseed=7', '--output-format=terse', *more)

	def at_once(self, engine, rw, *options):
		"""Write and verify in one mount."""
		with self.mount(self.image(size=512 << 20), CACHE, *options) as m:
			self.fio(m, engine, rw, '--do_verify=1')

	def over_mounts(self, engine, rw, *options):
		"""Unmount and mount again between writing and verifying."""
		image = self.image(size=512 << 20)
		with self.mount(image, CACHE, *options) as m:
			self.fio(m, engine, rw, '--do_verify=0')
		with self.mount(image, CACHE, *options) as m:
			self.fio(m, engine, rw, '--verify_only')


def add_tests():
	"""Every engine, pattern and way of caching; mmap needs the kernel's cache."""
	def test(work, engine, rw, options):
		return lambda self: work(self, engine, rw, *options)

	for engine in ('psync', 'libaio', 'mmap'):
		for rw in ('write', 'randwrite'):
			for options in ((), ('direct_io',)):
				if engine == 'mmap' and options:
					continue
				name = '_'.join((engine, rw) + options)
				setattr(Fio, 'test_' + name, test(Fio.at_once, engine, rw, options))
				setattr(Fio, 'test_remount_' + name, test(Fio.over_mounts, engine, rw, options))


add_tests()
