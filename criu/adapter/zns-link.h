/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_LINK_H__
#define __CR_ZNS_LINK_H__
/* The link to the helper process: starts it, sends packets, waits for answers. */
#include <stdbool.h>
#include <sys/types.h>
#include "zns-wire.h"

extern int zns_link_start(void); /* starts the helper and installs its socket as a service fd */
extern void zns_link_close(void);
/* Path of one of our programs; 0 or -1. */
extern int zns_program_path(const char *name, char *out, size_t len);
/* Kills the helper if it still runs some seconds after @s: then all waits for it fail. 0 or -1. */
extern int zns_link_limit(unsigned int s);
extern void zns_link_unlimit(void);
/* Prepares zns_link_stop(), which may be called in a signal handler: it asks the helper to end the
 * dump. 0, or -1: there is no helper. */
extern int zns_link_hold(void);
extern int zns_link_stop(void);

struct zns_msg {
	struct zw_hdr h;
	const void *payload;
	size_t len;
	int fd[ZW_MAX_FDS];
	int nr_fd;
};

#define ZNS_MSG(OP)                                       \
	{                                                 \
		.h = {.version = ZW_VERSION, .op = (OP) } \
	}

extern int zns_send(struct zns_msg *m);
/*
 * Sends @m with a fresh answer socket in front of its descriptors, and waits for the answer.
 * Returns its code (0 or -errno); *fd gets the answer's descriptor or -1. -EPIPE: the helper is
 * gone.
 */
extern int zns_ask(struct zns_msg *m, struct zw_reply *r, int *fd);
extern const char *zns_helper_gone(void); /* the way it ended, for a line to the user */
/* prints that the guard killed it, if no process has printed that */
extern void zns_link_tell(void);
/* pr_err() of what the helper says, unless the error before was the same one: after a failure each
 * request gets that failure for its answer. */
#define zns_pr_err(...)                          \
	do {                                     \
		if (zns_err_is_new(__VA_ARGS__)) \
			pr_err(__VA_ARGS__);     \
	} while (0)
extern bool zns_err_is_new(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern int zns_answer_socket(int sk[2]);
/* The first half of zns_ask: returns the socket for zns_recv_reply(), or -1 with @r filled in. */
extern int zns_ask_begin(struct zns_msg *m, struct zw_reply *r);
extern int zns_recv_reply(int sk, struct zw_reply *r, int *fd);

#endif
