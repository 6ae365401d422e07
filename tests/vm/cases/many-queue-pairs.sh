# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# Eight QPs of one process, each of them spread.
rails 2 100mbit || fail "no rails"
bonds 2
wire_mark
measured 4 ib_write_bw bond0 bond0 -q 8 -s 262144 -n 20 -t 4
want_spread $((8 * 20 * 262144)) 0 1
