# SPDX-License-Identifier: GPL-2.0-or-later
"""Compares two trees in everything that a tree has.

Type, mode, owner, size, content, modification time to the nanosecond, extended attributes (all
namespaces, so ACLs too), link counts, which names are links of one file, symlink targets and device
numbers. Access and change times are not compared: looking at a tree changes the first, and nobody
can set the second. A directory's size is its format's own affair.
"""
import os
import stat

CHUNK = 1 << 20


def same_content(a, b):
	with open(a, 'rb', buffering=0) as fa, open(b, 'rb', buffering=0) as fb:
		while True:
			one, two = fa.read(CHUNK), fb.read(CHUNK)
			while one and len(one) < len(two):
				more = fa.read(len(two) - len(one))
				if not more:
					break
				one += more
			if one != two:
				return False
			if not one:
				return True


def attributes(path):
	return {name: os.getxattr(path, name, follow_symlinks=False)
		for name in os.listxattr(path, follow_symlinks=False)}


def walk(top, skip):
	"""Relative path -> lstat result, of everything under a directory and of itself."""
	found = {'.': os.lstat(top)}
	waiting = ['']
	while waiting:
		at = waiting.pop()
		with os.scandir(os.path.join(top, at) if at else top) as entries:
			for entry in entries:
				path = os.path.join(at, entry.name)
				if path in skip:
					continue
				st = os.lstat(os.path.join(top, path))
				found[path] = st
				if stat.S_ISDIR(st.st_mode):
					if not entry.is_dir(follow_symlinks=False):
						raise AssertionError('d_type of %s is wrong' % path)
					waiting.append(path)
	return found


def facts(st, directory_links):
	is_dir = stat.S_ISDIR(st.st_mode)
	device = stat.S_ISCHR(st.st_mode) or stat.S_ISBLK(st.st_mode)
	return {
		'mode': oct(st.st_mode),
		'owner': (st.st_uid, st.st_gid),
		'size': None if is_dir else st.st_size,
		'mtime': st.st_mtime_ns,
		'links': st.st_nlink if directory_links or not is_dir else None,
		'device': st.st_rdev if device else None,
	}


def groups(found):
	"""The sets of names that are links of one file."""
	byinode = {}
	for path, st in found.items():
		if not stat.S_ISDIR(st.st_mode):
			byinode.setdefault(st.st_ino, []).append(path)
	return {tuple(sorted(paths)) for paths in byinode.values() if len(paths) > 1}


def compare(a, b, skip=('lost+found',), directory_links=True, limit=20):
	"""What differs between the trees a and b, as a list of lines; empty when they are the same."""
	wrong = []
	one, two = walk(a, skip), walk(b, skip)
	for path in sorted(one.keys() ^ two.keys()):
		wrong.append('%s: only in %s' % (path, a if path in one else b))
	for path in sorted(one.keys() & two.keys()):
		if len(wrong) >= limit:
			wrong.append('...')
			break
		pa, pb = os.path.join(a, path), os.path.join(b, path)
		fa, fb = facts(one[path], directory_links), facts(two[path], directory_links)
		wrong += ['%s: %s is %s in %s but %s in %s' % (path, key, fa[key], a, fb[key], b)
			  for key in fa if fa[key] != fb[key]]
		if fa['mode'] != fb['mode']:
			continue
		if attributes(pa) != attributes(pb):
			wrong.append('%s: attributes %s in %s but %s in %s' % (
				path, attributes(pa), a, attributes(pb), b))
		mode = one[path].st_mode
		if stat.S_ISLNK(mode) and os.readlink(pa) != os.readlink(pb):
			wrong.append('%s: the link points elsewhere' % path)
		elif stat.S_ISREG(mode) and not same_content(pa, pb):
			wrong.append('%s: the content differs' % path)
	if groups(one) != groups(two):
		wrong.append('hard links differ: %s' % sorted(groups(one) ^ groups(two))[:5])
	return wrong[:limit + 1]
