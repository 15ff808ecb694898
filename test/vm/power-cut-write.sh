#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# First boot: dump a changing process again and again, remove old checkpoints, and tell the console each step, until
# the power goes.    power-cut-write.sh FIRST: the first dump's number
set -uo pipefail
. "$(dirname "$0")/power-cut-lib.sh"
KEEP=3

# Before the next dump, so that cuts meet removals too.
remove_oldest() {
	local all n id
	mapfile -t all < <(checkpoints | sed -n 's/^cut-//p' | sort -n)
	[ ${#all[@]} -gt $KEEP ] || return 0
	read -r n id <<<"${all[0]}"
	echo "REMOVE $n"
	znsctl rm "$id" >/dev/null || return
	echo "REMOVED $n"
}

guest_setup
mount_store || exit 1
# A PID that no process of the next boot has.
start_memory $((30000 + $1)) 32 || exit 1
for n in $(seq "$1" $(($1 + 40))); do
	ask $memory USR1 || exit 1
	echo "CONTENT $n $digest"
	echo "DUMP $n"
	mkdir -p "/mnt/images/$n"
	criu dump -t $memory -D "/mnt/images/$n" -o dump.log --leave-running --zns-qos 200 --zns-container "cut-$n" ||
		{ tail -5 "/mnt/images/$n/dump.log"; exit 1; }
	echo "COMMITTED $n"
	sleep 1		# idle: a cut here finds what the dump alone made durable, no later flush helps
	remove_oldest || exit 1
done
