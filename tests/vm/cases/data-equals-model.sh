# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# limit: 300 s
# Random overlapping operations equal a model that executes them in order, also with one path
# 5 ms behind the other.
rails 2 || fail "no rails"
bonds 2
program rw_model --rc-in-order --ops 400 --max-len 4m --quick || fail "on equal rails"
rail_delay 1 5ms
program rw_model --rc-in-order --ops 400 --max-len 1m --quick --seed 7 || fail "with one path late"
