#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# NVMe over TCP: Linux's own target exports an emulated zoned namespace, and a host reaches it through 127.0.0.1. One
# guest is both: the quick one, without a second machine (38-fabrics-two has that).
# vm: --timeout 1200 --devices zns:shared,size=1G,zone=16M,cap=12M,open=14,active=14 zns:own,size=1G,zone=16M,cap=12M,open=14,active=14
set -uo pipefail
. "$(dirname "$0")/fabrics-lib.sh"

# The target of these kernels offers no reservations: only the mount record keeps the other host out.
way() {
	local dev=$1 dir=/tmp/$2
	on "$dev"
	check "$2: a formats it" as a znsctl format "$dev" --zone-write-bw 100 --force
	check "$2: it has no reservation" is "$(what a "$dev" nvme_reservation)" None
	start_memory $3 64 && ask "$memory" USR1
	local content=$digest
	check "$2: a dumps a task" dump a "$dev" "$dir"
	wait "$memory" 2>/dev/null
	check "$2: which is gone" test ! -e "/proc/$memory"
	[ "$failed" = 0 ] || return
	check "$2: b registers it" as b znsctl register "$dev"
	# One kernel has one lock of the node: while a's broker lives, that refuses b before the record could.
	refused "$2: b is refused while a's broker lives" "in use by" as b znsctl ls "$dev"
	check "$2: a's broker is killed" end_broker a "$dev" KILL
	refused "$2: b is refused by the mount record" "in use by host .*register --take-over" as b znsctl ls "$dev"
	check "$2: b takes it over" as b znsctl register --take-over "$dev"
	check "$2: b has the checkpoint" is "$(checkpoints b "$dev")" "$2"
	check "$2: it is whole" as b znsctl verify "$dev" --all
	check "$2: b restores the task" as b criu restore -d -D "$dir" -o restore.log
	check "$2: which runs on" runs "$memory" "$content"
	check "$2: b dumps it again" dump b "$dev" "$dir-b"
	check "$2: and has both" is "$(checkpoints b "$dev")" "$2 $2-b"
	check "$2: b's broker is killed" end_broker b "$dev" KILL
	refused "$2: a is refused now" "in use by host .*register --take-over" as a znsctl ls "$dev"
}

guest_setup
modprobe -a nvmet nvmet-tcp nvme-tcp
title "a zoned namespace over TCP"
local=$(named shared) own=$(named own) node=
new_host a
new_host b
check "the target exports a zoned namespace" export_drive "$local" 127.0.0.1
echo "     the target's attributes: $(find "$TARGET/subsystems/$NQN/namespaces/1" -type f -printf '%f ')"
connect 127.0.0.1 11111111-0000-4000-8000-000000000001		# not in a subshell
check "the host sees zones" is "$(attr "${node:-none}" zoned)" host-managed
[ "$failed" = 0 ] || finish
echo "     $local is $node, $(readlink -f "/sys/class/block/$node"), paths: $(find /sys/class/nvme/*/ -maxdepth 1 -name 'nvme*c*n*' -printf '%f ')"
for d in "$node" "$local"; do
	echo "     $d: $(nvme id-ctrl "/dev/$d" | grep -E '^(oncs|ctratt) ' | tr -s ' \n' ' ') $(nvme id-ns "/dev/$d" -n "$(cat "/sys/block/$d/nsid")" | grep -E '^rescap ')"
done
way "/dev/$node" block 30001
way "$(ng_of "$node")" passthrough 29001
on -
if [ "$failed" = 0 ]; then
	for d in "$own" "$node"; do check "$d is formatted" as a znsctl format "/dev/$d" --zone-write-bw 100 --force; done
	rates a "/dev/$own" "/dev/$node" 5 || fail "a dump for the figures"
fi
finish
