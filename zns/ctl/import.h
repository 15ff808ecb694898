/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_IMPORT_H
#define ZNS_CTL_IMPORT_H
/* Shared by cmd_import.c (the way of the data) and import.c (the directories at both ends). */
#include <time.h>
#include "ctl.h"
#include "zns/writer.h"

struct import_file {
	char *name;
	uint64_t size;
	struct timespec mtime;
};

struct import {
	const char *path;	/* as given */
	int dir;
	struct import_file *files;
	size_t nr_files, nr_skipped;
	char container[256];
	uint32_t qos_mibps;
	const char *admission;
	const char *handle_path;
	int handle_dir;
	bool made_handle_dir;
	struct ctl_progress prog;
	struct zns_registered reg;
	struct zns_broker broker;
	int lock;
	struct zns_dev *dev;
	struct zns_writer *w;
	struct zns_master *master;	/* NULL: plain */
	struct zns_crypt *crypt;
	uint32_t unit, shared_groups;
	uint8_t id[ZNS_UUID_LEN];
};

/* List the images in x->path; refuse what is no whole plain checkpoint. */
int import_scan(struct import *x, struct zns_err *err);
/* Make or take the empty directory for the handle. */
int import_handle_dir(struct import *x, const char *path, struct zns_err *err);
/* Handle and copies of the small images. */
int import_write_handle(struct import *x, const ZnsPb__Checkpoint *c, struct zns_err *err);
/* Without its handle the import failed: remove the checkpoint again. */
void import_drop(struct import *x, struct zns_err *err);
void import_fini(struct import *x);

#endif
