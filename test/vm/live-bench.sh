#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Live migration in rounds beside a plain one, into files and into zones; make bench-live. Under TCG: ratios only.
#   live-bench.sh [MIB] [ROUNDS] [RUNS]
set -uo pipefail
. "$(dirname "$0")/guest-lib.sh"
guest_setup
work_on_disk
python3 "$REPO/test/zonetests/live.py" bench --size "${1:-64}" --rounds "${2:-2}" --runs "${3:-3}" --timeout 600 2>&1 |
	tee "$RESULTS/live.txt"
exit "${PIPESTATUS[0]}"
