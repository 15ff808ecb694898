#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Tracking of written pages with what each kernel has: a userfaultfd from 6.7 on, with and without the report of all
# holes. The soft-dirty bits of 6.1 miss memory that mremap moves, so there is no tracker there.
# vm: --timeout 1500
set -uo pipefail
. "$(dirname "$0")/guest-lib.sh"
T=$REPO/build/test

guest_setup
title "tracker"
want=uffd
kernel_at_least 6.7 || want=none
check "the tracker is $want" bash -c "'$T/test_track' 2>&1 | tee /dev/stderr | grep -q '^tracker $want,'"
[ $want = uffd ] || finish
for zero in 0 1; do
	echo $zero >/sys/kernel/mm/transparent_hugepage/use_zero_page
	for thp in never madvise always; do
		echo $thp >/sys/kernel/mm/transparent_hugepage/enabled
		title "huge pages: $thp, a huge zero page: $zero"
		for t in test_track test_track_race; do
			check "$t, $thp, $zero" timeout 400 "$T/$t"
		done
	done
done
title "what a process notices"
for t in test_track_calls test_track_stop; do
	check "$t" timeout 600 "$T/$t"
done
finish
