#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Builds foliofs and runs its tests. tests/setup.sh installs what this needs.
#
#   tests/run.sh                      everything
#   tests/run.sh STEP...              some of: plain install asan tsan mount mount-asan mount-tsan
#   tests/run.sh mount TOPIC...       some of the topics in tests/mount, as `ops` or `ops.Times.test_now`
#
# plain       the suites of tree, cache and fs
# install     meson install, and programs built against what it installs
# asan        the suites again, under the address and undefined behaviour sanitizers
# tsan        the torture programs under the thread sanitizer
# mount       real mounts (needs root, /dev/fuse and loop devices)
# mount-asan  the mount tests that poke at corners, with a daemon built with the sanitizers
# mount-tsan  the storm with shadows, with a daemon built with the thread sanitizer
#
# Mount steps need root. FOLIOFS_LONG=1 runs the mount tests at full size. The last line adds up all.
set -u
cd "$(dirname "$0")/.." || exit 1

top=$PWD
steps=()
topics=()
for word in "$@"; do
	case $word in
	plain|install|asan|tsan|mount|mount-asan|mount-tsan) steps+=("$word") ;;
	-*) sed -n '3,18s/^# \{0,1\}//p' "$0"; exit 2 ;;
	*) topics+=("$word") ;;
	esac
done
if [ ${#steps[@]} = 0 ]; then
	steps=(plain install asan tsan mount mount-asan mount-tsan)
	[ ${#topics[@]} = 0 ] || steps=(mount)
fi
asan_topics=(ops limits badinput damage options recovery journal apptainer shadow)

tally=$(mktemp)
trap 'rm -f "$tally"' EXIT
export LSAN_OPTIONS=suppressions=$top/tests/lsan.supp:print_suppressions=0
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:suppressions=$top/tests/tsan.supp
# stdbuf preloads a library, which then comes before the sanitizer's.
export ASAN_OPTIONS=verify_asan_link_order=0

# note PASSED FAILED TEXT: one result of run.sh's own
note() {
	if [ "$2" = 0 ]; then echo "ok      $3"; else echo "FAILED  $3"; fi
	echo "$1 $2 0" >>"$tally"
}

# setup DIR [meson options], build DIR [targets]: a failure shows the log and counts as a failed test
setup() {
	mkdir -p "$1"
	[ -f "$1/build.ninja" ] || meson setup "$@" >"$1/build.log" 2>&1 || broken "$1"
}

build() {
	local dir=$1
	shift
	ninja -C "$dir" "$@" >"$dir/build.log" 2>&1 || broken "$dir"
}

broken() {
	tail -60 "$1/build.log" | sed 's/^/    | /'
	note 0 1 "build $1"
	return 1
}

# suites LABEL DIR [meson test options]: run what meson knows as tests and add them up
suites() {
	local label=$1 dir=$2
	shift 2
	rm -f "$dir/meson-logs/testlog.json"
	meson test -C "$dir" --no-rebuild "$@" >"$dir/suites.log" 2>&1
	python3 tests/tally.py "$label" "$dir/meson-logs/testlog.json" "$tally"
}

plain_build() {
	setup build && build build
}

asan_build() {
	setup build-asan -Db_sanitize=address,undefined -Db_lundef=false && build build-asan
}

# The names of the torture programs, and the files that they are
torture() {
	meson introspect --tests "$1" | python3 -c '
import json, os, sys
for test in json.load(sys.stdin):
    if "torture" in test["name"]:
        print(test["name"] if sys.argv[1] == "names" else os.path.relpath(test["cmd"][0], sys.argv[2]))
' "$2" "$top/$1"
}

step() {
	case $1 in
	plain)
		plain_build && suites plain build --no-suite mount
		;;
	install)
		plain_build || return
		if tests/install.sh build >build/install.log 2>&1; then
			note 1 0 'install'
		else
			sed 's/^/    | /' build/install.log
			note 0 1 'install'
		fi
		;;
	asan)
		asan_build && suites asan build-asan --no-suite mount -t 4
		;;
	tsan)
		# shellcheck disable=SC2046
		setup build-tsan -Db_sanitize=thread -Db_lundef=false &&
			build build-tsan $(torture build-tsan files) &&
			suites tsan build-tsan -t 4 $(torture build-tsan names)
		;;
	mount)
		plain_build && FOLIOFS=$top/build/fs/foliofs \
			python3 tests/mount/run.py --tally "$tally" "${topics[@]}"
		;;
	mount-asan)
		local picked=("${topics[@]}")
		[ ${#picked[@]} != 0 ] || picked=("${asan_topics[@]}")
		asan_build && FOLIOFS=$top/build-asan/fs/foliofs FOLIOFS_SANITIZED=1 \
			python3 tests/mount/run.py --tally "$tally" "${picked[@]}"
		;;
	mount-tsan)
		setup build-tsan -Db_sanitize=thread -Db_lundef=false &&
			build build-tsan fs/foliofs tests/mount/shadow_storm &&
			FOLIOFS=$top/build-tsan/fs/foliofs FOLIOFS_SANITIZED=1 \
				python3 tests/mount/run.py --tally "$tally" shadow
		;;
	esac
}

for name in "${steps[@]}"; do
	echo "== $name"
	before=$(wc -l <"$tally")
	began=$SECONDS
	step "$name"
	[ "$(wc -l <"$tally")" -gt "$before" ] || note 0 1 "$name ran no test"
	echo "== $name: $((SECONDS - began)) s"
done

awk '{ p += $1; f += $2; s += $3 }
END { printf "%d passed, %d failed%s\n", p, f, s ? ", " s " skipped" : ""; exit f > 0 || p == 0 }' "$tally"
