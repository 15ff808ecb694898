#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# A drive that its broker has for itself; and who is charged for a checkpoint's I/O (--zns-cgroup), by io.max of the kernel, on a drive that takes its time.
# vm: --timeout 1500 --stage build/bench --devices zns:plain,size=512M,zone=8M,cap=6M dies:timed,size=512M,zone=8M,model.channels=8,model.die-write=20
set -uo pipefail
. "$(dirname "$0")/guest-lib.sh"
CG=/sys/fs/cgroup

# One of the other node of this drive.
end_broker() { pkill -x znsd; while pgrep -x znsd >/dev/null; do sleep 0.1; done; }

# What mkfs does first.
mkfs_opens() { python3 -c 'import os, sys; os.open(sys.argv[1], os.O_RDWR | os.O_EXCL)' "$1"; }

claimed_tests() {
	local name=$1 node=$2 block=$3
	on "$node"
	title "$name: $node"
	end_broker
	check "format" znsctl format "$node" --force --map 'i % 8' --zone-write-bw 20 --zone-read-bw 80
	check "mkfs may have it while nobody serves it" mkfs_opens "$block"
	check "a broker serves it" znsctl status "$node"
	refused "mkfs beside a broker" 'busy' mkfs_opens "$block"
	refused "format beside a broker of another runtime directory" 'in use by another broker' env ZNS_RUN=/tmp/another-run znsctl format "$node" --force --map 'i % 8' --zone-write-bw 20 --zone-read-bw 80
}

# ---- who is charged -------------------------------------------------------------------------------------------

# charged GROUP DEVICE-NUMBER: bytes that it wrote.
charged() { awk -v d="$2" '$1 == d { for (i = 2; i <= NF; i++) if (sub("wbytes=", "", $i)) n = $i } END { print n + 0 }' "$CG/$1/io.stat"; }

# dump WHO: of the process in the group `box`; prints who was charged and the ms that it took.
dump() {
	local d=/tmp/ck-$1 begin a b c
	rm -rf "$d"; mkdir -p "$d" $CG/zns-criu
	a=$(charged box "$num") b=$(charged zns-criu "$num") begin=$(date +%s%3N)
	criu dump --no-default-config -t "$pid" -D "$d" -o log -v4 --leave-running --zns-dev "$node" --zns-qos 80 --zns-container box --zns-cgroup "$1" "${@:2}" || { grep Error "$d/log" | tail -3; return 1; }
	echo "$(($(charged box "$num") - a)) $(($(charged zns-criu "$num") - b)) $(($(date +%s%3N) - begin))" >$RESULTS/charged
	cat $RESULTS/charged
}

whole() { awk -v want="$1" -v least=$((24 << 20)) '{ ok = $want >= least && $(3 - want) < 1048576 } END { exit !ok }' $RESULTS/charged; }
nobody() { awk '{ ok = $1 < 1048576 && $2 < 1048576 } END { exit !ok }' $RESULTS/charged; }
slower() { [ "$(awk '{ print $3 }' $RESULTS/charged)" -ge "$1" ]; }

charge_tests() {
	local most
	node=$1 num=$(cat "/sys/block/${1##*/}/dev")
	on "$node"
	title "who is charged: $node"
	check "format" znsctl format "$node" --force --map 'i % 8' --zone-write-bw 20 --zone-read-bw 80
	mkdir -p $CG/box
	echo +io >$CG/cgroup.subtree_control
	setsid $REPO/build/bench/subject 28 1 /tmp/answers </dev/null >/dev/null 2>&1 &
	pid=$!
	until [ -s /tmp/answers ]; do sleep 0.2; done
	echo $pid >$CG/box/cgroup.procs
	check "leave" dump leave
	check "leave: neither is charged" nobody
	check "own" dump own
	check "own: the cgroup zns-criu is charged" whole 2
	check "container" dump container
	check "container: it is charged" whole 1
	check "container, while criu freezes its cgroup" dump container --freeze-cgroup $CG/box
	check "it is charged" whole 1
	# 28 MiB at 4 MiB/s: seven seconds, less what the throttle lets through at first
	echo "$num wbps=$((4 << 20))" >$CG/box/io.max
	check "container, under io.max" dump container
	check "its io.max holds" slower 5500
	check "leave, under the container's io.max" dump leave
	check "it does not hold" bash -c "[ \$(cut -d' ' -f3 $RESULTS/charged) -lt 5500 ]"
	echo "$num wbps=max" >$CG/box/io.max
	echo "$num wbps=$((4 << 20))" >$CG/zns-criu/io.max
	check "own, under io.max of zns-criu" dump own
	check "that holds" slower 5500
	echo "$num wbps=max" >$CG/zns-criu/io.max
	mkdir $CG/box/inner && chown 1000 $CG/box/inner && echo $pid >$CG/box/inner/cgroup.procs
	refused "a cgroup that the container's user owns" 'belongs to user 1000' dump container
	echo $pid >$CG/box/cgroup.procs
	refused "a live dump" 'does not go with --zns-live' dump container --zns-live
	check "and nobody is left in them" test "$(cat $CG/zns-criu/cgroup.procs | wc -l) $(cat $CG/box/cgroup.procs)" = "0 $pid"
	kill $pid
}

guest_setup
device_table
ring_doorbells
d=$(named plain)
claimed_tests block "/dev/$d" "/dev/$d"
claimed_tests passthrough "$(ng_of "$d")" "/dev/$d"
charge_tests "/dev/$(named timed)"
finish
