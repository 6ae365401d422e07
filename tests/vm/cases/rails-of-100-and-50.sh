# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# A member half as fast carries less. How fast that is: bench/run.
rails 2 100mbit 50mbit || fail "no rails"
bonds 2
for size in 65536 1048576; do
	wire_mark
	measured 4 ib_write_bw bond0 bond0 -s $size -n $((60 * 1048576 / size)) -t 4
	fast=$(wire 0) slow=$(wire 1)
	want "bytes on both" $((fast + slow)) ">=" $((60 * 1048576))
	want "fast over slow, per cent" $((100 * fast / slow)) ">=" 120
	want "fast over slow, per cent" $((100 * fast / slow)) "<=" 350
done
