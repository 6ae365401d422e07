# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# limit: 240 s
# 1000 WRs through a send queue of 16, fifteen of sixteen unsignalled; a bad WR in a chain.
rails 2 || fail "no rails"
bonds 2
program accounting --wrs 1000 --exact
