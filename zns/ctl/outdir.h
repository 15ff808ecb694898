/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_OUTDIR_H
#define ZNS_CTL_OUTDIR_H
/* A directory that a command fills: new, or empty, no link. By descriptors, for its owner may be
 * somebody else than root. */
#include <stdbool.h>
#include "zns/err.h"
#include "zns/safeopen.h"

struct ctl_outdir {
	const char *path; /* as given, for messages */
	char base[ZNS_BASE_MAX];
	int parent, dir; /* -1: not open */
	bool made; /* by us, to be taken back on failure */
};

#define CTL_OUTDIR_INIT                 \
	{                               \
		.parent = -1, .dir = -1 \
	}

int ctl_outdir_open(struct ctl_outdir *o, const char *path, struct zns_err *err);
int ctl_outdir_sync(const struct ctl_outdir *o, struct zns_err *err); /* its name is durable */
void ctl_outdir_undo(struct ctl_outdir *o); /* removed if we made it and it is empty */
void ctl_outdir_close(struct ctl_outdir *o);

/* A new directory in @dir, not left through a link: its descriptor, or -errno. */
int ctl_make_subdir(int dir, const char *name, struct zns_err *err);
/* 1 if there is nothing in it. */
int ctl_dir_empty(int dir);

#endif
