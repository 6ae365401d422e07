# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Runs pairs of programs, server on host b and client on host a, inside the virtual machine, above
# all perftest, whose last line is read. What the network under it is: rails.sh.

PAIR_LIMIT_S=${PAIR_LIMIT_S:-60}
control_port=18791	# bond0's own, which says nothing about a server being ready

# listeners: what TCP ports and RDMA-CM ids listen now, bond0's port left out
listeners() {
	awk -v own="$(printf ':%04X' $control_port)" \
		'$4 == "0A" && substr($2, length($2) - 4) != own {print $2}' /proc/net/tcp /proc/net/tcp6
	rdma resource show cm_id 2>/dev/null | awk '/state LISTEN/ {print "cm " $0}'
}

# pair SERVER CLIENT: both are shell text. Starts the server, waits until it listens, runs the
# client, whose output it prints. Fails if either does; the server's output is in $pair_log.
pair_log=/run/pair.server
pair() {
	local before server client=0 served=0 i
	before=$(listeners)
	timeout -k 2 "$PAIR_LIMIT_S" bash -c "$1" >$pair_log 2>&1 &
	server=$!
	for ((i = 0; i < 100; i++)); do
		kill -0 $server 2>/dev/null || break
		[ "$(listeners)" = "$before" ] || break
		sleep 0.1
	done
	timeout -k 2 "$PAIR_LIMIT_S" bash -c "$2" || client=$?
	# A client that failed leaves a server that would wait until its time is over.
	[ $client = 0 ] || { sleep 0.5; kill $server 2>/dev/null; }
	wait $server || served=$?
	[ $client = 0 ] && [ $served = 0 ] && return
	[ $client != 124 ] || echo "pair: client not finished after $PAIR_LIMIT_S s" >&2
	[ $client = 0 ] || echo "pair: client ended with $client" >&2
	[ $served = 0 ] || echo "pair: server ended with $served: $(tail -n 1 $pair_log)" >&2
	return 1
}

# perf TOOL DEVICE_A DEVICE_B [OPTION...]: perftest between the two; prints all that the client
# says. DEVICE_x is bond0 or a plain device, which then runs without the bond. perf_address is
# where the client finds the server; options of one end only: perf_opts_a, perf_opts_b.
perf_address=127.0.0.1
# perf_pinned=1 gives each end a CPU of its own. How long it took, in us, is in the file $perf_took.
perf_took=/run/perf.took
perf_opts_a=() perf_opts_b=() perf_pinned=
perf() {
	local tool=$1 a=$2 b=$3 way_a=${BOND_WAY:-front} way_b=${BOND_WAY:-front} common
	local pin_a=${perf_pinned:+taskset -c 0} pin_b=${perf_pinned:+taskset -c 1}
	shift 3
	[ "$a" = bond0 ] || way_a=none
	[ "$b" = bond0 ] || way_b=none
	common="-F -x 1 -u 18 $*"
	local tries output=/run/perf.client status began
	# perftest samples the processor's clock for each report; where the samples do not lie on a line,
	# as may happen on an emulated one, it says so and reports 0.00. That run is no measurement.
	for ((tries = 0; tries < 5; tries++)); do
		status=0 began=${EPOCHREALTIME/./}
		pair "BOND_WAY=$way_b exec $pin_b on-b $tool -d $b $common ${perf_opts_b[*]}" \
			"BOND_WAY=$way_a exec $pin_a on-a $tool -d $a $common ${perf_opts_a[*]} $perf_address" \
			>$output 2>$output.errors || status=$?
		echo $((${EPOCHREALTIME/./} - began)) >$perf_took	# a run to be repeated does not count
		grep -q '^Correlation coefficient' $output.errors || break
	done
	cat $output.errors >&2
	cat $output
	return $status
}

# perf_result COLUMN < output: of the last line of numbers; bandwidth tests: 4 is the average in
# MB/s (2^20 bytes); latency tests: 5 is the typical one in us (median)
perf_result() {
	awk -v column="$1" '$1 ~ /^[0-9]+$/ && NF >= 4 {value = $column}
		END {if (value == "") exit 1; print value}'
}
