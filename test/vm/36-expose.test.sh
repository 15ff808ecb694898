#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Zones for ordinary programs: `znsctl reserve --expose` makes a zoned block device of reserved groups, for a file system too; and who is charged for a
# checkpoint's I/O (--zns-cgroup), by io.max of the kernel, on a drive that takes its time.
# vm: --timeout 1500 --stage build/bench --devices zns:plain,size=512M,zone=8M,cap=6M disk:meta,size=64M dies:timed,size=512M,zone=8M,model.channels=8,model.die-write=20
set -uo pipefail
. "$(dirname "$0")/guest-lib.sh"
CG=/sys/fs/cgroup

# told KEY FILE: a value of JSON.
told() { python3 -c 'import json, sys; v = json.load(open(sys.argv[2]))
for k in sys.argv[1].split("."): v = v[k]
print(" ".join(map(str, v)) if isinstance(v, list) else v)' "$@"; }

# ---- zones as a device ----------------------------------------------------------------------------------------

# reserved_zones DEV: those of its first reservation that are no metadata.
reserved_zones() {
	znsctl groups "$1" --json >$RESULTS/groups.json
	znsctl status "$1" --json >$RESULTS/status.json
	python3 - $RESULTS/groups.json $RESULTS/status.json <<'P'
import json, sys
groups, status = (json.load(open(f)) for f in sys.argv[1:])
mine = status['reservations'][0]['groups']
print(*sorted(z for g in groups['groups'] if g['id'] in mine for z in g['zones'] if z >= status['geometry']['metadata_zones']))
P
}

# One of the other node of this drive.
end_broker() { pkill -x znsd; while pgrep -x znsd >/dev/null; do sleep 0.1; done; }

# What mkfs does first.
mkfs_opens() { python3 -c 'import os, sys; os.open(sys.argv[1], os.O_RDWR | os.O_EXCL)' "$1"; }

expose_tests() {
	local name=$1 node=$2 block=$3 out dev zones size first n
	on "$node"
	title "$name: $node"
	end_broker
	check "format" znsctl format "$node" --force --map 'i % 8' --zone-write-bw 20 --zone-read-bw 80
	check "mkfs may have it while nobody serves it" mkfs_opens "$block"
	check "a broker serves it" znsctl status "$node"
	refused "mkfs beside a broker" 'busy' mkfs_opens "$block"
	refused "format beside a broker of another runtime directory" 'in use by another broker' env ZNS_RUN=/tmp/another-run znsctl format "$node" --force --map 'i % 8' --zone-write-bw 20 --zone-read-bw 80
	refused "nothing is reserved" 'nothing is reserved for db' znsctl reserve "$node" db --expose
	refused "a name that is none for a device" 'the name becomes a device' znsctl reserve "$node" a/b --groups 1 --expose
	check "reserve and expose" bash -c "znsctl reserve $node db --groups 2 --expose --json >$RESULTS/made.json"
	dev=$(told device $RESULTS/made.json)
	out=${dev##*/}
	check "it is host-managed" grep -qx host-managed "/sys/block/$out/queue/zoned"
	zones=$(reserved_zones "$node")
	n=$(wc -w <<<"$zones")
	check "it has their zones, $n" test "$(blkzone report "$dev" | wc -l)" = "$n"
	check "again: the same device" test "$(znsctl reserve "$node" db --expose | sed 's/.*, as //')" = "$dev"
	refused "format while it is there" 'zones are exposed as another device' znsctl format "$node" --force --map 'i % 8' --zone-write-bw 20 --zone-read-bw 80
	check "write its first zone" dd if=/dev/urandom of="$dev" bs=64K count=4 oflag=direct conv=notrunc status=none
	size=$(zone_size "${block##*/}")
	first=${zones%% *}
	check "it is the first one of theirs" test "$(dd if="$block" bs=64K count=4 skip=$((first * size / 65536)) iflag=direct status=none | md5sum)" = "$(dd if="$dev" bs=64K count=4 iflag=direct status=none | md5sum)"
	check "dumps beside it" python3 $REPO/test/zonetests/zonetests.py run anon -f h --device "$node" --qos 60 --timeout 200
	check "what was written is still there" test "$(blkzone report -c 1 "$dev" | grep -c 'wptr 0x000000')" = 0
	check "reset all of it" blkzone reset "$dev"
	check "the store is whole" znsctl fsck "$node"
	exec 8<>"$dev"
	refused "release while it is open" 'in use: unmount or close it first' znsctl release "$node" db
	exec 8>&-
	check "release" znsctl release "$node" db
	check "the device is gone" test ! -e "/sys/block/$out"
	check "and the kernel's hold on the drive" test -z "$(ls "/sys/block/${block##*/}/holders")"
	refused "mkfs after it" 'busy' mkfs_opens "$block"
}

written_zones() { blkzone report "$1" | grep -vc 'wptr 0x000000 '; }

# F2FS over the device, with what it overwrites on a disk beside: a file stays whole through dumps to the other groups.
file_system() {
	local node=$1 meta=$2 dev sum
	on "$node"
	title "a file system on reserved zones"
	end_broker
	check "format" znsctl format "$node" --force --map 'i % 8' --zone-write-bw 20 --zone-read-bw 80
	check "reserve and expose" bash -c "znsctl reserve $node files --groups 6 --expose --json >$RESULTS/made.json"
	dev=$(told device $RESULTS/made.json)
	check "mkfs.f2fs" mkfs.f2fs -q -f -m -c "$dev" "$meta"
	mkdir -p /mnt/files
	check "mount it" mount -t f2fs "$meta" /mnt/files
	check "write a file that is larger than the disk" dd if=/dev/urandom of=/mnt/files/file bs=1M count=96 conv=fsync status=none
	sum=$(md5sum </mnt/files/file)
	check "it is in the reserved zones" test "$(written_zones "$dev")" -ge 4
	check "dumps beside it" python3 $REPO/test/zonetests/zonetests.py run anon -f h --device "$node" --qos 40 --timeout 200
	refused "release while it is mounted" 'in use: unmount or close it first' znsctl release "$node" files
	check "unmount" umount /mnt/files
	check "mount again" mount -t f2fs "$meta" /mnt/files
	check "the file is what it was" test "$(md5sum </mnt/files/file)" = "$sum"
	umount /mnt/files
	check "the store is whole" znsctl fsck "$node"
	check "release" znsctl release "$node" files
}

# A checkpoint that lives in a group that is reserved later: its zones are not given away.
kept_zones() {
	local node=$1 p dev
	title "zones with a live checkpoint"
	end_broker
	check "format" znsctl format "$node" --force --map 'i % 8' --zone-write-bw 20 --zone-read-bw 80
	setsid sleep 1000 </dev/null >/dev/null 2>&1 &
	p=$!
	sleep 0.5
	mkdir -p /tmp/live
	check "a dump without reservation" criu dump --no-default-config -t $p -j -D /tmp/live --leave-running --zns-dev "$node" --zns-qos 20 --zns-alloc dynamic --zns-container live
	check "reserve its group, too" bash -c "znsctl reserve $node io --groups 8 --expose --json >$RESULTS/made.json"
	dev=$(told device $RESULTS/made.json)
	check "reset the device" blkzone reset "$dev"
	check "the checkpoint is whole" bash -c "znsctl verify $node live"
	check "release" znsctl release "$node" io
	kill $p
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
load_modules dm_mod f2fs
device_table
ring_doorbells
d=$(named plain)
expose_tests block "/dev/$d" "/dev/$d"
expose_tests passthrough "$(ng_of "$d")" "/dev/$d"
file_system "/dev/$d" "/dev/$(named meta)"
kept_zones "/dev/$d"
on -
refused "no drive of the kernel" 'is for a zoned block device of the kernel' bash -c 'znsctl create emu:/tmp/e.img --zones 16 --zone-size 4M && znsctl reserve emu:/tmp/e.img io --groups 1 --expose'
charge_tests "/dev/$(named timed)"
finish
