# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# limit: 240 s
# Bonds of any size: every member carries its share.
for count in 1 2 3 4 8; do
	rails $count 40mbit || fail "no rails"
	bonds $count
	wire_mark
	measured 4 ib_write_bw bond0 bond0 -s 1048576 -n $((8 * count)) -t 4
	want_spread $((8 * count * 1048576)) $(seq 0 $((count - 1)))
done
