#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# fake-run itself and the distribution's ibv_* tools. Not run by fake-run: $1 is fake-run.
set -u
run=$1
failed=0

expect() { # WHAT EXPECTED ACTUAL
	if [ "$2" = "$3" ]; then echo "ok: $1"; else
		echo "FAILED: $1: expected '$2', got '$3'"
		failed=1
	fi
}

expect "default devices" "fake0 fake1" \
	"$("$run" -- ibv_devices | awk 'NR > 2 { print $1 }' | sort | xargs)"
expect "named devices" "a0 a1 b0 b1" \
	"$("$run" --devices a0,a1,b0,b1 -- ibv_devices | awk 'NR > 2 { print $1 }' | sort | xargs)"
expect "ibv_devinfo" "PORT_ACTIVE Ethernet" \
	"$("$run" -- ibv_devinfo -d fake1 | awk '/state:|link_layer:/ { print $2 }' | xargs)"
expect "addresses" "::ffff:127.0.2.1, ::ffff:127.0.1.2," \
	"$("$run" --devices a1,b0 -- sh -c 'ibv_devinfo -v -d a1; ibv_devinfo -v -d b0' |
		awk '/GID\[ *1\]/ { print $3 }' | xargs)"
expect "address given" "::ffff:127.9.8.7," \
	"$("$run" --devices x=127.9.8.7 -- ibv_devinfo -v | awk '/GID\[ *1\]/ { print $3 }')"
expect "--set" "17 0" "$("$run" --set fake0.delay_us=17 -- sh -c \
	'fake-ctl get fake0.delay_us; fake-ctl get fake1.delay_us' | xargs)"
expect "--set for all" "17 17" "$("$run" --set delay_us=17 -- sh -c \
	'fake-ctl get fake0.delay_us; fake-ctl get fake1.delay_us' | xargs)"
conf=$(mktemp)
printf '# comment\n\nfake1.rate_mb_s = 5 # more\nmax_sge=3\n' >"$conf"
expect "--config" "5 3" "$("$run" --config "$conf" -- sh -c \
	'fake-ctl get fake1.rate_mb_s; fake-ctl get fake0.max_sge' | xargs)"
rm -f "$conf"
"$run" -- sh -c 'exit 7'
expect "exit code" 7 $?
"$run" --set fake0.nonsense=1 -- true 2>/dev/null
expect "unknown key" 2 $?
"$run" --devices a0,a0 -- true 2>/dev/null
expect "same device twice" 1 $?
"$run" 2>/dev/null
expect "no command" 2 $?
expect "IBV_DRIVERS of the caller comes first" "/nowhere/libx" \
	"$(IBV_DRIVERS=/nowhere/libx "$run" -- sh -c 'echo ${IBV_DRIVERS%%:*}')"
dir=$("$run" -- sh -c 'echo $FAKE_DIR')
expect "nothing left behind" "" "$(ls -d "$dir" 2>/dev/null)"
expect "no device outside" "" "$(ls /dev/infiniband 2>/dev/null)"
exit $failed
