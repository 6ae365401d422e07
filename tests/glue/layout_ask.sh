#!/bin/sh
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# Every built-for layout against a libibverbs of every layout: only its own is accepted. Where both
# call themselves by one PABI the answer must be ours (3), for the loader sees no difference.
# Usage: layout_ask.sh BUILD-FOLDER LAYOUT...
build=$1
shift

pabi() {
	case $1 in
	34 | 35 | 36) echo 34 ;;
	59 | 62) echo 59 ;;
	*) echo "$1" ;;
	esac
}

wrong=0
for ours in "$@"; do
	for theirs in "$@"; do
		said=$(LD_LIBRARY_PATH=$build/core-$theirs "$build/layout-ask-$ours" 2>&1)
		rc=$?
		if [ "$ours" = "$theirs" ]; then
			expected=0
		elif [ "$(pabi "$ours")" = "$(pabi "$theirs")" ]; then
			expected=3
		else
			expected=1 # the loader's
		fi
		if [ $rc -ne $expected ] || { [ $rc -eq 3 ] && [ -z "$said" ]; }; then
			echo "built for $ours, found $theirs: exit $rc, not $expected: $said"
			wrong=1
		fi
	done
done
# The last layout, but with a public version node that is newer than all known.
said=$(LD_LIBRARY_PATH=$build/core-later "$build/layout-ask-$ours" 2>&1)
rc=$?
case "$rc $said" in
"3 "*IBVERBS_1.19*) ;;
*)
	echo "built for $ours, found a later one: exit $rc, not 3: $said"
	wrong=1
	;;
esac
exit $wrong
