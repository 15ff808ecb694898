/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_RUNC_H
#define ZNS_RUNC_H
/* zns-runc: the OCI runtime that Docker calls. It is runc, with our criu and the container's own
 * settings. */
#include <time.h>
#include "docker.h"

struct call {
	char **argv; /* for runc: [0] its path, our own options taken out */
	int argc;
	const char *runc; /* --zns-runc; NULL: the first other one in PATH */
	const char *docker_root; /* --zns-docker-root */
	const char *command, *id;
	const char *root, *log, *image_path, *work_path, *bundle;
	bool log_json;
	char libexec[PATH_MAX]; /* where this program, criu and zns-helper are */
};

/* args.c: @argv is the program's; what is missing stays NULL. */
int call_parse(int argc, char **argv, struct call *c, struct zns_err *err);
/* One more flag for runc's command, "--NAME"; nothing if it is there already. -ENOMEM. */
int call_add_flag(struct call *c, const char *name);
bool call_has_flag(const struct call *c, const char *name);
int call_find_runc(struct call *c, char *out, size_t len, struct zns_err *err);

/* report.c: one readable line of what failed, where Docker looks for it. */
void report_line(const struct call *c, const char *line);
/* The line of criu's log that says it; -ENOENT: none written since @since. */
int report_find(const struct call *c, const char *log_name, const struct timespec *since, char *out,
		size_t len);

#endif
