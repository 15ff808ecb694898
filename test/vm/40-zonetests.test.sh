#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Real programs dumped and restored on real devices, most of them as plain processes, some as init of namespaces, on one
# namespace through both of its nodes; then what must hold when a dump goes wrong, as far as no emulator is needed.
# The demo, with its Redis of more than 400 MB, on both nodes too.
# vm: --timeout 2400
set -uo pipefail
. "$(dirname "$0")/guest-lib.sh"
Z=$REPO/test/zonetests
PLAIN=(anon busy cowtree filemap files ghost hugetlb manyvmas memfd pipes sessions shmanon shmfile thp threads unixsock)
NS=(tmpfs netlo cowtree)
ERRORS=(open-limit qos-too-large dump-twice two-dumps-at-once removed-checkpoint unknown-checkpoint edited-copy
	truncated-handle unregistered-device)

demo() { "$REPO/scripts/demo" --format "$1" >"$RESULTS/demo-${1#/dev/}.log" 2>&1 || { tail -3 "$RESULTS/demo-${1#/dev/}.log"; return 1; }; }

guest_setup
few=$(named few)
for node in "/dev/$few" "$(ng_of "$few")"; do
	n=${node#/dev/}
	on "$node"
	title "$node: demo"
	check "demo on $node" demo "$node"
	grep -E 'dataset|digest|bandwidth|zones' "$RESULTS/demo-$n.log" 2>/dev/null
	title "$node: zonetests"
	part "zonetests-$n" python3 $Z/zonetests.py run "${PLAIN[@]}" -f h --format "$node" --qos 400 --timeout 400
	part "zonetests-ns-$n" python3 $Z/zonetests.py run "${NS[@]}" -f ns --format "$node" --qos 400 --timeout 400
	title "$node: errors"
	part "errors-$n" python3 $Z/errors.py run "${ERRORS[@]}" --format "$node" --timeout 400
done
finish
