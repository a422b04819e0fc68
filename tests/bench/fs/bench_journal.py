#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What the journal costs.

meta_ratio		time of tar x and rm -rf with unmounts, on an image with a journal over one without
fsync_vs_loop		rate of 4 KiB write + fsync, of foliofs over the kernel's loop mount; 1 and 8 threads, the worse
commit_size_ratio	time of fsync after a change of one inode, on an image of 2 TiB over one of 1 GiB

A flush's time depends on what else the host's disk does, and drifts within seconds. So what is compared stays
mounted side by side and is measured in slices of BENCH_SLICE (0.5) seconds in turn; a figure is the median of
the ratios of neighbouring slices, BENCH_SLICES (20) of them, or of BENCH_ROUNDS (5) rounds for meta_ratio.
BENCH_WORK (meta fsync commit) names what is measured. Needs root. FOLIOFS names the program.
Prints `figure journal.NAME VALUE UNIT`, and the quartiles as remarks.
"""
import os
import statistics
import sys
import tempfile
import time

from systems import FULL_INODES, TREE, Mounted, fio_job, new_image, run

ROUNDS = int(os.environ.get('BENCH_ROUNDS', '5'))
SLICES = int(os.environ.get('BENCH_SLICES', '20'))
SLICE = float(os.environ.get('BENCH_SLICE', '0.5'))
JOURNAL_MIB = 8
WORK = os.environ.get('BENCH_WORK', 'meta fsync commit').split()


def trees(image, path, archive, *mkfs):
	new_image(image, 4 << 30, *FULL_INODES, *mkfs)
	began = time.monotonic()
	with Mounted('foliofs', image, path):
		run('tar', '-xf', archive, '-C', path)
	with Mounted('foliofs', image, path):
		run('sh', '-c', 'rm -rf "$1"/*', 'sh', path)
	return time.monotonic() - began


def fsyncs(path, threads, number):
	"""Writes and fsyncs a second; each slice has files of its own, which grow."""
	job = fio_job('--name=slice%d.%d' % (threads, number), '--directory=' + path, '--rw=write', '--bs=4k',
		      '--size=64M', '--fsync=1', '--numjobs=%d' % threads, '--thread', '--time_based',
		      '--runtime=%dms' % (SLICE * 1000), '--ioengine=psync')
	return job['write']['iops']


def commits(path):
	"""The median time of an fsync after a chmod."""
	fd = os.open(os.path.join(path, 'file'), os.O_RDWR | os.O_CREAT, 0o600)
	times = []
	end = time.monotonic() + SLICE
	while time.monotonic() < end:
		os.fchmod(fd, 0o600 | len(times) % 2 << 5)
		began = time.monotonic()
		os.fsync(fd)
		times.append(time.monotonic() - began)
	os.close(fd)
	return statistics.median(times)


def median(name, ratios):
	low, middle, high = statistics.quantiles(ratios, n=4)
	print('# %s: %d ratios, quartiles %.2f %.2f %.2f' % (name, len(ratios), low, middle, high), flush=True)
	return middle


def compare(name, times, one, other):
	"""Median of the ratios of one() to other(), measured in turn, in an order that changes."""
	ratios = []
	for number in range(times):
		if number % 2:
			below = other(number)
			ratios.append(one(number) / below)
		else:
			ratios.append(one(number) / other(number))
	return median(name, ratios)


def side_by_side(top, images, measure):
	"""Mounts two new images, (system, size) each, for measure(path, path).

	Their journals are of one size, and small: so both have soon gone round, and neither meets parts of
	the image's file that the host has never written.
	"""
	names = [os.path.join(top, name) for name in ('one', 'two')]
	for (_, size), name in zip(images, names):
		new_image(name + '.img', size, '-E', 'lazy_itable_init=%d,lazy_journal_init=0' % (size > 1 << 40),
			  '-J', 'size=%d' % JOURNAL_MIB)
		os.makedirs(name, exist_ok=True)
	with Mounted(images[0][0], names[0] + '.img', names[0]), Mounted(images[1][0], names[1] + '.img', names[1]):
		return measure(*names)


def fsync_vs_loop(one, two):
	return min(compare('fsync with %d threads' % threads, SLICES, lambda number: fsyncs(one, threads, number),
			   lambda number: fsyncs(two, threads, number)) for threads in (1, 8))


def commit_size_ratio(one, two):
	for path in (one, two) * 2:
		commits(path)
	return compare('commit', SLICES, lambda _: commits(one), lambda _: commits(two))


def main():
	with tempfile.TemporaryDirectory(prefix='foliofs-bench-') as top:
		image, path, archive = (os.path.join(top, name) for name in ('disk.img', 'mnt', 'tree.tar'))
		os.mkdir(path)
		run('tar', '-cf', archive, '-C', TREE, '.')
		measures = {
			'meta': ('meta_ratio', lambda: compare('meta', ROUNDS, lambda _: trees(image, path, archive),
				 lambda _: trees(image, path, archive, '-O', '^has_journal'))),
			'fsync': ('fsync_vs_loop', lambda: side_by_side(top, [('foliofs', 1 << 30), ('kernel', 1 << 30)],
				  fsync_vs_loop)),
			'commit': ('commit_size_ratio', lambda: side_by_side(top, [('foliofs', 2 << 40),
				   ('foliofs', 1 << 30)], commit_size_ratio)),
		}
		for work in WORK:
			name, measure = measures[work]
			print('figure journal.%s %.2f ratio' % (name, measure()), flush=True)


if __name__ == '__main__':
	sys.exit(main())
