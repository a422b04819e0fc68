#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# Installs a build into an empty directory and uses what is there: tests/install.sh BUILD
set -eu

build=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

DESTDIR=$work/root meson install -C "$build" --no-rebuild --quiet
prefix=$work/root/usr/local

have() {
	local found
	found=$(find "$prefix" -path "*/$1" | head -1)
	[ -n "$found" ] || { echo "not installed: $1"; exit 1; }
	echo "$found"
}

program=$(have bin/foliofs)
"$program" -V | grep -q '^foliofs [0-9]'
manual=$(have 'man8/foliofs.8')
grep -q '^\.SH OPTIONS' "$manual"
xarray_manual=$(have man3/xarray.3)
maple_manual=$(have man3/maple_tree.3)
for header in xatree/xarray.h xatree/maple_tree.h xatree/rcu.h folio/cache.h folio/mapping.h folio/folio.h; do
	have "include/$header"
done
pc=$(have pkgconfig/xatree.pc)
have pkgconfig/folio.pc

# The prefix in the .pc files is the final one; here the files are below DESTDIR.
export PKG_CONFIG_PATH=${pc%/*}
flags() {
	pkg-config --define-variable=prefix="$prefix" --cflags --libs --static "$1"
}

# The examples of the manual pages, with groff's backslashes undone.
example() {
	sed -n '/^\.EX/,/^\.EE/{//d;s/\\e/\\/g;p}' "$1"
}
example "$xarray_manual" >"$work/tree.c"
example "$maple_manual" >"$work/maple.c"
cp "${0%/*}/tree/maple_example.c" "$work"

cat >"$work/cache.c" <<'END'
#include <stdio.h>
#include <cache.h>

int main(void)
{
	struct cache_config config = { .bytes = 4 << 20 };
	struct cache_stats stats;
	struct cache *cache;

	rcu_register_thread();
	if (cache_create(&cache, &config))
		return 1;
	cache_get_stats(cache, &stats);
	printf("%llu\n", (unsigned long long)stats.bound_bytes >> 20);
	cache_destroy(cache);
	rcu_unregister_thread();
	return 0;
}
END

use() {
	# shellcheck disable=SC2046
	gcc -D_GNU_SOURCE -Wall -Werror -o "$work/$1" "$work/$1.c" $(flags "$2")
	[ "$("$work/$1")" = "$3" ] || { echo "the program built against $2 does not work"; exit 1; }
	echo "a program built against $2 works"
}

use tree xatree 204
use maple xatree "$(printf '%s\n' '0-7 sleep' '12-13 lunch' '14-17 walk')"
use maple_example xatree "$("$build/tests/tree/maple_example")"
use cache folio 4
