#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Power cuts: QEMU is killed in the middle of dumps to a disk with real flushes, and the next boot must find every
# committed checkpoint. The first cut keeps each write that the disk had completed, the next only what it had flushed,
# as a volatile cache does at its worst, and so on in turn. The control: the same lossy cut once more, on a disk that
# had ignored its last flushes; that one must be caught with a checkpoint lost. (flush-control tries the tools alone.)
#   90-power-cut.host.sh KVER RESULTS     CUTS=N: how many cuts, 2 by default; more until one met a dump
set -euo pipefail
cd "$(dirname "$0")/../.."
kver=$1 results=$2
disk=$results/store.img
log=$results/store.log
told=$results/told
passed=0 failed=0 skipped=0
first=1 met=0 made=0
cuts=${CUTS:-2}
LIES=40			# flushes: of the last dumps, some ten each
SPEC=size=3G,cache=none

pass() { passed=$((passed + 1)); echo "PASS $*"; }
fail() { failed=$((failed + 1)); echo "FAIL $*"; }

# cut AFTER DELAY [lossy]: power off DELAY seconds after the dump numbered AFTER began.
cut() {
	local device=disk:store,$SPEC,file=$disk
	rm -f "$log"
	if [ -n "${3:-}" ]; then
		cp --sparse=always "$disk" "$disk.before"
		cp --sparse=always "$disk" "$disk.control"
		device+=,log=$log
	fi
	scripts/vm/run "$kver" test/vm/power-cut-write.sh --results "$results/write" --quiet --timeout 900 \
		--devices "$device" --kill-after-mark "DUMP $1" --kill-delay "$2" -- "$first"
	# The last line may be cut too: without its end it was not said.
	tr -d '\r' <"$results/write/serial.log" | while read -r line; do echo "$line"; done |
		grep -E '^(CONTENT|DUMP|COMMITTED|REMOVED?) ' >>"$told"
	if [[ $(tail -1 "$told") == DUMP* ]]; then met=$((met + 1)); fi
	echo "power cut $2 s after dump $1 began${3:+, $3}; last said: $(tail -1 "$told")"
	[ -z "${3:-}" ] || scripts/vm/drop-unflushed "$log" "$disk.before" "$disk"
}

# look DISK: the next boot; its verdicts go to $results/check/output. Fails if it never came to a count.
look() {
	mkdir -p "$results/check"
	cp "$told" "$results/check/told"
	scripts/vm/run "$kver" test/vm/power-cut-check.sh --results "$results/check" --timeout 900 \
		--devices "disk:store,$SPEC,file=$1" >"$results/check/output" 2>&1 || true
	tr -d '\r' <"$results/check/output" | grep -qE '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$'
}

verify() {
	local p f s
	if ! look "$disk"; then
		tail -5 "$results/check/output"
		fail "the check after the cut ended early"
		return
	fi
	grep -aE '^(PASS|FAIL|told)' "$results/check/output"
	read -r p f s < <(tr -d '\r' <"$results/check/output" |
		sed -nE 's/^([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$/\1 \2 \3/p')
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

# The cut that was just survived, on a disk that lied: the test must not call that one good.
control() {
	scripts/vm/drop-unflushed "$log" "$disk.control" "$disk.lied" "$LIES"
	look "$disk.lied" || true
	if grep -aE '^FAIL (no committed checkpoint is lost|the file system|znsctl ls)' "$results/check/output" |
		sed 's/^FAIL/the control says:/' | grep .; then
		pass "control: a disk that had ignored its last $LIES flushes is caught"
	else
		tail -12 "$results/check/output"
		fail "control: a disk that had ignored its last $LIES flushes was not noticed"
	fi
	rm -f "$disk.lied"
}

mkdir -p "$results"
rm -f "$disk" "$told"
: >"$told"
for i in $(seq $((cuts + 3))); do
	[ "$i" -le "$cuts" ] || [ "$met" = 0 ] || break
	# Any moment of a dump, which takes a second or some: freezing, data, commit, removal of an old one.
	lossy=
	if [ $((i % 2)) = 0 ]; then lossy=lossy; fi
	cut $((first + 2 + i)) "$((RANDOM % 2)).$((RANDOM % 10))" $lossy
	made=$i
	verify
	if [ "$i" = 2 ]; then control; fi
	first=$((first + 20))
done
if [ "$met" -gt 0 ]; then pass "$met of $made cuts came in the middle of a dump"
else fail "no cut came in the middle of a dump"; fi
rm -f "$disk" "$disk".* "$log"
echo "emulator/file $passed $failed $skipped emu:PATH on ext4, on a disk with real flushes" >"$results/tally"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
