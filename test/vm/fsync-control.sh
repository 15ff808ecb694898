#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# In the guest, for flush-control:  fsync-control.sh write  |  fsync-control.sh look LAST
set -uo pipefail
. "$(dirname "$0")/guest-lib.sh"

write() {
	mkfs.ext4 -q "$disk" && mount "$disk" /mnt && sync
	python3 - <<-'PY'
		import os
		for n in range(61):
		    os.mkdir(f'/mnt/{n}')
		    d, f = os.open(f'/mnt/{n}', os.O_RDONLY), os.open(f'/mnt/{n}/new', os.O_CREAT | os.O_WRONLY)
		    os.write(f, b'x' * 100)
		    os.fsync(f)
		    os.rename(f'/mnt/{n}/new', f'/mnt/{n}/file')
		    os.fsync(d)
		    print(f'SYNCED {n}', flush=True)
	PY
	sleep 60	# idle: no later flush does the work of an earlier one
}

look() {
	local n lost=''
	mount "$disk" /mnt || exit 1
	for n in $(seq 0 "$1"); do [ -s "/mnt/$n/file" ] || lost+=" $n"; done
	echo "LOST${lost:- none}"
}

guest_setup
disk=/dev/$(named store)
"$@"
