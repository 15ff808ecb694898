#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The acceptance test of a drive, as its owner calls it, on NVMe namespaces through both nodes and on null_blk: nothing but the
# map may be wanting, since these drives have no dies to find.
# vm: --timeout 2400
set -uo pipefail
. "$(dirname "$0")/guest-lib.sh"

# selftest NAME NODE
selftest() {
	local log=$RESULTS/selftest-$1 begin=$SECONDS bad
	title "$2"
	on "$2"
	timeout 900 znsctl selftest "$2" --destroy --force >"$log" 2>&1
	echo "exit $?, $((SECONDS - begin)) s: $(tail -1 "$log")"
	grep -vE '^ok ' "$log"
	bad=$(grep -E '^FAILED' "$log" | grep -vE '^FAILED +(probe|map):' | head -3)
	if [ -n "$bad" ] || ! grep -qE '[0-9]+ not run$' "$log"; then fail "$1: ${bad:-it ended early: $(tail -2 "$log")}"; else pass "$1"; fi
	for kind in encrypted plain chain; do
		if grep -q "^ok  *dump and restore, $kind:" "$log"; then pass "$1: $kind"; else fail "$1: no dump and restore, $kind"; fi
	done
}

guest_setup
nullb_defaults
device_table
for d in $(zoned_devices nvme); do
	selftest "$d" "/dev/$d"
	selftest "$(basename "$(ng_of "$d")")" "$(ng_of "$d")"
done
for d in $(zoned_devices nullb); do
	can_wear_out "$d" || selftest "$d" "/dev/$d"
done
finish
