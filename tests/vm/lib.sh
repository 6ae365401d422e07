# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# What the cases share: verdicts, and bytes on the wire since a mark. The network and perftest come
# from buildlib/guest. A case says what was expected and what came.
set -u

fail() { echo "$*"; exit 1; }
skip() { echo "$*"; exit 77; }

# want WHAT VALUE OP BOUND: numbers, OP one of < <= > >= ==
want() {
	awk -v v="$2" -v b="$4" -v op="$3" 'BEGIN {
		if (v == "" || b == "") exit 1
		if (op == "<") exit v < b ? 0 : 1
		if (op == "<=") exit v <= b ? 0 : 1
		if (op == ">") exit v > b ? 0 : 1
		if (op == ">=") exit v >= b ? 0 : 1
		exit v == b ? 0 : 1
	}' || fail "$1: $2, wanted $3 $4"
	echo "$1: $2 $3 $4"
}
# want_text WHAT TEXT PATTERN: extended regular expression, somewhere in the text
want_text() { grep -qE -- "$3" <<<"$2" || fail "$1: no \"$3\" in: $2"; }
want_no_text() { ! grep -qE -- "$3" <<<"$2" || fail "$1: \"$3\" in: $2"; }
times() { awk -v a="$1" -v b="$2" 'BEGIN {print a * b}'; }

# wire_mark, then wire I: bytes on rail I since then, both directions, at host a
declare -A wire_from
wire_mark() {
	local path
	wire_from=()
	for path in /sys/class/net/va*; do wire_from[${path##*/va}]=$(net_bytes "${path##*/}"); done
}
wire() { echo $(($(net_bytes "va$1") - wire_from[$1])); }

# want_spread PAYLOAD RAIL...: the rails carried the payload together, each at least
# half of its equal share
want_spread() {
	local payload=$1 sum=0 i bytes=()
	shift
	for i in "$@"; do bytes[i]=$(wire "$i"); sum=$((sum + bytes[i])); done
	want "bytes on the wire" $sum ">=" "$payload"
	for i in "$@"; do
		want "bytes on rail $i" "${bytes[i]}" ">=" $((payload / $# / 2))
	done
}

# measured COLUMN PERF-ARGUMENTS...: perf's figure in $figure; fails the case if perftest does
figure=
measured() {
	local column=$1 output
	shift
	output=$(perf "$@" 2>&1) || fail "$* failed: $output"
	figure=$(perf_result "$column" <<<"$output") || fail "$*: no figure in: $output"
	echo "$*: $figure"
}

# program NAME OPTION...: one of tests/verbs, both ends on bond0
program() {
	local name=$1
	shift
	[ -x "$BOND_BUILD/bin/$name" ] || skip "$name is not built"
	on-a "$BOND_BUILD/bin/$name" -d bond0 -D bond0 -E RDMA_BOND_CONF=/run/bond/b.conf -g 1 "$@"
}
