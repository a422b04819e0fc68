# SPDX-License-Identifier: GPL-2.0-or-later
"""What compare.py has measured: a table for people, figure lines for programs, charts."""
import os
import shutil
import statistics
import subprocess

COLUMNS = (('foliofs', 'foliofs'), ('null', 'null server'), ('libfuse', 'null, libfuse loop'),
	   ('kernel', 'kernel, loop'), ('fuse2fs', 'fuse2fs'), ('raw', 'foliofs raw'), ('nbdfuse', 'nbdfuse'),
	   ('qemu', 'qemu'))
# figure's end: (who, beside whom)
RATIOS = {
	'vs_null': ('foliofs', 'null'),
	'vs_libfuse': ('foliofs', 'libfuse'),
	'vs_loop': ('foliofs', 'kernel'),
	'vs_fuse2fs': ('foliofs', 'fuse2fs'),
	'vs_nbdfuse': ('raw', 'nbdfuse'),
	'vs_qemu': ('raw', 'qemu'),
}
CHARTS = {
	'compare-data': ('Reads and writes of one file', ('vs_null', 'vs_loop', 'vs_fuse2fs')),
	'compare-trees': ('Trees of files, mounts', ('vs_null', 'vs_loop', 'vs_fuse2fs')),
	'compare-raw': ('Raw images', ('vs_nbdfuse', 'vs_qemu')),
}


def is_time(work):
	return work['unit'] in ('s', 'ms')


def ratio(work, name):
	"""The median over the rounds of our rate by theirs; None where one of the two was not measured."""
	ours, theirs = (work['systems'].get(system) for system in RATIOS[name])
	if not ours or not theirs:
		return None
	pairs = [(b, a) if is_time(work) else (a, b) for a, b in zip(ours, theirs)]
	return statistics.median(a / b for a, b in pairs)


def cell(samples):
	if not samples:
		return '-'
	middle = statistics.median(samples)
	spread = 100 * (max(samples) - min(samples)) / 2 / middle
	return '%s ±%.0f%%' % (format(middle, ',.0f') if middle >= 1000 else '%.3g' % middle, spread)


def print_table(works):
	columns = [(system, title) for system, title in COLUMNS
		   if any(system in work['systems'] for work in works.values())]
	ratios = [name for name in RATIOS if any(ratio(work, name) for work in works.values())]
	print('| work | unit | ' + ' | '.join([title for _, title in columns] + ratios) + ' |')
	print('|' + '---|' * (2 + len(columns) + len(ratios)))
	for name, work in works.items():
		cells = [cell(work['systems'].get(system)) for system, _ in columns]
		cells += ['%.2f' % value if value else '-' for value in (ratio(work, end) for end in ratios)]
		print('| %s | %s | %s |' % (name, work['unit'], ' | '.join(cells)))
	print()


def print_figures(works):
	for name, work in works.items():
		for end in RATIOS:
			value = ratio(work, end)
			if value:
				print('figure peer.%s.%s %.3f' % (name, end, value))
	fsync = [works.get('fsync_' + size, {'systems': {}})['systems'].get('foliofs') for size in ('1g', '2t')]
	if all(fsync):
		print('figure foliofs.fsync_2t_by_1g %.3f' % (statistics.median(fsync[1]) / statistics.median(fsync[0])))


def draw(out, name, title, ends, works):
	"""Bars of the ratios on a logarithmic scale, so that twice and half are as far from 1."""
	ends = [end for end in ends if any(ratio(work, end) for work in works.values())]
	rows = [(work, [ratio(works[work], end) for end in ends]) for work in works]
	rows = [row for row in rows if any(row[1])]
	if not rows:
		return
	data = os.path.join(out, name + '.dat')
	with open(data, 'w') as f:
		for work, values in rows:
			f.write('%s %s\n' % (work, ' '.join('%.4g' % value if value else '?' for value in values)))
	bars = ', '.join("'%s' using %d%s title '%s'" % (data, n + 2, ':xtic(1)' if not n else '', end.replace('_', ' '))
			 for n, end in enumerate(ends))
	script = '\n'.join([
		"set terminal svg size 1000,420 font 'sans,12' background 'white'",
		"set output '%s'" % os.path.join(out, name + '.svg'),
		"set title '%s: rate of foliofs by that of the others'" % title,
		'set style data histogram',
		'set style histogram clustered gap 1',
		'set style fill solid 0.8 noborder',
		"set datafile missing '?'",
		'set logscale y 2',
		"set xtics rotate by -40 noenhanced",
		'set grid ytics',
		'set key outside top right noenhanced',
		"set arrow from graph 0, first 1 to graph 1, first 1 nohead lw 2 lc 'black' front",
		'plot ' + bars,
	])
	subprocess.run(['gnuplot'], input=script, text=True, check=True)
	os.unlink(data)


def report(works, order, out):
	works = {name: works[name] for name in order if name in works}
	print_table(works)
	print_figures(works)
	if not shutil.which('gnuplot'):
		print('no charts: gnuplot is not installed')
		return
	data = {name: work for name, work in works.items() if 'raw' in work['systems']}
	trees = {name: work for name, work in works.items() if 'raw' not in work['systems']}
	for name, part in (('compare-data', data), ('compare-trees', trees), ('compare-raw', data)):
		draw(out, name, *CHARTS[name], part)
