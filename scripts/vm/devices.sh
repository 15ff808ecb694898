# SPDX-License-Identifier: GPL-2.0-only
# shellcheck shell=bash
# NVMe devices of a guest from short descriptions; to be sourced by run.
#
#   zns:NAME[,KEY=VALUE]…    a zoned namespace: size=2G zone=64M cap=48M open=6 active=8 lba=4096 zasl=5 mdts=7
#   disk:NAME[,KEY=VALUE]…   a conventional one: size=1G lba=4096
#   both: ctrl=NAME          the controller it sits on (its own by default); zasl and mdts are its, from its first namespace
#         file=PATH          keep the contents there from one boot to the next (QEMU keeps no zone states, though)
#         cache=none         none: writes and flushes reach the host's disk; unsafe (default): flushes are ignored
#         log=PATH           a new log of its writes and flushes, for drop-unflushed; a virtio disk then (see below)
#
#   dies:NAME[,KEY=VALUE]…   zns, on a modelled drive (test/drive): its dies and channels take their time
#   ftl:NAME[,KEY=VALUE]…    disk, on a modelled drive with a page-mapping FTL
#   both: model.KEY=VALUE    a parameter of the model: channels=8 ways=1 die-write=100 … (nbdkit build/test/drive.so --help)
#         bus=scsi           virtio-scsi or ahci instead of nvme, for ftl
#         Their counters, and the map of zones to dies, are in /results/drive-NAME.json, anew twice a second.
DEFAULT_DEVICES=(
	zns:few,size=2G,zone=64M,cap=48M,open=6,active=8,ctrl=pair
	zns:many,size=2G,zone=4M,cap=3M,open=32,active=64,ctrl=pair
	zns:lba512,size=512M,zone=16M,cap=12M,open=14,active=14,lba=512,mdts=5,zasl=3
	disk:plain,size=1G,cache=none
)
declare -A controllers=()	# controller: its namespaces so far

# device_args SPEC DIR RESULTS: sets the array `args` to QEMU's; temporary images go to DIR. `device_line` says how the guest
# finds it: its kernel name follows no order, Linux ignores the UUIDs of QEMU's namespaces, serial and nsid remain.
device_args() {
	local spec=$1 dir=$2 results=$3 kind name kv rest
	local -A o=([size]=1G [zone]=64M [cap]= [open]=0 [active]=0 [lba]=4096 [zasl]=5 [mdts]=7 [ctrl]= [file]= [log]= [cache]=unsafe
		[bus]=nvme)
	local model=()
	kind=${spec%%:*} rest=${spec#*:} name=${rest%%,*}
	[[ $kind =~ ^(zns|disk|dies|ftl)$ && $name =~ ^[a-z0-9]+$ ]] || die "device $spec: want zns:, disk:, dies: or ftl:NAME,…"
	[[ $rest == *,* ]] && rest=${rest#*,} || rest=
	for kv in ${rest//,/ }; do
		if [[ $kv == model.*=* ]]; then model+=("${kv#model.}"); continue; fi
		[[ $kv == *=* && -v o[${kv%%=*}] ]] || die "device $spec: what is $kv?"
		o[${kv%%=*}]=${kv#*=}
	done
	local file=${o[file]:-$dir/$name.img} ctrl=${o[ctrl]:-$name}
	[ -f "$file" ] || truncate -s "${o[size]}" "$file"
	local drive="if=none,id=drive-$name,file=$file,format=raw,cache=${o[cache]},aio=threads"
	case $kind in
	dies)	model_drive "$name" "$file" kind=zoned "size=${o[size]}" "zone-size=${o[zone]}" "${model[@]}"; kind=zns ;;
	ftl)	model_drive "$name" "$file" kind=conventional "size=${o[size]}" "${model[@]}"; kind=disk ;;
	*)	[ ${#model[@]} = 0 ] || die "device $spec: only a modelled drive has model.*" ;;
	esac
	args=()
	if [ "${o[bus]}" != nvme ]; then
		other_bus "${o[bus]}" "$name" "$drive"
		return
	fi
	if [ -z "${controllers[$ctrl]:-}" ]; then
		args+=(-device "nvme,id=ctrl-$ctrl,serial=$ctrl,zoned.zasl=${o[zasl]},mdts=${o[mdts]}")
	fi
	local nsid=$((${controllers[$ctrl]:-0} + 1))
	controllers[$ctrl]=$nsid
	# shellcheck disable=SC2034  # for run
	device_line="$name $ctrl $nsid"
	local ns="nvme-ns,drive=drive-$name,bus=ctrl-$ctrl,nsid=$nsid"
	ns+=",logical_block_size=${o[lba]},physical_block_size=${o[lba]}"
	if [ "$kind" = zns ]; then
		ns+=",zoned=on,zoned.zone_size=${o[zone]},zoned.zone_capacity=${o[cap]:-${o[zone]}}"
		ns+=",zoned.max_open=${o[open]},zoned.max_active=${o[active]}"
	fi
	if [ -n "${o[log]}" ]; then
		logged_disk "$name" "$file" "${o[log]}" "${o[lba]}"
		return
	fi
	args+=(-drive "$drive" -device "$ns")
}

# Ends with this script. Sets `drive` of device_args.
model_drive() {
	local name=$1 file=$2 sock=$dir/$1.nbd
	shift 2
	[ -f "$root/build/test/drive.so" ] || die "no modelled drives: run make drive"
	nbdkit --exit-with-parent -f -U "$sock" -t 64 "$root/build/test/drive.so" "file=$file" "stats=$results/drive-$name.json" "$@" \
		</dev/null >"$dir/$name.nbdkit" 2>&1 &
	disown		# the run waits for what it started, and this one for the run
	for _ in $(seq 100); do [ -S "$sock" ] && break; sleep 0.1; done
	[ -S "$sock" ] || die "the drive $name: $(cat "$dir/$name.nbdkit")"
	drive="if=none,id=drive-$name,driver=nbd,server.type=unix,server.path=$sock,cache=none,discard=unmap"
}

# other_bus BUS NAME DRIVE: a conventional disk that is not NVMe.
other_bus() {
	device_line="$2 $2 0"
	case $1 in
	scsi)	args=(-device "virtio-scsi-pci,id=bus-$2" -drive "$3" -device "scsi-hd,drive=drive-$2,bus=bus-$2.0,serial=$2") ;;
	ahci)	args=(-device "ahci,id=bus-$2" -drive "$3" -device "ide-hd,drive=drive-$2,bus=bus-$2.0,serial=$2") ;;
	*)	die "no bus $1" ;;
	esac
}

# Not NVMe: Linux ends a journal commit there with a FUA write, blklogwrites does not say which writes were FUA, and an
# fsynced file would count as unflushed. virtio-blk has no FUA, so each one becomes a flush, which is logged.
logged_disk() {
	: >"$3"
	args=(-blockdev "driver=file,node-name=image-$1,filename=$2,cache.direct=on,aio=threads"
		-blockdev "driver=file,node-name=log-$1,filename=$3"
		-blockdev "driver=blklogwrites,node-name=drive-$1,file=image-$1,log=log-$1"
		-device "virtio-blk-pci,drive=drive-$1,serial=$1,logical_block_size=$4,physical_block_size=$4")
}
