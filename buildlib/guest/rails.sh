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
# (as tc says it: 100mbit); none or "-": no limit.
rails() {
	local count=$1 i rate
	shift
	local rates=("$@")
	rails_del
	ip link set lo up
	sysctl -qw net.ipv4.conf.{all,default}.rp_filter=0 net.ipv4.conf.{all,default}.accept_local=1
	for ((i = 0; i < count; i++)); do
		rail_add "$i" || return
		rate=${rates[i]:--}
		[ ${#rates[@]} != 1 ] || rate=${rates[0]}
		[ "$rate" = - ] || rail_rate "$i" "$rate" || return
	done
	if ! ip rule show pref 20 | grep -q .; then
		ip route add local 127.0.0.0/8 dev lo table 100
		ip rule add pref 20 lookup 100
		ip rule add pref 30 lookup local
		ip rule del pref 0
	fi
}

rail_add() { # rail_add I
	local i=$1 d
	ip link add "va$i" type veth peer name "vb$i" || return
	for d in "va$i" "vb$i"; do
		ip link set "$d" mtu "$RAILS_MTU" up
		sysctl -qw "net.ipv4.conf.$d.arp_ignore=1"
		ip rule add pref 10 iif "$d" lookup local
	done
	ip addr add "10.0.$i.1/24" dev "va$i"
	ip addr add "10.0.$i.2/24" dev "vb$i"
	# A host talking to itself stays inside.
	ip rule add pref 15 from "10.0.$i.1" to "10.0.$i.1" lookup local
	ip rule add pref 15 from "10.0.$i.2" to "10.0.$i.2" lookup local
	rail_routes "$i"
	rdma link add "rxa$i" type rxe netdev "va$i" && rdma link add "rxb$i" type rxe netdev "vb$i"
}

rail_routes() {
	ip route replace "10.0.$1.2/32" dev "va$1" src "10.0.$1.1" table 100
	ip route replace "10.0.$1.1/32" dev "vb$1" src "10.0.$1.2" table 100
}

rails_del() {
	local path i
	for path in /sys/class/net/va*; do
		[ -e "$path" ] || continue
		i=${path##*/va}
		rdma link delete "rxa$i" 2>/dev/null
		rdma link delete "rxb$i" 2>/dev/null
		ip link del "va$i"
		ip rule del pref 10 iif "va$i" 2>/dev/null
		ip rule del pref 10 iif "vb$i" 2>/dev/null
		ip rule del pref 15 from "10.0.$i.1" 2>/dev/null
		ip rule del pref 15 from "10.0.$i.2" 2>/dev/null
	done
	true
}

# rail_rate I RATE: line rate in both directions. The bucket is small, so that a short
# measurement does not run ahead of the rate; the queue holds what a few NIC queues hold.
rail_rate() {
	local d
	for d in "va$1" "vb$1"; do
		tc qdisc replace dev "$d" root handle 1: tbf rate "$2" burst 64kb limit 8mb || return
	done
}

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
rail_up() { ip link set "va$1" up && rail_routes "$1"; }

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
