#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The prober on zoned drives with dies and channels (test/drive) under this kernel, through both nodes: it finds the
# groups, or it refuses. A map that is stored and wrong fails. So does a refusal of the drive "eight" while single reads of it take
# their usual time: nothing there is in the way. Where they do not, nothing is shown, and it is skipped. Some 50,000 reads for each
# node: 23-drives and 26-drives are guests of their own.
# vm: --timeout 4000 --devices dies:eight,size=256M,zone=8M,model.channels=8,model.die-write=10,model.die-read=20,model.channel=200
set -uo pipefail
. "$(dirname "$0")/guest-lib.sh"

# judge NAME NODE: what is stored beside the drive's own map, which its model tells.
judge() {
	znsctl groups "$2" --json >"$RESULTS/groups-$1.json"
	python3 "$(dirname "$0")/judge-map.py" "$RESULTS/drive-$1.json" "$RESULTS/groups-$1.json"
}

not_reset() { ! dmesg | grep -E 'nvme.* timeout' | head -3 | grep .; }

# undisturbed DEVICE: of 500 reads of one block of the catalogue, 95 % take no longer than 1.5 times the median.
undisturbed() {
	python3 - "$1" <<'P'
import mmap, os, sys, time
fd, buf, took = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 4096), []
for _ in range(500):
    begin = time.perf_counter()
    os.preadv(fd, [buf], 0)
    took.append(time.perf_counter() - begin)
took.sort()
print(f'single reads: median {took[250] * 1e3:.2f} ms, p95 {took[475] * 1e3:.2f} ms')
sys.exit(took[475] > 1.5 * took[250])
P
}

# probe NAME NODE DEVICE
probe() {
	local out rc begin=$SECONDS
	znsctl format "$2" --force --map 'i % 1' --zone-write-bw 10 --zone-read-bw 20 >/dev/null || { fail "$1: format"; return; }
	out=$(znsctl probe "$2" 2>&1) && rc=0 || rc=$?
	tail -12 <<<"$out"
	echo "$1, $2: $((SECONDS - begin)) s"
	if [ "$rc" = 0 ]; then
		check "$1: the stored map is the drive's" judge "$1" "$2"
		judge "$1" "$2"
	elif ! grep -qE 'nothing is stored|not stored|doubt|too noisy|cannot tell' <<<"$out"; then
		fail "$1: exit $rc: $(tail -2 <<<"$out")"
	elif [ "$1" != eight ]; then
		pass "$1: refused, nothing is stored"
	elif undisturbed "$3"; then
		fail "$1: refused, but nothing is in the way of its reads"
	else
		skip "$1: refused, nothing is stored; the machine is busy"
	fi
}

guest_setup
device_table
ring_doorbells
for d in $(zoned_devices nvme); do
	name=$(given "/dev/$d")
	for node in "/dev/$d" "$(ng_of "$d")"; do
		title "$node"
		on "$node"
		probe "${name%/*}" "$node" "/dev/$d"
	done
done
on -
check "no request had to wait for the drive's reset" not_reset
finish
