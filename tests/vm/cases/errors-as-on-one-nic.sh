# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# limit: 300 s
# Application errors come out on the right WR, at once, as on one device.
rails 2 || fail "no rails"
bonds 2
program errors --quick --local-alone
