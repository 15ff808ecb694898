# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# What every script inside a guest uses; to be sourced first:  . "$(dirname "$0")/guest-lib.sh"
# The repository's copy is in /repo (binaries in /repo/build/bin), results go to /results, which the host keeps.
REPO=/repo
RESULTS=/results
export PATH=$REPO/build/bin:$PATH
NULLB=/sys/kernel/config/nullb

# For scripts that need the times of NVMe drives: see doorbells.py.
ring_doorbells() {
	python3 "$REPO/test/vm/doorbells.py" &
	disown
}

# ---- checks and counts ------------------------------------------------------------------------------------------

passed=0 failed=0 skipped=0
on=-			# what the checks are about: a node, or - for the machine itself
declare -A tally=()	# node: "passed failed skipped"

# on NODE: what is counted from here on is about that device. (It goes into the summary's table.)
on() { on=$1; }

count() {
	local p f s
	read -r p f s <<<"${tally[$on]:-0 0 0}"
	tally[$on]="$((p + $1)) $((f + $2)) $((s + $3))"
	passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}

pass() { count 1 0 0; echo "PASS $*"; }
fail() { count 0 1 0; echo "FAIL $*"; }
skip() { count 0 0 1; echo "SKIP $*"; }
title() { printf '\n=== %s ===\n' "$*"; }

# check NAME COMMAND…: passes if the command does; what it printed is shown if it fails.
check() {
	local name=$1 out
	shift
	if out=$("$@" 2>&1); then pass "$name"; else fail "$name: exit $?: $(tail -5 <<<"$out")"; fi
}

# refused NAME PATTERN COMMAND…: passes if the command fails and says PATTERN.
refused() {
	local name=$1 pattern=$2 out
	shift 2
	if out=$("$@" 2>&1); then
		fail "$name: accepted"
	elif grep -qE -- "$pattern" <<<"$out"; then
		pass "$name"
	else
		fail "$name: it says: $(tail -2 <<<"$out")"
	fi
}

# part NAME COMMAND…: a test with a count of its own in its last line; its counts are added to ours.
part() {
	local name=$1 log=$RESULTS/$1.log p f s rc begin=$SECONDS
	shift
	"$@" >"$log" 2>&1 && rc=0 || rc=$?
	grep -vE '^PASS ' "$log" | tail -40
	echo "$name: $((SECONDS - begin)) s"
	if read -r p f s < <(sed -nE 's/^([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$/\1 \2 \3/p' "$log" | tail -1); then
		count "$p" "$f" "$s"
		[ "$rc" = 0 ] || [ "$f" -gt 0 ] || fail "$name: exit $rc"
	else
		fail "$name: exit $rc and no count: $(tail -2 "$log")"
	fi
}

# NODE PASSED FAILED SKIPPED DESCRIPTION, a line for each device, for the summary.
write_tally() {
	local node
	for node in "${!tally[@]}"; do
		echo "$(given "$node") ${tally[$node]} $(shape "$node")"
	done | sort >"$RESULTS/tally"
}

# The last line of a test script.
finish() {
	write_tally
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
	exit
}

# ---- kernel -----------------------------------------------------------------------------------------------------

load_modules() {
	local m
	for m in "$@"; do modprobe -q "$m" 2>/dev/null || echo "no module $m here"; done
}

have_module() { modprobe -qn "$1" 2>/dev/null || [ -d "/sys/module/$1" ]; }

# kernel_at_least 6.10
kernel_at_least() { [ "$(printf '%s\n' "$1" "$(uname -r)" | sort -V | head -1)" = "$1" ]; }

mount_once() { mountpoint -q "$3" || mount -t "$1" "$2" "$3"; }

# Drivers, configfs (its module first: a kernel without it cannot mount it) and controllers of the root cgroup,
# whose processes must move to a child before it may pass any on.
guest_setup() {
	local p
	load_modules nvme configfs loop
	modprobe null_blk nr_devices=0
	mount_once configfs configfs /sys/kernel/config
	mount_once debugfs debugfs /sys/kernel/debug
	mkdir -p /sys/fs/cgroup/guest
	for p in $(cat /sys/fs/cgroup/cgroup.procs); do echo "$p" >/sys/fs/cgroup/guest/cgroup.procs 2>/dev/null; done
	for p in $(cat /sys/fs/cgroup/cgroup.controllers); do echo "+$p"; done | paste -sd' ' \
		>/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null
	ip link set lo up
	udev_less_nodes
	await_nvme
}

# The disk that the host named work, made anew, for what is too large for memory.
work_on_disk() {
	local disk
	disk=$(named work)
	mkfs.ext4 -q -F "/dev/$disk" && mkdir -p /work && mount "/dev/$disk" /work || exit 1
	export TMPDIR=/work
}

# The modules' own nodes come with devtmpfs; the directories that udev makes do not.
udev_less_nodes() { mkdir -p /dev/disk; }

# Scanning goes on after modprobe has returned: wait until no new namespace has come for a moment.
await_nvme() {
	local n=-1 now
	for _ in $(seq 50); do
		now=$(find /sys/block -name 'nvme*' | wc -l)
		[ "$now" = "$n" ] && [ "$now" -gt 0 ] && return
		n=$now
		sleep 0.2
	done
}

# ---- devices ----------------------------------------------------------------------------------------------------

# Processes cost much in an emulated machine: what is called often gets along with the shell's own means.

# attr DEVICE NAME [DEFAULT]: from its queue directory.
attr() {
	local v=${3:-}
	if [ -r "/sys/block/$1/queue/$2" ]; then read -r v <"/sys/block/$1/queue/$2"; fi
	echo "$v"
}

zoned() { [ "$(attr "$1" zoned none)" = host-managed ]; }

# zoned_devices [PREFIX]: kernel names, by queue/zoned: neither name nor nsid says which device is which.
zoned_devices() {
	local d
	for d in /sys/block/"${1:-}"*; do
		if [ -e "$d" ] && zoned "${d##*/}"; then echo "${d##*/}"; fi
	done
}

# The names the host gave to NVMe namespaces, by controller's serial and nsid.
declare -A GIVEN=()
read_names() {
	local d name ctrl nsid serial id
	declare -A by_place=()
	while read -r name ctrl nsid; do by_place[$ctrl/$nsid]=$name; done <$REPO/.devices
	for d in /sys/block/nvme*; do
		[ -e "$d/nsid" ] || continue
		read -r serial <"$d/device/serial" || read -r serial < <(cat "$d"/device/nvme*/serial)
		read -r id <"$d/nsid"
		GIVEN[${d##*/}]=${by_place[$serial/$id]:-}
	done
	for d in /sys/block/vd*; do
		serial=
		read -r serial <"$d/serial"
		if [ -n "$serial" ]; then GIVEN[${d##*/}]=$serial; fi
	done 2>/dev/null
	# SATA and SCSI: the serial is in page 0x80 of its vital product data
	for d in /sys/block/sd*; do
		[ -r "$d/device/vpd_pg80" ] || continue
		serial=$(tail -c +5 "$d/device/vpd_pg80" | tr -d ' \0')
		if [ -n "$serial" ]; then GIVEN[${d##*/}]=$serial; fi
	done
}

# named NAME: the kernel name of the device that the host calls so.
named() {
	local d
	[ ${#GIVEN[@]} -gt 0 ] || read_names
	for d in "${!GIVEN[@]}"; do
		if [ "${GIVEN[$d]}" = "$1" ]; then echo "$d"; return; fi
	done
	return 1
}

# The passthrough node of a namespace: /dev/ngXnY for nvmeXnY.
ng_of() { echo "/dev/ng${1#nvme}"; }

# Of a node, for people: "few block", "few passthrough", "nullb0 block"; each of one word, joined by a slash.
given() {
	local k=${1#/dev/} way=block
	case $k in
	-) echo -; return ;;
	emu:*) echo emulator/file; return ;;
	ng*) way=passthrough k=nvme${k#ng} ;;
	esac
	[ ${#GIVEN[@]} -gt 0 ] || read_names
	echo "${GIVEN[$k]:-$k}/$way"
}

# The geometry of a node in a few words.
shape() {
	local k=${1#/dev/} size cap conv=0 more=''
	[[ $k != ng* ]] || k=nvme${k#ng}
	if [ -e "/sys/block/$k" ] && zoned "$k"; then
		size=$(zone_size "$k") cap=$(zone_cap "$k" $(($(nr_zones "$k") - 1)))
		[[ $k != nullb* ]] || conv=$(blkzone report "/dev/$k" | grep -c CONVENTIONAL)
		[ "$conv" = 0 ] || more=", $conv conventional"
		! blkzone report "/dev/$k" | grep -q '(of)' || more+=", one read-only, one offline"
		echo "$(nr_zones "$k") zones of $((size >> 10)) KiB, $((cap >> 10)) usable, blocks of $(lba "$k")," \
			"$(attr "$k" max_open_zones -) open, $(attr "$k" max_active_zones -) active$more"
	else
		echo -
	fi
}

nr_zones() { attr "$1" nr_zones 0; }
lba() { attr "$1" logical_block_size; }
zone_size() { echo $(($(attr "$1" chunk_sectors 0) * 512)); }

# zone_cap DEVICE [ZONE]: in bytes.
zone_cap() {
	local line
	line=$(blkzone report -c 1 -o $(($(attr "$1" chunk_sectors 0) * ${2:-0})) "/dev/$1") || return
	line=${line#*cap }
	echo $((${line%%,*} * 512))
}

# nullb_create NAME [KEY=VALUE]…: a null_blk zoned device in memory; its name must be nullbN on new kernels.
# The keys are configfs's: size zone_size zone_capacity (MiB) zone_nr_conv zone_max_open zone_max_active blocksize
nullb_create() {
	local name=$1 kv
	shift
	mkdir "$NULLB/$name" || return
	for kv in zoned=1 memory_backed=1 blocksize=4096 size=1024 zone_size=64 zone_capacity=48 zone_nr_conv=0 "$@"; do
		echo "${kv#*=}" >"$NULLB/$name/${kv%%=*}" || return
	done
	echo 1 >"$NULLB/$name/power"
}

nullb_remove() { echo 0 >"$NULLB/$1/power"; rmdir "$NULLB/$1"; }

# The null_blk devices that tests share: one like `few`, one with conventional zones, one with 512-byte blocks, one
# with worn-out zones where the kernel can make them (6.3 and later).
nullb_defaults() {
	[ -d $NULLB/nullb0 ] && return
	nullb_create nullb0 size=1024 zone_size=64 zone_capacity=48 zone_max_open=8 zone_max_active=12
	nullb_create nullb1 size=512 zone_size=16 zone_capacity=16 zone_nr_conv=4
	nullb_create nullb2 size=256 zone_size=4 zone_capacity=3 zone_max_open=4 zone_max_active=4 blocksize=512
	nullb_create nullb3 size=512 zone_size=16 zone_capacity=12 zone_max_open=16
	wear_out nullb3 20 zone_readonly
	wear_out nullb3 21 zone_offline
}

can_wear_out() { [ -e "$NULLB/$1/zone_offline" ]; }

# wear_out NULLB ZONE zone_readonly|zone_offline
wear_out() { ! can_wear_out "$1" || echo $(($2 * $(zone_size "$1") / 512)) >"$NULLB/$1/$3"; }

device_table() {
	local d sched
	[ ${#GIVEN[@]} -gt 0 ] || read_names
	printf '%-8s %-8s %5s %9s %9s %5s %6s %5s %8s %s\n' name device zones size cap open active lba append scheduler
	for d in $(cd /sys/block && echo nvme* nullb* ublkb*); do
		[ -e "/sys/block/$d" ] || continue
		if zoned "$d"; then
			sched=$(attr "$d" scheduler)
			sched=${sched#*[}
			printf '%-8s %-8s %5s %7s K %7s K %5s %6s %5s %6s K %s\n' "${GIVEN[$d]:--}" "$d" "$(nr_zones "$d")" \
				$(($(zone_size "$d") / 1024)) $(($(zone_cap "$d" $(($(nr_zones "$d") - 1))) / 1024)) \
				"$(attr "$d" max_open_zones -)" "$(attr "$d" max_active_zones -)" "$(lba "$d")" \
				$(($(attr "$d" zone_append_max_bytes 0) / 1024)) "${sched%%]*}"
		else
			printf '%-8s %-8s conventional, %d MiB, blocks of %s\n' "${GIVEN[$d]:--}" "$d" \
				$(($(<"/sys/block/$d/size") / 2048)) "$(lba "$d")"
		fi
	done
}
