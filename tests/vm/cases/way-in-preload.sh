# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# The front by LD_PRELOAD: with perftest's own libmlx5, with pyverbs, with dlopen and dlvsym.
rails 2 100mbit || fail "no rails"
bonds 2
want_text "devices" "$(on-a ibv_devices)" "^ *bond0 "
want_no_text "devices" "$(on-a ibv_devices)" "^ *rxa0 "
wire_mark
measured 4 ib_write_bw bond0 bond0 -s 1048576 -n 20 -t 4
want_spread $((20 * 1048576)) 0 1
python3 -c 'import pyverbs.device' 2>/dev/null || skip "python3-pyverbs is not installed"
said=$(on-a python3 -c '
import pyverbs.device as d
print(d.Context(name="bond0").query_device().max_qp)' 2>&1) || fail "pyverbs: $said"
want "pyverbs max_qp" "$said" ">" 0
