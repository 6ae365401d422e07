# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# What ibverbs-utils and rdmacm-utils hold, on a plain device and on bond0.
# limit: 400 s
. "${BASH_SOURCE[0]%/cases/*}/applications.sh"
PAIR_LIMIT_S=20
rails 2 || fail "no rails"
bonds 2
pingpong() { # KIND [OPTION...]
	local run="ibv_$1_pingpong -d @D -g 1 -n 200 ${*:2}"
	app "ibv_$1_pingpong${2:+ ${*:2}}" "$run" "$run 127.0.0.1"
}
for kind in rc uc ud srq xsrq; do
	pingpong $kind
	pingpong $kind -e
done
pingpong rc -N
pingpong rc -t
pingpong srq -q 16
address=10.0.0.2
app rping "rping -s -a $address -C 20 -v -V" "rping -c -a $address -C 20 -v -V" "rdma-ping-19"
app ucmatose "ucmatose -b $address" "ucmatose -s $address"
app "ucmatose -c 4" "ucmatose -b $address -c 4 -C 20" "ucmatose -s $address -c 4 -C 20"
app udaddy "udaddy -b $address" "udaddy -s $address"
app rstream "rstream -b $address -S all -I 20" "rstream -s $address -S all -I 20"
app riostream "riostream -b $address -S all -I 20" "riostream -s $address -S all -I 20"
app_report
