#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# What bench-drives and bench-fragments run in a guest: one cell, as DIRECTORY NAME JSON; DIRECTORY, of test/bench, has the cells.py.
# The result is /results/cell.json.
set -uo pipefail
. "$(dirname "$0")/../../vm/guest-lib.sh"
guest_setup
load_modules f2fs btrfs zonefs bfq mq-deadline
device_table
ring_doorbells
while read -r name _; do export "DRIVE_$name=/dev/$(named "$name")"; done <"$REPO/.devices"
cd "$(dirname "$0")/../$1" && python3 cells.py "${@:2}"
code=$?
# 30 s without an answer are no figure
if dmesg | grep -E 'nvme.* timeout'; then echo "FAILED a request had to wait for the drive's reset"; exit 1; fi
exit $code
