# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
# A wrong configuration: file and line, what is wrong, nothing claimed; physical devices work.
rails 1 || fail "no rails"
mkdir -p /run/bond
conf=/run/bond/a.conf
wrong() { # wrong LINE PATTERN < configuration
	cat >$conf
	local said
	said=$(on-a ibv_devices 2>&1) || fail "ibv_devices fails: $said"
	want_text "message" "$said" "$conf:$1: .*$2"
	want_text "devices" "$said" "^ *rxa0 "
	want_no_text "devices" "$said" "^ *bond0 "
	echo "refused: $(grep -F "$conf" <<<"$said")"
}
wrong 3 "colour" <<<$'[bond0]\nmembers = rxa0\ncolour = blue'
wrong 3 "control_port" <<<$'[bond0]\nmembers = rxa0\ncontrol_port = 70000'
wrong 3 "ordering" <<<$'[bond0]\nmembers = rxa0\nordering = sometimes'
wrong 2 "rxa0" <<<$'[bond0]\nmembers = rxa0, rxa0'
wrong 2 "members" <<<$'[bond0]\nmembers ='
wrong 2 "" <<<"[bond0]"$'\n'"members = rxa0 $(printf '%010000d' 0)"
bond_conf a rxa0
measured 4 ib_write_bw rxa0 rxb0 -s 65536 -n 50 -t 4
for way in front provider; do
	printf '[bond0]\nmembers = rxa0\ncolour = blue\n' >$conf
	cp $conf /run/bond/b.conf
	said=$(BOND_WAY=$way pair "on-b ib_write_bw -d rxb0 -F -x 1 -s 65536 -n 50" \
		"on-a ib_write_bw -d rxa0 -F -x 1 -s 65536 -n 50 127.0.0.1" 2>&1) ||
		fail "perftest on the plain device: $said"
	want_text "message" "$said" "$conf:3: "
done
