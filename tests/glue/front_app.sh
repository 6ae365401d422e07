#!/bin/sh
# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# One way into one stock program: without a configuration nothing changes and nothing is loaded;
# with one, the provider (marked_provider.c, which keeps a record) is ahead of every other driver.
#
# Usage: front_app.sh WAY APP FRONT PROVIDER PROBE
#   WAY       preload, ldconf (the front by ld.so.conf.d and ld.so.cache), provider (IBV_DRIVERS)
#   APP       ibv_devices, perftest, rping, pyverbs, dlopen, setuid
#   FRONT, PROVIDER, PROBE  the front, marked-rdmavNN.so, dlopen-probe
# Exit 77: cannot be tested here, and says why. Runs in a private mount name space with a device
# that only sysfs knows, under $TMPDIR or /tmp; nothing outside is touched.
way=$1 app=$2 front=$3 provider=$4 probe=$5

skip() {
	echo "skipped: $*"
	exit 77
}

die() {
	echo "$way, $app: $*"
	for file in "$t"/out.*; do
		[ ! -s "$file" ] || { echo "--- ${file##*/}" && cat "$file"; }
	done
	exit 1
}

if [ -z "$FRONT_APP_INSIDE" ]; then
	[ ! -e /sys/class/infiniband_verbs ] || skip "this kernel has RDMA devices of its own"
	export FRONT_APP_INSIDE=1
	if unshare -m true 2>/dev/null; then
		exec unshare -m "$0" "$@"
	elif unshare -rm true 2>/dev/null; then
		exec unshare -rm "$0" "$@"
	fi
	skip "no private mount name space"
fi

# mlx5, for programs with libmlx5 linked in; by its own way the provider cannot come before that.
device=mlx5_0 driver=mlx5
if [ "$way/$app" = provider/perftest ]; then
	device=rxe0 driver=rxe
fi

world_make() {
	t=$(mktemp -d "${TMPDIR:-/tmp}/front-app-XXXXXX") || exit 1
	trap 'umount -l /dev "$t" 2>/dev/null; rmdir "$t"' EXIT
	mount -t tmpfs none "$t" || exit 1
	uverbs=$t/sys/class/infiniband_verbs/uverbs0
	ibdev=$t/sys/class/infiniband/$device
	mkdir -p "$uverbs" "$ibdev/device" "$t/dev/infiniband" "$t/dev/shm"
	for node in null zero random urandom; do
		touch "$t/dev/$node"
		mount --bind "/dev/$node" "$t/dev/$node" || exit 1
	done
	touch "$t/dev/infiniband/uverbs0" "$t/conf"
	echo 6 >"$t/sys/class/infiniband_verbs/abi_version"
	echo 231:192 >"$uverbs/dev"
	echo $device >"$uverbs/ibdev"
	echo 1 >"$uverbs/abi_version"
	echo '1: CA' >"$ibdev/node_type"
	echo 0002:c903:0000:1234 >"$ibdev/node_guid"
	if [ $driver = mlx5 ]; then
		echo pci:v000015B3d00001017sv000015B3sd00000020bc02sc00i00 \
			>"$ibdev/device/modalias"
	fi
	mount --rbind "$t/dev" /dev || exit 1
	export SYSFS_PATH="$t/sys" GLUE_TEST_RECORD="$t/record" GLUE_TEST_PRIMARY=$device
	export RDMA_BOND_PROVIDER="$provider"
	unset RDMA_BOND IBV_DRIVERS RDMAV_DRIVERS LD_PRELOAD LD_LIBRARY_PATH
}

# As the administrator does it: the shipped file beside the system's, then ldconfig.
cache_make() {
	cp -r /etc/ld.so.conf.d "$t/ld.so.conf.d"
	sed "s|^/.*|$(dirname "$front")|" "$(dirname "$front")/00-rdma-bond.conf" \
		>"$t/ld.so.conf.d/00-rdma-bond.conf"
	mount --bind "$t/ld.so.conf.d" /etc/ld.so.conf.d || exit 1
	/sbin/ldconfig -X -C "$t/ld.so.cache" || exit 1
	mount --bind "$t/ld.so.cache" /etc/ld.so.cache || exit 1
}

program() { # $1: the name under which the device is expected
	case $app in
	ibv_devices) ibv_devices ;;
	perftest) ib_write_bw -d "$1" ;;
	rping) rping -c -a 127.0.0.1 -C 1 ;;
	pyverbs)
		/usr/bin/python3 -c 'from pyverbs.device import get_device_list
for device in get_device_list(): print(device.name.decode())'
		;;
	dlopen) "$probe" ;;
	setuid) "$t/program" --version ;;
	esac
}

# run NAME DEVICE [VARIABLE=VALUE...]: leaves out.NAME, rc and the record; blanks do not count.
run() {
	name=$1 expected=$2
	shift 2
	rm -f "$t/record"
	(
		for variable in "$@"; do
			export "${variable?}"
		done
		program "$expected"
	) >"$t/raw" 2>&1
	rc=$?
	tr -s ' \t' ' ' <"$t/raw" >"$t/out.$name"
	echo "exit $rc" >>"$t/out.$name"
	touch "$t/record"
}

same_as_before() {
	cmp -s "$t/out.before" "$t/out.$1" || die "$1 is not as before"
	[ ! -s "$t/record" ] || die "$1: the provider was loaded"
}

debug_names() { # what the loader itself wrote about the file $1 in the run named $2
	cat "$t/lddebug.$2".* | grep -qF "$1"
}

front_variables() {
	if [ "$way" = preload ]; then
		echo "LD_PRELOAD=$front"
	else
		echo "LD_BIND_NOT=" # the cache is in place: nothing to set
	fi
}

test_front() {
	run before $device RDMA_BOND_CONF=/nonexistent
	[ ! -s "$t/record" ] || die "loaded without a front"
	[ "$way" != ldconf ] || cache_make
	with_front=$(front_variables)

	run no-conf $device "$with_front" RDMA_BOND_CONF=/nonexistent \
		LD_DEBUG=files LD_DEBUG_OUTPUT="$t/lddebug.no-conf"
	same_as_before no-conf
	debug_names "$front" no-conf || die "the front was not even loaded"
	! debug_names "$provider" no-conf || die "the loader opened the provider"

	run off $device "$with_front" RDMA_BOND_CONF="$t/conf" RDMA_BOND=off
	same_as_before off

	run conf bond0 "$with_front" RDMA_BOND_CONF="$t/conf"
	sed "s/$device/bond0/" "$t/out.before" | cmp -s - "$t/out.conf" || die "no bond0"
	grep -q "^claim $device real=$driver order=bond,.*$driver" "$t/record" ||
		die "recorded: $(cat "$t/record")"
	[ "$(grep -c loaded "$t/record")" = 1 ] || die "loaded twice"

	run broken $device "$with_front" RDMA_BOND_CONF="$t/conf" RDMA_BOND_PROVIDER=/nonexistent
	[ "$(grep -c '^rdma-bond: /nonexistent' "$t/out.broken")" = 1 ] || die "no word of it"
	sed -i '/^rdma-bond: /d' "$t/out.broken"
	same_as_before broken
}

# The provider's own way: no front, so nobody tells it the driver or the order.
test_provider() {
	run before $device
	run conf bond0 IBV_DRIVERS="${provider%-rdmav*}"
	sed "s/$device/bond0/" "$t/out.before" | cmp -s - "$t/out.conf" || die "no bond0"
	[ "$(cat "$t/record")" = "loaded
claim $device real=unknown order=" ] || die "recorded: $(cat "$t/record")"
}

# A set-uid program takes neither file from the environment. Perftest registers drivers at start.
test_setuid() {
	cp "$(command -v ib_write_bw)" "$t/program" || exit 1
	chown nobody "$t/program" 2>/dev/null || skip "needs root"
	chmod 777 "$t" # nobody can leave a record, too
	chmod 755 "$t/program"
	cache_make
	run plain bond0 RDMA_BOND_CONF="$t/conf"
	[ "$(cat "$t/record")" = loaded ] || die "the same program without set-uid loads nothing"
	chmod 4755 "$t/program"
	run setuid bond0 RDMA_BOND_CONF="$t/conf"
	[ ! -s "$t/record" ] || die "loaded what the environment says"
	cmp -s "$t/out.plain" "$t/out.setuid" || die "does not work with set-uid"
}

case $app in
ibv_devices | rping) needs=$app ;;
perftest | setuid) needs=ib_write_bw ;;
pyverbs) needs=/usr/bin/python3 ;;
dlopen) needs=$probe ;;
esac
command -v "$needs" >/dev/null || skip "no $needs"
[ "$app" != pyverbs ] || /usr/bin/python3 -c 'import pyverbs.device' || skip "no pyverbs"

world_make
case $way/$app in
*/setuid) test_setuid ;;
provider/*) test_provider ;;
*) test_front ;;
esac
