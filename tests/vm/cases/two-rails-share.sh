# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# WRITE and READ of bond0 are spread over both rails. How fast that is: bench/run.
rails 2 100mbit || fail "no rails"
bonds 2
for op in write read; do
	for size in 65536 1048576; do
		n=$((40 * 1048576 / size))
		wire_mark
		measured 4 ib_${op}_bw bond0 bond0 -s $size -n $n -t 4 $([ $op = write ] || echo "-o 4")
		want_spread $((40 * 1048576)) 0 1
	done
done
