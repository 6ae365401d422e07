# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# limit: 240 s
# Every perftest operation between two bonds.
rails 2 100mbit || fail "no rails"
bonds 2
for tool in ib_{write,read,send,atomic}_{bw,lat}; do
	case $tool in
	ib_atomic_bw) options="-n 1000 -t 8 -o 4" column=4 ;;
	*_bw) options="-a -n 10 -t 4" column=4 ;;
	ib_atomic_lat) options="-n 500" column=5 ;;
	*_lat) options="-s 8 -n 500" column=5 ;;
	esac
	[ $tool != ib_read_bw ] || options+=" -o 4"
	measured $column $tool bond0 bond0 $options
	want "$tool" "$figure" ">" 0
done
