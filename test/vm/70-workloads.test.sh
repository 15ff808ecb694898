#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# Real workloads under uids of their own, with clients connected over TCP: PostgreSQL, MariaDB, Redis and nginx as Docker
# containers on a zoned namespace, checkpointed at once and started again; and Redis as a container of plain runc.
# vm: --timeout 2400
set -uo pipefail
. "$(dirname "$0")/guest-lib.sh"
W=/work

# runc leaves network devices to others: a namespace of its own comes back with a loopback device that is down, and what
# it had over TCP cannot be connected again. One that was prepared, and is named in the bundle, stays as it is.
prepare_net() {
	ip netns add shop && ip -n shop link set lo up
}

# bundle NAME SCRIPT: the guest's own root (runc wants a mount), user redis, the prepared network.
bundle() {
	mkdir -p "$W/$1/root" "$W/$1/data"
	chown redis "$W/$1/data"
	mount --bind / "$W/$1/root"
	(cd "$W/$1" && runc spec && python3 - "$W/$1" "$2" "$(id -u redis)" "$(id -g redis)" <<'END'
import json, sys
c = json.load(open('config.json'))
home, script, uid, gid = sys.argv[1:]
c['process'].update(terminal=False, args=['bash', '-c', script], cwd=f'{home}/data', user={'uid': int(uid), 'gid': int(gid)})
c['process']['env'].append('ZNS_QOS=100')
c['root'] = {'path': 'root', 'readonly': False}
for n in c['linux']['namespaces']:
    if n['type'] == 'network':
        n['path'] = '/run/netns/shop'
json.dump(c, open('config.json', 'w'))
END
	)
}

REDIS="redis-server --bind 127.0.0.1 --port 6500 --save '' --appendonly no --enable-debug-command yes >log 2>&1 &
	until redis-cli -p 6500 ping >/dev/null 2>&1; do sleep 0.5; done
	redis-cli -p 6500 debug populate 10000 key 500; touch up
	while :; do echo incr ticks; sleep 1; done | redis-cli -p 6500 >client.log & wait"

cli() { zns-runc exec shop redis-cli -p 6500 "$@"; }
digest() { cli debug digest-value key:7 key:77 key:9999; }
connection() { cli client list | sed -n '/cmd=incr/s/ age=.*//p'; }

start() {
	bundle shop "$REDIS" && zns-runc run -d --bundle $W/shop shop </dev/null >/dev/null 2>&1 || return 1
	for _ in $(seq 200); do [ -e $W/shop/data/up ] && return; sleep 1; done
	tail -3 $W/shop/data/log
	return 1
}

dump() { zns-runc checkpoint --tcp-established --image-path $W/shop/ck shop; }
restore() {
	zns-runc restore -d --tcp-established --image-path $W/shop/ck --bundle $W/shop shop </dev/null >/dev/null 2>&1 ||
		{ grep -m4 Error $W/shop/ck/restore.log; return 1; }
}
goes_on() {
	local now
	for _ in $(seq 60); do
		now=$(cli get ticks) && [ "$now" -gt "$1" ] && return
		sleep 1
	done
	echo "ticks: $now, $1 before"
	return 1
}
owned() { [ "$(ps -o uid= -C redis-server | sort -u | tr -d ' ')" = "$(id -u redis)" ]; }
pages() { znsctl show $W/shop/ck --json | python3 -c 'import json, sys; sys.exit(json.load(sys.stdin)["page_bytes"] < 4 << 20)'; }

plain_runc() {
	local was client at
	export ZNS_CONFIG=$W/conf ZNS_RUN=$W/run
	mkdir -p "$ZNS_CONFIG" "$ZNS_RUN"
	check "format" znsctl format "$1" --map 'i % 4' --zone-write-bw 100
	check "a network namespace" prepare_net
	check "Redis with a client over TCP" start
	was=$(digest) client=$(connection) at=$(cli get ticks)
	check "one client" test "$(wc -l <<<"$client")" = 1 -a -n "$client"
	check "checkpoint" dump
	check "it is gone" test -z "$(pgrep -x redis-server)"
	check "restore" restore
	check "its data are the same" test "$(digest)" = "$was"
	check "its client goes on" goes_on "${at:-0}"
	check "over the same connection" test "$(connection)" = "$client"
	check "its pages are on the device" pages
	check "it has its uid" owned
	cp $W/shop/ck/*.log "$RESULTS/"
	zns-runc delete -f shop
	umount $W/shop/root
	unset ZNS_CONFIG ZNS_RUN
}

guest_setup
load_modules overlay
device_table
few=$(named few) small=$(named lba512)
title "/dev/$small: plain runc"
on "/dev/$small"
plain_runc "/dev/$small"
title "/dev/$few: Docker"
on "/dev/$few"
ZNS_TEST_SLOW=4 part workloads python3 $REPO/test/vm/workloads.py "/dev/$few" "$@"
finish
