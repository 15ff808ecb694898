#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# One drive that two hosts reach, with NVMe reservations: Linux's own target (6.13 and later) exports a zoned null_blk
# twice over its loop transport, to two host identifiers. The hosts are two configurations of ours with machine ids of
# their own. nvme-cli is the witness.
# vm-kernel: new
# vm: --timeout 2400 --devices zns:without,size=256M,zone=8M,cap=8M
set -uo pipefail
. "$(dirname "$0")/guest-lib.sh"
TARGET=/sys/kernel/config/nvmet
NQN=nqn.2026-11.test:pair
declare -A NODE=() CTRL=()

# ---- the drive and its hosts ------------------------------------------------------------------------------------

export_drive() {
	local ns=$TARGET/subsystems/$NQN/namespaces/1
	mkdir -p "$TARGET/subsystems/$NQN" "$TARGET/ports/1" || return
	echo 1 >"$TARGET/subsystems/$NQN/attr_allow_any_host"
	mkdir -p "$ns"
	echo -n /dev/nullb0 >"$ns/device_path" && echo 1 >"$ns/resv_enable" && echo 1 >"$ns/enable" || return
	echo loop >"$TARGET/ports/1/addr_trtype"
	ln -s "$TARGET/subsystems/$NQN" "$TARGET/ports/1/subsystems/$NQN"
}

# attach HOST ID: connect it with this host identifier, and wait for its node.
attach() {
	local h=$1 id=$2 said d
	exec 7<>/dev/nvme-fabrics || return
	echo -n "transport=loop,nqn=$NQN,hostnqn=nqn.2014-08.org.nvmexpress:uuid:$id,hostid=$id" >&7 || return
	read -r said <&7
	exec 7>&-
	[[ $said =~ instance=([0-9]+) ]] || { echo "$said"; return 1; }
	CTRL[$h]=nvme${BASH_REMATCH[1]}
	for _ in $(seq 100); do
		for d in /sys/class/nvme/"${CTRL[$h]}"/nvme*n*; do
			if [ -e "$d/size" ]; then NODE[$h]=${d##*/}; fi
		done
		[ -b "/dev/${NODE[$h]:-none}" ] && [ -c "$(ng_of "${NODE[$h]}")" ] && return
		sleep 0.2
	done
	echo "no node of ${CTRL[$h]}: $said"
	return 1
}

detach() { echo 1 >"/sys/class/nvme/${CTRL[$1]}/delete_controller"; unset "NODE[$1]"; }

new_host() {
	mkdir -p "/tmp/$1/etc" "/tmp/$1/run"
	head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n' >"/tmp/$1/etc/machine-id"
	attach "$1" "$2"
}

# as HOST COMMAND…
as() { local h=$1; shift; env "ZNS_CONFIG=/tmp/$h/etc" "ZNS_RUN=/tmp/$h/run" ZNSD_IDLE_S=600 "$@"; }
dev() { if [ "$way" = block ]; then echo "/dev/${NODE[$1]}"; else ng_of "${NODE[$1]}"; fi; }

# what HOST KEY…: a value of `znsctl status --json`.
what() {
	as "$1" znsctl status "$(dev "$1")" --json | python3 -c '
import json, sys
v = json.load(sys.stdin)
for k in sys.argv[1:]:
    v = v[k]
print(v)' "${@:2}"
}

# "HOLDER'S-KEY TYPE", "- 0" if nobody holds it: as nvme-cli sees it from host a.
holder() {
	nvme resv-report "/dev/${NODE[a]}" -n 1 --eds -o json | python3 -c '
import json, sys
r = json.load(sys.stdin)
regs = r.get("regctlext", r.get("regctl_eds", r.get("regctls", [])))
held = [g for g in regs if g["rcsts"] & 1]
print("0x%016x" % held[0]["rkey"] if held else "-", r["rtype"])'
}

is() { [ "$1" = "$2" ] || { echo "got: $1; expected: $2"; return 1; }; }
held_by() { is "$(holder)" "$(what "$1" nvme_reservation key) 1"; }
unheld() { is "$(holder)" "- 0"; }

broker_pid() { what "$1" broker_pid; }
ended() { for _ in $(seq 150); do kill -0 "$1" 2>/dev/null || return 0; sleep 0.1; done; echo "PID $1 is still there"; return 1; }
end_broker() {
	local pid
	pid=$(broker_pid "$1") || return
	kill "-$2" "$pid" && ended "$pid"
}

# ---- tasks ------------------------------------------------------------------------------------------------------

# start_task MIB: its PID in $task. It counts in a file, so that one sees whether it runs.
start_task() {
	setsid python3 -c '
import os, sys, time
b = bytearray(os.urandom(1 << 20) * int(sys.argv[1]))
n = 0
while True:
    n += 1
    with open("/tmp/ticks", "w") as f:
        f.write(str(n))
    time.sleep(0.05)' "$1" </dev/null >/dev/null 2>&1 &
	task=$!
	disown
	for _ in $(seq 300); do [ -s /tmp/ticks ] && return; sleep 0.1; done
	return 1
}

runs() {
	local before
	before=$(cat /tmp/ticks)
	sleep 1
	if ! kill -0 "$1" || [ "$(cat /tmp/ticks)" = "$before" ]; then echo "task $1 does not run on"; return 1; fi
}

# dump HOST DIRECTORY OPTION…
dump() {
	mkdir -p "$2"
	as "$1" criu dump -t "$task" -D "$2" -o dump.log --zns-dev "$(dev "$1")" --zns-container "task-$1" "${@:3}" ||
		{ grep -a Error "$2/dump.log"; return 1; }
}

nr_checkpoints() { as "$1" znsctl ls "$(dev "$1")" --json | grep -c '"id"'; }
none_suspect() { is "$(what "$1" suspect_zones) $(what "$1" zones_by_state read-only) $(what "$1" zones_by_state offline)" "0 0 0"; }

# ---- cases ------------------------------------------------------------------------------------------------------

reserves() {
	check "a formats it" as a znsctl format "$(dev a)" --zone-write-bw 100 --force
	check "$way: a format gives the reservation back" unheld
	check "$way: status shows the reservation" is "$(what a nvme_reservation ours) $(what a nvme_reservation type)" \
		"True write-exclusive"
	check "$way: the drive says the same" held_by a
	key=$(what a nvme_reservation key)
	check "$way: and for people" grep -q 'reserved for this one' <(as a znsctl status "$(dev a)")
}

# Nothing was changed yet, so no mount record says anything: the reservation alone keeps b out.
keeps_out() {
	check "b registers it" as b znsctl register "$(dev b)"
	refused "$way: b is refused by the reservation" "is reserved by another host .*$key.*register --take-over $(dev b)" \
		as b znsctl ls "$(dev b)"
	refused "$way: b does not format it" "reserved by another host" as b znsctl format "$(dev b)" --force
	refused "$way: nor does the drive let b write" '' dd if=/dev/zero "of=/dev/${NODE[b]}" bs=4096 count=1 seek=65536 \
		oflag=direct conv=notrunc
	refused "$way: or append" 'RESERVATION_CONFLICT|Reservation Conflict|0x[0-9a-f]*83' \
		nvme zns zone-append "$(ng_of "${NODE[b]}")" -s 0x10000 -z 4096 -d /dev/urandom
	refused "$way: or reset" '' blkzone reset -o 0 -c 1 "/dev/${NODE[b]}"
	check "$way: b may read" dd "if=/dev/${NODE[b]}" of=/dev/null bs=4096 count=1 iflag=direct
	check "$way: a still holds it" held_by a
}

goes_on_after_a_crash() {
	check "$way: a's broker is killed" end_broker a KILL
	check "$way: the drive stays reserved" is "$(holder)" "$key 1"
	check "$way: a goes on by itself" held_by a
	check "$way: a's broker is killed again" end_broker a KILL
	detach a
	# It is rebooted, and has another host identifier; not in a subshell, since the node may have another name.
	attach a 33333333-0000-4000-8000-00000000000$n
	check "$way: and finds it" as a znsctl register "$(dev a)"	# perhaps under another name
	check "$way: a goes on by itself after it" held_by a
	refused "$way: b is refused as before" "reserved by another host" as b znsctl ls "$(dev b)"
}

moves() {
	rm -f /tmp/ticks
	start_task 8
	check "$way: a dumps a task" dump a "/tmp/$way-first"
	check "$way: and has the checkpoint" is "$(nr_checkpoints a)" 1
	refused "$way: b is refused by the mount record" "in use by host .*register --take-over" as b znsctl ls "$(dev b)"
	check "$way: a's broker leaves" end_broker a TERM
	check "$way: nobody holds it" unheld
	check "$way: b has the checkpoint" is "$(nr_checkpoints b)" 1
	check "$way: b holds it" held_by b
	check "$way: b restores the task" as b criu restore -d -D "/tmp/$way-first" -o restore.log
	check "$way: which runs" runs "$task"
	kill -9 "$task"
}

# a takes the drive while b dumps to it.
taken_away() {
	local dumping pid
	rm -f /tmp/ticks
	start_task 64
	pid=$(broker_pid b)
	dump b "/tmp/$way-second" --zns-qos-max 4 >/tmp/dump.out 2>&1 &
	dumping=$!
	for _ in $(seq 300); do
		[ "$(as b znsctl status "$(dev b)" --json | grep -c '"kind": "dump"')" = 1 ] && break
		sleep 0.2
	done
	sleep 2
	check "$way: b is in the middle of a dump" kill -0 "$dumping"
	check "$way: a takes it over" as a znsctl register --take-over "$(dev a)"
	check "$way: a holds it" held_by a
	wait "$dumping"
	check "$way: b's dump fails" test $? != 0
	echo "     says: $(cat /tmp/dump.out)"
	check "$way: and says why" grep -q 'another host has reserved' /tmp/dump.out
	check "$way: the task runs on" runs "$task"
	kill -9 "$task"
	check "$way: b's broker has left" ended "$pid"
	refused "$way: b is refused" "reserved by another host|in use by host" as b znsctl ls "$(dev b)"
	check "$way: nothing of it is visible" is "$(nr_checkpoints a)" 1
	check "$way: no zone is taken for a bad one" none_suspect a
	check "$way: the checkpoint is whole" as a znsctl verify "$(dev a)" --all
	check "$way: a's broker leaves at last" end_broker a TERM
	check "$way: nobody holds it at last" unheld
}

# Drives without reservations work as before.
without() {
	mkdir -p /tmp/c/etc /tmp/c/run
	check "$way: it is formatted" as c znsctl format "$(dev c)" --zone-write-bw 100 --force
	check "$way: no reservation" is "$(what c nvme_reservation)" None
	check "$way: none for people either" test "$(as c znsctl status "$(dev c)" | grep -c '^host')" = 0
	check "$way: its broker leaves" end_broker c TERM
}

modprobe nvme_core multipath=N		# two controllers of one drive are two drives to us
guest_setup
modprobe -a nvmet nvme-loop
title "a drive with reservations for two hosts"
nullb_create nullb0 size=512 zone_size=16 zone_capacity=16 zone_max_open=8 zone_max_active=12
check "the target exports a zoned drive with reservations" export_drive
new_host a 11111111-0000-4000-8000-000000000001
new_host b 22222222-0000-4000-8000-000000000002
check "both see zones" is "$(attr "${NODE[a]:-}" zoned) $(attr "${NODE[b]:-}" zoned)" "host-managed host-managed"
[ "$failed" = 0 ] || finish
n=0
for way in block passthrough; do
	n=$((n + 1))
	title "$way"
	on "$(dev a)"
	reserves
	keeps_out
	goes_on_after_a_crash
	moves
	taken_away
done
title "a drive without"
NODE[c]=$(named without)
for way in block passthrough; do
	on "$(dev c)"
	without
done
on -
finish
