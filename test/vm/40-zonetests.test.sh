#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Real programs dumped and restored on one namespace through both of its nodes: some on both, the others on one (an
# emulated processor is slow), three as init of namespaces; then what must hold when a dump goes wrong, as far as no
# emulator is needed. The demo, with its Redis of more than 400 MB, on both nodes.
# vm: --timeout 2400
set -uo pipefail
. "$(dirname "$0")/guest-lib.sh"
Z=$REPO/test/zonetests
BOTH=(anon cowtree memfd shmanon threads)
BLOCK=(busy files filemap ghost hugetlb sessions)
PASSTHROUGH=(manyvmas pipes pty shmfile thp unixsock)
NS=(tmpfs netlo cowtree)
ERRORS=(open-limit qos-too-large dump-twice two-dumps-at-once removed-checkpoint unknown-checkpoint)

demo() {
	local log=$RESULTS/demo-${1#/dev/}.log
	"$REPO/scripts/demo" --format "$1" >"$log" 2>&1 || { tail -3 "$log"; return 1; }
}

# programs NODE NAME…
programs() {
	local node=$1 n=${1#/dev/}
	shift
	on "$node"
	title "$node: demo"
	check "demo on $node, digests equal" demo "$node"
	grep -E 'dataset|digest|bandwidth|zones' "$RESULTS/demo-$n.log"
	title "$node: zonetests"
	part "zonetests-$n" python3 $Z/zonetests.py run "${BOTH[@]}" "$@" -f h --format "$node" --qos 400 --timeout 400
	part "zonetests-ns-$n" python3 $Z/zonetests.py run "${NS[@]}" -f ns --format "$node" --qos 400 --timeout 400
	title "$node: errors"
	part "errors-$n" python3 $Z/errors.py run "${ERRORS[@]}" --format "$node" --timeout 400
}

guest_setup
few=$(named few)
programs "/dev/$few" "${BLOCK[@]}"
programs "$(ng_of "$few")" "${PASSTHROUGH[@]}"
finish
