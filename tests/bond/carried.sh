#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# carried.sh N CMD...: runs CMD inside fake-run; then each of a0 to a(N-1) must have carried bytes.
set -u
members=$1
shift
"$@" || exit
for ((i = 0; i < members; i++)); do
	bytes=$(fake-ctl get "a$i.tx_bytes") || exit 1
	echo "a$i carried $bytes bytes"
	[ "$bytes" -gt 100000 ] || { echo "a$i carried too little"; exit 1; }
done
