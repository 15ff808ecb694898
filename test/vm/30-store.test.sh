#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The store on every kind of device: format, a Redis dumped and restored, blkzone as a witness of the zones, limits,
# refusals, removal.
# vm: --timeout 2400
set -uo pipefail
. "$(dirname "$0")/guest-lib.sh"

store() {
	title "$1"
	on "$1"
	part "store-${1#/dev/}" python3 $REPO/test/vm/store.py "$1" --timeout 400
}

guest_setup
nullb_defaults
device_table
few=$(named few)
store "/dev/$few"
store "$(ng_of "$few")"
store "/dev/$(named lba512)"
store "$(ng_of "$(named many)")"
store /dev/nullb1
store /dev/nullb3
finish
