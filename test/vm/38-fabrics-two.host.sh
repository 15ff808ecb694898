#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# NVMe over TCP between machines: one guest exports a zoned namespace to two others. The first one's power is cut in the
# middle of a dump, the second one's after one; each time the next host is refused, takes over, and must find, verify and
# restore what was committed. Dumps to this drive and to one of the guest's own take turns, for the figures. Where the
# target has reservations, the drive refuses too; and at last a host loses it to the other one while it dumps.
#   38-fabrics-two.host.sh KVER RESULTS
# vm-kernel: 6.1 6.12 new
set -euo pipefail
cd "$(dirname "$0")/../.."
kver=$1 results=$2
passed=0 failed=0 skipped=0
DRIVE=size=1G,zone=16M,cap=12M,open=14,active=14
MACHINE=([1]=11111111111111111111111111111111 [2]=22222222222222222222222222222222)
HOSTID=([1]=11111111-0000-4000-8000-000000000001 [2]=22222222-0000-4000-8000-000000000002)

fail() { failed=$((failed + 1)); echo "FAIL $*"; }

# Of a guest whose power was cut, its console alone tells.
tell_of() {
	tr -d '\r' <"$results/$1/serial.log" >"$results/$1/said"
	grep -aE '^(===|PASS|FAIL|SKIP|CUT|GUEST-READY|     )' "$results/$1/said" || true
	passed=$((passed + $(grep -ac '^PASS' "$results/$1/said" || true)))
	failed=$((failed + $(grep -ac '^FAIL' "$results/$1/said" || true)))
	skipped=$((skipped + $(grep -ac '^SKIP' "$results/$1/said" || true)))
}

start_target() {
	mkdir -p "$results/target"
	rm -f "$results/target/stop"
	VM_MEM=1G scripts/vm/run "$kver" test/vm/fabrics-target.sh --results "$results/target" --quiet --timeout 7200 \
		--devices "zns:shared,$DRIVE" --net "listen:${cable}1:10.77.1.1" \
		--net "listen:${cable}2:10.77.2.1" >"$results/target/run" 2>&1 &
	target=$!
	for _ in $(seq 900); do
		grep -qs '^TARGET-READY' "$results/target/serial.log" && return
		kill -0 "$target" 2>/dev/null || return
		sleep 0.5
	done
	return 1
}

end_target() {
	local rc=0
	touch "$results/target/stop"
	wait "$target" || rc=$?
	target=
	tell_of target
	[ $rc = 0 ] || fail "the target ends well: exit $rc"
}

# boot STEP NAME NUMBER OPTION…
boot() {
	mkdir -p "$results/$1/next"
	cp -r "$results/next/." "$results/$1/next/"
	VM_MEM=2G scripts/vm/run "$kver" test/vm/fabrics-host.sh --results "$results/$1" --quiet --timeout 2400 \
		--devices "zns:own,$DRIVE" --net "connect:$cable$3:10.77.$3.2" "${@:4}" \
		-- "$1" "$2" "${MACHINE[$3]}" "${HOSTID[$3]}" "10.77.$3.1"
}

# ended STEP EXIT-CODE
ended() {
	tell_of "$1"
	[ "$2" = 0 ] || fail "the $1 host comes to its end: exit $2"
	cp -r "$results/$1/next/." "$results/next/"
}

# host STEP NAME NUMBER OPTION…
host() {
	local rc=0
	boot "$@" || rc=$?
	ended "$1" $rc
}

# The third, and beside it a fourth if that is asked for, which keeps the drive until the third has ended.
last_hosts() {
	local rc=0 rc4=0
	boot third a 1 &
	third=$!
	while kill -0 "$third" 2>/dev/null; do
		if grep -qs '^BUSY' "$results/third/serial.log"; then
			boot fourth b 2 &
			fourth=$!
			break
		fi
		sleep 1
	done
	wait "$third" || rc=$?
	third=
	ended third $rc
	[ -n "${fourth:-}" ] || return 0
	touch "$results/fourth/alone"
	wait "$fourth" || rc4=$?
	fourth=
	ended fourth $rc4
}

cleanup() {
	local p
	for p in ${target:-} ${third:-} ${fourth:-}; do kill "$p" 2>/dev/null || true; done
	rm -rf "$dir"
}

mkdir -p "$results"
rm -rf "$results"/{next,first,second,third,fourth}
mkdir "$results/next"
dir=$(mktemp -d)
cable=$dir/cable
trap cleanup EXIT
trap 'exit 143' INT TERM
if start_target; then
	host first a 1 --kill-after-mark "CUT in the middle"
	host second b 2 --kill-after-mark "CUT after"
	last_hosts
else
	fail "the target boots"
fi
end_target
echo "shared/tcp $passed $failed $skipped a zoned namespace over NVMe/TCP, from other machines" >"$results/tally"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
