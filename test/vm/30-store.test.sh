#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The store on every kind of device: format, a Redis dumped and restored, blkzone as a witness of the zones, limits,
# refusals, removal; each namespace through its block node and through passthrough.
# vm: --timeout 2400
set -uo pipefail
. "$(dirname "$0")/guest-lib.sh"

store() {
	title "$1"
	on "$1"
	part "store-${1#/dev/}" python3 $REPO/test/vm/store.py "$1" --timeout 300
}

guest_setup
nullb_defaults
device_table
for name in ${*:-few many lba512}; do
	d=$(named "$name")
	store "/dev/$d"
	store "$(ng_of "$d")"
done
[ $# = 0 ] || finish
for d in nullb1 nullb3; do store "/dev/$d"; done
finish
