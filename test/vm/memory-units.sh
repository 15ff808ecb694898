# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# To be sourced behind guest-lib.sh by 68-memory and 69-memory-late.

# memory_units TEST…
memory_units() {
	local t
	for t; do
		check "$t" bash -c "timeout 1800 $REPO/build/test/$t >/run/$t 2>&1 || { grep -B3 -F ERROR /run/$t; false; }"
		cp "/run/$t" "$RESULTS/"
	done
}
