#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# Installs what Debian 12 needs to build foliofs and to run its tests, demo and benchmarks.
set -eu

build='gcc meson ninja-build pkg-config libfuse3-dev liburcu-dev libext2fs-dev liburing-dev'
run='fuse3 e2fsprogs'
test='libcriterion-dev python3 fio stress-ng acl attr mount util-linux'
bench='fuse2fs libjudy-dev gnuplot-nox'

as_root=
[ "$(id -u)" = 0 ] || as_root=sudo
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get -q -o DPkg::Lock::Timeout=120 update
# shellcheck disable=SC2086
$as_root apt-get -q -y -o DPkg::Lock::Timeout=120 install --no-install-recommends $build $run $test $bench
