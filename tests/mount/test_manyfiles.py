# SPDX-License-Identifier: GPL-2.0-or-later
"""Very many files in one directory: all there, and the work for each does not grow."""
import os
import random
import statistics
import time

from harness import LONG, MountTest

NUMBER = 100000 if LONG else 20000
# The median of the last tenth against that of the first tenth. A linear search of the directory
# would make it about 10 here; the slack is for a noisy machine.
GROWTH = 5
SLACK = 50e-6		# seconds a file, which do not count as growth


class ManyFiles(MountTest):
	limit = 240

	def timed(self, what, names, call):
		"""Do something to each name; its time must not grow along the way."""
		times = []
		for name in names:
			began = time.perf_counter()
			call(name)
			times.append(time.perf_counter() - began)
		tenth = len(times) // 10
		first = statistics.median(times[:tenth])
		last = statistics.median(times[-tenth:])
		self.assertLess(last, GROWTH * first + SLACK, '%s: %.0f us a file at first, %.0f at last' % (
			what, first * 1e6, last * 1e6))

	def create(self, name):
		os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))

	def work(self, *options, mkfs=()):
		image = self.image('-N', str(NUMBER + 1000), *mkfs, size=1 << 30)
		names = ['file-%06d' % n for n in range(NUMBER)]
		picked = random.Random(5)
		with self.mount(image, *options) as m:
			top = m / 'directory'
			os.mkdir(top)
			os.chdir(top)
			try:
				self.timed('create', names, self.create)
				self.assertEqual(sorted(os.listdir('.')), names)
				picked.shuffle(names)
				self.timed('stat', names, os.stat)
			finally:
				os.chdir('/')
			self.assertEqual(os.stat(top).st_nlink, 2)
		with self.mount(image, *options) as m:
			os.chdir(m / 'directory')
			try:
				self.assertEqual(len(os.listdir('.')), NUMBER)
				self.timed('rename', names[:NUMBER // 4],
					   lambda name: os.rename(name, name + '.renamed'))
				rest = [name + '.renamed' for name in names[:NUMBER // 4]] + names[NUMBER // 4:]
				self.assertEqual(sorted(os.listdir('.')), sorted(rest))
				picked.shuffle(rest)
				self.timed('delete', rest, os.unlink)
				self.assertEqual(os.listdir('.'), [])
			finally:
				os.chdir('/')
			os.rmdir(m / 'directory')

	def test_default(self):
		self.work()

	def test_without_index(self):
		self.not_for_kernel()	# which searches such a directory name by name
		self.work(mkfs=('-O', '^dir_index'))

	def test_delete_while_listing(self):
		"""A reader in the middle of a directory sees each name that stays exactly once."""
		with self.mount(self.image()) as m:
			for n in range(3000):
				self.create(m / ('%s-%04d' % ('keep' if n % 2 else 'drop', n)))
			seen, dropped = [], set()
			with os.scandir(m.path) as entries:
				for number, entry in enumerate(entries):
					seen.append(entry.name)
					if number == 500:
						for n in range(0, 3000, 2):
							name = 'drop-%04d' % n
							os.unlink(m / name)
							dropped.add(name)
						self.create(m / 'keep-new')
			kept = [name for name in seen if name.startswith('keep') and name != 'keep-new']
			self.assertEqual(sorted(kept), ['keep-%04d' % n for n in range(1, 3000, 2)])
			self.assertEqual(len(seen), len(set(seen)))
			self.assertEqual({name for name in os.listdir(m.path) if name.startswith('drop')}, set())
