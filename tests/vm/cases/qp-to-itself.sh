# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# A QP connected to itself; one end ready before the other began.
rails 2 || fail "no rails"
bonds 2
[ -x "$BOND_BUILD/bin/selfqp" ] || skip "selfqp is not built"
# RTS of the one end cannot wait for the other, which is in the same thread.
RDMA_BOND_WAIT_MS=100 on-a "$BOND_BUILD/bin/selfqp" -d bond0 -g 1 --quick
