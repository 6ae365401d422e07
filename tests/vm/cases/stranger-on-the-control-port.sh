# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# On the peer's control port somebody listens who never answers, or answers garbage: traffic flows on
# path 0 at a plain device's speed, and nothing waits.
. "${BASH_SOURCE[0]%/*}/../interop.sh"
export RDMA_BOND_WAIT_MS=0
rails 2 100mbit || fail "no rails"
bonds 2
stranger() { # stranger TEXT-OF-PYTHON: what is done with each connection c
	python3 -c '
import os, socket, threading
l = socket.socket()
l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
l.bind(("10.0.0.2", 18791))
l.listen(100)
held = []
while True:
    c, _ = l.accept()
    held.append(c)
    open("/run/stranger.seen", "a").write("x")
    '"$1" &
	stranger=$!
	for ((i = 0; i < 100; i++)); do
		grep -q ':4967 ' /proc/net/tcp && return
		sleep 0.1
	done
	fail "the stranger does not listen"
}
for does in pass 'c.send(os.urandom(4096))' 'c.close()'; do
	rm -f /run/stranger.seen
	stranger "$does"
	for tool in ib_write_bw ib_send_bw; do
		began=${EPOCHREALTIME/./}
		measured 4 $tool rxa0 rxb0 -s 65536 -n 200 -t 4
		plain=$figure plain_us=$((${EPOCHREALTIME/./} - began)) began=${EPOCHREALTIME/./}
		wire_mark
		measured 4 $tool bond0 rxb0 -s 65536 -n 200 -t 4
		want "$tool, $does: MB/s" "$figure" ">=" "$(times "$plain" 0.8)"
		want "$tool, $does: us beyond the plain run" \
			$((${EPOCHREALTIME/./} - began - plain_us)) "<" 4000000
		want "$tool, $does: bytes on rail 1" "$(wire 1)" "<" 20000
	done
	[ -s /run/stranger.seen ] || fail "$does: nobody ever connected: this shows nothing"
	kill $stranger
	wait $stranger 2>/dev/null
done
true
