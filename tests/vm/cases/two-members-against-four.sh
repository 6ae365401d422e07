# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# Unequal bonds: host a's two members reach host b's four; both of a's rails work.
rails 4 100mbit || fail "no rails"
bonds 2 4
wire_mark
measured 4 ib_write_bw bond0 bond0 -s 1048576 -n 40 -t 4
sum=0
for i in 0 1 2 3; do sum=$((sum + $(wire $i))); done
want "bytes on all rails" $sum ">=" $((40 * 1048576))
want_spread $((20 * 1048576)) 0 1
measured 4 ib_read_bw bond0 bond0 -s 1048576 -n 40 -t 4 -o 4
bonds 4 2
wire_mark
measured 4 ib_write_bw bond0 bond0 -s 1048576 -n 40 -t 4
want_spread $((20 * 1048576)) 0 1
