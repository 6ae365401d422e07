# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# A member with a smaller MTU works beside the others.
rails 2 100mbit || fail "no rails"
rail_mtu 1 1500 || fail "no MTU"
bonds 2
for op in write read send; do
	wire_mark
	measured 4 ib_${op}_bw bond0 bond0 -s 1048576 -n 30 -t 4 $([ $op != read ] || echo "-o 4")
	if [ $op = send ]; then
		want "bytes on the wire" $(($(wire 0) + $(wire 1))) ">=" $((30 * 1048576))
	else
		want_spread $((30 * 1048576)) 0 1
	fi
done
