# SPDX-License-Identifier: GPL-2.0-or-later
"""Tells what meson's tests did: tally.py LABEL TESTLOG.JSON TALLY.

A line for each suite, and the log of each that failed. A criterion suite counts with its own
tests, another program as one. The numbers are appended to TALLY as `passed failed skipped`.
"""
import json
import re
import sys

SYNTHESIS = re.compile(r'Tested: (\d+) \| Passing: (\d+) \| Failing: (\d+) \| Crashing: (\d+)')


def numbers(test):
	"""(passed, failed, skipped) of one of meson's tests."""
	output = re.sub(r'\x1b\[[0-9;]*m', '', test.get('stdout', '') + test.get('stderr', ''))
	well = test['result'] in ('OK', 'EXPECTEDFAIL')
	if test['result'] == 'SKIP':
		return 0, 0, 1
	found = SYNTHESIS.findall(output)
	if found:
		passed = int(found[-1][1])
		failed = int(found[-1][2]) + int(found[-1][3])
		return passed, max(failed, 0 if well else 1), 0
	return (1, 0, 0) if well else (0, 1, 0)


def main():
	label, log, tally = sys.argv[1:]
	sums = [0, 0, 0]
	try:
		with open(log) as f:
			tests = [json.loads(line) for line in f]
	except OSError as e:
		print('FAILED  %s: %s' % (label, e))
		return
	for test in tests:
		one = numbers(test)
		sums = [a + b for a, b in zip(sums, one)]
		name = test['name'].split(' / ')[-1]
		word = 'FAILED' if one[1] else 'skipped' if one[2] else 'ok'
		number = '%d tests' % sum(one) if sum(one) != 1 else '1 test'
		print('%-7s %s: %s (%s, %.1f s)' % (word, label, name, number, test['duration']))
		if one[1]:
			output = test.get('stdout', '') + test.get('stderr', '')
			print('    | %s' % test['result'])
			for line in output.splitlines()[-60:]:
				print('    | ' + line)
	sys.stdout.flush()
	if tests:
		with open(tally, 'a') as f:
			f.write('%d %d %d\n' % tuple(sums))


main()
