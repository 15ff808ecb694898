#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The prober on zoned drives with dies and channels (test/drive) under this kernel, through both nodes: it finds the
# groups, or it refuses. A map that is stored and wrong fails.
# vm: --timeout 4000 --devices dies:eight,size=256M,zone=8M,model.channels=8,model.die-write=10,model.die-read=20,model.channel=200 dies:sixteen,size=512M,zone=8M,model.channels=8,model.ways=2,model.map=permuted,model.map-seed=7,model.die-write=10,model.die-read=20,model.channel=14
set -uo pipefail
. "$(dirname "$0")/guest-lib.sh"

# judge NAME NODE: what is stored beside the drive's own map, which its model tells.
judge() {
	znsctl groups "$2" --json >"$RESULTS/groups-$1.json"
	python3 "$(dirname "$0")/judge-map.py" "$RESULTS/drive-$1.json" "$RESULTS/groups-$1.json"
}

# probe NAME NODE
probe() {
	local out rc begin=$SECONDS
	znsctl format "$2" --force --map 'i % 1' --zone-write-bw 10 --zone-read-bw 20 >/dev/null || { fail "$1: format"; return; }
	out=$(znsctl probe "$2" 2>&1) && rc=0 || rc=$?
	tail -12 <<<"$out"
	echo "$1, $2: $((SECONDS - begin)) s"
	if [ "$rc" = 0 ]; then
		check "$1: the stored map is the drive's" judge "$1" "$2"
		judge "$1" "$2"
	elif grep -qE 'not stored|doubt|too noisy|cannot tell' <<<"$out"; then
		pass "$1: refused, nothing is stored"
	else
		fail "$1: exit $rc: $(tail -2 <<<"$out")"
	fi
}

guest_setup
device_table
for d in $(zoned_devices nvme); do
	name=$(given "/dev/$d")
	for node in "/dev/$d" "$(ng_of "$d")"; do
		title "$node"
		on "$node"
		probe "${name%/*}" "$node"
	done
done
finish
