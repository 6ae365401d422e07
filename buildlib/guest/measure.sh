# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Runs stock perftest on one member and on bond0 and prints what came out, one line of words each;
# progress goes to standard error. Laying it out as a table or JSON: ../report.
#
#   measure.sh [-r REPEATS] [-s SECONDS] TOPOLOGY...
#   bw TOPOLOGY OP SIZE DEVICE MB/S RETRIES BYTES-ON-RAIL...
#   lat TOPOLOGY OP SIZE DEVICE MICROSECONDS RETRIES
#
# With repeats a line of bandwidth is the median run's. One of latency is that of the run with the
# lowest median: a plain member's is 57 us or, for a whole run, 95 to 125, by where this machine's
# scheduler happens to put the work, and such disturbance only adds. MB are perftest's, 2^20 bytes.
# BYTES-ON-RAIL are
# what the kernel counted on host a's network device, both directions.
set -u
declare -A rates=([two100]="100 100" [four50]="50 50 50 50" [uneven]="100 50" [latency]="- -")
# Unequal rails have to be learned, at a cost of some tenths of a second: so many times as long.
declare -A longer=([uneven]=2)
repeats=1 run_s=3 sizes="65536 1048576 4194304"
while getopts r:s: option; do
	case $option in
	r) repeats=$OPTARG ;;
	s) run_s=$OPTARG ;;
	*) exit 2 ;;
	esac
done
shift $((OPTIND - 1))

die() { echo "$*" >&2; exit 1; }

# What a NIC sent again or refused; the sum is 0 where the numbers beside it are undisturbed.
retry_sum() {
	local word sum=0
	for word in $(retries); do sum=$((sum + ${word#*=})); done
	echo $sum
}

size_text() {
	if [ "$1" -ge 1048576 ]; then echo "$(($1 / 1048576)) MiB"
	elif [ "$1" -ge 1024 ]; then echo "$(($1 / 1024)) KiB"
	else echo "$1 B"; fi
}

# one_run COLUMN TOOL DEVICE OPTION...: "VALUE RETRIES BYTES..."
one_run() {
	local column=$1 tool=$2 device=$3 peer=bond0 value before=() after i again log=/run/measure.log
	shift 3
	[ "$device" = bond0 ] || peer=${device/rxa/rxb}
	again=$(retry_sum)
	for ((i = 0; i < rail_count; i++)); do before[i]=$(net_bytes "va$i"); done
	perf "$tool" "$device" "$peer" "$@" >$log 2>&1 || { tail -n 3 $log >&2; return 1; }
	value=$(perf_result "$column" <$log) || { tail -n 3 $log >&2; return 1; }
	after=
	for ((i = 0; i < rail_count; i++)); do
		after+=" $(($(net_bytes "va$i") - before[i]))"
	done
	echo "$value $(($(retry_sum) - again))$after"
}

median_run() { sort -g | sed -n "$(((repeats + 1) / 2))p"; }

# iterations SIZE MBIT: about run_s seconds of it, a few at least
iterations() {
	local n=$((run_s * ${longer[$topology]:-1} * $2 * 125000 / $1))
	[ $n -ge 6 ] || n=6
	echo $n
}

# depth SIZE: operations in flight; 2 MiB and more, so that a rail's round trip is hidden, and few
# enough that its 8 MB of queue hold them.
depth() {
	if [ "$1" -le 65536 ]; then echo 32
	elif [ "$1" -le 1048576 ]; then echo 8
	else echo 4; fi
}

bandwidth() { # bandwidth TOPOLOGY
	local topology=$1 op size device mbit total=0 i line
	for mbit in ${rates[$topology]}; do total=$((total + mbit)); done
	# What runs for the first time is translated first, by the emulated machine.
	for device in rxa0 bond0; do
		one_run 4 ib_write_bw $device -s 65536 -n 100 -t 32 >/run/warm || die "the first run failed"
	done
	for op in write read; do
		for size in $sizes; do
			for device in rxa0 bond0; do
				mbit=${rates[$topology]%% *}
				[ $device = rxa0 ] || mbit=$total
				local options=(-s "$size" -n "$(iterations "$size" "$mbit")" -t "$(depth "$size")")
				[ $op = write ] || options+=(-o 4)
				progress "${op^^} $(size_text "$size") on $device"
				line=$(for ((i = 0; i < repeats; i++)); do
					one_run 4 ib_${op}_bw $device "${options[@]}" || exit
				done) || die "ib_${op}_bw of $(size_text "$size") failed on $device"
				line=$(median_run <<<"$line")
				progressed "${line%% *} MB/s"
				echo "bw $topology ${op^^} $size $device $line"
			done
		done
	done
}

latency() {
	local op device i line= perf_pinned=1
	for op in write send; do
		rm -f /run/latency.rxa0 /run/latency.bond0
		# Alternately, so that a noisy machine disturbs both alike.
		for ((i = 0; i < 3 * repeats; i++)); do
			for device in rxa0 bond0; do
				progress "8 B ${op^^} latency on $device"
				line=$(one_run 5 ib_${op}_lat $device -s 8 -n 2000) ||
					die "ib_${op}_lat failed on $device"
				progressed "${line%% *} us"
				echo "$line" >>/run/latency.$device
			done
		done
		for device in rxa0 bond0; do
			echo "lat latency ${op^^} 8 $device $(sort -g /run/latency.$device | head -n 1)"
		done
	done
}

steps=0 step=0
for topology in "$@"; do
	[ -n "${rates[$topology]:-}" ] || die "no topology $topology (there are: ${!rates[*]})"
	if [ "$topology" = latency ]; then steps=$((steps + 12 * repeats)); else steps=$((steps + 12)); fi
done
progress() { step=$((step + 1)); printf '  [%2d/%d] %-28s' $step $steps "$1" >&2; }
progressed() { echo "$1" >&2; }

for topology in "$@"; do
	read -ra each <<<"${rates[$topology]}"
	rail_count=${#each[@]}
	each=("${each[@]/%[0-9]/&mbit}")
	rails "$rail_count" "${each[@]}" || die "could not make the rails"
	bonds "$rail_count"
	on-a ibv_devices >/run/devices || die "ibv_devices failed"
	grep -q '^ *bond0' /run/devices || die "no bond0 among the devices"
	while read -r line; do echo "devices $topology $line"; done </run/devices
	if [ "$topology" = latency ]; then latency; else bandwidth "$topology"; fi
done
