#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Is the guest what the other tests need? Its zoned devices as other people's tools see them, and whether our programs
# start there.
# vm: --timeout 900
set -uo pipefail
. "$(dirname "$0")/guest-lib.sh"

blocks() { echo $(($1 / 512)); }	# blkzone counts in sectors
write_at() { dd if=/dev/zero of="/dev/$1" bs=4096 seek=$(($2 / 4096)) count="$3" oflag=direct,nonblock conv=notrunc 2>&1; }
zone_state() { blkzone report -c 1 -o "$(blocks "$2")" "/dev/$1" | sed -nE 's/.*wptr 0x([0-9a-f]+).*zcond: *[0-9]+\((..)\).*/\1 \2/p'; }

# The first zone that has a write pointer, in bytes: conventional ones come before.
first_sequential() {
	local line
	line=$(blkzone report "/dev/$1" | grep -m1 SEQ_WRITE)
	line=${line#*start: }
	echo $((${line%%,*} * 512))
}

state_is() { [ "$(zone_state "$1" "$2")" = "$3" ] || { echo "zone at $2 is: $(zone_state "$1" "$2"), not: $3"; return 1; }; }

# Kernels with zone write plugs (6.10 and later) refuse every write to a zone in which one has failed, until somebody
# asks for a zone report. Not a check: it is what our block backend must live with.
note_after_error() {
	local before=no after=no
	write_at "$1" $(($2 + 16384)) 1 >/dev/null && before=yes
	blkzone report -c 1 -o "$(blocks "$2")" "/dev/$1" >/dev/null
	if [ $before = no ]; then write_at "$1" $(($2 + 16384)) 1 >/dev/null && after=yes; fi
	echo "NOTE $1: a good write after a refused one is accepted: $before; after a zone report: ${after/no/$before}"
}

# Report, write, write where it must not, beyond the capacity, finish, reset.
exercise() {
	local d=$1 z size cap
	size=$(zone_size "$d") z=$(first_sequential "$d")
	cap=$(zone_cap "$d" $((z / size)))
	check "$d report names every zone" test "$(blkzone report "/dev/$d" | wc -l)" = "$(nr_zones "$d")"
	check "$d reset" blkzone reset -o "$(blocks "$z")" -l "$(blocks $((4 * size)))" "/dev/$d"
	check "$d write at the write pointer" write_at "$d" "$z" 4
	check "$d the write pointer moved" state_is "$d" "$z" "000020 oi"
	refused "$d write beside the write pointer" 'Input/output error' write_at "$d" $((z + 65536)) 1
	note_after_error "$d" "$z"
	check "$d write up to 64 KiB" write_at "$d" $((z + 20480)) 11
	check "$d fill to the capacity" dd if=/dev/zero of="/dev/$d" bs=64k seek=$((z / 65536 + 1)) count=$((cap / 65536 - 1)) oflag=direct
	check "$d a full zone says so" grep -q 'fu' <<<"$(zone_state "$d" "$z")"
	if [ "$cap" -lt "$size" ]; then
		refused "$d write beyond the capacity" 'Input/output error' write_at "$d" $((z + cap)) 1
	fi
	check "$d finish" blkzone finish -o "$(blocks $((z + size)))" -l "$(blocks "$size")" "/dev/$d"
	check "$d reset again" blkzone reset "/dev/$d" -o "$(blocks "$z")"
	check "$d empty after reset" state_is "$d" "$z" "000000 em"
}

# open_zones DEVICE COUNT: explicitly, one after the other, until one is refused; prints how many were opened.
open_zones() {
	local d=$1 i z size
	size=$(zone_size "$d") z=$(first_sequential "$d")
	for i in $(seq 0 "$2"); do
		blkzone open -o "$(blocks $((z + i * size)))" -l "$(blocks "$size")" "/dev/$d" 2>/dev/null || break
	done
	echo "$i"
}

# write_zones DEVICE COUNT: begin that many zones; the error of the first one refused, by name.
write_zones() {
	python3 - "$1" "$2" "$(first_sequential "$1")" "$(zone_size "$1")" <<-'PY'
		import errno, mmap, os, sys
		dev, count, start, size = sys.argv[1], *map(int, sys.argv[2:])
		fd = os.open('/dev/' + dev, os.O_RDWR | os.O_DIRECT)
		page = mmap.mmap(-1, 4096)
		for i in range(count):
		    try:
		        os.pwrite(fd, page, start + i * size)
		    except OSError as e:
		        print(i, errno.errorcode[e.errno])
		        break
		else:
		    print(count, 'ok')
	PY
}

is() { [ "$1" = "$2" ] || { echo "got $1, expected $2"; return 1; }; }

limit_error() { if [ "$(attr "$1" max_active_zones)" = "$(attr "$1" max_open_zones)" ]; then echo EOVERFLOW; else echo ETOOMANYREFS; fi; }

# What exceeding a limit looks like to a program. Writing opens zones implicitly, and the device closes others to
# make room, so the active limit is met by writes, the open limit by explicit opens.
limits() {
	local d=$1 open active
	open=$(attr "$d" max_open_zones 0) active=$(attr "$d" max_active_zones 0)
	blkzone reset "/dev/$d" -o "$(blocks "$(first_sequential "$d")")"
	if [ "$open" -gt 0 ] && [ "$open" -le 64 ]; then
		check "$d opens $open zones and no more" is "$(open_zones "$d" $((open + 2)))" "$open"
		# A device that may have no more active zones than open ones complains about those.
		check "$d a write to one zone more: $(limit_error "$d")" is "$(write_more "$d" "$open")" "$(limit_error "$d")"
		blkzone reset "/dev/$d" -o "$(blocks "$(first_sequential "$d")")"
	fi
	if [ "$active" -gt 0 ] && [ "$active" -le 64 ] && [ "$active" -gt "$open" ]; then
		check "$d begins $active zones, then EOVERFLOW" is "$(write_zones "$d" $((active + 2)))" "$active EOVERFLOW"
		blkzone reset "/dev/$d" -o "$(blocks "$(first_sequential "$d")")"
	fi
}

# The errno of one write to the zone number N after the first sequential one.
write_more() {
	python3 - "$1" $(($(first_sequential "$1") + $2 * $(zone_size "$1"))) <<-'PY'
		import errno, mmap, os, sys
		fd = os.open('/dev/' + sys.argv[1], os.O_RDWR | os.O_DIRECT)
		try:
		    os.pwrite(fd, mmap.mmap(-1, 4096), int(sys.argv[2]))
		    print('ok')
		except OSError as e:
		    print(errno.errorcode[e.errno])
	PY
}

# Zone Append twice through the passthrough node, read back through the block device.
append() {
	local d=$1 ng size z b
	ng=$(ng_of "$d") size=$(zone_size "$d") b=$(lba "$d")
	z=$((2 * size))
	head -c 8192 /dev/urandom >/tmp/append
	for _ in 1 2; do
		check "$d Zone Append on ${ng#/dev/}" nvme zns zone-append "$ng" -s $((z / b)) -z 8192 -d /tmp/append
	done
	check "$d both appends are there" state_is "$d" "$z" "000020 oi"
	dd if="/dev/$d" bs=4096 skip=$((z / 4096)) count=4 iflag=direct of=/tmp/read 2>/dev/null
	check "$d the appended data" cmp /tmp/read <(cat /tmp/append /tmp/append)
	blkzone reset "/dev/$d" -o "$(blocks "$z")" -l "$(blocks "$size")"
}

title "devices"
guest_setup
nullb_defaults
device_table
zoned=$(zoned_devices)
check "three zoned namespaces" is "$(zoned_devices nvme | wc -l)" 3
check "four null_blk zoned devices" is "$(zoned_devices nullb | wc -l)" 4
for d in $zoned; do
	title "$d"
	on "/dev/$d"
	exercise "$d"
	limits "$d"
	[[ $d != nvme* ]] || append "$d"
done
on -

title "our programs"
check "znsctl --help" znsctl --help
check "criu --version" criu --version
check "criu check" criu check
finish
