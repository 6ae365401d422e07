# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# Read by every bash script in the virtual machine (BASH_ENV).
# shellcheck source=/dev/null
. "$BOND_GUEST/rails.sh"
. "$BOND_GUEST/perf.sh"
