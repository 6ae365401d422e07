#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# The virtual machine itself, which every other test of this folder relies on: exit status, the
# two outputs apart, arguments as they were, the time limit, and that rails count bytes.
set -u
vm=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*"; cat "$work/err"; exit 1; }

cat >"$work/script" <<'SCRIPT'
echo "first <$1> <$2>"
echo "on stderr" >&2
rails 2 100mbit || exit 20
[ "$(gid_index rxb1)" = 1 ] || exit 21
before=$(net_bytes va0)
perf ib_write_bw rxa0 rxb0 -s 65536 -n 30 -t 4 >/run/perf || exit 22
moved=$(($(net_bytes va0) - before))
[ $moved -ge $((30 * 65536)) ] && [ $moved -le $((33 * 65536)) ] || { echo "$moved" >&2; exit 23; }
[ "$(net_bytes va1)" -lt 65536 ] || exit 24
perf ib_write_bw rxa0 rxb0 -s 65536 -n 30 --no-such-option >/run/perf 2>&1 && exit 25
echo "in the guest" >/out/file
exit 3
SCRIPT
# What the machine boots is fetched and built first, and may say so on standard error.
"$(dirname "$vm")/vm-image" >"$work/image" 2>"$work/err" || fail "no image to boot"

BOND_BUILD=$work "$vm" -t 100 -o "$work" "$work/script" "a  b" '$x"' >"$work/out" 2>"$work/err"
status=$?
[ $status = 3 ] || fail "exit status $status instead of the script's 3"
[ "$(cat "$work/out")" = 'first <a  b> <$x">' ] ||
	fail "standard output: $(cat "$work/out")"
[ "$(head -n 1 "$work/err")" = "on stderr" ] || fail "standard error is not the script's"
[ "$(cat "$work/file")" = "in the guest" ] || fail "nothing arrived in the folder of -o"

"$vm" -t 15 -e 'sleep 1000' >"$work/out" 2>"$work/err"
status=$?
[ $status = 124 ] || fail "exit status $status instead of 124 at the time limit"
grep -q 'not finished after 15 s' "$work/err" || fail "no word of the time limit"
"$vm" /no/such/script >"$work/out" 2>"$work/err"
[ $? = 125 ] && [ "$(wc -l <"$work/err")" = 1 ] || fail "a missing script is not one plain line"
