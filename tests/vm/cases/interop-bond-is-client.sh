# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# limit: 300 s
# Every perftest operation between a bond and a plain device: as fast as between plain devices, on
# the primary's rail alone, and without delay at connect.
. "$(dirname "${BASH_SOURCE[0]}")/../interop.sh"
interop bond0 rxb0
