# SPDX-License-Identifier: GPL-2.0-or-later
"""Used as Apptainer uses fuse2fs: by an ordinary user, the image an open descriptor, overlays on it.

The work is shell scripts, run by an ordinary user inside a user and mount namespace of his own. What
an ordinary machine lets him open, /dev/fuse, some test machines do not; so a device node with the
usual mode is bound over it, in a mount namespace that ends with the test.
"""
import os
import shutil
import stat
import subprocess
import time

from harness import FOLIOFS, LONG, SANITIZED, MountTest, run

NOBODY = 65534
# What Apptainer waits: 2 s for the mount, 0.5 s for the end. A loaded test machine gets more.
MOUNT_TIME, END_TIME = (2, 0.5) if LONG else (10, 10)

# Functions for the scripts: start MOUNTPOINT [options], end MOUNTPOINT
LIBRARY = r'''
set -eu
now() { date +%s.%N; }
mounted() { grep -q " $1 " /proc/self/mountinfo; }
start() {
	exec 3<>"$IMAGE"
	stdbuf -oL "$PROGRAM" -f -o "$2" /proc/self/fd/3 "$1" >"$TOP/out" 2>"$TOP/err" &
	pid=$!
	exec 3<&-
	t=0
	until mounted "$1"; do
		t=$((t + 1))
		[ $t -lt $MOUNT_STEPS ] || { echo "not mounted in time"; cat "$TOP/out" "$TOP/err"; exit 1; }
		sleep 0.025
	done
}
end() {
	umount "$1" || fusermount3 -u "$1"
	t=0
	while kill -0 $pid 2>/dev/null; do
		t=$((t + 1))
		[ $t -lt $END_STEPS ] || { echo "not ended in time"; exit 1; }
		sleep 0.025
	done
	wait $pid || { echo "ended with status $?"; cat "$TOP/err"; exit 1; }
	[ ! -s "$TOP/err" ] || { echo "standard error:"; cat "$TOP/err"; exit 1; }
}
'''


class Apptainer(MountTest):
	limit = 90

	def setUp(self):
		super().setUp()
		self.not_for_kernel()
		self.home = self.directory('home')
		os.chown(self.home, NOBODY, NOBODY)
		self.program = os.path.join(self.home, 'foliofs')
		shutil.copy(FOLIOFS, self.program)
		self.device = os.path.join(self.top, 'fuse')
		st = os.stat('/dev/fuse')
		os.mknod(self.device, stat.S_IFCHR | 0o666, st.st_rdev)
		os.chmod(self.device, 0o666)

	def user_image(self, *mkfs):
		image = self.image('-E', 'root_owner=0:0', *mkfs, size=128 << 20)
		os.chown(image.path, NOBODY, NOBODY)
		return image

	def script(self, image, text, namespace=True):
		"""Run a shell script as the ordinary user; with a namespace, he is its root."""
		factor = 4 if SANITIZED else 1
		env = dict(os.environ, IMAGE=image.path, PROGRAM=self.program, TOP=self.home, HOME=self.home,
			   MOUNT_STEPS=str(int(MOUNT_TIME * factor / 0.025)),
			   END_STEPS=str(int(END_TIME * factor / 0.025)))
		path = os.path.join(self.home, 'script')
		with open(path, 'w') as f:
			f.write(LIBRARY + text)
		words = ['setpriv', '--reuid=%d' % NOBODY, '--regid=%d' % NOBODY, '--clear-groups']
		if namespace:
			words += ['unshare', '-Urm', '--propagation', 'private']
		done = run('unshare', '-m', '--propagation', 'private', 'sh', '-c',
			   'mount --bind %s /dev/fuse && exec "$@"' % self.device, 'sh', *words, 'sh', path,
			   check=False, env=env, cwd=self.home, timeout=self.limit)
		self.assertEqual(done.returncode, 0, done.stdout)
		return done.stdout

	def test_image_on_a_descriptor(self):
		image = self.user_image()
		self.script(image, r'''
			mkdir mnt
			start "$TOP/mnt" fakeroot
			echo hello >mnt/f
			mkdir mnt/d
			dd if=/dev/zero of=mnt/d/big bs=1M count=20 2>/dev/null
			chown 0:0 mnt/f
			end "$TOP/mnt"
			start "$TOP/mnt" fakeroot,ro
			[ "$(cat mnt/f)" = hello ]
			[ "$(stat -c %s mnt/d/big)" = 20971520 ]
			if echo x 2>/dev/null >mnt/g; then echo "written read-only"; exit 1; fi
			end "$TOP/mnt"
		''')
		image.check()

	def test_fusermount(self):
		"""Without a namespace the mount is fusermount3's work."""
		image = self.user_image()
		os.chmod(image.path, 0o600)
		self.script(image, r'''
			umount() { fusermount3 -u "$1"; }
			mkdir mnt
			start "$TOP/mnt" fakeroot
			echo hello >mnt/f
			chown 0:0 mnt/f
			[ "$(stat -c %u mnt/f)" = 0 ]
			end "$TOP/mnt"
			start "$TOP/mnt" fakeroot
			[ "$(cat mnt/f)" = hello ]
			end "$TOP/mnt"
		''', namespace=False)
		image.check()

	def test_overlay(self):
		"""An overlay whose upper and work directories are on the mount, the same after a new mount."""
		image = self.user_image()
		self.script(image, r'''
			mkdir -p mnt lower/dir/deep merged
			for n in 1 2 3 4 5 6; do echo "lower $n" >lower/f$n; echo deep >lower/dir/deep/f$n; done
			overlay() {
				mount -t overlay overlay -o userxattr,lowerdir=lower,upperdir=mnt/upper,workdir=mnt/work merged
			}
			look() {
				[ "$(cat merged/new)" = new ]
				[ "$(cat merged/f1)" = "lower 1
more" ]
				[ ! -e merged/f2 ]
				[ ! -e merged/f3 ]
				[ "$(cat merged/renamed)" = "lower 3" ]
				[ "$(cat merged/f4)" = again ]
				[ "$(ls merged/dir)" = fresh ]
				[ "$(ls merged/moved)" = "x
y" ]
				[ "$(stat -c %a merged/f5)" = 600 ]
			}
			start "$TOP/mnt" fakeroot
			mkdir mnt/upper mnt/work
			overlay
			echo new >merged/new
			echo more >>merged/f1
			rm merged/f2
			mv merged/f3 merged/renamed
			rm merged/f4
			echo again >merged/f4
			chmod 600 merged/f5
			rm -r merged/dir
			mkdir merged/dir
			echo fresh >merged/dir/fresh
			mkdir merged/sub
			echo x >merged/sub/x
			echo y >merged/sub/y
			mv merged/sub merged/moved
			look
			[ -c mnt/upper/f2 ]
			[ -c mnt/upper/f3 ]
			umount merged
			end "$TOP/mnt"
			start "$TOP/mnt" fakeroot
			overlay
			look
			ls -la merged >/dev/null
			umount merged
			end "$TOP/mnt"
		''')
		image.check()

	def test_many_files_before_the_end(self):
		"""All of a big change is on the image when the daemon has ended."""
		image = self.user_image()
		self.script(image, r'''
			mkdir mnt
			start "$TOP/mnt" fakeroot
			cp -r /usr/include/linux mnt/tree
			end "$TOP/mnt"
			start "$TOP/mnt" fakeroot
			diff -r /usr/include/linux mnt/tree
			end "$TOP/mnt"
		''')
		image.check()

	def test_as_root(self):
		"""As root, Apptainer leaves fakeroot away; the descriptor works the same."""
		image = self.image(size=64 << 20)
		fd = os.open(image.path, os.O_RDWR)
		path = self.directory('mnt')
		with open(os.path.join(self.home, 'log'), 'w') as log:
			proc = subprocess.Popen(['stdbuf', '-oL', FOLIOFS, '-f', '/proc/self/fd/%d' % fd, path],
						pass_fds=(fd,), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
		self.watchdog.tell(b'+', proc.pid)
		os.close(fd)
		while not os.path.ismount(path):
			self.assertIsNone(proc.poll(), 'the daemon has ended')
			time.sleep(0.02)
		with open(os.path.join(path, 'f'), 'w') as f:
			f.write('x')
		run('umount', path)
		self.assertEqual(proc.wait(60), 0)
		self.watchdog.tell(b'-', proc.pid)
		image.check()
