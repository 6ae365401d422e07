#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# The distribution's perftest between two processes on two fake NICs. Run by fake-run.
set -u
log=$(mktemp)
trap 'rm -f "$log" "$log.server"' EXIT
port=$((20000 + RANDOM % 10000))

# TOOL ARGS...: server on a0, client on b0
run() {
	local tool=$1 server rc i
	shift
	port=$((port + 1))
	timeout 60 "$tool" -p $port -d a0 -n 1000 "$@" >"$log.server" 2>&1 &
	server=$!
	for ((i = 0; i < 100; i++)); do
		grep -q "^ *[0-9]*: [0-9A-F]*:$(printf %04X $port) 0*:0000 0A" \
			/proc/net/tcp /proc/net/tcp6 && break
		sleep 0.05
	done
	timeout 60 "$tool" -p $port -d b0 -n 1000 "$@" 127.0.0.1 >"$log" 2>&1
	rc=$?
	wait $server || rc=$?
	if [ $rc != 0 ]; then
		echo "FAILED: $tool $*"
		cat "$log" "$log.server"
		failed=1
	else
		echo "ok: $tool $* $(grep -E '^ [0-9]+ ' "$log" | head -1)"
	fi
}

failed=0
run ib_write_bw
run ib_write_bw -q 4 -b
run ib_write_bw -c UC
run ib_read_bw
run ib_read_bw -e
run ib_send_bw
run ib_send_bw -e
run ib_send_bw -c UD
run ib_send_bw -c UC
run ib_send_bw -r 200 --use-srq
run ib_atomic_bw
run ib_atomic_bw -A CMP_AND_SWAP
run ib_write_lat
run ib_read_lat
run ib_send_lat
run ib_send_lat -e
run ib_atomic_lat
exit $failed
