#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""bonnie++'s deletion of files, beside fuse2fs and the kernel's own ext4 over a loop device.

Each round takes a new image through bonnie++ -s 0 -n N with each of the three, in an order that rotates: N times
1,024 empty files in one directory are made, looked at and deleted, in order of their names and at random.
N is 8 for fuse2fs and 32 for the others: bonnie++ tells no rate of what takes less than half a second, and
fuse2fs takes minutes for what is long enough for the kernel. Figures are files deleted a second, medians, in order and
at random together; foliofs_vs_X is the median of the rounds' ratios, and more than 1 means that foliofs
is the faster one. BENCH_ROUNDS (3) rounds. Needs root and bonnie++. FOLIOFS names the program.
"""
import statistics
import subprocess
import sys

from systems import on_new_images, print_rates, run

FILES = {'foliofs': 32, 'fuse2fs': 8, 'kernel': 32}
SEQUENTIAL, RANDOM = 30, 36	# of the values in bonnie++ 2's line: deletions a second


def deleted(system, path):
	"""Files deleted a second."""
	done = run('bonnie++', '-q', '-d', path, '-s', '0', '-n', '%d:0:0:1' % FILES[system], '-u', 'root',
		   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
	values = done.stdout.strip().splitlines()[-1].split(',')
	rates = [float(values[at]) for at in (SEQUENTIAL, RANDOM) if values[at].strip('+')]
	if not rates:
		sys.exit('%s deletes too fast for bonnie++ to tell a rate' % system)
	return statistics.harmonic_mean(rates)


def main():
	found = on_new_images(('delete',), lambda work, system, path: deleted(system, path))['delete']
	print_rates('delete.', 'files/s', found)


if __name__ == '__main__':
	main()
