#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The figures of bench_cache_read: times, and what callgrind counts in cached sequential reads.

	cache_read.py BENCH_CACHE_READ

Instructions and branches of a read are the difference between a run that reads and one that only
fills the cache, divided by the number of reads.
"""
import os
import shutil
import subprocess
import sys
import tempfile

READS = {4096: 20000, 1 << 20: 200}


def counts(bench, variant, size, reads):
	"""Instructions, and branches: conditional and indirect ones."""
	with tempfile.TemporaryDirectory() as top:
		out = os.path.join(top, 'callgrind.out')
		subprocess.run(['valgrind', '--tool=callgrind', '--branch-sim=yes', '--callgrind-out-file=' + out,
				bench, 'batch', variant, str(size), str(reads)],
			       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
		with open(out) as f:
			lines = dict(line.split(':', 1) for line in f if line.startswith(('events:', 'totals:')))
	found = dict(zip(lines['events'].split(), map(int, lines['totals'].split())))
	return found['Ir'], found['Bc'] + found['Bi']


def batch(bench):
	for size, reads in READS.items():
		none = counts(bench, 'none', size, reads)
		per_read = {variant: [(a - b) / reads for a, b in zip(counts(bench, variant, size, reads), none)]
			    for variant in ('old', 'new')}
		suffix = '' if size == 4096 else '_1m'
		for i, what in enumerate(('instr', 'branch')):
			for variant in ('old', 'new'):
				print('figure batch.%s%s_%s %.1f per_read' % (what, suffix, variant, per_read[variant][i]))
			print('figure batch.%s_ratio%s %.4f times' % (
				what, suffix, per_read['new'][i] / per_read['old'][i]))


def main():
	bench = sys.argv[1]
	for part in ('add', 'read'):
		subprocess.run([bench, part], check=True)
	if shutil.which('valgrind'):
		batch(bench)
	else:
		print('valgrind is not there: no figures of batches')


main()
