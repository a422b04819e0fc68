# SPDX-License-Identifier: GPL-2.0-or-later
"""The daemon is killed in the middle of work, again and again; the image must not mind.

After each kill foliofs or the kernel mounts the image, in turn, which replays the journal. Then e2fsck
has nothing to say, and what fsync had returned for is there. FOLIOFS_LONG=1: 200 kills.
"""
import os
import random
import subprocess
import sys
import time

from harness import HERE, LONG, MountTest, run
from storm import content

KILLS = 200 if LONG else 4
WORKERS = 3


class Killed(MountTest):
	limit = 240

	def setUp(self):
		super().setUp()
		self.not_for_kernel()
		self.random = random.Random()
		self.logs = []

	def loads(self, m, round):
		"""Processes that work on the mount until it is gone."""
		quiet = {'stdout': subprocess.DEVNULL, 'stderr': subprocess.DEVNULL, 'stdin': subprocess.DEVNULL}
		found = []
		for n in range(WORKERS):
			log = self.file('log')
			open(log, 'w').close()
			self.logs.append(log)
			found.append(subprocess.Popen([sys.executable, os.path.join(HERE, 'storm.py'), m.path, log,
						       str(round * WORKERS + n + 1)], **quiet))
		work = m / ('work%d' % (round % 3))
		run('rm', '-rf', work, check=False)
		os.makedirs(work, exist_ok=True)
		others = (
			['fio', '--name=f', '--directory=' + work, '--rw=randwrite', '--bs=4k', '--size=8M',
			 '--time_based', '--runtime=20', '--fsync=16', '--thread'],
			['stress-ng', '--rename', '1', '--link', '1', '--dir', '1', '--timeout', '20s',
			 '--temp-path', work],
			['sh', '-c', 'while cp -r %s %s/c && rm -r %s/c; do :; done' % (HERE, work, work)],
		)
		found.append(subprocess.Popen(others[round % 3], start_new_session=True, **quiet))
		return found

	def promised(self, told):
		"""{name: (seed, size)} of what the logs say, older ones first, is synced."""
		for log in self.logs:
			for line in open(log):
				if not line.endswith('\n'):
					break
				sign, name, *rest = line.split()
				told.pop(name, None)
				if sign == '+':
					told[name] = tuple(map(int, rest))
		self.logs = []

	def look(self, top, told):
		for name, (seed, size) in told.items():
			with open(os.path.join(top, name), 'rb') as f:
				self.assertTrue(f.read() == content(seed, size), name + ' is not as it was synced')

	def killed(self, image, round, *options):
		m = self.mount(image, *options, check=False).start()
		loads = self.loads(m, round)
		time.sleep(self.random.uniform(0.1, 2))
		# The dead mount stays while they run: below it their paths lead elsewhere, where fsync goes well.
		m.proc.kill()
		for load in loads:
			load.kill()
			load.wait()
		m.kill()

	def storm(self, *mkfs, options=(), kills=KILLS):
		image = self.image(*mkfs, size=190 + 2 * kills << 20)
		told = {}
		for round in range(kills):
			self.killed(image, round, *options)
			self.promised(told)
			self.assertTrue(image.needs_recovery())
			if round % 2:
				top = self.kernel_mount(image)
				self.look(top, told)
				self.kernel_umount(top)
			else:
				with self.mount(image, check=False) as m:
					self.look(m.path, told)
			image.check()

	def test_killed(self):
		self.storm()

	def test_killed_small_journal(self):
		self.storm('-J', 'size=4', options=('cache_size=16M', 'commit=1'), kills=KILLS // 2)

	def test_killed_ext3(self):
		self.storm('-t', 'ext3', '-b', '1024', kills=KILLS // 2)
