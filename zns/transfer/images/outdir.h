/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_OUTDIR_H
#define ZNS_CTL_OUTDIR_H
/*
 * A directory that a command fills. It must be new or empty, and not a symbolic link. All access is
 * by descriptors, since its owner may be another user than root.
 */
#include <stdbool.h>
#include "zns/err.h"
#include "zns/safeopen.h"

struct ctl_outdir {
	const char *path; /* as the user gave it, for messages */
	char base[ZNS_BASE_MAX];
	int parent, dir; /* -1: not open */
	bool made; /* this process has created the directory, and removes it on failure */
};

#define CTL_OUTDIR_INIT                 \
	{                               \
		.parent = -1, .dir = -1 \
	}

int ctl_outdir_open(struct ctl_outdir *o, const char *path, struct zns_err *err);
/* makes the directory's name durable */
int ctl_outdir_sync(const struct ctl_outdir *o, struct zns_err *err);
/* removes the directory if this process made it and it is empty */
void ctl_outdir_undo(struct ctl_outdir *o);
void ctl_outdir_close(struct ctl_outdir *o);

/*
 * Makes a directory in @dir and opens it without following a symbolic link. Returns its descriptor
 * or -errno.
 */
int ctl_make_subdir(int dir, const char *name, struct zns_err *err);
/* Returns 1 if the directory is empty, 0 if not, or -errno. */
int ctl_dir_empty(int dir);

#endif
