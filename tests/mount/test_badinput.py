# SPDX-License-Identifier: GPL-2.0-or-later
"""Bad input: one clear line, exit status 1, nothing mounted, the image untouched."""
import hashlib
import os
import shutil
import stat
import subprocess

from harness import FOLIOFS, MountTest, foliofs, mounts_under, run
from test_ops import put

BAD_OPTIONS = ('nosuchoption', 'cache_size=', 'cache_size=no', 'cache_size=-1', 'cache_size=1', 'cache_size=1X',
	       'cache_size', 'offset=x', 'offset=-5', 'offset=99999999999999999999', 'commit=x', 'commit=-1',
	       'errors=sometimes', 'errors=', 'uid=root', 'uid=-7', 'gid=x', 'ro=1', 'raw=yes')


class BadInput(MountTest):
	def setUp(self):
		super().setUp()
		self.not_for_kernel()

	def refused(self, image, *arguments, path=None, word=None, prefix=()):
		"""The program has to say no, and leave everything as it was."""
		path = path or self.directory('mnt')
		before = self.state(image)
		done = run(*prefix, FOLIOFS, '-f', *arguments, image, path, check=False, timeout=30,
			   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
		self.assertEqual(done.returncode, 1, done.stderr)
		self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
		self.assertEqual(done.stdout, '')
		if word:
			self.assertIn(word, done.stderr)
		self.assertEqual(mounts_under(self.top), [])
		self.assertEqual(self.state(image), before, 'the image was changed')

	def state(self, image):
		path = str(image)
		if not os.path.exists(path):
			return None
		st = os.stat(path)
		if not stat.S_ISREG(st.st_mode):
			return st.st_mode
		with open(path, 'rb') as f:
			return st.st_mtime_ns, st.st_mode, hashlib.sha256(f.read()).digest()

	def change(self, image, *places):
		"""Write bytes over places of the image."""
		with open(image.path, 'r+b') as f:
			for at, data in places:
				f.seek(at)
				f.write(data)

	def test_no_such_image(self):
		self.refused(self.file('nothing'), word='nothing')

	def test_directory(self):
		self.refused(self.directory('d'))

	def test_fifo(self):
		path = self.file('fifo')
		os.mkfifo(path)
		self.refused(path)

	def test_device_that_is_no_disk(self):
		self.refused('/dev/null')
		self.refused('/dev/zero')

	def test_empty(self):
		self.refused(put(self.file('f')))

	def test_few_bytes(self):
		for size in (1, 1023, 1024, 1500, 2047):
			self.refused(put(self.file('f'), bytes(size)))

	def test_text(self):
		self.refused(put(self.file('f'), b'not a disk image\n' * 10000))

	def test_noise(self):
		self.refused(put(self.file('f'), os.urandom(1 << 20)))

	def test_truncated(self):
		for size in (2048, 4096, 100000, (32 << 20) - 1):
			image = self.image(size=32 << 20)
			os.truncate(image.path, size)
			self.refused(image)

	def test_superblock_of_noise(self):
		"""The magic is right, all the rest is noise."""
		for seed in range(20):
			image = self.image(size=16 << 20)
			noise = hashlib.shake_128(b'%d' % seed).digest(1024)
			self.change(image, (1024, noise), (1024 + 56, b'\x53\xef'))
			self.refused(image)

	def test_superblock_fields(self):
		"""Fields with values that cannot be; the checksum is made right where there is one."""
		for field, value in (('log_block_size', 30), ('blocks_per_group', 0), ('inodes_per_group', 0),
				     ('inodes_per_group', 1 << 31), ('inode_size', 100), ('inode_size', 8192),
				     ('desc_size', 7), ('first_data_block', 5), ('rev_level', 9),
				     ('blocks_count', 1 << 31), ('inodes_count', 3)):
			with self.subTest(field=field, value=value):
				image = self.image('-O', '^metadata_csum', size=16 << 20)
				image.debugfs('set_super_value %s %d' % (field, value), write=True)
				self.refused(image)

	def test_superblock_checksum(self):
		image = self.image(size=16 << 20)
		self.change(image, (1024 + 120, b'changed'))
		self.refused(image)

	def test_group_descriptor(self):
		image = self.image('-b', '4096', size=64 << 20)
		self.change(image, (4096 + 30, b'\xff\xff'))
		self.refused(image)

	def test_group_descriptor_points_outside(self):
		image = self.image('-b', '4096', '-O', '^metadata_csum,^uninit_bg', size=64 << 20)
		self.change(image, (4096 + 8, b'\xff\xff\xff\x7f'))
		self.refused(image)

	def test_wrong_offset(self):
		image = self.image(size=16 << 20)
		for offset in ('512', '1M', '15M', '16M', '1G'):
			self.refused(image, '-o', 'offset=' + offset)

	def test_in_use(self):
		image = self.image(size=32 << 20)
		with self.mount(image):
			done = foliofs('-f', image, self.directory('mnt'))
			self.assertEqual(done.returncode, 1)
			self.assertEqual(len(done.stdout.strip().splitlines()), 1, done.stdout)

	def test_no_permission(self):
		image = self.image(size=16 << 20)
		os.chmod(image.path, 0o600)
		program = os.path.join(self.directory('bin'), 'foliofs')
		shutil.copy(FOLIOFS, program)
		path = self.directory('mnt')
		os.chown(path, 65534, 65534)
		before = self.state(image)
		done = run('setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', program, '-f', image, path,
			   check=False, timeout=30)
		self.assertEqual(done.returncode, 1)
		self.assertEqual(len(done.stdout.strip().splitlines()), 1, done.stdout)
		self.assertIn('ermission denied', done.stdout)
		self.assertEqual(self.state(image), before)

	def test_mount_points(self):
		image = self.image(size=16 << 20)
		self.refused(image, path=os.path.join(self.top, 'nothing'), word='nothing')
		self.refused(image, path=put(self.file('file')), word='file')

	def test_arguments(self):
		image = self.image(size=16 << 20)
		for arguments in ((), ('-f',), (image,), ('--nonsense',), ('-Z', image, self.top), ('-o',),
				  (image, self.top, 'more'), ('stats',), ('stats', '/nonexistent'),
				  ('umount', '/'), ('umount',)):
			with self.subTest(arguments=[str(a) for a in arguments]):
				done = foliofs(*arguments)
				self.assertEqual(done.returncode, 1, done.stdout)
				self.assertEqual(len(done.stdout.strip().splitlines()), 1, done.stdout)

	def test_options(self):
		image = self.image(size=16 << 20)
		for option in BAD_OPTIONS:
			with self.subTest(option=option):
				self.refused(image, '-o', option)

	def test_foreign_file_system(self):
		"""A superblock of a format that has nothing to do with ext2."""
		content = bytearray(1 << 20)
		content[0:4] = b'XFSB'
		content[32768 + 1:32768 + 6] = b'CD001'
		self.refused(put(self.file('f'), content))

	def test_journal_device(self):
		path = self.file('journal')
		put(path, bytes(16 << 20))
		run('mke2fs', '-q', '-F', '-O', 'journal_dev', path)
		self.refused(path)

	def test_damaged_root(self):
		image = self.image(size=16 << 20)
		image.debugfs('clri <2>', write=True)
		self.refused(image)
