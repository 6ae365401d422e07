# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# The front by the loader's configuration, no environment at all. What this writes to /etc and the
# loader's cache is gone with the case's machine; the case puts them back for the next ones.
rails 2 100mbit || fail "no rails"
bonds 2
restore() { rm -f /etc/ld.so.conf.d/00-rdma-bond.conf /etc/rdma-bond.conf; ldconfig; }
trap restore EXIT
echo "$BOND_BUILD/lib/front" >/etc/ld.so.conf.d/00-rdma-bond.conf
ldconfig || fail "ldconfig"
cp "$BOND_BUILD/lib/libbond-rdmav34.so" "$(dirname "$(ldconfig -p | awk '/libmlx5.so.1 / {print $NF; exit}')")/libibverbs/"
want_no_text "without a configuration" "$(ibv_devices 2>&1)" "^ *bond0 "
cp /run/bond/a.conf /etc/rdma-bond.conf
want_text "with one" "$(ibv_devices 2>&1)" "^ *bond0 "
want_text "ib_write_bw" "$(ib_write_bw -d nosuch 2>&1; ldd "$(command -v ib_write_bw)")" "$BOND_BUILD/lib/front/libibverbs"
wire_mark
said=$(pair "RDMA_BOND_CONF=/run/bond/b.conf RDMA_BOND_WAIT_MS=5000 ib_write_bw -d bond0 -F -x 1 -s 1048576 -n 20 -t 4" \
	"RDMA_BOND_WAIT_MS=5000 ib_write_bw -d bond0 -F -x 1 -s 1048576 -n 20 -t 4 127.0.0.1" 2>&1) || fail "$said"
want_spread $((20 * 1048576)) 0 1
