# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# The provider by IBV_DRIVERS, without the front.
rails 2 100mbit || fail "no rails"
bonds 2
export BOND_WAY=provider
said=$(on-a ibv_devinfo -d bond0 2>&1) || fail "ibv_devinfo: $said"
want_text "devinfo" "$said" "hca_id:[[:space:]]*bond0"
want_text "devinfo" "$said" "PORT_ACTIVE"
wire_mark
measured 4 ib_write_bw bond0 bond0 -s 1048576 -n 20 -t 4
want_spread $((20 * 1048576)) 0 1
