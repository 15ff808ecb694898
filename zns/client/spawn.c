/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Starts znsd. */
#include <string.h>
#include "spawn.h"
#include "zns/broker.h"
#include "zns/daemon.h"

/* longer than the 10 s that znsd may wait for the helpers of a dead broker to end */
#define READY_MS 20000

static bool keeps(const char *var, size_t len)
{
	return zns_daemon_keeps(var, len) ||
	       (len == strlen("ZNSD_IDLE_S") && !memcmp(var, "ZNSD_IDLE_S", len)) ||
	       zns_spawn_keeps_more(var, len);
}

int zns_broker_spawn(const struct zns_registered *dev, struct zns_err *err)
{
	char prog[4096], log[4096], id[ZNS_UUID_STR], fd_arg[16];
	char *argv[] = { prog, id, "--ready-fd", fd_arg, NULL };
	const struct zns_daemon d = {
		.name = "znsd", .argv = argv, .log = log, .ready_ms = READY_MS, .keeps = keeps
	};
	int ret = zns_need_program("the broker", "znsd", prog, sizeof(prog), err);

	if (ret)
		return ret;
	zns_uuid_format(dev->uuid, id);
	snprintf(fd_arg, sizeof(fd_arg), "%d", ZNS_READY_FD);
	ret = zns_broker_path(dev->uuid, "log", log, sizeof(log));
	if (ret)
		return zns_fail_sys(err, ret, "cannot name a log file in %s", zns_run_dir());
	return zns_daemon_start(&d, err);
}
