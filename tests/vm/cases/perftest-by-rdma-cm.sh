# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# ib_write_bw -R: connected by rdma_cm on bond0's context, spread over both rails.
rails 2 100mbit || fail "no rails"
bonds 2
perf_address=10.0.0.2
measured 4 ib_write_bw rxa0 rxb0 -R -s 1048576 -n 10 -t 4
wire_mark
measured 4 ib_write_bw bond0 bond0 -R -s 1048576 -n 30 -t 4
want_spread $((30 * 1048576)) 0 1
