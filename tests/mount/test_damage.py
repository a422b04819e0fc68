# SPDX-License-Identifier: GPL-2.0-or-later
"""Damage that is met later: an error for the damaged object alone, and the mount goes on."""
import errno
import os
import re

from harness import KERNEL, MountTest
from test_ops import get, put

BLOCK = 4096
# (The kernel has another for wrong checksums, and takes a damaged directory for an empty one.)
DAMAGED = (errno.EUCLEAN, errno.EIO) + ((errno.EBADMSG, errno.ENOENT) if KERNEL else ())
# With checksums and without: a wrong checksum and a wrong value are found in different places.
MKFS = (('-b', '4096'), ('-b', '4096', '-O', '^metadata_csum'))


class Damage(MountTest):
	def fill(self, mkfs):
		"""An image with some of everything that can be damaged."""
		image = self.image(*mkfs, size=128 << 20)
		with self.mount(image) as m:
			put(m / 'good', b'g' * 100000)
			put(m / 'bad', b'b' * 100000)
			os.mkdir(m / 'dir')
			put(m / 'dir/inside', b'i')
			os.mkdir(m / 'big')
			for n in range(1500):
				put(m / ('big/some-name-that-is-not-short-%06d' % n))
			with open(m / 'pieces', 'wb') as f:
				for n in range(400):	# more extents than an inode has room for
					f.seek(n * 3 * BLOCK)
					f.write(b'p' * BLOCK)
			os.symlink('x' * 200, m / 'symlink')
			os.setxattr(put(m / 'attributes', b'a'), 'user.large', b'v' * 900)
		return image

	def block(self, image, name, number=0):
		"""Where a block of a file is on the image."""
		return int(image.debugfs('bmap %s %d' % (name, number)).split()[-1])

	def overwrite(self, image, block, data=b'\xd5' * BLOCK, at=0):
		with open(image.path, 'r+b') as f:
			f.seek(block * BLOCK + at)
			f.write(data)

	def fails(self, call, *arguments):
		"""The call fails as damage does."""
		try:
			result = call(*arguments)
		except OSError as e:
			self.assertIn(e.errno, DAMAGED, e)
			return
		if not KERNEL or call is not os.listdir:
			self.fail('no error, but %r' % (result,))

	def lives(self, m, *damaged):
		"""Everything else works: it is read, and new files can be made."""
		for name, content in (('good', b'g' * 100000), ('bad', b'b' * 100000), ('dir/inside', b'i')):
			if name.split('/')[0] not in damaged:
				self.assertTrue(get(m / name) == content, name)
		if 'big' not in damaged:
			self.assertEqual(len(os.listdir(m / 'big')), 1500)
		put(m / 'new', b'n' * 10000)
		self.assertEqual(get(m / 'new'), b'n' * 10000)
		os.unlink(m / 'new')

	def each(self, damage, look, *damaged):
		"""Damage an image of each kind, look at it in a mount, and see that the rest lives."""
		for mkfs in MKFS:
			with self.subTest(mkfs=' '.join(mkfs)):
				image = self.fill(mkfs)
				damage(image)
				with self.mount(image, 'errors=continue', check=False) as m:
					look(m)
					self.lives(m, *damaged)
					look(m)

	def test_inode_checksum(self):
		image = self.fill(MKFS[0])
		place = re.search(r'located at block (\d+), offset (0x[0-9a-f]+)', image.debugfs('imap bad'))
		self.overwrite(image, int(place[1]), b'\x99' * 4, int(place[2], 16) + 0x10)
		with self.mount(image, 'errors=continue', check=False) as m:
			self.fails(os.stat, m / 'bad')
			self.lives(m, 'bad')

	def test_inode_of_noise(self):
		def damage(image):
			place = re.search(r'located at block (\d+), offset (0x[0-9a-f]+)', image.debugfs('imap bad'))
			self.overwrite(image, int(place[1]), bytes(range(1, 129)), int(place[2], 16))

		def look(m):
			self.fails(lambda: open(m / 'bad', 'rb').read())

		self.each(damage, look, 'bad')

	def test_extent_header_in_the_inode(self):
		def damage(image):
			image.debugfs('set_inode_field bad block[0] 0x12345678', write=True)

		def look(m):
			self.fails(lambda: get(m / 'bad'))

		self.each(damage, look, 'bad')

	def test_extent_outside_of_the_image(self):
		def damage(image):
			image.debugfs('set_inode_field bad block[5] 0x7fffff00', write=True)

		def look(m):
			self.fails(lambda: get(m / 'bad'))

		self.each(damage, look, 'bad')

	def test_extent_block(self):
		def damage(image):
			found = re.search(r'\(ETB0\):(\d+)', image.debugfs('stat pieces'))
			self.overwrite(image, int(found[1]))

		def look(m):
			self.fails(lambda: get(m / 'pieces'))

		self.each(damage, look, 'pieces')

	def test_directory_block(self):
		def damage(image):
			self.overwrite(image, self.block(image, 'dir'))

		def look(m):
			self.fails(os.listdir, m / 'dir')
			self.fails(os.stat, m / 'dir/inside')
			self.fails(put, m / 'dir/new')

		self.each(damage, look, 'dir')

	def test_block_of_a_big_directory(self):
		def damage(image):
			self.overwrite(image, self.block(image, 'big', 3))

		def look(m):
			self.fails(os.listdir, m / 'big')

		self.each(damage, look, 'big')

	def test_entry_length(self):
		def damage(image):
			self.overwrite(image, self.block(image, 'dir'), b'\x03\x00', 12 + 4)

		def look(m):
			self.fails(os.listdir, m / 'dir')

		self.each(damage, look, 'dir')

	def test_name_without_inode(self):
		"""A name that points to an inode that is free, or beyond the last."""
		def damage(image):
			image.debugfs('clri bad', write=True)

		def look(m):
			self.fails(os.stat, m / 'bad')

		self.each(damage, look, 'bad')

	def test_attribute_block(self):
		def damage(image):
			block = int(re.search(r'File ACL: (\d+)', image.debugfs('stat attributes'))[1])
			self.assertNotEqual(block, 0)
			self.overwrite(image, block)

		def look(m):
			self.fails(os.getxattr, m / 'attributes', 'user.large')
			self.assertEqual(get(m / 'attributes'), b'a')

		self.each(damage, look)

	def test_remount_read_only(self):
		"""With errors=remount-ro nothing can be changed once damage has been met."""
		image = self.fill(MKFS[0])
		self.overwrite(image, self.block(image, 'dir'))
		with self.mount(image, 'errors=remount-ro', check=False) as m:
			with open(put(m / 'before', b'x'), 'rb') as f:
				os.fsync(f.fileno())	# what is not written yet would be lost
			self.fails(os.listdir, m / 'dir')
			self.error(errno.EROFS, put, m / 'after')
			self.error(errno.EROFS, os.unlink, m / 'good')
			self.assertEqual(get(m / 'good'), b'g' * 100000)

	def test_error_is_noted(self):
		"""The image says afterwards that errors were met, so that e2fsck looks at it."""
		image = self.fill(MKFS[0])
		self.overwrite(image, self.block(image, 'dir'))
		with self.mount(image, 'errors=continue', check=False) as m:
			self.fails(os.listdir, m / 'dir')
			put(m / 'after', b'x')
		with open(image.path, 'rb') as f:
			f.seek(1024 + 58)
			self.assertTrue(f.read(2)[0] & 2)

	def test_bitmap_of_noise(self):
		"""A damaged bitmap may forbid changes, but not reading."""
		image = self.fill(MKFS[0])
		found = re.search(r'block bitmap at (\d+)', image.debugfs('show_super_stats'))
		self.overwrite(image, int(found[1]))
		with self.mount(image, 'errors=continue', check=False) as m:
			self.assertEqual(get(m / 'good'), b'g' * 100000)
			self.assertEqual(len(os.listdir(m / 'big')), 1500)
			try:
				put(m / 'new', b'n' * 100000)
			except OSError as e:
				self.assertIn(e.errno, DAMAGED + (errno.EROFS,))
