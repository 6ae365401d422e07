# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
# One function for the two cases interop-*: each operation first between plain devices, so that
# perftest's own failures are not taken for the bond's. A delay at connect would come every time, one
# of a machine that is busy with something else does not: so that gets two more tries. So do atomics, of
# which the same plain device makes 0.04 to 0.08 MB/s by turns (Documentation/measurements.md).
interop_delay_us=2500000
interop() { # interop DEVICE_A DEVICE_B
	local tool options column plain plain_us bond_us bound try failed=
	export RDMA_BOND_WAIT_MS=0
	rails 2 100mbit || fail "no rails"
	bonds 2
	for tool in ib_{write,read,send,atomic}_{bw,lat}; do
		case $tool in
		ib_atomic_bw) options="-n 1000 -t 8 -o 4" column=4 ;;
		*_bw) options="-s 65536 -n 200 -t 4" column=4 ;;
		ib_atomic_lat) options="-n 500" column=5 ;;
		*_lat) options="-s 8 -n 500" column=5 ;;
		esac
		[ $tool != ib_read_bw ] || options+=" -o 4"
		# shellcheck disable=SC2086
		measured $column $tool rxa0 rxb0 $options
		plain=$figure
		plain_us=$(<$perf_took)
		wire_mark
		# Emulated machines are noisy: what depends on single round trips gets a factor of 2 or 3.
		case $tool in
		ib_atomic_bw) bound=(">=" "$(times "$plain" 0.5)") ;;
		*_bw) bound=(">=" "$(times "$plain" 0.8)") ;;
		*) bound=("<=" "$(times "$plain" 3)") ;;
		esac
		for try in 1 2 3; do
			# shellcheck disable=SC2086
			(measured $column $tool "$1" "$2" $options; echo "$figure" >/run/figure) || {
				failed+=" $tool"
				continue 2
			}
			bond_us=$(<$perf_took)
			[ $tool != ib_atomic_bw ] || (want "$tool, try $try" "$(</run/figure)" "${bound[@]}") || continue
			[ $((bond_us - plain_us)) -ge $interop_delay_us ] || break
			echo "$tool: try $try took $((bond_us - plain_us)) us longer than the plain run"
		done
		figure=$(</run/figure)
		want "$tool" "$figure" "${bound[@]}"
		want "$tool us beyond the plain run" $((bond_us - plain_us)) "<" $interop_delay_us
		want "$tool bytes on rail 1" "$(wire 1)" "<" 20000
	done
	[ -z "$failed" ] || fail "failed:$failed"
}
