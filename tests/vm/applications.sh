# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Applications as Debian ships them, each first on a plain device and then on bond0, by the same
# command. In commands @D is the device of that end. An application that fails on the plain device has
# to be in applications-expected; one that fails on bond0 only fails the case.
app_failed=0 app_passed=0 app_shared=0
app_expected=${BASH_SOURCE[0]%/*}/applications-expected

# app_end WAY END DEVICE COMMAND: what pair runs there
app_end() { echo "BOND_WAY=$1 RDMA_BOND_WAIT_MS=0 exec on-$2 ${4//@D/$3}"; }

# app_run WAY DEVICE_A DEVICE_B SERVER CLIENT
app_run() {
	pair "$(app_end "$1" b "$3" "$4")" "$(app_end "$1" a "$2" "$5")" >/run/app.$1 2>&1
}

# app NAME SERVER CLIENT [PATTERN]: both end with 0, and the client says something like PATTERN
app() {
	local name=$1 pattern=${4:-} plain=0 bond=0 began=$SECONDS
	app_run none rxa0 rxb0 "$2" "$3" || plain=$?
	[ -z "$pattern" ] || grep -qE -- "$pattern" /run/app.none || plain=99
	app_run front bond0 bond0 "$2" "$3" || bond=$?
	[ -z "$pattern" ] || grep -qE -- "$pattern" /run/app.front || bond=99
	app_verdict "$name" $plain $bond $((SECONDS - began))
}

app_verdict() { # NAME PLAIN BOND SECONDS
	if [ "$2" != 0 ] && ! grep -qxF -- "$1" <(sed 's/ *|.*//' "$app_expected"); then
		echo "$1: fails on the plain device ($2), and is not expected to:"
		tail -n 6 /run/app.none
		app_failed=$((app_failed + 1))
	elif [ "$3" != 0 ] && [ "$2" = 0 ]; then
		echo "$1: fails on bond0 ($3):"
		tail -n 6 /run/app.front $pair_log
		app_failed=$((app_failed + 1))
	elif [ "$2" != 0 ]; then
		echo "$1: plain device $2, bond0 $3: as expected ($4 s)"
		app_shared=$((app_shared + 1))
	else
		echo "$1: works ($4 s)"
		app_passed=$((app_passed + 1))
	fi
}

app_report() {
	echo "$app_passed work, $app_shared fail on the plain device too, $app_failed failed"
	[ $app_failed = 0 ]
}
