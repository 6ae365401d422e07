#!/bin/sh
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# A front before a newer libibverbs than it was built for lets everything pass; one of the right
# layout takes part. Usage: behind_front.sh BUILD-FOLDER
build=$1
export RDMA_BOND_CONF=/nonexistent

expect() {
	said=$(LD_LIBRARY_PATH=$1 "$build/behind-front" 2>&1)
	if [ "$said" != "$2" ]; then
		printf 'in %s: expected\n%s\nbut got\n%s\n' "$1" "$2" "$said"
		exit 1
	fi
}

real='real ibv_reg_mr_ex
real verbs_register_driver_59 driver-of-59'
expect "$build/core-59" "$real"
expect "$build/front-of-36" "$real
front saw 0"
expect "$build/front-of-59" "$real
front saw 1"
