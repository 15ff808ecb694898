# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# Shared by the scripts in this directory; to be sourced.
vm=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$vm/../.." && pwd)
cache=$root/build/vm
# What a guest can boot: the name given on command lines, then the suites that may hold such a kernel.
# "new" is whatever is the newest there, for scripts that ask for it: with the modules they need, and no others.
declare -A KERNEL_SUITES=([6.1]="bookworm" [6.12]="trixie bookworm-backports" [new]="trixie-backports sid")
KERNELS=(6.1 6.12)

die() { echo "${0##*/}: $*" >&2; exit 2; }
note() { echo "${0##*/}: $*" >&2; }

# packages host|guest: the names, one a line.
packages() { awk -v kind="$1" '$1 == kind { for (i = 2; i <= NF; i++) print $i }' "$vm/packages"; }

need_tools() {
	local t missing=()
	for t in "$@"; do command -v "$t" >/dev/null || missing+=("$t"); done
	[ ${#missing[@]} = 0 ] || die "missing: ${missing[*]}; install: $(packages host | tr '\n' ' ')"
}
