# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# For both boots of the power-cut test: the store is an emulated device on ext4 on the disk `store`; to be sourced.
. "$(dirname "${BASH_SOURCE[0]}")/memory-lib.sh"
export ZNS_CONFIG=/mnt/etc ZNS_RUN=/run/zns

mount_store() {
	local disk
	disk=/dev/$(named store)
	# The first boot of all finds an empty disk.
	mount "$disk" /mnt 2>/dev/null || { mkfs.ext4 -q "$disk" && mount "$disk" /mnt; }
	[ -e /mnt/dev ] || znsctl create emu:/mnt/dev --zones 64 --zone-size 16M --channels 4 --ways 2 --timing off --default
}

checkpoints() { znsctl ls --json | python3 -c 'import json, sys
for c in json.load(sys.stdin)["checkpoints"]: print(c["container"], c["id"])'; }
