#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# One boot of a host of 38-fabrics-two.    fabrics-host.sh STEP NAME MACHINE-ID HOST-ID TARGET
# a has the block node, b the passthrough node. What the next boot needs goes to /results/next: handles, contents, names. The power goes at the line CUT.
set -uo pipefail
. "$(dirname "$0")/fabrics-lib.sh"
step=$1 me=$2 target=$5
NEXT=$RESULTS/next
WORK=/var/tmp/images

# ---- from boot to boot ------------------------------------------------------------------------------------------

tell() { echo "$2" >"$NEXT/$1" && sync "$NEXT/$1"; }
told() { cat "$NEXT/$1"; }
hand_over() { cp -r "$WORK/$1" "$NEXT/" && sync; }
hand_out() { mkdir -p $WORK && cp -r "$NEXT/$1" $WORK/; }

# ---- the drive --------------------------------------------------------------------------------------------------

mine() { is "$(what "$me" "$dev" nvme_reservation ours) $(what "$me" "$dev" nvme_reservation type)" "True write-exclusive"; }
check_mine() { if [ "$reserved" = 1 ]; then check "$me holds the reservation" mine; fi; }
empty_zone() { blkzone report "/dev/$node" | sed -n '/(em)/s/^ *start: *\(0x[0-9a-f]*\),.*/\1/p' | tail -1; }
written_zones() { blkzone report "/dev/$node" | grep -vc '(em)'; }

# refused_at_first OTHER: which has the drive.
refused_at_first() {
	start_memory 20000 8
	check "$me registers it" as "$me" znsctl register "$dev"
	# Its mount record is read first: it says since when.
	refused "$me is refused" "in use by host .*register --take-over" as "$me" znsctl ls "$dev"
	if [ "$reserved" = 1 ]; then
		refused "nor does the drive let $me write" 'Invalid exchange' dd if=/dev/zero "of=/dev/$node" bs=4096 count=1 \
			seek=$(($(empty_zone) / 8)) oflag=direct conv=notrunc
	fi
	refused "$me does not dump to it" "reserved by another host|in use by host" dump "$me" "$dev" /tmp/refused --leave-running
	kill -9 "$memory"
	wait "$memory" 2>/dev/null
	check "$me takes it over" as "$me" znsctl register --take-over "$dev"
	check_mine
}

# all_there CONTAINER…
all_there() {
	check "the checkpoints are: $*" is "$(checkpoints "$me" "$dev")" "$*"
	check "all are whole" as "$me" znsctl verify "$dev" --all
	check "no zone is suspect, none is leased" is "$(what "$me" "$dev" suspect_zones) $(what "$me" "$dev" leases)" "0 []"
}

# restored CONTAINER OPTION…
restored() {
	hand_out "$1"
	check "$1 is restored" as "$me" criu restore -d -D "$WORK/$1" -o restore.log
	check "it has its memory, and runs on" runs "$(told "$1.pid")" "$(told "$1.content")"
}

# dumped CONTAINER OPTION…: and what a later boot needs for it.
dumped() {
	ask "$memory" USR1 && tell "$1.content" "$digest" && tell "$1.pid" "$memory" || return
	dump "$me" "$dev" "$WORK/$1" "${@:2}" && hand_over "$1"
}

# slow_dump NAME MIBPS: of the task $memory, in the background as $dumping; returns in the middle of it.
slow_dump() {
	local before _
	before=$(written_zones)
	dump "$me" "$dev" "$WORK/$1" --leave-running --zns-qos-max "$2" >"/tmp/$1.said" 2>&1 &
	dumping=$!
	for _ in $(seq 600); do
		[ "$(written_zones)" -gt "$before" ] && break
		sleep 0.2
	done
	sleep 3
	check "a dump is under way" is "$(what "$me" "$dev" leases | grep -c "'kind': 'dump'")" 1
	check "which has written zones" test "$(written_zones)" -gt "$before"
}

# ---- boots ------------------------------------------------------------------------------------------------------

# The first host: two checkpoints, and a third that never ends.
first() {
	check "a formats it" as a znsctl format "$dev" --zone-write-bw 100 --force
	check_mine
	tell free "$(what a "$dev" bytes_free)"
	start_memory 30001 64
	check "a dumps a task" dumped one
	wait "$memory" 2>/dev/null
	check "which is gone" test ! -e "/proc/$memory"
	start_memory 29001 64
	check "a dumps another, which runs on" dumped two --leave-running
	tell zones "$(written_zones)"
	slow_dump torn 4
	kill -0 "$dumping" && echo "CUT in the middle of a dump, $(written_zones) zones written, $(told zones) before it"
	sleep 60
}

# The other one.
second() {
	check "what a had not committed lies there" test "$(written_zones)" -gt "$(told zones)"
	refused_at_first a
	all_there one two
	restored one
	memory=$(told two.pid)
	mkdir -p $WORK/empty
	check "two is restored by its identity alone" as b criu restore -d -D $WORK/empty -o restore.log --zns-dev "$dev" \
		--zns-checkpoint "$(identity b "$dev" two)"
	check "it has its memory, and runs on too" runs "$memory" "$(told two.content)"
	check "b dumps it again" dumped three
	echo "CUT after a dump"
	sleep 60
}

# The first one, rebooted.
third() {
	refused_at_first b
	all_there one three two
	restored three
	[ "$failed" != 0 ] || figures
	if [ "$reserved" = 1 ]; then taken_away; else leave; fi
}

# b comes while a is well, and in the middle of a dump.
taken_away() {
	local content
	start_memory 27000 256
	ask "$memory" USR1
	content=$digest
	slow_dump late 1
	echo "BUSY with a dump"
	wait "$dumping"
	check "a's dump fails" test $? != 0
	echo "     it says: $(cat /tmp/late.said)"
	check "and says why" grep -q 'another host has reserved' /tmp/late.said
	check "its task runs on" runs "$memory" "$content"
	refused "a is refused" "reserved by another host|in use by host" as a znsctl ls "$dev"
}

# The other one once more, while a is there.
fourth() {
	local _
	refused_at_first a
	all_there one three two
	for _ in $(seq 600); do [ -e $RESULTS/alone ] && break; sleep 0.5; done
	leave
}

leave() {
	check "$me's checkpoints go" as "$me" znsctl rm "$dev" --all
	check "all room is free again" is "$(what "$me" "$dev" bytes_free)" "$(told free)"
	check "$me's broker leaves" end_broker "$me" "$dev" TERM
}

figures() {
	local own
	own=/dev/$(named own)
	check "a has a drive of its own" as a znsctl format "$own" --zone-write-bw 100 --force
	rates a "$own" "$dev" 7 || fail "a dump for the figures"
	check "what was for the figures goes" as a znsctl rm "$dev" --pattern 'rate-*'
}

guest_setup
modprobe nvme-tcp
title "$step: host $me"
mkdir -p $NEXT
new_host "$me" "$3"
node=
connect "$target" "$4"		# not in a subshell
check "$me sees zones" is "$(attr "${node:-none}" zoned)" host-managed
[ "$failed" = 0 ] || finish
if [ "$me" = b ]; then dev=$(ng_of "$node"); else dev=/dev/$node; fi
if offers_reservations "$node"; then reserved=1; else reserved=0; fi
echo "     $dev, reservations: $reserved"
on "$dev"
"$step"
finish
