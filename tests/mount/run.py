#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs mount tests: run.py [--tally FILE] [TOPIC | TOPIC.Class | TOPIC.Class.test]...

Without a topic it runs all. Each test gets a line; the closing line is `N passed, N failed`, with
`, N skipped` when there are any. With --tally the numbers are appended to FILE instead, for
tests/run.sh to add up.
"""
import glob
import os
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True


class Result(unittest.TestResult):
	"""One line for each test; the story of a failed one follows it at once."""

	def __init__(self):
		super().__init__()
		self.passed = 0
		self.failed = 0
		self.wrong_subtests = 0

	def startTest(self, test):
		super().startTest(test)
		self.began = time.monotonic()
		self.wrong_subtests = 0

	def line(self, test, word):
		name = test.id().removeprefix('test_') if hasattr(test, 'id') else str(test)
		print('%-7s %s (%.1f s)' % (word, name, time.monotonic() - self.began), flush=True)

	def story(self, test, err):
		for line in self._exc_info_to_string(err, test).splitlines():
			print('    | ' + line, flush=True)

	def addSuccess(self, test):
		self.passed += 1
		self.line(test, 'ok')

	def addSkip(self, test, reason):
		super().addSkip(test, reason)
		self.line(test, 'skipped')
		print('    | ' + reason, flush=True)

	def wrong(self, test, err):
		self.failed += 1
		self.line(test, 'FAILED')
		self.story(test, err)

	addFailure = wrong
	addError = wrong

	def addSubTest(self, test, subtest, err):
		"""A test with wrong subtests is one failed test; each of them tells its story."""
		if err is None:
			return
		self.wrong_subtests += 1
		if self.wrong_subtests == 1:
			self.failed += 1
		self.line(subtest, 'FAILED')
		self.story(test, err)

	def wasSuccessful(self):
		return self.failed == 0


def main():
	words = sys.argv[1:]
	tally = None
	if words[:1] == ['--tally']:
		tally, words = words[1], words[2:]
	if not words:
		words = sorted(os.path.basename(path)[5:-3]
			       for path in glob.glob(os.path.join(HERE, 'test_*.py')))
	suite = unittest.TestSuite()
	for word in words:
		name = word if word.startswith('test_') else 'test_' + word
		suite.addTests(unittest.defaultTestLoader.loadTestsFromName(name))
	result = Result()
	result.began = time.monotonic()
	suite.run(result)
	if tally:
		with open(tally, 'a') as f:
			f.write('%d %d %d\n' % (result.passed, result.failed, len(result.skipped)))
	else:
		skipped = ', %d skipped' % len(result.skipped) if result.skipped else ''
		print('%d passed, %d failed%s' % (result.passed, result.failed, skipped))
	return 0 if result.wasSuccessful() and result.passed + len(result.skipped) else 1


if __name__ == '__main__':
	sys.exit(main())
