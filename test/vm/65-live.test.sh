#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Iterative live migration, which needs a kernel that tracks dirty pages: rounds of pre-dumps to a page server on zones, the
# last dump, a restore there. On the emulator.
# vm: --timeout 2400
set -uo pipefail
. "$(dirname "$0")/guest-lib.sh"
Z=$REPO/test/zonetests

guest_setup
title "dirty tracking"
check "the kernel tracks dirty pages" criu check --feature mem_dirty_track
on emu:file
title "emulator"
part live python3 $Z/live.py run -a --timeout 400
finish
