# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# A task that knows the digest of its memory (power-cut-memory.py), for scripts in guests; to be sourced.
. "$(dirname "${BASH_SOURCE[0]}")/guest-lib.sh"
MEMORY=/run/memory

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
