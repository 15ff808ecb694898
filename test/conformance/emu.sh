#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# The conformance suite on emulated devices of several shapes.
#   emu.sh BUILDDIR
set -uo pipefail
b=$(cd "${1:?usage: emu.sh BUILDDIR}" && pwd)
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/zns-conform.XXXXXX")
trap 'rm -rf "$dir"' EXIT
export ZNS_CONFIG=$dir/etc ZNS_RUN=$dir/run
passed=0 failed=0 skipped=0

# try SHAPE OPTIONS…
try() {
	local p f s shape=$1
	shift
	"$b/bin/znsctl" create "emu:$dir/dev" --no-format --force "$@" >/dev/null || { failed=$((failed + 1)); return; }
	"$b/test/dev_conform" "emu:$dir/dev" --yes-destroy >"$dir/log"
	grep -E '^(emu:|FAIL|SKIP)' "$dir/log" | sed -E "s/^(FAIL|SKIP) /\1 $shape\//"
	if read -r p f s < <(sed -nE 's/^([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$/\1 \2 \3/p' "$dir/log"); then
		passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
	else
		failed=$((failed + 1))
		echo "FAIL the suite ended early: $(tail -1 "$dir/log")"
	fi
}

try small --zones 64 --zone-size 8M --zone-capacity 6M --max-open 6 --max-active 8
try even --zones 300 --zone-size 1M --zone-capacity 1000K --max-open 14 --max-active 14 --block-size 512
try unlimited --zones 16 --zone-size 4M --zone-capacity 4M --max-open 0 --max-active 0
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
