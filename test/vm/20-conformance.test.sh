#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# One suite of rules, every kind of device: what `make conform` holds the emulator to, on the kernel's block devices
# and on NVMe passthrough, by io_uring and by ioctl, each namespace through both of its nodes.
# vm: --timeout 1500
set -uo pipefail
. "$(dirname "$0")/guest-lib.sh"
SUITE=$REPO/build/test/dev_conform

# conform NAME NODE [OPTION…]
conform() {
	title "$2"
	on "$2"
	part "$1" timeout 300 "$SUITE" "$2" --yes-destroy "${@:3}"
}

guest_setup
nullb_defaults
device_table
for d in $(zoned_devices nvme); do
	ng=$(ng_of "$d")
	conform "$d" "/dev/$d" --twin "$ng"
	conform "${ng#/dev/}" "$ng" --twin "/dev/$d"
	echo "without io_uring:"
	ZNS_NVME_IOCTL=1 conform "${ng#/dev/}-ioctl" "$ng" --twin "/dev/$d"
done
for d in $(zoned_devices nullb); do
	options=()
	if can_wear_out "$d"; then options=(--wear "$NULLB/$d"); fi
	conform "$d" "/dev/$d" "${options[@]}"
done
finish
