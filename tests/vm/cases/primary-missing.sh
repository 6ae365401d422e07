# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# Without its primary there is no bond, the reason is said, and the devices are what they were.
rails 2 100mbit || fail "no rails"
bond_conf a "rxa7, rxa0, rxa1"
said=$(on-a ibv_devices 2>&1) || fail "ibv_devices: $said"
want_text "warning" "$said" "rxa7"
want_text "device" "$said" "^ *rxa0 "
want_no_text "device" "$said" "^ *bond0 "
