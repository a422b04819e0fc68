# SPDX-License-Identifier: GPL-2.0-or-later
"""stress-ng's file system stressors, several at once, then a check of the image."""
import os

from harness import LONG, MountTest, run

STRESSORS = ('hdd', 'fallocate', 'rename', 'link', 'symlink', 'dir', 'dentry', 'xattr', 'utime', 'chmod',
	     'fiemap', 'seek', 'copy-file', 'iomix')
SECONDS = 60 if LONG else 8


class Stress(MountTest):
	limit = 150

	def no_sync(self):
		"""A library in which sync(2) does nothing.

		Several stressors call sync(2), which waits for every file system of the machine: for
		any other one that is slow or stuck, and never for ours, as it does not reach a FUSE server.
		"""
		source, library = self.file('nosync.c'), self.file('nosync.so')
		with open(source, 'w') as f:
			f.write('void sync(void) {}\n')
		run('gcc', '-shared', '-fPIC', '-o', library, source)
		return library

	def stress(self, *options, stressors=STRESSORS):
		words = []
		for name in stressors:
			words += ['--' + name, '1']
		image = self.image(size=2 << 30)
		library = self.no_sync()
		with self.mount(image, *options) as m:
			done = run('stress-ng', *words, '--verify', '--timeout', '%ds' % SECONDS,
				   '--temp-path', m.path, '--hdd-bytes', '64M', '--fallocate-bytes', '64M',
				   '--copy-file-bytes', '128M', '--iomix-bytes', '64M', '--metrics-brief',
				   env=dict(os.environ, LD_PRELOAD=library), check=False)
			self.assertEqual(done.returncode, 0, done.stdout)
			self.assertNotIn('fail:', done.stdout)
			self.assertEqual(os.listdir(m.path), ['lost+found'])

	def test_all_together(self):
		self.stress()

	def test_small_cache(self):
		self.stress('cache_size=16M', stressors=('hdd', 'fallocate', 'seek', 'copy-file', 'iomix'))

	def test_direct_io(self):
		"""fallocate and iomix are left out: they map files, which direct_io does not allow."""
		self.stress('direct_io', 'cache_size=16M',
			    stressors=('hdd', 'rename', 'link', 'dir', 'seek', 'copy-file', 'xattr'))
