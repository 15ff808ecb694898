#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Our emulator as a block device of the kernel, by ublk (6.12 and later): the rules it keeps must come through the
# kernel's zoned block layer and our block backend unchanged. Kernels without it skip, by name.
# vm: --timeout 1500
set -uo pipefail
. "$(dirname "$0")/guest-lib.sh"
T=$REPO/build/test

# export_emu NAME OPTION…: sets ublk to the block device, server to the process.
export_emu() {
	local name=$1
	shift
	znsctl create "emu:/var/tmp/$name" --no-format --force "$@" >/dev/null || return
	"$T/ublk_export" "emu:/var/tmp/$name" >/var/tmp/ublk.name 2>/var/tmp/ublk.err &
	server=$!
	for _ in $(seq 100); do
		[ -s /var/tmp/ublk.name ] && break
		kill -0 $server 2>/dev/null || { cat /var/tmp/ublk.err; return 1; }
		sleep 0.1
	done
	read -r ublk </var/tmp/ublk.name || return
	[ -b "$ublk" ]
}

# Not in a subshell, which has no children.
end_export() {
	kill $server
	for _ in $(seq 200); do kill -0 $server 2>/dev/null || break; sleep 0.1; done
	kill -9 $server 2>/dev/null
	wait $server
	ended=$?
}

guest_setup
load_modules ublk_drv
if ! kernel_at_least 6.12; then
	# Skipped by name; that it cannot be done is a case of its own.
	skip "ublk: Linux $(uname -r) has no zoned ublk devices"
	znsctl create emu:/var/tmp/old --no-format --zones 16 --zone-size 8M >/dev/null
	refused "and says so" 'ublk.*(6\.12|control)' "$T/ublk_export" emu:/var/tmp/old
	finish
fi
export_emu limits --zones 64 --zone-size 8M --zone-capacity 6M --max-open 6 --max-active 8
check "emu:limits is exported" test -b "${ublk:-/nowhere}"
on "$ublk"
check "blkzone sees capacity below size" test "$(zone_cap "${ublk#/dev/}")" = $((6 << 20))
part ublk-conformance timeout 300 $T/dev_conform "$ublk" --yes-destroy
part ublk-store python3 $REPO/test/vm/store.py "$ublk" --timeout 400
end_export
check "the server ends cleanly" test "$ended" = 0
finish
