#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# Which kernel devices the provider takes for bonds, by its own way (no front), and what it says.
# Usage: device.sh FAKE-RUN LIB-FOLDER IN-THE-WAY CASE
run=$1 lib=$2 in_the_way=$3 case=$4

die() {
	echo "$case: $*"
	printf '%s\n' "--- it said" "$said"
	exit 1
}

# conf TEXT: the configuration from here on
conf() {
	export RDMA_BOND_CONF=$FAKE_DIR/conf
	printf '%s\n' "$1" >"$RDMA_BOND_CONF"
}

# driver DEVICE NAME: what its sysfs entry says of the driver below it
driver() {
	mkdir -p "$FAKE_DIR/drivers/$2" "$SYSFS_PATH/class/infiniband/$1/device"
	ln -sfn "$FAKE_DIR/drivers/$2" "$SYSFS_PATH/class/infiniband/$1/device/driver"
}

said=
devices() { # devices NAME...: exactly these are in the list
	local list
	said=$(ibv_devices 2>&1 >"$FAKE_DIR/list") || die "ibv_devices fails"
	list=$(awk 'NR > 2 { print $1 }' "$FAKE_DIR/list" | sort | xargs)
	[ "$list" = "$*" ] || die "the list is \"$list\", not \"$*\""
}
opens() { said=$("${@:2}" ibv_devinfo -d "$1" 2>&1) || die "$1 does not open"; }
refuses() { ! said=$("${@:2}" ibv_devinfo -d "$1" 2>&1) || die "$1 opens"; }
words() { grep -q -- "$1" <<<"$said" || die "no word of: $1"; }
no_words() { ! grep -q -- "$1" <<<"$said" || die "it says: $1"; }

# The names of the cases say what they show.
another_driver() {
	conf $'[bond0]\nmembers = a0, a1'
	driver a0 mlx5_core
	driver a1 bnxt_en
	devices a0 a1
	words "bond0: not made: no other member"
	opens a0
	driver a1 mlx5_core
	devices a1 bond0
	opens bond0
}
only_primaries_left() {
	conf $'[bond0]\nmembers = a0, a1\n[bond1]\nmembers = a1, b1'
	devices a0 b1 bond1
	words "bond0: not made: no other member"
	opens bond1
}
name_of_another() {
	conf $'[bond0]\nmembers = a0, a1'
	devices a0 a1 bond0
	words "bond0: not made: another device has its name"
	opens a0
	opens bond0
}
renamed_primary() {
	conf $'[bond0]\nmembers = a7, a1'
	devices a1 bond0
	opens bond0
	no_words "left out"
	conf $'[bond0]\nmembers = pci:17:00.0, bond0'
	devices a1 bond0
	words "is the bond itself"
}
same_guid() {
	conf $'[bond0]\nmembers = a0, a1'
	devices a1 bond0
	opens bond0
	no_words "left out"
}
same_device_twice() {
	conf $'[bond0]\nmembers = a0, a1, netdev:lo'
	opens bond0
	words "(lo) is left out: it is the same device"
}
primary_of_another_bond() {
	conf $'[bond0]\nmembers = a0, a1\n[bond1]\nmembers = b0, a0, b1'
	opens bond1
	words "member 2 (a0) is left out: it is the first member of a bond"
}
no_channel() {
	conf $'[bond0]\nmembers = a0, a1'
	opens bond0 env LD_PRELOAD="$in_the_way"
	refuses bond0 env LD_PRELOAD="$in_the_way" SPOIL_CHANNEL=1
}
no_channel_of_a_member() {
	conf $'[bond0]\nmembers = a0, a1'
	opens bond0 env LD_PRELOAD="$in_the_way" SPOIL_CHANNEL=2
	words "member 2 (a1) is left out: it cannot be opened"
}
other_layout() {
	conf $'[bond0]\nmembers = a0, a1'
	refuses bond0 env LD_PRELOAD="$in_the_way" SPOIL_OPS=1
	words "bond0: cannot be opened: this libibverbs keeps its contexts otherwise"
}

if [ -n "${FAKE_DIR:-}" ]; then
	"$case"
	exit 0
fi
names=a0,a1
case $case in
only_primaries_left) names=a0,a1,b1 ;;
name_of_another) names=a0,a1,bond0=127.0.7.1 ;;
renamed_primary) names=a1,bond0=127.0.7.1 ;;
same_guid) names=a0=127.0.1.1,a1=10.0.1.1 ;;
primary_of_another_bond) names=a0,a1,b0,b1 ;;
esac
unset RDMA_BOND "${!RDMA_BOND_@}"
IBV_DRIVERS=$lib/libbond exec "$run" --devices "$names" -- bash "$0" "$@"
