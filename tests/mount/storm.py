# SPDX-License-Identifier: GPL-2.0-or-later
"""Work for test_crash.py to be killed in: storm.py DIRECTORY LOG SEED.

Writes, replaces and removes files, and says in LOG what a crash must not lose: `+ NAME SEED SIZE` when
fsync has returned for a file with that content, `? NAME` before anything is done to it again.
Ends at the first error, which is that the daemon is gone.
"""
import os
import random
import sys


def content(seed, size):
	return random.Random(seed).randbytes(size)


def synced(path, data):
	fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
	try:
		os.write(fd, data)
		os.fsync(fd)
	finally:
		os.close(fd)


def storm(top, log, seed):
	rng = random.Random(seed)
	for number in range(1 << 30):
		name = 's%d-%d' % (seed % 1000, rng.randrange(30))
		path = os.path.join(top, name)
		key, size = seed * 100000 + number, rng.choice((0, 100, 4096, 5000, 70000, 300000))
		print('?', name, file=log, flush=True)
		if rng.random() < 0.2:
			if os.path.exists(path):
				os.unlink(path)
		elif rng.random() < 0.4:
			synced(path + '.new', content(key, size))
			os.rename(path + '.new', path)
			fd = os.open(top, os.O_RDONLY)
			os.fsync(fd)
			os.close(fd)
			print('+', name, key, size, file=log, flush=True)
		else:
			synced(path, content(key, size))
			print('+', name, key, size, file=log, flush=True)
		tree = os.path.join(top, 't%d' % seed)
		if number % 20 == 0:
			os.makedirs(tree + '/a/b/c', exist_ok=True)
			for n in range(60):
				with open('%s/a/file%d' % (tree, n), 'wb') as f:
					f.write(bytes(n * 100))
		elif number % 20 == 10:
			for at, dirs, files in os.walk(tree, topdown=False):
				for each in files:
					os.unlink(os.path.join(at, each))
				os.rmdir(at)


if __name__ == '__main__':
	with open(sys.argv[2], 'a') as log_file:
		try:
			storm(sys.argv[1], log_file, int(sys.argv[3]))
		except OSError:
			pass
