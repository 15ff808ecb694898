# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# For both boots of the power-cut test: the store is an emulated device on ext4 on the disk `store`; to be sourced.
. "$(dirname "${BASH_SOURCE[0]}")/guest-lib.sh"
export ZNS_CONFIG=/mnt/etc ZNS_RUN=/run/zns
MEMORY=/run/memory

mount_store() {
	local disk
	disk=/dev/$(named store)
	# The first boot of all finds an empty disk.
	mount "$disk" /mnt 2>/dev/null || { mkfs.ext4 -q "$disk" && mount "$disk" /mnt; }
	[ -e /mnt/dev ] || znsctl create emu:/mnt/dev --zones 64 --zone-size 16M --channels 4 --ways 2 --timing off --default
}

# start_memory PID MEGABYTES: a new process with that number; sets memory to it.
start_memory() {
	mkdir -p $MEMORY
	rm -f $MEMORY/answer
	echo $(($1 - 1)) >/proc/sys/kernel/ns_last_pid
	setsid python3 "$REPO/test/vm/power-cut-memory.py" $MEMORY "$2" </dev/null >/dev/null 2>&1 &
	memory=$!
	await_answer
}

# ask PID SIGNAL: sets generation and digest to the answer.
ask() {
	rm -f $MEMORY/answer
	kill "-$2" "$1" || return
	await_answer
}

await_answer() {
	local _
	for _ in $(seq 600); do
		if [ -e $MEMORY/answer ]; then read -r generation digest <$MEMORY/answer; return; fi
		sleep 0.05
	done
	return 1
}

checkpoints() { znsctl ls --json | python3 -c 'import json, sys
for c in json.load(sys.stdin)["checkpoints"]: print(c["container"], c["id"])'; }
