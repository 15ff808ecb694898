#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Running programs under a budget of DRAM with what each kernel has: PAGEMAP_SCAN or pagemap; and on a
# real zoned namespace, with pager, keeper and broker.
# vm: --timeout 4000
set -uo pipefail
. "$(dirname "$0")/guest-lib.sh"
. "$(dirname "$0")/memory-units.sh"
export ZNS_CONFIG=/tmp/conf ZNS_RUN=/tmp/run ZNSD_IDLE_S=1
mkdir -m 700 -p $ZNS_CONFIG $ZNS_RUN

field() { znsctl memory status "pid-$pid" --json | python3 -c "import json, sys; print(json.load(sys.stdin)['$1'])"; }
units_out() {
	for _ in $(seq 300); do
		[ "$(field evicted_units)" -ge "$1" ] && return
		sleep 1
	done
	znsctl memory status "pid-$pid"
	return 1
}
below() { # the resident memory, in MiB, within a minute
	for _ in $(seq 300); do
		[ "$(awk '{ print int($2 / 256) }' "/proc/$pid/statm")" -le "$1" ] && return
		sleep 0.2
	done
	return 1
}
# A child that was forked in the moment in which the pager died is lost: it was killed, and read nothing wrong (rule HOLD).
ends_well() {
	local wrong lost
	kill -TERM "$pid"
	for _ in $(seq 300); do
		wrong=$(tail -1 /tmp/out | sed -nE 's/^end [0-9]+ ([0-9]+)$/\1/p')
		lost=$(grep -cE '^child [0-9]+: status 9$' /tmp/out)
		[ -n "$wrong" ] && [ "$wrong" -le "$lost" ] && ! grep -q ': page ' /tmp/out && return
		sleep 0.2
	done
	grep -vE '^[0-9]+ [0-9]+$' /tmp/out | head -4
	return 1
}

# on_device: a program of known pages, whose pager, keeper and broker die meanwhile.
on_device() {
	"$REPO/build/zonetests/keeper_of_pages" 48 >/tmp/out 2>&1 &
	pid=$!
	for _ in $(seq 100); do [ -s /tmp/out ] && break; sleep 0.2; done
	check "attach" znsctl memory attach $pid --dram 16M
	check "300 units out" units_out 300
	check "its budget" below 16
	pkill -9 -x zns-mem
	sleep 2
	check "after the pager's death" units_out 500
	pkill -9 -x znsd
	sleep 2
	check "after the broker's death" units_out 700
	check "detach" znsctl memory detach $pid
	check "no page is wrong" ends_well
}

guest_setup
title "this kernel"
znsctl memory status
few=$(named few)
title "/dev/$few: a budget on a zoned namespace"
on "/dev/$few"
check "format" znsctl format "/dev/$few" --map 'i % 4'
on_device
on -
title "programs and what they do with their memory"
modprobe fuse || skip "no FUSE" # of test_mem_direct
memory_units test_mem_hold test_mem_reach test_mem test_mem_moves test_mem_direct test_mem_hiber
finish
