#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Zones under a mounted zonefs: the rules of every backend, then programs dumped and restored. Linux 6.1 refuses O_DIRECT
# writes to its files (found before this existed), so newer ones only.
# vm: --timeout 1800 --devices zns:few,size=1G,zone=16M,cap=12M,open=6,active=8 disk:plain,size=64M
# vm-kernel: 6.12
set -uo pipefail
. "$(dirname "$0")/guest-lib.sh"
Z=$REPO/test/zonetests
AT=/mnt/zones

# No package here has mkzonefs: the superblock is the first 4 KiB of the first zone (linux, fs/zonefs/zonefs.h).
make_zonefs() {
	blkzone reset "/dev/$1"
	python3 - >"$RESULTS/super" <<'P'
import struct, sys, uuid, zlib
def block(crc):
    return struct.pack('<II64s16sQIII', 0x5a4f4653, crc, b'zones', uuid.UUID(int=7).bytes, 0, 0, 0, 0o640).ljust(4096, b'\0')
sys.stdout.buffer.write(block(zlib.crc32(block(0)) ^ 0xffffffff))
P
	dd if="$RESULTS/super" of="/dev/$1" bs=4096 count=1 oflag=direct conv=notrunc status=none
}

mount_zones() {
	mkdir -p $AT
	mount -t zonefs -o errors=repair "/dev/$1" $AT
}

guest_setup
load_modules zonefs
device_table
d=$(named few)
on "zonefs:$AT"
check "make a zonefs" make_zonefs "$d"
refused "no zonefs is mounted there" 'is no zonefs' znsctl format zonefs:/mnt --map 'i % 4' --zone-write-bw 50
check "mount it" mount_zones "$d"
refused "its seq directory alone" 'no directory seq' znsctl format zonefs:$AT/seq --map 'i % 4' --zone-write-bw 50
refused "the drive below, while it is mounted" 'in use by the kernel' znsctl format "/dev/$d" --map 'i % 4' --zone-write-bw 50
title "conformance"
part conform timeout 900 $REPO/build/test/dev_conform zonefs:$AT --yes-destroy
title "zonetests"
part zonetests python3 $Z/zonetests.py run anon threads files -f h --format zonefs:$AT --qos 400 --timeout 400
title "after another mount"
check "unmount" umount $AT
check "mount again" mount_zones "$d"
check "register it" znsctl register zonefs:$AT
check "the store is whole" znsctl fsck zonefs:$AT
finish
