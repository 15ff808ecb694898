/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_DAEMON_H
#define ZNS_DAEMON_H
/* Starts one of our programs as a daemon: it forks twice and gets a session of its own, the default
 * limits, and none of our descriptors except a pipe. On that pipe (descriptor ZNS_READY_FD) the
 * daemon reports "ready\n", or "CODE LINE\n" with a negative errno. */
#include <stdbool.h>
#include <stddef.h>
#include "zns/err.h"

#define ZNS_READY_FD 3

struct zns_daemon {
	const char *name; /* the daemon's name for messages */
	char *const *argv; /* argv[0]: the program's path */
	const char *log; /* file to which the daemon's output goes */
	unsigned ready_ms;
	/* Shall the daemon get this variable of our environment? @var is not terminated: it has
	 * @len bytes. */
	bool (*keeps)(const char *var, size_t len);
};

/* Returns when the daemon is ready. After an error @err has the message that the daemon
 * reported. */
int zns_daemon_start(const struct zns_daemon *d, struct zns_err *err);

/* Returns true for ZNS_CONFIG and ZNS_RUN, which all our daemons need. */
bool zns_daemon_keeps(const char *var, size_t len);

/* To be called by the daemon: reports that it is ready, or why it is not (@err), and closes @fd. */
void zns_daemon_ready(int fd, const struct zns_err *err);

#endif
