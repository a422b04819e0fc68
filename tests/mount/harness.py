# SPDX-License-Identifier: GPL-2.0-or-later
"""What every mount test stands on: images, mounts, a time limit, and cleaning up.

A test class derives from MountTest. It makes images (self.image), mounts them (self.mount, a
context manager) and works on real paths. When a read-write mount is left, the daemon has to end by
itself with status 0, and `e2fsck -fn` has to find the image clean: so every test is also a test
of what is on the image afterwards.

FOLIOFS names the program under test. FOLIOFS=kernel mounts the image with the kernel's own ext4
through a loop device instead: a check of the tests themselves, since what they demand has to be what
ext4 does. FOLIOFS_LONG=1 runs the full sizes; without it they are small enough for CI.

A mount that hangs must not hang the tests: a small watchdog process knows the daemons of the running
test and kills them when its time is over; that makes the kernel fail every call which waits for
them, and the test then fails with a clear message.
"""
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
FOLIOFS = os.environ.get('FOLIOFS') or os.path.join(TOP, 'build', 'fs', 'foliofs')
KERNEL = FOLIOFS == 'kernel'
LONG = os.environ.get('FOLIOFS_LONG') == '1'
SANITIZED = os.environ.get('FOLIOFS_SANITIZED') == '1'

END_LIMIT = 120		# seconds that a daemon has to end after the unmount
MOUNT_LIMIT = 60	# seconds that a mount may take
SANITIZER_WORDS = ('AddressSanitizer', 'LeakSanitizer', 'ThreadSanitizer', 'runtime error:')

# For the suites of criterion alone; and others than root might not be able to read the file it names.
os.environ.pop('LSAN_OPTIONS', None)

libc = ctypes.CDLL(None, use_errno=True)


class TestTimeout(Exception):
	"""The running test took longer than its limit."""


def run(*command, check=True, **kw):
	"""Run a command; returns its CompletedProcess, with the output as text. Fails with the output."""
	kw.setdefault('stdin', subprocess.DEVNULL)
	if 'stdout' not in kw:
		kw['stdout'] = subprocess.PIPE
		kw.setdefault('stderr', subprocess.STDOUT)
	done = subprocess.run([str(word) for word in command], text=True, errors='replace', **kw)
	if check and done.returncode != 0:
		raise AssertionError('%s: status %d\n%s' % (' '.join(map(str, command)), done.returncode,
							    done.stdout))
	return done


def prerequisites():
	"""What is missing for the mount tests to run, as a text; empty when they can run."""
	missing = []
	if os.geteuid() != 0:
		missing.append('root')
	if not KERNEL and not os.access(FOLIOFS, os.X_OK):
		missing.append(FOLIOFS)
	if not os.path.exists('/dev/fuse'):
		missing.append('/dev/fuse')
	if not os.path.exists('/dev/loop-control'):
		missing.append('loop devices')
	for tool in ('mkfs.ext4', 'e2fsck', 'debugfs', 'fusermount3', 'mount', 'umount', 'fio',
		     'stress-ng', 'setfacl', 'getfacl', 'unshare', 'setpriv', 'stdbuf', 'gcc'):
		if not shutil.which(tool):
			missing.append(tool)
	return ', '.join(missing)


def mounts_under(top):
	"""Mount points at or below a directory, the last mounted first."""
	found = []
	with open('/proc/self/mountinfo') as f:
		for line in f:
			point = line.split()[4].encode().decode('unicode_escape')
			if point == top or point.startswith(top + '/'):
				found.append(point)
	return found[::-1]


class Watchdog:
	"""A process beside ours that kills daemons when a test takes too long, or when we die."""

	PROGRAM = (
		'import os, select, signal, sys, time\n'
		'end, pids, rest = time.monotonic() + float(sys.argv[1]), set(), b""\n'
		'parent = os.getppid()\n'
		'while True:\n'
		'    ready = select.select([0], [], [], max(0, end - time.monotonic()))[0]\n'
		'    if ready:\n'
		'        data = os.read(0, 4096)\n'
		'        if not data: break\n'
		'        *lines, rest = (rest + data).split(b"\\n")\n'
		'        for line in lines:\n'
		'            if line == b"done": sys.exit(0)\n'
		'            (pids.add if line[:1] == b"+" else pids.discard)(int(line[1:]))\n'
		'    else:\n'
		'        os.kill(parent, signal.SIGALRM)\n'
		'        time.sleep(1)\n'
		'        break\n'
		'for pid in pids:\n'
		'    try: os.kill(pid, signal.SIGKILL)\n'
		'    except OSError: pass\n')

	def __init__(self, seconds):
		self.proc = subprocess.Popen([sys.executable, '-c', self.PROGRAM, str(seconds)],
					     stdin=subprocess.PIPE, bufsize=0)

	def tell(self, sign, pid):
		try:
			self.proc.stdin.write(b'%s%d\n' % (sign, pid))
		except OSError:
			pass

	def stop(self):
		try:
			self.proc.stdin.write(b'done\n')
			self.proc.stdin.close()
		except OSError:
			pass
		self.proc.wait()


class Image:
	"""An image file with an ext2, ext3 or ext4 file system."""

	def __init__(self, path, size, *mkfs):
		self.path = path
		with open(path, 'wb') as f:
			f.truncate(size)
		run('mkfs.ext4', '-Fq', '-E', 'lazy_itable_init=0,lazy_journal_init=0', *mkfs, path)

	def __str__(self):
		return self.path

	def check(self):
		"""Fail unless e2fsck finds nothing to say."""
		done = run('e2fsck', '-fn', self.path, check=False)
		if done.returncode != 0:
			raise AssertionError('e2fsck -fn %s: status %d\n%s' % (
				self.path, done.returncode, done.stdout[-6000:]))

	def debugfs(self, *requests, write=False):
		"""Run requests through debugfs; returns what it printed."""
		command = ['debugfs'] + (['-w'] if write else [])
		return run(*command, '-f', '-', self.path, stdin=None,
			   input='\n'.join(requests) + '\n', stderr=subprocess.DEVNULL,
			   stdout=subprocess.PIPE).stdout

	def clean_flag(self):
		"""Does the superblock say that the file system was unmounted cleanly?"""
		with open(self.path, 'rb') as f:
			f.seek(1024 + 58)
			return bool(f.read(2)[0] & 1) and not self.needs_recovery()

	def needs_recovery(self):
		"""Does the superblock say that the journal is to be replayed?"""
		with open(self.path, 'rb') as f:
			f.seek(1024 + 96)
			return bool(f.read(4)[0] & 4)


class Mount:
	"""One mount of an image, by foliofs (or by the kernel, when FOLIOFS=kernel)."""

	def __init__(self, test, image, *options, check=None, path=None, prefix=()):
		self.test = test
		self.image = image
		self.options = [word for word in options if word]
		self.check = isinstance(image, Image) and 'ro' not in self.options \
			if check is None else check
		self.path = path or test.directory('mnt')
		self.prefix = list(prefix)
		self.proc = None
		self.mounted = False

	def __enter__(self):
		return self.start()

	def __exit__(self, kind, value, trace):
		if kind is not None:
			self.kill()
		elif self.mounted:
			self.stop()

	def command(self):
		words = self.prefix + [FOLIOFS, '-f']
		if self.options:
			words += ['-o', ','.join(self.options)]
		return words + [str(self.image), self.path]

	def start(self):
		if KERNEL:
			known = ('ro', 'noload', 'norecovery')
			kept = [o for o in self.options if o in known or o.startswith('errors=')]
			run('mount', '-t', 'ext4', '-o', ','.join(['loop'] + kept), self.image, self.path)
			self.mounted = True
			return self
		self.log = open(os.path.join(self.test.directory('log'), 'output'), 'w+')
		self.proc = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=self.log,
					     stderr=self.log)
		self.test.watchdog.tell(b'+', self.proc.pid)
		self.test.mounts.append(self)
		end = time.monotonic() + MOUNT_LIMIT
		while not os.path.ismount(self.path):
			if self.proc.poll() is not None:
				raise AssertionError('not mounted, status %s: %s' % (
					self.proc.returncode, self.output()))
			if time.monotonic() > end:
				raise AssertionError('not mounted after %d s: %s' % (
					MOUNT_LIMIT, self.output()))
			time.sleep(0.005)
		self.mounted = True
		return self

	def output(self):
		"""All that the daemon has printed."""
		self.log.flush()
		with open(self.log.name, errors='replace') as f:
			return f.read()

	def unmount(self):
		"""Unmount, and wait until the daemon has ended; it must have ended well."""
		busy = 0
		while True:
			done = run('umount', self.path, check=False)
			if done.returncode == 0:
				break
			busy += 1
			if busy > 50 or 'busy' not in done.stdout:
				raise AssertionError('umount: ' + done.stdout)
			time.sleep(0.1)
		self.mounted = False
		if KERNEL:
			return
		try:
			status = self.proc.wait(END_LIMIT)
		except subprocess.TimeoutExpired:
			raise AssertionError('the daemon did not end within %d s of the unmount: %s' % (
				END_LIMIT, self.output()))
		self.test.watchdog.tell(b'-', self.proc.pid)
		output = self.output()
		if status != 0 or any(word in output for word in SANITIZER_WORDS):
			raise AssertionError('the daemon ended with status %d: %s' % (status,
										      output[-8000:]))

	def stop(self):
		"""Unmount and check the image."""
		self.unmount()
		if self.check:
			self.image.check()

	def kill(self):
		"""End the daemon at once, as a crash would, and remove what is left of the mount."""
		output = ''
		if self.proc:
			if self.proc.poll() not in (None, 0, -signal.SIGKILL):
				output = self.output()
			if self.proc.poll() is None:
				self.proc.kill()
			self.proc.wait()
			self.test.watchdog.tell(b'-', self.proc.pid)
			if any(word in self.output() for word in SANITIZER_WORDS):
				output = self.output()
		if self.mounted:
			run('umount', '-l', self.path, check=False)
			self.mounted = False
		if output:
			sys.stderr.write('what the daemon said:\n%s\n' % output[-8000:])

	def status(self, field):
		"""A number of kB from the daemon's /proc/PID/status."""
		with open('/proc/%d/status' % self.proc.pid) as f:
			for line in f:
				if line.startswith(field + ':'):
					return int(line.split()[1])
		raise AssertionError('no %s in status' % field)

	def __truediv__(self, name):
		return os.path.join(self.path, name)


class MountTest(unittest.TestCase):
	"""Base of all mount tests."""

	limit = 120		# seconds for one test
	maxDiff = 4000

	def setUp(self):
		missing = prerequisites()
		if missing:
			self.fail('cannot run here: missing ' + missing)
		self.top = tempfile.mkdtemp(prefix='foliofs-test-')
		os.chmod(self.top, 0o755)
		self.count = 0
		self.mounts = []
		self.addCleanup(self.clean)
		limit = self.limit * (5 if LONG else 1) * (4 if SANITIZED else 1)
		signal.signal(signal.SIGALRM, self.expired)
		self.watchdog = Watchdog(limit)
		self.limit_used = limit

	def expired(self, signum, frame):
		raise TestTimeout('the test did not end within %d s' % self.limit_used)

	def clean(self):
		self.watchdog.stop()
		signal.signal(signal.SIGALRM, signal.SIG_IGN)
		for mount in self.mounts:
			if mount.proc and mount.proc.poll() is None:
				mount.proc.kill()
				mount.proc.wait()
			mount.log.close()
		for point in mounts_under(self.top):
			run('umount', '-l', point, check=False)
		shutil.rmtree(self.top, ignore_errors=True)

	def directory(self, name):
		"""A new empty directory of the test's own."""
		self.count += 1
		path = os.path.join(self.top, '%s%d' % (name, self.count))
		os.mkdir(path)
		return path

	def file(self, name):
		"""A path for a new file of the test's own."""
		return os.path.join(self.directory('d'), name)

	def image(self, *mkfs, size=256 << 20, name='disk.img'):
		return Image(self.file(name), size, *mkfs)

	def mount(self, image, *options, **kw):
		return Mount(self, image, *options, **kw)

	def kernel_mount(self, image, *options):
		"""Mount an image with the kernel's ext4; returns the path. It ends with the test."""
		path = self.directory('kernel')
		run('mount', '-t', 'ext4', '-o', ','.join(('loop',) + options), image, path)
		return path

	def kernel_umount(self, path):
		run('umount', path)

	def not_for_kernel(self):
		if KERNEL:
			self.skipTest('about the daemon itself')

	def error(self, number, call, *arguments, **kw):
		"""The call has to fail with just this error."""
		try:
			result = call(*arguments, **kw)
		except OSError as e:
			self.assertEqual(os.strerror(e.errno), os.strerror(number), e)
			return
		self.fail('no error but %r, where "%s" is due' % (result, os.strerror(number)))


def foliofs(*arguments, **kw):
	"""Run the program itself, for what does not mount. Never waits longer than 30 s."""
	kw.setdefault('timeout', 30)
	return run(FOLIOFS, *arguments, check=False, **kw)
