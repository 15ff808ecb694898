#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The target of 38-fabrics-two: exports its zoned namespace until /results/stop is there.
set -uo pipefail
. "$(dirname "$0")/fabrics-lib.sh"

guest_setup
modprobe -a nvmet nvmet-tcp
drive=$(named shared)
check "the target exports a zoned namespace" export_drive "$drive" 0.0.0.0
[ "$failed" = 0 ] || finish
echo "TARGET-READY"
while [ ! -e $RESULTS/stop ]; do sleep 1; done
check "the target's drive has no bad zone" is "$(blkzone report "/dev/$drive" | grep -cE '\((ro|of)\)')" 0
finish
