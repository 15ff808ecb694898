#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Power cuts: QEMU is killed in the middle of dumps to a disk with real flushes, and the next boot must find every
# committed checkpoint. The first cut keeps each write that the disk had completed, the next only what it had flushed,
# as a volatile cache does at its worst, and so on in turn. (flush-control says whether the disk can be believed.)
#   90-power-cut.host.sh KVER RESULTS     CUTS=N: how many cuts, 2 by default; LIES=N: the disk ignores N flushes, and this test must fail
set -euo pipefail
cd "$(dirname "$0")/../.."
kver=$1 results=$2
disk=$results/store.img
log=$results/store.log
told=$results/told
passed=0 failed=0 skipped=0
first=1

# cut AFTER DELAY [lossy]: power off DELAY seconds after the dump numbered AFTER began.
cut() {
	local device=disk:store,size=3G,cache=none,file=$disk
	rm -f "$log"
	if [ -n "${3:-}" ]; then
		cp --sparse=always "$disk" "$disk.before"
		device+=,log=$log
	fi
	scripts/vm/run "$kver" test/vm/power-cut-write.sh --results "$results/write" --quiet --timeout 600 \
		--devices "$device" --kill-after-mark "DUMP $1" --kill-delay "$2" -- "$first"
	# The last line may be cut too: without its end it was not said.
	tr -d '\r' <"$results/write/serial.log" | while read -r line; do echo "$line"; done |
		grep -E '^(CONTENT|DUMP|COMMITTED|REMOVED?) ' >>"$told"
	echo "power cut $2 s after dump $1 began${3:+, $3}; last said: $(tail -1 "$told")"
	[ -z "${3:-}" ] || scripts/vm/drop-unflushed "$log" "$disk.before" "$disk" "${LIES:-0}"
}

verify() {
	local p f s
	mkdir -p "$results/check"
	cp "$told" "$results/check/told"
	scripts/vm/run "$kver" test/vm/power-cut-check.sh --results "$results/check" --timeout 900 \
		--devices "disk:store,size=3G,cache=none,file=$disk" >"$results/check/output" 2>&1 || true
	grep -aE '^(PASS|FAIL|told)' "$results/check/output" || true
	read -r p f s < <(sed -nE 's/^([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$/\1 \2 \3/p' "$results/check/output") ||
		{ tail -5 "$results/check/output"; p=0 f=1 s=0; }
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

mkdir -p "$results"
rm -f "$disk" "$told"
: >"$told"
for i in $(seq "${CUTS:-2}"); do
	# Any moment of a dump, which takes some seconds: freezing, data, commit, removal of an old one.
	lossy=
	if [ $((i % 2)) = 0 ]; then lossy=lossy; fi
	cut $((first + 2 + i)) "$((RANDOM % 4)).$((RANDOM % 10))" $lossy
	verify
	first=$((first + 20))
done
rm -f "$disk" "$disk.before" "$log"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
