#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Chains of dumps in zones beside chains in files, both on one virtual disk; make bench-incremental.
#   incremental-bench.sh [MIB] [STEPS] [ROUNDS]
set -uo pipefail
. "$(dirname "$0")/guest-lib.sh"
guest_setup
work_on_disk
python3 "$REPO/test/zonetests/incremental.py" bench --size "${1:-1024}" --steps "${2:-10}" --rounds "${3:-3}" --timeout 600 2>&1 |
	tee "$RESULTS/incremental.txt"
exit "${PIPESTATUS[0]}"
