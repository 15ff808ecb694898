#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Incremental dumps need a kernel that tracks dirty pages: chains, pre-dumps in both modes, what may be removed, export.
# On the emulator and on a zoned namespace.
# vm: --timeout 2400
set -uo pipefail
. "$(dirname "$0")/guest-lib.sh"
Z=$REPO/test/zonetests

guest_setup
echo 16 >/proc/sys/vm/nr_hugepages
title "dirty tracking"
check "the kernel tracks dirty pages" criu check --feature mem_dirty_track
on emu:file
title "emulator"
part incremental python3 $Z/incremental.py run -a --timeout 400
few=$(named few)
on "/dev/$few"
title "/dev/$few"
part "incremental-$few" python3 $Z/incremental.py run directories pre-dump-splice pre-dump-read leaving --format "/dev/$few" \
	--timeout 400
finish
