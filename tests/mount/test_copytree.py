# SPDX-License-Identifier: GPL-2.0-or-later
"""Whole trees in and out of every kind of image, compared with what the kernel makes of them."""
import os

import tree
from compare import compare
from harness import LONG, MountTest

WHOLE = '/usr/include'
PART = '/usr/include/linux'

KINDS = {
	'default': [],
	'block_1024': ['-b', '1024'],
	'block_2048': ['-b', '2048'],
	'block_4096': ['-b', '4096'],
	'ext3': ['-t', 'ext3'],
	'ext2': ['-t', 'ext2'],
	'no_64bit': ['-O', '^64bit'],
	'inline_data': ['-O', 'inline_data'],
	'no_journal': ['-O', '^has_journal'],
	'no_extents': ['-O', '^extents,^64bit'],
}


class CopyTree(MountTest):
	limit = 200
	size = 1 << 30

	def same(self, a, b, **kw):
		wrong = compare(a, b, **kw)
		if wrong:
			self.fail('the trees differ:\n' + '\n'.join(wrong))

	def work(self, source, kind):
		"""The same work on a foliofs mount and on a kernel mount, compared at each stage."""
		ours = self.image(*KINDS[kind], size=self.size)
		model = self.image(*KINDS[kind], size=self.size)
		there = self.kernel_mount(model)
		with self.mount(ours) as m:
			tree.copy(source, m / 'tree')
			self.same(source, m / 'tree', directory_links=False)
			tree.copy(source, os.path.join(there, 'tree'))
			for top in (m.path, there):
				tree.make_oddities(os.path.join(top, 'odd'))
				tree.set_times(top)
			self.same(there, m.path)
			for top in (m.path, there):
				tree.change(top)
				tree.set_times(top)
			self.same(there, m.path)
		self.kernel_umount(there)

		self.same(self.kernel_mount(model, 'ro'), self.kernel_mount(ours, 'ro'))
		with self.mount(ours, 'ro') as m, self.mount(model, 'ro') as n:
			self.same(n.path, m.path)

	def continue_kernels_work(self, kind):
		"""Take over an image that the kernel has filled: change it, and let the kernel look."""
		image = self.image(*KINDS[kind], size=self.size)
		there = self.kernel_mount(image)
		tree.copy(PART, os.path.join(there, 'tree'))
		tree.make_oddities(os.path.join(there, 'odd'))
		self.kernel_umount(there)
		model = self.image(size=self.size)
		other = self.kernel_mount(model)
		run_copy = os.path.join(other, 'all')
		with self.mount(image) as m:
			tree.copy(m.path, run_copy)
			for top in (m.path, run_copy):
				tree.change(top)
				tree.set_times(top)
			self.same(run_copy, m.path)
		self.same(run_copy, self.kernel_mount(image, 'ro'))


def add_tests():
	"""One test for each kind of image; the default takes the whole tree also in short runs."""
	def whole(kind):
		return lambda self: self.work(WHOLE if LONG or kind == 'default' else PART, kind)

	def takeover(kind):
		return lambda self: self.continue_kernels_work(kind)

	for kind in KINDS:
		setattr(CopyTree, 'test_' + kind, whole(kind))
		if LONG or kind in ('default', 'ext2', 'inline_data', 'block_1024'):
			setattr(CopyTree, 'test_takeover_' + kind, takeover(kind))


add_tests()
