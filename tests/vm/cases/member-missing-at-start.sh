# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# A member that does not exist: the bond comes up with the rest and says so.
rails 2 100mbit || fail "no rails"
bond_conf a "rxa0, rxa7, rxa1"
bond_conf b "rxb0, rxb1"
said=$(on-a ibv_devinfo -d bond0 2>&1) || fail "no bond0: $said"
want_text "warning" "$said" "rxa7"
wire_mark
measured 4 ib_write_bw bond0 bond0 -s 1048576 -n 30 -t 4
want_spread $((30 * 1048576)) 0 1
