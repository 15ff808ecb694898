#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Conventional modelled drives (test/drive) as NVMe, virtio-scsi and AHCI: the kernel finds each, what is written comes back, a
# file system works, discard frees pages, and the model has counted what the guest did.
# vm: --timeout 900 --devices ftl:onnvme,size=256M,model.filled=sequential ftl:onscsi,size=256M,model.filled=sequential,bus=scsi ftl:onahci,size=256M,model.filled=sequential,bus=ahci
set -uo pipefail
. "$(dirname "$0")/guest-lib.sh"

# counted NAME KEY: of the model; it writes them twice a second.
counted() {
	sleep 1.2
	python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$RESULTS/drive-$1.json" "$2"
}

# driven_by DEVICE DRIVER: it is below the disk, somewhere on its way to the bus.
driven_by() {
	local at
	at=$(readlink -f "/sys/block/$1")
	while [ "$at" != / ]; do
		[ "$(basename "$(readlink -f "$at/driver")")" = "$2" ] && return
		at=$(dirname "$at")
	done
	return 1
}

# bus NAME DRIVER
bus() {
	local d before
	d=$(named "$1")
	on "/dev/$d"
	title "$1: /dev/$d"
	check "its bus is driven by $2" driven_by "$d" "$2"
	check "it is conventional" grep -qx none "/sys/block/$d/queue/zoned"
	check "it has its size" test "$(blockdev --getsize64 "/dev/$d")" = $((256 << 20))
	before=$(counted "$1" host_written)
	check "write" dd if=/dev/urandom of="/dev/$d" bs=64K count=64 oflag=direct status=none
	check "the model has counted it" test $(($(counted "$1" host_written) - before)) = $((4 << 20))
	check "discard all of it" blkdiscard "/dev/$d"
	check "what was there is gone" cmp -n $((4 << 20)) "/dev/$d" /dev/zero
	check "a file system" mkfs.ext4 -q -F "/dev/$d"
	mkdir -p "/mnt/$1"
	check "mount it" mount "/dev/$d" "/mnt/$1"
	dd if=/dev/urandom of="/mnt/$1/file" bs=1M count=8 status=none
	sync -f "/mnt/$1"
	md5sum <"/mnt/$1/file" >/tmp/sum
	check "unmount" umount "/mnt/$1"
	check "mount again" mount "/dev/$d" "/mnt/$1"
	check "the file is what it was" cmp /tmp/sum <(md5sum <"/mnt/$1/file")
	check "the model was asked to flush" test "$(counted "$1" flushes)" -gt 0
	umount "/mnt/$1"
}

guest_setup
load_modules sd_mod virtio_scsi ahci
for _ in $(seq 100); do [ "$(ls -d /sys/block/sd* 2>/dev/null | wc -l)" -ge 2 ] && break; sleep 0.2; done
device_table
bus onnvme nvme
bus onscsi virtio_scsi
bus onahci ahci
finish
