# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# rdma_cm finds bond0; rping verifies its data.
rails 2 100mbit || fail "no rails"
bonds 2
common="-a 10.0.0.2 -C 20 -S 4000 -v -V"
pair "on-b rping -s $common" "on-a rping -c $common" >/dev/null || fail "rping failed between plain arguments"
loaded=$(pair "on-b rping -s $common" "LD_DEBUG=files on-a rping -c $common" 2>&1) || fail "$loaded"
want_text "loader" "$loaded" "libbond-rdmav"
want "lines that came back" "$(grep -c 'ping data: rdma-ping-' <<<"$loaded")" "==" 20
