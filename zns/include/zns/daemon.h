/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ZNS_DAEMON_H
#define ZNS_DAEMON_H
/* Starts one of our programs as a daemon: forked twice, in a session of its own, with the usual
 * limits, and without descriptors of ours except a pipe. On that pipe, descriptor ZNS_READY_FD, it
 * reports "ready\n", or "CODE LINE\n" with a negative errno. */
#include <stdbool.h>
#include <stddef.h>
#include "zns/err.h"

#define ZNS_READY_FD 3

struct zns_daemon {
	const char *name; /* for messages */
	char *const *argv; /* argv[0]: the program's path */
	const char *log; /* file for its output */
	unsigned ready_ms;
	/* Shall it have this variable of our environment? @var ends after @len bytes. */
	bool (*keeps)(const char *var, size_t len);
};

/* Returns when it is ready. On an error @err has the daemon's own message. */
int zns_daemon_start(const struct zns_daemon *d, struct zns_err *err);

/* ZNS_CONFIG and ZNS_RUN: the least that all our daemons need. */
bool zns_daemon_keeps(const char *var, size_t len);

/* Called by the daemon: reports that it is ready, or why not (@err), and closes the descriptor. */
void zns_daemon_ready(int fd, const struct zns_err *err);

#endif
