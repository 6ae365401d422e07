# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# rdma-core's own suite, as Debian ships it, on a plain device and on bond0: no test is worse
# but those of pyverbs-expected.
# limit: 500 s
suite=/usr/share/doc/rdma-core/tests
[ -d $suite ] || { echo "no $suite (Debian: rdma-core)"; exit 77; }
mkdir -p /run/suite
cp $suite/* /run/suite
gunzip -q /run/suite/*.gz
rails 2
bonds 2

run() { # run WAY DEVICE NETDEVICE'S-DEVICE
	BOND_WAY=$1 RDMA_BOND_WAIT_MS=0 timeout -k 2 230 on-a python3 /run/suite/run_tests.py -v \
		--dev "$2" --port 1 --gid "$(gid_index rxa0)" >"/run/suite.$2" 2>&1
}
run none rxa0
run front bond0
cp /run/suite.rxa0 /run/suite.bond0 /out 2>/dev/null
"${BASH_SOURCE[0]%/cases/*}/pyverbs-compare" /run/suite.rxa0 /run/suite.bond0 \
	"${BASH_SOURCE[0]%/cases/*}/pyverbs-expected"
