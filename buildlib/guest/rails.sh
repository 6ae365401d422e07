# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# shellcheck shell=bash
#
# Functions for scripts inside the virtual machine: the network between two "hosts" a and b, the
# kernel's counters of it, and the two configurations of bond0. Running programs on it: perf.sh.
#
# This kernel's soft-RoCE knows the initial network name space only, so both hosts live in one:
# rail N is a veth pair va<N> - vb<N> with 10.0.<N>.1 and 10.0.<N>.2, devices rxa<N> and rxb<N>.
# Routing by policy sends what a says to b out on va<N> and takes it in on vb<N>, where loopback
# would otherwise swallow it; so the network devices' counters mean what they would on two hosts.

: "${RAILS_MTU:=4200}"	# leaves room for a 4096-byte RoCE MTU

# rails COUNT [RATE...]: makes the rails new. One RATE holds for all, else the i-th for rail i
# (as tc says it: 100mbit); none or "-": no limit. Batches, because starting a program is what
# takes time in an emulated machine.
#
# What a NIC does in hardware, rxe does in softirqs. Where those must share a CPU with programs that
# poll, they wait for milliseconds in ksoftirqd and the rail runs dry: two members, each with a
# perftest of its own, then carry 1.85 times one instead of 1.99. So ksoftirqd goes first.
rails() {
	local count=$1 i rate d a b cpus
	shift
	for i in $(pgrep ksoftirqd); do chrt -f -p 50 "$i"; done
	local rates=("$@") links=() devices=() limits=()
	rails_del
	for i in all default; do
		echo 0 >/proc/sys/net/ipv4/conf/$i/rp_filter
		echo 1 >/proc/sys/net/ipv4/conf/$i/accept_local
		# Each end answers for its own address only; inherited by what is made now.
		echo 1 >/proc/sys/net/ipv4/conf/$i/arp_ignore
	done
	links+=("link set lo up")
	for ((i = 0; i < count; i++)); do
		# Known addresses: the first packet does not wait for ARP, which rxe would count as lost.
		a=02:00:00:00:0$i:0a b=02:00:00:00:0$i:0b
		links+=("link add va$i address $a type veth peer name vb$i address $b")
		for d in "va$i" "vb$i"; do
			links+=("link set $d mtu $RAILS_MTU up" "rule add pref 10 iif $d lookup local")
		done
		links+=("addr add 10.0.$i.1/24 dev va$i" "addr add 10.0.$i.2/24 dev vb$i")
		# A host talking to itself stays inside.
		links+=("rule add pref 15 from 10.0.$i.1 to 10.0.$i.1 lookup local"
			"rule add pref 15 from 10.0.$i.2 to 10.0.$i.2 lookup local")
		links+=("neigh add 10.0.$i.2 lladdr $b dev va$i nud permanent"
			"neigh add 10.0.$i.1 lladdr $a dev vb$i nud permanent")
		mapfile -t -O ${#links[@]} links < <(rail_routes "$i")
		devices+=("link add rxa$i type rxe netdev va$i" "link add rxb$i type rxe netdev vb$i")
		rate=${rates[i]:--}
		[ ${#rates[@]} != 1 ] || rate=${rates[0]}
		[ "$rate" = - ] || limits+=("$(rail_limit "va$i" "$rate")" "$(rail_limit "vb$i" "$rate")")
	done
	if ! [ -e /run/rails.rules ]; then
		links+=("route add local 127.0.0.0/8 dev lo table 100" "rule add pref 20 lookup 100"
			"rule add pref 30 lookup local" "rule del pref 0")
		: >/run/rails.rules
	fi
	printf '%s\n' "${links[@]}" | ip -batch - || return
	cpus=$(nproc)
	for ((i = 0; i < count; i++)); do
		# veth lets several CPUs deliver, which reorders; rxe takes that for loss.
		printf '%x\n' $((1 << i % cpus)) | tee /sys/class/net/v[ab]$i/queues/rx-0/rps_cpus >/run/rps
	done
	printf '%s\n' "${devices[@]}" | rdma -b - &&
		printf '%s\n' "${limits[@]}" | tc -batch -
}

rail_routes() {
	echo "route replace 10.0.$1.2/32 dev va$1 src 10.0.$1.1 table 100"
	echo "route replace 10.0.$1.1/32 dev vb$1 src 10.0.$1.2 table 100"
}

# The bucket is small, so that a short measurement does not run ahead of the rate; the queue
# holds what a few NIC queues hold.
rail_limit() { echo "qdisc replace dev $1 root handle 1: tbf rate $2 burst 64kb limit 8mb"; }

rails_del() {
	local path i links=() devices=()
	for path in /sys/class/net/va*; do
		[ -e "$path" ] || continue
		i=${path##*/va}
		devices+=("link delete rxa$i" "link delete rxb$i")
		links+=("link del va$i" "rule del pref 10 iif va$i" "rule del pref 10 iif vb$i"
			"rule del pref 15 from 10.0.$i.1" "rule del pref 15 from 10.0.$i.2")
	done
	[ ${#links[@]} != 0 ] || return 0
	printf '%s\n' "${devices[@]}" | rdma -f -b - 2>/dev/null
	printf '%s\n' "${links[@]}" | ip -force -batch - 2>/dev/null
	true
}

# rail_rate I RATE: line rate in both directions
rail_rate() { { rail_limit "va$1" "$2"; rail_limit "vb$1" "$2"; } | tc -batch -; }

# rail_netem I ARGS...: delay, loss, reordering as tc-netem(8) says it, behind the rate if any.
rail_netem() {
	local i=$1 d parent
	shift
	for d in "va$i" "vb$i"; do
		parent=root
		tc qdisc show dev "$d" root | grep -q tbf && parent="parent 1:1"
		# shellcheck disable=SC2086
		tc qdisc replace dev "$d" $parent handle 2: netem limit 20000 "$@" || return
	done
}
rail_delay() { rail_netem "$1" delay "$2"; }	# rail_delay I 5ms

# rail_mtu I BYTES: of the network device; the RoCE MTU is the next one that fits.
rail_mtu() { ip link set "va$1" mtu "$2" && ip link set "vb$1" mtu "$2"; }

rail_down() { ip link set "va$1" down; }	# carrier is lost at both ends
rail_up() {
	{
		echo "link set va$1 up"
		echo "neigh replace 10.0.$1.2 lladdr 02:00:00:00:0$1:0b dev va$1 nud permanent"
		echo "neigh replace 10.0.$1.1 lladdr 02:00:00:00:0$1:0a dev vb$1 nud permanent"
		rail_routes "$1"
	} | ip -batch -
}

# --- counters: the kernel's, never ours --------------------------------------------------------

# net_bytes NETDEV: bytes sent + received; net_bytes NETDEV tx|rx: one of them
net_bytes() {
	local dir=/sys/class/net/$1/statistics tx rx
	read -r tx <"$dir/tx_bytes"
	read -r rx <"$dir/rx_bytes"
	case ${2:-both} in tx) echo "$tx" ;; rx) echo "$rx" ;; both) echo $((tx + rx)) ;; esac
}

# rxe_counter DEVICE NAME: 0 where the kernel does not count that. Names: ls hw_counters there.
rxe_counter() { cat "/sys/class/infiniband/$1/ports/1/hw_counters/$2" 2>/dev/null || echo 0; }

# retries: over all devices, what says that a NIC had to send again, one word each
retries() {
	local name dev sum line=
	for name in completer_retry_err rcvd_rnr_err duplicate_request rcvd_seq_err; do
		sum=0
		for dev in /sys/class/infiniband/rx*; do
			[ ! -e "$dev" ] || sum=$((sum + $(rxe_counter "${dev##*/}" "$name")))
		done
		line+=" $name=$sum"
	done
	echo "${line# }"
}

# gid_index DEVICE: of its RoCE v2 IPv4 address
gid_index() {
	local dir=/sys/class/infiniband/$1/ports/1 i
	for ((i = 0; i < 16; i++)); do
		if grep -q '^0000:0000:0000:0000:0000:ffff:' "$dir/gids/$i" &&
			grep -q 'v2' "$dir/gid_attrs/types/$i" 2>/dev/null; then
			echo "$i"
			return
		fi
	done
	echo "gid_index: $1 has no IPv4 address" >&2
	return 1
}

# --- bond0 at both ends ------------------------------------------------------------------------

# bond_conf a|b "MEMBER, MEMBER..." ["KEY = VALUE"...]: what on-a and on-b will use
bond_conf() {
	local end=$1 members=$2
	shift 2
	mkdir -p /run/bond
	{
		echo "[bond0]"
		echo "members = $members"
		[ $# = 0 ] || printf '%s\n' "$@"
	} >"/run/bond/$end.conf"
}

# member_list a|b COUNT [FIRST]: "rxa0, rxa1..."
member_list() {
	local i first=${3:-0} list=
	for ((i = first; i < first + $2; i++)); do list+=", rx$1$i"; done
	echo "${list#, }"
}

# bonds COUNT_A [COUNT_B] : bond0 at each end over its first members
bonds() {
	bond_conf a "$(member_list a "$1")"
	bond_conf b "$(member_list b "${2:-$1}")"
}
