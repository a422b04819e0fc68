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
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

from systems import FULL_INODES, IMAGES, ROUNDS, Mounted, new_image, run

FILES = {'foliofs': 32, 'fuse2fs': 8, 'kernel': 32}
SEQUENTIAL, RANDOM = 30, 36	# of the values in bonnie++ 2's line: deletions a second


def deleted(system, path):
	"""Files deleted a second; None where bonnie++ found it too quick to tell."""
	done = run('bonnie++', '-q', '-d', path, '-s', '0', '-n', '%d:0:0:1' % FILES[system], '-u', 'root',
		   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
	values = done.stdout.strip().splitlines()[-1].split(',')
	rates = [float(values[at]) for at in (SEQUENTIAL, RANDOM) if values[at].strip('+')]
	return statistics.harmonic_mean(rates) if rates else None


def report(results):
	for system, rates in results.items():
		print('figure delete.%s %.5g files/s  # %.4g to %.4g' % (
			system, statistics.median(rates), min(rates), max(rates)))
	for other in IMAGES[1:]:
		print('figure delete.foliofs_vs_%s %.3f x' % (other, statistics.median(
			a / b for a, b in zip(results['foliofs'], results[other]))))


def main():
	if os.geteuid() != 0:
		sys.exit('this needs root, for the loop device')
	top = tempfile.mkdtemp(prefix='foliofs-bench-')
	image, path = os.path.join(top, 'disk.img'), os.path.join(top, 'mnt')
	os.mkdir(path)
	results = {system: [] for system in IMAGES}
	try:
		for number in range(ROUNDS):
			for n in range(len(IMAGES)):
				system = IMAGES[(number + n) % len(IMAGES)]
				new_image(image, 4 << 30, *FULL_INODES)
				with Mounted(system, image, path):
					results[system].append(deleted(system, path))
		report(results)
	finally:
		if os.path.ismount(path):
			subprocess.run(['umount', '-l', path])
		shutil.rmtree(top, ignore_errors=True)


if __name__ == '__main__':
	main()
