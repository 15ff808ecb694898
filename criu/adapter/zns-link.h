/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef __CR_ZNS_LINK_H__
#define __CR_ZNS_LINK_H__
/* The connection to the helper process: starts it, sends packets, waits for answers. */
#include <stdbool.h>
#include <sys/types.h>
#include "zns-wire.h"

/* starts the helper, and installs the socket to it as a service descriptor of criu */
extern int zns_link_start(void);
extern void zns_link_close(void);
/* Finds the path of one of our programs. Returns 0 or -1. */
extern int zns_program_path(const char *name, char *out, size_t len);
/*
 * Kills the helper if it still runs some seconds after @s seconds: then all waits for it fail.
 * Returns 0 or -1.
 */
extern int zns_link_limit(unsigned int s);
extern void zns_link_unlimit(void);
/*
 * zns_link_stop() asks the helper to end the dump, and may be called in a signal handler.
 * zns_link_hold() prepares that; it returns 0, or -1 if there is no helper.
 */
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
 * Sends @m, with a new socket for the answer in front of its descriptors, and waits for the answer.
 * Returns the answer's code (0 or -errno). *fd: the answer's descriptor, or -1. -EPIPE: the helper
 * is gone.
 */
extern int zns_ask(struct zns_msg *m, struct zw_reply *r, int *fd);
extern const char *zns_helper_gone(void); /* how it ended, as text for the user */
/* prints that the guard has killed the helper, unless a process has printed it already */
extern void zns_link_tell(void);
/*
 * Prints the helper's error by pr_err(), unless it is the same as the last one: after a failure,
 * the answer to each request is that failure.
 */
#define zns_pr_err(...)                          \
	do {                                     \
		if (zns_err_is_new(__VA_ARGS__)) \
			pr_err(__VA_ARGS__);     \
	} while (0)
extern bool zns_err_is_new(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern int zns_answer_socket(int sk[2]);
/*
 * zns_ask_begin() is the first half of zns_ask(). It returns the socket for zns_recv_reply(), or -1
 * with @r filled in.
 */
extern int zns_ask_begin(struct zns_msg *m, struct zw_reply *r);
extern int zns_recv_reply(int sk, struct zw_reply *r, int *fd);

#endif
