# SPDX-License-Identifier: GPL-2.0-or-later
"""The command line: options, mount(8), the background, stats, and who may mount what twice."""
import errno
import json
import os
import shutil
import signal
import subprocess
import time

from harness import FOLIOFS, MountTest, foliofs, run
from test_ops import as_user, get, put


def wait_until(condition, seconds=30):
	end = time.monotonic() + seconds
	while not condition():
		if time.monotonic() > end:
			return False
		time.sleep(0.02)
	return True


def words(done):
	"""What a finished command printed, in one text."""
	return done.stdout


class Options(MountTest):
	def setUp(self):
		super().setUp()
		self.not_for_kernel()

	def fstype(self, path):
		return run('findmnt', '-no', 'FSTYPE,SOURCE', path).stdout.split()

	def test_version_and_help(self):
		for option in ('-V', '--version'):
			done = foliofs(option)
			self.assertEqual(done.returncode, 0)
			self.assertRegex(words(done), r'^foliofs \d+\.\d+')
		for option in ('-h', '--help'):
			done = foliofs(option)
			self.assertEqual(done.returncode, 0)
			for name in ('ro', 'rw', 'raw', 'offset', 'cache_size', 'direct_io', 'commit', 'errors', 'readahead',
				     'norecovery', 'noload', 'fakeroot', 'uid', 'gid', 'allow_other',
				     'default_permissions'):
				self.assertRegex(words(done), r'(?m)^\s*(-o )?%s\b' % name)

	def test_background(self):
		"""Without -f the program returns when the mount is there, and the daemon goes on."""
		image, path = self.image(), self.directory('mnt')
		done = run(FOLIOFS, image, path, check=False, timeout=30, stdout=subprocess.DEVNULL)
		self.assertEqual(done.returncode, 0)
		self.assertTrue(os.path.ismount(path))
		self.assertEqual(self.fstype(path)[0], 'fuse.foliofs')
		put(os.path.join(path, 'f'), b'x')
		done = foliofs('umount', path)
		self.assertEqual(done.returncode, 0, done.stdout)
		self.assertFalse(os.path.ismount(path))
		image.check()
		self.assertTrue(image.clean_flag())

	def test_mount_helper(self):
		"""mount -t fuse.foliofs finds the program in the usual places (here within a namespace)."""
		image, path, place = self.image(), self.directory('mnt'), self.directory('bin')
		shutil.copy(FOLIOFS, os.path.join(place, 'foliofs'))
		script = r'''
			set -e
			mount --bind "$3" /usr/local/sbin
			mount -t fuse.foliofs -o rw,nosuid,nodev,allow_other "$1" "$2"
			findmnt -no FSTYPE,OPTIONS "$2"
			echo x >"$2/f"
			umount "$2"
		'''
		done = run('unshare', '-m', '--propagation', 'private', 'sh', '-c', script, 'sh', image, path, place,
			   timeout=30)
		self.assertRegex(done.stdout, r'^fuse.foliofs .*nosuid')
		self.assertTrue(wait_until(image.clean_flag))
		image.check()

	def test_share_of_dirty_pages(self):
		"""Where the kernel gathers writes, and root mounts, it may gather more than for others."""
		for options, ratio in (('', '20'), ('direct_io', '1'), ('ro', '1')):
			with self.subTest(options=options), self.mount(self.image(), options) as m:
				dev = os.stat(m / '.').st_dev
				with open('/sys/class/bdi/%d:%d/max_ratio' % (os.major(dev), os.minor(dev))) as f:
					self.assertEqual(f.read().strip(), ratio)

	def test_read_only(self):
		image = self.image()
		with self.mount(image) as m:
			put(m / 'f', b'x')
		with open(image.path, 'rb') as f:
			before = f.read()
		with self.mount(image, 'ro') as m:
			self.assertEqual(get(m / 'f'), b'x')
			for call in (lambda: put(m / 'g'), lambda: os.unlink(m / 'f'), lambda: os.mkdir(m / 'd'),
				     lambda: os.chmod(m / 'f', 0), lambda: os.rename(m / 'f', m / 'g'),
				     lambda: os.setxattr(m / 'f', 'user.a', b''), lambda: open(m / 'f', 'r+b')):
				self.error(errno.EROFS, call)
		with open(image.path, 'rb') as f:
			self.assertTrue(f.read() == before, 'a read-only mount changed the image')

	def test_image_that_cannot_be_written(self):
		"""It is mounted read-only, and a warning says so."""
		image = self.image()
		run('chattr', '+i', image.path)
		try:
			with self.mount(image, check=False) as m:
				self.error(errno.EROFS, put, m / 'f')
				self.assertIn('read-only', m.output())
		finally:
			run('chattr', '-i', image.path)

	def test_offset(self):
		inner = self.image(size=64 << 20)
		path = self.file('container')
		at = 1 << 20
		with open(path, 'wb') as f:
			f.write(b'\xa5' * at)
			f.write(get(inner.path))
			f.write(b'\x5a' * 4096)
		with self.mount(path, 'offset=%d' % at) as m:
			put(m / 'f', b'x' * 100000)
		with self.mount(path, 'offset=1M') as m:
			self.assertEqual(get(m / 'f'), b'x' * 100000)
		with open(path, 'rb') as f:
			self.assertTrue(f.read(at) == b'\xa5' * at, 'what is before the image was changed')
			f.seek(-4096, os.SEEK_END)
			self.assertTrue(f.read() == b'\x5a' * 4096, 'what is behind the image was changed')
		with open(path, 'rb') as f, open(inner.path, 'wb') as g:
			f.seek(at)
			g.write(f.read()[:-4096])
		inner.check()

	def test_commit(self):
		"""With commit=1 what was written is on the image soon, without fsync and unmount."""
		image = self.image()
		mark = b'these bytes are found in the image itself' + os.urandom(16)
		with self.mount(image, 'commit=1', 'direct_io') as m:
			with open(m / 'f', 'wb') as f:
				f.write(mark)
			self.assertTrue(wait_until(lambda: mark in get(image.path)))

	def test_second_mount_is_refused(self):
		image = self.image()
		with self.mount(image) as m:
			put(m / 'f', b'x')
			other = self.directory('mnt')
			done = foliofs('-f', image, other)
			self.assertEqual(done.returncode, 1)
			self.assertEqual(len(words(done).strip().splitlines()), 1, words(done))
			self.assertIn('in use', words(done))
			self.assertFalse(os.path.ismount(other))
			self.assertEqual(get(m / 'f'), b'x')

	def test_readers_share(self):
		image = self.image()
		with self.mount(image, 'ro'), self.mount(image, 'ro') as m:
			self.assertEqual(os.listdir(m.path), ['lost+found'])

	def test_signal_unmounts(self):
		"""SIGTERM writes everything, unmounts and ends."""
		image = self.image()
		m = self.mount(image).start()
		put(m / 'f', b'x' * 1000000)
		m.proc.send_signal(signal.SIGTERM)
		self.assertEqual(m.proc.wait(60), 0, m.output())
		self.assertFalse(os.path.ismount(m.path))
		m.mounted = False
		image.check()
		with self.mount(image) as m:
			self.assertEqual(get(m / 'f'), b'x' * 1000000)

	def test_umount_command(self):
		"""It returns when the image is free, with all that was written on it."""
		image = self.image()
		for number in range(3):
			m = self.mount(image).start()
			data = os.urandom(8 << 20)
			put(m / 'f', data)
			done = foliofs('umount', m.path)
			self.assertEqual((done.returncode, words(done)), (0, ''))
			m.mounted = False
			image.check()
			self.assertTrue(image.clean_flag())
			self.assertEqual(m.proc.wait(10), 0, m.output())
			with self.mount(image, 'ro') as m:
				self.assertTrue(get(m / 'f') == data)

	def test_umount_command_when_busy(self):
		with self.mount(self.image()) as m, open(m / 'f', 'wb'):
			done = foliofs('umount', m.path)
			self.assertEqual(done.returncode, 1)
			self.assertIn('cannot be unmounted', words(done))
			self.assertTrue(os.path.ismount(m.path))

	def test_umount_command_in_another_pid_namespace(self):
		"""There is nobody to be waited for, and a warning says so."""
		image = self.image()
		m = self.mount(image).start()
		put(m / 'f', b'x')
		done = run('unshare', '--pid', '--fork', FOLIOFS, 'umount', m.path, timeout=30)
		self.assertIn('cannot be waited for', done.stdout)
		m.mounted = False
		self.assertEqual(m.proc.wait(10), 0, m.output())
		image.check()

	def test_owners(self):
		image = self.image()
		with self.mount(image) as m:
			os.chown(put(m / 'f'), 1000, 1000)
		with self.mount(image, 'uid=77', 'gid=88') as m:
			self.assertEqual((os.stat(m / 'f').st_uid, os.stat(m / 'f').st_gid), (77, 88))
		with self.mount(image) as m:
			self.assertEqual((os.stat(m / 'f').st_uid, os.stat(m / 'f').st_gid), (1000, 1000))

	def test_fakeroot(self):
		"""Everybody whom the kernel lets in may do everything."""
		with self.mount(self.image(), 'fakeroot', 'allow_other') as m:
			os.chmod(put(m / 'f', b'x'), 0o600)
			with as_user():
				self.assertEqual(get(m / 'f'), b'x')
				os.chown(m / 'f', 5, 6)
				put(m / 'g', b'y')
			self.assertEqual(os.stat(m / 'f').st_uid, 5)

	def test_options_of_fuse2fs(self):
		options = ('rw', 'errors=remount-ro', 'acl', 'no_default_opts', 'minixdf', 'directio',
			   'cache_size=32M', 'lockfile=' + self.file('lock'))
		with self.mount(self.image(), *options) as m:
			put(m / 'f', b'x')
		with self.mount(self.image(), 'bsddf', 'norecovery', check=False) as m:
			self.error(errno.EROFS, put, m / 'f')

	def test_stats(self):
		with self.mount(self.image(), 'cache_size=32M', 'direct_io') as m:
			put(m / 'f', os.urandom(1 << 20))
			for _ in range(3):
				get(m / 'f')
			with open(m / 'f', 'rb') as f:
				os.fsync(f.fileno())
			figures = json.loads(words(foliofs('stats', '--json', m.path)))
			self.assertGreater(figures['hits'], 0)
			self.assertGreaterEqual(figures['written_bytes'], 1 << 20)
			self.assertEqual(figures['bound_bytes'], 32 << 20)
			self.assertLessEqual(figures['used_bytes'], figures['bound_bytes'])
			self.assertGreaterEqual(figures['requests']['write'], 1)
			table = words(foliofs('stats', m.path))
			self.assertRegex(table, r'(?m)^\s*hits\s+\d+')
			self.assertRegex(table, r'(?m)^\s*dirty\s')
		done = foliofs('stats', self.top)
		self.assertEqual(done.returncode, 1)

	def test_features_that_forbid_writing(self):
		"""Quota and its like are read, not written; a feature that nobody knows is refused."""
		for feature in ('quota', 'verity', 'bigalloc', 'encrypt', 'casefold', 'project,quota'):
			with self.subTest(feature=feature):
				image = self.image('-O', feature, size=128 << 20)
				path = self.directory('mnt')
				m = self.mount(image, path=path, check=False)
				try:
					m.start()
				except AssertionError:
					self.assertEqual(m.proc.returncode, 1)
					continue
				self.error(errno.EROFS, put, m / 'f')
				self.assertIn('read-only', m.output())
				m.stop()
				image.check()

	def test_unknown_features(self):
		for feature, refused in (('FEATURE_I30', True), ('FEATURE_R30', False), ('FEATURE_C30', False)):
			with self.subTest(feature=feature):
				image = self.image(size=64 << 20)
				image.debugfs('feature ' + feature, write=True)
				m = self.mount(image, check=False)
				if refused:
					self.assertRaises(AssertionError, m.start)
					self.assertEqual(m.proc.returncode, 1)
					continue
				with m:
					self.assertEqual(os.listdir(m.path), ['lost+found'])
					if feature.startswith('FEATURE_R'):
						self.error(errno.EROFS, put, m / 'f')


class Raw(MountTest):
	def setUp(self):
		super().setUp()
		self.not_for_kernel()

	def test_one_file(self):
		path = self.file('disk.img')
		content = os.urandom(5 << 20) + b'odd end'
		put(path, content)
		with self.mount(path, 'raw') as m:
			self.assertEqual(os.listdir(m.path), ['disk.img'])
			self.assertTrue(get(m / 'disk.img') == content)
			self.assertEqual(os.stat(m / 'disk.img').st_size, len(content))
			with open(m / 'disk.img', 'r+b') as f:
				f.seek(100000)
				f.write(b'written through the mount')
				f.seek(-3, os.SEEK_END)
				f.write(b'END')
				f.flush()
				os.fsync(f.fileno())
			self.assertRaises(OSError, put, m / 'other')
			self.assertRaises(OSError, os.unlink, m / 'disk.img')
		expected = bytearray(content)
		expected[100000:100025] = b'written through the mount'
		expected[-3:] = b'END'
		self.assertTrue(get(path) == expected)

	def test_a_file_system_within(self):
		"""The file can be looped and mounted by the kernel."""
		image = self.image(size=64 << 20)
		with self.mount(image, 'raw', check=False) as m:
			there = self.kernel_mount(m / 'disk.img')
			put(os.path.join(there, 'f'), b'x' * 1000000)
			self.kernel_umount(there)
		image.check()
		self.assertEqual(get(os.path.join(self.kernel_mount(image, 'ro'), 'f')), b'x' * 1000000)

	def test_read_only(self):
		path = self.file('disk.img')
		put(path, b'content')
		with self.mount(path, 'raw,ro') as m:
			self.assertEqual(get(m / 'disk.img'), b'content')
			self.error(errno.EROFS, open, m / 'disk.img', 'r+b')

	def test_offset(self):
		path = self.file('disk.img')
		put(path, b'before' + bytes(4090) + b'content')
		with self.mount(path, 'raw', 'offset=4096') as m:
			self.assertEqual(get(m / 'disk.img'), b'content')
