#!/bin/sh
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# The front's version nodes against those of the real library: all of these, in advance some of
# later releases, and two symbols, of which the real library has one.
# Usage: front_nodes.sh FRONT REAL PABI
front=$1 real=$2 pabi=$3
export LC_ALL=C

die() {
	echo "$*"
	exit 1
}

nodes() { # defined versions, one a line, without the library's own name
	readelf -V --wide "$1" | sed -n '/gnu.version_d/,/gnu.version_r/p' |
		sed -n '/Flags: BASE/d; s/.*Cnt:.*Name: //p' | sort -u
}

symbols() {
	nm -D --defined-only --with-symbol-versions "$1" | awk '$2 != "A" { print $3 }' | sort
}

[ -n "$(nodes "$real")" ] || die "no version nodes found in $real"
for node in $(nodes "$real"); do
	nodes "$front" | grep -qx "$node" || die "the front lacks node $node of $real"
done
for node in $(nodes "$front"); do
	case $node in
	IBVERBS_1.[0-9] | IBVERBS_1.[0-9][0-9] | IBVERBS_PRIVATE_[0-9][0-9] | RDMA_BOND_FRONT_1) ;;
	*) die "the front has a node $node" ;;
	esac
done

register=verbs_register_driver_$pabi@@IBVERBS_PRIVATE_$pabi
[ "$(symbols "$front")" = "rdma_bond_front_drivers@@RDMA_BOND_FRONT_1
$register" ] || die "the front defines: $(symbols "$front")"
symbols "$real" | grep -qx "$register" || die "$real has no $register"

needed=$(readelf -d --wide "$front" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort | tr '\n' ' ')
[ "$needed" = "$real libc.so.6 " ] || die "the front needs: $needed"
readelf -d --wide "$front" | grep -q 'SONAME.*\[libibverbs.so.1\]' || die "wrong SONAME"
if readelf -d --wide "$front" | grep -Eq '\((RPATH|RUNPATH)\)'; then
	die "the front has a library path of its own"
fi
# A reference by link to a version of the real library would tie the front to that version.
if readelf -V --wide "$front" | sed -n '/gnu.version_r/,$p' | grep -q 'IBVERBS_'; then
	die "the front is linked to versions of libibverbs"
fi
