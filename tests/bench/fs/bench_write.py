#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes, beside fuse2fs and the kernel's own ext4 over a loop device.

	seq	a new file of BENCH_MIB (1024), in requests of 1 MiB, and fsync
	rand	4 KiB at random places of a file of half that size, and fsync at the end
	sync	4 KiB at random places of a file of 64 MiB, fsync after each
	many	seed 004's job: 4 files of 16 MiB, 4 KiB at random places, a queue of 128 in batches of 16

Each round takes a new image through the same work with each of the three, in an order that rotates. Figures
are medians; foliofs_vs_X is the median of the rounds' ratios, and more than 1 means that foliofs is the
faster one. BENCH_ROUNDS (3) rounds; BENCH_SECONDS (2) for each job of fio; BENCH_ONLY names works, with
commas. Needs root. FOLIOFS names the program.
"""
import os
import time

from systems import SECONDS, fio_job, on_new_images, print_rates

SIZE = int(os.environ.get('BENCH_MIB', '1024'))
WORKS = [name for name in os.environ.get('BENCH_ONLY', 'seq,rand,sync,many').split(',')]


def write_file(name, size):
	"""Seconds for a new file of a size in MiB, with fsync."""
	data = os.urandom(1 << 20)
	began = time.monotonic()
	with open(name, 'wb', buffering=0) as f:
		for _ in range(size):
			f.write(data)
		os.fsync(f.fileno())
	return time.monotonic() - began


def fio(path, *words):
	"""Writes a second."""
	job = fio_job('--name=job', '--bs=4k', '--time_based', '--runtime=%d' % SECONDS, *words)
	# The time of the fsync at the end is not part of fio's own rate.
	return job['write']['total_ios'] / max(job['job_runtime'] / 1000, SECONDS)


def rand(path):
	name = os.path.join(path, 'rand')
	write_file(name, SIZE // 2)
	began = time.monotonic()
	rate = fio(path, '--filename=' + name, '--rw=randwrite', '--size=%dM' % (SIZE // 2), '--ioengine=psync',
		   '--end_fsync=1')
	return rate * SECONDS / max(time.monotonic() - began, SECONDS)


def sync(path):
	name = os.path.join(path, 'sync')
	write_file(name, 64)
	return fio(path, '--filename=' + name, '--rw=randwrite', '--size=64M', '--ioengine=psync', '--fsync=1')


def many(path):
	for n in range(4):
		write_file(os.path.join(path, 'job.%d.0' % n), 16)
	return fio(path, '--directory=' + path, '--rw=randwrite', '--size=16M', '--ioengine=libaio', '--direct=0',
		   '--gtod_reduce=1', '--iodepth=128', '--iodepth_low=96', '--iodepth_batch=16', '--numjobs=4')


MEASURES = {
	'seq': ('MiB/s', lambda path: SIZE / write_file(os.path.join(path, 'seq'), SIZE)),
	'rand': ('IOPS', rand),
	'sync': ('IOPS', sync),
	'many': ('IOPS', many),
}


def main():
	results = on_new_images(WORKS, lambda work, system, path: MEASURES[work][1](path))
	for work, found in results.items():
		print_rates('write.%s/' % work, MEASURES[work][0], found)


if __name__ == '__main__':
	main()
