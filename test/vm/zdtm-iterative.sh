#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# CRIU's own tests with two pre-dumps or two dumps before the dump, on zones beside stock CRIU, test by test; make
# zdtm-iterative. zdtm and stock CRIU were built by the host (scripts/vm/zdtm-iterative).
#   zdtm-iterative.sh [LIST] [WAY…]
set -uo pipefail
. "$(dirname "$0")/guest-lib.sh"
LIST=${1:-test/zdtm/iterative.txt}
WAYS=("${@:2}")
[ ${#WAYS[@]} -gt 0 ] || WAYS=(pre-dump snaps pre-dump-read)

guest_setup
# 10 s for a dump and 30 s for a make are little for an emulated processor beside others; the same for both.
sed -i "s/\"--timeout\", \"10\"/\"--timeout\", \"120\"/; s/get('timeout') or 30)/get('timeout') or 600)/" $REPO/build/zdtm/stock/test/zdtm.py
export PYTHONPATH=$REPO/build/zdtm/python PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python
cd $REPO || exit 1
title "what criu says of this kernel"
check "soft-dirty tracking" criu check --feature mem_dirty_track
criu check || true
for way in "${WAYS[@]}"; do
	title "$way"
	part "zdtm-$way" scripts/zdtm-sample --all -f h -l "$LIST" --way "$way" --report "$RESULTS/$way"
done
finish
