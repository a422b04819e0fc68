#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What the journal costs.

meta_ratio		time of tar x and rm -rf with unmounts, on an image with a journal over one without
fsync_vs_loop		rate of 4 KiB write + fsync, of foliofs over the kernel's loop mount; 1 and 8 threads, the worse
commit_size_ratio	time of fsync after a change of one inode, on an image of 2 TiB over one of 1 GiB

Rounds alternate between what is compared, and medians are taken. BENCH_ROUNDS (5) rounds; BENCH_SECONDS (2)
for each fio job. Needs root. FOLIOFS names the program. Prints `figure journal.NAME VALUE UNIT`.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from systems import FULL_INODES, SECONDS, TREE, Mounted, new_image, run

ROUNDS = int(os.environ.get('BENCH_ROUNDS', '5'))
SYNCS = 200


def trees(image, path, archive, *mkfs):
	new_image(image, 4 << 30, *FULL_INODES, *mkfs)
	began = time.monotonic()
	with Mounted('foliofs', image, path):
		run('tar', '-xf', archive, '-C', path)
	with Mounted('foliofs', image, path):
		run('sh', '-c', 'rm -rf "$1"/*', 'sh', path)
	return time.monotonic() - began


def fsyncs(system, image, path, threads):
	new_image(image, 1 << 30, *FULL_INODES)
	with Mounted(system, image, path):
		done = run('fio', '--name=job', '--directory=' + path, '--rw=write', '--bs=4k', '--size=64M',
			   '--fsync=1', '--numjobs=%d' % threads, '--thread', '--group_reporting', '--time_based',
			   '--runtime=%d' % SECONDS, '--ioengine=psync', '--fallocate=none', '--output-format=json',
			   stdout=subprocess.PIPE)
	text = done.stdout
	return json.loads(text[text.index('{'):])['jobs'][0]['write']['iops']


def commits(image, path, size):
	new_image(image, size)
	times = []
	with Mounted('foliofs', image, path):
		fd = os.open(os.path.join(path, 'file'), os.O_RDWR | os.O_CREAT, 0o600)
		for n in range(SYNCS):
			os.fchmod(fd, 0o600 | n % 2 << 5)
			began = time.monotonic()
			os.fsync(fd)
			times.append(time.monotonic() - began)
		os.close(fd)
	# The first ones meet parts of the image's file that the host has never written.
	return statistics.median(times[SYNCS // 2:])


def compare(one, other):
	"""Median of the ratios of one() to other(), measured in turn."""
	return statistics.median(one() / other() for _ in range(ROUNDS))


def main():
	with tempfile.TemporaryDirectory(prefix='foliofs-bench-') as top:
		image, path, archive = (os.path.join(top, name) for name in ('disk.img', 'mnt', 'tree.tar'))
		os.mkdir(path)
		run('tar', '-cf', archive, '-C', TREE, '.')
		figures = {
			'meta_ratio': compare(lambda: trees(image, path, archive),
					      lambda: trees(image, path, archive, '-O', '^has_journal')),
			'fsync_vs_loop': min(compare(lambda: fsyncs('foliofs', image, path, threads),
						     lambda: fsyncs('kernel', image, path, threads))
					     for threads in (1, 8)),
			'commit_size_ratio': compare(lambda: commits(image, path, 2 << 40),
						     lambda: commits(image, path, 1 << 30)),
		}
		for name, value in figures.items():
			print('figure journal.%s %.2f ratio' % (name, value))


if __name__ == '__main__':
	sys.exit(main())
