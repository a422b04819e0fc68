#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# foliofs beside its peers: compare.sh [WORK...] measures these works (all, without arguments; compare.sh -l lists them).
#
# What was measured is kept in $BENCH_OUT (compare-out), so that works can be measured one after
# the other, each again as often as one likes; the table, the figure lines and the charts are made of all that
# is there. `compare.sh report` makes them again and measures nothing. README.md beside this file says how.
#
# FOLIOFS and NULLFS name the programs, of a release build. BENCH_ROUNDS (3), BENCH_SECONDS (2) for each job of
# fio, BENCH_MIB (512) for its file; BENCH_SYSTEMS names those to be measured, with commas: foliofs, null, libfuse (the
# null server on libfuse's loop), kernel, fuse2fs, raw, nbdfuse, qemu. Needs root, for the loop device.
cd "$(dirname "$0")/../.." || exit 1
exec python3 tests/bench/fs/compare.py "$@"
