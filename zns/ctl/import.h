/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ZNS_CTL_IMPORT_H
#define ZNS_CTL_IMPORT_H
/*
 * Shared by cmd_import.c (the order of it all), import.c (the directories at both ends),
 * import_archive.c (an archive instead of the first), import_image.c (one image) and import_join.c.
 * Where images come from may be anybody's, who changes it meanwhile: a file is what it was when it
 * was listed, or the import fails; and it is read once.
 */
#include <sys/stat.h>
#include "ctl.h"
#include "outdir.h"
#include "zns/handle.h"
#include "zns/save.h"

struct import_file {
	char *name;
	uint64_t size;
	struct stat st; /* of a directory's */
	/* of a small one, as it was written to the device: for the copies beside a handle */
	uint8_t *copy;
};

struct import {
	const char *path; /* as given */
	int dir; /* -1: an archive, */
	int archive; /* or -1 */
	struct stat archive_st;
	struct import_file *files;
	size_t nr_files, nr_skipped;
	char container[256];
	uint32_t qos_mibps;
	const char *admission;
	struct ctl_outdir handle; /* --handle */
	const char *parent_id; /* --parent, or NULL */
	bool has_parent, pre_dump;
	uint8_t parent[ZNS_UUID_LEN];
	ZnsPb__Handle *parent_handle; /* that named it; or NULL */
	struct ctl_progress prog;
	struct zns_session s;
	struct zns_save v;
	uint8_t *buf; /* of import_image */
	uint64_t copies; /* bytes kept in files' copies */
	uint32_t nr_copies;
	bool join; /* to the checkpoint of pages only that the directory's handle names: */
	ZnsPb__Handle *old_handle;
	ZnsPb__Response *answer;
	const ZnsPb__Checkpoint *pages;
	ZnsPb__Manifest *pages_m;
};

#define IMPORT_COPIES_MAX 2000 /* as of a dump */
#define IMPORT_INVENTORY_MAGIC 0x58313116u
bool import_is_image(const char *name);
/* An incremental dump if it has a parent: @linked, --parent, or both. */
int import_parent(struct import *x, bool linked, struct zns_err *err);

/* List the images in x->path; refuse what is no whole plain checkpoint. */
int import_scan(struct import *x, struct zns_err *err);
/* The images in x->dir but those that @without has (NULL: all). */
int import_list(struct import *x, const ZnsPb__Manifest *without, struct zns_err *err);
/* One more file; its name is copied. */
int import_add(struct import *x, const char *name, uint64_t size, const struct stat *st,
	       struct zns_err *err);
/* The files of a directory, as they were listed. */
int import_read_dir(struct import *x, struct zns_err *err);
/* import_image.c. One image: @get is asked for its bytes, from front to back. */
typedef int (*import_get)(void *arg, uint8_t *buf, size_t len, uint64_t off, struct zns_err *err);
int import_image(struct import *x, struct import_file *f, import_get get, void *arg,
		 struct zns_err *err);
/* Copies of the small images, which the handle shall name. */
int import_write_copies(struct import *x, struct zns_err *err);
void import_undo_copies(const struct import *x);
void import_fini(struct import *x);

/* import_archive.c: the same for an archive: listed, then read. */
int import_archive_scan(struct import *x, struct zns_err *err);
int import_read_archive(struct import *x, struct zns_err *err);

/* import_join.c: what is there already; @spec may be NULL. Then connected, with the device open. */
int import_join_open(struct import *x, const char *spec, struct zns_err *err);
/* The images to come, once import_join_open knows what is there. */
int import_join_scan(struct import *x, struct zns_err *err);
/* The record anew, without its places. NULL: no memory. */
ZnsPb__Checkpoint *import_join_record(const struct import *x);
/* The handle anew: the plain files that were joined are copies now. */
int import_join_handle(struct import *x, struct zns_err *err);
void import_join_fini(struct import *x);

#endif
