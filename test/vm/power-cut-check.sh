#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Second boot: what was committed before the power cut is there and restores; /results/told has what the console said.
set -uo pipefail
. "$(dirname "$0")/power-cut-lib.sh"
TOLD=$RESULTS/told

told() { grep -qx "$*" $TOLD; }

# restore_and_ask NUMBER DIR [OPTION…]: restored from DIR, the process has the digest it had when it was dumped.
restore_and_ask() {
	local work=/var/tmp/restore-$1 want pid rc=0
	want=$(sed -n "s/^CONTENT $1 //p" $TOLD | tail -1)
	rm -rf "$work"
	mkdir -p "$work" $MEMORY
	criu restore -v4 -d -D "$2" -W "$work" -o restore.log --pidfile "$work/pid" "${@:3}" 2>&1 || {
		echo "exit $?"
		grep -E 'Error|zns:' "$work/restore.log" | tail -5
		cp "$work/restore.log" "$RESULTS/restore-$1.log"
		return 1
	}
	read -r pid <"$work/pid"
	ask "$pid" USR2 || { echo "it does not answer"; rc=1; }
	kill -9 "$pid"
	while [ -e "/proc/$pid" ]; do sleep 0.05; done
	[ $rc = 0 ] || return $rc
	[ "$digest" = "$want" ] || { echo "digest $digest, dumped was $want"; return 1; }
}

# By its identity alone.
from_store() {
	mkdir -p /var/tmp/empty
	restore_and_ask "$1" /var/tmp/empty --zns-checkpoint "$2"
}

lost() {
	local n
	for n in $(sed -n 's/^COMMITTED //p' $TOLD); do
		told "REMOVE $n" || [ -n "${id[$n]:-}" ] || echo "$n"
	done
}

undead() {
	local n
	for n in $(sed -n 's/^REMOVED //p' $TOLD); do
		[ -z "${id[$n]:-}" ] || echo "$n"
	done
}

works() {
	local dir=/var/tmp/after
	mkdir -p $dir
	start_memory 20000 32 && ask $memory USR1 || return 1
	echo "CONTENT after $digest" >>$TOLD
	criu dump -t $memory -D $dir -o dump.log --zns-qos 200 --zns-container after || { tail -5 $dir/dump.log; return 1; }
	wait $memory 2>/dev/null
	restore_and_ask after $dir &&
		znsctl rm "$(checkpoints | sed -n 's/^after //p')"
}

guest_setup
check "the file system and the device are there" mount_store
check "znsctl ls" znsctl ls
declare -A id=()
while read -r container checkpoint; do id[${container#cut-}]=$checkpoint; done < <(checkpoints)
echo "told: $(grep -c ^COMMITTED $TOLD) committed, $(grep -c ^REMOVED $TOLD) removed; in the store: ${!id[*]}"
check "no committed checkpoint is lost" test -z "$(lost)"
check "no removed checkpoint is back" test -z "$(undead)"
# A dump that has returned left a durable handle as well; one that was cut off between commit and handle did not.
last=$(sed -n 's/^COMMITTED //p' $TOLD | tail -1)
for n in "${!id[@]}"; do
	if told "COMMITTED $n"; then check "checkpoint $n restores from its directory" restore_and_ask "$n" "/mnt/images/$n"; fi
	if [ "$n" = "$last" ]; then check "checkpoint $n, the last committed, restores from the store" from_store "$n" "${id[$n]}"; fi
	if ! told "COMMITTED $n"; then check "checkpoint $n, committed unheard, restores from the store" from_store "$n" "${id[$n]}"; fi
done
check "a new dump and restore work" works
finish
