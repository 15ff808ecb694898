# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# A zoned namespace over NVMe/TCP: the target's side and the host's, for scripts in guests; to be sourced.
. "$(dirname "${BASH_SOURCE[0]}")/memory-lib.sh"
TARGET=/sys/kernel/config/nvmet
NQN=nqn.2026-11.test:fabrics

# ---- target -----------------------------------------------------------------------------------------------------

# export_drive KERNEL-NAME ADDRESS: with reservations where this kernel's target has them (6.13 and later).
export_drive() {
	local sub=$TARGET/subsystems/$NQN port=$TARGET/ports/1
	local ns=$sub/namespaces/1
	mkdir -p "$ns" "$port" || return
	echo 1 >"$sub/attr_allow_any_host"
	echo -n "/dev/$1" >"$ns/device_path" || return
	if [ -e "$ns/resv_enable" ]; then echo 1 >"$ns/resv_enable" || return; fi
	echo 1 >"$ns/enable" || return
	echo tcp >"$port/addr_trtype" && echo ipv4 >"$port/addr_adrfam" && echo "$2" >"$port/addr_traddr" &&
		echo 4420 >"$port/addr_trsvcid" && ln -s "$sub" "$port/subsystems/$NQN"
}

# ---- hosts ------------------------------------------------------------------------------------------------------

# connect ADDRESS ID: with this host identifier. Sets node to the block device that the host side made.
connect() {
	local said d _ before
	before=" $(zoned_devices nvme | tr '\n' ' ')"
	exec 7<>/dev/nvme-fabrics || return
	echo -n "transport=tcp,traddr=$1,trsvcid=4420,nqn=$NQN,hostnqn=nqn.2014-08.org.nvmexpress:uuid:$2,hostid=$2" >&7 || return
	read -r said <&7
	exec 7>&-
	for _ in $(seq 100); do
		for d in $(zoned_devices nvme); do
			[[ $before == *" $d "* ]] || ! [ -c "$(ng_of "$d")" ] || { node=$d; return; }
		done
		sleep 0.2
	done
	echo "no node: $said"
	return 1
}

# Does the drive behind a block node offer reservations?
offers_reservations() {
	[ "$(nvme id-ns "/dev/$1" -n "$(cat "/sys/block/$1/nsid")" | sed -n 's/^rescap *: *//p')" != 0 ]
}

# new_host NAME [MACHINE-ID]; as NAME COMMAND…: hosts are configurations with machine ids of their own.
new_host() {
	mkdir -p "/tmp/$1/etc" "/tmp/$1/run"
	echo "${2:-$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')}" >"/tmp/$1/etc/machine-id"
}
as() { local h=$1; shift; env "ZNS_CONFIG=/tmp/$h/etc" "ZNS_RUN=/tmp/$h/run" ZNSD_IDLE_S=600 "$@"; }

# what HOST DEVICE KEY…: a value of `znsctl status --json`.
what() {
	as "$1" znsctl status "$2" --json | python3 -c '
import json, sys
v = json.load(sys.stdin)
for k in sys.argv[1:]:
    v = v[k]
print(v)' "${@:3}"
}

# end_broker HOST DEVICE SIGNAL
end_broker() {
	local pid _
	pid=$(what "$1" "$2" broker_pid) && kill "-$3" "$pid" || return
	for _ in $(seq 150); do kill -0 "$pid" 2>/dev/null || return 0; sleep 0.1; done
	return 1
}

# The containers of all checkpoints, sorted, in one line.
checkpoints() {
	as "$1" znsctl ls "$2" --json | python3 -c '
import json, sys
print(*sorted(c["container"] for c in json.load(sys.stdin)["checkpoints"]))'
}

# identity HOST DEVICE CONTAINER
identity() {
	as "$1" znsctl ls "$2" --json | python3 -c '
import json, sys
print(*[c["id"] for c in json.load(sys.stdin)["checkpoints"] if c["container"] == sys.argv[1]])' "$3"
}

is() { [ "$1" = "$2" ] || { echo "got: $1; expected: $2"; return 1; }; }

# ---- tasks ------------------------------------------------------------------------------------------------------

# dump HOST DEVICE DIRECTORY OPTION…: of the task $memory; the container is called as the directory.
dump() {
	mkdir -p "$3"
	as "$1" criu dump -t "$memory" -D "$3" -o dump.log --zns-dev "$2" --zns-container "${3##*/}" "${@:4}" ||
		{ grep -a Error "$3/dump.log"; return 1; }
}

# runs PID DIGEST: it has that memory, and can change it.
runs() {
	ask "$1" USR2 && is "$digest" "$2" && ask "$1" USR1 && [ "$digest" != "$2" ]
}

# rates HOST LOCAL REMOTE ROUNDS: figures, no cases; milliseconds of dumps of one task of 64 MiB, and of its restores, in turn.
rates() {
	local i w dir t0 t1 t2 what ms=/tmp/milliseconds
	start_memory 28000 64 || return
	ask "$memory" USR1 || return
	for i in $(seq "$4"); do
		for w in local tcp; do
			dir=/tmp/rate-$w-$i
			t0=${EPOCHREALTIME/./}
			dump "$1" "$([ $w = local ] && echo "$2" || echo "$3")" "$dir" || return
			t1=${EPOCHREALTIME/./}
			echo $(((t1 - t0) / 1000)) >>$ms-dump-$w
			wait "$memory" 2>/dev/null
			t1=${EPOCHREALTIME/./}
			as "$1" criu restore -d -D "$dir" -o restore.log || return
			t2=${EPOCHREALTIME/./}
			echo $(((t2 - t1) / 1000)) >>$ms-restore-$w
		done
	done
	runs "$memory" "$digest" || return
	kill -9 "$memory"
	for what in dump restore; do
		for w in local tcp; do
			echo "     ${what}s of 64 MiB, $w: $(sort -n $ms-$what-$w | sed -n "$((($4 + 1) / 2))p") ms, the median of" \
				"$(sort -n $ms-$what-$w | paste -sd' ')"
		done
	done
}
