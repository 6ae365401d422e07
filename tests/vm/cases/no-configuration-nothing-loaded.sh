# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# Without a configuration, or with RDMA_BOND=off, neither way in loads or changes anything.
rails 2 || fail "no rails"
plain=$(ibv_devices)
plain_info=$(ibv_devinfo -v)
for way in front provider; do
	export BOND_WAY=$way
	want_text "devices by $way" "$(on-a ibv_devices 2>&1)" "rxa0"
	[ "$(on-a ibv_devices 2>&1)" = "$plain" ] || fail "$way changes the devices: $(on-a ibv_devices 2>&1)"
	[ "$(on-a ibv_devinfo -v 2>&1)" = "$plain_info" ] || fail "$way changes ibv_devinfo"
done
BOND_WAY=front
loaded=$(LD_DEBUG=files on-a ibv_devices 2>&1)
want_text "loader" "$loaded" "front/libibverbs"
want_no_text "loader" "$loaded" "libbond-rdmav"
bonds 2
loaded=$(RDMA_BOND=off LD_DEBUG=files on-a ibv_devices 2>&1)
want_no_text "loader with RDMA_BOND=off" "$loaded" "libbond-rdmav"
loaded=$(LD_DEBUG=files on-a ibv_devices 2>&1)
want_text "loader with a configuration" "$loaded" "libbond-rdmav"
