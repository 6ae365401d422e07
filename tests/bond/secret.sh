#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# secret.sh MODEL-PROGRAM: inside fake-run. With the same secret at both ends all paths carry; with
# another, or none at one end, traffic flows on path 0 alone.
set -u
model=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 077
head -c 32 /dev/urandom >"$work/key"
head -c 32 /dev/urandom >"$work/other"

conf() { # conf a|b [KEY-FILE]
	{
		printf '[bond0]\nmembers = %s0, %s1\n' "$1" "$1"
		[ -z "${2:-}" ] || echo "auth_key_file = $work/$2"
	} >"$work/$1.conf"
}
# carried WHAT MOST|LEAST: bytes that a1 sent while the model ran
run() {
	local before after
	before=$(fake-ctl get a1.tx_bytes)
	RDMA_BOND_CONF=$work/a.conf RDMA_BOND_WAIT_MS=$2 "$model" -d bond0 -D bond0 \
		-E RDMA_BOND_CONF="$work/b.conf" --receives-apart --spread --depth 4 --arena 64m \
		--max-len 1m --ops 200 --seed 7 >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
	after=$(fake-ctl get a1.tx_bytes)
	carried=$((after - before))
	echo "$1: a1 carried $carried bytes"
}
conf a key; conf b key
run "the same secret" 10000
[ $carried -gt 1000000 ] || exit 1
conf b other
run "different secrets" 1500
[ $carried = 0 ] || exit 1
conf b
run "a secret at one end" 1500
[ $carried = 0 ] || exit 1
