#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Live dumps under each kernel: rounds, kills, what cannot be tracked. The verifier compares every page in the
# freeze. 6.1 has no tracker: all is copied in the freeze. On the emulator and on a zoned namespace.
# vm: --timeout 2400
set -uo pipefail
. "$(dirname "$0")/guest-lib.sh"
Z=$REPO/test/zonetests

guest_setup
tracked=must
kernel_at_least 6.7 || tracked=yes
on emu:file
title "emulator"
[ $tracked = yes ] || part livedump python3 $Z/livedump.py run -a --timeout 400
part zonetests-live python3 $Z/zonetests.py run busy churn cowtree threads thp sparse files \
	--live $tracked --timeout 400
few=$(named few)
on "/dev/$few"
title "/dev/$few"
part "zonetests-live-$few" python3 $Z/zonetests.py run busy churn cowtree \
	--live $tracked --format "/dev/$few" --timeout 400
finish
