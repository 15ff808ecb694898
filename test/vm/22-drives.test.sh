#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The prober on zoned drives with dies and channels (test/drive) under this kernel, through both nodes: it finds the
# groups, or it refuses. A map that is stored and wrong fails. Some 50,000 reads for each node: 23-drives and 26-drives are guests of
# their own. The drive "sure" takes its time: no machine is so busy that it hides a wait there, so a refusal fails, too.
# vm: --timeout 4000 --devices dies:sure,size=64M,zone=4M,model.channels=4,model.die-write=40,model.die-read=80,model.channel=800,model.slow=16 dies:eight,size=256M,zone=8M,model.channels=8,model.die-write=10,model.die-read=20,model.channel=200
set -uo pipefail
. "$(dirname "$0")/guest-lib.sh"

# judge NAME NODE: what is stored beside the drive's own map, which its model tells.
judge() {
	znsctl groups "$2" --json >"$RESULTS/groups-$1.json"
	python3 "$(dirname "$0")/judge-map.py" "$RESULTS/drive-$1.json" "$RESULTS/groups-$1.json"
}

not_reset() { ! dmesg | grep -E 'nvme.* timeout' | head -3 | grep .; }

# probe NAME NODE
probe() {
	local out rc begin
	for try in 1 2; do
		begin=$SECONDS
		probe_once "$@"
		[ "$rc" != 0 ] && [ "$1" = sure ] && [ $try = 1 ] || break
	done
	if [ "$rc" = 0 ]; then
		check "$1: the stored map is the drive's" judge "$1" "$2"
		judge "$1" "$2"
	elif ! grep -qE 'nothing is stored|not stored|doubt|too noisy|cannot tell' <<<"$out"; then
		fail "$1: exit $rc: $(tail -2 <<<"$out")"
	elif [ "$1" = sure ]; then
		fail "$1: refused twice, and nothing can hide its times"
	else
		pass "$1: refused, nothing is stored"
	fi
}

# Sets out and rc.
probe_once() {
	out=$(znsctl format "$2" --force --map 'i % 1' --zone-write-bw 10 --zone-read-bw 20 2>&1) || { rc=1; return; }
	out=$(znsctl probe "$2" 2>&1) && rc=0 || rc=$?
	tail -12 <<<"$out"
	echo "$1, $2: $((SECONDS - begin)) s"
}

guest_setup
device_table
ring_doorbells
for d in $(zoned_devices nvme); do
	name=$(given "/dev/$d")
	for node in "/dev/$d" "$(ng_of "$d")"; do
		title "$node"
		on "$node"
		probe "${name%/*}" "$node"
	done
done
on -
check "no request had to wait for the drive's reset" not_reset
finish
