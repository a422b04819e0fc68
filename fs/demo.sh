#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Shows foliofs at work, in less than a minute: fs/demo.sh [FOLIOFS]
#
# An image is made and mounted, a real tree copied in and compared, fio writes and verifies, the cache tells
# what it did, and after the unmount e2fsck looks at the image. All in a temporary directory; no root needed.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
foliofs=${1:-$here/build/fs/foliofs}
PATH=$PATH:/usr/sbin:/sbin
tree=/usr/include

[ -x "$foliofs" ] || {
	echo "$foliofs is not there: first meson setup build && meson compile -C build" >&2
	exit 1
}
work=$(mktemp -d "${TMPDIR:-/tmp}/foliofs-demo-XXXXXX")
finish() {
	if mountpoint -q "$work/mnt"; then
		"$foliofs" umount "$work/mnt" || fusermount3 -uz "$work/mnt" || :
	fi
	rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' INT TERM

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
took() {
	local began=$EPOCHREALTIME
	"$@"
	awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { printf "  took %.2f s\n", b - a }'
}

say "An image of 1 GiB with ext4, mounted through foliofs with a cache of 64 MiB"
truncate -s 1G "$work/disk.img"
mkfs.ext4 -q -F -E root_owner="$(id -u):$(id -g)" "$work/disk.img"
mkdir "$work/mnt"
took "$foliofs" -o cache_size=64M "$work/disk.img" "$work/mnt"
findmnt -no SOURCE,FSTYPE,OPTIONS "$work/mnt"

say "A real tree is copied in ($tree: $(find $tree | wc -l) entries) and compared"
took cp -r "$tree" "$work/mnt/tree"
took diff -r --no-dereference "$tree" "$work/mnt/tree"
echo "  no difference"

say "fio: 4 jobs write 128 MiB in random order, and verify each block"
fio --name=demo --directory="$work/mnt" --rw=randwrite --bs=4k --size=32M --numjobs=4 --thread \
	--verify=crc32c --verify_fatal=1 --verify_state_save=0 --fallocate=none --group_reporting \
	--output="$work/fio"
grep -E '^ +(read|write):' "$work/fio"

say "What the cache did (foliofs stats)"
"$foliofs" stats "$work/mnt"

say "Unmount (it returns when everything is on the image), and e2fsck"
took "$foliofs" umount "$work/mnt"
e2fsck -fn "$work/disk.img"
say "Done."
